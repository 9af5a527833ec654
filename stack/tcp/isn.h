// SPDX-License-Identifier: Apache-2.0
//
// Initial sequence numbers: a clock of four microseconds plus a keyed hash of the connection, so
// that they grow from one incarnation to the next and nobody else can guess them. RFC 6528 section
// 3, RFC 9293 section 3.4.1. One thread.
#ifndef XTREME_STACK_TCP_ISN_H_
#define XTREME_STACK_TCP_ISN_H_

#include <algorithm>
#include <cstdint>

#include "stack/base/time.h"
#include "stack/tcp/flow_key.h"
#include "stack/tcp/sequence.h"
#include "stack/tcp/sip_hash.h"

namespace xtreme::tcp {

class InitialSequence {
 public:
  // `key` is secret and random, one per start of the process.
  explicit InitialSequence(const SipHash::Key& key) : hash_(key) {}

  struct Numbers {
    Seq iss;
    // For TimestampClock: two connections do not tell of each other, nor of this host's uptime, and
    // one that follows in the same place goes on where the last one was. RFC 7323 section 7.1.
    uint32_t timestamp_offset = 0;
  };

  Numbers For(const FlowKey& key, base::Nanoseconds now) const {
    return AtTick(key, now / base::Microseconds(4));
  }
  // The same of a clock that has moved on since the last call: an attempt that follows one that was
  // given up at once is not to be taken for it.
  Numbers Next(const FlowKey& key, base::Nanoseconds now) {
    last_tick_ = std::max<int64_t>(now / base::Microseconds(4), last_tick_ + 1);
    return AtTick(key, last_tick_);
  }

 private:
  Numbers AtTick(const FlowKey& key, int64_t tick) const {
    const uint64_t hash = hash_(key.addresses, key.ports);
    return {Seq(static_cast<uint32_t>(hash) + static_cast<uint32_t>(tick)),
            static_cast<uint32_t>(hash >> 32)};
  }

  SipHash hash_;
  int64_t last_tick_ = 0;
};

}  // namespace xtreme::tcp

#endif  // XTREME_STACK_TCP_ISN_H_
