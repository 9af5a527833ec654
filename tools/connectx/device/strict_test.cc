// SPDX-License-Identifier: Apache-2.0
//
// Every rule of sending, broken on purpose once: what the program gets, and what the log says.

#include <gtest/gtest.h>

#include <cerrno>
#include <functional>

#include "absl/strings/str_format.h"
#include "tools/connectx/device/test_program.h"

namespace xtreme::connectx {
namespace {

constexpr uint8_t kNop = 0x00;
constexpr uint8_t kSend = 0x0a;
constexpr uint8_t kLength = 1;
constexpr uint8_t kQpOperation = 2;
constexpr uint8_t kProtection = 4;
constexpr uint8_t kFlushed = 5;
constexpr uint8_t kRequestError = 13;

struct Case {
  const char* name;
  std::function<Wqe(const TestProgram&)> wqe;
  uint8_t syndrome;
  const char* rule;
  std::function<void(Device::Options&)> configure = [](Device::Options&) {};
};

Wqe Corrupt(Wqe wqe, const std::function<void(Wqe&)>& how) {
  how(wqe);
  return wqe;
}

Wqe WithData(const TestProgram& program, uint64_t offset, uint32_t bytes, uint32_t key_flip = 0) {
  return Wqe().Eth({}).Data(program.keys.lkey ^ key_flip, program.Address(offset), bytes);
}

const Bytes kSeventeen(17, 0);
const Bytes kTen(10, 0);

const Case kCases[] = {
    {"index of another WQEBB",
     [](const TestProgram&) { return Corrupt(Wqe(kNop), [](Wqe& w) { w.index = 0xffff; }); },
     kQpOperation, "wqe_index"},
    {"QPN of another queue",
     [](const TestProgram&) { return Corrupt(Wqe(kNop), [](Wqe& w) { w.qpn = 0x77; }); },
     kQpOperation, "doorbell_bytes wqe_qpn"},
    {"no segments",
     [](const TestProgram&) { return Corrupt(Wqe(kNop), [](Wqe& w) { w.segments = 0; }); },
     kQpOperation, "wqe_size"},
    {"more segments than the record covers",
     [](const TestProgram&) { return Corrupt(Wqe(kNop), [](Wqe& w) { w.segments = 9; }); },
     kQpOperation, "wqe_size"},
    {"send without an Ethernet segment", [](const TestProgram&) { return Wqe(kSend); },
     kQpOperation, "wqe_size"},
    {"inline header longer than the WQE",
     [](const TestProgram&) {
       return Corrupt(Wqe().Eth(Bytes(60, 0)), [](Wqe& w) { w.segments = 3; });
     },
     kQpOperation, "wqe_size"},
    {"inline segment longer than the WQE",
     [](const TestProgram&) {
       return Corrupt(Wqe().Eth({}).Inline(Bytes(40, 0)), [](Wqe& w) { w.segments = 4; });
     },
     kQpOperation, "wqe_size"},
    {"SEND_IMM on Ethernet", [](const TestProgram&) { return Wqe(0x0b).Eth({}); }, kQpOperation,
     "opcode"},
    {"RDMA_WRITE", [](const TestProgram&) { return Wqe(0x08).Eth({}); }, kQpOperation, "opcode"},
    {"opcode that does not exist", [](const TestProgram&) { return Wqe(0x77); }, kQpOperation,
     "opcode"},
    {"no inline header where L2 is needed",
     [](const TestProgram& program) { return WithData(program, 0, 100); }, kQpOperation,
     "inline_header",
     [](Device::Options& options) { options.eth_min_inline = Device::MinInline::kL2; }},
    {"inline header too short where L2 is needed",
     [](const TestProgram& program) {
       return Wqe().Eth(kSeventeen).Data(program.keys.lkey, program.Address(0), 100);
     },
     kQpOperation, "inline_header",
     [](Device::Options& options) { options.eth_min_inline = Device::MinInline::kL2; }},
    {"checksums from a device without them",
     [](const TestProgram& program) {
       return Wqe().Eth({}, 0x80).Data(program.keys.lkey, program.Address(0), 100);
     },
     kQpOperation, "feature",
     [](Device::Options& options) { options.features.checksum_offload = false; }},
    {"inner checksums",
     [](const TestProgram& program) {
       return Wqe().Eth({}, 0x10).Data(program.keys.lkey, program.Address(0), 100);
     },
     kQpOperation, "feature"},
    {"frame above the MTU", [](const TestProgram& program) { return WithData(program, 0, 1515); },
     kLength, "frame_length"},
    {"frame without an Ethernet header",
     [](const TestProgram&) { return Wqe().Eth({}).Inline(kTen); }, kLength, "frame_length"},
    {"data segment of no bytes", [](const TestProgram& program) { return WithData(program, 0, 0); },
     kLength, "frame_length"},
    {"data segment of a gigabyte",
     [](const TestProgram& program) { return WithData(program, 0, 1 << 30); }, kLength,
     "frame_length"},
    {"key of nobody", [](const TestProgram& program) { return WithData(program, 0, 100, 0x5500); },
     kProtection, "memory_key"},
    {"stale key", [](const TestProgram& program) { return WithData(program, 0, 100, 1); },
     kProtection, "memory_key"},
    {"range that ends behind the region",
     [](const TestProgram& program) { return WithData(program, 65536 - 99, 100); }, kProtection,
     "memory_key"},
    {"range that starts before the region",
     [](const TestProgram& program) { return WithData(program, ~uint64_t{0}, 100); }, kProtection,
     "memory_key"},
};

class StrictTest : public testing::TestWithParam<Case> {};

TEST_P(StrictTest, BreaksTheQueueWithSyndromeAndReason) {
  Device::Options options = TestProgram::DefaultOptions();
  GetParam().configure(options);
  TestProgram program(options);
  auto cq = program.MakeCq();
  auto qp = program.MakeQp(cq.get(), cq.get());
  qp->PostAndRing(GetParam().wqe(program));
  program.Step();

  EXPECT_TRUE(program.wire.sent.empty());
  EXPECT_EQ(program.Violations(), GetParam().rule);
  const std::optional<Cqe> cqe = cq->Poll();
  ASSERT_TRUE(cqe.has_value());
  EXPECT_EQ(cqe->opcode(), kRequestError);
  EXPECT_EQ(cqe->syndrome(), GetParam().syndrome);
  EXPECT_NE(cqe->vendor_syndrome(), 0);
  EXPECT_EQ(cqe->wqe_counter(), 0);
  EXPECT_EQ(cqe->uidx(), 0xabcdeu);
  EXPECT_EQ(cqe->tag_or_qpn() & 0xffffff, qp->qpn);
  QpAttributes attributes;
  ASSERT_EQ(program.device->QueryQp(qp->qpn, &attributes), 0);
  EXPECT_EQ(attributes.state, IBV_QPS_SQE) << "the receive queue goes on";
  EXPECT_TRUE(qp->sink.async.empty()) << "the CQE has told it";
  EXPECT_EQ(program.CounterValue("req_cqe_error"), 1u);
}

INSTANTIATE_TEST_SUITE_P(Rules, StrictTest, testing::ValuesIn(kCases), [](const auto& info) {
  std::string name;
  for (char c : std::string(info.param.name)) name += std::isalnum(c) != 0 ? c : '_';
  return name;
});

class StrictQueueTest : public testing::Test {
 protected:
  void Send() { qp->PostAndRing(Wqe().Eth({}).Data(program.keys.lkey, program.Address(0), 100)); }

  TestProgram program;
  std::unique_ptr<TestCq> cq = program.MakeCq();
  std::unique_ptr<TestQp> qp = program.MakeQp(cq.get(), cq.get());
};

TEST_F(StrictQueueTest, WhatStandsBehindAnErrorIsFlushedThenAndLater) {
  Wqe wrong(kNop);
  wrong.index = 9;
  qp->Post(wrong);
  qp->Post(Wqe(kNop, 0));
  qp->PostAndRing(Wqe(kNop));
  program.Step();
  EXPECT_EQ(cq->Poll()->syndrome(), kQpOperation);
  EXPECT_EQ(cq->Poll()->syndrome(), kFlushed);
  EXPECT_EQ(cq->Poll()->wqe_counter(), 2);
  Send();
  program.Step();
  EXPECT_EQ(cq->Poll()->syndrome(), kFlushed);
  EXPECT_TRUE(program.wire.sent.empty());
  EXPECT_EQ(program.CounterValue("req_cqe_flush_error"), 3u);
}

TEST_F(StrictQueueTest, QueueTakenToErrorFlushesWithoutADoorbell) {
  qp->Post(Wqe(kNop));
  ASSERT_EQ(program.device->ModifyQp(qp->qpn, IBV_QPS_ERR), 0);
  program.Step();
  EXPECT_EQ(cq->Poll()->syndrome(), kFlushed);
  EXPECT_TRUE(qp->sink.async.empty()) << "the program did it itself";
}

TEST_F(StrictQueueTest, ErrorOfOneQueueLeavesTheOtherRunning) {
  auto other = program.MakeQp(cq.get(), cq.get());
  Wqe wrong(kNop);
  wrong.index = 9;
  qp->PostAndRing(wrong);
  program.Step();
  other->PostAndRing(Wqe(kNop));
  program.Step();
  EXPECT_EQ(cq->Poll()->opcode(), kRequestError);
  EXPECT_EQ(cq->Poll()->opcode(), 0);
}

TEST_F(StrictQueueTest, AReceiveQueueOutlivesItsSendQueue) {
  program.Steer(*qp);
  Wqe wrong(kNop);
  wrong.index = 9;
  qp->PostAndRing(wrong);
  program.Step();
  EXPECT_EQ(cq->Poll()->opcode(), kRequestError);
  qp->PostReceive({{program.keys.lkey, program.Address(0), 2048}});
  program.wire.Arrive(MakeFrame({}));
  program.Step();
  EXPECT_EQ(cq->Poll()->opcode(), 2);
}

TEST_F(StrictQueueTest, ASendQueueOutlivesItsReceiveQueueInNoStateOfAQp) {
  program.Steer(*qp);
  qp->PostReceive({{program.keys.lkey + 0x100, program.Address(0), 2048}});
  program.wire.Arrive(MakeFrame({}));
  program.Step();
  EXPECT_EQ(cq->Poll()->syndrome(), 4) << "no such key";
  EXPECT_TRUE(qp->sink.async.empty());
  qp->PostAndRing(Wqe(kNop));
  program.Step();
  EXPECT_EQ(cq->Poll()->opcode(), 0);
  QpAttributes attributes;
  EXPECT_EQ(program.device->QueryQp(qp->qpn, &attributes), EINVAL);
  ibv_qp_state state;
  ASSERT_EQ(program.device->QpState(qp->qpn, &state), 0);
  EXPECT_EQ(state, IBV_QPS_RTS);
  EXPECT_EQ(program.device->ModifyQp(qp->qpn, IBV_QPS_ERR), 0);
  EXPECT_EQ(program.device->QueryQp(qp->qpn, &attributes), 0);
}

TEST_F(StrictQueueTest, ResetBringsAQueueBack) {
  Wqe wrong(kNop);
  wrong.index = 9;
  qp->PostAndRing(wrong);
  program.Step();
  EXPECT_TRUE(cq->Poll().has_value());
  qp->Reset();
  qp->ToRts();
  Send();
  program.Step();
  EXPECT_EQ(program.wire.sent.size(), 1u);
  EXPECT_EQ(cq->Poll()->wqe_counter(), 0);
}

TEST_F(StrictQueueTest, RecordMoreThanARingAheadIsAnOverrun) {
  qp->Post(Wqe(kNop));
  qp->record()[1] = __builtin_bswap32(9);
  qp->Ring();
  program.Step();
  EXPECT_EQ(program.Violations(), "send_overrun");
  ASSERT_EQ(qp->sink.async.size(), 1u) << "no CQE could";
  EXPECT_EQ(qp->sink.async[0], std::make_pair(IBV_EVENT_QP_FATAL, uint64_t{0x9b}));
}

TEST_F(StrictQueueTest, ReceiveRecordMoreThanARingAheadIsAnOverrun) {
  program.Steer(*qp);
  qp->record()[0] = __builtin_bswap32(5);
  program.wire.Arrive(MakeFrame({}));
  program.Step();
  EXPECT_EQ(program.Violations(), "receive_overrun");
  EXPECT_EQ(qp->sink.async.size(), 1u);
}

TEST_F(StrictQueueTest, ReceiveOverOneThatWasNotUsedYetIsAnOverrun) {
  program.Steer(*qp);
  for (int i = 0; i < 4; ++i) qp->PostReceive({{program.keys.lkey, program.Address(0), 2048}});
  program.wire.Arrive(MakeFrame({}));
  program.Step();
  for (int i = 0; i < 2; ++i) qp->PostReceive({{program.keys.lkey, program.Address(0), 2048}});
  EXPECT_EQ(program.Violations(), "");
  program.wire.Arrive(MakeFrame({}));
  program.Step();
  EXPECT_EQ(program.Violations(), "receive_overrun");
}

TEST_F(StrictQueueTest, ReceiveWithoutLocalWriteIsAProtectionError) {
  MemoryKeys read_only;
  ASSERT_EQ(program.device->RegisterMemory(
                {.pd = program.pd, .start = program.memory.data(), .length = 4096, .iova = 0x1000},
                &read_only),
            0);
  program.Steer(*qp);
  qp->PostReceive({{read_only.lkey, 0x1000, 2048}});
  program.wire.Arrive(MakeFrame({}));
  program.Step();
  EXPECT_EQ(cq->Poll()->syndrome(), kProtection);
  EXPECT_EQ(program.memory[0], 0x5a);
  EXPECT_EQ(program.Violations(), "memory_key");
}

TEST_F(StrictQueueTest, KeyOfAnotherProtectionDomainIsAProtectionError) {
  uint32_t other_pd;
  ASSERT_EQ(program.device->AllocPd(&other_pd), 0);
  MemoryKeys foreign;
  ASSERT_EQ(
      program.device->RegisterMemory(
          {.pd = other_pd, .start = program.memory.data(), .length = 4096, .iova = 0}, &foreign),
      0);
  qp->PostAndRing(Wqe().Eth({}).Data(foreign.lkey, 0, 100));
  program.Step();
  EXPECT_EQ(cq->Poll()->syndrome(), kProtection);
}

TEST_F(StrictQueueTest, DoorbellAheadOfItsRecordIsFoundAndSendsNothing) {
  qp->Post(Wqe(kNop));
  qp->record()[1] = 0;
  qp->Ring();
  program.Step();
  EXPECT_EQ(program.Violations(), "doorbell_record");
  EXPECT_FALSE(cq->Poll().has_value());
}

TEST_F(StrictQueueTest, DoorbellOfAnotherWqeIsFound) {
  qp->Post(Wqe(kNop));
  uint64_t bytes;
  std::memcpy(&bytes, qp->send_ring(), sizeof(bytes));
  bytes ^= uint64_t{0x3f} << 56;  // Another ds.
  std::memcpy(program.uar.page + 0x800, &bytes, sizeof(bytes));
  program.Step();
  EXPECT_EQ(program.Violations(), "doorbell_bytes");
}

TEST_F(StrictQueueTest, DoorbellForAQueueOfAnotherPageIsFound) {
  Uar other;
  ASSERT_EQ(program.device->AllocUar(UarType::kBlueFlame, &other), 0);
  qp->Post(Wqe(kNop));
  std::memcpy(other.page + 0x800, qp->send_ring(), 8);
  program.Step();
  EXPECT_EQ(program.Violations(), "doorbell_bytes");
  EXPECT_FALSE(cq->Poll().has_value());
}

TEST_F(StrictQueueTest, BlueFlameThatDiffersFromTheRingIsFound) {
  qp->Post(Wqe().Eth(Bytes(18, 3)).Inline(Bytes(46, 4)));
  qp->RingBlueFlame();
  program.uar.page[0x800 + 100] ^= 1;
  program.Step();
  EXPECT_EQ(program.Violations(), "doorbell_bytes");
  EXPECT_EQ(program.wire.sent.size(), 1u) << "the WQE is the ring's";
}

// Three posts between two looks of the pump: the two halves' turns make the third's the first's.
TEST_F(StrictQueueTest, DoorbellOverTheBlueFlameOfAnEarlierWqeIsInOrder) {
  const auto post = [this] {
    qp->Post(Wqe().Eth(Bytes(18, 3)).Inline(Bytes(46, 4)));
    qp->RingBlueFlame();
    qp->Post(Wqe().Eth(Bytes(18, 5)).Inline(Bytes(60, 6)));
    qp->Ring();
  };
  post();
  program.Step();
  EXPECT_EQ(program.Violations(), "");
  EXPECT_EQ(program.wire.sent.size(), 2u);
  post();
  program.uar.page[0x800 + 50] ^= 1;
  program.Step();
  EXPECT_EQ(program.Violations(), "doorbell_bytes");
}

TEST_F(StrictQueueTest, DoorbellOfADestroyedQueueIsFound) {
  auto gone = program.MakeQp(cq.get(), cq.get());
  ASSERT_EQ(program.device->DestroyQp(gone->qpn), 0);
  gone->PostAndRing(Wqe(kNop));
  program.Step();
  EXPECT_EQ(program.Violations(), "freed_queue");
  EXPECT_FALSE(cq->Poll().has_value());
}

// The device's thread may look later than the program destroys.
TEST_F(StrictQueueTest, WhatWasRungBeforeItsQueueWasDestroyedIsInOrder) {
  auto gone = program.MakeQp(cq.get(), cq.get());
  auto gone_cq = program.MakeCq();
  gone->PostAndRing(Wqe(kNop));
  gone_cq->Arm();
  ASSERT_EQ(program.device->DestroyQp(gone->qpn), 0);
  ASSERT_EQ(program.device->DestroyCq(gone_cq->cqn, nullptr), 0);
  program.Step();
  EXPECT_EQ(program.Violations(), "");
}

TEST_F(StrictQueueTest, WhatAnotherQueueRangIsServedThoughOneOfItsPageIsDestroyed) {
  auto gone = program.MakeQp(cq.get(), cq.get());
  qp->PostAndRing(Wqe().Eth(Bytes(18, 3)).Inline(Bytes(46, 4)));
  ASSERT_EQ(program.device->DestroyQp(gone->qpn), 0);
  program.Step();
  EXPECT_EQ(program.wire.sent.size(), 1u);
  EXPECT_EQ(program.Violations(), "");
}

TEST_F(StrictQueueTest, DoorbellOfAnotherQueueIsNoneOfAQueueInReset) {
  auto fresh = program.MakeQp(cq.get(), cq.get());
  ASSERT_EQ(program.device->ModifyQp(fresh->qpn, IBV_QPS_RESET), 0);
  qp->PostAndRing(Wqe().Eth(Bytes(18, 3)).Inline(Bytes(46, 4)));
  program.Step();
  EXPECT_EQ(program.Violations(), "");
}

TEST_F(StrictQueueTest, WhatWasRungBeforeItsQueueWasResetIsInOrder) {
  auto reset = program.MakeQp(cq.get(), cq.get());
  reset->PostAndRing(Wqe(kNop));
  ASSERT_EQ(program.device->ModifyQp(reset->qpn, IBV_QPS_RESET), 0);
  program.Step();
  EXPECT_EQ(program.Violations(), "");
}

TEST_F(StrictQueueTest, ArmOfADestroyedQueueIsFound) {
  auto gone = program.MakeCq();
  ASSERT_EQ(program.device->DestroyCq(gone->cqn, nullptr), 0);
  gone->Arm();
  program.Step();
  EXPECT_EQ(program.Violations(), "freed_queue");
}

TEST_F(StrictQueueTest, ArmOfWhatIsNoQueueOfThePageIsFound) {
  auto other = program.MakeCq();
  other->cqn += 100;
  other->Arm();
  program.Step();
  EXPECT_EQ(program.Violations(), "cq_arm");
}

TEST_F(StrictQueueTest, ArmThatTellsTheDeviceAnotherThingThanTheRecordIsFound) {
  cq->Arm();
  cq->record()[1] = __builtin_bswap32(1);  // The doorbell said 0, and a card goes by that.
  program.Step();
  EXPECT_EQ(program.Violations(), "cq_arm cq_consumer");
}

TEST_F(StrictQueueTest, EqualRuleWithAnotherTagIsRefusedAndSaid) {
  FlowRequest request;
  request.value.ether_type = 0x0800;
  request.mask.ether_type = 0xffff;
  request.tag = 1;
  request.qp = qp->qpn;
  uint32_t flow;
  ASSERT_EQ(program.device->CreateFlow(request, &flow), 0);
  request.tag = 2;
  EXPECT_EQ(program.device->CreateFlow(request, &flow), EEXIST);
  EXPECT_EQ(program.device->Violations().back(),
            "flow_tag: QP " + absl::StrFormat("%#x", qp->qpn) +
                ": tag 0x2 asked, an equal match has 0x1");
}

TEST_F(StrictQueueTest, VendorCodesAreThoseOfCardsInTheField) {
  Wqe wrong(kNop);
  wrong.index = 9;
  qp->Post(wrong);
  qp->PostAndRing(Wqe(kNop));
  program.Step();
  EXPECT_EQ(cq->Poll()->vendor_syndrome(), 0x68);
  EXPECT_EQ(cq->Poll()->vendor_syndrome(), 0xf9);
}

TEST_F(StrictQueueTest, DoorbellBeforeReadyToSendIsFound) {
  TestQp early(program.device.get(), program.pd, program.uar, cq.get(), cq.get(), {});
  ASSERT_EQ(program.device->ModifyQp(early.qpn, IBV_QPS_INIT), 0);
  early.PostAndRing(Wqe(kNop));
  program.Step();
  EXPECT_EQ(program.Violations(), "queue_state");
  EXPECT_FALSE(cq->Poll().has_value());
  ASSERT_EQ(program.device->DestroyQp(early.qpn), 0);
}

TEST(Strict, LenientDevicePunishesAndKeepsQuiet) {
  Device::Options options = TestProgram::DefaultOptions();
  options.strict = false;
  TestProgram program(options);
  auto cq = program.MakeCq();
  auto qp = program.MakeQp(cq.get(), cq.get());
  Wqe wrong(kNop);
  wrong.index = 9;
  qp->PostAndRing(wrong);
  program.Step();
  EXPECT_EQ(cq->Poll()->opcode(), kRequestError);
  EXPECT_EQ(program.Violations(), "");
}

}  // namespace
}  // namespace xtreme::connectx
