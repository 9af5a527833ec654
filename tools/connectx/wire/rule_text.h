// SPDX-License-Identifier: Apache-2.0
//
// A WireRule in the language of nftables: the shape that rules of its kind share, and the element
// that is its own. Pure functions.

#ifndef XTREME_TOOLS_CONNECTX_WIRE_RULE_TEXT_H_
#define XTREME_TOOLS_CONNECTX_WIRE_RULE_TEXT_H_

#include <string>

#include "absl/status/statusor.h"
#include "tools/connectx/wire/wire.h"

namespace xtreme::connectx {

struct RuleText {
  std::string guard;    // Must hold as well: "ether type != 8021q"; may be empty.
  std::string fields;   // The fields compared, without masks, for a set's `typeof`.
  std::string key;      // The same with masks, for a rule's left side.
  std::string tail;     // Must hold after the key: "ip frag-off & 0x3fff == 0"; may be empty.
  std::string element;  // The values.
};

// The same rule in the one form that equal rules share: fields that a wildcard overrides cleared,
// address bits outside the masks cleared, an EtherType of IPv4 that is implied left out.
// Errors: InvalidArgument for ports without TCP or UDP, for IP fields under another EtherType,
// and for a VLAN id above 4095.
absl::StatusOr<WireRule> Normalise(const WireRule& rule);

// `rule` must be normalised.
RuleText ToText(const WireRule& rule);

}  // namespace xtreme::connectx

#endif  // XTREME_TOOLS_CONNECTX_WIRE_RULE_TEXT_H_
