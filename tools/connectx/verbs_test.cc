// SPDX-License-Identifier: Apache-2.0
//
// Plain verbs through the distribution's libibverbs and libmlx5 on a stepped software ConnectX: two
// devices of one process, joined by a cable in memory.

#include <fcntl.h>
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tools/connectx/connectx.h"
#include "tools/connectx/connectx_rig.h"
#include "tools/connectx/verbs_endpoint.h"

namespace xtreme::connectx {
namespace {

constexpr uint16_t kPort = 26477;
constexpr uint32_t kTag = 0x123456;

// RFC 1071: the sum over `bytes` with their checksum in place folds to all ones.
bool ChecksumHolds(std::span<const uint8_t> bytes, uint32_t sum = 0) {
  for (size_t i = 0; i < bytes.size(); ++i) {
    sum += i % 2 == 0 ? uint32_t{bytes[i]} << 8 : uint32_t{bytes[i]};
  }
  while (sum >> 16 != 0) sum = (sum & 0xffff) + (sum >> 16);
  return sum == 0xffff;
}

uint32_t UdpPseudoHeaderSum(size_t udp_bytes) {
  return (kIpA >> 16) + (kIpA & 0xffff) + (kIpB >> 16) + (kIpB & 0xffff) + 17 +
         static_cast<uint32_t>(udp_bytes);
}

ibv_flow* TakeEverything(ibv_qp* qp) {
  ibv_flow_attr rule{.type = IBV_FLOW_ATTR_ALL_DEFAULT, .size = sizeof(rule), .port = 1};
  return ibv_create_flow(qp, &rule);
}

class VerbsTest : public testing::Test {
 protected:
  void TearDown() override { connectx_.ExpectClean(); }

  ConnectXRig connectx_{SoftwareConnectX::Mode::kStep};
};

TEST_F(VerbsTest, DevicesAreListedByName) {
  int count = 0;
  ibv_device** devices = ibv_get_device_list(&count);
  std::vector<std::string> names;
  for (int i = 0; i < count; ++i) names.push_back(ibv_get_device_name(devices[i]));
  ibv_free_device_list(devices);
  std::sort(names.begin(), names.end());
  EXPECT_EQ(names, (std::vector<std::string>{"mlx5_0", "mlx5_1"}));
}

TEST_F(VerbsTest, DeviceAnswersWhatADriverAsks) {
  ibv_context* context = OpenDevice("mlx5_0");
  ASSERT_NE(context, nullptr);
  ibv_device_attr_ex device{};
  ASSERT_EQ(ibv_query_device_ex(context, nullptr, &device), 0);
  EXPECT_STREQ(device.orig_attr.fw_ver, "16.35.4030");
  EXPECT_EQ(device.orig_attr.phys_port_cnt, 1);
  EXPECT_NE(device.raw_packet_caps & IBV_RAW_PACKET_CAP_IP_CSUM, 0u);
  EXPECT_EQ(device.hca_core_clock, connectx_->device(0).options().hca_core_clock_khz);
  ibv_port_attr port{};
  ASSERT_EQ(ibv_query_port(context, 1, &port), 0);
  EXPECT_EQ(port.state, IBV_PORT_ACTIVE);
  EXPECT_EQ(port.link_layer, IBV_LINK_LAYER_ETHERNET);
  EXPECT_EQ(port.active_mtu, IBV_MTU_1024);
  EXPECT_EQ(ibv_query_port(context, 2, &port), EINVAL);
  EXPECT_EQ(ibv_close_device(context), 0);
}

TEST_F(VerbsTest, GidTableHoldsTheLinkLocalAddressOfThePortInBothRoceVersions) {
  ibv_context* context = OpenDevice("mlx5_1");
  ASSERT_NE(context, nullptr);
  ibv_gid_entry entries[8];
  ASSERT_EQ(ibv_query_gid_table(context, entries, 8, 0), 2);
  EXPECT_EQ(entries[0].gid_type, uint32_t{IBV_GID_TYPE_ROCE_V1});
  EXPECT_EQ(entries[1].gid_type, uint32_t{IBV_GID_TYPE_ROCE_V2});
  EXPECT_EQ(entries[1].gid.raw[8], 0x00);
  EXPECT_EQ(entries[1].gid.raw[15], 0x0b);
  ibv_gid_entry beyond;
  EXPECT_EQ(ibv_query_gid_ex(context, 1, 2, &beyond, 0), EINVAL);
  EXPECT_EQ(ibv_close_device(context), 0);
}

// Programs read entries until one is refused; an empty entry is none.
TEST_F(VerbsTest, EntryBehindTheGidTableIsInvalid) {
  ibv_context* context = OpenDevice("mlx5_0");
  ibv_port_attr port{};
  ASSERT_EQ(ibv_query_port(context, 1, &port), 0);
  ibv_gid gid;
  EXPECT_EQ(ibv_query_gid(context, 1, port.gid_tbl_len - 1, &gid), 0);
  EXPECT_NE(ibv_query_gid(context, 1, port.gid_tbl_len, &gid), 0);
  EXPECT_EQ(ibv_close_device(context), 0);
}

TEST_F(VerbsTest, FrameSentIsPolledByTheOtherDeviceByteForByte) {
  Endpoint a("mlx5_0");
  Endpoint b("mlx5_1");
  ibv_flow* flow = b.Listen(kPort, kTag);
  ASSERT_NE(flow, nullptr);
  b.PostReceive(3);
  const std::vector<uint8_t> frame = UdpFrame(kPort, "completion, not a readiness");
  ASSERT_EQ(a.Send(5, frame, 0), 0);
  connectx_->Step();
  const ibv_wc sent = Endpoint::Poll(a.send_cq());
  EXPECT_EQ(sent.status, IBV_WC_SUCCESS);
  EXPECT_EQ(sent.wr_id, 5u);
  const ibv_wc got = Endpoint::Poll(b.receive_cq());
  ASSERT_EQ(got.status, IBV_WC_SUCCESS);
  EXPECT_EQ(got.wr_id, 3u);
  ASSERT_EQ(got.byte_len, frame.size());
  EXPECT_TRUE(std::ranges::equal(b.received(3, frame.size()), frame));
  EXPECT_EQ(ibv_destroy_flow(flow), 0);
}

TEST_F(VerbsTest, ChecksumsAreFilledOnSendAndVouchedForOnReceive) {
  Endpoint a("mlx5_0");
  Endpoint b("mlx5_1");
  ibv_flow* flow = b.Listen(kPort, kTag);
  b.PostReceive(0);
  b.PostReceive(1);
  const std::vector<uint8_t> frame = UdpFrame(kPort, "odd number of bytes in it");
  ASSERT_EQ(a.Send(0, frame, IBV_SEND_IP_CSUM), 0);
  connectx_->Step();
  const ibv_wc filled = Endpoint::Poll(b.receive_cq());
  ASSERT_EQ(filled.status, IBV_WC_SUCCESS);
  EXPECT_NE(filled.wc_flags & IBV_WC_IP_CSUM_OK, 0u);
  const auto bytes = b.received(0, frame.size());
  EXPECT_TRUE(ChecksumHolds(bytes.subspan(14, 20)));
  EXPECT_TRUE(ChecksumHolds(bytes.subspan(34), UdpPseudoHeaderSum(bytes.size() - 34)));
  // Not asked for, not filled, not vouched for.
  ASSERT_EQ(a.Send(1, frame, 0), 0);
  connectx_->Step();
  const ibv_wc unfilled = Endpoint::Poll(b.receive_cq());
  ASSERT_EQ(unfilled.status, IBV_WC_SUCCESS);
  EXPECT_EQ(unfilled.wc_flags & IBV_WC_IP_CSUM_OK, 0u);
  EXPECT_EQ(ibv_destroy_flow(flow), 0);
}

TEST_F(VerbsTest, InlineDataLeavesByBlueFlameAndMayBeReusedAtOnce) {
  Endpoint a("mlx5_0");
  Endpoint b("mlx5_1");
  ibv_flow* flow = b.Listen(kPort, kTag);
  b.PostReceive(0);
  const std::vector<uint8_t> frame = UdpFrame(kPort, "first");
  ASSERT_EQ(a.Send(0, frame, IBV_SEND_INLINE), 0);
  const std::vector<uint8_t> other(frame.size(), 0xee);
  // The slot's memory is overwritten before the device looks.
  ASSERT_EQ(a.Send(0, other, IBV_SEND_INLINE), 0);
  connectx_->Step();
  ASSERT_EQ(Endpoint::Poll(b.receive_cq()).status, IBV_WC_SUCCESS);
  EXPECT_TRUE(std::ranges::equal(b.received(0, frame.size()), frame));
  EXPECT_EQ(ibv_destroy_flow(flow), 0);
}

TEST_F(VerbsTest, QueuesSurviveManyLaps) {
  Endpoint a("mlx5_0", {.queue_depth = 4});
  Endpoint b("mlx5_1", {.queue_depth = 4});
  ibv_flow* flow = b.Listen(kPort, kTag);
  for (int i = 0; i < 1000; ++i) {
    b.PostReceive(i % 4);
    const std::vector<uint8_t> frame = UdpFrame(kPort, std::to_string(i));
    ASSERT_EQ(a.Send(i % 4, frame, 0), 0) << i;
    connectx_->Step();
    ASSERT_EQ(Endpoint::Poll(a.send_cq()).status, IBV_WC_SUCCESS) << i;
    const ibv_wc got = Endpoint::Poll(b.receive_cq());
    ASSERT_EQ(got.status, IBV_WC_SUCCESS) << i;
    ASSERT_TRUE(std::ranges::equal(b.received(i % 4, frame.size()), frame)) << i;
  }
  EXPECT_EQ(ibv_destroy_flow(flow), 0);
}

TEST_F(VerbsTest, NothingArrivesWithoutARuleAndNothingAfterItIsGone) {
  Endpoint a("mlx5_0");
  Endpoint b("mlx5_1");
  b.PostReceive(0);
  ASSERT_EQ(a.Send(0, UdpFrame(kPort, "early"), 0), 0);
  connectx_->Step();
  EXPECT_NE(Endpoint::Poll(b.receive_cq()).status, IBV_WC_SUCCESS);
  ibv_flow* flow = b.Listen(kPort, kTag);
  EXPECT_EQ(ibv_destroy_flow(flow), 0);
  ASSERT_EQ(a.Send(1, UdpFrame(kPort, "late"), 0), 0);
  connectx_->Step();
  EXPECT_NE(Endpoint::Poll(b.receive_cq()).status, IBV_WC_SUCCESS);
}

TEST_F(VerbsTest, EqualRuleWithAnotherTagIsRefused) {
  Endpoint b("mlx5_1");
  ibv_flow* flow = b.Listen(kPort, kTag);
  ASSERT_NE(flow, nullptr);
  EXPECT_EQ(b.Listen(kPort, kTag + 1), nullptr);
  EXPECT_EQ(errno, EEXIST);
  connectx_.ExpectViolation("flow_tag");
  EXPECT_EQ(ibv_destroy_flow(flow), 0);
}

TEST_F(VerbsTest, TimestampsAreTheVirtualClockInCycles) {
  Endpoint a("mlx5_0");
  ibv_cq_init_attr_ex attributes{.cqe = 8, .wc_flags = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP};
  ibv_cq_ex* cq = ibv_create_cq_ex(a.context(), &attributes);
  ASSERT_NE(cq, nullptr);
  ibv_qp_init_attr queue{.send_cq = ibv_cq_ex_to_cq(cq),
                         .recv_cq = ibv_cq_ex_to_cq(cq),
                         .cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1,
                                 .max_recv_sge = 1},
                         .qp_type = IBV_QPT_RAW_PACKET};
  ibv_qp* qp = ibv_create_qp(a.pd(), &queue);
  ASSERT_NE(qp, nullptr);
  ibv_qp_attr state{.qp_state = IBV_QPS_INIT, .port_num = 1};
  ASSERT_EQ(ibv_modify_qp(qp, &state, IBV_QP_STATE | IBV_QP_PORT), 0);
  for (ibv_qp_state next : {IBV_QPS_RTR, IBV_QPS_RTS}) {
    state = {.qp_state = next};
    ASSERT_EQ(ibv_modify_qp(qp, &state, IBV_QP_STATE), 0);
  }
  std::vector<uint8_t> frame = UdpFrame(kPort, "stamped");
  ibv_mr* region = ibv_reg_mr(a.pd(), frame.data(), frame.size(), 0);
  ibv_sge element{.addr = reinterpret_cast<uint64_t>(frame.data()),
                  .length = static_cast<uint32_t>(frame.size()),
                  .lkey = region->lkey};
  ibv_send_wr request{.sg_list = &element, .num_sge = 1, .opcode = IBV_WR_SEND,
                      .send_flags = IBV_SEND_SIGNALED};
  ibv_send_wr* bad = nullptr;
  ASSERT_EQ(ibv_post_send(qp, &request, &bad), 0);
  connectx_->Step(12'345);
  ibv_poll_cq_attr poll{};
  ASSERT_EQ(ibv_start_poll(cq, &poll), 0);
  EXPECT_EQ(ibv_wc_read_completion_ts(cq),
            connectx_->device(0).CyclesAt(connectx_->clock().Now()));
  ibv_end_poll(cq);
  EXPECT_EQ(ibv_destroy_qp(qp), 0);
  EXPECT_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
  EXPECT_EQ(ibv_dereg_mr(region), 0);
}

TEST_F(VerbsTest, PortCountersShowInSysfs) {
  Endpoint a("mlx5_0");
  Endpoint b("mlx5_1");
  ibv_flow* flow = b.Listen(kPort, kTag);
  ASSERT_EQ(a.Send(0, UdpFrame(kPort, "nowhere to go"), 0), 0);
  connectx_->Step();
  const std::string path = std::string(b.context()->device->ibdev_path) +
                           "/ports/1/hw_counters/out_of_buffer";
  char text[32] = {};
  const int fd = ::open(path.c_str(), O_RDONLY);
  ASSERT_GE(fd, 0) << path;
  EXPECT_GT(::read(fd, text, sizeof(text) - 1), 0);
  ::close(fd);
  EXPECT_STREQ(text, "1\n");
  EXPECT_EQ(ibv_destroy_flow(flow), 0);
}

bool Readable(int fd) {
  pollfd poll_fd{.fd = fd, .events = POLLIN};
  return ::poll(&poll_fd, 1, 0) == 1;
}

TEST_F(VerbsTest, ArmedQueueMakesItsChannelReadableOnce) {
  Endpoint a("mlx5_0");
  Endpoint b("mlx5_1", {.completion_channel = true});
  ibv_flow* flow = b.Listen(kPort, kTag);
  const int epoll = ::epoll_create1(EPOLL_CLOEXEC);
  epoll_event interest{.events = EPOLLIN};
  ASSERT_EQ(::epoll_ctl(epoll, EPOLL_CTL_ADD, b.channel()->fd, &interest), 0);
  b.PostReceive(0);
  b.PostReceive(1);
  ASSERT_EQ(ibv_req_notify_cq(b.receive_cq(), 0), 0);
  connectx_->Step();
  EXPECT_FALSE(Readable(b.channel()->fd));
  ASSERT_EQ(a.Send(0, UdpFrame(kPort, "one"), 0), 0);
  ASSERT_EQ(a.Send(1, UdpFrame(kPort, "two"), 0), 0);
  connectx_->Step();
  epoll_event ready;
  EXPECT_EQ(::epoll_wait(epoll, &ready, 1, 0), 1);
  ibv_cq* cq = nullptr;
  void* cookie = nullptr;
  ASSERT_EQ(ibv_get_cq_event(b.channel(), &cq, &cookie), 0);
  EXPECT_EQ(cq, b.receive_cq());
  EXPECT_FALSE(Readable(b.channel()->fd));
  ibv_ack_cq_events(cq, 1);
  ::close(epoll);
  EXPECT_EQ(ibv_destroy_flow(flow), 0);
}

TEST_F(VerbsTest, UnreadEventsGoWithTheirQueue) {
  Endpoint a("mlx5_0");
  {
    Endpoint b("mlx5_1", {.completion_channel = true});
    ibv_flow* flow = b.Listen(kPort, kTag);
    b.PostReceive(0);
    ASSERT_EQ(ibv_req_notify_cq(b.receive_cq(), 0), 0);
    ASSERT_EQ(a.Send(0, UdpFrame(kPort, "unread"), 0), 0);
    connectx_->Step();
    ASSERT_TRUE(Readable(b.channel()->fd));
    EXPECT_EQ(ibv_destroy_flow(flow), 0);
  }  // ibv_destroy_cq would wait here for an acknowledgement of an event nobody has read.
  EXPECT_EQ(connectx_->live_objects().cqs, 2u);
}

TEST_F(VerbsTest, QueuePairReportsItsStateAndCapabilities) {
  Endpoint a("mlx5_0");
  ibv_qp_attr attributes{};
  ibv_qp_init_attr initial{};
  ASSERT_EQ(ibv_query_qp(a.qp(), &attributes, IBV_QP_STATE | IBV_QP_CAP, &initial), 0);
  EXPECT_EQ(attributes.qp_state, IBV_QPS_RTS);
  EXPECT_GE(attributes.cap.max_recv_sge, 1u);
  EXPECT_GE(attributes.cap.max_send_wr, 16u);
}

TEST_F(VerbsTest, QueuePairReportsWhetherEverySendIsSignalled) {
  Endpoint a("mlx5_0");
  for (int all : {0, 1}) {
    ibv_qp_init_attr wanted{.send_cq = a.send_cq(), .recv_cq = a.receive_cq(),
                            .cap = {.max_send_wr = 4, .max_send_sge = 1},
                            .qp_type = IBV_QPT_RAW_PACKET, .sq_sig_all = all};
    ibv_qp* qp = ibv_create_qp(a.pd(), &wanted);
    ASSERT_NE(qp, nullptr);
    ibv_qp_attr attributes{};
    ibv_qp_init_attr shown{};
    ASSERT_EQ(ibv_query_qp(qp, &attributes, IBV_QP_STATE, &shown), 0);
    EXPECT_EQ(shown.sq_sig_all, all);
    EXPECT_EQ(ibv_destroy_qp(qp), 0);
  }
}

// The kernel's ib_uverbs_ex_modify_cq and mlx5_ib_modify_cq.
TEST_F(VerbsTest, ModerationBeyondWhatIsOfferedIsInvalid) {
  Endpoint a("mlx5_0");
  ibv_device_attr_ex device{};
  ASSERT_EQ(ibv_query_device_ex(a.context(), nullptr, &device), 0);
  ibv_modify_cq_attr asked{.attr_mask = IBV_CQ_ATTR_MODERATE,
                           .moderate = {.cq_count = device.cq_mod_caps.max_cq_count,
                                        .cq_period = device.cq_mod_caps.max_cq_period}};
  EXPECT_EQ(ibv_modify_cq(a.receive_cq(), &asked), 0);
  ++asked.moderate.cq_period;
  EXPECT_EQ(ibv_modify_cq(a.receive_cq(), &asked), EINVAL);
  asked.attr_mask = 0;
  EXPECT_EQ(ibv_modify_cq(a.receive_cq(), &asked), EINVAL);
}

TEST_F(VerbsTest, RegionsTakeKnownAccessOnlyAndOptionalOnesThatNobodyKnows) {
  Endpoint a("mlx5_0");
  std::vector<uint8_t> memory(64);
  const auto error_of = [&](unsigned access) {
    errno = 0;
    ibv_mr* region = (ibv_reg_mr)(a.pd(), memory.data(), memory.size(), static_cast<int>(access));
    if (region == nullptr) return errno;
    return ibv_dereg_mr(region);
  };
  constexpr unsigned kUnknown = 1 << 15;
  constexpr unsigned kUnknownOptional = 1 << 27;
  EXPECT_EQ(error_of(IBV_ACCESS_LOCAL_WRITE | kUnknown), EINVAL);
  EXPECT_EQ(error_of(IBV_ACCESS_LOCAL_WRITE | kUnknownOptional | IBV_ACCESS_RELAXED_ORDERING), 0);
}

TEST_F(VerbsTest, FlagsOfRulesThatNobodyKnowsAreWrong) {
  Endpoint a("mlx5_0");
  const auto error_of = [&](uint32_t flags) {
    ibv_flow_attr rule{
        .type = IBV_FLOW_ATTR_NORMAL, .size = sizeof rule, .port = 1, .flags = flags};
    errno = 0;
    ibv_flow* const flow = ibv_create_flow(a.qp(), &rule);
    if (flow != nullptr) ibv_destroy_flow(flow);
    return errno;
  };
  EXPECT_EQ(error_of(0), 0);
  EXPECT_EQ(error_of(IBV_FLOW_ATTR_FLAGS_DONT_TRAP), 0);
  for (const uint32_t unknown : {1u << 0, 1u << 3, 1u << 9, 1u << 31}) {
    EXPECT_EQ(error_of(unknown), EINVAL) << unknown;
  }
  EXPECT_EQ(error_of(IBV_FLOW_ATTR_FLAGS_EGRESS), EOPNOTSUPP);
}

TEST_F(VerbsTest, QueuePairsOfOtherKindsAreNotSupported) {
  Endpoint a("mlx5_0");
  for (ibv_qp_type type : {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD}) {
    ibv_qp_init_attr attributes{.send_cq = a.send_cq(),
                                .recv_cq = a.send_cq(),
                                .cap = {.max_send_wr = 1, .max_send_sge = 1},
                                .qp_type = type};
    EXPECT_EQ(ibv_create_qp(a.pd(), &attributes), nullptr);
    EXPECT_EQ(errno, EOPNOTSUPP);
  }
}

TEST_F(VerbsTest, WhatIsNotOfferedIsRefusedBeforeOrAtTheBoundary) {
  Endpoint a("mlx5_0");
  ibv_srq_init_attr shared{.attr = {.max_wr = 4, .max_sge = 1}};
  EXPECT_EQ(ibv_create_srq(a.pd(), &shared), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  EXPECT_EQ(ibv_resize_cq(a.send_cq(), 64), EOPNOTSUPP);
  ibv_qp_init_attr_ex attributes{.send_cq = a.send_cq(),
                                 .recv_cq = a.send_cq(),
                                 .cap = {.max_send_wr = 1, .max_send_sge = 1},
                                 .qp_type = IBV_QPT_RAW_PACKET,
                                 .comp_mask = IBV_QP_INIT_ATTR_PD,
                                 .pd = a.pd()};
  mlx5dv_qp_init_attr vendor{.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS,
                             .create_flags = MLX5DV_QP_CREATE_TUNNEL_OFFLOADS};
  EXPECT_EQ(mlx5dv_create_qp(a.context(), &attributes, &vendor), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(VerbsTest, OwnSendsComeBackToOtherContextsAndToWhoAskedForThem) {
  std::vector<uint8_t> group = UdpFrame(5000, "x");
  group[0] = 0x01;
  for (const uint32_t flags : {0u, uint32_t{MLX5DV_QP_CREATE_TIR_ALLOW_SELF_LOOPBACK_UC},
                               uint32_t{MLX5DV_QP_CREATE_TIR_ALLOW_SELF_LOOPBACK_MC}}) {
    Endpoint b("mlx5_1", {.create_flags = flags});
    Endpoint other("mlx5_1");
    std::vector<ibv_flow*> rules = {TakeEverything(b.qp()), TakeEverything(other.qp())};
    for (Endpoint* each : {&b, &other}) {
      for (int slot = 0; slot < 2; ++slot) each->PostReceive(slot);
    }
    const auto received = [&](Endpoint& by) {
      return Endpoint::Poll(by.receive_cq()).status == IBV_WC_SUCCESS;
    };
    ASSERT_EQ(b.Send(0, UdpFrame(5000, "x"), 0), 0);
    connectx_->Step();
    EXPECT_EQ(received(b), flags == MLX5DV_QP_CREATE_TIR_ALLOW_SELF_LOOPBACK_UC) << flags;
    EXPECT_TRUE(received(other)) << flags;
    ASSERT_EQ(b.Send(1, group, 0), 0);
    connectx_->Step();
    EXPECT_EQ(received(b), flags == MLX5DV_QP_CREATE_TIR_ALLOW_SELF_LOOPBACK_MC) << flags;
    EXPECT_TRUE(received(other)) << flags;
    for (ibv_flow* rule : rules) EXPECT_EQ(ibv_destroy_flow(rule), 0);
  }
}

TEST_F(VerbsTest, MemoryThatIsNotThereCannotBeRegistered) {
  Endpoint a("mlx5_0");
  EXPECT_EQ(ibv_reg_mr(a.pd(), reinterpret_cast<void*>(0x1000), 4096, 0), nullptr);
  EXPECT_EQ(errno, EFAULT);
  std::vector<uint8_t> memory(1);
  EXPECT_EQ(ibv_reg_mr(a.pd(), memory.data(), 0, 0), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(VerbsTest, MemoryThatReachesTheEndOfTheAddressesCannotBeRegistered) {
  Endpoint a("mlx5_0");
  std::vector<uint8_t> memory(1);
  EXPECT_EQ(ibv_reg_mr(a.pd(), nullptr, SIZE_MAX, 0), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(ibv_reg_mr(a.pd(), reinterpret_cast<void*>(SIZE_MAX - 9), 5, 0), nullptr);
  EXPECT_EQ(errno, EINVAL);
  const size_t to_the_end = SIZE_MAX - reinterpret_cast<uintptr_t>(memory.data());
  EXPECT_EQ(ibv_reg_mr(a.pd(), memory.data(), to_the_end, 0), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(VerbsTest, MemoryMustPermitWhatItIsRegisteredFor) {
  constexpr size_t kPage = 4096;
  Endpoint a("mlx5_0");
  auto* const memory = static_cast<uint8_t*>(
      ::mmap(nullptr, 3 * kPage, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(memory, MAP_FAILED);
  ASSERT_EQ(::mprotect(memory, kPage, PROT_READ | PROT_WRITE), 0);
  ASSERT_EQ(::mprotect(memory + 2 * kPage, kPage, PROT_NONE), 0);
  const auto error_of = [&](size_t bytes, int access) {
    errno = 0;
    ibv_mr* const region = ibv_reg_mr(a.pd(), memory, bytes, access);
    const int error = errno;
    if (region == nullptr) return error;
    EXPECT_EQ(ibv_dereg_mr(region), 0);
    return 0;
  };
  EXPECT_EQ(error_of(kPage, IBV_ACCESS_LOCAL_WRITE), 0);
  EXPECT_EQ(error_of(kPage + 1, IBV_ACCESS_LOCAL_WRITE), EFAULT) << "the second is for reading";
  EXPECT_EQ(error_of(2 * kPage, 0), 0);
  EXPECT_EQ(error_of(2 * kPage + 1, 0), EFAULT) << "the third is for nothing";
  ::munmap(memory, 3 * kPage);
}

// The kernel's table of transitions (ib_modify_qp_is_ok), for a RAW_PACKET queue pair.
TEST_F(VerbsTest, StateChangesTakeWhatTheKernelTakesAndNoMore) {
  Endpoint a("mlx5_0");
  ibv_qp_attr attributes{.port_num = 1};
  const auto modify = [&](ibv_qp_state to, int mask) {
    attributes.qp_state = to;
    return ibv_modify_qp(a.qp(), &attributes, IBV_QP_STATE | mask);
  };
  EXPECT_EQ(modify(IBV_QPS_RESET, 0), 0);
  EXPECT_EQ(modify(IBV_QPS_ERR, 0), EINVAL);
  EXPECT_EQ(modify(IBV_QPS_INIT, 0), EINVAL);
  EXPECT_EQ(modify(IBV_QPS_INIT, IBV_QP_PORT | IBV_QP_PKEY_INDEX), EINVAL);
  EXPECT_EQ(modify(IBV_QPS_INIT, IBV_QP_PORT | IBV_QP_QKEY), EINVAL);
  EXPECT_EQ(modify(IBV_QPS_INIT, IBV_QP_PORT), 0);
  EXPECT_EQ(modify(IBV_QPS_RTR, IBV_QP_PORT), EINVAL);
  EXPECT_EQ(modify(IBV_QPS_RTR, 0), 0);
  EXPECT_EQ(modify(IBV_QPS_RTS, IBV_QP_SQ_PSN), EINVAL);
  EXPECT_EQ(modify(IBV_QPS_RTS, 0), 0);
  EXPECT_EQ(ibv_modify_qp(a.qp(), &attributes, IBV_QP_MIN_RNR_TIMER), EINVAL);
  EXPECT_EQ(modify(IBV_QPS_ERR, 0), 0);
}

TEST_F(VerbsTest, CompletionQueueNeedsAVectorThatTheDeviceHas) {
  Endpoint a("mlx5_0");
  EXPECT_EQ(ibv_create_cq(a.context(), 4, nullptr, nullptr, a.context()->num_comp_vectors),
            nullptr);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(VerbsTest, CompletionQueueThatIgnoresOverrunsIsNotBrokenByOne) {
  Endpoint a("mlx5_0");
  ibv_cq_init_attr_ex asked{.cqe = 1,
                            .comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS,
                            .flags = IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN};
  ibv_cq_ex* const cq = ibv_create_cq_ex(a.context(), &asked);
  ASSERT_NE(cq, nullptr);
  ibv_qp_init_attr attributes{.send_cq = a.send_cq(),
                              .recv_cq = ibv_cq_ex_to_cq(cq),
                              .cap = {.max_recv_wr = 8, .max_recv_sge = 1},
                              .qp_type = IBV_QPT_RAW_PACKET};
  ibv_qp* const qp = ibv_create_qp(a.pd(), &attributes);
  ASSERT_NE(qp, nullptr);
  ibv_qp_attr state{.qp_state = IBV_QPS_INIT, .port_num = 1};
  ASSERT_EQ(ibv_modify_qp(qp, &state, IBV_QP_STATE | IBV_QP_PORT), 0);
  for (int i = 0; i < 8; ++i) {
    ibv_recv_wr nothing{};
    ibv_recv_wr* bad = nullptr;
    ASSERT_EQ(ibv_post_recv(qp, &nothing, &bad), 0);
  }
  for (const ibv_qp_state next : {IBV_QPS_RTR, IBV_QPS_ERR}) {
    state.qp_state = next;
    ASSERT_EQ(ibv_modify_qp(qp, &state, IBV_QP_STATE), 0);
  }
  connectx_->Step();  // Flushes eight into a ring of two.
  EXPECT_EQ(ibv_destroy_qp(qp), 0);
  EXPECT_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
}

TEST_F(VerbsTest, ObjectsInUseAreNotDestroyed) {
  Endpoint a("mlx5_0");
  EXPECT_EQ(ibv_destroy_cq(a.send_cq()), EBUSY);
  EXPECT_EQ(ibv_dealloc_pd(a.pd()), EBUSY);
  ibv_flow* flow = a.Listen(kPort, kTag);
  EXPECT_EQ(ibv_destroy_qp(a.qp()), EBUSY);
  EXPECT_EQ(ibv_destroy_flow(flow), 0);
}

TEST_F(VerbsTest, IndependentObjectsAreDestroyedInAnyOrder) {
  std::vector<int> order = {0, 1, 2, 3};
  do {
    ibv_context* context = OpenDevice("mlx5_0");
    ASSERT_NE(context, nullptr);
    std::vector<uint8_t> memory(4096);
    ibv_pd* pd = ibv_alloc_pd(context);
    ibv_pd* spare = ibv_alloc_pd(context);
    ibv_mr* region = ibv_reg_mr(pd, memory.data(), memory.size(), 0);
    ibv_comp_channel* channel = ibv_create_comp_channel(context);
    ibv_cq* first = ibv_create_cq(context, 4, nullptr, channel, 0);
    ibv_cq* second = ibv_create_cq(context, 4, nullptr, nullptr, 0);
    const std::vector<std::function<int()>> destroy = {
        [&] { return ibv_dereg_mr(region); }, [&] { return ibv_destroy_cq(first); },
        [&] { return ibv_destroy_cq(second); }, [&] { return ibv_dealloc_pd(spare); }};
    for (int what : order) EXPECT_EQ(destroy[what](), 0);
    EXPECT_EQ(ibv_dealloc_pd(pd), 0);
    EXPECT_EQ(ibv_destroy_comp_channel(channel), 0);
    EXPECT_EQ(ibv_close_device(context), 0);
    EXPECT_EQ(connectx_->live_objects(), LiveObjects{});
  } while (std::next_permutation(order.begin(), order.end()));
}

}  // namespace
}  // namespace xtreme::connectx
