// SPDX-License-Identifier: Apache-2.0
//
// Programs for VMA, compiled against mellanox/vma_extra.h alone, with the kernel on the other side.

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>

#include "gtest/gtest.h"
#include "tests/faces/program.h"

namespace xtreme::faces {
namespace {

class VmaTest : public FacesTest, public ::testing::WithParamInterface<const char*> {
 protected:
  std::string Echo() { return PathOf("tests/faces/vma_echo"); }
  std::string Client() { return PathOf("tests/faces/udp_program"); }
};

TEST_P(VmaTest, EchoServerAnswersTheKernel) {
  const auto server = StartOnXtreme(Echo() + " " + kOurs + " 7000 150 " + GetParam());
  ASSERT_TRUE(server->Says("ready")) << server->Output();
  const auto client = StartOnKernel(Client() + " ask " + kOurs + " 7000 150 64");
  EXPECT_EQ(client->Wait(), 0) << client->Output() << server->Output();
  EXPECT_EQ(client->Output(), "asked, 0 lost\n") << server->Output();
  EXPECT_EQ(server->Wait(), 0) << server->Output();
}

INSTANTIATE_TEST_SUITE_P(Ways, VmaTest,
                         ::testing::Values("ring", "socket", "epoll", "ref", "callback", "zcopy"),
                         [](const auto& info) { return std::string(info.param); });

TEST_F(VmaTest, MaskTellsTheTruthAndErrorsAreTheOnesProgramsKnow) {
  const auto program = StartOnXtreme(Echo() + " " + kOurs + " 7000 1 mask");
  EXPECT_EQ(program->Wait(), 0) << program->Output();
  EXPECT_NE(program->Output().find("offloaded on ours as 10.9.0.1:7000"), std::string::npos)
      << program->Output();
}

// A function at a time (vma_calls.c), with vma_peer on the other side.
class VmaFunctionTest : public FacesTest, public ::testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    FacesTest::SetUp();
    peer_ = StartOnKernel(PathOf("tests/faces/vma_peer") + " " + kTheirs + " 7000 7001");
    ASSERT_TRUE(peer_->Says("ready")) << peer_->Output();
  }
  // What it said, once it has ended well.
  static std::string Done(Program* program) {
    EXPECT_EQ(program->Wait(), 0) << program->Output();
    EXPECT_NE(program->Output().find("done\n"), std::string::npos) << program->Output();
    return program->Output();
  }
  std::string Run(const std::string& program, const std::string& environment = "") {
    return Done(StartOnXtreme(PathOf("tests/faces/" + program), environment).get());
  }

 private:
  std::unique_ptr<Program> peer_;
};

TEST_P(VmaFunctionTest, DoesWhatItSays) { Run(std::string("vma_calls ") + GetParam()); }

INSTANTIATE_TEST_SUITE_P(Functions, VmaFunctionTest,
                         ::testing::Values("rings", "alloc_logic", "add_ring_profile",
                                           "modify_ring", "network_header", "dummy", "user_data",
                                           "shutdown_rx", "timestamps", "add_conf_rule",
                                           "thread_offload", "recvfrom_zcopy", "zcopy_without_room",
                                           "zcopy_kept", "recv_callback", "recv_callback_ready",
                                           "recv_callback_thread", "udp_client", "tcp_client",
                                           "tcp_client_late", "receives_by_calls"),
                         [](const auto& info) { return std::string(info.param); });

TEST_F(VmaFunctionTest, HardwareTimesAreOfThePtpClockForWhoAsks) {
  const std::string tai = "XTREME_CONNECTX_PTP_OFFSET=37 ";
  Run("vma_calls ptp_timestamps", tai + "VMA_HW_TS_CONVERSION=4");
  Run("vma_calls timestamps", tai + "VMA_HW_TS_CONVERSION=3");
}

TEST_F(VmaFunctionTest, QueuesOfAnExternalRingAreTheProgramsOwn) { Run("vma_direct"); }

TEST_F(VmaFunctionTest, BuffersLieInTheProgramsMemoryWhichItGetsBack) {
  const std::string said = Run("vma_calls user_alloc", "VMA_TRACELEVEL=4");
  EXPECT_NE(said.find("MB in memory of the program's"), std::string::npos) << said;
  // By the library, after main().
  EXPECT_NE(said.find("freed\n"), std::string::npos) << said;
}

TEST_F(VmaFunctionTest, AProgramWithoutMemoryHasARingAllTheSame) {
  const std::string said = Run("vma_calls user_alloc_none");
  EXPECT_NE(said.find("bytes asked of the program, it has none; next without"), std::string::npos)
      << said;
  EXPECT_EQ(said.find("freed"), std::string::npos) << said;
}

TEST_F(VmaFunctionTest, MemoryThatEndsTooSoonIsNotUsedAndGivenBack) {
  const std::string said = Run("vma_calls user_alloc_too_little");
  EXPECT_NE(said.find("of what it gave 65536 can be written; next without"), std::string::npos)
      << said;
  EXPECT_NE(said.find("freed\n"), std::string::npos) << said;
}

TEST_F(VmaFunctionTest, DumpTellsOfOffloadedSocketsAndWhyOthersAreNot) {
  const std::string said = Run("vma_calls dump_fd_stats");
  EXPECT_NE(said.find("offloaded on ours as 10.9.0.1:5000; received 1 packets, 7 bytes"),
            std::string::npos)
      << said;
  EXPECT_NE(said.find("sent 1 packets, 7 bytes, 1 dummies"), std::string::npos) << said;
  EXPECT_NE(said.find("not offloaded: bound to a loopback address"), std::string::npos) << said;
}

TEST_F(VmaFunctionTest, RulesOfWhatConnectsAreOfThePeer) { Run("vma_rules peers"); }

TEST_F(VmaFunctionTest, RulesOfReceiversAreOfGroupsToo) { Run("vma_rules groups"); }

TEST_F(VmaFunctionTest, RulesOfSendersAreOfDatagramsEachByWhereItGoesTo) {
  const std::string said = Run("vma_rules senders");
  const size_t first = said.find("sent 1 packets, 2 bytes, 0 dummies");
  ASSERT_NE(first, std::string::npos) << said;
  EXPECT_NE(said.find("sent 1 packets, 2 bytes, 0 dummies", first + 1), std::string::npos) << said;
}

TEST_F(VmaFunctionTest, LibraryThatIsOpenedByTheProgramServesIt) {
  Done(StartOnCard(PathOf("tests/faces/vma_loads") + " " + PathOf("api/libxtreme.so")).get());
}

TEST_F(VmaFunctionTest, LibraryThatIsLinkedServesTheProgram) {
  Done(StartOnCard(PathOf("tests/faces/vma_linked") + " udp_client").get());
}

// The environment divides sockets among rings as the option does.
TEST_F(VmaFunctionTest, RingForEachSocketByTheEnvironmentAndNoMoreThanTheLimit) {
  const char* kPerSocket = "VMA_RING_ALLOCATION_LOGIC_RX=10 VMA_TRACELEVEL=4";
  const auto rings = [this](const std::string& environment) {
    const std::string said = Run("vma_calls three_sockets", environment);
    size_t count = 0;
    // Not what happens to one.
    constexpr const char* kOne = "ring on ours: mlx5_0 port";
    for (size_t at = 0; (at = said.find(kOne, at)) != std::string::npos; ++at) ++count;
    return count;
  };
  EXPECT_EQ(rings("VMA_TRACELEVEL=4"), 1u);
  EXPECT_EQ(rings(kPerSocket), 3u);
  EXPECT_EQ(rings(std::string(kPerSocket) + " VMA_RING_LIMIT_PER_INTERFACE=2"), 2u);
}

TEST_F(VmaFunctionTest, BannerHasTheEffectiveSettings) {
  const std::string said = Run("vma_calls user_data", "VMA_SPEC=latency VMA_RX_WRE=300");
  EXPECT_NE(said.find("select_poll                  -1                         "
                      "[XTREME_SELECT_POLL]"),
            std::string::npos)
      << said;
  EXPECT_NE(said.find("spec                         latency                    [XTREME_SPEC]"),
            std::string::npos)
      << said;
}

// VMA's own default, which is longer than ours can be.
TEST_F(VmaFunctionTest, QueuesAreAsLongAsTheyCanBeForWhoSetsVmas) {
  for (const char* asked : {"VMA_RX_WRE=16000 VMA_TX_WRE=3000", "VMA_TX_WRE=100000"}) {
    const std::string said = Run("vma_calls user_data", asked);
    EXPECT_EQ(said.find("no ring"), std::string::npos) << said;
  }
}

TEST_F(VmaFunctionTest, SettingThatIsWrongIsNamedAndNothingIsOffloaded) {
  const auto program = StartOnXtreme(PathOf("tests/faces/vma_calls") + " user_data",
                                     "VMA_SPEC=fast");
  EXPECT_EQ(program->Wait(), 1);
  EXPECT_NE(program->Output().find("VMA_SPEC: 'fast' asked; latency, multi_ring_latency"),
            std::string::npos)
      << program->Output();
}

// What it closes is gone from its sets, as if the library were not there.
TEST_F(VmaFunctionTest, ProgramWithAWrongSettingClosesWhatItWatches) {
  const std::string script = std::string(std::getenv("TEST_TMPDIR")) + "/watches.py";
  std::ofstream(script) << R"(
import select, socket
watcher = select.epoll()
numbers = []
for i in range(3):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.connect(('10.9.0.2', 7000))
    watcher.register(s, select.EPOLLIN)
    numbers.append(s.fileno())
    s.send(b'question')
    assert watcher.poll(10) == [(s.fileno(), select.EPOLLIN)]
    s.close()
assert len(set(numbers)) == 1, numbers
print('done')
)";
  const std::string said =
      Done(StartWithoutDevice("env VMA_RX_POLL=many /usr/bin/python3 " + script).get());
  EXPECT_NE(said.find("; nothing is offloaded"), std::string::npos) << said;
}

TEST_F(VmaFunctionTest, RuleThatIsWrongIsNamedWithLineAndColumn) {
  const std::string rules = std::string(std::getenv("TEST_TMPDIR")) + "/wrong_rules";
  std::ofstream(rules) << "application-id * *\nuse os udp_reciever *:7000\n";
  const auto program = StartOnXtreme(PathOf("tests/faces/vma_calls") + " user_data",
                                     "VMA_CONFIG_FILE=" + rules);
  EXPECT_EQ(program->Wait(), 1);
  EXPECT_NE(program->Output().find(rules + ":2:8: "), std::string::npos) << program->Output();
}

// As a directory is, which some put where a file is missing.
TEST_F(VmaFunctionTest, RulesThatCannotBeReadAreNamedAndNothingIsOffloaded) {
  const std::string missing = std::string(std::getenv("TEST_TMPDIR")) + "/no_rules";
  for (const std::string& path : {std::string("/proc"), missing}) {
    const auto program = StartOnXtreme(PathOf("tests/faces/vma_calls") + " user_data",
                                       "VMA_CONFIG_FILE=" + path);
    EXPECT_EQ(program->Wait(), 1) << program->Output();
    EXPECT_NE(program->Output().find(path + ": "), std::string::npos) << program->Output();
    EXPECT_NE(program->Output().find("; nothing is offloaded"), std::string::npos);
  }
  Run("vma_calls user_data", "VMA_CONFIG_FILE=/dev/null");
}

TEST_F(VmaFunctionTest, LogFileHasTheProcessInItsName) {
  const std::string path = std::string(std::getenv("TEST_TMPDIR")) + "/log_";
  const auto program = StartOnXtreme("/bin/sh -c 'echo pid $$.; exec " +
                                         PathOf("tests/faces/vma_calls") + " user_data'",
                                     "VMA_TRACELEVEL=INFORMATION VMA_LOG_FILE=" + path + "%d");
  const std::string said = Done(program.get());
  const size_t at = said.find("pid ") + 4;
  const std::string pid = said.substr(at, said.find('.', at) - at);
  std::ifstream log(path + pid);
  const std::string text(std::istreambuf_iterator<char>(log), {});
  EXPECT_NE(text.find("INFO [" + pid + "]: Xtreme, process " + pid), std::string::npos) << text;
}

}  // namespace
}  // namespace xtreme::faces
