// SPDX-License-Identifier: Apache-2.0
//
// The hardware list on the software ConnectX, short: two programs in two network namespaces, each
// with a device of its own on one end of a veth pair.

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/net/namespace.h"
#include "tests/samples/program.h"

namespace xtreme::hardware {
namespace {

using samples::Program;

class HardwareTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = "/dev/shm/xtreme_hardware_test.XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
    auto here = net::Namespace::Create();
    auto there = net::Namespace::Create();
    ASSERT_TRUE(here.ok() && there.ok()) << here.status() << there.status();
    here_ = *std::move(here);
    there_ = *std::move(there);
    ASSERT_TRUE(net::ConnectByVeth(*here_, "feed1", *there_, "feed0").ok());
    ASSERT_TRUE(here_->SetMtu("feed1", mtu_).ok());
    ASSERT_TRUE(there_->SetMtu("feed0", mtu_).ok());
    ASSERT_TRUE(here_->AddAddress("feed1", "10.9.0.2/24").ok());
    ASSERT_TRUE(there_->AddAddress("feed0", "10.9.0.1/24").ok());
    ASSERT_TRUE(here_->AddRoute("224.0.0.0/4", "feed1").ok());
    ASSERT_TRUE(there_->AddRoute("224.0.0.0/4", "feed0").ok());
    server_ = Start(*there_, "feed0", {"--serve", "--interface=feed0"});
    ASSERT_TRUE(server_->ReadUntil("ready")) << server_->output();
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  static std::unique_ptr<Program> Start(const net::Namespace& space, const std::string& interface,
                                        const std::vector<std::string>& arguments) {
    const net::Namespace::Inside inside(space);
    std::vector<std::string> command = {"tools/connectx/preload/launch",
                                        "--interface=" + interface, "--",
                                        "benchmarks/hardware/hardware"};
    command.insert(command.end(), arguments.begin(), arguments.end());
    return std::make_unique<Program>(command);
  }
  nlohmann::json Run(const std::string& item) {
    const std::string path = directory_ + "/report.json";
    auto program = Start(*here_, "feed1",
                         {"--interface=feed1", "--peer=10.9.0.1", "--asks=20", "--rings=32",
                          "--pull=link", "--only=" + item, "--json=" + path});
    program->Wait();
    std::ifstream file(path);
    auto report = nlohmann::json::parse(file, nullptr, false);
    EXPECT_FALSE(report.is_discarded()) << program->output();
    return report;
  }
  // The exit code of a run that is refused for `argument`, before any device is asked; what it
  // said.
  static int Refused(const std::string& argument, std::string* said) {
    const std::string interface =
        argument.find("--interface") == argument.npos ? "--interface=feed1 " : "";
    Program program({"/bin/sh", "-c", "exec benchmarks/hardware/hardware --peer=10.9.0.1 " +
                                          interface + argument + " 2>&1"});
    const int code = program.Wait();
    *said = program.output();
    return code;
  }
  // What the item found.
  nlohmann::json ExpectOk(const std::string& item) {
    const auto report = Run(item);
    EXPECT_EQ(report["items"].size(), 1u);
    EXPECT_EQ(report["items"][0]["verdict"], "ok") << report.dump(2);
    EXPECT_EQ(report["software"], true);
    return report["items"][0]["figures"];
  }

  uint32_t mtu_ = 1'500;
  std::string directory_;
  std::unique_ptr<net::Namespace> here_;
  std::unique_ptr<net::Namespace> there_;
  std::unique_ptr<Program> server_;
};

TEST_F(HardwareTest, EchoesAtEverySize) { ExpectOk("echo_sizes"); }
TEST_F(HardwareTest, ComparesBlueFlameWithDoorbells) {
  auto figures = ExpectOk("blueflame");
  EXPECT_GT(figures["on"]["blueflame_wqes"], 0) << figures.dump(2);
  EXPECT_EQ(figures["off"]["blueflame_wqes"], 0) << figures.dump(2);
}
TEST_F(HardwareTest, ComparesOnDeviceMemoryWithGathering) {
  auto figures = ExpectOk("device_memory");
  EXPECT_GT(figures["on"]["device_memory_frames"], 0) << figures.dump(2);
  EXPECT_EQ(figures["off"]["device_memory_frames"], 0) << figures.dump(2);
}
TEST_F(HardwareTest, SendsFragmentsBothWays) { ExpectOk("fragments"); }
TEST_F(HardwareTest, StarvesAReceiveQueue) {
  auto figures = ExpectOk("starvation");
  EXPECT_LT(figures["received"], figures["sent"]) << figures.dump(2);
  EXPECT_GT(figures["rx_empty"].get<int>() + figures["out_of_buffer"].get<int>(), 0);
}
TEST_F(HardwareTest, PullsTheCable) { ExpectOk("cable_pull"); }
TEST_F(HardwareTest, RunsManyRings) { EXPECT_EQ(ExpectOk("rings")["rings"], 32); }
TEST_F(HardwareTest, ComparesTimesWithTheHosts) {
  // A software device's clock stands still while its thread waits for a processor, which a busy
  // machine may let it do once; what is wrong is wrong three times.
  nlohmann::json report;
  for (int tries = 0; tries < 3; ++tries) {
    report = Run("timestamps");
    EXPECT_EQ(report["items"][0]["figures"]["phc"], "no PHC") << report.dump(2);
    if (report["items"][0]["verdict"] == "ok") return;
  }
  ADD_FAILURE() << report.dump(2);
}
TEST_F(HardwareTest, SharesAGroupWithAnotherProcess) { ExpectOk("tag_conflict"); }
TEST_F(HardwareTest, SharesAGroupWithTheKernel) { ExpectOk("dont_trap"); }

TEST_F(HardwareTest, SeesWhichOfRulesThatOverlapGoesFirst) { ExpectOk("overlapping_rules"); }

TEST_F(HardwareTest, LongFramesWantALongMtu) {
  const auto report = Run("long_frames");
  EXPECT_EQ(report["items"][0]["verdict"], "not tried") << report.dump(2);
}

class LongMtuTest : public HardwareTest {
 protected:
  LongMtuTest() { mtu_ = 4'000; }
};

TEST_F(LongMtuTest, SendsFramesLongerThanTheBuffers) {
  auto figures = ExpectOk("long_frames");
  EXPECT_EQ(figures["rx_too_long"], figures["sent"]) << figures.dump(2);
}

TEST_F(HardwareTest, ItemThatThereIsNotIsAnErrorThatNamesThoseThatThereAre) {
  std::string said;
  EXPECT_EQ(Refused("--only=blueflames", &said), 2);
  EXPECT_NE(said.find("cable_pull"), std::string::npos) << said;
}

TEST_F(HardwareTest, ReportIsJsonWhateverItIsOf) {
  const std::string path = directory_ + "/report.json";
  std::string said;
  EXPECT_EQ(Refused("--interface=$(printf '\\377') --only=starvation --json=" + path, &said), 1);
  std::ifstream file(path);
  const auto report = nlohmann::json::parse(file, nullptr, false);
  ASSERT_FALSE(report.is_discarded()) << said;
  EXPECT_EQ(report["items"][0]["verdict"], "failed") << report.dump(2);
}

TEST_F(HardwareTest, ReportThatCannotBeWrittenIsToldBeforeTheListIsRun) {
  std::string said;
  EXPECT_EQ(Refused("--json=" + directory_ + "/absent/report.json", &said), 2);
  EXPECT_NE(said.find("report.json cannot be written: No such file"), std::string::npos) << said;
  EXPECT_EQ(said.find("echo_sizes"), std::string::npos) << said;
}

}  // namespace
}  // namespace xtreme::hardware
