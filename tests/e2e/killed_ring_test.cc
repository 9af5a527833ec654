// SPDX-License-Identifier: Apache-2.0
//
// A program with a ring on a wire that is killed at any point leaves nothing in the kernel, on the
// interface or in shared memory that the next start does not clean.

#include <nftables/libnftables.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>

#include <memory>
#include <string>

#include "tests/e2e/wire_rig.h"
#include "tests/net/kernel_state.h"
#include "xtreme/stats/reader.h"

namespace xtreme::e2e {
namespace {

enum class Point { kDevice, kRing, kSocket, kJoined, kReceiving, kEnd };

class KilledRing : public WireTest {
 protected:
  void SetUp() override {
    WireTest::SetUp();
    ASSERT_NE(mkdtemp(directory_), nullptr);
    feed_ = OpenPeer();
  }
  void TearDown() override {
    EXPECT_EQ(rmdir(directory_), 0) << "it is not empty";
    WireTest::TearDown();
  }

  // A program that goes as far as `last`, says so and waits to be killed, unless it is at the end.
  void Run(Point last, int told) {
    const auto reached = [&](Point point) {
      if (point != last || ::testing::Test::HasFailure()) return;
      if (write(told, "y", 1) == 1 && point != Point::kEnd) pause();
    };
    WireDevice device(kOurMac);
    reached(Point::kDevice);
    WireRing ring(directory_);
    reached(Point::kRing);
    const xtreme_socket socket = ring.OpenSocket(":7000");
    ring.Start();
    reached(Point::kSocket);
    ring.Join(socket, "239.1.2.3");
    reached(Point::kJoined);
    // Both by the decider's rules: the second is of the group.
    for (const char* to : {"10.0.0.1", "239.1.2.3"}) {
      feed_->SendTo(to, 7000, "tick");
      EXPECT_EQ(ring.Receive(), "tick") << to;
    }
    reached(Point::kReceiving);
    reached(Point::kEnd);
  }

  // Whether a child got to `last`; it is killed there, unless it ends by itself.
  bool RunAndKill(Point last) {
    int ends[2];
    if (pipe(ends) != 0) return false;
    const pid_t child = fork();
    if (child == 0) {
      close(ends[0]);
      Run(last, ends[1]);
      _exit(0);
    }
    close(ends[1]);
    char well = 'n';
    const bool told = read(ends[0], &well, 1) == 1;
    if (last != Point::kEnd) kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    close(ends[0]);
    return told && well == 'y';
  }

  // What stands in nftables.
  static std::string Tables() {
    nft_ctx* context = nft_ctx_new(NFT_CTX_DEFAULT);
    nft_ctx_buffer_output(context);
    EXPECT_EQ(nft_run_cmd_from_buffer(context, "list tables"), 0);
    std::string tables = nft_ctx_get_output_buffer(context);
    nft_ctx_free(context);
    return tables;
  }

  char directory_[64] = "/dev/shm/xtreme_killed_test.XXXXXX";
  std::unique_ptr<KernelSocket> feed_;
};

class KilledRingTest : public KilledRing, public ::testing::WithParamInterface<Point> {};

TEST_P(KilledRingTest, LeavesNothingThatTheNextStartDoesNotClean) {
  ASSERT_TRUE(RunAndKill(GetParam()));
  // At once, without a next start: what the kernel takes back with the process.
  EXPECT_EQ(net::UdpBindError(7000), 0);
  EXPECT_FALSE(net::IsGroupMember("239.1.2.3"));
  EXPECT_EQ(Tables(), "");
  // By the next start, which works, and then nothing is left of either.
  EXPECT_TRUE(RunAndKill(Point::kEnd));
  EXPECT_EQ(net::UdpBindError(7000), 0);
  EXPECT_EQ(Tables(), "");
  EXPECT_FALSE(ours_->HasInterfaceNamed("cx").value_or(true));
  EXPECT_TRUE(stats::ListSegments(directory_).empty());
}

TEST_F(KilledRing, ItsCountersAreThereToBeReadUntilTheNextStart) {
  ASSERT_TRUE(RunAndKill(Point::kReceiving));
  const auto left = stats::ListSegments(directory_);
  ASSERT_EQ(left.size(), 1u);
  const auto segment = stats::ReadSegment(left[0]);
  ASSERT_TRUE(segment.ok()) << segment.status();
  EXPECT_FALSE(segment->alive);
  EXPECT_EQ(segment->interface, "xt0");
  EXPECT_TRUE(RunAndKill(Point::kEnd));
}

INSTANTIATE_TEST_SUITE_P(Points, KilledRingTest,
                         ::testing::Values(Point::kDevice, Point::kRing, Point::kSocket,
                                           Point::kJoined, Point::kReceiving));

}  // namespace
}  // namespace xtreme::e2e
