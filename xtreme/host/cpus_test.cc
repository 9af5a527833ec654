// SPDX-License-Identifier: Apache-2.0

#include "xtreme/host/cpus.h"

#include <gtest/gtest.h>

#include <thread>

namespace xtreme::host {
namespace {

TEST(CpuSet, AListIsReadAndWrittenBack) {
  for (const char* list : {"0", "3", "0-3", "0-3,8", "1,3,5", "0-1,1022-1023"}) {
    const auto cpus = CpuSet::Parse(list);
    ASSERT_TRUE(cpus.ok()) << list;
    EXPECT_EQ(cpus->ToString(), list);
  }
}

TEST(CpuSet, OverlappingRangesAreOne) {
  EXPECT_EQ(CpuSet::Parse("2-4,3-6,1")->ToString(), "1-6");
}

TEST(CpuSet, WhatIsNoListIsRefusedByName) {
  for (const char* list : {"", ",", "a", "1-", "-1", "3-1", "1024", "0-1024", "1,,2", "1-2-3"}) {
    const auto cpus = CpuSet::Parse(list);
    ASSERT_FALSE(cpus.ok()) << list;
    EXPECT_NE(cpus.status().message().find(list), absl::string_view::npos) << cpus.status();
  }
}

TEST(CpuSet, SingleIsTheOnlyOne) {
  EXPECT_EQ(CpuSet().Single(), std::nullopt);
  EXPECT_EQ(CpuSet::Parse("7")->Single(), 7);
  EXPECT_EQ(CpuSet::Parse("7-8")->Single(), std::nullopt);
}

TEST(CpuSet, AThreadThatBindsRunsThereOnlyAndTheProcessKeepsTheRest) {
  const CpuSet before = CpuSet::OfThisThread();
  int cpu = 0;
  while (!before.Has(cpu)) ++cpu;
  std::thread bound([cpu, &before] {
    CpuSet one;
    one.Add(cpu);
    ASSERT_TRUE(one.Bind());
    EXPECT_EQ(CpuSet::OfThisThread().Single(), cpu);
    EXPECT_EQ(CpuSet::OfProcess(), before);
  });
  bound.join();
}

TEST(CpuSet, NoCpuAtAllIsRefused) { EXPECT_FALSE(CpuSet().Bind()); }

}  // namespace
}  // namespace xtreme::host
