// SPDX-License-Identifier: Apache-2.0

#include "tools/connectx/wire/impairment.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>

#include "tools/connectx/wire/frame_list.h"
#include "tools/connectx/wire/link.h"

namespace xtreme::connectx {
namespace {

class ImpairmentTest : public testing::Test {
 protected:
  // `wire_` is impaired; `far_` is the other end of its cable.
  void Impair(const ImpairedWire::Options& options) {
    auto link = MakeLink({.slots = 4096});
    ASSERT_TRUE(link.ok()) << link.status();
    wire_ = std::make_unique<ImpairedWire>(std::move((*link)[0]), options);
    far_ = std::move((*link)[1]);
  }

  // Sends numbers 0 to n-1 through the impaired direction, a microsecond apart, and returns what
  // arrives after `later_ns` more.
  std::vector<uint32_t> Numbers(WireDirection direction, uint32_t n, int64_t later_ns = 0) {
    FrameList list;
    for (uint32_t i = 0; i < n; ++i) {
      now_ns_ += 1000;
      if (direction == WireDirection::kTransmit) {
        wire_->Transmit(NumberedFrame(i), now_ns_);
      } else {
        far_->Transmit(NumberedFrame(i), now_ns_);
        wire_->Receive(list, 10, now_ns_);
      }
    }
    now_ns_ += later_ns;
    while (wire_->Receive(list, 10, now_ns_) > 0) {
    }
    far_->Receive(list, 10000, now_ns_);
    std::vector<uint32_t> numbers;
    for (const auto& entry : list.entries) numbers.push_back(NumberOf(entry.bytes));
    return numbers;
  }

  int64_t now_ns_ = 0;
  std::unique_ptr<ImpairedWire> wire_;
  std::unique_ptr<LinkEnd> far_;
};

constexpr WireDirection kBoth[] = {WireDirection::kTransmit, WireDirection::kReceive};

std::vector<uint32_t> Counted(uint32_t n) {
  std::vector<uint32_t> numbers;
  for (uint32_t i = 0; i < n; ++i) numbers.push_back(i);
  return numbers;
}

TEST_F(ImpairmentTest, WithoutRatesNothingChanges) {
  Impair({});
  for (const WireDirection direction : kBoth) EXPECT_EQ(Numbers(direction, 50), Counted(50));
  EXPECT_EQ(wire_->NextDeadline(), kNoDeadline);
}

TEST_F(ImpairmentTest, WhatIsOnItsWayWhenTheCableIsPulledIsLost) {
  Impair({.transmit = {.delay_ns = 5'000}, .receive = {.delay_ns = 5'000}});
  EXPECT_EQ(Numbers(WireDirection::kTransmit, 1), Counted(0));
  EXPECT_EQ(Numbers(WireDirection::kReceive, 1), Counted(0));
  wire_->SetConnected(false);
  now_ns_ += 1'000'000;
  FrameList list;
  EXPECT_EQ(wire_->Receive(list, 10, now_ns_), 0);
  EXPECT_EQ(far_->Receive(list, 10, now_ns_), 0);
  EXPECT_EQ(CountOf(*wire_, "impaired_tx_unplugged"), 1u);
  EXPECT_EQ(CountOf(*wire_, "impaired_rx_unplugged"), 1u);
  wire_->SetConnected(true);
  EXPECT_EQ(Numbers(WireDirection::kTransmit, 1, 5'000), Counted(1));
}

TEST_F(ImpairmentTest, LossFollowsItsRateAndIsCounted) {
  Impair({.seed = 7, .transmit = {.loss = 0.1}, .receive = {.loss = 0.5}});
  const size_t sent = Numbers(WireDirection::kTransmit, 2000).size();
  EXPECT_NEAR(sent, 1800, 60);
  EXPECT_EQ(CountOf(*wire_, "impaired_tx_lost"), 2000 - sent);
  const size_t received = Numbers(WireDirection::kReceive, 2000).size();
  EXPECT_NEAR(received, 1000, 100);
  EXPECT_EQ(CountOf(*wire_, "impaired_rx_lost"), 2000 - received);
}

TEST_F(ImpairmentTest, SeedDecidesEverything) {
  const Impairment rough{
      .loss = 0.1, .duplication = 0.1, .corruption = 0.1, .reordering = 0.1, .jitter_ns = 5000};
  std::vector<std::vector<uint32_t>> runs;
  for (const uint64_t seed : {1, 1, 2}) {
    now_ns_ = 0;
    Impair({.seed = seed, .transmit = rough, .receive = rough});
    runs.push_back(Numbers(WireDirection::kTransmit, 300, 1'000'000));
  }
  EXPECT_EQ(runs[0], runs[1]);
  EXPECT_NE(runs[0], runs[2]);
}

TEST_F(ImpairmentTest, OneRateDoesNotMoveWhatAnotherHits) {
  Impair({.seed = 3, .transmit = {.loss = 0.1}});
  const std::vector<uint32_t> plain = Numbers(WireDirection::kTransmit, 200);
  Impair({.seed = 3, .transmit = {.loss = 0.1, .corruption = 0.9}});
  Numbers(WireDirection::kTransmit, 200);
  EXPECT_EQ(CountOf(*wire_, "impaired_tx_lost"), 200 - plain.size());
}

TEST_F(ImpairmentTest, DuplicateFollowsItsOriginal) {
  for (const WireDirection direction : kBoth) {
    Impair({.transmit = {.duplication = 1}, .receive = {.duplication = 1}});
    EXPECT_EQ(Numbers(direction, 3), (std::vector<uint32_t>{0, 0, 1, 1, 2, 2}));
  }
}

TEST_F(ImpairmentTest, DuplicatesBeyondTheAskedNumberWaitForTheNextReceive) {
  Impair({.receive = {.duplication = 1}});
  far_->Transmit(NumberedFrame(0), 0);
  FrameList list;
  EXPECT_EQ(wire_->Receive(list, 1, 0), 1);
  EXPECT_EQ(wire_->NextDeadline(), 0);
  EXPECT_EQ(wire_->Receive(list, 1, 0), 1);
  EXPECT_EQ(wire_->Receive(list, 1, 0), 0);
}

TEST_F(ImpairmentTest, LostFramesDoNotHideThoseBehindThem) {
  Impair({});
  wire_->DropNext(WireDirection::kReceive, 25);
  for (uint32_t i = 0; i < 30; ++i) far_->Transmit(NumberedFrame(i), 0);
  FrameList list;
  EXPECT_EQ(wire_->Receive(list, 10, 0), 5);
  EXPECT_EQ(wire_->Receive(list, 10, 0), 0);
}

TEST_F(ImpairmentTest, DelayBeginsWhenAFrameComesHoweverManyComeAtOnce) {
  Impair({.receive = {.delay_ns = 1'000}});
  for (uint32_t i = 0; i < 30; ++i) far_->Transmit(NumberedFrame(i), 0);
  FrameList list;
  EXPECT_EQ(wire_->Receive(list, 10, 0), 0);
  for (int turn = 0; turn < 3; ++turn) EXPECT_EQ(wire_->Receive(list, 10, 1'000), 10);
}

TEST_F(ImpairmentTest, CorruptionFlipsOneBit) {
  Impair({.transmit = {.corruption = 1}});
  const std::vector<uint8_t> original = NumberedFrame(1);
  wire_->Transmit(original, 0);
  FrameList list;
  far_->Receive(list, 1, 0);
  ASSERT_EQ(list.entries.size(), 1u);
  int flipped = 0;
  for (size_t i = 0; i < original.size(); ++i) {
    flipped += std::popcount(static_cast<uint8_t>(original[i] ^ list.entries[0].bytes[i]));
  }
  EXPECT_EQ(flipped, 1);
}

TEST_F(ImpairmentTest, DelayIsExactInTheTimeHandedIn) {
  Impair({.transmit = {.delay_ns = 500}, .receive = {.delay_ns = 700}});
  FrameList list;
  wire_->Transmit(NumberedFrame(0), 1000);
  EXPECT_EQ(wire_->NextDeadline(), 1500);
  wire_->Receive(list, 10, 1499);
  EXPECT_EQ(far_->Receive(list, 10, 1499), 0);
  wire_->Receive(list, 10, 1500);
  EXPECT_EQ(far_->Receive(list, 10, 1500), 1);
  EXPECT_EQ(list.entries[0].time_ns, 1500);

  far_->Transmit(NumberedFrame(1), 2000);
  EXPECT_EQ(wire_->Receive(list, 10, 2000), 0);
  EXPECT_EQ(wire_->NextDeadline(), 2700);
  EXPECT_EQ(wire_->Receive(list, 10, 2699), 0);
  EXPECT_EQ(wire_->Receive(list, 10, 2700), 1);
  EXPECT_EQ(list.entries[1].time_ns, 2700);
  EXPECT_EQ(wire_->NextDeadline(), kNoDeadline);
}

TEST_F(ImpairmentTest, JitterSpreadsButReordersNothing) {
  Impair({.receive = {.delay_ns = 100, .jitter_ns = 50'000}});
  EXPECT_EQ(Numbers(WireDirection::kReceive, 200, 100'000), Counted(200));
  EXPECT_EQ(CountOf(*wire_, "impaired_rx_delayed"), 200u);
}

TEST_F(ImpairmentTest, ReorderedFramesAreOvertakenAndNoneIsLost) {
  for (const WireDirection direction : kBoth) {
    const Impairment some{.reordering = 0.2, .reorder_hold_ns = 3500};
    Impair({.seed = 5, .transmit = some, .receive = some});
    std::vector<uint32_t> numbers = Numbers(direction, 100, 10'000);
    EXPECT_FALSE(std::is_sorted(numbers.begin(), numbers.end()));
    std::sort(numbers.begin(), numbers.end());
    EXPECT_EQ(numbers, Counted(100));
  }
}

TEST_F(ImpairmentTest, DropsWhatIsAskedByNumberAndNext) {
  for (const WireDirection direction : kBoth) {
    Impair({});
    wire_->DropFrame(direction, 3);
    wire_->DropNext(direction, 2);
    EXPECT_EQ(Numbers(direction, 6), (std::vector<uint32_t>{2, 4, 5}));
    const bool tx = direction == WireDirection::kTransmit;
    EXPECT_EQ(CountOf(*wire_, tx ? "impaired_tx_dropped_asked" : "impaired_rx_dropped_asked"), 3u);
  }
}

TEST_F(ImpairmentTest, SinkMayAskAndSendMeanwhile) {
  Impair({.receive = {.duplication = 1}});
  struct Echo final : FrameSink {
    explicit Echo(ImpairedWire& wire) : wire(wire) {}
    void OnFrame(std::span<const uint8_t> frame, int64_t time_ns) override {
      wire.NextDeadline();
      wire.counters();
      wire.DropNext(WireDirection::kReceive, 0);
      wire.Transmit(frame, time_ns);
    }
    ImpairedWire& wire;
  } echo(*wire_);
  far_->Transmit(NumberedFrame(9), 0);
  EXPECT_EQ(wire_->Receive(echo, 10, 0), 2);
  FrameList list;
  EXPECT_EQ(far_->Receive(list, 10, 0), 2);
}

TEST(ImpairmentValidateTest, NamesTheFieldOutOfRange) {
  EXPECT_EQ(Impairment{}.Validate(), absl::OkStatus());
  const auto message = [](const Impairment& bad) { return std::string(bad.Validate().message()); };
  EXPECT_NE(message({.loss = 1.5}).find("loss"), std::string::npos);
  EXPECT_NE(message({.corruption = -1}).find("corruption"), std::string::npos);
  EXPECT_FALSE(Impairment{.jitter_ns = -1}.Validate().ok());
}

}  // namespace
}  // namespace xtreme::connectx
