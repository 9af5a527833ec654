// SPDX-License-Identifier: Apache-2.0
//
// A WireRule in the language of nftables: the shape that rules of its kind share, and the element
// that is its own. Pure functions.
//
// Compared as an element are addresses and IPv4 ports only, five fields at most. What else a rule
// says is of its shape: libnftables reads the sets of a table back whenever any process has changed
// any table, and then knows sets of more fields, and fields without a type of their own (VLAN ids,
// bits at an offset), no more; adding to them fails from then on.

#ifndef XTREME_TOOLS_CONNECTX_WIRE_RULE_TEXT_H_
#define XTREME_TOOLS_CONNECTX_WIRE_RULE_TEXT_H_

#include <string>

#include "absl/status/statusor.h"
#include "tools/connectx/wire/wire.h"

namespace xtreme::connectx {

struct RuleText {
  std::string guard;    // Must hold as well: "ether type != 8021q"; may be empty.
  std::string types;    // Of the fields compared, for a set's `type`.
  std::string key;      // These fields, with masks, for a rule's left side.
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
