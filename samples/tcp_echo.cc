// SPDX-License-Identifier: Apache-2.0
//
// tcp_echo: sends every byte of every connection back, or asks such a server and measures the round
// trip: one ring, connections as completions, no copy of what was received but into the send queue.
//
//   tcp_echo INTERFACE PORT [COUNT]            serves; ends after COUNT connections, else never
//   tcp_echo INTERFACE ADDRESS:PORT [COUNT]    asks COUNT times (10,000), one after the other

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
constexpr uint64_t kQuestions = 10'000;

int Fail(const std::string& why) {
  std::fprintf(stderr, "tcp_echo: %s\n", why.c_str());
  return EXIT_FAILURE;
}

void PrintReady() {
  std::puts("ready");
  std::fflush(stdout);
}

// Sends a packet's bytes back where they lie. A peer that does not read its answers is cut off.
void Echo(const xtreme::Completion& packet) {
  for (xtreme_buffer* link = packet.buffer; link != nullptr; link = xtreme_buffer_next(link)) {
    const bool first = link == packet.buffer;
    const uint8_t* bytes = first ? packet.data : xtreme_buffer_data(link);
    const uint32_t length = first ? static_cast<uint32_t>(packet.bytes().size())
                                  : xtreme_buffer_length(link);
    if (xtreme_send(packet.socket, bytes, length, nullptr) >= 0) continue;
    xtreme_abort(packet.socket);
    return;
  }
}

int Serve(xtreme::Ring* ring, const std::string& port, uint64_t connections) {
  auto listener = ring->ListenTcp({.local = ":" + port});
  if (!listener) return Fail(listener.error().message);
  for (uint64_t ended = 0; ended < connections;) {
    for (const xtreme::Completion& completion : ring->Wait(kForeverNs)) {
      const xtreme::Kind kind = completion.kind();  // ACCEPTED: its handle comes with its packets.
      if (completion.is_end_of_ring()) return Fail("the ring has stopped");
      if (kind == xtreme::kOpDone && completion.status != 0) return Fail(completion.text);
      if (kind == xtreme::kOpDone) PrintReady();
      if (kind == xtreme::kPacket) Echo(completion);
      if (kind == xtreme::kPeerClosed) xtreme_socket_close(completion.socket, 0);
      ended += kind == xtreme::kTerminated;
    }
  }
  return EXIT_SUCCESS;
}

int Report(std::vector<int64_t> round_trips_ns) {
  std::printf("answered=%zu\n", round_trips_ns.size());
  if (round_trips_ns.empty()) return EXIT_SUCCESS;
  std::sort(round_trips_ns.begin(), round_trips_ns.end());
  const auto us = [&](double part) {
    const double at = part * static_cast<double>(round_trips_ns.size() - 1);
    return static_cast<double>(round_trips_ns[static_cast<size_t>(at)]) / 1e3;
  };
  std::printf("round trip: p50 %.1f p99 %.1f p99.9 %.1f us\n", us(0.5), us(0.99), us(0.999));
  return EXIT_SUCCESS;
}

int Ask(xtreme::Ring* ring, const xtreme_address& server, uint64_t count) {
  auto socket = ring->ConnectTcp(server, {.preset = XTREME_TCP_FAIL_FAST});
  if (!socket) return Fail(socket.error().message);
  std::vector<int64_t> round_trips_ns;
  uint64_t question = 0;
  size_t answered = 0;  // Bytes of it.
  int64_t asked_ns = 0;
  for (;;) {
    for (const xtreme::Completion& completion : ring->Wait(kForeverNs)) {
      const xtreme::Kind kind = completion.kind();
      if (completion.is_end_of_ring()) return Fail("the ring has stopped");
      if (kind == xtreme::kTerminated) {
        return completion.status == 0 ? Report(std::move(round_trips_ns))
                                      : Fail(std::strerror(completion.status));
      }
      if (kind == xtreme::kPacket) answered += completion.length;
      if (kind != xtreme::kEstablished && answered < sizeof question) continue;
      if (kind == xtreme::kPacket) round_trips_ns.push_back(ring->now_ns() - asked_ns);
      answered = 0;
      if (question++ == count) {
        socket->Close();
        break;
      }
      asked_ns = ring->now_ns();
      socket->Send({reinterpret_cast<const uint8_t*>(&question), sizeof question});
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    return samples::RefuseArguments("tcp_echo", "usage: tcp_echo INTERFACE [ADDRESS:]PORT [COUNT]");
  }
  const bool ask = std::strchr(argv[2], ':') != nullptr;
  const uint64_t count =
      argc > 3 ? std::strtoull(argv[3], nullptr, 10) : (ask ? kQuestions : UINT64_MAX);
  auto ring = xtreme::Ring::Open(xtreme::RingOptions::Latency(argv[1]).FromEnvironment(environ));
  if (!ring) return Fail(ring.error().message);
  if (xtreme::Status started = ring->Start(); !started) return Fail(started.error().message);
  if (!ask) return Serve(&*ring, argv[2], count);
  auto server = xtreme::ParseAddress(argv[2]);
  return server ? Ask(&*ring, *server, count) : Fail(server.error().message);
}
