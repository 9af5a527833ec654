// SPDX-License-Identifier: Apache-2.0
//
// The pool that what is received and what is sent share: what takes of it leaves what it needs to
// come back.

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "stack/packet/buffer_pool.h"
#include "xtreme/engine/testing/tcp_pair.h"

namespace xtreme::engine::testing {
namespace {

class TcpPoolContractTest : public TcpPairTest {
 protected:
  static constexpr uint32_t kFew = 128;

  TcpPoolContractTest() { options.rx_queue_frames = 64; }

  // Between an end with `a_buffers` and one with few.
  void OpenConnectionOf(uint32_t a_buffers, const TcpSettings& server_settings = {}) {
    options.rx_buffers = a_buffers;
    Open();
    options.rx_buffers = kFew;
    b = std::make_unique<TcpEnd>(MemoryKernel::Link{kB, wire::MacAddress({2, 0, 0, 0, 0, 2}), kA,
                                                    wire::MacAddress({2, 0, 0, 0, 0, 1})},
                                 options, nic_options, &now);
    const TcpSettings settings{.send_queue_bytes = 1 << 20, .congestion = TcpCongestion::kNone};
    TcpSettings of_server = server_settings;
    of_server.send_queue_bytes = settings.send_queue_bytes;
    of_server.congestion = settings.congestion;
    OpenConnection(settings, of_server);
  }

  static std::string Text(size_t length) {
    std::string text(length, ' ');
    for (size_t i = 0; i < length; ++i) text[i] = static_cast<char>('a' + i / 7 % 26);
    return text;
  }

  // Sends pieces until one is refused for want of a buffer: how many were taken.
  static size_t Fill(TcpEnd& end, Handle socket) {
    const std::string piece(kPieceBytes, 'p');
    size_t taken = 0;
    SendResult result = SendResult::kSent;
    while (result == SendResult::kSent || result == SendResult::kQueued) {
      result = end.Send(socket, piece);
      ++taken;
    }
    EXPECT_EQ(result, SendResult::kRefusedBuffers);
    return taken - 1;
  }

  static constexpr size_t kPieceBytes = 1'400;
};

TEST_F(TcpPoolContractTest, ASendOfNoBytesGivesItsBufferBackAndNothingWaitsForIt) {
  OpenConnection(TcpSettings::Of(TcpPreset::kFailFast));
  const uint64_t free = a->Counter("pool", "free");
  packet::Buffer* const buffer = a->ring->AcquireBuffer();
  EXPECT_EQ(a->tcp().Send(a->tcp().Find(client), {.data = buffer->data, .buffer = buffer},
                          {.flags = kSendWantDone}),
            SendResult::kSent);
  EXPECT_EQ(a->Counter("pool", "free"), free);
  Run(5'000'000'000, 10'000'000);
  EXPECT_TRUE(a->got.empty());
  EXPECT_EQ(a->Send(client, "order"), SendResult::kSent);
  Run();
  EXPECT_EQ(b->Bytes(server), "order");
}

TEST_F(TcpPoolContractTest, ASendOfNoBytesIsRefusedWhereNoneIsTaken) {
  OpenConnection();
  ASSERT_TRUE(a->tcp().Shutdown(client).ok());
  packet::Buffer* const buffer = a->ring->AcquireBuffer();
  const uint64_t free = a->Counter("pool", "free");
  EXPECT_EQ(a->tcp().Send(a->tcp().Find(client), {.data = buffer->data, .buffer = buffer}, {}),
            SendResult::kRefusedState);
  EXPECT_EQ(a->Counter("pool", "free"), free) << "the reference is the caller's";
  packet::BufferPool::Release(buffer);
  EXPECT_EQ(a->Send(client, ""), SendResult::kRefusedState);
  EXPECT_EQ(a->Counter("ring", "refused_state"), 2u);
  EXPECT_EQ(b->Send(server, ""), SendResult::kSent) << "the other way is open";
}

TEST_F(TcpPoolContractTest, WhatWouldBeRefusedForWantOfABufferIsSaid) {
  OpenConnection();
  const auto would = [this](size_t length) {
    return a->tcp().WouldSend(a->tcp().Find(client), length);
  };
  EXPECT_EQ(would(3'000), SendResult::kSent);
  std::vector<packet::Buffer*> held;
  while (packet::Buffer* const buffer = a->ring->AcquireBuffer()) held.push_back(buffer);
  EXPECT_EQ(would(3'000), SendResult::kRefusedBuffers);
  EXPECT_EQ(a->Send(client, Text(3'000), {.flags = kNowOrFail}), SendResult::kRefusedBuffers);
  for (packet::Buffer* const buffer : held) packet::BufferPool::Release(buffer);
  EXPECT_EQ(would(3'000), SendResult::kSent);
  EXPECT_EQ(a->Send(client, Text(3'000), {.flags = kNowOrFail}), SendResult::kSent);
}

// What comes after a hole takes no more than a quarter of the ring's buffers: were it all of them,
// what fills the hole could not be received, ever.
TEST_F(TcpPoolContractTest, AHoleLeavesBuffersForWhatFillsIt) {
  OpenConnectionOf(1024);
  // The first segment, four times.
  std::vector<uint8_t> first;
  int lost = 0;
  a->lose = [&](const std::vector<uint8_t>& frame) {
    if (TcpPayloadOf(frame) == 0) return false;
    const std::vector<uint8_t> sequence(frame.begin() + 38, frame.begin() + 42);
    if (first.empty()) first = sequence;
    return sequence == first && ++lost <= 4;
  };
  const std::string text = Text(250'000);
  a->Send(client, text);
  std::string received;
  for (int i = 0; i < 6'000 && received.size() < text.size(); ++i) {
    Run(10'000'000, 1'000'000);
    received += b->Bytes(server);
    b->Clear();
  }
  EXPECT_TRUE(received == text) << received.size();
  EXPECT_GT(b->Counter("tcp", "buffer_limit"), 0u);
}

// What frees buffers that wait to be acknowledged is an acknowledgement: were the last buffer taken
// by a payload that the application holds, none could be received, ever.
TEST_F(TcpPoolContractTest, HeldPayloadLeavesBuffersForAcknowledgements) {
  options.poll_batch = 8;  // The pool is looked at after each poll.
  OpenConnectionOf(1024);
  b->lose = [](const std::vector<uint8_t>& frame) { return TcpPayloadOf(frame) > 0; };
  ASSERT_EQ(b->Send(server, "answer", {.flags = kSendWantDone, .cookie = 7}), SendResult::kSent);
  const std::string text = Text(250'000);
  a->Send(client, text);
  Run(100'000'000, 1'000'000);
  EXPECT_GT(b->Counter("tcp", "no_room"), 0u);
  EXPECT_GE(b->Bytes(server).size(), text.size() / 3) << "and not sooner than it has to";
  EXPECT_TRUE(b->Of(Kind::kTxDone).empty());
  b->lose = nullptr;
  Run(1'000'000'000, 1'000'000);
  EXPECT_EQ(b->Of(Kind::kTxDone).size(), 1u);
  std::string received = b->Bytes(server);
  for (int i = 0; i < 6'000 && received.size() < text.size(); ++i) {
    b->Clear();
    Run(10'000'000, 1'000'000);
    received += b->Bytes(server);
  }
  EXPECT_TRUE(received == text) << received.size();
}

// The same where the application, or sends that wait, have most of the buffers.
TEST_F(TcpPoolContractTest, AHoleLeavesBuffersForWhatFillsItWhereThereAreFew) {
  options.poll_batch = 8;
  OpenConnectionOf(1024);
  std::vector<packet::Buffer*> held;
  while (packet::Buffer* const each = b->ring->AcquireBuffer()) held.push_back(each);
  const std::string early = Text(24 * kPieceBytes);
  a->Send(client, early);
  Run();
  ASSERT_EQ(b->Bytes(server), early);
  int lost = 0;
  a->lose = [&lost](const std::vector<uint8_t>& frame) {
    return TcpPayloadOf(frame) > 0 && ++lost == 1;
  };
  const std::string late = Text(40 * kPieceBytes);
  a->Send(client, late);
  Run(10'000'000'000, 1'000'000);
  EXPECT_GT(b->Counter("tcp", "no_room"), 0u);
  EXPECT_GE(b->Bytes(server).size(), early.size() + 16 * kPieceBytes);
  for (packet::Buffer* const each : held) packet::BufferPool::Release(each);
  Run(100'000'000'000, 10'000'000);
  EXPECT_EQ(b->Bytes(server), early + late);
}

// Two ends that send as much as they may: each takes what the other sends only while it has
// buffers, and has its own again only when the other takes what it sent.
TEST_F(TcpPoolContractTest, SendsLeaveBuffersForWhatThePeerSends) {
  OpenConnectionOf(kFew);
  const std::array<TcpEnd*, 2> ends{a.get(), b.get()};
  const std::array<Handle, 2> sockets{client, server};
  std::array<size_t, 2> sent{};
  std::array<size_t, 2> received{};
  const auto take = [&] {
    for (size_t end = 0; end < 2; ++end) {
      received[end] += ends[end]->Bytes(sockets[end]).size();
      ends[end]->Clear();
    }
  };
  for (int i = 0; i < 2'000; ++i) {
    for (size_t end = 0; end < 2; ++end) sent[end] += Fill(*ends[end], sockets[end]);
    Run(1'000'000, 1'000'000);
    take();
  }
  Run(400'000'000'000, 10'000'000);  // Losses make them wait long.
  take();
  EXPECT_EQ(received[1], sent[0] * kPieceBytes);
  EXPECT_EQ(received[0], sent[1] * kPieceBytes);
}

// The same of what leaves at once, while nothing of it is acknowledged. By its length.
class SendsAtOnceTest : public TcpPoolContractTest, public ::testing::WithParamInterface<size_t> {};

TEST_P(SendsAtOnceTest, LeaveBuffersToo) {
  OpenConnectionOf(512, {.receive_window_bytes = 1 << 20});
  a->Send(client, "The answer tells of the whole window.");
  Run();
  b->lose = [](const std::vector<uint8_t>&) { return true; };
  const std::string piece(GetParam(), 'p');
  size_t taken = 0;
  SendResult result;
  while ((result = a->Send(client, piece, {.flags = kNowOrFail})) == SendResult::kSent) {
    Carry(*a, *b);
    a->Poll();
    ++taken;
  }
  EXPECT_EQ(result, SendResult::kRefusedBuffers);
  EXPECT_EQ(taken, 384u);
  EXPECT_GT(a->Counter("pool", "free"), 0u);
}

INSTANTIATE_TEST_SUITE_P(Lengths, SendsAtOnceTest, ::testing::Values(10, 1'000));

}  // namespace
}  // namespace xtreme::engine::testing
