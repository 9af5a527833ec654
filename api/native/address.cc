// SPDX-License-Identifier: Apache-2.0

#include "api/native/address.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <string>

#include "stack/wire/address_text.h"

namespace xtreme::api {
namespace {

constexpr uint8_t kMappedPrefix[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

bool ParsePort(std::string_view text, uint16_t* port) {
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, *port);
  return error == std::errc() && stop == end;
}

}  // namespace

std::optional<wire::Endpoint> ToEndpoint(const xtreme_address& address) {
  const bool mapped = memcmp(address.ip, kMappedPrefix, sizeof kMappedPrefix) == 0;
  const bool zero = std::all_of(std::begin(address.ip), std::end(address.ip),
                                [](uint8_t byte) { return byte == 0; });
  if (!mapped && !zero) return std::nullopt;
  return wire::Endpoint{wire::Ipv4Address::Load(address.ip + 12), address.port};
}

xtreme_address FromEndpoint(const wire::Endpoint& endpoint) {
  xtreme_address address;
  memcpy(address.ip, kMappedPrefix, sizeof kMappedPrefix);
  endpoint.address.Store(address.ip + 12);
  address.port = endpoint.port;
  return address;
}

ParseVerdict ParseEndpoint(std::string_view text, wire::Endpoint* endpoint) {
  if (std::count(text.begin(), text.end(), ':') > 1) return ParseVerdict::kIpv6;
  const size_t colon = text.find(':');
  const std::string_view host = text.substr(0, colon);
  wire::Endpoint parsed;
  if (colon != text.npos && !ParsePort(text.substr(colon + 1), &parsed.port)) {
    return ParseVerdict::kMalformed;
  }
  const bool any = host == "*" || (host.empty() && colon != text.npos);
  if (!any) {
    const auto address = wire::ParseIpv4Address(host);
    if (!address.ok()) return ParseVerdict::kMalformed;
    parsed.address = *address;
  }
  *endpoint = parsed;
  return ParseVerdict::kOk;
}

}  // namespace xtreme::api
