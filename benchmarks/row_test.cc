// SPDX-License-Identifier: Apache-2.0

#include "benchmarks/row.h"

#include <nlohmann/json.hpp>

#include "gtest/gtest.h"

namespace xtreme::benchmarks {
namespace {

TEST(Row, AbsoluteGoalHoldsUpToItsBound) {
  EXPECT_EQ((Row{.value = 110, .goal = {.most = 110}}.met()), true);
  EXPECT_EQ((Row{.value = 110.5, .goal = {.most = 110}}.met()), false);
}

TEST(Row, RelativeGoalIsHeldAgainstThePeer) {
  const Goal goal = {.most_of_peer = 0.5};
  EXPECT_EQ((Row{.value = 50, .peer_value = 100, .goal = goal}.met()), true);
  EXPECT_EQ((Row{.value = 51, .peer_value = 100, .goal = goal}.met()), false);
}

TEST(Row, PeerMustBeSlowerByTheFactor) {
  const Goal goal = {.peer_at_least = 100};
  EXPECT_EQ((Row{.value = 70, .peer_value = 7'000, .goal = goal}.met()), true);
  EXPECT_EQ((Row{.value = 71, .peer_value = 7'000, .goal = goal}.met()), false);
}

TEST(Row, WithoutPeerARelativeGoalIsNeitherMetNorMissed) {
  EXPECT_EQ((Row{.value = 50, .goal = {.most_of_peer = 0.5}}.met()), std::nullopt);
}

TEST(Row, WithoutValueSaysWhyNot) {
  const Row row = Unmeasured("udp_rx", "ns", {.most = 1}, absl::NotFoundError("no valgrind"));
  EXPECT_EQ(row.met(), std::nullopt);
  EXPECT_EQ(row.note, "not measured: no valgrind");
}

TEST(Row, BecomesOneJsonObjectALine) {
  const std::string lines = ToJsonLines({{.name = "udp_rx", .unit = "ns", .value = 8, .peer = "p",
                                          .peer_value = 16, .goal = {.most_of_peer = 0.6}}});
  const auto line = nlohmann::json::parse(lines);
  EXPECT_EQ(line["name"], "udp_rx");
  EXPECT_EQ(line["value"], 8.0);
  EXPECT_EQ(line["ratio"], 0.5);
  EXPECT_EQ(line["goal"], "<= 0.6 x");
  EXPECT_EQ(line["met"], true);
  EXPECT_EQ(lines.back(), '\n');
}

}  // namespace
}  // namespace xtreme::benchmarks
