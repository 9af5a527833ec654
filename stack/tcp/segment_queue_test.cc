// SPDX-License-Identifier: Apache-2.0
#include "stack/tcp/segment_queue.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

namespace xtreme::tcp {
namespace {

using base::Microseconds;
using packet::Buffer;
using packet::BufferPool;

constexpr uint32_t kPoolBuffers = 16;
constexpr uint32_t kSegments = 8;
constexpr Seq kFirst(0xFFFFFFFA);  // six before the wrap

class SegmentQueueTest : public testing::Test {
 protected:
  static BufferPool::Handle MakePool() {
    auto pool = BufferPool::Create({.buffers = kPoolBuffers,
                                    .buffer_bytes = 128,
                                    .headroom = 64,
                                    .hugepages = BufferPool::Hugepages::kNever});
    return *std::move(pool);
  }

  void TearDown() override {
    queue_.Cancel([](const Segment&) {});
    EXPECT_EQ(queue_.waiting_for_wqe(), 0u);
    EXPECT_EQ(buffers_->free_count(), kPoolBuffers) << "a buffer was lost";
    EXPECT_EQ(segments_.free_count(), kSegments) << "a segment was lost";
  }

  // Queues a copy of `text` in a pool buffer.
  Segment& Queue(std::string_view text, uint16_t flags = 0, uint64_t cookie = 0) {
    Buffer* const buffer = buffers_->Acquire();
    std::copy(text.begin(), text.end(), buffer->data);
    buffer->length = static_cast<uint32_t>(text.size());
    return *queue_.Append({.bytes = buffer->data,
                           .length = buffer->length,
                           .buffer = buffer,
                           .flags = flags,
                           .cookie = cookie});
  }

  // Sends all that is unsent.
  void SendAll(bool posts_reference = false) {
    while (Segment* const segment = queue_.first_unsent()) {
      queue_.MarkSent(*segment, Microseconds(++now_us_), posts_reference);
    }
  }

  // Acknowledges up to `bytes` after the first; the cookies of segments that went, in order, and a
  // '-' behind those that wait for a WQE.
  std::string Acknowledge(uint32_t bytes) {
    std::string gone;
    queue_.Acknowledge(kFirst + bytes, [&](const Segment& segment) {
      gone += std::to_string(segment.cookie) + (segment.posted != 0 ? "-" : "") + " ";
    });
    return gone;
  }

  static std::string TextOf(const Segment& segment) {
    return std::string(reinterpret_cast<const char*>(segment.bytes), segment.length);
  }

  const BufferPool::Handle buffers_ = MakePool();
  SegmentPool segments_{kSegments};
  SegmentQueue queue_{segments_, kFirst};
  int64_t now_us_ = 0;
};

TEST_F(SegmentQueueTest, SegmentsTouchAndAreSentInOrder) {
  const Segment& a = Queue("abcd");
  const Segment& b = Queue("ef", Segment::kFin);
  EXPECT_EQ(a.sequence, kFirst);
  EXPECT_EQ(b.sequence, a.end());
  EXPECT_EQ(queue_.end(), kFirst + 7);
  EXPECT_EQ(queue_.unsent_bytes(), 7u);
  EXPECT_EQ(queue_.first_unsent(), &a);
  queue_.MarkSent(*queue_.first_unsent(), Microseconds(1), false);
  EXPECT_EQ(queue_.first_unsent(), &b);
  EXPECT_EQ(queue_.nxt(), kFirst + 4);
  EXPECT_EQ(queue_.last_sent(), &a);
  EXPECT_EQ(queue_.flight(), (Flight{.outstanding = 4}));
}

TEST_F(SegmentQueueTest, AnAcknowledgementFreesWhatItCoversWhole) {
  Queue("abcd", Segment::kWantDone, 1);
  Queue("efgh", Segment::kWantDone, 2);
  Queue("ijkl", Segment::kWantDone, 3);
  SendAll();
  EXPECT_EQ(Acknowledge(8), "1 2 ");
  EXPECT_EQ(segments_.free_count(), kSegments - 1);
  EXPECT_EQ(buffers_->free_count(), kPoolBuffers - 1);
  EXPECT_EQ(queue_.flight(), (Flight{.outstanding = 4}));
  EXPECT_EQ(queue_.una(), kFirst + 8);
  EXPECT_EQ(Acknowledge(12), "3 ");
  EXPECT_TRUE(queue_.empty());
  EXPECT_EQ(queue_.flight(), Flight());
}

TEST_F(SegmentQueueTest, TheOnlySegmentIsTheOneThatIsAllThereIs) {
  EXPECT_EQ(queue_.Only(), nullptr);
  Segment& segment = Queue("abcd");
  EXPECT_EQ(queue_.Only(), nullptr) << "not sent";
  SendAll();
  EXPECT_EQ(queue_.Only(), &segment);
  Queue("efgh");
  EXPECT_EQ(queue_.Only(), nullptr) << "something is unsent";
  SendAll();
  EXPECT_EQ(queue_.Only(), nullptr) << "there are two";
}

TEST_F(SegmentQueueTest, TheAcknowledgementOfTheOnlySegmentLeavesNothing) {
  for (const bool posted : {false, true}) {
    Segment& segment = Queue("abcd", Segment::kWantDone, 1);
    SendAll(posted);
    int acked = 0;
    queue_.AcknowledgeOnly(segment, [&](const Segment& s) { acked += s.cookie == 1; });
    EXPECT_EQ(acked, 1);
    EXPECT_TRUE(queue_.empty());
    EXPECT_TRUE(queue_.all_acknowledged());
    EXPECT_EQ(queue_.flight(), Flight());
    EXPECT_EQ(queue_.una(), queue_.end());
    EXPECT_EQ(queue_.waiting_for_wqe(), posted ? 1u : 0u) << "its bytes may still be read";
    if (posted) {
      EXPECT_TRUE(queue_.OnWqeCompleted(segment).done);
    }
  }
}

TEST_F(SegmentQueueTest, APartialAcknowledgementCutsExactly) {
  Queue("abcd", Segment::kFin, 1);
  SendAll();
  EXPECT_EQ(Acknowledge(3), "");
  EXPECT_EQ(TextOf(*queue_.first()), "d");
  EXPECT_EQ(queue_.first()->sequence, kFirst + 3);
  EXPECT_EQ(queue_.flight(), (Flight{.outstanding = 2}));
  // The FIN alone is left.
  EXPECT_EQ(Acknowledge(4), "");
  EXPECT_EQ(queue_.first()->length, 0u);
  EXPECT_EQ(queue_.first()->SequenceLength(), 1u);
  EXPECT_EQ(Acknowledge(5), "1 ");
}

TEST_F(SegmentQueueTest, ASynStandsBeforeThePayload) {
  Queue("abcd", Segment::kSyn);
  SendAll();
  EXPECT_EQ(queue_.flight().outstanding, 5u);
  Acknowledge(1);
  EXPECT_EQ(TextOf(*queue_.first()), "abcd");
  EXPECT_FALSE(queue_.first()->Has(Segment::kSyn));
}

TEST_F(SegmentQueueTest, AnAcknowledgementTouchesNothingUnsent) {
  Queue("abcd", 0, 1);
  SendAll();
  Queue("efgh", 0, 2);
  EXPECT_EQ(Acknowledge(4), "1 ");
  EXPECT_EQ(TextOf(*queue_.first_unsent()), "efgh");
  EXPECT_TRUE(queue_.all_acknowledged());
  EXPECT_EQ(queue_.last_sent(), nullptr);
}

TEST_F(SegmentQueueTest, WhatAPostedWqeRefersToIsNotDoneWhenAcknowledged) {
  Segment& segment = Queue("abcd", Segment::kWantDone, 7);
  SendAll(true);
  queue_.OnWqeCompleted(segment);
  queue_.MarkSent(segment, Microseconds(9), true);  // a retransmission waits in the SQ
  EXPECT_EQ(Acknowledge(4), "7- ");
  EXPECT_EQ(queue_.waiting_for_wqe(), 1u);
  EXPECT_EQ(buffers_->free_count(), kPoolBuffers - 1);
  const SegmentQueue::Due due = queue_.OnWqeCompleted(segment);
  EXPECT_TRUE(due.done);
  EXPECT_FALSE(due.cancelled);
  EXPECT_EQ(due.cookie, 7u);
  EXPECT_EQ(buffers_->free_count(), kPoolBuffers);
}

TEST_F(SegmentQueueTest, EveryPostedReferenceCounts) {
  Segment& segment = Queue("abcd", Segment::kWantDone);
  for (int i = 0; i < 3; ++i) queue_.MarkSent(segment, Microseconds(i), true);
  Acknowledge(4);
  EXPECT_FALSE(queue_.OnWqeCompleted(segment).done);
  EXPECT_FALSE(queue_.OnWqeCompleted(segment).done);
  EXPECT_TRUE(queue_.OnWqeCompleted(segment).done);
}

TEST_F(SegmentQueueTest, OnlyTheFirstCopyIsTxWire) {
  Segment& segment = Queue("abcd", Segment::kWantWire, 7);
  queue_.MarkSent(segment, Microseconds(1), true);
  queue_.MarkSent(segment, Microseconds(2), true);
  const SegmentQueue::Due first = queue_.OnWqeCompleted(segment);
  EXPECT_TRUE(first.wire);
  EXPECT_EQ(first.cookie, 7u);
  EXPECT_FALSE(queue_.OnWqeCompleted(segment).wire);
}

TEST_F(SegmentQueueTest, CancelledSegmentsSaySo) {
  Segment& posted = Queue("abcd", Segment::kWantDone, 1);
  SendAll(true);
  Queue("efgh", Segment::kWantDone, 2);
  std::vector<uint64_t> due;
  queue_.Cancel([&](const Segment& segment) {
    if (segment.posted == 0) due.push_back(segment.cookie);
  });
  EXPECT_EQ(due, std::vector<uint64_t>{2});
  EXPECT_EQ(queue_.flight(), Flight());
  const SegmentQueue::Due later = queue_.OnWqeCompleted(posted);
  EXPECT_TRUE(later.done);
  EXPECT_TRUE(later.cancelled);
}

TEST_F(SegmentQueueTest, MemoryOfTheApplicationIsOnlyReferredTo) {
  const std::string memory = "abcd";
  queue_.Append({.bytes = reinterpret_cast<const uint8_t*>(memory.data()),
                 .length = 4,
                 .memory_key = 0x1234,
                 .flags = Segment::kWantDone,
                 .cookie = 5});
  EXPECT_EQ(queue_.first()->memory_key, 0x1234u);
  SendAll();
  EXPECT_EQ(Acknowledge(4), "5 ");
}

TEST_F(SegmentQueueTest, SplitsKeepOrderCookieAndWqesWithTheTail) {
  Segment& whole =
      Queue("abcdefgh", Segment::kWantDone | Segment::kPush | Segment::kFin | Segment::kSyn, 3);
  queue_.MarkSent(whole, Microseconds(1), true);
  Segment* const front = queue_.Split(whole, 3);
  EXPECT_EQ(queue_.first(), front);
  EXPECT_EQ(TextOf(*front), "abc");
  EXPECT_EQ(TextOf(whole), "defgh");
  EXPECT_EQ(front->flags, Segment::kSyn | Segment::kContinued);
  EXPECT_EQ(whole.flags, Segment::kWantDone | Segment::kPush | Segment::kFin);
  EXPECT_EQ(front->end(), whole.sequence);
  EXPECT_EQ(whole.sequence, kFirst + 4);
  EXPECT_EQ(queue_.flight().outstanding, 10u);
  EXPECT_EQ(Acknowledge(4), "0 ");
  EXPECT_EQ(buffers_->free_count(), kPoolBuffers - 1) << "the tail holds the buffer";
  EXPECT_EQ(Acknowledge(10), "3- ");
  EXPECT_TRUE(queue_.OnWqeCompleted(whole).done);
}

// The bytes are the application's again with the TX_DONE: no WQE of any piece may refer to them.
TEST_F(SegmentQueueTest, ASendThatWasCutIsDoneWhenNoWqeOfAnyPieceIsPosted) {
  for (const bool cancels : {false, true}) {
    Segment& tail = Queue("abcdef", Segment::kWantDone, 7);
    const Seq end = queue_.end();
    Segment* const middle = queue_.Split(tail, 4);
    Segment* const front = queue_.Split(*middle, 2);
    SendAll();
    queue_.MarkSent(*front, Microseconds(++now_us_), /*posts_reference=*/true);
    queue_.MarkSent(*front, Microseconds(++now_us_), /*posts_reference=*/true);
    queue_.MarkSent(*middle, Microseconds(++now_us_), /*posts_reference=*/true);
    bool due = false;
    const auto left = [&](const Segment& s) { due |= s.Has(Segment::kWantDone) && s.posted == 0; };
    cancels ? queue_.Cancel(left) : queue_.Acknowledge(end, left);
    EXPECT_FALSE(due);
    EXPECT_FALSE(queue_.OnWqeCompleted(*front).done);
    EXPECT_FALSE(queue_.OnWqeCompleted(*middle).done);
    const SegmentQueue::Due told = queue_.OnWqeCompleted(*front);
    EXPECT_TRUE(told.done);
    EXPECT_EQ(told.cancelled, cancels);
    EXPECT_EQ(told.cookie, 7u);
    EXPECT_EQ(queue_.waiting_for_wqe(), 0u);
  }
}

// It may be acknowledged in part, and wait, before the rest.
TEST_F(SegmentQueueTest, APieceThatLeftIsWaitedForByTheRestAsLongAsAWqeRefersToIt) {
  for (const bool completes_first : {false, true}) {
    Segment& tail = Queue("abcdef", Segment::kWantDone, 7);
    const Seq begin = queue_.una();
    Segment* const front = queue_.Split(tail, 4);
    SendAll();
    queue_.MarkSent(*front, Microseconds(++now_us_), /*posts_reference=*/true);
    queue_.Acknowledge(begin + 4, [](const Segment&) {});
    if (completes_first) {
      EXPECT_FALSE(queue_.OnWqeCompleted(*front).done);
    }
    bool due = false;
    queue_.Acknowledge(begin + 6, [&](const Segment& s) { due = s.posted == 0; });
    EXPECT_EQ(due, completes_first);
    if (!completes_first) {
      EXPECT_TRUE(queue_.OnWqeCompleted(*front).done);
    }
  }
}

TEST_F(SegmentQueueTest, SplittingTheFirstUnsentLeavesTheFrontToBeSent) {
  Queue("ab");
  SendAll();
  Segment& unsent = Queue("cdef");
  Segment* const front = queue_.Split(unsent, 1);
  EXPECT_EQ(queue_.first_unsent(), front);
  queue_.MarkSent(*front, Microseconds(2), false);
  EXPECT_EQ(queue_.first_unsent(), &unsent);
  EXPECT_EQ(queue_.flight().outstanding, 3u);
}

TEST_F(SegmentQueueTest, SmallSendsExtendAnUnsentSegment) {
  const Segment& segment = Queue("abc");
  const std::string_view text = "defghi";
  const std::span<const uint8_t> more(reinterpret_cast<const uint8_t*>(text.data()), text.size());
  EXPECT_EQ(queue_.ExtendLast(more, 5), 2u);
  EXPECT_EQ(TextOf(segment), "abcde");
  EXPECT_EQ(queue_.ExtendLast(more, 5), 0u);
  EXPECT_EQ(queue_.end(), kFirst + 5);
  EXPECT_EQ(queue_.ExtendLast(more, 500), 6u);
  // 64 bytes behind the headroom, 11 of them used.
  EXPECT_EQ(queue_.ExtendLast(std::vector<uint8_t>(100), 500), 53u);
  SendAll();
  EXPECT_EQ(queue_.ExtendLast(more, 500), 0u) << "it is sent";
}

TEST_F(SegmentQueueTest, SegmentsWithCookieFinOrSharedBufferAreNotExtended) {
  const std::vector<uint8_t> more(1);
  Segment& segment = Queue("abc");
  for (uint16_t flag : {Segment::kFin, Segment::kWantDone, Segment::kWantWire}) {
    segment.flags = flag;
    EXPECT_EQ(queue_.ExtendLast(more, 100), 0u) << flag;
  }
  segment.flags = 0;
  BufferPool::AddReferenceByOwner(segment.buffer);
  EXPECT_EQ(queue_.ExtendLast(more, 100), 0u);
  BufferPool::ReleaseByOwner(segment.buffer);
  EXPECT_EQ(queue_.ExtendLast(more, 100), 1u);
}

TEST_F(SegmentQueueTest, ASegmentThatIsNotAtTheEndOfItsBufferIsNotExtended) {
  Segment& segment = Queue("abc");
  segment.buffer->length = 10;
  EXPECT_EQ(queue_.ExtendLast(std::vector<uint8_t>(1), 100), 0u);
}

TEST_F(SegmentQueueTest, SplittingTheFirstLostKeepsBothLost) {
  Segment& segment = Queue("abcd");
  SendAll();
  queue_.MarkLost(segment);
  Segment* const front = queue_.Split(segment, 2);
  EXPECT_EQ(queue_.FirstLost(), front);
  queue_.MarkSent(*front, Microseconds(9), false);
  EXPECT_EQ(queue_.FirstLost(), &segment);
}

TEST_F(SegmentQueueTest, AFinJoinsTheLastUnsentSegmentOnce) {
  EXPECT_FALSE(queue_.AddFinToLast());
  Queue("abc");
  EXPECT_TRUE(queue_.AddFinToLast());
  EXPECT_FALSE(queue_.AddFinToLast());
  EXPECT_EQ(queue_.end(), kFirst + 4);
}

TEST_F(SegmentQueueTest, AnEmptyPoolTakesNothing) {
  for (uint32_t i = 0; i < kSegments; ++i) Queue("a");
  Buffer* const buffer = buffers_->Acquire();
  EXPECT_EQ(queue_.Append({.bytes = buffer->data, .length = 1, .buffer = buffer}), nullptr);
  EXPECT_EQ(segments_.exhausted(), 1u);
  EXPECT_EQ(buffer->owner_references, 1u);
  EXPECT_EQ(queue_.Split(*queue_.first(), 0), nullptr);
  BufferPool::ReleaseByOwner(buffer);
}

// RFC 6675 section 4: what is lost and not retransmitted is not in the network; what is
// retransmitted is once more.
TEST_F(SegmentQueueTest, ThePipeFollowsEveryMark) {
  Segment& a = Queue("aaaa");
  Segment& b = Queue("bbb");
  Queue("cc");
  SendAll();
  EXPECT_EQ(queue_.flight().Pipe(), 9u);
  queue_.MarkSacked(b);
  EXPECT_EQ(queue_.flight().Pipe(), 6u);
  queue_.MarkLost(a);
  queue_.MarkLost(a);
  EXPECT_EQ(queue_.flight().Pipe(), 2u);
  queue_.MarkSent(a, Microseconds(9), false);
  EXPECT_EQ(
      queue_.flight(),
      (Flight{.outstanding = 9, .sacked = 3, .lost = 4, .retransmitted = 4, .sacked_segments = 1}));
  queue_.MarkLost(a);  // the copy is lost too
  EXPECT_EQ(queue_.flight().Pipe(), 2u);
  queue_.MarkSent(a, Microseconds(10), false);
  queue_.MarkSacked(a);
  EXPECT_EQ(queue_.flight(), (Flight{.outstanding = 9, .sacked = 7, .sacked_segments = 2}));
  queue_.ClearSacked(b);
  EXPECT_EQ(queue_.flight().Pipe(), 5u);
  Acknowledge(9);
  EXPECT_EQ(queue_.flight(), Flight());
}

TEST_F(SegmentQueueTest, APartialAcknowledgementKeepsTheMarksSums) {
  Segment& a = Queue("aaaa");
  SendAll();
  queue_.MarkLost(a);
  queue_.MarkSent(a, Microseconds(9), false);
  Acknowledge(1);
  EXPECT_EQ(queue_.flight(), (Flight{.outstanding = 3, .lost = 3, .retransmitted = 3}));
}

TEST_F(SegmentQueueTest, FirstLostIsTheFirstThatWaitsForItsRetransmission) {
  Segment& a = Queue("a");
  Segment& b = Queue("b");
  Segment& c = Queue("c");
  SendAll();
  Queue("d");
  EXPECT_EQ(queue_.FirstLost(), nullptr);
  queue_.MarkLost(c);
  EXPECT_EQ(queue_.FirstLost(), &c);
  queue_.MarkLost(a);
  EXPECT_EQ(queue_.FirstLost(), &a);
  queue_.MarkSent(a, Microseconds(9), false);
  EXPECT_EQ(queue_.FirstLost(), &c);
  queue_.MarkLost(b);
  EXPECT_EQ(queue_.FirstLost(), &b);
  queue_.ClearLost(b);
  EXPECT_EQ(queue_.FirstLost(), &c);
  Acknowledge(3);
  EXPECT_EQ(queue_.FirstLost(), nullptr);
}

}  // namespace
}  // namespace xtreme::tcp
