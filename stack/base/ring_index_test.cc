// SPDX-License-Identifier: Apache-2.0
#include "stack/base/ring_index.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace xtreme::base {
namespace {

TEST(RingSize, CoversWhatWasAskedWithAPowerOfTwo) {
  EXPECT_EQ(RingSize::Covering(1).entries(), 1u);
  EXPECT_EQ(RingSize::Covering(2).entries(), 2u);
  EXPECT_EQ(RingSize::Covering(3).entries(), 4u);
  EXPECT_EQ(RingSize::Covering(4096).entries(), 4096u);
  EXPECT_EQ(RingSize::Covering(4097).entries(), 8192u);
  EXPECT_EQ(RingSize::Covering(1u << 31).log2(), RingSize::kMaxLog2);
}

TEST(RingSize, SlotWrapsAndLapCounts) {
  const RingSize size(3);
  EXPECT_EQ(size.Slot(7), 7u);
  EXPECT_EQ(size.Lap(7), 0u);
  EXPECT_EQ(size.Slot(8), 0u);
  EXPECT_EQ(size.Lap(8), 1u);
  EXPECT_EQ(size.Slot(17), 1u);
  EXPECT_EQ(size.Lap(17), 2u);
}

TEST(RingIndices, EmptyAndFullDifferWithoutASpareEntry) {
  RingIndices ring(RingSize(2));
  EXPECT_TRUE(ring.empty());
  EXPECT_FALSE(ring.full());
  EXPECT_EQ(ring.free(), 4u);
  ring.Produce(4);
  EXPECT_FALSE(ring.empty());
  EXPECT_TRUE(ring.full());
  EXPECT_EQ(ring.free(), 0u);
  ring.Consume(1);
  EXPECT_FALSE(ring.full());
  EXPECT_EQ(ring.used(), 3u);
  EXPECT_EQ(ring.consumer_slot(), 1u);
  EXPECT_EQ(ring.producer_slot(), 0u);
}

TEST(RingIndices, CountsHoldWhenTheIndicesWrap) {
  RingIndices ring(RingSize(4));
  ring.Produce(8);
  ring.Consume(8);
  for (uint32_t i = 0; i < 3; ++i) {  // each step takes both indices past 2^31 - 1 entries
    ring.Consume(0x7FFFFFF0u);
    ring.Produce(0x7FFFFFF0u);
  }
  ring.Produce(16);
  EXPECT_TRUE(ring.full());
  ring.Consume(16);
  EXPECT_TRUE(ring.empty());
  EXPECT_EQ(ring.producer(), 0x7FFFFFE8u);
}

}  // namespace
}  // namespace xtreme::base
