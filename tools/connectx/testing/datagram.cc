// SPDX-License-Identifier: Apache-2.0
//
// UDP datagrams as frames, written and read independently of the stack that a test may be testing.
// Spec: RFC 768, RFC 791, RFC 1071, RFC 1112 section 6.4 (a group's MAC address).

#include <arpa/inet.h>

#include <algorithm>
#include <charconv>
#include <system_error>

#include "tools/connectx/testing/test_bed.h"
#include "tools/connectx/testing/wrong_use.h"

namespace xtreme::connectx {
namespace {

constexpr size_t kEthernet = 14;
constexpr size_t kIp = 20;
constexpr size_t kUdp = 8;
constexpr size_t kMostIp = 65'535;  // What the length in an IP header can say.
constexpr uint8_t kUdpProtocol = 17;

struct Endpoint {
  uint32_t ip = 0;
  uint16_t port = 0;
};

Endpoint ParseEndpoint(const std::string& text) {
  const size_t colon = std::min(text.find(':'), text.size());
  const char* const end = text.data() + text.size();
  in_addr address{};
  Endpoint endpoint;
  const auto [rest, error] = std::from_chars(std::min(text.data() + colon + 1, end), end,
                                             endpoint.port);
  if (inet_pton(AF_INET, text.substr(0, colon).c_str(), &address) != 1 || error != std::errc() ||
      rest != end) {
    Die("\"" + text + "\" is not ADDRESS:PORT, as \"10.0.0.1:7000\"");
  }
  endpoint.ip = ntohl(address.s_addr);
  return endpoint;
}

std::string EndpointText(const uint8_t* ip, const uint8_t* port) {
  char text[INET_ADDRSTRLEN] = "";
  inet_ntop(AF_INET, ip, text, sizeof(text));
  return std::string(text) + ":" + std::to_string(port[0] << 8 | port[1]);
}

void Put16(uint8_t* at, size_t value) {
  at[0] = static_cast<uint8_t>(value >> 8);
  at[1] = static_cast<uint8_t>(value);
}

void Put32(uint8_t* at, uint32_t value) {
  Put16(at, value >> 16);
  Put16(at + 2, value & 0xffff);
}

uint32_t Sum(std::span<const uint8_t> bytes, uint32_t sum = 0) {
  for (size_t i = 0; i < bytes.size(); ++i) sum += bytes[i] << (i % 2 == 0 ? 8 : 0);
  while (sum >> 16 != 0) sum = (sum & 0xffff) + (sum >> 16);
  return sum;
}

// Of the UDP header, its payload and the pseudo-header; 0xffff when the checksum inside is right.
uint32_t UdpSum(std::span<const uint8_t> ip) {
  const auto length = static_cast<uint32_t>(ip.size() - kIp);
  const uint32_t pseudo = Sum(ip.subspan(12, 8), kUdpProtocol + length);
  return Sum(ip.subspan(kIp), pseudo);
}

}  // namespace

TestBed::Frame TestBed::Encode(const Datagram& datagram, const Mac& from, const Mac& to) {
  const Endpoint source = ParseEndpoint(datagram.source);
  const Endpoint destination = ParseEndpoint(datagram.destination);
  Mac mac = to;
  if (destination.ip >> 28 == 0xe) {
    const uint32_t ip = destination.ip;
    mac = {0x01, 0x00, 0x5e, static_cast<uint8_t>(ip >> 16 & 0x7f), static_cast<uint8_t>(ip >> 8),
           static_cast<uint8_t>(ip)};
  }
  const size_t length = kIp + kUdp + datagram.payload.size();
  if (length > kMostIp) {
    Die("a datagram of " + std::to_string(datagram.payload.size()) + " bytes: " +
        std::to_string(kMostIp - kIp - kUdp) + " at most");
  }
  Frame frame(kEthernet + length);
  std::copy(mac.begin(), mac.end(), frame.begin());
  std::copy(from.begin(), from.end(), frame.begin() + 6);
  Put16(&frame[12], 0x0800);
  uint8_t* const ip = &frame[kEthernet];
  ip[0] = 0x45;
  Put16(ip + 2, length);
  ip[8] = 64;
  ip[9] = kUdpProtocol;
  Put32(ip + 12, source.ip);
  Put32(ip + 16, destination.ip);
  Put16(ip + 10, ~Sum({ip, kIp}));
  uint8_t* const udp = ip + kIp;
  Put16(udp, source.port);
  Put16(udp + 2, destination.port);
  Put16(udp + 4, length - kIp);
  std::copy(datagram.payload.begin(), datagram.payload.end(), udp + kUdp);
  const uint32_t checksum = ~UdpSum({ip, length}) & 0xffff;
  Put16(udp + 6, checksum == 0 ? 0xffff : checksum);
  if (frame.size() < 60) frame.resize(60);  // Ethernet's least, without the FCS.
  return frame;
}

std::optional<TestBed::Datagram> TestBed::Decode(std::span<const uint8_t> frame) {
  if (frame.size() < kEthernet + kIp + kUdp || frame[12] != 0x08 || frame[13] != 0) {
    return std::nullopt;
  }
  std::span<const uint8_t> ip = frame.subspan(kEthernet);
  const size_t length = ip[2] << 8 | ip[3];
  const bool fragment = ((ip[6] & 0x3f) | ip[7]) != 0;
  if (ip[0] != 0x45 || ip[9] != kUdpProtocol || fragment || length > ip.size() ||
      length < kIp + kUdp) {
    return std::nullopt;
  }
  ip = ip.first(length);
  const uint8_t* const udp = &ip[kIp];
  const bool has_sum = (udp[6] | udp[7]) != 0;
  if (Sum(ip.first(kIp)) != 0xffff || (has_sum && UdpSum(ip) != 0xffff) ||
      (udp[4] << 8 | udp[5]) != static_cast<int>(length - kIp)) {
    return std::nullopt;
  }
  const auto payload = ip.subspan(kIp + kUdp);
  return Datagram{EndpointText(&ip[12], udp), EndpointText(&ip[16], udp + 2),
                  std::string(payload.begin(), payload.end())};
}

}  // namespace xtreme::connectx
