// SPDX-License-Identifier: Apache-2.0
//
// Player: makes a sequence of calls from a seed, plays it on a World, and tells the Model of it.
//
// A call is some numbers that mean something in any state, so that what is left of a sequence
// still plays when calls are taken out of it.
// Threads: the test's, and those it starts and waits for to release buffers.

#ifndef XTREME_TESTS_MODEL_PLAYER_H_
#define XTREME_TESTS_MODEL_PLAYER_H_

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/model/model.h"

namespace xtreme::model {

class World;

struct Call {
  uint32_t kind = 0;
  std::array<uint32_t, 3> numbers{};
};
std::vector<Call> MakeCalls(uint64_t seed, size_t count);

// A kernel's fd that rings watch, and what they owe of it.
class WatchedFd {
 public:
  WatchedFd();
  ~WatchedFd();
  WatchedFd(const WatchedFd&) = delete;
  WatchedFd& operator=(const WatchedFd&) = delete;

  int fd() const { return fd_; }
  void Signal();
  void Drain();
  void OnWatch(int ring);
  void OnEnd(int ring) { of(ring).due = false; }
  void OnClosed(int ring) { of(ring) = {}; }
  // "", or what is wrong with an FD_EVENT.
  std::string Take(int ring, const xtreme_completion& event);
  // While it is readable.
  bool AnyDue() const;

 private:
  struct Watch {
    uint32_t calls = 0;  // Not answered.
    bool due = false;
    bool ready = false;  // At some time since.
  };
  Watch& of(int ring) { return watches_[static_cast<size_t>(ring)]; }

  const int fd_;
  bool readable_ = false;
  std::array<Watch, 4> watches_{};
};

class Player {
 public:
  // `seed`: of the rings' sizes and the wire's faults.
  Player(World* world, uint64_t seed, bool trace);
  ~Player();

  // False: the model found something.
  bool Play(const Call& call);
  // Heals the wire, lets everything end; what is missing then is a failure.
  void Finish();
  Model& model() { return model_; }

 private:
  // A buffer that the NIC may read.
  struct Lent {
    xtreme_buffer* buffer;
    uint8_t* data;
    uint32_t capacity;
    uint64_t socket;
    uint64_t cookie;
  };
  struct Held {
    xtreme_completion packet;
    uint64_t socket;
  };
  struct Prepared {
    xtreme_prepared handle = {};
    uint64_t socket = 0;
    uint32_t length = 0;
    bool armed = true;
  };
  // Memory of the program's own.
  struct Region {
    std::array<uint8_t, 8192> bytes;
    int released = 0;
  };
  using Numbers = std::array<uint32_t, 3>;

  using Method = void (Player::*)(const Numbers&);
  static Method MethodOf(uint32_t kind);

  void OpenRing(int ring);
  Socket* Pick(uint32_t number, Type type, bool live = true);
  void Check(bool right, const std::string& what);
  // The ring has room for few sockets and memberships.
  bool IsSmall(int ring) const;
  void Note(const std::string& text);

  void OpenUdp(const Numbers& numbers);
  void ConnectUdp(const Numbers& numbers);
  void SendUdp(const Numbers& numbers);
  void SendUdpBuffer(const Numbers& numbers);
  void Listen(const Numbers& numbers);
  void Connect(const Numbers& numbers);
  void SendStream(const Numbers& numbers);
  void SendStreamBuffer(const Numbers& numbers);
  void SendSome(const Numbers& numbers);
  void Shutdown(const Numbers& numbers);
  void Abort(const Numbers& numbers);
  void Close(const Numbers& numbers);
  // Nothing says any more when those that it sent, here or before it moved, are read no longer.
  void ReleaseLent(const Socket& socket);
  void Credit(const Numbers& numbers);
  void Release(const Numbers& numbers);
  void ReleaseElsewhere(const Numbers& numbers);
  void Poll(const Numbers& numbers);
  void Advance(const Numbers& numbers);
  void Fault(const Numbers& numbers);
  void UseStale(const Numbers& numbers);

  // player_more.cc
  void Prepare(const Numbers& numbers);
  void UsePrepared(const Numbers& numbers);
  void Fire(Prepared& prepared, Socket& socket, uint32_t number);
  void Join(const Numbers& numbers);
  void SendMany(const Numbers& numbers);
  void SendToGroup(const Numbers& numbers);
  void Move(const Numbers& numbers);
  void Reset(const Numbers& numbers);
  void SendRegistered(const Numbers& numbers);
  bool SendRegion(Socket& socket, xtreme_buffer* buffer, uint8_t* at, uint32_t length);
  void StartTimer(const Numbers& numbers);
  void Reopen(const Numbers& numbers);

  void TookStream(Socket& socket, int result, size_t length, uint32_t flags, uint64_t cookie);
  enum class How { kPoll, kByFd, kWait, kElsewhere };
  int Take(xtreme_ring ring, std::vector<xtreme_completion>* to, How how);
  void PollRing(int ring, int max, bool keep, How how = How::kPoll);
  void TakeAll(const std::vector<xtreme_completion>& some, bool keep, bool was_more);
  // -1: of a socket that nobody knows.
  int RingOf(const xtreme_completion& completion);
  bool MayBeRefused(const Socket& socket, int result) const;
  void TakeOne(int ring, const xtreme_completion& completion);
  void ReleaseLast(size_t count);
  void TryAgain(Socket& socket, bool only);
  void Return(const xtreme_completion& done);
  void Drop(size_t index);
  void LearnAddresses();
  void CheckOwed(Socket& socket);

  // player_lanes.cc: lanes, groups of rings, rates, waking.
  struct Lane {
    xtreme_lane handle = {};
    int ring = 0;
    uint64_t next = 0;  // The lane's number above, how many were posted below.
    bool dead = false;  // Its ring was closed.
  };
  struct Group {
    xtreme_group handle = {};
    std::vector<int> rings;
    bool by_time = false;
  };
  void UseLane(const Numbers& numbers);
  void OpenLane(int ring);
  void CloseLane(size_t index);
  bool Post(Lane& lane);
  // What the model expects next from the prepared send's socket; a datagram's key, else 0.
  uint64_t NextPayload(const Prepared& prepared, const Socket& socket,
                       std::vector<uint8_t>* bytes);
  uint64_t PatchAll(const Prepared& prepared, const Socket& socket);
  void FireByLane(const Numbers& numbers);
  void LaneFired(Prepared& prepared, Socket& socket, uint64_t cookie, uint64_t key);
  void UseGroup(const Numbers& numbers);
  void OpenGroup(uint32_t number);
  void PollGroup(const Group& group, bool keep);
  void ArmGroup(const Group& group, uint32_t number);
  void CloseGroupOf(int ring);
  void SetRate(const Numbers& numbers);
  void Moderate(const Numbers& numbers);
  void TakeQueues(const Numbers& numbers);
  void Arm(const Numbers& numbers);
  void CheckWoken(int ring, const std::vector<xtreme_completion>& some, bool readable);
  static bool IsReadable(int fd);
  bool Readable(int ring) const;
  void SetOptions(const Numbers& numbers);
  void RingDoorbell(const Numbers& numbers);

  // player_net.cc: cables, routes, neighbours, MTUs.
  void ChangeCable(const Numbers& numbers);
  void ChangeRoutes(const Numbers& numbers);
  void FollowMove(const xtreme_completion& moved);
  void Announce(int port);
  void MakeUnsure(int side);
  void HealNet();

  // player_watch.cc
  void Watch(const Numbers& numbers);

  // player_end.cc
  bool RunUntil(int rounds, const std::function<bool()>& done);
  void PollOften(int ring);
  void CreditAll();
  bool IsServed(const Socket& socket) const;
  bool AllServed();
  bool AllEnded();
  bool AllGivenBack() const;
  void Flush(int ring);
  void CheckEnd();

  World* const world_;
  const bool trace_;
  Model model_;
  std::vector<Held> held_;
  std::vector<Lent> lent_;
  std::vector<Prepared> prepared_;
  std::vector<std::shared_ptr<Region>> regions_;
  std::array<xtreme_ring_options, 4> options_{};
  std::array<int, 4> resetting_{};  // Of each ring, how many resets were started.
  std::array<uint64_t, 4> free_at_start_{};
  std::vector<Lane> lanes_;
  std::vector<Group> groups_;
  uint64_t next_lane_ = 1;
  std::map<uint64_t, int> lane_rings_;  // Of those that were closed, too.
  std::array<bool, 4> armed_{};
  std::array<bool, 4> late_{};  // Moderated at some time: what comes by the wire may wake later.
  WatchedFd watched_;
  bool try_again_ = true;   // What TX_SPACE allows is sent at once.
  bool has_backup_ = false;
  std::array<bool, 4> away_{};  // On the backup.
  uint64_t next_cookie_ = 1;
  uint64_t next_connection_ = 1;
};

}  // namespace xtreme::model

#endif  // XTREME_TESTS_MODEL_PLAYER_H_
