// SPDX-License-Identifier: Apache-2.0
//
// Rows of two threads: rtt_two_cores and control_stall. Times of the best try, for another thread
// of the machine may have had one of the cores.

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "benchmarks/frames.h"
#include "benchmarks/kernel_scenario.h"
#include "benchmarks/measurement.h"
#include "benchmarks/null_device.h"
#include "benchmarks/ring_rig.h"
#include "benchmarks/timing.h"
#include "benchmarks/two_core_rows.h"
#include "benchmarks/two_cores.h"
#include "tools/connectx/connectx.h"
#include "tools/connectx/wire/link.h"
#include "xtreme/engine/prepared_sends.h"
#include "xtreme/engine/ring_lane.h"

namespace xtreme::benchmarks {
namespace {

constexpr int kTries = 5;
constexpr uint32_t kGroups = 300;
constexpr uint32_t kSockets = 100;
constexpr uint32_t kGroupBase = 0xef010000;  // 239.1.0.0
constexpr uint16_t kFirstPort = 10'000;

// Nanoseconds from a send to the answer at hand, both rings here, both devices on another core.
double EchoNs(RingRig& client, RingRig& server, uint32_t rounds, double ticks_per_ns) {
  const Pinned pinned(0);
  const uint64_t start = ReadTicks();
  for (uint32_t i = 0; i < rounds; ++i) {
    client.Send();
    while (server.Receive(1) == 0) {
    }
    server.Send();
    while (client.Receive(1) == 0) {
    }
  }
  return static_cast<double>(ReadTicks() - start) / ticks_per_ns / rounds;
}

double NullRoundTrip(RingRig& client, RingRig& server, uint32_t rounds, double ticks_per_ns) {
  const Spinner devices([&] {
    if (client.device().CompleteSends() != 0) server.device().CompleteReceives(1, kFrameBytes);
    if (server.device().CompleteSends() != 0) client.device().CompleteReceives(1, kFrameBytes);
  });
  return EchoNs(client, server, rounds, ticks_per_ns);
}

// The same through libmlx5's bring-up and two ports of a spinning software ConnectX on a cable.
absl::StatusOr<double> SoftwareRoundTrip(uint32_t rounds, double ticks_per_ns) {
  using connectx::SoftwareConnectX;
  auto link = connectx::MakeLink();
  if (!link.ok()) return link.status();
  auto device = SoftwareConnectX::Create(
      {.mode = SoftwareConnectX::Mode::kSpin,
       .ports = {{.device = {.name = "mlx5_0", .mac = HostA().mac.bytes()},
                  .wire = (*link)[0].get()},
                 {.device = {.name = "mlx5_1", .mac = HostB().mac.bytes()},
                  .wire = (*link)[1].get()}}});
  if (!device.ok()) return device.status();
  const engine::RingOptions options = RingRig::DefaultOptions();
  auto client = RingRig::MakeOnDevice(options, "mlx5_0", HostA(), HostB());
  if (!client.ok()) return client.status();
  auto server = RingRig::MakeOnDevice(options, "mlx5_1", HostB(), HostA());
  if (!server.ok()) return server.status();
  double best = 1e9;
  for (int i = 0; i < kTries; ++i) {
    best = std::min(best, EchoNs(**client, **server, rounds, ticks_per_ns));
  }
  return best;
}

Row SoftwareRoundTripRow(uint32_t rounds, double ticks_per_ns) {
  constexpr char kName[] = "rtt_two_cores";
  constexpr char kUnit[] = "ns, software ConnectX";
  const auto ns = SoftwareRoundTrip(rounds, ticks_per_ns);
  if (!ns.ok()) return Unmeasured(kName, kUnit, {}, ns.status());
  return {.name = kName,
          .unit = kUnit,
          .value = *ns,
          .note = "the time of a software device on the other core and not of a card; best of 5"};
}

std::vector<Row> RoundTrip(const Measurement& measurement) {
  TwoCoreRoundTrip trip{.unit = "ns, best of 5",
                        .most_cache_lines = 3.3,
                        .kernel_peer = "kernel UDP over veth, one thread",
                        .ours = {},
                        .kernel = KernelEcho};
  auto client = RingRig::Make(RingRig::DefaultOptions());
  if (!client.ok()) return {UnmeasuredRoundTrip(trip, client.status())};
  auto server = RingRig::Make(RingRig::DefaultOptions());
  if (!server.ok()) return {UnmeasuredRoundTrip(trip, server.status())};
  trip.ours = [&](uint32_t rounds, double ticks_per_ns) {
    return NullRoundTrip(**client, **server, rounds, ticks_per_ns);
  };
  std::vector<Row> rows = RoundTripRows(trip, measurement.quick);
  if (rows.size() > 1) {
    const uint32_t rounds = measurement.quick ? 256 : 100'000;
    rows.push_back(SoftwareRoundTripRow(rounds, MeasureTicksPerNs()));
  }
  return rows;
}

// More than are fired while the owner is held up between taking one and arming it anew.
constexpr size_t kRemotePrepared = 8;

// Nanoseconds from a fire by the other core until the device can see the frame there: one thread
// fires and looks, the ring's owner polls. Internal: a frame never came to the device.
absl::StatusOr<double> RemoteFireNs(RingRig& rig, std::span<engine::PreparedSend* const> prepared,
                                    engine::RingLane& lane, uint32_t rounds,
                                    double ticks_per_ns) {
  constexpr uint64_t kMostLooks = 1'000'000'000;
  const uint64_t& fired = rig.ring().core().tally.counters.fired;
  const uint64_t begin = fired;
  std::atomic<bool> done{false};
  bool missed = false;
  double ns = 0;
  std::thread strategy([&, begin] {
    const Pinned pinned(1);
    const uint64_t start = ReadTicks();
    for (uint32_t i = 0; i < rounds && !missed; ++i) {
      const uint16_t before = rig.device().posted_wqebbs();
      lane.Fire(prepared[(begin + i) % prepared.size()]->handle, i, 0);
      uint64_t looks = 0;
      while (rig.device().posted_wqebbs() == before && !missed) missed = ++looks == kMostLooks;
    }
    ns = static_cast<double>(ReadTicks() - start) / ticks_per_ns / rounds;
    done.store(true, std::memory_order_release);
  });
  const Pinned pinned(0);
  uint64_t armed = begin;
  while (!done.load(std::memory_order_acquire)) {
    rig.Drop(RingRig::kBatch);
    for (; armed != fired; ++armed) rig.Rearm(*prepared[armed % prepared.size()]);
    rig.device().CompleteSends();
  }
  strategy.join();
  if (missed) return absl::InternalError("a fire never came to the device");
  return ns;
}

Row RemoteFire(const Measurement& measurement) {
  constexpr char kName[] = "remote_fire";
  constexpr char kUnit[] = "ns, best of 5";
  const Goal goal = {.most_of_peer = 1.3};
  auto rig = RingRig::Make(RingRig::DefaultOptions());
  if (!rig.ok()) return Unmeasured(kName, kUnit, goal, rig.status());
  if (std::thread::hardware_concurrency() < 2) {
    return Unmeasured(kName, kUnit, goal, absl::UnavailableError("one core only"));
  }
  std::array<engine::PreparedSend*, kRemotePrepared> prepared{};
  for (engine::PreparedSend*& each : prepared) {
    auto made = (*rig)->Prepare();
    if (!made.ok()) return Unmeasured(kName, kUnit, goal, made.status());
    each = *made;
  }
  const auto lane = (*rig)->ring().OpenLane();
  const double ticks_per_ns = MeasureTicksPerNs();
  const uint32_t rounds = measurement.quick ? 256 : 100'000;
  double line = 1e9, fire = 1e9;
  for (int i = 0; i < kTries; ++i) {
    line = std::min(line, CacheLineRoundTrip(rounds, ticks_per_ns));
    const auto ns = RemoteFireNs(**rig, prepared, *lane, rounds, ticks_per_ns);
    if (!ns.ok()) return Unmeasured(kName, kUnit, goal, ns.status());
    fire = std::min(fire, *ns);
  }
  return {.name = kName,
          .unit = kUnit,
          .value = fire,
          .peer = "cache line to the other core and back",
          .peer_value = line,
          .goal = goal,
          .note = "from the call in one thread until it sees the doorbell record that the ring's "
                  "owner wrote"};
}

// The longest time between the ends of two polls, while `between` runs before each.
template <typename Between>
double LongestGapNs(RingRig& rig, uint64_t polls, double ticks_per_ns, Between&& between) {
  uint64_t longest = 0;
  uint64_t last = ReadTicks();
  for (uint64_t i = 0; i < polls; ++i) {
    between(i);
    rig.Drop(RingRig::kBatch);
    const uint64_t now = ReadTicks();
    longest = std::max(longest, now - last);
    last = now;
  }
  return static_cast<double>(longest) / ticks_per_ns;
}

// What the owner does in control_stall: starts one operation in so many polls.
class ControlLoad {
 public:
  explicit ControlLoad(RingRig& rig, engine::Handle socket) : rig_(rig), socket_(socket) {}
  void operator()(uint64_t poll) {
    if (poll % kPollsBetween != 0) return;
    const uint64_t step = poll / kPollsBetween;
    if (step < kGroups) {
      const wire::Ipv4Address group(kGroupBase + static_cast<uint32_t>(step));
      const auto joined = rig_.ring().udp().Join(socket_, {group, 0}, std::nullopt, 0, step);
      failed_ |= !joined.ok();
    } else if (step < kGroups + kSockets) {
      const auto opened = rig_.OpenSocket(static_cast<uint16_t>(kFirstPort + step));
      failed_ |= !opened.ok();
    }
  }
  bool failed() const { return failed_; }
  static constexpr uint64_t polls() { return (kGroups + kSockets + 1) * kPollsBetween; }

 private:
  static constexpr uint64_t kPollsBetween = 200;

  RingRig& rig_;
  const engine::Handle socket_;
  bool failed_ = false;
};

Row ControlStall() {
  constexpr char kName[] = "control_stall";
  constexpr char kUnit[] = "us over an idle loop";
  const Goal goal = {.most = 2};
  const double ticks_per_ns = MeasureTicksPerNs();
  double idle = 1e9, loaded = 1e9;
  for (int i = 0; i < kTries; ++i) {
    auto rig = RingRig::Make(RingRig::DefaultOptions());
    if (!rig.ok()) return Unmeasured(kName, kUnit, goal, rig.status());
    auto socket = (*rig)->OpenSocket(kFirstPort - 1);
    if (!socket.ok()) return Unmeasured(kName, kUnit, goal, socket.status());
    const absl::Status settled = (*rig)->Settle();
    if (!settled.ok()) return Unmeasured(kName, kUnit, goal, settled);
    // As an application whose owner thread is bound to its core; the control thread then leaves it.
    const Pinned pinned(0);
    (*rig)->ring().Adopt();
    constexpr uint64_t kPolls = ControlLoad::polls();
    const auto nothing = [](uint64_t) {};
    idle = std::min(idle, LongestGapNs(**rig, kPolls, ticks_per_ns, nothing));
    ControlLoad load(**rig, *socket);
    loaded = std::min(loaded, LongestGapNs(**rig, kPolls, ticks_per_ns, load));
    if (load.failed()) {
      return Unmeasured(kName, kUnit, goal, absl::InternalError("a group or socket was refused"));
    }
  }
  return {.name = kName,
          .unit = kUnit,
          .value = (loaded - idle) / 1e3,
          .goal = goal,
          .note = absl::StrFormat(
              "longest gap between polls %.1f us while %d groups were joined and %d sockets "
              "opened, %.1f us idle; each the best of 5; the kernel is in memory",
              loaded / 1e3, kGroups, kSockets, idle / 1e3)};
}

}  // namespace

std::vector<Row> TwoThreadRows(const Measurement& measurement) {
  std::vector<Row> rows = RoundTrip(measurement);
  rows.push_back(RemoteFire(measurement));
  rows.push_back(ControlStall());
  return rows;
}

}  // namespace xtreme::benchmarks
