// SPDX-License-Identifier: Apache-2.0
//
// perftest's programs for Ethernet queues, unmodified from Debian: alone on every personality, and
// between two processes over a veth pair and over a switch in shared memory.
//
// A server waits for every frame that its client sends, and Ethernet promises none: the client
// starts when the server is ready, and sends fewer than the server has posted receives for.

#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/net/namespace.h"
#include "tests/samples/program.h"
#include "tools/connectx/device/personality.h"

namespace xtreme {
namespace {

using Command = std::vector<std::string>;
using samples::Program;

// The line after which perftest measures: queues, rule and receives are there.
constexpr std::string_view kBandwidthTable =
    " #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]";
constexpr std::string_view kLatencyTable =
    " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    "
    "t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec] ";
constexpr char kClientMac[] = "02:00:00:00:00:0a";
constexpr char kServerMac[] = "02:00:00:00:00:0b";

// By lines, so that they can be waited for.
Command Launch(const std::string& option, const Command& program) {
  Command command = {"/usr/bin/stdbuf", "-oL", "tools/connectx/preload/launch", "--report=1",
                     option, "--"};
  command.insert(command.end(), program.begin(), program.end());
  return command;
}

Command Perftest(const std::string& tool, const std::string& role, const std::string& iterations) {
  const bool client = role == "--client";
  return {"/usr/bin/" + tool, "-d", "mlx5_0", role, "-s", "64", "-n", iterations,
          "-E", client ? kServerMac : kClientMac, "-B", client ? kClientMac : kServerMac};
}

// With the addresses and ports of the frames, of which the server makes a rule.
Command WithAddresses(Command command, const std::string& client, const std::string& server) {
  const Command ends = {"-s", "128", "-J", server, "-j", client, "-K", "5000", "-k", "4000"};
  command.insert(command.end(), ends.begin(), ends.end());
  if (client.find(':') != std::string::npos) command.push_back("--raw_ipv6");
  return command;
}

class PersonalityTest : public testing::TestWithParam<std::string_view> {
 protected:
  static std::string Option() { return "--personality=" + std::string(GetParam()); }
};

TEST_P(PersonalityTest, RawEthernetBwFinishesAloneAndSaysHowFast) {
  Program client(Launch(Option(), Perftest("raw_ethernet_bw", "--client", "1000")));
  EXPECT_EQ(client.Wait(), 0) << client.output();
  EXPECT_NE(client.output().find(kBandwidthTable), std::string::npos) << client.output();
  EXPECT_NE(client.output().find("\n 64         1000 "), std::string::npos) << client.output();
}

TEST_P(PersonalityTest, IbvDevinfoDescribesIt) {
  Program info(Launch(Option(), {"/usr/bin/ibv_devinfo", "-v"}));
  EXPECT_EQ(info.Wait(), 0);
  const auto options = connectx::PersonalityNamed(GetParam());
  for (const std::string& line : {std::string("PORT_ACTIVE"), options->model.board_id,
                                  std::to_string(options->model.pci_device_id)}) {
    EXPECT_NE(info.output().find(line), std::string::npos) << line << "\n" << info.output();
  }
}

INSTANTIATE_TEST_SUITE_P(Cards, PersonalityTest,
                         testing::ValuesIn(connectx::PersonalityNames().begin(),
                                           connectx::PersonalityNames().end()),
                         [](const auto& info) { return std::string(info.param); });

// perftest wants an active port, and the kernel takes its time to give a new veth its carrier.
void WaitForCarrier(const net::Namespace& space, const char* interface) {
  const net::Namespace::Inside inside(space);
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  ifreq request{};
  std::strncpy(request.ifr_name, interface, sizeof(request.ifr_name) - 1);
  while (ioctl(fd, SIOCGIFFLAGS, &request) == 0 && (request.ifr_flags & IFF_RUNNING) == 0) {
    std::this_thread::yield();
  }
  close(fd);
}

class PerftestPairTest : public testing::Test {
 protected:
  void SetUp() override {
    auto client = net::Namespace::Create();
    auto server = net::Namespace::Create();
    ASSERT_TRUE(client.ok() && server.ok()) << client.status() << server.status();
    client_ = *std::move(client);
    server_ = *std::move(server);
    ASSERT_TRUE(net::ConnectByVeth(*client_, "client0", *server_, "server0").ok());
    ASSERT_TRUE(client_->SetMac("client0", {2, 0, 0, 0, 0, 0xa}).ok());
    ASSERT_TRUE(server_->SetMac("server0", {2, 0, 0, 0, 0, 0xb}).ok());
    ASSERT_TRUE(client_->SetUp("client0").ok());
    ASSERT_TRUE(server_->SetUp("server0").ok());
    WaitForCarrier(*client_, "client0");
    WaitForCarrier(*server_, "server0");
  }

  static Program Start(const net::Namespace& space, const Command& command) {
    const net::Namespace::Inside inside(space);
    return Program(command);
  }

  // `wires`: the option that names the wire, of the client and of the server.
  void RunPair(const std::pair<std::string, std::string>& wires, const std::string& tool,
               std::string_view table, const std::string& iterations,
               const Command& options = {}) {
    const auto command = [&](const char* role) {
      Command all = Perftest(tool, role, iterations);
      all.insert(all.end(), options.begin(), options.end());
      return all;
    };
    Program server = Start(*server_, Launch(wires.second, command("--server")));
    ASSERT_TRUE(server.ReadUntil(table)) << server.output();
    Program client = Start(*client_, Launch(wires.first, command("--client")));
    EXPECT_EQ(client.Wait(), 0) << client.output();
    EXPECT_EQ(server.Wait(), 0) << server.output();
  }

  // The same with `client` and `server` as addresses of the frames.
  void RunAddressedPair(const std::pair<std::string, std::string>& wires, const std::string& client,
                        const std::string& server) {
    const auto command = [&](const char* role) {
      return WithAddresses(Perftest("raw_ethernet_bw", role, "300"), client, server);
    };
    Program receiver = Start(*server_, Launch(wires.second, command("--server")));
    ASSERT_TRUE(receiver.ReadUntil(kBandwidthTable)) << receiver.output();
    Program sender = Start(*client_, Launch(wires.first, command("--client")));
    EXPECT_EQ(sender.Wait(), 0) << sender.output();
    EXPECT_EQ(receiver.Wait(), 0) << receiver.output();
  }

  // A segment of this test's own.
  static std::pair<std::string, std::string> Shared() {
    const std::string option = "--shared=" + testing::TempDir() + "/strangers";
    return {option, option};
  }

  std::unique_ptr<net::Namespace> client_;
  std::unique_ptr<net::Namespace> server_;
};

const std::pair<std::string, std::string> kVeth = {"--interface=client0", "--interface=server0"};

// perftest 4.5 makes a software rate where none is named, and refuses that: so one of the device.
// It reads 16 completions into room for a burst, asks for no completion of a send unless told to,
// and its server answers nothing while its send queue is full: fewer asks than that holds.
const Command kBursts = {"--rate_limit_type=PP", "--rate_limit=10000", "--rate_units=M",
                         "--burst_size=16", "--cq-mod=1"};

TEST_F(PerftestPairTest, RawEthernetBwFinishesAtBothEndsOfAVeth) {
  RunPair(kVeth, "raw_ethernet_bw", kBandwidthTable, "300");
}

TEST_F(PerftestPairTest, RawEthernetLatFinishesAtBothEndsOfAVeth) {
  RunPair(kVeth, "raw_ethernet_lat", kLatencyTable, "20");
}

TEST_F(PerftestPairTest, RawEthernetBwFinishesOverSharedMemory) {
  RunPair(Shared(), "raw_ethernet_bw", kBandwidthTable, "300");
}

TEST_F(PerftestPairTest, RawEthernetLatFinishesOverSharedMemory) {
  RunPair(Shared(), "raw_ethernet_lat", kLatencyTable, "20");
}

TEST_F(PerftestPairTest, RawEthernetBurstLatFinishesAtBothEndsOfAVeth) {
  RunPair(kVeth, "raw_ethernet_burst_lat", kLatencyTable, "20", kBursts);
}

TEST_F(PerftestPairTest, RawEthernetBurstLatFinishesOverSharedMemory) {
  RunPair(Shared(), "raw_ethernet_burst_lat", kLatencyTable, "20", kBursts);
}

TEST_F(PerftestPairTest, RulesOnIpv4AddressesAndPortsTakeWhatIsSentOverAVeth) {
  RunAddressedPair(kVeth, "10.0.0.1", "10.0.0.2");
}

TEST_F(PerftestPairTest, RulesOnIpv6AddressesAndPortsTakeWhatIsSentOverAVeth) {
  RunAddressedPair(kVeth, "fd00::1", "fd00::2");
}

TEST_F(PerftestPairTest, RulesOnIpv6AddressesAndPortsTakeWhatIsSentOverSharedMemory) {
  RunAddressedPair(Shared(), "fd00::1", "fd00::2");
}

TEST(PerftestTest, RawEthernetFsRateMakesAHundredRules) {
  Program rules(Launch("--personality=cx5",
                       WithAddresses(Perftest("raw_ethernet_fs_rate", "--server", "100"),
                                     "10.0.0.1", "10.0.0.2")));
  EXPECT_EQ(rules.Wait(), 0) << rules.output();
  EXPECT_NE(rules.output().find("fps[flow per sec]"), std::string::npos) << rules.output();
}

}  // namespace
}  // namespace xtreme
