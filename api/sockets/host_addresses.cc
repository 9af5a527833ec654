// SPDX-License-Identifier: Apache-2.0

#include "api/sockets/host_addresses.h"

#include <ifaddrs.h>
#include <net/if.h>

#include <algorithm>
#include <array>

#include "api/sockets/kernel_calls.h"

namespace xtreme::sockets {
namespace {

void CopyOption(int from, int to, int level, int option) {
  std::array<char, 64> value{};
  socklen_t length = value.size();
  if (Kernel().getsockopt(from, level, option, value.data(), &length) != 0 || length == 0) return;
  Kernel().setsockopt(to, level, option, value.data(), length);
}

}  // namespace

sockaddr_in ToSockaddr(const wire::Endpoint& endpoint) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(endpoint.port);
  address.sin_addr.s_addr = htonl(endpoint.address.value());
  return address;
}

wire::Endpoint FromSockaddr(const sockaddr_in& address) {
  return {wire::Ipv4Address(ntohl(address.sin_addr.s_addr)), ntohs(address.sin_port)};
}

std::vector<HostAddress> HostAddresses() {
  const Passage passage;
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) return {};
  std::vector<HostAddress> found;
  for (const ifaddrs* each = first; each != nullptr; each = each->ifa_next) {
    const bool usable = each->ifa_addr != nullptr && each->ifa_addr->sa_family == AF_INET &&
                        (each->ifa_flags & IFF_UP) != 0;
    if (!usable) continue;
    const auto* address = reinterpret_cast<const sockaddr_in*>(each->ifa_addr);
    found.push_back({each->ifa_name, FromSockaddr(*address).address,
                     (each->ifa_flags & IFF_LOOPBACK) != 0});
  }
  freeifaddrs(first);
  return found;
}

std::string InterfaceOf(wire::Ipv4Address own) {
  for (const HostAddress& each : HostAddresses()) {
    if (each.address == own) return each.interface;
  }
  return "";
}

std::string InterfaceNamed(unsigned index) {
  const Passage passage;
  std::array<char, IF_NAMESIZE> name{};
  return if_indextoname(index, name.data()) == nullptr ? "" : name.data();
}

std::string DeviceOf(int fd) {
  std::array<char, IF_NAMESIZE + 1> name{};
  socklen_t length = IF_NAMESIZE;
  const bool known =
      Kernel().getsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, name.data(), &length) == 0;
  return known ? name.data() : "";
}

std::optional<Departure> DepartureTo(int fd, const wire::Endpoint& peer,
                                     const std::string& group_interface) {
  const Uncancelled whole;
  const KernelCalls& kernel = Kernel();
  const int probe = kernel.socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (probe < 0) return std::nullopt;
  CopyOption(fd, probe, SOL_SOCKET, SO_BINDTODEVICE);
  if (!group_interface.empty()) {
    // What was set by its index is not to be read back.
    const Passage passage;
    const ip_mreqn by{.imr_ifindex = static_cast<int>(if_nametoindex(group_interface.c_str()))};
    kernel.setsockopt(probe, IPPROTO_IP, IP_MULTICAST_IF, &by, sizeof by);
  }
  const int on = 1;
  kernel.setsockopt(probe, SOL_SOCKET, SO_BROADCAST, &on, sizeof on);
  sockaddr_in address = ToSockaddr(peer);
  socklen_t length = sizeof address;
  // A connected datagram socket has a route and a source; nothing is sent.
  const bool routed =
      kernel.connect(probe, reinterpret_cast<sockaddr*>(&address), length) == 0 &&
      kernel.getsockname(probe, reinterpret_cast<sockaddr*>(&address), &length) == 0;
  kernel.close(probe);
  if (!routed) return std::nullopt;
  const wire::Ipv4Address source = FromSockaddr(address).address;
  const std::vector<HostAddress> own = HostAddresses();
  const auto at = [&own](wire::Ipv4Address wanted) {
    return std::find_if(own.begin(), own.end(),
                        [wanted](const HostAddress& each) { return each.address == wanted; });
  };
  // What goes to ourselves goes by the loopback interface, whatever address it has.
  if (at(source) == own.end() || at(source)->loopback || at(peer.address) != own.end()) {
    return std::nullopt;
  }
  return Departure{at(source)->interface, source};
}

}  // namespace xtreme::sockets
