// SPDX-License-Identifier: Apache-2.0
//
// A ring is given new queues again and again while the kernel's TCP sends to it: no segment may
// reach the kernel beside the ring, which knows no such connection and would reset it.

#include <cstdint>
#include <future>
#include <memory>
#include <string>

#include "gtest/gtest.h"
#include "tests/e2e/tcp_bed.h"
#include "tests/net/kernel_tcp.h"

namespace xtreme::e2e {
namespace {

using net::KernelTcp;

constexpr uint16_t kPort = 7'000;
constexpr uint64_t kResetCookie = 77;
constexpr size_t kPieceBytes = 16 * 1024;
constexpr int kPieces = 128;

class TcpResetTest : public testing::Test {
 protected:
  // A ring with so much of the device's on-device memory.
  void Open(uint64_t of_device, uint32_t of_ring) {
    const absl::Status status = bed_.Make(/*seed=*/1, /*flow_rules=*/65'536, of_device);
    ASSERT_TRUE(status.ok()) << status;
    ring_ = bed_.OpenRing(
        TcpBed::Options().Set("device_memory", std::to_string(of_ring).c_str()));
    ASSERT_NE(ring_, nullptr);
    ASSERT_EQ(DeviceMemory(), of_ring);
  }
  uint64_t DeviceMemory() {
    for (const xtreme_counter& counter : ring_->Counters()) {
      if (std::string(counter.name) == "device_memory_bytes") return counter.value;
    }
    return ~uint64_t{0};
  }

  // Sends, is told the end, and says what the end was.
  std::string SendAll() {
    const net::Namespace::Inside inside(bed_.kernel());
    KernelTcp peer = KernelTcp::Connect(TcpBed::kRingAddress, kPort);
    const std::string piece(kPieceBytes, 'x');
    for (int i = 0; i < kPieces && !testing::Test::HasFailure(); ++i) peer.Send(piece);
    peer.ShutDown();
    return peer.ReceiveEnd();
  }

  void Reset() {
    if (!resetting_) resetting_ = ring_->Reset(kResetCookie).ok();
  }

  void On(const Completion& completion) {
    if (completion.kind() == kOpDone && completion.cookie == kResetCookie) {
      EXPECT_EQ(completion.status, 0) << completion.text;
      resetting_ = false;
      ++resets_;
    }
    if (completion.kind() == kPacket) {
      received_ += completion.length;
      Reset();
    }
    if (completion.kind() == kPeerClosed) xtreme_socket_close(completion.socket, 0);
    if (completion.kind() == kTerminated) {
      EXPECT_EQ(completion.status, 0);
      ended_ = true;
    }
  }

  // All that the kernel sends is received, whatever is reset meanwhile.
  void ExpectThatAConnectionSurvives();

  TcpBed bed_;
  std::unique_ptr<Ring> ring_;
  bool resetting_ = false;
  bool ended_ = false;
  int resets_ = 0;
  uint64_t received_ = 0;
};

void TcpResetTest::ExpectThatAConnectionSurvives() {
  auto listener = ring_->ListenTcp({.local = ":" + std::to_string(kPort)});
  ASSERT_TRUE(listener.ok()) << listener.error().message;
  ASSERT_EQ(Await(ring_->handle(), XTREME_OP_DONE).status, 0);
  auto peer = std::async(std::launch::async, [this] { return SendAll(); });
  const int64_t end_ns = ring_->now_ns() + 50'000'000'000;
  while (!ended_ && ring_->now_ns() < end_ns) {
    for (const Completion& completion : ring_->Wait(20'000'000)) On(completion);
  }
  EXPECT_EQ(peer.get(), "");
  EXPECT_EQ(received_, kPieceBytes * kPieces);
  EXPECT_GT(resets_, 1);
}

TEST_F(TcpResetTest, AConnectionSurvivesResetsUnderTraffic) {
  Open(/*of_device=*/131'072, /*of_ring=*/0);
  ExpectThatAConnectionSurvives();
}

// There is no room for the new queues beside the old ones: these go first.
TEST_F(TcpResetTest, AConnectionSurvivesResetsWhereTheDeviceHasNoMemoryForBothQueues) {
  Open(/*of_device=*/32'768, /*of_ring=*/32'768);
  ExpectThatAConnectionSurvives();
  EXPECT_EQ(DeviceMemory(), 32'768u);
}

}  // namespace
}  // namespace xtreme::e2e
