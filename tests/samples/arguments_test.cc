// SPDX-License-Identifier: Apache-2.0
//
// Samples that are started wrongly: each says so, and ends with 2, which no failure does.

#include <sys/wait.h>

#include <cstdio>
#include <string>

#include "gtest/gtest.h"

namespace {

struct Ended {
  int code = -1;
  std::string errors;
};

Ended Start(const std::string& command) {
  FILE* const pipe = popen((command + " 2>&1 > /dev/null").c_str(), "r");
  Ended run;
  char part[4096];
  while (const size_t length = std::fread(part, 1, sizeof part, pipe)) {
    run.errors.append(part, length);
  }
  const int status = pclose(pipe);
  if (WIFEXITED(status)) run.code = WEXITSTATUS(status);
  return run;
}

struct Wrong {
  const char* sample;
  const char* arguments;
  const char* names;  // What is wrong, or wanted.
};

class SamplesArgumentsTest : public ::testing::TestWithParam<Wrong> {};

TEST_P(SamplesArgumentsTest, WrongOnesEndItWithTwoAndAreNamed) {
  const Ended run = Start(std::string("samples/") + GetParam().sample + " " + GetParam().arguments);
  EXPECT_EQ(run.code, 2) << run.errors;
  EXPECT_NE(run.errors.find(GetParam().names), std::string::npos) << run.errors;
}

INSTANTIATE_TEST_SUITE_P(
    Samples, SamplesArgumentsTest,
    ::testing::Values(Wrong{"exchange", "--rate=0", "--rate"},
                      Wrong{"exchange", "--address=10.0.0.1 --line-a=nowhere", "'nowhere'"},
                      Wrong{"feed_handler", "", "--interface"},
                      Wrong{"feed_handler_kernel", "--timeout=no", "--timeout"},
                      Wrong{"feed_publisher", "--colour=red", "--colour"},
                      Wrong{"feed_publisher", "--line-b=nowhere", "'nowhere'"},
                      Wrong{"order_gateway", "--interface=eth0", "--orders-to"},
                      Wrong{"multicast_rx", "eth0", "usage"},
                      Wrong{"tcp_echo", "eth0", "usage"},
                      Wrong{"udp_echo", "eth0", "usage"}),
    [](const auto& info) { return info.param.sample + std::to_string(info.index); });

TEST(SamplesHelpTest, IsNoFailure) {
  for (const char* sample : {"exchange", "feed_handler", "order_gateway"}) {
    EXPECT_EQ(Start(std::string("samples/") + sample + " --help").code, 0) << sample;
  }
}

}  // namespace
