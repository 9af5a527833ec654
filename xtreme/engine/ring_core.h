// SPDX-License-Identifier: Apache-2.0
//
// RingCore: what the parts of a ring share: its device, its clock, its completions, its sends.
//
// Invariant: `attention` is 0 only when nothing on the owner's side waits for a poll, so an idle
// poll looks at the receive queue, at this word and at the mailbox's.
// Threads: the ring's owner, except what says otherwise.

#ifndef XTREME_XTREME_ENGINE_RING_CORE_H_
#define XTREME_XTREME_ENGINE_RING_CORE_H_

#include <cassert>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>

#include "xtreme/completion/known_flows.h"
#include "xtreme/engine/completion_fifo.h"
#include "xtreme/engine/handle.h"
#include "xtreme/engine/ring_clock.h"
#include "xtreme/engine/ring_counters.h"
#include "xtreme/engine/ring_options.h"
#include "xtreme/engine/ring_timer.h"
#include "xtreme/engine/send_log.h"
#include "stack/base/timer_wheel.h"
#include "xtreme/nic/queue_pair.h"

namespace xtreme::completion {
class LinkFlows;
}
namespace xtreme::host {
class Snapshot;
}
namespace xtreme::nic {
class Nic;
}
namespace xtreme::stats {
class FrameTap;
}

namespace xtreme::engine {

class ControlThread;
class LoopbackQueue;
class Mailbox;
class PacedQueues;
class PreparedSends;
class RegisteredMemory;
class Tcp;
struct ControlSide;
struct Operation;
struct PacedQueue;
struct Payload;
struct RingPorts;

// Why a poll has more to do than to look.
enum Attention : uint32_t {
  kCompletionsWait = 1 << 0,  // In the FIFO.
  kSendsWanted = 1 << 1,      // Somebody waits for a send completion.
  kDoorbellOwed = 1 << 2,     // Frames were posted without one.
  kTimersArmed = 1 << 3,
  kSocketNews = 1 << 4,       // Sockets with something to tell.
  kRefillOwed = 1 << 5,       // The pool is low.
  kNoticesWait = 1 << 6,      // Taken from the inbox, and the FIFO had no room.
  kToldLater = 1 << 7,        // Rare completions that found no room.
  kLossesCounted = 1 << 8,    // The library dropped something since the last report.
  kPollsTimed = 1u << 31,     // As long as the ring lives: every poll counts its time.
  kTcpNews = 1 << 9,          // TCP has something to tell, or to do.
  kFramesWait = 1 << 10,      // Taken from the receive queue, and the FIFO had no room.
  kRoomWanted = 1 << 11,      // The send queue refused what TCP has to send.
  kPacedDoorbellOwed = 1 << 12,  // The same of a queue with a rate.
  kCompletionOwed = 1 << 13,  // Of a posted frame that nobody asked for yet: Flush() does.
  kAnyDoorbellOwed = kDoorbellOwed | kPacedDoorbellOwed | kCompletionOwed,
};

// The device's side. Written at bring-up.
struct RingDevice {
  nic::Nic* nic = nullptr;
  packet::BufferPool::Handle pool;
  // What is copied on a short way leaves so many; with fewer the general way looks more closely.
  packet::BufferPool::Level short_copies_leave = nullptr;
  std::shared_ptr<stats::FrameTap> tap;  // Null: frames are not shown. Outlives the queue.
  std::unique_ptr<nic::QueuePair> queue;
  std::unique_ptr<nic::QueuePair> taken;  // By the application: `queue` is then an absent one.
  uint32_t ifindex = 0;
  uint32_t home_ifindex = 0;     // Of the ring's own interface, whose addresses it keeps.
  uint16_t vlan_id = 0;          // Of the interface; 0: untagged.
  uint32_t pool_key = 0;
  uint32_t send_queue_frames = 0;
  uint32_t max_inline_bytes = 0;
  uint32_t max_segmented_bytes = 0;  // Of TCP segments that the device cuts; 0: it does not.
  uint32_t mtu = 0;              // Of the port at bring-up: what a buffer of the pool holds.
  bool transmit_checksum = false;
  bool device_memory = false;    // The queue has some: what is too long for a WQE may go there.
  bool sends_timed_at_port = false;  // Else by their completion.
  bool started = false;
  bool broken = false;

  // Whether an address of interface `index` is one of the ring's.
  bool Owns(uint32_t index) const { return index == ifindex || index == home_ifindex; }
  // What lookups of routes are bound to: the kernel's own choice is the port that went down.
  std::optional<uint32_t> route_interface() const {
    return ifindex == home_ifindex ? std::nullopt : std::optional(ifindex);
  }
};

// The kernel's side: the state the ring goes by, and the way to the control thread.
struct RingHost {
  std::shared_ptr<const host::Snapshot> routes;
  uint64_t routes_version = 0;
  std::shared_ptr<Mailbox> mailbox;
  ControlThread* control = nullptr;
  std::shared_ptr<LoopbackQueue> loopback;  // What other rings send to groups joined here.
  // Touched by operations on the control thread only.
  std::shared_ptr<ControlSide> control_side;
};

struct RingTally {
  RingCounters counters;
  base::ReasonCounters<Drop> drops;
  base::ReasonCounters<Refusal> refusals;
  PortLosses port;
  nic::QueueCounters queues_before;  // Of queues that a reset replaced.
  uint64_t losses = 0;  // Not yet reported by RING/DROPPED.
  uint32_t queue_low_water = ~uint32_t{0};  // Of posted receive buffers, since the ring's start.
};

struct RingCore {
  RingCore(const RingOptions& options, RingClock clock)
      : options(options),
        clock(clock),
        fifo(options.completions),
        sends(options.tx_queue_frames),
        wheel(clock.Now()) {}

  // A cleared completion that is not about a socket; the caller asked Room().
  Completion* Emit(Kind kind) {
    Completion* completion = fifo.Emit();
    Clear(completion, kind);
    completion->user_data = options.user_data;
    completion->interface_index = device.ifindex;
    completion->poll_tsc = poll_ticks();
    if (fifo.waiting() != 0) attention |= kCompletionsWait;
    return completion;
  }

  // One for Tell(), not about a socket either.
  Completion Draft(Kind kind) const;
  Completion Draft(RingEvent event) const;
  // Tells something rare from outside the receive path: now if there is room, else by a later
  // poll, in order. Null `buffer`. May allocate.
  void Tell(const Completion& completion);
  // RULE_FALLBACK.
  void TellFallback();
  // Counts datagrams that the engine lost; the next poll reports them.
  void CountLoss(Drop reason, uint64_t datagrams = 1) {
    tally.drops.Count(reason, datagrams);
    tally.losses += datagrams;
    attention |= kLossesCounted;
  }

  // What was found out about routes, neighbours or the queue may be so no more: it is found anew.
  void ChangeWorld();

  // How the device's clock relates to ours from now on.
  void SetDeviceClock(const nic::DeviceClock& device);
  // The time of a send that has left, at `hw_clock`, and what it is worth; 0: it has none.
  void SetSendTime(uint64_t hw_clock, Completion* completion) const {
    if (hw_clock == 0) return;
    const nic::ClockConversion& by = clock.device();
    completion->hw_clock = hw_clock;
    completion->hw_time_ns = by.ToNanoseconds(hw_clock);
    completion->error_ns = by.error_bound_ns;
    completion->flags |= clock.flags();
    if (device.sends_timed_at_port) completion->flags |= kPortTime;
  }
  // Has packets of flows that `flows` admits written as links by Ring::PollLinks(); it outlives the
  // ring.
  void SetLinks(completion::LinkFlows* flows);

  // A frame was posted; `owed`: without a doorbell.
  void OweDoorbell(bool owed) { attention |= owed ? uint32_t{kDoorbellOwed} : 0; }

  // The TSC that the poll under way has read, and the time that it tells.
  uint64_t poll_ticks() const { return known.ticks(); }
  void SetPollTicks(uint64_t ticks) { known.SetTicks(ticks); }
  base::Nanoseconds PollTime() const { return clock.ToTime(poll_ticks()); }

  // Frames the send queue has room for.
  uint32_t SendRoom() const {
    return device.send_queue_frames - (device.queue->posted_frames() - sends.completed());
  }

  void ArmTimer(RingTimer* timer, base::Nanoseconds deadline) {
    wheel.Arm(timer, deadline);
    attention |= kTimersArmed;
  }

  // Posts one frame, reaping once when the queue is full, and notes what is wanted of it
  // (`record`, whose frame number is filled in here; null: nothing).
  nic::TxStatus Post(nic::TxFrame& frame, SendRecord* record);
  // The same of a frame that leaves with others and of which nothing is wanted.
  nic::TxStatus PostQuietly(nic::TxFrame& frame) {
    frame.flags |= nic::kTxMore;
    const nic::TxStatus status = device.queue->Post(frame);
    if (status != nic::TxStatus::kPosted) [[unlikely]] return PostAgain(frame, status);
    attention |= kDoorbellOwed;
    return status;
  }
  nic::TxStatus PostAgain(const nic::TxFrame& frame, nic::TxStatus status);
  // The same by a queue with a rate; null: by the ring's own.
  nic::TxStatus Post(nic::TxFrame& frame, SendRecord* record, PacedQueue* by) {
    return by == nullptr ? Post(frame, record) : PostPaced(frame, record, *by);
  }
  nic::TxStatus PostPaced(nic::TxFrame& frame, SendRecord* record, PacedQueue& by);
  // The same of a frame that was built ahead, and of TCP segments in one send.
  nic::TxStatus PostPrepared(const nic::TxPrepared& prepared, uint32_t flags, SendRecord* record);
  nic::TxStatus PostSegments(nic::TxSegments& segments, SendRecord* record);
  // A segment was posted that a WQE refers to, the last of the ring's queue, and of which nothing
  // else is wanted; `rings`: it was rung for, and signalled; else the doorbell asks for it.
  void NoteSegment(uint32_t frame, bool rings, tcp::Connection* connection,
                   tcp::Segment* segment) {
    sends.AddSegment(frame, connection, segment);
    const uint32_t owed = rings ? 0 : kDoorbellOwed | kCompletionOwed;
    attention = (attention & ~uint32_t{kDoorbellOwed | kCompletionOwed}) | owed | kSendsWanted;
  }
  // Takes send completions into the log: all, or `most` of them for who only needs room, so that no
  // single send pays for a whole queue.
  void Reap(uint32_t most = ~uint32_t{0});
  // The same of one queue and its log.
  void ReapInto(nic::QueuePair& queue, SendLog& log, uint32_t most);
  // Looks for completions also where none is due: of a frame that nobody asked about there is one
  // only if it failed. The next poll tells that a queue stopped.
  void LookForErrors();
  // The same of one queue and its log.
  static void LookInto(nic::QueuePair& queue, SendLog& log);
  // Rings for what was posted without a doorbell.
  void Flush() {
    if ((attention & kCompletionOwed) != 0) AskForCompletion();
    device.queue->Flush();
    if ((attention & kPacedDoorbellOwed) != 0) [[unlikely]] FlushPaced();
    attention &= ~uint32_t{kDoorbellOwed};
  }
  void AskForCompletion();
  void FlushPaced();
  // The queue that stopped, if any did.
  const nic::QueuePair* BrokenQueue() const;
  // The key by which the ring's port reads `buffer`, which is the ring's (see IsOwn), or none.
  uint32_t KeyOf(const packet::Buffer* buffer) const {
    const bool pooled = buffer == nullptr || buffer->pool == device.pool.get();
    return pooled ? device.pool_key : RegisteredKeyOf(*buffer);
  }
  uint32_t RegisteredKeyOf(const packet::Buffer& buffer) const;
  // Whether the device can read a payload that has a buffer: another ring's it cannot.
  bool IsOwn(const Payload& payload) const;
  // What is to become of a buffer that is sent, beside what is told: see Want.
  uint8_t WantsOf(const packet::Buffer* buffer) const {
    const bool pooled = buffer == nullptr || buffer->pool == device.pool.get();
    return pooled ? kWantNothing : kWantRelease;
  }
  // Has the control thread run `operation`. No system call.
  void Start(std::unique_ptr<Operation> operation);

  // In debug builds: the calling thread owns the ring.
  void CheckOwner() const {
#if XTREME_DEBUG
    assert(owner == packet::ThreadToken() &&
           "a ring was called from another thread than its owner");
#endif
  }

  const RingOptions options;
  RingClock clock;
  CompletionFifo fifo;
  completion::KnownFlows known;
  completion::LinkFlows* links = nullptr;  // Of Ring::PollLinks(); null: nobody calls it.
  SendLog sends;
  base::TimerWheel wheel;
  RingDevice device;
  RingHost host;
  std::shared_ptr<RingPorts> ports;  // Those that `device` may be.
  RingTally tally;
  PreparedSends* prepared = nullptr;  // The ring's, all three.
  PacedQueues* paced = nullptr;
  RegisteredMemory* registered = nullptr;

  uintptr_t owner = packet::ThreadToken();  // The thread that may call.
  Tcp* tcp = nullptr;           // The ring's.
  std::deque<Completion> kept;  // Of Tell().
  uint32_t attention = 0;
  uint32_t fanout = 1;        // Most completions that one CQE can cause.
  uint16_t after_drop = 0;    // kAfterDrop for the next packet, or 0.
};

}  // namespace xtreme::engine

#endif  // XTREME_XTREME_ENGINE_RING_CORE_H_
