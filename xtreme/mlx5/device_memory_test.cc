// SPDX-License-Identifier: Apache-2.0

#include "xtreme/mlx5/device_memory.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace xtreme::mlx5 {
namespace {

constexpr uint32_t kBytesLog2 = 10;

class DeviceMemoryTest : public testing::Test {
 protected:
  DeviceMemoryTest() { std::iota(payload_.begin(), payload_.end(), uint8_t{1}); }

  std::optional<uint32_t> Write(uint32_t length) {
    if (!ring_.HasRun(length) && !ring_.MakeRun(length)) return std::nullopt;
    const uint32_t address = ring_.Write(payload_.data(), length);
    marks_.push_back(ring_.TakeMark());
    return address;
  }
  // The payload that was written as number `count`, from 1 on, and those before.
  void Complete(size_t count) { ring_.Release(marks_[count - 1]); }
  bool Holds(uint32_t address, uint32_t length) const {
    return std::memcmp(&memory_[address], payload_.data(), length) == 0;
  }

  alignas(64) std::array<uint8_t, 1 << kBytesLog2> memory_{};
  std::vector<uint8_t> payload_ = std::vector<uint8_t>(2048);
  DeviceMemoryRing ring_{{.bytes = memory_.data(), .bytes_log2 = kBytesLog2, .key = 7}};
  std::vector<uint32_t> marks_;
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
  ASSERT_TRUE(ring_.MakeRun(65));
  EXPECT_EQ(ring_.Write(exact.data(), 65), 0u);
  EXPECT_EQ(memory_[64], 0x5a);
  EXPECT_EQ(memory_[65], 0);
}

TEST_F(DeviceMemoryTest, FullUntilTheOldestFrameHasCompleted) {
  ASSERT_EQ(Write(512), 0u);
  ASSERT_EQ(Write(512), 512u);
  EXPECT_EQ(Write(1), std::nullopt);
  Complete(1);
  EXPECT_EQ(Write(512), 0u);
  EXPECT_EQ(Write(64), std::nullopt);
  Complete(2);
  EXPECT_EQ(Write(64), 512u);
}

TEST_F(DeviceMemoryTest, WhatDoesNotFitTheRestOfALapBeginsTheNext) {
  ASSERT_EQ(Write(256), 0u);
  ASSERT_EQ(Write(512), 256u);
  Complete(1);
  EXPECT_EQ(Write(320), std::nullopt) << "256 bytes at each end are no 320";
  EXPECT_EQ(Write(256), 768u);
  EXPECT_EQ(Write(256), 0u);
  EXPECT_EQ(Write(64), std::nullopt);
}

TEST_F(DeviceMemoryTest, EmptyItTakesAPayloadOfItsWholeSize) {
  ASSERT_EQ(Write(600), 0u);
  Complete(1);
  EXPECT_EQ(Write(1024), 0u);
  EXPECT_TRUE(Holds(0, 1024));
  Complete(2);
  EXPECT_EQ(Write(1025), std::nullopt);
}

TEST_F(DeviceMemoryTest, AMarkFromBeforeItWasEmptyGivesNothingBack) {
  ASSERT_EQ(Write(64), 0u);
  const uint32_t later = ring_.TakeMark();  // Of a frame behind it that has its payload elsewhere.
  Complete(1);
  ASSERT_EQ(Write(1024), 0u);
  ring_.Release(later);
  EXPECT_EQ(Write(64), std::nullopt);
}

TEST_F(DeviceMemoryTest, AMarkIsDueWhenHalfWasWrittenSinceTheLast) {
  const auto write = [this](uint32_t length) {
    const bool had_run = ring_.HasRun(length);
    if (!had_run && !ring_.MakeRun(length)) return std::string("full");
    ring_.Write(payload_.data(), length);
    return std::string(!had_run && ring_.mark_is_due() ? "marked" : "written");
  };
  EXPECT_EQ(write(64), "written");
  EXPECT_EQ(write(448), "written");
  EXPECT_EQ(write(1), "marked");
  const uint32_t first = ring_.TakeMark();
  EXPECT_EQ(write(320), "written");
  ring_.Release(first);
  EXPECT_EQ(write(320), "marked") << "what is passed over at the end of a lap counts too";
  ring_.TakeMark();
  EXPECT_EQ(write(1), "written");
  EXPECT_EQ(write(1'024), "full");
}

TEST_F(DeviceMemoryTest, AMarkIsNotDueWithTheOneThatFillsAHalf) {
  ASSERT_TRUE(ring_.MakeRun(512));
  EXPECT_FALSE(ring_.mark_is_due());
  ring_.Write(payload_.data(), 512);
  ASSERT_TRUE(ring_.MakeRun(1));
  EXPECT_TRUE(ring_.mark_is_due());
}

TEST_F(DeviceMemoryTest, APayloadThatFoundNoRoomSparesNobodyBehindItTheMark) {
  ASSERT_EQ(Write(64), 0u);  // Marked; the rest is as a flow has it that asks for nothing.
  ASSERT_TRUE(ring_.MakeRun(384));
  ring_.Write(payload_.data(), 384);
  ASSERT_FALSE(ring_.MakeRun(640));
  EXPECT_FALSE(ring_.HasRun(576)) << "it would fill the ring, and nothing give room back";
  ASSERT_TRUE(ring_.MakeRun(576));
  EXPECT_TRUE(ring_.mark_is_due());
}

TEST(NoDeviceMemoryTest, HasNoRoom) {
  DeviceMemoryRing none{{}};
  EXPECT_FALSE(none.present());
  EXPECT_FALSE(none.HasRun(64));
  EXPECT_FALSE(none.MakeRun(64));
}

TEST_F(DeviceMemoryTest, ManyLapsNeverOverwriteWhatHasNotCompleted) {
  struct Held {
    uint32_t mark, address, length;
  };
  constexpr size_t kFrames = 16;
  std::vector<Held> held;
  const auto complete = [&] {
    ring_.Release(held.front().mark);
    held.erase(held.begin());
  };
  for (uint32_t i = 0; i < 5'000; ++i) {
    const uint32_t length = 1 + i * 37 % 400;
    std::fill(payload_.begin(), payload_.end(), static_cast<uint8_t>(i));
    if (held.size() == kFrames) complete();
    const bool has_room = ring_.HasRoom(length);
    const auto address = Write(length);
    ASSERT_EQ(address.has_value(), has_room) << i;
    if (address.has_value()) {
      for (const Held& other : held) {
        const bool apart = *address + length <= other.address ||
                           other.address + other.length <= *address;
        ASSERT_TRUE(apart) << i;
      }
      held.push_back({ring_.TakeMark(), *address, length});
    } else {
      ASSERT_FALSE(held.empty());
      complete();
    }
  }
}

}  // namespace
}  // namespace xtreme::mlx5
