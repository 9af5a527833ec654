// SPDX-License-Identifier: Apache-2.0
#include "stack/wire/tcp_options.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "stack/wire/golden.h"

namespace xtreme::wire {
namespace {

TcpOptions Parsed(const Bytes& bytes, TcpOptionsError error = TcpOptionsError::kNone) {
  TcpOptions options;
  options.mss = 1;  // what was there before does not stay
  options.SetSack(std::array{SackBlock{1, 2}});
  const Exact exact(bytes);
  EXPECT_EQ(options.Parse(exact.span()), error);
  return options;
}

Bytes Emitted(const TcpOptions& options) {
  Bytes bytes = Poisoned(kTcpMaxOptionsBytes + 4);
  const size_t size = options.Emit(bytes);
  EXPECT_EQ(size, options.emitted_bytes());
  EXPECT_EQ(Bytes(bytes.begin() + static_cast<ptrdiff_t>(size), bytes.end()),
            Poisoned(bytes.size() - size));
  bytes.resize(size);
  return bytes;
}

TcpOptions Syn() {
  TcpOptions options;
  options.mss = 1460;
  options.window_scale = 7;
  options.sack_permitted = true;
  options.timestamps = TcpTimestamps{0x01020304, 0};
  return options;
}

TEST(TcpOptions, NoneAreNoBytes) {
  EXPECT_EQ(Emitted(TcpOptions()), Bytes());
  EXPECT_EQ(Parsed({}), TcpOptions());
}

TEST(TcpOptions, ASynHasThemAllInTwentyBytes) {
  const Bytes golden = Hex("020405b4 0402 080a01020304 00000000 01 030307");
  EXPECT_EQ(Emitted(Syn()), golden);
  EXPECT_EQ(Parsed(golden), Syn());
}

TEST(TcpOptions, WhatIsNearlyTheUsualSynReadsAsItStands) {
  const Bytes usual = Hex("020405b4 0402 080a01020304 05060708 01 030307");
  for (size_t at = 0; at < usual.size(); ++at) {
    for (const uint8_t flip : {1, 2, 4, 8, 0x80}) {
      Bytes changed = usual;
      changed[at] ^= flip;
      // Behind an end of options nothing is read, and the longer ones are no usual SYN's.
      Bytes longer = changed;
      longer.resize(24);
      TcpOptions as_it_stands, padded;
      const TcpOptionsError error = as_it_stands.Parse(changed);
      if (padded.Parse(longer) != error) continue;  // A length reached beyond what is there.
      EXPECT_EQ(as_it_stands, padded) << "byte " << at << " with bits " << int{flip};
    }
  }
}

TEST(TcpOptions, WithoutTimestampsPermissionHasItsOwnPadding) {
  TcpOptions options = Syn();
  options.timestamps.reset();
  const Bytes golden = Hex("020405b4 01010402 01030307");
  EXPECT_EQ(Emitted(options), golden);
  EXPECT_EQ(Parsed(golden), options);
}

TEST(TcpOptions, TimestampsAloneAreAsEverybodyLaysThemOut) {
  TcpOptions options;
  options.timestamps = TcpTimestamps{0x01020304, 0xA0B0C0D0};
  const Bytes golden = Hex("0101080a 01020304 a0b0c0d0");
  EXPECT_EQ(Emitted(options), golden);
  EXPECT_TRUE(BeginsWithTimestamps(golden.data()));
  EXPECT_EQ(Parsed(golden), options);
}

TEST(TcpOptions, FourSackBlocksFitAloneAndThreeBesideTimestamps) {
  TcpOptions options;
  options.SetSack(std::array{SackBlock{1, 2}, SackBlock{0xFFFFFFFF, 4}, SackBlock{5, 6},
                             SackBlock{7, 8}, SackBlock{9, 10}});
  ASSERT_EQ(options.sack().size(), 4u);
  const Bytes four =
      Hex("01010522 00000001 00000002 ffffffff 00000004 00000005 00000006 00000007 00000008");
  EXPECT_EQ(Emitted(options), four);
  EXPECT_EQ(Parsed(four), options);
  options.timestamps = TcpTimestamps{1, 2};
  const Bytes three = Hex("0101080a 00000001 00000002") +
                      Hex("0101051a 00000001 00000002 ffffffff 00000004 00000005 00000006");
  EXPECT_EQ(Emitted(options), three);
  EXPECT_EQ(Parsed(three).sack().size(), 3u);
}

TEST(TcpOptions, NothingIsWrittenWhereThereIsNoRoom) {
  Bytes bytes = Poisoned(19);
  EXPECT_EQ(Syn().Emit(bytes), 0u);
  EXPECT_EQ(bytes, Poisoned(19));
}

TEST(TcpOptions, UnknownOptionsAreSkippedByTheirLength) {
  const TcpOptions options = Parsed(Hex("fd04beef 01 2202 020405b4 1e0c 00112233445566778899"));
  EXPECT_EQ(options.mss, 1460);
}

TEST(TcpOptions, NothingIsReadPastTheEndOfOptions) {
  EXPECT_EQ(Parsed(Hex("00 020405b4")), TcpOptions());
  EXPECT_EQ(Parsed(Hex("00 ff")), TcpOptions());
}

TEST(TcpOptions, TheLastOfAKindCounts) { EXPECT_EQ(Parsed(Hex("02040200 02040400")).mss, 1024); }

TEST(TcpOptions, MalformedOnesAreNamedAndTheOthersTaken) {
  struct Row {
    const char* name;
    Bytes bytes;  // an MSS of 1460 may stand before or behind
    TcpOptionsError error;
    bool mss;
  };
  const Bytes mss = Hex("020405b4");
  for (const Row& row : {
           Row{"length 0", mss + Hex("0500"), TcpOptionsError::kLength, true},
           Row{"length 0 hides the rest", Hex("0500") + mss, TcpOptionsError::kLength, false},
           Row{"length 1", mss + Hex("fd01"), TcpOptionsError::kLength, true},
           Row{"kind without length", mss + Hex("08"), TcpOptionsError::kLength, true},
           Row{"past the end", mss + Hex("080a 01020304 000000"), TcpOptionsError::kLength, true},
           Row{"MSS of 3", Hex("020305") + mss, TcpOptionsError::kMssLength, true},
           Row{"MSS of 5", Hex("020505b400"), TcpOptionsError::kMssLength, false},
           Row{"scale of 2", Hex("0302") + mss, TcpOptionsError::kWindowScaleLength, true},
           Row{"scale of 4", Hex("03040700") + mss, TcpOptionsError::kWindowScaleLength, true},
           Row{"permission of 3", Hex("040300") + mss, TcpOptionsError::kSackPermittedLength, true},
           Row{"SACK of none", Hex("0502") + mss, TcpOptionsError::kSackLength, true},
           Row{"SACK of half a block", Hex("0506 00000001") + mss, TcpOptionsError::kSackLength,
               true},
           Row{"timestamps of 9", Hex("0809 01020304 000000") + mss,
               TcpOptionsError::kTimestampsLength, true},
           Row{"the first counts", Hex("0302 0809 01020304 000000") + mss,
               TcpOptionsError::kWindowScaleLength, true},
       }) {
    SCOPED_TRACE(row.name);
    const TcpOptions options = Parsed(row.bytes, row.error);
    EXPECT_EQ(options.mss.has_value(), row.mss);
    EXPECT_FALSE(options.window_scale || options.timestamps || options.sack_permitted);
    EXPECT_TRUE(options.sack().empty());
  }
}

TEST(TcpOptions, NoMoreThanAHeaderHoldsIsRead) {
  Bytes many = Hex("0522");
  many.resize(300, 1);
  many[1] = 250;
  EXPECT_TRUE(Parsed(many, TcpOptionsError::kLength).sack().empty());
}

TEST(TcpOptions, ClearedOnesEqualNone) {
  TcpOptions options = Syn();
  options.SetSack(std::array{SackBlock{1, 2}});
  EXPECT_FALSE(options == TcpOptions());
  options.Clear();
  EXPECT_EQ(options, TcpOptions());
}

TEST(TcpOptionsError, EachHasANameOfItsOwn) {
  std::set<std::string> names;
  base::VisitCounters(TcpOptionsCounters(),
                      [&](std::string_view name, std::string_view meaning, const uint64_t&) {
                        EXPECT_FALSE(meaning.empty());
                        names.emplace(name);
                      });
  EXPECT_EQ(names.size(), static_cast<size_t>(TcpOptionsError::kCount));
  EXPECT_EQ(DescribeReason(TcpOptionsError::kTimestampsLength).name, "timestamps_length");
}

}  // namespace
}  // namespace xtreme::wire
