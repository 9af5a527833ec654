// SPDX-License-Identifier: Apache-2.0
//
// Calls that wait for a few descriptors, and find what they wait for, allocate nothing.

#include <poll.h>
#include <sys/select.h>
#include <sys/socket.h>

#include <cstdint>
#include <functional>
#include <memory>

#include "api/sockets/faces.h"
#include "api/sockets/poll.h"
#include "gtest/gtest.h"
#include "samples/receiver/allocations.h"
#include "tests/faces/linked_faces.h"

namespace xtreme::faces {
namespace {

class AllocationsTest : public LinkedFacesTest {
 protected:
  AllocationsTest() {
    constexpr uint16_t kEchoPort = 7001;
    const auto echo = TheirUdpEcho(kEchoPort);
    EXPECT_EQ(SendTo(fd_, "12345", kTheirs, kEchoPort), 5);
    EXPECT_TRUE(Eventually([&] { return PollBoth() == 2; }));
  }
  ~AllocationsTest() override {
    Close(other_);
    Close(fd_);
  }
  // A socket that has something to read, and one that may be sent by.
  int PollBoth() const {
    pollfd both[] = {{.fd = fd_, .events = POLLIN, .revents = 0},
                     {.fd = other_, .events = POLLOUT, .revents = 0}};
    return Poll(both, 2, 1'000);
  }
  int SelectBoth() const {
    fd_set reads;
    fd_set writes;
    FD_ZERO(&reads);
    FD_ZERO(&writes);
    FD_SET(fd_, &reads);
    FD_SET(other_, &writes);
    return sockets::Select(sockets::Faces::The(), FD_SETSIZE, &reads, &writes, nullptr,
                           base::Seconds(1), nullptr);
  }

  const int fd_ = BoundDatagramSocket(8000);
  const int other_ = BoundDatagramSocket(8001);
};

TEST_F(AllocationsTest, PollAndSelectTakeNothingFromTheHeap) {
  const auto takes = [](const std::function<int()>& call, int ready) {
    EXPECT_EQ(call(), ready);
    const uint64_t before = receiver::ThreadAllocations();
    EXPECT_EQ(call(), ready);
    return receiver::ThreadAllocations() - before;
  };
  EXPECT_EQ(takes([this] { return PollBoth(); }, 2), 0u);
  EXPECT_EQ(takes([this] { return SelectBoth(); }, 2), 0u);
}

}  // namespace
}  // namespace xtreme::faces
