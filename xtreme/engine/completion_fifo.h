// SPDX-License-Identifier: Apache-2.0
//
// CompletionFifo: completions in the order they came about, on their way to the application.
//
// Invariant: what Emit() returned is handed out exactly once, in order. While nothing waits, Emit()
// gives slots of the caller's own array, so that a completion is written where it is read; past
// that array's end it gives slots of the fifo. Whoever emits asked Room() first.
// Threads: the ring's owner.

#ifndef XTREME_XTREME_ENGINE_COMPLETION_FIFO_H_
#define XTREME_XTREME_ENGINE_COMPLETION_FIFO_H_

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <utility>

#include "xtreme/engine/completion.h"

namespace xtreme::engine {

class CompletionFifo {
 private:
  // The poll under way.
  struct Poll {
    uint8_t* out = nullptr;
    size_t stride = 0;
    uint32_t max = 0;
    uint32_t handed_out = 0;
    bool direct = false;
  };

 public:
  // `capacity`: a power of two, 64 .. 65,536.
  explicit CompletionFifo(uint32_t capacity)
      : capacity_(capacity), slots_(std::make_unique<Completion[]>(capacity)) {
    assert((capacity & (capacity - 1)) == 0);
  }

  // Starts a poll into `out`: `max` elements of `stride` bytes each, 64 or more; shorter ones get
  // the first part of each completion. `resolve(Completion*)` is run on what waited in the fifo
  // when it is handed out (the socket's user data may have changed since); false: drop it.
  template <typename Resolve>
  void BeginPoll(void* out, uint32_t max, size_t stride, Resolve&& resolve) {
    poll_.out = static_cast<uint8_t*>(out);
    poll_.max = max;
    poll_.stride = stride;
    poll_.handed_out = 0;
    if (head_ != tail_) [[unlikely]] HandOutWaiting(resolve);
    poll_.direct = stride == sizeof(Completion) && head_ == tail_;
  }

  // The next slot to write; its content is whatever stood there.
  Completion* Emit() {
    if (poll_.direct && poll_.handed_out < poll_.max) [[likely]] {
      return reinterpret_cast<Completion*>(poll_.out) + poll_.handed_out++;
    }
    poll_.direct = false;
    assert(tail_ - head_ < capacity_);
    return &slots_[tail_++ & (capacity_ - 1)];
  }

  // What is left of the caller's own array, while completions are written there, else nothing: the
  // slots that Emit() would give one after the other.
  std::span<Completion> Direct() {
    if (!poll_.direct) return {};
    return {reinterpret_cast<Completion*>(poll_.out) + poll_.handed_out,
            poll_.max - poll_.handed_out};
  }
  // The first `count` of Direct() are written.
  void EmittedDirect(uint32_t count) { poll_.handed_out += count; }

  // While it lives Emit() writes to `out`, once; what is more waits. Nothing waited before. In the
  // midst of a poll, or of none.
  class Single {
   public:
    Single(CompletionFifo& fifo, Completion* out)
        : fifo_(fifo), poll_(std::exchange(fifo.poll_, {.out = reinterpret_cast<uint8_t*>(out),
                                                        .stride = sizeof(Completion),
                                                        .max = 1,
                                                        .direct = true})) {}
    ~Single() {
      fifo_.poll_ = poll_;
      fifo_.poll_.direct &= fifo_.waiting() == 0;
    }
    Single(const Single&) = delete;
    Single& operator=(const Single&) = delete;

    bool written() const { return fifo_.poll_.handed_out != 0; }

   private:
    CompletionFifo& fifo_;
    const Poll poll_;
  };

  // Elements of the caller's array that nothing was found for yet.
  uint32_t Left() const {
    const uint32_t left = poll_.max - poll_.handed_out;
    return left > waiting() ? left - waiting() : 0;
  }

  // Completions that Emit() has room for.
  uint32_t Room() const {
    return capacity_ - (tail_ - head_) + (poll_.direct ? poll_.max - poll_.handed_out : 0);
  }

  // Ends the poll: the number of completions now in the caller's array.
  template <typename Resolve>
  uint32_t EndPoll(Resolve&& resolve) {
    if (head_ != tail_) [[unlikely]] HandOutWaiting(resolve);
    poll_.direct = false;
    poll_.max = 0;
    return poll_.handed_out;
  }

  std::span<std::byte> memory() {
    return std::as_writable_bytes(std::span(slots_.get(), capacity_));
  }
  uint32_t waiting() const { return tail_ - head_; }

  // Calls `drop(Completion*)` on all that waits and empties the fifo: a ring is closing.
  template <typename Drop>
  void Clear(Drop&& drop) {
    for (; head_ != tail_; ++head_) drop(&slots_[head_ & (capacity_ - 1)]);
  }

  // Calls `visit(Completion*)` on all that waits but the `oldest` ones, oldest first.
  template <typename Visit>
  void ForEachWaiting(Visit&& visit, uint32_t oldest = 0) {
    for (uint32_t i = head_ + oldest; i != tail_; ++i) visit(&slots_[i & (capacity_ - 1)]);
  }

 private:
  template <typename Resolve>
  void HandOutWaiting(Resolve&& resolve) {
    for (; head_ != tail_ && poll_.handed_out < poll_.max; ++head_) {
      Completion* waiting = &slots_[head_ & (capacity_ - 1)];
      if (!resolve(waiting)) continue;
      memcpy(poll_.out + poll_.handed_out * poll_.stride, static_cast<const void*>(waiting),
             std::min(poll_.stride, sizeof(Completion)));
      ++poll_.handed_out;
    }
  }

  const uint32_t capacity_;
  std::unique_ptr<Completion[]> slots_;
  uint32_t head_ = 0;  // Free-running.
  uint32_t tail_ = 0;

  Poll poll_;
};

}  // namespace xtreme::engine

#endif  // XTREME_XTREME_ENGINE_COMPLETION_FIFO_H_
