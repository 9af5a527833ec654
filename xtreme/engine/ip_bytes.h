// SPDX-License-Identifier: Apache-2.0
//
// IPv4 addresses as completions have them: the last four of sixteen bytes, behind ::ffff:0:0/96.

#ifndef XTREME_XTREME_ENGINE_IP_BYTES_H_
#define XTREME_XTREME_ENGINE_IP_BYTES_H_

#include <cstring>

#include "stack/base/byte_order.h"
#include "stack/wire/address.h"
#include "xtreme/engine/completion.h"

namespace xtreme::engine {

// Two stores of eight bytes. RFC 4291 section 2.5.5.2.
inline void StoreIp(wire::Ipv4Address address, IpBytes* to) {
  const uint64_t high = 0;
  const uint64_t low = base::HostToBigEndian(uint64_t{0xFFFF} << 32 | address.value());
  memcpy(to->data(), &high, sizeof(high));
  memcpy(to->data() + 8, &low, sizeof(low));
}

}  // namespace xtreme::engine

#endif  // XTREME_XTREME_ENGINE_IP_BYTES_H_
