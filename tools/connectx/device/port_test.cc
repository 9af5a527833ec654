// SPDX-License-Identifier: Apache-2.0
//
// The port and the device as a whole: up and down, removal, the PTP hardware clock, personalities.

#include <gtest/gtest.h>

#include "tools/connectx/device/personality.h"
#include "tools/connectx/device/test_program.h"

namespace xtreme::connectx {
namespace {

using Events = std::vector<std::pair<ibv_event_type, uint64_t>>;

class PortTest : public testing::Test {
 protected:
  PortTest() { program.device->Subscribe(&sink); }
  ~PortTest() override { program.device->Unsubscribe(&sink); }

  void Send() {
    qp->PostAndRing(Wqe().Eth({}).Data(program.keys.lkey, program.Address(0), 100));
    program.Step();
  }

  TestProgram program;
  RecordingSink sink;
  std::unique_ptr<TestCq> cq = program.MakeCq();
  std::unique_ptr<TestQp> qp = program.MakeQp(cq.get(), cq.get());
};

TEST_F(PortTest, DownAndUpAreToldOnceEach) {
  program.Step();
  EXPECT_TRUE(sink.async.empty()) << "nobody is told what was before";
  program.device->SetPortUp(false);
  program.device->SetPortUp(false);
  program.Step();
  EXPECT_FALSE(program.device->Port().up);
  program.device->SetPortUp(true);
  EXPECT_TRUE(program.device->Port().up);
  EXPECT_EQ(sink.async, (Events{{IBV_EVENT_PORT_ERR, 1}, {IBV_EVENT_PORT_ACTIVE, 1}}));
}

TEST_F(PortTest, CableThatIsPulledTakesThePortDown) {
  program.wire.plugged = false;
  program.Step();
  EXPECT_EQ(sink.async, (Events{{IBV_EVENT_PORT_ERR, 1}}));
  program.device->SetPortUp(false);
  program.wire.plugged = true;
  program.Step();
  EXPECT_EQ(sink.async.size(), 1u) << "the administrator has it down as well";
  program.device->SetPortUp(true);
  EXPECT_EQ(sink.async.size(), 2u);
}

TEST_F(PortTest, NothingPassesAPortThatIsDownAndSendsComplete) {
  program.Steer(*qp);
  qp->PostReceive({{program.keys.lkey, program.Address(4096), 2048}});
  program.device->SetPortUp(false);
  Send();
  program.wire.Arrive(MakeFrame({}));
  program.Step();
  EXPECT_EQ(cq->Poll()->opcode(), 0);
  EXPECT_FALSE(cq->Poll().has_value());
  EXPECT_TRUE(program.wire.sent.empty());
  EXPECT_EQ(program.CounterValue("port_xmit_discards"), 1u);
  EXPECT_EQ(program.CounterValue("port_rcv_errors"), 1u);
}

TEST_F(PortTest, FollowsTheMtuOfAWireThatHasOne) {
  program.Steer(*qp);
  const auto send = [&](uint32_t bytes) {
    qp->PostAndRing(Wqe().Eth({}).Data(program.keys.lkey, program.Address(0), bytes));
    program.Step();
    return cq->Poll()->opcode();
  };
  EXPECT_EQ(program.device->Port().mtu, 1500u);
  program.wire.own_mtu = 4000;
  EXPECT_EQ(program.device->Port().mtu, 4000u);
  EXPECT_EQ(send(4014), 0);
  EXPECT_EQ(program.wire.sent.size(), 1u);
  program.wire.own_mtu = 1000;
  EXPECT_EQ(send(4014), 0) << "was right until now: the port drops it, and no queue fails";
  EXPECT_EQ(send(1014), 0);
  EXPECT_EQ(program.wire.sent.size(), 2u);
  EXPECT_EQ(program.CounterValue("port_xmit_discards"), 1u);
  const std::string payload(1000, 'p');
  program.wire.Arrive(MakeFrame({.payload = payload}));
  program.Step();
  EXPECT_EQ(program.CounterValue("port_rcv_errors"), 1u);
  EXPECT_EQ(program.Violations(), "");
  EXPECT_NE(send(4015), 0) << "was never right";
}

TEST_F(PortTest, RemovedDeviceTellsItOnceAndStandsStill) {
  program.device->Remove();
  program.device->Remove();
  EXPECT_EQ(sink.async, (Events{{IBV_EVENT_DEVICE_FATAL, 0}}));
  EXPECT_TRUE(program.device->removed());
  EXPECT_TRUE(program.device->Service()) << "something has happened";
  EXPECT_FALSE(program.device->Service());
  EXPECT_FALSE(program.device->Port().up);
  Send();
  EXPECT_FALSE(cq->Poll().has_value());
  EXPECT_EQ(program.device->NextDeadline(), kNoDeadline);
  EXPECT_EQ(program.device->DestroyQp(qp->qpn), 0) << "what there is can still be released";
}

// Its process has unmapped them by then: where a verb answers EIO, libmlx5 keeps the queue and
// programs go on, to the end of their memory and of the device.
TEST(PulledDeviceTest, ReadsNoBuffersWhenAQueueEndsThatHadRung) {
  Device::Options options = TestProgram::DefaultOptions();
  options.step = false;
  TestProgram program(options);
  auto cq = program.MakeCq();
  auto qp = program.MakeQp(cq.get(), cq.get());
  qp->PostAndRing(Wqe().Eth({}).Data(program.keys.lkey, program.Address(0), 100));
  program.device->Remove();
  EXPECT_EQ(program.device->DestroyQp(qp->qpn), 0);
  EXPECT_TRUE(program.wire.sent.empty());
  EXPECT_FALSE(cq->Poll().has_value());
}

TEST_F(PortTest, UnsubscribedHearsNothing) {
  program.device->Unsubscribe(&sink);
  program.device->SetPortUp(false);
  EXPECT_TRUE(sink.async.empty());
}

TEST_F(PortTest, PhcIsTheClockUntilItIsSteppedAndSteered) {
  Device& device = *program.device;
  const int64_t start_ns = program.clock.Now();
  EXPECT_EQ(device.PhcAt(start_ns), start_ns);
  device.AdjustPhc(37'000'000'000, 1'000);  // TAI, and 1 us a second fast.
  EXPECT_EQ(device.clock_adjustments(), 1u);
  EXPECT_EQ(device.PhcAt(start_ns), start_ns + 37'000'000'000);
  program.clock.Advance(2'000'000'000);
  EXPECT_EQ(device.PhcAt(program.clock.Now()), start_ns + 39'000'002'000);
  device.AdjustPhc(0, 0);
  program.clock.Advance(1'000'000'000);
  EXPECT_EQ(device.PhcAt(program.clock.Now()), start_ns + 40'000'002'000);
  EXPECT_EQ(device.HardwareClock(), device.CyclesAt(program.clock.Now())) << "runs freely";
}

TEST_F(PortTest, RealTimeQueueCarriesSecondsAndNanosecondsOfThePhc) {
  auto real_time = program.MakeCq(4, 64, /*real_time=*/true);
  auto paired = program.MakeQp(real_time.get(), cq.get());
  program.device->AdjustPhc(7'000'000'000 - program.clock.Now() + 42, 0);
  paired->PostAndRing(Wqe().Eth({}).Data(program.keys.lkey, program.Address(0), 100));
  program.Step();
  EXPECT_EQ(real_time->Poll()->timestamp(), uint64_t{7} << 32 | 42);
}

TEST(PersonalityTest, CardsDifferInWhatTheyNeedAndHave) {
  EXPECT_EQ(PersonalityNames().size(), 5u);
  EXPECT_FALSE(PersonalityNamed("cx3").has_value());
  const auto cx4lx = PersonalityNamed("cx4lx");
  const auto cx5 = PersonalityNamed("cx5");
  const auto cx7 = PersonalityNamed("cx7");
  const auto vf = PersonalityNamed("vf");
  ASSERT_TRUE(cx4lx && cx5 && cx7 && vf);
  EXPECT_EQ(cx4lx->eth_min_inline, Device::MinInline::kL2);
  EXPECT_EQ(cx4lx->limits.device_memory_bytes, 0u);
  EXPECT_EQ(cx5->eth_min_inline, Device::MinInline::kNone);
  EXPECT_FALSE(cx5->features.real_time_clock);
  EXPECT_TRUE(cx7->features.real_time_clock);
  EXPECT_FALSE(vf->features.blueflame);
  EXPECT_LT(vf->limits.flow_rules, cx5->limits.flow_rules);
}

TEST(PersonalityTest, EveryCardCanBeMade) {
  VirtualClock clock;
  ScriptedWire wire;
  for (std::string_view name : PersonalityNames()) {
    EXPECT_TRUE(Device::Create(*PersonalityNamed(name), &wire, &clock).ok()) << name;
  }
}

}  // namespace
}  // namespace xtreme::connectx
