// SPDX-License-Identifier: Apache-2.0
#include "stack/tcp/segment_queue.h"

#include <algorithm>
#include <cstring>

namespace xtreme::tcp {

SegmentPool::SegmentPool(uint32_t segments)
    : capacity_(segments), segments_(std::make_unique<Segment[]>(all())) {
  for (uint32_t i = all(); i-- > 0;) Release(&segments_[i]);
  spare_ = static_cast<int32_t>(segments);
}

uint32_t SegmentQueue::ExtendLast(std::span<const uint8_t> bytes, uint32_t max_length) {
  if (first_unsent_ == nullptr) return 0;
  Segment& last = *last_;
  packet::Buffer* const buffer = last.buffer;
  if (buffer == nullptr || buffer->owner_references != 1 || buffer->foreign.load() != 0 ||
      last.length >= max_length || last.posted != 0 ||
      last.Has(Segment::kFin | Segment::kWantWire | Segment::kWantDone)) {
    return 0;
  }
  const uint8_t* const slot_end = buffer->pool->slot(buffer) + buffer->pool->buffer_bytes();
  uint8_t* const to = buffer->data + buffer->length;
  if (last.bytes + last.length != to) return 0;
  const size_t room = std::min<size_t>(slot_end - to, max_length - last.length);
  const auto count = static_cast<uint32_t>(std::min(bytes.size(), room));
  std::memcpy(to, bytes.data(), count);
  buffer->length += count;
  last.length += count;
  end_ += count;
  return count;
}

bool SegmentQueue::AddFinToLast() {
  if (first_unsent_ == nullptr || last_->Has(Segment::kSyn | Segment::kFin)) return false;
  last_->flags |= Segment::kFin;
  end_ += 1;
  return true;
}

Segment* SegmentQueue::Split(Segment& segment, uint32_t length) {
  Segment* const front = pool_->Acquire();
  if (front == nullptr) return nullptr;
  *front = segment;
  front->length = length;
  front->posted = 0;
  front->cookie = 0;
  front->flags &= static_cast<uint16_t>(
      ~(Segment::kFin | Segment::kPush | Segment::kWantWire | Segment::kWantDone));
  if (segment.Has(Segment::kWantDone)) front->flags |= Segment::kContinued;
  if (segment.buffer != nullptr) packet::BufferPool::AddReferenceByOwner(segment.buffer);
  const uint32_t taken = front->SequenceLength();
  segment.sequence += taken;
  segment.bytes += length;
  segment.length -= length;
  segment.flags &= static_cast<uint16_t>(~Segment::kSyn);
  front->next = &segment;
  (front->previous != nullptr ? front->previous->next : first_) = front;
  segment.previous = front;
  if (first_unsent_ == &segment) first_unsent_ = front;
  if (first_lost_ == &segment) first_lost_ = front;
  flight_.sacked_segments += segment.Has(Segment::kSacked);
  return front;
}

void SegmentQueue::MarkSentAgain(Segment& segment) {
  if (segment.Has(Segment::kRetransmitted | Segment::kSacked)) return;
  segment.flags |= Segment::kRetransmitted;
  flight_.retransmitted += segment.SequenceLength();
}

SegmentQueue::Due SegmentQueue::OnWqeCompleted(Segment& segment) {
  Due due{.wire = segment.Has(Segment::kWantWire), .cookie = segment.cookie};
  segment.flags &= static_cast<uint16_t>(~Segment::kWantWire);
  Segment* leaves = &segment;
  do {
    --leaves->posted;
    const bool left = leaves->Has(Segment::kAcknowledged | Segment::kCancelled);
    if (leaves->posted != 0 || !left) return due;
    Segment* const behind = leaves->Has(Segment::kContinued) ? leaves->next : nullptr;
    due.done = leaves->Has(Segment::kWantDone);
    due.cancelled = leaves->Has(Segment::kCancelled);
    due.cookie = leaves->cookie;
    --waiting_for_wqe_;
    Free(*leaves);
    leaves = behind;
  } while (leaves != nullptr);
  return due;
}

void SegmentQueue::CutFront(Segment& segment, Seq una) {
  const uint32_t bytes = Distance(segment.sequence, una);
  flight_.outstanding -= bytes;
  TakeFromSums(segment, bytes);
  // SYN stands before the payload.
  const uint32_t payload = bytes - uint32_t{segment.Has(Segment::kSyn)};
  segment.flags &= static_cast<uint16_t>(~Segment::kSyn);
  segment.sequence = una;
  segment.bytes += payload;
  segment.length -= payload;
}

void SegmentQueue::TakeFromSums(const Segment& segment, uint32_t bytes) {
  if (segment.Has(Segment::kSacked)) flight_.sacked -= bytes;
  if (segment.Has(Segment::kLost)) flight_.lost -= bytes;
  if (segment.Has(Segment::kRetransmitted)) flight_.retransmitted -= bytes;
}

// `segment` is the first and leaves.
void SegmentQueue::ForgetMarks(const Segment& segment, uint32_t bytes) {
  TakeFromSums(segment, bytes);
  flight_.sacked_segments -= segment.Has(Segment::kSacked);
  if (&segment == highest_sacked_) highest_sacked_ = nullptr;
  if (&segment == first_lost_) {
    first_lost_ = segment.next;
    SkipToLost();
  }
}

void SegmentQueue::MarkSacked(Segment& segment) {
  ClearLost(segment);
  const uint32_t bytes = segment.SequenceLength();
  if (segment.Has(Segment::kRetransmitted)) flight_.retransmitted -= bytes;
  segment.flags &= static_cast<uint16_t>(~Segment::kRetransmitted);
  segment.flags |= Segment::kSacked;
  flight_.sacked += bytes;
  ++flight_.sacked_segments;
  const bool is_highest = highest_sacked_ != nullptr ? segment.sequence > highest_sacked_->sequence
                                                     : flight_.sacked_segments == 1;
  if (is_highest) highest_sacked_ = &segment;
}

void SegmentQueue::MarkLost(Segment& segment) {
  const uint32_t bytes = segment.SequenceLength();
  if (!segment.Has(Segment::kLost)) flight_.lost += bytes;
  if (segment.Has(Segment::kRetransmitted)) flight_.retransmitted -= bytes;
  segment.flags &= static_cast<uint16_t>(~Segment::kRetransmitted);
  segment.flags |= Segment::kLost;
  if (first_lost_ == nullptr || segment.sequence < first_lost_->sequence) first_lost_ = &segment;
}

void SegmentQueue::ClearLost(Segment& segment) {
  if (!segment.Has(Segment::kLost)) return;
  segment.flags &= static_cast<uint16_t>(~Segment::kLost);
  flight_.lost -= segment.SequenceLength();
  if (&segment == first_lost_) {
    first_lost_ = segment.next;
    SkipToLost();
  }
}

void SegmentQueue::ClearSacked(Segment& segment) {
  if (!segment.Has(Segment::kSacked)) return;
  segment.flags &= static_cast<uint16_t>(~Segment::kSacked);
  flight_.sacked -= segment.SequenceLength();
  --flight_.sacked_segments;
  highest_sacked_ = nullptr;
}

Segment* SegmentQueue::FirstLost() {
  SkipToLost();
  return first_lost_;
}

// Moves `first_lost_` on to the first that waits for its retransmission, itself included.
void SegmentQueue::SkipToLost() {
  if (first_lost_ == nullptr) return;
  for (; first_lost_ != first_unsent_; first_lost_ = first_lost_->next) {
    const uint16_t known = first_lost_->flags & (Segment::kLost | Segment::kRetransmitted);
    if (known == Segment::kLost) return;
  }
  first_lost_ = nullptr;
}

}  // namespace xtreme::tcp
