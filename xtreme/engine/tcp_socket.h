// SPDX-License-Identifier: Apache-2.0
//
// TcpSocket: a listener or connection of a ring, as its handle finds it; and the table of them.
//
// Life: kListening, or kOpening (the port, the route or the next hop is still looked for) and then
// kOpen; kEnded when nothing of it goes on. Invariant: its place is freed when TERMINATED was
// handed out (a detached one's: would have been), and its stack's connection with it, so every
// completion that waits finds both.
// Threads: the ring's owner. Never allocates after construction.

#ifndef XTREME_XTREME_ENGINE_TCP_SOCKET_H_
#define XTREME_XTREME_ENGINE_TCP_SOCKET_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <vector>

#include "stack/base/counters.h"
#include "stack/base/intrusive_list.h"
#include "stack/tcp/window_ahead.h"
#include "xtreme/engine/completion.h"
#include "xtreme/engine/handle.h"
#include "xtreme/engine/paced_use.h"
#include "xtreme/engine/tcp_profiles.h"

namespace xtreme::tcp {
class Connection;
struct Listener;
}  // namespace xtreme::tcp

namespace xtreme::engine {

struct EarlySends;
struct TcpDoor;
struct TcpPort;
struct TcpRoute;

// The rings that a connection was on and has left, its home first (tcp_move.h).
using TcpTrail = std::vector<std::shared_ptr<TcpDoor>>;

struct TcpCounters {
  uint64_t received = 0;
  uint64_t received_bytes = 0;
  uint64_t sends = 0;
  uint64_t sent_bytes = 0;
  uint64_t queued = 0;
  uint64_t refused = 0;
  uint64_t accepted = 0;

  static constexpr auto Table() {
    using C = TcpCounters;
    return std::to_array<base::CounterDescriptor<C>>({
        {"received", "PACKETs handed out", &C::received},
        {"received_bytes", "bytes of those", &C::received_bytes},
        {"sends", "sends taken", &C::sends},
        {"sent_bytes", "bytes of those", &C::sent_bytes},
        {"queued", "of those, sends that did not leave at once", &C::queued},
        {"refused", "sends refused", &C::refused},
        {"accepted", "connections that the listener accepted", &C::accepted},
    });
  }
};
static_assert(base::DescribesEveryCounter<TcpCounters>());

// What every segment and send touch stands in two cache lines.
struct alignas(64) TcpSocket {
  enum class State : uint8_t { kListening, kOpening, kOpen, kEnded };

  Handle handle = 0;
  uint64_t user_data = 0;
  tcp::Connection* connection = nullptr;  // From the SYN, or ACCEPTED, on.
  TcpProfileUse profile;       // Its connection's, or its children's.
  State state = State::kOpening;
  bool closed = false;         // By the application: it is told of TX_DONEs and its end only,
  bool detached = false;       // or of nothing.
  bool departing = false;      // To another ring: it is told of what it was, then DEPARTED.
  bool prepares = false;       // Sends of it are, or were, prepared.
  bool released : 1 = true;    // Nothing of it is being given back by the control thread.
  bool space_waits : 1 = false;  // A TX_SPACE of it waits in the fifo.
  bool paced = false;          // It sends by `pace`.
  uint8_t rates_asked = 0;     // For which OP_DONE is due.

  // Credit: see tcp.h.
  uint32_t early_credit = 0;   // Credited by Credit() and not released yet.
  uint32_t returned = 0;       // Released, and the stack not told.

  // Of its completions.
  wire::Endpoint local;
  wire::Endpoint peer;
  IpBytes local_ip{};
  IpBytes peer_ip{};

  TcpCounters counters;
  tcp::WindowAhead ahead;      // Of what is fired; kept while sends of it are prepared.
  int termination = 0;         // Status of TERMINATED.
  wire::Ipv4Address next_hop;
  tcp::Listener* listener = nullptr;
  TcpPort* port = nullptr;     // What it receives by; null: the ring's block.
  PacedUse pace;               // The queue that it sends by; null: the ring's.
  std::shared_ptr<EarlySends> early;  // Sent before its SYN left; null: nothing.
  std::unique_ptr<TcpTrail> trail;  // Null: it has always been here.
  base::ListHook news;         // In the list of those whose end is to be told.
  base::ListHook credit;       // In the list of those with `returned`.
};

static_assert(sizeof(TcpSocket) == 256);

class TcpSockets {
 public:
  TcpSockets(uint16_t ring, uint32_t capacity) : sockets_(ring, capacity) {}

  // Null when all are in use.
  TcpSocket* Take() {
    TcpSocket* socket = sockets_.Take();
    open->store(size(), std::memory_order_relaxed);
    return socket;
  }
  void Put(TcpSocket* socket) {
    const Handle handle = socket->handle;
    std::destroy_at(socket);
    new (socket) TcpSocket;  // construct_at() would clear all of it before.
    sockets_.Free(handle);
    open->store(size(), std::memory_order_relaxed);
  }
  // Null for a stale handle. The number of its ring is not looked at.
  TcpSocket* Find(Handle handle) const { return sockets_.Find(handle); }
  // What stands at the place that is the `at`th of the table, perhaps nobody's; `at` < used().
  TcpSocket& At(uint32_t at) const { return *sockets_.At(kFirstTcpPlace + at); }
  uint32_t used() const { return sockets_.used(); }
  uint32_t size() const { return sockets_.size(); }
  uint32_t capacity() const { return sockets_.capacity(); }
  std::span<std::byte> memory() { return sockets_.memory(); }

  // Slow path. `visit` may Put what it is called with.
  template <typename Visit>
  void ForEach(Visit&& visit) const {
    sockets_.ForEach(visit);
  }

  base::IntrusiveList<TcpSocket, &TcpSocket::news> news;
  base::IntrusiveList<TcpSocket, &TcpSocket::credit> credit;
  TcpProfiles profiles;
  std::shared_ptr<TcpRoute> last_route;  // That a connect asked for; null: none yet.
  // size(), for other threads.
  const std::shared_ptr<std::atomic<uint32_t>> open = std::make_shared<std::atomic<uint32_t>>(0);

 private:
  HandleTable<TcpSocket, kFirstTcpPlace> sockets_;
};

}  // namespace xtreme::engine

#endif  // XTREME_XTREME_ENGINE_TCP_SOCKET_H_
