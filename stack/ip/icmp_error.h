// SPDX-License-Identifier: Apache-2.0
//
// What an ICMP error means to the socket whose datagram caused it. RFC 1122
// sections 3.2.2, 4.1.3.3.
//
// Pure: the caller finds the socket by `flow` and decides, by `hard`, whether an unconnected one is
// told. Errors are claims of strangers: whoever looks the socket up must find it by both ends.
#ifndef XTREME_STACK_IP_ICMP_ERROR_H_
#define XTREME_STACK_IP_ICMP_ERROR_H_

#include <cstdint>
#include <optional>

#include "stack/wire/address.h"
#include "stack/wire/frame.h"
#include "stack/wire/icmp.h"

namespace xtreme::ip {

struct SocketError {
  int error = 0;               // errno
  bool hard = false;           // no use to try again: RFC 1122 section 4.2.3.9
  uint16_t mtu_bytes = 0;      // with EMSGSIZE, the next hop's, or 0 where the router did not say
  uint8_t protocol = 0;        // of the offending datagram: UDP or TCP
  uint16_t length = 0;         // its, as its IP header says
  wire::Endpoint source;       // of the offending datagram: our socket
  wire::Endpoint destination;  // where it was sent
  uint32_t sequence = 0;       // of an offending TCP segment; RFC 5927 section 4.1 says to check it
  // The offending flow turned around: a datagram of this flow would reach the same socket.
  wire::UdpFlow flow;
};

// What `icmp`, received on VLAN `vlan_id`, reports. Empty when it is about a protocol without
// ports, or has a code nobody knows.
std::optional<SocketError> InterpretIcmpError(const wire::IcmpErrorView& icmp, uint16_t vlan_id);

}  // namespace xtreme::ip

#endif  // XTREME_STACK_IP_ICMP_ERROR_H_
