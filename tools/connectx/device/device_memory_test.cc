// SPDX-License-Identifier: Apache-2.0

#include <gtest/gtest.h>

#include <cerrno>
#include <vector>

#include "tools/connectx/device/test_program.h"

namespace xtreme::connectx {
namespace {

Device::Options WithMemory(uint64_t bytes) {
  Device::Options options = TestProgram::DefaultOptions();
  options.limits.device_memory_bytes = bytes;
  return options;
}

TEST(DeviceMemoryTest, AllocationsHavePagesOfTheirOwn) {
  TestProgram program(WithMemory(16'384));
  DeviceMemory first;
  DeviceMemory second;
  ASSERT_EQ(program.device->AllocDeviceMemory(100, 0, &first), 0);
  ASSERT_EQ(program.device->AllocDeviceMemory(5'000, 12, &second), 0);
  EXPECT_EQ(first.offset % 4096, 0u);
  EXPECT_EQ(second.offset % 4096, 0u);
  EXPECT_GE(second.offset, first.offset + 4096);
  EXPECT_EQ(second.start - first.start,
            static_cast<ptrdiff_t>(second.offset - first.offset));
}

TEST(DeviceMemoryTest, IsExhaustedByBytesAndComesBackWhenFreed) {
  TestProgram program(WithMemory(16'384));
  DeviceMemory most;
  DeviceMemory rest;
  ASSERT_EQ(program.device->AllocDeviceMemory(16'384 - 64, 0, &most), 0);
  EXPECT_EQ(program.device->AllocDeviceMemory(65, 0, &rest), ENOMEM);
  ASSERT_EQ(program.device->AllocDeviceMemory(64, 0, &rest), 0);
  EXPECT_EQ(program.device->AllocDeviceMemory(1, 0, &rest), ENOMEM);
  EXPECT_EQ(program.device->FreeDeviceMemory(most.offset), 0);
  EXPECT_EQ(program.device->AllocDeviceMemory(16'384 - 64, 0, &most), 0);
}

TEST(DeviceMemoryTest, SmallAllocationsRunOutOfPages) {
  TestProgram program(WithMemory(16'384));
  DeviceMemory memory;
  std::vector<uint64_t> offsets;
  while (program.device->AllocDeviceMemory(64, 0, &memory) == 0) offsets.push_back(memory.offset);
  EXPECT_EQ(offsets.size(), 8u);
  EXPECT_EQ(program.device->FreeDeviceMemory(offsets[3]), 0);
  ASSERT_EQ(program.device->AllocDeviceMemory(4'096, 0, &memory), 0);
  EXPECT_EQ(memory.offset, offsets[3]);
}

TEST(DeviceMemoryTest, WhatCannotBeIsRefusedForItsReason) {
  TestProgram program(WithMemory(16'384));
  DeviceMemory memory;
  EXPECT_EQ(program.device->AllocDeviceMemory(0, 0, &memory), EINVAL);
  EXPECT_EQ(program.device->AllocDeviceMemory(64, 13, &memory), EINVAL);
  EXPECT_EQ(program.device->AllocDeviceMemory(16'385, 0, &memory), ENOMEM);
  EXPECT_EQ(program.device->AllocDeviceMemory(~uint64_t{0}, 0, &memory), ENOMEM);
  EXPECT_EQ(program.device->FreeDeviceMemory(4096), EINVAL);
}

TEST(DeviceMemoryTest, DeviceWithoutSaysSo) {
  TestProgram program(WithMemory(0));
  DeviceMemory memory;
  EXPECT_EQ(program.device->AllocDeviceMemory(64, 0, &memory), EOPNOTSUPP);
}

}  // namespace
}  // namespace xtreme::connectx
