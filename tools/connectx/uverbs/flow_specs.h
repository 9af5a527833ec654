// SPDX-License-Identifier: Apache-2.0
//
// The match of a flow rule as the kernel's interface has it: specifications back to back, each a
// header of 8 bytes, then values, then masks of the same length.
//
// Invariant: a specification's halves are found from its own size, not from a structure's, because
// libibverbs sends shorter IPv4 filters than the kernel's header shows.
// Byte order: network in the specifications, host in FlowFields.
// Spec: <rdma/ib_user_verbs.h> ib_uverbs_flow_spec_*; ibv_create_flow(3).

#ifndef XTREME_TOOLS_CONNECTX_UVERBS_FLOW_SPECS_H_
#define XTREME_TOOLS_CONNECTX_UVERBS_FLOW_SPECS_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "tools/connectx/device/requests.h"

namespace xtreme::connectx {

// Fills value, mask, tag, drop and counter of `request` from `count` specifications; the counter is
// the program's handle. 0 or an errno: EINVAL (malformed, or one that contradicts another),
// EOPNOTSUPP (a kind or a field that the device does not match: tunnels, inner headers, TOS, TTL,
// flow labels).
int ParseFlowSpecs(std::span<const std::byte> specs, uint8_t count, FlowRequest* request);

}  // namespace xtreme::connectx

#endif  // XTREME_TOOLS_CONNECTX_UVERBS_FLOW_SPECS_H_
