// SPDX-License-Identifier: Apache-2.0
//
// ParentWriter: a process that writes a shared file, has a child, and has closed all its files, as
// who becomes a daemon does.
//
// Threads: one.

#ifndef XTREME_XTREME_STATS_PARENT_TESTING_H_
#define XTREME_XTREME_STATS_PARENT_TESTING_H_

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

namespace xtreme::stats::testing {

class ParentWriter {
 public:
  // `write()` writes there; what it returns is kept. The child has it too, and does nothing.
  template <typename Write>
  explicit ParentWriter(const Write& write) {
    int told[2];
    if (pipe2(told, O_CLOEXEC) != 0) return;
    pid_ = fork();
    if (pid_ == 0) {
      const auto kept = write();
      const pid_t child = fork();
      dup2(told[1], STDIN_FILENO);
      if (child != 0) close_range(STDERR_FILENO + 1, ~0u, 0);
      while (child == 0 || ::write(STDIN_FILENO, &child, sizeof child) > 0) pause();
    }
    if (read(told[0], &child_, sizeof child_) != sizeof child_) child_ = -1;
    close(told[0]);
    close(told[1]);
  }
  ~ParentWriter() {
    Kill();
    if (child_ > 0) kill(child_, SIGKILL);
  }
  ParentWriter(const ParentWriter&) = delete;
  ParentWriter& operator=(const ParentWriter&) = delete;

  // Whether it has written and has its child.
  bool started() const { return child_ > 0; }
  // The child lives on.
  void Kill() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

 private:
  pid_t pid_ = -1;
  pid_t child_ = -1;
};

}  // namespace xtreme::stats::testing

#endif  // XTREME_XTREME_STATS_PARENT_TESTING_H_
