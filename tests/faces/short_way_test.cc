// SPDX-License-Identifier: Apache-2.0
//
// The short ways of sends and receives: what they leave to the long way, and what happens to a
// socket under them. A first call goes the long way and makes the short one, so each test calls
// twice what it is about.

#include <arpa/inet.h>
#include <linux/net_tstamp.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <ctime>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "api/sockets/faces.h"
#include "api/sockets/kernel_calls.h"
#include "api/sockets/message_calls.h"
#include "api/sockets/ring_door.h"
#include "gtest/gtest.h"
#include "stack/packet/buffer_pool.h"
#include "stack/wire/address.h"
#include "tests/faces/linked_faces.h"
#include "xtreme/engine/completion.h"
#include "xtreme/engine/ip_bytes.h"
#include "xtreme/engine/ring.h"
#include "xtreme/engine/ring_core.h"

namespace xtreme::faces {
namespace {

using sockets::Faces;
using sockets::Received;
using sockets::RingDoor;
using sockets::Socket;
using sockets::Verdict;

constexpr uint16_t kEchoPort = 7001;

bool HasShortWay(int fd) { return Faces::The().descriptors().WayTo(fd)->door() != nullptr; }

class ShortWayTest : public LinkedFacesTest {
 protected:
  // To the other side, which sends it back.
  static void Ask(int fd, std::string_view bytes = "12345") {
    EXPECT_EQ(SendTo(fd, bytes, kTheirs, kEchoPort), static_cast<ssize_t>(bytes.size()));
  }
  // One datagram, or what is there of a stream; of errors, their number.
  static std::string Take(int fd, size_t size = 8) {
    std::string bytes(size, 0);
    const ssize_t got = Receive(fd, bytes.data(), size);
    bytes.resize(got < 0 ? 0 : static_cast<size_t>(got));
    return got < 0 ? std::to_string(got) : bytes;
  }
  // Makes the short way, by a send that the other side answers, and an answer that is taken.
  static void Warm(int fd) {
    Ask(fd);
    EXPECT_EQ(Take(fd), "12345");
    EXPECT_TRUE(HasShortWay(fd));
  }
  static int WarmSocket(uint16_t port) {
    const int fd = BoundDatagramSocket(port);
    Warm(fd);
    return fd;
  }
  // To `*theirs`, on the other side.
  static int Connection(uint16_t port, int flags, int* theirs) {
    const int listener = Listener(port);
    *theirs = TheirSocket(SOCK_STREAM | SOCK_NONBLOCK);
    sockaddr_in to{.sin_family = AF_INET, .sin_port = htons(port)};
    inet_pton(AF_INET, kOurs, &to.sin_addr);
    connect(*theirs, reinterpret_cast<const sockaddr*>(&to), sizeof to);
    const int fd = Accept(listener, flags);
    EXPECT_GE(fd, 0);
    Close(listener);
    return fd;
  }

 private:
  const std::unique_ptr<UdpEcho> echo_ = TheirUdpEcho(kEchoPort);
};

// Most likely: the first poll of a receive is to find what was sent, and nobody else polls. If it
// does not, the long way is tested once more.
void LetArrive() { std::this_thread::sleep_for(std::chrono::milliseconds(20)); }

std::string Ebadf() { return std::to_string(-EBADF); }

TEST_F(ShortWayTest, SocketThatACallbackClosesUnderItsReceiveSaysEbadf) {
  int same = 0;
  for (int i = 0; i < 5; ++i) {
    const int fd = WarmSocket(8020);
    const int other = BoundDatagramSocket(8021);
    int taken = -1;
    Behind(other)->SetCallback([&](Socket&, const Received&) {
      Close(fd);
      taken = BoundDatagramSocket(8022);  // Has the number, if no other thread took or left one.
      SetReceiveTimeout(taken, 1'000);
      return Verdict::kDrop;
    });
    Ask(other);
    LetArrive();
    EXPECT_EQ(Take(fd), Ebadf());
    EXPECT_GE(taken, 0);
    same += taken == fd;
    Close(taken);
    Close(other);
  }
  EXPECT_NE(same, 0);
}

TEST_F(ShortWayTest, SocketThatACallbackClosesBehindItsPacketIsNotTouched) {
  const int fd = WarmSocket(8020);
  const int other = BoundDatagramSocket(8021);
  std::atomic<bool> closed{false};
  Behind(other)->SetCallback([&](Socket&, const Received&) {
    if (!closed.exchange(true)) Close(fd);
    return Verdict::kDrop;
  });
  Ask(fd);
  Ask(other);
  LetArrive();
  const std::string got = Take(fd);
  EXPECT_TRUE(got == "12345" || got == Ebadf()) << got;
  EXPECT_TRUE(Eventually([&] {
    Poke(other);
    return closed.load();
  }));
  Close(other);
}

TEST_F(ShortWayTest, DatagramThatIsTooLongForItsReceiveIsCutAndTheNextIsWhole) {
  const int fd = WarmSocket(8020);
  Ask(fd, "abcdefgh");
  Ask(fd, "ijk");
  LetArrive();
  EXPECT_EQ(Take(fd, 3), "abc");
  EXPECT_EQ(Take(fd), "ijk");
  EXPECT_EQ(Behind(fd)->counters().received, 3u);
  Close(fd);
}

TEST_F(ShortWayTest, EdgeTriggeredSetTellsOfTheNextDatagram) {
  const int fd = WarmSocket(8020);
  const int set = NewSet();
  ASSERT_EQ(ControlSet(set, EPOLL_CTL_ADD, fd, EPOLLIN | EPOLLET), 0);
  Ask(fd, "12345");
  Ask(fd, "67890");
  EXPECT_EQ(Take(fd), "12345");
  epoll_event event{};
  EXPECT_EQ(WaitSet(set, &event, 1, 10'000), 1);
  EXPECT_EQ(Take(fd), "67890");
  Close(set);
  Close(fd);
}

TEST_F(ShortWayTest, ShutdownEndsIt) {
  const int fd = WarmSocket(8020);
  Behind(fd)->Shutdown(SHUT_WR);
  EXPECT_EQ(SendTo(fd, "12345", kTheirs, kEchoPort), -EPIPE);
  Close(fd);
}

TEST_F(ShortWayTest, CallbackEndsIt) {
  const int fd = WarmSocket(8021);
  std::atomic<int> calls{0};
  Behind(fd)->SetCallback([&](Socket&, const Received&) {
    ++calls;
    return Verdict::kDrop;
  });
  SetReceiveTimeout(fd, 100);
  Ask(fd);
  EXPECT_EQ(Take(fd), std::to_string(-EAGAIN));
  EXPECT_EQ(calls, 1);
  Close(fd);
}

TEST_F(ShortWayTest, RestOfASegmentIsTheNextReceives) {
  int theirs = -1;
  const int fd = Connection(8023, 0, &theirs);
  SetReceiveTimeout(fd, 1'000);
  EXPECT_EQ(Send(fd, "1", 1), 1);
  EXPECT_EQ(Send(fd, "2345", 4), 4);
  EXPECT_EQ(Behind(fd)->counters().sent_bytes, 5u);
  EXPECT_EQ(send(theirs, "abcdefgh", 8, 0), 8);
  LetArrive();
  EXPECT_EQ(Take(fd, 3), "abc");
  EXPECT_EQ(Take(fd), "defgh");
  close(theirs);
  Close(fd);
}

// --- Messages ---

// One that waits, as `said`: what came beside its bytes.
struct Message {
  explicit Message(int fd, size_t room = 8) {
    iovec part{.iov_base = bytes, .iov_len = room};
    msghdr message{.msg_name = &source,
                   .msg_namelen = sizeof source,
                   .msg_iov = &part,
                   .msg_iovlen = 1,
                   .msg_control = control,
                   .msg_controllen = sizeof control};
    got = sockets::ReceiveMessageOurs(fd, &message, 0);
    if (got < 0) return;
    flags = message.msg_flags;
    for (const cmsghdr* each = CMSG_FIRSTHDR(&message); each != nullptr;
         each = CMSG_NXTHDR(&message, const_cast<cmsghdr*>(each))) {
      kinds.push_back(each->cmsg_type);
      if (each->cmsg_type == SCM_TIMESTAMPNS) memcpy(times, CMSG_DATA(each), sizeof times[0]);
      if (each->cmsg_type == SCM_TIMESTAMPING) memcpy(times, CMSG_DATA(each), sizeof times);
      if (each->cmsg_type == IP_PKTINFO) memcpy(&info, CMSG_DATA(each), sizeof info);
    }
  }
  std::string text() const {
    return got < 0 ? std::to_string(got) : std::string(bytes, static_cast<size_t>(got));
  }
  bool IsOfTheirEcho() const {
    return source.sin_port == htons(kEchoPort) && source.sin_addr.s_addr == inet_addr(kTheirs);
  }
  // Not later than now, nor long before.
  static bool IsRecent(const timespec& time) {
    timespec now{};
    clock_gettime(CLOCK_REALTIME, &now);
    return time.tv_sec <= now.tv_sec && time.tv_sec > now.tv_sec - 60;
  }

  ssize_t got = 0;
  int flags = 0;
  sockaddr_in source{};
  std::vector<int> kinds;
  timespec times[3] = {};
  in_pktinfo info{};
  char bytes[8] = {};
  alignas(cmsghdr) char control[200] = {};
};

void SetOn(int fd, int level, int name, int value = 1) {
  ASSERT_EQ(Behind(fd)->SetOption(level, name, &value, sizeof value), 0);
}

TEST_F(ShortWayTest, MessageIsTakenAsItComesWithWhereItIsFrom) {
  const int fd = WarmSocket(8031);
  Ask(fd, "abcde");
  LetArrive();
  const Message whole(fd);
  EXPECT_EQ(whole.text(), "abcde");
  EXPECT_TRUE(whole.IsOfTheirEcho());
  EXPECT_EQ(whole.flags, 0);
  EXPECT_TRUE(whole.kinds.empty());
  Ask(fd, "abcde");
  LetArrive();
  const Message cut(fd, 3);
  EXPECT_EQ(cut.text(), "abc");
  EXPECT_TRUE(cut.IsOfTheirEcho());
  EXPECT_EQ(cut.flags, MSG_TRUNC);
  EXPECT_EQ(Behind(fd)->counters().received, 3u);
  Close(fd);
}

TEST_F(ShortWayTest, MessageSaysWhenItCame) {
  const int fd = WarmSocket(8032);
  SetOn(fd, SOL_SOCKET, SO_TIMESTAMPNS);
  Ask(fd, "abcde");
  LetArrive();
  const Message by_headers(fd);
  EXPECT_EQ(by_headers.text(), "abcde");
  EXPECT_TRUE(by_headers.IsOfTheirEcho());
  EXPECT_EQ(by_headers.kinds, std::vector<int>{SCM_TIMESTAMPNS});
  EXPECT_TRUE(Message::IsRecent(by_headers.times[0]));
  SetOn(fd, SOL_SOCKET, SO_TIMESTAMPNS, 0);
  SetOn(fd, SOL_SOCKET, SO_TIMESTAMPING, SOF_TIMESTAMPING_SOFTWARE | SOF_TIMESTAMPING_RAW_HARDWARE);
  Ask(fd, "abcde");
  LetArrive();
  const Message by_device(fd);
  EXPECT_EQ(by_device.kinds, std::vector<int>{SCM_TIMESTAMPING});
  EXPECT_TRUE(Message::IsRecent(by_device.times[0]));
  EXPECT_TRUE(Message::IsRecent(by_device.times[2])) << "the device's";
  Close(fd);
}

TEST_F(ShortWayTest, MessageSaysWhereItWasSentToAndWhatWasLostBefore) {
  const int fd = WarmSocket(8033);
  SetOn(fd, IPPROTO_IP, IP_PKTINFO);
  SetOn(fd, SOL_SOCKET, SO_RXQ_OVFL);
  SetOn(fd, SOL_SOCKET, SO_RCVBUF, 1);
  for (int i = 0; i < 20; ++i) Ask(fd, "abcde");
  EXPECT_TRUE(Eventually([&] {
    Poke(fd);
    return Behind(fd)->counters().dropped != 0;
  }));
  Behind(fd)->SetNonBlocking(true);
  while (Message(fd).got > 0) {
  }
  Ask(fd, "fghij");
  LetArrive();
  const Message message(fd);
  EXPECT_EQ(message.text(), "fghij");
  EXPECT_EQ(message.kinds, (std::vector<int>{SO_RXQ_OVFL, IP_PKTINFO}));
  EXPECT_EQ(message.info.ipi_addr.s_addr, inet_addr(kOurs));
  EXPECT_EQ(message.info.ipi_ifindex, static_cast<int>(Behind(fd)->door()->ifindex()));
  Close(fd);
}

TEST_F(ShortWayTest, SocketThatACallbackClosesUnderItsMessageSaysEbadf) {
  const int fd = WarmSocket(8034);
  const int other = BoundDatagramSocket(8035);
  Behind(other)->SetCallback([&](Socket&, const Received&) {
    Close(fd);
    return Verdict::kDrop;
  });
  Ask(other);
  LetArrive();
  EXPECT_EQ(Message(fd).text(), Ebadf());
  Close(other);
}

// --- What the ring refuses goes on by the long way, and is counted once ---

uint64_t RefusalsOnRingOf(int fd) {
  RingDoor* const door = Behind(fd)->door();
  const RingDoor::Entry entry(door);
  return door->ring().core().tally.refusals.Total();
}

TEST_F(ShortWayTest, DatagramThatNoRouteOfTheRingLeadsIsRefusedOnce) {
  const int fd = WarmSocket(8024);
  const uint64_t before = RefusalsOnRingOf(fd);
  EXPECT_EQ(SendTo(fd, "12345", "10.77.0.1", kEchoPort), -ENETUNREACH);  // The kernel's answer.
  EXPECT_EQ(RefusalsOnRingOf(fd), before + 1);
  Close(fd);
}

TEST_F(ShortWayTest, DatagramForWhichTheQueueIsFullIsRefusedOnce) {
  const int fd = WarmSocket(8025);
  Behind(fd)->SetNonBlocking(true);
  const uint32_t slow = 10'000;
  ASSERT_EQ(Behind(fd)->SetOption(SOL_SOCKET, SO_MAX_PACING_RATE, &slow, sizeof slow), 0);
  const uint64_t before = RefusalsOnRingOf(fd);
  while (SendTo(fd, "12345", kTheirs, kEchoPort) == 5) {
  }
  EXPECT_EQ(SendTo(fd, "12345", kTheirs, kEchoPort), -EAGAIN);
  EXPECT_EQ(RefusalsOnRingOf(fd), before + 2);
  Close(fd);
}

TEST_F(ShortWayTest, BytesForWhichThereIsNoBufferAreRefusedOnce) {
  int theirs = -1;
  const int fd = Connection(8026, SOCK_NONBLOCK, &theirs);
  EXPECT_EQ(Send(fd, "1", 1), 1);
  // It gives its buffer back.
  EXPECT_TRUE(Eventually([&] { return Behind(fd)->UnacknowledgedBytes() == 0; }));
  const uint64_t before = RefusalsOnRingOf(fd);
  RingDoor* const door = Behind(fd)->door();
  std::vector<packet::Buffer*> taken;
  {
    const RingDoor::Entry entry(door);
    while (packet::Buffer* const each = door->ring().AcquireBuffer()) taken.push_back(each);
  }
  EXPECT_EQ(Send(fd, "2", 1), -EAGAIN);
  EXPECT_EQ(RefusalsOnRingOf(fd), before + 1);
  for (packet::Buffer* const each : taken) packet::BufferPool::ReleaseChain(each);
  EXPECT_TRUE(Eventually([&] { return Send(fd, "2", 1) == 1; }));
  close(theirs);
  Close(fd);
}

// Of a socket with a peer: one of before there was that peer may come late.
TEST_F(ShortWayTest, ErrorOfAnotherDestinationIsNotThePeers) {
  const int fd = WarmSocket(8027);
  ASSERT_EQ(Connect(fd, kTheirs, kEchoPort), 0);
  const auto socket = Behind(fd);
  const auto tell_of = [&](uint8_t host, uint16_t port) {
    engine::Completion error{};
    error.kind = engine::Kind::kError;
    error.socket = socket->handle();
    error.status = ECONNREFUSED;
    engine::StoreIp(wire::Ipv4Address(10, 9, 0, host), &error.destination_ip);
    error.destination_port = port;
    const RingDoor::Entry entry(socket->door());
    socket->OnCompletion(error);
  };
  for (const auto& [host, port] : {std::pair{2, kEchoPort + 1}, {3, kEchoPort + 0}}) {
    tell_of(static_cast<uint8_t>(host), static_cast<uint16_t>(port));
    EXPECT_EQ(socket->TakePendingError(), 0) << host << " " << port;
    Warm(fd);
  }
  tell_of(2, kEchoPort);
  EXPECT_EQ(socket->TakePendingError(), ECONNREFUSED);
  Close(fd);
}

int sends_by_kernel = 0;

ssize_t InterruptedSend(int, const msghdr*, int) {
  ++sends_by_kernel;
  errno = EINTR;
  return -1;
}

// Three datagrams before it were refused, each as it was tried.
ssize_t SendBehindErrors(int, const msghdr*, int) {
  errno = ECONNREFUSED;
  return ++sends_by_kernel > 3 ? 5 : -1;
}

TEST_F(ShortWayTest, SendOfTheKernelsIsNotToldOfErrorsOfOthersBeforeIt) {
  const int fd = WarmSocket(8029);
  auto& kernel = const_cast<sockets::KernelCalls&>(sockets::Kernel());
  const auto before = std::exchange(kernel.sendmsg, &SendBehindErrors);
  sends_by_kernel = 0;
  EXPECT_EQ(SendTo(fd, "12345", "10.77.0.1", kEchoPort), 5);
  kernel.sendmsg = before;
  EXPECT_EQ(sends_by_kernel, 4);
  Close(fd);
}

// Of a socket with a peer the ring tells it, once.
TEST_F(ShortWayTest, SendOfTheKernelsToItsPeerIsNotToldOfErrorsThatTheRingTells) {
  const int fd = WarmSocket(8030);
  ASSERT_EQ(Connect(fd, kTheirs, kEchoPort), 0);
  auto& kernel = const_cast<sockets::KernelCalls&>(sockets::Kernel());
  const auto before = std::exchange(kernel.sendmsg, &SendBehindErrors);
  sends_by_kernel = 0;
  const msghdr message{};
  EXPECT_EQ(Behind(fd)->SendByKernel(message, 0), 5);
  kernel.sendmsg = before;
  EXPECT_EQ(sends_by_kernel, 4);
  Close(fd);
}

// Only what may be an error of a datagram before it is tried again.
TEST_F(ShortWayTest, SendOfTheKernelsThatIsInterruptedIsNotBegunAnew) {
  const int fd = WarmSocket(8028);
  auto& kernel = const_cast<sockets::KernelCalls&>(sockets::Kernel());
  const auto before = std::exchange(kernel.sendmsg, &InterruptedSend);
  sends_by_kernel = 0;
  EXPECT_EQ(SendTo(fd, "12345", "10.77.0.1", kEchoPort), -EINTR);
  kernel.sendmsg = before;
  EXPECT_EQ(sends_by_kernel, 1);
  Close(fd);
}

TEST_F(ShortWayTest, CopyHasItsOwn) {
  const int fd = WarmSocket(8020);
  const int copy = Duplicate(fd);
  EXPECT_FALSE(HasShortWay(copy));
  Warm(copy);
  Close(fd);
  EXPECT_FALSE(HasShortWay(fd));
  Warm(copy);
  Close(copy);
}

}  // namespace
}  // namespace xtreme::faces
