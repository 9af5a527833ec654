// SPDX-License-Identifier: Apache-2.0
//
// Limits through plain verbs: a device that has little of everything, and what a program is told
// when it asks for one more.

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

#include <cerrno>
#include <functional>
#include <vector>

#include "gtest/gtest.h"
#include "tools/connectx/connectx.h"
#include "tools/connectx/connectx_rig.h"
#include "tools/connectx/verbs_endpoint.h"

namespace xtreme::connectx {
namespace {

constexpr uint32_t kFew = 6;

Device::Options Small() {
  Device::Options options;
  options.limits.qps = kFew;
  options.limits.cqs = kFew;
  options.limits.flow_rules = kFew;
  options.limits.uars = kFew;
  options.limits.memory_regions = kFew;
  options.limits.rates = 1;
  return options;
}

// How many of something there were before `make` failed, with errno as it left it.
template <typename T>
std::vector<T*> MakeUntilRefused(const std::function<T*()>& make) {
  std::vector<T*> made;
  errno = 0;
  while (T* one = make()) {
    made.push_back(one);
    if (made.size() > 4 * kFew) break;
  }
  return made;
}

class LimitsTest : public testing::Test {
 protected:
  void TearDown() override { connectx_.ExpectClean(); }

  ConnectXRig connectx_{SoftwareConnectX::Mode::kStep, {}, Small()};
};

TEST_F(LimitsTest, CompletionQueuesRegionsAndQueuePairsRunOutOfMemory) {
  Endpoint a("mlx5_0");
  std::vector<uint8_t> memory(4096);
  const auto cqs = MakeUntilRefused<ibv_cq>(
      [&] { return ibv_create_cq(a.context(), 4, nullptr, nullptr, 0); });
  EXPECT_EQ(errno, ENOMEM);
  EXPECT_EQ(cqs.size(), kFew - 2) << "the endpoint has two";
  const auto regions = MakeUntilRefused<ibv_mr>(
      [&] { return ibv_reg_mr(a.pd(), memory.data(), memory.size(), 0); });
  EXPECT_EQ(errno, ENOMEM);
  EXPECT_EQ(regions.size(), kFew - 1);
  const auto qps = MakeUntilRefused<ibv_qp>([&] {
    ibv_qp_init_attr attributes{.send_cq = a.send_cq(),
                                .recv_cq = a.send_cq(),
                                .cap = {.max_send_wr = 1, .max_send_sge = 1},
                                .qp_type = IBV_QPT_RAW_PACKET};
    return ibv_create_qp(a.pd(), &attributes);
  });
  EXPECT_EQ(errno, ENOMEM);
  EXPECT_EQ(qps.size(), kFew - 1);
  for (ibv_qp* qp : qps) EXPECT_EQ(ibv_destroy_qp(qp), 0);
  for (ibv_mr* region : regions) EXPECT_EQ(ibv_dereg_mr(region), 0);
  for (ibv_cq* cq : cqs) EXPECT_EQ(ibv_destroy_cq(cq), 0);
}

TEST_F(LimitsTest, UarsRunOutOfMemoryAndComeBack) {
  ibv_context* context = OpenDevice("mlx5_0");
  const auto alloc = [&] { return mlx5dv_devx_alloc_uar(context, MLX5DV_UAR_ALLOC_TYPE_BF); };
  const auto uars = MakeUntilRefused<mlx5dv_devx_uar>(alloc);
  EXPECT_EQ(errno, ENOMEM);
  // Each page has two registers, and libmlx5 keeps one page for the doorbells of CQs.
  ASSERT_EQ(uars.size(), 2 * (kFew - 1));
  mlx5dv_devx_free_uar(uars.back());
  mlx5dv_devx_uar* again = alloc();
  EXPECT_NE(again, nullptr);
  mlx5dv_devx_free_uar(again);
  for (size_t i = 0; i + 1 < uars.size(); ++i) mlx5dv_devx_free_uar(uars[i]);
  EXPECT_EQ(ibv_close_device(context), 0);
}

TEST_F(LimitsTest, RuleTableIsFull) {
  Endpoint b("mlx5_1");
  uint16_t port = 5000;
  const auto rules = MakeUntilRefused<ibv_flow>([&] { return b.Listen(port++, 1); });
  EXPECT_EQ(errno, ENOSPC);
  EXPECT_EQ(rules.size(), kFew);
  EXPECT_EQ(ibv_destroy_flow(rules[2]), 0);
  ibv_flow* again = b.Listen(port, 1);
  EXPECT_NE(again, nullptr);
  EXPECT_EQ(ibv_destroy_flow(again), 0);
  for (ibv_flow* rule : rules) {
    if (rule == rules[2]) continue;
    EXPECT_EQ(ibv_destroy_flow(rule), 0);
  }
}

TEST_F(LimitsTest, TheFirmwareTellsHowManyRulesThereMayBe) {
  constexpr uint8_t kReceiveFlowTables = 0x7 << 1 | 1;
  constexpr uint8_t kOfSomethingElse = 0x3f << 1 | 1;
  mlx5dv_context_attr attributes{.flags = MLX5DV_CONTEXT_FLAGS_DEVX};
  int count = 0;
  ibv_device** const devices = ibv_get_device_list(&count);
  ASSERT_GT(count, 0);
  ibv_context* const context = mlx5dv_open_device(devices[0], &attributes);
  ibv_free_device_list(devices);
  ASSERT_NE(context, nullptr);
  std::vector<uint8_t> command(16), answer(16 + 4096, 0xA5);
  const auto run = [&] {
    return mlx5dv_devx_general_cmd(context, command.data(), command.size(), answer.data(),
                                   answer.size());
  };
  command[0] = 1;  // QUERY_HCA_CAP.
  command[7] = kReceiveFlowTables;
  ASSERT_EQ(run(), 0);
  EXPECT_EQ(answer[0], 0) << "status";
  EXPECT_EQ(answer[16 + 0x40], 0x80) << "ft_support";
  EXPECT_EQ(answer[16 + 0x40 + 0x17], 2) << "log_max_flow: six rules are four and some";
  command[7] = kOfSomethingElse;
  EXPECT_EQ(run(), EREMOTEIO);
  EXPECT_EQ(answer[0], 3) << "bad parameter";
  command[0] = 5;  // CREATE_QP: not a general command.
  EXPECT_EQ(run(), EINVAL);
  EXPECT_EQ(ibv_close_device(context), 0);
}

TEST_F(LimitsTest, RateTableIsFullForAnotherRateAndNotForTheSame) {
  Endpoint a("mlx5_0");
  Endpoint b("mlx5_0");
  ibv_qp_rate_limit_attr rate{.rate_limit = 1'000};
  ASSERT_EQ(ibv_modify_qp_rate_limit(a.qp(), &rate), 0);
  EXPECT_EQ(ibv_modify_qp_rate_limit(b.qp(), &rate), 0);
  rate.rate_limit = 2'000;
  EXPECT_EQ(ibv_modify_qp_rate_limit(b.qp(), &rate), ENOSPC);
}

}  // namespace
}  // namespace xtreme::connectx
