// SPDX-License-Identifier: Apache-2.0

#include "benchmarks/hardware/items.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "benchmarks/hardware/bench_ring.h"
#include "benchmarks/hardware/phc.h"
#include "fmt/format.h"

namespace xtreme::hardware {
namespace {

using nlohmann::ordered_json;
using Verdict = Outcome::Verdict;

constexpr size_t kHeaderBytes = 42;
constexpr size_t kMostInlineBytes = 226 - kHeaderBytes;
constexpr size_t kGatheredBytes = 1'024;
constexpr int64_t kQuietMs = 1'000;
constexpr uint32_t kDatagrams = 1'000;      // More than a receive queue holds.
constexpr uint32_t kFewDatagrams = 100;    // No more than any does.

Outcome Failed(std::string finding) { return {Verdict::kFailed, std::move(finding)}; }
Outcome NotTried(std::string finding) { return {Verdict::kNotTried, std::move(finding)}; }

ordered_json FiguresOf(const RoundTrips& trips) {
  return {{"asked", trips.asked},
          {"answered", trips.times_ns.size()},
          {"p50_ns", trips.Quantile(0.5)},
          {"p99_ns", trips.Quantile(0.99)},
          {"least_ns", trips.Quantile(0)}};
}

bool AllAnswered(const RoundTrips& trips) { return trips.asked == trips.times_ns.size(); }

// One measurement on a ring of its own.
Outcome AskWith(const Bench& bench, const BenchRing::Settings& settings, size_t bytes,
                const std::string& name, Outcome* into) {
  BenchRing ring;
  if (auto wrong = BenchRing::Open(bench.interface, bench.peer, settings, &ring)) {
    return Failed(*wrong);
  }
  const RoundTrips trips = ring.Ask(bench.asks, bytes);
  into->figures[name] = FiguresOf(trips);
  into->figures[name]["blueflame_wqes"] = ring.Counter("queue", "tx_blueflame");
  into->figures[name]["device_memory_frames"] = ring.Counter("queue", "tx_device_memory");
  if (AllAnswered(trips)) return {};
  return Failed(fmt::format("{}: {} of {} answered", name, trips.times_ns.size(), trips.asked));
}

Outcome EchoSizes(const Bench& bench) {
  BenchRing ring;
  if (auto wrong = BenchRing::Open(bench.interface, bench.peer, {}, &ring)) return Failed(*wrong);
  Outcome outcome;
  std::vector<size_t> sizes;
  for (size_t bytes = 18; bytes <= kMostInlineBytes + 1; ++bytes) sizes.push_back(bytes);
  sizes.insert(sizes.end(), {kGatheredBytes, 1'472});
  for (size_t bytes : sizes) {
    const RoundTrips trips = ring.Ask(bench.asks / 16 + 1, bytes);
    outcome.figures[fmt::format("{}", bytes)] = FiguresOf(trips);
    if (AllAnswered(trips)) continue;
    outcome.verdict = Verdict::kFailed;
    outcome.finding += fmt::format("{} bytes: {} of {} answered; ", bytes, trips.times_ns.size(),
                                   trips.asked);
  }
  return outcome;
}

Outcome BlueFlame(const Bench& bench) {
  Outcome outcome;
  for (const char* setting : {"on", "off"}) {
    const Outcome part = AskWith(bench, {{"blueflame", setting}}, 64, setting, &outcome);
    if (part.verdict != Verdict::kOk) return part;
  }
  const bool offered = outcome.figures["on"]["blueflame_wqes"] != 0;
  outcome.finding = offered ? "" : "the device has no BlueFlame";
  return outcome;
}

Outcome DeviceMemory(const Bench& bench) {
  Outcome outcome;
  for (const auto& [name, bytes] : {std::pair("on", "65536"), {"off", "0"}}) {
    const Outcome part =
        AskWith(bench, {{"device_memory", bytes}}, kGatheredBytes, name, &outcome);
    if (part.verdict != Verdict::kOk) return part;
  }
  const bool offered = outcome.figures["on"]["device_memory_frames"] != 0;
  outcome.finding = offered ? "" : "the device has no on-device memory";
  return outcome;
}

// Two processes on one group, each with a rule of its own, of another tag, which a card refuses the
// second: both get every datagram.
Outcome TagConflict(const Bench& bench) {
  const std::string command = fmt::format("'{}' --count-group --interface={} --peer={}",
                                          bench.program, bench.interface, bench.peer);
  FILE* const other = popen(command.c_str(), "r");
  if (other == nullptr) return Failed("the second process did not start");
  char line[64] = {};
  const bool ready = std::fgets(line, sizeof line, other) != nullptr &&
                     std::string_view(line) == "ready\n";
  BenchRing ring;
  auto wrong = BenchRing::Open(bench.interface, bench.peer, {}, &ring);
  if (!wrong) wrong = ring.JoinGroup(0, /*flow_tag=*/1);
  uint64_t ours = 0;
  if (ready && !wrong) {
    ring.Tell({.kind = Command::kGroupBurst, .count = kFewDatagrams});
    ours = ring.CountPackets(kQuietMs);
  }
  uint64_t theirs = 0;
  if (std::fgets(line, sizeof line, other) != nullptr) theirs = std::strtoull(line, nullptr, 10);
  pclose(other);
  if (wrong) return Failed(*wrong);
  Outcome outcome{.figures = {{"sent", kFewDatagrams}, {"first", ours}, {"second", theirs}}};
  if (!ready) return Failed("the second process did not come up");
  if (ours != kFewDatagrams || theirs != kFewDatagrams) outcome.verdict = Verdict::kFailed;
  return outcome;
}

// A socket of the kernel's in the same group. -1: refused.
int JoinInKernel(const std::string& interface_address) {
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  const int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  const int bytes = 4 << 20;
  setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
  sockaddr_in local = {.sin_family = AF_INET, .sin_port = htons(kGroupPort)};
  ip_mreq membership = {};
  inet_pton(AF_INET, kGroup, &membership.imr_multiaddr);
  inet_pton(AF_INET, interface_address.c_str(), &membership.imr_interface);
  if (bind(fd, reinterpret_cast<const sockaddr*>(&local), sizeof local) == 0 &&
      setsockopt(fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &membership, sizeof membership) == 0) {
    return fd;
  }
  close(fd);
  return -1;
}

uint64_t CountInKernel(int fd) {
  uint64_t count = 0;
  char bytes[128];
  while (recv(fd, bytes, sizeof bytes, MSG_DONTWAIT) > 0) ++count;
  return count;
}

Outcome ShareWithKernel(const Bench& bench) {
  BenchRing ring;
  if (auto wrong = BenchRing::Open(bench.interface, bench.peer, {}, &ring)) return Failed(*wrong);
  if (auto wrong = ring.JoinGroup(XTREME_SHARE_WITH_KERNEL)) return NotTried(*wrong);
  if (!ring.remark().empty()) return NotTried(ring.remark());
  // 0.0.0.0: the interface that the route to groups leads to.
  const int fd = JoinInKernel("0.0.0.0");
  if (fd < 0) return NotTried("the kernel has no route to groups: ip route add 224.0.0.0/4 dev IF");
  ring.Tell({.kind = Command::kGroupBurst, .count = kFewDatagrams});
  const uint64_t ours = ring.CountPackets(kQuietMs);
  const uint64_t kernels = CountInKernel(fd);
  close(fd);
  Outcome outcome{.figures = {{"sent", kFewDatagrams}, {"ring", ours}, {"kernel", kernels}}};
  if (ours != kFewDatagrams || kernels != kFewDatagrams) outcome.verdict = Verdict::kFailed;
  return outcome;
}

// Two rings in one group, one of which takes it whole. In what order the card tries rules of other
// fields is the kernel's: that of the first to come (docs/mlx5.md).
Outcome OverlappingRules(const Bench& bench) {
  Outcome outcome{.figures = {{"sent", kFewDatagrams}}};
  for (const bool whole_first : {true, false}) {
    BenchRing rings[2];
    for (const bool first : {true, false}) {
      BenchRing& ring = rings[first ? 0 : 1];
      BenchRing::Settings settings;
      if (first == whole_first) settings["fragments"] = "own";
      auto wrong = BenchRing::Open(bench.interface, bench.peer, settings, &ring);
      if (!wrong) wrong = ring.JoinGroup(0);
      if (wrong) return Failed(*wrong);
    }
    rings[0].Tell({.kind = Command::kGroupBurst, .count = kFewDatagrams});
    const uint64_t first = rings[0].CountPackets(kQuietMs);
    const uint64_t second = rings[1].CountPackets(kQuietMs);
    outcome.figures[whole_first ? "whole_first" : "port_first"] = {{"first", first},
                                                                   {"second", second}};
    if (first != kFewDatagrams || second != 0) outcome.verdict = Verdict::kFailed;
  }
  return outcome;
}

Outcome Fragments(const Bench& bench) {
  BenchRing ring;
  if (auto wrong = BenchRing::Open(bench.interface, bench.peer, {}, &ring)) return Failed(*wrong);
  Outcome outcome;
  const RoundTrips trips = ring.Ask(std::min(bench.asks, 100u), 4'000);
  outcome.figures = FiguresOf(trips);
  outcome.figures["by_the_kernel"] = ring.Counter("ring", "slow_path");
  if (!AllAnswered(trips)) outcome.verdict = Verdict::kFailed;
  return outcome;
}

// Nobody polls while more arrives than the queue holds: every loss shows in a counter.
Outcome Starvation(const Bench& bench) {
  BenchRing ring;
  const BenchRing::Settings small = {{"rx_queue_frames", "64"}, {"rx_buffers", "1024"}};
  if (auto wrong = BenchRing::Open(bench.interface, bench.peer, small, &ring)) {
    return Failed(*wrong);
  }
  // The port's counters are compared with how they first stood, a tenth of a second after opening.
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  ring.Tell({.kind = Command::kBurst, .count = kDatagrams});
  std::this_thread::sleep_for(std::chrono::seconds(1));
  const uint64_t received = ring.CountPackets(kQuietMs);
  Outcome outcome{.figures = {{"sent", kDatagrams},
                              {"received", received},
                              {"rx_empty", ring.Counter("queue", "rx_empty")},
                              {"out_of_buffer", ring.Counter("port", "out_of_buffer")}}};
  const bool told =
      ring.Counter("queue", "rx_empty") != 0 || ring.Counter("port", "out_of_buffer") != 0;
  if (received < kDatagrams && !told) return {Verdict::kFailed, "a loss without a word",
                                              outcome.figures};
  return outcome;
}

bool SetLink(const Bench& bench, const char* state) {
  if (bench.pull == Pull::kPrompt) {
    std::fprintf(stderr, "hardware: %s\n",
                 std::string_view(state) == "down" ? "pull the cable now" : "plug it in again");
    return true;
  }
  return std::system(fmt::format("ip link set {} {}", bench.interface, state).c_str()) == 0;
}

Outcome CablePull(const Bench& bench) {
  if (bench.pull == Pull::kSkip) return NotTried("asked not to");
  const int64_t patience_ms = bench.pull == Pull::kPrompt ? 60'000 : 10'000;
  BenchRing ring;
  if (auto wrong = BenchRing::Open(bench.interface, bench.peer, {}, &ring)) return Failed(*wrong);
  if (!SetLink(bench, "down")) return NotTried("ip link set was refused");
  const bool down = ring.AwaitEvent(XTREME_LINK_DOWN, patience_ms);
  const bool up = SetLink(bench, "up") && ring.AwaitEvent(XTREME_LINK_UP, patience_ms);
  // The neighbour is asked for again, and the switch learns.
  RoundTrips after;
  for (int tries = 0; tries < 10 && after.times_ns.empty(); ++tries) after = ring.Ask(1, 64);
  Outcome outcome{.figures = {{"down_seen", down}, {"up_seen", up},
                              {"answered_afterwards", !after.times_ns.empty()}}};
  if (!down || !up || after.times_ns.empty()) outcome.verdict = Verdict::kFailed;
  return outcome;
}

// Each has a doorbell register of its own, and its data stays its own.
Outcome ManyRings(const Bench& bench) {
  std::vector<std::string> wrong(bench.rings);
  std::vector<uint64_t> answered(bench.rings);
  std::vector<std::thread> owners;
  const uint32_t asks = std::min(bench.asks, 100u);
  for (uint32_t i = 0; i < bench.rings; ++i) {
    owners.emplace_back([&, i] {
      BenchRing ring;
      const BenchRing::Settings small = {{"rx_buffers", "2048"}, {"wait", "sleep"}};
      wrong[i] = BenchRing::Open(bench.interface, bench.peer, small, &ring).value_or("");
      if (wrong[i].empty()) answered[i] = ring.Ask(asks, 64 + i).times_ns.size();
    });
  }
  for (std::thread& owner : owners) owner.join();
  Outcome outcome{.figures = {{"rings", bench.rings}, {"asked", asks}, {"answered", answered}}};
  for (uint32_t i = 0; i < bench.rings; ++i) {
    if (!wrong[i].empty()) return Failed(wrong[i]);
    if (answered[i] != asks) outcome.verdict = Verdict::kFailed;
  }
  return outcome;
}

int MtuOf(const std::string& interface) {
  ifreq request = {};
  interface.copy(request.ifr_name, IFNAMSIZ - 1);
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  const bool told = ioctl(fd, SIOCGIFMTU, &request) == 0;
  close(fd);
  return told ? request.ifr_mtu : 0;
}

bool SetMtu(const Bench& bench, int mtu) {
  return std::system(fmt::format("ip link set {} mtu {}", bench.interface, mtu).c_str()) == 0;
}

// A ring that was opened at a lower MTU gets frames that its buffers do not hold: each costs one
// buffer, and the queue goes on.
Outcome LongFrames(const Bench& bench) {
  constexpr int kLowMtu = 1'500;
  if (bench.pull == Pull::kSkip) return NotTried("asked not to touch the interface");
  const int mtu = MtuOf(bench.interface);
  if (mtu < kLongMtu) {
    return NotTried(fmt::format("an MTU of {}; both sides want {} or more", mtu, kLongMtu));
  }
  if (!SetMtu(bench, kLowMtu)) return NotTried("ip link set was refused");
  BenchRing ring;
  auto wrong = BenchRing::Open(bench.interface, bench.peer, {}, &ring);
  if (!wrong) wrong = ring.JoinGroup(0);
  if (!SetMtu(bench, mtu)) return Failed(fmt::format("the MTU is left at {}", kLowMtu));
  if (wrong) return Failed(*wrong);
  ring.Tell({.kind = Command::kLongFrames, .count = kFewDatagrams});
  const uint64_t received = ring.CountPackets(kQuietMs);
  const uint64_t counted = ring.Counter("queue", "rx_too_long");
  const RoundTrips after = ring.Ask(std::min(bench.asks, 100u), 64);
  Outcome outcome{.figures = {{"sent", kFewDatagrams},
                              {"received", received},
                              {"rx_too_long", counted},
                              {"afterwards", FiguresOf(after)}}};
  if (received != 0 || !AllAnswered(after)) outcome.verdict = Verdict::kFailed;
  if (outcome.verdict == Verdict::kFailed || counted != 0) return outcome;
  return {Verdict::kNotTried, "no long frame came: is the other side's MTU as long?",
          outcome.figures};
}

struct Ages {
  uint64_t timed = 0;
  uint64_t outside = 0;  // Of what the host's clock allows.
  int64_t least_ns = INT64_MAX;
  int64_t error_ns = 0;  // The most that the clock said of itself.
  int64_t newest_ns = 0;  // The last one that had a time; 0: none since it was cleared.
};

// The NIC's own clock, where the kernel shows one that may be read.
std::optional<Phc> OpenPhc(const std::string& interface) {
  const std::string name = PhcOf(interface);
  return name.empty() ? std::nullopt : Phc::Open("/dev/" + name);
}

// What of the host's times the NIC's clock says.
ordered_json PhcFigures(const std::string& interface, const std::vector<PhcSample>& samples,
                        const PhcComparison& comparison) {
  const std::string name = PhcOf(interface);
  if (name.empty()) return "no PHC";
  if (samples.empty()) return name + " cannot be read, or no packet had a time";
  return {{"name", name},
          {"packets", comparison.packets},
          {"outside", comparison.outside},
          {"worst_ns", comparison.worst_ns},
          {"offset_ns", comparison.offset_ns},
          {"drift_ppm", comparison.drift_ppm}};
}

// One packet, asked for at `asked_ns`; false: none was there yet.
bool TakeAge(Ring* ring, int64_t asked_ns, Ages* ages) {
  bool seen = false;
  for (const Completion& completion : ring->Wait(1'000'000)) {
    seen |= completion.kind() == kPacket;
    if (completion.kind() != kPacket || !completion.has(XTREME_CLOCK_SYNCED)) continue;
    const int64_t now_ns = ring->now_ns();
    ++ages->timed;
    const int64_t error_ns = ring->clock_error_ns();
    if (error_ns == INT64_MAX) continue;
    ages->error_ns = std::max(ages->error_ns, error_ns);
    ages->outside += completion.hw_time_ns < asked_ns - error_ns ||
                     completion.hw_time_ns > now_ns + error_ns;
    ages->least_ns = std::min(ages->least_ns, now_ns - completion.hw_time_ns);
    ages->newest_ns = completion.hw_time_ns;
  }
  return seen;
}

// A packet's time lies between the question and the poll that saw it, on the host's clock and on
// the NIC's, within the error that the device's clock admits.
Outcome Timestamps(const Bench& bench) {
  BenchRing ring;
  if (auto wrong = BenchRing::Open(bench.interface, bench.peer, {}, &ring)) return Failed(*wrong);
  Outcome outcome;
  Ages ages;
  const std::optional<Phc> phc = OpenPhc(bench.interface);
  std::vector<PhcSample> samples;
  // The clocks are compared once a second, and are not in sync before that was done a few times.
  const uint32_t asks = std::min(bench.asks, 200u);
  const int64_t end_ns = ring.ring().now_ns() + 30'000'000'000;
  while (ages.timed < asks && ring.ring().now_ns() < end_ns) {
    PhcSample sample{.asked_phc_ns = phc ? phc->Now() : 0};
    const int64_t asked_ns = sample.asked_host_ns = ring.ring().now_ns();
    ages.newest_ns = 0;
    ring.Tell({.kind = Command::kBurst, .count = 1});
    while (!TakeAge(&ring.ring(), asked_ns, &ages) &&
           ring.ring().now_ns() < asked_ns + 1'000'000'000) {
    }
    if (!phc || ages.newest_ns == 0) continue;
    sample.packet_ns = ages.newest_ns;
    sample.seen_host_ns = ring.ring().now_ns();
    sample.seen_phc_ns = phc->Now();
    samples.push_back(sample);
  }
  const PhcComparison comparison = CompareWithPhc(samples, ages.error_ns);
  outcome.figures = {{"asked", asks},
                     {"timed", ages.timed},
                     {"outside", ages.outside},
                     {"least_age_ns", ages.timed == 0 ? 0 : ages.least_ns},
                     {"error_bound_ns", ages.error_ns},
                     {"phc", PhcFigures(bench.interface, samples, comparison)}};
  if (ages.timed == 0) return {Verdict::kNotTried, "no packet had a time", outcome.figures};
  const bool wrong = ages.outside != 0 || comparison.outside != 0;
  if (wrong) outcome.verdict = Verdict::kFailed;
  return outcome;
}

constexpr Item kItems[] = {
    {"echo_sizes", "round trips at every size that stands inline, and above", &EchoSizes},
    {"blueflame", "round trips by BlueFlame and by doorbell", &BlueFlame},
    {"device_memory", "round trips of 1,024 bytes from on-device memory and gathered",
     &DeviceMemory},
    {"tag_conflict", "two processes in one group, each gets everything", &TagConflict},
    {"dont_trap", "a group shared with the kernel's own listeners", &ShareWithKernel},
    {"overlapping_rules", "two rings in one group, one takes it whole: the first gets everything",
     &OverlappingRules},
    {"fragments", "datagrams of 4,000 bytes, both ways", &Fragments},
    {"starvation", "more than the receive queue holds, and who counts the loss", &Starvation},
    {"long_frames", "frames above the MTU that a ring was opened at, and that it goes on",
     &LongFrames},
    {"cable_pull", "link down and up are told, and it goes on", &CablePull},
    {"rings", "32 rings in 32 threads", &ManyRings},
    {"timestamps", "hardware times on the host's clock and on the NIC's own", &Timestamps},
};

}  // namespace

std::span<const Item> Items() { return kItems; }

int CountGroup(const std::string& interface, const std::string& peer) {
  BenchRing ring;
  auto wrong = BenchRing::Open(interface, peer, {}, &ring);
  if (!wrong) wrong = ring.JoinGroup(0, /*flow_tag=*/2);
  if (wrong) {
    std::fprintf(stderr, "hardware: %s\n", wrong->c_str());
    return 1;
  }
  std::printf("ready\n");
  std::fflush(stdout);
  // The first may take its time to come up.
  uint64_t count = 0;
  for (int waits = 0; waits < 20 && count == 0; ++waits) count = ring.CountPackets(kQuietMs);
  std::printf("%lu\n", count);
  return 0;
}

}  // namespace xtreme::hardware
