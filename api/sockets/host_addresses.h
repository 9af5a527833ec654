// SPDX-License-Identifier: Apache-2.0
//
// Which interface an address belongs to, and by which one a destination is reached: asked of the
// kernel when a socket is bound or connected, never for a packet.
//
// Threads: any.

#ifndef XTREME_API_SOCKETS_HOST_ADDRESSES_H_
#define XTREME_API_SOCKETS_HOST_ADDRESSES_H_

#include <netinet/in.h>

#include <optional>
#include <string>
#include <vector>

#include "stack/wire/address.h"

namespace xtreme::sockets {

struct HostAddress {
  std::string interface;
  wire::Ipv4Address address;
  bool loopback = false;
};

// IPv4 addresses of interfaces that are up.
std::vector<HostAddress> HostAddresses();
// The interface of an own address, or of its name or index; "" if it is none of this host's.
std::string InterfaceOf(wire::Ipv4Address own);
std::string InterfaceNamed(unsigned index);

// The one that SO_BINDTODEVICE binds `fd` to; "": none.
std::string DeviceOf(int fd);

// By which interface a datagram from `fd` (whose options count: device, multicast interface) to
// `peer` leaves, and from which address; -1: from any socket. To groups by `group_interface`, if it
// is not "". Nothing: it has no route, or stays in this host.
struct Departure {
  std::string interface;
  wire::Ipv4Address source;
};
std::optional<Departure> DepartureTo(int fd, const wire::Endpoint& peer,
                                     const std::string& group_interface = "");

// Between the kernel's structure and ours.
sockaddr_in ToSockaddr(const wire::Endpoint& endpoint);
wire::Endpoint FromSockaddr(const sockaddr_in& address);

}  // namespace xtreme::sockets

#endif  // XTREME_API_SOCKETS_HOST_ADDRESSES_H_
