// SPDX-License-Identifier: Apache-2.0

#include "benchmarks/hardware/bench_ring.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <utility>

#include "fmt/format.h"

namespace xtreme::hardware {
namespace {

constexpr int64_t kMs = 1'000'000;
constexpr int64_t kAnswerNs = 1'000 * kMs;
constexpr int64_t kOperationNs = 10'000 * kMs;
constexpr size_t kBurstBytes = 64;

std::span<const uint8_t> BytesOf(const Command& command) {
  return {reinterpret_cast<const uint8_t*>(&command), sizeof command};
}

}  // namespace

int64_t RoundTrips::Quantile(double part) const {
  if (times_ns.empty()) return 0;
  return times_ns[static_cast<size_t>(part * static_cast<double>(times_ns.size() - 1))];
}

std::optional<std::string> BenchRing::Open(const std::string& interface, const std::string& peer,
                                           const Settings& settings, BenchRing* ring) {
  RingOptions options = RingOptions::Dev(interface);
  options.Set("wait", "hybrid").Set("counters_directory", "");
  for (const auto& [name, value] : settings) options.Set(name.c_str(), value.c_str());
  auto opened = Ring::Open(options);
  if (!opened) return opened.error().message;
  ring->ring_.emplace(*std::move(opened));
  auto socket = ring->ring_->OpenUdp({});
  if (!socket) return socket.error().message;
  ring->socket_ = *std::move(socket);
  auto address = ParseAddress(fmt::format("{}:{}", peer, kServerPort));
  if (!address) return address.error().message;
  if (auto connecting = ring->socket_.Connect(*address); !connecting) {
    return connecting.error().message;
  }
  if (auto started = ring->ring_->Start(); !started) return started.error().message;
  return ring->AwaitOperations(2);
}

std::optional<std::string> BenchRing::AwaitOperations(int count) {
  const int64_t end_ns = ring_->now_ns() + kOperationNs;
  while (count > 0) {
    if (ring_->now_ns() >= end_ns) return "an operation did not end";
    for (const Completion& completion : ring_->Wait(kMs)) {
      if (completion.kind() != kOpDone) continue;
      if (completion.status != 0) return completion.text == nullptr ? "refused" : completion.text;
      if (completion.text != nullptr) remark_ = completion.text;
      --count;
    }
  }
  return std::nullopt;
}

RoundTrips BenchRing::Ask(uint32_t count, size_t bytes) {
  RoundTrips trips;
  std::vector<uint8_t> question(bytes);
  for (uint32_t i = 0; i < count; ++i) {
    for (size_t at = 0; at < bytes; ++at) question[at] = static_cast<uint8_t>(i + at);
    ++trips.asked;
    const int64_t start_ns = ring_->now_ns();
    if (static_cast<int>(socket_.Send(question)) < 0) continue;
    if (!Answer(question, start_ns + kAnswerNs)) continue;
    trips.times_ns.push_back(ring_->now_ns() - start_ns);
  }
  std::sort(trips.times_ns.begin(), trips.times_ns.end());
  return trips;
}

bool BenchRing::Answer(std::span<const uint8_t> question, int64_t deadline_ns) {
  while (ring_->now_ns() < deadline_ns) {
    bool answered = false;
    for (const Completion& completion : ring_->Wait(kMs)) {
      if (completion.kind() != kPacket) continue;
      std::vector<uint8_t> answer(completion.length);
      answer.resize(xtreme_copy_out(&completion, answer.data(), answer.size()));
      answered |= std::equal(answer.begin(), answer.end(), question.begin(), question.end());
    }
    if (answered) return true;
  }
  return false;
}

void BenchRing::Tell(const Command& command) { socket_.Send(BytesOf(command)); }

uint64_t BenchRing::CountPackets(int64_t patience_ms) {
  uint64_t packets = 0;
  int64_t last_ns = ring_->now_ns();
  while (ring_->now_ns() - last_ns < patience_ms * kMs) {
    for (const Completion& completion : ring_->Wait(kMs)) {
      if (completion.kind() != kPacket) continue;
      ++packets;
      last_ns = ring_->now_ns();
    }
  }
  return packets;
}

bool BenchRing::AwaitEvent(int event, int64_t patience_ms) {
  const int64_t end_ns = ring_->now_ns() + patience_ms * kMs;
  while (ring_->now_ns() < end_ns) {
    bool seen = false;
    for (const Completion& completion : ring_->Wait(kMs)) {
      seen |= completion.kind() == kRing && completion.event == event;
    }
    if (seen) return true;
  }
  return false;
}

std::optional<std::string> BenchRing::JoinGroup(uint32_t flags, uint32_t flow_tag) {
  const std::string local = fmt::format(":{}", kGroupPort);
  auto socket = ring_->OpenUdp({.local = local, .reuse = true, .flow_tag = flow_tag});
  if (!socket) return socket.error().message;
  group_ = *std::move(socket);
  auto group = ParseAddress(fmt::format("{}:0", kGroup));
  if (!group) return group.error().message;
  if (auto joining = group_.Join(*group, 0, flags); !joining) return joining.error().message;
  return AwaitOperations(2);
}

uint64_t BenchRing::Counter(const std::string& scope, const std::string& name) const {
  for (const xtreme_counter& counter : ring_->Counters()) {
    if (counter.scope == scope && counter.name == name) return counter.value;
  }
  return 0;
}

// --- The peer ------------------------------------------------------------------------------------

namespace {

// A full queue empties in microseconds, but its device may be software that waits for a processor:
// what is refused for longer is given up.
void Burst(const Ring& ring, UdpSocket* socket, const xtreme_address& to, uint32_t count) {
  const std::vector<uint8_t> bytes(kBurstBytes, 0x5A);
  for (uint32_t i = 0; i < count; ++i) {
    const int64_t end_ns = ring.now_ns() + kAnswerNs;
    while (static_cast<int>(socket->SendTo(to, bytes)) < 0 && ring.now_ns() < end_ns) {
    }
  }
}

void SendLongFrames(const std::string& interface, uint32_t count) {
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  const int whole = IP_PMTUDISC_DO;
  const ip_mreqn by = {.imr_multiaddr = {},
                       .imr_address = {},
                       .imr_ifindex = static_cast<int>(if_nametoindex(interface.c_str()))};
  sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(kGroupPort)};
  inet_pton(AF_INET, kGroup, &to.sin_addr);
  const std::vector<uint8_t> bytes(kLongMtu - 100, 0x5A);
  if (setsockopt(fd, IPPROTO_IP, IP_MTU_DISCOVER, &whole, sizeof whole) == 0 &&
      setsockopt(fd, IPPROTO_IP, IP_MULTICAST_IF, &by, sizeof by) == 0) {
    for (uint32_t i = 0; i < count; ++i) {
      sendto(fd, bytes.data(), bytes.size(), 0, reinterpret_cast<const sockaddr*>(&to), sizeof to);
    }
  }
  close(fd);
}

// Who is asked, and answers.
struct Peer {
  const std::string& interface;
  Ring* ring;
  UdpSocket* socket;
  xtreme_address group;
};

void Obey(const Peer& peer, const Completion& completion) {
  std::vector<uint8_t> bytes(completion.length);
  bytes.resize(xtreme_copy_out(&completion, bytes.data(), bytes.size()));
  Command command;
  if (bytes.size() == sizeof command) std::memcpy(&command, bytes.data(), sizeof command);
  if (bytes.size() != sizeof command || command.magic != Command::kMagic) {
    peer.socket->SendTo(completion.source(), bytes);
    return;
  }
  if (command.kind == Command::kLongFrames) return SendLongFrames(peer.interface, command.count);
  Burst(*peer.ring, peer.socket,
        command.kind == Command::kGroupBurst ? peer.group : completion.source(), command.count);
}

void TellReady() {
  std::printf("ready\n");
  std::fflush(stdout);
}

int Fail(const std::string& text) {
  std::fprintf(stderr, "hardware: %s\n", text.c_str());
  return 1;
}

}  // namespace

int Serve(const std::string& interface, uint64_t seconds) {
  auto ring = Ring::Open(RingOptions::Dev(interface).Set("wait", "hybrid"));
  if (!ring) return Fail(ring.error().message);
  const std::string local = fmt::format(":{}", kServerPort);
  auto socket = ring->OpenUdp({.local = local});
  if (!socket) return Fail(socket.error().message);
  auto group = ParseAddress(fmt::format("{}:{}", kGroup, kGroupPort));
  if (!group) return Fail(group.error().message);
  if (auto started = ring->Start(); !started) return Fail(started.error().message);
  const int64_t end_ns =
      seconds == 0 ? INT64_MAX : ring->now_ns() + static_cast<int64_t>(seconds) * 1'000 * kMs;
  while (ring->now_ns() < end_ns) {
    for (const Completion& completion : ring->Wait(100 * kMs)) {
      const bool opened = completion.kind() == kOpDone;
      if (opened && completion.status != 0) return Fail("the socket was not opened");
      if (opened) TellReady();
      if (completion.kind() == kPacket) {
        Obey({interface, &*ring, &*socket, *group}, completion);
      }
    }
  }
  return 0;
}

}  // namespace xtreme::hardware
