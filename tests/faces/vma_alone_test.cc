// SPDX-License-Identifier: Apache-2.0
//
// A program that has one thread (XTREME_THREAD_MODE_SINGLE): its polls, whose completions the
// driver writes from the second packet of a flow on; its buffers, freed past the door; its sends.

#include <arpa/inet.h>
#include <mellanox/vma_extra.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "api/sockets/data_calls.h"
#include "api/sockets/faces.h"
#include "api/sockets/kernel_calls.h"
#include "api/sockets/ring_door.h"
#include "api/vma/api.h"
#include "gtest/gtest.h"
#include "stack/packet/buffer_pool.h"
#include "tests/faces/linked_faces.h"
#include "xtreme/engine/ring.h"
#include "xtreme/engine/ring_core.h"
#include "xtreme/engine/send_flow.h"
#include "xtreme/engine/udp.h"
#include "xtreme/engine/udp_socket.h"

namespace xtreme::faces {
namespace {

using sockets::Descriptors;
using sockets::RingDoor;
using sockets::Socket;

constexpr unsigned kMost = 8;

class VmaAloneTest : public LinkedFacesTest {
 protected:
  // Ports of each test's own: what answers late is nobody's.
  void SetUp() override {
    static uint16_t tests = 0;
    port_ = static_cast<uint16_t>(8020 + 4 * tests);
    echo_port_ = static_cast<uint16_t>(7001 + 4 * tests++);
    fd_ = Bound(port_);
    theirs_ = TheirSocket(SOCK_DGRAM);
  }
  void TearDown() override {
    if (fd_ >= 0) Close(fd_);
    close(theirs_);
  }
  int Bound(uint16_t port) {
    const int fd = BoundDatagramSocket(port);
    EXPECT_EQ(vma_.get_socket_rings_fds(fd, &ring_, 1), 1);
    return fd;
  }
  static RingDoor* DoorOf(int fd) { return Behind(fd)->door(); }
  uint32_t FreeBuffers() {
    RingDoor* const door = DoorOf(fd_);
    const RingDoor::Entry entry(door);
    const packet::BufferPool& pool = *door->ring().core().device.pool;
    return pool.free_count() + door->ring().core().device.queue->posted();
  }
  void SendTheirs(std::string_view bytes, int further = 0) {
    const auto port = static_cast<uint16_t>(port_ + further);
    sockaddr_in to{.sin_family = AF_INET, .sin_port = htons(port)};
    inet_pton(AF_INET, kOurs, &to.sin_addr);
    EXPECT_EQ(sendto(theirs_, bytes.data(), bytes.size(), 0, reinterpret_cast<sockaddr*>(&to),
                     sizeof to),
              static_cast<ssize_t>(bytes.size()));
  }
  // Packets until there are `count`, all fields of each written; none is freed.
  std::vector<vma_completion_t> Polled(size_t count) {
    std::vector<vma_completion_t> all;
    EXPECT_TRUE(Eventually([&] {
      vma_completion_t some[kMost];
      memset(some, 0xA5, sizeof some);
      const int got = vma_.socketxtreme_poll(ring_, some, kMost, 0);
      for (int i = 0; i < got; ++i) {
        if ((some[i].events & VMA_SOCKETXTREME_PACKET) != 0) all.push_back(some[i]);
      }
      return all.size() >= count;
    })) << all.size();
    return all;
  }
  void Free(std::vector<vma_completion_t>& completions) {
    for (vma_completion_t& each : completions) {
      EXPECT_EQ(vma_.socketxtreme_free_vma_packets(&each.packet, 1), 0);
    }
  }
  vma_completion_t Ask(std::string_view bytes, int further = 0) {
    SendTheirs(bytes, further);
    std::vector<vma_completion_t> got = Polled(1);
    if (got.size() != 1) return {};
    Free(got);
    return got[0];
  }
  static std::string TextOf(const vma_completion_t& completion) {
    const vma_buff_t* const link = completion.packet.buff_lst;
    return {static_cast<const char*>(link->payload), link->len};
  }

  // Sends go to a peer that answers them. The first one learns the next hop, and makes the way.
  void ConnectToEcho() {
    echo_ = TheirUdpEcho(echo_port_);
    EXPECT_EQ(Connect(fd_, kTheirs, echo_port_), 0);
    EXPECT_EQ(Answer("warm"), "warm");
    EXPECT_NE(Alone(fd_), nullptr);
  }
  static Socket* Alone(int fd) { return Descriptors::WayTo(fd)->alone(); }
  ssize_t Say(std::string_view bytes) { return Send(fd_, bytes.data(), bytes.size()); }
  std::string Answer(std::string_view bytes) {
    EXPECT_EQ(Say(bytes), static_cast<ssize_t>(bytes.size()));
    std::vector<vma_completion_t> got = Polled(1);
    const std::string text = got.empty() ? "" : TextOf(got[0]);
    Free(got);
    return text;
  }
  uint64_t Sent() { return Behind(fd_)->counters().sent; }
  struct RingCounters {
    uint64_t sent = 0;
    uint64_t refused = 0;
  };
  RingCounters OfRing() {
    RingDoor* const door = DoorOf(fd_);
    const RingDoor::Entry entry(door);
    const engine::UdpSocket* const socket = door->ring().udp().Find(Behind(fd_)->handle());
    return {engine::SendFlows::CountersOf(socket->flows.get()).sent, socket->sends.refused};
  }

  const vma_api_t& vma_ = *vma::Api();
  uint16_t port_ = 0;
  uint16_t echo_port_ = 0;
  int fd_ = -1;
  int ring_ = -1;
  int theirs_ = -1;

 private:
  std::unique_ptr<UdpEcho> echo_;
};

TEST_F(VmaAloneTest, EveryPacketOfAFlowIsToldAsItsFirst) {
  sockaddr_in name{};
  SendTheirs("0");
  socklen_t length = sizeof name;
  getsockname(theirs_, reinterpret_cast<sockaddr*>(&name), &length);
  sockaddr_in source{.sin_family = AF_INET, .sin_port = name.sin_port};
  inet_pton(AF_INET, kTheirs, &source.sin_addr);
  for (int i = 0; i < 4; ++i) {
    const std::string text(static_cast<size_t>(i) + 1, static_cast<char>('0' + i));
    if (i > 0) SendTheirs(text);
    std::vector<vma_completion_t> got = Polled(1);
    ASSERT_EQ(got.size(), 1u) << i;
    const vma_completion_t& c = got[0];
    EXPECT_EQ(c.events, VMA_SOCKETXTREME_PACKET);
    EXPECT_EQ(c.user_data, static_cast<uint64_t>(fd_));
    EXPECT_EQ(c.listen_fd, -1);
    EXPECT_EQ(memcmp(&c.src, &source, sizeof source), 0);
    EXPECT_EQ(c.packet.num_bufs, 1u);
    EXPECT_EQ(c.packet.total_len, text.size());
    ASSERT_NE(c.packet.buff_lst, nullptr);
    EXPECT_EQ(c.packet.buff_lst->next, nullptr);
    EXPECT_EQ(TextOf(c), text);
    timespec now{};
    clock_gettime(CLOCK_REALTIME, &now);
    EXPECT_LE(now.tv_sec - c.packet.hw_timestamp.tv_sec, 5) << i;
    EXPECT_GE(now.tv_sec - c.packet.hw_timestamp.tv_sec, 0) << i;
    EXPECT_LT(c.packet.hw_timestamp.tv_nsec, 1'000'000'000);
    memset(c.packet.buff_lst->payload, 'x', c.packet.buff_lst->len);  // It may be written to.
    Free(got);
  }
  EXPECT_EQ(Behind(fd_)->counters().received, 4u);
  EXPECT_EQ(Behind(fd_)->counters().received_bytes, 10u);
}

TEST_F(VmaAloneTest, UserDataIsThatOfTheTimeOfThePoll) {
  for (int i = 0; i < 3; ++i) EXPECT_EQ(Ask("a").user_data, static_cast<uint64_t>(fd_));
  const uint64_t ours = 0x123456789abcdef0;
  EXPECT_EQ(Behind(fd_)->SetOption(SOL_SOCKET, SO_VMA_USER_DATA, &ours, sizeof ours), 0);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(Ask("b").user_data, ours) << i;
}

TEST_F(VmaAloneTest, CallbackHasThemFromItsRegistrationOnToItsEnd) {
  static int called;
  called = 0;
  for (int i = 0; i < 3; ++i) Ask("a");
  const auto callback = [](int, size_t, iovec*, vma_info_t*, void*) {
    ++called;
    return VMA_PACKET_DROP;
  };
  EXPECT_EQ(vma_.register_recv_callback(fd_, callback, nullptr), 0);
  for (int i = 1; i <= 2; ++i) {
    SendTheirs("b");
    EXPECT_TRUE(Eventually([&] {
      vma_completion_t none;
      EXPECT_EQ(vma_.socketxtreme_poll(ring_, &none, 1, 0), 0);
      return called == i;
    }));
  }
  EXPECT_EQ(vma_.register_recv_callback(fd_, nullptr, nullptr), 0);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(Ask("c").user_data, static_cast<uint64_t>(fd_));
  EXPECT_EQ(called, 2);
}

TEST_F(VmaAloneTest, PacketsOfTwoSocketsKeepTheirOrder) {
  const int other = Bound(static_cast<uint16_t>(port_ + 1));
  for (int i = 0; i < 2; ++i) Ask("a"), Ask("b", 1);
  const std::string order = "0110100";
  for (size_t i = 0; i < order.size(); ++i) {
    SendTheirs(std::string(1, static_cast<char>('A' + i)), order[i] - '0');
  }
  std::vector<vma_completion_t> got = Polled(order.size());
  ASSERT_EQ(got.size(), order.size());
  for (size_t i = 0; i < order.size(); ++i) {
    EXPECT_EQ(got[i].user_data, static_cast<uint64_t>(order[i] == '1' ? other : fd_)) << i;
    EXPECT_EQ(TextOf(got[i]), std::string(1, static_cast<char>('A' + i)));
  }
  Free(got);
  Close(other);
}

TEST_F(VmaAloneTest, PacketOfANewFlowIsToldBehindThoseOfOneThatIsKnown) {
  for (int i = 0; i < 3; ++i) Ask("a");
  for (int i = 0; i < 20; ++i) {
    int stranger = TheirSocket(SOCK_DGRAM);
    for (int known = 0; known < 3; ++known) SendTheirs(std::to_string(known));
    std::swap(theirs_, stranger);
    SendTheirs("3");
    std::swap(theirs_, stranger);
    close(stranger);
    std::vector<vma_completion_t> got = Polled(4);
    ASSERT_EQ(got.size(), 4u) << i;
    for (size_t at = 0; at < 4; ++at) EXPECT_EQ(TextOf(got[at]), std::to_string(at)) << i;
    Free(got);
  }
}

TEST_F(VmaAloneTest, SocketThatIsClosedHasNoMoreAndWhoTakesItsPlaceDoes) {
  for (int i = 0; i < 3; ++i) Ask("a");
  const auto before = Behind(fd_);
  Close(fd_);
  EXPECT_EQ(before->counters().received, 3u);
  fd_ = Bound(port_);
  const uint64_t ours = 77;
  EXPECT_EQ(Behind(fd_)->SetOption(SOL_SOCKET, SO_VMA_USER_DATA, &ours, sizeof ours), 0);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(Ask("b").user_data, ours);
}

TEST_F(VmaAloneTest, OneCallFreesManyAndWhatIsHeldTwiceStays) {
  Ask("a");
  const uint32_t free = FreeBuffers();
  for (int i = 0; i < 5; ++i) SendTheirs("b");
  std::vector<vma_completion_t> got = Polled(5);
  ASSERT_EQ(got.size(), 5u);
  EXPECT_EQ(FreeBuffers(), free - 5);
  std::vector<vma_packet_desc_t> packets;
  for (const vma_completion_t& each : got) packets.push_back(each.packet);
  packets.insert(packets.begin() + 2, vma_packet_desc_t{});  // Of no packet.
  vma_buff_t* const held = packets[1].buff_lst;
  EXPECT_EQ(vma_.socketxtreme_ref_vma_buff(held), 2);
  EXPECT_EQ(vma_.socketxtreme_free_vma_packets(packets.data(), static_cast<int>(packets.size())),
            0);
  EXPECT_EQ(FreeBuffers(), free - 1);
  EXPECT_EQ(vma_.socketxtreme_free_vma_buff(held), 0);
  EXPECT_EQ(FreeBuffers(), free);
  EXPECT_EQ(vma_.socketxtreme_free_vma_packets(packets.data(), 0), 0);
  EXPECT_EQ(vma_.socketxtreme_free_vma_packets(nullptr, 1), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(vma_.socketxtreme_free_vma_packets(packets.data(), -1), -1);
}

// --- Sends ---

TEST_F(VmaAloneTest, EachSendLeavesAndIsCountedOnce) {
  ConnectToEcho();
  const uint64_t before = Sent();
  const uint64_t of_ring = OfRing().sent;
  for (int i = 0; i < 20; ++i) {
    const std::string text(static_cast<size_t>(i) + 1, static_cast<char>('a' + i));
    EXPECT_EQ(Answer(text), text);
  }
  EXPECT_EQ(Sent(), before + 20);
  EXPECT_EQ(OfRing().sent, of_ring + 20);
}

TEST_F(VmaAloneTest, SendsOfAnyLengthAreWhatIsAnswered) {
  ConnectToEcho();
  for (const size_t length : {100u, 180u, 200u, 300u, 1'000u, 1'472u}) {
    const std::string text(length, static_cast<char>('a' + length % 26));
    EXPECT_EQ(Answer(text), text) << length;
  }
}

TEST_F(VmaAloneTest, FullQueueRefusesAndNothingIsCountedThatWasNotSent) {
  ConnectToEcho();
  const uint64_t before = Sent();
  const uint64_t bytes_before = Behind(fd_)->counters().sent_bytes;
  const uint64_t of_ring = OfRing().sent;
  const uint64_t refused = OfRing().refused;
  uint64_t sent = 0;
  uint64_t not_sent = 0;
  Behind(fd_)->SetNonBlocking(true);
  for (int i = 0; i < 1'000'000 && not_sent < 10; ++i) {
    const ssize_t result = Say("burst");
    sent += result == 5;
    not_sent += result == -EAGAIN;
    ASSERT_TRUE(result == 5 || result == -EAGAIN) << result;
  }
  EXPECT_EQ(not_sent, 10u);
  EXPECT_EQ(Sent(), before + sent);
  EXPECT_EQ(Behind(fd_)->counters().sent_bytes, bytes_before + 5 * sent);
  EXPECT_EQ(OfRing().sent, of_ring + sent);
  EXPECT_EQ(OfRing().refused, refused + not_sent);
}

TEST_F(VmaAloneTest, SendAfterShutdownIsRefused) {
  ConnectToEcho();
  Behind(fd_)->Shutdown(SHUT_WR);
  EXPECT_EQ(Say("a"), -EPIPE);
}

TEST_F(VmaAloneTest, NewPeerHasSendsFromTheConnectOn) {
  ConnectToEcho();
  const auto another = static_cast<uint16_t>(echo_port_ + 1);
  const auto other = TheirUdpEcho(another);
  EXPECT_EQ(Connect(fd_, kTheirs, another), 0);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(Say("to the other"), 12);
    std::vector<vma_completion_t> got = Polled(1);
    ASSERT_EQ(got.size(), 1u);
    EXPECT_EQ(ntohs(got[0].src.sin_port), another) << i;
    Free(got);
  }
}

TEST_F(VmaAloneTest, PartsOfADatagramLeaveAsOne) {
  ConnectToEcho();
  EXPECT_EQ(sockets::SendOurs(fd_, "a", 1, MSG_MORE), 1);
  EXPECT_EQ(Say("b"), 1);
  std::vector<vma_completion_t> got = Polled(1);
  ASSERT_EQ(got.size(), 1u);
  EXPECT_EQ(TextOf(got[0]), "ab");
  Free(got);
  EXPECT_EQ(Answer("c"), "c");
}

TEST_F(VmaAloneTest, BehindNewsOfRoutesASendAsksForItsWay) {
  ConnectToEcho();
  engine::Ring& ring = DoorOf(fd_)->ring();
  ring.core().ChangeWorld();
  const uint64_t version = ring.core().host.routes_version;
  EXPECT_EQ(Say("a"), 1);
  EXPECT_EQ(ring.udp().Find(Behind(fd_)->handle())->flows->connected.epoch, version);
  std::vector<vma_completion_t> got = Polled(1);
  Free(got);
}

TEST_F(VmaAloneTest, WhoWatchesIsToldOfASendsEdge) {
  ConnectToEcho();
  const int set = NewSet();
  ASSERT_EQ(ControlSet(set, EPOLL_CTL_ADD, fd_, EPOLLOUT | EPOLLET), 0);
  epoll_event event{};
  EXPECT_EQ(WaitSet(set, &event, 1, 10'000), 1);
  EXPECT_EQ(WaitSet(set, &event, 1, 0), 0);
  EXPECT_EQ(Say("a"), 1);
  EXPECT_EQ(WaitSet(set, &event, 1, 10'000), 1);
  Close(set);
}

// What a library below asks is the kernel's.
TEST_F(VmaAloneTest, SendInsideAPassageIsTheKernels) {
  ConnectToEcho();
  const uint64_t before = Sent();
  {
    const sockets::Passage passage;
    EXPECT_EQ(sockets::SendOurs(fd_, "a", 1, 0), sockets::kAskKernel);
  }
  EXPECT_EQ(Sent(), before);
  EXPECT_EQ(Answer("b"), "b");
}

// One thread at a time.
TEST_F(VmaAloneTest, AnotherThreadOwnsTheRingFirst) {
  ConnectToEcho();
  std::thread([this] {
    EXPECT_EQ(Answer("a"), "a");
    EXPECT_EQ(Answer("b"), "b");
  }).join();
  EXPECT_EQ(Answer("c"), "c");
}

TEST_F(VmaAloneTest, ClosedDescriptorHasNoWay) {
  ConnectToEcho();
  const int copy = Duplicate(fd_);
  EXPECT_EQ(Send(copy, "a", 1), 1);
  EXPECT_NE(Alone(copy), nullptr);
  Close(copy);
  EXPECT_EQ(Alone(copy), nullptr);
  EXPECT_EQ(Say("b"), 1);
  std::vector<vma_completion_t> got = Polled(2);
  Free(got);
  Close(fd_);
  EXPECT_EQ(Alone(fd_), nullptr);
  fd_ = -1;
}

}  // namespace
}  // namespace xtreme::faces
