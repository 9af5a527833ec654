// SPDX-License-Identifier: Apache-2.0
//
// Sends, acknowledgements, marks and completions in any order, two bytes of input each: the sums
// are those of the segments, every byte that goes out is the right one, each cookie is due once and
// never while a WQE refers to its bytes, and nothing is lost.
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <map>

#include "stack/tcp/segment_queue.h"

namespace xtreme::tcp {
namespace {

using packet::Buffer;
using packet::BufferPool;

constexpr uint32_t kPoolBuffers = 24;
constexpr uint32_t kSegments = 24;
constexpr Seq kFirst(0xFFFFFFC0);

void Require(bool holds) {
  if (!holds) std::abort();
}

uint8_t ByteAt(Seq at) { return static_cast<uint8_t>(Distance(kFirst, at) * 29 + 5); }

class Trial {
 public:
  explicit Trial(BufferPool& buffers) : buffers_(buffers) {}

  ~Trial() {
    queue_.Cancel([this](const Segment& segment) { OnLeft(segment); });
    while (!posted_.empty()) Complete(0);
    Require(queue_.waiting_for_wqe() == 0 && cookies_.empty());
    Require(segments_.free_count() == kSegments);
  }

  void Step(uint8_t what, uint8_t how) {
    switch (what % 8) {
      case 0:
        Append(1u + how % 30);
        break;
      case 1:
        if (Segment* const next = queue_.first_unsent()) Send(*next, how & 1);
        break;
      case 2:
        Acknowledge(how);
        break;
      case 3:
        Complete(how);
        break;
      case 4:
        if (Segment* const segment = Pick(how)) Mark(*segment, how);
        break;
      case 5:
        if (Segment* const lost = queue_.FirstLost()) Send(*lost, how & 1);
        break;
      case 6:
        if (Segment* const segment = Pick(how); segment != nullptr && segment->length > 1) {
          queue_.Split(*segment, 1u + how % (segment->length - 1));
        }
        break;
      case 7:
        Extend(how);
        break;
    }
    Check();
  }

 private:
  void Append(uint32_t length) {
    Buffer* const buffer = buffers_.Acquire();
    if (buffer == nullptr) return;
    for (uint32_t i = 0; i < length; ++i) buffer->data[i] = ByteAt(queue_.end() + i);
    buffer->length = length;
    const uint16_t flags =
        length % 2 == 0 ? uint16_t{Segment::kWantDone | Segment::kWantWire} : uint16_t{0};
    const Segment* const segment = queue_.Append({.bytes = buffer->data,
                                                  .length = length,
                                                  .buffer = buffer,
                                                  .flags = flags,
                                                  .cookie = next_cookie_});
    if (segment == nullptr) {
      BufferPool::ReleaseByOwner(buffer);
    } else if (flags != 0) {
      cookies_[next_cookie_++] = {.buffer = buffer};
    }
  }

  void Extend(uint8_t how) {
    uint8_t bytes[8];
    for (uint32_t i = 0; i < sizeof(bytes); ++i) bytes[i] = ByteAt(queue_.end() + i);
    Require(queue_.ExtendLast({bytes, how % 8u}, 40) <= how % 8u);
  }

  void Send(Segment& segment, bool posts_reference) {
    Seq at = segment.sequence;
    for (uint32_t i = 0; i < segment.length; ++i, at += 1) Require(segment.bytes[i] == ByteAt(at));
    now_ += base::Nanoseconds(1);
    posts_reference |= segment.Has(Segment::kWantWire);
    if (segment.posted == UINT8_MAX) return;
    queue_.MarkSent(segment, now_, posts_reference);
    if (posts_reference) posted_.push_back(&segment);
  }

  void Acknowledge(uint8_t how) {
    const uint32_t most = Distance(queue_.una(), queue_.nxt());
    if (most == 0) return;
    queue_.Acknowledge(queue_.una() + (1u + how % most),
                       [this](const Segment& segment) { OnLeft(segment); });
  }

  void OnLeft(const Segment& segment) {
    if (segment.posted == 0 && segment.Has(Segment::kWantDone)) OnDone(segment.cookie);
  }

  void OnDone(uint64_t cookie) {
    for (const Segment* other : posted_) Require(other->buffer != cookies_.at(cookie).buffer);
    Require(cookies_.erase(cookie) == 1);
  }

  void Complete(uint8_t how) {
    if (posted_.empty()) return;
    const auto place = posted_.begin() + how % static_cast<ptrdiff_t>(posted_.size());
    Segment* const segment = *place;
    posted_.erase(place);
    const SegmentQueue::Due due = queue_.OnWqeCompleted(*segment);
    if (due.wire) Require(++cookies_.at(due.cookie).told == 1);
    if (due.done) OnDone(due.cookie);
  }

  Segment* Pick(uint8_t how) {
    Segment* segment = queue_.first();
    for (int i = how >> 4; i > 0 && segment != nullptr; --i) segment = segment->next;
    return segment;
  }

  void Mark(Segment& segment, uint8_t how) {
    if (segment.sequence >= queue_.nxt()) return;
    const bool sacked = segment.Has(Segment::kSacked);
    switch (how % 4) {
      case 0:
        if (!sacked) queue_.MarkSacked(segment);
        break;
      case 1:
        if (!sacked) queue_.MarkLost(segment);
        break;
      case 2:
        queue_.ClearLost(segment);
        break;
      case 3:
        queue_.ClearSacked(segment);
        break;
    }
  }

  void Check() {
    Flight sum;
    Seq at = queue_.una();
    const Segment* first_lost = nullptr;
    const Segment* last_sacked = nullptr;
    const Segment* previous = nullptr;
    for (Segment* s = queue_.first(); s != nullptr; previous = s, s = s->next) {
      Require(s->sequence == at && s->previous == previous && s->length > 0);
      at = s->end();
      const uint32_t bytes = s->SequenceLength();
      const bool sent = s->sequence < queue_.nxt();
      Require(sent == (s->transmissions > 0));
      sum.outstanding += sent ? bytes : 0;
      sum.sacked += s->Has(Segment::kSacked) ? bytes : 0;
      if (s->Has(Segment::kSacked)) last_sacked = s;
      sum.sacked_segments += s->Has(Segment::kSacked);
      sum.lost += s->Has(Segment::kLost) ? bytes : 0;
      sum.retransmitted += s->Has(Segment::kRetransmitted) ? bytes : 0;
      const bool waits = s->Has(Segment::kLost) && !s->Has(Segment::kRetransmitted);
      if (waits && first_lost == nullptr) first_lost = s;
    }
    Require(at == queue_.end() && sum == queue_.flight());
    const Segment* const highest = queue_.highest_sacked();
    Require(highest == nullptr || highest == last_sacked);
    Require(queue_.last() == previous && queue_.FirstLost() == first_lost);
  }

  BufferPool& buffers_;
  SegmentPool segments_{kSegments};
  SegmentQueue queue_{segments_, kFirst};
  std::deque<Segment*> posted_;
  struct Wanted {
    const Buffer* buffer = nullptr;
    int told = 0;  // How often TX_WIRE came.
  };
  std::map<uint64_t, Wanted> cookies_;  // those not done
  uint64_t next_cookie_ = 1;
  base::Nanoseconds now_;
};

}  // namespace
}  // namespace xtreme::tcp

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t length) {
  static const auto pool = xtreme::packet::BufferPool::Create(
      {.buffers = xtreme::tcp::kPoolBuffers,
       .buffer_bytes = 128,
       .hugepages = xtreme::packet::BufferPool::Hugepages::kNever});
  if (!pool.ok()) std::abort();
  {
    xtreme::tcp::Trial trial(**pool);
    for (size_t i = 0; i + 2 <= length; i += 2) trial.Step(bytes[i], bytes[i + 1]);
  }
  if ((*pool)->free_count() != xtreme::tcp::kPoolBuffers) std::abort();
  return 0;
}
