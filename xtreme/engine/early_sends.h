// SPDX-License-Identifier: Apache-2.0
//
// EarlySends: what is sent on a connection whose SYN has not left, because its port, rule or next
// hop is not there yet. Bring-up, not the data path: it allocates.
//
// Invariant: in order, and each either goes on to the connection or is cancelled, once.
// Units: bytes. Threads: the ring's owner.

#ifndef XTREME_XTREME_ENGINE_EARLY_SENDS_H_
#define XTREME_XTREME_ENGINE_EARLY_SENDS_H_

#include <cstddef>
#include <deque>
#include <vector>

#include "xtreme/engine/send_flow.h"

namespace xtreme::engine {

struct EarlySend {
  std::vector<uint8_t> copy;  // Of a payload without a buffer.
  Payload in_place;           // With one: its reference is kept.
  SendOptions options;

  Payload payload() const {
    return in_place.buffer != nullptr ? in_place
                                      : Payload{.data = copy.data(), .length = copy.size()};
  }
};

struct EarlySends {
  void Add(const Payload& payload, const SendOptions& options) {
    EarlySend& send = sends.emplace_back(EarlySend{.in_place = payload, .options = options});
    if (payload.buffer == nullptr) send.copy.assign(payload.data, payload.data + payload.length);
    bytes += payload.length;
  }

  std::deque<EarlySend> sends;
  size_t bytes = 0;
};

}  // namespace xtreme::engine

#endif  // XTREME_XTREME_ENGINE_EARLY_SENDS_H_
