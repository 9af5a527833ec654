// SPDX-License-Identifier: Apache-2.0
//
// TX_SPACE: once after sends were refused, and true when it is handed out.

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "stack/packet/buffer_pool.h"
#include "xtreme/engine/ring_core.h"
#include "xtreme/engine/ring_lane.h"
#include "xtreme/engine/testing/tcp_pair.h"
#include "xtreme/engine/udp.h"

namespace xtreme::engine::testing {
namespace {

using TcpSpaceContractTest = TcpPairTest;

TEST_F(TcpSpaceContractTest, TxSpaceComesOnceAfterARefusal) {
  TcpSettings small;
  small.send_queue_bytes = 4'000;
  OpenConnection(small);
  EXPECT_EQ(a->Send(client, std::string(4'000, 'x')), SendResult::kSent);
  EXPECT_EQ(a->Send(client, std::string(3'000, 'y')), SendResult::kRefusedWindow);
  EXPECT_TRUE(a->got.empty());
  Run();
  EXPECT_EQ(a->Kinds(), std::vector<Kind>{Kind::kTxSpace});
  EXPECT_EQ(a->Send(client, std::string(3'000, 'y')), SendResult::kSent);
  Run();
  EXPECT_EQ(a->got.size(), 1u);
  EXPECT_EQ(b->Bytes(server), std::string(4'000, 'x') + std::string(3'000, 'y'));
}

// Refused for a buffer; when there are some the queue is full.
TEST_F(TcpSpaceContractTest, OneThatWaitsForABufferAndThenForTheQueueComes) {
  options.tx_queue_frames = 64;
  OpenConnection();
  Handle udp = 0;
  ASSERT_TRUE(a->ring->udp().Open({.local = {kA, 9001}}, &udp).ok());
  Run();
  a->Clear();
  std::vector<packet::Buffer*> taken;
  while (packet::Buffer* const each = a->ring->AcquireBuffer()) taken.push_back(each);
  EXPECT_EQ(a->Send(client, "x", {.flags = kNowOrFail}), SendResult::kRefusedBuffers);
  a->complete_sends = false;
  const uint8_t byte = 0;
  const auto send = [&] {
    return a->ring->udp().SendTo(a->ring->udp().Find(udp), {kB, 9000},
                                 {.data = &byte, .length = 1}, {});
  };
  while (send() == SendResult::kSent) {
  }
  for (packet::Buffer* const each : taken) packet::BufferPool::Release(each);
  Run();
  EXPECT_TRUE(a->Of(Kind::kTxSpace).empty());
  a->complete_sends = true;
  Run();
  EXPECT_EQ(a->Of(Kind::kTxSpace).size(), 1u);
  EXPECT_EQ(a->Send(client, "x", {.flags = kNowOrFail}), SendResult::kSent);
}

// Of a connection that had no timer before.
TEST_F(TcpSpaceContractTest, WhatWaitedForTheQueueIsSentAgainIfItIsLost) {
  options.tx_queue_frames = 64;
  OpenConnection();
  Handle udp = 0;
  ASSERT_TRUE(a->ring->udp().Open({.local = {kA, 9001}}, &udp).ok());
  Run(1'000'000'000, 10'000'000);
  a->complete_sends = false;
  const uint8_t byte = 0;
  const auto send = [&] {
    return a->ring->udp().SendTo(a->ring->udp().Find(udp), {kB, 9000},
                                 {.data = &byte, .length = 1}, {});
  };
  while (send() == SendResult::kSent) {
  }
  ASSERT_EQ(a->Send(client, "order"), SendResult::kQueued);
  EXPECT_EQ(a->tcp().WouldSend(a->tcp().Find(client), 0), SendResult::kSent);
  EXPECT_EQ(a->Send(client, "", {.flags = kNowOrFail}), SendResult::kSent);
  Run(1'000'000'000, 10'000'000);
  int lost = 0;
  a->lose = [&lost](const std::vector<uint8_t>& frame) {
    return TcpPayloadOf(frame) == 5 && lost++ == 0;
  };
  a->complete_sends = true;
  Run(1'000'000'000, 10'000'000);
  EXPECT_GT(lost, 0);
  EXPECT_EQ(b->Bytes(server), "order");
}

// A small segment that waits takes a place in the queue of its own as what is sent lets it go.
TEST_F(TcpSpaceContractTest, WhatWaitsIsCountedBySegmentsWhereTheQueueHasFewPlaces) {
  options.tx_queue_frames = 64;
  OpenConnection({.congestion = TcpCongestion::kNone}, {.receive_window_bytes = 1 << 20});
  a->Send(client, "The answer tells of the whole window.");
  Run();
  TcpReport report;
  ASSERT_TRUE(a->tcp().Report(client, &report));
  ASSERT_EQ(a->Send(client, "small", {.flags = kMore | kSendWantDone}), SendResult::kQueued);
  a->complete_sends = false;
  const uint32_t room = a->ring->core().SendRoom();
  ASSERT_LE(room, 64u);
  const std::vector<uint8_t> bytes(size_t{100} * report.mss, 'x');
  TcpSocket* const socket = a->tcp().Find(client);
  EXPECT_EQ(a->tcp().WouldSend(socket, (room - 1) * report.mss), SendResult::kSent);
  EXPECT_EQ(a->tcp().WouldSend(socket, (room - 1) * report.mss + 1), SendResult::kRefusedSqFull);
  SendResult result;
  EXPECT_EQ(a->tcp().SendSome(socket, bytes, {.flags = kNowOrFail | kSendWantDone}, &result),
            (room - 1) * report.mss);
  EXPECT_EQ(result, SendResult::kSent);
}

// Refused, with TX_SPACE waiting behind other completions, and refused again.
class TxSpaceThatWaitsTest : public TcpPairTest {
 protected:
  static constexpr size_t kPosted = 32;

  void SetUp() override {
    TcpSettings small;
    small.send_queue_bytes = 4'000;
    OpenConnection(small);
    RefuseAndAcknowledge();
    const auto lane = a->ring->OpenLane();
    for (size_t i = 0; i < kPosted; ++i) ASSERT_EQ(lane->Post(i), 0);
    PollSingly(8);
    EXPECT_EQ(a->Kinds(), std::vector<Kind>(8, Kind::kPosted));
    a->Clear();
  }
  void RefuseAndAcknowledge() {
    EXPECT_EQ(a->Send(client, std::string(4'000, 'x')), SendResult::kSent);
    EXPECT_EQ(a->Send(client, std::string(3'000, 'y')), SendResult::kRefusedWindow);
    Carry(*a, *b);
    b->Poll();
    Carry(*b, *a);
  }
  void PollSingly(size_t polls) {
    for (size_t i = 0; i < polls; ++i) {
      Completion one;
      if (a->ring->Poll(&one, 1, sizeof(one)) != 0) a->got.push_back(one);
    }
  }
};

TEST_F(TxSpaceThatWaitsTest, IsNotToldWhereThereIsNoRoomAgain) {
  EXPECT_EQ(a->Send(client, std::string(4'000, 'x')), SendResult::kSent);
  EXPECT_EQ(a->Send(client, std::string(3'000, 'y')), SendResult::kRefusedWindow);
  a->Poll();
  EXPECT_EQ(a->Kinds(), std::vector<Kind>(kPosted - 8, Kind::kPosted));
  a->Clear();
  Run();
  EXPECT_EQ(a->Kinds(), std::vector<Kind>{Kind::kTxSpace});
}

TEST_F(TxSpaceThatWaitsTest, IsNotToldWhereWhatWasSentTookTheRoom) {
  EXPECT_EQ(a->Send(client, std::string(4'000, 'x')), SendResult::kSent);
  a->Poll();
  EXPECT_EQ(a->Kinds(), std::vector<Kind>(kPosted - 8, Kind::kPosted));
  a->Clear();
  Run();
  EXPECT_EQ(a->Kinds(), std::vector<Kind>{Kind::kTxSpace});
}

TEST_F(TxSpaceThatWaitsTest, IsToldOnceThoughThereWasNoRoomMeanwhile) {
  RefuseAndAcknowledge();
  PollSingly(8);
  EXPECT_EQ(a->Send(client, std::string(3'000, 'y')), SendResult::kSent) << "there is room";
  Run();
  EXPECT_EQ(a->Of(Kind::kTxSpace).size(), 1u);
  EXPECT_EQ(a->Of(Kind::kPosted).size(), kPosted - 8);
}

TEST_F(TxSpaceThatWaitsTest, IsNotToldWhereThePeerHasResetTheConnection) {
  ASSERT_TRUE(b->tcp().Abort(server).ok());
  Carry(*b, *a);
  PollSingly(1);
  a->Poll();
  EXPECT_EQ(a->Of(Kind::kTerminated).size(), 1u);
  EXPECT_TRUE(a->Of(Kind::kTxSpace).empty());
}

TEST_F(TxSpaceThatWaitsTest, IsNotToldWhereItWasShut) {
  ASSERT_TRUE(a->tcp().Shutdown(client).ok());
  Run();
  EXPECT_TRUE(a->Of(Kind::kTxSpace).empty());
}

}  // namespace
}  // namespace xtreme::engine::testing
