// SPDX-License-Identifier: Apache-2.0
//
// Two namespaces joined by a veth pair, and programs in them that know nothing of us: on our side
// with libxtreme.so preloaded, on a software ConnectX that is the interface `ours`; on the other
// side with the kernel.
//
// Threads: one.

#ifndef XTREME_TESTS_FACES_PROGRAM_H_
#define XTREME_TESTS_FACES_PROGRAM_H_

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/net/namespace.h"

namespace xtreme::faces {

// A running program; its output is in a file.
class Program {
 public:
  Program(pid_t pid, std::string output) : pid_(pid), output_(std::move(output)) {}
  ~Program() {
    if (pid_ > 0) {
      kill(-pid_, SIGKILL);
      Wait();
    }
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  // Its exit code; 128 and the signal's number if one ended it, as happens after `seconds`.
  int Wait(int seconds = 100) {
    int status = 0;
    bool ended = false;
    for (int tries = 0; tries < 100 * seconds && !ended; ++tries) {
      ended = waitpid(pid_, &status, WNOHANG) == pid_;
      if (!ended) usleep(10'000);
    }
    if (!ended) {
      kill(-pid_, SIGKILL);
      waitpid(pid_, &status, 0);
    }
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  void Signal(int signal) const { kill(-pid_, signal); }
  // Without what a debug build says of page faults, whenever it does.
  std::string Output() const {
    std::ifstream in(output_);
    std::string text(std::istreambuf_iterator<char>(in), {});
    for (size_t at = 0; (at = text.find("xtreme: ring on ", at)) != std::string::npos;) {
      const size_t end = text.find('\n', at);
      text.erase(at, end == std::string::npos ? end : end + 1 - at);
    }
    return text;
  }
  // Until its output has `text`; false: it did not come in a minute.
  bool Says(const std::string& text) const {
    for (int tries = 0; tries < 6'000; ++tries) {
      if (Output().find(text) != std::string::npos) return true;
      usleep(10'000);
    }
    return false;
  }

 private:
  pid_t pid_;
  const std::string output_;
};

class FacesTest : public ::testing::Test {
 protected:
  static constexpr const char* kOurs = "10.9.0.1";
  static constexpr const char* kTheirs = "10.9.0.2";

  void SetUp() override {
    auto here = net::Namespace::Create();
    auto there = net::Namespace::Create();
    ASSERT_TRUE(here.ok()) << here.status();
    ASSERT_TRUE(there.ok()) << there.status();
    here_ = *std::move(here);
    there_ = *std::move(there);
    ASSERT_TRUE(net::ConnectByVeth(*here_, "ours", *there_, "theirs").ok());
    ASSERT_TRUE(here_->AddAddress("ours", std::string(kOurs) + "/24").ok());
    ASSERT_TRUE(there_->AddAddress("theirs", std::string(kTheirs) + "/24").ok());
    ASSERT_TRUE(here_->AddRoute("224.0.0.0/4", "ours").ok());
    ASSERT_TRUE(there_->AddRoute("224.0.0.0/4", "theirs").ok());
    // Else whether an error comes depends on how many came in the last second (icmp(7)).
    ASSERT_TRUE(here_->SetSysctl("net.ipv4.icmp_ratemask", "0").ok());
    ASSERT_TRUE(there_->SetSysctl("net.ipv4.icmp_ratemask", "0").ok());
  }

  static std::string PathOf(const std::string& target) {
    return std::string(std::getenv("TEST_SRCDIR")) + "/" + std::getenv("TEST_WORKSPACE") + "/" +
           target;
  }

  // With the faces, on a card. `environment`: "NAME=value ..." of settings.
  std::unique_ptr<Program> StartOnXtreme(const std::string& command,
                                         const std::string& environment = "") {
    return Start(*here_, "env " + environment + " LD_PRELOAD=" + PathOf("api/libxtreme.so") + " " +
                             PathOf("tools/connectx/preload/launch") + " --interface=ours -- " +
                             command);
  }
  // On a card, and what it has of the faces it takes by itself.
  std::unique_ptr<Program> StartOnCard(const std::string& command) {
    return Start(*here_, PathOf("tools/connectx/preload/launch") + " --interface=ours -- " +
                             command);
  }
  // With the faces and without any device.
  std::unique_ptr<Program> StartWithoutDevice(const std::string& command) {
    return Start(*here_, "env LD_PRELOAD=" + PathOf("api/libxtreme.so") + " " + command);
  }
  std::unique_ptr<Program> StartOnKernel(const std::string& command) {
    return Start(*there_, command);
  }
  // On our side, and without us.
  std::unique_ptr<Program> StartBeside(const std::string& command) {
    return Start(*here_, command);
  }

  net::Namespace& here() { return *here_; }
  net::Namespace& there() { return *there_; }

 private:
  std::unique_ptr<Program> Start(const net::Namespace& space, const std::string& command) {
    static int next_output = 0;
    const std::string output = std::string(std::getenv("TEST_TMPDIR")) + "/output" +
                               std::to_string(getpid()) + "_" + std::to_string(next_output++);
    const net::Namespace::Inside inside(space);
    const pid_t pid = fork();
    if (pid == 0) {
      setpgid(0, 0);
      const std::string line = "exec > " + output + " 2>&1; exec " + command;
      execl("/bin/sh", "sh", "-c", line.c_str(), nullptr);
      _exit(127);
    }
    setpgid(pid, pid);
    return std::make_unique<Program>(pid, output);
  }

  std::unique_ptr<net::Namespace> here_;
  std::unique_ptr<net::Namespace> there_;
};

}  // namespace xtreme::faces

#endif  // XTREME_TESTS_FACES_PROGRAM_H_
