// SPDX-License-Identifier: Apache-2.0

#include "tools/connectx/device/receive_queue.h"

#include <gtest/gtest.h>

#include "tools/connectx/device/test_program.h"

namespace xtreme::connectx {
namespace {

class ReceiveQueueTest : public testing::Test {
 protected:
  void SetUp() override { Make(TestProgram::DefaultOptions()); }

  void Make(const Device::Options& options) {
    qp.reset();
    cq.reset();
    program = std::make_unique<TestProgram>(options);
    cq = program->MakeCq();
    qp = program->MakeQp(cq.get(), cq.get());
    FlowRequest all;
    all.priority = 1;  // Behind those that a test steers by.
    program->Steer(*qp, all);
  }

  void PostReceive(size_t at, uint32_t bytes = 2048) {
    qp->PostReceive({{program->keys.lkey, program->Address(at), bytes}});
  }

  // One frame in, its completion out.
  Cqe Receive(const Bytes& frame) {
    PostReceive(0);
    program->wire.Arrive(frame);
    program->Step();
    const std::optional<Cqe> cqe = cq->Poll();
    EXPECT_TRUE(cqe.has_value());
    return cqe.value_or(Cqe{Bytes(64, 0xff)});
  }

  Bytes Memory(size_t at, size_t bytes) const {
    return Bytes(program->memory.begin() + at, program->memory.begin() + at + bytes);
  }

  std::unique_ptr<TestProgram> program;
  std::unique_ptr<TestCq> cq;
  std::unique_ptr<TestQp> qp;
  const Bytes frame = MakeFrame({});
};

TEST_F(ReceiveQueueTest, FrameStandsInThePostedBufferAndNowhereElse) {
  const Cqe cqe = Receive(frame);
  EXPECT_EQ(cqe.opcode(), 2);
  EXPECT_EQ(cqe.byte_count(), frame.size());
  EXPECT_EQ(Memory(0, frame.size()), frame);
  EXPECT_EQ(program->memory[frame.size()], 0x5a);
}

TEST_F(ReceiveQueueTest, CompletionCarriesItsFieldsAtTheCardsOffsets) {
  program->clock.Advance(0x777);
  FlowRequest tagged;
  tagged.value.destination_port = 5000;
  tagged.mask.destination_port = 0xffff;
  tagged.value.ip_protocol = 17;
  tagged.mask.ip_protocol = 0xff;
  tagged.tag = 0x123456;
  program->Steer(*qp, tagged);
  const Cqe cqe = Receive(frame);
  Bytes golden(64, 0);
  const uint64_t time = program->device->CyclesAt(program->clock.Now());
  golden[28] = 1 | 2 | 4;
  golden[29] = 2 << 4 | 2 << 2;
  golden[33] = 0x0a, golden[34] = 0xbc, golden[35] = 0xde;
  golden[47] = static_cast<uint8_t>(frame.size());
  for (int i = 0; i < 8; ++i) golden[48 + i] = static_cast<uint8_t>(time >> (56 - 8 * i));
  golden[57] = 0x12, golden[58] = 0x34, golden[59] = 0x56;
  golden[63] = 2 << 4;
  EXPECT_EQ(cqe.bytes, golden);
}

TEST_F(ReceiveQueueTest, FrameIsScatteredOverTheListInOrder) {
  const uint32_t lkey = program->keys.lkey;
  qp->PostReceive({{lkey, program->Address(4096), 20}, {lkey, program->Address(0), 2000}});
  program->wire.Arrive(frame);
  program->Step();
  EXPECT_EQ(Memory(4096, 20), Bytes(frame.begin(), frame.begin() + 20));
  EXPECT_EQ(Memory(0, frame.size() - 20), Bytes(frame.begin() + 20, frame.end()));
}

TEST_F(ReceiveQueueTest, WqesAreUsedInOrderAndCountedOverTheRing) {
  for (uint16_t i = 0; i < 11; ++i) {
    const Cqe cqe = Receive(frame);
    EXPECT_EQ(cqe.wqe_counter(), i);
  }
}

TEST_F(ReceiveQueueTest, WithoutAWqeTheFrameIsCountedAndSilentlyDropped) {
  program->wire.Arrive(frame);
  program->Step();
  EXPECT_FALSE(cq->Poll().has_value());
  EXPECT_EQ(program->CounterValue("out_of_buffer"), 1u);
  EXPECT_EQ(program->Violations(), "");
  EXPECT_EQ(Receive(frame).wqe_counter(), 0);
}

// Which is why libmlx5 writes no record of a raw QP before RTR.
TEST_F(ReceiveQueueTest, QueueReceivesFromInitOn) {
  TestQp waiting(program->device.get(), program->pd, program->uar, cq.get(), cq.get(), {});
  FlowRequest request;
  request.value.source_ip = 0x0a000002;
  request.mask.source_ip = 0xffffffff;
  program->Steer(waiting, request);
  waiting.PostReceive({{program->keys.lkey, program->Address(0), 2048}});
  program->wire.Arrive(frame);
  program->Step();
  EXPECT_FALSE(cq->Poll().has_value()) << "in RESET";
  ASSERT_EQ(program->device->ModifyQp(waiting.qpn, IBV_QPS_INIT), 0);
  program->wire.Arrive(frame);
  program->Step();
  EXPECT_TRUE(cq->Poll().has_value());
}

TEST_F(ReceiveQueueTest, TimestampIsTheArrivalsInCyclesOfTheCoreClock) {
  Device::Options options = TestProgram::DefaultOptions();
  options.hca_core_clock_khz = 156'250;  // 6.4 ns.
  Make(options);
  program->clock.Advance(6'400'000'000);
  const uint64_t before = program->device->HardwareClock();
  program->clock.Advance(640);
  EXPECT_EQ(Receive(frame).timestamp(), before + 100);
}

TEST_F(ReceiveQueueTest, WithoutTheFeatureTimestampsAreZero) {
  Device::Options options = TestProgram::DefaultOptions();
  options.features.timestamps = false;
  Make(options);
  EXPECT_EQ(Receive(frame).timestamp(), 0u);
}

TEST_F(ReceiveQueueTest, WithoutTheFeatureChecksumsHaveNoVerdict) {
  Device::Options options = TestProgram::DefaultOptions();
  options.features.checksum_offload = false;
  Make(options);
  EXPECT_EQ(Receive(frame).checks(), 1);
}

TEST_F(ReceiveQueueTest, VerdictsAndHeaderTypesTellWhatArrived) {
  struct Row {
    const char* name;
    FrameSpec spec;
    uint8_t checks;
    uint8_t types;
  };
  const Row rows[] = {
      {"UDP", {}, 7, 2 << 4 | 2 << 2},
      {"wrong sums", {.checksums = false}, 1, 2 << 4 | 2 << 2},
      {"SYN", {.protocol = 6, .tcp_flags = 2}, 7, 1 << 4 | 2 << 2},
      {"bare ACK", {.protocol = 6, .tcp_flags = 0x10, .payload = ""}, 7, 3 << 4 | 2 << 2},
      {"TCP bytes", {.protocol = 6}, 7, 4 << 4 | 2 << 2},
      {"fragment", {.fragment = 0x2000}, 3, 2 << 2},
      {"ICMP", {.protocol = 1}, 3, 2 << 2},
      {"VLAN", {.vlan_tags = {0x81000064}}, 7, 2 << 4 | 2 << 2},
  };
  for (const Row& row : rows) {
    const Cqe cqe = Receive(MakeFrame(row.spec));
    EXPECT_EQ(cqe.checks(), row.checks) << row.name;
    EXPECT_EQ(cqe.header_types(), row.types) << row.name;
  }
}

TEST_F(ReceiveQueueTest, StrippedTagGoesFromTheFrameIntoTheCqe) {
  auto stripping = program->MakeQp(cq.get(), cq.get(), {.strip_vlan = true});
  FlowRequest vlan;
  vlan.value.ether_type = 0x0800;
  vlan.mask.ether_type = 0xffff;
  vlan.value.vlan_tci = 100;
  vlan.mask.vlan_tci = 0xfff;
  program->Steer(*stripping, vlan);
  const uint32_t lkey = program->keys.lkey;
  stripping->PostReceive({{lkey, program->Address(0), 8}, {lkey, program->Address(8), 2000}});
  program->wire.Arrive(MakeFrame({.vlan_tags = {0x81006064}}));
  program->Step();
  const Cqe cqe = *cq->Poll();
  EXPECT_EQ(cqe.byte_count(), frame.size());
  EXPECT_EQ(Memory(0, frame.size()), frame);
  EXPECT_EQ(cqe.vlan_info(), 0x6064);
  EXPECT_EQ(cqe.header_types() & 1, 1);
  EXPECT_EQ(cqe.checks(), 7);
}

TEST_F(ReceiveQueueTest, WhatIsNotACustomerTagIsNotStripped) {
  auto stripping = program->MakeQp(cq.get(), cq.get(), {.strip_vlan = true});
  program->Steer(*stripping);
  ASSERT_EQ(program->device->ModifyQp(qp->qpn, IBV_QPS_RESET), 0);
  for (const Bytes& whole : {MakeFrame({}), MakeFrame({.vlan_tags = {0x88a80064}})}) {
    stripping->PostReceive({{program->keys.lkey, program->Address(0), 2048}});
    program->wire.Arrive(whole);
    program->Step();
    const Cqe cqe = *cq->Poll();
    EXPECT_EQ(Memory(0, whole.size()), whole);
    EXPECT_EQ(cqe.vlan_info(), 0);
    EXPECT_EQ(cqe.header_types() & 1, 0);
  }
}

TEST_F(ReceiveQueueTest, FrameAboveTheMtuIsDiscardedByThePort) {
  const std::string payload(1500 - 28 + 1, 'x');
  PostReceive(0);
  program->wire.Arrive(MakeFrame({.payload = payload}));
  program->Step();
  EXPECT_FALSE(cq->Poll().has_value());
  EXPECT_EQ(program->CounterValue("port_rcv_errors"), 1u);
}

TEST_F(ReceiveQueueTest, FrameLongerThanTheListIsALocalLengthErrorAndTheQueueGoesOn) {
  PostReceive(0, 40);
  PostReceive(2048);
  program->wire.Arrive(frame);
  program->Step();
  const Cqe cqe = *cq->Poll();
  EXPECT_EQ(cqe.opcode(), 14);
  EXPECT_EQ(cqe.syndrome(), 1);
  EXPECT_EQ(cqe.wqe_counter(), 0);
  EXPECT_EQ(cqe.uidx(), 0xabcdeu);
  EXPECT_FALSE(cq->Poll().has_value()) << "nothing is flushed";
  program->wire.Arrive(frame);
  program->Step();
  EXPECT_EQ(cq->Poll()->wqe_counter(), 1);
  EXPECT_EQ(program->Violations(), "receive_length");
}

TEST_F(ReceiveQueueTest, WithoutAFreeRunningClockTimesAreThePhcsAndNoOthersCanBeAskedFor) {
  Device::Options options = TestProgram::DefaultOptions();
  options.features.free_running_clock = false;
  TestProgram real(options);
  auto plain = real.MakeCq();
  auto queues = real.MakeQp(plain.get(), plain.get());
  real.clock.Advance(3'000'000'042 - real.clock.Now());
  queues->PostAndRing(Wqe(0));
  real.Step();
  EXPECT_EQ(plain->Poll()->timestamp(), uint64_t{3} << 32 | 42);
  uint32_t record[2];
  alignas(64) uint8_t ring[256];
  uint32_t timed;
  ASSERT_EQ(real.device->CreateCq({.ring = ring,
                                   .entries = 4,
                                   .doorbell_record = record,
                                   .uar = real.uar.page_id,
                                   .timed = true},
                                  &timed),
            0);
  uint32_t number;
  EXPECT_EQ(real.device->CreateQp({.pd = real.pd,
                                   .send = {ring, 4, timed},
                                   .doorbell_record = record,
                                   .uar = real.uar.page_id},
                                  &number),
            EOPNOTSUPP);
  EXPECT_EQ(real.device->CreateWq({.pd = real.pd,
                                   .receive = {.ring = ring, .wqes = 4, .cq = timed},
                                   .doorbell_record = record},
                                  &number),
            EOPNOTSUPP);
}

TEST_F(ReceiveQueueTest, QueueInErrorFlushesWhatIsPostedThenAndLater) {
  PostReceive(0);
  PostReceive(2048);
  ASSERT_EQ(program->device->ModifyQp(qp->qpn, IBV_QPS_ERR), 0);
  program->Step();
  PostReceive(4096);
  EXPECT_LE(program->device->NextDeadline(), program->clock.Now() + 1'000'000);
  program->Step();
  for (uint16_t i = 0; i < 3; ++i) {
    const std::optional<Cqe> cqe = cq->Poll();
    ASSERT_TRUE(cqe.has_value());
    EXPECT_EQ(cqe->opcode(), 14);
    EXPECT_EQ(cqe->syndrome(), 5);
    EXPECT_EQ(cqe->wqe_counter(), i);
  }
}

TEST_F(ReceiveQueueTest, ResetStartsIndicesAnew) {
  Receive(frame);
  qp->Reset();
  qp->ToRts();
  program->wire.Arrive(frame);
  program->Step();
  EXPECT_EQ(program->CounterValue("out_of_buffer"), 1u);
  EXPECT_EQ(program->Violations(), "");
}

TEST_F(ReceiveQueueTest, PortCountsWordsAndKinds) {
  Receive(frame);
  Receive(MakeFrame({.destination_mac = {1, 0, 0x5e, 0, 0, 1}}));
  EXPECT_EQ(program->CounterValue("port_rcv_packets"), 2u);
  EXPECT_EQ(program->CounterValue("port_rcv_data"), 2 * frame.size() / 4);
  EXPECT_EQ(program->CounterValue("unicast_rcv_packets"), 1u);
  EXPECT_EQ(program->CounterValue("multicast_rcv_packets"), 1u);
}

}  // namespace
}  // namespace xtreme::connectx
