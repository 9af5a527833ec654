// SPDX-License-Identifier: Apache-2.0
//
// Bring-up that fails: every call that it makes is refused in turn, and nothing is left behind.

#include "xtreme/mlx5/bring_up.h"

#include <poll.h>

#include <array>
#include <cerrno>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/mlx5/nic_testing.h"
#include "tests/mlx5/test_devices.h"

extern "C" {
__attribute__((weak)) void __lsan_disable();
__attribute__((weak)) void __lsan_enable();
}

namespace xtreme::mlx5 {
namespace {

using connectx::SoftwareConnectX;
using connectx::UdpFrame;
using testing::HasSubstr;

class BringUpTest : public testing::TestWithParam<TestDevice> {
 protected:
  void TearDown() override { connectx_.ExpectClean(); }
  std::string Message(const nic::QueuePairOptions& options) {
    const auto made = nic_->CreateQueuePair(options, pool_.get());
    EXPECT_FALSE(made.ok());
    return std::string(made.status().message());
  }

  connectx::ConnectXRig connectx_{SoftwareConnectX::Mode::kStep, {}, GetParam().options};
  packet::BufferPool::Handle pool_ = MakePool();
  std::unique_ptr<Nic> nic_;
};

INSTANTIATE_TEST_SUITE_P(Devices, BringUpTest, testing::ValuesIn(TestDevices()), DeviceName);

struct FailingStep {
  const char* command;
  const char* says;
};

TEST_P(BringUpTest, EachStepThatFailsNamesItselfAndLeavesNothing) {
  nic_ = OpenPort(PortOptions("mlx5_0"));
  const connectx::LiveObjects before = connectx_->live_objects();
  for (const FailingStep& step : {
           FailingStep{"REG_MR", "register memory: 2097152 bytes asked"},
           FailingStep{"CREATE_COMP_CHANNEL", "create a completion channel"},
           FailingStep{"CREATE_CQ", "create receive CQ: 1024 CQEs asked, device max"},
           FailingStep{"CREATE_QP", "create QP: 4096 WQEBBs and 1024 receive WQEs asked"},
           FailingStep{"MODIFY_QP", "bring QP to INIT on mlx5_0 port 1"},
       }) {
    ASSERT_TRUE(connectx_->FailNext(step.command, EIO));
    const std::string message = Message({.interrupts = true});
    EXPECT_THAT(message, HasSubstr(step.says));
    EXPECT_THAT(message, HasSubstr("errno 5"));
    connectx::LiveObjects after = connectx_->live_objects();
    // libmlx5 keeps doorbell pages for the next thread domain until the device is closed.
    after.uars = before.uars;
    EXPECT_EQ(after, before) << step.command;
  }
  EXPECT_TRUE(nic_->CreateQueuePair({.interrupts = true}, pool_.get()).ok());
  nic_.reset();
}

TEST_P(BringUpTest, AnyCallMayFailWithoutLeavingObjects) {
  // A destroy that is refused leaks libmlx5's own copy of the object: not ours to free.
  if (__lsan_disable != nullptr) __lsan_disable();
  const auto bring_up = [&] {
    auto nic = Nic::Open(PortOptions("mlx5_0"));
    if (!nic.ok()) return false;
    const auto memory = (*nic)->Register(pool_->region(), pool_->region_bytes());
    auto queues = (*nic)->CreateQueuePair({.device_memory_bytes = 8'192, .interrupts = true},
                                          pool_.get());
    if (!queues.ok()) return false;
    (*nic)->SetRate(queues->get(), {.bytes_per_second = 1'000'000}).IgnoreError();
    (*nic)->SetModeration(queues->get(), {.completions = 4, .microseconds = 4}).IgnoreError();
    const auto rule = (*nic)->AddRule(UdpRule(5000), queues->get());
    return rule.ok() && memory.ok();
  };
  const uint64_t before = connectx_->calls();
  EXPECT_TRUE(bring_up());
  const uint64_t calls = connectx_->calls() - before;
  EXPECT_GT(calls, 15u);
  for (uint64_t i = 0; i < calls; ++i) {
    connectx_->FailAfter(i, EIO);
    bring_up();
    EXPECT_EQ(connectx_->live_objects(), connectx::LiveObjects{}) << "call " << i;
  }
  if (__lsan_enable != nullptr) __lsan_enable();
}

// It is an offer: what cannot be used is given back, and frames are gathered.
TEST_P(BringUpTest, OnDeviceMemoryThatCannotBeRegisteredIsDoneWithout) {
  nic_ = OpenPort(PortOptions("mlx5_0"));
  const nic::QueuePairOptions options{.device_memory_bytes = 8'192};
  const bool offered = (*nic_->CreateQueuePair(options, pool_.get()))
                           ->capabilities().device_memory_bytes != 0;
  ASSERT_TRUE(connectx_->FailNext("REG_DM_MR", EOPNOTSUPP));
  auto queues = nic_->CreateQueuePair(options, pool_.get());
  ASSERT_TRUE(queues.ok()) << queues.status();
  EXPECT_EQ((*queues)->capabilities().device_memory_bytes, 0u);
  EXPECT_EQ(connectx_->live_objects().device_memories, 0u);
  if (offered) {
    EXPECT_THAT((*queues)->capabilities().ToString(),
                HasSubstr("on-device memory: register 8192 bytes"));
  }
  queues->reset();
  nic_.reset();
}

TEST_P(BringUpTest, WithoutADoorbellRegisterOfItsOwnItRingsAndSaysSo) {
  nic_ = OpenPort(PortOptions("mlx5_0"));
  ASSERT_TRUE(connectx_->FailNext("ALLOC_UAR", EOPNOTSUPP));
  auto queues = nic_->CreateQueuePair({}, pool_.get());
  ASSERT_TRUE(queues.ok()) << queues.status();
  EXPECT_FALSE((*queues)->capabilities().blueflame);
  EXPECT_THAT((*queues)->capabilities().ToString(),
              testing::ContainsRegex("lacking: .*a doorbell register"));
  queues->reset();
  nic_.reset();
}

// What the kernel pins for the rings, and whom it lets have raw queues, is the administrator's to
// change: the message says what is to be changed.
TEST_P(BringUpTest, RefusalsThatAnAdministratorCanEndSayHow) {
  nic_ = OpenPort(PortOptions("mlx5_0"));
  for (const char* command : {"CREATE_CQ", "CREATE_QP"}) {
    ASSERT_TRUE(connectx_->FailNext(command, ENOMEM));
    EXPECT_THAT(Message({}), HasSubstr("RLIMIT_MEMLOCK is")) << command;
  }
  ASSERT_TRUE(connectx_->FailNext("CREATE_QP", EPERM));
  EXPECT_THAT(Message({}), HasSubstr("needs CAP_NET_RAW"));
  nic_.reset();
}

TEST_P(BringUpTest, WhenRegistersRunOutTheErrorSaysSoAndNothingIsLeft) {
  nic_ = OpenPort(PortOptions("mlx5_0"));
  const connectx::LiveObjects before = connectx_->live_objects();
  ASSERT_TRUE(connectx_->FailNext("ALLOC_UAR", ENOMEM));
  const auto made = nic_->CreateQueuePair({}, pool_.get());
  EXPECT_EQ(made.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(made.status().message()),
              testing::AllOf(HasSubstr("doorbell register (UAR) on mlx5_0"),
                             HasSubstr("none is left")));
  EXPECT_EQ(connectx_->live_objects(), before);
  nic_.reset();
}

TEST_P(BringUpTest, EachQueuePairHasADoorbellRegisterOfItsOwn) {
  nic_ = OpenPort(PortOptions("mlx5_0"));
  auto first = nic_->CreateQueuePair({}, pool_.get());
  auto second = nic_->CreateQueuePair({}, pool_.get());
  ASSERT_TRUE(first.ok() && second.ok());
  const auto reg = [](nic::QueuePair* pair) {
    mlx5dv_qp direct{};
    mlx5dv_obj object{.qp = {static_cast<QueuePair*>(pair)->verbs_qp(), &direct}};
    EXPECT_EQ(mlx5dv_init_obj(&object, MLX5DV_OBJ_QP), 0);
    return direct.bf.reg;
  };
  // Without BlueFlame libmlx5 has one page for all: the driver then writes no WQE to it.
  EXPECT_EQ(reg(first->get()) != reg(second->get()), GetParam().options.features.blueflame);
  first->reset();
  second->reset();
  nic_.reset();
}

TEST_P(BringUpTest, OptionsOutOfRangeAreRefusedWithTheRange) {
  nic_ = OpenPort(PortOptions("mlx5_0"));
  EXPECT_THAT(Message({.send_queue_frames = 1000}),
              HasSubstr("send queue: 1000 frames asked, powers of two from 8 to 32768"));
  EXPECT_THAT(Message({.receive_queue_frames = 4}), HasSubstr("receive queue: 4 frames asked"));
  EXPECT_THAT(Message({.signal_every = 0}), HasSubstr("every 0 frames"));
  nic_.reset();
}

TEST_P(BringUpTest, QueuesOfTheGreatestLengthAreAsLongAsTheCountersAllow) {
  nic_ = OpenPort(PortOptions("mlx5_0"));
  const auto large = MakePool(32'768 + 64, 2048);
  auto queues = nic_->CreateQueuePair(
      {.send_queue_frames = 32'768, .receive_queue_frames = 32'768}, large.get());
  ASSERT_TRUE(queues.ok()) << queues.status();
  const nic::Capabilities& got = (*queues)->capabilities();
  EXPECT_EQ(got.receive_queue_frames, 32'768u);
  EXPECT_EQ(got.send_queue_frames, 8'192u) << "a frame takes up to four WQEBBs";
  EXPECT_EQ((*queues)->Refill(), 32'768u);
  queues->reset();
  EXPECT_EQ(large->free_count(), 32'768u + 64);
  nic_.reset();
}

TEST_P(BringUpTest, BuffersSmallerThanTheMtuAreRefused) {
  nic_ = OpenPort(PortOptions("mlx5_0", /*mtu=*/9000));
  EXPECT_THAT(Message({}), HasSubstr("buffers of 2048 bytes asked, MTU 9000 needs 9018"));
  const auto large = MakePool(1024, 9024 + 64 - 9024 % 64);
  EXPECT_TRUE(nic_->CreateQueuePair({}, large.get()).ok());
  nic_.reset();
}

TEST_P(BringUpTest, PostedBuffersGoBackToThePool) {
  nic_ = OpenPort(PortOptions("mlx5_0"));
  const uint32_t free = pool_->free_count();
  auto queues = nic_->CreateQueuePair({.receive_queue_frames = 64}, pool_.get());
  ASSERT_TRUE(queues.ok());
  EXPECT_EQ((*queues)->Refill(), 64u);
  EXPECT_EQ(pool_->free_count(), free - 64);
  queues->reset();
  EXPECT_EQ(pool_->free_count(), free);
  nic_.reset();
}

TEST_P(BringUpTest, ArmedQueueWakesItsDescriptorOnceAnArm) {
  TestPort a("mlx5_0");
  TestPort b("mlx5_1", {.interrupts = true});
  const auto rule = b.nic->AddRule(UdpRule(5000), b.queues.get());
  ASSERT_TRUE(rule.ok());
  b.queues->Refill();
  const auto frame = UdpFrame(5000, "wake");
  const auto readable = [&] {
    pollfd fd{.fd = b.queues->fd(), .events = POLLIN};
    return poll(&fd, 1, 0) == 1;
  };
  for (int lap = 0; lap < 6; ++lap) {
    b.queues->Arm(/*for_send=*/false);
    EXPECT_FALSE(readable()) << lap;
    for (int i = 0; i < 2; ++i) {
      ASSERT_EQ(a.Send(frame), nic::TxStatus::kPosted);
      while (connectx_->Step()) {
      }
    }
    EXPECT_TRUE(readable()) << lap;
    b.queues->AcknowledgeEvents();
    EXPECT_FALSE(readable()) << lap;
    EXPECT_EQ(b.Receive().size(), 2u);
  }
}

TEST_P(BringUpTest, RulesMapTheDevicesRefusals) {
  TestPort b("mlx5_1");
  nic::FlowRule rule = UdpRule(5000);
  rule.tag = 1;
  const auto first = b.nic->AddRule(rule, b.queues.get());
  ASSERT_TRUE(first.ok());
  rule.tag = 2;
  EXPECT_EQ(b.nic->AddRule(rule, b.queues.get()).status().code(),
            absl::StatusCode::kAlreadyExists);
  connectx_.ExpectViolation("flow_tag");
  rule = UdpRule(5001);
  ASSERT_TRUE(connectx_->FailNext("CREATE_FLOW", ENOMEM));
  EXPECT_EQ(b.nic->AddRule(rule, b.queues.get()).status().code(),
            absl::StatusCode::kResourceExhausted);
  rule.share_with_kernel = true;
  ASSERT_TRUE(connectx_->FailNext("CREATE_FLOW", EOPNOTSUPP));
  const auto refused = b.nic->AddRule(rule, b.queues.get());
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(refused.status().message()),
              HasSubstr("does not share frames with the kernel"));
}

TEST(BringUpWithoutPrivilegeTest, TheMissingCapabilityIsNamed) {
  connectx::Device::Options options = *connectx::PersonalityNamed("cx7");
  ASSERT_TRUE(connectx::TakeCapability("net_raw", &options));
  connectx::ConnectXRig connectx{SoftwareConnectX::Mode::kStep, {}, options};
  const auto pool = MakePool();
  auto nic = OpenPort(PortOptions("mlx5_0"));
  const auto queues = nic->CreateQueuePair({}, pool.get());
  EXPECT_EQ(queues.status().code(), absl::StatusCode::kPermissionDenied) << queues.status();
  EXPECT_THAT(std::string(queues.status().message()), HasSubstr("needs CAP_NET_RAW"));
  nic.reset();
  connectx.ExpectClean();
}

TEST(BringUpOnRealTimeTest, WithoutAFreeRunningClockItRunsWithoutTimesAndSaysSo) {
  connectx::Device::Options options = *connectx::PersonalityNamed("cx7");
  ASSERT_TRUE(connectx::TakeCapability("free_running_clock", &options));
  connectx::ConnectXRig connectx{SoftwareConnectX::Mode::kStep, {}, options};
  const auto pool = MakePool();
  auto nic = OpenPort(PortOptions("mlx5_0"));
  auto queues = nic->CreateQueuePair({}, pool.get());
  ASSERT_TRUE(queues.ok()) << queues.status();
  const nic::Capabilities& got = (*queues)->capabilities();
  EXPECT_FALSE(got.receive_timestamp || got.transmit_timestamp);
  EXPECT_EQ(got.receive_time, nic::TimeSource::kNone);
  EXPECT_THAT(got.ToString(), testing::ContainsRegex("lacking: .*no free-running ones"));
  auto untimed = nic->CreateQueuePair({.timestamps = false}, pool.get());
  ASSERT_TRUE(untimed.ok()) << untimed.status();
  EXPECT_TRUE((*untimed)->capabilities().lacking.empty());
  untimed->reset();
  queues->reset();
  nic.reset();
  connectx.ExpectClean();
}

}  // namespace
}  // namespace xtreme::mlx5
