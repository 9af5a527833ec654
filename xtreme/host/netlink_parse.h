// SPDX-License-Identifier: Apache-2.0
// One rtnetlink message to one row of the kernel's tables.
//
// Pure functions of bytes: no socket, no state. A message that is not what the function reads
// (another family, another object, too short, an attribute of the wrong size) is nullopt, never a
// partial row.
//
// Byte order: netlink headers are in host order, addresses in network order.
// The caller guarantees that `message.nlmsg_len` bytes are readable at `message`.
// Spec: rtnetlink(7), netlink(7).

#ifndef XTREME_XTREME_HOST_NETLINK_PARSE_H_
#define XTREME_XTREME_HOST_NETLINK_PARSE_H_

#include <linux/netlink.h>

#include <optional>

#include "xtreme/host/kernel_tables.h"

namespace xtreme::host {

// RTM_NEWLINK and RTM_DELLINK. Messages of a bridge about its ports (AF_BRIDGE) are refused: they
// carry the same type and are not about the interface.
std::optional<Interface> ParseInterface(const nlmsghdr& message);

// RTM_NEWADDR and RTM_DELADDR of AF_INET.
std::optional<InterfaceAddress> ParseAddress(const nlmsghdr& message);

// RTM_NEWROUTE and RTM_DELROUTE of AF_INET, and the answer to RTM_GETROUTE.
std::optional<Route> ParseRoute(const nlmsghdr& message);

// RTM_NEWRULE and RTM_DELRULE of AF_INET.
std::optional<RoutingRule> ParseRule(const nlmsghdr& message);

// RTM_NEWNEIGH and RTM_DELNEIGH of AF_INET. An entry without a link-layer address has the MAC 0.
std::optional<Neighbour> ParseNeighbour(const nlmsghdr& message);

}  // namespace xtreme::host

#endif  // XTREME_XTREME_HOST_NETLINK_PARSE_H_
