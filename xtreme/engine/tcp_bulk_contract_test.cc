// SPDX-License-Identifier: Apache-2.0
//
// Much that is sent at once: one completion stands for many segments, and the device cuts what
// leaves.

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "xtreme/engine/ring_core.h"
#include "xtreme/engine/testing/tcp_pair.h"

namespace xtreme::engine::testing {
namespace {

class TcpBulkContractTest : public TcpPairTest {
 protected:
  // Of the frames of `a` from `from` on, those that asked for a completion; by their place.
  std::vector<size_t> Asked(size_t from) {
    std::vector<size_t> asked;
    const std::vector<SentFrame>& sent = a->queue().sent();
    for (size_t i = from; i < sent.size(); ++i) {
      if ((sent[i].flags & nic::kTxSignal) != 0) asked.push_back(i - from);
    }
    return asked;
  }
  static std::string Text(size_t length) {
    std::string text(length, ' ');
    for (size_t i = 0; i < length; ++i) text[i] = static_cast<char>('a' + i / 7 % 26);
    return text;
  }
};

TEST_F(TcpBulkContractTest, OfManySegmentsTheLastAloneAsksForACompletion) {
  OpenConnection();
  const size_t before = a->queue().sent().size();
  const uint32_t free = a->ring->core().device.pool->free_count();
  a->complete_sends = false;
  ASSERT_EQ(a->Send(client, Text(10'000), {.flags = kSendWantDone, .cookie = 7}),
            SendResult::kSent);
  ASSERT_EQ(a->queue().sent().size(), before + 7);
  EXPECT_EQ(Asked(before), std::vector<size_t>{6});
  Run();
  EXPECT_TRUE(a->Of(Kind::kTxDone).empty()) << "their WQEs still refer to the bytes";
  a->complete_sends = true;
  Run();
  ASSERT_EQ(a->Of(Kind::kTxDone).size(), 1u);
  EXPECT_EQ(a->Of(Kind::kTxDone)[0].cookie, 7u);
  EXPECT_EQ(a->ring->core().device.pool->free_count(), free);
}

TEST_F(TcpBulkContractTest, SendsThatShareADoorbellShareACompletionWhoeverRings) {
  OpenConnection();
  const std::string big = Text(1'000);
  for (int how = 0; how < 3; ++how) {
    const size_t before = a->queue().sent().size();
    for (int i = 0; i < 4; ++i) {
      ASSERT_EQ(a->Send(client, big, {.flags = kNoDoorbell}), SendResult::kSent);
    }
    EXPECT_TRUE(Asked(before).empty());
    if (how == 0) a->Send(client, big);  // rings, and asks
    if (how == 1) a->ring->Flush();
    if (how == 2) a->Poll();
    EXPECT_EQ(Asked(before), std::vector<size_t>{how == 0 ? 4u : 3u}) << how;
    EXPECT_EQ(a->queue().visible(), a->queue().posted_frames());
    Run();
  }
}

TEST_F(TcpBulkContractTest, WhatAPollThatRefillsAnswersLeavesWithIt) {
  OpenConnection();
  b->queue().SayThatRefillsAreDue(true);
  for (int i = 0; i < 3; ++i) {  // Of timers one thinks, one does not, and one does again.
    ASSERT_EQ(a->Send(client, Text(2'896)), SendResult::kSent);
    Carry(*a, *b);
    const uint32_t before = b->queue().posted_frames();
    std::array<Completion, 8> got;
    ASSERT_EQ(b->ring->Poll(got.data(), 8, sizeof(Completion)), 2u);
    EXPECT_GT(b->queue().posted_frames(), before);
    EXPECT_EQ(b->queue().visible(), b->queue().posted_frames());
    b->got.assign(got.begin(), got.begin() + 2);
    b->Clear();
    Carry(*b, *a);
    a->Poll();
  }
}

// A short one, which needs no completion, rings for those before it: the next poll asks.
TEST_F(TcpBulkContractTest, WhatWasRungForWithoutACompletionIsAskedForByTheNextPoll) {
  OpenConnection();
  const size_t before = a->queue().sent().size();
  ASSERT_EQ(a->Send(client, Text(1'000), {.flags = kNoDoorbell}), SendResult::kSent);
  ASSERT_EQ(a->Send(client, "short"), SendResult::kSent);
  EXPECT_TRUE(Asked(before).empty());
  a->Poll();
  ASSERT_EQ(Asked(before), std::vector<size_t>{2});
  EXPECT_NE(a->queue().sent().back().flags & nic::kTxWarm, 0);
  Run();
  EXPECT_EQ(Asked(before).size(), 1u) << "once";
  EXPECT_EQ(b->Bytes(server), Text(1'000) + "short");
}

TEST_F(TcpBulkContractTest, UnlessThatHasBeenToldAlready) {
  OpenConnection();
  const size_t before = a->queue().sent().size();
  ASSERT_EQ(a->Send(client, Text(1'000), {.flags = kNoDoorbell}), SendResult::kSent);
  ASSERT_EQ(a->Send(client, "short"), SendResult::kSent);
  a->queue().CompleteSends();
  a->ring->core().Reap();
  a->Poll();
  EXPECT_TRUE(Asked(before).empty());
  EXPECT_EQ(a->ring->core().attention & kCompletionOwed, 0u);
}

TEST_F(TcpBulkContractTest, WhereTheQueueIsFullALaterDoorbellAsks) {
  OpenConnection({.congestion = TcpCongestion::kNone});
  const RingCore& core = a->ring->core();
  a->complete_sends = false;
  ASSERT_EQ(a->Send(client, Text(1'000), {.flags = kNoDoorbell}), SendResult::kSent);
  while (core.SendRoom() > 0) {
    ASSERT_EQ(a->Send(client, "short", {.flags = kNowOrFail}), SendResult::kSent);
  }
  a->ring->Flush();
  EXPECT_NE(core.attention & kCompletionOwed, 0u) << "there is no room for what asks";
  a->queue().CompleteSends();
  a->Poll();
  EXPECT_EQ(core.attention & kCompletionOwed, 0u);
}

TEST_F(TcpBulkContractTest, AQueueThatStoppedIsAskedForNothing) {
  OpenConnection();
  ASSERT_EQ(a->Send(client, Text(1'000), {.flags = kNoDoorbell}), SendResult::kSent);
  ASSERT_EQ(a->Send(client, "short"), SendResult::kSent);
  a->queue().Break();
  a->ring->Flush();
  EXPECT_EQ(a->ring->core().attention & kCompletionOwed, 0u);
}

// One in a buffer of the caller's is posted as others are, and asks if it rings.
TEST_F(TcpBulkContractTest, AShortOneAsksOnlyForThoseBeforeItAndOnlyIfItRings) {
  OpenConnection();
  const auto send_short = [&](uint32_t flags) {
    packet::Buffer* const buffer = a->ring->AcquireBuffer();
    std::memset(buffer->data, 's', 5);
    return a->tcp().Send(a->tcp().Find(client),
                         {.data = buffer->data, .length = 5, .buffer = buffer}, {.flags = flags});
  };
  const size_t before = a->queue().sent().size();
  ASSERT_EQ(send_short(0), SendResult::kSent);
  ASSERT_EQ(a->Send(client, Text(1'000), {.flags = kNoDoorbell}), SendResult::kSent);
  ASSERT_EQ(send_short(kNoDoorbell), SendResult::kSent);
  EXPECT_TRUE(Asked(before).empty());
  EXPECT_NE(a->ring->core().attention & kCompletionOwed, 0u);
  ASSERT_EQ(send_short(0), SendResult::kSent);
  EXPECT_EQ(Asked(before), std::vector<size_t>{3});
  EXPECT_EQ(a->ring->core().attention & kCompletionOwed, 0u);
  Run();
  EXPECT_EQ(Asked(before).size(), 1u) << "once";
}

TEST_F(TcpBulkContractTest, AConnectionThatEndsWaitsForNoMore) {
  OpenConnection();
  const uint32_t free = a->ring->core().device.pool->free_count();
  ASSERT_EQ(a->Send(client, Text(1'000), {.flags = kNoDoorbell}), SendResult::kSent);
  ASSERT_TRUE(a->tcp().Abort(client).ok());
  Run(1'000'000);
  EXPECT_EQ(a->Kinds(), std::vector<Kind>{Kind::kTerminated});
  EXPECT_EQ(a->ring->core().device.pool->free_count(), free);
}

TEST_F(TcpBulkContractTest, ATimeThatIsWantedIsAskedForByItself) {
  OpenConnection();
  const size_t before = a->queue().sent().size();
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(a->Send(client, Text(1'000),
                      {.flags = kNoDoorbell | (i == 1 ? kSendWantWire : 0u), .cookie = 9}),
              SendResult::kSent);
  }
  a->Poll();
  EXPECT_EQ(Asked(before), (std::vector<size_t>{1, 2}));
  Run();
  EXPECT_EQ(a->Of(Kind::kTxWire).size(), 1u);
}

// --- Segments that the device cuts ---

class TcpRunContractTest : public TcpBulkContractTest {
 protected:
  TcpRunContractTest() { nic_options.max_segmented_bytes = 64'000; }
};

TEST_F(TcpRunContractTest, MuchThatIsSentAtOnceLeavesAsOneSend) {
  OpenConnection();
  const size_t before = a->queue().sent().size();
  const uint32_t free = a->ring->core().device.pool->free_count();
  const uint64_t out = a->Counter("tcp", "segments_out");
  const std::string text = Text(7'000);
  ASSERT_EQ(a->Send(client, text, {.flags = kSendWantDone, .cookie = 3}), SendResult::kSent);
  ASSERT_EQ(a->queue().sent().size(), before + 1) << "five segments are half the window";
  EXPECT_NE(a->queue().sent()[before].segment_bytes, 0u);
  EXPECT_EQ(a->Counter("tcp", "runs"), 1u);
  EXPECT_EQ(a->Counter("tcp", "segments_out"), out + 5);
  EXPECT_EQ(Asked(before), std::vector<size_t>{0});
  Run();
  EXPECT_EQ(b->Bytes(server), text);
  EXPECT_EQ(a->Of(Kind::kTxDone).size(), 1u);
  EXPECT_EQ(a->Counter("tcp", "retransmits"), 0u);
  b->Clear();
  EXPECT_EQ(a->ring->core().device.pool->free_count(), free);
}

TEST_F(TcpRunContractTest, ARunAsksForACompletionOfItsOwnThoughMoreFollows) {
  OpenConnection();
  const size_t before = a->queue().sent().size();
  ASSERT_EQ(a->Send(client, Text(7'000), {.flags = kNoDoorbell}), SendResult::kSent);
  EXPECT_EQ(a->queue().sent().size(), before + 1);
  EXPECT_EQ(Asked(before), std::vector<size_t>{0});
}

TEST_F(TcpRunContractTest, WhatIsLostOfARunGoesAgainSegmentBySegment) {
  OpenConnection();
  const std::string text = Text(100'000);
  int data = 0;
  a->lose = [&data](const std::vector<uint8_t>& frame) {
    return TcpPayloadOf(frame) > 0 && ++data % 9 == 3;
  };
  ASSERT_NE(a->Send(client, text), SendResult::kRefusedState);
  Run(3'000'000'000, 1'000'000);
  std::string received = b->Bytes(server);
  EXPECT_EQ(received.size(), text.size());
  EXPECT_EQ(received, text);
  EXPECT_GT(a->Counter("tcp", "retransmits"), 0u);
  for (const SentFrame& frame : a->queue().sent()) {
    EXPECT_TRUE(frame.segment_bytes != 0 || frame.bytes.size() <= 1'514);
  }
}

TEST_F(TcpRunContractTest, ASegmentWhoseTimeIsWantedIsNotOfARun) {
  OpenConnection();
  const size_t before = a->queue().sent().size();
  ASSERT_EQ(a->Send(client, Text(7'000), {.flags = kSendWantWire, .cookie = 3}),
            SendResult::kSent);
  EXPECT_EQ(a->queue().sent().size(), before + 2) << "a run, and the last segment";
  EXPECT_EQ(a->queue().sent()[before + 1].segment_bytes, 0u);
  Run();
  ASSERT_EQ(a->Of(Kind::kTxWire).size(), 1u);
  EXPECT_EQ(a->Of(Kind::kTxWire)[0].cookie, 3u);
}

// A run is one frame of the queue, and each of its segments has a place in the log of sends.
class TcpFullLogContractTest : public TcpRunContractTest {
 protected:
  static constexpr size_t kMss = 500, kRun = 4, kRunBytes = kRun * kMss;

  // The window is beyond what fills the log.
  void OpenWide() {
    TcpSettings settings;
    settings.mss = kMss;
    settings.timestamps = false;
    settings.quick_ack = true;
    settings.congestion = TcpCongestion::kNone;
    OpenConnection(settings, settings);
    a->ring->core().Reap();
    free_ = a->ring->core().device.pool->free_count();
  }
  // Runs, until the log has room for `rest`.
  void FillLog(uint32_t rest) {
    while (core().sends.room() != rest) {
      ASSERT_GE(core().sends.room(), rest + kRun);
      text_ += Text(kRunBytes);
      ASSERT_EQ(a->Send(client, Text(kRunBytes)), SendResult::kSent);
    }
    EXPECT_GT(core().SendRoom(), 2 * kRun) << "the queue has room";
  }
  void ExpectAllArrived() {
    Run();
    EXPECT_TRUE(b->Bytes(server) == text_);
    EXPECT_EQ(a->Counter("tcp", "retransmits"), 0u);
    EXPECT_EQ(core().device.pool->free_count(), free_);
    EXPECT_TRUE(core().sends.empty());
  }
  RingCore& core() { return a->ring->core(); }

  std::string text_;

 private:
  uint32_t free_ = 0;
};

TEST_F(TcpFullLogContractTest, NothingMayLeaveUntilSomethingHasLeft) {
  OpenWide();
  FillLog(0);
  Tcp& tcp = a->tcp();
  EXPECT_EQ(tcp.WouldSend(tcp.Find(client), kMss), SendResult::kRefusedSqFull);
  EXPECT_EQ(a->Send(client, Text(kMss), {.flags = kNowOrFail}), SendResult::kRefusedSqFull);
  a->queue().CompleteSends();
  EXPECT_EQ(tcp.WouldSend(tcp.Find(client), kMss), SendResult::kSent);
  ExpectAllArrived();
}

TEST_F(TcpFullLogContractTest, OfARunThatFindsTooFewPlacesAsManySegmentsLeaveAsThereAre) {
  OpenWide();
  FillLog(kRun);
  const size_t before = a->queue().sent().size();
  text_ += Text(kRunBytes + kMss);
  EXPECT_EQ(a->Send(client, Text(kRunBytes + kMss)), SendResult::kQueued);
  EXPECT_EQ(a->queue().sent().size(), before + kRun);
  EXPECT_TRUE(core().sends.full());
  ExpectAllArrived();
}

TEST_F(TcpFullLogContractTest, ARunTakesThePlacesOfThoseThatHaveLeft) {
  OpenWide();
  FillLog(kRun);
  a->queue().CompleteSends();
  const size_t before = a->queue().sent().size();
  text_ += Text(kRunBytes + kMss);
  EXPECT_EQ(a->Send(client, Text(kRunBytes + kMss)), SendResult::kSent);
  EXPECT_EQ(a->queue().sent().size(), before + 1);
  ExpectAllArrived();
}

}  // namespace
}  // namespace xtreme::engine::testing
