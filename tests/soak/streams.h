// SPDX-License-Identifier: Apache-2.0
//
// The connections of a member: those that it makes, those that it accepted, and those of them that
// go from one of its rings to the other.
//
// What a connection's old ring still tells may be polled after what the new one tells first: that
// waits for DEPARTED.
// Thread: the member's.

#ifndef XTREME_TESTS_SOAK_STREAMS_H_
#define XTREME_TESTS_SOAK_STREAMS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "api/xtreme.hpp"
#include "tests/soak/board.h"
#include "tests/soak/sender.h"
#include "tests/soak/stream.h"

namespace xtreme::soak {

class Streams {
 public:
  // In a stream's user data, beside its number.
  static constexpr uint64_t kUserData = uint64_t{1} << 32;

  // From ring `from` to ring `to`; empty, or what is wrong.
  std::string Connect(Ring* ring, int from, int to, uint64_t key);
  // Whether it is of a stream: then it is taken, and `wrong` says what is wrong with it. A PACKET
  // that is not needed any more stays the caller's.
  bool Take(Completion* completion, std::string* wrong);
  // Sends what may be sent; `senders` by the number of the ring.
  std::string Push(const std::map<int, Sender*>& senders, Dice* dice);
  // Hands one of ring `from` over, if there is one that may go.
  void Move(int from, int to, xtreme_ring ring, Dice* dice);

  size_t size() const { return streams_.size(); }
  int clients(int at) const;
  // Clients that have to end well and did not end yet.
  int awaited() const;
  bool KeepsLong(const Completion& packet) const;
  std::string Describe() const;
  // How those that ended did: by errno.
  const std::map<int, int>& ended() const { return ended_; }

 private:
  struct Entry {
    Stream stream;
    int at;
    bool departing = false;
    int to = 0;
    xtreme_socket arrived = {};          // Before DEPARTED came,
    std::vector<Completion> meanwhile = {};  // as these.
  };

  Entry* Find(const Completion& completion);
  void Accept(const Completion& completion);
  std::string TakeOne(Entry* entry, Completion* completion);
  std::string Settle(Entry* entry);
  std::string End(Entry* entry, const Completion& completion);

  uint64_t next_ = 1;
  std::map<uint64_t, Entry> streams_;            // By number.
  std::map<uint64_t, uint64_t> by_handle_;       // Numbers.
  std::map<int, int> ended_;
};

}  // namespace xtreme::soak

#endif  // XTREME_TESTS_SOAK_STREAMS_H_
