// SPDX-License-Identifier: Apache-2.0
//
// SocketXtreme from several threads at once, which VMA's is not made for: each packet reaches one
// of the pollers, once; they send meanwhile; buffers are counted and freed on any thread.
//
// The faces are linked, not preloaded, so that sanitizers see them. Threads: many; a watchdog ends
// who does not go on.

#include <arpa/inet.h>
#include <linux/sockios.h>
#include <mellanox/vma_extra.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <deque>
#include <mutex>
#include <string_view>
#include <vector>

#include "api/vma/api.h"
#include "gtest/gtest.h"
#include "tests/faces/linked_faces.h"

namespace xtreme::faces {
namespace {

constexpr uint16_t kPort = 8020;
constexpr uint32_t kCount = 600;
// Fewer on their way than any queue holds.
constexpr uint32_t kWindow = 8;
constexpr int kPollers = 3;
constexpr unsigned kMost = 8;

uint32_t NumberIn(const vma_completion_t& completion) {
  uint32_t number = kCount;
  const vma_buff_t* const link = completion.packet.buff_lst;
  if (link->len >= sizeof number) memcpy(&number, link->payload, sizeof number);
  return number;
}

class VmaThreadsTest : public LinkedFacesTest {
 protected:
  void SetUp() override {
    fd_ = BoundDatagramSocket(kPort);
    ASSERT_EQ(vma_.get_socket_rings_fds(fd_, &ring_, 1), 1);
  }
  void TearDown() override { Close(fd_); }

  // Polls until `over`, and calls `on` for each packet.
  template <typename On>
  void Poll(const std::atomic<bool>& over, const On& on) {
    vma_completion_t completions[kMost];
    while (!over) {
      const int count = vma_.socketxtreme_poll(ring_, completions, kMost, 0);
      ASSERT_GE(count, 0);
      for (int i = 0; i < count; ++i) {
        if ((completions[i].events & VMA_SOCKETXTREME_PACKET) == 0) continue;
        EXPECT_EQ(completions[i].user_data, static_cast<uint64_t>(fd_));
        on(completions[i]);
      }
    }
  }
  // The kernel's side sends numbers from 0 on, at most kWindow that `taken` has not counted.
  void SendNumbers(int from, const std::atomic<uint32_t>& taken) {
    sockaddr_in to{.sin_family = AF_INET, .sin_port = htons(kPort)};
    inet_pton(AF_INET, kOurs, &to.sin_addr);
    for (uint32_t i = 0; i < kCount; ++i) {
      EXPECT_EQ(sendto(from, &i, sizeof i, 0, reinterpret_cast<sockaddr*>(&to), sizeof to),
                static_cast<ssize_t>(sizeof i));
      EXPECT_TRUE(Eventually([&] { return taken + kWindow > i; })) << i;
    }
    EXPECT_TRUE(Eventually([&] { return taken == kCount; })) << taken;
  }

  const vma_api_t& vma_ = *vma::Api();
  int fd_ = -1;
  int ring_ = -1;
};

// The first of all, because a ring is polled for completions for the first time once.
TEST_F(VmaThreadsTest, ListenersThatARingHasWhenItIsFirstPolledAreTakenAsTheyWereUsed) {
  const auto listen_at = [](uint16_t port) {
    const int fd = NewSocket(SOCK_STREAM | SOCK_NONBLOCK);
    EXPECT_EQ(Bind(fd, port), 0);
    EXPECT_EQ(Listen(fd), 0);
    return fd;
  };
  const auto connect_to = [](uint16_t port) {
    const int fd = TheirSocket(SOCK_STREAM);
    sockaddr_in to{.sin_family = AF_INET, .sin_port = htons(port)};
    inet_pton(AF_INET, kOurs, &to.sin_addr);
    EXPECT_EQ(connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof to), 0);
    return fd;
  };
  const int by_calls = listen_at(kPort + 2);
  EXPECT_EQ(Accept(by_calls, 0), -EAGAIN);
  // Nobody used it yet, but its ring is known; and it has a connection, and that has bytes.
  const int undecided = listen_at(kPort + 3);
  ASSERT_EQ(vma_.get_socket_rings_num(undecided), 1);
  const int asks = connect_to(kPort + 3);
  EXPECT_EQ(send(asks, "question", 8, 0), 8);
  EXPECT_TRUE(Eventually([&] {
    int waits = 0;
    Poke(undecided);
    return ioctl(asks, SIOCOUTQ, &waits) == 0 && waits == 0;
  }));
  std::vector<vma_completion_t> got;
  EXPECT_TRUE(Eventually([&] {
    vma_completion_t completion;
    if (vma_.socketxtreme_poll(ring_, &completion, 1, 0) == 1) got.push_back(completion);
    return got.size() == 2;
  }));
  ASSERT_EQ(got.size(), 2u);
  EXPECT_EQ(got[0].events, uint64_t{VMA_SOCKETXTREME_NEW_CONNECTION_ACCEPTED});
  EXPECT_EQ(got[0].listen_fd, undecided);
  EXPECT_EQ(got[1].events, uint64_t{VMA_SOCKETXTREME_PACKET});
  EXPECT_EQ(got[1].user_data, got[0].user_data);
  EXPECT_EQ(vma_.socketxtreme_free_vma_packets(&got[1].packet, 1), 0);
  const int calls = connect_to(kPort + 2);
  int accepted = -EAGAIN;
  EXPECT_TRUE(Eventually([&] { return (accepted = Accept(by_calls, 0)) != -EAGAIN; }));
  EXPECT_GE(accepted, 0);
  for (const int theirs : {asks, calls}) close(theirs);
  for (const int ours : {accepted, static_cast<int>(got[0].user_data), by_calls, undecided}) {
    Close(ours);
  }
}

TEST_F(VmaThreadsTest, PacketsOfARingReachOneOfItsPollersOnceEachAndAreAnswered) {
  const int theirs = TheirSocket(SOCK_DGRAM);
  std::vector<std::atomic<int>> seen(kCount);
  std::atomic<bool> over{false};
  Threads pollers;
  for (int i = 0; i < kPollers; ++i) {
    pollers.Start([&] {
      Poll(over, [&](vma_completion_t& completion) {
        const uint32_t number = NumberIn(completion);
        if (number < kCount) ++seen[number];
        const std::string_view bytes(static_cast<char*>(completion.packet.buff_lst->payload),
                                     completion.packet.total_len);
        EXPECT_EQ(SendTo(fd_, bytes, kTheirs, ntohs(completion.src.sin_port)),
                  static_cast<ssize_t>(bytes.size()));
        EXPECT_EQ(vma_.socketxtreme_free_vma_packets(&completion.packet, 1), 0);
      });
    });
  }
  // Beside them sockets come and go.
  Threads others;
  others.Start([&] {
    while (!over) Close(BoundDatagramSocket(kPort + 1));
  });
  std::atomic<uint32_t> answers{0};
  others.Start([&] {
    char bytes[64];
    while (answers < kCount) {
      pollfd one{.fd = theirs, .events = POLLIN};
      if (poll(&one, 1, 20'000) != 1) break;
      answers += recv(theirs, bytes, sizeof bytes, 0) == sizeof(uint32_t);
    }
  });
  // Not faster than the answers come: few wait for a neighbour who is not known yet.
  SendNumbers(theirs, answers);
  over = true;
  pollers.Join();
  others.Join();
  for (uint32_t i = 0; i < kCount; ++i) EXPECT_EQ(seen[i], 1) << i;
  close(theirs);
}

TEST_F(VmaThreadsTest, BuffersAreCountedAndFreedByOtherThreadsThanPolled) {
  const int theirs = TheirSocket(SOCK_DGRAM);
  std::mutex mutex;
  std::deque<vma_buff_t*> held;  // Twice: by its packet, and by socketxtreme_ref_vma_buff.
  std::atomic<uint32_t> freed{0};
  std::atomic<bool> over{false};
  Threads pollers;
  for (int i = 0; i < kPollers; ++i) {
    pollers.Start([&] {
      Poll(over, [&](vma_completion_t& completion) {
        vma_buff_t* const buffer = completion.packet.buff_lst;
        EXPECT_EQ(vma_.socketxtreme_ref_vma_buff(buffer), 2);
        const std::lock_guard lock(mutex);
        held.push_back(buffer);
      });
    });
  }
  Threads freers;
  for (int i = 0; i < 2; ++i) {
    freers.Start([&] {
      while (!over) {
        vma_buff_t* buffer = nullptr;
        {
          const std::lock_guard lock(mutex);
          if (!held.empty()) {
            buffer = held.front();
            held.pop_front();
          }
        }
        if (buffer == nullptr) continue;
        EXPECT_EQ(vma_.socketxtreme_free_vma_buff(buffer), 1);
        EXPECT_EQ(vma_.socketxtreme_free_vma_buff(buffer), 0);
        ++freed;
      }
    });
  }
  SendNumbers(theirs, freed);
  over = true;
  pollers.Join();
  freers.Join();
  close(theirs);
}

// Its rule stands before the call that makes it returns.
TEST_F(VmaThreadsTest, SocketThatIsBoundWhilePacketsComeHasThem) {
  constexpr int kRounds = 40;
  constexpr useconds_t kPause = 20;
  vma_completion_t completions[kMost];
  ASSERT_EQ(vma_.socketxtreme_poll(ring_, completions, kMost, 0), 0) << "from here on it polls";
  const int theirs = TheirSocket(SOCK_DGRAM);
  std::atomic<bool> over{false};
  Threads sender;
  sender.Start([&] {
    sockaddr_in to{.sin_family = AF_INET, .sin_port = htons(kPort + 1)};
    inet_pton(AF_INET, kOurs, &to.sin_addr);
    while (!over) {
      sendto(theirs, "tick", 4, 0, reinterpret_cast<sockaddr*>(&to), sizeof to);
      usleep(kPause);
    }
  });
  for (int round = 0; round < kRounds; ++round) {
    const int bound = BoundDatagramSocket(kPort + 1);
    int packets = 0;
    EXPECT_TRUE(Eventually([&] {
      const int count = vma_.socketxtreme_poll(ring_, completions, kMost, 0);
      for (int i = 0; i < count; ++i) {
        if ((completions[i].events & VMA_SOCKETXTREME_PACKET) == 0) continue;
        packets += completions[i].user_data == static_cast<uint64_t>(bound);
        EXPECT_EQ(vma_.socketxtreme_free_vma_packets(&completions[i].packet, 1), 0);
      }
      return packets != 0;
    })) << round;
    Close(bound);
  }
  over = true;
  sender.Join();
  close(theirs);
}

// They came while it was used by calls, or by nobody.
TEST_F(VmaThreadsTest, ConnectionsThatWaitWhenItsRingIsAskedForAreTold) {
  const int listener = Listener(kPort);
  Threads client;
  client.Start([] { EXPECT_TRUE(TheirEcho(kPort, 1'000)); });
  pollfd one{.fd = listener, .events = POLLIN};
  ASSERT_EQ(faces::Poll(&one, 1, 20'000), 1);
  ASSERT_EQ(vma_.get_socket_rings_fds(listener, &ring_, 1), 1);
  int child = -1;
  uint32_t echoed = 0;
  EXPECT_TRUE(Eventually([&] {
    vma_completion_t completion;
    if (vma_.socketxtreme_poll(ring_, &completion, 1, 0) != 1) return false;
    if ((completion.events & VMA_SOCKETXTREME_NEW_CONNECTION_ACCEPTED) != 0) {
      EXPECT_EQ(completion.listen_fd, listener);
      child = static_cast<int>(completion.user_data);
    }
    if ((completion.events & VMA_SOCKETXTREME_PACKET) == 0) return false;
    EXPECT_EQ(completion.user_data, static_cast<uint64_t>(child));
    const auto* const bytes = static_cast<const char*>(completion.packet.buff_lst->payload);
    EXPECT_EQ(Send(child, bytes, completion.packet.total_len), completion.packet.total_len);
    echoed += completion.packet.total_len;
    EXPECT_EQ(vma_.socketxtreme_free_vma_packets(&completion.packet, 1), 0);
    return echoed == 1'000;
  }));
  Close(child);
  client.Join();
  Close(listener);
}

}  // namespace
}  // namespace xtreme::faces
