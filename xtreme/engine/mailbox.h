// SPDX-License-Identifier: Apache-2.0
//
// Mailbox: where other threads leave things for a ring, and the one word that says that they did.
//
// Invariant: whoever leaves something knocks afterwards; the owner takes the knock first and looks
// then, so nothing lies unseen. The ring looks at the word once a poll; it is set by a locked
// instruction of the sender and taken by one of the owner, both only when there is something.
// A mailbox outlives its ring: operations under way still put their results here.
// Threads: said per function.

#ifndef XTREME_XTREME_ENGINE_MAILBOX_H_
#define XTREME_XTREME_ENGINE_MAILBOX_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "xtreme/engine/inbox.h"
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
    knocked_.store(1, std::memory_order_seq_cst);
    waiter_->Wake();
  }
  // What is posted to a closed mailbox is never looked at.
  bool closed() const { return closed_.load(std::memory_order_acquire); }

  // --- Owner ---

  bool knocked() const { return knocks() != 0; }
  // The same as a word, for who looks at several at once.
  uint32_t knocks() const { return knocked_.load(std::memory_order_relaxed); }
  void TakeKnock() { knocked_.exchange(0, std::memory_order_seq_cst); }
  void Close() { closed_.store(true, std::memory_order_release); }
  Inbox& inbox() { return inbox_; }
  Waiter& waiter() { return *waiter_; }

 private:
  std::atomic<uint32_t> knocked_{0};
  // Read by every sender, hardly ever written: not where knocks go to and fro.
  alignas(64) std::atomic<bool> closed_{false};
  const std::unique_ptr<Waiter> waiter_;
  alignas(64) Inbox inbox_;
};

}  // namespace xtreme::engine

#endif  // XTREME_XTREME_ENGINE_MAILBOX_H_
