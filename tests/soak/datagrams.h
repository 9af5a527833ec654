// SPDX-License-Identifier: Apache-2.0
//
// The datagrams of one ring: numbered ones to every other member, by unicast, from a connected
// socket and by multicast, and those that come, each of which is looked at byte by byte.
//
// Those of fewer bytes than a header have no number: they are only counted.
// Thread: the member's.

#ifndef XTREME_TESTS_SOAK_DATAGRAMS_H_
#define XTREME_TESTS_SOAK_DATAGRAMS_H_

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "api/xtreme.hpp"
#include "tests/soak/board.h"
#include "tests/soak/sender.h"

namespace xtreme::soak {

class Datagrams {
 public:
  Datagrams(Board* board, int at) : board_(board), at_(at) {}

  // Opens the sockets, whose user data is the ring's number; empty, or what failed.
  std::string Open(Ring* ring);
  // Of which so many OP_DONEs come.
  int operations() const { return operations_; }
  int sockets() const { return HearsGroups(at_) ? 3 : 2; }
  void Close();

  // One, of any size up to `most`, anywhere.
  void SendAny(bool quiet, uint32_t most, Sender* sender, Dice* dice);
  // Empty, or what is wrong with it.
  std::string OnPacket(const Completion& packet);

 private:
  struct Header {
    uint8_t from;
    uint8_t to;  // Of a group: its sender's number too.
    uint8_t way;
    uint8_t quiet;
    uint32_t length;
    uint32_t incarnation;
    uint32_t reserved;
    uint64_t number;
  };
  static_assert(sizeof(Header) == 24);
  using Numbers = std::tuple<int, int, int>;  // In the quiet, to, way.
  using Seen = std::tuple<int, int, int, uint32_t>;  // In the quiet, from, way, incarnation.

  static uint32_t AnyLength(bool quiet, bool whole, uint32_t most, Dice* dice);
  std::string TakeShort(const Completion& packet, int from, Way way);
  std::string TakeNumbered(const Completion& packet, int from, Way way);
  static uint64_t KeyOf(const Header& header);
  static uint64_t ShortKey(int from, Way way) {
    return static_cast<uint64_t>(from) << 8 | static_cast<uint64_t>(way);
  }
  void CountSent(bool quiet, int to, Way way, bool numbered);
  MemberPage& page() { return board_->member(EndpointAt(at_).member); }

  Board* const board_;
  const int at_;
  int connected_to_ = 0;
  int operations_ = 0;
  UdpSocket unicast_;
  UdpSocket connected_;
  UdpSocket groups_;
  std::map<Numbers, uint64_t> next_;
  std::map<Seen, std::vector<bool>> seen_;
};

xtreme_address AddressOf(const char* ip, uint16_t port);

}  // namespace xtreme::soak

#endif  // XTREME_TESTS_SOAK_DATAGRAMS_H_
