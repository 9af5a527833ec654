// SPDX-License-Identifier: Apache-2.0
//
// RingDoor: the ring of an interface, behind a lock: whoever enters owns the ring until they leave.
//
// Invariant: the ring and everything that hangs on it (sockets' queues, pending happenings,
// references of its buffers) is touched inside an Entry only. Entries nest on one thread, so that a
// receive callback may send. What comes while such a callback awaits an operation is given when it
// has returned, in order.
// Nobody sleeps for a door inside another: who has to wait for one steps out of the others, so
// callbacks of several rings may use each other's.
// Buffers are counted by the owner inside, so every count of references is exact.
// Threads: any.

#ifndef XTREME_API_SOCKETS_RING_DOOR_H_
#define XTREME_API_SOCKETS_RING_DOOR_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/statusor.h"
#include "api/sockets/locks.h"
#include "api/sockets/received.h"
#include "api/sockets/ring_choice.h"
#include "stack/packet/buffer.h"
#include "stack/wire/address.h"
#include "xtreme/engine/completion.h"
#include "xtreme/engine/handle.h"
#include "xtreme/engine/outcome.h"

namespace xtreme::completion {
class LinkFlows;
struct LinkCompletion;
}
struct xtreme_ring_options;

namespace xtreme::engine {
class Ring;
struct UdpSocket;
}

namespace xtreme::sockets {

class RealClock;
class RingDevice;
class Socket;

class RingDoor {
 public:
  static constexpr uint32_t kBatch = 64;

  struct Counters {
    std::atomic<uint64_t> entries{0};
    std::atomic<uint64_t> contended{0};  // Somebody else was inside.
  };

  // The calling thread inside.
  class Entry {
   public:
    explicit Entry(RingDoor* door) : Entry(door, ThreadToken()) {}
    // Who has its token already.
    Entry(RingDoor* door, uintptr_t self) : door_(door) { door_->Enter(self); }
    ~Entry() { door_->Leave(); }
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;

   private:
    RingDoor* const door_;
  };

  // The same in a program of several threads, for who has asked whether it is one.
  class LockedEntry {
   public:
    LockedEntry(RingDoor* door, uintptr_t self) : door_(door) { door_->EnterLocked(self); }
    ~LockedEntry() { door_->LeaveLocked(); }
    LockedEntry(const LockedEntry&) = delete;
    LockedEntry& operator=(const LockedEntry&) = delete;

   private:
    RingDoor* const door_;
  };

  // The same for what calls nothing inside, and so is to have no call around it: not inside where
  // somebody is already, or where another thread was last.
  class QuickEntry {
   public:
    explicit QuickEntry(RingDoor* door) : door_(door->TryEnter() ? door : nullptr) {}
    ~QuickEntry() {
      if (door_ != nullptr) door_->Leave();
    }
    QuickEntry(const QuickEntry&) = delete;
    QuickEntry& operator=(const QuickEntry&) = delete;

    bool inside() const { return door_ != nullptr; }

   private:
    RingDoor* const door_;
  };

  // The calling thread outside again, for a while, however deep inside it is.
  class Outside {
   public:
    explicit Outside(RingDoor* door) : door_(door), depth_(door->StepOut()) {}
    ~Outside() { door_->StepIn(depth_); }
    Outside(const Outside&) = delete;
    Outside& operator=(const Outside&) = delete;

   private:
    RingDoor* const door_;
    const uint32_t depth_;
  };

  // The same of every door that the thread is inside, but those that are shut for good.
  class OutsideAll {
   public:
    // `newest`: where the list of all doors begins.
    explicit OutsideAll(RingDoor* newest);
    ~OutsideAll() { StepIn(nullptr); }
    OutsideAll(const OutsideAll&) = delete;
    OutsideAll& operator=(const OutsideAll&) = delete;

    // Whether it was inside none.
    bool empty() const { return left_.empty(); }
    // Back inside them, and inside `wanted` unless that is null.
    void StepIn(RingDoor* wanted);

   private:
    struct Left {
      RingDoor* door;
      uint32_t depth;
    };
    RingDoor* LockOthers(const RingDoor* locked);

    std::vector<Left> left_;
  };

  struct Options {
    const xtreme_ring_options* ring = nullptr;  // What it is made of, but for the interface.
    bool single = false;       // The program has one thread, nothing is locked.
    RingProfile profile;
  };
  // Brings a ring of `interface` up and starts it. Errors as engine::Ring::Open.
  static absl::StatusOr<std::unique_ptr<RingDoor>> Open(const std::string& interface,
                                                        const Options& options);
  ~RingDoor();

  // --- Inside ---

  engine::Ring& ring() { return *ring_; }
  RingDevice& device() { return *device_; }
  // Polls, and gives each socket what came for it. Nothing inside itself.
  void Progress();
  // Whether something that was polled is not given yet: somebody gives it, further out on this
  // thread, or Progress() is to.
  bool behind() const { return behind_ != Behind::kNo; }
  // Whether it is the former.
  bool polling() const { return behind_ == Behind::kPolling; }
  // The same in two steps, for who can use what came at once, while not behind(): polls for at
  // most `most`, at most kBatch; and gives what came from the `first` on, which may close any
  // socket. Nothing is called in between.
  template <typename Ring = engine::Ring>
  std::span<const engine::Completion> BeginProgress(uint32_t most = kBatch);
  void EndProgress(uint32_t first);
  // What came, in between.
  std::span<const engine::Completion> polled() const { return {polled_.data(), polled_count_}; }
  // Instead of BeginProgress(), of `socket`'s next datagram alone (engine::Ring::TakeDatagram), of
  // which no completion is made. Null: that looks for all there is. FinishProgress() comes next.
  template <typename Ring = engine::Ring>
  packet::Buffer* PollDatagram(const engine::UdpSocket& socket, size_t most);
  // Instead of EndProgress(), of who used the one that came, or found none.
  void FinishProgress();
  // As engine::Ring::Arm, after what is known to wait was taken; false, too, if Progress() has
  // something to give.
  bool Arm();
  // Makes an operation that was started for `handle` end: how.
  engine::Outcome Await(engine::Handle handle, uint64_t cookie);

  void Register(engine::Handle handle, Socket* socket);
  // Nothing is told of it any more; what waits for completions of it is released.
  void Forget(engine::Handle handle, Socket* socket);

  // A listener's claim (ClaimListener()) once it is closed: the connections that it accepted
  // receive by its rule, so no other process is to have one like it before they have ended.
  void KeepClaim(const wire::Endpoint& local, int claim);
  // Back from there; -1: there is none.
  int TakeClaim(const wire::Endpoint& local);
  // Around fork(), in the parent: nobody else is inside.
  void BeforeFork() { Enter(ThreadToken()); }
  void AfterFork() { Leave(); }
  // In a child after fork(), instead of a destructor: the ring is the parent's.
  void Abandon();

  // From here on, packets of sockets whose taker nobody decided are completions.
  void TakeByCompletions() {
    if (!completions_) [[unlikely]] BeginCompletions();
  }
  void Tell(const Happening& happening) { happenings_.push_back(happening); }
  bool HasWaiting() const { return !happenings_.empty(); }
  // What sockets whose packets are completions have to tell, in order; takes up to `most` of
  // `socket`'s, or of every socket's if null.
  uint32_t Take(Socket* socket, Happening* happenings, uint32_t most);
  // The short way of a poll for every socket's completions, when TakeByCompletions() was called:
  // polls for at most `most`, at most kBatch, and gives what came. Packets that would only have
  // waited to be taken are not: `sink(packet, user_data)` has them, the packet and its socket's
  // user data, before whatever waits now, and calls nothing. How many; 0 if something waits
  // already. (progress.h)
  template <typename Sink>
  uint32_t PollPackets(uint32_t most, Sink sink);
  // The same, and before it, of packets whose completions the driver writes by itself, in the form
  // of the program; nothing else comes of these. `rest`: PollPackets() is to be called.
  struct Linked {
    uint32_t count;
    bool rest;
  };
  template <typename Ring = engine::Ring>
  Linked PollLinks(uint32_t most, completion::LinkCompletion* out);
  // What is said of any socket's packets there has changed.
  void ForgetLinks();
  // The clocks were followed, or show another second.
  void TellTime();
  // For times of packets. PollPackets() has followed the clocks, others do so first.
  RealClock& real_clock() { return *real_clock_; }
  void FollowRealTime();

  // Whose ring a buffer that was handed out is of. Any thread. (progress.h)
  static RingDoor* Of(const packet::Buffer& buffer);

  // --- Any time ---

  const std::string& interface() const { return interface_; }
  // Whether the program has one thread.
  bool single() const { return single_; }
  // Instead of an Entry where it has one, and nothing is to be left. False: that thread's calls are
  // the kernel's; `self` is its OutsideToken().
  bool EnterSingle(uintptr_t self) {
    if (owner_ == self) [[likely]] return true;
    if (self == 0) return false;
    Adopt(self);
    return true;
  }
  // Of that thread, once it owns the ring: its OutsideToken(). Sockets are told when it changes.
  uintptr_t alone() const { return alone_; }
  static constexpr uintptr_t kNobody = 1;
  // Readable as engine::Ring::fd.
  int fd() const { return fd_; }
  uint32_t ifindex() const { return ifindex_; }
  const Counters& counters() const { return counters_; }
  // Whether anybody but TryProgress() has polled since this was asked last.
  bool HasProgressed() { return progressed_.exchange(false, std::memory_order_relaxed); }
  // Whether the calling thread is inside.
  bool IsInside() const;
  // Out, however deep inside, and back in as deep as before: for who has to wait meanwhile. Others
  // are inside then: what was looked up before may be gone.
  uint32_t StepOut();
  void StepIn(uint32_t depth);
  // The door that was made before this one.
  RingDoor* older() const { return older_; }
  void SetOlder(RingDoor* older) { older_ = older; }
  // Progress() of a thread that is not the program's, if nobody else is inside. What comes for
  // receive callbacks, which are called by the program's threads alone, and what follows it on the
  // same socket, waits for the next Progress(), as far as the socket has room. False: somebody is
  // inside.
  bool TryProgress();
  // The process ends: what was sent leaves, after `inside_first`, which is called inside. Nobody
  // enters any more; who tries waits until the end.
  void CloseForExit(const std::function<void()>& inside_first);

 private:
  struct Done {
    engine::Handle handle;
    uint64_t cookie;
    engine::Outcome outcome;
  };
  struct KeptClaim {
    wire::Endpoint local;
    int claim;
  };

  RingDoor();
  void Enter(uintptr_t self) {
    if (!single_) return EnterLocked(self);
    if (owner_ != self) [[unlikely]] Adopt(self);
  }
  void EnterLocked(uintptr_t self) {
    if (inside_.load(std::memory_order_relaxed) == self) {
      ++depth_;
      return;
    }
    if (!lock_.try_lock()) [[unlikely]] WaitForLock();
    inside_.store(self, std::memory_order_relaxed);
    depth_ = 1;
    if (owner_ != self) [[unlikely]] Adopt(self);
  }
  bool TryEnter() {
    const uintptr_t self = ThreadToken();
    if (!single_) {
      if (!lock_.try_lock()) [[unlikely]] return false;
      inside_.store(self, std::memory_order_relaxed);
      depth_ = 1;
    }
    if (owner_ == self) [[likely]] return true;
    Leave();
    return false;
  }
  void Leave() {
    if (!single_) LeaveLocked();
  }
  void LeaveLocked() {
    if (--depth_ != 0) return;
    inside_.store(0, std::memory_order_relaxed);
    lock_.unlock();
  }
  void WaitForLock();
  // By who has the lock.
  void Arrive(uintptr_t self, uint32_t depth);
  void Adopt(uintptr_t self);
  void SetAlone(uintptr_t alone);
  // Gives what waits for a poll of the program's. False: somebody gives what they polled.
  bool CatchUp() {
    if (!behind()) [[likely]] return true;
    if (polling()) return false;
    GiveKept();
    return true;
  }
  template <typename Act>
  void GiveAll(uint32_t first, Act give);
  void GiveFrom(uint32_t first);
  void GiveLater();
  void GiveKept();
  void ProgressBelow();
  void GiveOrKeep(const engine::Completion& completion);
  void BeginCompletions();
  static bool AdmitLinks(void* door, const engine::Completion& form,
                         completion::LinkCompletion* link);
  Socket* Find(engine::Handle handle) {
    return found_ != nullptr && found_handle_ == handle ? found_ : LookUp(handle);
  }
  Socket* LookUp(engine::Handle handle);
  void PollForLater();
  void EndClaims();
  void EndClaimsOfNobody();
  void Give(const engine::Completion& completion);

  std::string interface_;
  uint64_t handle_ = 0;  // Of the C API's process.
  engine::Ring* ring_ = nullptr;
  int fd_ = -1;
  uint32_t ifindex_ = 0;
  bool single_ = false;
  std::unique_ptr<RingDevice> device_;
  RingDoor* older_ = nullptr;

  FutexLock lock_;
  std::atomic<uintptr_t> inside_{0};  // Token of the thread that is.
  uint32_t depth_ = 0;
  uintptr_t owner_ = kNobody;  // Token of the thread that was inside last; never 0.
  uintptr_t alone_ = kNobody;
  Counters counters_;

  // kPolling: somebody gives what they polled; kKept: nobody does, and `kept_` is not empty.
  enum class Behind : uint8_t { kNo, kPolling, kKept };
  Behind behind_ = Behind::kNo;
  std::array<engine::Completion, kBatch> polled_;  // Of who is polling(),
  uint32_t polled_count_ = 0;                      // and how many.
  std::deque<engine::Completion> later_;  // Polled while others were given.
  // For receive callbacks, and behind it; and how much of what each socket has room for.
  std::deque<engine::Completion> kept_;
  std::unordered_map<engine::Handle, uint32_t> kept_charges_;
  bool completions_ = false;  // TakeByCompletions() was called.
  std::atomic<bool> progressed_{false};
  std::unordered_map<engine::Handle, Socket*> sockets_;
  // The one that was looked up last; null: none.
  engine::Handle found_handle_ = 0;
  Socket* found_ = nullptr;
  const std::unique_ptr<RealClock> real_clock_;
  std::unique_ptr<completion::LinkFlows> links_;  // Null: nobody polls for completions.
  std::deque<Happening> happenings_;
  std::vector<Done> done_;
  std::vector<KeptClaim> claims_;
};

}  // namespace xtreme::sockets

#endif  // XTREME_API_SOCKETS_RING_DOOR_H_
