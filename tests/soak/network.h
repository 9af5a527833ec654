// SPDX-License-Identifier: Apache-2.0
//
// The kernel's side of the soak: a network namespace for each member, with the interfaces that its
// devices are of, addresses, routes, and where the others are.
//
// No frame of the shared wire comes to a kernel, so neighbours are told by the parent, as a
// kernel's would be by ARP. Thread: the parent's.

#ifndef XTREME_TESTS_SOAK_NETWORK_H_
#define XTREME_TESTS_SOAK_NETWORK_H_

#include <array>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "tests/net/namespace.h"
#include "tests/soak/board.h"

namespace xtreme::soak {

inline constexpr uint32_t kMtu = 1'500;

inline int PortsOf(int member) { return member == kRoamer ? 2 : 1; }
inline const char* InterfaceAt(int port) { return port == 0 ? "xt0" : "xt1"; }
inline net::MacAddress MacOf(int member, int port) {
  return {2, 0, 0, 0, static_cast<uint8_t>(member), static_cast<uint8_t>(port)};
}

class Network {
 public:
  absl::Status Make();

  net::Namespace& of(int member) { return *spaces_[static_cast<size_t>(member)]; }
  // Of the member's first interface.
  absl::Status SetMtu(int member, uint32_t mtu);
  // Where the others send what is for the roamer's first ring.
  absl::Status TellOfRoamer(bool at_backup);

 private:
  absl::Status MakeInterface(int member, int port);
  absl::Status Tell(int member, const Endpoint& other, int port);

  std::array<std::unique_ptr<net::Namespace>, kMembers> spaces_;
};

}  // namespace xtreme::soak

#endif  // XTREME_TESTS_SOAK_NETWORK_H_
