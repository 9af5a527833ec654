// SPDX-License-Identifier: Apache-2.0

#include "xtreme/completion/ring_event.h"

#include <gtest/gtest.h>

#include <set>
#include <string_view>

namespace xtreme::completion {
namespace {

constexpr int kLast = static_cast<int>(RingEvent::kMoved);

TEST(RingEventTest, EachHasANameOfItsOwn) {
  std::set<std::string_view> names;
  for (int event = 1; event <= kLast; ++event) names.insert(NameOf(static_cast<RingEvent>(event)));
  EXPECT_EQ(names.size(), size_t{kLast});
  EXPECT_EQ(names.count(NameOf(RingEvent::kNone)), 0u);
  EXPECT_EQ(NameOf(static_cast<RingEvent>(kLast + 1)), NameOf(RingEvent::kNone));
}

TEST(RingEventTest, ABrokenQueueAndALostDeviceStopTheRing) {
  std::set<RingEvent> stopping;
  for (int event = 0; event <= kLast; ++event) {
    if (Stops(static_cast<RingEvent>(event))) stopping.insert(static_cast<RingEvent>(event));
  }
  EXPECT_EQ(stopping, (std::set{RingEvent::kBroken, RingEvent::kRemoved}));
}

}  // namespace
}  // namespace xtreme::completion
