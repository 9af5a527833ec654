// SPDX-License-Identifier: Apache-2.0
//
// What programs hear of trouble through plain verbs: asynchronous events, error completions, ports
// that go down, cards that are pulled, and the way back.

#include <fcntl.h>
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <poll.h>

#include <cerrno>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tools/connectx/connectx.h"
#include "tools/connectx/connectx_rig.h"
#include "tools/connectx/verbs_endpoint.h"

namespace xtreme::connectx {
namespace {

extern "C" {
__attribute__((weak)) void __lsan_disable();
__attribute__((weak)) void __lsan_enable();
}

// The next asynchronous event, acknowledged; empty: none waits.
std::optional<ibv_async_event> NextEvent(ibv_context* context) {
  fcntl(context->async_fd, F_SETFL, fcntl(context->async_fd, F_GETFL) | O_NONBLOCK);
  ibv_async_event event{};
  if (ibv_get_async_event(context, &event) != 0) return std::nullopt;
  ibv_ack_async_event(&event);
  return event;
}

// A send that the device refuses: from memory of nobody.
void SendFromNowhere(Endpoint& from) {
  static std::vector<uint8_t> memory(2048);
  ibv_sge element{.addr = reinterpret_cast<uint64_t>(memory.data()), .length = 100,
                  .lkey = 0x123400};
  ibv_send_wr request{.wr_id = 9, .sg_list = &element, .num_sge = 1, .opcode = IBV_WR_SEND,
                      .send_flags = IBV_SEND_SIGNALED};
  ibv_send_wr* bad = nullptr;
  ASSERT_EQ(ibv_post_send(from.qp(), &request, &bad), 0);
}

class EventTest : public testing::Test {
 protected:
  std::string PortFile(const std::string& name) {
    std::ifstream file(connectx_->sysfs_path() + "/class/infiniband/mlx5_0/ports/1/" + name);
    std::string text;
    std::getline(file, text);
    return text;
  }

  ConnectXRig connectx_{SoftwareConnectX::Mode::kStep};
};

TEST_F(EventTest, FailedSendFlushesTheSendsAndNothingElseAndIsRecoveredByReset) {
  Endpoint a("mlx5_0");
  const std::vector<uint8_t> frame = UdpFrame(5000, std::string(30, 'x'));
  SendFromNowhere(a);
  ASSERT_EQ(a.Send(1, frame, 0), 0);
  a.PostReceive(0);
  connectx_->Step();
  const ibv_wc failed = Endpoint::Poll(a.send_cq());
  EXPECT_EQ(failed.status, IBV_WC_LOC_PROT_ERR);
  EXPECT_EQ(failed.vendor_err, 0x52u);
  EXPECT_EQ(failed.wr_id, 9u);
  const ibv_wc flushed = Endpoint::Poll(a.send_cq());
  EXPECT_EQ(flushed.status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(flushed.vendor_err, 0xf9u);
  ibv_wc none[1];
  EXPECT_EQ(ibv_poll_cq(a.receive_cq(), 1, none), 0) << "receive queues go on";
  EXPECT_FALSE(NextEvent(a.context()).has_value()) << "the completion has told it";
  ibv_qp_attr attributes{};
  ibv_qp_init_attr made{};
  ASSERT_EQ(ibv_query_qp(a.qp(), &attributes, IBV_QP_STATE, &made), 0);
  EXPECT_EQ(attributes.qp_state, IBV_QPS_SQE);

  attributes = {.qp_state = IBV_QPS_RESET};
  ASSERT_EQ(ibv_modify_qp(a.qp(), &attributes, IBV_QP_STATE), 0);
  attributes = {.qp_state = IBV_QPS_INIT, .port_num = 1};
  ASSERT_EQ(ibv_modify_qp(a.qp(), &attributes, IBV_QP_STATE | IBV_QP_PORT), 0);
  for (ibv_qp_state state : {IBV_QPS_RTR, IBV_QPS_RTS}) {
    attributes = {.qp_state = state};
    ASSERT_EQ(ibv_modify_qp(a.qp(), &attributes, IBV_QP_STATE), 0);
  }
  ASSERT_EQ(a.Send(2, frame, 0), 0);
  connectx_->Step();
  EXPECT_EQ(Endpoint::Poll(a.send_cq()).status, IBV_WC_SUCCESS);
}

TEST_F(EventTest, PulledCableIsAnEventAStateAndAFile) {
  Endpoint a("mlx5_0");
  EXPECT_EQ(PortFile("state"), "4: ACTIVE");
  connectx_.end(0).SetPlugged(false);
  connectx_->Step();
  auto event = NextEvent(a.context());
  ASSERT_TRUE(event.has_value());
  EXPECT_EQ(event->event_type, IBV_EVENT_PORT_ERR);
  EXPECT_EQ(event->element.port_num, 1);
  ibv_port_attr port{};
  ASSERT_EQ(ibv_query_port(a.context(), 1, &port), 0);
  EXPECT_EQ(port.state, IBV_PORT_DOWN);
  EXPECT_EQ(PortFile("state"), "1: DOWN");
  EXPECT_EQ(PortFile("phys_state"), "3: Disabled");
  connectx_.end(0).SetPlugged(true);
  connectx_->Step();
  event = NextEvent(a.context());
  ASSERT_TRUE(event.has_value());
  EXPECT_EQ(event->event_type, IBV_EVENT_PORT_ACTIVE);
  EXPECT_EQ(PortFile("state"), "4: ACTIVE");
}

TEST_F(EventTest, EveryOpenOfTheDeviceHearsOfThePort) {
  ibv_context* first = OpenDevice("mlx5_0");
  ibv_context* second = OpenDevice("mlx5_0");
  connectx_->device(0).SetPortUp(false);
  for (ibv_context* context : {first, second}) {
    const auto event = NextEvent(context);
    ASSERT_TRUE(event.has_value());
    EXPECT_EQ(event->event_type, IBV_EVENT_PORT_ERR);
    EXPECT_EQ(ibv_close_device(context), 0);
  }
  connectx_->device(0).SetPortUp(true);
  connectx_.ExpectClean();
}

// As from the kernel: a fatal event, EIO from then on, and no device in the list any more. What the
// libraries hold of objects that can no longer be destroyed is the program's leak.
TEST_F(EventTest, PulledCardIsFatalToItsProgramsAndGone) {
  if (__lsan_disable != nullptr) __lsan_disable();
  ibv_context* context = OpenDevice("mlx5_0");
  ibv_pd* pd = ibv_alloc_pd(context);
  ASSERT_NE(pd, nullptr);
  connectx_->device(0).Remove();
  connectx_->Step();
  const auto event = NextEvent(context);
  ASSERT_TRUE(event.has_value());
  EXPECT_EQ(event->event_type, IBV_EVENT_DEVICE_FATAL);
  pollfd waits{.fd = context->async_fd, .events = POLLIN};
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(poll(&waits, 1, 0), 1) << "for ever, as the kernel has it";
    EXPECT_NE(waits.revents & POLLHUP, 0);
    EXPECT_FALSE(NextEvent(context).has_value());
  }
  EXPECT_EQ(ibv_create_cq(context, 4, nullptr, nullptr, 0), nullptr);
  EXPECT_EQ(errno, EIO);
  ibv_port_attr port{};
  EXPECT_EQ(ibv_query_port(context, 1, &port), EIO);
  EXPECT_EQ(OpenDevice("mlx5_0"), nullptr);
  ibv_context* other = OpenDevice("mlx5_1");
  EXPECT_NE(other, nullptr) << "the other card stays";
  EXPECT_EQ(ibv_close_device(other), 0);
  EXPECT_EQ(ibv_close_device(context), 0);
  EXPECT_EQ(connectx_->live_objects(), LiveObjects{}) << "closing releases what was left";
  if (__lsan_enable != nullptr) __lsan_enable();
}

// As the kernel closes them: ready, and nothing to be read.
TEST_F(EventTest, CompletionChannelsOfAPulledCardAreReadyForEver) {
  if (__lsan_disable != nullptr) __lsan_disable();
  ibv_context* context = OpenDevice("mlx5_0");
  ibv_comp_channel* channel = ibv_create_comp_channel(context);
  ASSERT_NE(channel, nullptr);
  pollfd waits{.fd = channel->fd, .events = POLLIN};
  EXPECT_EQ(poll(&waits, 1, 0), 0);
  connectx_->device(0).Remove();
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(poll(&waits, 1, 0), 1);
    EXPECT_NE(waits.revents & POLLHUP, 0);
    ibv_cq* cq = nullptr;
    void* cookie = nullptr;
    EXPECT_EQ(ibv_get_cq_event(channel, &cq, &cookie), -1);
  }
  EXPECT_EQ(ibv_destroy_comp_channel(channel), 0);
  EXPECT_EQ(ibv_close_device(context), 0);
  if (__lsan_enable != nullptr) __lsan_enable();
}

TEST_F(EventTest, ClockParametersFollowASteeredPhc) {
  ibv_context* context = OpenDevice("mlx5_0");
  Device& device = connectx_->device(0);
  device.AdjustPhc(37'000'000'000, 100'000);  // A tenth of a millisecond a second fast.
  connectx_->Step(0);
  mlx5dv_clock_info info{};
  ASSERT_EQ(mlx5dv_get_clock_info(context, &info), 0);
  for (int64_t later_ns : {int64_t{0}, int64_t{1'000'000}, int64_t{90'000'000}}) {
    const int64_t time_ns = connectx_->clock().Now() + later_ns;
    const uint64_t converted = mlx5dv_ts_to_ns(&info, device.CyclesAt(time_ns));
    EXPECT_NEAR(static_cast<double>(converted), static_cast<double>(device.PhcAt(time_ns)), 100.0);
  }
  EXPECT_EQ(ibv_close_device(context), 0);
}

TEST(RealTimeTest, WallClockCompletionsCarryThePhcsTime) {
  Device::Options options;
  options.features.real_time_clock = true;
  ConnectXRig connectx(SoftwareConnectX::Mode::kStep, {}, options);
  Endpoint a("mlx5_0");
  mlx5dv_context shown{};
  ASSERT_EQ(mlx5dv_query_device(a.context(), &shown), 0);
  EXPECT_NE(shown.flags & MLX5DV_CONTEXT_FLAGS_REAL_TIME_TS, 0u);
  ibv_cq_init_attr_ex wanted{.cqe = 8,
                             .wc_flags = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK};
  ibv_cq_ex* cq = ibv_create_cq_ex(a.context(), &wanted);
  ASSERT_NE(cq, nullptr);
  ibv_qp_init_attr queues{.send_cq = ibv_cq_ex_to_cq(cq), .recv_cq = ibv_cq_ex_to_cq(cq),
                          .cap = {.max_send_wr = 4, .max_send_sge = 1, .max_inline_data = 64},
                          .qp_type = IBV_QPT_RAW_PACKET};
  ibv_qp* qp = ibv_create_qp(a.pd(), &queues);
  ASSERT_NE(qp, nullptr);
  ibv_qp_attr attributes{.qp_state = IBV_QPS_INIT, .port_num = 1};
  ASSERT_EQ(ibv_modify_qp(qp, &attributes, IBV_QP_STATE | IBV_QP_PORT), 0);
  for (ibv_qp_state state : {IBV_QPS_RTR, IBV_QPS_RTS}) {
    attributes = {.qp_state = state};
    ASSERT_EQ(ibv_modify_qp(qp, &attributes, IBV_QP_STATE), 0);
  }
  connectx->device(0).AdjustPhc(1'700'000'000'000'000'000 - connectx->clock().Now(), 0);
  std::vector<uint8_t> frame = UdpFrame(5000, std::string(18, 'x'));
  ibv_sge element{.addr = reinterpret_cast<uint64_t>(frame.data()),
                  .length = static_cast<uint32_t>(frame.size())};
  ibv_send_wr request{.sg_list = &element, .num_sge = 1, .opcode = IBV_WR_SEND,
                      .send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE};
  ibv_send_wr* bad = nullptr;
  ASSERT_EQ(ibv_post_send(qp, &request, &bad), 0);
  connectx->Step(4'321);
  ibv_poll_cq_attr poll{};
  ASSERT_EQ(ibv_start_poll(cq, &poll), 0);
  // In this mode libmlx5 hands out the CQE's word: seconds, then nanoseconds.
  EXPECT_EQ(ibv_wc_read_completion_wallclock_ns(cq), uint64_t{1'700'000'000} << 32 | 4'321);
  ibv_end_poll(cq);
  EXPECT_EQ(ibv_destroy_qp(qp), 0);
  EXPECT_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
}

}  // namespace
}  // namespace xtreme::connectx
