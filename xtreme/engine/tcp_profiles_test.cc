// SPDX-License-Identifier: Apache-2.0

#include "xtreme/engine/tcp_profiles.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace xtreme::engine {
namespace {

constexpr uint16_t kMss = 1460;

TcpSettings WithTimeout(int64_t ms) {
  TcpSettings settings;
  settings.user_timeout = base::Milliseconds(ms);
  return settings;
}

TEST(TcpProfilesTest, WhatIsEqualIsOneAndWhatDiffersIsNot) {
  TcpProfiles profiles;
  const TcpProfileUse one = profiles.Hold({}, kMss);
  const TcpProfileUse other = profiles.Hold(WithTimeout(1), kMss);
  const TcpProfileUse shorter = profiles.Hold({}, 536);
  EXPECT_EQ(&*profiles.Hold({}, kMss), &*one);
  EXPECT_NE(&*other, &*one);
  EXPECT_NE(&*shorter, &*one);
  EXPECT_EQ(other->settings, WithTimeout(1));
  EXPECT_EQ(other->options.user_timeout, base::Milliseconds(1));
  EXPECT_EQ(one->options.user_timeout, base::kNever);
  EXPECT_EQ(shorter->options.mss, 536);
}

TEST(TcpProfilesTest, WhatIsUsedStaysWhateverComesAndGoes) {
  TcpProfiles profiles;
  std::vector<TcpProfileUse> kept;
  for (int64_t ms = 1; ms <= 100; ++ms) kept.push_back(profiles.Hold(WithTimeout(ms), kMss));
  for (int64_t ms = 1000; ms < 2000; ++ms) profiles.Hold(WithTimeout(ms), kMss);
  for (int64_t ms = 1; ms <= 100; ++ms) {
    const TcpProfileUse& use = kept[static_cast<size_t>(ms - 1)];
    EXPECT_EQ(use->settings, WithTimeout(ms));
    EXPECT_EQ(&*profiles.Hold(WithTimeout(ms), kMss), &*use);
  }
}

TEST(TcpProfilesTest, OneThatNobodyUsesIsThereUntilItsPlaceIsNeeded) {
  TcpProfiles profiles;
  const TcpProfile* const before = &*profiles.Hold(WithTimeout(1), kMss);
  EXPECT_EQ(&*profiles.Hold(WithTimeout(1), kMss), before);
  for (int64_t ms = 2; ms < 100; ++ms) profiles.Hold(WithTimeout(ms), kMss);
  const TcpProfileUse again = profiles.Hold(WithTimeout(1), kMss);
  EXPECT_EQ(again->settings, WithTimeout(1));
  EXPECT_EQ(again->options.user_timeout, base::Milliseconds(1));
}

TEST(TcpProfilesTest, EveryCopyOfAUseCounts) {
  TcpProfiles profiles;
  TcpProfileUse copy;
  {
    const TcpProfileUse use = profiles.Hold(WithTimeout(1), kMss);
    copy = use;
  }
  for (int64_t ms = 2; ms < 100; ++ms) profiles.Hold(WithTimeout(ms), kMss);
  EXPECT_EQ(copy->settings, WithTimeout(1));
}

}  // namespace
}  // namespace xtreme::engine
