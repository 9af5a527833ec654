// SPDX-License-Identifier: Apache-2.0
//
// Calls on sockets that signals interrupt, with libxtreme.so preloaded, polling for ever and
// asleep, and by the kernel: who waits fails with EINTR or goes on, as the handler says.

#include <string>

#include "gtest/gtest.h"
#include "tests/faces/echo_peer.h"
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

struct Case {
  const char* name;
  const char* settings;  // Of ours; null: by the kernel.
};

class InterruptTest : public FacesTest, public ::testing::WithParamInterface<Case> {};

TEST_P(InterruptTest, WhoWaitsHearsOfIt) {
  const Case& each = GetParam();
  const auto peer = StartOnKernel(EchoPeer(kTheirs));
  ASSERT_TRUE(peer->Says("ready")) << peer->Output();
  const std::string program =
      PathOf("tests/faces/interrupt_program ") + kOurs + " " + kTheirs;
  const auto running = each.settings == nullptr
                           ? StartBeside(program)
                           : StartOnXtreme(program, std::string("XTREME_LOG_LEVEL=warning ") +
                                                        each.settings);
  EXPECT_EQ(running->Wait(60), 0);
  EXPECT_EQ(running->Output(), kSaid);
}

INSTANTIATE_TEST_SUITE_P(
    Cases, InterruptTest,
    ::testing::Values(Case{"by_the_kernel", nullptr},
                      Case{"polling", "XTREME_RX_POLL=-1 XTREME_SELECT_POLL=-1"},
                      Case{"asleep", "XTREME_RX_POLL=0 XTREME_SELECT_POLL=0"}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace xtreme::faces
