// SPDX-License-Identifier: Apache-2.0

#include "api/sockets/log.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <atomic>

#include "api/sockets/kernel_calls.h"

namespace xtreme::sockets {
namespace {

std::atomic<int> g_most{static_cast<int>(LogLevel::kInfo)};
std::atomic<int> g_fd{STDERR_FILENO};

constexpr std::array<std::string_view, 9> kNames = {"PANIC", "ERROR", "WARNING", "INFO", "DETAILS",
                                                    "DEBUG", "FINE",  "FINER",   "ALL"};

}  // namespace

void StartLog(LogLevel most, const std::string& path) {
  g_most = static_cast<int>(most);
  if (path.empty()) return;
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd >= 0) g_fd = fd;
}

bool Logs(LogLevel level) { return static_cast<int>(level) <= g_most.load(); }

void WriteLog(LogLevel level, std::string_view text) {
  const std::string line = fmt::format("XTREME {} [{}]: {}\n",
                                       kNames[static_cast<size_t>(static_cast<int>(level))],
                                       getpid(), text);
  [[maybe_unused]] const ssize_t written = Kernel().write(g_fd, line.data(), line.size());
}

}  // namespace xtreme::sockets
