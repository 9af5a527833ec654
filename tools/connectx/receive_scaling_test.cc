// SPDX-License-Identifier: Apache-2.0
//
// Receive side scaling through plain verbs: work queues, an indirection table, a hash with a key.

#include <arpa/inet.h>
#include <endian.h>
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tools/connectx/connectx.h"
#include "tools/connectx/connectx_rig.h"
#include "tools/connectx/verbs_endpoint.h"

namespace xtreme::connectx {
namespace {

constexpr int kLocalWrite = IBV_ACCESS_LOCAL_WRITE;  // The macro ibv_reg_mr would mix enumerations.

constexpr size_t kQueues = 4;
constexpr uint64_t kAllOfTcpOverIpv4 = IBV_RX_HASH_SRC_IPV4 | IBV_RX_HASH_DST_IPV4 |
                                       IBV_RX_HASH_SRC_PORT_TCP | IBV_RX_HASH_DST_PORT_TCP;

// The key of NDIS's examples.
std::array<uint8_t, 40> Key() {
  return {0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3,
          0x8f, 0xb0, 0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3,
          0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa};
}

std::vector<uint8_t> TcpFrame(const char* source, const char* destination, uint16_t source_port,
                              uint16_t destination_port) {
  std::vector<uint8_t> frame = UdpFrame(0, std::string(20, 'x'));
  frame[23] = 6;
  EXPECT_EQ(inet_pton(AF_INET, source, &frame[26]), 1);
  EXPECT_EQ(inet_pton(AF_INET, destination, &frame[30]), 1);
  const uint16_t ports[2] = {htobe16(source_port), htobe16(destination_port)};
  std::memcpy(&frame[34], ports, sizeof(ports));
  frame[46] = 5 << 4;
  return frame;
}

class ReceiveScalingTest : public testing::Test {
 protected:
  void SetUp() override {
    context_ = OpenDevice("mlx5_1");
    pd_ = ibv_alloc_pd(context_);
    region_ = ibv_reg_mr(pd_, memory_.data(), memory_.size(), kLocalWrite);
    ASSERT_NE(region_, nullptr);
    for (size_t i = 0; i < kQueues; ++i) MakeQueue(i);
    ibv_rwq_ind_table_init_attr wanted{.log_ind_tbl_size = 2, .ind_tbl = wqs_.data()};
    table_ = ibv_create_rwq_ind_table(context_, &wanted);
    ASSERT_NE(table_, nullptr);
  }

  void TearDown() override {
    EXPECT_EQ(ibv_destroy_rwq_ind_table(table_), 0);
    for (ibv_wq* wq : wqs_) EXPECT_EQ(ibv_destroy_wq(wq), 0);
    for (ibv_cq* cq : cqs_) EXPECT_EQ(ibv_destroy_cq(cq), 0);
    EXPECT_EQ(ibv_dereg_mr(region_), 0);
    EXPECT_EQ(ibv_dealloc_pd(pd_), 0);
    EXPECT_EQ(ibv_close_device(context_), 0);
    connectx_.ExpectClean();
  }

  void MakeQueue(size_t i) {
    cqs_[i] = ibv_create_cq(context_, 8, nullptr, nullptr, 0);
    ibv_wq_init_attr wanted{.wq_type = IBV_WQT_RQ, .max_wr = 8, .max_sge = 1, .pd = pd_,
                            .cq = cqs_[i]};
    wqs_[i] = ibv_create_wq(context_, &wanted);
    ASSERT_NE(wqs_[i], nullptr);
    SetState(i, IBV_WQS_RDY);
    PostReceives(i);
  }

  void SetState(size_t i, ibv_wq_state state) {
    ibv_wq_attr attributes{.attr_mask = IBV_WQ_ATTR_STATE, .wq_state = state};
    ASSERT_EQ(ibv_modify_wq(wqs_[i], &attributes), 0);
  }

  void PostReceives(size_t i) {
    for (int slot = 0; slot < 4; ++slot) {
      ibv_sge element{.addr = reinterpret_cast<uint64_t>(memory_.data()), .length = 2048,
                      .lkey = region_->lkey};
      ibv_recv_wr request{.sg_list = &element, .num_sge = 1};
      ibv_recv_wr* bad = nullptr;
      ASSERT_EQ(ibv_post_wq_recv(wqs_[i], &request, &bad), 0);
    }
  }

  // `flags`: MLX5DV_QP_CREATE_*, as DPDK asks for some.
  ibv_qp* MakeQp(uint64_t fields, uint8_t key_bytes = 40, uint32_t flags = 0) {
    auto key = Key();
    ibv_qp_init_attr_ex wanted{.qp_type = IBV_QPT_RAW_PACKET};
    wanted.comp_mask =
        IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH;
    wanted.pd = pd_;
    wanted.rwq_ind_tbl = table_;
    wanted.rx_hash_conf = {.rx_hash_function = IBV_RX_HASH_FUNC_TOEPLITZ,
                           .rx_hash_key_len = key_bytes,
                           .rx_hash_key = key.data(),
                           .rx_hash_fields_mask = fields};
    if (flags == 0) return ibv_create_qp_ex(context_, &wanted);
    mlx5dv_qp_init_attr of_mlx5{.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS,
                                .create_flags = flags};
    return mlx5dv_create_qp(context_, &wanted, &of_mlx5);
  }

  ibv_flow* TakeEverything(ibv_qp* qp) {
    ibv_flow_attr rule{.type = IBV_FLOW_ATTR_ALL_DEFAULT, .size = sizeof(rule), .port = 1};
    return ibv_create_flow(qp, &rule);
  }

  ConnectXRig connectx_{SoftwareConnectX::Mode::kStep};
  std::vector<uint8_t> memory_ = std::vector<uint8_t>(2048);
  ibv_context* context_ = nullptr;
  ibv_pd* pd_ = nullptr;
  ibv_mr* region_ = nullptr;
  std::array<ibv_cq*, kQueues> cqs_{};
  std::array<ibv_wq*, kQueues> wqs_{};
  ibv_rwq_ind_table* table_ = nullptr;
};

// The flows are those of NDIS's examples. Hashed is what both ends are together and what they
// differ in, so that a flow's other direction goes to the same queue.
TEST_F(ReceiveScalingTest, BothDirectionsOfAFlowGoToTheQueueOfTheirHash) {
  struct Row {
    const char* source;
    const char* destination;
    uint16_t source_port;
    uint16_t destination_port;
    uint32_t hash;
  };
  const Row rows[] = {
      {"66.9.149.187", "161.142.100.80", 2794, 1766, 0xa65524fa},
      {"199.92.111.2", "65.69.140.83", 14230, 4739, 0x69d9c235},
      {"24.19.198.95", "12.22.207.184", 12898, 38024, 0x886967e2},
      {"38.27.205.30", "209.142.163.6", 48228, 2217, 0x021058ed},
      {"153.39.163.191", "202.188.127.2", 44251, 1303, 0xd9fe70e3},
  };
  for (size_t i = 0; i < kQueues; ++i) PostReceives(i);  // Four flows may meet in one queue.
  ibv_qp* qp = MakeQp(kAllOfTcpOverIpv4);
  ASSERT_NE(qp, nullptr);
  ibv_flow* flow = TakeEverything(qp);
  ASSERT_NE(flow, nullptr);
  {
    Endpoint a("mlx5_0");
    for (const Row& row : rows) {
      for (const auto& frame : {TcpFrame(row.source, row.destination, row.source_port,
                                         row.destination_port),
                                TcpFrame(row.destination, row.source, row.destination_port,
                                         row.source_port)}) {
        ASSERT_EQ(a.Send(0, frame, IBV_SEND_IP_CSUM), 0);
        connectx_->Step(1000);
        EXPECT_EQ(Endpoint::Poll(a.send_cq()).status, IBV_WC_SUCCESS);
        for (size_t i = 0; i < kQueues; ++i) {
          const auto status = Endpoint::Poll(cqs_[i]).status;
          EXPECT_EQ(status == IBV_WC_SUCCESS, i == row.hash % kQueues) << row.source;
        }
      }
    }
  }
  EXPECT_EQ(ibv_destroy_flow(flow), 0);
  EXPECT_EQ(ibv_destroy_qp(qp), 0);
}

TEST_F(ReceiveScalingTest, QueueThatIsNotReadyGetsNothingAndComesBack) {
  ibv_qp* qp = MakeQp(IBV_RX_HASH_DST_PORT_UDP);
  ibv_flow* flow = TakeEverything(qp);
  for (size_t i = 0; i < kQueues; ++i) SetState(i, IBV_WQS_RESET);
  {
    Endpoint a("mlx5_0");
    ASSERT_EQ(a.Send(0, UdpFrame(5000, std::string(30, 'x')), 0), 0);
    connectx_->Step();
    for (size_t i = 0; i < kQueues; ++i) {
      EXPECT_NE(Endpoint::Poll(cqs_[i]).status, IBV_WC_SUCCESS);
      SetState(i, IBV_WQS_RDY);
      PostReceives(i);
    }
    ASSERT_EQ(a.Send(0, UdpFrame(5000, std::string(30, 'x')), 0), 0);
    connectx_->Step();
    int received = 0;
    for (ibv_cq* cq : cqs_) received += Endpoint::Poll(cq).status == IBV_WC_SUCCESS ? 1 : 0;
    EXPECT_EQ(received, 1);
  }
  EXPECT_EQ(ibv_destroy_flow(flow), 0);
  EXPECT_EQ(ibv_destroy_qp(qp), 0);
}

TEST_F(ReceiveScalingTest, WhatTheCardDoesNotHashIsRefused) {
  EXPECT_EQ(MakeQp(kAllOfTcpOverIpv4, 39), nullptr);
  EXPECT_EQ(errno, EINVAL) << "a key of 39 bytes";
  EXPECT_EQ(MakeQp(IBV_RX_HASH_SRC_IPV4 | IBV_RX_HASH_SRC_IPV6), nullptr);
  EXPECT_EQ(errno, EINVAL) << "two IP versions";
  EXPECT_EQ(MakeQp(IBV_RX_HASH_SRC_PORT_UDP | IBV_RX_HASH_DST_PORT_TCP), nullptr);
  EXPECT_EQ(errno, EINVAL) << "two protocols";
  EXPECT_EQ(MakeQp(0), nullptr);
  EXPECT_EQ(errno, EINVAL) << "nothing to hash, four queues";
  EXPECT_EQ(MakeQp(IBV_RX_HASH_IPSEC_SPI), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
}

TEST_F(ReceiveScalingTest, ObjectsInUseAreNotDestroyedAndSpreadingQpsHaveNoState) {
  ibv_qp* qp = MakeQp(kAllOfTcpOverIpv4);
  ASSERT_NE(qp, nullptr);
  EXPECT_EQ(ibv_destroy_wq(wqs_[0]), EBUSY);
  EXPECT_EQ(ibv_destroy_rwq_ind_table(table_), EBUSY);
  ibv_qp_attr attributes{.qp_state = IBV_QPS_INIT, .port_num = 1};
  EXPECT_NE(ibv_modify_qp(qp, &attributes, IBV_QP_STATE | IBV_QP_PORT), 0);
  EXPECT_EQ(ibv_destroy_qp(qp), 0);
}

TEST_F(ReceiveScalingTest, StateThatTheProgramThinksItHasMustBeTheQueues) {
  ibv_wq_attr attributes{.attr_mask = IBV_WQ_ATTR_STATE | IBV_WQ_ATTR_CURR_STATE,
                         .wq_state = IBV_WQS_ERR,
                         .curr_wq_state = IBV_WQS_RESET};
  EXPECT_EQ(ibv_modify_wq(wqs_[0], &attributes), EINVAL);
  attributes.curr_wq_state = IBV_WQS_RDY;
  attributes.wq_state = IBV_WQS_UNKNOWN;
  EXPECT_EQ(ibv_modify_wq(wqs_[0], &attributes), EINVAL);
  attributes.wq_state = IBV_WQS_ERR;
  EXPECT_EQ(ibv_modify_wq(wqs_[0], &attributes), 0);
  connectx_->Step();
  EXPECT_EQ(Endpoint::Poll(cqs_[0]).status, IBV_WC_WR_FLUSH_ERR);
}

TEST_F(ReceiveScalingTest, ChangeThatIsRefusedForItsStateChangesNoFlags) {
  ibv_qp* qp = MakeQp(kAllOfTcpOverIpv4);
  ASSERT_NE(qp, nullptr);
  ibv_flow* flow = TakeEverything(qp);
  ASSERT_NE(flow, nullptr);
  for (ibv_wq* wq : wqs_) {
    ibv_wq_attr attributes{.attr_mask = IBV_WQ_ATTR_STATE | IBV_WQ_ATTR_FLAGS,
                           .wq_state = IBV_WQS_UNKNOWN,
                           .flags = IBV_WQ_FLAGS_CVLAN_STRIPPING,
                           .flags_mask = IBV_WQ_FLAGS_CVLAN_STRIPPING};
    EXPECT_EQ(ibv_modify_wq(wq, &attributes), EINVAL);
  }
  {
    Endpoint a("mlx5_0");
    std::vector<uint8_t> frame = TcpFrame("10.0.0.1", "10.0.0.2", 1, 2);
    const uint8_t tag[] = {0x81, 0, 0, 5};
    frame.insert(frame.begin() + 12, std::begin(tag), std::end(tag));
    ASSERT_EQ(a.Send(0, frame, 0), 0);
    connectx_->Step(1000);
    uint32_t bytes = 0;
    for (ibv_cq* cq : cqs_) {
      const ibv_wc taken = Endpoint::Poll(cq);
      if (taken.status == IBV_WC_SUCCESS) bytes = taken.byte_len;
    }
    EXPECT_EQ(bytes, frame.size()) << "with its tag";
  }
  EXPECT_EQ(ibv_destroy_flow(flow), 0);
  EXPECT_EQ(ibv_destroy_qp(qp), 0);
}

TEST(DeviceWithoutScaling, OffersNoneAndRefusesIt) {
  Device::Options device;
  device.features.receive_scaling = false;
  ConnectXRig connectx(SoftwareConnectX::Mode::kStep, {}, device);
  Endpoint a("mlx5_0");
  ibv_device_attr_ex attributes{};
  ASSERT_EQ(ibv_query_device_ex(a.context(), nullptr, &attributes), 0);
  EXPECT_EQ(attributes.rss_caps.supported_qpts, 0u);
  ibv_wq_init_attr wanted{.wq_type = IBV_WQT_RQ, .max_wr = 4, .max_sge = 1, .pd = a.pd(),
                          .cq = a.receive_cq()};
  EXPECT_EQ(ibv_create_wq(a.context(), &wanted), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
}

TEST_F(ReceiveScalingTest, OwnSendsThatComeBackMayBeAskedForAndTunnelsMayNot) {
  for (const uint32_t flag : {MLX5DV_QP_CREATE_TIR_ALLOW_SELF_LOOPBACK_UC,
                              MLX5DV_QP_CREATE_TIR_ALLOW_SELF_LOOPBACK_MC}) {
    ibv_qp* qp = MakeQp(0xf & kAllOfTcpOverIpv4, 40, flag);
    ASSERT_NE(qp, nullptr) << std::strerror(errno);
    EXPECT_EQ(ibv_destroy_qp(qp), 0);
  }
  EXPECT_EQ(MakeQp(0xf & kAllOfTcpOverIpv4, 40, MLX5DV_QP_CREATE_TUNNEL_OFFLOADS), nullptr);
}

}  // namespace
}  // namespace xtreme::connectx
