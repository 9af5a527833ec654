// SPDX-License-Identifier: Apache-2.0
//
// A flow rule in the words of a wire that is shared with a kernel.
//
// Invariant: the wire's rule takes every frame the flow rule takes. It takes more only where a VLAN
// mask asks for priority bits, which wires do not match. Thread: none, a pure function.

#ifndef XTREME_TOOLS_CONNECTX_DEVICE_WIRE_RULE_H_
#define XTREME_TOOLS_CONNECTX_DEVICE_WIRE_RULE_H_

#include "tools/connectx/device/requests.h"
#include "tools/connectx/wire/wire.h"

namespace xtreme::connectx {

// EOPNOTSUPP: an EtherType, VLAN id, protocol or port with a partial mask.
int ToWireRule(const FlowRequest& request, WireRule* rule);

}  // namespace xtreme::connectx

#endif  // XTREME_TOOLS_CONNECTX_DEVICE_WIRE_RULE_H_
