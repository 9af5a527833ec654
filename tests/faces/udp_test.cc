// SPDX-License-Identifier: Apache-2.0
//
// Datagram programs, unchanged, with libxtreme.so preloaded, against the kernel on the other side.

#include <cstdlib>
#include <fstream>
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

TEST_F(UdpTest, ABackupThatIsNotThereLeavesSocketsToTheKernelAndIsWarnedOf) {
  const auto server = StartOnXtreme(Program() + " serve 0.0.0.0 7000 1",
                                    "XTREME_BACKUP_INTERFACE=nobody XTREME_LOG_LEVEL=warning");
  ASSERT_TRUE(server->Says("ready")) << server->Output();
  EXPECT_NE(server->Output().find("backup nobody of ours: open ring: no interface nobody"),
            std::string::npos) << server->Output();
  const auto client = StartOnKernel(Program() + " ask " + kOurs + " 7000 1 64");
  EXPECT_EQ(client->Wait(), 0) << client->Output() << server->Output();
  EXPECT_EQ(server->Wait(), 0) << server->Output();
}

TEST_F(UdpTest, TheRingOfTheBackupItselfHasNone) {
  const auto server = StartOnXtreme(Program() + " serve " + kOurs + " 7000 1",
                                    std::string("XTREME_BACKUP_INTERFACE=ours ") + kDebug);
  ASSERT_TRUE(server->Says("ready")) << server->Output();
  EXPECT_NE(server->Output().find(kOffloaded), std::string::npos) << server->Output();
  const auto client = StartOnKernel(Program() + " ask " + kOurs + " 7000 1 64");
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

// Two sockets with SO_REUSEPORT: each has all that goes to the group, by the ring; what goes to the
// address is the kernel's to divide.
TEST_F(UdpTest, SocketsThatShareAPortGetTheGroupEachAndTheRestBetweenThem) {
  const std::string script = std::string(std::getenv("TEST_TMPDIR")) + "/shared.py";
  std::ofstream(script) << R"(
import select, socket
sockets = []
for i in range(2):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    s.bind(('', 7000))
    s.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP,
                 socket.inet_aton('239.1.2.3') + socket.inet_aton('10.9.0.1'))
    sockets.append(s)
groups, shares = ([], []), ([], [])
select.select(sockets, [], [], 0)
print('ready', flush=True)
while sum(map(len, groups)) < 20 or sum(map(len, shares)) < 20:
    readable = select.select(sockets, [], [], 10)[0]
    assert readable, (groups, shares)
    for s in readable:
        text = s.recv(100)
        (groups if text[0] == 103 else shares)[sockets.index(s)].append(text)
assert groups[0] == groups[1] == [b'g%d' % i for i in range(10)], groups
assert set(shares[0] + shares[1]) == {b's%d' % i for i in range(20)}, shares
assert shares[0] and shares[1], shares
)";
  const std::string sender = std::string(std::getenv("TEST_TMPDIR")) + "/sender.py";
  std::ofstream(sender) << R"(
import socket
for i in range(20):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.bind(('10.9.0.2', 20000 + i))
    s.sendto(b's%d' % i, ('10.9.0.1', 7000))
    if i < 10: s.sendto(b'g%d' % i, ('239.1.2.3', 7000))
)";
  const auto receiver = StartOnXtreme("/usr/bin/python3 " + script, kDebug);
  ASSERT_TRUE(receiver->Says("ready")) << receiver->Output();
  const std::string output = receiver->Output();
  const size_t first = output.find(kOffloaded);
  ASSERT_NE(first, std::string::npos) << output;
  EXPECT_NE(output.find(kOffloaded, first + 1), std::string::npos) << output;
  const auto sent = StartOnKernel("/usr/bin/python3 " + sender);
  EXPECT_EQ(sent->Wait(), 0) << sent->Output();
  EXPECT_EQ(receiver->Wait(), 0) << receiver->Output();
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
