// SPDX-License-Identifier: Apache-2.0
//
// The device's own thread: it notices doorbells while it sleeps, costs nothing when idle, and takes
// its turn on a busy machine. Waits end with an event; the time-outs only end a test that fails.

#include <infiniband/verbs.h>
#include <poll.h>
#include <sched.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tools/connectx/connectx.h"
#include "tools/connectx/connectx_rig.h"
#include "tools/connectx/verbs_endpoint.h"
#include "tools/connectx/wire/shared_wire.h"

namespace xtreme::connectx {
namespace {

constexpr uint16_t kPort = 26477;
constexpr int64_t kSecondNs = 1'000'000'000;

int64_t Now(clockid_t clock) {
  timespec now;
  clock_gettime(clock, &now);
  return now.tv_sec * kSecondNs + now.tv_nsec;
}

// Gives way until `done` or 20 seconds have passed.
template <typename Predicate>
bool Eventually(Predicate done) {
  const int64_t give_up_ns = Now(CLOCK_MONOTONIC) + 20 * kSecondNs;
  while (!done()) {
    if (Now(CLOCK_MONOTONIC) > give_up_ns) return false;
    ::sched_yield();
  }
  return true;
}

ibv_wc Await(ibv_cq* cq) {
  ibv_wc completion{};
  Eventually([&] {
    completion = Endpoint::Poll(cq);
    return completion.status != IBV_WC_GENERAL_ERR;
  });
  return completion;
}

class ThreadTest : public testing::TestWithParam<SoftwareConnectX::Mode> {
 protected:
  void TearDown() override { connectx_.ExpectClean(); }

  ConnectXRig connectx_{GetParam()};
};

INSTANTIATE_TEST_SUITE_P(Modes, ThreadTest,
                         testing::Values(SoftwareConnectX::Mode::kAdaptive,
                                         SoftwareConnectX::Mode::kSpin),
                         [](const auto& mode) {
                           return mode.param == SoftwareConnectX::Mode::kSpin ? "Spin" : "Adaptive";
                         });

TEST_P(ThreadTest, FramesArriveInOrderWithoutAnybodyStepping) {
  Endpoint a("mlx5_0");
  Endpoint b("mlx5_1");
  ibv_flow* flow = b.Listen(kPort, 1);
  for (int i = 0; i < 300; ++i) {
    b.PostReceive(i % 16);
    const auto frame = UdpFrame(kPort, "a frame that needs no padding " + std::to_string(i));
    ASSERT_EQ(a.Send(i % 16, frame, i % 2 == 0 ? IBV_SEND_INLINE : 0), 0);
    ASSERT_EQ(Await(a.send_cq()).status, IBV_WC_SUCCESS) << i;
    ASSERT_EQ(Await(b.receive_cq()).byte_len, frame.size()) << i;
  }
  EXPECT_EQ(ibv_destroy_flow(flow), 0);
}

TEST_P(ThreadTest, BlockedReaderOfAChannelIsWoken) {
  Endpoint a("mlx5_0");
  Endpoint b("mlx5_1", {.completion_channel = true});
  ibv_flow* flow = b.Listen(kPort, 1);
  for (int i = 0; i < 50; ++i) {
    b.PostReceive(i % 16);
    ASSERT_EQ(ibv_req_notify_cq(b.receive_cq(), 0), 0);
    ASSERT_EQ(a.Send(i % 16, UdpFrame(kPort, "wake"), 0), 0);
    pollfd channel{.fd = b.channel()->fd, .events = POLLIN};
    ASSERT_EQ(::poll(&channel, 1, 20'000), 1) << i;
    ibv_cq* cq = nullptr;
    void* cookie = nullptr;
    ASSERT_EQ(ibv_get_cq_event(b.channel(), &cq, &cookie), 0);
    ibv_ack_cq_events(cq, 1);
    ASSERT_EQ(Await(b.receive_cq()).status, IBV_WC_SUCCESS);
    ASSERT_EQ(Await(a.send_cq()).status, IBV_WC_SUCCESS);
  }
  EXPECT_EQ(ibv_destroy_flow(flow), 0);
}

TEST_P(ThreadTest, ClockIsTheTimeOfTheRead) {
  Endpoint a("mlx5_0");
  for (int i = 0; i < 20; ++i) {
    const uint64_t before = connectx_->device(0).HardwareClock();
    uint64_t cycles = 0;
    // The thread may be between two refreshes; it is never further behind than its next turn.
    EXPECT_TRUE(Eventually([&] {
      ibv_values_ex values{.comp_mask = IBV_VALUES_MASK_RAW_CLOCK};
      ibv_query_rt_values_ex(a.context(), &values);
      cycles = static_cast<uint64_t>(values.raw_clock.tv_nsec);
      return cycles >= before;
    }));
    EXPECT_LE(cycles, connectx_->device(0).HardwareClock());
  }
}

// The child of a thread that forks while the device's works has that one's locks as they were.
TEST_P(ThreadTest, ChildMadeAtAnyMomentReleasesWhatItInherited) {
  Endpoint a("mlx5_0");
  ibv_pd* const pd = ibv_alloc_pd(a.context());
  ASSERT_NE(pd, nullptr);
  for (int i = 0; i < 50; ++i) {
    ASSERT_EQ(a.Send(i % 16, UdpFrame(kPort, "nobody listens"), 0), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(20);
      ::_exit(ibv_dealloc_pd(pd));
    }
    int status = -1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_EQ(status, 0) << "of child " << i;
    ASSERT_EQ(Await(a.send_cq()).status, IBV_WC_SUCCESS);
  }
  EXPECT_EQ(ibv_dealloc_pd(pd), 0);
}

class AdaptiveThreadTest : public testing::Test {
 protected:
  explicit AdaptiveThreadTest(const ServiceThread::Options& options = {})
      : connectx_(SoftwareConnectX::Mode::kAdaptive, options) {}

  void TearDown() override { connectx_.ExpectClean(); }

  ConnectXRig connectx_;
};

// Where the system refuses userfaultfd.
class TimedSleepTest : public AdaptiveThreadTest {
 protected:
  TimedSleepTest() : AdaptiveThreadTest({.watch_doorbells = false}) {}
};

TEST_F(TimedSleepTest, DoorbellsRungDuringSleepAreNoticedWithoutAWatch) {
  Endpoint a("mlx5_0");
  for (int i = 0; i < 50; ++i) {
    const uint64_t before = connectx_->sleeps();
    ASSERT_EQ(a.Send(i % 16, UdpFrame(kPort, "nobody listens"), 0), 0);
    ASSERT_EQ(Await(a.send_cq()).status, IBV_WC_SUCCESS) << i;
    ASSERT_TRUE(Eventually([&] { return connectx_->sleeps() > before; })) << i;
  }
}

TEST_F(TimedSleepTest, SleepsAreManyAndShort) {
  Endpoint a("mlx5_0");
  const uint64_t before = connectx_->sleeps();
  // A watched device would sleep once, for a second.
  EXPECT_TRUE(Eventually([&] { return connectx_->sleeps() > before + 100; }));
}

TEST_F(TimedSleepTest, ClockGoesOnBetweenTheSleeps) {
  Endpoint a("mlx5_0");
  const uint64_t later = connectx_->device(0).HardwareClock() + 20'000'000;
  EXPECT_TRUE(Eventually([&] {
    ibv_values_ex values{.comp_mask = IBV_VALUES_MASK_RAW_CLOCK};
    ibv_query_rt_values_ex(a.context(), &values);
    return static_cast<uint64_t>(values.raw_clock.tv_nsec) >= later;
  }));
}

TEST_F(AdaptiveThreadTest, EveryDoorbellRungDuringSleepIsNoticed) {
  Endpoint a("mlx5_0");
  for (int i = 0; i < 200; ++i) {
    const uint64_t before = connectx_->sleeps();
    ASSERT_EQ(a.Send(i % 16, UdpFrame(kPort, "nobody listens"), 0), 0);
    ASSERT_EQ(Await(a.send_cq()).status, IBV_WC_SUCCESS) << i;
    ASSERT_TRUE(Eventually([&] { return connectx_->sleeps() > before; })) << i;
  }
}

TEST_F(AdaptiveThreadTest, IdleCostsLessThanOnePercentOfACore) {
  Endpoint a("mlx5_0");
  Endpoint b("mlx5_1");
  const uint64_t awake = connectx_->sleeps();
  ASSERT_TRUE(Eventually([&] { return connectx_->sleeps() > awake; }));
  const int64_t cpu_before_ns = Now(CLOCK_PROCESS_CPUTIME_ID);
  constexpr int kIdleMs = 1000;
  ::poll(nullptr, 0, kIdleMs);  // The time that is measured.
  const int64_t cpu_ns = Now(CLOCK_PROCESS_CPUTIME_ID) - cpu_before_ns;
  EXPECT_LT(cpu_ns, kIdleMs * 10'000) << connectx_->sleeps() - awake << " sleeps";
}

TEST_P(ThreadTest, PortAndRemovalShowThoughNothingElseHappens) {
  ibv_context* context = OpenDevice("mlx5_1");
  const std::string state_file =
      connectx_->sysfs_path() + "/class/infiniband/mlx5_0/ports/1/state";
  const auto state = [&] {
    std::ifstream file(state_file);
    std::string text;
    std::getline(file, text);
    return text;
  };
  connectx_->device(0).SetPortUp(false);
  EXPECT_TRUE(Eventually([&] { return state() == "1: DOWN"; }));
  connectx_->device(0).Remove();
  EXPECT_TRUE(Eventually([&] { return state().empty(); }));
  EXPECT_EQ(OpenDevice("mlx5_0"), nullptr);
  EXPECT_EQ(ibv_close_device(context), 0);
}

// All frames wait in the queue from the start, so that only the device decides when they leave.
TEST_P(ThreadTest, PacedQueueKeepsItsRateWithinFivePercent) {
  constexpr int kFrames = 801;
  constexpr int64_t kFrameNs = 2'000'000;  // 1,250 bytes at 5 Mbit/s.
  Endpoint a("mlx5_0", {.queue_depth = 1024});
  const auto frame = UdpFrame(kPort, std::string(1250 - kUdpHeadersBytes, 'r'));
  ibv_qp_rate_limit_attr rate{.rate_limit = 5'000};
  ASSERT_EQ(ibv_modify_qp_rate_limit(a.qp(), &rate), 0);
  for (int i = 0; i < kFrames; ++i) ASSERT_EQ(a.Send(i, frame, 0), 0);
  ASSERT_EQ(Await(a.send_cq()).status, IBV_WC_SUCCESS);
  const int64_t start_ns = Now(CLOCK_MONOTONIC);
  for (int i = 1; i < kFrames; ++i) ASSERT_EQ(Await(a.send_cq()).status, IBV_WC_SUCCESS);
  const double wanted_ns = static_cast<double>((kFrames - 1) * kFrameNs);
  EXPECT_NEAR(static_cast<double>(Now(CLOCK_MONOTONIC) - start_ns), wanted_ns, 0.05 * wanted_ns);
}

TEST(SharedWireThreadTest, IdleDeviceOnABusyMachineTakesLessThanOnePercentOfACore) {
  const std::string segment = std::string(std::getenv("TEST_TMPDIR")) + "/idle";
  auto wire = SharedWire::Open({.segment = segment, .ports = 2, .ring_bytes = 64 << 10});
  ASSERT_TRUE(wire.ok()) << wire.status();
  auto connectx = SoftwareConnectX::Create(
      {.ports = {{.device = {.name = "mlx5_0", .mac = kMacA}, .wire = wire->get()}}});
  ASSERT_TRUE(connectx.ok()) << connectx.status();
  const uint64_t awake = (*connectx)->sleeps();
  ASSERT_TRUE(Eventually([&] { return (*connectx)->sleeps() > awake; }));
  // Two threads want all there is; what the process takes beside them is the device's.
  constexpr int64_t kBusyNs = kSecondNs / 2;
  std::atomic<int64_t> programs_ns{0};
  const auto work = [&] {
    const int64_t end_ns = Now(CLOCK_MONOTONIC) + kBusyNs;
    while (Now(CLOCK_MONOTONIC) < end_ns) {
    }
    programs_ns += Now(CLOCK_THREAD_CPUTIME_ID);
  };
  const int64_t before_ns = Now(CLOCK_PROCESS_CPUTIME_ID);
  std::thread first(work);
  std::thread second(work);
  first.join();
  second.join();
  // Making and joining the two threads is within the bound too.
  EXPECT_LT(Now(CLOCK_PROCESS_CPUTIME_ID) - before_ns - programs_ns.load(), kBusyNs / 100);
}

}  // namespace
}  // namespace xtreme::connectx
