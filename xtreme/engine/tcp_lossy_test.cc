// SPDX-License-Identifier: Apache-2.0
//
// Many connections at once between two rings, over a wire that loses, repeats and reorders, with
// owners that stall and polls of any size: each connection carries its own bytes both ways, to the
// last one and to its end. All of it follows from the seed.

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "stack/tcp/connection.h"
#include "xtreme/engine/tcp_socket.h"
#include "xtreme/engine/testing/tcp_pair.h"

namespace xtreme::engine::testing {
namespace {

constexpr uint32_t kConnections = 64;
constexpr uint32_t kSeeds = 8;
constexpr int kSteps = 600'000;  // A minute.
constexpr uint64_t kStepNs = 100'000;
constexpr uint32_t kLongestStall = 3'000;  // In steps.

// What an end of the connection from the client's `port` sends.
std::string BytesOf(uint16_t port, bool is_client) {
  std::string bytes(is_client ? 5'000 : 3'000, 0);
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<char>(port * 7 + i * 31 + i / 251);
  }
  return bytes;
}

// One end of a connection.
struct Stream {
  std::string to_send;
  std::string expected;
  std::string received;
  size_t sent = 0;
  bool blocked = false;
  bool shut_down = false;
  bool ended = false;
  int terminated = -1;  // The status.
};

// One ring's.
struct Side {
  TcpEnd* end = nullptr;
  bool is_client = false;
  std::map<Handle, Stream> streams;
  std::vector<std::vector<uint8_t>> held;  // Frames that others overtake.
  uint32_t stalls = 0;                     // For so many steps.
};

class TcpLossyTest : public TcpPairTest, public ::testing::WithParamInterface<uint32_t> {
 protected:
  TcpLossyTest() : random_(GetParam()) {
    options.rx_queue_frames = 512;
    options.rx_buffers = 4096;
    options.tx_queue_frames = 512;
    Open();
    sides_[0] = {.end = a.get(), .is_client = true};
    sides_[1] = {.end = b.get()};
  }

  bool OneIn(uint32_t n) { return random_() % n == 0; }

  void CarryBadly(Side& from, TcpEnd& to) {
    MemoryQueuePair& queue = from.end->queue();
    for (const auto& frame : std::exchange(from.held, {})) to.nic->Deliver(frame, now);
    for (; from.end->carried < queue.visible(); ++from.end->carried) {
      for (std::vector<uint8_t>& frame : queue.sent()[from.end->carried].Cut()) {
        if (OneIn(20)) continue;
        if (OneIn(50)) to.nic->Deliver(frame, now);
        if (OneIn(50)) {
          from.held.push_back(std::move(frame));
          continue;
        }
        to.nic->Deliver(frame, now);
      }
    }
    if (!OneIn(10)) queue.CompleteSends(now);
  }

  void PollUnlessStalled(Side& side) {
    if (side.stalls > 0) {
      --side.stalls;
      return;
    }
    if (OneIn(500)) side.stalls = random_() % kLongestStall;
    side.end->Poll(1 + random_() % 64);
    for (const Completion& completion : side.end->got) Take(side, completion);
    side.end->Clear();
  }

  void Take(Side& side, const Completion& completion) {
    if (completion.socket == 0) return;  // The ring's own: it ran out of posted buffers.
    Stream& stream = side.streams[completion.socket];
    const TcpSocket* const socket = side.end->tcp().Find(completion.socket);
    switch (completion.kind) {
      case Kind::kAccepted:
        Begin(side, completion.source_port, &stream);
        break;
      case Kind::kEstablished:
        Begin(side, socket->connection->flow_key().local().port, &stream);
        break;
      case Kind::kPacket:
        for (const packet::Buffer* link = completion.buffer; link != nullptr; link = link->next) {
          stream.received.append(reinterpret_cast<const char*>(link->data), link->length);
        }
        break;
      case Kind::kPeerClosed: stream.ended = true; break;
      case Kind::kTxSpace: stream.blocked = false; break;
      case Kind::kTerminated:
        stream.terminated = completion.status;
        ++terminated_;
        return;
      default: ADD_FAILURE() << static_cast<int>(completion.kind);
    }
    GoOn(*side.end, completion.socket, &stream);
  }

  static void Begin(const Side& side, uint16_t port, Stream* stream) {
    stream->to_send = BytesOf(port, side.is_client);
    stream->expected = BytesOf(port, !side.is_client);
  }

  static void GoOn(TcpEnd& end, Handle handle, Stream* stream) {
    while (!stream->blocked && stream->sent < stream->to_send.size()) {
      const auto left = std::span(stream->to_send).subspan(stream->sent);
      SendResult result;
      stream->sent += end.tcp().SendSome(
          end.tcp().Find(handle), {reinterpret_cast<const uint8_t*>(left.data()), left.size()}, {},
          &result);
      stream->blocked = result != SendResult::kSent && result != SendResult::kQueued;
    }
    if (stream->sent == stream->to_send.size() && !stream->shut_down) {
      stream->shut_down = true;
      EXPECT_TRUE(end.tcp().Shutdown(handle).ok());
    }
    // Of a stale handle when its end came with the same poll.
    if (stream->ended && stream->shut_down) end.tcp().Close(handle);
  }

  std::mt19937 random_;
  Side sides_[2];
  uint32_t terminated_ = 0;
};

TEST_P(TcpLossyTest, EveryConnectionCarriesItsBytesToItsEnd) {
  const TcpSettings settings{.min_rto = base::Milliseconds(20)};
  Handle listening = 0;
  EXPECT_TRUE(b->tcp()
                  .OpenListener({.local = {{}, kPort}, .backlog = kConnections,
                                 .settings = settings}, &listening)
                  .ok());
  b->Settle();
  b->Clear();
  for (uint32_t i = 0; i < kConnections; ++i) a->Connect({kB, kPort}, settings);
  for (int step = 0; step < kSteps && terminated_ < 2 * kConnections; ++step) {
    now += kStepNs;
    CarryBadly(sides_[0], *b);
    CarryBadly(sides_[1], *a);
    PollUnlessStalled(sides_[0]);
    PollUnlessStalled(sides_[1]);
  }
  for (const Side& side : sides_) {
    EXPECT_EQ(side.streams.size(), kConnections);
    for (const auto& [handle, stream] : side.streams) {
      EXPECT_EQ(stream.terminated, 0);
      EXPECT_TRUE(stream.ended);
      EXPECT_EQ(stream.received.size(), stream.expected.size());
      EXPECT_TRUE(stream.received == stream.expected);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, TcpLossyTest, ::testing::Range(0u, kSeeds));

}  // namespace
}  // namespace xtreme::engine::testing
