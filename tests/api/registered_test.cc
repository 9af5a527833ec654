// SPDX-License-Identifier: Apache-2.0
//
// xtreme.h: memory of the program that is sent from where it stands, through the software ConnectX
// to the kernel: a wrong key, or bytes outside of what was registered, would end the queue.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <future>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "api/xtreme.h"
#include "gtest/gtest.h"
#include "tests/e2e/tcp_bed.h"
#include "tests/net/kernel_tcp.h"

namespace xtreme::api_test {
namespace {

using e2e::Await;
using net::KernelTcp;

xtreme_address Address(const char* text) {
  xtreme_address address = {};
  EXPECT_EQ(xtreme_address_parse(text, &address), 0) << text;
  return address;
}

// Bytes that tell where they stand.
std::vector<char> Pattern(size_t bytes) {
  std::vector<char> pattern(bytes);
  for (size_t i = 0; i < bytes; ++i) pattern[i] = static_cast<char>(i * 31 + i / 256 * 7);
  return pattern;
}

class RegisteredTest : public testing::Test {
 protected:
  static constexpr int64_t kLongNs = 20'000'000'000;  // What takes longer will not come.

  void SetUp() override {
    const absl::Status made = bed_.Make(1);
    ASSERT_TRUE(made.ok()) << made;
    owner_ = bed_.OpenRing();
    ASSERT_NE(owner_, nullptr);
    ring_ = owner_->handle();
  }

  // Polls until `what` is so.
  template <typename What>
  bool PollUntil(What&& what) {
    const int64_t end_ns = xtreme_ring_now(ring_) + kLongNs;
    while (!what() && xtreme_ring_now(ring_) < end_ns) {
      xtreme_completion completion = {};
      if (xtreme_ring_wait(ring_, &completion, 1, sizeof completion, 1'000'000) < 1) continue;
      xtreme_release(&completion, 1, sizeof completion);
    }
    return what();
  }
  uint64_t Counter(const char* scope, const char* name) {
    std::vector<xtreme_counter> counters(512);
    const int count = xtreme_ring_counters(ring_, counters.data(), 512);
    for (int i = 0; i < count; ++i) {
      const xtreme_counter& counter = counters[static_cast<size_t>(i)];
      if (std::string_view(counter.scope) == scope && std::string_view(counter.name) == name) {
        return counter.value;
      }
    }
    ADD_FAILURE() << "no counter " << scope << "." << name;
    return 0;
  }

  // `*count` rises when it is released.
  static xtreme_memory MemoryOf(std::vector<char>& bytes, std::atomic<int>* count) {
    return {.start = bytes.data(),
            .length = bytes.size(),
            .released = [](void* counted, void*) { ++*static_cast<std::atomic<int>*>(counted); },
            .context = count,
            .cookie = 77};
  }
  // A region, known to the NIC.
  xtreme_buffer* Register(std::vector<char>& bytes) {
    const xtreme_memory memory = MemoryOf(bytes, &released_);
    xtreme_buffer* buffer = nullptr;
    EXPECT_EQ(xtreme_buffer_register(ring_, &memory, &buffer), 0) << xtreme_error();
    const xtreme_completion done = Await(ring_, XTREME_OP_DONE);
    EXPECT_EQ(done.cookie, 77u);
    EXPECT_EQ(done.status, 0) << done.text;
    return buffer;
  }
  // One reference goes with it, which the caller's are not.
  static int Send(xtreme_socket socket, const xtreme_address* peer, xtreme_buffer* buffer,
                  const char* data, size_t length, uint32_t flags = 0) {
    const xtreme_send_options options = {flags, 0, 5};
    xtreme_buffer_ref(buffer);
    const int result = xtreme_send_buffer(socket, peer, buffer, data, length, &options);
    if (result < 0) xtreme_buffer_release(buffer);
    return result;
  }

  // A connection of ours that the kernel accepted.
  xtreme_socket Establish(KernelTcp* peer) {
    const net::Namespace::Inside inside(bed_.kernel());
    const KernelTcp listener = KernelTcp::Listen(e2e::TcpBed::kKernelAddress, 7000);
    const xtreme_address address = Address("10.9.0.1:7000");
    xtreme_socket socket = {};
    EXPECT_EQ(xtreme_tcp_connect(ring_, &address, nullptr, &socket), 0) << xtreme_error();
    Await(ring_, XTREME_ESTABLISHED);
    *peer = listener.Accept();
    return socket;
  }
  // A socket of the kernel's, and one of ours that sends.
  void OpenDatagrams(xtreme_socket* socket) {
    const net::Namespace::Inside inside(bed_.kernel());
    kernel_ = ::socket(AF_INET, SOCK_DGRAM, 0);
    const timeval patience{.tv_sec = 10, .tv_usec = 0};
    setsockopt(kernel_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    sockaddr_in local{.sin_family = AF_INET, .sin_port = htons(7000)};
    ASSERT_EQ(bind(kernel_, reinterpret_cast<sockaddr*>(&local), sizeof local), 0);
    xtreme_udp_options options = {};
    options.size = sizeof options;
    options.local = Address("*:9000");
    ASSERT_EQ(xtreme_udp_open(ring_, &options, socket), 0) << xtreme_error();
    ASSERT_EQ(Await(ring_, XTREME_OP_DONE).status, 0);
  }
  std::string ReceiveDatagram() const {
    std::string datagram(70'000, ' ');
    const ssize_t length = recv(kernel_, datagram.data(), datagram.size(), 0);
    datagram.resize(length < 0 ? 0 : static_cast<size_t>(length));
    return datagram;
  }
  void TearDown() override {
    if (kernel_ >= 0) close(kernel_);
  }

  e2e::TcpBed bed_;
  std::unique_ptr<Ring> owner_;
  xtreme_ring ring_ = {};
  int kernel_ = -1;
  std::atomic<int> released_ = 0;
};

TEST_F(RegisteredTest, StreamIsSentWithoutABufferOfThePool) {
  std::vector<char> bytes = Pattern(1'000'000);
  KernelTcp peer;
  const xtreme_socket socket = Establish(&peer);
  xtreme_buffer* const buffer = Register(bytes);
  EXPECT_EQ(xtreme_buffer_length(buffer), bytes.size());
  const uint64_t free = Counter("pool", "free");
  constexpr size_t kPiece = 125'000;
  for (size_t at = 0; at < bytes.size(); at += kPiece) {
    const bool last = at + kPiece == bytes.size();
    ASSERT_GE(Send(socket, nullptr, buffer, &bytes[at], kPiece, last ? XTREME_WANT_DONE : 0), 0);
  }
  EXPECT_EQ(Counter("pool", "free"), free) << "nothing is copied";
  auto received = std::async(std::launch::async, [&] { return peer.Receive(bytes.size()); });
  const xtreme_completion done = Await(ring_, XTREME_TX_DONE);
  EXPECT_EQ(done.status, 0);
  EXPECT_EQ(done.cookie, 5u);
  EXPECT_TRUE(received.get() == std::string(bytes.begin(), bytes.end()));
  EXPECT_EQ(released_, 0) << "the program still has a reference";
  EXPECT_EQ(xtreme_buffer_release(buffer), 1);
  EXPECT_TRUE(PollUntil([this] { return released_ == 1; }));
}

TEST_F(RegisteredTest, DatagramsAndTheirFragmentsAreSentInPlace) {
  std::vector<char> bytes = Pattern(60'000);
  xtreme_socket socket = {};
  ASSERT_NO_FATAL_FAILURE(OpenDatagrams(&socket));
  xtreme_buffer* const buffer = Register(bytes);
  const xtreme_address peer = Address("10.9.0.1:7000");
  // The first waits for the neighbour.
  for (const size_t length : {1'400u, 60u, 1'400u, 20'000u}) {
    ASSERT_GE(Send(socket, &peer, buffer, &bytes[length], length, XTREME_WANT_DONE), 0);
    Await(ring_, XTREME_TX_DONE);
    EXPECT_EQ(ReceiveDatagram(), std::string(&bytes[length], length)) << length;
  }
  xtreme_buffer_release(buffer);
  EXPECT_TRUE(PollUntil([this] { return released_ == 1; }));
}

TEST_F(RegisteredTest, AResetKeepsIt) {
  std::vector<char> bytes = Pattern(10'000);
  xtreme_socket socket = {};
  ASSERT_NO_FATAL_FAILURE(OpenDatagrams(&socket));
  xtreme_buffer* const buffer = Register(bytes);
  ASSERT_EQ(xtreme_ring_reset(ring_, 3), 0);
  EXPECT_EQ(Await(ring_, XTREME_OP_DONE).status, 0);
  const xtreme_address peer = Address("10.9.0.1:7000");
  ASSERT_GE(Send(socket, &peer, buffer, bytes.data(), 1'400, XTREME_WANT_DONE), 0);
  EXPECT_EQ(Await(ring_, XTREME_TX_DONE).status, 0);
  EXPECT_EQ(ReceiveDatagram(), std::string(bytes.data(), 1'400));
  xtreme_buffer_release(buffer);
}

TEST_F(RegisteredTest, WhatTheNicDoesNotKnowIsCopied) {
  std::vector<char> bytes = Pattern(10'000);
  xtreme_socket socket = {};
  ASSERT_NO_FATAL_FAILURE(OpenDatagrams(&socket));
  const xtreme_memory memory = MemoryOf(bytes, &released_);
  xtreme_buffer* buffer = nullptr;
  ASSERT_EQ(xtreme_buffer_register(ring_, &memory, &buffer), 0);
  const xtreme_address peer = Address("10.9.0.1:7000");
  // Before OP_DONE; and bytes beside it after.
  const std::string beside(1'400, 'b');
  ASSERT_GE(Send(socket, &peer, buffer, bytes.data(), 1'400), 0);
  Await(ring_, XTREME_OP_DONE);
  ASSERT_GE(Send(socket, &peer, buffer, beside.data(), beside.size(), XTREME_WANT_DONE), 0);
  EXPECT_EQ(Await(ring_, XTREME_TX_DONE).status, 0);
  EXPECT_EQ(ReceiveDatagram(), std::string(bytes.data(), 1'400));
  EXPECT_EQ(ReceiveDatagram(), beside);
  EXPECT_EQ(xtreme_buffer_release(buffer), 1) << "copies hold no reference";
}

TEST_F(RegisteredTest, WhatAnotherRingReceivedIsCopiedAndGoesBackToIt) {
  xtreme_socket socket = {};
  ASSERT_NO_FATAL_FAILURE(OpenDatagrams(&socket));
  const std::unique_ptr<Ring> other = bed_.OpenRing();
  xtreme_udp_options options = {};
  options.size = sizeof options;
  options.local = Address("*:9001");
  xtreme_socket from = {};
  ASSERT_EQ(xtreme_udp_open(other->handle(), &options, &from), 0);
  ASSERT_EQ(Await(other->handle(), XTREME_OP_DONE).status, 0);
  const std::string text(1'400, 'r');
  const sockaddr_in to{.sin_family = AF_INET,
                       .sin_port = htons(9001),
                       .sin_addr = {inet_addr(e2e::TcpBed::kRingAddress)}};
  ASSERT_EQ(sendto(kernel_, text.data(), text.size(), 0, reinterpret_cast<const sockaddr*>(&to),
                   sizeof to),
            1'400);
  const xtreme_completion packet = Await(other->handle(), XTREME_PACKET);
  ASSERT_EQ(packet.length, 1'400u);
  const xtreme_address peer = Address("10.9.0.1:7000");
  const xtreme_send_options watched = {XTREME_WANT_DONE, 0, 1};
  xtreme_buffer_ref(packet.buffer);
  ASSERT_GE(xtreme_send_buffer(socket, &peer, packet.buffer, packet.data, packet.length, &watched),
            0);
  EXPECT_EQ(Await(ring_, XTREME_TX_DONE).status, 0);
  EXPECT_EQ(ReceiveDatagram(), text);
  EXPECT_EQ(xtreme_buffer_release(packet.buffer), 1) << "the reference was taken over";
}

TEST_F(RegisteredTest, LastReleaseMayBeAnotherThreads) {
  std::vector<char> bytes = Pattern(10'000);
  xtreme_buffer* const buffer = Register(bytes);
  std::thread([buffer] { xtreme_buffer_release(buffer); }).join();
  EXPECT_TRUE(PollUntil([this] { return released_ == 1; }));
}

TEST_F(RegisteredTest, ClosedRingGivesItBackWhenNothingRefersToIt) {
  std::vector<char> bytes = Pattern(500'000);
  KernelTcp peer;
  const xtreme_socket socket = Establish(&peer);
  xtreme_buffer* const buffer = Register(bytes);
  ASSERT_GE(Send(socket, nullptr, buffer, bytes.data(), bytes.size()), 0);
  owner_.reset();
  EXPECT_EQ(xtreme_buffer_data(buffer), reinterpret_cast<uint8_t*>(bytes.data()));
  EXPECT_EQ(released_, 0);
  xtreme_buffer_release(buffer);
  // By the thread that ends the queues.
  for (int i = 0; i < 10'000 && released_ == 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(released_, 1);
}

TEST_F(RegisteredTest, ConnectionThatRefersToItDoesNotMove) {
  std::vector<char> bytes = Pattern(10'000);
  KernelTcp peer;
  const xtreme_socket socket = Establish(&peer);
  const std::unique_ptr<Ring> other = bed_.OpenRing();
  xtreme_buffer* const buffer = Register(bytes);
  ASSERT_GE(Send(socket, nullptr, buffer, bytes.data(), bytes.size(), XTREME_WANT_DONE), 0);
  EXPECT_EQ(xtreme_socket_move(socket, other->handle(), 1), -EBUSY);
  EXPECT_STREQ(xtreme_error(), "move: registered memory is not acknowledged yet");
  Await(ring_, XTREME_TX_DONE);
  EXPECT_EQ(xtreme_socket_move(socket, other->handle(), 1), 0);
  xtreme_buffer_release(buffer);
}

TEST_F(RegisteredTest, WhatCannotBeRegisteredIsSaid) {
  std::vector<char> bytes(100);
  xtreme_buffer* buffer = nullptr;
  xtreme_memory memory = MemoryOf(bytes, &released_);
  memory.length = 0;
  EXPECT_EQ(xtreme_buffer_register(ring_, &memory, &buffer), -EINVAL);
  memory.length = (size_t{1} << 31) + 1;
  EXPECT_EQ(xtreme_buffer_register(ring_, &memory, &buffer), -EINVAL);
  EXPECT_STREQ(xtreme_error(),
               "register memory: 2147483649 bytes asked, 1 to 2147483648 possible");
  // Mapped nowhere.
  memory = {.start = reinterpret_cast<void*>(uintptr_t{4096}), .length = 4096};
  ASSERT_EQ(xtreme_buffer_register(ring_, &memory, &buffer), 0);
  EXPECT_EQ(Await(ring_, XTREME_OP_DONE).status, EINVAL);
  xtreme_buffer_release(buffer);
  EXPECT_EQ(xtreme_buffer_register({}, &memory, &buffer), -EBADF);
  std::vector<xtreme_buffer*> all;
  memory = MemoryOf(bytes, &released_);
  int code = 0;
  while ((code = xtreme_buffer_register(ring_, &memory, &buffer)) == 0) all.push_back(buffer);
  EXPECT_EQ(code, -ENOBUFS);
  EXPECT_GE(all.size(), 63u);
  for (xtreme_buffer* each : all) xtreme_buffer_release(each);
  const int count = static_cast<int>(all.size());
  EXPECT_TRUE(PollUntil([&] { return released_ == count; }));
}

}  // namespace
}  // namespace xtreme::api_test
