// SPDX-License-Identifier: Apache-2.0
//
// What a segment made deliverable, and had no room among completions: later polls take it, and what
// it causes then is seen to; or a close drops it, and the peer is told.

#include <gtest/gtest.h>

#include <cerrno>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "stack/base/byte_order.h"
#include "stack/packet/buffer_pool.h"
#include "xtreme/engine/testing/tcp_pair.h"

namespace xtreme::engine::testing {
namespace {

constexpr uint64_t kMillisecond = 1'000'000;

class TcpLateContractTest : public TcpPairTest {
 protected:
  static constexpr int kSegments = 400;  // More than the stack keeps deliverable.
  static constexpr size_t kBytes = 300;  // Too many to be copied together.

  TcpLateContractTest() {
    options.rx_buffers = 4'096;
    options.completions = 64;
    options.tcp_time_wait_ms = 1'000;
  }

  // All but the first, which stays lost until `lose` is taken off; then FIN. b has closed its side.
  void SendBehindAHole() {
    ASSERT_TRUE(b->tcp().Shutdown(server).ok());
    a->lose = [this](const std::vector<uint8_t>& frame) {
      if (TcpPayloadOf(frame) == 0) return false;
      const uint32_t sequence = base::LoadBe32(&frame[14 + 20 + 4]);
      if (!lost_) lost_ = sequence;
      return *lost_ == sequence;
    };
    for (int i = 0; i < kSegments; ++i) {
      ASSERT_EQ(a->Send(client, std::string(kBytes, 'x')), SendResult::kSent) << i;
      Run(100'000);
    }
    ASSERT_TRUE(a->tcp().Shutdown(client).ok());
    Run(3'000 * kMillisecond, kMillisecond);
  }

  // The acknowledgement that opens the connection is lost: ACCEPTED comes with its first bytes, and
  // is taken alone.
  void AcceptWithBytes() {
    Open();
    b->Listen(kPort);
    client = a->Connect({kB, kPort});
    bool answered = false;
    b->lose = [&answered](const std::vector<uint8_t>&) { return std::exchange(answered, true); };
    a->lose = [&answered](const std::vector<uint8_t>& frame) {
      return answered && TcpPayloadOf(frame) == 0;
    };
    Run(kMillisecond);
    ASSERT_EQ(a->Send(client, "hello"), SendResult::kSent);
    now += kMillisecond;
    Carry(*a, *b);
    Completion accepted;
    ASSERT_EQ(b->ring->Poll(&accepted, 1, sizeof accepted), 1u);
    ASSERT_EQ(accepted.kind, Kind::kAccepted);
    server = accepted.socket;
    a->lose = b->lose = nullptr;
  }

  // Bytes and, behind them, the end, which b has not polled yet.
  void SendLastWords() {
    ASSERT_EQ(a->Send(client, "last words"), SendResult::kSent);
    ASSERT_TRUE(a->tcp().Abort(client).ok());
    Carry(*a, *b);
  }

  void ExpectLastWords(const Completion& packet) {
    ASSERT_EQ(packet.kind, Kind::kPacket);
    EXPECT_EQ(std::string(reinterpret_cast<const char*>(packet.data), packet.length),
              "last words");
    packet::BufferPool::ReleaseChain(packet.buffer);
  }

  void ExpectStale(Handle socket) {
    EXPECT_EQ(b->tcp().SetSettings(socket, {}).error, EBADF);
    EXPECT_EQ(b->tcp().Shutdown(socket).error, EBADF);
    EXPECT_EQ(b->tcp().Close(socket).error, EBADF);
    EXPECT_EQ(b->tcp().Find(socket), nullptr) << "which a send looks for";
  }

  void CloseAndExpectResets() {
    ASSERT_TRUE(b->tcp().Close(server).ok());
    Run(kMillisecond);
    ASSERT_EQ(b->Kinds(), std::vector<Kind>{Kind::kTerminated});
    EXPECT_EQ(b->got.back().status, ECONNRESET);
    ASSERT_EQ(a->Of(Kind::kTerminated).size(), 1u);
    EXPECT_EQ(a->Of(Kind::kTerminated)[0].status, ECONNRESET);
  }

 private:
  std::optional<uint32_t> lost_;
};

// FIN, which came before, is taken behind what found no room; no other timer runs then, and nothing
// more comes.
TEST_F(TcpLateContractTest, TimeWaitThatBeganWithWhatWasTakenLateEnds) {
  OpenConnection({.congestion = TcpCongestion::kNone});
  SendBehindAHole();
  ASSERT_TRUE(b->Of(Kind::kPacket).empty());
  bool filled = false;
  a->lose = [&filled](const std::vector<uint8_t>& frame) {
    return TcpPayloadOf(frame) == 0 || std::exchange(filled, true);
  };
  while (b->Of(Kind::kTerminated).empty() && now < 100'000 * kMillisecond) {
    now += kMillisecond;
    Carry(*a, *b);
    Carry(*b, *a);
    a->Poll();
    b->Poll(2);
  }
  EXPECT_EQ(b->Bytes(server).size(), kSegments * kBytes);
  EXPECT_EQ(b->Counter("tcp", "time_wait_entered"), 1u);
  Run(2'000 * kMillisecond, kMillisecond);
  EXPECT_EQ(b->Counter("tcp", "time_wait_expired"), 1u);
}

// A handler of the bytes can do nothing with the handle, and has the bytes.
TEST_F(TcpLateContractTest, AHandleIsStaleFromThePollThatHandsItsTerminatedOut) {
  OpenConnection();
  SendLastWords();
  Completion batch[2];
  ASSERT_EQ(b->ring->Poll(batch, 2, sizeof(Completion)), 2u);
  ExpectLastWords(batch[0]);
  ASSERT_EQ(batch[1].kind, Kind::kTerminated);
  ExpectStale(server);
}

TEST_F(TcpLateContractTest, AHandleIsGoodWhileItsTerminatedWaits) {
  OpenConnection();
  SendLastWords();
  Completion completion;
  ASSERT_EQ(b->ring->Poll(&completion, 1, sizeof completion), 1u);
  ExpectLastWords(completion);
  EXPECT_TRUE(b->tcp().SetSettings(server, {}).ok());
  ASSERT_EQ(b->ring->Poll(&completion, 1, sizeof completion), 1u);
  ASSERT_EQ(completion.kind, Kind::kTerminated);
  ExpectStale(server);
}

TEST_F(TcpLateContractTest, CloseWithBytesThatWaitInTheStackIsAReset) {
  AcceptWithBytes();
  CloseAndExpectResets();
  EXPECT_EQ(b->Counter("tcp", "unread"), 1u);
}

TEST_F(TcpLateContractTest, CloseWithBytesThatWaitAmongCompletionsIsAReset) {
  AcceptWithBytes();
  Completion none;
  ASSERT_EQ(b->ring->Poll(&none, 0, sizeof none), 0u);
  CloseAndExpectResets();
  EXPECT_EQ(b->Counter("drop", "closed"), 1u);
}

}  // namespace
}  // namespace xtreme::engine::testing
