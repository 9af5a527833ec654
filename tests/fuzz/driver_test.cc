// SPDX-License-Identifier: Apache-2.0
//
// The driver as a program: it finds a planted fault, says how to replay it, and the replay fails.
#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <regex>
#include <string>

#include "gtest/gtest.h"

namespace xtreme::fuzz {
namespace {

struct Outcome {
  int status = -1;
  std::string output;
};

Outcome RunFault(const std::string& arguments) {
  // exec: the shell would turn the signal into words of its own.
  const std::string command =
      "exec " + std::string(std::getenv("PLANTED_FAULT")) + " " + arguments + " 2>&1";
  Outcome outcome;
  FILE* pipe = ::popen(command.c_str(), "r");
  for (int c; (c = std::fgetc(pipe)) != EOF;) outcome.output.push_back(static_cast<char>(c));
  outcome.status = ::pclose(pipe);
  return outcome;
}

TEST(DriverTest, FindsThePlantedFaultAndPrintsALineThatReplaysIt) {
  const Outcome found = RunFault("--seed=3 --iterations=5000");
  EXPECT_FALSE(WIFEXITED(found.status) && WEXITSTATUS(found.status) == 0) << found.output;
  std::smatch match;
  ASSERT_TRUE(std::regex_search(found.output, match,
                                std::regex("--seed=3 --first=([0-9]+) --iterations=1")))
      << found.output;
  EXPECT_NE(found.output.find("bytes: ff"), std::string::npos) << found.output;

  const Outcome replayed = RunFault(match[0].str());
  EXPECT_NE(replayed.output.find("died at input " + match[1].str()), std::string::npos)
      << replayed.output;
}

TEST(DriverTest, ExitsWithZeroWhenEveryInputWasSurvived) {
  const Outcome outcome = RunFault("--seed=3 --iterations=1");
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_NE(outcome.output.find("1 inputs survived"), std::string::npos) << outcome.output;
}

TEST(DriverTest, UnknownOptionIsRefused) { EXPECT_NE(RunFault("--iteration=1").status, 0); }

}  // namespace
}  // namespace xtreme::fuzz
