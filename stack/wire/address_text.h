// SPDX-License-Identifier: Apache-2.0
//
// Addresses as people write them: 00:11:22:33:44:55, 192.0.2.1, 192.0.2.1:4242, 192.0.2.0/24.
//
// Strict: what is parsed is the whole text, decimal numbers have no leading zeros (which elsewhere
// mean octal), no field is missing. For configuration and messages; allocates.
#ifndef XTREME_STACK_WIRE_ADDRESS_TEXT_H_
#define XTREME_STACK_WIRE_ADDRESS_TEXT_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "stack/wire/address.h"

namespace xtreme::wire {

// InvalidArgument with the text and what is wrong with it, in every one.
absl::StatusOr<MacAddress> ParseMacAddress(std::string_view text);
absl::StatusOr<Ipv4Address> ParseIpv4Address(std::string_view text);
absl::StatusOr<Endpoint> ParseEndpoint(std::string_view text);
absl::StatusOr<Ipv4Prefix> ParseIpv4Prefix(std::string_view text);

std::string ToString(const MacAddress& address);
std::string ToString(Ipv4Address address);
std::string ToString(const Endpoint& endpoint);
std::string ToString(const Ipv4Prefix& prefix);

}  // namespace xtreme::wire

#endif  // XTREME_STACK_WIRE_ADDRESS_TEXT_H_
