// SPDX-License-Identifier: Apache-2.0
#include "stack/tcp/reassembler.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "stack/packet/buffer_pool.h"

namespace xtreme::tcp {
namespace {

using packet::Buffer;
using packet::BufferPool;
using Result = Reassembler::Result;
using Blocks = std::vector<wire::SackBlock>;

constexpr uint32_t kPoolBuffers = 256;
constexpr uint32_t kWindow = 1000;
constexpr Seq kBase(0xFFFFFFF6);  // ten bytes before the wrap
constexpr ReassemblyStore::Options kOptions{.segments = 64,
                                            .connections = 2,
                                            .buffers_per_connection = 32,
                                            .bytes_per_connection = 500,
                                            .coalesce_after_buffers = 4,
                                            .coalesce_bytes = 16};

// Places are relative: next_ is where the next byte in order goes, from 0 on.
class ReassemblerTest : public testing::Test {
 protected:
  static BufferPool::Handle MakePool() {
    auto pool = BufferPool::Create({.buffers = kPoolBuffers,
                                    .buffer_bytes = 256,
                                    .headroom = 64,
                                    .hugepages = BufferPool::Hugepages::kNever});
    return *std::move(pool);
  }

  void TearDown() override {
    EXPECT_EQ(reassembler_.held_buffers() + pool_->free_count(), kPoolBuffers);
    reassembler_.Clear();
    EXPECT_EQ(pool_->free_count(), kPoolBuffers) << "a buffer was lost";
    EXPECT_EQ(store_.held_segments(), 0u);
  }

  Buffer* Filled(std::string_view text) {
    Buffer* const buffer = pool_->Acquire();
    std::copy(text.begin(), text.end(), buffer->data);
    buffer->length = static_cast<uint32_t>(text.size());
    return buffer;
  }

  Reassembler::Insertion Insert(uint32_t at, std::string_view text, uint64_t stamp = 0) {
    return reassembler_.Insert({.sequence = kBase + at,
                                .length = static_cast<uint32_t>(text.size()),
                                .head = Filled(text),
                                .stamp = stamp},
                               kBase + next_, kWindow);
  }

  // Everything that can be delivered, as text, after `bytes` more arrived in order.
  std::string Fill(uint32_t bytes) {
    next_ += bytes;
    std::string text;
    while (const auto run = reassembler_.Take(kBase + next_)) {
      for (const Buffer* link = run->head; link != nullptr; link = link->next) {
        text.append(reinterpret_cast<const char*>(link->data), link->length);
      }
      next_ += run->length;
      stamps_.push_back(run->stamp);
      BufferPool::ReleaseChain(run->head);
    }
    return text;
  }

  Blocks Sack(const std::optional<wire::SackBlock>& duplicate = std::nullopt) const {
    Blocks blocks(wire::kTcpMaxSackBlocks);
    blocks.resize(reassembler_.SackBlocks(duplicate, blocks));
    return blocks;
  }

  static wire::SackBlock Block(uint32_t left, uint32_t right) {
    return {(kBase + left).value(), (kBase + right).value()};
  }

  const BufferPool::Handle pool_ = MakePool();
  ReassemblyStore store_{kOptions};
  Reassembler reassembler_{store_};
  uint32_t next_ = 0;
  std::vector<uint64_t> stamps_;
};

TEST_F(ReassemblerTest, DeliversAcrossAFilledHoleEachWithItsOwnStamp) {
  EXPECT_EQ(Insert(10, "cd", 12).result, Result::kHeld);
  EXPECT_EQ(Insert(8, "ab", 11).result, Result::kHeld);
  EXPECT_EQ(Fill(7), "");
  EXPECT_EQ(Fill(1), "abcd");
  EXPECT_EQ(stamps_, (std::vector<uint64_t>{11, 12}));
  EXPECT_TRUE(reassembler_.empty());
}

TEST_F(ReassemblerTest, StampsThatAreForgottenAreThoseOfWhatIsHeld) {
  Insert(10, "cd", 12);
  store_.ForgetStamps();
  Insert(8, "ab", 11);
  EXPECT_EQ(Fill(8), "abcd");
  EXPECT_EQ(stamps_, (std::vector<uint64_t>{11, 0}));
}

TEST_F(ReassemblerTest, WhatLiesAcrossTheRightEdgeIsCutExactly) {
  EXPECT_EQ(Insert(kWindow - 2, "abcd").result, Result::kHeld);
  EXPECT_EQ(reassembler_.held_bytes(), 2u);
  EXPECT_EQ(Insert(kWindow, "x").result, Result::kNothingNew);
  EXPECT_EQ(store_.counters().outside_window_bytes, 3u);
  EXPECT_EQ(Fill(kWindow - 2), "ab");
}

TEST_F(ReassemblerTest, ADuplicateIsDroppedAndNamed) {
  Insert(10, "abcdef");
  const auto insertion = Insert(12, "cd");
  EXPECT_EQ(insertion.result, Result::kNothingNew);
  EXPECT_EQ(insertion.duplicate, Block(12, 14));
  EXPECT_EQ(store_.counters().duplicate_bytes, 2u);
  // RFC 2883 section 4.1.2: the duplicate first, then the range around it.
  EXPECT_EQ(Sack(insertion.duplicate), (Blocks{Block(12, 14), Block(10, 16)}));
  EXPECT_EQ(Fill(10), "abcdef");
}

TEST_F(ReassemblerTest, OverlapsAreCutOnBothSides) {
  Insert(10, "cd");
  Insert(20, "mn");
  const auto insertion = Insert(11, "defghijklm");
  EXPECT_EQ(insertion.result, Result::kHeld);
  EXPECT_EQ(insertion.duplicate, Block(11, 12));
  EXPECT_EQ(reassembler_.held_bytes(), 12u);
  EXPECT_EQ(Fill(10), "cdefghijklmn");
}

TEST_F(ReassemblerTest, ARunThatCoversOthersReplacesThem) {
  Insert(10, "b");
  Insert(12, "d");
  Insert(14, "fg");
  EXPECT_EQ(Insert(9, "abcdef").duplicate, Block(10, 11));
  EXPECT_EQ(reassembler_.held_bytes(), 7u);
  EXPECT_EQ(reassembler_.held_buffers(), 2u);
  EXPECT_EQ(Fill(9), "abcdefg");
}

TEST_F(ReassemblerTest, ADuplicateAcrossTwoRunsIsOneStretch) {
  Insert(10, "ab");
  Insert(12, "cd");
  const auto insertion = Insert(10, "abcd");
  EXPECT_EQ(insertion.result, Result::kNothingNew);
  EXPECT_EQ(insertion.duplicate, Block(10, 14));
}

TEST_F(ReassemblerTest, TheLastArrivalComesFirstInSack) {
  Insert(10, "aa");
  Insert(20, "bb");
  Insert(30, "cc");
  EXPECT_EQ(Sack(), (Blocks{Block(30, 32), Block(20, 22), Block(10, 12)}));
  Insert(12, "aa");
  EXPECT_EQ(Sack(), (Blocks{Block(10, 14), Block(30, 32), Block(20, 22)}));
  Insert(22, "bbbbbbbb");
  EXPECT_EQ(Sack(), (Blocks{Block(20, 32), Block(10, 14)}));
}

TEST_F(ReassemblerTest, AForgottenRangeIsReportedWholeWhenItGrows) {
  Insert(10, "aa");
  Insert(12, "aa");
  for (uint32_t at : {20u, 30u, 40u, 50u}) Insert(at, "x");
  EXPECT_EQ(Sack(), (Blocks{Block(50, 51), Block(40, 41), Block(30, 31), Block(20, 21)}));
  Insert(14, "b");
  EXPECT_EQ(Sack()[0], Block(10, 15));
}

TEST_F(ReassemblerTest, WhatWasRecentElsewhereComesFirstInItsOrder) {
  for (uint32_t at : {10u, 20u, 30u, 40u, 50u}) Insert(at, "xx");
  // The second fell out of the recent ones, the third is held in part, the last is not held.
  const Blocks elsewhere = {Block(20, 22), Block(50, 52), Block(9, 11), Block(11, 14),
                            Block(60, 62)};
  reassembler_.PutFirst(elsewhere);
  EXPECT_EQ(Sack(), (Blocks{Block(20, 22), Block(50, 52), Block(10, 12), Block(40, 42)}));
}

TEST_F(ReassemblerTest, WhatIsDeliveredIsNoLongerInSack) {
  Insert(10, "aa");
  Insert(20, "bb");
  Fill(10);
  EXPECT_EQ(Sack(), (Blocks{Block(20, 22)}));
}

TEST_F(ReassemblerTest, ForgottenRangesComeBackWhenTheRecentOnesAreDelivered) {
  for (uint32_t at : {90u, 10u, 20u, 30u, 40u}) Insert(at, "x");
  reassembler_.Supersede(kBase, kBase + 50);
  EXPECT_EQ(Sack(), (Blocks{Block(90, 91)}));
}

TEST_F(ReassemblerTest, DataInOrderSupersedesWhatWasHeld) {
  Insert(10, "ab");
  Insert(14, "efgh");
  EXPECT_EQ(reassembler_.Supersede(kBase + 0, kBase + 16), Block(10, 12));
  EXPECT_EQ(reassembler_.held_bytes(), 2u);
  EXPECT_EQ(Sack(), (Blocks{Block(16, 18)}));
  EXPECT_EQ(Fill(16), "gh");
  EXPECT_EQ(reassembler_.Supersede(kBase + 16, kBase + 18), std::nullopt);
}

TEST_F(ReassemblerTest, OneByteSegmentsShareBuffers) {
  std::string text;
  for (uint32_t i = 0; i < 150; ++i) {
    const char letter = static_cast<char>('a' + i % 26);
    text += letter;
    ASSERT_EQ(Insert(10 + i, std::string_view(&letter, 1), i).result, Result::kHeld);
  }
  EXPECT_EQ(reassembler_.held_bytes(), 150u);
  EXPECT_EQ(reassembler_.held_buffers(), kOptions.coalesce_after_buffers);
  EXPECT_EQ(store_.counters().coalesced, 150 - kOptions.coalesce_after_buffers);
  EXPECT_EQ(Sack(), (Blocks{Block(10, 160)}));
  EXPECT_EQ(Fill(10), text);
  EXPECT_EQ(stamps_, (std::vector<uint64_t>{0, 1, 2, 3}));
}

TEST_F(ReassemblerTest, OneByteSegmentsFromTheEndShareBuffersToo) {
  for (uint32_t i = 0; i < 60; ++i) {
    const char letter = static_cast<char>('z' - i % 26);
    Insert(100 - i, std::string_view(&letter, 1));
  }
  EXPECT_EQ(reassembler_.held_buffers(), kOptions.coalesce_after_buffers);
  EXPECT_EQ(Fill(41).substr(60 - 26), "abcdefghijklmnopqrstuvwxyz");
}

TEST_F(ReassemblerTest, ASegmentCopiedBeforeAnotherBringsItsStamp) {
  for (uint32_t i = 0; i < 4; ++i) Insert(20 + 10 * i, "x", 20 + i);
  Insert(19, "w", 19);
  EXPECT_EQ(reassembler_.held_buffers(), 4u);
  EXPECT_EQ(Fill(19), "wx");
  EXPECT_EQ(stamps_, (std::vector<uint64_t>{19}));
}

TEST_F(ReassemblerTest, NothingIsCopiedWhereThereIsNoRoomForIt) {
  // 64 bytes of headroom and 192 behind it.
  for (uint32_t i = 0; i < 4; ++i) Insert(100 + 100 * i, std::string(5, 'x'));
  for (uint32_t at = 99; at > 20; --at) Insert(at, "y");
  EXPECT_EQ(reassembler_.held_buffers(), 5u) << "the headroom was used up once";
  reassembler_.Clear();
  for (uint32_t i = 0; i < 3; ++i) Insert(400 + 10 * i, "x");
  Insert(100, std::string(187, 'x'));
  for (uint32_t at = 287; at < 295; ++at) Insert(at, "y");
  EXPECT_EQ(reassembler_.held_buffers(), 5u) << "five fitted behind, then a new one began";
}

TEST_F(ReassemblerTest, AlternateBytesStopAtTheLimitOfBuffersAndAreCounted) {
  for (uint32_t i = 0; i < 100; ++i) Insert(10 + 2 * i, "x");
  EXPECT_EQ(reassembler_.held_buffers(), kOptions.buffers_per_connection);
  EXPECT_EQ(store_.counters().buffer_limit, 100 - kOptions.buffers_per_connection);
  EXPECT_EQ(Insert(300, "x").result, Result::kNoRoom);
}

TEST_F(ReassemblerTest, FillingAlternateBytesAtTheLimitNeedsNoBuffer) {
  for (uint32_t i = 0; i < 32; ++i) Insert(10 + 2 * i, "x");
  for (uint32_t i = 0; i < 31; ++i) EXPECT_EQ(Insert(11 + 2 * i, "y").result, Result::kHeld) << i;
  EXPECT_EQ(reassembler_.held_bytes(), 63u);
  EXPECT_LT(reassembler_.held_buffers(), 32u);
  EXPECT_EQ(Sack(), (Blocks{Block(10, 73)}));
  const std::string text = Fill(10);
  EXPECT_EQ(text.size(), 63u);
  EXPECT_EQ(text.substr(0, 5), "xyxyx");
}

TEST_F(ReassemblerTest, ARefusedRunTakesNothingHeldAwayWithIt) {
  for (uint32_t i = 0; i < 32; ++i) Insert(10 + 2 * i, "x");
  EXPECT_EQ(Insert(9, std::string(64, 'y')).result, Result::kNoRoom);
  EXPECT_EQ(reassembler_.held_bytes(), 32u);
}

TEST_F(ReassemblerTest, AWindowOfHolesFilledInAnyOrderIsTheStream) {
  std::string stream(240, ' ');
  for (uint32_t i = 0; i < stream.size(); ++i) stream[i] = static_cast<char>('A' + i * 7 % 58);
  // 80 places of three bytes, visited by a stride that is coprime to 80.
  for (uint32_t i = 0; i < 80; ++i) {
    const uint32_t at = i * 37 % 80 * 3;
    if (at != 0) Insert(at, std::string_view(stream).substr(at, 3));
  }
  for (uint32_t at = 3; at < 240; at += 3) Insert(at, std::string_view(stream).substr(at, 3));
  EXPECT_EQ(Fill(3), stream.substr(3));
}

TEST_F(ReassemblerTest, TheLimitOfBytesHoldsAndIsCounted) {
  EXPECT_EQ(Insert(10, std::string(190, 'a')).result, Result::kHeld);
  EXPECT_EQ(Insert(300, std::string(190, 'b')).result, Result::kHeld);
  EXPECT_EQ(Insert(600, std::string(190, 'c')).result, Result::kNoRoom);
  EXPECT_EQ(store_.counters().byte_limit, 1u);
}

TEST_F(ReassemblerTest, TheLimitOfConnectionsWithAHoleHoldsAndIsCounted) {
  Reassembler second(store_), third(store_);
  Insert(10, "a");
  const auto insert = [&](Reassembler& into) {
    return into.Insert({.sequence = Seq(5), .length = 1, .head = Filled("b")}, Seq(0), 100).result;
  };
  EXPECT_EQ(insert(second), Result::kHeld);
  EXPECT_EQ(insert(third), Result::kNoRoom);
  EXPECT_EQ(store_.counters().store_full, 1u);
  second.Clear();
  EXPECT_EQ(insert(third), Result::kHeld);
}

TEST_F(ReassemblerTest, AChainIsCutAcrossItsLinks) {
  Buffer* const head = Filled("abcd");
  head->next = Filled("efgh");
  head->next->next = Filled("ijkl");
  Insert(10, "ABCDE");
  Insert(20, "K");
  reassembler_.Insert({.sequence = kBase + 10, .length = 12, .head = head}, kBase, kWindow);
  EXPECT_EQ(Fill(10), "ABCDEfghijkl");
}

TEST(DuplicateBefore, NamesWhatLiesBeforeNext) {
  const auto block = [](uint32_t left, uint32_t right) { return wire::SackBlock{left, right}; };
  EXPECT_EQ(DuplicateBefore(Seq(10), Seq(20), Seq(30)), block(10, 20));
  EXPECT_EQ(DuplicateBefore(Seq(10), Seq(20), Seq(15)), block(10, 15));
  EXPECT_EQ(DuplicateBefore(Seq(15), Seq(20), Seq(15)), std::nullopt);
  EXPECT_EQ(DuplicateBefore(Seq(10), Seq(10), Seq(15)), std::nullopt);
}

}  // namespace
}  // namespace xtreme::tcp
