// SPDX-License-Identifier: Apache-2.0

#include "tools/connectx/device/completion_queue.h"

#include <gtest/gtest.h>

#include <array>
#include <memory>

#include "tools/connectx/device/test_program.h"

namespace xtreme::connectx {
namespace {

using testing::Test;

constexpr uint8_t kNop = 0x00;
constexpr uint8_t kAlwaysWithEvent = 3 << 2;

class CompletionQueueTest : public Test {
 protected:
  void SetUp() override { Make(8, 64); }

  void Make(uint32_t entries, uint32_t cqe_size,
            const Device::Options& options = TestProgram::DefaultOptions()) {
    qp.reset();
    cq.reset();
    program = std::make_unique<TestProgram>(options);
    cq = program->MakeCq(entries, cqe_size);
    qp = program->MakeQp(cq.get(), cq.get());
  }

  // Makes one CQE.
  void Complete(uint8_t fm_ce_se = 2 << 2) {
    qp->PostAndRing(Wqe(kNop, fm_ce_se));
    program->Step();
  }

  size_t events() const { return cq->sink.completions.size(); }

  std::unique_ptr<TestProgram> program;
  std::unique_ptr<TestCq> cq;
  std::unique_ptr<TestQp> qp;
};

TEST_F(CompletionQueueTest, OwnerBitTurnsWithEachLap) {
  for (uint32_t i = 0; i < 24; ++i) {
    EXPECT_FALSE(cq->Poll().has_value());
    Complete();
    const std::optional<Cqe> cqe = cq->Poll();
    ASSERT_TRUE(cqe.has_value());
    EXPECT_EQ(cqe->owner(), (i / 8) % 2) << i;
    EXPECT_EQ(cqe->wqe_counter(), i);
  }
}

TEST_F(CompletionQueueTest, CqeOf128BytesIsItsLast64) {
  Make(4, 128);
  for (uint32_t i = 0; i < 9; ++i) {
    Complete();
    EXPECT_EQ(cq->Poll()->wqe_counter(), i);
  }
  for (uint32_t i = 0; i < 4; ++i) EXPECT_EQ(cq->ring()[i * 128 + 63], 0xa5);
}

TEST_F(CompletionQueueTest, AFullRingOfCqesIsNoOverrun) {
  for (int i = 0; i < 8; ++i) Complete();
  for (int i = 0; i < 8; ++i) EXPECT_TRUE(cq->Poll().has_value());
  EXPECT_EQ(program->Violations(), "");
}

TEST_F(CompletionQueueTest, OverrunBreaksQueueAndPair) {
  for (int i = 0; i < 9; ++i) Complete();
  EXPECT_EQ(program->Violations(), "cq_overrun");
  ASSERT_EQ(cq->sink.async.size(), 1u);
  EXPECT_EQ(cq->sink.async[0].first, IBV_EVENT_CQ_ERR);
  EXPECT_EQ(cq->sink.async[0].second, 0xc0u);
  ASSERT_EQ(qp->sink.async.size(), 1u);
  EXPECT_EQ(qp->sink.async[0].first, IBV_EVENT_QP_FATAL);
  for (int i = 0; i < 8; ++i) EXPECT_TRUE(cq->Poll().has_value());
  EXPECT_FALSE(cq->Poll().has_value()) << "the first CQE was not written over";
}

TEST_F(CompletionQueueTest, ConsumerAheadOfProducerIsFound) {
  cq->record()[0] = __builtin_bswap32(3);
  Complete();
  EXPECT_EQ(program->Violations(), "cq_consumer");
}

TEST_F(CompletionQueueTest, ConsumerIndexMayLagALapOutsideStepMode) {
  Device::Options options = TestProgram::DefaultOptions();
  options.step = false;
  Make(8, 64, options);
  for (int i = 0; i < 20; ++i) {
    Complete();
    EXPECT_TRUE(cq->Poll().has_value());
  }
  EXPECT_EQ(program->Violations(), "");
}

TEST_F(CompletionQueueTest, UnarmedQueueFiresNothing) {
  Complete();
  EXPECT_EQ(events(), 0u);
}

TEST_F(CompletionQueueTest, OneArmIsOneEvent) {
  cq->Arm();
  Complete();
  Complete();
  ASSERT_EQ(events(), 1u);
  EXPECT_EQ(cq->sink.completions[0], 0xc0u);
  ++cq->arm_sequence;
  while (cq->Poll().has_value()) {
  }
  cq->Arm();
  Complete();
  EXPECT_EQ(events(), 2u);
}

TEST_F(CompletionQueueTest, FirstArmIsSeenThoughItsWordIsZero) {
  EXPECT_EQ(cq->record()[1], 0xffffffffu);
  cq->Arm();
  EXPECT_EQ(cq->record()[1], 0u);
  Complete();
  EXPECT_EQ(events(), 1u);
}

TEST_F(CompletionQueueTest, ArmBehindWhatWasProducedFiresAtOnce) {
  Complete();
  cq->Arm();
  program->Step();
  EXPECT_EQ(events(), 1u);
}

TEST_F(CompletionQueueTest, ArmInTheRecordAloneIsNotHeard) {
  cq->record()[1] = 0;
  Complete();
  EXPECT_EQ(events(), 0u);
}

TEST_F(CompletionQueueTest, ArmDoorbellReachesEveryQueueOfThePage) {
  auto other = program->MakeCq();
  cq->Arm();
  other->Arm();  // Writes over the first one's doorbell.
  Complete();
  EXPECT_EQ(events(), 1u);
}

TEST_F(CompletionQueueTest, SolicitedArmWaitsForASolicitedCompletion) {
  cq->Arm(/*solicited_only=*/true);
  Complete();
  EXPECT_EQ(events(), 0u);
  Complete(kAlwaysWithEvent);
  EXPECT_EQ(events(), 1u);
}

TEST(CompletionQueueIndexTest, SolicitedCompletionOfLongAgoIsNotOneToCome) {
  constexpr uint32_t kEntries = 1 << 12;
  constexpr uint32_t kPushed = (1 << 23) + 2;  // More than half of all indices of 24 bits.
  const auto ring = std::make_unique<uint8_t[]>(kEntries * 64);
  std::array<uint32_t, 2> record{};
  RecordingSink sink;
  Device::Options options = TestProgram::DefaultOptions();
  options.step = false;
  Environment environment(options);
  CompletionQueue queue({.ring = ring.get(),
                         .entries = kEntries,
                         .doorbell_record = record.data(),
                         .completions = &sink},
                        1, &environment);
  for (uint32_t i = 1; i <= kPushed; ++i) {
    ASSERT_TRUE(queue.Push({}, MLX5_CQE_RESP_SEND, /*solicited=*/i == 1));
    record[0] = __builtin_bswap32(i);
  }
  record[1] = __builtin_bswap32(1 << 24 | kPushed);
  queue.OnArmDoorbell();
  EXPECT_EQ(sink.completions.size(), 0u);
  queue.Push({}, MLX5_CQE_RESP_SEND, /*solicited=*/true);
  EXPECT_EQ(sink.completions.size(), 1u);
}

TEST_F(CompletionQueueTest, ErrorIsASolicitedCompletion) {
  cq->Arm(/*solicited_only=*/true);
  Wqe wrong(kNop);
  wrong.index = 77;
  qp->PostAndRing(wrong);
  program->Step();
  EXPECT_EQ(events(), 1u);
}

TEST_F(CompletionQueueTest, ArmThatAnEventAnsweredIsIgnored) {
  cq->Arm();
  Complete();
  Complete();
  cq->Poll();
  cq->Arm();  // The event was not fetched: the old sequence number.
  program->Step();
  EXPECT_EQ(events(), 1u);
  EXPECT_EQ(program->Violations(), "");
}

TEST_F(CompletionQueueTest, ArmWithASequenceNumberFromNowhereIsFound) {
  cq->arm_sequence = 2;
  cq->Arm();
  Complete();
  EXPECT_EQ(program->Violations(), "cq_arm");
  EXPECT_EQ(events(), 0u);
}

TEST_F(CompletionQueueTest, ArmAheadOfTheProducerIsFound) {
  cq->consumer = 5;
  cq->Arm();
  program->Step();
  EXPECT_EQ(program->Violations(), "cq_consumer");
}

TEST_F(CompletionQueueTest, ModerationHoldsAnEventForCountOrPeriod) {
  ASSERT_EQ(program->device->ModerateCq(cq->cqn, 3, 10), 0);
  cq->Arm();
  Complete();
  Complete();
  EXPECT_EQ(events(), 0u);
  Complete();
  EXPECT_EQ(events(), 1u) << "the count";
  ++cq->arm_sequence;
  while (cq->Poll().has_value()) {
  }
  cq->Arm();
  Complete();
  EXPECT_EQ(program->device->NextDeadline(), program->clock.Now() + 10'000);
  program->clock.Advance(9'999);
  program->Step();
  EXPECT_EQ(events(), 1u);
  program->clock.Advance(1);
  program->Step();
  EXPECT_EQ(events(), 2u) << "the period";
  EXPECT_EQ(program->device->NextDeadline(), kNoDeadline);
}

TEST_F(CompletionQueueTest, ModerationOfAnArmBeginsWithTheFirstBehindIt) {
  ASSERT_EQ(program->device->ModerateCq(cq->cqn, 10, 100), 0);
  cq->Arm();
  Complete();
  ASSERT_TRUE(cq->Poll().has_value());
  cq->Arm();
  program->Step();
  EXPECT_EQ(program->device->NextDeadline(), kNoDeadline) << "nothing is unread";
  program->clock.Advance(99'000);
  Complete();
  program->clock.Advance(99'999);
  program->Step();
  EXPECT_EQ(events(), 0u);
  program->clock.Advance(1);
  program->Step();
  EXPECT_EQ(events(), 1u);
}

TEST_F(CompletionQueueTest, DestroyTellsHowManyEventsWereFired) {
  cq->Arm();
  Complete();
  ASSERT_EQ(program->device->DestroyQp(qp->qpn), 0);
  uint32_t fired = 0;
  EXPECT_EQ(program->device->DestroyCq(cq->cqn, &fired), 0);
  EXPECT_EQ(fired, 1u);
}

}  // namespace
}  // namespace xtreme::connectx
