// SPDX-License-Identifier: Apache-2.0
#include "stack/wire/address_text.h"

#include <array>
#include <charconv>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace xtreme::wire {
namespace {

absl::Status Malformed(std::string_view kind, std::string_view text, std::string_view why) {
  std::string message = "parse ";
  message.append(kind).append(" '").append(text).append("': ").append(why);
  return absl::InvalidArgumentError(message);
}

// A decimal number of at most `max`, without sign, space or leading zero.
std::optional<uint32_t> ParseDecimal(std::string_view text, uint32_t max) {
  if (text.empty() || (text.size() > 1 && text[0] == '0')) return std::nullopt;
  uint32_t value = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || rest != end || value > max) return std::nullopt;
  return value;
}

std::optional<uint8_t> ParseHexByte(std::string_view text) {
  if (text.size() != 2) return std::nullopt;
  uint8_t value = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + 2, value, 16);
  if (error != std::errc() || rest != text.data() + 2) return std::nullopt;
  return value;
}

}  // namespace

absl::StatusOr<MacAddress> ParseMacAddress(std::string_view text) {
  MacAddress::Bytes bytes;
  if (text.size() != 3 * bytes.size() - 1) {
    return Malformed("MAC address", text, "six two-digit bytes expected");
  }
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (i > 0 && text[3 * i - 1] != ':') return Malformed("MAC address", text, "':' expected");
    const std::optional<uint8_t> byte = ParseHexByte(text.substr(3 * i, 2));
    if (!byte) return Malformed("MAC address", text, "hexadecimal digits expected");
    bytes[i] = *byte;
  }
  return MacAddress(bytes);
}

absl::StatusOr<Ipv4Address> ParseIpv4Address(std::string_view text) {
  uint32_t value = 0;
  std::string_view rest = text;
  for (int field = 0; field < 4; ++field) {
    const size_t dot = field < 3 ? rest.find('.') : rest.size();
    if (dot == std::string_view::npos) {
      return Malformed("IPv4 address", text, "four fields expected");
    }
    const std::optional<uint32_t> byte = ParseDecimal(rest.substr(0, dot), 255);
    if (!byte) return Malformed("IPv4 address", text, "fields are numbers of 0 to 255");
    value = value << 8 | *byte;
    rest.remove_prefix(field < 3 ? dot + 1 : dot);
  }
  return Ipv4Address(value);
}

absl::StatusOr<Endpoint> ParseEndpoint(std::string_view text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return Malformed("endpoint", text, "':' expected");
  const absl::StatusOr<Ipv4Address> address = ParseIpv4Address(text.substr(0, colon));
  if (!address.ok()) return address.status();
  const std::optional<uint32_t> port = ParseDecimal(text.substr(colon + 1), 65535);
  if (!port) return Malformed("endpoint", text, "the port is a number of 0 to 65535");
  return Endpoint{*address, static_cast<uint16_t>(*port)};
}

absl::StatusOr<Ipv4Prefix> ParseIpv4Prefix(std::string_view text) {
  const size_t slash = text.find('/');
  if (slash == std::string_view::npos) return Malformed("IPv4 prefix", text, "'/' expected");
  const absl::StatusOr<Ipv4Address> address = ParseIpv4Address(text.substr(0, slash));
  if (!address.ok()) return address.status();
  const std::optional<uint32_t> length = ParseDecimal(text.substr(slash + 1), 32);
  if (!length) return Malformed("IPv4 prefix", text, "the length is a number of 0 to 32");
  return Ipv4Prefix{*address, static_cast<uint8_t>(*length)};
}

std::string ToString(const MacAddress& address) {
  const MacAddress::Bytes& b = address.bytes();
  return absl::StrFormat("%02x:%02x:%02x:%02x:%02x:%02x", b[0], b[1], b[2], b[3], b[4], b[5]);
}

std::string ToString(Ipv4Address address) {
  const uint32_t v = address.value();
  return absl::StrCat(v >> 24, ".", v >> 16 & 0xFF, ".", v >> 8 & 0xFF, ".", v & 0xFF);
}

std::string ToString(const Endpoint& endpoint) {
  return absl::StrCat(ToString(endpoint.address), ":", endpoint.port);
}

std::string ToString(const Ipv4Prefix& prefix) {
  return absl::StrCat(ToString(prefix.address), "/", prefix.length);
}

}  // namespace xtreme::wire
