// SPDX-License-Identifier: Apache-2.0
//
// Calls on sockets that signals interrupt, with libxtreme.so preloaded, polling for ever and
// asleep, and by the kernel: who waits fails with EINTR or goes on, as the handler says.

#include <fstream>
#include <string>

#include "gtest/gtest.h"
#include "tests/faces/program.h"

namespace xtreme::faces {
namespace {

constexpr const char* kSaid = R"(sigaction()
recv: Interrupted system call, handled 1
stream: Interrupted system call, handled 1
poll: Interrupted system call, handled 1
select: Interrupted system call, handled 1
epoll_wait: Interrupted system call, handled 1
accept: Interrupted system call, handled 1
ppoll: Interrupted system call, handled 1
epoll_pwait: Interrupted system call, handled 1
recv of who blocks it: went on, handled 0
signal()
recv: went on, handled 1
stream: went on, handled 1
poll: Interrupted system call, handled 1
select: Interrupted system call, handled 1
epoll_wait: Interrupted system call, handled 1
none before: 1
own: 1, flags 80000004, blocks 1
handled 1, value 77
reset: 1
signal: 1 1 1
wrong: -1 -1 1
handled 1
)";

class InterruptTest : public FacesTest {
 protected:
  static std::string Peer() {
    const std::string path = std::string(std::getenv("TEST_TMPDIR")) + "/peer.py";
    std::ofstream(path) << R"(
import socket, sys, threading
def echo(c):
    try:
        while part := c.recv(65536): c.sendall(part)
    except OSError: pass
def serve(s):
    while True: threading.Thread(target=echo, args=(s.accept()[0],)).start()
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
u.bind((sys.argv[1], 9000))
threading.Thread(target=serve, args=(socket.create_server((sys.argv[1], 8000)),)).start()
print('ready', flush=True)
while True: u.sendto(*u.recvfrom(65536))
)";
    return "/usr/bin/python3 " + path + " " + kTheirs;
  }
  static std::string Program() {
    return PathOf("tests/faces/interrupt_program ") + kOurs + " " + kTheirs;
  }
};

TEST_F(InterruptTest, KernelSaysSo) {
  const auto peer = StartOnKernel(Peer());
  ASSERT_TRUE(peer->Says("ready")) << peer->Output();
  const auto program = StartBeside(Program());
  EXPECT_EQ(program->Wait(60), 0);
  EXPECT_EQ(program->Output(), kSaid);
}

TEST_F(InterruptTest, WhoPollsForEverHearsOfIt) {
  const auto peer = StartOnKernel(Peer());
  ASSERT_TRUE(peer->Says("ready")) << peer->Output();
  const auto program = StartOnXtreme(
      Program(), "XTREME_LOG_LEVEL=warning XTREME_RX_POLL=-1 XTREME_SELECT_POLL=-1");
  EXPECT_EQ(program->Wait(60), 0);
  EXPECT_EQ(program->Output(), kSaid);
}

TEST_F(InterruptTest, WhoSleepsHearsOfIt) {
  const auto peer = StartOnKernel(Peer());
  ASSERT_TRUE(peer->Says("ready")) << peer->Output();
  const auto program = StartOnXtreme(
      Program(), "XTREME_LOG_LEVEL=warning XTREME_RX_POLL=0 XTREME_SELECT_POLL=0");
  EXPECT_EQ(program->Wait(60), 0);
  EXPECT_EQ(program->Output(), kSaid);
}

}  // namespace
}  // namespace xtreme::faces
