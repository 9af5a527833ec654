// SPDX-License-Identifier: Apache-2.0

#include "tests/samples/echo_beside.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

namespace xtreme::samples {

void EchoBesideTest::SetUp() {
  std::string pattern = "/dev/shm/xtreme_tool_test.XXXXXX";
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

void EchoBesideTest::TearDown() { std::filesystem::remove_all(directory_); }

void EchoBesideTest::StartEcho(const std::vector<std::string>& settings) {
  std::vector<std::string> command = {"/usr/bin/env", "XTREME_COUNTERS_DIRECTORY=" + directory_};
  command.insert(command.end(), settings.begin(), settings.end());
  command.insert(command.end(), {"tools/connectx/preload/launch", "--interface=feed1", "--",
                                 "samples/udp_echo", "feed1", "7"});
  {
    const net::Namespace::Inside inside(*ring_);
    echo_ = std::make_unique<Program>(command);
  }
  ASSERT_TRUE(echo_->ReadUntil("ready")) << echo_->output();
  Ask();
}

void EchoBesideTest::Ask() {
  const net::Namespace::Inside inside(*kernel_);
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  sockaddr_in from = {.sin_family = AF_INET, .sin_port = htons(5000)};
  ASSERT_EQ(bind(fd, reinterpret_cast<const sockaddr*>(&from), sizeof from), 0);
  sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(7)};
  inet_pton(AF_INET, "10.9.0.2", &to.sin_addr);
  const timeval patience = {.tv_sec = 10, .tv_usec = 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  for (const std::string& datagram : datagrams_) {
    std::vector<char> answer(2'000);
    sendto(fd, datagram.data(), datagram.size(), 0, reinterpret_cast<const sockaddr*>(&to),
           sizeof to);
    ASSERT_EQ(recv(fd, answer.data(), answer.size(), 0), static_cast<ssize_t>(datagram.size()));
  }
  close(fd);
}

std::string EchoBesideTest::RunTool(const std::string& tool,
                                    const std::vector<std::string>& arguments, int expected_code) {
  std::vector<std::string> command = {tool, "--directory=" + directory_};
  command.insert(command.end(), arguments.begin(), arguments.end());
  Program program(command);
  EXPECT_EQ(program.Wait(), expected_code) << program.output();
  return program.output();
}

}  // namespace xtreme::samples
