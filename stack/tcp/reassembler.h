// SPDX-License-Identifier: Apache-2.0
//
// Reassembler: what arrived after a hole, in the buffers the NIC wrote, until the hole is filled.
// RFC 9293 section 3.10.7.4 (seventh check), SACK blocks by RFC 2018 section 4, D-SACK by RFC 2883.
//
// The invariants: held segments are in order, disjoint, inside the window and after RCV.NXT; each
// buffer given in is held, was released, or went out by Take; limits of buffers and bytes hold
// always, because one-byte segments would otherwise pin a buffer each. Nothing is allocated after
// the store's construction, and a connection without a hole holds nothing. The thread that owns
// the buffers' pool. Units: bytes.
#ifndef XTREME_STACK_TCP_REASSEMBLER_H_
#define XTREME_STACK_TCP_REASSEMBLER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "stack/base/counters.h"
#include "stack/packet/buffer.h"
#include "stack/tcp/sequence.h"
#include "stack/wire/tcp_options.h"

namespace xtreme::tcp {

struct ReassemblyCounters {
  uint64_t held = 0;
  uint64_t coalesced = 0;
  uint64_t duplicate_bytes = 0;
  uint64_t outside_window_bytes = 0;
  uint64_t buffer_limit = 0;
  uint64_t byte_limit = 0;
  uint64_t store_full = 0;
  uint64_t cleared = 0;

  static constexpr auto Table() {
    using R = ReassemblyCounters;
    return std::to_array<base::CounterDescriptor<R>>({
        {"held", "segments kept because they came after a hole", &R::held},
        {"coalesced", "small segments copied behind or before a neighbour", &R::coalesced},
        {"duplicate_bytes", "bytes dropped because they were held already", &R::duplicate_bytes},
        {"outside_window_bytes", "bytes dropped because the window does not cover them",
         &R::outside_window_bytes},
        {"buffer_limit", "segments dropped because their connection holds too many buffers",
         &R::buffer_limit},
        {"byte_limit", "segments dropped because their connection holds too many bytes",
         &R::byte_limit},
        {"store_full", "segments dropped because all connections together hold too many",
         &R::store_full},
        {"cleared", "segments kept after a hole as their connection was closed, or ended",
         &R::cleared},
    });
  }
};
static_assert(base::DescribesEveryCounter<ReassemblyCounters>());

// A run of bytes in a chain of buffers, one reference of each.
struct Run {
  Seq sequence;
  uint32_t length = 0;  // the sum of the chain, not 0
  packet::Buffer* head = nullptr;
  uint64_t stamp = 0;  // the caller's, of the segment: its hardware time

  Seq end() const { return sequence + length; }
};

// The room that the reassemblers of one ring share.
class ReassemblyStore {
 public:
  struct Options {
    uint32_t segments = 4096;     // held by all connections
    uint32_t connections = 1024;  // with a hole at once
    uint32_t buffers_per_connection = 512;
    uint32_t bytes_per_connection = 4u << 20;
    // A connection that holds this many buffers has segments of up to `coalesce_bytes` copied into
    // their neighbours' buffers, where these have room.
    uint32_t coalesce_after_buffers = 8;
    uint32_t coalesce_bytes = 256;
  };

  explicit ReassemblyStore(const Options& options);
  ReassemblyStore(const ReassemblyStore&) = delete;
  ReassemblyStore& operator=(const ReassemblyStore&) = delete;

  const Options& options() const { return options_; }
  // What is held by now is handed out with 0.
  void ForgetStamps() {
    for (uint32_t i = 0; i < options_.segments; ++i) segments_[i].run.stamp = 0;
  }
  const ReassemblyCounters& counters() const { return counters_; }
  uint32_t held_segments() const { return held_segments_; }
  size_t memory_bytes() const {
    return options_.segments * sizeof(Held) + options_.connections * sizeof(State);
  }
  std::array<std::span<std::byte>, 2> memory() {
    return {std::as_writable_bytes(std::span(segments_.get(), options_.segments)),
            std::as_writable_bytes(std::span(states_.get(), options_.connections))};
  }

 private:
  friend class Reassembler;

  struct Held {
    Held* previous = nullptr;
    Held* next = nullptr;  // by sequence, or of the free ones
    Run run;
    packet::Buffer* tail = nullptr;
  };

  // Of a connection with a hole.
  struct State {
    Held* first = nullptr;
    Held* last = nullptr;
    uint32_t buffers = 0;
    uint32_t bytes = 0;
    // Contiguous ranges of held bytes, the one that grew last first. RFC 2018 section 4.
    std::array<wire::SackBlock, wire::kTcpMaxSackBlocks> recent{};
    uint32_t recent_count = 0;
    State* next_free = nullptr;
  };

  const Options options_;
  std::unique_ptr<Held[]> segments_;
  std::unique_ptr<State[]> states_;
  Held* free_segments_ = nullptr;
  State* free_states_ = nullptr;
  uint32_t held_segments_ = 0;
  ReassemblyCounters counters_;
};

class Reassembler {
 public:
  enum class Result : uint8_t {
    kHeld,
    kNothingNew,  // all of it was held already, or lies outside the window
    kNoRoom,      // dropped at a limit
  };

  struct Insertion {
    Result result = Result::kNothingNew;
    // What of the segment was held already, the first stretch of it: for SackBlocks.
    std::optional<wire::SackBlock> duplicate;
  };

  // `store` outlives the reassembler.
  explicit Reassembler(ReassemblyStore& store) : store_(&store) {}
  // Releases what is held.
  ~Reassembler() { Clear(); }
  Reassembler(const Reassembler&) = delete;
  Reassembler& operator=(const Reassembler&) = delete;

  // Whether there is no hole: then a segment at RCV.NXT has no need of this class.
  bool empty() const { return state_ == nullptr; }

  // A segment that begins after `next` (RCV.NXT) arrived. Takes the caller's reference of its chain
  // and cuts off what is not in the window of `window` bytes from `next`, or held already.
  Insertion Insert(Run run, Seq next, uint32_t window);

  // The bytes from `from` to before `to` arrived in order and RCV.NXT became `to`: what was held of
  // them is released. Returns the first stretch of them that was held.
  std::optional<wire::SackBlock> Supersede(Seq from, Seq to);

  // The run that begins at `next` (RCV.NXT), if it is held: the caller's from now on. RCV.NXT then
  // is its end, and there may be another one.
  std::optional<Run> Take(Seq next);

  // The first of all that is held, wherever it begins: the caller's from now on.
  std::optional<Run> TakeFirst();

  // The blocks for an acknowledgement: `duplicate`, if there is one (RFC 2883 section 4), then the
  // range that the last arrival lies in, then those that grew before it. Returns how many; at most
  // as many as `to` has room for.
  size_t SackBlocks(const std::optional<wire::SackBlock>& duplicate,
                    std::span<wire::SackBlock> to) const;

  // What lies in `blocks` comes first, in their order: SackBlocks of another reassembler told them,
  // and what that held was inserted here in the order of its numbers.
  void PutFirst(std::span<const wire::SackBlock> blocks);

  // Releases everything, when the connection ends.
  void Clear();

  uint32_t held_bytes() const { return empty() ? 0 : state_->bytes; }
  uint32_t held_buffers() const { return empty() ? 0 : state_->buffers; }

 private:
  using Held = ReassemblyStore::Held;
  using State = ReassemblyStore::State;

  static bool CutToWindow(Run& run, Seq next, uint32_t window, ReassemblyCounters& counters);
  Held* LastNotAfter(Seq sequence) const;
  Held* CutLeft(Run& run, Insertion& insertion);
  void CutAgainstNext(Held* next, Run& run, Insertion& insertion);
  void NoteDuplicate(Seq left, Seq right, Insertion& insertion);
  bool HasRoom(const Run& run, uint32_t buffers);
  bool Coalesce(Held* previous, Held* next, const Run& run);
  Held* Link(Held* previous, const Run& run, uint32_t buffers);
  void Unlink(Held* held);
  void Drop(Held* held);
  void NoteArrival(const Held* held, Seq left, Seq right);
  void ForgetBefore(Seq next);
  void RecallRanges();
  void FreeStateIfEmpty();

  ReassemblyStore* store_;
  State* state_ = nullptr;  // null: nothing is held
};

// What of a segment from `sequence` to before `end` lies before `next` (RCV.NXT) and so arrived a
// second time: the D-SACK block of RFC 2883 section 4.1.
inline std::optional<wire::SackBlock> DuplicateBefore(Seq sequence, Seq end, Seq next) {
  if (sequence >= next || sequence == end) return std::nullopt;
  return wire::SackBlock{sequence.value(), Earlier(end, next).value()};
}

}  // namespace xtreme::tcp

#endif  // XTREME_STACK_TCP_REASSEMBLER_H_
