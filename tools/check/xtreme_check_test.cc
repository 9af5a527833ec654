// SPDX-License-Identifier: Apache-2.0
//
// xtreme_check as somebody runs it: on a software ConnectX, and on an interface that has no device.

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/net/namespace.h"
#include "tests/samples/program.h"

namespace xtreme::check {
namespace {

using ::testing::HasSubstr;
using Command = std::vector<std::string>;

class XtremeCheckTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto space = net::Namespace::Create();
    auto other = net::Namespace::Create();
    ASSERT_TRUE(space.ok() && other.ok()) << space.status();
    space_ = *std::move(space);
    other_ = *std::move(other);
    ASSERT_TRUE(net::ConnectByVeth(*space_, "feed1", *other_, "feed0").ok());
    ASSERT_TRUE(space_->AddAddress("feed1", "10.9.0.2/24").ok());
  }
  std::string Run(const Command& command, int* code) {
    const net::Namespace::Inside inside(*space_);
    samples::Program program(command);
    *code = program.Wait();
    return program.output();
  }

  std::unique_ptr<net::Namespace> space_;
  std::unique_ptr<net::Namespace> other_;
};

TEST_F(XtremeCheckTest, SaysThatADeviceIsSoftwareAndWhatItOffers) {
  int code = 0;
  const std::string output = Run({"tools/connectx/preload/launch", "--interface=feed1", "--",
                                  "tools/check/xtreme_check", "feed1", "--json"},
                                 &code);
  const auto report = nlohmann::json::parse(output);
  EXPECT_EQ(report["software"], true);
  const auto verdict = [&report](std::string_view name) -> std::string {
    for (const auto& check : report["checks"]) {
      if (check["name"] == name) return check["verdict"];
    }
    return "absent";
  };
  for (const char* name : {"device", "rdma_core", "firmware", "uverbs", "bond", "function", "pcie",
                           "blueflame", "uars", "checksums", "timestamps", "rules"}) {
    EXPECT_EQ(verdict(name), "PASS") << output;
  }
  EXPECT_THAT(output, HasSubstr("65536 rules"));
  EXPECT_GE(report["checks"].size(), 26u);
}

TEST_F(XtremeCheckTest, ACardThatIsSetToRealTimeIsToldByItsQueues) {
  int code = 0;
  const std::string output = Run({"tools/connectx/preload/launch", "--interface=feed1",
                                  "--without=free_running_clock", "--",
                                  "tools/check/xtreme_check", "feed1"},
                                 &code);
  EXPECT_THAT(output, HasSubstr("WARN timestamps"));
  EXPECT_THAT(output, HasSubstr("the PHC's time alone"));
}

// As of a program in a container that has a user namespace.
TEST_F(XtremeCheckTest, ACapabilityThatTheKernelDoesNotTakeFails) {
  int code = 0;
  const std::string output = Run({"tools/connectx/preload/launch", "--interface=feed1",
                                  "--without=net_raw", "--", "tools/check/xtreme_check", "feed1"},
                                 &code);
  EXPECT_EQ(code, 1);
  EXPECT_THAT(output, HasSubstr("FAIL cap_net_raw"));
}

TEST_F(XtremeCheckTest, AnInterfaceWithoutADeviceFails) {
  int code = 0;
  const std::string output = Run({"tools/check/xtreme_check", "feed1"}, &code);
  EXPECT_EQ(code, 1);
  EXPECT_THAT(output, HasSubstr("FAIL device"));
  EXPECT_THAT(output, HasSubstr("fix: load mlx5_ib"));
}

TEST_F(XtremeCheckTest, AnInterfaceThatIsNotThereFails) {
  int code = 0;
  EXPECT_THAT(Run({"tools/check/xtreme_check", "feed7"}, &code),
              HasSubstr("there is no interface feed7"));
  EXPECT_EQ(code, 1);
}

TEST_F(XtremeCheckTest, AReportForProgramsIsJsonWhateverItIsAskedFor) {
  int code = 0;
  for (const std::string name : {"\xff", "\"\\\n\x1b", "../../"}) {
    const std::string output = Run({"tools/check/xtreme_check", name, "--json"}, &code);
    EXPECT_EQ(code, 1) << name;
    EXPECT_FALSE(nlohmann::json::parse(output, nullptr, false).is_discarded()) << output;
  }
}

TEST_F(XtremeCheckTest, AReportThatCannotBeWrittenFailsInWords) {
  int code = 0;
  for (const std::string more : {"", " --json"}) {
    EXPECT_THAT(Run({"/bin/sh", "-c",
                     "exec tools/check/xtreme_check feed1" + more + " 2>&1 > /dev/full"}, &code),
                HasSubstr("cannot be written"));
    EXPECT_EQ(code, 1);
  }
}

TEST_F(XtremeCheckTest, WithoutAnInterfaceItSaysHowItIsUsed) {
  int code = 0;
  Run({"tools/check/xtreme_check"}, &code);
  EXPECT_EQ(code, 2);
  Run({"tools/check/xtreme_check", "feed1", "--cpu=none"}, &code);
  EXPECT_EQ(code, 2);
  Run({"tools/check/xtreme_check", "--help"}, &code);
  EXPECT_EQ(code, 0);
}

}  // namespace
}  // namespace xtreme::check
