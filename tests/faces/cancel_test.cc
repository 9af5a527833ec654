// SPDX-License-Identifier: Apache-2.0
//
// Threads that are cancelled (pthread_cancel) in calls on sockets, with libxtreme.so preloaded and,
// for comparison, by the kernel: who waits ends, who is in a call that is no cancellation point
// does not, and the ring goes on for the others.

#include <string>

#include "gtest/gtest.h"
#include "tests/faces/echo_peer.h"
#include "tests/faces/program.h"

namespace xtreme::faces {
namespace {

struct Case {
  const char* name;
  const char* settings;  // Of ours.
  const char* said;
};

class CancelTest : public FacesTest, public ::testing::WithParamInterface<Case> {};

TEST_P(CancelTest, IsAsWithTheKernel) {
  const Case& each = GetParam();
  const std::string which = std::string(each.name).substr(0, std::string(each.name).find('_'));
  const std::string program = PathOf("tests/faces/cancel_program ") + which + " ";
  const auto peer = StartOnKernel(EchoPeer(kTheirs));
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
