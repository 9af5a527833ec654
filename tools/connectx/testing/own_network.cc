// SPDX-License-Identifier: Apache-2.0

#include "tools/connectx/testing/own_network.h"

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace xtreme::connectx {
namespace {

bool Write(const char* path, const std::string& text) {
  const int fd = ::open(path, O_WRONLY | O_CLOEXEC);
  const bool written = fd >= 0 && ::write(fd, text.data(), text.size()) ==
                                      static_cast<ssize_t>(text.size());
  if (fd >= 0) ::close(fd);
  return written;
}

// Leaves the machine's network for good: who may not come back there must not leave another for it.
absl::Status LeaveTheMachines() {
  if (::unshare(CLONE_NEWNET) == 0) return absl::OkStatus();
  const std::string user = std::to_string(::geteuid());
  const std::string group = std::to_string(::getegid());
  if (::unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0 &&
      Write("/proc/self/setgroups", "deny") &&  // What the kernel asks before the next line.
      Write("/proc/self/gid_map", "0 " + group + " 1") &&
      Write("/proc/self/uid_map", "0 " + user + " 1")) {
    return absl::OkStatus();
  }
  return absl::PermissionDeniedError(absl::StrCat(
      "make a user namespace: ", std::strerror(errno),
      ". What may forbid it: the settings user.max_user_namespaces, "
      "kernel.unprivileged_userns_clone and kernel.apparmor_restrict_unprivileged_userns, a "
      "container, Bazel's sandbox (test --strategy=TestRunner=local). Root needs none."));
}

}  // namespace

absl::StatusOr<std::unique_ptr<net::Namespace>> MakeOwnNetwork() {
  if (absl::Status left = LeaveTheMachines(); !left.ok()) return left;
  return net::Namespace::Create();
}

}  // namespace xtreme::connectx
