// SPDX-License-Identifier: Apache-2.0
//
// xtreme_stats as somebody runs it: beside a program whose ring stands on a software ConnectX, and
// after that program was killed.

#include <csignal>
#include <filesystem>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/samples/echo_beside.h"
#include "tests/samples/program.h"

namespace xtreme::stats {
namespace {

using ::testing::HasSubstr;
using samples::Program;

constexpr int kDatagrams = 3;

class XtremeStatsTest : public samples::EchoBesideTest {
 protected:
  XtremeStatsTest() : EchoBesideTest(std::vector<std::string>(kDatagrams, "x")) {}

  // Keeping its last frames, too.
  void StartEcho() {
    EchoBesideTest::StartEcho({"XTREME_HISTOGRAMS=on", "XTREME_DUMP_FRAMES=64"});
  }
  std::string Run(const std::vector<std::string>& arguments, int expected_code = 0) {
    return RunTool("tools/stats/xtreme_stats", arguments, expected_code);
  }
  // The ring as JSON once its last publication has `packets`: it publishes once a second.
  nlohmann::json AwaitPackets(uint64_t packets) {
    nlohmann::json rings;
    for (int reports = 0; reports < 100; ++reports) {
      Run({"--json", "--delta", "--interval=0.1"});
      rings = nlohmann::json::parse(Run({"--json"}), nullptr, false);
      if (rings.size() == 1 && rings[0]["counters"]["ring"]["packets"] == packets) return rings[0];
    }
    ADD_FAILURE() << rings.dump(2);
    return {};
  }
};

TEST_F(XtremeStatsTest, ShowsARunningProgram) {
  StartEcho();
  const nlohmann::json ring = AwaitPackets(kDatagrams);
  EXPECT_EQ(ring["program"], "udp_echo");
  EXPECT_EQ(ring["interface"], "feed1");
  EXPECT_EQ(ring["alive"], true);
  EXPECT_EQ(ring["sockets"][0]["counters"]["sent"], kDatagrams);
  EXPECT_EQ(ring["sockets"][0]["local"], "*:7");
  EXPECT_GT(ring["histograms"]["poll_gap_ns"]["count"], 0);
  EXPECT_THAT(Run({}), HasSubstr(" on feed1: running, published "));
  EXPECT_THAT(Run({"--view=netstat"}), HasSubstr("udp   *:7"));
  EXPECT_THAT(Run({"--view=configuration"}), HasSubstr("mlx5_0 port 1"));
  EXPECT_THAT(Run({"--prometheus"}), HasSubstr("xtreme_wire_to_poll_ns_bucket{program=\"udp_echo"));
  EXPECT_THAT(Run({"--delta", "--view=sockets", "--socket=:7"}),
              ::testing::Not(HasSubstr("sent=")));
}

// The device's clock is compared with the host's once a second: packets before that have no age.
TEST_F(XtremeStatsTest, ShowsHowOldPacketsAreWhenTheyAreSeen) {
  StartEcho();
  uint64_t counted = 0;
  for (int rounds = 0; rounds < 100 && counted == 0; ++rounds) {
    Ask();
    Run({"--json", "--delta", "--interval=0.1"});
    counted = nlohmann::json::parse(Run({"--json"}))[0]["histograms"]["wire_to_poll_ns"]["count"];
  }
  EXPECT_GT(counted, 0u);
  EXPECT_THAT(Run({}), HasSubstr("  wire_to_poll below "));
  EXPECT_THAT(Run({"--view=histograms"}), HasSubstr("  wire_to_poll_ns: "));
}

TEST_F(XtremeStatsTest, ShowsAKilledProgramUntilItIsCleanedAway) {
  StartEcho();
  AwaitPackets(kDatagrams);
  echo_.reset();  // Killed.
  EXPECT_THAT(Run({}), HasSubstr(" on feed1: dead, published "));
  EXPECT_THAT(Run({"--view=sockets"}), HasSubstr("sent=3"));
  EXPECT_EQ(Run({"--clean"}), "2 removed\n") << "counters, and frames";
  EXPECT_TRUE(std::filesystem::is_empty(directory_));
  Run({}, 1);
}

TEST_F(XtremeStatsTest, AReportThatCannotBeWrittenIsAFailure) {
  StartEcho();
  for (const std::string way : {"--json", "--prometheus", "--view=counters"}) {
    Program tool({"/bin/sh", "-c", "exec tools/stats/xtreme_stats " + way + " --directory=" +
                                       directory_ + " 2>&1 > /dev/full"});
    EXPECT_EQ(tool.Wait(), 1) << way;
    EXPECT_THAT(tool.output(), HasSubstr("cannot be written")) << way;
  }
}

// The next report, by whose writing it would see that, is hours away.
TEST_F(XtremeStatsTest, AReaderThatLeavesEndsTheWatch) {
  Program shell({"/bin/bash", "-c",
                 "timeout 10 tools/stats/xtreme_stats --watch --json --interval=9999 --directory=" +
                     directory_ + " | head -c1 > /dev/null; exit ${PIPESTATUS[0]}"});
  EXPECT_EQ(shell.Wait(), 128 + SIGPIPE);
}

TEST_F(XtremeStatsTest, CountsItsReports) {
  StartEcho();
  const std::string text = Run({"--watch", "--count=3", "--interval=0.05"});
  size_t reports = 0;
  for (size_t at = 0; (at = text.find("udp_echo ", at)) != text.npos; ++at) ++reports;
  EXPECT_EQ(reports, 3u) << text;
}

TEST_F(XtremeStatsTest, SaysWhichViewOfVmasToolIsWhich) {
  const std::string help = Run({"--help"});
  for (const char* view : {"-v 1", "-v 2", "-v 3", "-v 4", "-v 5", "-d 2"}) {
    EXPECT_THAT(help, HasSubstr(view));
  }
}

TEST_F(XtremeStatsTest, RefusesAViewThatThereIsNot) {
  Run({"--view=everything"}, 2);
}

TEST_F(XtremeStatsTest, RefusesNumbersThatAreNone) {
  for (const char* option : {"--count=-1", "--count=0", "--interval=nan", "--pid=-1"}) {
    Run({option}, 2);
  }
}

TEST_F(XtremeStatsTest, SaysThatADirectoryIsNotThere) {
  for (const std::string option : {"--clean", "--json"}) {
    Program tool({"/bin/sh", "-c", "exec tools/stats/xtreme_stats " + option + " --directory=" +
                                       directory_ + "/absent 2>&1"});
    EXPECT_EQ(tool.Wait(), 1) << option;
    EXPECT_THAT(tool.output(), HasSubstr("/absent: No such file or directory")) << option;
  }
}

TEST_F(XtremeStatsTest, NoRingIsAnAnswerForProgramsAndAFailureForPeople) {
  EXPECT_EQ(Run({"--json"}), "[]\n");
  EXPECT_THAT(Run({"--prometheus"}), HasSubstr("xtreme_rings 0\n"));
  Program tool({"/bin/sh", "-c", "exec tools/stats/xtreme_stats --socket=:9 --directory=" +
                                     directory_ + " 2>&1"});
  EXPECT_EQ(tool.Wait(), 1);
  EXPECT_THAT(tool.output(), HasSubstr("no such socket"));
}

// As another user's, which is no answer.
TEST_F(XtremeStatsTest, AFileThatCannotBeReadIsNamedOnceAndIsAFailure) {
  std::filesystem::create_directory(directory_ + "/xtreme.7.1");
  Program tool({"/bin/sh", "-c", "exec tools/stats/xtreme_stats --json --directory=" +
                                     directory_ + " 2>&1"});
  EXPECT_EQ(tool.Wait(), 1);
  EXPECT_THAT(tool.output(), HasSubstr("xtreme_stats: read counters: " + directory_ +
                                       "/xtreme.7.1: not a file\n"));
}

TEST_F(XtremeStatsTest, CountersForPrometheusAreNoDifferences) {
  Run({"--prometheus", "--delta"}, 2);
}

}  // namespace
}  // namespace xtreme::stats
