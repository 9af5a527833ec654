// SPDX-License-Identifier: Apache-2.0
//
// xtreme_address to the stack's endpoint and back: IPv4 behind ::ffff:0:0/96 (RFC 4291 2.5.5.2).

#ifndef XTREME_API_NATIVE_ADDRESS_H_
#define XTREME_API_NATIVE_ADDRESS_H_

#include <optional>
#include <string_view>

#include "api/xtreme.h"
#include "stack/wire/address.h"

namespace xtreme::api {

// Nothing for IPv6 proper. All zero, as in a cleared structure, is any address.
std::optional<wire::Endpoint> ToEndpoint(const xtreme_address& address);
xtreme_address FromEndpoint(const wire::Endpoint& endpoint);

enum class ParseVerdict { kOk, kMalformed, kIpv6 };
// "a.b.c.d:port", "a.b.c.d", ":port", "*:port".
ParseVerdict ParseEndpoint(std::string_view text, wire::Endpoint* endpoint);

}  // namespace xtreme::api

#endif  // XTREME_API_NATIVE_ADDRESS_H_
