// SPDX-License-Identifier: Apache-2.0

#include "xtreme/engine/socket_table.h"

#include <gtest/gtest.h>

namespace xtreme::engine {
namespace {

TEST(SocketTableTest, TheMostListenersOnOneKeyFollowBothWays) {
  SocketTable table(1, 8);
  EXPECT_EQ(table.CountListener(1, +1), 1u);
  EXPECT_EQ(table.CountListener(2, +1), 1u);
  EXPECT_EQ(table.CountListener(1, +1), 2u);
  EXPECT_EQ(table.CountListener(1, +1), 3u);
  EXPECT_EQ(table.CountListener(2, +1), 3u);
  EXPECT_EQ(table.CountListener(1, -1), 2u);
  EXPECT_EQ(table.CountListener(1, -1), 2u);
  EXPECT_EQ(table.CountListener(2, -1), 1u);
  EXPECT_EQ(table.CountListener(2, -1), 1u);
  EXPECT_EQ(table.CountListener(1, -1), 1u);
  EXPECT_EQ(table.Listeners(1), 0u);
}

}  // namespace
}  // namespace xtreme::engine
