// SPDX-License-Identifier: Apache-2.0
//
// The feed's programs against each other, in network namespaces joined by a veth pair: the
// publisher in one, the handler in the other. The test's target says which handler: HANDLER in the
// environment is how it is started, up to its own options.

#include <arpa/inet.h>
#include <pcap/pcap.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/net/namespace.h"
#include "tests/samples/program.h"

namespace xtreme::samples {
namespace {

using Command = std::vector<std::string>;

constexpr char kPublisherAddress[] = "10.9.0.1";

// The words of HANDLER.
Command HandlerCommand() {
  std::istringstream words(std::getenv("HANDLER"));
  return Command(std::istream_iterator<std::string>(words), {});
}

std::string FileInTestFolder(const std::string& name) {
  return std::string(std::getenv("TEST_TMPDIR")) + "/" + name;
}

// The number behind "NAME=" in a program's output.
uint64_t Named(const std::string& output, const std::string& name) {
  const size_t at = output.rfind(name + "=");
  if (at == output.npos) {
    ADD_FAILURE() << "no " << name << " in: " << output;
    return 0;
  }
  return std::strtoull(output.c_str() + at + name.size() + 1, nullptr, 10);
}

class FeedTest : public testing::Test {
 protected:
  struct Outcome {
    int publisher_exit = -1;
    int handler_exit = -1;
    std::string published;  // The publisher's output.
    nlohmann::json handled;
  };

  void SetUp() override {
    auto publisher = net::Namespace::Create();
    auto handler = net::Namespace::Create();
    ASSERT_TRUE(publisher.ok() && handler.ok()) << publisher.status() << handler.status();
    publisher_ = *std::move(publisher);
    handler_ = *std::move(handler);
    ASSERT_TRUE(net::ConnectByVeth(*publisher_, "feed0", *handler_, "feed1").ok());
    ASSERT_TRUE(publisher_->AddAddress("feed0", std::string(kPublisherAddress) + "/24").ok());
    ASSERT_TRUE(handler_->AddAddress("feed1", "10.9.0.2/24").ok());
  }

  // Runs both until they end, the publisher when the handler is ready.
  Outcome Publish(const Command& publisher_options, const Command& handler_options) {
    const std::string json = FileInTestFolder("figures.json");
    Outcome outcome;
    Command command = HandlerCommand();
    for (const char* each : {"--interface", "feed1", "--timeout", "120", "--quiet", "--json"}) {
      command.push_back(each);
    }
    command.push_back(json);
    command.insert(command.end(), handler_options.begin(), handler_options.end());
    auto handler = Start(*handler_, command);
    if (!handler->ReadUntil("ready")) {
      ADD_FAILURE() << "not ready: " << handler->output();
      return outcome;
    }
    Command publisher_command = {"samples/feed_publisher", "--address", kPublisherAddress};
    publisher_command.insert(publisher_command.end(), publisher_options.begin(),
                             publisher_options.end());
    auto publisher = Start(*publisher_, publisher_command);
    outcome.publisher_exit = publisher->Wait();
    outcome.published = publisher->output();
    outcome.handler_exit = handler->Wait();
    outcome.handled = nlohmann::json::parse(std::ifstream(json), nullptr, false);
    return outcome;
  }

 private:
  static std::unique_ptr<Program> Start(const net::Namespace& space, const Command& command) {
    const net::Namespace::Inside inside(space);
    return std::make_unique<Program>(command);
  }

  std::unique_ptr<net::Namespace> publisher_;
  std::unique_ptr<net::Namespace> handler_;
};

TEST_F(FeedTest, EveryMessageArrivesThoughEachLineLosesSome) {
  // Slow enough that a machine with other work to do loses nothing besides.
  const Outcome outcome = Publish(
      {"--messages=20000", "--rate=5000", "--pack=1", "--loss=1", "--seed=3", "--linger=1"},
      {"--request-to", "10.9.0.1:26400"});
  ASSERT_EQ(outcome.publisher_exit, 0);
  ASSERT_EQ(outcome.handler_exit, 0);
  const nlohmann::json& handled = outcome.handled;
  EXPECT_EQ(Named(outcome.published, "published"), 20000u);
  EXPECT_EQ(handled["messages"], 20000);
  EXPECT_EQ(handled["missing"], 0);
  EXPECT_GT(handled["recovered_by_line"], 300);
  // What the seed makes both lines lose at once has to be asked for.
  EXPECT_GT(handled["recovered_by_request"], 0);
  // Every message is a datagram here: what a line lost on purpose is all it lost.
  EXPECT_EQ(handled["lost"][0], Named(outcome.published, "lost_a"));
  EXPECT_EQ(handled["lost"][1], Named(outcome.published, "lost_b"));
}

TEST_F(FeedTest, WithNobodyToAskWhatBothLinesLostIsMissing) {
  const Outcome outcome = Publish(
      {"--messages=5000", "--rate=5000", "--pack=1", "--loss=4", "--seed=5", "--linger=1"}, {});
  ASSERT_EQ(outcome.publisher_exit, 0);
  EXPECT_EQ(outcome.handler_exit, 0);
  EXPECT_GT(outcome.handled["missing"], 0);
  EXPECT_EQ(outcome.handled["requests"], 0);
  EXPECT_EQ(outcome.handled["messages"].get<uint64_t>() +
                outcome.handled["missing"].get<uint64_t>(),
            Named(outcome.published, "published"));
}

TEST_F(FeedTest, SeedDecidesWhatIsLost) {
  const Command handler = {"--request-to", "10.9.0.1:26400"};
  std::array<std::array<uint64_t, 2>, 3> lost;
  const std::array<const char*, 3> seeds = {"--seed=5", "--seed=5", "--seed=6"};
  for (size_t i = 0; i < seeds.size(); ++i) {
    const Outcome outcome = Publish(
        {"--messages=5000", "--rate=5000", "--pack=1", "--loss=4", "--linger=1", seeds[i]},
        handler);
    ASSERT_EQ(outcome.handler_exit, 0);
    EXPECT_EQ(outcome.handled["missing"], 0);
    lost[i] = {Named(outcome.published, "lost_a"), Named(outcome.published, "lost_b")};
    EXPECT_GT(lost[i][0], 0u);
  }
  EXPECT_EQ(lost[0], lost[1]);
  EXPECT_NE(lost[0], lost[2]);
}

// Writes a capture with `count` UDP datagrams to line A, and one frame that is none.
void WriteCapture(const std::string& file, int count) {
  std::array<uint8_t, 14 + 20 + 8 + 4> frame = {
      0x01, 0x00, 0x5e, 0x36, 0x0c, 0x6f, 0x02, 0, 0, 0, 0, 1, 0x08, 0x00,  // Ethernet.
      0x45, 0,    0,    32,   0,    0,    0x40, 0, 1, 17, 0, 0, 10,   9, 0, 1, 233, 54, 12, 111,
      0x30, 0x39, 0x67, 0x6d, 0,    12,   0,    0};  // UDP, 12345 to 26477.
  pcap_t* const dead = pcap_open_dead(DLT_EN10MB, 65535);
  pcap_dumper_t* const dump = pcap_dump_open(dead, file.c_str());
  ASSERT_NE(dump, nullptr) << pcap_geterr(dead);
  pcap_pkthdr header = {};
  header.caplen = header.len = frame.size();
  for (int i = 0; i < count; ++i) {
    header.ts.tv_usec = 100 * i;
    const uint32_t number = htonl(static_cast<uint32_t>(i));
    memcpy(frame.data() + 42, &number, sizeof number);
    pcap_dump(reinterpret_cast<uint8_t*>(dump), &header, frame.data());
  }
  frame[12] = 0x86;  // Not IPv4.
  pcap_dump(reinterpret_cast<uint8_t*>(dump), &header, frame.data());
  pcap_dump_close(dump);
  pcap_close(dead);
}

TEST_F(FeedTest, CaptureIsReplayedDatagramByDatagram) {
  const std::string capture = FileInTestFolder("capture.pcap");
  ASSERT_NO_FATAL_FAILURE(WriteCapture(capture, 200));
  const Outcome outcome = Publish({"--pcap", capture}, {"--datagrams", "200"});
  EXPECT_EQ(outcome.publisher_exit, 0);
  EXPECT_EQ(Named(outcome.published, "published"), 200u);
  EXPECT_EQ(Named(outcome.published, "passed_over"), 1u);
  EXPECT_EQ(outcome.handler_exit, 0);
  EXPECT_EQ(outcome.handled["datagrams"], 200);
}

TEST(FeedPublisherTest, CaptureIsListedByGroup) {
  const std::string capture = FileInTestFolder("listed.pcap");
  ASSERT_NO_FATAL_FAILURE(WriteCapture(capture, 3));
  Program publisher({"samples/feed_publisher", "--list", "--pcap", capture});
  EXPECT_EQ(publisher.Wait(), 0);
  EXPECT_EQ(publisher.output(), "seconds=0.0002\n233.54.12.111:26477 datagrams=3\n");
}

TEST_F(FeedTest, InterfaceThatIsNotThereIsRefused) {
  Command command = HandlerCommand();
  command.insert(command.end(), {"--interface", "nosuchif0"});
  Program handler(command);
  EXPECT_EQ(handler.Wait(), 1);
  EXPECT_EQ(handler.output(), "");
}

}  // namespace
}  // namespace xtreme::samples
