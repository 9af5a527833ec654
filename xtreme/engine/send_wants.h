// SPDX-License-Identifier: Apache-2.0
//
// The flags of a send as the ring's log and the device take them.

#ifndef XTREME_XTREME_ENGINE_SEND_WANTS_H_
#define XTREME_XTREME_ENGINE_SEND_WANTS_H_

#include <cstdint>

#include "xtreme/engine/send_flow.h"
#include "xtreme/engine/send_log.h"

namespace xtreme::engine {

// What is to be told of a send, and what its frames ask of the device. A warm one never leaves.
inline uint8_t WantsOf(const SendOptions& options) {
  const bool wire = (options.flags & (kSendWantWire | kWarm)) == kSendWantWire;
  return static_cast<uint8_t>(((options.flags & kSendWantDone) != 0 ? kWantDone : 0) |
                              (wire ? kWantWire : 0));
}
inline uint16_t TxFlagsOf(const SendOptions& options) {
  return static_cast<uint16_t>(((options.flags & kNoDoorbell) != 0 ? nic::kTxMore : 0) |
                               ((options.flags & kWarm) != 0 ? nic::kTxWarm : 0));
}

}  // namespace xtreme::engine

#endif  // XTREME_XTREME_ENGINE_SEND_WANTS_H_
