// SPDX-License-Identifier: Apache-2.0
#include "stack/udp/source_filter.h"

#include <gtest/gtest.h>

#include <array>

namespace xtreme::udp {
namespace {

constexpr wire::Ipv4Address kA(10, 0, 0, 1);
constexpr wire::Ipv4Address kB(10, 0, 0, 2);
constexpr wire::Ipv4Address kC(10, 0, 0, 3);

TEST(SourceFilter, ByDefaultAdmitsEverybody) {
  const SourceFilter filter;
  EXPECT_TRUE(filter.AdmitsEverybody());
  EXPECT_TRUE(filter.Admits(kA));
}

TEST(SourceFilter, IncludeAdmitsTheListedOnly) {
  const SourceFilter filter(SourceFilter::Mode::kInclude, std::array{kC, kA});
  EXPECT_TRUE(filter.Admits(kA));
  EXPECT_FALSE(filter.Admits(kB));
  EXPECT_TRUE(filter.Admits(kC));
  EXPECT_FALSE(filter.AdmitsEverybody());
}

TEST(SourceFilter, IncludeOfNobodyAdmitsNobody) {
  const SourceFilter filter(SourceFilter::Mode::kInclude, {});
  EXPECT_FALSE(filter.Admits(kA));
  EXPECT_FALSE(filter.AdmitsEverybody());
}

TEST(SourceFilter, ExcludeAdmitsAllButTheListed) {
  const SourceFilter filter(SourceFilter::Mode::kExclude, std::array{kB});
  EXPECT_TRUE(filter.Admits(kA));
  EXPECT_FALSE(filter.Admits(kB));
  EXPECT_FALSE(filter.AdmitsEverybody());
}

TEST(SourceFilter, HoldsEachSourceOnceInOrder) {
  SourceFilter filter(SourceFilter::Mode::kInclude, std::array{kC, kA, kC});
  EXPECT_EQ(filter.sources().size(), 2u);
  EXPECT_TRUE(filter.Add(kB));
  EXPECT_FALSE(filter.Add(kB));
  EXPECT_EQ(filter, SourceFilter(SourceFilter::Mode::kInclude, std::array{kA, kB, kC}));
  EXPECT_TRUE(filter.Remove(kA));
  EXPECT_FALSE(filter.Remove(kA));
  EXPECT_FALSE(filter.Admits(kA));
  EXPECT_TRUE(filter.Admits(kB));
}

}  // namespace
}  // namespace xtreme::udp
