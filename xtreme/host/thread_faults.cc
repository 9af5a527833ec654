// SPDX-License-Identifier: Apache-2.0

#include "xtreme/host/thread_faults.h"

#include <fcntl.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"

namespace xtreme::host {

ThreadFaults::ThreadFaults(int tid)
    : stat_(::open(absl::StrCat("/proc/self/task/", tid, "/stat").c_str(),
                   O_RDONLY | O_CLOEXEC)) {}

std::optional<uint64_t> ThreadFaults::Read() const {
  std::array<char, 1'024> text;
  const ssize_t length = stat_.valid() ? ::pread(stat_.get(), text.data(), text.size() - 1, 0) : -1;
  if (length <= 0) return std::nullopt;
  text[static_cast<size_t>(length)] = '\0';
  // The name of the thread may hold anything, parentheses too: the last one ends it. Then follow
  // state, ppid, pgrp, session, tty_nr, tpgid, flags, minflt, cminflt, majflt.
  const char* after_name = strrchr(text.data(), ')');
  unsigned long minor = 0;
  unsigned long major = 0;
  if (after_name == nullptr ||
      sscanf(after_name, ") %*c %*d %*d %*d %*d %*d %*u %lu %*u %lu", &minor, &major) != 2) {
    return std::nullopt;
  }
  return uint64_t{minor} + major;
}

}  // namespace xtreme::host
