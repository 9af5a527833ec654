// SPDX-License-Identifier: Apache-2.0
#include "stack/tcp/scoreboard.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <string>
#include <vector>

namespace xtreme::tcp {
namespace {

using Blocks = std::vector<wire::SackBlock>;

constexpr Seq kFirst(0xFFFFFF00);
constexpr uint32_t kSmss = 100;

wire::SackBlock Block(uint32_t left, uint32_t right) {
  return {(kFirst + left).value(), (kFirst + right).value()};
}

class ScoreboardTest : public testing::Test {
 protected:
  void TearDown() override {
    queue_.Cancel([](const Segment&) {});
  }

  void Send(int segments, uint32_t length = kSmss) {
    for (int i = 0; i < segments; ++i) {
      queue_.MarkSent(*queue_.Append({.bytes = memory_, .length = length}), base::Seconds(1),
                      false);
    }
  }

  Scoreboard::Outcome Process(const Blocks& blocks, uint32_t ack = 0) {
    visited_.clear();
    return scoreboard_.Process(blocks, kFirst + ack, kSmss, queue_, [this](const Segment& segment) {
      visited_.push_back(Distance(kFirst, segment.sequence));
    });
  }

  // A letter a segment: 's' where it is marked sacked.
  std::string Marks() const {
    std::string marks;
    for (const Segment* s = queue_.first(); s != nullptr; s = s->next) {
      marks += s->Has(Segment::kSacked) ? 's' : '.';
    }
    return marks;
  }

  uint8_t memory_[1000] = {};
  SegmentPool segments_{64};
  SegmentQueue queue_{segments_, kFirst};
  Scoreboard scoreboard_;
  std::vector<uint32_t> visited_;
};

TEST_F(ScoreboardTest, MarksWhatTheBlocksCoverAndTellsOfEachOnce) {
  Send(10);
  EXPECT_EQ(Process({Block(700, 900), Block(200, 400)}).newly_sacked, 400u);
  EXPECT_EQ(Marks(), "..ss...ss.");
  EXPECT_EQ(visited_, (std::vector<uint32_t>{700, 800, 200, 300}));
  EXPECT_EQ(Process({Block(700, 900), Block(200, 400)}).newly_sacked, 0u);
  EXPECT_TRUE(visited_.empty());
}

TEST_F(ScoreboardTest, ABlockThatGrowsMarksWhatItGrewBy) {
  Send(10);
  Process({Block(200, 400)});
  EXPECT_EQ(Process({Block(200, 600)}).newly_sacked, 200u);
  EXPECT_EQ(Process({Block(100, 700)}).newly_sacked, 200u);
  EXPECT_EQ(Marks(), ".ssssss...");
}

// The same numbers come again after 4 GB.
TEST_F(ScoreboardTest, ABlockOfLongAgoIsNotWhatOneOfTheSameNumbersGrewFrom) {
  Send(10);
  Process({Block(200, 400)});
  queue_.Acknowledge(kFirst + 1000, [](const Segment&) {});
  queue_.Reset(kFirst);
  Send(10);
  EXPECT_EQ(Process({Block(200, 600)}).newly_sacked, 400u);
  EXPECT_EQ(Marks(), "..ssss....");
}

TEST_F(ScoreboardTest, ASegmentThatIsCoveredInPartIsNotMarkedYet) {
  Send(3);
  EXPECT_EQ(Process({Block(150, 250)}).newly_sacked, 0u);
  EXPECT_EQ(Process({Block(150, 300)}).newly_sacked, 100u);
  EXPECT_EQ(Process({Block(100, 300)}).newly_sacked, 100u);
  EXPECT_EQ(Marks(), ".ss");
}

TEST_F(ScoreboardTest, ALongSegmentIsSplitWhereTheBlockBeginsAndEnds) {
  Send(2, 500);
  EXPECT_EQ(Process({Block(200, 700)}).newly_sacked, 500u);
  EXPECT_EQ(Marks(), ".ss.");
  EXPECT_EQ(queue_.first()->length, 200u);
  EXPECT_EQ(queue_.last()->length, 300u);
  EXPECT_EQ(queue_.flight(), (Flight{.outstanding = 1000, .sacked = 500, .sacked_segments = 2}));
}

// It left in pieces of a segment each.
TEST_F(ScoreboardTest, ALongSegmentIsSplitOnlyWherePiecesOfItBeginAndEnd) {
  Send(1, 950);
  EXPECT_EQ(Process({Block(150, 450)}).newly_sacked, 200u);
  EXPECT_EQ(Marks(), ".s.");
  EXPECT_EQ(queue_.first()->length, 200u);
  EXPECT_EQ(queue_.last()->length, 550u);
  EXPECT_EQ(Process({Block(850, 950)}).newly_sacked, 50u) << "the last one is shorter";
  EXPECT_EQ(Marks(), ".s.s");
}

TEST_F(ScoreboardTest, BlocksOfAByteTakeNoSegments) {
  Send(1, 1000);
  const uint32_t free = segments_.free_count();
  for (uint32_t at = 1; at < 999; at += 2) Process({Block(at, at + 1)});
  EXPECT_EQ(segments_.free_count(), free);
  EXPECT_EQ(Marks(), ".");
}

TEST_F(ScoreboardTest, WhatIsNotOutstandingIsInvalid) {
  Send(4);
  queue_.Acknowledge(kFirst + 100, [](const Segment&) {});
  queue_.Append({.bytes = memory_, .length = kSmss});
  for (const wire::SackBlock& block :
       {Block(200, 500), Block(300, 200), Block(200, 200), Block(1000, 1100)}) {
    const auto outcome = Process({block}, 100);
    EXPECT_EQ(outcome.invalid_blocks, 1u) << Distance(kFirst, Seq(block.left));
    EXPECT_EQ(outcome.newly_sacked, 0u);
  }
  EXPECT_EQ(Process({Block(200, 400)}, 100).newly_sacked, 200u) << "an invalid one hides nothing";
  EXPECT_EQ(Marks(), ".ss.");
}

TEST_F(ScoreboardTest, ABlockThatWasAheadOfTheDataIsTakenWhenThatIsSent) {
  Send(4);
  EXPECT_EQ(Process({Block(200, 500)}).invalid_blocks, 1u);
  Send(1);
  EXPECT_EQ(Process({Block(200, 500)}).newly_sacked, 300u);
}

TEST_F(ScoreboardTest, AnOldAcknowledgementMarksWhatIsStillOutstanding) {
  Send(6);
  queue_.Acknowledge(kFirst + 300, [](const Segment&) {});
  EXPECT_EQ(Process({Block(200, 500)}, 100).newly_sacked, 200u);
  const auto outcome = Process({Block(200, 300)}, 100);
  EXPECT_EQ(outcome.newly_sacked, 0u);
  EXPECT_EQ(outcome.invalid_blocks, 0u);
}

TEST_F(ScoreboardTest, TheFirstBlockBelowTheAcknowledgementIsADsack) {
  Send(6);
  queue_.Acknowledge(kFirst + 300, [](const Segment&) {});
  const auto outcome = Process({Block(100, 200), Block(400, 500)}, 300);
  EXPECT_EQ(outcome.dsack, Block(100, 200));
  EXPECT_EQ(outcome.newly_sacked, 100u);
  EXPECT_EQ(outcome.invalid_blocks, 0u);
}

TEST_F(ScoreboardTest, OnlyTheFirstBlockMayLieBelowTheAcknowledgement) {
  Send(6);
  queue_.Acknowledge(kFirst + 300, [](const Segment&) {});
  const auto outcome = Process({Block(400, 500), Block(100, 200)}, 300);
  EXPECT_FALSE(outcome.dsack);
  EXPECT_EQ(outcome.invalid_blocks, 1u);
}

TEST_F(ScoreboardTest, TheFirstBlockInsideTheSecondIsADsack) {
  Send(6);
  const auto outcome = Process({Block(300, 400), Block(200, 500)});
  EXPECT_EQ(outcome.dsack, Block(300, 400));
  EXPECT_EQ(outcome.newly_sacked, 300u);
}

TEST_F(ScoreboardTest, OtherBlocksAreNone) {
  Send(6);
  EXPECT_FALSE(Process({Block(300, 400)}).dsack);
  EXPECT_FALSE(Process({Block(100, 400), Block(200, 300)}).dsack);
  EXPECT_FALSE(Process({Block(400, 300)}).dsack);
  EXPECT_FALSE(Process({}).dsack);
}

TEST_F(ScoreboardTest, APeerThatRenegedIsFoundAndForgotten) {
  Send(4);
  Process({Block(100, 300)});
  EXPECT_FALSE(Scoreboard::HasReneged(queue_));
  queue_.Acknowledge(kFirst + 100, [](const Segment&) {});
  EXPECT_TRUE(Scoreboard::HasReneged(queue_));
  scoreboard_.Forget(queue_);
  EXPECT_EQ(Marks(), "...");
  EXPECT_EQ(queue_.flight(), (Flight{.outstanding = 300}));
  EXPECT_EQ(Process({Block(100, 300)}, 100).newly_sacked, 200u) << "known again from nothing";
}

// Any blocks, against a set of bytes.
TEST_F(ScoreboardTest, MarksExactlyTheSegmentsWhoseBytesArrived) {
  for (uint32_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    SegmentPool pool(64);
    SegmentQueue queue(pool, kFirst);
    Scoreboard scoreboard;
    for (int i = 0; i < 20; ++i) {
      queue.MarkSent(
          *queue.Append({.bytes = memory_, .length = static_cast<uint32_t>(1 + random() % kSmss)}),
          base::Seconds(1), false);
    }
    const uint32_t all = Distance(kFirst, queue.end());
    // The receiver's ranges only grow.
    std::set<uint32_t> arrived;
    for (int step = 0; step < 30; ++step) {
      const Segment* s = queue.first();
      for (uint32_t i = random() % 20; i > 0; --i) s = s->next;
      for (Seq at = s->sequence; at < s->end(); at += 1) arrived.insert(Distance(kFirst, at));
      uint32_t left = Distance(kFirst, s->sequence);
      uint32_t right = Distance(kFirst, s->end());
      while (left > 0 && arrived.contains(left - 1)) --left;
      while (right < all && arrived.contains(right)) ++right;
      if (left == 0) continue;  // it would be acknowledged
      scoreboard.Process(Blocks{Block(left, right)}, kFirst, kSmss, queue, [](const Segment&) {});
      EXPECT_TRUE(s->Has(Segment::kSacked));
    }
    for (const Segment* s = queue.first(); s != nullptr; s = s->next) {
      EXPECT_TRUE(!s->Has(Segment::kSacked) || arrived.contains(Distance(kFirst, s->sequence)));
    }
    queue.Cancel([](const Segment&) {});
  }
}

}  // namespace
}  // namespace xtreme::tcp
