// SPDX-License-Identifier: Apache-2.0
//
// udp_echo: sends every datagram back to whoever sent it: one ring, one socket, no copy of what was
// received but the one into the send queue.
//
//   udp_echo INTERFACE PORT [COUNT]      ends after COUNT datagrams, else never

#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "api/xtreme.hpp"

namespace {

constexpr int64_t kForeverNs = -1;

int Fail(const std::string& why) {
  std::fprintf(stderr, "udp_echo: %s\n", why.c_str());
  return EXIT_FAILURE;
}

// "ready" once the port is ours, an exit code when it is not to be had.
int OnOpened(const xtreme::Completion& opened) {
  if (opened.status != 0) return Fail(opened.text);
  std::puts("ready");
  std::fflush(stdout);
  return EXIT_SUCCESS;
}

int Echo(xtreme::Ring* ring, xtreme::UdpSocket* socket, uint64_t count) {
  for (uint64_t echoed = 0; echoed < count;) {
    for (xtreme::Completion& completion : ring->Wait(kForeverNs)) {
      if (completion.kind() == xtreme::kOpDone && OnOpened(completion) != 0) return EXIT_FAILURE;
      if (completion.kind() != xtreme::kPacket) continue;
      const int sent = socket->SendTo(completion.source(), completion.bytes());
      if (sent < 0) std::fprintf(stderr, "udp_echo: refused, reason %d\n", sent);
      ++echoed;
    }
  }
  return EXIT_SUCCESS;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return Fail("usage: udp_echo INTERFACE PORT [COUNT]");
  const uint64_t count = argc > 3 ? std::strtoull(argv[3], nullptr, 10) : UINT64_MAX;
  auto ring = xtreme::Ring::Open(xtreme::RingOptions::Latency(argv[1]).FromEnvironment(environ));
  if (!ring) return Fail(ring.error().message);
  auto socket = ring->OpenUdp({.local = std::string(":") + argv[2]});
  if (!socket) return Fail(socket.error().message);
  if (xtreme::Status started = ring->Start(); !started) return Fail(started.error().message);
  return Echo(&*ring, &*socket, count);
}
