// SPDX-License-Identifier: Apache-2.0
//
// Who a device says it is: what sysfs shows and what the query commands answer, so that the two
// agree.
//
// Units: numbers in host byte order, GIDs as 16 bytes of an IPv6 address.
// Spec: Linux Documentation/ABI/stable/sysfs-class-infiniband; RoCEv2 Annex A17 for the GIDs.

#ifndef XTREME_TOOLS_CONNECTX_UVERBS_IDENTITY_H_
#define XTREME_TOOLS_CONNECTX_UVERBS_IDENTITY_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "tools/connectx/wire/wire.h"

namespace xtreme::connectx {

using Gid = std::array<uint8_t, 16>;

// Defaults are a ConnectX-5's.
struct DeviceIdentity {
  std::string name;       // "mlx5_0"
  std::string interface;  // Its network interface; empty: none.
  unsigned interface_index = 0;
  uint64_t node_guid = 0;
  std::array<uint16_t, 3> firmware = {16, 35, 4030};
  std::string hca_type = "MT4119";
  std::string board_id = "MT_0000000012";
  uint16_t pci_device_id = 0x1017;  // What makes libibverbs choose libmlx5.
  std::vector<Gid> gids;            // Even entries are RoCE v1, odd ones v2.
};

// The EUI-64 of `mac` with the universal bit flipped, as RoCE ports form their GUID and
// link-local GID.
inline uint64_t GuidOf(const MacAddress& mac) {
  return uint64_t{mac[0] ^ 2u} << 56 | uint64_t{mac[1]} << 48 | uint64_t{mac[2]} << 40 |
         uint64_t{0xfffe} << 24 | uint64_t{mac[3]} << 16 | uint64_t{mac[4]} << 8 | mac[5];
}

// The identity of a port with this MAC address: GUID and the link-local GID in both RoCE versions.
inline DeviceIdentity IdentityOf(std::string name, std::string interface, const MacAddress& mac) {
  DeviceIdentity identity{.name = std::move(name), .interface = std::move(interface)};
  identity.node_guid = GuidOf(mac);
  Gid gid{0xfe, 0x80};
  for (int i = 0; i < 8; ++i) gid[8 + i] = static_cast<uint8_t>(identity.node_guid >> (56 - 8 * i));
  identity.gids = {gid, gid};
  return identity;
}

}  // namespace xtreme::connectx

#endif  // XTREME_TOOLS_CONNECTX_UVERBS_IDENTITY_H_
