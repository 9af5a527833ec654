// SPDX-License-Identifier: Apache-2.0
//
// rtt_two_processes: a datagram and its answer between two processes, each a ring on a software
// ConnectX of its own, over the wire in shared memory; each process has a core, and its device
// works there between the polls.
//
// A round trip is timed by itself: its median, and what one in a thousand exceeds.
// Threads: one a process, and control threads that have nothing to do.

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "benchmarks/frames.h"
#include "benchmarks/measurement.h"
#include "benchmarks/ring_rig.h"
#include "benchmarks/scratch_directory.h"
#include "benchmarks/timing.h"
#include "benchmarks/two_cores.h"
#include "tools/connectx/connectx.h"
#include "tools/connectx/wire/shared_wire.h"

namespace xtreme::benchmarks {
namespace {

constexpr char kName[] = "rtt_two_processes";
constexpr char kMedian[] = "ns, median";
constexpr char kTail[] = "ns, 99.9 %";
constexpr uint32_t kWarmRounds = 1'000;
// What is not answered in so long is lost; what comes late is not taken for the next one's answer.
constexpr double kPatienceNs = 200e6;
constexpr uint32_t kMostLost = 100;

// One process' ring, device and end of the wire.
struct ProcessEnd {
  std::unique_ptr<connectx::SharedWire> wire;
  std::unique_ptr<connectx::SoftwareConnectX> connectx;
  std::unique_ptr<RingRig> rig;

  static absl::StatusOr<ProcessEnd> Open(const std::string& segment, const Host& us,
                                         const Host& peer) {
    ProcessEnd end;
    auto wire = connectx::SharedWire::Open({.segment = segment, .ports = 2});
    if (!wire.ok()) return wire.status();
    end.wire = *std::move(wire);
    auto made = connectx::SoftwareConnectX::Create(
        {.mode = connectx::SoftwareConnectX::Mode::kStep,
         .ports = {{.device = {.name = "mlx5_0", .mac = us.mac.bytes()}, .wire = end.wire.get()}}});
    if (!made.ok()) return made.status();
    end.connectx = *std::move(made);
    auto rig = RingRig::MakeOnDevice(RingRig::DefaultOptions(), "mlx5_0", us, peer);
    if (!rig.ok()) return rig.status();
    end.rig = *std::move(rig);
    return end;
  }

  void Send() {
    rig->Send();
    connectx->device(0).Service();
  }
  bool Receive() {
    connectx->device(0).Service();
    return rig->Receive(1) != 0;
  }
};

// The other process: this program once more, which knows of no device that there was before.
class Answerer {
 public:
  explicit Answerer(const std::string& segment) : pid_(fork()) {
    if (pid_ != 0) return;
    execl("/proc/self/exe", "report", "--answer", segment.c_str(), nullptr);
    _exit(1);
  }
  ~Answerer() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Answerer(const Answerer&) = delete;
  Answerer& operator=(const Answerer&) = delete;

 private:
  const pid_t pid_;
};

// Ticks of one round trip; none: it was not answered.
std::optional<uint64_t> RoundTripTicks(ProcessEnd& end, uint64_t patience) {
  const uint64_t start = ReadTicks();
  end.Send();
  while (!end.Receive()) {
    if (ReadTicks() - start > patience) return std::nullopt;
  }
  return ReadTicks() - start;
}

// Until nothing came for as long as an answer is waited for.
void Drain(ProcessEnd& end, uint64_t patience) {
  for (uint64_t last = ReadTicks(); ReadTicks() - last < patience;) {
    if (end.Receive()) last = ReadTicks();
  }
}

struct RoundTrips {
  double median_ns = 0;
  double tail_ns = 0;
  uint32_t lost = 0;
};

// The best of short tries, which may find both cores free.
double LineNs(double ticks_per_ns) {
  constexpr uint32_t kRounds = 2'000;
  constexpr int kTries = 20;
  double best = 1e9;
  for (int i = 0; i < kTries; ++i) best = std::min(best, CacheLineRoundTrip(kRounds, ticks_per_ns));
  return best;
}

absl::StatusOr<RoundTrips> Measure(uint32_t rounds, double ticks_per_ns) {
  const ScratchDirectory scratch(kInMemory);
  const std::string segment = scratch.path() + "/wire";
  const Answerer answerer(segment);
  const Pinned pinned(0);
  auto end = ProcessEnd::Open(segment, HostA(), HostB());
  if (!end.ok()) return end.status();
  const auto patience = static_cast<uint64_t>(kPatienceNs * ticks_per_ns);
  RoundTrips trips;
  std::vector<uint64_t> ticks;
  ticks.reserve(rounds);
  // The first ones wait for the other process.
  for (uint32_t warm = 0; ticks.size() < rounds;) {
    const auto taken = RoundTripTicks(*end, patience);
    if (!taken.has_value()) {
      if (++trips.lost == kMostLost) return absl::UnavailableError("nobody answered");
      Drain(*end, patience);
    } else if (warm < kWarmRounds) {
      ++warm;
      trips.lost = 0;
    } else {
      ticks.push_back(*taken);
    }
  }
  std::sort(ticks.begin(), ticks.end());
  const auto at = [&](double share) {
    return static_cast<double>(ticks[static_cast<size_t>(share * (rounds - 1))]) / ticks_per_ns;
  };
  trips.median_ns = at(0.5);
  trips.tail_ns = at(0.999);
  return trips;
}

}  // namespace

int AnswerOverSharedWire(const std::string& segment) {
  const Pinned pinned(1);
  auto end = ProcessEnd::Open(segment, HostB(), HostA());
  if (!end.ok()) {
    std::cerr << "report: answer: " << end.status().message() << "\n";
    return 1;
  }
  for (;;) {
    if (end->Receive()) end->Send();
  }
}

std::vector<Row> TwoProcessRows(const Measurement& measurement) {
  if (std::thread::hardware_concurrency() < 2) {
    return {Unmeasured(kName, kMedian, {}, absl::UnavailableError("one core only"))};
  }
  const double ticks_per_ns = MeasureTicksPerNs();
  const uint32_t rounds = measurement.quick ? 1'000 : 100'000;
  double line = LineNs(ticks_per_ns);
  const auto trips = Measure(rounds, ticks_per_ns);
  if (!trips.ok()) return {Unmeasured(kName, kMedian, {}, trips.status())};
  line = std::min(line, LineNs(ticks_per_ns));
  Row median{.name = kName,
             .unit = kMedian,
             .value = trips->median_ns,
             .peer = "cache line to the other core and back",
             .peer_value = line,
             .note = absl::StrFormat(
                 "two processes over the wire in shared memory, each with its software device on a "
                 "core of its own: not a card's time; of %d, %d were lost",
                 rounds, trips->lost)};
  Row tail = median;
  tail.unit = kTail;
  tail.value = trips->tail_ns;
  tail.note = "";
  return {median, tail};
}

}  // namespace xtreme::benchmarks
