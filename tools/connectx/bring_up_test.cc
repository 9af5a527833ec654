// SPDX-License-Identifier: Apache-2.0
//
// Bring-up that fails, and programs that forget: the boundary refuses each call in turn, and a
// context that closes takes everything with it.

#include <infiniband/verbs.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "tools/connectx/connectx.h"
#include "tools/connectx/connectx_rig.h"
#include "tools/connectx/device/personality.h"
#include "tools/connectx/verbs_endpoint.h"
#include "tools/connectx/wire/link.h"

extern "C" {
__attribute__((weak)) void __lsan_disable();
__attribute__((weak)) void __lsan_enable();
}

namespace xtreme::connectx {
namespace {

// For programs that forget: what libmlx5 allocates meanwhile is not our leak.
class ForgivenLeaks {
 public:
  ForgivenLeaks() {
    if (__lsan_disable != nullptr) __lsan_disable();
  }
  ~ForgivenLeaks() {
    if (__lsan_enable != nullptr) __lsan_enable();
  }
};

class BringUpTest : public testing::Test {
 protected:
  void TearDown() override { connectx_.ExpectClean(); }

  ConnectXRig connectx_{SoftwareConnectX::Mode::kStep};
};

// A careful program: each object is checked, and unwound when the next one fails.
bool BringUp() {
  bool complete = false;
  ibv_context* context = OpenDevice("mlx5_0");
  if (context == nullptr) return false;
  std::vector<uint8_t> memory(4096);
  ibv_pd* pd = ibv_alloc_pd(context);
  ibv_mr* region = pd ? ibv_reg_mr(pd, memory.data(), memory.size(), 0) : nullptr;
  ibv_comp_channel* channel = region ? ibv_create_comp_channel(context) : nullptr;
  ibv_cq* cq = channel ? ibv_create_cq(context, 4, nullptr, channel, 0) : nullptr;
  ibv_qp* qp = nullptr;
  if (cq != nullptr) {
    ibv_qp_init_attr attributes{.send_cq = cq, .recv_cq = cq,
                                .cap = {.max_send_wr = 4, .max_send_sge = 1},
                                .qp_type = IBV_QPT_RAW_PACKET};
    qp = ibv_create_qp(pd, &attributes);
  }
  if (qp != nullptr) {
    ibv_qp_attr attributes{.qp_state = IBV_QPS_INIT, .port_num = 1};
    complete = ibv_modify_qp(qp, &attributes, IBV_QP_STATE | IBV_QP_PORT) == 0;
  }
  if (qp != nullptr) ibv_destroy_qp(qp);
  if (cq != nullptr) ibv_destroy_cq(cq);
  if (channel != nullptr) ibv_destroy_comp_channel(channel);
  if (region != nullptr) ibv_dereg_mr(region);
  if (pd != nullptr) ibv_dealloc_pd(pd);
  ibv_close_device(context);
  return complete;
}

TEST_F(BringUpTest, NamedCallFailsOnceWithTheErrorAskedFor) {
  ibv_context* context = OpenDevice("mlx5_0");
  ASSERT_NE(context, nullptr);
  ASSERT_TRUE(connectx_->FailNext("ALLOC_PD", ENOMEM));
  EXPECT_EQ(ibv_alloc_pd(context), nullptr);
  EXPECT_EQ(errno, ENOMEM);
  ibv_pd* pd = ibv_alloc_pd(context);
  ASSERT_NE(pd, nullptr);
  EXPECT_EQ(ibv_dealloc_pd(pd), 0);
  EXPECT_EQ(ibv_close_device(context), 0);
}

TEST_F(BringUpTest, UnknownNamesAreRefused) {
  EXPECT_FALSE(connectx_->FailNext("CREATE_UNICORN", EIO));
  for (std::string_view name : SoftwareConnectX::commands()) {
    EXPECT_TRUE(connectx_->FailNext(name, EIO)) << name;
  }
}

TEST_F(BringUpTest, EveryStepOfBringUpCanFailAndLeavesNothing) {
  for (std::string_view step : {"OPEN", "GET_CONTEXT", "ALLOC_ASYNC_EVENTS", "ALLOC_PD", "REG_MR",
                                "CREATE_COMP_CHANNEL", "CREATE_CQ", "CREATE_QP", "MODIFY_QP"}) {
    ASSERT_TRUE(connectx_->FailNext(step, EIO));
    // libmlx5 asks for a context again, with fewer features, and then goes on.
    EXPECT_EQ(BringUp(), step == "GET_CONTEXT") << step;
    EXPECT_EQ(connectx_->live_objects(), LiveObjects{}) << step;
  }
  EXPECT_TRUE(BringUp());
}

TEST_F(BringUpTest, AnyCallMayFailWithoutLeavingObjects) {
  const ForgivenLeaks forgiven;
  const uint64_t before = connectx_->calls();
  ASSERT_TRUE(BringUp());
  const uint64_t calls = connectx_->calls() - before;
  ASSERT_GT(calls, 10u);
  for (uint64_t i = 0; i < calls; ++i) {
    connectx_->FailAfter(i, EIO);
    BringUp();
    // A refused destroy leaves its object to the closing of the context; nothing is left after it.
    EXPECT_EQ(connectx_->live_objects(), LiveObjects{}) << "call " << i;
  }
}

TEST_F(BringUpTest, ClosingTheDescriptorReleasesWhatWasForgotten) {
  const ForgivenLeaks forgiven;
  ibv_context* context = OpenDevice("mlx5_0");
  ASSERT_NE(context, nullptr);
  static std::vector<uint8_t> memory(4096);
  ibv_pd* pd = ibv_alloc_pd(context);
  const int access = IBV_ACCESS_LOCAL_WRITE;
  ASSERT_NE(ibv_reg_mr(pd, memory.data(), memory.size(), access), nullptr);
  ibv_cq* cq = ibv_create_cq(context, 4, nullptr, nullptr, 0);
  ibv_qp_init_attr attributes{.send_cq = cq, .recv_cq = cq,
                              .cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1,
                                      .max_recv_sge = 1},
                              .qp_type = IBV_QPT_RAW_PACKET};
  ibv_qp* qp = ibv_create_qp(pd, &attributes);
  ASSERT_NE(qp, nullptr);
  ibv_flow_attr rule{.type = IBV_FLOW_ATTR_ALL_DEFAULT, .size = sizeof(rule), .port = 1};
  ASSERT_NE(ibv_create_flow(qp, &rule), nullptr);
  const LiveObjects held = connectx_->live_objects();
  EXPECT_EQ(held.flows, 1u);
  EXPECT_EQ(held.qps, 1u);
  // The library closes its descriptor; its own copies of the objects are the program's leak.
  EXPECT_EQ(ibv_close_device(context), 0);
  EXPECT_EQ(connectx_->live_objects(), LiveObjects{});
  connectx_->Step();
}

TEST_F(BringUpTest, SecondInstanceIsRefusedAndTheNextOneAfterItIsNot) {
  const auto second = SoftwareConnectX::Create({});
  EXPECT_EQ(second.status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(PrivilegeTest, WithoutNetRawThereAreNoRawQueuesAndNoRules) {
  Device::Options device;
  ASSERT_TRUE(TakeCapability("net_raw", &device));
  ConnectXRig connectx(SoftwareConnectX::Mode::kStep, {}, device);
  ibv_context* const context = OpenDevice("mlx5_0");
  ibv_pd* const pd = ibv_alloc_pd(context);
  ibv_cq* const cq = ibv_create_cq(context, 4, nullptr, nullptr, 0);
  ASSERT_NE(cq, nullptr);
  ibv_qp_init_attr attributes{.send_cq = cq, .recv_cq = cq,
                              .cap = {.max_send_wr = 4, .max_send_sge = 1},
                              .qp_type = IBV_QPT_RAW_PACKET};
  EXPECT_EQ(ibv_create_qp(pd, &attributes), nullptr);
  EXPECT_EQ(errno, EPERM);
  // A kernel asks before it looks for the queue.
  ibv_qp of_nobody{.context = context, .handle = 77};
  ibv_flow_attr rule{.type = IBV_FLOW_ATTR_ALL_DEFAULT, .size = sizeof(rule), .port = 1};
  EXPECT_EQ(ibv_create_flow(&of_nobody, &rule), nullptr);
  EXPECT_EQ(errno, EPERM);
  EXPECT_EQ(ibv_destroy_cq(cq), 0);
  EXPECT_EQ(ibv_dealloc_pd(pd), 0);
  EXPECT_EQ(ibv_close_device(context), 0);
  connectx.ExpectClean();
}

TEST(LifetimeTest, InstancesFollowEachOtherInOneProcess) {
  for (int i = 0; i < 3; ++i) {
    ConnectXRig rig(SoftwareConnectX::Mode::kStep);
    EXPECT_TRUE(BringUp()) << i;
    rig.ExpectClean();
  }
}

TEST(LifetimeTest, WithoutAnInstanceThereAreNoDevices) {
  { ConnectXRig rig(SoftwareConnectX::Mode::kStep); }
  EXPECT_EQ(OpenDevice("mlx5_0"), nullptr);
}

// What the document shows (docs/connectx.md).
TEST(LifetimeTest, TwoDevicesStandOnOneCableAndStepAsTheTestSays) {
  auto link = connectx::MakeLink();
  auto cx = connectx::SoftwareConnectX::Create(
      {.mode = connectx::SoftwareConnectX::Mode::kStep,
       .ports = {{.device = {.name = "mlx5_0", .mac = kMacA}, .wire = (*link)[0].get()},
                 {.device = {.name = "mlx5_1", .mac = kMacB}, .wire = (*link)[1].get()}}});
  ASSERT_TRUE(cx.ok()) << cx.status();
  for (const char* name : {"mlx5_0", "mlx5_1"}) {
    ibv_context* const context = OpenDevice(name);
    ASSERT_NE(context, nullptr) << name;
    EXPECT_EQ(ibv_close_device(context), 0);
  }
  const int64_t before_ns = (*cx)->clock().Now();
  (*cx)->Step(1'000);  // 1 microsecond later, until nothing is left to do.
  EXPECT_EQ((*cx)->clock().Now(), before_ns + 1'000);
}

TEST(LifetimeTest, OptionsThatCannotWorkAreRefusedByName) {
  EXPECT_EQ(SoftwareConnectX::Create({}).status().code(), absl::StatusCode::kInvalidArgument);
  const auto no_wire = SoftwareConnectX::Create({.ports = {{.device = {.name = "mlx5_9"}}}});
  EXPECT_EQ(no_wire.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(no_wire.status().message().find("mlx5_9"), absl::string_view::npos);
}

}  // namespace
}  // namespace xtreme::connectx
