// SPDX-License-Identifier: Apache-2.0
//
// Threads that are cancelled (pthread_cancel) in calls on sockets, with libxtreme.so preloaded and,
// for comparison, by the kernel: who waits ends, who is in a call that is no cancellation point
// does not, and the ring goes on for the others.

#include <fstream>
#include <string>

#include "gtest/gtest.h"
#include "tests/faces/program.h"

namespace xtreme::faces {
namespace {

struct Case {
  const char* name;
  const char* settings;  // Of ours.
  const char* said;
};

class CancelTest : public FacesTest, public ::testing::WithParamInterface<Case> {
 protected:
  static std::string Peer(const std::string& address) {
    const std::string path = std::string(std::getenv("TEST_TMPDIR")) + "/peer.py";
    std::ofstream(path) << R"(
import socket, sys, threading
def echo(c):
    try:
        while part := c.recv(65536): c.sendall(part)
    except OSError: pass
def serve(s, does):
    while True: does(s.accept()[0])
kept = []
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
u.bind((sys.argv[1], 9000))
echoes = socket.create_server((sys.argv[1], 8000))
deaf = socket.create_server((sys.argv[1], 8001))
for s, does in ((deaf, kept.append),
                (echoes, lambda c: threading.Thread(target=echo, args=(c,)).start())):
    threading.Thread(target=serve, args=(s, does)).start()
print('ready', flush=True)
while True: u.sendto(*u.recvfrom(65536))
)";
    return "/usr/bin/python3 " + path + " " + address;
  }
};

TEST_P(CancelTest, IsAsWithTheKernel) {
  const Case& each = GetParam();
  const std::string which = std::string(each.name).substr(0, std::string(each.name).find('_'));
  const std::string program = PathOf("tests/faces/cancel_program ") + which + " ";
  const auto peer = StartOnKernel(Peer(kTheirs));
  ASSERT_TRUE(peer->Says("ready")) << peer->Output();
  const auto by_kernel = StartBeside(program + kOurs + " " + kTheirs);
  EXPECT_EQ(by_kernel->Wait(30), 0);
  EXPECT_EQ(by_kernel->Output(), each.said);
  const auto by_ring = StartOnXtreme(program + kOurs + " " + kTheirs,
                                     std::string("XTREME_LOG_LEVEL=warning ") + each.settings);
  EXPECT_EQ(by_ring->Wait(30), 0);
  EXPECT_EQ(by_ring->Output(), each.said);
}

constexpr const char* kPollsForEver = "XTREME_RX_POLL=-1 XTREME_SELECT_POLL=-1";
constexpr const char* kSleeps = "XTREME_RX_POLL=0 XTREME_SELECT_POLL=0";
// One thread sleeps, the other is all that polls the ring.
constexpr const char* kOnePolls =
    "XTREME_RX_POLL=-1 XTREME_SELECT_POLL=0 XTREME_PROGRESS_ENGINE_INTERVAL=0";
constexpr const char* kLogsAll = "XTREME_LOG_LEVEL=all XTREME_LOG_FILE=/dev/null";
constexpr const char* kCancelled = "before: echoes\nwaiting: cancelled\nafter: echoes\n";

INSTANTIATE_TEST_SUITE_P(
    Cases, CancelTest,
    ::testing::Values(
        Case{"recv_polling", kPollsForEver, kCancelled}, Case{"recv_asleep", kSleeps, kCancelled},
        Case{"stream_polling", kPollsForEver, kCancelled},
        Case{"stream_asleep", kSleeps, kCancelled}, Case{"poll_polling", kPollsForEver, kCancelled},
        Case{"poll_asleep", kSleeps, kCancelled}, Case{"epoll_polling", kPollsForEver, kCancelled},
        Case{"epoll_asleep", kSleeps, kCancelled},
        Case{"accept_polling", kPollsForEver, kCancelled},
        Case{"accept_asleep", kSleeps, kCancelled},
        Case{"telling", kOnePolls,
             "before: echoes, echoes\ntelling: cancelled\ntold: 1, 5\nafter: echoes, echoes\n"},
        Case{"none", kLogsAll, "calls: 0\ncalling: cancelled\nafter: echoes\n"},
        Case{"sendfile", "", "sending: goes on\nafter: echoes\n"},
        Case{"close", "", "before: echoes\nclosing: cancelled\nafter: echoes\n"}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace xtreme::faces
