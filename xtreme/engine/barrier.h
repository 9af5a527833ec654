// SPDX-License-Identifier: Apache-2.0
//
// PostBarrier: how to learn that everything posted to a send queue has left it.
//
// Frames behind the last signalled one complete with the next: this is the next, and reaches no
// wire. Threads: who posts to the queue.

#ifndef XTREME_XTREME_ENGINE_BARRIER_H_
#define XTREME_XTREME_ENGINE_BARRIER_H_

#include <array>
#include <cstdint>

#include "xtreme/nic/queue_pair.h"

namespace xtreme::engine {

// Posts a signalled NOP and rings; what the queue says to it.
inline nic::TxStatus PostBarrier(nic::QueuePair& queue) {
  static constexpr std::array<uint8_t, 64> kNothing{};
  return queue.Post({.header = kNothing.data(),
                     .payload = nullptr,
                     .header_length = 60,
                     .payload_length = 0,
                     .key = 0,
                     .flags = nic::kTxWarm | nic::kTxSignal});
}

}  // namespace xtreme::engine

#endif  // XTREME_XTREME_ENGINE_BARRIER_H_
