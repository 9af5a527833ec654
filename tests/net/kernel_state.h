// SPDX-License-Identifier: Apache-2.0
//
// What the kernel of the calling thread's network namespace holds for somebody, as a stranger sees
// it.

#ifndef XTREME_TESTS_NET_KERNEL_STATE_H_
#define XTREME_TESTS_NET_KERNEL_STATE_H_

#include <cstdint>
#include <string>

namespace xtreme::net {

// 0, or the errno of binding a UDP socket to this port of any address.
int UdpBindError(uint16_t port);

// Whether an interface is a member of `group`, as "239.1.2.3".
bool IsGroupMember(const std::string& group);

}  // namespace xtreme::net

#endif  // XTREME_TESTS_NET_KERNEL_STATE_H_
