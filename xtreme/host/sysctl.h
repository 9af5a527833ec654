// SPDX-License-Identifier: Apache-2.0
// Numbers of /proc/sys: the limits of the calling thread's network namespace.

#ifndef XTREME_XTREME_HOST_SYSCTL_H_
#define XTREME_XTREME_HOST_SYSCTL_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace xtreme::host {

// The first number of /proc/sys/`path` ("net/ipv4/igmp_max_memberships"); nullopt when the file
// cannot be read or holds none.
std::optional<uint32_t> ReadSysctl(const std::string& path);

// The first two numbers.
std::optional<std::pair<uint32_t, uint32_t>> ReadSysctlPair(const std::string& path);

}  // namespace xtreme::host

#endif  // XTREME_XTREME_HOST_SYSCTL_H_
