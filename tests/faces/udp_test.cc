// SPDX-License-Identifier: Apache-2.0
//
// Datagram programs, unchanged, with libxtreme.so preloaded, against the kernel on the other side.

#include <string>

#include "gtest/gtest.h"
#include "tests/faces/program.h"

namespace xtreme::faces {
namespace {

// What each line of the log that tells of an offloaded socket has.
constexpr const char* kOffloaded = "offloaded on ours";
constexpr const char* kDebug = "XTREME_LOG_LEVEL=debug";

class UdpTest : public FacesTest, public ::testing::WithParamInterface<const char*> {
 protected:
  std::string Program() { return PathOf("tests/faces/udp_program"); }
};

TEST_P(UdpTest, EchoServerIsOffloadedAndAnswersTheKernel) {
  const auto server = StartOnXtreme(
      Program() + " serve " + kOurs + " 7000 200 " + GetParam(), kDebug);
  ASSERT_TRUE(server->Says("ready")) << server->Output();
  EXPECT_NE(server->Output().find(kOffloaded), std::string::npos) << server->Output();
  const auto client = StartOnKernel(Program() + " ask " + kOurs + " 7000 200 64");
  EXPECT_EQ(client->Wait(), 0) << client->Output() << server->Output();
  EXPECT_EQ(client->Output(), "asked, 0 lost\n");
  EXPECT_EQ(server->Wait(), 0) << server->Output();
}

INSTANTIATE_TEST_SUITE_P(Ways, UdpTest,
                         ::testing::Values("recvfrom", "recvmsg", "poll", "select", "epoll",
                                           "epollet"),
                         [](const auto& info) { return std::string(info.param); });

TEST_F(UdpTest, EchoServerOnAnyAddressIsOffloaded) {
  const auto server = StartOnXtreme(Program() + " serve 0.0.0.0 7000 20", kDebug);
  ASSERT_TRUE(server->Says("ready")) << server->Output();
  EXPECT_NE(server->Output().find(kOffloaded), std::string::npos) << server->Output();
  const auto client = StartOnKernel(Program() + " ask " + kOurs + " 7000 20 1400");
  EXPECT_EQ(client->Wait(), 0) << client->Output() << server->Output();
  EXPECT_EQ(server->Wait(), 0) << server->Output();
}

TEST_F(UdpTest, FragmentedDatagramsComeThroughTheKernelsSocket) {
  const auto server = StartOnXtreme(Program() + " serve 0.0.0.0 7000 5", kDebug);
  ASSERT_TRUE(server->Says("ready")) << server->Output();
  const auto client = StartOnKernel(Program() + " ask " + kOurs + " 7000 5 9000");
  EXPECT_EQ(client->Wait(), 0) << client->Output() << server->Output();
  EXPECT_EQ(server->Wait(), 0) << server->Output();
}

TEST_F(UdpTest, ClientsAreOffloadedConnectedOrNot) {
  const auto server = StartOnKernel(Program() + " serve " + kTheirs + " 7000 200");
  ASSERT_TRUE(server->Says("ready")) << server->Output();
  for (const char* way : {"", " connect"}) {
    const auto client =
        StartOnXtreme(Program() + " ask " + kTheirs + " 7000 100 64" + way, kDebug);
    EXPECT_EQ(client->Wait(), 0) << client->Output();
    EXPECT_NE(client->Output().find("asked, 0 lost"), std::string::npos) << client->Output();
    EXPECT_NE(client->Output().find(kOffloaded), std::string::npos) << client->Output();
  }
}

TEST_F(UdpTest, GroupThatIsJoinedIsReceivedByTheRing) {
  const auto server =
      StartOnXtreme(Program() + " serve 0.0.0.0 7000 10 recvfrom 239.1.2.3", kDebug);
  ASSERT_TRUE(server->Says("ready")) << server->Output();
  EXPECT_NE(server->Output().find(kOffloaded), std::string::npos) << server->Output();
  const auto client = StartOnKernel(Program() + " ask 239.1.2.3 7000 10 64");
  EXPECT_EQ(client->Wait(), 0) << client->Output() << server->Output();
  EXPECT_EQ(server->Wait(), 0) << server->Output();
}

TEST_F(UdpTest, PeerInThisHostIsLeftToTheKernelAndTheLogSaysWhy) {
  const auto server = StartOnXtreme(Program() + " serve 127.0.0.1 7000 5");
  ASSERT_TRUE(server->Says("ready")) << server->Output();
  EXPECT_EQ(server->Output().find(kOffloaded), std::string::npos) << server->Output();
  const auto client =
      StartWithoutDevice(Program() + " ask 127.0.0.1 7000 5 64");
  EXPECT_EQ(client->Wait(), 0) << client->Output();
  EXPECT_EQ(server->Wait(), 0) << server->Output();
}

TEST_F(UdpTest, WithoutADeviceItIsAsIfWeWereNotThere) {
  const auto server = StartWithoutDevice(Program() + " serve 0.0.0.0 7000 5 epoll");
  ASSERT_TRUE(server->Says("ready")) << server->Output();
  const auto client = StartOnKernel(Program() + " ask " + kOurs + " 7000 5 64");
  EXPECT_EQ(client->Wait(), 0) << client->Output();
  EXPECT_EQ(server->Wait(), 0);
  EXPECT_EQ(server->Output(), "ready\nserved\n");
}

TEST_F(UdpTest, RuleLeavesASocketToTheKernel) {
  const std::string rules = std::string(std::getenv("TEST_TMPDIR")) + "/rules";
  std::ofstream(rules) << "application-id * *\nuse os udp_receiver *:7000\n";
  const auto server = StartOnXtreme(Program() + " serve 0.0.0.0 7000 5",
                                    "XTREME_LOG_LEVEL=debug VMA_CONFIG_FILE=" + rules);
  ASSERT_TRUE(server->Says("ready")) << server->Output();
  EXPECT_NE(server->Output().find("left to the kernel: rule: use os udp_receiver *:7000"),
            std::string::npos)
      << server->Output();
  const auto client = StartOnKernel(Program() + " ask " + kOurs + " 7000 5 64");
  EXPECT_EQ(client->Wait(), 0) << client->Output();
  EXPECT_EQ(server->Wait(), 0) << server->Output();
}

// An interrupt mode that burns nothing: no polls before it sleeps.
TEST_F(UdpTest, ServerThatSleepsAtOnceAnswers) {
  const auto server = StartOnXtreme(Program() + " serve " + kOurs + " 7000 50 epoll",
                                    "VMA_RX_POLL=0 VMA_SELECT_POLL=0");
  ASSERT_TRUE(server->Says("ready")) << server->Output();
  const auto client = StartOnKernel(Program() + " ask " + kOurs + " 7000 50 64");
  EXPECT_EQ(client->Wait(), 0) << client->Output() << server->Output();
  EXPECT_EQ(server->Wait(), 0) << server->Output();
}

}  // namespace
}  // namespace xtreme::faces
