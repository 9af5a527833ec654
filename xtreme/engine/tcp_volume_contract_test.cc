// SPDX-License-Identifier: Apache-2.0
//
// More bytes on one connection than a number of 32 bits counts: sequence numbers go around once and
// more, and counts, window and credit go on.

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <string>
#include <string_view>

#include "stack/packet/buffer.h"
#include "xtreme/engine/tcp_socket.h"
#include "xtreme/engine/testing/tcp_pair.h"

namespace xtreme::engine::testing {
namespace {

class TcpVolumeContractTest : public TcpPairTest {
 protected:
  static constexpr uint64_t kBytes = (uint64_t{1} << 32) + (1 << 28);
  // Bytes that come again after a prime number of them, twice and a piece more.
  static constexpr size_t kPeriod = 65'521;
  static constexpr size_t kPiece = 32'768;
  static constexpr uint64_t kStepNs = 20'000;
  static constexpr int kPatience = 100'000;  // Steps that bring nothing.

  TcpVolumeContractTest() {
    nic_options.mtu = 9'000;
    std::mt19937 random(3);
    for (size_t i = 0; i < kPeriod; ++i) bytes_.push_back(static_cast<char>(random()));
    bytes_ += bytes_;
  }

  // As many as are taken now.
  void Send() {
    while (sent_ < kBytes) {
      const size_t piece = std::min<uint64_t>(kPiece, kBytes - sent_);
      const SendResult result =
          a->Send(client, std::string_view(bytes_).substr(sent_ % kPeriod, piece));
      if (result != SendResult::kSent && result != SendResult::kQueued) return;
      sent_ += piece;
    }
  }
  // Whether they are those that were sent.
  bool Receive() {
    for (const Completion& packet : b->Of(Kind::kPacket)) {
      for (const packet::Buffer* link = packet.buffer; link != nullptr; link = link->next) {
        const std::string_view got(reinterpret_cast<const char*>(link->data), link->length);
        if (got.size() > kPeriod) return false;
        if (got != std::string_view(bytes_).substr(received_ % kPeriod, got.size())) return false;
        received_ += got.size();
      }
    }
    b->Clear();
    return true;
  }
  void Step() {
    now += kStepNs;
    Carry(*a, *b);
    b->Poll();
    Carry(*b, *a);
    a->Poll();
    a->Clear();
    for (TcpEnd* end : {a.get(), b.get()}) end->queue().ForgetSent(end->carried);
  }

  std::string bytes_;
  uint64_t sent_ = 0;
  uint64_t received_ = 0;
};

TEST_F(TcpVolumeContractTest, BeyondFourGibibytesBytesCountsAndWindowGoOn) {
  OpenConnection({.congestion = TcpCongestion::kNone});
  int idle = 0;
  while (received_ < kBytes && idle < kPatience) {
    Send();
    Step();
    const uint64_t before = received_;
    ASSERT_TRUE(Receive()) << "other bytes behind " << received_;
    idle = received_ == before ? idle + 1 : 0;
  }
  ASSERT_EQ(received_, kBytes);
  EXPECT_EQ(a->tcp().Find(client)->counters.sent_bytes, kBytes);
  EXPECT_EQ(b->tcp().Find(server)->counters.received_bytes, kBytes);
  EXPECT_EQ(a->Counter("tcp", "retransmits"), 0u);
  // The other way, and to the end.
  ASSERT_EQ(b->Send(server, "that was much"), SendResult::kSent);
  Run();
  EXPECT_EQ(a->Bytes(client), "that was much");
  a->Clear();
  a->tcp().Close(client);
  Run();
  EXPECT_EQ(b->Of(Kind::kPeerClosed).size(), 1u);
  b->tcp().Close(server);
  Run();
  ASSERT_EQ(a->Of(Kind::kTerminated).size(), 1u);
  EXPECT_EQ(a->Of(Kind::kTerminated)[0].status, 0);
}

}  // namespace
}  // namespace xtreme::engine::testing
