// SPDX-License-Identifier: Apache-2.0

#include "tests/soak/datagrams.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace xtreme::soak {
namespace {

constexpr uint16_t ConnectedPort(int at) { return static_cast<uint16_t>(7'100 + at); }

xtreme_address GroupOf(int at) {
  return AddressOf(("239.1.1." + std::to_string(1 + at)).c_str(), kGroupPort);
}

bool Same(const xtreme_address& a, const xtreme_address& b) {
  return memcmp(a.ip, b.ip, sizeof a.ip) == 0 && a.port == b.port;
}

// The other member's ring that the connected socket of `at` sends to.
int PartnerOf(int at) {
  int partner = (at + 2) % kRings;
  while (EndpointAt(partner).member == EndpointAt(at).member) partner = (partner + 1) % kRings;
  return partner;
}

}  // namespace

xtreme_address AddressOf(const char* ip, uint16_t port) {
  auto address = ParseAddress(std::string(ip) + ":" + std::to_string(port));
  if (!address) abort();
  return *address;
}

std::string Datagrams::Open(Ring* ring) {
  const std::string own = std::string(EndpointAt(at_).ip) + ":";
  const auto open = [&](const std::string& local, UdpSocket* socket) {
    auto opened = ring->OpenUdp({.local = local, .user_data = static_cast<uint64_t>(at_)});
    if (!opened) return opened.error().message;
    ++operations_;
    *socket = *std::move(opened);
    return std::string();
  };
  std::string wrong = open(own + std::to_string(UdpPort(at_)), &unicast_);
  if (wrong.empty()) wrong = open(own + std::to_string(ConnectedPort(at_)), &connected_);
  if (!wrong.empty()) return wrong;
  connected_to_ = PartnerOf(at_);
  const Endpoint& partner = EndpointAt(connected_to_);
  Status status = connected_.Connect(AddressOf(partner.ip, UdpPort(connected_to_)));
  if (!status) return status.error().message;
  ++operations_;
  if (!HearsGroups(at_)) return "";
  wrong = open(":" + std::to_string(kGroupPort), &groups_);
  for (int from = 0; from < kRings && wrong.empty(); ++from) {
    if (EndpointAt(from).member == EndpointAt(at_).member) continue;
    status = groups_.Join(GroupOf(from));
    if (!status) wrong = status.error().message;
    ++operations_;
  }
  return wrong;
}

void Datagrams::Close() {
  unicast_.Close();
  connected_.Close();
  groups_.Close();
}

// The longest go in pieces, where somebody puts those together. In the quiet each has a number.
uint32_t Datagrams::AnyLength(bool quiet, bool whole, uint32_t most, Dice* dice) {
  constexpr uint32_t kLeast = sizeof(Header);
  constexpr uint32_t kOneFrame = 1'472;
  const uint32_t kind = dice->Below(8);
  if (kind == 0 && !quiet) return dice->Below(kLeast);
  if (kind == 1 && !quiet) return dice->Below(2);
  if (kind == 2) return std::min(kOneFrame, most);
  if (kind == 3 && !whole && most > kOneFrame) return dice->Between(kOneFrame + 1, most);
  return dice->Between(kLeast, std::min(kOneFrame, most));
}

void Datagrams::SendAny(bool quiet, uint32_t most, Sender* sender, Dice* dice) {
  const auto way = static_cast<Way>(dice->Below(kWays));
  int to = way == kConnected ? connected_to_ : at_;
  while (way == kUnicast && EndpointAt(to).member == EndpointAt(at_).member) {
    to = static_cast<int>(dice->Below(kRings));
  }
  const bool whole = way == kMulticast || !EndpointAt(to).fragments;
  const uint32_t length = AnyLength(quiet, whole, most, dice);
  std::vector<uint8_t> bytes(length);
  const bool numbered = length >= sizeof(Header);
  uint64_t& next = next_[{quiet ? 1 : 0, to, way}];
  if (numbered) {
    const Header header = {static_cast<uint8_t>(at_), static_cast<uint8_t>(to),
                           static_cast<uint8_t>(way), static_cast<uint8_t>(quiet ? 1 : 0), length,
                           page().incarnation, 0, next};
    memcpy(bytes.data(), &header, sizeof header);
    model::WritePattern(KeyOf(header), 0, bytes.data() + sizeof header, length - sizeof header);
  } else {
    model::WritePattern(ShortKey(at_, way), 0, bytes.data(), length);
  }
  const xtreme_address peer =
      way == kMulticast ? GroupOf(at_) : AddressOf(EndpointAt(to).ip, UdpPort(to));
  const UdpSocket& socket = way == kConnected ? connected_ : unicast_;
  const auto result = sender->Send(socket.handle(), way == kConnected ? nullptr : &peer,
                                   /*datagram=*/true, bytes, dice);
  if (!result.has_value() || *result < 0) return;
  next += numbered ? 1 : 0;
  CountSent(quiet, to, way, numbered);
}

// Who hears a group is of another member.
void Datagrams::CountSent(bool quiet, int to, Way way, bool numbered) {
  const auto count = [&](int receiver) {
    Flow& flow = board_->flow(quiet, at_, receiver, way);
    ++(numbered ? flow.sent : flow.short_sent);
  };
  if (way != kMulticast) return count(to);
  for (int other = 0; other < kRings; ++other) {
    if (HearsGroups(other) && EndpointAt(other).member != EndpointAt(at_).member) count(other);
  }
}

std::string Datagrams::OnPacket(const Completion& packet) {
  const xtreme_address source = packet.source();
  const bool connected = source.port >= ConnectedPort(0);
  const int from = source.port - (connected ? ConnectedPort(0) : UdpPort(0));
  const std::string addresses = ToString(source) + " to " + ToString(packet.destination());
  if (from < 0 || from >= kRings) return "a datagram of nobody: " + addresses;
  const Way way = connected ? kConnected : packet.has(XTREME_MULTICAST) ? kMulticast : kUnicast;
  const xtreme_address destination =
      way == kMulticast ? GroupOf(from) : AddressOf(EndpointAt(at_).ip, UdpPort(at_));
  const bool right = Same(source, AddressOf(EndpointAt(from).ip, source.port)) &&
                     Same(packet.destination(), destination);
  if (!right) return "a datagram of another: " + addresses;
  const std::string wrong = packet.length < sizeof(Header) ? TakeShort(packet, from, way)
                                                           : TakeNumbered(packet, from, way);
  return wrong.empty() ? "" : wrong + ", " + std::to_string(packet.length) + " bytes, " + addresses;
}

// There are none in the quiet.
std::string Datagrams::TakeShort(const Completion& packet, int from, Way way) {
  uint8_t bytes[sizeof(Header)];
  const size_t length = xtreme_copy_out(&packet, bytes, sizeof bytes);
  if (model::FindDifference(ShortKey(from, way), 0, bytes, length) != length) {
    return "wrong bytes of a short datagram";
  }
  ++board_->flow(false, from, at_, way).short_received;
  return "";
}

std::string Datagrams::TakeNumbered(const Completion& packet, int from, Way way) {
  std::vector<uint8_t> bytes(packet.length);
  bytes.resize(xtreme_copy_out(&packet, bytes.data(), bytes.size()));
  Header header;
  memcpy(&header, bytes.data(), sizeof header);
  const size_t length = bytes.size() - sizeof header;
  const int to = way == kMulticast ? from : at_;
  const bool right = header.from == from && header.to == to && header.way == way &&
                     header.length == packet.length && bytes.size() == packet.length;
  if (!right) return "a header of another datagram";
  const size_t same =
      model::FindDifference(KeyOf(header), 0, bytes.data() + sizeof header, length);
  if (same != length) return "a wrong byte at " + std::to_string(sizeof header + same);
  std::vector<bool>& seen = seen_[{header.quiet, from, way, header.incarnation}];
  if (seen.size() <= header.number) seen.resize(header.number + 1'000);
  if (seen[header.number]) {
    ++board_->flow(header.quiet != 0, from, at_, way).repeated;
    return "";
  }
  seen[header.number] = true;
  ++board_->flow(header.quiet != 0, from, at_, way).received;
  return "";
}

uint64_t Datagrams::KeyOf(const Header& header) {
  return model::Mix(header.number ^ static_cast<uint64_t>(header.incarnation) << 40 ^
                    static_cast<uint64_t>(header.from) << 56) ^
         model::Mix(static_cast<uint64_t>(header.to) << 16 ^
                    static_cast<uint64_t>(header.way) << 8 ^ header.quiet);
}

}  // namespace xtreme::soak
