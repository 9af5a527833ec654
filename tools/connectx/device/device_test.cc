// SPDX-License-Identifier: Apache-2.0

#include "tools/connectx/device/device.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <stop_token>
#include <thread>

#include "tools/connectx/device/test_program.h"

namespace xtreme::connectx {
namespace {

constexpr MacAddress kGroupMac = {0x01, 0, 0x5e, 1, 2, 3};

class DeviceTest : public testing::Test {
 protected:
  // A queue of `context` that wants UDP to port 5000 and has four buffers.
  std::unique_ptr<TestQp> Listener(TestCq* own_cq, ContextId context,
                                   SelfLoopback self_loopback = {}) {
    auto listener =
        program.MakeQp(own_cq, own_cq, {.context = context, .self_loopback = self_loopback});
    program.Steer(*listener, Port5000());
    for (int i = 0; i < 4; ++i) {
      listener->PostReceive({{program.keys.lkey, program.Address(8192 + i * 2048), 2048}});
    }
    return listener;
  }

  static FlowRequest Port5000() {
    FlowRequest request;
    request.value = {.ip_protocol = 17, .destination_port = 5000};
    request.mask = {.ip_protocol = 0xff, .destination_port = 0xffff};
    return request;
  }

  void Send(TestQp* from, const FrameSpec& spec) {
    const Bytes frame = MakeFrame(spec);
    std::copy(frame.begin(), frame.end(), program.memory.begin());
    from->PostAndRing(Wqe(0x0a, 0).Eth({}).Data(program.keys.lkey, program.Address(0),
                                                static_cast<uint32_t>(frame.size())));
    program.Step();
  }

  TestProgram program;
  Device& device = *program.device;
  std::unique_ptr<TestCq> cq = program.MakeCq();
  std::unique_ptr<TestCq> other_cq = program.MakeCq();
};

TEST_F(DeviceTest, OptionsOutsideTheirRangeAreNamed) {
  Device::Options options = TestProgram::DefaultOptions();
  options.mtu = 9979;
  const auto device = Device::Create(options, &program.wire, &program.clock);
  ASSERT_FALSE(device.ok());
  EXPECT_EQ(device.status().message(), "make mlx5_0: MTU 9979 asked, 576 to 9978 offered");
}

TEST_F(DeviceTest, OwnMulticastReachesOtherContextsAndTheWireAndNotItsSender) {
  const ContextId one = device.OpenContext();
  const ContextId two = device.OpenContext();
  auto sender = Listener(cq.get(), one);
  auto other = Listener(other_cq.get(), two);
  Send(sender.get(), {.destination_mac = kGroupMac});
  EXPECT_FALSE(cq->Poll().has_value());
  EXPECT_TRUE(other_cq->Poll().has_value());
  EXPECT_EQ(program.wire.sent.size(), 1u);
}

TEST_F(DeviceTest, UnicastToItselfStaysInTheCardAndReachesOtherContexts) {
  const ContextId one = device.OpenContext();
  const ContextId two = device.OpenContext();
  auto sender = Listener(cq.get(), one);
  auto other = Listener(other_cq.get(), two);
  Send(sender.get(), {});
  EXPECT_FALSE(cq->Poll().has_value());
  EXPECT_TRUE(other_cq->Poll().has_value());
  EXPECT_TRUE(program.wire.sent.empty());
}

TEST_F(DeviceTest, UnicastToItselfThatNobodyWantsIsTheWires) {
  device.OpenContext();
  const ContextId two = device.OpenContext();
  auto listener = Listener(cq.get(), two, {.unicast = true});
  Send(listener.get(), {.destination_port = 1});
  EXPECT_FALSE(cq->Poll().has_value());
  EXPECT_EQ(program.wire.sent.size(), 1u);
}

// Nobody is to be looped back to: the kernel has the card not look.
TEST_F(DeviceTest, UnicastToItselfOfTheOnlyContextIsTheWires) {
  const ContextId only = device.OpenContext();
  auto listener = Listener(cq.get(), only);
  Send(listener.get(), {});
  EXPECT_EQ(program.wire.sent.size(), 1u);
  device.OpenContext();
  Send(listener.get(), {});
  EXPECT_EQ(program.wire.sent.size(), 1u) << "a rule took it, whose queue takes none of its own";
  device.CloseContext();
  Send(listener.get(), {});
  EXPECT_EQ(program.wire.sent.size(), 2u);
  EXPECT_FALSE(cq->Poll().has_value());
}

TEST_F(DeviceTest, WhatAQueueTakesOfItsOwnContextIsWhatItAskedFor) {
  const ContextId only = device.OpenContext();
  for (const bool takes : {true, false}) {
    const SelfLoopback asked{.unicast = takes, .multicast = !takes};
    auto queue = program.MakeQp(cq.get(), cq.get(), {.context = only, .self_loopback = asked});
    const uint32_t flow = program.Steer(*queue, Port5000());
    for (int i = 0; i < 2; ++i) {
      queue->PostReceive({{program.keys.lkey, program.Address(8192), 2048}});
    }
    program.wire.sent.clear();
    Send(queue.get(), {});
    EXPECT_EQ(cq->Poll().has_value(), takes);
    EXPECT_TRUE(program.wire.sent.empty());
    Send(queue.get(), {.destination_mac = kGroupMac});
    EXPECT_EQ(cq->Poll().has_value(), !takes);
    EXPECT_EQ(program.wire.sent.size(), 1u);
    ASSERT_EQ(device.DestroyFlow(flow), 0);
    ASSERT_EQ(device.DestroyQp(queue->qpn), 0);
  }
  auto queue = Listener(cq.get(), only);
  program.wire.sent.clear();
  Send(queue.get(), {});
  EXPECT_EQ(program.wire.sent.size(), 1u) << "those that asked are gone";
}

TEST_F(DeviceTest, MulticastFromTheWireReachesEveryHolder) {
  auto one = Listener(cq.get(), 1);
  auto two = Listener(other_cq.get(), 2);
  program.wire.Arrive(MakeFrame({.destination_mac = kGroupMac}));
  program.Step();
  EXPECT_TRUE(cq->Poll().has_value());
  EXPECT_TRUE(other_cq->Poll().has_value());
  EXPECT_FALSE(cq->Poll().has_value());
}

TEST_F(DeviceTest, FrameWithoutARuleIsCountedAsMissed) {
  auto listener = Listener(cq.get(), 1);
  program.wire.Arrive(MakeFrame({.destination_port = 1}));
  program.Step();
  EXPECT_FALSE(cq->Poll().has_value());
  EXPECT_EQ(program.CounterValue("rx_steer_missed_packets"), 1u);
}

TEST_F(DeviceTest, SnifferSeesBothDirections) {
  auto sniffer = program.MakeQp(cq.get(), cq.get());
  FlowRequest request;
  request.type = IBV_FLOW_ATTR_SNIFFER;
  request.qp = sniffer->qpn;
  uint32_t flow;
  ASSERT_EQ(device.CreateFlow(request, &flow), 0);
  for (int i = 0; i < 2; ++i) {
    sniffer->PostReceive({{program.keys.lkey, program.Address(4096), 2048}});
  }
  auto sender = program.MakeQp(other_cq.get(), other_cq.get());
  Send(sender.get(), {.destination_mac = {2, 0, 0, 0, 0, 9}});
  program.wire.Arrive(MakeFrame({}));
  program.Step();
  EXPECT_EQ(cq->Poll()->checks(), 7);
  EXPECT_EQ(cq->Poll()->checks(), 7);
}

TEST_F(DeviceTest, RuleIsOnTheWireAsLongAsOnTheDevice) {
  auto qp = program.MakeQp(cq.get(), cq.get());
  FlowRequest request = Port5000();
  request.value.destination_ip = 0x0a0000ff;
  request.mask.destination_ip = 0xffffff00;
  request.value.vlan_tci = 0xe007;
  request.mask.vlan_tci = 0xffff;
  request.dont_trap = true;
  const uint32_t flow = program.Steer(*qp, request);
  WireRule expected;
  expected.dont_trap = true;
  expected.vlan = 7;
  expected.dst_ip = 0x0a000000;
  expected.dst_ip_mask = 0xffffff00;
  expected.protocol = 17;
  expected.dst_port = 5000;
  ASSERT_EQ(program.wire.rules.size(), 1u);
  EXPECT_EQ(program.wire.rules[0], expected);
  EXPECT_EQ(device.DestroyFlow(flow), 0);
  EXPECT_TRUE(program.wire.rules.empty());
  EXPECT_EQ(device.DestroyFlow(flow), EINVAL);
}

TEST_F(DeviceTest, RuleThatTheWireRefusesIsNotOnTheDeviceEither) {
  auto qp = program.MakeQp(cq.get(), cq.get());
  program.wire.refuses_rules = true;
  FlowRequest request = Port5000();
  request.qp = qp->qpn;
  uint32_t flow;
  EXPECT_EQ(device.CreateFlow(request, &flow), EIO);
  EXPECT_EQ(device.DestroyQp(qp->qpn), 0) << "no rule points at it";
}

TEST_F(DeviceTest, WhatADroppingRuleMatchesIsCountedAndReachesNobody) {
  auto qp = program.MakeQp(cq.get(), cq.get());
  for (int i = 0; i < 2; ++i) qp->PostReceive({{program.keys.lkey, program.Address(0), 2048}});
  program.Steer(*qp, {.priority = 1});
  uint32_t counter;
  ASSERT_EQ(device.CreateFlowCounter(&counter), 0);
  FlowRequest drop = Port5000();
  drop.drop = true;
  drop.qp = qp->qpn;
  drop.counter = counter + 1;
  uint32_t flow;
  EXPECT_EQ(device.CreateFlow(drop, &flow), EINVAL) << "no such counter";
  drop.counter = counter;
  ASSERT_EQ(device.CreateFlow(drop, &flow), 0);
  EXPECT_EQ(program.wire.rules.size(), 2u) << "a kernel does not get it either";
  const Bytes frame = MakeFrame({});
  program.wire.Arrive(frame);
  program.wire.Arrive(MakeFrame({.destination_port = 1}));
  program.Step();
  EXPECT_EQ(cq->Poll()->byte_count(), MakeFrame({.destination_port = 1}).size());
  EXPECT_FALSE(cq->Poll().has_value());
  EXPECT_EQ(device.DestroyFlowCounter(counter), EBUSY);
  FlowCount count;
  ASSERT_EQ(device.ReadFlowCounter(counter, &count), 0);
  EXPECT_EQ(count.packets, 1u);
  EXPECT_EQ(count.bytes, frame.size());
  ASSERT_EQ(device.DestroyFlow(flow), 0);
  EXPECT_EQ(device.DestroyFlowCounter(counter), 0);
  EXPECT_EQ(device.ReadFlowCounter(counter, &count), EINVAL);
}

TEST_F(DeviceTest, RuleNoWireCouldHaveIsRefused) {
  auto qp = program.MakeQp(cq.get(), cq.get());
  FlowRequest request = Port5000();
  request.qp = qp->qpn;
  request.mask.ether_type = 0xff00;
  uint32_t flow;
  EXPECT_EQ(device.CreateFlow(request, &flow), EOPNOTSUPP);
  request = Port5000();
  request.qp = 0x999;
  EXPECT_EQ(device.CreateFlow(request, &flow), EINVAL);
}

TEST_F(DeviceTest, ObjectsInUseCannotBeDestroyed) {
  auto qp = program.MakeQp(cq.get(), cq.get());
  const uint32_t flow = program.Steer(*qp);
  EXPECT_EQ(device.DestroyQp(qp->qpn), EBUSY);
  EXPECT_EQ(device.DestroyCq(cq->cqn, nullptr), EBUSY);
  EXPECT_EQ(device.FreeUar(program.uar.page_id), EBUSY);
  EXPECT_EQ(device.FreePd(program.pd), EBUSY);
  EXPECT_EQ(device.DestroyFlow(flow), 0);
  EXPECT_EQ(device.DestroyQp(qp->qpn), 0);
  EXPECT_EQ(device.FreeUar(program.uar.page_id), EBUSY) << "completion queues arm by it";
  EXPECT_EQ(device.DestroyCq(cq->cqn, nullptr), 0);
  EXPECT_EQ(device.DestroyCq(other_cq->cqn, nullptr), 0);
  EXPECT_EQ(device.FreeUar(program.uar.page_id), 0);
  EXPECT_EQ(device.FreePd(program.pd), EBUSY) << "a region is left";
  EXPECT_EQ(device.DeregisterMemory(program.keys.lkey), 0);
  EXPECT_EQ(device.FreePd(program.pd), 0);
}

TEST_F(DeviceTest, NumbersOfDestroyedObjectsNameNothing) {
  auto qp = program.MakeQp(cq.get(), cq.get());
  ASSERT_EQ(device.DestroyQp(qp->qpn), 0);
  EXPECT_EQ(device.DestroyQp(qp->qpn), EINVAL);
  EXPECT_EQ(device.ModifyQp(qp->qpn, IBV_QPS_INIT), EINVAL);
  auto next = program.MakeQp(cq.get(), cq.get());
  EXPECT_NE(next->qpn, qp->qpn);
}

TEST_F(DeviceTest, DestroyedQueueIsNeverTouchedAgain) {
  auto qp = program.MakeQp(cq.get(), cq.get());
  qp->Post(Wqe(0));
  qp->Ring();
  ASSERT_EQ(device.DestroyQp(qp->qpn), 0);
  qp.reset();  // As libmlx5 frees it: the address sanitizer watches.
  program.Step();
  EXPECT_FALSE(cq->Poll().has_value());
}

TEST_F(DeviceTest, StatesFollowEachOther) {
  TestQp qp(&device, program.pd, program.uar, cq.get(), cq.get(), {});
  EXPECT_EQ(device.ModifyQp(qp.qpn, IBV_QPS_RTS), EINVAL);
  EXPECT_EQ(device.ModifyQp(qp.qpn, IBV_QPS_RTR), EINVAL);
  EXPECT_EQ(device.ModifyQp(qp.qpn, IBV_QPS_INIT), 0);
  EXPECT_EQ(device.ModifyQp(qp.qpn, IBV_QPS_RTS), EINVAL);
  EXPECT_EQ(device.ModifyQp(qp.qpn, IBV_QPS_RTR), 0);
  EXPECT_EQ(device.ModifyQp(qp.qpn, IBV_QPS_RTS), 0);
  EXPECT_EQ(device.ModifyQp(qp.qpn, IBV_QPS_INIT), EINVAL);
  QpAttributes attributes;
  ASSERT_EQ(device.QueryQp(qp.qpn, &attributes), 0);
  EXPECT_EQ(attributes.state, IBV_QPS_RTS);
  EXPECT_EQ(attributes.send_wqebbs, 8u);
  EXPECT_EQ(attributes.receive_wqes, 4u);
  EXPECT_EQ(attributes.receive_sges, 2u);
  EXPECT_EQ(device.ModifyQp(qp.qpn, IBV_QPS_ERR), 0);
  EXPECT_EQ(device.ModifyQp(qp.qpn, IBV_QPS_RTS), EINVAL);
  EXPECT_EQ(device.ModifyQp(qp.qpn, IBV_QPS_RESET), 0);
}

TEST_F(DeviceTest, MalformedRequestsAreRefused) {
  uint32_t number;
  uint32_t record[2] = {};
  uint8_t ring[256];
  CqRequest cq_request{
      .ring = ring, .entries = 3, .doorbell_record = record, .uar = program.uar.page_id};
  EXPECT_EQ(device.CreateCq(cq_request, &number), EINVAL) << "not a power of two";
  cq_request.entries = 4;
  cq_request.cqe_size = 32;
  EXPECT_EQ(device.CreateCq(cq_request, &number), EINVAL) << "CQE of 32 bytes";
  cq_request.cqe_size = 64;
  cq_request.uar = 999;
  EXPECT_EQ(device.CreateCq(cq_request, &number), EINVAL) << "no such UAR";
  QpRequest qp_request{.pd = program.pd,
                       .send = {ring, 4, cq->cqn},
                       .doorbell_record = record,
                       .uar = program.uar.page_id};
  qp_request.send.cq = 1;
  EXPECT_EQ(device.CreateQp(qp_request, &number), EINVAL) << "no such CQ";
  qp_request.send.cq = cq->cqn;
  qp_request.uidx = 1 << 24;
  EXPECT_EQ(device.CreateQp(qp_request, &number), EINVAL) << "uidx of 25 bits";
  MemoryKeys keys;
  EXPECT_EQ(device.RegisterMemory({.pd = program.pd, .length = 1}, &keys), EINVAL) << "none";
  EXPECT_EQ(device.RegisterMemory({.pd = 1, .start = ring, .length = 1}, &keys), EINVAL);
  EXPECT_EQ(device.DeregisterMemory(0x100), EINVAL) << "the terminator is no key";
}

TEST_F(DeviceTest, LimitsAreKept) {
  Device::Options options = TestProgram::DefaultOptions();
  options.limits = {.qps = 1, .cqs = 1, .uars = 1, .memory_regions = 1};
  TestProgram small(options);
  Uar uar;
  EXPECT_EQ(small.device->AllocUar(UarType::kBlueFlame, &uar), ENOMEM);
  auto only = small.MakeCq();
  uint32_t record[2];
  uint8_t ring[64];
  uint32_t cqn;
  EXPECT_EQ(
      small.device->CreateCq(
          {.ring = ring, .entries = 1, .doorbell_record = record, .uar = small.uar.page_id}, &cqn),
      ENOMEM);
  MemoryKeys keys;
  EXPECT_EQ(small.device->RegisterMemory({.pd = small.pd, .start = ring, .length = 1}, &keys),
            ENOMEM);
}

TEST_F(DeviceTest, WithoutBlueFlameThereIsNoPageForIt) {
  Device::Options options = TestProgram::DefaultOptions();
  options.features.blueflame = false;
  TestProgram plain(options);
  Uar uar;
  EXPECT_EQ(plain.device->AllocUar(UarType::kBlueFlame, &uar), EOPNOTSUPP);
}

TEST_F(DeviceTest, FreedUarPageComesBackZeroed) {
  Uar first;
  ASSERT_EQ(device.AllocUar(UarType::kBlueFlame, &first), 0);
  first.page[0x800] = 1;
  ASSERT_EQ(device.FreeUar(first.page_id), 0);
  Uar second;
  ASSERT_EQ(device.AllocUar(UarType::kBlueFlame, &second), 0);
  EXPECT_EQ(second.page[0x800], 0);
  EXPECT_EQ(second.page, device.uar_memory().data() + second.offset);
}

TEST_F(DeviceTest, SpreadSendsAFlowToTheQueueOfItsHash) {
  constexpr int kQueues = 2;
  uint32_t records[kQueues][2] = {};
  Bytes rings[kQueues] = {Bytes(16), Bytes(16)};
  uint32_t rqns[kQueues];
  TestCq* cqs[kQueues] = {cq.get(), other_cq.get()};
  for (int i = 0; i < kQueues; ++i) {
    const WqRequest request{.pd = program.pd,
                            .receive = {rings[i].data(), 1, 4, cqs[i]->cqn},
                            .doorbell_record = records[i]};
    ASSERT_EQ(device.CreateWq(request, &rqns[i]), 0);
    ASSERT_EQ(device.ModifyWq(rqns[i], IBV_WQS_RDY), 0);
    const uint32_t piece[4] = {htobe32(2048), htobe32(program.keys.lkey), 0,
                               htobe32(static_cast<uint32_t>(program.Address(2048)))};
    std::memcpy(rings[i].data(), piece, sizeof(piece));
    records[i][0] = htobe32(1);
  }
  uint32_t table;
  ASSERT_EQ(device.CreateIndirectionTable(rqns, &table), 0);
  // The key's bit 38 alone: the hash's last bit is bit 7 of the input, which is 0x0100 of the port.
  RssQpRequest rss{.indirection_table = table, .fields = IBV_RX_HASH_DST_PORT_UDP};
  rss.key[4] = 1 << 1;
  uint32_t qpn;
  ASSERT_EQ(device.CreateRssQp(rss, &qpn), 0);
  FlowRequest request;
  request.type = IBV_FLOW_ATTR_ALL_DEFAULT;
  request.qp = qpn;
  uint32_t flow;
  ASSERT_EQ(device.CreateFlow(request, &flow), 0);
  EXPECT_EQ(device.DestroyWq(rqns[0]), EBUSY);
  EXPECT_EQ(device.DestroyIndirectionTable(table), EBUSY);
  program.wire.Arrive(MakeFrame({.destination_port = 0x0100}));
  program.wire.Arrive(MakeFrame({.destination_port = 0x0000}));
  program.Step();
  EXPECT_TRUE(cq->Poll().has_value());
  EXPECT_TRUE(other_cq->Poll().has_value());
  EXPECT_EQ(device.DestroyFlow(flow), 0);
  EXPECT_EQ(device.DestroyQp(qpn), 0);
  EXPECT_EQ(device.DestroyIndirectionTable(table), 0);
  for (uint32_t rqn : rqns) EXPECT_EQ(device.DestroyWq(rqn), 0);
}

// A spinning pump takes its lock again at once: control calls must get through all the same, and
// what they destroy must be left alone from then on.
TEST(DeviceThreads, ControlCallsGetThroughASpinningPump) {
  Device::Options options = TestProgram::DefaultOptions();
  options.step = false;
  TestProgram program(options);
  std::jthread pump([&](std::stop_token stop) {
    while (!stop.stop_requested()) program.device->Service();
  });
  for (int i = 0; i < 200; ++i) {
    auto cq = program.MakeCq();
    auto qp = program.MakeQp(cq.get(), cq.get());
    const uint32_t flow = program.Steer(*qp);
    EXPECT_EQ(program.device->DestroyFlow(flow), 0);
    EXPECT_EQ(program.device->DestroyQp(qp->qpn), 0);
    EXPECT_EQ(program.device->DestroyCq(cq->cqn, nullptr), 0);
  }
}

// The program and the pump on two threads: every frame arrives once, whole and in order.
TEST(DeviceThreads, FramesToItselfArriveInOrder) {
  constexpr uint32_t kFrames = 5000;
  Device::Options options = TestProgram::DefaultOptions();
  options.step = false;
  TestProgram program(options);
  auto send_cq = program.MakeCq();
  auto cq = program.MakeCq();
  auto qp = program.MakeQp(send_cq.get(), cq.get(), {.self_loopback = {.unicast = true}});
  program.Steer(*qp);
  Bytes frame = MakeFrame({});
  std::jthread pump([&](std::stop_token stop) {
    while (!stop.stop_requested()) {
      if (!program.device->Service()) std::this_thread::yield();
    }
  });
  for (uint32_t i = 0; i < kFrames; ++i) {
    std::memcpy(frame.data() + frame.size() - sizeof(i), &i, sizeof(i));
    std::copy(frame.begin(), frame.end(), program.memory.begin());
    qp->PostReceive({{program.keys.lkey, program.Address(4096), 2048}});
    qp->Post(Wqe().Eth({}).Data(program.keys.lkey, program.Address(0),
                                static_cast<uint32_t>(frame.size())));
    qp->Ring(static_cast<int>(i % 4));
    std::optional<Cqe> cqe;
    while (!(cqe = cq->Poll()).has_value()) std::this_thread::yield();
    ASSERT_EQ(cqe->wqe_counter(), static_cast<uint16_t>(i));
    ASSERT_TRUE(std::equal(frame.begin(), frame.end(), program.memory.begin() + 4096));
    while (!send_cq->Poll().has_value()) std::this_thread::yield();
  }
  EXPECT_EQ(program.Violations(), "");
}

}  // namespace
}  // namespace xtreme::connectx
