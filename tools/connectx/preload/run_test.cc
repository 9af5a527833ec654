// SPDX-License-Identifier: Apache-2.0
//
// Programs that know nothing of us, started on a software ConnectX.

#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

#include "gtest/gtest.h"
#include "tools/connectx/preload/settings.h"

namespace xtreme::connectx {
namespace {

struct Outcome {
  int exit_code;
  std::string output;  // Of both streams.
};

Outcome Execute(const std::string& arguments, const std::string& environment = "") {
  const std::string command =
      "env " + environment + " tools/connectx/preload/launch " + arguments + " 2>&1";
  FILE* const pipe = ::popen(command.c_str(), "r");
  std::string output;
  char part[4096];
  while (size_t length = std::fread(part, 1, sizeof(part), pipe)) output.append(part, length);
  const int status = ::pclose(pipe);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, output};
}

TEST(RunTest, IbvDevinfoDescribesTwoActiveEthernetPorts) {
  const Outcome outcome = Execute("-- ibv_devinfo -v");
  EXPECT_EQ(outcome.exit_code, 0);
  for (const char* line : {"hca_id:\tmlx5_0", "hca_id:\tmlx5_1", "16.35.4030", "PORT_ACTIVE",
                           "link_layer:\t\tEthernet", "IP csum offload", "SUPPORT_RAW_PACKET",
                           "hca_core_clock:", "MT_0000000012", "RoCE v2"}) {
    EXPECT_NE(outcome.output.find(line), std::string::npos) << line << "\n" << outcome.output;
  }
}

TEST(RunTest, InterfaceThatIsNotThereIsAnErrorThatNamesIt) {
  const Outcome outcome = Execute("--interface=nosuchif0 -- ibv_devinfo");
  EXPECT_NE(outcome.exit_code, 0);
  EXPECT_NE(outcome.output.find("nosuchif0"), std::string::npos) << outcome.output;
}

TEST(RunTest, ExitCodeIsTheProgramsOwn) {
  EXPECT_EQ(Execute("--mode=spin -- sh -c 'exit 23'").exit_code, 23);
}

TEST(RunTest, UnknownOrMalformedSettingsAreErrorsThatNameThem) {
  const Outcome unknown = Execute("-- true", "XTREME_CONNECTX_COLOUR=red");
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_NE(unknown.output.find("XTREME_CONNECTX_COLOUR"), std::string::npos) << unknown.output;
  const Outcome malformed = Execute("--mtu=banana -- true");
  EXPECT_EQ(malformed.exit_code, 2);
  EXPECT_NE(malformed.output.find("XTREME_CONNECTX_MTU=banana"), std::string::npos)
      << malformed.output;
}

TEST(RunTest, CountersOfEachWireAreWrittenAtExit) {
  const std::string file = std::string(std::getenv("TEST_TMPDIR")) + "/counters";
  EXPECT_EQ(Execute("--counters=" + file + " -- ibv_devinfo").exit_code, 0);
  std::ifstream in(file);
  const std::string text(std::istreambuf_iterator<char>(in), {});
  for (const char* line : {"mlx5_0 rx_frames 0\n", "mlx5_1 tx_frames 0\n"}) {
    EXPECT_NE(text.find(line), std::string::npos) << line << "\n" << text;
  }
}

TEST(RunTest, HelpPrintsTheTable) {
  const Outcome outcome = Execute("--help");
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_NE(outcome.output.find(DescribeSettings()), std::string::npos);
}

TEST(SettingsTest, EachIsParsed) {
  const char* const environment[] = {"HOME=/root",
                                     "XTREME_CONNECTX_INTERFACE=eth7",
                                     "XTREME_CONNECTX_MODE=spin",
                                     "XTREME_CONNECTX_MTU=9000",
                                     "XTREME_CONNECTX_MIN_INLINE=none",
                                     "XTREME_CONNECTX_BLUEFLAME=0",
                                     "XTREME_CONNECTX_COUNTERS=/tmp/counters",
                                     "XTREME_CONNECTX_REPORT=1",
                                     nullptr};
  const auto settings = ReadSettings(environment);
  ASSERT_TRUE(settings.ok()) << settings.status();
  EXPECT_EQ(settings->interface, "eth7");
  EXPECT_EQ(settings->counters, "/tmp/counters");
  EXPECT_EQ(settings->mode, SoftwareConnectX::Mode::kSpin);
  EXPECT_EQ(settings->mtu, 9000u);
  EXPECT_EQ(settings->device.eth_min_inline, Device::MinInline::kNone);
  EXPECT_FALSE(settings->device.features.blueflame);
  EXPECT_TRUE(settings->report);
}

TEST(SettingsTest, WhatIsSaidOfTheDeviceIsLaidOverItsPersonalityInAnyOrder) {
  const char* const environment[] = {"XTREME_CONNECTX_WITHOUT=tso,device_memory",
                                     "XTREME_CONNECTX_MIN_INLINE=l2",
                                     "XTREME_CONNECTX_PERSONALITY=cx7", nullptr};
  const auto settings = ReadSettings(environment);
  ASSERT_TRUE(settings.ok()) << settings.status();
  EXPECT_EQ(settings->device.model.hca_type, "MT4129");
  EXPECT_EQ(settings->device.limits.tso_bytes, 0u);
  EXPECT_EQ(settings->device.limits.device_memory_bytes, 0u);
  EXPECT_EQ(settings->device.eth_min_inline, Device::MinInline::kL2);
  const char* const unknown[] = {"XTREME_CONNECTX_WITHOUT=tso,wings", nullptr};
  EXPECT_FALSE(ReadSettings(unknown).ok());
}

TEST(RunTest, PersonalityIsWhatProgramsSee) {
  const Outcome outcome = Execute("--personality=cx6dx -- ibv_devinfo -v");
  for (const char* line : {"vendor_part_id:\t\t\t4125", "22.39.1002", "MT_0000000359",
                           "hca_core_clock:\t\t\t1000000kHZ"}) {
    EXPECT_NE(outcome.output.find(line), std::string::npos) << line << "\n" << outcome.output;
  }
}

}  // namespace
}  // namespace xtreme::connectx
