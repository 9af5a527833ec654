// SPDX-License-Identifier: Apache-2.0

#include "api/sockets/rules.h"

#include <string>

#include "gtest/gtest.h"

namespace xtreme::sockets {
namespace {

constexpr wire::Ipv4Address kHost(10, 0, 0, 1);
constexpr wire::Ipv4Address kOther(192, 168, 7, 9);

bool Offloads(const Rules& rules, Role role, const wire::Endpoint& first,
              const wire::Endpoint& second = {}) {
  std::string line;
  return rules.Offloads(role, first, second, &line);
}

TEST(RulesTest, FirstRuleThatMatchesDecides) {
  Rules rules;
  ASSERT_EQ(rules.Append("use xtreme udp_receiver 10.0.0.1:7000\n"
                         "use os udp_receiver *:7000-7002  # the rest of them\n",
                         "feed", "x"),
            "");
  EXPECT_TRUE(Offloads(rules, Role::kUdpReceiver, {kHost, 7000}));
  EXPECT_FALSE(Offloads(rules, Role::kUdpReceiver, {kOther, 7000}));
  EXPECT_FALSE(Offloads(rules, Role::kUdpReceiver, {kHost, 7002}));
  EXPECT_TRUE(Offloads(rules, Role::kUdpReceiver, {kHost, 7003}));
  EXPECT_TRUE(Offloads(rules, Role::kTcpServer, {kOther, 7000}));
}

TEST(RulesTest, SecondEndIsTheSecondAddress) {
  Rules rules;
  ASSERT_EQ(rules.Append("use os tcp_client *:*:192.168.0.0/16:80", "a", "b"), "");
  EXPECT_FALSE(Offloads(rules, Role::kTcpClient, {kHost, 1}, {kOther, 80}));
  EXPECT_TRUE(Offloads(rules, Role::kTcpClient, {kHost, 1}, {kOther, 81}));
  EXPECT_TRUE(Offloads(rules, Role::kTcpClient, {kHost, 1}, {kHost, 80}));
}

TEST(RulesTest, LinesOfVmasThatSayWhatIsLoggedArePassedOver) {
  Rules rules;
  ASSERT_EQ(rules.Append("log destination file vma.log min-level 9\n"
                         "use os tcp_server *:5001\n"
                         "log min-level 1\n",
                         "a", "b"),
            "");
  EXPECT_EQ(rules.size(), 1u);
}

// Of VMA's manual.
TEST(RulesTest, ExampleOfVmasManual) {
  Rules rules;
  ASSERT_EQ(rules.Append("application-id tcp-lat B1\r\n"
                         "use vma tcp_client 192.168.1.0/24:*:*:*\r\n"
                         "use os tcp_server *:5001\r\n"
                         "use os udp_connect *:53\r\n",
                         "tcp-lat", "B1"),
            "");
  EXPECT_EQ(rules.size(), 3u);
  EXPECT_FALSE(Offloads(rules, Role::kTcpServer, {kHost, 5001}));
  EXPECT_FALSE(Offloads(rules, Role::kUdpConnect, {kOther, 53}, {kHost, 4711}));
  EXPECT_TRUE(Offloads(rules, Role::kUdpConnect, {kOther, 54}, {kHost, 53}));
  EXPECT_FALSE(rules.HasSenders());
}

TEST(RulesTest, ProgramsAreMatchedAsFilesAreByAShell) {
  const struct {
    const char* pattern;
    const char* program;
    bool matches;
  } kCases[] = {{"db2*", "db2sysc", true}, {"db2*", "adb2", false}, {"t?cp", "ttcp", true},
                {"t?cp", "tcp", false},    {"*", "", true},         {"feed", "feeder", false}};
  for (const auto& each : kCases) {
    Rules rules;
    const std::string text = std::string("application-id ") + each.pattern +
                             " *\nuse os tcp_server *:*\n";
    ASSERT_EQ(rules.Append(text, each.program, "x"), "");
    EXPECT_EQ(rules.size(), each.matches ? 1u : 0u) << each.pattern << " " << each.program;
  }
}

TEST(RulesTest, RangesMayEndWhereVmasDo) {
  Rules rules;
  ASSERT_EQ(rules.Append("use os udp_receiver *:1024-65536", "a", "b"), "");
  EXPECT_FALSE(Offloads(rules, Role::kUdpReceiver, {kHost, 65535}));
  EXPECT_TRUE(Offloads(rules, Role::kUdpReceiver, {kHost, 0}));
}

TEST(RulesTest, LineThatIsPutFirstIsAsInAFile) {
  Rules rules;
  EXPECT_EQ(rules.Prepend(" use os udp_sender *:9  # all of it\r\n"), "");
  EXPECT_TRUE(rules.HasSenders());
  EXPECT_EQ(rules.Prepend("use os udp_sender *:9\nuse os udp_sender *:8"),
            "1:23: the end of the line expected");
  EXPECT_EQ(rules.size(), 1u);
}

TEST(RulesTest, RulesOfOtherProgramsAreNotOurs) {
  Rules rules;
  ASSERT_EQ(rules.Append("application-id sshd *\nuse os tcp_server *:*\n"
                         "application-id feed line-a\nuse vma udp_receiver *:*\n"
                         "application-id feed line-b\nuse os udp_receiver *:*\n",
                         "feed", "line-b"),
            "");
  EXPECT_EQ(rules.size(), 1u);
  EXPECT_FALSE(Offloads(rules, Role::kUdpReceiver, {kHost, 5}));
  EXPECT_TRUE(Offloads(rules, Role::kTcpServer, {kHost, 5}));
}

TEST(RulesTest, RuleThatIsPutFirstPrevails) {
  Rules rules;
  ASSERT_EQ(rules.Append("use os udp_connect *:*", "a", "b"), "");
  ASSERT_EQ(rules.Prepend("use xtreme udp_connect *:9"), "");
  EXPECT_TRUE(Offloads(rules, Role::kUdpConnect, {kHost, 9}));
  EXPECT_FALSE(Offloads(rules, Role::kUdpConnect, {kHost, 8}));
}

TEST(RulesTest, MistakesNameLineAndColumnAndLeaveNothing) {
  constexpr const char* kRange = "ADDRESS[/BITS]:PORT[-PORT] expected";
  const struct {
    const char* text;
    std::string wrong;
  } kMistakes[] = {
      {"use os udp_receiver *:1\nsue os udp_receiver *:1", "2:1: application-id or use expected"},
      {"use them udp_receiver *:1", "1:5: xtreme, vma or os expected"},
      {"use os udp_listener *:1",
       "1:8: tcp_server, tcp_client, udp_sender, udp_receiver or udp_connect expected"},
      {"use os udp_receiver 10.0.0:1", std::string("1:21: ") + kRange},
      {"use os udp_receiver 10.0.0.1/33:1", std::string("1:21: ") + kRange},
      {"use os udp_receiver *:9-8", std::string("1:21: ") + kRange},
      {"use os udp_receiver *:65536", std::string("1:21: ") + kRange},
      {"use os udp_receiver *:1:10.0.0.1", std::string("1:25: ") + kRange},
      {"use os udp_receiver *:1:x:2", std::string("1:25: ") + kRange},
      {"use os udp_receiver *:1 more", "1:25: the end of the line expected"},
      {"use os udp_receiver *:65537", std::string("1:21: ") + kRange},
      {"use os udp_receiver *:1-65537", std::string("1:21: ") + kRange},
      {"application-id", "1:15: a program's name expected"},
      {"application-id a b c", "1:20: the end of the line expected"},
  };
  for (const auto& mistake : kMistakes) {
    Rules rules;
    EXPECT_EQ(rules.Append(mistake.text, "a", "b"), mistake.wrong) << mistake.text;
    EXPECT_EQ(rules.size(), 0u) << mistake.text;
  }
}

}  // namespace
}  // namespace xtreme::sockets
