// SPDX-License-Identifier: Apache-2.0

#include "stack/base/bytes16.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>

namespace xtreme::base {
namespace {

TEST(Bytes16Test, EveryBitUnderTheMaskIsComparedAndNoOther) {
  std::array<uint8_t, 17> bytes{};
  std::array<uint8_t, 17> expected{};
  for (uint32_t bit = 0; bit < 128; ++bit) {
    std::array<uint8_t, 16> only{}, others;
    only[bit / 8] = static_cast<uint8_t>(1 << bit % 8);
    others.fill(0xff);
    others[bit / 8] ^= only[bit / 8];
    bytes[1 + bit / 8] ^= only[bit / 8];  // Off any alignment.
    EXPECT_FALSE(EqualUnder16(only.data(), &bytes[1], &expected[1])) << bit;
    EXPECT_TRUE(EqualUnder16(others.data(), &bytes[1], &expected[1])) << bit;
    bytes[1 + bit / 8] ^= only[bit / 8];
  }
}

}  // namespace
}  // namespace xtreme::base
