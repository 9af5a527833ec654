// SPDX-License-Identifier: Apache-2.0

#include "stack/base/bytes32.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>

namespace xtreme::base {
namespace {

TEST(Bytes32Test, EveryBitUnderTheMaskIsComparedAndNoOther) {
  std::array<uint8_t, 33> bytes{};
  std::array<uint8_t, 33> expected{};
  for (uint32_t bit = 0; bit < 256; ++bit) {
    std::array<uint8_t, 32> only{}, others;
    only[bit / 8] = static_cast<uint8_t>(1 << bit % 8);
    others.fill(0xff);
    others[bit / 8] ^= only[bit / 8];
    bytes[1 + bit / 8] ^= only[bit / 8];  // Off any alignment.
    EXPECT_FALSE(EqualUnder(only.data(), &bytes[1], &expected[1])) << bit;
    EXPECT_TRUE(EqualUnder(others.data(), &bytes[1], &expected[1])) << bit;
    bytes[1 + bit / 8] ^= only[bit / 8];
  }
}

TEST(Bytes32Test, AreMovedWhole) {
  std::array<uint8_t, 34> from{}, to{};
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<uint8_t>(i + 1);
  Store32(&to[1], Load32(&from[1]));
  EXPECT_EQ(to.front(), 0);
  EXPECT_EQ(to.back(), 0);
  for (size_t i = 1; i < 33; ++i) EXPECT_EQ(to[i], from[i]);
}

}  // namespace
}  // namespace xtreme::base
