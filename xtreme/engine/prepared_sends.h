// SPDX-License-Identifier: Apache-2.0
//
// Prepared sends: headers, payload and WQE built ahead; firing one copies the WQE and rings.
//
// Life: armed when prepared; fired at most once until it is armed again, so that an order cannot
// leave twice; cancelled, it is armed again too. Its payload may be patched at any time. It goes
// when it is discarded or its socket is closed.
// Invariant: `armed_for` equals the epoch of `front`, the queue's, only when it is armed and
// `frame` is constant and right for the state of the world which that epoch names: then one
// comparison decides that, and that the queue has no more to do than to post it; whenever that is
// not so, `fire` says what a fire is. That a constant one was fired stands in `armed_for` alone,
// until it is armed again or somebody wants to read its socket's counters (Settle()). Protocols
// build and post behind PreparedOwner; this file knows none of them.
// Threads: the ring's owner. Others fire through their lane (ring_lane.h).

#ifndef XTREME_XTREME_ENGINE_PREPARED_SENDS_H_
#define XTREME_XTREME_ENGINE_PREPARED_SENDS_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "xtreme/engine/handle.h"
#include "xtreme/engine/outcome.h"
#include "xtreme/engine/prepared_owner.h"
#include "xtreme/engine/send_flow.h"
#include "xtreme/nic/doorbell.h"
#include "xtreme/nic/queue_pair.h"

namespace xtreme::tcp {
class Connection;
struct WindowAhead;
}

namespace xtreme::engine {

struct RingCore;

// Two counters that stand side by side, sends and their bytes, counted at once.
typedef uint64_t CountPair __attribute__((vector_size(16), aligned(8), may_alias));

struct PreparedSend {
  // In `armed_for`, beside epochs of a TxFront and what is above one by 1.
  static constexpr uint32_t kNotArmed = 2;
  static constexpr uint32_t kLongWay = 3;  // Armed, and its owner must look first.
  static_assert(kLongWay < nic::TxFront::kEpochs);
  static constexpr uint64_t kNotBuilt = 0;  // In `built_for`, beside RingHost::routes_version.

  nic::TxPrepared frame;
  uint32_t armed_for = kNotArmed;
  // Whether it was armed and constant when somebody last looked: not armed now, it was fired, and
  // that was not counted.
  bool uncounted = false;
  bool constant = false;  // Every fire posts `frame` as it stands.
  // Of the queue if it takes `frame` directly, else one that is never ready: of a constant frame
  // for one of two blocks, of a stream's for as many as it has.
  nic::TxFront* front = nic::QueuePair::NoFront();
  // A whole fire without options, armed or not, that is not as Fire() has it.
  SendResult (*fire)(PreparedSend& prepared) = nullptr;
  // Of a constant frame, that of a queue's tap, on which only `fire` posts.
  nic::TxFront* tapped = nic::QueuePair::NoFront();
  CountPair* counts = nullptr;  // The socket's.
  CountPair more = {};          // What a fire adds to them.
  uint64_t built_for = kNotBuilt;
  RingCore* core = nullptr;
  PreparedOwner* owner = nullptr;
  // Of a stream, for the next fire: whose header fields change from fire to fire, and a copy of the
  // payload that is kept until it is acknowledged.
  tcp::Connection* connection = nullptr;
  packet::Buffer* kept = nullptr;
  tcp::WindowAhead* ahead = nullptr;  // The socket's.
  Handle socket = 0;
  Handle handle = 0;
  std::vector<uint8_t> payload;

  bool armed() const { return armed_for != kNotArmed; }
  // Counts a fire that was not.
  void Settle() {
    if (uncounted && !armed()) *counts += more;
    uncounted = constant && armed();
  }
  // Not to be fired.
  void Disarm() {
    Settle();
    armed_for = kNotArmed;
    uncounted = false;
  }
  Payload whole() const { return {.data = payload.data(), .length = payload.size()}; }
};

class PreparedSends {
 public:
  static constexpr uint32_t kMost = 4096;

  explicit PreparedSends(RingCore* core) : core_(core) {}
  ~PreparedSends();
  PreparedSends(const PreparedSends&) = delete;
  PreparedSends& operator=(const PreparedSends&) = delete;

  // Copies `payload` and arms. ENOBUFS: kMost there are.
  Outcome Prepare(PreparedOwner* owner, Handle socket, std::span<const uint8_t> payload,
                  Handle* handle);
  // Null for a stale handle.
  PreparedSend* Find(Handle handle) const;
  // Changes bytes of the payload. EBADF; EINVAL: beyond its end.
  Outcome Patch(Handle handle, size_t at, std::span<const uint8_t> bytes);
  // A fire whenever it is not the short way below. kRefusedState: not armed.
  SendResult FireOtherwise(PreparedSend& prepared, const SendOptions& options);
  // The same as PreparedSend::fire, of what is not constant.
  static SendResult FirePlain(PreparedSend& prepared);
  // A fire that another thread asked for: what it cannot return is told as ERROR with the cookie,
  // and a TX_DONE that was wanted is ECANCELED.
  void FireFor(Handle handle, const SendOptions& options);
  // EBADF. A fire is refused from here on, until it is armed again.
  Outcome Cancel(Handle handle);
  Outcome Rearm(Handle handle);
  Outcome Discard(Handle handle);

  // Whether the socket has any.
  bool AnyOf(Handle socket);
  // Of one socket: it is closed; its flow has changed; it has just become able to send.
  void DiscardOf(Handle socket);
  void Outdate(Handle socket);
  void BuildOf(Handle socket);
  // Brings the counters of sockets up to what was fired.
  void Settle();
  // The queue is the ring's no more, or goes.
  void LeaveQueue();
  // Versions of the world begin anew: none is as it was in one of the same number.
  void OutdateAll();

 private:
  struct Place {
    Handle handle = 0;
    std::unique_ptr<PreparedSend> send;  // Null: nobody's.
  };

  void Build(PreparedSend& prepared);
  // PreparedSend::fire of a constant one: by the queue, with what else is due; and of a queue that
  // keeps what it sends, where nothing is.
  static SendResult FireConstant(PreparedSend& prepared);
  template <uint32_t kBlocks>
  static SendResult FireKept(PreparedSend& prepared);
  // Whether its TERMINATED waits to be handed out.
  bool EndIsTold(Handle socket) const;
  template <typename Act>
  void ForEachOf(Handle socket, Act act);
  template <typename Act>
  void ForEach(Act act);
  static void Outdate(PreparedSend& prepared);

  RingCore* const core_;
  std::unique_ptr<HandleTable<Place>> table_;  // With the first one.
};

// Fires, in its caller, who has RingCore defined.
template <typename Core = RingCore>
[[gnu::always_inline]] inline SendResult Fire(PreparedSend& prepared, const SendOptions& options) {
  static_cast<Core*>(prepared.core)->CheckOwner();
  const bool plain = (options.flags & ~uint32_t{kNowOrFail}) == 0;
  if (!plain || !prepared.front->ReadyIn(prepared.armed_for)) [[unlikely]] {
    if (plain) return prepared.fire(prepared);
    const SendOptions otherwise = options;  // Only here do they need an address.
    return static_cast<Core*>(prepared.core)->prepared->FireOtherwise(prepared, otherwise);
  }
  nic::PostReady(*prepared.front, prepared.frame);
  prepared.armed_for = PreparedSend::kNotArmed;
  return SendResult::kSent;
}

}  // namespace xtreme::engine

#endif  // XTREME_XTREME_ENGINE_PREPARED_SENDS_H_
