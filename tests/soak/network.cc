// SPDX-License-Identifier: Apache-2.0

#include "tests/soak/network.h"

#include <string>
#include <string_view>
#include <utility>

namespace xtreme::soak {
namespace {

constexpr char kBackupAddress[] = "10.9.0.21/24";

}  // namespace

absl::Status Network::Make() {
  for (int member = 0; member < kMembers; ++member) {
    auto space = net::Namespace::Create();
    if (!space.ok()) return space.status();
    spaces_[static_cast<size_t>(member)] = *std::move(space);
    for (int port = 0; port < PortsOf(member); ++port) {
      if (absl::Status made = MakeInterface(member, port); !made.ok()) return made;
    }
    absl::Status status = of(member).AddRoute("224.0.0.0/4", "xt0");
    for (const Endpoint& other : kEndpoints) {
      if (other.member != member) status.Update(Tell(member, other, 0));
    }
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status Network::MakeInterface(int member, int port) {
  const std::string name = InterfaceAt(port);
  absl::Status status = net::ConnectByVeth(of(member), name, of(member), name + "peer");
  status.Update(of(member).SetMac(name, MacOf(member, port)));
  if (port == 1) status.Update(of(member).AddAddress(name, kBackupAddress));
  std::string_view last;  // Two rings may have one address.
  for (const Endpoint& own : kEndpoints) {
    if (own.member != member || port != 0 || own.ip == last) continue;
    status.Update(of(member).AddAddress(name, std::string(own.ip) + "/24"));
    last = own.ip;
  }
  return status;
}

absl::Status Network::Tell(int member, const Endpoint& other, int port) {
  absl::Status status;
  for (int own = 0; own < PortsOf(member); ++own) {
    status.Update(
        of(member).AddNeighbour(InterfaceAt(own), other.ip, MacOf(other.member, port)));
  }
  return status;
}

absl::Status Network::SetMtu(int member, uint32_t mtu) {
  return of(member).SetMtu(InterfaceAt(0), mtu);
}

absl::Status Network::TellOfRoamer(bool at_backup) {
  absl::Status status;
  for (int member = 0; member < kMembers; ++member) {
    if (member != kRoamer) status.Update(Tell(member, EndpointAt(0), at_backup ? 1 : 0));
  }
  return status;
}

}  // namespace xtreme::soak
