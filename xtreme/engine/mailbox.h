// SPDX-License-Identifier: Apache-2.0
//
// Mailbox: where other threads leave things for a ring, and the one word that says that they did.
//
// Invariant: whoever leaves something knocks afterwards; the owner takes the knock first and looks
// then, so nothing lies unseen. The ring looks at the word once a poll; it is set by a locked
// instruction of the sender and taken by one of the owner, both only when there is something.
// One entry of a lane may stand in that word and the next one, where nothing else is to be looked
// at: what is urgent is then found by the line that the owner looks at, and without a knock. Until
// the owner has taken it, nobody else writes more than a knock there.
// A mailbox outlives its ring: operations under way still put their results here.
// Threads: said per function.

#ifndef XTREME_XTREME_ENGINE_MAILBOX_H_
#define XTREME_XTREME_ENGINE_MAILBOX_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "xtreme/engine/inbox.h"
#include "xtreme/engine/lane.h"
#include "xtreme/engine/waiter.h"

namespace xtreme::engine {

class Ring;

// A notice that acts on the ring when its owner takes it out.
struct RingNotice : Notice {
  virtual void Arrive(Ring& ring) = 0;
};

template <typename Act>
std::unique_ptr<RingNotice> MakeNotice(Act act) {
  struct Callable final : RingNotice {
    explicit Callable(Act act) : act(std::move(act)) {}
    void Arrive(Ring& ring) override { act(ring); }
    Act act;
  };
  return std::make_unique<Callable>(std::move(act));
}

class Mailbox {
 public:
  explicit Mailbox(std::unique_ptr<Waiter> waiter) : waiter_(std::move(waiter)) {}

  // --- Any thread ---

  void Push(std::unique_ptr<RingNotice> notice) {
    if (closed()) return;
    inbox_.Push(std::move(notice));
    Knock();
  }
  // Makes the owner look, and wakes it if it sleeps.
  void Knock() {
    __atomic_fetch_or(&door_.knocks, uint8_t{1}, __ATOMIC_SEQ_CST);
    waiter_->Wake();
  }
  // Leaves an entry where the owner looks. False: there is an entry, or was a knock, or the machine
  // cannot: the entry is to go another way.
  bool LeaveAtDoor([[maybe_unused]] const LaneEntry& entry) {
#ifdef __GCC_HAVE_SYNC_COMPARE_AND_SWAP_16
    Door door;
    door.work = entry.work | kEntry;
    door.value = entry.value;
    if (entry.work >= kEntry) return false;
    if (!__sync_bool_compare_and_swap(&door_.all, 0, door.all)) return false;
    waiter_->Wake();
    return true;
#else
    return false;
#endif
  }
  // What is posted to a closed mailbox is never looked at.
  bool closed() const { return closed_.load(std::memory_order_acquire); }
  // Nothing of its ring is left but the mailbox, which lanes may hold for long.
  bool buried() const { return buried_.load(std::memory_order_acquire); }

  // --- Control thread ---

  void Bury() { buried_.store(true, std::memory_order_release); }

  // --- Owner ---

  // Whether there is a knock or an entry, as a word, for who looks at several at once: one of its
  // upper nine bits is set then.
  uint32_t waiting() const { return __atomic_load_n(&door_.half, __ATOMIC_RELAXED); }
  bool knocked() const { return (waiting() & kKnocks >> 32) != 0; }
  bool HasEntry() const { return (waiting() & kEntry >> 32) != 0; }
  void TakeKnock() { __atomic_exchange_n(&door_.knocks, uint8_t{0}, __ATOMIC_SEQ_CST); }
  // Of HasEntry(); there is room for another one at once.
  LaneEntry TakeEntry() {
    const uint64_t work = __atomic_load_n(&door_.work, __ATOMIC_ACQUIRE);
    const uint64_t value = __atomic_load_n(&door_.value, __ATOMIC_RELAXED);
    // Not the byte of the knocks, which may come meanwhile; what says that it was here goes last.
    __atomic_store_n(&door_.value, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&door_.low, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&door_.middle, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&door_.high, 0, __ATOMIC_RELEASE);
    return {.value = value, .work = work & (kEntry - 1)};
  }
  void Close() { closed_.store(true, std::memory_order_release); }
  Inbox& inbox() { return inbox_; }
  Waiter& waiter() { return *waiter_; }

 private:
  static constexpr uint64_t kKnocks = uint64_t{0xff} << 56, kEntry = uint64_t{1} << 55;

  // An entry's work below kEntry, with that, and its value: 0 without one. Written as a whole by
  // who leaves one, in parts by who takes it, as knocks come at any time; little endian.
  union Door {
    unsigned __int128 all = 0;
    struct {
      uint64_t work, value;
    };
    struct {
      uint32_t low;
      uint16_t middle;
      uint8_t high, knocks;
    };
    struct {
      uint32_t first_half, half;
    };
  };
  alignas(64) Door door_;
  // Read by every sender, hardly ever written: not where knocks go to and fro.
  alignas(64) std::atomic<bool> closed_{false};
  std::atomic<bool> buried_{false};
  const std::unique_ptr<Waiter> waiter_;
  alignas(64) Inbox inbox_;
};

}  // namespace xtreme::engine

#endif  // XTREME_XTREME_ENGINE_MAILBOX_H_
