// SPDX-License-Identifier: Apache-2.0
//
// multicast_rx: joins groups and prints a line for each datagram: from where, to where, how long,
// and when the device received it.
//
//   multicast_rx INTERFACE COUNT GROUP:PORT...      ends after COUNT datagrams; 0: never

#include <unistd.h>

#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "api/xtreme.hpp"
#include "samples/wrong_arguments.h"

namespace {

constexpr int64_t kForeverNs = -1;

int Fail(const std::string& why) {
  std::fprintf(stderr, "multicast_rx: %s\n", why.c_str());
  return EXIT_FAILURE;
}

// Opens a socket for `text`, "group:port", and starts to join. "" or what failed.
std::string Join(xtreme::Ring* ring, const char* text, std::vector<xtreme::UdpSocket>* sockets) {
  auto group = xtreme::ParseAddress(text);
  if (!group) return group.error().message;
  auto socket = ring->OpenUdp({.local = text, .reuse = true});
  if (!socket) return socket.error().message;
  sockets->push_back(*std::move(socket));
  const xtreme::Status joined = sockets->back().Join(*group);
  return joined.ok() ? "" : joined.error().message;
}

void PrintPacket(const xtreme::Completion& packet) {
  std::printf("%s > %s: %u bytes at %" PRId64 " ns\n", xtreme::ToString(packet.source()).c_str(),
              xtreme::ToString(packet.destination()).c_str(), packet.length, packet.hw_time_ns);
  std::fflush(stdout);
}

void PrintReady() {
  std::puts("ready");
  std::fflush(stdout);
}

// `operations` have been started; when the last is done, everything is joined.
int Receive(xtreme::Ring* ring, size_t operations, uint64_t count) {
  for (uint64_t received = 0; count == 0 || received < count;) {
    for (const xtreme::Completion& completion : ring->Wait(kForeverNs)) {
      const bool operation = completion.kind() == xtreme::kOpDone;
      const bool packet = completion.kind() == xtreme::kPacket;
      if (completion.is_end_of_ring()) return Fail("the ring has stopped");
      if (operation && completion.status != 0) return Fail(completion.text);
      if (operation && --operations == 0) PrintReady();
      if (packet) PrintPacket(completion);
      received += packet;
    }
  }
  return EXIT_SUCCESS;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) {
    return samples::RefuseArguments("multicast_rx",
                                    "usage: multicast_rx INTERFACE COUNT GROUP:PORT...");
  }
  auto ring = xtreme::Ring::Open(xtreme::RingOptions::Feed(argv[1]).FromEnvironment(environ));
  if (!ring) return Fail(ring.error().message);
  std::vector<xtreme::UdpSocket> sockets;
  for (int i = 3; i < argc; ++i) {
    if (std::string wrong = Join(&*ring, argv[i], &sockets); !wrong.empty()) return Fail(wrong);
  }
  if (xtreme::Status started = ring->Start(); !started) return Fail(started.error().message);
  return Receive(&*ring, 2 * sockets.size(), std::strtoull(argv[2], nullptr, 10));
}
