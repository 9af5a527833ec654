// SPDX-License-Identifier: Apache-2.0
//
// Every script of tests/tcp/scripts, one test each; and that the runner itself can fail.

#include "tests/tcp/script.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace xtreme::tcp::testing {
namespace {

std::string WhatWentWrong(const std::string& text) {
  std::vector<ScriptLine> lines;
  const std::string wrong = ParseScript(text, &lines);
  return wrong.empty() ? RunScript(lines) : "not understood: " + wrong;
}

std::vector<std::string> Scripts() {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator("tests/tcp/scripts")) {
    paths.push_back(entry.path().string());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

class Script : public ::testing::TestWithParam<std::string> {};

TEST_P(Script, GoesAsWritten) {
  std::ifstream file(GetParam());
  std::ostringstream text;
  text << file.rdbuf();
  EXPECT_EQ(WhatWentWrong(text.str()), "") << GetParam();
}

INSTANTIATE_TEST_SUITE_P(Tcp, Script, ::testing::ValuesIn(Scripts()), [](const auto& info) {
  std::string name = std::filesystem::path(info.param).stem().string();
  std::replace_if(
      name.begin(), name.end(), [](char c) { return !std::isalnum(c); }, '_');
  return name;
});

constexpr char kHandshake[] =
    "+0 listen\n"
    "+0 < S 0:0(0) win 65535 <mss 1460>\n"
    "+0 > S. 0:0(0) ack 1\n"
    "+0 < . 1:1(0) ack 1 win 65535\n"
    "+0 event accepted\n";

TEST(ScriptRunner, SegmentsThatNobodyExpectsFail) {
  EXPECT_EQ(WhatWentWrong(std::string(kHandshake)), "");
  EXPECT_NE(WhatWentWrong(std::string(kHandshake) + "+0 send 10\n"), "");
}

TEST(ScriptRunner, SegmentsThatDoNotComeFail) {
  EXPECT_NE(WhatWentWrong(std::string(kHandshake) + "+0 > . 1:1(0) ack 1\n"), "");
}

TEST(ScriptRunner, SegmentsThatDifferFail) {
  EXPECT_NE(WhatWentWrong(std::string(kHandshake) + "+0 send 10\n+0 > P. 1:12(11) ack 1\n"), "");
  EXPECT_NE(WhatWentWrong(std::string(kHandshake) + "+0 send 10\n+0 > . 1:11(10) ack 1\n"), "");
  EXPECT_EQ(WhatWentWrong(std::string(kHandshake) + "+0 send 10\n+0 > P. 1:11(10) ack 1\n"), "");
}

TEST(ScriptRunner, SegmentsAtAnotherTimeFail) {
  EXPECT_NE(WhatWentWrong(std::string(kHandshake) + "+0 send 10\n+.1 > P. 1:11(10) ack 1\n"), "");
}

TEST(ScriptRunner, SeveralSegmentsAreOneLineIfTheyTouch) {
  const std::string two = std::string(kHandshake) + "+0 send 2920\n";
  EXPECT_EQ(WhatWentWrong(two + "+0 > P. 1:2921(2920) ack 1\n"), "");
  EXPECT_NE(WhatWentWrong(two + "+0 > P. 1:2921(2920) ack 1\n+0 > P. 2921:2922(1) ack 1\n"), "");
  EXPECT_NE(WhatWentWrong(two + "+0 > . 1:2921(2920) ack 1\n"), "");
  EXPECT_NE(WhatWentWrong(two + "+0 > P. 1:2920(2919) ack 1\n"), "");
  EXPECT_EQ(WhatWentWrong("set push=0\n" + two + "+0 > . 1:2921(2920) ack 1\n"), "");
}

TEST(ScriptRunner, SegmentsOutsideTheirRangeOfTimeFail) {
  const std::string lost = std::string(kHandshake) + "+0 send 10\n+0 > P. 1:11(10) ack 1\n";
  EXPECT_EQ(WhatWentWrong(lost + "+.1~1.5 > P. 1:11(10) ack 1\n"), "");
  EXPECT_NE(WhatWentWrong(lost + "+.01~.1 > P. 1:11(10) ack 1\n"), "");
  EXPECT_NE(WhatWentWrong(lost + "+1.5~2 > P. 1:11(10) ack 1\n"), "");
}

TEST(ScriptRunner, ReportsThatDifferFail) {
  EXPECT_EQ(WhatWentWrong(std::string(kHandshake) + "+0 is cwnd=14600 in_flight=0\n"), "");
  EXPECT_NE(WhatWentWrong(std::string(kHandshake) + "+0 is cwnd=14601\n"), "");
  EXPECT_NE(WhatWentWrong(std::string(kHandshake) + "+0 is cwindow=14600\n"), "");
}

TEST(ScriptRunner, EventsThatNobodyExpectsFail) {
  EXPECT_NE(WhatWentWrong("+0 listen\n+0 < S 0:0(0)\n+0 > S. 0:0(0) ack 1\n+0 < . 1:1(0) ack 1\n"),
            "");
  EXPECT_EQ(WhatWentWrong("set events=0\n+0 listen\n+0 < S 0:0(0)\n+0 > S. 0:0(0) ack 1\n"
                          "+0 < . 1:1(0) ack 1\n"),
            "");
}

TEST(ScriptRunner, LinesThatAreNotUnderstoodAreNamed) {
  EXPECT_EQ(WhatWentWrong("+0 listen\n+0 < X 0:0(0)\n"), "not understood: line 2: +0 < X 0:0(0)");
}

}  // namespace
}  // namespace xtreme::tcp::testing
