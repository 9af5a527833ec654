// SPDX-License-Identifier: Apache-2.0
//
// The small samples as they are, each on a software ConnectX over a veth, against kernel sockets in
// the network namespace at its other end.

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "tests/net/kernel_tcp.h"
#include "tests/net/namespace.h"
#include "tests/samples/program.h"

namespace xtreme::samples {
namespace {

using Command = std::vector<std::string>;

constexpr char kKernelAddress[] = "10.9.0.1";
constexpr char kRingAddress[] = "10.9.0.2";
constexpr int kAnswerMs = 10'000;

sockaddr_in Endpoint(const char* address, uint16_t port) {
  sockaddr_in endpoint = {};
  endpoint.sin_family = AF_INET;
  endpoint.sin_port = htons(port);
  inet_pton(AF_INET, address, &endpoint.sin_addr);
  return endpoint;
}

// A UDP socket of the kernel, in the calling thread's namespace.
class KernelSocket {
 public:
  // Bound to the kernel's side of a veth; port 0: any.
  explicit KernelSocket(uint16_t port = 0, const char* address = kKernelAddress)
      : fd_(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    const sockaddr_in local = Endpoint(address, port);
    EXPECT_EQ(bind(fd_, reinterpret_cast<const sockaddr*>(&local), sizeof local), 0);
    const in_addr outgoing = local.sin_addr;
    EXPECT_EQ(setsockopt(fd_, IPPROTO_IP, IP_MULTICAST_IF, &outgoing, sizeof outgoing), 0);
  }
  ~KernelSocket() { close(fd_); }
  KernelSocket(const KernelSocket&) = delete;
  KernelSocket& operator=(const KernelSocket&) = delete;

  void SendTo(const sockaddr_in& to, std::string_view bytes) {
    EXPECT_EQ(sendto(fd_, bytes.data(), bytes.size(), 0, reinterpret_cast<const sockaddr*>(&to),
                     sizeof to),
              static_cast<ssize_t>(bytes.size()));
  }

  // The next datagram, "" when none comes. `from` gets its source.
  std::string Receive(sockaddr_in* from) {
    pollfd waiting = {.fd = fd_, .events = POLLIN, .revents = 0};
    if (poll(&waiting, 1, kAnswerMs) != 1) return "";
    std::array<char, 65536> bytes;
    socklen_t size = sizeof *from;
    const ssize_t length =
        recvfrom(fd_, bytes.data(), bytes.size(), 0, reinterpret_cast<sockaddr*>(from), &size);
    return length < 0 ? "" : std::string(bytes.data(), static_cast<size_t>(length));
  }

 private:
  const int fd_;
};

class RingProgramsTest : public testing::Test {
 protected:
  void SetUp() override {
    auto kernel = net::Namespace::Create();
    auto ring = net::Namespace::Create();
    ASSERT_TRUE(kernel.ok() && ring.ok()) << kernel.status() << ring.status();
    kernel_ = *std::move(kernel);
    ring_ = *std::move(ring);
    ASSERT_TRUE(net::ConnectByVeth(*kernel_, "feed0", *ring_, "feed1").ok());
    ASSERT_TRUE(kernel_->AddAddress("feed0", std::string(kKernelAddress) + "/24").ok());
    ASSERT_TRUE(ring_->AddAddress("feed1", std::string(kRingAddress) + "/24").ok());
  }

  // Starts a sample on a software ConnectX whose port is feed1, or whose ports are `interfaces`.
  std::unique_ptr<Program> StartOnRing(const Command& command,
                                       const std::string& interfaces = "feed1") {
    Command launch = {"tools/connectx/preload/launch", "--interface=" + interfaces, "--"};
    launch.insert(launch.end(), command.begin(), command.end());
    const net::Namespace::Inside inside(*ring_);
    return std::make_unique<Program>(launch);
  }

  std::unique_ptr<KernelSocket> OpenInKernel(uint16_t port = 0) {
    const net::Namespace::Inside inside(*kernel_);
    return std::make_unique<KernelSocket>(port);
  }

  std::unique_ptr<net::Namespace> kernel_;
  std::unique_ptr<net::Namespace> ring_;
};

TEST_F(RingProgramsTest, EchoSendsBackWhatAKernelSocketSent) {
  auto echo = StartOnRing({"samples/udp_echo", "feed1", "7", "3"});
  ASSERT_TRUE(echo->ReadUntil("ready")) << echo->output();
  auto client = OpenInKernel();
  // By the WQE itself, by a buffer, and as long as a frame can be.
  for (const std::string& asked : {std::string("a"), std::string(600, 'b'),
                                   std::string(1472, 'c')}) {
    client->SendTo(Endpoint(kRingAddress, 7), asked);
    sockaddr_in from = {};
    EXPECT_EQ(client->Receive(&from), asked);
    EXPECT_EQ(from.sin_addr.s_addr, Endpoint(kRingAddress, 7).sin_addr.s_addr);
    EXPECT_EQ(ntohs(from.sin_port), 7);
  }
  EXPECT_EQ(echo->Wait(), 0);
}

TEST_F(RingProgramsTest, EchoAsksAServerOnKernelSockets) {
  auto server = OpenInKernel(7007);
  constexpr int kQuestions = 200;
  std::thread serving([&server] {
    for (int i = 0; i < kQuestions; ++i) {
      sockaddr_in from = {};
      const std::string asked = server->Receive(&from);
      if (asked.empty()) return;
      server->SendTo(from, asked);
    }
  });
  auto echo = StartOnRing({"samples/udp_echo", "feed1", "10.9.0.1:7007", "200"});
  EXPECT_EQ(echo->Wait(), 0) << echo->output();
  serving.join();
  EXPECT_NE(echo->output().find("asked=200 answered=200\n"), std::string::npos) << echo->output();
}

TEST_F(RingProgramsTest, EchoThatIsNotAnsweredFails) {
  auto silent = OpenInKernel(7007);
  auto echo = StartOnRing({"samples/udp_echo", "feed1", "10.9.0.1:7007", "1"});
  EXPECT_EQ(echo->Wait(), 1);
  EXPECT_NE(echo->output().find("asked=1 answered=0\n"), std::string::npos) << echo->output();
}

TEST_F(RingProgramsTest, TcpEchoSendsBackWhatEveryConnectionSent) {
  auto echo = StartOnRing({"samples/tcp_echo", "feed1", "7", "2"});
  ASSERT_TRUE(echo->ReadUntil("ready")) << echo->output();
  const net::Namespace::Inside inside(*kernel_);
  net::KernelTcp first = net::KernelTcp::Connect(kRingAddress, 7);
  net::KernelTcp second = net::KernelTcp::Connect(kRingAddress, 7);
  const std::string large(100'000, 'l');
  first.Send(large);
  second.Send("small");
  EXPECT_EQ(second.Receive(5), "small");
  EXPECT_EQ(first.Receive(large.size()), large);
  for (net::KernelTcp* each : {&first, &second}) {
    each->ShutDown();
    EXPECT_EQ(each->ReceiveEnd(), "");
  }
  EXPECT_EQ(echo->Wait(), 0);
}

TEST_F(RingProgramsTest, TcpEchoAsksAServerOnKernelSockets) {
  const net::Namespace::Inside inside(*kernel_);
  net::KernelTcp listener = net::KernelTcp::Listen(kKernelAddress, 7007);
  auto echo = StartOnRing({"samples/tcp_echo", "feed1", "10.9.0.1:7007", "100"});
  net::KernelTcp server = listener.Accept();
  for (int i = 0; i < 100; ++i) server.Send(server.Receive(sizeof(uint64_t)));
  EXPECT_EQ(server.ReceiveEnd(), "");
  server.Close();
  EXPECT_EQ(echo->Wait(), 0) << echo->output();
  EXPECT_NE(echo->output().find("answered=100\n"), std::string::npos) << echo->output();
}

TEST_F(RingProgramsTest, TcpEchoFailsWhenNobodyListens) {
  EXPECT_EQ(StartOnRing({"samples/tcp_echo", "feed1", "10.9.0.1:7007", "1"})->Wait(), 1);
}

TEST_F(RingProgramsTest, MulticastRxPrintsALineForEachDatagramOfItsGroups) {
  auto receiver = StartOnRing(
      {"samples/multicast_rx", "feed1", "3", "233.54.12.111:26477", "233.54.12.112:26478"});
  ASSERT_TRUE(receiver->ReadUntil("ready")) << receiver->output();
  auto sender = OpenInKernel(5000);
  sender->SendTo(Endpoint("233.54.12.111", 26477), "one");
  sender->SendTo(Endpoint("233.54.12.113", 26477), "a group that was not joined");
  sender->SendTo(Endpoint("233.54.12.112", 26478), "three");
  sender->SendTo(Endpoint("233.54.12.111", 26477), "");
  EXPECT_EQ(receiver->Wait(), 0);
  const std::string& output = receiver->output();
  size_t at = 0;
  for (const char* line : {"10.9.0.1:5000 > 233.54.12.111:26477: 3 bytes at ",
                           "10.9.0.1:5000 > 233.54.12.112:26478: 5 bytes at ",
                           "10.9.0.1:5000 > 233.54.12.111:26477: 0 bytes at "}) {
    at = output.find(line, at);
    ASSERT_NE(at, output.npos) << line << " is missing or out of order in:\n" << output;
  }
}

TEST_F(RingProgramsTest, ProgramThatTakesAnothersPlaceHasTheInterfaceToo) {
  // The shell has a device on it, whose rules end with the shell.
  auto echo = StartOnRing({"/bin/sh", "-c", "exec samples/udp_echo feed1 7 1"});
  EXPECT_TRUE(echo->ReadUntil("ready")) << echo->output();
}

TEST_F(RingProgramsTest, ProgramWhoseInterfaceIsTakenAwayEnds) {
  const std::vector<Command> commands = {
      {"samples/udp_echo", "feed1", "7"},
      {"samples/tcp_echo", "feed1", "7"},
      {"samples/multicast_rx", "feed1", "0", "233.54.12.111:26477"}};
  std::vector<std::unique_ptr<Program>> programs;
  for (const Command& command : commands) programs.push_back(StartOnRing(command));
  for (const auto& each : programs) ASSERT_TRUE(each->ReadUntil("ready")) << each->output();
  {
    const net::Namespace::Inside inside(*ring_);
    EXPECT_EQ(Program({"/bin/ip", "link", "delete", "feed1"}).Wait(), 0);
  }
  for (const auto& each : programs) EXPECT_EQ(each->Wait(), 1) << each->output();
}

class BackupTest : public RingProgramsTest {
 protected:
  static constexpr char kKernelAtBackup[] = "10.9.0.3";

  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(RingProgramsTest::SetUp());
    ASSERT_TRUE(net::ConnectByVeth(*kernel_, "backup0", *ring_, "backup1").ok());
    ASSERT_TRUE(kernel_->AddAddress("backup0", std::string(kKernelAtBackup) + "/24").ok());
    ASSERT_TRUE(ring_->AddAddress("backup1", "10.9.0.4/24").ok());
  }

  // A sample whose ring goes over to backup1 when the cable of feed1 is pulled.
  std::unique_ptr<Program> StartWithBackup(const Command& command) {
    Command whole = {"/usr/bin/env", "XTREME_BACKUP_INTERFACE=backup1"};
    whole.insert(whole.end(), command.begin(), command.end());
    return StartOnRing(whole, "feed1,backup1");
  }
};

TEST_F(BackupTest, FeedHandlerSaysThatItsRingMovedAndGoesOnAtTheBackup) {
  auto handler = StartWithBackup({"samples/feed_handler", "--interface", "feed1", "--quiet",
                                  "--datagrams", "1", "--timeout", "20"});
  ASSERT_TRUE(handler->ReadUntil("ready")) << handler->output();
  ASSERT_TRUE(kernel_->SetUp("feed0", false).ok());
  ASSERT_TRUE(handler->ReadUntil("ring: link down")) << handler->output();
  ASSERT_TRUE(handler->ReadUntil("ring: moved")) << handler->output();
  const net::Namespace::Inside inside(*kernel_);
  KernelSocket(0, kKernelAtBackup).SendTo(Endpoint("233.54.12.111", 26477), "at the backup");
  EXPECT_EQ(handler->Wait(), 0) << handler->output();
}

TEST_F(BackupTest, TcpEchoKeepsItsConnection) {
  auto echo = StartWithBackup({"samples/tcp_echo", "feed1", "7", "1"});
  ASSERT_TRUE(echo->ReadUntil("ready")) << echo->output();
  const net::Namespace::Inside inside(*kernel_);
  net::KernelTcp client = net::KernelTcp::Connect(kRingAddress, 7);
  client.Send("at its own port");
  EXPECT_EQ(client.Receive(15), "at its own port");
  ASSERT_TRUE(kernel_->SetUp("feed0", false).ok());
  client.Send("at the backup");
  EXPECT_EQ(client.Receive(13), "at the backup");
  client.ShutDown();
  EXPECT_EQ(client.ReceiveEnd(), "");
  EXPECT_EQ(echo->Wait(), 0);
}

TEST_F(RingProgramsTest, WrongArgumentsAreRefused) {
  EXPECT_EQ(StartOnRing({"samples/udp_echo", "feed1"})->Wait(), 2) << "too few";
  EXPECT_EQ(StartOnRing({"samples/udp_echo", "feed1", "no-such-address:7"})->Wait(), 1);
  EXPECT_EQ(StartOnRing({"samples/multicast_rx", "feed1", "1", "10.9.0.1:7"})->Wait(), 1);
  EXPECT_EQ(StartOnRing({"samples/tcp_echo", "feed1", "no-such-address:7"})->Wait(), 1);
}

}  // namespace
}  // namespace xtreme::samples
