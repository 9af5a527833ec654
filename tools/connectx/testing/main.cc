// SPDX-License-Identifier: Apache-2.0
//
// GoogleTest's main for tests on a test bed: it first makes the process root of a user and a
// network namespace of its own, so that the bed's interfaces need no privilege and tests that run
// at the same time do not meet.

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "gtest/gtest.h"

namespace {

bool Write(const char* path, const std::string& text) {
  const int fd = ::open(path, O_WRONLY | O_CLOEXEC);
  const bool written = fd >= 0 && ::write(fd, text.data(), text.size()) ==
                                      static_cast<ssize_t>(text.size());
  if (fd >= 0) ::close(fd);
  return written;
}

bool EnterNamespaces() {
  const std::string user = std::to_string(::geteuid());
  const std::string group = std::to_string(::getegid());
  if (::geteuid() == 0) return ::unshare(CLONE_NEWNET) == 0;
  return ::unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0 &&
         Write("/proc/self/setgroups", "deny") &&  // What the kernel asks before the next line.
         Write("/proc/self/gid_map", "0 " + group + " 1") &&
         Write("/proc/self/uid_map", "0 " + user + " 1");
}

}  // namespace

int main(int argc, char** argv) {
  // Before anything makes a thread.
  if (!EnterNamespaces()) {
    std::fprintf(stderr, "enter a user and a network namespace: %s\n", std::strerror(errno));
    return EXIT_FAILURE;
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
