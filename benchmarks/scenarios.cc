// SPDX-License-Identifier: Apache-2.0

#include <x86intrin.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "benchmarks/driver_scenarios.h"
#include "benchmarks/face_scenarios.h"
#include "benchmarks/kernel_scenario.h"
#include "benchmarks/kernel_tcp_scenario.h"
#include "benchmarks/lwip_scenario.h"
#include "benchmarks/ring_scenarios.h"
#include "benchmarks/scenario.h"
#include "benchmarks/tcp_scenarios.h"
#include "benchmarks/tick_scenario.h"
#include "benchmarks/verbs_scenarios.h"

namespace xtreme::benchmarks {
namespace {

constexpr uint32_t kMany = 256;  // Fits every queue.
constexpr uint32_t kBurst = 16;
constexpr uint32_t kLongBurst = 32;
constexpr uint32_t kPolls = 4'096;
constexpr uint32_t kJoins = 32;
constexpr uint32_t kConnections = 32;  // Side by side, or one after the other.
constexpr bool kStillClock = true;

class TscScenario : public Scenario {
 public:
  explicit TscScenario(uint32_t operations) : operations_(operations) {}
  uint32_t operations() const override { return operations_; }
  void Run() override {
    for (uint32_t i = 0; i < operations_; ++i) last_ = __rdtsc();
  }

 private:
  const uint32_t operations_;
  volatile uint64_t last_ = 0;
};

absl::StatusOr<std::unique_ptr<Scenario>> ReadingTsc(uint32_t operations) {
  return std::make_unique<TscScenario>(operations);
}

}  // namespace

std::vector<NamedScenario> AllScenarios() {
  return {
      {"udp_tx_post", kMany, [](uint32_t n) { return RingTransmit(n, 1); }},
      {"udp_tx_burst", kMany, [](uint32_t n) { return RingTransmit(n, kBurst); }},
      {"udp_tx_dm", kMany, [](uint32_t n) { return RingTransmitLong(n); }},
      {"udp_tx_dm/libmlx5", kMany, VerbsGather},
      {"udp_fire", kMany, [](uint32_t n) { return RingFire(n); }},
      {"udp_rx", kMany, [](uint32_t n) { return RingReceive(n, kBurst); }},
      {"udp_rx_one", kMany, [](uint32_t n) { return RingReceive(n, 1); }},
      {"rx_burst_first", 1, [](uint32_t) { return RingBurst(kLongBurst, 1); }},
      {"rx_burst_last", 1, [](uint32_t) { return RingBurst(kLongBurst, kLongBurst); }},
      {"control_join", kJoins, RingJoin},
      {"rdtsc", kPolls, ReadingTsc},
      {"idle_poll", kPolls, [](uint32_t n) { return RingIdle(n, 1, 0, 0); }},
      {"idle_poll/loop", kPolls, IdleLoop},
      {"idle_poll_many", kPolls, [](uint32_t n) { return RingIdle(n, 1'000, 300, 0); }},
      {"idle_poll_timers", kPolls, [](uint32_t n) { return RingIdle(n, 1, 0, 10); }},
      {"udp_tx_post/kept", kMany, [](uint32_t n) { return RingTransmit(n, 1, Frames::kKept); }},
      {"udp_tx_burst/kept", kMany,
       [](uint32_t n) { return RingTransmit(n, kBurst, Frames::kKept); }},
      {"udp_tx_dm/kept", kMany, [](uint32_t n) { return RingTransmitLong(n, Frames::kKept); }},
      {"udp_fire/kept", kMany, [](uint32_t n) { return RingFire(n, Frames::kKept); }},
      {"udp_rx/kept", kMany, [](uint32_t n) { return RingReceive(n, kBurst, Frames::kKept); }},
      {"udp_rx_one/kept", kMany, [](uint32_t n) { return RingReceive(n, 1, Frames::kKept); }},
      {"udp_echo", kMany, RingEcho}, {"udp_echo/devices", kMany, RingEchoDevices},
      {"udp_echo/lwip", kMany, LwipEcho},
      {"udp_echo/kernel", kMany, KernelEcho},
      {"tcp_pingpong", kMany, [](uint32_t n) { return TcpPingPong(n, 1, !kStillClock); }},
      {"tcp_pingpong/devices", kMany, TcpDevices},
      {"tcp_pingpong/kept", kMany, [](uint32_t n) { return TcpPingPongKept(n, !kStillClock); }},
      {"tcp_pingpong/lwip", kMany, LwipTcpPingPong},
      {"tcp_pingpong/kernel", kMany, KernelTcpPingPong},
      {"tcp_bulk", kMany, [](uint32_t n) { return TcpBulk(n, kBurst); }},
      {"tcp_bulk/kept", kMany, [](uint32_t n) { return TcpBulk(n, kBurst, /*kept=*/true); }},
      {"tcp_bulk_runs", kMany, TcpBulkRuns},
      {"tcp_send_runs", kMany, TcpSendRuns},
      {"tcp_bulk/lwip", kMany, [](uint32_t n) { return LwipTcpBulk(n, kBurst); }},
      {"tcp_bulk/kernel", kMany, KernelTcpBulk},
      {"tcp_send_small", kConnections, TcpSendSmall},
      {"tcp_fire", kConnections, TcpFire}, {"tick_to_order", kConnections, TickToOrder},
      {"tcp_rx_one", kConnections, TcpReceiveOne}, {"tcp_open_close", kConnections, TcpOpenClose},
      {"tcp_open_close/lwip", kConnections, LwipTcpOpenClose},
      {"growth_1", kMany, [](uint32_t n) { return TcpPingPong(n, 1, kStillClock); }},
      {"growth_1000", kMany, [](uint32_t n) { return TcpPingPong(n, 1'000, kStillClock); }},
      {"growth_100000", kMany, [](uint32_t n) { return TcpPingPong(n, 100'000, kStillClock); }},
      {"face_vma_send", kMany, FaceSend},
      {"face_vma_poll", kMany, [](uint32_t n) { return FacePoll(n, kBurst); }},
      {"face_posix_udp", kMany, FaceUdp}, {"face_posix_epoll", kMany, FaceEpoll},
      {"face_posix_poll", kMany, FacePollCall}, {"face_posix_select", kMany, FaceSelect},
      {"face_posix_message", kMany, FaceMessage}, {"engine_udp", kMany, EngineUdp},
      {"face_posix_tcp", kMany, FaceTcp}, {"face_posix_epoll_tcp", kMany, FaceEpollTcp},
      {"engine_tcp", kMany, EngineTcp},
      {"driver_tx_post", kMany, [](uint32_t n) { return DriverTransmit(n, 1); }},
      {"driver_tx_burst", kMany, [](uint32_t n) { return DriverTransmit(n, kBurst); }},
      {"driver_rx", kMany, [](uint32_t n) { return DriverReceive(n); }},
      {"udp_tx_post/libmlx5", kMany, [](uint32_t n) { return VerbsTransmit(n, 1); }},
      {"udp_tx_burst/libmlx5", kMany, [](uint32_t n) { return VerbsTransmit(n, kBurst); }},
      {"udp_rx/libmlx5", kMany, [](uint32_t n) { return VerbsReceive(n); }},
  };
}

absl::StatusOr<std::unique_ptr<Scenario>> MakeScenario(std::string_view name,
                                                       uint32_t operations) {
  for (const NamedScenario& scenario : AllScenarios()) {
    if (scenario.name == name) return scenario.make(operations);
  }
  return absl::InvalidArgumentError(absl::StrCat("no scenario ", std::string(name)));
}

absl::StatusOr<std::unique_ptr<Scenario>> MakeScenario(std::string_view name) {
  for (const NamedScenario& scenario : AllScenarios()) {
    if (scenario.name == name) return scenario.make(scenario.operations);
  }
  return absl::InvalidArgumentError(absl::StrCat("no scenario ", std::string(name)));
}

}  // namespace xtreme::benchmarks
