// SPDX-License-Identifier: Apache-2.0
//
// xtreme_dump as somebody runs it: beside a program whose ring stands on a software ConnectX, and
// after that program was killed.

#include <arpa/inet.h>
#include <pcap/pcap.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/net/namespace.h"
#include "tests/samples/program.h"

namespace xtreme::dump {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using samples::Program;

// In its WQE, and gathered.
const std::vector<std::string> kDatagrams = {"a", std::string(600, 'b'), std::string(1'400, 'c')};

class XtremeDumpTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = "/dev/shm/xtreme_dump_tool_test.XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
    auto kernel = net::Namespace::Create();
    auto ring = net::Namespace::Create();
    ASSERT_TRUE(kernel.ok() && ring.ok()) << kernel.status() << ring.status();
    kernel_ = *std::move(kernel);
    ring_ = *std::move(ring);
    ASSERT_TRUE(net::ConnectByVeth(*kernel_, "feed0", *ring_, "feed1").ok());
    ASSERT_TRUE(kernel_->AddAddress("feed0", "10.9.0.1/24").ok());
    ASSERT_TRUE(ring_->AddAddress("feed1", "10.9.0.2/24").ok());
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  // An echo on port 7 that has answered kDatagrams.
  void StartEcho(const std::string& frames) {
    const net::Namespace::Inside inside(*ring_);
    echo_ = std::make_unique<Program>(std::vector<std::string>{
        "/usr/bin/env", "XTREME_COUNTERS_DIRECTORY=" + directory_, "XTREME_DUMP_FRAMES=" + frames,
        "XTREME_DUMP_SNAP_BYTES=1536", "tools/connectx/preload/launch", "--interface=feed1", "--",
        "samples/udp_echo", "feed1", "7"});
    ASSERT_TRUE(echo_->ReadUntil("ready")) << echo_->output();
    Ask();
  }
  void Ask() {
    const net::Namespace::Inside inside(*kernel_);
    const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    sockaddr_in from = {.sin_family = AF_INET, .sin_port = htons(5000)};
    ASSERT_EQ(bind(fd, reinterpret_cast<const sockaddr*>(&from), sizeof from), 0);
    sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(7)};
    inet_pton(AF_INET, "10.9.0.2", &to.sin_addr);
    const timeval patience = {.tv_sec = 10, .tv_usec = 0};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    for (const std::string& datagram : kDatagrams) {
      std::vector<char> answer(2'000);
      sendto(fd, datagram.data(), datagram.size(), 0, reinterpret_cast<const sockaddr*>(&to),
             sizeof to);
      ASSERT_EQ(recv(fd, answer.data(), answer.size(), 0), static_cast<ssize_t>(datagram.size()));
    }
    close(fd);
  }
  std::string Run(std::vector<std::string> arguments, int expected_code = 0) {
    std::vector<std::string> command = {"tools/dump/xtreme_dump", "--directory=" + directory_};
    command.insert(command.end(), arguments.begin(), arguments.end());
    Program tool(command);
    EXPECT_EQ(tool.Wait(), expected_code) << tool.output();
    return tool.output();
  }
  // Payloads of the UDP frames in the file, in order.
  static std::vector<std::string> Payloads(const std::string& path) {
    std::vector<std::string> payloads;
    char error[PCAP_ERRBUF_SIZE];
    pcap_t* const file = pcap_open_offline(path.c_str(), error);
    EXPECT_NE(file, nullptr) << error;
    if (file == nullptr) return payloads;
    pcap_pkthdr* header = nullptr;
    const uint8_t* bytes = nullptr;
    while (pcap_next_ex(file, &header, &bytes) == 1) {
      if (header->caplen < 42 || bytes[23] != IPPROTO_UDP) continue;
      const size_t length = size_t{bytes[38]} << 8 | bytes[39];  // Of UDP, header included.
      EXPECT_EQ(header->caplen, std::max<size_t>(34 + length, header->caplen));
      payloads.emplace_back(reinterpret_cast<const char*>(bytes) + 42, length - 8);
    }
    pcap_close(file);
    return payloads;
  }
  // Each came, and went back.
  static std::vector<std::string> Twice() {
    std::vector<std::string> twice;
    for (const std::string& datagram : kDatagrams) {
      twice.push_back(datagram);
      twice.push_back(datagram);
    }
    return twice;
  }

  std::string directory_;
  std::unique_ptr<net::Namespace> kernel_;
  std::unique_ptr<net::Namespace> ring_;
  std::unique_ptr<Program> echo_;
};

TEST_F(XtremeDumpTest, ShowsBothDirectionsOfARunningProgram) {
  StartEcho("1024");
  const std::string text = Run({"--once"});
  EXPECT_THAT(text, HasSubstr(" feed1 in 10.9.0.1:5000 > 10.9.0.2:7 udp 642 bytes"));
  EXPECT_THAT(text, HasSubstr(" feed1 out 10.9.0.2:7 > 10.9.0.1:5000 udp 642 bytes"));
}

TEST_F(XtremeDumpTest, WritesWholeFramesForWireshark) {
  StartEcho("1024");
  const std::string path = directory_ + "/frames.pcapng";
  Run({"--once", "--write=" + path});
  EXPECT_EQ(Payloads(path), Twice());
}

TEST_F(XtremeDumpTest, GoesOnUntilTheProgramEnds) {
  StartEcho("1024");
  const std::string path = directory_ + "/live.pcapng";
  Program tool({"tools/dump/xtreme_dump", "--directory=" + directory_, "--write=" + path});
  echo_.reset();  // Killed.
  EXPECT_EQ(tool.Wait(), 0);
  EXPECT_EQ(Payloads(path), Twice());
}

TEST_F(XtremeDumpTest, ShowsTheLastFramesOfAKilledProgram) {
  StartEcho("1024");
  echo_.reset();
  const std::string path = directory_ + "/dead.pcapng";
  Run({"--write=" + path});
  EXPECT_EQ(Payloads(path), Twice());
}

TEST_F(XtremeDumpTest, ShowsOneSocketsFrames) {
  StartEcho("1024");
  EXPECT_THAT(Run({"--once", "--socket=:7"}), HasSubstr(" > 10.9.0.2:7 udp"));
  EXPECT_THAT(Run({"--once", "--socket=:8"}), Not(HasSubstr("udp")));
  EXPECT_THAT(Run({"--once", "--socket=0x99"}, 1), Not(HasSubstr("udp")));
}

TEST_F(XtremeDumpTest, EndsAfterSoManyFrames) {
  StartEcho("1024");
  const std::string text = Run({"--count=2"});
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2) << text;
}

TEST_F(XtremeDumpTest, ARingThatWasNotAskedKeepsNothing) {
  StartEcho("0");
  EXPECT_EQ(Run({"--once"}, 1), "");
}

}  // namespace
}  // namespace xtreme::dump
