// SPDX-License-Identifier: Apache-2.0
//
// The contract of short sends over TCP on a queue that takes them from registers: they are what a
// send by a call would be.

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "stack/base/byte_order.h"
#include "stack/wire/tcp.h"
#include "xtreme/engine/ring_core.h"
#include "xtreme/engine/testing/tcp_pair.h"
#include "xtreme/nic/stream_post.h"

namespace xtreme::engine::testing {
namespace {

constexpr uint64_t kMillisecond = 1'000'000;

class TcpDirectContractTest : public TcpPairTest {
 protected:
  static constexpr size_t kTcp = 14 + 20;  // Of the TCP header in a frame.

  void OpenDirect(const TcpSettings& settings = {}) {
    OpenConnection(settings);
    a->queue().TakeDirectPosts();
  }
  // Frames that left so.
  uint32_t Direct() { return a->queue().direct_posts(); }
  // The frame of a send that leaves at once. What is to be told of it takes the other way.
  SentFrame FrameOf(const std::string& payload, uint32_t flags) {
    EXPECT_EQ(a->Send(client, payload, {.flags = flags}), SendResult::kSent);
    const SentFrame frame = a->queue().sent().back();
    Run();
    a->ring->core().Reap();  // A queue that is full takes none so.
    return frame;
  }
  static std::string Payload(size_t length) {
    std::string payload(length, ' ');
    std::iota(payload.begin(), payload.end(), static_cast<char>(length));
    return payload;
  }
  // Of each length, by a call, then directly, then with what else is due; in the option of
  // timestamps, if there is one, only the time may differ.
  void CompareEveryLength(bool timestamps) {
    constexpr uint32_t kLongest = nic::StreamSegment::kMostPayloadBytes;
    TcpSettings settings;
    settings.timestamps = timestamps;
    OpenDirect(settings);
    std::string all;
    for (uint32_t length = 1; length <= kLongest + 20; ++length) {
      const std::string payload = Payload(length);
      const SentFrame called = FrameOf(payload, kSendWantDone);
      const uint32_t before = Direct();
      SentFrame direct = FrameOf(payload, 0);
      EXPECT_EQ(Direct() - before, length <= kLongest ? 1u : 0u) << length;
      EXPECT_EQ(base::LoadBe32(&direct.bytes[kTcp + 4]),
                base::LoadBe32(&called.bytes[kTcp + 4]) + length);
      std::copy_n(&called.bytes[kTcp + 4], 4, &direct.bytes[kTcp + 4]);
      if (timestamps) std::copy_n(&called.bytes[kTcp + 24], 8, &direct.bytes[kTcp + 24]);
      ASSERT_EQ(direct.bytes, called.bytes) << length;
      EXPECT_EQ(direct.flags, called.flags);
      const uint32_t due_before = a->queue().due_posts();
      a->queue().BeDue();
      SentFrame due = FrameOf(payload, 0);
      EXPECT_EQ(a->queue().due_posts() - due_before, length <= kLongest ? 1u : 0u) << length;
      EXPECT_EQ(base::LoadBe32(&due.bytes[kTcp + 4]),
                base::LoadBe32(&called.bytes[kTcp + 4]) + 2 * length);
      std::copy_n(&called.bytes[kTcp + 4], 4, &due.bytes[kTcp + 4]);
      if (timestamps) std::copy_n(&called.bytes[kTcp + 24], 8, &due.bytes[kTcp + 24]);
      ASSERT_EQ(due.bytes, called.bytes) << length;
      EXPECT_EQ(due.flags, called.flags);
      all += payload + payload + payload;
    }
    EXPECT_EQ(b->Bytes(server), all);
  }
  // One of each kind of acknowledgement.
  void CompareAcknowledgements(bool timestamps) {
    TcpSettings quick;
    quick.quick_ack = true;
    quick.timestamps = timestamps;
    OpenConnection(quick);
    const SentFrame called = Acknowledgement();
    a->queue().TakeDirectPosts();
    const uint64_t doorbells = a->queue().counters().tx_doorbells;
    SentFrame direct = Acknowledgement();
    EXPECT_EQ(Direct(), 1u);
    EXPECT_EQ(a->queue().counters().tx_doorbells, doorbells + 1) << "rung for at the poll's end";
    EXPECT_EQ(base::LoadBe32(&direct.bytes[kTcp + 8]), base::LoadBe32(&called.bytes[kTcp + 8]) + 6);
    std::copy_n(&called.bytes[kTcp + 8], 4, &direct.bytes[kTcp + 8]);
    std::copy_n(&called.bytes[kTcp + 14], 2, &direct.bytes[kTcp + 14]);
    if (timestamps) std::copy_n(&called.bytes[kTcp + 24], 8, &direct.bytes[kTcp + 24]);
    EXPECT_EQ(direct.bytes, called.bytes);
    EXPECT_EQ(direct.flags & ~nic::kTxMore, called.flags & ~nic::kTxMore);
  }
  // What both ends send from a connect to the end of both, less what is a connection's own: ports,
  // sequence numbers and times.
  std::vector<std::vector<uint8_t>> FramesOfALife(bool timestamps) {
    const size_t before[] = {a->queue().sent().size(), b->queue().sent().size()};
    TcpSettings settings;
    settings.timestamps = timestamps;
    const Handle connected = a->Connect({kB, kPort}, settings);
    Run();
    EXPECT_EQ(b->Of(Kind::kAccepted).size(), 1u);
    a->tcp().Close(connected);
    Run();
    if (b->Of(Kind::kAccepted).empty()) return {};
    b->tcp().Close(b->Of(Kind::kAccepted)[0].socket);
    Run();
    EXPECT_EQ(a->Of(Kind::kTerminated).size(), 1u);
    EXPECT_EQ(b->Of(Kind::kTerminated).size(), 1u);
    a->Clear();
    b->Clear();
    std::vector<std::vector<uint8_t>> frames;
    for (TcpEnd* const end : {a.get(), b.get()}) {
      const auto& sent = end->queue().sent();
      for (size_t i = before[end == b.get()]; i < sent.size(); ++i) {
        std::vector<uint8_t>& frame = frames.emplace_back(sent[i].bytes);
        std::fill_n(&frame[kTcp], 12, 0);
        const size_t times = kTcp + ((TcpFlagsOf(frame) & wire::kTcpSyn) != 0 ? 28 : 24);
        if (timestamps && frame.size() >= times + 8) std::fill_n(&frame[times], 8, 0);
      }
    }
    return frames;
  }
  void CompareLives(bool timestamps) {
    Open();
    TcpSettings settings;
    settings.timestamps = timestamps;
    b->Listen(kPort, settings);
    const auto called = FramesOfALife(timestamps);
    EXPECT_EQ(called.size(), 7u);
    a->queue().TakeDirectPosts();
    b->queue().TakeDirectPosts();
    EXPECT_EQ(FramesOfALife(timestamps), called);
    EXPECT_EQ(a->queue().direct_posts(), 4u) << "SYN, two acknowledgements, FIN";
    EXPECT_EQ(b->queue().direct_posts(), 3u);
  }
  SentFrame Acknowledgement() {
    b->Send(server, "a tick");
    Run();
    const SentFrame frame = a->queue().sent().back();
    EXPECT_EQ(TcpPayloadOf(frame.bytes), 0u);
    return frame;
  }
};

TEST_F(TcpDirectContractTest, OfAnyLengthItIsTheSegmentThatACallPosts) {
  CompareEveryLength(/*timestamps=*/true);
}

TEST_F(TcpDirectContractTest, WithoutTimestampsToo) { CompareEveryLength(/*timestamps=*/false); }

TEST_F(TcpDirectContractTest, AnAcknowledgementIsTheOneThatACallPosts) {
  CompareAcknowledgements(/*timestamps=*/true);
}

TEST_F(TcpDirectContractTest, AnAcknowledgementWithoutTimestampsToo) {
  CompareAcknowledgements(/*timestamps=*/false);
}

TEST_F(TcpDirectContractTest, ItsHeaderIsOfTheMoment) {
  constexpr uint16_t kWindow = 7'240;
  TcpSettings manual;
  manual.receive_window_bytes = kWindow;
  manual.manual_credit = true;
  OpenDirect(manual);
  b->Send(server, std::string(kWindow, 'x'));
  Run();
  const SentFrame closed = FrameOf("closed", 0);
  EXPECT_EQ(base::LoadBe16(&closed.bytes[kTcp + 14]), 0u);
  ASSERT_TRUE(a->tcp().Credit(client, kWindow).ok());
  now += 7 * kMillisecond;
  const SentFrame open = FrameOf("open", 0);
  EXPECT_EQ(base::LoadBe16(&open.bytes[kTcp + 14]), kWindow);
  EXPECT_EQ(base::LoadBe32(&open.bytes[kTcp + 8]), base::LoadBe32(&closed.bytes[kTcp + 8]));
  const uint32_t peers = base::LoadBe32(&b->queue().sent().back().bytes[kTcp + 24]);
  EXPECT_GE(base::LoadBe32(&open.bytes[kTcp + 24]), base::LoadBe32(&closed.bytes[kTcp + 24]) + 7);
  EXPECT_LE(base::LoadBe32(&open.bytes[kTcp + 28]), peers) << "the peer's time, echoed";
  EXPECT_GE(Direct(), 2u) << "and what tells of the window";
}

TEST_F(TcpDirectContractTest, WhatWasSentIsKeptUntilItIsAcknowledged) {
  OpenDirect();
  const uint64_t free = a->Counter("pool", "free");
  a->lose = [](const auto& frame) { return TcpPayloadOf(frame) != 0; };
  std::string payload = Payload(100);
  ASSERT_EQ(a->Send(client, payload), SendResult::kSent);
  EXPECT_EQ(Direct(), 1u);
  const std::string sent = payload;
  payload.assign(payload.size(), '?');  // The caller's again.
  EXPECT_EQ(a->Counter("pool", "free"), free - 1);
  Run();
  a->lose = nullptr;
  Run(2'000 * kMillisecond, kMillisecond);
  EXPECT_EQ(b->Bytes(server), sent);
  EXPECT_EQ(a->Counter("pool", "free"), free);
}

TEST_F(TcpDirectContractTest, BehindWhatIsUnacknowledgedAShortOneWaitsUnlessItMayNot) {
  TcpSettings nagle;
  nagle.nodelay = false;
  OpenDirect(nagle);
  ASSERT_EQ(a->Send(client, "first"), SendResult::kSent);
  ASSERT_EQ(a->Send(client, "now", {.flags = kNowOrFail}), SendResult::kSent);
  EXPECT_EQ(a->Send(client, "later"), SendResult::kQueued);
  a->queue().CompleteSends(0);  // The queue takes one at a time.
  EXPECT_EQ(a->Send(client, "later"), SendResult::kQueued);
  EXPECT_EQ(Direct(), 1u);
  Run(500 * kMillisecond, kMillisecond);
  EXPECT_EQ(b->Bytes(server), "firstnowlaterlater");
}

TEST_F(TcpDirectContractTest, BehindAFrameThatWaitsForADoorbellItWaitsItsTurn) {
  OpenDirect();
  ASSERT_EQ(a->Send(client, "first ", {.flags = kNoDoorbell}), SendResult::kSent);
  ASSERT_EQ(a->Send(client, "second"), SendResult::kSent);
  EXPECT_EQ(Direct(), 0u);
  EXPECT_EQ(a->queue().due_posts(), 1u);
  EXPECT_EQ(a->queue().visible(), a->queue().posted_frames()) << "it rang for both";
  EXPECT_EQ(a->ring->core().attention & kAnyDoorbellOwed, 0u);
  Run();
  EXPECT_EQ(b->Bytes(server), "first second");
}

TEST_F(TcpDirectContractTest, WhereThereIsNoRoomItIsRefusedAndNothingIsKept) {
  OpenDirect();
  SendResult result = SendResult::kSent;
  uint64_t free = 0;
  while (result == SendResult::kSent) {
    free = a->Counter("pool", "free");
    result = a->Send(client, "fills", {.flags = kNowOrFail});
  }
  EXPECT_EQ(result, SendResult::kRefusedSqFull);
  EXPECT_EQ(a->Counter("pool", "free"), free);
}

TEST_F(TcpDirectContractTest, AHandshakeAndAnEndAreTheFramesThatCallsPost) {
  CompareLives(/*timestamps=*/true);
}

TEST_F(TcpDirectContractTest, WhereTheDeviceSumsNothingTheyHaveTheirSums) {
  nic_options.transmit_checksum = false;
  OpenDirect();
  b->Send(server, Payload(100));
  Run(100 * kMillisecond);
  ASSERT_EQ(a->Send(client, "answer"), SendResult::kSent);
  Run(100 * kMillisecond);
  EXPECT_EQ(b->Bytes(server), "answer");
  for (const SentFrame& frame : a->queue().sent()) {
    EXPECT_EQ(frame.flags & (nic::kTxIpChecksum | nic::kTxL4Checksum), 0u);
    EXPECT_NE(base::LoadBe16(&frame.bytes[kTcp + 16]), 0u);
  }
}

TEST_F(TcpDirectContractTest, SoTheyAreWithoutTimestamps) { CompareLives(/*timestamps=*/false); }

TEST_F(TcpDirectContractTest, AWindowThatIsFullRefusesIt) {
  TcpSettings tiny;
  tiny.receive_window_bytes = 2'896;
  OpenConnection({}, tiny);
  a->queue().TakeDirectPosts();
  ASSERT_EQ(a->Send(client, std::string(2'896, 'x')), SendResult::kSent);
  Run();
  EXPECT_EQ(a->Send(client, "more", {.flags = kNowOrFail}), SendResult::kRefusedWindow);
  EXPECT_EQ(Direct(), 0u);
}

TEST_F(TcpDirectContractTest, AnAcknowledgementWaitsForItsTimeAndLeavesOnce) {
  OpenDirect();
  for (int i = 0; i < 40; ++i) FrameOf("no more young", 0);
  Run(100 * kMillisecond);
  const size_t before = b->queue().sent().size();
  EXPECT_EQ(a->Send(client, "x", {}), SendResult::kSent);
  Run(39 * kMillisecond);
  EXPECT_EQ(b->queue().sent().size(), before);
  Run(2 * kMillisecond);
  ASSERT_EQ(b->queue().sent().size(), before + 1);
  const std::vector<uint8_t>& frame = b->queue().sent().back().bytes;
  const std::vector<uint8_t>& acknowledged = a->queue().sent().back().bytes;
  EXPECT_EQ(base::LoadBe32(&frame[kTcp + 8]), base::LoadBe32(&acknowledged[kTcp + 4]) + 1);
  Run(200 * kMillisecond);
  EXPECT_EQ(b->queue().sent().size(), before + 1);
}

}  // namespace
}  // namespace xtreme::engine::testing
