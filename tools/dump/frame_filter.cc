// SPDX-License-Identifier: Apache-2.0

#include "tools/dump/frame_filter.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <charconv>

#include "fmt/format.h"

namespace xtreme::dump {
namespace {

constexpr size_t kEthernetBytes = 14;
constexpr size_t kTagBytes = 4;
constexpr uint16_t kTypeIpv4 = 0x0800;
constexpr uint16_t kTypeArp = 0x0806;
constexpr uint16_t kTypeVlan = 0x8100;
constexpr size_t kLeastIpv4Bytes = 20;
constexpr uint16_t kFragmentOffset = 0x1FFF;

uint16_t LoadBe16(const uint8_t* from) { return static_cast<uint16_t>(from[0] << 8 | from[1]); }

// The type behind any tag, and what follows it.
uint16_t TakeEthernet(std::span<const uint8_t>* frame) {
  size_t at = kEthernetBytes - 2;
  while (frame->size() >= at + 2) {
    const uint16_t type = LoadBe16(frame->data() + at);
    if (type != kTypeVlan) {
      *frame = frame->subspan(at + 2);
      return type;
    }
    at += kTagBytes;
  }
  return 0;
}

std::string Endpoint(const std::array<uint8_t, 4>& ip, uint16_t port) {
  return fmt::format("{}.{}.{}.{}:{}", ip[0], ip[1], ip[2], ip[3], port);
}

std::string ProtocolName(uint8_t protocol) {
  switch (protocol) {
    case IPPROTO_UDP: return "udp";
    case IPPROTO_TCP: return "tcp";
    case IPPROTO_ICMP: return "icmp";
    case IPPROTO_IGMP: return "igmp";
    default: return fmt::format("protocol {}", protocol);
  }
}

}  // namespace

std::optional<Ends> ParseEnds(std::span<const uint8_t> frame) {
  if (TakeEthernet(&frame) != kTypeIpv4 || frame.size() < kLeastIpv4Bytes) return std::nullopt;
  Ends ends;
  ends.protocol = frame[9];
  std::copy_n(frame.begin() + 12, 4, ends.source_ip.begin());
  std::copy_n(frame.begin() + 16, 4, ends.destination_ip.begin());
  const size_t header_bytes = size_t{4} * (frame[0] & 0xF);
  const bool first = (LoadBe16(frame.data() + 6) & kFragmentOffset) == 0;
  const bool has_ports = ends.protocol == IPPROTO_UDP || ends.protocol == IPPROTO_TCP;
  if (!has_ports || !first || frame.size() < header_bytes + 4) return ends;
  ends.source_port = LoadBe16(frame.data() + header_bytes);
  ends.destination_port = LoadBe16(frame.data() + header_bytes + 2);
  return ends;
}

LocalEnd LocalEnd::Of(const stats::SocketCounters& socket) {
  constexpr size_t kIpv4At = 12;  // Addresses are published as IPv6 ones.
  LocalEnd end{.port = socket.local_port, .protocol = socket.protocol};
  std::array<uint8_t, 4> ip;
  std::copy_n(socket.local_ip.begin() + kIpv4At, ip.size(), ip.begin());
  if (ip != std::array<uint8_t, 4>{}) end.ip = ip;
  if (socket.protocol != IPPROTO_TCP || socket.remote_port == 0) return end;
  end.peer.emplace().port = socket.remote_port;
  std::copy_n(socket.remote_ip.begin() + kIpv4At, ip.size(), end.peer->ip.begin());
  return end;
}

std::optional<LocalEnd> LocalEnd::Parse(std::string_view text) {
  const size_t colon = text.rfind(':');
  if (colon == text.npos) return std::nullopt;
  LocalEnd end;
  const std::string_view port = text.substr(colon + 1);
  const auto [rest, error] = std::from_chars(port.data(), port.data() + port.size(), end.port);
  if (error != std::errc() || rest != port.data() + port.size() || end.port == 0) {
    return std::nullopt;
  }
  if (colon == 0) return end;
  end.ip.emplace();
  const std::string ip(text.substr(0, colon));
  if (ip == "*") end.ip.reset();
  if (ip != "*" && inet_pton(AF_INET, ip.c_str(), end.ip->data()) != 1) return std::nullopt;
  return end;
}

bool LocalEnd::Has(const stats::TappedFrame& frame) const {
  const auto ends = ParseEnds(frame.bytes);
  if (!ends) return false;
  const bool sent = frame.kind == stats::FrameKind::kSent;
  const uint16_t own_port = sent ? ends->source_port : ends->destination_port;
  const auto& own_ip = sent ? ends->source_ip : ends->destination_ip;
  if (own_port != port || (ip && *ip != own_ip)) return false;
  if (protocol && *protocol != ends->protocol) return false;
  const uint16_t other_port = sent ? ends->destination_port : ends->source_port;
  const auto& other_ip = sent ? ends->destination_ip : ends->source_ip;
  return !peer || (peer->port == other_port && peer->ip == other_ip);
}

std::string Describe(const stats::TappedFrame& frame) {
  if (const auto ends = ParseEnds(frame.bytes)) {
    return fmt::format("{} > {} {} {} bytes", Endpoint(ends->source_ip, ends->source_port),
                       Endpoint(ends->destination_ip, ends->destination_port),
                       ProtocolName(ends->protocol), frame.frame_bytes);
  }
  std::span<const uint8_t> bytes = frame.bytes;
  const uint16_t type = TakeEthernet(&bytes);
  return type == kTypeArp ? fmt::format("arp {} bytes", frame.frame_bytes)
                          : fmt::format("type {:#06x} {} bytes", type, frame.frame_bytes);
}

}  // namespace xtreme::dump
