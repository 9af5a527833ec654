// SPDX-License-Identifier: Apache-2.0

#include "tests/samples/program.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>

namespace xtreme::samples {
namespace {

constexpr int kNotStarted = 127;
constexpr int kSignalled = 128;

}  // namespace

Program::Program(const std::vector<std::string>& command) {
  std::vector<char*> arguments;
  for (const std::string& each : command) arguments.push_back(const_cast<char*>(each.c_str()));
  arguments.push_back(nullptr);
  std::array<int, 2> ends;
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return;
  pid_ = fork();
  if (pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(ends[1], STDOUT_FILENO);
    execv(arguments[0], arguments.data());
    _exit(kNotStarted);
  }
  close(ends[1]);
  output_fd_ = ends[0];
}

Program::~Program() {
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  if (output_fd_ >= 0) close(output_fd_);
}

bool Program::ReadUntil(std::string_view line) {
  const std::string wanted = std::string(line) + "\n";
  while (true) {
    const size_t at = output_.find(wanted);
    if (at != output_.npos && (at == 0 || output_[at - 1] == '\n')) return true;
    if (!ReadSome()) return false;
  }
}

int Program::Wait() {
  while (ReadSome()) {
  }
  int status = 0;
  if (waitpid(pid_, &status, 0) != pid_) return -1;
  pid_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : kSignalled + WTERMSIG(status);
}

bool Program::ReadSome() {
  std::array<char, 4096> part;
  const ssize_t length = read(output_fd_, part.data(), part.size());
  if (length <= 0) return false;
  output_.append(part.data(), static_cast<size_t>(length));
  return true;
}

}  // namespace xtreme::samples
