// SPDX-License-Identifier: Apache-2.0
//
// The log of the faces: lines on standard error or in a file, each with the process and a level.
//
// Invariant: a line is one write; below its level nothing is formatted. Threads: any.

#ifndef XTREME_API_SOCKETS_LOG_H_
#define XTREME_API_SOCKETS_LOG_H_

#include <string>
#include <string_view>
#include <utility>

#include "fmt/format.h"

namespace xtreme::sockets {

// In VMA's order, whose numbers programs pass to dump_fd_stats.
enum class LogLevel : int {
  kNone = -1,
  kPanic = 0,
  kError = 1,
  kWarning = 2,
  kInfo = 3,
  kDetails = 4,
  kDebug = 5,
  kFine = 6,
  kFiner = 7,
  kAll = 8,
};

// Where lines go from here on; an empty path: standard error. A single "%d" in it becomes the
// process' number, which children keep.
void StartLog(LogLevel most, const std::string& path);
bool Logs(LogLevel level);
// Writes `text` and the end of a line.
void WriteLog(LogLevel level, std::string_view text);

template <typename... Args>
void Log(LogLevel level, fmt::format_string<Args...> format, Args&&... args) {
  if (Logs(level)) WriteLog(level, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace xtreme::sockets

#endif  // XTREME_API_SOCKETS_LOG_H_
