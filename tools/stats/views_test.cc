// SPDX-License-Identifier: Apache-2.0

#include "tools/stats/views.h"

#include <netinet/in.h>

#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tools/stats/rings.h"

namespace xtreme::stats {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::array<uint8_t, 16> Ip(uint8_t a, uint8_t b, uint8_t c, uint8_t d) {
  return {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, a, b, c, d};
}

// A ring with a counter of each kind and one socket.
Segment MakeRing(uint32_t pid = 77) {
  Segment ring{.pid = pid,
               .ring = 2,
               .interface = "eth2",
               .program = "handler",
               .description = "mlx5_0 port 1; pool of 64",
               .published_ns = 1'000'000'000,
               .alive = true};
  ring.counters = {{"ring", "packets", "packets handed out", 10},
                   {"ring", "refused_route", "no route", 0},
                   {"queue", "rx_frames", "frames taken", 12},
                   {"queue", "rx_empty", "times none was posted", 1},
                   {"queue", "rx_too_long", "longer than its buffer", 3},
                   {"pool", "free", "buffers free now", 60},
                   {"port", "discards", "by the port", 4},
                   {"drop", "held_limit", "too many held", 2},
                   {"poll_gap_ns", "below_64", "", 98},
                   {"poll_gap_ns", "below_4096", "", 1},
                   {"poll_gap_ns", "more", "", 1},
                   {"poll_gap_ns", "sum", "", 8'000'000'000},
                   {"poll_gap_ns", "max", "", 7'000'000'000}};
  ring.socket_names = {{"udp", "sent", "datagrams sent", 0}, {"tcp", "segments", "", 0}};
  ring.sockets = {{.handle = 0x102,
                   .local_ip = Ip(10, 0, 0, 1),
                   .remote_ip = Ip(10, 0, 0, 2),
                   .local_port = 7000,
                   .remote_port = 9,
                   .protocol = IPPROTO_UDP,
                   .state = "open",
                   .values = {5, 0}}};
  ring.groups = {{.socket = 0x102, .group_ip = Ip(239, 1, 2, 3), .port = 7000}};
  return ring;
}

TEST(Views, SummarySaysWhoAndHowOldAndWhatWasLost) {
  const std::string text = ToText({MakeRing()}, View::kSummary, 3'500'000'000);
  EXPECT_THAT(text, HasSubstr("handler 77 ring 2 on eth2: running, published 2.5 s ago\n"));
  EXPECT_THAT(text, HasSubstr("received 12 frames"));
  EXPECT_THAT(text, HasSubstr("lost     4 by the port (all programs), 1 times no buffer posted, "
                              "2 by the library"));
  EXPECT_THAT(text, HasSubstr("below 64 ns half of the time, 4096 ns in 99 of 100, 7000 ms"));
}

TEST(Views, SummarySaysWhatBefellTheDeviceIfAnythingDid) {
  Segment ring = MakeRing();
  EXPECT_THAT(ToText({ring}, View::kSummary, 0), Not(HasSubstr("trouble")));
  ring.counters.push_back({"ring", "removals", "", 1});
  EXPECT_THAT(ToText({ring}, View::kSummary, 0),
              HasSubstr("  trouble  a port went down 0 times, a queue stopped 0 times; 1 devices "
                        "or interfaces gone\n"));
}

TEST(Views, ADeadProcessIsCalledSo) {
  Segment ring = MakeRing();
  ring.alive = false;
  EXPECT_THAT(ToText({ring}, View::kSummary, 0), HasSubstr(": dead,"));
  ring.closed = true;
  EXPECT_THAT(ToText({ring}, View::kSummary, 0), HasSubstr(": closed,"));
}

TEST(Views, CountersAreShownWithTheirMeaningsUnlessTheyAreZero) {
  const std::string text = ToText({MakeRing()}, View::kCounters, 0);
  EXPECT_THAT(text, HasSubstr("10 packets                  packets handed out"));
  EXPECT_THAT(text, Not(HasSubstr("refused_route")));
  EXPECT_THAT(text, Not(HasSubstr("below_64")));
}

TEST(Views, DropsStandByLayerAndReason) {
  const std::string text = ToText({MakeRing()}, View::kDrops, 0);
  const size_t port = text.find("  port                    4 discards");
  const size_t queue = text.find("  queue                   1 rx_empty");
  const size_t longer = text.find("  queue                   3 rx_too_long");
  const size_t library = text.find("  library                 2 held_limit");
  EXPECT_LT(port, queue) << text;
  EXPECT_LT(queue, longer) << text;
  EXPECT_LT(longer, library) << text;
  EXPECT_NE(library, text.npos) << text;
}

TEST(Views, DropsAreOfTheLayerThatCountsThem) {
  Segment ring = MakeRing();
  ring.counters = {{"queue", "tx_full", "", 1},
                   {"reassembly", "expired", "", 2},
                   {"reassembly", "fragments", "", 5},
                   {"reassembly", "reassembled", "", 6},
                   {"ring", "refused_route", "", 3},
                   {"ring", "packets", "", 4}};
  const std::string text = ToText({ring}, View::kDrops, 0);
  EXPECT_THAT(text, HasSubstr("  queue                   1 tx_full"));
  EXPECT_THAT(text, HasSubstr("  library                 2 expired"));
  EXPECT_THAT(text, HasSubstr("  refused                 3 refused_route"));
  EXPECT_THAT(text, Not(HasSubstr("packets")));
  EXPECT_THAT(text, Not(HasSubstr("fragments")));
  EXPECT_THAT(text, Not(HasSubstr("reassembled")));
}

TEST(Views, SocketsShowTheirProtocolsCountersOnly) {
  EXPECT_THAT(ToText({MakeRing()}, View::kSockets, 0),
              HasSubstr("  0x102 udp 10.0.0.1:7000 > 10.0.0.2:9 open sent=5\n"));
}

TEST(Views, GroupsNetstatAndConfiguration) {
  EXPECT_THAT(ToText({MakeRing()}, View::kGroups, 0), HasSubstr("  239.1.2.3:7000 0x102\n"));
  EXPECT_THAT(ToText({MakeRing()}, View::kNetstat, 0),
              HasSubstr("udp   10.0.0.1:7000           10.0.0.2:9              open         2     "
                        "77/handler\n"));
  EXPECT_THAT(ToText({MakeRing()}, View::kConfiguration, 0),
              HasSubstr("  mlx5_0 port 1\n  pool of 64\n"));
}

TEST(Views, SocketsThatAreNotPublishedAreCounted) {
  Segment ring = MakeRing();
  ring.sockets_left_out = 1'976;
  EXPECT_THAT(ToText({ring}, View::kSockets, 0), HasSubstr("  and 1976 more\n"));
  EXPECT_THAT(ToText({ring}, View::kNetstat, 0),
              HasSubstr("and 1976 more of ring 2 of 77/handler\n"));
}

TEST(Views, HistogramsHaveABarForEachBucket) {
  const std::string text = ToText({MakeRing()}, View::kHistograms, 0);
  EXPECT_THAT(text, HasSubstr("poll_gap_ns: 100 values, 8000000000 ns in all"));
  EXPECT_THAT(text, HasSubstr("< 64 ns             98 ####"));
  EXPECT_THAT(text, HasSubstr("      more              1 #\n"));
}

TEST(Views, JsonHasEverything) {
  const auto rings = nlohmann::json::parse(ToJson({MakeRing()}, 3'500'000'000));
  ASSERT_EQ(rings.size(), 1u);
  const auto& ring = rings[0];
  EXPECT_EQ(ring["program"], "handler");
  EXPECT_EQ(ring["counters"]["ring"]["refused_route"], 0);
  EXPECT_EQ(ring["counters"]["drop"]["held_limit"], 2);
  EXPECT_FALSE(ring["counters"].contains("poll_gap_ns"));
  EXPECT_EQ(ring["histograms"]["poll_gap_ns"]["count"], 100);
  EXPECT_EQ(ring["histograms"]["poll_gap_ns"]["buckets"][2]["below"], nullptr);
  EXPECT_EQ(ring["sockets"][0]["local"], "10.0.0.1:7000");
  EXPECT_EQ(ring["sockets"][0]["counters"]["sent"], 5);
  EXPECT_EQ(ring["groups"][0]["group"], "239.1.2.3:7000");
  EXPECT_EQ(ring["age_ns"], 2'500'000'000);
}

TEST(Views, PrometheusFamiliesStandTogetherAndHistogramsAreCumulative) {
  const std::string text = ToPrometheus({MakeRing(77), MakeRing(78)}, 3'500'000'000);
  EXPECT_THAT(
      text,
      HasSubstr("# HELP xtreme_ring_packets_total packets handed out\n"
                "# TYPE xtreme_ring_packets_total counter\n"
                "xtreme_ring_packets_total{program=\"handler\",pid=\"77\",ring=\"2\","
                "interface=\"eth2\"} 10\n"
                "xtreme_ring_packets_total{program=\"handler\",pid=\"78\",ring=\"2\","
                "interface=\"eth2\"} 10\n"));
  EXPECT_THAT(text, HasSubstr("# TYPE xtreme_pool_free gauge\n"));
  EXPECT_THAT(text, HasSubstr("interface=\"eth2\",le=\"63\"} 98\n"));
  EXPECT_THAT(text, HasSubstr("interface=\"eth2\",le=\"4095\"} 99\n"));
  EXPECT_THAT(text, HasSubstr("interface=\"eth2\",le=\"+Inf\"} 100\n"));
  EXPECT_THAT(text, HasSubstr("xtreme_socket_udp_sent_total{program=\"handler\",pid=\"77\","
                              "ring=\"2\",interface=\"eth2\",socket=\"0x102\","
                              "local=\"10.0.0.1:7000\"} 5\n"));
  EXPECT_THAT(text, Not(HasSubstr("tcp_segments")));
}

// A program that stands still is alive, and nothing else of it changes.
TEST(Views, PrometheusSaysHowOldValuesAreAndHowManyRingsThereAre) {
  const std::string text = ToPrometheus({MakeRing(77), MakeRing(78)}, 3'500'000'000);
  EXPECT_THAT(text, HasSubstr("# TYPE xtreme_ring_age_seconds gauge\n"
                              "xtreme_ring_age_seconds{program=\"handler\",pid=\"77\","
                              "ring=\"2\",interface=\"eth2\"} 2.500\n"));
  EXPECT_THAT(text, HasSubstr("\nxtreme_rings 2\n"));
  EXPECT_EQ(ToPrometheus({}, 0),
            "# HELP xtreme_rings rings that are published\n# TYPE xtreme_rings gauge\n"
            "xtreme_rings 0\n");
}

TEST(Views, AgesAreTimesWheneverASegmentSaysItWasPublished) {
  Segment ring = MakeRing();
  const auto ages = [&ring](int64_t published_ns) {
    ring.published_ns = published_ns;
    const std::string text = ToText({ring}, View::kSummary, 5'000'000'000);
    const auto json = nlohmann::json::parse(ToJson({ring}, 5'000'000'000));
    return std::pair(text.substr(0, text.find(" ago")), json[0]["age_ns"].get<int64_t>());
  };
  const auto is = [](const char* text, int64_t age_ns) {
    return ::testing::Pair(::testing::EndsWith(text), age_ns);
  };
  EXPECT_THAT(ages(2'000'000'000), is(", published 3.0 s", 3'000'000'000));
  EXPECT_THAT(ages(9'000'000'000), is(", published 0.0 s", 0));
  EXPECT_THAT(ages(INT64_MIN), is(", published 9223372036.9 s", INT64_MAX));
}

TEST(Views, PrometheusHasEachSeriesOnce) {
  Segment ring = MakeRing(77);
  ring.counters = {{"ring", "polls", "polls", 1}, {"ring", "polls", "others", 2}};
  const std::string text = ToPrometheus({ring}, 0);
  const size_t first = text.find("\nxtreme_ring_polls_total{");
  ASSERT_NE(first, std::string::npos) << text;
  EXPECT_NE(text.find("} 1\n", first), std::string::npos) << text;
  EXPECT_EQ(text.find("\nxtreme_ring_polls_total{", first + 1), std::string::npos) << text;
}

TEST(Views, PrometheusHasEachBucketOnce) {
  Segment ring = MakeRing(77);
  ring.counters = {{"gap_ns", "below_8", "", 1},
                   {"gap_ns", "below_8", "", 2},
                   {"gap_ns", "below_", "", 4},
                   {"gap_ns", "more", "", 8}};
  const std::string text = ToPrometheus({ring}, 0);
  for (const char* bound : {",le=\"7\"} 1\n", ",le=\"+Inf\"} 5\n", "_count{"}) {
    EXPECT_NE(text.find(bound), std::string::npos) << bound << text;
  }
  for (const char* bound : {",le=\"7\"}", ",le=\"+Inf\"}"}) {
    EXPECT_EQ(text.find(bound), text.rfind(bound)) << text;
  }
}

TEST(Views, PrometheusTakesNoNameThatEndsItsLine) {
  Segment ring = MakeRing();
  ring.program = "a\"b\\";
  ring.counters = {{"ri ng", "x{a=\"b\"} 1", "back\\slash", 3}, {"e\"l_ns", "sum", "", 1}};
  ring.socket_names = {{"udp", "s#t", "", 0}};
  ring.sockets[0].values = {5};
  const std::string text = ToPrometheus({ring}, 0);
  EXPECT_THAT(text, HasSubstr("# HELP xtreme_ri_ng_x_a__b___1_total back\\\\slash\n"));
  EXPECT_THAT(text, HasSubstr("xtreme_ri_ng_x_a__b___1_total{program=\"a\\\"b\\\\\",pid"));
  EXPECT_THAT(text, HasSubstr("\nxtreme_e_l_ns_sum{"));
  EXPECT_THAT(text, HasSubstr("\nxtreme_socket_udp_s_t_total{"));
}

TEST(Rings, RisesAreOfCountsAndNotOfLevels) {
  const std::vector<Segment> before = {MakeRing()};
  std::vector<Segment> after = {MakeRing(), MakeRing(78)};
  after[0].counters[0].value = 13;
  after[0].sockets[0].values[0] = 9;
  for (const char* level : {"paced_queues", "device_memory_bytes"}) {
    EXPECT_TRUE(IsLevel("queue", level)) << level;
  }
  const auto rises = RisesSince(before, after);
  EXPECT_EQ(ValueOf(rises[0], "ring", "packets"), 3u);
  EXPECT_EQ(ValueOf(rises[0], "pool", "free"), 60u);
  EXPECT_EQ(rises[0].sockets[0].values[0], 4u);
  EXPECT_EQ(ValueOf(rises[1], "ring", "packets"), 10u) << "it was not there before";
}

// In containers every program is process 1.
TEST(Rings, CountsThatBeganAnewAreNotSubtractedFrom) {
  const std::vector<Segment> before = {MakeRing()};
  std::vector<Segment> after = {MakeRing()};
  after[0].counters[0].value = 4;
  after[0].sockets[0].values[0] = 2;
  const auto rises = RisesSince(before, after);
  EXPECT_EQ(ValueOf(rises[0], "ring", "packets"), 4u);
  EXPECT_EQ(rises[0].sockets[0].values[0], 2u);
}

TEST(Rings, SelectionIsByEachProperty) {
  const std::vector<Segment> rings = {MakeRing()};
  const Selection matching[] = {{.pid = 77},          {.ring = 2},
                                {.program = "handler"}, {.interface = "eth2"},
                                {.socket = "0x102"},  {.socket = "10.0.0.1:7000"},
                                {.socket = ":7000"}};
  for (const Selection& selection : matching) EXPECT_EQ(Select(selection, rings).size(), 1u);
  const Selection others[] = {{.pid = 78},           {.ring = 1},        {.program = "x"},
                              {.interface = "eth3"}, {.socket = "0x10"}, {.socket = ":7"}};
  for (const Selection& selection : others) EXPECT_TRUE(Select(selection, rings).empty());
}

TEST(Rings, ProgramsAreSelectedByTheNamesThatTheyHave) {
  Segment ring = MakeRing();
  const auto selected = [&ring](const std::string& program) {
    return Select({.program = program}, {ring}).size() == 1;
  };
  const std::string whole = "a_program_of_a_name_that_is_longer_than_a_segment_has_room_for";
  ring.program = whole.substr(0, 32);
  EXPECT_TRUE(selected(whole));
  EXPECT_TRUE(selected(ring.program));
  EXPECT_FALSE(selected(whole.substr(0, 31)));
  ring.program = "b??rse?";  // As xtreme_stats shows "b\u00f6rse\n".
  EXPECT_TRUE(selected("b\u00f6rse\n"));
  EXPECT_TRUE(selected(ring.program));
  EXPECT_FALSE(selected("b\u00f6rse"));
}

TEST(Rings, AddressesReadAsPeopleWriteThem) {
  EXPECT_EQ(AddressText(Ip(10, 0, 0, 1), 80), "10.0.0.1:80");
  EXPECT_EQ(AddressText(Ip(0, 0, 0, 0), 0), "*:*");
  EXPECT_EQ(AddressText({0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}, 53),
            "[2001:db8::1]:53");
}

}  // namespace
}  // namespace xtreme::stats
