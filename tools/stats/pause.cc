// SPDX-License-Identifier: Apache-2.0

#include "tools/stats/pause.h"

#include <poll.h>
#include <time.h>

#include <csignal>

namespace xtreme::stats {

bool Pause(int fd, std::chrono::nanoseconds time) {
  using std::chrono::seconds;
  const timespec limit = {.tv_sec = std::chrono::duration_cast<seconds>(time).count(),
                          .tv_nsec = (time % seconds(1)).count()};
  pollfd reader = {.fd = fd, .events = 0, .revents = 0};  // Told unasked: errors and hang-ups.
  if (ppoll(&reader, 1, &limit, nullptr) <= 0) return true;
  std::raise(SIGPIPE);
  return false;
}

}  // namespace xtreme::stats
