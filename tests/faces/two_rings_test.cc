// SPDX-License-Identifier: Apache-2.0
//
// Receive callbacks inside the doors of two rings, which use each other's: none waits for ever.
//
// The faces are linked, not preloaded, so that sanitizers see them. Threads: many; a watchdog ends
// who does not go on.

#include <sys/socket.h>

#include <atomic>
#include <cstdint>
#include <mutex>

#include "api/sockets/faces.h"
#include "api/sockets/ring_choice.h"
#include "api/sockets/ring_door.h"
#include "gtest/gtest.h"
#include "tests/faces/linked_faces.h"

namespace xtreme::faces {
namespace {

using sockets::Received;
using sockets::Socket;
using sockets::Verdict;

// A socket on each of two rings.
class TwoRingsTest : public LinkedFacesTest {
 protected:
  void SetUp() override {
    for (int i = 0; i < 2; ++i) fds_[i] = OnOwnRing(static_cast<uint16_t>(8120 + i));
    ASSERT_NE(DoorOf(0), DoorOf(1));
  }
  void TearDown() override {
    for (const int fd : fds_) Close(fd);
  }

  static int OnOwnRing(uint16_t port) {
    const int fd = NewSocket(SOCK_DGRAM);
    EXPECT_EQ(Behind(fd)->ChooseRing({.logic = sockets::RingLogic::kPerSocket}), 0);
    EXPECT_EQ(Bind(fd, port), 0);
    EXPECT_EQ(Behind(fd)->path(), sockets::Path::kOffloaded) << Behind(fd)->reason();
    return fd;
  }
  sockets::RingDoor* DoorOf(int i) { return Behind(fds_[i])->door(); }
  // The first that comes to it calls `back`, inside its ring's door.
  template <typename Back>
  void OnFirst(int i, const Back& back) {
    Behind(fds_[i])->SetCallback([this, i, back](Socket&, const Received&) {
      if (!called_[i].exchange(true)) back();
      return Verdict::kDrop;
    });
  }
  // Until both callbacks have come so far, each on its thread.
  void Meet() {
    ++met_;
    EXPECT_TRUE(Eventually([&] { return met_ >= 2; }));
  }
  void SendFrom(int i) { EXPECT_EQ(SendTo(fds_[i], "12345", kTheirs, 7001), 5); }
  void PokeUntil(int i, const std::atomic<int>& count, int enough) {
    EXPECT_TRUE(Eventually([&] {
      Poke(fds_[i]);
      return count == enough;
    }));
  }

  // A thread at each ring, whose callback something comes for.
  void ExpectBothDone() {
    const auto echo = TheirUdpEcho(7001);
    Threads threads;
    for (int i = 0; i < 2; ++i) {
      SendFrom(i);
      threads.Start([this, i] { PokeUntil(i, done_, 2); });
    }
    threads.Join();
    EXPECT_EQ(done_, 2);
  }

  int fds_[2] = {-1, -1};
  std::atomic<bool> called_[2]{};
  std::atomic<int> met_{0};
  std::atomic<int> done_{0};
};

TEST_F(TwoRingsTest, CallbacksSendByEachOthersRing) {
  for (int i = 0; i < 2; ++i) {
    OnFirst(i, [this, i] {
      Meet();
      SendFrom(1 - i);
      ++done_;
    });
  }
  ExpectBothDone();
}

// One decides a path, which takes the setup lock and each ring's door.
TEST_F(TwoRingsTest, CallbackListensWhileAnotherRingsSends) {
  OnFirst(0, [this] {
    Meet();
    Close(Listener(8123));
    ++done_;
  });
  OnFirst(1, [this] {
    Meet();
    SendFrom(0);
    ++done_;
  });
  ExpectBothDone();
}

// Who waits for the setup lock may be inside several doors.
TEST_F(TwoRingsTest, CallbackInsideAnothersClosesWhileSetupWaitsForBothDoors) {
  std::atomic<bool> has_setup{false};
  const int third = BoundDatagramSocket(8122);
  OnFirst(0, [this] {
    SendFrom(1);
    PokeUntil(1, done_, 1);
  });
  OnFirst(1, [&] {
    Meet();
    EXPECT_TRUE(Eventually([&] { return has_setup.load(); }));
    Close(third);
    ++done_;
  });
  const auto echo = TheirUdpEcho(7001);
  Threads threads;
  threads.Start([&] {
    Meet();
    const std::lock_guard setup(sockets::Faces::The().setup());
    has_setup = true;
    for (int i = 0; i < 2; ++i) const sockets::RingDoor::Entry entry(DoorOf(i));
  });
  SendFrom(0);
  threads.Start([this] { PokeUntil(0, done_, 1); });
  threads.Join();
  EXPECT_EQ(done_, 1);
}

}  // namespace
}  // namespace xtreme::faces
