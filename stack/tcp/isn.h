// SPDX-License-Identifier: Apache-2.0
//
// Initial sequence numbers: a clock of four microseconds plus a keyed hash of the connection, so
// that they grow from one incarnation to the next and nobody else can guess them. RFC 6528 section
// 3, RFC 9293 section 3.4.1. Immutable: any thread.
#ifndef XTREME_STACK_TCP_ISN_H_
#define XTREME_STACK_TCP_ISN_H_

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
    const uint64_t hash = hash_(key.addresses, key.ports);
    const auto clock = static_cast<uint32_t>(now / base::Microseconds(4));
    return {Seq(static_cast<uint32_t>(hash) + clock), static_cast<uint32_t>(hash >> 32)};
  }

 private:
  SipHash hash_;
};

}  // namespace xtreme::tcp

#endif  // XTREME_STACK_TCP_ISN_H_
