// SPDX-License-Identifier: Apache-2.0
//
// Two programs that throw one frame to and fro, through plain verbs: `pingpong pong` waits and
// answers, `pingpong ping` counts the time of each round and ends both.
//
// Usage: pingpong ping|pong [--device=mlx5_0] [--rounds=10000] [--spin-us=50]
// A program polls its CQ for that long and then waits in poll(2) for its completion channel. One
// that never sleeps (--spin-us=-1) needs a processor beside those of both devices: with fewer, the
// scheduler's slices, of milliseconds, stand in the times.
// Prints one line: rounds, lost frames, and the round trip's percentiles in microseconds.

#include <infiniband/verbs.h>
#include <poll.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "tools/arguments.h"

namespace xtreme::connectx {
namespace {

constexpr int kReceives = 16;
constexpr size_t kSlotBytes = 2048;
constexpr size_t kFrameBytes = 64;
constexpr uint32_t kEnd = ~uint32_t{0};
constexpr int64_t kRetryNs = 200'000'000;

// Groups, so that neither has to know the other's address. EtherType: local experimental 1.
constexpr uint8_t kToPong = 1;
constexpr uint8_t kToPing = 2;

int64_t Now() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * int64_t{1'000'000'000} + now.tv_nsec;
}

template <typename T>
T* Must(T* made, const char* what) {
  if (made != nullptr) return made;
  std::perror(what);
  std::exit(EXIT_FAILURE);
}

void Must(bool done, const char* what) {
  if (done) return;
  std::perror(what);
  std::exit(EXIT_FAILURE);
}

// One RAW_PACKET QP that sends to one group and receives from another. The system takes everything
// back at exit.
class Player {
 public:
  Player(const std::string& device, uint8_t send_to, uint8_t receive_from,
         int64_t spin_ns)
      : spin_ns_(spin_ns), memory_((kReceives + 1) * kSlotBytes) {
    context_ = Must(Open(device), device.c_str());
    pd_ = Must(ibv_alloc_pd(context_), "allocate a PD");
    const int access = IBV_ACCESS_LOCAL_WRITE;  // The macro ibv_reg_mr would mix enumerations.
    region_ = Must(ibv_reg_mr(pd_, memory_.data(), memory_.size(), access),
                   "register memory");
    channel_ = Must(ibv_create_comp_channel(context_), "create a channel");
    send_cq_ = Must(ibv_create_cq(context_, 16, nullptr, nullptr, 0), "create a CQ");
    receive_cq_ = Must(ibv_create_cq(context_, 64, nullptr, channel_, 0), "create a CQ");
    CreateQp();
    for (int slot = 0; slot < kReceives; ++slot) PostReceive(slot);
    Listen(receive_from);
    uint8_t* const frame = SendMemory();
    const std::array<uint8_t, 14> header = {1, 0, 0x5e, 0x7f, 0, send_to, 2,
                                            0, 0, 0,    0,    send_to, 0x88, 0xb5};
    std::copy(header.begin(), header.end(), frame);
  }

  void Send(uint32_t number) {
    std::memcpy(SendMemory() + 14, &number, sizeof(number));
    ibv_sge piece{.addr = reinterpret_cast<uintptr_t>(SendMemory()),
                  .length = kFrameBytes,
                  .lkey = region_->lkey};
    ibv_send_wr send{.sg_list = &piece, .num_sge = 1, .opcode = IBV_WR_SEND};
    send.send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;
    ibv_send_wr* bad = nullptr;
    ReapSends();
    Must(ibv_post_send(qp_, &send, &bad) == 0, "send");
    ++unsent_;
  }

  // Returns when the device has sent all: what a process leaves to it at exit is lost.
  void Finish() {
    while (unsent_ > 0) ReapSends();
  }

  // The number of the next frame; nothing after `patience_ns` (negative: never gives up).
  std::optional<uint32_t> Receive(int64_t patience_ns) {
    const int64_t begin_ns = Now();
    for (;;) {
      if (const auto number = Poll()) return number;
      const int64_t waited_ns = Now() - begin_ns;
      if (patience_ns >= 0 && waited_ns > patience_ns) return std::nullopt;
      if (spin_ns_ < 0 || waited_ns < spin_ns_) continue;
      Must(ibv_req_notify_cq(receive_cq_, 0) == 0, "arm");
      if (const auto number = Poll()) return number;
      Sleep(patience_ns < 0 ? -1 : static_cast<int>(patience_ns / 1'000'000));
    }
  }

 private:
  static ibv_context* Open(const std::string& name) {
    int count = 0;
    ibv_device** const devices = ibv_get_device_list(&count);
    ibv_context* context = nullptr;
    for (int i = 0; i < count && context == nullptr; ++i) {
      if (name == ibv_get_device_name(devices[i])) context = ibv_open_device(devices[i]);
    }
    ibv_free_device_list(devices);
    return context;
  }

  void CreateQp() {
    ibv_qp_init_attr attributes{.send_cq = send_cq_, .recv_cq = receive_cq_};
    attributes.cap = {.max_send_wr = 8,
                      .max_recv_wr = kReceives,
                      .max_send_sge = 1,
                      .max_recv_sge = 1,
                      .max_inline_data = kFrameBytes};
    attributes.qp_type = IBV_QPT_RAW_PACKET;
    qp_ = Must(ibv_create_qp(pd_, &attributes), "create a QP");
    for (const ibv_qp_state state : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS}) {
      ibv_qp_attr to{.qp_state = state};
      to.port_num = 1;
      const int mask = IBV_QP_STATE | (state == IBV_QPS_INIT ? IBV_QP_PORT : 0);
      Must(ibv_modify_qp(qp_, &to, mask) == 0, "modify the QP");
    }
  }

  void Listen(uint8_t group) {
    struct {
      ibv_flow_attr attributes;
      ibv_flow_spec_eth ethernet;
    } rule{};
    static_assert(sizeof(rule) == sizeof(ibv_flow_attr) + sizeof(ibv_flow_spec_eth));
    rule.attributes.type = IBV_FLOW_ATTR_NORMAL;
    rule.attributes.size = sizeof(rule);
    rule.attributes.num_of_specs = 1;
    rule.attributes.port = 1;
    rule.ethernet.type = IBV_FLOW_SPEC_ETH;
    rule.ethernet.size = sizeof(rule.ethernet);
    const uint8_t mac[6] = {1, 0, 0x5e, 0x7f, 0, group};
    std::memcpy(rule.ethernet.val.dst_mac, mac, sizeof(mac));
    std::memset(rule.ethernet.mask.dst_mac, 0xff, sizeof(mac));
    Must(ibv_create_flow(qp_, &rule.attributes), "create a flow rule");
  }

  void PostReceive(int slot) {
    ibv_sge piece{.addr = reinterpret_cast<uintptr_t>(&memory_[slot * kSlotBytes]),
                  .length = kSlotBytes,
                  .lkey = region_->lkey};
    ibv_recv_wr receive{.wr_id = static_cast<uint64_t>(slot), .sg_list = &piece, .num_sge = 1};
    ibv_recv_wr* bad = nullptr;
    Must(ibv_post_recv(qp_, &receive, &bad) == 0, "post a receive");
  }

  std::optional<uint32_t> Poll() {
    ibv_wc done;
    if (ibv_poll_cq(receive_cq_, 1, &done) != 1) return std::nullopt;
    Must(done.status == IBV_WC_SUCCESS, "receive");
    uint32_t number;
    std::memcpy(&number, &memory_[done.wr_id * kSlotBytes + 14], sizeof(number));
    PostReceive(static_cast<int>(done.wr_id));
    return number;
  }

  void Sleep(int patience_ms) {
    pollfd source{.fd = channel_->fd, .events = POLLIN, .revents = 0};
    if (::poll(&source, 1, patience_ms) != 1) return;
    ibv_cq* cq = nullptr;
    void* cookie = nullptr;
    if (ibv_get_cq_event(channel_, &cq, &cookie) == 0) ibv_ack_cq_events(cq, 1);
  }

  void ReapSends() {
    ibv_wc sent;
    while (ibv_poll_cq(send_cq_, 1, &sent) > 0) --unsent_;
  }

  uint8_t* SendMemory() { return &memory_[kReceives * kSlotBytes]; }

  const int64_t spin_ns_;  // Negative: without end.
  std::vector<uint8_t> memory_;
  int unsent_ = 0;
  ibv_context* context_ = nullptr;
  ibv_pd* pd_ = nullptr;
  ibv_mr* region_ = nullptr;
  ibv_comp_channel* channel_ = nullptr;
  ibv_cq* send_cq_ = nullptr;
  ibv_cq* receive_cq_ = nullptr;
  ibv_qp* qp_ = nullptr;
};

void Ping(Player& player, uint32_t rounds) {
  std::vector<int64_t> trips_ns;
  uint64_t lost = 0;
  player.Send(0);
  // Until the other side has come, and so that both are warm.
  while (!player.Receive(kRetryNs).has_value()) player.Send(0);
  for (uint32_t round = 1; round <= rounds; ++round) {
    const int64_t begin_ns = Now();
    player.Send(round);
    std::optional<uint32_t> answer;
    while ((answer = player.Receive(kRetryNs)).value_or(0) != round) {
      if (answer.has_value()) continue;  // Of a round before.
      ++lost;
      player.Send(round);
    }
    trips_ns.push_back(Now() - begin_ns);
  }
  for (int copy = 0; copy < 3; ++copy) player.Send(kEnd);
  player.Finish();
  std::sort(trips_ns.begin(), trips_ns.end());
  const auto at = [&](double share) {
    return static_cast<double>(trips_ns[static_cast<size_t>(share * (rounds - 1))]) / 1000;
  };
  std::printf("pingpong: rounds=%u lost=%lu min_us=%.1f p50_us=%.1f p90_us=%.1f p99_us=%.1f "
              "max_us=%.1f\n",
              rounds, lost, at(0), at(0.5), at(0.9), at(0.99), at(1));
}

void Pong(Player& player) {
  while (const auto number = player.Receive(-1)) {
    if (*number == kEnd) return;
    player.Send(*number);
  }
}

}  // namespace
}  // namespace xtreme::connectx

int main(int argc, char** argv) {
  using xtreme::connectx::Player;
  std::string device = "mlx5_0";
  uint32_t rounds = 10'000;
  int64_t spin_us = 50;
  CLI::App app("Throws one frame to and fro between two programs on mlx5 devices.");
  app.add_option("--device", device, "name of the RDMA device");
  app.add_option("--rounds", rounds, "how many round trips")->check(CLI::PositiveNumber);
  app.add_option("--spin-us", spin_us, "poll so long before sleeping; -1: never sleep")
      ->check(CLI::Range(-1, 1'000'000));
  app.require_subcommand(1);
  app.fallthrough();
  const CLI::App* ping = app.add_subcommand("ping", "counts the time");
  app.add_subcommand("pong", "answers");
  if (const auto code = xtreme::tools::ParseArguments(app, argc, argv)) return *code;
  if (ping->parsed()) {
    Player player(device, xtreme::connectx::kToPong, xtreme::connectx::kToPing, spin_us * 1000);
    xtreme::connectx::Ping(player, rounds);
  } else {
    Player player(device, xtreme::connectx::kToPing, xtreme::connectx::kToPong, spin_us * 1000);
    xtreme::connectx::Pong(player);
  }
  return 0;
}
