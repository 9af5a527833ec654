// SPDX-License-Identifier: Apache-2.0
//
// A program killed at any point leaves nothing in the kernel that the next start meets: its ports
// and memberships go with its sockets. What a software device leaves is that device's to clean.

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <utility>

#include "tests/net/kernel_state.h"
#include "xtreme/engine/control_thread.h"
#include "xtreme/engine/engine.h"
#include "xtreme/engine/ring.h"
#include "xtreme/engine/testing/two_hosts_testing.h"
#include "xtreme/engine/udp.h"

namespace xtreme::engine {
namespace {

enum class Point { kEngine, kRing, kStarted, kSocket, kJoined, kEnd };

constexpr uint16_t kPort = 7000;

// A program that goes as far as `last`; whether every step worked.
bool GoTo(Point last, std::unique_ptr<Engine>* engine, std::unique_ptr<Ring>* ring) {
  auto created = testing::MakeEngineBesideKernel(nullptr);
  if (!created.ok()) return false;
  *engine = *std::move(created);
  if (last == Point::kEngine) return true;
  RingOptions ring_options;
  ring_options.interface_name = "xt0";
  auto opened = Ring::Open(engine->get(), ring_options);
  if (!opened.ok()) return false;
  *ring = *std::move(opened);
  if (last == Point::kRing) return true;
  if (!(*ring)->Start().ok()) return false;
  const auto ends_well = [&](uint32_t started) {
    (*engine)->control().RunAndWait([] {});
    Completion completion;
    bool well = true;
    while ((*ring)->Poll(&completion, 1, sizeof(completion)) == 1) {
      if (completion.kind != Kind::kOpDone) continue;
      well &= completion.status == 0;
      --started;
    }
    return well && started == 0;
  };
  if (last == Point::kStarted) return true;
  Handle socket = 0;
  if (!(*ring)->udp().Open({.local = {{}, kPort}}, &socket).ok() || !ends_well(1)) return false;
  if (last == Point::kSocket) return true;
  const wire::Endpoint group{wire::Ipv4Address(239, 1, 2, 3), 0};
  return (*ring)->udp().Join(socket, group, std::nullopt, 0, 1).ok() && ends_well(1);
}

class KilledProcessTest : public testing::TwoHostsTest,
                          public ::testing::WithParamInterface<Point> {
 protected:
  // A child that went to `last` is killed where it stands; whether it got there.
  static bool RunAndKill(Point last) {
    int ends[2];
    if (pipe(ends) != 0) return false;
    const pid_t child = fork();
    if (child == 0) {
      std::unique_ptr<Engine> engine;
      std::unique_ptr<Ring> ring;
      const char well = GoTo(last, &engine, &ring) ? 'y' : 'n';
      if (write(ends[1], &well, 1) == 1) pause();
      _exit(1);
    }
    char well = 'n';
    const ssize_t got = read(ends[0], &well, 1);
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    close(ends[0]);
    close(ends[1]);
    return got == 1 && well == 'y';
  }
};

TEST_P(KilledProcessTest, LeavesNeitherPortNorMembershipAndTheNextStartWorks) {
  ASSERT_TRUE(RunAndKill(GetParam()));
  EXPECT_EQ(net::UdpBindError(kPort), 0);
  EXPECT_FALSE(net::IsGroupMember("239.1.2.3"));
  EXPECT_TRUE(RunAndKill(Point::kEnd)) << "the next start";
}

INSTANTIATE_TEST_SUITE_P(Points, KilledProcessTest,
                         ::testing::Values(Point::kEngine, Point::kRing, Point::kStarted,
                                           Point::kSocket, Point::kJoined));

}  // namespace
}  // namespace xtreme::engine
