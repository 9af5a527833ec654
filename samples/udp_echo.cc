// SPDX-License-Identifier: Apache-2.0
//
// udp_echo: sends every datagram back to whoever sent it, or asks such a server and measures the
// round trip: one ring, one socket, no copy of what was received but the one into the send queue.
//
//   udp_echo INTERFACE PORT [COUNT]            serves; ends after COUNT datagrams, else never
//   udp_echo INTERFACE ADDRESS:PORT [COUNT]    asks COUNT times (100,000), one after the other

#include <unistd.h>

#include <algorithm>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "api/xtreme.hpp"
#include "samples/wrong_arguments.h"

namespace {

constexpr int64_t kForeverNs = -1;
constexpr int64_t kLostNs = 1'000'000'000;  // An answer that takes longer will not come.
constexpr uint64_t kQuestions = 100'000;
constexpr const char* kStopped = "the ring has stopped";

int Fail(const std::string& why) {
  std::fprintf(stderr, "udp_echo: %s\n", why.c_str());
  return EXIT_FAILURE;
}

// Waits until what was started has ended: the port is ours, the peer's neighbour entry is known.
// "" or what failed.
std::string AwaitOperations(xtreme::Ring* ring, int operations) {
  while (operations > 0) {
    for (const xtreme::Completion& completion : ring->Wait(kForeverNs)) {
      if (completion.is_end_of_ring()) return kStopped;
      if (completion.kind() != xtreme::kOpDone) continue;
      if (completion.status != 0) return completion.text;
      --operations;
    }
  }
  std::puts("ready");
  std::fflush(stdout);
  return "";
}

// The last answer says when it is sent: a ring that is closed does not wait for its sends.
int Serve(xtreme::Ring* ring, xtreme::UdpSocket* socket, uint64_t count) {
  for (uint64_t echoed = 0;;) {
    for (xtreme::Completion& completion : ring->Wait(kForeverNs)) {
      if (completion.is_end_of_ring()) return Fail(kStopped);
      if (completion.kind() == xtreme::kTxDone) return EXIT_SUCCESS;
      if (completion.kind() != xtreme::kPacket || echoed == count) continue;
      const bool last = ++echoed == count;
      const int sent = socket->SendTo(completion.source(), completion.bytes(), {.want_done = last});
      if (sent < 0 && last) return Fail("refused, reason " + std::to_string(sent));
    }
  }
}

enum class Answer { kCame, kLost, kRingStopped };

// What becomes of the answer to `question` before `deadline_ns`.
Answer AwaitAnswer(xtreme::Ring* ring, uint64_t question, int64_t deadline_ns) {
  uint64_t answer = 0;
  for (int64_t now_ns = ring->now_ns(); now_ns < deadline_ns; now_ns = ring->now_ns()) {
    for (const xtreme::Completion& completion : ring->Wait(deadline_ns - now_ns)) {
      if (completion.is_end_of_ring()) return Answer::kRingStopped;
      if (completion.kind() != xtreme::kPacket || completion.length != sizeof answer) continue;
      std::memcpy(&answer, completion.bytes().data(), sizeof answer);
      if (answer == question) return Answer::kCame;
    }
  }
  return Answer::kLost;
}

int Report(uint64_t asked, std::vector<int64_t> round_trips_ns) {
  const size_t answered = round_trips_ns.size();
  std::printf("asked=%" PRIu64 " answered=%zu\n", asked, answered);
  if (answered == 0) return EXIT_FAILURE;
  std::sort(round_trips_ns.begin(), round_trips_ns.end());
  const auto us = [&](double part) {
    return static_cast<double>(round_trips_ns[static_cast<size_t>(part * (answered - 1))]) / 1e3;
  };
  std::printf("round trip: p50 %.1f p99 %.1f p99.9 %.1f us\n", us(0.5), us(0.99), us(0.999));
  return answered == asked ? EXIT_SUCCESS : EXIT_FAILURE;
}

int Ask(xtreme::Ring* ring, xtreme::UdpSocket* socket, uint64_t count) {
  std::vector<int64_t> round_trips_ns;
  for (uint64_t question = 0; question < count; ++question) {
    const int64_t start_ns = ring->now_ns();
    const auto* bytes = reinterpret_cast<const uint8_t*>(&question);
    const int sent = socket->Send({bytes, sizeof question}, {.now_or_fail = true});
    if (sent < 0) return Fail("refused, reason " + std::to_string(sent));
    const Answer answer = AwaitAnswer(ring, question, start_ns + kLostNs);
    if (answer == Answer::kRingStopped) return Fail(kStopped);
    if (answer == Answer::kCame) round_trips_ns.push_back(ring->now_ns() - start_ns);
  }
  return Report(count, std::move(round_trips_ns));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    return samples::RefuseArguments("udp_echo", "usage: udp_echo INTERFACE [ADDRESS:]PORT [COUNT]");
  }
  const bool ask = std::strchr(argv[2], ':') != nullptr;
  const uint64_t count =
      argc > 3 ? std::strtoull(argv[3], nullptr, 10) : (ask ? kQuestions : UINT64_MAX);
  auto ring = xtreme::Ring::Open(xtreme::RingOptions::Latency(argv[1]).FromEnvironment(environ));
  if (!ring) return Fail(ring.error().message);
  auto socket = ring->OpenUdp({.local = ask ? "" : std::string(":") + argv[2]});
  if (!socket) return Fail(socket.error().message);
  if (ask) {
    auto server = xtreme::ParseAddress(argv[2]);
    if (!server) return Fail(server.error().message);
    if (auto connecting = socket->Connect(*server); !connecting) {
      return Fail(connecting.error().message);
    }
  }
  if (xtreme::Status started = ring->Start(); !started) return Fail(started.error().message);
  if (auto wrong = AwaitOperations(&*ring, ask ? 2 : 1); !wrong.empty()) return Fail(wrong);
  return ask ? Ask(&*ring, &*socket, count) : Serve(&*ring, &*socket, count);
}
