// SPDX-License-Identifier: Apache-2.0
//
// xtreme.h: connections that move from ring to ring: a program that accepts on one thread and
// serves on another, against the kernel's TCP at the other end of a veth.

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "api/xtreme.h"
#include "api/xtreme.hpp"
#include "gtest/gtest.h"
#include "tests/e2e/tcp_bed.h"
#include "tests/net/kernel_tcp.h"

namespace xtreme::api_test {
namespace {

using e2e::Await;
using net::KernelTcp;

constexpr uint64_t kCookie = 17;
constexpr int64_t kLongNs = 60'000'000'000;  // What takes longer will not come.

class MoveTest : public testing::Test {
 protected:
  void SetUp() override {
    const absl::Status made = bed_.Make(1);
    ASSERT_TRUE(made.ok()) << made;
    accepting_owner_ = bed_.OpenRing();
    serving_owner_ = bed_.OpenRing();
    ASSERT_NE(accepting_owner_, nullptr);
    ASSERT_NE(serving_owner_, nullptr);
    accepting_ = accepting_owner_->handle();
    serving_ = serving_owner_->handle();
  }

  xtreme_socket Listen() {
    xtreme_tcp_options options = {};
    options.size = sizeof options;
    options.user_data = 5;
    EXPECT_EQ(xtreme_address_parse(":7000", &options.local), 0);
    xtreme_socket socket = {};
    EXPECT_EQ(xtreme_tcp_listen(accepting_, &options, &socket), 0) << xtreme_error();
    EXPECT_EQ(Await(accepting_, XTREME_OP_DONE).status, 0);
    return socket;
  }
  KernelTcp ConnectInKernel() {
    const net::Namespace::Inside inside(bed_.kernel());
    return KernelTcp::Connect(e2e::TcpBed::kRingAddress, 7000);
  }

  e2e::TcpBed bed_;
  std::unique_ptr<Ring> accepting_owner_;
  std::unique_ptr<Ring> serving_owner_;
  xtreme_ring accepting_ = {};
  xtreme_ring serving_ = {};
};

// What TCP of a ring has counted, for the words of a failure.
std::string Counted(const Ring& ring) {
  std::string text;
  for (const xtreme_counter& each : ring.Counters()) {
    if (each.value == 0 || std::string(each.scope) == "queue") continue;
    text += std::string(each.name) + " " + std::to_string(each.value) + ", ";
  }
  return text;
}

// Sends back what comes, on a thread that owns its ring, until `connections` have ended.
class EchoServer {
 public:
  EchoServer(xtreme_ring ring, int connections) : ring_(ring), connections_(connections) {}

  void Run() {
    EXPECT_EQ(xtreme_ring_adopt(ring_), 0);
    const int64_t end_ns = xtreme_ring_now(ring_) + kLongNs;
    while (ended < connections_ && xtreme_ring_now(ring_) < end_ns) {
      xtreme_completion completions[16];
      const int count =
          xtreme_ring_wait(ring_, completions, 16, sizeof completions[0], 10'000'000);
      for (int i = 0; i < count; ++i) Take(completions[i]);
    }
  }

  int arrived = 0;
  int ended = 0;
  int wrong = 0;  // Against the contract.

 private:
  void Take(xtreme_completion& completion) {
    switch (completion.kind) {
      case XTREME_ARRIVED:
        ++arrived;
        wrong += completion.cookie != kCookie || completion.user_data != 5;
        break;
      case XTREME_PACKET:
        Echo(completion);
        break;
      case XTREME_PEER_CLOSED:
        wrong += xtreme_socket_close(completion.socket, 0) != 0;
        break;
      case XTREME_TERMINATED:
        ++ended;
        wrong += completion.status != 0;
        break;
    }
  }
  void Echo(xtreme_completion& packet) {
    std::string bytes(packet.length, 0);
    xtreme_copy_out(&packet, bytes.data(), bytes.size());
    wrong += xtreme_send(packet.socket, bytes.data(), bytes.size(), nullptr) < 0;
    xtreme_release(&packet, 1, sizeof packet);
  }

  const xtreme_ring ring_;
  const int connections_;
};

TEST_F(MoveTest, AThreadAcceptsAndAnotherServes) {
  constexpr int kConnections = 4;
  Listen();
  std::vector<KernelTcp> peers;
  for (int i = 0; i < kConnections; ++i) peers.push_back(ConnectInKernel());
  EchoServer server(serving_, kConnections);
  std::atomic<bool> served{false};
  std::thread serving([&] {
    server.Run();
    served = true;
  });
  std::string text;
  for (int i = 0; i < 40'000; ++i) text += static_cast<char>('a' + i % 23);
  std::promise<void> moved;
  std::thread talking([&] {
    // From here on nothing is told on the ring that accepted, though frames still come to it.
    moved.get_future().wait();
    for (KernelTcp& peer : peers) peer.Send(text);
    for (KernelTcp& peer : peers) EXPECT_EQ(peer.Receive(text.size()), text);
    for (KernelTcp& peer : peers) {
      peer.ShutDown();
      EXPECT_EQ(peer.ReceiveEnd(), "");
    }
  });
  int accepted = 0, departed = 0;
  uint64_t early = 0;
  const int64_t end_ns = xtreme_ring_now(accepting_) + kLongNs;
  // Its thread goes on polling: what still comes here is passed on.
  while (!served && xtreme_ring_now(accepting_) < end_ns) {
    xtreme_completion completion = {};
    if (xtreme_ring_wait(accepting_, &completion, 1, sizeof completion, 1'000'000) < 1) continue;
    if (completion.kind == XTREME_ACCEPTED) {
      ++accepted;
      EXPECT_EQ(xtreme_socket_move(completion.socket, serving_, kCookie), 0) << xtreme_error();
      EXPECT_EQ(xtreme_socket_move(completion.socket, serving_, kCookie), -EBADF);
      if (accepted == kConnections) moved.set_value();
    }
    departed += completion.kind == XTREME_DEPARTED;
    early += completion.kind == XTREME_PACKET ? completion.length : 0;
    xtreme_release(&completion, 1, sizeof completion);
  }
  if (accepted < kConnections) moved.set_value();
  talking.join();
  serving.join();
  ASSERT_EQ(xtreme_ring_adopt(serving_), 0);
  EXPECT_EQ(accepted, kConnections);
  EXPECT_EQ(departed, kConnections);
  EXPECT_EQ(early, 0u);
  EXPECT_EQ(server.arrived, kConnections);
  EXPECT_EQ(server.ended, kConnections)
      << Counted(*accepting_owner_) << "\n" << Counted(*serving_owner_);
  EXPECT_EQ(server.wrong, 0);
}

TEST_F(MoveTest, WhatCannotMoveSaysWhy) {
  const xtreme_socket listener = Listen();
  const KernelTcp peer = ConnectInKernel();
  TcpSocket accepted(Await(accepting_, XTREME_ACCEPTED).socket);
  EXPECT_EQ(xtreme_socket_move(listener, serving_, 0), -ENOTCONN);
  EXPECT_EQ(xtreme_socket_move(accepted.handle(), accepting_, 0), -EINVAL);
  EXPECT_STREQ(xtreme_error(), "move: the connection is on that ring");
  EXPECT_EQ(xtreme_socket_move(accepted.handle(), {}, 0), -EBADF);
  EXPECT_EQ(xtreme_socket_move({}, serving_, 0), -EBADF);
  ASSERT_TRUE(accepted.MoveTo(serving_, kCookie));
  EXPECT_FALSE(accepted.is_open());
  EXPECT_EQ(Await(serving_, XTREME_ARRIVED).cookie, kCookie);
  EXPECT_EQ(Await(accepting_, XTREME_DEPARTED).status, 0);
}

}  // namespace
}  // namespace xtreme::api_test
