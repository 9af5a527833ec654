// SPDX-License-Identifier: Apache-2.0
//
// Model: what the completion contract (docs/completions.md) allows after what was called, and the
// first completion that it does not.
//
// It knows sockets and what is due of each; of time, windows and losses it knows nothing, so it
// says what must not come, and at the end what should have.
// Units: bytes. Threads: one.

#ifndef XTREME_TESTS_MODEL_MODEL_H_
#define XTREME_TESTS_MODEL_MODEL_H_

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "api/xtreme.h"

namespace xtreme::model {

enum class Type : uint8_t { kUdp, kListener, kConnection };

// A send that something is to be told of.
struct Wanted {
  uint64_t cookie = 0;
  uint64_t end = 0;  // Of a stream: the offset behind it.
};

// Of one membership: the sources that are wanted, or those that are not.
struct Sources {
  bool exclude = true;
  std::set<uint32_t> listed;

  bool Admits(uint32_t source) const { return exclude != (listed.count(source) != 0); }
};

// A prepared send that a lane fired.
struct LaneFire {
  int ring = 0;
  uint64_t socket = 0;
  bool wants_done = false;
  bool wants_wire = false;
  int error = 0;
  bool done = false;
};

struct Socket {
  xtreme_socket handle = {};
  int ring = 0;
  Type type = Type::kUdp;
  xtreme_address local = {};
  xtreme_address remote = {};
  // What was called.
  bool closed = false;   // Only TX_DONE and TERMINATED may come.
  bool silent = false;   // Detached: nothing may.
  bool shut = false;     // No byte follows those that were sent.
  bool aborted = false;
  bool moved = false;    // Only what came before, and DEPARTED.
  bool credits = false;  // xtreme_credit() was called.
  bool manual = false;   // Only that credits.
  bool dead = false;     // A send was refused for its state: TERMINATED is due.
  // What was told.
  bool established = false;
  bool peer_closed = false;
  bool ended = false;    // TERMINATED or DEPARTED: nothing may come.
  // What is due.
  std::multiset<uint64_t> operations;
  std::deque<Wanted> done;
  std::deque<Wanted> wire;
  // The ring was reset, routes or neighbours changed: some may never have left.
  bool wire_may_miss = false;
  bool wants_space = false;
  bool may_want_again = false;  // Refused again, before the TX_SPACE of the first was told.
  size_t refused_length = 0;
  uint32_t refused_flags = 0;
  // Of a stream.
  Socket* peer = nullptr;
  uint64_t key = 0;  // Of what this end sends; 0: not known.
  uint64_t sent = 0;
  uint64_t received = 0;
  uint64_t held = 0;  // Bytes of PACKETs that were not released.
  uint64_t uncredited = 0;
  uint64_t user_data = 0;
  uint32_t max_held = 0;  // Of a UDP socket: `held` counts its buffers.
  bool wire_unordered = false;  // Its queue changed, or some waited for a neighbour.
  // Of a UDP socket: what it admits, by group; then until when it admitted a source at last.
  std::map<uint32_t, Sources> groups;
  std::map<std::pair<uint32_t, uint32_t>, uint64_t> admitted;
  // Of one that moved: where it came from, and what came before that had told all.
  Socket* origin = nullptr;
  Socket* successor = nullptr;
  std::vector<uint8_t> stash;

  // Whether calls by its handle succeed.
  bool open() const { return !closed && !silent && !ended && !moved; }
  bool connected() const { return type == Type::kConnection && established && open(); }
};

struct Datagram {
  xtreme_address source;
  xtreme_address destination;
  uint32_t length;
  uint64_t time = 0;  // The model's, when it was sent.
};

class Model {
 public:
  Socket& Add(Socket socket);
  // Null: none had this handle.
  Socket* Find(uint64_t handle);
  // What it is where it moved to at last.
  Socket* FindLast(uint64_t handle);
  std::map<uint64_t, Socket>& sockets() { return sockets_; }

  // A datagram that was sent; its key.
  uint64_t AddDatagram(const Datagram& datagram);
  // It was refused after all.
  void RemoveDatagram(uint64_t key) { datagrams_.erase(key); }
  uint64_t NewKey() { return next_key_++; }
  // Memberships are about to change, or a datagram leaves: the model's time.
  uint64_t Tick() { return ++time_; }
  // Remembers what `socket` admits now, before a membership goes or shrinks.
  void NoteAdmitted(Socket& socket);

  // `ring` handed it out.
  void Take(int ring, const xtreme_completion& completion);
  void Fail(const std::string& what);
  bool failed() const { return !failure_.empty(); }
  const std::string& failure() const { return failure_; }

  // Frames may be lost, repeated, delayed.
  bool faults = false;
  bool duplicates = false;
  bool corruption = false;  // A bit of a frame: of a datagram, one of each of its fragments.
  bool upset = false;  // Routes or neighbours changed: what is sent may never leave.
  uint64_t datagrams_received = 0;
  uint64_t bytes_received = 0;
  std::map<int, uint64_t> kinds;
  std::map<uint64_t, int64_t> timers;  // Deadlines of those that are due, by cookie.
  bool forget_timers = false;          // A ring was closed: some may not come.
  std::map<uint64_t, Socket*> moves;  // Under way, by cookie.
  std::map<uint64_t, int> ring_operations;  // Cookies of what rings were asked for, and the ring.
  std::map<uint64_t, std::deque<uint64_t>> posted;  // What is due of each lane, oldest first.
  std::map<uint64_t, LaneFire> fires;               // By cookie.
  std::map<std::pair<int, uint32_t>, bool> links;   // Of a ring and an interface: up.
  bool many_sources = false;  // A datagram may come from another address of its side.

 private:
  void TakePacket(Socket& socket, const xtreme_completion& packet);
  void TakeStream(Socket& socket, const xtreme_completion& packet);
  void TakeDatagram(Socket& socket, const xtreme_completion& packet);
  void CheckBytes(Socket& socket, const std::vector<uint8_t>& bytes);
  void TakeArrived(int ring, const xtreme_completion& arrived);
  void TakeDeparted(Socket& socket);
  void TakeOfRing(int ring, const xtreme_completion& told);
  static bool TakeCancelled(Socket* origin, uint64_t cookie);
  void TakeNews(int ring, const xtreme_completion& news);
  void TakePosted(const xtreme_completion& posted);
  void TakeTimer(const xtreme_completion& timer);
  bool TakeFired(const xtreme_completion& told);
  void CheckMember(const Socket& socket, const Datagram& sent, const xtreme_completion& packet);
  static bool HasSameChecksum(uint64_t key, const std::vector<uint8_t>& bytes);
  void TakeAccepted(int ring, const xtreme_completion& accepted);
  void TakeWanted(Socket& socket, std::deque<Wanted>& due, const xtreme_completion& told);
  void TakeTerminated(Socket& socket, const xtreme_completion& end);
  void TakeSpace(Socket& socket);
  bool MayCome(const Socket& socket, const xtreme_completion& completion);
  Socket* ClientAt(const xtreme_address& local, const xtreme_address& remote);

  std::map<uint64_t, Socket> sockets_;  // By handle, also of those that ended.
  std::map<uint64_t, Datagram> datagrams_;
  std::set<std::pair<uint64_t, uint64_t>> delivered_;  // Datagram and socket.
  uint64_t next_key_ = 1;
  uint64_t time_ = 0;
  std::string failure_;
};

// The last four bytes.
uint32_t Ipv4Of(const xtreme_address& address);
bool SameAddress(const xtreme_address& a, const xtreme_address& b);
std::string Describe(const xtreme_completion& completion);

}  // namespace xtreme::model

#endif  // XTREME_TESTS_MODEL_MODEL_H_
