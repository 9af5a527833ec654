// SPDX-License-Identifier: Apache-2.0

#include "xtreme/mlx5/device_memory.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <optional>
#include <vector>

#include "gtest/gtest.h"

namespace xtreme::mlx5 {
namespace {

constexpr uint32_t kBytesLog2 = 10;
constexpr uint32_t kFrames = 16;

class DeviceMemoryTest : public testing::Test {
 protected:
  DeviceMemoryTest() { std::iota(payload_.begin(), payload_.end(), uint8_t{1}); }

  std::optional<uint32_t> Write(uint32_t length, uint32_t completed = 0) {
    return ring_.Write(payload_.data(), length, ++frame_, completed);
  }
  bool Holds(uint32_t address, uint32_t length) const {
    return std::memcmp(&memory_[address], payload_.data(), length) == 0;
  }

  alignas(64) std::array<uint8_t, 1 << kBytesLog2> memory_{};
  std::vector<uint8_t> payload_ = std::vector<uint8_t>(2048);
  DeviceMemoryRing ring_{{.bytes = memory_.data(), .bytes_log2 = kBytesLog2, .key = 7}, kFrames};
  uint32_t frame_ = 0;
};

TEST_F(DeviceMemoryTest, PayloadsOfAnyLengthLieWholeOnLinesOfTheirOwn) {
  uint32_t next = 0;
  for (uint32_t length : {1u, 63u, 64u, 65u, 127u, 200u}) {
    const auto address = Write(length);
    ASSERT_TRUE(address.has_value()) << length;
    EXPECT_EQ(*address, next);
    EXPECT_TRUE(Holds(*address, length)) << length;
    next += (length + 63) / 64 * 64;
  }
}

TEST_F(DeviceMemoryTest, NothingBeyondThePayloadIsRead) {
  const std::vector<uint8_t> exact(65, 0x5a);  // The address sanitizer looks.
  ASSERT_EQ(ring_.Write(exact.data(), 65, 1, 0), 0u);
  EXPECT_EQ(memory_[64], 0x5a);
  EXPECT_EQ(memory_[65], 0);
}

TEST_F(DeviceMemoryTest, FullUntilTheOldestFrameHasCompleted) {
  ASSERT_EQ(Write(512), 0u);
  ASSERT_EQ(Write(512), 512u);
  EXPECT_EQ(Write(1), std::nullopt);
  EXPECT_EQ(Write(512, /*completed=*/1), 0u);
  EXPECT_EQ(Write(64, /*completed=*/1), std::nullopt);
  EXPECT_EQ(Write(64, /*completed=*/2), 512u);
}

TEST_F(DeviceMemoryTest, WhatDoesNotFitTheRestOfALapBeginsTheNext) {
  ASSERT_EQ(Write(256), 0u);
  ASSERT_EQ(Write(512), 256u);
  EXPECT_EQ(Write(320, /*completed=*/1), std::nullopt) << "256 bytes at each end are no 320";
  EXPECT_EQ(Write(256, /*completed=*/1), 768u);
  EXPECT_EQ(Write(256, /*completed=*/1), 0u);
  EXPECT_EQ(Write(64, /*completed=*/1), std::nullopt);
}

TEST_F(DeviceMemoryTest, EmptyItTakesAPayloadOfItsWholeSize) {
  ASSERT_EQ(Write(600), 0u);
  EXPECT_EQ(Write(1024, /*completed=*/1), 0u);
  EXPECT_TRUE(Holds(0, 1024));
  EXPECT_EQ(Write(1025, /*completed=*/99), std::nullopt);
}

TEST_F(DeviceMemoryTest, ManyLapsNeverOverwriteWhatHasNotCompleted) {
  struct Held {
    uint32_t frame, address, length;
  };
  std::vector<Held> held;
  uint32_t completed = 0;
  for (uint32_t i = 0; i < 5'000; ++i) {
    const uint32_t length = 1 + i * 37 % 400;
    std::fill(payload_.begin(), payload_.end(), static_cast<uint8_t>(i));
    while (held.size() == kFrames) completed = held.front().frame, held.erase(held.begin());
    const auto address = Write(length, completed);
    if (address.has_value()) {
      for (const Held& other : held) {
        const bool apart = *address + length <= other.address ||
                           other.address + other.length <= *address;
        ASSERT_TRUE(apart) << i;
      }
      held.push_back({frame_, *address, length});
    } else {
      ASSERT_FALSE(held.empty());
      completed = held.front().frame;
      held.erase(held.begin());
    }
  }
}

}  // namespace
}  // namespace xtreme::mlx5
