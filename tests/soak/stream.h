// SPDX-License-Identifier: Apache-2.0
//
// One end of a connection, whose course both ends know by its key: how much goes each way, who
// closes first, or aborts. The client's first eight bytes are the key.
//
// Invariant: each byte that comes is the next one, and a connection that ended in order had all.
// Thread: the member's. Units: bytes; nanoseconds of the ring's clock.

#ifndef XTREME_TESTS_SOAK_STREAM_H_
#define XTREME_TESTS_SOAK_STREAM_H_

#include <cstdint>
#include <string>
#include <vector>

#include "api/xtreme.hpp"
#include "tests/soak/board.h"
#include "tests/soak/sender.h"

namespace xtreme::soak {

inline constexpr uint32_t kKeyBytes = 8;

struct StreamPlan {
  enum class End : uint8_t {
    kBothAtOnce,     // Each closes when it has sent all.
    kServerLast,     // The server sends when the client has closed.
    kClientAborts,   // In the middle of what it sends.
    kServerAborts,
  };

  static StreamPlan Of(uint64_t key);
  bool of_quiet() const { return (key & 1) != 0; }
  bool Aborts() const { return end == End::kClientAborts || end == End::kServerAborts; }
  bool has_to_end_well() const { return of_quiet() && !Aborts(); }

  uint64_t key = 0;
  uint32_t up = 0;    // From the client, the key included.
  uint32_t down = 0;
  uint32_t abort_at = 0;
  End end = End::kBothAtOnce;
  bool slow = false;  // Both keep what they get for long.
  bool closes = false;  // By close() where shutdown() would do.
};

class Stream {
 public:
  // How long a peer may be silent. One that was killed, and one whose reset was lost, is noticed
  // within seconds; where that cannot be, it may only have no processor.
  enum class Patience { kShort, kLong };
  static constexpr int64_t kLongPatienceNs = 60'000'000'000;
  // What connections have in common.
  static TcpOptions Options(Patience patience);
  // What that of a client has, by its key.
  static Patience PatienceOf(uint64_t key);

  // A client's, with its key; a server's, which has none yet.
  Stream(uint64_t number, TcpSocket socket, uint64_t key);
  Stream(uint64_t number, TcpSocket socket);

  uint64_t number() const { return number_; }
  bool client() const { return client_; }
  const StreamPlan& plan() const { return plan_; }
  TcpSocket& socket() { return socket_; }
  bool may_move() const { return established_ && !shut_ && !peer_closed_; }
  // Whoever made it in the quiet says so in the key: it has to end as it was planned.
  bool of_quiet() const { return plan_.of_quiet(); }

  // Sends some of what is left, and ends it where the plan says so.
  std::string Push(Sender* sender, Dice* dice);
  // Empty, or what is wrong.
  std::string OnPacket(const Completion& packet);
  std::string OnPeerClosed();
  void OnEstablished() { established_ = true; }
  void OnSpace() { refused_ = 0; }
  void OnMove() { moved_ = true; }
  std::string OnTerminated(int status) const;
  // Where it stands, in a few words.
  std::string Describe() const;

 private:
  bool AbortsHere() const {
    return plan_.end == (client_ ? StreamPlan::End::kClientAborts
                                 : StreamPlan::End::kServerAborts);
  }
  uint32_t to_send() const { return client_ ? plan_.up : plan_.down; }
  uint32_t to_receive() const { return client_ ? plan_.down : plan_.up; }
  void Fill(bool up, uint32_t from, std::vector<uint8_t>* bytes) const;
  std::string SetPatience();
  std::string SendSome(Sender* sender, Dice* dice);
  void EndSending();

  const uint64_t number_;
  const bool client_;
  TcpSocket socket_;
  StreamPlan plan_;
  std::vector<uint8_t> key_bytes_;  // Of a server, until it has all.
  bool known_ = false;
  bool established_ = false;
  int refused_ = 0;  // Why, until TX_SPACE.
  bool shut_ = false;
  bool peer_closed_ = false;
  bool stale_ = false;  // Its TERMINATED stands in the batch that is looked at.
  bool moved_ = false;  // Or was to: the other ring may have had no room, or no queues just then.
  uint32_t sent_ = 0;
  uint32_t received_ = 0;
};

}  // namespace xtreme::soak

#endif  // XTREME_TESTS_SOAK_STREAM_H_
