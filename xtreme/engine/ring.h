// SPDX-License-Identifier: Apache-2.0
//
// Ring: queues, sockets, timers and completions of one owner thread on one port.
//
// Invariant: one thread owns a ring; nothing on its path locks, allocates or enters the kernel
// after Start(), except Arm() and Wait(). Slow work is started here, runs on the engine's control
// thread and comes back through the mailbox. What a poll does stands on one page: ring_poll.cc.
// Units: bytes, nanoseconds of CLOCK_MONOTONIC. Threads: the owner, except what says otherwise.

#ifndef XTREME_XTREME_ENGINE_RING_H_
#define XTREME_XTREME_ENGINE_RING_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "stack/base/time.h"
#include "xtreme/engine/completion.h"
#include "xtreme/engine/handle.h"
#include "xtreme/engine/mailbox.h"
#include "xtreme/engine/outcome.h"
#include "xtreme/engine/ring_options.h"

namespace xtreme::completion {
struct LinkCompletion;
}
namespace xtreme::nic {
class Nic;
class QueuePair;
struct DeviceClock;
struct Moderation;
struct QueueAddresses;
struct PortCounters;
struct RxFrame;
enum class PortEvent : uint8_t;
}  // namespace xtreme::nic

namespace xtreme::host {
class Residency;
class TscConversion;
}
namespace xtreme::stats {
class Publisher;
}

namespace xtreme::engine {

class Engine;
class PacedQueues;
class PreparedSends;
class RegisteredMemory;
class RingLane;
class SendLog;
class Tcp;
class TimerTable;
class Udp;
struct LaneEntry;
struct MemoryRequest;
struct PollTimes;
struct RingCore;
struct RingPort;
struct RingTimer;
struct UdpSocket;

class Ring {
 public:
  static constexpr uint32_t kMaxTimers = 1024;
  static constexpr uint32_t kMaxLanes = 64;

  // Brings a ring up; the calling thread owns it. `engine` outlives it. InvalidArgument: options.
  // NotFound: no such interface, or no device behind it. PermissionDenied, ResourceExhausted: the
  // device's, the message says what was asked and offered.
  static absl::StatusOr<std::unique_ptr<Ring>> Open(Engine* engine, const RingOptions& options);

  // Aborts the sockets and waits for nothing; held buffers stay readable.
  ~Ring();
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;

  // Moves to the device's NUMA node, touches and locks what the owner will touch, posts buffers and
  // warms what the first packet needs. What the system refuses of it is said in description() and
  // is no error. FailedPrecondition: it was started. From here on page faults are counted.
  absl::Status Start();
  // Makes the calling thread the owner, after the old owner's last call.
  void Adopt();
  // The same for callers who take turns under a lock: page faults and CPUs of the new owner are not
  // followed, and nothing is started.
  void AdoptForATurn();
  // Whether the calling thread is the owner.
  bool OwnedByThisThread() const;

  // Gives the ring new queues, with its sockets, rules and memberships: after BROKEN, or at any
  // time. Nothing is received or sent meanwhile; what was posted and is not known to have left is
  // ECANCELED. Started: ends as OP_DONE, whose error is that of bring-up, and the ring may be reset
  // again. EALREADY: a reset is under way. (ring_reset.cc)
  Outcome Reset(uint64_t cookie);

  // --- The device (ring_device.cc) ---

  // When interrupts come, for a ring that sleeps; a reset keeps it. Started: ends as OP_DONE.
  // EALREADY: a reset is under way. EOPNOTSUPP: there is no device behind the ring.
  Outcome ModerateInterrupts(const nic::Moderation& moderation, uint64_t cookie);
  // Hands the queues over to the caller, who from here on posts and polls them by himself: the ring
  // sends and receives nothing until Reset() has made it new ones. The buffers that are posted are
  // the queue's until then. EAGAIN: sends are under way, to be polled for. EALREADY: they were
  // taken, or a reset is under way. ENETDOWN: they have stopped, or could not be made.
  // EOPNOTSUPP: there is no device behind them.
  Outcome TakeQueues(nic::QueueAddresses* addresses);

  // --- Polling (ring_poll.cc) ---

  // Up to `max` completions, each `stride` bytes (64 or more) from the last; how many.
  uint32_t Poll(void* out, uint32_t max, size_t stride);
  // Whether the last poll left something that is known to wait.
  bool More() const;
  // A poll for packets alone, for who had them written as links (RingCore::SetLinks): up to `max`
  // of those that can be. `rest`: there is more to be done, and Poll() is to be called.
  struct Linked {
    uint32_t count;
    bool rest;
  };
  Linked PollLinks(completion::LinkCompletion* out, uint32_t max);
  // A poll for who wants nothing but the next datagram of `socket`, of at most `most` bytes: its
  // buffer, one link, which holds the datagram behind its headers. Null: nothing was taken, and
  // what comes, if anything does, is Poll()'s.
  packet::Buffer* TakeDatagram(const UdpSocket& socket, size_t most);

  // --- Waiting (ring_wait.cc): may enter the kernel ---

  // Makes fd() readable at the next completion or deadline: true. False: something waits already,
  // nothing was armed.
  bool Arm();
  // Polls by the ring's waiting policy for at most `timeout` (kNever: no limit). 0: the time is
  // over. -EINTR.
  int Wait(void* out, uint32_t max, size_t stride, base::Nanoseconds timeout);
  int fd() const;
  // Any thread.
  void Wake();

  // --- Sending ---

  // Rings for what was posted without a doorbell.
  void Flush();

  // --- Timers, lanes, fds (ring_timers.cc, ring_news.cc) ---

  // 0: kMaxTimers are armed.
  Handle StartTimer(base::Nanoseconds deadline, uint64_t cookie);
  // EBADF: fired or cancelled already.
  Outcome CancelTimer(Handle timer);
  // Null: kMaxLanes are open. The lane's producer posts to it and closes it; it outlives the ring.
  std::shared_ptr<RingLane> OpenLane();
  // Reports `events` of `fd` once, as FD_EVENT; 0 ends it. Started; a refusal by the kernel comes
  // as FD_EVENT with its errno as status.
  void Watch(int fd, uint32_t events);

  // --- Buffers ---

  // Null: the pool is empty.
  packet::Buffer* AcquireBuffer();
  // Makes memory of the application one buffer, with one reference, whose parts are sent from where
  // they stand (registered_memory.h). Started: ends as OP_DONE, from which on they are; before, and
  // if that has an error, they are copied. EINVAL: no bytes, or more than kMaxBytes. ENOBUFS:
  // kMaxRegions are registered.
  Outcome RegisterMemory(const MemoryRequest& request, packet::Buffer** buffer);
  uint32_t buffer_bytes() const;

  // --- Accessors ---

  base::Nanoseconds Now() const;
  // How far the device's times are off at most; kNever: its clock is not in sync.
  base::Nanoseconds ClockError() const;
  // Whether they are on its PTP clock, and not on CLOCK_MONOTONIC.
  bool TimesAreOnPtp() const;
  // One line: what the ring got from the device and why not more, pool and its arithmetic.
  const std::string& description() const { return description_; }
  // Calls `visit(scope, name, meaning, value)` for each counter. Static strings.
  using CounterVisitor = std::function<void(std::string_view scope, std::string_view name,
                                            std::string_view meaning, uint64_t value)>;
  void VisitCounters(const CounterVisitor& visit);
  // Of one socket; false for a stale handle.
  bool VisitSocketCounters(Handle socket, const CounterVisitor& visit) const;

  Udp& udp() { return *udp_; }
  PreparedSends& prepared() { return *prepared_; }
  Tcp& tcp() { return *tcp_; }
  RingCore& core() { return *core_; }
  // Shared with other threads; outlives the ring.
  const std::shared_ptr<Mailbox>& mailbox() const { return mailbox_; }

  // Writes the counters where other programs read them, if the options say so (ring_publish.cc).
  // No system call.
  void Publish();

  // --- What the control thread tells (ring_news.cc): called by notices ---

  void OnRoutes();
  // `of`: whose it is; null: of the port that the ring is on.
  void OnPortEvent(nic::PortEvent event, const nic::Nic* of = nullptr);
  void OnClock(const nic::DeviceClock& device, const host::TscConversion& tsc,
               const nic::Nic* of = nullptr);
  void OnPortCounters(const nic::PortCounters& rise, const nic::Nic* of = nullptr);
  void OnFdEvent(int fd, uint32_t events, int error);
  void OnPageFaults(uint64_t rise);
  void OnReset(uint64_t cookie, const Outcome& outcome);
  void OnMoved(const Outcome& outcome);
  // Goes over to the other port if that is better (ring_move.cc).
  void ConsiderMove();

 private:
  Ring(Engine* engine, std::unique_ptr<RingCore> core, std::shared_ptr<Mailbox> mailbox);

  // The start (ring_start.cc).
  void MakeResident();
  void WatchOwner();
  void CountFaults(int tid);
  // The events of a poll.
  uint32_t PollSome(void* out, uint32_t max);
  uint32_t PollBusy(void* out, uint32_t max, size_t stride);
  uint32_t PollRest(void* out, uint32_t max, uint32_t polled);
  uint32_t PollMore(void* out, uint32_t max, uint32_t taken);
  uint32_t EndBeforeRefill(void* out, uint32_t max, uint32_t taken);
  uint32_t EndSome(void* out, uint32_t max, uint32_t taken);
  uint32_t EndOnTurn(void* out, uint32_t max, uint32_t taken);
  uint32_t EndFlushed(uint32_t taken);
  uint32_t FlushAfter(uint32_t taken);
  uint32_t PollOn(void* out, uint32_t max, size_t stride, uint32_t taken);
  bool Resolve(Completion* completion);
  void TellKept();
  void Receive(uint32_t max);
  bool TakeFrames(uint32_t max);
  uint32_t TakeLeftBehind(std::span<nic::RxFrame> out);
  // Of the wheel and of TCP.
  base::Nanoseconds NextDeadline() const;
  void SettleSends();
  bool SettleLog(SendLog& log);
  void TakeEntry();
  void TakeNotices();
  // False: a lane, or another ring's loopback, has more than there was room for.
  bool DrainLanes();
  void TakePosted(const LaneEntry& entry);
  void FireTimers();
  void Fire(RingTimer* timer);
  void RefillIfDue();
  void Refill();
  uint32_t RefillAfter(uint32_t taken);
  uint32_t CheckRefilled(uint32_t taken, uint32_t refilled);
  void LimitShortCopies();
  void CheckPool();
  void CheckQueue();
  void SampleLowWater();
  void ReportLosses();
  void OnBroken();
  void StopSending();
  void EndQueues();
  void PostBarrier();
  // Leaves the ring without queues; those it had.
  std::unique_ptr<nic::QueuePair> GiveQueues();
  void ReplaceQueues(std::function<void(Ring&, const Outcome&)> done);
  void TakeFreshQueues();
  void OnFreshQueues();
  RingPort& PortOf(const nic::Nic* nic);
  bool IsInUse(const RingPort& port) const;
  void FollowInterfaces();
  void FollowMtu();
  void TellLink(const RingPort& port, RingEvent event);
  uint32_t CountOfPorts() const;
  bool WouldMove() const;
  void Move(uint32_t port);
  void ForgetTimes();
  void AnnounceMove();
  // Of TCP, at the port that was left.
  void KeepLeftRules();
  void EndLeftRules();
  void OpenPublisher();
  void PublishAs(bool closed);
  // What operators look at (ring_observe.cc).
  void OpenPollTimes();
  void TimePoll();
  void ForgetLastPoll();
  void VisitPollTimes(const CounterVisitor& visit) const;
  bool HasTap() const;
  void SetTapClocks(bool other_device = false);
  void NoteLosses();
  void Bury();

  // Data path.
  std::unique_ptr<RingCore> core_;
  std::unique_ptr<RegisteredMemory> registered_;
  std::unique_ptr<PreparedSends> prepared_;
  std::unique_ptr<PacedQueues> paced_;
  std::unique_ptr<Udp> udp_;
  std::unique_ptr<Tcp> tcp_;
  std::shared_ptr<Mailbox> mailbox_;
  std::unique_ptr<nic::RxFrame[]> frames_;
  uint32_t frames_at_ = 0;   // Of those taken from the queue: the first not looked at,
  uint32_t frames_end_ = 0;  // and how many there are.
  std::vector<nic::RxFrame> left_behind_;  // Of the queue before, to be looked at first.
  bool gap_follows_ = false;               // Them, before what the queue of now brings.
  std::unique_ptr<TimerTable> timers_;
  std::vector<std::shared_ptr<RingLane>> lanes_;

  // Notices taken from the inbox that found no room, and those whose text may still be read.
  NoticeList notices_;
  NoticeList spent_;
  packet::BufferPool::Level few_;        // Below it copies are looked at more closely.
  packet::BufferPool::Level low_water_;  // Below it the pool is low.
  // Losses seen so far.
  uint64_t empty_seen_ = 0;    // The queue's rx_empty, as reported.
  uint32_t mtu_seen_ = 0;      // Of the interface, as told.
  uint32_t barrier_ = 0;       // The frame after which TakeQueues() finds all sends done.
  bool resetting_ = false;

  Engine* const engine_;
  std::string description_;
  std::unique_ptr<PollTimes> poll_times_;        // Null: not counted.
  std::vector<uint64_t> losses_noted_;           // As the tap was told them.
  std::unique_ptr<stats::Publisher> publisher_;  // Null: the counters are not published.
  std::unique_ptr<host::Residency> residency_;  // Last: it unlocks memory of the above.
};

}  // namespace xtreme::engine

#endif  // XTREME_XTREME_ENGINE_RING_H_
