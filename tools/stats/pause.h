// SPDX-License-Identifier: Apache-2.0
//
// The time between two reports, in which their reader may leave.
//
// Threads: any.

#ifndef XTREME_TOOLS_STATS_PAUSE_H_
#define XTREME_TOOLS_STATS_PAUSE_H_

#include <chrono>

namespace xtreme::stats {

// Waits; a signal with a handler ends it early. What writes to `fd` would do when its reader has
// left (a pipe's, a terminal's) happens meanwhile: SIGPIPE, and false where that is ignored. A file
// has no reader to lose.
bool Pause(int fd, std::chrono::nanoseconds time);

}  // namespace xtreme::stats

#endif  // XTREME_TOOLS_STATS_PAUSE_H_
