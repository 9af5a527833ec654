// SPDX-License-Identifier: Apache-2.0
//
// The contract of long sends over TCP on a queue that gathers them by headers from registers, and
// of the acknowledgements of what is long: they are what calls would be, and bytes are kept while
// anybody may read them.

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "stack/base/byte_order.h"
#include "stack/packet/buffer_pool.h"
#include "xtreme/engine/ring_core.h"
#include "xtreme/engine/tcp_socket.h"
#include "xtreme/engine/testing/tcp_pair.h"
#include "xtreme/nic/stream_post.h"

namespace xtreme::engine::testing {
namespace {

constexpr uint64_t kMillisecond = 1'000'000;

class TcpLongContractTest : public TcpPairTest {
 protected:
  static constexpr size_t kTcp = 14 + 20;  // Of the TCP header in a frame.
  static constexpr uint32_t kFull = 1'448;

  void OpenDirect(const TcpSettings& settings = {}) {
    OpenConnection(settings);
    a->queue().TakeDirectPosts();
  }
  uint32_t Direct() { return a->queue().direct_posts(); }
  uint64_t Free() { return a->Counter("pool", "free"); }
  static std::string Text(size_t length) {
    std::string text(length, ' ');
    for (size_t i = 0; i < length; ++i) text[i] = static_cast<char>('a' + i / 7 % 26);
    return text;
  }
  SentFrame FrameOf(const std::string& payload, uint32_t flags) {
    EXPECT_EQ(a->Send(client, payload, {.flags = flags}), SendResult::kSent);
    const SentFrame frame = a->queue().sent().back();
    Run();
    return frame;
  }
  // In what differs from one to the next both are made alike.
  static void Align(const SentFrame& called, size_t at, size_t bytes, SentFrame* direct) {
    std::copy_n(&called.bytes[kTcp + at], bytes, &direct->bytes[kTcp + at]);
  }
  void CompareLengths(bool timestamps) {
    TcpSettings settings;
    settings.timestamps = timestamps;
    OpenDirect(settings);
    const uint32_t most = timestamps ? kFull : kFull + 12;
    std::string all;
    for (const uint32_t length : {300u, 301u, 777u, 1'024u, most - 1, most}) {
      const std::string payload = Text(length);
      const SentFrame called = FrameOf(payload, kSendWantDone);
      const uint32_t before = Direct();
      SentFrame direct = FrameOf(payload, 0);
      EXPECT_EQ(Direct(), before + 1) << length;
      EXPECT_EQ(base::LoadBe32(&direct.bytes[kTcp + 4]),
                base::LoadBe32(&called.bytes[kTcp + 4]) + length);
      Align(called, 4, 4, &direct);
      if (timestamps) Align(called, 24, 8, &direct);
      ASSERT_EQ(direct.bytes, called.bytes) << length;
      EXPECT_EQ(direct.flags, called.flags);
      all += payload + payload;
    }
    EXPECT_EQ(b->Bytes(server), all);
    EXPECT_EQ(a->Of(Kind::kTxDone).size(), 6u) << "of those that asked";
  }
  // Of two full segments, which cannot wait. `direct`: whether it is posted so.
  SentFrame Acknowledgement(uint32_t full, bool direct) {
    b->Send(server, Text(2 * full));
    const size_t before = a->queue().sent().size();
    const uint32_t direct_before = Direct();
    const uint64_t doorbells = a->queue().counters().tx_doorbells;
    Carry(*b, *a);
    a->Poll();
    EXPECT_EQ(a->queue().sent().size(), before + 1) << "one acknowledgement";
    EXPECT_EQ(Direct() - direct_before, direct ? 1u : 0u);
    EXPECT_EQ(a->queue().counters().tx_doorbells, doorbells + 1) << "rung for at the poll's end";
    const SentFrame frame = a->queue().sent().back();
    EXPECT_EQ(TcpPayloadOf(frame.bytes), 0u);
    Run();
    a->Clear();
    Run();  // Where the window grew by so much, it is told now.
    return frame;
  }
  // Of the first segments each is acknowledged at once.
  void PassQuickAcks(uint32_t full) {
    for (int i = 0; i < 12; ++i) {
      b->Send(server, Text(2 * full));
      Run();
      a->Clear();
      Run();
    }
  }
  // With what needs no record.
  void FillQueue() {
    RingCore& core = a->ring->core();
    core.Reap();
    while (core.SendRoom() > 0) {
      ASSERT_EQ(a->Send(client, "short", {.flags = kNowOrFail}), SendResult::kSent);
    }
  }
  void CompareAcknowledgements(bool timestamps) {
    TcpSettings settings;
    settings.timestamps = timestamps;
    OpenConnection(settings);
    const uint32_t full = timestamps ? kFull : kFull + 12;
    PassQuickAcks(full);
    const SentFrame called = Acknowledgement(full, /*direct=*/false);
    a->queue().TakeDirectPosts();
    SentFrame direct = Acknowledgement(full, /*direct=*/true);
    EXPECT_EQ(base::LoadBe32(&direct.bytes[kTcp + 8]),
              base::LoadBe32(&called.bytes[kTcp + 8]) + 2 * full);
    Align(called, 8, 4, &direct);
    Align(called, 14, 2, &direct);
    if (timestamps) Align(called, 24, 8, &direct);
    EXPECT_EQ(direct.bytes, called.bytes);
    EXPECT_EQ(direct.flags & ~nic::kTxMore, called.flags & ~nic::kTxMore);
  }
};

TEST_F(TcpLongContractTest, OfAnyLengthItIsTheSegmentThatACallPosts) {
  CompareLengths(/*timestamps=*/true);
}

TEST_F(TcpLongContractTest, WithoutTimestampsToo) { CompareLengths(/*timestamps=*/false); }

TEST_F(TcpLongContractTest, ThoseThatShareADoorbellShareACompletion) {
  OpenDirect();
  const size_t before = a->queue().sent().size();
  const uint64_t free = Free();
  for (int i = 0; i < 4; ++i) {
    ASSERT_EQ(a->Send(client, Text(1'000), {.flags = kNoDoorbell}), SendResult::kSent);
  }
  EXPECT_EQ(Direct(), 4u);
  EXPECT_LT(a->queue().visible(), a->queue().posted_frames());
  a->ring->Flush();
  EXPECT_EQ(a->queue().visible(), a->queue().posted_frames());
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ((a->queue().sent()[before + i].flags & nic::kTxSignal) != 0, i == 3) << i;
  }
  Run();
  EXPECT_EQ(b->Bytes(server).size(), 4'000u);
  EXPECT_EQ(Free(), free);
}

TEST_F(TcpLongContractTest, WhatWasSentIsKeptUntilItIsAcknowledged) {
  OpenDirect();
  const uint64_t free = Free();
  a->lose = [](const auto& frame) { return TcpPayloadOf(frame) != 0; };
  std::string payload = Text(1'000);
  ASSERT_EQ(a->Send(client, payload), SendResult::kSent);
  EXPECT_EQ(Direct(), 1u);
  payload.assign(payload.size(), '?');  // The caller's again.
  Run();
  EXPECT_EQ(Free(), free - 1) << "it has left, and did not arrive";
  a->lose = nullptr;
  Run(2'000 * kMillisecond, kMillisecond);
  EXPECT_EQ(b->Bytes(server), Text(1'000));
  EXPECT_EQ(Free(), free);
}

TEST_F(TcpLongContractTest, AndWhileAWqeRefersToItThoughItIsAcknowledged) {
  OpenDirect();
  const uint64_t free = Free();
  a->complete_sends = false;
  ASSERT_EQ(a->Send(client, Text(1'000)), SendResult::kSent);
  Run();
  EXPECT_EQ(b->Bytes(server).size(), 1'000u);
  EXPECT_EQ(Free(), free - 1);
  a->complete_sends = true;
  Run();
  EXPECT_EQ(Free(), free);
}

TEST_F(TcpLongContractTest, AlsoIfThatIsARetransmissions) {
  OpenDirect();
  const uint64_t free = Free();
  a->lose = [](const auto& frame) { return TcpPayloadOf(frame) != 0; };
  ASSERT_EQ(a->Send(client, Text(1'000)), SendResult::kSent);
  Run();
  a->lose = nullptr;
  a->complete_sends = false;
  Run(2'000 * kMillisecond, kMillisecond);
  EXPECT_EQ(b->Bytes(server).size(), 1'000u);
  EXPECT_GE(a->Counter("tcp", "retransmits"), 1u);
  EXPECT_EQ(Free(), free - 1);
  a->complete_sends = true;
  Run();
  EXPECT_EQ(Free(), free);
}

TEST_F(TcpLongContractTest, AConnectionEndsWhenNothingRefersToItsBytes) {
  OpenDirect();
  const uint64_t free = Free();
  a->complete_sends = false;
  ASSERT_EQ(a->Send(client, Text(1'000)), SendResult::kSent);
  ASSERT_TRUE(a->tcp().Abort(client).ok());
  Run();
  EXPECT_TRUE(a->Of(Kind::kTerminated).empty());
  a->complete_sends = true;
  Run();
  EXPECT_EQ(a->Of(Kind::kTerminated).size(), 1u);
  EXPECT_EQ(Free(), free);
}

TEST_F(TcpLongContractTest, WhereThereIsNoRoomItIsRefusedAndNothingIsKept) {
  OpenDirect({.congestion = TcpCongestion::kNone});
  a->complete_sends = false;
  SendResult result = SendResult::kSent;
  uint64_t free = 0;
  while (result == SendResult::kSent) {
    free = Free();
    result = a->Send(client, Text(kFull), {.flags = kNowOrFail});
    Carry(*a, *b);
    b->Poll();
    b->Clear();
    Carry(*b, *a);
    a->Poll();
  }
  EXPECT_EQ(result, SendResult::kRefusedSqFull);
  EXPECT_EQ(Free(), free);
}

// Nothing is told of the segments that have left, so the room alone has to keep it awake.
TEST_F(TcpLongContractTest, ARingDoesNotSleepOverRoomThatCameAsItArmed) {
  options.tx_queue_frames = 64;
  OpenDirect({.congestion = TcpCongestion::kNone});
  a->complete_sends = false;
  while (a->Send(client, Text(300), {.flags = kNowOrFail}) == SendResult::kSent) {
  }
  EXPECT_NE(a->ring->core().attention & kRoomWanted, 0u);
  a->Poll();
  EXPECT_TRUE(a->ring->Arm()) << "there is none yet";
  a->queue().CompleteSends(0);
  EXPECT_FALSE(a->ring->Arm());
  a->Poll();
  EXPECT_EQ(a->ring->core().attention & kRoomWanted, 0u);
  EXPECT_EQ(a->Of(Kind::kTxSpace).size(), 1u);
}

TEST_F(TcpLongContractTest, WhatIsMoreThanASegmentOrThanTheWindowIsNotPostedWhole) {
  TcpSettings tiny;
  tiny.receive_window_bytes = 2 * kFull;
  OpenConnection({}, tiny);
  a->queue().TakeDirectPosts();
  ASSERT_EQ(a->Send(client, Text(kFull + 1)), SendResult::kSent);
  for (const SentFrame& frame : a->queue().sent()) EXPECT_LE(TcpPayloadOf(frame.bytes), kFull);
  EXPECT_EQ(a->Send(client, Text(kFull), {.flags = kNowOrFail}), SendResult::kRefusedWindow);
  EXPECT_EQ(a->Send(client, Text(kFull)), SendResult::kQueued);
}

TEST_F(TcpLongContractTest, BehindWhatIsUnacknowledgedOneThatIsNotFullWaitsUnlessItMayNot) {
  TcpSettings nagle;
  nagle.nodelay = false;
  OpenDirect(nagle);
  ASSERT_EQ(a->Send(client, Text(1'000)), SendResult::kSent);
  ASSERT_EQ(a->Send(client, Text(1'000), {.flags = kNowOrFail}), SendResult::kSent);
  EXPECT_EQ(Direct(), 2u);
  EXPECT_EQ(a->Send(client, Text(1'000)), SendResult::kQueued);
  EXPECT_EQ(Direct(), 2u);
}

TEST_F(TcpLongContractTest, WhatStandsInItsWqeIsReferredToByNone) {
  nic_options.max_inline_bytes = 500;
  OpenDirect();
  const SendLog& sends = a->ring->core().sends;
  constexpr uint32_t kInline = 500 - nic::StreamSegment::kLongestHeader;
  ASSERT_EQ(a->Send(client, Text(kInline)), SendResult::kSent);
  EXPECT_EQ(sends.wanted(), 0u);
  ASSERT_EQ(a->Send(client, Text(kInline + 1)), SendResult::kSent);
  EXPECT_EQ(sends.wanted(), 1u);
}

TEST_F(TcpLongContractTest, ItIsCountedAndTimersAreLookedAtFromThenOn) {
  OpenDirect();
  RingCore& core = a->ring->core();
  core.attention &= ~uint32_t{kTimersArmed};
  const TcpSocket& socket = *a->tcp().Find(client);
  const auto before = socket.counters;
  ASSERT_EQ(a->Send(client, Text(1'000)), SendResult::kSent);
  EXPECT_EQ(Direct(), 1u);
  EXPECT_EQ(socket.counters.sends, before.sends + 1);
  EXPECT_EQ(socket.counters.sent_bytes, before.sent_bytes + 1'000);
  EXPECT_NE(core.attention & kTimersArmed, 0u);
}

TEST_F(TcpLongContractTest, BehindNewsOfRoutesTheFirstAsksForItsWay) {
  OpenDirect();
  a->ring->core().ChangeWorld();
  ASSERT_EQ(a->Send(client, Text(1'000)), SendResult::kSent);
  EXPECT_EQ(Direct(), 0u);
  Run();
  EXPECT_EQ(b->Bytes(server), Text(1'000));
}

TEST_F(TcpLongContractTest, OneThatRingsRingsForAllAndAsksForAll) {
  OpenDirect();
  ASSERT_EQ(a->Send(client, Text(1'000), {.flags = kNoDoorbell}), SendResult::kSent);
  EXPECT_EQ(a->ring->core().attention & kAnyDoorbellOwed, kDoorbellOwed | kCompletionOwed);
  ASSERT_EQ(a->Send(client, Text(1'000)), SendResult::kSent);
  EXPECT_EQ(Direct(), 2u);
  EXPECT_EQ(a->ring->core().attention & kAnyDoorbellOwed, 0u);
}

TEST_F(TcpLongContractTest, ThoseThatHaveLeftGiveTheirPlacesBackWithoutAPoll) {
  OpenDirect();
  RingCore& core = a->ring->core();
  core.Reap();
  const uint32_t room = core.sends.room(), completed = core.sends.completed();
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(a->Send(client, Text(1'000)), SendResult::kSent);
    a->queue().CompleteSends(0);
  }
  EXPECT_EQ(core.sends.room(), room - 3);
  core.Reap(1);
  EXPECT_EQ(core.sends.completed(), completed + 1) << "no more than is asked for";
  EXPECT_EQ(core.sends.room(), room - 2);
  core.Reap();
  EXPECT_EQ(core.sends.room(), room);
}

TEST_F(TcpLongContractTest, WhereTheQueueIsFullOfOthersItIsRefusedAndNothingIsKept) {
  OpenDirect({.congestion = TcpCongestion::kNone});
  a->complete_sends = false;
  FillQueue();
  const uint64_t free = Free();
  EXPECT_EQ(a->Send(client, Text(1'000), {.flags = kNowOrFail}), SendResult::kRefusedSqFull);
  EXPECT_EQ(Free(), free);
}

// They have left, and their times are still to be told.
TEST_F(TcpLongContractTest, WhereTheLogOfSendsIsFullItIsRefusedThoughTheQueueHasRoom) {
  OpenDirect({.congestion = TcpCongestion::kNone});
  RingCore& core = a->ring->core();
  core.Reap();
  uint32_t times = 0;
  for (; !core.sends.full(); ++times) {
    ASSERT_EQ(a->Send(client, "short", {.flags = kSendWantWire | kNowOrFail}), SendResult::kSent);
    a->queue().CompleteSends(0);
    core.Reap();
  }
  EXPECT_GT(core.SendRoom(), 0u);
  const uint64_t free = Free();
  EXPECT_EQ(a->Send(client, Text(1'000), {.flags = kNowOrFail}), SendResult::kRefusedSqFull);
  EXPECT_EQ(Free(), free);
  Run();
  EXPECT_EQ(a->Of(Kind::kTxWire).size(), times);
  EXPECT_EQ(a->Send(client, Text(1'000), {.flags = kNowOrFail}), SendResult::kSent);
}

// No window holds as many.
TEST_F(TcpLongContractTest, ALengthOfMoreThan32BitsIsRefusedWhole) {
  OpenDirect();
  const std::string bytes = Text(1'000);
  const std::string_view most(bytes.data(), (size_t{1} << 32) + bytes.size());
  for (const uint32_t flags : {0u, uint32_t{kNowOrFail}, uint32_t{kSendWantDone}}) {
    EXPECT_EQ(a->Send(client, most, {.flags = flags}), SendResult::kRefusedWindow) << flags;
  }
  packet::Buffer* const buffer = a->ring->AcquireBuffer();
  const Payload in_place{.data = buffer->data, .length = most.size(), .buffer = buffer};
  EXPECT_EQ(a->tcp().Send(a->tcp().Find(client), in_place, {}), SendResult::kRefusedWindow);
  packet::BufferPool::Release(buffer);
  Run();
  EXPECT_EQ(b->Bytes(server), "");
}

TEST_F(TcpLongContractTest, AnAcknowledgementThatFoundNoRoomLeavesWhenThereIsSome) {
  OpenConnection({.congestion = TcpCongestion::kNone});
  PassQuickAcks(kFull);
  a->complete_sends = false;
  FillQueue();
  b->Send(server, Text(2 * kFull));
  Carry(*b, *a);
  const size_t before = a->queue().sent().size();
  a->Poll();
  EXPECT_EQ(a->queue().sent().size(), before);
  EXPECT_NE(a->ring->core().attention & kRoomWanted, 0u);
  a->queue().CompleteSends(0);
  a->Poll();
  ASSERT_EQ(a->queue().sent().size(), before + 1);
  EXPECT_EQ(TcpPayloadOf(a->queue().sent().back().bytes), 0u);
}

TEST_F(TcpLongContractTest, AnAcknowledgementOfTwoStandsBehindWhatWasSentAndLeavesOnce) {
  OpenConnection();
  PassQuickAcks(kFull);
  a->queue().TakeDirectPosts();
  a->lose = [](const auto& frame) { return TcpPayloadOf(frame) != 0; };
  ASSERT_EQ(a->Send(client, Text(1'000)), SendResult::kSent);
  const uint32_t sequence = base::LoadBe32(&a->queue().sent().back().bytes[kTcp + 4]);
  Carry(*a, *b);
  b->Send(server, Text(3 * kFull));
  Carry(*b, *a);
  const size_t before = a->queue().sent().size();
  a->Poll();
  ASSERT_EQ(a->queue().sent().size(), before + 1) << "the third waits";
  EXPECT_EQ(base::LoadBe32(&a->queue().sent().back().bytes[kTcp + 4]), sequence + 1'000);
}

TEST_F(TcpLongContractTest, OfOneSegmentBehindTheQuickOnesNoneLeavesYet) {
  OpenDirect();
  PassQuickAcks(kFull);
  b->Send(server, Text(kFull));
  Carry(*b, *a);
  const size_t before = a->queue().sent().size();
  a->Poll();
  EXPECT_EQ(a->queue().sent().size(), before);
}

TEST_F(TcpLongContractTest, AnAcknowledgementOfTwoIsTheOneThatACallPosts) {
  CompareAcknowledgements(/*timestamps=*/true);
}

TEST_F(TcpLongContractTest, AnAcknowledgementWithoutTimestampsToo) {
  CompareAcknowledgements(/*timestamps=*/false);
}

}  // namespace
}  // namespace xtreme::engine::testing
