// SPDX-License-Identifier: Apache-2.0

#include "tools/connectx/device/send_queue.h"

#include <gtest/gtest.h>

#include "tools/connectx/device/test_program.h"

namespace xtreme::connectx {
namespace {

constexpr uint8_t kSend = 0x0a;
constexpr uint8_t kNop = 0x00;
constexpr uint8_t kSignalled = 2 << 2;
constexpr uint8_t kUnsignalled = 0;
constexpr uint8_t kBothChecksums = 1 << 6 | 1 << 7;

class SendQueueTest : public testing::Test {
 protected:
  void SetUp() override { Make(TestProgram::DefaultOptions()); }

  void Make(const Device::Options& options, const TestQp::Shape& shape = {}) {
    qp.reset();
    cq.reset();
    program = std::make_unique<TestProgram>(options);
    cq = program->MakeCq();
    qp = program->MakeQp(cq.get(), cq.get(), shape);
  }

  // Puts a frame into registered memory and names it in a data segment.
  Wqe Gathered(const Bytes& frame, uint8_t fm_ce_se = kSignalled) {
    std::copy(frame.begin(), frame.end(), program->memory.begin());
    return Wqe(kSend, fm_ce_se)
        .Eth({})
        .Data(program->keys.lkey, program->Address(0), static_cast<uint32_t>(frame.size()));
  }

  std::unique_ptr<TestProgram> program;
  std::unique_ptr<TestCq> cq;
  std::unique_ptr<TestQp> qp;
  const Bytes frame = MakeFrame({.destination_mac = {2, 0, 0, 0, 0, 9}});
};

TEST_F(SendQueueTest, GatheredFrameLeavesAsItStands) {
  qp->PostAndRing(Gathered(frame));
  program->Step();
  ASSERT_EQ(program->wire.sent.size(), 1u);
  EXPECT_EQ(program->wire.sent[0], frame);
  EXPECT_EQ(program->Violations(), "");
}

TEST_F(SendQueueTest, WithoutADoorbellNothingIsSent) {
  qp->Post(Gathered(frame));
  EXPECT_FALSE(program->device->Service());
  EXPECT_TRUE(program->wire.sent.empty());
  EXPECT_FALSE(cq->Poll().has_value());
}

// A thread that stands for a card has not come to it.
TEST_F(SendQueueTest, WhatWasRungForLeavesBeforeItsQueueStops) {
  Device::Options options = TestProgram::DefaultOptions();
  options.step = false;
  for (const auto stops : {IBV_QPS_RESET, IBV_QPS_ERR, IBV_QPS_UNKNOWN}) {
    SCOPED_TRACE(stops);
    Make(options);
    qp->Post(Gathered(frame));
    qp->PostAndRing(Gathered(frame));
    const bool ends = stops == IBV_QPS_UNKNOWN;
    EXPECT_EQ(ends ? program->device->DestroyQp(qp->qpn)
                   : program->device->ModifyQp(qp->qpn, stops),
              0);
    EXPECT_EQ(program->wire.sent.size(), 2u);
  }
}

TEST_F(SendQueueTest, OneDoorbellRunsEverythingUpToTheRecord) {
  for (int i = 0; i < 3; ++i) qp->Post(Gathered(frame));
  qp->Ring();
  program->Step();
  EXPECT_EQ(program->wire.sent.size(), 3u);
}

TEST_F(SendQueueTest, EachOfTheFourRegistersIsADoorbell) {
  for (int slot = 0; slot < 4; ++slot) {
    qp->Post(Gathered(frame));
    qp->Ring(slot);
    program->Step();
    EXPECT_EQ(program->wire.sent.size(), slot + 1u);
  }
}

TEST_F(SendQueueTest, InlineHeaderAndInlinePayloadAreJoined) {
  const std::span<const uint8_t> bytes(frame);
  qp->PostAndRing(Wqe().Eth(bytes.first(18)).Inline(bytes.subspan(18)));
  program->Step();
  ASSERT_EQ(program->wire.sent.size(), 1u);
  EXPECT_EQ(program->wire.sent[0], frame);
}

TEST_F(SendQueueTest, InlineHeaderAndSeveralPiecesAreJoinedInOrder) {
  std::copy(frame.begin(), frame.end(), program->memory.begin() + 100);
  const std::span<const uint8_t> bytes(frame);
  const uint32_t lkey = program->keys.lkey;
  qp->PostAndRing(Wqe()
                      .Eth(bytes.first(18))
                      .Data(lkey, program->Address(118), 2)
                      .Inline(bytes.subspan(20, 10))
                      .Data(lkey, program->Address(130), frame.size() - 30));
  program->Step();
  ASSERT_EQ(program->wire.sent.size(), 1u);
  EXPECT_EQ(program->wire.sent[0], frame);
}

TEST_F(SendQueueTest, WqeMayWrapAtTheEndOfTheRing) {
  for (int i = 0; i < 7; ++i) qp->Post(Wqe(kNop, kUnsignalled));
  qp->PostAndRing(Wqe(kNop, kUnsignalled));
  program->Step();
  // Seven of eight WQEBBs later, a WQE of two WQEBBs has its second at the ring's start.
  for (int i = 0; i < 7; ++i) qp->Post(Wqe(kNop, kUnsignalled));
  const std::span<const uint8_t> bytes(frame);
  qp->Ring();
  program->Step();
  qp->PostAndRing(Wqe().Eth(bytes.first(18)).Inline(bytes.subspan(18)));
  program->Step();
  ASSERT_EQ(program->wire.sent.size(), 1u);
  EXPECT_EQ(program->wire.sent[0], frame);
  EXPECT_EQ(cq->Poll()->wqe_counter(), 15);
}

TEST_F(SendQueueTest, ShortFrameIsPaddedWithZeros) {
  const Bytes runt = MakeFrame({.destination_mac = {2, 0, 0, 0, 0, 9}, .payload = "x"});
  qp->PostAndRing(Gathered(runt));
  program->Step();
  Bytes padded = runt;
  padded.resize(60, 0);
  EXPECT_EQ(program->wire.sent.at(0), padded);
}

TEST_F(SendQueueTest, CompletionCarriesItsFieldsAtTheCardsOffsets) {
  program->clock.Advance(0x1234);
  qp->PostAndRing(Gathered(frame));
  program->Step();
  const std::optional<Cqe> cqe = cq->Poll();
  ASSERT_TRUE(cqe.has_value());
  Bytes golden(64, 0);
  const uint64_t time = program->device->CyclesAt(program->clock.Now());
  golden[33] = 0x0a, golden[34] = 0xbc, golden[35] = 0xde;
  for (int i = 0; i < 8; ++i) golden[48 + i] = static_cast<uint8_t>(time >> (56 - 8 * i));
  golden[56] = kSend;
  for (int i = 0; i < 3; ++i) golden[57 + i] = static_cast<uint8_t>(qp->qpn >> (16 - 8 * i));
  EXPECT_EQ(cqe->bytes, golden);
}

TEST_F(SendQueueTest, UnsignalledSendCompletesSilently) {
  qp->Post(Gathered(frame, kUnsignalled));
  qp->Post(Gathered(frame, kUnsignalled));
  qp->PostAndRing(Gathered(frame));
  program->Step();
  EXPECT_EQ(cq->Poll()->wqe_counter(), 2);
  EXPECT_FALSE(cq->Poll().has_value());
}

TEST_F(SendQueueTest, WqeCounterIsTheFirstWqebbOfTheWqe) {
  const std::span<const uint8_t> bytes(frame);
  for (int i = 0; i < 2; ++i) qp->Post(Wqe().Eth(bytes.first(18)).Inline(bytes.subspan(18)));
  qp->Ring();
  program->Step();
  EXPECT_EQ(cq->Poll()->wqe_counter(), 0);
  EXPECT_EQ(cq->Poll()->wqe_counter(), 2);
}

TEST_F(SendQueueTest, NopReachesNoWireAndCompletes) {
  qp->PostAndRing(Wqe(kNop));
  program->Step();
  EXPECT_TRUE(program->wire.sent.empty());
  const std::optional<Cqe> cqe = cq->Poll();
  ASSERT_TRUE(cqe.has_value());
  EXPECT_EQ(cqe->opcode(), 0);
  EXPECT_EQ(cqe->tag_or_qpn(), qp->qpn);
}

TEST_F(SendQueueTest, IndicesRunPast16Bits) {
  for (int i = 0; i < 70000 / 8; ++i) {
    for (int j = 0; j < 7; ++j) qp->Post(Wqe(kNop, kUnsignalled));
    qp->PostAndRing(Wqe(kNop));
    program->Step();
    ASSERT_EQ(cq->Poll()->wqe_counter(), static_cast<uint16_t>(8 * i + 7));
  }
  EXPECT_EQ(program->Violations(), "");
}

TEST_F(SendQueueTest, ChecksumsAskedForAreComputed) {
  const FrameSpec spec{.destination_mac = {2, 0, 0, 0, 0, 9}, .option_bytes = 8};
  FrameSpec open = spec;
  open.checksums = false;
  const Bytes sent = MakeFrame(open);
  std::copy(sent.begin(), sent.end(), program->memory.begin());
  qp->PostAndRing(
      Wqe().Eth({}, kBothChecksums).Data(program->keys.lkey, program->Address(0), sent.size()));
  program->Step();
  EXPECT_EQ(program->wire.sent.at(0), MakeFrame(spec));
  EXPECT_EQ(Bytes(program->memory.begin(), program->memory.begin() + sent.size()), sent)
      << "the program's memory is not the device's to write";
}

TEST_F(SendQueueTest, ChecksumsNotAskedForAreLeft) {
  const Bytes open = MakeFrame({.destination_mac = {2, 0, 0, 0, 0, 9}, .checksums = false});
  qp->PostAndRing(Gathered(open));
  program->Step();
  EXPECT_EQ(program->wire.sent.at(0), open);
}

TEST_F(SendQueueTest, BlueFlameOfTheWholeWqeIsADoorbell) {
  const std::span<const uint8_t> bytes(frame);
  qp->Post(Wqe().Eth(bytes.first(18)).Inline(bytes.subspan(18)));
  qp->RingBlueFlame(1);
  program->Step();
  EXPECT_EQ(program->wire.sent.at(0), frame);
  EXPECT_EQ(program->Violations(), "");
}

TEST_F(SendQueueTest, JumboFrameFitsTheGreatestMtu) {
  Device::Options options = TestProgram::DefaultOptions();
  options.mtu = 9978;
  Make(options);
  const std::string payload(9978 - 28, 'j');
  const Bytes jumbo = MakeFrame(
      {.destination_mac = {2, 0, 0, 0, 0, 9}, .vlan_tags = {0x81000001}, .payload = payload});
  qp->PostAndRing(Gathered(jumbo));
  program->Step();
  EXPECT_EQ(program->wire.sent.at(0), jumbo);
}

TEST_F(SendQueueTest, DropOfTheWireIsADiscardAndStillASend) {
  program->wire.full = true;
  qp->PostAndRing(Gathered(frame));
  program->Step();
  EXPECT_EQ(program->CounterValue("port_xmit_discards"), 1u);
  EXPECT_EQ(program->CounterValue("port_xmit_packets"), 0u);
  EXPECT_EQ(cq->Poll()->opcode(), 0);
}

TEST_F(SendQueueTest, PacedQueueSendsAtItsRate) {
  ASSERT_EQ(program->device->ModifyQp(qp->qpn, IBV_QPS_RTS, Rate{.kbps = 1000}), 0);  // 1 Mbit/s.
  qp->Post(Gathered(frame));
  qp->PostAndRing(Gathered(frame));
  program->Step();
  EXPECT_EQ(program->wire.sent.size(), 1u);
  const int64_t bit_ns = 1000;
  const int64_t due_ns = program->clock.Now() + static_cast<int64_t>(frame.size()) * 8 * bit_ns;
  EXPECT_EQ(program->device->NextDeadline(), due_ns);
  program->clock.Advance(due_ns - program->clock.Now() - 1);
  program->Step();
  EXPECT_EQ(program->wire.sent.size(), 1u);
  program->clock.Advance(1);
  program->Step();
  EXPECT_EQ(program->wire.sent.size(), 2u);
}

TEST_F(SendQueueTest, LongBurstDoesNotKeepOthersWaiting) {
  Make(TestProgram::DefaultOptions(), {.wqebbs = 256});
  for (int i = 0; i < 200; ++i) qp->Post(Gathered(frame, kUnsignalled));
  qp->Ring();
  EXPECT_TRUE(program->device->Service());
  EXPECT_LT(program->wire.sent.size(), 200u);
  program->Step();
  EXPECT_EQ(program->wire.sent.size(), 200u);
}

TEST_F(SendQueueTest, WhatIsPostedWhileABurstRunsWaitsForItsOwnDoorbell) {
  Make(TestProgram::DefaultOptions(), {.wqebbs = 256});
  for (int i = 0; i < 100; ++i) qp->Post(Gathered(frame, kUnsignalled));
  qp->Ring();
  EXPECT_TRUE(program->device->Service());
  qp->Post(Gathered(frame, kUnsignalled));
  program->Step();
  EXPECT_EQ(program->wire.sent.size(), 100u);
}

TEST_F(SendQueueTest, DoorbellIsForEveryQueueOfThePage) {
  auto other = program->MakeQp(cq.get(), cq.get());
  qp->Post(Gathered(frame));
  qp->Ring();
  other->Post(Gathered(frame));
  other->Ring();  // Writes over the first doorbell.
  program->Step();
  EXPECT_EQ(program->wire.sent.size(), 2u);
}

}  // namespace
}  // namespace xtreme::connectx
