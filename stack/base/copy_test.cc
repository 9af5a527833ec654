// SPDX-License-Identifier: Apache-2.0

#include "stack/base/copy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace xtreme::base {
namespace {

// The source ends where its memory does, so that the address sanitizer sees a byte too many.
TEST(CopyTest, ExactlyTheBytesAskedForAreMovedWhateverTheirNumber) {
  for (uint32_t bytes = 0; bytes <= 300; ++bytes) {
    std::vector<uint8_t> from(bytes);
    for (uint32_t i = 0; i < bytes; ++i) from[i] = static_cast<uint8_t>(i * 7 + 1);
    std::vector<uint8_t> to(bytes + 32, 0xee);
    CopyShort(to.data(), from.data(), bytes);
    EXPECT_TRUE(std::equal(from.begin(), from.end(), to.begin())) << bytes;
    EXPECT_EQ(std::count(to.begin() + bytes, to.end(), 0xee), 32) << bytes;
  }
}

TEST(CopyTest, SoAreThoseOfAFrame) {
  for (uint32_t bytes = 0; bytes <= 1'600; ++bytes) {
    std::vector<uint8_t> from(bytes);
    for (uint32_t i = 0; i < bytes; ++i) from[i] = static_cast<uint8_t>(i * 7 + i / 256);
    std::vector<uint8_t> to(bytes + 32, 0xee);
    CopyLong(to.data(), from.data(), bytes);
    ASSERT_TRUE(std::equal(from.begin(), from.end(), to.begin())) << bytes;
    ASSERT_EQ(std::count(to.begin() + bytes, to.end(), 0xee), 32) << bytes;
  }
}

}  // namespace
}  // namespace xtreme::base
