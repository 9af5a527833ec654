// SPDX-License-Identifier: Apache-2.0
//
// PathError: an ICMP error about a segment that a connection sent, and what becomes of it.
//
// Whoever can guess a connection's four numbers can send one: believed is only what quotes a
// sequence number that is outstanding. RFC 5927 section 4.1; RFC 1191; RFC 9293 section 3.9.2.2.
// Units: bytes. Pure.
#ifndef XTREME_STACK_TCP_PATH_ERROR_H_
#define XTREME_STACK_TCP_PATH_ERROR_H_

#include <cstdint>

#include "stack/base/counters.h"

namespace xtreme::tcp {

struct PathError {
  uint32_t sequence = 0;  // of the segment that it quotes
  int error = 0;          // errno; EMSGSIZE: the segment was too long to go on
  bool hard = false;      // no use to try again: RFC 1122 section 4.2.3.9
  uint32_t mtu = 0;       // with EMSGSIZE, of IP; 0: the router did not say
  uint32_t length = 0;    // of the IP datagram that it quotes, as its header says; 0: not known
};

enum class PathVerdict : uint8_t {
  kBelieved,
  kNoConnection,
  kNotOutstanding,
  kMtuKnown,
  kMtuTooSmall,
  kCount,
};

base::CounterName DescribeReason(PathVerdict verdict);

}  // namespace xtreme::tcp

#endif  // XTREME_STACK_TCP_PATH_ERROR_H_
