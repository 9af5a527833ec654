// SPDX-License-Identifier: Apache-2.0
//
// Frames of known flows, taken from the receive queue straight into completions.

#include <array>

#include "gtest/gtest.h"
#include "stack/udp/endpoint.h"
#include "stack/wire/frame.h"
#include "xtreme/completion/known_flows.h"
#include "xtreme/completion/link_flows.h"
#include "xtreme/mlx5/queue_pair_testing.h"

namespace xtreme::mlx5::testing {
namespace {

class KnownFlowsTest : public QueuePairTest {
 protected:
  KnownFlowsTest() {
    flows_.Watch(&changes_);
    flows_.SetScale(completion::ClockScale::Of(0, 0, int64_t{1} << 32, 0));
    completion::Completion form;
    completion::Clear(&form, completion::Kind::kPacket);
    form.destination_port = 5000;
    flows_.Learn(known_.data(), form, &endpoint_);
    queues_->Refill();
  }
  uint32_t Poll(uint32_t most) {
    const uint32_t polled = queues_->PollKnown(flows_, out_.data(), most);
    const uint32_t taken = polled & nic::QueuePair::kPolled;
    for (uint32_t i = 0; i < taken; ++i) packet::BufferPool::ReleaseByOwner(out_[i].buffer);
    return taken;
  }

  const std::array<uint8_t, 60> known_ = Datagram(5000);
  const std::array<uint8_t, 60> other_ = Datagram(5001);
  uint64_t changes_ = 1;
  udp::Endpoint endpoint_{{}};
  completion::KnownFlows flows_;
  std::array<completion::Completion, kFrames> out_;
};

TEST_F(KnownFlowsTest, TheirFramesAreTakenUpToTheFirstThatIsAnyOther) {
  device_.CompleteFrame(known_, 1);
  device_.CompleteFrame(known_, 2);
  device_.CompleteFrame(other_, 3);
  device_.CompleteFrame(known_, 4);
  EXPECT_EQ(Poll(1), 1u) << "no more than asked for";
  EXPECT_EQ(out_[0].hw_clock, 1u);
  EXPECT_EQ(Poll(kFrames), 1u);
  EXPECT_EQ(out_[0].hw_clock, 2u);
  EXPECT_EQ(out_[0].length, 10u);
  EXPECT_EQ(out_[0].destination_port, 5000);
  EXPECT_TRUE(queues_->ReceiveReady());
  EXPECT_EQ(Poll(kFrames), 0u);
  EXPECT_EQ(Receive(1), 1u);
  EXPECT_EQ(Poll(kFrames), 1u);
  EXPECT_FALSE(queues_->ReceiveReady());
  EXPECT_EQ(queues_->counters().rx_frames, 4u);
  EXPECT_EQ(queues_->counters().rx_bytes, 240u);
  EXPECT_EQ(endpoint_.counters().datagrams, 3u);
}

TEST_F(KnownFlowsTest, NextIsTakenAloneByWhoItIsForIfThereIsRoom) {
  udp::Endpoint another{{}};
  device_.CompleteFrame(known_, 1);
  device_.CompleteFrame(other_, 2);
  EXPECT_EQ(queues_->TakeKnown(flows_, &another, 100), nullptr) << "another's";
  EXPECT_EQ(queues_->TakeKnown(flows_, &endpoint_, 9), nullptr) << "one byte too long";
  EXPECT_EQ(queues_->counters().rx_frames, 0u);
  packet::Buffer* const taken = queues_->TakeKnown(flows_, &endpoint_, 10);
  ASSERT_NE(taken, nullptr);
  EXPECT_EQ(taken->length, 10u);
  EXPECT_EQ(wire::PlainUdpSource(taken->data),
            (wire::Endpoint{wire::Ipv4Address(0x0a000002), 4000}));
  EXPECT_TRUE(packet::BufferPool::ReleaseByOwner(taken));
  EXPECT_EQ(queues_->counters().rx_frames, 1u);
  EXPECT_EQ(queues_->counters().rx_bytes, 60u);
  EXPECT_EQ(endpoint_.counters().datagrams, 1u);
  EXPECT_EQ(endpoint_.counters().bytes, 10u);
  EXPECT_EQ(queues_->TakeKnown(flows_, &endpoint_, 100), nullptr) << "of no known flow";
  EXPECT_EQ(Receive(1), 1u);
  EXPECT_EQ(queues_->TakeKnown(flows_, &endpoint_, 100), nullptr) << "not there";
}

TEST_F(KnownFlowsTest, TakenOneByOneTheyGoOverTheRingsEnd) {
  constexpr uint32_t kTurns = 70'000;  // And over that of the record's 16 bits.
  for (uint32_t i = 0; i < kTurns; ++i) {
    device_.CompleteFrame(known_, i);
    packet::Buffer* const taken = queues_->TakeKnown(flows_, &endpoint_, 10);
    ASSERT_NE(taken, nullptr) << i;
    packet::BufferPool::ReleaseByOwner(taken);
    ASSERT_FALSE(queues_->ReceiveReady());
    queues_->Refill();
    ASSERT_EQ(device_.receive_record(), (kFrames + i + 1) % (1u << 16));
  }
  EXPECT_EQ(endpoint_.counters().datagrams, kTurns);
}

TEST_F(KnownFlowsTest, LapsLoseNothingAndTheirCqesGoBackWithTheRefill) {
  for (uint32_t i = 0; i < 40'000; ++i) {
    device_.CompleteFrame(known_, 2 * i);
    device_.CompleteFrame(known_, 2 * i + 1);
    ASSERT_EQ(Poll(kFrames), 2u) << i;
    ASSERT_EQ(out_[0].hw_clock, 2 * i);
    ASSERT_EQ(out_[1].hw_clock, 2 * i + 1);
    EXPECT_EQ(device_.receive_cq_record(0), 2 * i);
    ASSERT_TRUE(queues_->RefillDue());
    ASSERT_EQ(queues_->Refill(), 2u) << i;
    EXPECT_EQ(device_.receive_cq_record(0), 2 * i + 2);
    ASSERT_FALSE(queues_->RefillDue());
  }
  EXPECT_EQ(queues_->TakeLowWater(), kFrames - 2);
}

TEST_F(KnownFlowsTest, WhatGoesOverTheRingsEndIsTakenInTwo) {
  for (uint32_t i = 0; i < kFrames - 1; ++i) device_.CompleteFrame(known_, i);
  ASSERT_EQ(Poll(kFrames), kFrames - 1);
  ASSERT_EQ(queues_->Refill(), kFrames - 1);
  for (uint32_t i = 0; i < 3; ++i) device_.CompleteFrame(known_, 100 + i);
  EXPECT_EQ(Poll(kFrames), 1u);
  EXPECT_EQ(out_[0].hw_clock, 100u);
  EXPECT_TRUE(queues_->ReceiveReady());
  EXPECT_EQ(Poll(kFrames), 2u);
  EXPECT_EQ(out_[0].hw_clock, 101u);
  EXPECT_EQ(out_[1].hw_clock, 102u);
  EXPECT_FALSE(queues_->ReceiveReady());
}

TEST_F(KnownFlowsTest, AloneOrInPairsTheyGoOverTheRingsEnd) {
  uint32_t sent = 0;
  uint32_t taken = 0;
  for (uint32_t i = 0; i < 6 * kFrames; ++i) {
    const uint32_t together = i % 3 == 0 ? 2 : 1;
    for (uint32_t j = 0; j < together; ++j) device_.CompleteFrame(known_, sent++);
    const uint32_t most = i % 2 == 0 ? kFrames : 1;
    for (uint32_t polls = 0; queues_->ReceiveReady(); ++polls) {
      ASSERT_LT(polls, together) << "A poll of frames that are there takes one at least.";
      const uint32_t count = Poll(most);
      ASSERT_LE(count, most);
      for (uint32_t j = 0; j < count; ++j) ASSERT_EQ(out_[j].hw_clock, taken++) << i;
    }
    ASSERT_EQ(taken, sent) << i;
    queues_->Refill();
  }
  EXPECT_EQ(queues_->counters().rx_frames, sent);
  EXPECT_EQ(queues_->counters().rx_bytes, sent * known_.size());
  EXPECT_EQ(endpoint_.counters().datagrams, sent);
}

TEST_F(KnownFlowsTest, OfNoneThatIsPostedNothingIsTaken) {
  for (uint32_t i = 0; i < kFrames; ++i) device_.CompleteFrame(known_, i);
  ASSERT_EQ(Poll(kFrames), kFrames);
  device_.CompleteFrame(known_, 1);  // The device may not.
  EXPECT_EQ(Poll(1), 0u);
  EXPECT_EQ(Poll(kFrames), 0u);
  EXPECT_EQ(Poll(0), 0u);
  EXPECT_EQ(queues_->counters().rx_frames, uint64_t{kFrames});
}

TEST_F(KnownFlowsTest, WhatIsLeftToOthersIsSaidToBeAndTheRingsEndIsNot) {
  device_.CompleteFrame(known_, 1);
  EXPECT_EQ(Poll(kFrames), 1u);
  EXPECT_FALSE(queues_->TakeDeclined()) << "Nothing was left.";
  device_.CompleteFrame(other_, 2);
  EXPECT_EQ(Poll(kFrames), 0u);
  EXPECT_TRUE(queues_->TakeDeclined());
  EXPECT_FALSE(queues_->TakeDeclined()) << "It is said once.";
  EXPECT_EQ(Receive(1), 1u);
  for (uint32_t i = 2; i < kFrames - 1; ++i) device_.CompleteFrame(known_, i);
  ASSERT_EQ(Poll(kFrames), kFrames - 3);
  ASSERT_EQ(queues_->Refill(), kFrames - 1);
  for (uint32_t i = 0; i < 2; ++i) device_.CompleteFrame(known_, i);
  EXPECT_EQ(Poll(kFrames), 1u);
  EXPECT_FALSE(queues_->TakeDeclined());
  EXPECT_EQ(Poll(kFrames), 1u);
}

TEST_F(KnownFlowsTest, WhatIsLeftIsNotCounted) {
  device_.CompleteFrame(other_, 1);
  EXPECT_EQ(Poll(1), 0u) << "alone";
  device_.CompleteFrame(other_, 2);
  EXPECT_EQ(Poll(kFrames), 0u) << "with another behind it";
  EXPECT_EQ(queues_->counters().rx_frames, 0u);
  EXPECT_EQ(queues_->counters().rx_bytes, 0u);
}

// A queue that is long enough for a refill to wait for a second frame.
class LongQueueTest : public KnownFlowsTest {
 protected:
  static constexpr uint32_t kLog2 = 7;
  static constexpr uint32_t kCount = 1 << kLog2;
  static constexpr uint32_t kRest = nic::QueuePair::kRest;
  static constexpr uint32_t kRefill = nic::QueuePair::kRefill;

  LongQueueTest() {
    auto made = packet::BufferPool::Create({.buffers = 2 * kCount, .buffer_bytes = 2048});
    long_pool_ = *std::move(made);
    long_ = std::make_unique<QueuePair>(long_device_->memory(), SendQueue::Options{},
                                        ReceiveQueue::Options{}, nic::Capabilities{},
                                        long_pool_.get(), nullptr);
    EXPECT_EQ(long_->Refill(), kCount);
  }
  uint32_t PollLong(uint32_t most) {
    const uint32_t polled = long_->PollKnown(flows_, out_.data(), most);
    for (uint32_t i = 0; i < (polled & nic::QueuePair::kPolled); ++i) {
      packet::BufferPool::ReleaseByOwner(out_[i].buffer);
    }
    return polled;
  }

  std::unique_ptr<PlainDeviceOf<kLog2>> long_device_ = std::make_unique<PlainDeviceOf<kLog2>>();
  packet::BufferPool::Handle long_pool_;
  std::unique_ptr<QueuePair> long_;
};

TEST_F(LongQueueTest, AFrameAloneSaysThatARefillIsDueAndNothingElse) {
  for (uint32_t i = 0; i < 5 * kCount; ++i) {
    SCOPED_TRACE(i);
    long_device_->CompleteFrame(known_, i);
    const uint32_t polled = PollLong(kFrames);
    ASSERT_EQ(polled & nic::QueuePair::kPolled, 1u);
    ASSERT_EQ(out_[0].hw_clock, i);
    ASSERT_FALSE(long_->ReceiveReady());
    const uint32_t flags = i % 2 == 1 ? kRefill : 0;
    ASSERT_EQ(polled & ~nic::QueuePair::kPolled, flags);
    ASSERT_EQ(long_->Refill(), i % 2 == 1 ? 2u : 0u);
  }
  EXPECT_EQ(long_->counters().rx_frames, 5 * kCount);
  EXPECT_EQ(long_->counters().rx_bytes, 5 * kCount * known_.size());
}

TEST_F(LongQueueTest, AnotherFrameIsTakenOrSaidToBeThereUnlessThereIsNoRoom) {
  for (uint32_t i = 0; i < 2; ++i) long_device_->CompleteFrame(known_, i);
  EXPECT_EQ(PollLong(1), 1u) << "All there was room for.";
  EXPECT_EQ(PollLong(kFrames), 1 | kRefill);
  EXPECT_EQ(long_->Refill(), 2u);
  long_device_->CompleteFrame(known_, 2);
  long_device_->CompleteFrame(other_, 3);
  EXPECT_EQ(PollLong(kFrames), 1 | kRest);
  EXPECT_EQ(PollLong(kFrames), kRest) << "It is left.";
  EXPECT_TRUE(long_->TakeDeclined());
  EXPECT_EQ(PollLong(0) & nic::QueuePair::kPolled, 0u);
}

TEST_F(LongQueueTest, OfOnesFrameAloneItIsSaidWhatCameOfIt) {
  using Taken = completion::KnownFlows::Taken;
  static Taken answer;
  flows_.SetOthers({.take = [](void*, packet::Buffer* buffer, uint8_t*, uint32_t, uint64_t,
                               completion::Completion* out) {
    out->buffer = buffer;
    if (answer == Taken::kSilently) packet::BufferPool::ReleaseByOwner(buffer);
    return answer;
  }});
  std::array<uint8_t, 60> segment = other_;
  segment[23] = 6;
  for (const auto& frame : {other_, segment}) {
    for (const auto& [said, polled] :
         {std::pair(Taken::kSilently, 0u), std::pair(Taken::kCompletion, 1u),
          std::pair(Taken::kFirst, 1 | kRest), std::pair(Taken::kNot, uint32_t{kRest})}) {
      SCOPED_TRACE(static_cast<int>(said));
      answer = said;
      long_device_->CompleteFrame(frame, 1);
      EXPECT_EQ(PollLong(kFrames) & ~kRefill, polled);
      EXPECT_EQ(long_->declined(), said == Taken::kNot);
      EXPECT_EQ(long_->ReceiveReady(), said == Taken::kNot);
      answer = Taken::kCompletion;
      const uint32_t left = long_->TakeDeclined() ? 1 : 0;
      EXPECT_EQ(PollLong(left) & nic::QueuePair::kPolled, left);
      long_->Refill();
    }
  }
}

TEST_F(LongQueueTest, CountersAreExactBetweenRefills) {
  for (uint32_t i = 0; i < 7; ++i) {
    long_device_->CompleteFrame(known_, i);
    EXPECT_EQ(PollLong(1) & nic::QueuePair::kPolled, 1u);
    EXPECT_EQ(long_->counters().rx_frames, i + 1);
    EXPECT_EQ(long_->counters().rx_frames, i + 1) << "Reading it changes nothing.";
    EXPECT_EQ(long_->posted(), kCount - i - 1);
  }
  long_device_->CompleteReceive(0, MLX5_CQE_RESP_ERR, MLX5_CQE_SYNDROME_LOCAL_PROT_ERR);
  EXPECT_EQ(PollLong(1), kRest);
  std::array<nic::RxFrame, 2> none;
  EXPECT_EQ(long_->PollReceive(none), 0u);
  EXPECT_EQ(long_->counters().rx_frames, 7u) << "An error is no frame.";
  EXPECT_EQ(long_->counters().rx_errors, 1u);
}

TEST_F(KnownFlowsTest, BehindAFrameThatCausedMoreNoOtherIsTakenYet) {
  using Taken = completion::KnownFlows::Taken;
  static Taken answer;
  const auto take = [](void*, packet::Buffer* buffer, uint8_t*, uint32_t, uint64_t hw_clock,
                       completion::Completion* out) {
    out->buffer = buffer;
    out->hw_clock = hw_clock;
    if (answer == Taken::kSilently) packet::BufferPool::ReleaseByOwner(buffer);
    return answer;
  };
  flows_.SetOthers({.take = take});
  struct Case {
    Taken answer;
    uint32_t taken;  // Of another's frame and a known one.
  };
  for (const Case& one : {Case{Taken::kSilently, 1}, Case{Taken::kCompletion, 2},
                          Case{Taken::kFirst, 1}, Case{Taken::kNot, 0}}) {
    SCOPED_TRACE(static_cast<int>(one.answer));
    answer = one.answer;
    device_.CompleteFrame(other_, 1);
    device_.CompleteFrame(known_, 2);
    EXPECT_EQ(Poll(kFrames), one.taken);
    if (one.taken != 0) {
      const bool silent = one.answer == Taken::kSilently;
      EXPECT_EQ(out_[0].hw_clock, silent ? 2u : 1u) << "it leaves no gap";
      EXPECT_EQ(out_[one.taken - 1].hw_clock, silent ? 2u : one.taken);
    }
    EXPECT_EQ(queues_->TakeDeclined(), one.answer == Taken::kNot);
    EXPECT_EQ(queues_->ReceiveReady(), one.answer == Taken::kFirst || one.answer == Taken::kNot);
    const uint32_t declined = one.answer == Taken::kNot ? Receive(1) : 1;
    EXPECT_EQ(declined, 1u);
    answer = Taken::kNot;
    const bool left = queues_->ReceiveReady();
    EXPECT_EQ(Poll(kFrames), left ? 1u : 0u);
    queues_->Refill();
  }
}

TEST_F(KnownFlowsTest, ArmingTellsTheDeviceWhatWasTaken) {
  device_.CompleteFrame(known_, 1);
  EXPECT_EQ(Poll(kFrames), 1u);
  queues_->Arm(false);
  EXPECT_EQ(device_.receive_cq_record(0), 1u);
}

TEST_F(KnownFlowsTest, AnEmptiedQueueIsCounted) {
  for (uint32_t i = 0; i < kFrames; ++i) device_.CompleteFrame(known_, i);
  EXPECT_EQ(Poll(kFrames), kFrames);
  queues_->Refill();
  EXPECT_EQ(queues_->counters().rx_empty, 1u);
  EXPECT_EQ(queues_->TakeLowWater(), 0u);
}

TEST_F(KnownFlowsTest, FramesNotVerifiedOrTooShortAndErrorsAreLeft) {
  for (const uint8_t verdicts : {uint8_t{MLX5_CQE_L3_OK}, uint8_t{MLX5_CQE_L4_OK}}) {
    device_.CompleteFrame(known_, 1, verdicts);
    EXPECT_EQ(Poll(kFrames), 0u);
    EXPECT_EQ(Receive(), 1u);
  }
  device_.CompleteFrame(std::span(known_).first(41), 1);
  EXPECT_EQ(Poll(kFrames), 0u);
  EXPECT_EQ(Receive(), 1u);
  device_.CompleteFrame(known_, 1);
  device_.CompleteReceive(0, MLX5_CQE_RESP_ERR, MLX5_CQE_SYNDROME_LOCAL_PROT_ERR);
  EXPECT_EQ(Poll(kFrames), 1u);
  EXPECT_EQ(Poll(kFrames), 0u);
  EXPECT_FALSE(queues_->error().has_value());
  EXPECT_EQ(Receive(), 0u);
  EXPECT_TRUE(queues_->error().has_value());
}

// The same in VMA's form.
class LinkFlowsTest : public KnownFlowsTest {
 protected:
  LinkFlowsTest() {
    links_.SetScale(completion::ClockScale::Of(0, 0, int64_t{1} << 32, 0));
    completion::Completion form;
    completion::Clear(&form, completion::Kind::kPacket);
    links_.Learn(known_.data(), form, &endpoint_);
    links_.Follow(0);
  }
  uint32_t Poll(uint32_t most) {
    const uint32_t taken = queues_->PollLinks(links_, linked_.data(), most);
    for (uint32_t i = 0; i < taken; ++i) packet::BufferPool::ReleaseByOwner(linked_[i].first);
    return taken;
  }

  completion::LinkFlows links_{
      {.admit =
           [](void*, const completion::Completion&, completion::LinkCompletion* link) {
             *link = {.links = 1, .user_data = 42};
             return true;
           },
       .tell_time =
           [](void* test) {
             static_cast<LinkFlowsTest*>(test)->links_.SetTime({.good_for_ticks = 1, .second = 3});
           },
       .context = this},
      &changes_};
  std::array<completion::LinkCompletion, kFrames> linked_;
};

TEST_F(LinkFlowsTest, TheirFramesAreTakenUpToTheFirstThatIsAnyOther) {
  device_.CompleteFrame(known_, 1);
  device_.CompleteFrame(known_, 2);
  device_.CompleteFrame(other_, 3);
  device_.CompleteFrame(known_, 4);
  EXPECT_EQ(Poll(1), 1u) << "no more than asked for";
  EXPECT_EQ(linked_[0].nanoseconds, 1);
  EXPECT_EQ(Poll(kFrames), 1u);
  EXPECT_EQ(linked_[0].links, 1u);
  EXPECT_EQ(linked_[0].length, 10u);
  EXPECT_EQ(linked_[0].first->length, 10u);
  EXPECT_EQ(linked_[0].user_data, 42u);
  EXPECT_EQ(linked_[0].seconds, 3);
  EXPECT_EQ(linked_[0].nanoseconds, 2);
  EXPECT_TRUE(queues_->ReceiveReady());
  EXPECT_EQ(Poll(kFrames), 0u);
  EXPECT_EQ(Receive(1), 1u);
  EXPECT_EQ(Poll(kFrames), 1u);
  EXPECT_FALSE(queues_->ReceiveReady());
  EXPECT_EQ(queues_->counters().rx_frames, 4u);
  EXPECT_EQ(queues_->counters().rx_bytes, 240u);
  EXPECT_EQ(endpoint_.counters().datagrams, 3u);
}

TEST_F(LinkFlowsTest, LapsLoseNothing) {
  for (int64_t i = 0; i < 50; ++i) {
    device_.CompleteFrame(known_, static_cast<uint64_t>(i));
    ASSERT_EQ(Poll(kFrames), 1u) << i;
    ASSERT_EQ(linked_[0].nanoseconds, i);
    queues_->Refill();
  }
}

}  // namespace
}  // namespace xtreme::mlx5::testing
