// SPDX-License-Identifier: Apache-2.0
//
// EchoBesideTest: udp_echo on a software ConnectX in a network namespace of its own, and who asks
// it in another, for tests of tools that look at a program from beside. Such a test has udp_echo,
// the launcher and its library among its data.
//
// Threads: one.

#ifndef XTREME_TESTS_SAMPLES_ECHO_BESIDE_H_
#define XTREME_TESTS_SAMPLES_ECHO_BESIDE_H_

#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/net/namespace.h"
#include "tests/samples/program.h"

namespace xtreme::samples {

class EchoBesideTest : public ::testing::Test {
 protected:
  // Asks from 10.9.0.1:5000 what the echo at 10.9.0.2:7 is asked.
  explicit EchoBesideTest(std::vector<std::string> datagrams) : datagrams_(std::move(datagrams)) {}

  void SetUp() override;
  void TearDown() override;

  // It publishes in directory_, runs with `settings` ("XTREME_DUMP_FRAMES=64") and has answered all
  // datagrams.
  void StartEcho(const std::vector<std::string>& settings);
  // Sends each datagram, and has its answer.
  void Ask();
  // `tool` with the directory and `arguments`: what it prints.
  std::string RunTool(const std::string& tool, const std::vector<std::string>& arguments,
                      int expected_code);

  const std::vector<std::string> datagrams_;
  std::string directory_;
  std::unique_ptr<net::Namespace> kernel_;
  std::unique_ptr<net::Namespace> ring_;
  std::unique_ptr<Program> echo_;
};

}  // namespace xtreme::samples

#endif  // XTREME_TESTS_SAMPLES_ECHO_BESIDE_H_
