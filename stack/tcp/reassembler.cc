// SPDX-License-Identifier: Apache-2.0
#include "stack/tcp/reassembler.h"

#include <algorithm>
#include <cstring>

#include "stack/packet/buffer_pool.h"
#include "stack/tcp/chain.h"

namespace xtreme::tcp {
namespace {

using packet::Buffer;
using packet::BufferPool;
using wire::SackBlock;

uint32_t BuffersOf(const Buffer* head) {
  uint32_t buffers = 0;
  for (; head != nullptr; head = head->next) ++buffers;
  return buffers;
}

Buffer* TailOf(Buffer* head) {
  while (head->next != nullptr) head = head->next;
  return head;
}

// Free bytes of the slot before and behind what is valid. What stands before it are headers that
// were read already.
uint32_t Headroom(const Buffer* buffer) {
  return static_cast<uint32_t>(buffer->data - buffer->pool->slot(buffer));
}
uint32_t Tailroom(const Buffer* buffer) {
  return buffer->pool->buffer_bytes() - Headroom(buffer) - buffer->length;
}

void CopyChain(const Buffer* from, uint8_t* to) {
  for (; from != nullptr; from = from->next) {
    std::memcpy(to, from->data, from->length);
    to += from->length;
  }
}

void AppendCopy(const Run& run, Buffer* tail) {
  CopyChain(run.head, tail->data + tail->length);
  tail->length += run.length;
}

}  // namespace

ReassemblyStore::ReassemblyStore(const Options& options)
    : options_(options),
      segments_(std::make_unique<Held[]>(options.segments)),
      states_(std::make_unique<State[]>(options.connections)) {
  for (uint32_t i = 0; i < options.segments; ++i) {
    segments_[i].next = free_segments_;
    free_segments_ = &segments_[i];
  }
  for (uint32_t i = 0; i < options.connections; ++i) {
    states_[i].next_free = free_states_;
    free_states_ = &states_[i];
  }
}

Reassembler::Insertion Reassembler::Insert(Run run, Seq next, uint32_t window) {
  Insertion insertion;
  ReassemblyCounters& counters = store_->counters_;
  if (!CutToWindow(run, next, window, counters)) return insertion;
  Held* const previous = CutLeft(run, insertion);
  if (run.length == 0) return insertion;
  Held* const following =
      previous != nullptr ? previous->next : (empty() ? nullptr : state_->first);
  const bool covers_following = following != nullptr && following->run.end() <= run.end();
  if (!covers_following) CutAgainstNext(following, run, insertion);
  if (!covers_following && Coalesce(previous, following, run)) {
    insertion.result = Result::kHeld;
    return insertion;
  }
  const uint32_t buffers = BuffersOf(run.head);
  if (!HasRoom(run, buffers)) {
    BufferPool::ReleaseChain(run.head);
    insertion.result = Result::kNoRoom;
    return insertion;
  }
  if (covers_following) CutAgainstNext(following, run, insertion);
  const Held* const held = Link(previous, run, BuffersOf(run.head));
  ++counters.held;
  NoteArrival(held, held->run.sequence, held->run.end());
  insertion.result = Result::kHeld;
  return insertion;
}

// False when nothing is left, and then the chain is released.
bool Reassembler::CutToWindow(Run& run, Seq next, uint32_t window, ReassemblyCounters& counters) {
  const Seq right = next + window;
  if (run.end() <= next || run.sequence >= right) {
    counters.outside_window_bytes += run.length;
    BufferPool::ReleaseChain(run.head);
    return false;
  }
  if (run.sequence < next) {
    const uint32_t before = Distance(run.sequence, next);
    counters.outside_window_bytes += before;
    run.head = DropFront(run.head, before);
    run.sequence = next;
    run.length -= before;
  }
  if (run.end() > right) {
    counters.outside_window_bytes += Distance(right, run.end());
    run.length = Distance(run.sequence, right);
    KeepFront(run.head, run.length);
  }
  return true;
}

// From the end: most of what comes out of order comes last.
Reassembler::Held* Reassembler::LastNotAfter(Seq sequence) const {
  if (empty() || sequence < state_->first->run.sequence) return nullptr;
  Held* held = state_->last;
  while (held->run.sequence > sequence) held = held->previous;
  return held;
}

// Cuts off what runs that begin before or at `run` have, and returns the last of them. Leaves `run`
// with length 0, released, when nothing is left.
Reassembler::Held* Reassembler::CutLeft(Run& run, Insertion& insertion) {
  Held* previous = LastNotAfter(run.sequence);
  while (previous != nullptr && previous->run.end() > run.sequence) {
    const Seq to = Earlier(previous->run.end(), run.end());
    const uint32_t overlap = Distance(run.sequence, to);
    NoteDuplicate(run.sequence, to, insertion);
    run.head = DropFront(run.head, overlap);
    run.sequence = to;
    run.length -= overlap;
    if (run.length == 0) break;
    Held* const next = previous->next;
    if (next != nullptr && next->run.sequence == to) previous = next;
  }
  return previous;
}

// Drops held runs that `run` covers whole, and cuts off what the one after them has: so a run never
// falls in pieces. `next` begins after `run`, so something is left.
void Reassembler::CutAgainstNext(Held* next, Run& run, Insertion& insertion) {
  while (next != nullptr && next->run.end() <= run.end()) {
    Held* const covered = next;
    next = next->next;
    NoteDuplicate(covered->run.sequence, covered->run.end(), insertion);
    Drop(covered);
  }
  if (next == nullptr || run.end() <= next->run.sequence) return;
  NoteDuplicate(next->run.sequence, run.end(), insertion);
  run.length = Distance(run.sequence, next->run.sequence);
  KeepFront(run.head, run.length);
}

// Keeps the first contiguous stretch.
void Reassembler::NoteDuplicate(Seq left, Seq right, Insertion& insertion) {
  store_->counters_.duplicate_bytes += Distance(left, right);
  if (!insertion.duplicate) {
    insertion.duplicate = SackBlock{left.value(), right.value()};
  } else if (insertion.duplicate->right == left.value()) {
    insertion.duplicate->right = right.value();
  }
}

// Whether `run`, in `buffers` buffers, may be held; counts why not.
bool Reassembler::HasRoom(const Run& run, uint32_t buffers) {
  const ReassemblyStore::Options& limits = store_->options_;
  if (held_buffers() + buffers > limits.buffers_per_connection) {
    ++store_->counters_.buffer_limit;
    return false;
  }
  if (held_bytes() + run.length > limits.bytes_per_connection) {
    ++store_->counters_.byte_limit;
    return false;
  }
  if (store_->free_segments_ == nullptr || (empty() && store_->free_states_ == nullptr)) {
    ++store_->counters_.store_full;
    return false;
  }
  return true;
}

// Copies a small run into a neighbour's buffer, and the two neighbours together when that closes
// the gap between them. False when it cannot, or need not yet.
bool Reassembler::Coalesce(Held* previous, Held* next, const Run& run) {
  const ReassemblyStore::Options& limits = store_->options_;
  if (held_buffers() < limits.coalesce_after_buffers || run.length > limits.coalesce_bytes ||
      held_bytes() + run.length > limits.bytes_per_connection) {
    return false;
  }
  const bool meets_next = next != nullptr && next->run.sequence == run.end();
  Held* grown = nullptr;
  if (previous != nullptr && previous->run.end() == run.sequence &&
      Tailroom(previous->tail) >= run.length) {
    AppendCopy(run, previous->tail);
    grown = previous;
  } else if (meets_next && Headroom(next->run.head) >= run.length) {
    Buffer* const head = next->run.head;
    head->data -= run.length;
    head->length += run.length;
    CopyChain(run.head, head->data);
    next->run.sequence = run.sequence;
    next->run.stamp = run.stamp;  // of the first byte's segment
    grown = next;
  } else {
    return false;
  }
  grown->run.length += run.length;
  state_->bytes += run.length;
  BufferPool::ReleaseChain(run.head);
  ++store_->counters_.coalesced;
  if (grown == previous && meets_next && next->run.length <= limits.coalesce_bytes &&
      Tailroom(grown->tail) >= next->run.length) {
    AppendCopy(next->run, grown->tail);
    grown->run.length += next->run.length;
    state_->bytes += next->run.length;
    Drop(next);
  }
  NoteArrival(grown, grown->run.sequence, grown->run.end());
  return true;
}

// HasRoom said yes.
Reassembler::Held* Reassembler::Link(Held* previous, const Run& run, uint32_t buffers) {
  if (empty()) {
    state_ = store_->free_states_;
    store_->free_states_ = state_->next_free;
    *state_ = State();
  }
  Held* const held = store_->free_segments_;
  store_->free_segments_ = held->next;
  ++store_->held_segments_;
  held->run = run;
  held->tail = TailOf(run.head);
  held->previous = previous;
  held->next = previous != nullptr ? previous->next : state_->first;
  (previous != nullptr ? previous->next : state_->first) = held;
  (held->next != nullptr ? held->next->previous : state_->last) = held;
  state_->buffers += buffers;
  state_->bytes += run.length;
  return held;
}

// Takes `held` out; its chain stays the caller's.
void Reassembler::Unlink(Held* held) {
  state_->buffers -= BuffersOf(held->run.head);
  state_->bytes -= held->run.length;
  (held->previous != nullptr ? held->previous->next : state_->first) = held->next;
  (held->next != nullptr ? held->next->previous : state_->last) = held->previous;
  held->next = store_->free_segments_;
  store_->free_segments_ = held;
  --store_->held_segments_;
}

void Reassembler::Drop(Held* held) {
  Buffer* const head = held->run.head;
  Unlink(held);
  BufferPool::ReleaseChain(head);
}

// The range around `held`, from `left` to before `right` so far, becomes the most recent. The
// recent ranges are as long as they can be; one that fell out of the list is found by walking.
void Reassembler::NoteArrival(const Held* held, Seq left, Seq right) {
  State& state = *state_;
  uint32_t kept = 0;
  for (uint32_t i = 0; i < state.recent_count; ++i) {
    const SackBlock block = state.recent[i];
    if (Seq(block.left) <= right && left <= Seq(block.right)) {
      left = Earlier(left, Seq(block.left));
      right = Later(right, Seq(block.right));
    } else {
      state.recent[kept++] = block;
    }
  }
  if (left == held->run.sequence) {
    for (const Held* p = held->previous; p != nullptr && p->run.end() == left; p = p->previous) {
      left = p->run.sequence;
    }
  }
  if (right == held->run.end()) {
    for (const Held* n = held->next; n != nullptr && n->run.sequence == right; n = n->next) {
      right = n->run.end();
    }
  }
  kept = std::min<uint32_t>(kept, wire::kTcpMaxSackBlocks - 1);
  std::copy_backward(state.recent.begin(), state.recent.begin() + kept,
                     state.recent.begin() + kept + 1);
  state.recent[0] = {left.value(), right.value()};
  state.recent_count = kept + 1;
}

std::optional<SackBlock> Reassembler::Supersede(Seq from, Seq to) {
  Insertion insertion;
  if (empty()) return std::nullopt;
  Held* held = state_->first;
  while (held != nullptr && held->run.sequence < to) {
    Held* const next = held->next;
    Run& run = held->run;
    const Seq end = Earlier(run.end(), to);
    NoteDuplicate(Later(run.sequence, from), end, insertion);
    if (end == run.end()) {
      Drop(held);
    } else {
      const uint32_t cut = Distance(run.sequence, to);
      state_->buffers -= BuffersOf(run.head);
      run.head = DropFront(run.head, cut);
      state_->buffers += BuffersOf(run.head);
      state_->bytes -= cut;
      run.sequence = to;
      run.length -= cut;
    }
    held = next;
  }
  ForgetBefore(to);
  FreeStateIfEmpty();
  return insertion.duplicate;
}

std::optional<Run> Reassembler::Take(Seq next) {
  if (empty() || state_->first->run.sequence != next) return std::nullopt;
  const Run run = state_->first->run;
  Unlink(state_->first);
  ForgetBefore(run.end());
  FreeStateIfEmpty();
  return run;
}

std::optional<Run> Reassembler::TakeFirst() {
  if (empty()) return std::nullopt;
  return Take(state_->first->run.sequence);
}

// No acknowledgement names ranges that it covers itself.
void Reassembler::ForgetBefore(Seq next) {
  State& state = *state_;
  uint32_t kept = 0;
  for (uint32_t i = 0; i < state.recent_count; ++i) {
    SackBlock block = state.recent[i];
    if (Seq(block.right) <= next) continue;
    block.left = Later(Seq(block.left), next).value();
    state.recent[kept++] = block;
  }
  state.recent_count = kept;
  if (kept == 0) RecallRanges();
}

// All ranges that were recent are delivered: the forgotten ones, if there are any, take their
// place, for SACK is sent as long as there is a hole.
void Reassembler::RecallRanges() {
  State& state = *state_;
  for (const Held* held = state.first; held != nullptr; held = held->next) {
    const Run& run = held->run;
    const bool goes_on =
        held != state.first && state.recent[state.recent_count - 1].right == run.sequence.value();
    if (goes_on) {
      state.recent[state.recent_count - 1].right = run.end().value();
      continue;
    }
    if (state.recent_count == state.recent.size()) return;
    state.recent[state.recent_count++] = {run.sequence.value(), run.end().value()};
  }
}

size_t Reassembler::SackBlocks(const std::optional<SackBlock>& duplicate,
                               std::span<SackBlock> to) const {
  size_t count = 0;
  if (duplicate && !to.empty()) to[count++] = *duplicate;
  if (empty()) return count;
  for (uint32_t i = 0; i < state_->recent_count && count < to.size(); ++i) {
    to[count++] = state_->recent[i];
  }
  return count;
}

void Reassembler::PutFirst(std::span<const SackBlock> blocks) {
  for (size_t i = blocks.size(); i-- > 0;) {
    const Held* const held = LastNotAfter(Seq(blocks[i].left));
    if (held == nullptr || held->run.end() <= Seq(blocks[i].left)) continue;
    NoteArrival(held, held->run.sequence, held->run.end());
  }
}

void Reassembler::Clear() {
  if (empty()) return;
  while (state_->first != nullptr) {
    ++store_->counters_.cleared;
    Drop(state_->first);
  }
  FreeStateIfEmpty();
}

void Reassembler::FreeStateIfEmpty() {
  if (state_->first != nullptr) return;
  state_->next_free = store_->free_states_;
  store_->free_states_ = state_;
  state_ = nullptr;
}

}  // namespace xtreme::tcp
