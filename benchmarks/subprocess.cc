// SPDX-License-Identifier: Apache-2.0

#include "benchmarks/subprocess.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

extern char** environ;

namespace xtreme::benchmarks {
namespace {

std::string ReadAll(int fd) {
  std::string all;
  std::array<char, 4096> piece;
  for (;;) {
    const ssize_t count = read(fd, piece.data(), piece.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return all;
    all.append(piece.data(), static_cast<size_t>(count));
  }
}

}  // namespace

absl::StatusOr<std::string> RunProgram(const std::vector<std::string>& command) {
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);

  std::array<int, 2> pipe_ends;
  if (pipe2(pipe_ends.data(), O_CLOEXEC) != 0) return absl::ErrnoToStatus(errno, "pipe");
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, pipe_ends[1], STDOUT_FILENO);
  pid_t child = 0;
  const int error =
      posix_spawnp(&child, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(pipe_ends[1]);
  if (error != 0) {
    close(pipe_ends[0]);
    const std::string message = absl::StrCat("start ", command[0], ": ", std::strerror(error));
    return error == ENOENT ? absl::NotFoundError(message) : absl::InternalError(message);
  }
  std::string output = ReadAll(pipe_ends[0]);
  close(pipe_ends[0]);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (status != 0) {
    return absl::InternalError(absl::StrCat(command[0], " ended with status ", status, ": ",
                                            output.substr(0, 400)));
  }
  return output;
}

}  // namespace xtreme::benchmarks
