// SPDX-License-Identifier: Apache-2.0
//
// Rules that drop and that count, through plain verbs.

#include <infiniband/verbs.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "gtest/gtest.h"
#include "tools/connectx/connectx.h"
#include "tools/connectx/connectx_rig.h"
#include "tools/connectx/verbs_endpoint.h"

namespace xtreme::connectx {
namespace {

constexpr uint32_t kBytesAt = 0;
constexpr uint32_t kPacketsAt = 2;

class FlowActionTest : public testing::Test {
 protected:
  void TearDown() override { connectx_.ExpectClean(); }

  // Frames to B: counted by `counters` if that is not null, and dropped or taken by `qp`.
  static ibv_flow* Make(ibv_qp* qp, ibv_counters* counters, bool drop) {
    struct Rule {
      ibv_flow_attr attributes;
      ibv_flow_spec_eth ethernet;
      std::array<uint8_t, sizeof(ibv_flow_spec_counter_action) +
                              sizeof(ibv_flow_spec_action_drop)> actions;
    } rule{};
    rule.attributes.num_of_specs = 1;
    rule.attributes.port = 1;
    rule.ethernet.type = IBV_FLOW_SPEC_ETH;
    rule.ethernet.size = sizeof(rule.ethernet);
    std::memcpy(rule.ethernet.val.dst_mac, kMacB.data(), kMacB.size());
    std::memset(rule.ethernet.mask.dst_mac, 0xff, kMacB.size());
    size_t at = 0;
    if (counters != nullptr) {
      const ibv_flow_spec_counter_action count{.type = IBV_FLOW_SPEC_ACTION_COUNT,
                                               .size = sizeof(count),
                                               .counters = counters};
      std::memcpy(rule.actions.data(), &count, sizeof(count));
      at = sizeof(count);
      ++rule.attributes.num_of_specs;
    }
    const ibv_flow_spec_action_drop dropped{.type = IBV_FLOW_SPEC_ACTION_DROP,
                                            .size = sizeof(dropped)};
    if (drop) {
      std::memcpy(rule.actions.data() + at, &dropped, sizeof(dropped));
      at += sizeof(dropped);
      ++rule.attributes.num_of_specs;
    }
    rule.attributes.size = static_cast<uint16_t>(sizeof(Rule) - rule.actions.size() + at);
    return ibv_create_flow(qp, &rule.attributes);
  }

  ibv_counters* MakeCounters(ibv_context* context) {
    ibv_counters_init_attr wanted{};
    ibv_counters* const counters = ibv_create_counters(context, &wanted);
    EXPECT_NE(counters, nullptr);
    Attach(counters, IBV_COUNTER_PACKETS, kPacketsAt);
    Attach(counters, IBV_COUNTER_BYTES, kBytesAt);
    return counters;
  }
  static void Attach(ibv_counters* counters, ibv_counter_description what, uint32_t index) {
    ibv_counter_attach_attr point{.counter_desc = what, .index = index};
    EXPECT_EQ(ibv_attach_counters_point_flow(counters, &point, nullptr), 0);
  }

  void Send(Endpoint& from, int frames) {
    for (int i = 0; i < frames; ++i) {
      ASSERT_EQ(from.Send(0, UdpFrame(5000, std::string(58, 'x')), 0), 0);
      connectx_->Step();
      EXPECT_EQ(Endpoint::Poll(from.send_cq()).status, IBV_WC_SUCCESS);
    }
  }

  ConnectXRig connectx_{SoftwareConnectX::Mode::kStep};
};

TEST_F(FlowActionTest, WhatIsDroppedReachesNobody) {
  Endpoint a("mlx5_0");
  Endpoint b("mlx5_1");
  b.PostReceive(0);
  ibv_flow* rule = Make(b.qp(), nullptr, /*drop=*/true);
  ASSERT_NE(rule, nullptr);
  EXPECT_EQ(Make(b.qp(), nullptr, /*drop=*/false), nullptr);
  EXPECT_EQ(errno, EEXIST);
  Send(a, 1);
  EXPECT_NE(Endpoint::Poll(b.receive_cq()).status, IBV_WC_SUCCESS);
  EXPECT_EQ(ibv_destroy_flow(rule), 0);
  rule = Make(b.qp(), nullptr, /*drop=*/false);
  Send(a, 1);
  EXPECT_EQ(Endpoint::Poll(b.receive_cq()).status, IBV_WC_SUCCESS);
  EXPECT_EQ(ibv_destroy_flow(rule), 0);
}

TEST_F(FlowActionTest, CountersAreReadWhereTheyWereAttached) {
  Endpoint a("mlx5_0");
  Endpoint b("mlx5_1");
  ibv_counters* const counters = MakeCounters(b.context());
  std::array<uint64_t, 3> values{};
  const auto read = [&](size_t count) {
    return ibv_read_counters(counters, values.data(), static_cast<uint32_t>(count), 0);
  };
  EXPECT_EQ(read(3), EINVAL) << "no rule counts by them";
  ibv_flow* const rule = Make(b.qp(), counters, /*drop=*/false);
  ASSERT_NE(rule, nullptr) << std::strerror(errno);
  ibv_flow* const second = Make(b.qp(), counters, /*drop=*/false);
  ASSERT_NE(second, nullptr) << "bound before, and not said again";
  EXPECT_EQ(ibv_destroy_flow(second), 0);
  EXPECT_EQ(ibv_destroy_counters(counters), EBUSY);
  Send(a, 3);
  ASSERT_EQ(read(3), 0);
  EXPECT_EQ(values[kPacketsAt], 3u);
  EXPECT_EQ(values[kBytesAt], 300u);
  EXPECT_EQ(values[1], 0u);
  EXPECT_EQ(read(2), EINVAL) << "no room for the packets";
  EXPECT_EQ(ibv_destroy_flow(rule), 0);
  EXPECT_EQ(ibv_destroy_counters(counters), 0);
}

TEST_F(FlowActionTest, WhatIsDroppedMayBeCounted) {
  Endpoint a("mlx5_0");
  Endpoint b("mlx5_1");
  ibv_counters* const counters = MakeCounters(b.context());
  ibv_flow* const rule = Make(b.qp(), counters, /*drop=*/true);
  ASSERT_NE(rule, nullptr);
  Send(a, 2);
  std::array<uint64_t, 3> values{};
  ASSERT_EQ(ibv_read_counters(counters, values.data(), 3, 0), 0);
  EXPECT_EQ(values[kPacketsAt], 2u);
  EXPECT_EQ(ibv_destroy_flow(rule), 0);
  EXPECT_EQ(ibv_destroy_counters(counters), 0);
}

}  // namespace
}  // namespace xtreme::connectx
