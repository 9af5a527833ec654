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

#include "xtreme/engine/completion.h"

namespace xtreme::engine {

class CompletionFifo {
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
    out_ = static_cast<uint8_t*>(out);
    max_ = max;
    stride_ = stride;
    handed_out_ = 0;
    if (head_ != tail_) [[unlikely]] HandOutWaiting(resolve);
    direct_ = stride == sizeof(Completion) && head_ == tail_;
  }

  // The next slot to write; its content is whatever stood there.
  Completion* Emit() {
    if (direct_ && handed_out_ < max_) [[likely]] {
      return reinterpret_cast<Completion*>(out_) + handed_out_++;
    }
    direct_ = false;
    assert(tail_ - head_ < capacity_);
    return &slots_[tail_++ & (capacity_ - 1)];
  }

  // What is left of the caller's own array, while completions are written there, else nothing: the
  // slots that Emit() would give one after the other.
  std::span<Completion> Direct() {
    if (!direct_) return {};
    return {reinterpret_cast<Completion*>(out_) + handed_out_, max_ - handed_out_};
  }
  // The first `count` of Direct() are written.
  void EmittedDirect(uint32_t count) { handed_out_ += count; }

  // Elements of the caller's array that nothing was found for yet.
  uint32_t Left() const {
    const uint32_t left = max_ - handed_out_;
    return left > waiting() ? left - waiting() : 0;
  }

  // Completions that Emit() has room for.
  uint32_t Room() const {
    return capacity_ - (tail_ - head_) + (direct_ ? max_ - handed_out_ : 0);
  }

  // Ends the poll: the number of completions now in the caller's array.
  template <typename Resolve>
  uint32_t EndPoll(Resolve&& resolve) {
    if (head_ != tail_) [[unlikely]] HandOutWaiting(resolve);
    direct_ = false;
    max_ = 0;
    return handed_out_;
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

  // Calls `visit(Completion*)` on all that waits, oldest first.
  template <typename Visit>
  void ForEachWaiting(Visit&& visit) {
    for (uint32_t i = head_; i != tail_; ++i) visit(&slots_[i & (capacity_ - 1)]);
  }

 private:
  template <typename Resolve>
  void HandOutWaiting(Resolve&& resolve) {
    for (; head_ != tail_ && handed_out_ < max_; ++head_) {
      Completion* waiting = &slots_[head_ & (capacity_ - 1)];
      if (!resolve(waiting)) continue;
      memcpy(out_ + handed_out_ * stride_, static_cast<const void*>(waiting),
             std::min(stride_, sizeof(Completion)));
      ++handed_out_;
    }
  }

  const uint32_t capacity_;
  std::unique_ptr<Completion[]> slots_;
  uint32_t head_ = 0;  // Free-running.
  uint32_t tail_ = 0;

  // The poll under way.
  uint8_t* out_ = nullptr;
  size_t stride_ = 0;
  uint32_t max_ = 0;
  uint32_t handed_out_ = 0;
  bool direct_ = false;
};

}  // namespace xtreme::engine

#endif  // XTREME_XTREME_ENGINE_COMPLETION_FIFO_H_
