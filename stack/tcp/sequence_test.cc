// SPDX-License-Identifier: Apache-2.0
#include "stack/tcp/sequence.h"

#include <gtest/gtest.h>

namespace xtreme::tcp {
namespace {

constexpr uint32_t kMax = 0xFFFFFFFF;

TEST(Seq, ComparesAcrossTheWrap) {
  const Seq before(kMax - 4);
  const Seq after = before + 10;
  EXPECT_EQ(after.value(), 5u);
  EXPECT_TRUE(before < after && before <= after && before != after);
  EXPECT_TRUE(after > before && after >= before);
  EXPECT_EQ(after - before, 10);
  EXPECT_EQ(before - after, -10);
  EXPECT_EQ(Distance(before, after), 10u);
  EXPECT_EQ(after - 10u, before);
  EXPECT_EQ(Earlier(before, after), before);
  EXPECT_EQ(Later(before, after), after);
}

TEST(Seq, JustUnderHalfTheCircleAheadIsStillAhead) {
  EXPECT_TRUE(Seq(7) < Seq(7) + 0x7FFFFFFF);
  EXPECT_FALSE(Seq(7) < Seq(7) + 0x80000001);
}

// The four rows of RFC 9293 section 3.4, at every edge, and again across the wrap.
TEST(IsAcceptable, FollowsTheTable) {
  struct Row {
    const char* name;
    int32_t sequence;  // relative to RCV.NXT
    uint32_t length;
    uint32_t window;
    bool acceptable;
  };
  for (const Row& row : {
           Row{"empty, closed window, at next", 0, 0, 0, true},
           Row{"empty, closed window, before next", -1, 0, 0, false},
           Row{"empty, closed window, after next", 1, 0, 0, false},
           Row{"empty, before the window", -1, 0, 100, false},
           Row{"empty, first of the window", 0, 0, 100, true},
           Row{"empty, last of the window", 99, 0, 100, true},
           Row{"empty, at the window's end", 100, 0, 100, true},
           Row{"empty, after the window", 101, 0, 100, false},
           Row{"data, closed window, at next", 0, 1, 0, false},
           Row{"data, closed window, before next", -10, 10, 0, false},
           Row{"data that ends before the window", -10, 10, 100, false},
           Row{"data whose last byte is the first", -10, 11, 100, true},
           Row{"data that starts at the last byte", 99, 50, 100, true},
           Row{"data after the window", 100, 1, 100, false},
           Row{"data over the whole window", 0, 100, 100, true},
       }) {
    for (uint32_t next : {0u, 1000u, kMax - 50, kMax}) {
      EXPECT_EQ(IsAcceptable(Seq(next) + static_cast<uint32_t>(row.sequence), row.length, Seq(next),
                             row.window),
                row.acceptable)
          << row.name << ", RCV.NXT " << next;
    }
  }
}

TEST(PlaceAck, TellsNewDuplicateUnsentAndTooOldApart) {
  const Seq una(kMax - 10);
  const Seq nxt = una + 100;
  EXPECT_EQ(PlaceAck(una, una, nxt, 50), AckPlace::kDuplicate);
  EXPECT_EQ(PlaceAck(una + 1, una, nxt, 50), AckPlace::kNew);
  EXPECT_EQ(PlaceAck(nxt, una, nxt, 50), AckPlace::kNew);
  EXPECT_EQ(PlaceAck(nxt + 1, una, nxt, 50), AckPlace::kUnsent);
  EXPECT_EQ(PlaceAck(una - 50u, una, nxt, 50), AckPlace::kDuplicate);
  EXPECT_EQ(PlaceAck(una - 51u, una, nxt, 50), AckPlace::kTooOld);
}

TEST(IsOlderTimestamp, WrapsAsSequenceNumbersDo) {
  EXPECT_TRUE(IsOlderTimestamp(kMax, 3));
  EXPECT_FALSE(IsOlderTimestamp(3, kMax));
  EXPECT_FALSE(IsOlderTimestamp(3, 3));
}

}  // namespace
}  // namespace xtreme::tcp
