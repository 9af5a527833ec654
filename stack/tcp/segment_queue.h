// SPDX-License-Identifier: Apache-2.0
//
// SegmentQueue: what a connection has to send, from SND.UNA on: sent segments, then unsent ones.
//
// The invariants: segments are in order and touch; a prefix of them is sent; a segment gives its
// memory back, and its TX_DONE is due, only when it is acknowledged *and* no posted WQE refers to
// it, for the acknowledgement of a first copy can arrive while a second waits in the SQ. Each
// counter of `Flight` is the sum over its segments at all times. Nothing is allocated after the
// pool's construction. Units: bytes of sequence space (payload, SYN and FIN). The thread that owns
// the buffers' pool.
#ifndef XTREME_STACK_TCP_SEGMENT_QUEUE_H_
#define XTREME_STACK_TCP_SEGMENT_QUEUE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "stack/base/time.h"
#include "stack/packet/buffer.h"
#include "stack/packet/buffer_pool.h"
#include "stack/tcp/sequence.h"

namespace xtreme::tcp {

// One cache line.
struct alignas(64) Segment {
  enum Flag : uint16_t {
    kSyn = 1 << 0,
    kFin = 1 << 1,
    kPush = 1 << 2,
    kWantWire = 1 << 3,  // TX_WIRE is due when the first copy has left
    kWantDone = 1 << 4,
    kSacked = 1 << 5,
    kLost = 1 << 6,
    // A copy is under way that was sent after the segment was found lost, or as a probe.
    kRetransmitted = 1 << 7,
    kAcknowledged = 1 << 8,
    kCancelled = 1 << 9,  // its connection ended first: it may not have arrived
    // Cut off a send whose TX_DONE comes with what is behind it, and waits for this one's WQEs too.
    kContinued = 1 << 10,
  };

  // Neighbours in the queue; `next` of a free one is the next free.
  Segment* next = nullptr;
  Segment* previous = nullptr;
  const uint8_t* bytes = nullptr;    // the payload
  packet::Buffer* buffer = nullptr;  // holds it, one reference; null: memory of the application
  uint64_t cookie = 0;               // of TX_WIRE and TX_DONE
  base::Nanoseconds sent_at;         // last
  Seq sequence;
  uint32_t length = 0;      // of the payload
  uint32_t memory_key = 0;  // by which the sink knows the application's memory; 0: the pool's
  uint16_t flags = 0;
  uint8_t posted = 0;  // WQEs that refer to the payload; and one for such in front that has left
  uint8_t transmissions = 0;  // stops at 255

  bool Has(uint16_t any_of) const { return (flags & any_of) != 0; }
  uint32_t SequenceLength() const { return length + uint32_t{Has(kSyn)} + uint32_t{Has(kFin)}; }
  Seq end() const { return sequence + SequenceLength(); }
  bool WasRetransmitted() const { return transmissions > 1; }
};
static_assert(sizeof(Segment) == 64);

// A fixed number of segments, shared by the connections of one ring. Beside them stands a reserve,
// one for each kPerReserved, that no send takes: what was sent can be cut, and a connection shut,
// when sends hold all others; and of a connection that has nothing outstanding one segment leaves.
class SegmentPool {
 public:
  explicit SegmentPool(uint32_t segments);
  SegmentPool(const SegmentPool&) = delete;
  SegmentPool& operator=(const SegmentPool&) = delete;

  // Not initialised but for being nobody's; null when there is none (counted).
  Segment* Acquire() {
    Segment* const segment = free_;
    if (segment == nullptr) [[unlikely]] {
      ++exhausted_;
      return nullptr;
    }
    free_ = segment->next;
    --spare_;
    return segment;
  }
  // The same where one is known to be free.
  Segment& Take() {
    Segment& segment = *free_;
    free_ = segment.next;
    --spare_;
    return segment;
  }
  void Release(Segment* segment) {
    segment->next = free_;
    free_ = segment;
    ++spare_;
  }

  // Whether a send may take so many.
  bool HasSpare(uint32_t segments = 1) const { return spare_ >= static_cast<int32_t>(segments); }

  // Both without the reserve.
  uint32_t capacity() const { return capacity_; }
  uint32_t free_count() const { return HasSpare() ? static_cast<uint32_t>(spare_) : 0; }
  // How often Acquire found none.
  uint64_t exhausted() const { return exhausted_; }
  size_t memory_bytes() const { return all() * sizeof(Segment); }
  std::span<std::byte> memory() {
    return std::as_writable_bytes(std::span(segments_.get(), all()));
  }

 private:
  static constexpr uint32_t kPerReserved = 64;

  uint32_t all() const { return capacity_ + capacity_ / kPerReserved; }

  const uint32_t capacity_;
  const std::unique_ptr<Segment[]> segments_;
  Segment* free_ = nullptr;
  int32_t spare_ = 0;  // the free ones but for the reserve; below 0: part of that is taken
  uint64_t exhausted_ = 0;
};

// Bytes that were sent and not acknowledged by SND.UNA, and what is known of them.
struct Flight {
  uint32_t outstanding = 0;  // all of them: SND.NXT - SND.UNA
  uint32_t sacked = 0;
  uint32_t lost = 0;  // and not sacked since
  uint32_t retransmitted = 0;
  uint32_t sacked_segments = 0;  // a count

  // What is estimated to be in the network. RFC 6675 section 4, SetPipe.
  uint32_t Pipe() const { return outstanding - sacked - lost + retransmitted; }
  friend bool operator==(const Flight&, const Flight&) = default;
};

// What a send of `bytes` asks for: where 32 bits do not count it, more than any queue takes.
constexpr uint32_t AskedBytes(size_t bytes) {
  return static_cast<uint32_t>(std::min<size_t>(bytes, UINT32_MAX));
}

class SegmentQueue {
 public:
  // What a send hands over.
  struct Payload {
    const uint8_t* bytes = nullptr;
    uint32_t length = 0;
    // Holds `bytes`: the caller's reference goes to the queue. Null: memory that the application
    // registered under `memory_key` and keeps until TX_DONE.
    packet::Buffer* buffer = nullptr;
    uint32_t memory_key = 0;
    uint16_t flags = 0;  // kSyn, kFin, kPush, kWantWire, kWantDone
    uint64_t cookie = 0;
  };

  // `pool` outlives the queue. The first byte queued has sequence number `first`.
  SegmentQueue(SegmentPool& pool, Seq first) : pool_(&pool), una_(first), end_(first) {}
  // Nothing is queued and nothing is posted any more: Cancel came before.
  ~SegmentQueue() = default;
  SegmentQueue(const SegmentQueue&) = delete;
  SegmentQueue& operator=(const SegmentQueue&) = delete;

  // Before anything was queued: the initial sequence number became known.
  void Reset(Seq first) { una_ = end_ = first; }

  // --- What is to be sent ---

  // Queues a segment behind all others; null, and nothing taken, when the pool is empty.
  Segment* Append(const Payload& payload) {
    Segment* const segment = pool_->Acquire();
    if (segment == nullptr) [[unlikely]]
      return nullptr;
    segment->next = nullptr;
    segment->previous = last_;
    segment->bytes = payload.bytes;
    segment->buffer = payload.buffer;
    segment->cookie = payload.cookie;
    segment->sequence = end_;
    segment->length = payload.length;
    segment->memory_key = payload.memory_key;
    segment->flags = payload.flags;
    segment->posted = 0;
    segment->transmissions = 0;
    (last_ != nullptr ? last_->next : first_) = segment;
    last_ = segment;
    if (first_unsent_ == nullptr) first_unsent_ = segment;
    end_ += segment->SequenceLength();
    return segment;
  }

  // Append and MarkSent in one, of a segment that was sent at `now`: nothing is unsent, and the
  // pool is not empty.
  [[gnu::always_inline]] Segment& AppendSent(const Payload& payload, bool posts_reference,
                                             base::Nanoseconds now) {
    Segment& segment = pool_->Take();
    segment.next = nullptr;
    segment.previous = last_;
    segment.bytes = payload.bytes;
    segment.buffer = payload.buffer;
    segment.cookie = payload.cookie;
    segment.sent_at = now;
    segment.sequence = end_;
    segment.length = payload.length;
    segment.memory_key = payload.memory_key;
    segment.flags = payload.flags;
    segment.posted = posts_reference;
    segment.transmissions = 1;
    (last_ != nullptr ? last_->next : first_) = &segment;
    last_ = &segment;
    const uint32_t bytes = segment.SequenceLength();
    flight_.outstanding += bytes;
    end_ += bytes;
    return segment;
  }

  // Copies as many of `bytes` as fit behind the payload of the last segment, if that is unsent, not
  // longer than `max_length` afterwards, in a buffer of the queue's alone, and without cookie or
  // FIN. Returns how many: 0 is a usual answer.
  uint32_t ExtendLast(std::span<const uint8_t> bytes, uint32_t max_length);

  // Adds FIN to the last segment, if that is unsent and no SYN. False: Append one of its own.
  bool AddFinToLast();

  // Cuts the first `length` payload bytes, fewer than there are, off `segment` and makes them a
  // segment before it, which is returned; null when the pool is empty. Both hold the buffer. The
  // posted WQEs, cookie, FIN and PSH stay with `segment`, which ends where it did.
  Segment* Split(Segment& segment, uint32_t length);

  // The device was given a copy of `segment`, at `now`: the first unsent one, or a sent one again.
  // `posts_reference`: OnWqeCompleted comes once for this copy. Always, unless the payload went
  // inline and the segment has no kWantWire, which only the completion can answer.
  void MarkSent(Segment& segment, base::Nanoseconds now, bool posts_reference) {
    if (&segment == first_unsent_) [[likely]] {
      first_unsent_ = segment.next;
      flight_.outstanding += segment.SequenceLength();
    } else {
      MarkSentAgain(segment);
    }
    segment.sent_at = now;
    if (segment.transmissions < UINT8_MAX) ++segment.transmissions;
    segment.posted += posts_reference;
  }

  // --- What comes back ---

  // What is due to the application.
  struct Due {
    bool wire = false;
    bool done = false;  // and `cancelled` says how
    bool cancelled = false;
    uint64_t cookie = 0;
  };
  // A WQE that was posted with a reference completed. The segment may be gone after it.
  Due OnWqeCompleted(Segment& segment);
  // The same if nothing is due: most are not acknowledged yet. False: it is not done.
  static bool TakesWqeQuietly(Segment& segment) {
    constexpr uint16_t kLoud = Segment::kWantWire | Segment::kAcknowledged | Segment::kCancelled;
    if (segment.Has(kLoud)) return false;
    --segment.posted;
    return true;
  }

  // SND.UNA becomes `una`, which is after the old one and not past what was sent. Calls
  // `acked(const Segment&)` for each segment that is acknowledged whole, in order, before it goes;
  // those with kWantDone and `posted` 0 are due TX_DONE, others wait for OnWqeCompleted. A segment
  // that is acknowledged in part is cut exactly.
  template <typename Acked>
  [[gnu::always_inline]] void Acknowledge(Seq una, Acked&& acked) {
    Segment* segment = first_;
    // `first_unsent_` ends the walk even if the peer is believed too much.
    while (segment != first_unsent_) {
      const uint32_t bytes = segment->SequenceLength();
      if (segment->sequence + bytes > una) break;
      Segment* const next = segment->next;
      acked(static_cast<const Segment&>(*segment));
      if (segment->Has(kKnown)) [[unlikely]]
        ForgetMarks(*segment, bytes);
      flight_.outstanding -= bytes;
      Retire(*segment, Segment::kAcknowledged);
      segment = next;
    }
    first_ = segment;
    (segment != nullptr ? segment->previous : last_) = nullptr;
    if (segment != first_unsent_ && segment->sequence < una) CutFront(*segment, una);
    una_ = una;
  }

  // The segment that is all there is, if one is and it was sent; else null.
  Segment* Only() const {
    return first_ == last_ && first_unsent_ == nullptr ? first_ : nullptr;
  }
  // The same of Only(), which nothing but its sending is known of: all is acknowledged.
  template <typename Acked>
  [[gnu::always_inline]] void AcknowledgeOnly(Segment& only, Acked&& acked) {
    acked(static_cast<const Segment&>(only));
    flight_.outstanding = 0;
    first_ = last_ = nullptr;
    una_ = end_;
    Retire(only, Segment::kAcknowledged);
  }

  // The connection ends: nothing is sent any more. Calls `cancelled(const Segment&)` for each
  // segment; those with kWantDone and `posted` 0 are due TX_DONE, others wait.
  template <typename Cancelled>
  void Cancel(Cancelled&& cancelled) {
    for (Segment* segment = first_; segment != nullptr;) {
      Segment* const next = segment->next;
      cancelled(static_cast<const Segment&>(*segment));
      Retire(*segment, Segment::kCancelled);
      segment = next;
    }
    first_ = last_ = first_unsent_ = first_lost_ = highest_sacked_ = nullptr;
    flight_ = Flight();
    end_ = una_;
  }

  // --- Moving to another queue ---

  // Becomes what `from` is, in a queue where nothing was queued yet; but no posted WQE refers to
  // the copies. Calls `keep(Segment&)` for each, which makes its payload and buffer this queue's;
  // false, and nothing is queued: `keep` said so, or the pool has too few segments.
  template <typename Keep>
  bool CopyFrom(const SegmentQueue& from, Keep&& keep) {
    for (const Segment* segment = from.first_; segment != nullptr; segment = segment->next) {
      Segment* const copy = pool_->Acquire();
      if (copy == nullptr) return DropCopies();
      *copy = *segment;
      copy->posted = 0;
      if (!keep(*copy)) {
        pool_->Release(copy);
        return DropCopies();
      }
      copy->next = nullptr;
      copy->previous = last_;
      (last_ != nullptr ? last_->next : first_) = copy;
      last_ = copy;
      if (segment == from.first_unsent_) first_unsent_ = copy;
      if (segment == from.highest_sacked_) highest_sacked_ = copy;
      if (segment == from.first_lost_) first_lost_ = copy;
    }
    flight_ = from.flight_;
    una_ = from.una_;
    end_ = from.end_;
    return true;
  }

  // Another queue goes on with what is queued: no TX_DONE of it is due here.
  void Leave() {
    for (Segment* segment = first_; segment != nullptr; segment = segment->next) {
      segment->flags &= static_cast<uint16_t>(~Segment::kWantDone);
    }
    Cancel([](const Segment&) {});
  }

  // --- What is known of what was sent; each keeps the sums ---

  // The peer holds it. It is sent and not marked so yet.
  void MarkSacked(Segment& segment);
  // It is believed lost: sent, not sacked. A copy that was retransmitted is lost too.
  void MarkLost(Segment& segment);
  // It was not lost after all.
  void ClearLost(Segment& segment);
  // The peer took back what it had (RFC 2018 section 8), or a time-out says to forget it.
  void ClearSacked(Segment& segment);

  // The first segment that is lost and not retransmitted since; null when there is none.
  Segment* FirstLost();

  // --- Accessors ---

  bool empty() const { return first_ == nullptr; }
  Segment* first() const { return first_; }  // the oldest unacknowledged; null when empty
  Segment* last() const { return last_; }
  Segment* first_unsent() const { return first_unsent_; }
  bool all_acknowledged() const { return first_ == first_unsent_; }
  // The last one that was sent; null when none is outstanding.
  Segment* last_sent() const { return first_unsent_ != nullptr ? first_unsent_->previous : last_; }
  Seq una() const { return una_; }
  // SND.NXT: where the unsent begin.
  Seq nxt() const { return first_unsent_ != nullptr ? first_unsent_->sequence : end_; }
  Seq end() const { return end_; }
  uint32_t unsent_bytes() const { return Distance(nxt(), end_); }
  bool has_unsent() const { return first_unsent_ != nullptr; }
  // Whether a segment is free for a send.
  bool HasSpareSegment() const { return pool_->HasSpare(); }
  const Flight& flight() const { return flight_; }
  // The last of those that are marked sacked; null when there is none, or it is not known.
  Segment* highest_sacked() const { return highest_sacked_; }
  // Segments that left the queue while a posted WQE refers to them.
  uint32_t waiting_for_wqe() const { return waiting_for_wqe_; }

 private:
  // What makes a segment count in more than `outstanding`.
  static constexpr uint16_t kKnown = Segment::kSacked | Segment::kLost | Segment::kRetransmitted;

  bool DropCopies() {
    Cancel([](const Segment&) {});
    return false;
  }
  void CutFront(Segment& segment, Seq una);
  void MarkSentAgain(Segment& segment);
  // Takes the first `bytes` of `segment`, or all, out of the sums.
  void TakeFromSums(const Segment& segment, uint32_t bytes);
  void ForgetMarks(const Segment& segment, uint32_t bytes);
  void SkipToLost();
  // Releases `segment`, now or when its WQEs are completed.
  void Retire(Segment& segment, uint16_t reason) {
    if (segment.posted != 0) [[unlikely]] {
      segment.flags |= reason;
      ++waiting_for_wqe_;
      if (segment.Has(Segment::kContinued)) ++segment.next->posted;
      return;
    }
    Free(segment);
  }
  void Free(Segment& segment) {
    if (segment.buffer != nullptr) packet::BufferPool::ReleaseByOwner(segment.buffer);
    pool_->Release(&segment);
  }

  SegmentPool* pool_;
  Segment* first_ = nullptr;
  Segment* last_ = nullptr;
  Segment* first_unsent_ = nullptr;
  Segment* highest_sacked_ = nullptr;
  Segment* first_lost_ = nullptr;  // or one that was, until SkipToLost; marked lost in any case
  Seq una_;
  Seq end_;
  Flight flight_;
  uint32_t waiting_for_wqe_ = 0;
};

}  // namespace xtreme::tcp

#endif  // XTREME_STACK_TCP_SEGMENT_QUEUE_H_
