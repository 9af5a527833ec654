// SPDX-License-Identifier: Apache-2.0
//
// What the kernel at the other end of a connection learns when a program ends, in each way a
// program can, and has not closed its ring.

#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "tests/e2e/wire_rig.h"
#include "tests/net/kernel_tcp.h"

// What the leak sanitizer asks before it looks: at the exit of a child that a program with threads
// forked it would wait for locks of the allocator that other threads had then.
static int forked_of_threads = 0;
extern "C" int __lsan_is_turned_off() { return forked_of_threads; }

namespace xtreme::e2e {
namespace {

class TcpExitTest : public WireTest {
 protected:
  // What a program does once it is connected to the peer; it does not come back.
  using End = void (*)(WireRing* ring, int ready);

  // Runs one and accepts its connection; the peer's end of it.
  net::KernelTcp Run(End end) {
    net::KernelTcp listener;
    {
      const net::Namespace::Inside inside(*theirs_);
      listener = net::KernelTcp::Listen("10.0.0.2", 7'000);
    }
    int ends[2];
    EXPECT_EQ(pipe(ends), 0);
    child_ = fork();
    if (child_ == 0) Connect(end, ends[1]);
    close(ends[1]);
    char ready = 0;
    EXPECT_EQ(read(ends[0], &ready, 1), 1) << "the program got nowhere";
    close(ends[0]);
    return listener.Accept();
  }
  void TearDown() override {
    if (child_ > 0) {
      kill(child_, SIGKILL);
      waitpid(child_, nullptr, 0);
    }
    WireTest::TearDown();
  }

  // The program: none of it is ever closed.
  [[noreturn]] static void Connect(End end, int ready) {
    new WireDevice(kOurMac);
    auto* const ring = new WireRing();
    ring->Start();
    xtreme_tcp_options options = {};
    options.size = sizeof options;
    const xtreme_address to = WireRing::Address("10.0.0.2:7000");
    xtreme_socket socket = {};
    if (xtreme_tcp_connect(ring->ring(), &to, &options, &socket) != 0) _exit(1);
    if (ring->Await(XTREME_ESTABLISHED).kind != XTREME_ESTABLISHED) _exit(1);
    end(ring, ready);
    _exit(1);
  }
  static void Say(int ready) { [[maybe_unused]] const auto said = write(ready, "y", 1); }

  pid_t child_ = 0;
};

TEST_F(TcpExitTest, ReturningFromMainResetsThePeer) {
  net::KernelTcp peer = Run([](WireRing*, int ready) {
    Say(ready);
    exit(0);
  });
  EXPECT_EQ(peer.ReceiveEnd(), strerror(ECONNRESET));
}

TEST_F(TcpExitTest, ExitOnAnotherThreadThanTheOwnersResetsThePeer) {
  net::KernelTcp peer = Run([](WireRing* ring, int ready) {
    std::thread([ready] {
      Say(ready);
      exit(0);
    }).detach();
    ring->Await(XTREME_TERMINATED);
  });
  EXPECT_EQ(peer.ReceiveEnd(), strerror(ECONNRESET));
}

TEST_F(TcpExitTest, ExitOfAForkedChildIsNotItsParents) {
  net::KernelTcp peer = Run([](WireRing* ring, int ready) {
    const pid_t child = fork();
    if (child == 0) {
      forked_of_threads = 1;
      exit(0);
    }
    waitpid(child, nullptr, 0);
    Say(ready);
    const xtreme_completion packet = ring->Await(XTREME_PACKET);
    if (packet.kind == XTREME_PACKET) exit(0);
  });
  peer.Send("still there?");
  EXPECT_EQ(peer.ReceiveEnd(), strerror(ECONNRESET));
}

// Nothing can be sent then. Ports and rules went with the process: the kernel, which has no
// connection, answers the next that comes.
TEST_F(TcpExitTest, OfAKilledProgramTheKernelTellsThePeerThatSendsNext) {
  net::KernelTcp peer = Run([](WireRing*, int ready) {
    Say(ready);
    for (;;) pause();
  });
  kill(child_, SIGKILL);
  waitpid(std::exchange(child_, 0), nullptr, 0);
  peer.Send("still there?");
  EXPECT_EQ(peer.ReceiveEnd(), strerror(ECONNRESET));
}

}  // namespace
}  // namespace xtreme::e2e
