// SPDX-License-Identifier: Apache-2.0
//
// Offloads through plain verbs: segmentation, VLAN tags, rates.

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "gtest/gtest.h"
#include "tools/connectx/connectx.h"
#include "tools/connectx/connectx_rig.h"
#include "tools/connectx/verbs_endpoint.h"

namespace xtreme::connectx {
namespace {

constexpr int kLocalWrite = IBV_ACCESS_LOCAL_WRITE;  // The macro ibv_reg_mr would mix enumerations.

class OffloadVerbsTest : public testing::Test {
 protected:
  ConnectXRig connectx_{SoftwareConnectX::Mode::kStep};
};

void Ready(ibv_qp* qp) {
  ibv_qp_attr attributes{.qp_state = IBV_QPS_INIT, .port_num = 1};
  ASSERT_EQ(ibv_modify_qp(qp, &attributes, IBV_QP_STATE | IBV_QP_PORT), 0);
  for (ibv_qp_state state : {IBV_QPS_RTR, IBV_QPS_RTS}) {
    attributes = {.qp_state = state};
    ASSERT_EQ(ibv_modify_qp(qp, &attributes, IBV_QP_STATE), 0);
  }
}

ibv_qp_init_attr_ex Queues(const Endpoint& endpoint) {
  return {.send_cq = endpoint.send_cq(),
          .recv_cq = endpoint.receive_cq(),
          .cap = {.max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1},
          .qp_type = IBV_QPT_RAW_PACKET,
          .comp_mask = IBV_QP_INIT_ATTR_PD,
          .pd = endpoint.pd()};
}

// The headers of UdpFrame, made TCP's.
std::vector<uint8_t> TcpHeader() {
  std::vector<uint8_t> header = UdpFrame(5000, "");
  header.resize(54);
  header[23] = 6;
  std::fill(header.begin() + 38, header.end(), uint8_t{0});
  header[46] = 5 << 4;
  header[47] = 0x18;
  return header;
}

void PostTso(ibv_qp* qp, std::vector<uint8_t>& header, const ibv_sge& payload, uint16_t mss) {
  ibv_sge element = payload;
  ibv_send_wr request{.wr_id = 3,
                      .sg_list = &element,
                      .num_sge = 1,
                      .opcode = IBV_WR_TSO,
                      .send_flags = IBV_SEND_SIGNALED | IBV_SEND_IP_CSUM};
  request.tso = {.hdr = header.data(), .hdr_sz = static_cast<uint16_t>(header.size()), .mss = mss};
  ibv_send_wr* bad = nullptr;
  ASSERT_EQ(ibv_post_send(qp, &request, &bad), 0);
}

TEST_F(OffloadVerbsTest, LargeSendArrivesAsSegmentsWithRightChecksums) {
  Endpoint a("mlx5_0");
  Endpoint b("mlx5_1");
  ibv_device_attr_ex device{};
  ASSERT_EQ(ibv_query_device_ex(a.context(), nullptr, &device), 0);
  ASSERT_EQ(device.tso_caps.max_tso, 262'144u);
  ibv_flow_attr everything{.type = IBV_FLOW_ATTR_ALL_DEFAULT, .size = sizeof(everything),
                           .port = 1};
  ibv_flow* flow = ibv_create_flow(b.qp(), &everything);
  ASSERT_NE(flow, nullptr);
  for (int slot = 0; slot < 3; ++slot) b.PostReceive(slot);
  ibv_qp_init_attr_ex wanted = Queues(a);
  wanted.comp_mask |= IBV_QP_INIT_ATTR_MAX_TSO_HEADER;
  wanted.max_tso_header = 128;
  ibv_qp* qp = ibv_create_qp_ex(a.context(), &wanted);
  ASSERT_NE(qp, nullptr);
  Ready(qp);
  std::vector<uint8_t> payload(2500, 't');
  ibv_mr* region = ibv_reg_mr(a.pd(), payload.data(), payload.size(), 0);
  ASSERT_NE(region, nullptr);
  std::vector<uint8_t> header = TcpHeader();
  PostTso(qp, header, {.addr = reinterpret_cast<uint64_t>(payload.data()), .length = 2500,
                       .lkey = region->lkey},
          1000);
  connectx_->Step(1000);
  const ibv_wc sent = Endpoint::Poll(a.send_cq());
  EXPECT_EQ(sent.status, IBV_WC_SUCCESS);
  EXPECT_EQ(sent.wr_id, 3u);
  for (uint32_t bytes : {1054u, 1054u, 554u}) {
    const ibv_wc received = Endpoint::Poll(b.receive_cq());
    ASSERT_EQ(received.status, IBV_WC_SUCCESS);
    EXPECT_EQ(received.byte_len, bytes);
    EXPECT_NE(received.wc_flags & IBV_WC_IP_CSUM_OK, 0u);
  }
  EXPECT_EQ(ibv_dereg_mr(region), 0);
  EXPECT_EQ(ibv_destroy_qp(qp), 0);
  EXPECT_EQ(ibv_destroy_flow(flow), 0);
}

// One rule for frames of a VLAN.
ibv_flow* ListenToVlan(ibv_qp* qp, uint16_t id) {
  struct Rule {
    ibv_flow_attr attributes;
    ibv_flow_spec_eth ethernet;
  } rule{};
  rule.attributes = {.size = sizeof(rule), .num_of_specs = 1, .port = 1};
  rule.ethernet.type = IBV_FLOW_SPEC_ETH;
  rule.ethernet.size = sizeof(rule.ethernet);
  rule.ethernet.val.vlan_tag = htobe16(id);
  rule.ethernet.mask.vlan_tag = htobe16(0xfff);
  return ibv_create_flow(qp, &rule.attributes);
}

std::vector<uint8_t> Tagged(std::vector<uint8_t> frame, uint16_t tci) {
  const uint8_t tag[] = {0x81, 0, static_cast<uint8_t>(tci >> 8), static_cast<uint8_t>(tci)};
  frame.insert(frame.begin() + 12, std::begin(tag), std::end(tag));
  return frame;
}

TEST_F(OffloadVerbsTest, VlanRuleTakesItsVlanAndStrippingQueueGetsTheFrameWithoutItsTag) {
  Endpoint a("mlx5_0");
  Endpoint b("mlx5_1");
  ibv_device_attr_ex device{};
  ASSERT_EQ(ibv_query_device_ex(b.context(), nullptr, &device), 0);
  ASSERT_NE(device.raw_packet_caps & IBV_RAW_PACKET_CAP_CVLAN_STRIPPING, 0u);
  ibv_cq_init_attr_ex cq_wanted{.cqe = 8,
                                .wc_flags = IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_CVLAN};
  ibv_cq_ex* cq = ibv_create_cq_ex(b.context(), &cq_wanted);
  ASSERT_NE(cq, nullptr);
  ibv_qp_init_attr_ex wanted = Queues(b);
  wanted.recv_cq = ibv_cq_ex_to_cq(cq);
  wanted.comp_mask |= IBV_QP_INIT_ATTR_CREATE_FLAGS;
  wanted.create_flags = IBV_QP_CREATE_CVLAN_STRIPPING;
  ibv_qp* qp = ibv_create_qp_ex(b.context(), &wanted);
  ASSERT_NE(qp, nullptr);
  Ready(qp);
  ibv_flow* flow = ListenToVlan(qp, 100);
  ASSERT_NE(flow, nullptr);
  std::vector<uint8_t> memory(2048);
  ibv_mr* region = ibv_reg_mr(b.pd(), memory.data(), memory.size(), kLocalWrite);
  ibv_sge element{.addr = reinterpret_cast<uint64_t>(memory.data()), .length = 2048,
                  .lkey = region->lkey};
  ibv_recv_wr receive{.sg_list = &element, .num_sge = 1};
  ibv_recv_wr* bad = nullptr;
  ASSERT_EQ(ibv_post_recv(qp, &receive, &bad), 0);
  const std::vector<uint8_t> frame = UdpFrame(5000, std::string(40, 'p'));
  ASSERT_EQ(a.Send(0, Tagged(frame, 101), 0), 0);
  ASSERT_EQ(a.Send(1, Tagged(frame, 0x6064), 0), 0);
  connectx_->Step(1000);
  ibv_poll_cq_attr poll{};
  ASSERT_EQ(ibv_start_poll(cq, &poll), 0);
  EXPECT_EQ(ibv_wc_read_byte_len(cq), frame.size());
  EXPECT_EQ(ibv_wc_read_cvlan(cq), 0x6064);
  EXPECT_EQ(ibv_next_poll(cq), ENOENT) << "the other VLAN";
  ibv_end_poll(cq);
  EXPECT_TRUE(std::equal(frame.begin(), frame.end(), memory.begin()));
  EXPECT_EQ(ibv_destroy_flow(flow), 0);
  EXPECT_EQ(ibv_destroy_qp(qp), 0);
  EXPECT_EQ(ibv_dereg_mr(region), 0);
  EXPECT_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
}

TEST_F(OffloadVerbsTest, RateLimitHoldsFramesApartByExactlyTheirBits) {
  Endpoint a("mlx5_0");
  const std::vector<uint8_t> frame = UdpFrame(5000, std::string(1208, 'r'));
  ASSERT_EQ(frame.size(), 1250u);  // 10 us at 1 Gbit/s.
  ibv_qp_rate_limit_attr rate{.rate_limit = 1'000'000};
  ASSERT_EQ(ibv_modify_qp_rate_limit(a.qp(), &rate), 0);
  for (int i = 0; i < 10; ++i) ASSERT_EQ(a.Send(i, frame, 0), 0);
  const auto sent = [&] {
    int count = 0;
    while (Endpoint::Poll(a.send_cq()).status == IBV_WC_SUCCESS) ++count;
    return count;
  };
  connectx_->Step();
  EXPECT_EQ(sent(), 1);
  connectx_->Step(9'999);
  EXPECT_EQ(sent(), 0);
  connectx_->Step(1);
  EXPECT_EQ(sent(), 1);
  connectx_->Step(70'000);
  EXPECT_EQ(sent(), 7);
  rate = {.rate_limit = 1'000'000, .max_burst_sz = 5'000, .typical_pkt_sz = 1250};
  EXPECT_EQ(ibv_modify_qp_rate_limit(a.qp(), &rate), 0);
  rate = {.rate_limit = 100'000'001};
  EXPECT_EQ(ibv_modify_qp_rate_limit(a.qp(), &rate), EINVAL);
}

TEST_F(OffloadVerbsTest, StateStaysWhenTheRateThatCameWithItIsRefused) {
  Endpoint a("mlx5_0");
  ibv_qp_init_attr_ex queues = Queues(a);
  ibv_qp* qp = ibv_create_qp_ex(a.context(), &queues);
  ASSERT_NE(qp, nullptr);
  ibv_qp_attr attributes{.qp_state = IBV_QPS_INIT, .port_num = 1};
  ASSERT_EQ(ibv_modify_qp(qp, &attributes, IBV_QP_STATE | IBV_QP_PORT), 0);
  attributes.qp_state = IBV_QPS_RTR;
  ASSERT_EQ(ibv_modify_qp(qp, &attributes, IBV_QP_STATE), 0);
  const auto state = [&] {
    ibv_qp_init_attr init{};
    EXPECT_EQ(ibv_query_qp(qp, &attributes, IBV_QP_STATE, &init), 0);
    return attributes.qp_state;
  };
  for (const uint32_t rate : {100'000'001u, 1'000'000u}) {
    attributes.qp_state = IBV_QPS_RTS;
    attributes.rate_limit = rate;
    const bool offered = rate == 1'000'000;
    EXPECT_EQ(ibv_modify_qp(qp, &attributes, IBV_QP_STATE | IBV_QP_RATE_LIMIT),
              offered ? 0 : EINVAL);
    EXPECT_EQ(state(), offered ? IBV_QPS_RTS : IBV_QPS_RTR);
  }
  EXPECT_EQ(ibv_destroy_qp(qp), 0);
}

// One step over all of them: each still leaves at its own time.
TEST_F(OffloadVerbsTest, SendCompletionsCarryTheTimesAtWhichTheirFramesLeft) {
  constexpr int kFrames = 5;
  Endpoint a("mlx5_0");
  ibv_cq_init_attr_ex wanted{.cqe = 8, .wc_flags = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP};
  ibv_cq_ex* cq = ibv_create_cq_ex(a.context(), &wanted);
  ASSERT_NE(cq, nullptr);
  ibv_qp_init_attr_ex queues = Queues(a);
  queues.send_cq = ibv_cq_ex_to_cq(cq);
  ibv_qp* qp = ibv_create_qp_ex(a.context(), &queues);
  ASSERT_NE(qp, nullptr);
  Ready(qp);
  ibv_qp_rate_limit_attr rate{.rate_limit = 1'000'000};
  ASSERT_EQ(ibv_modify_qp_rate_limit(qp, &rate), 0);
  std::vector<uint8_t> frame = UdpFrame(5000, std::string(1208, 't'));  // 10 us at 1 Gbit/s.
  ibv_mr* region = ibv_reg_mr(a.pd(), frame.data(), frame.size(), 0);
  ibv_sge element{.addr = reinterpret_cast<uint64_t>(frame.data()),
                  .length = static_cast<uint32_t>(frame.size()), .lkey = region->lkey};
  ibv_send_wr request{.sg_list = &element, .num_sge = 1, .opcode = IBV_WR_SEND,
                      .send_flags = IBV_SEND_SIGNALED};
  ibv_send_wr* bad = nullptr;
  for (int i = 0; i < kFrames; ++i) ASSERT_EQ(ibv_post_send(qp, &request, &bad), 0);
  const int64_t start_ns = connectx_->clock().Now();
  connectx_->Step();
  connectx_->Step(1'000'000);
  ibv_poll_cq_attr poll{};
  ASSERT_EQ(ibv_start_poll(cq, &poll), 0);
  for (int i = 0; i < kFrames; ++i) {
    EXPECT_EQ(ibv_wc_read_completion_ts(cq),
              connectx_->device(0).CyclesAt(start_ns + i * int64_t{10'000}));
    EXPECT_EQ(ibv_next_poll(cq), i + 1 < kFrames ? 0 : ENOENT);
  }
  ibv_end_poll(cq);
  EXPECT_EQ(ibv_destroy_qp(qp), 0);
  EXPECT_EQ(ibv_dereg_mr(region), 0);
  EXPECT_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
}

TEST(PacingVerbsTest, EntriesAreForProgramsWithDevx) {
  Device::Options options;
  options.features.devx = false;
  ConnectXRig connectx(SoftwareConnectX::Mode::kStep, {}, options);
  ibv_context* context = OpenDevice("mlx5_0");
  const uint32_t rate = htobe32(100);
  EXPECT_EQ(mlx5dv_pp_alloc(context, sizeof(rate), &rate, 0), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(ibv_close_device(context), 0);
}

TEST_F(OffloadVerbsTest, PacingEntriesAreSharedUnlessDedicated) {
  ibv_context* context = OpenDevice("mlx5_0");
  const uint32_t rate = htobe32(100);
  mlx5dv_pp* first = mlx5dv_pp_alloc(context, sizeof(rate), &rate, 0);
  mlx5dv_pp* second = mlx5dv_pp_alloc(context, sizeof(rate), &rate, 0);
  mlx5dv_pp* own =
      mlx5dv_pp_alloc(context, sizeof(rate), &rate, MLX5DV_PP_ALLOC_FLAGS_DEDICATED_INDEX);
  ASSERT_TRUE(first != nullptr && second != nullptr && own != nullptr);
  EXPECT_EQ(first->index, second->index);
  EXPECT_NE(first->index, own->index);
  const uint32_t too_fast = htobe32(200'000'000);
  EXPECT_EQ(mlx5dv_pp_alloc(context, sizeof(too_fast), &too_fast, 0), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(connectx_->live_objects().rates, 3u);
  for (mlx5dv_pp* each : {first, second, own}) mlx5dv_pp_free(each);
  EXPECT_EQ(ibv_close_device(context), 0);
  connectx_.ExpectClean();
}

}  // namespace
}  // namespace xtreme::connectx
