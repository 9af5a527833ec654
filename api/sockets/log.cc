// SPDX-License-Identifier: Apache-2.0

#include "api/sockets/log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <string>

#include "api/sockets/kernel_calls.h"

namespace xtreme::sockets {
namespace {

std::atomic<int> g_most{static_cast<int>(LogLevel::kInfo)};

// Where it is logged; null: standard error. Never destroyed: threads log while the process exits.
const std::string* g_path = nullptr;
std::atomic<int> g_fd{-1};
// The file behind it.
std::atomic<dev_t> g_device{0};
std::atomic<ino_t> g_inode{0};

constexpr std::array<std::string_view, 9> kNames = {"PANIC", "ERROR", "WARNING", "INFO", "DETAILS",
                                                    "DEBUG", "FINE",  "FINER",   "ALL"};

// A program may have closed it with all else that it did not open, and have a file of its own by
// that number: then it is opened anew. Standard error, if it cannot be.
int Descriptor() {
  if (g_path == nullptr) return STDERR_FILENO;
  struct stat file {};
  const int before = g_fd;
  const bool open = before >= 0 && ::fstat(before, &file) == 0;
  if (open && file.st_dev == g_device && file.st_ino == g_inode) return before;
  const int fd = ::open(g_path->c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd < 0 || ::fstat(fd, &file) != 0) return STDERR_FILENO;
  g_device = file.st_dev;
  g_inode = file.st_ino;
  g_fd = fd;
  return fd;
}

std::string WithProcess(std::string path) {
  constexpr std::string_view kProcess = "%d";
  const size_t at = path.find(kProcess);
  const bool once = at != path.npos && path.find(kProcess, at + 1) == path.npos;
  return once ? path.replace(at, kProcess.size(), fmt::format("{}", getpid())) : path;
}

}  // namespace

void StartLog(LogLevel most, const std::string& path) {
  g_most = static_cast<int>(most);
  if (path.empty()) return;
  g_path = new std::string(WithProcess(path));
  Descriptor();
}

bool Logs(LogLevel level) { return static_cast<int>(level) <= g_most.load(); }

void WriteLog(LogLevel level, std::string_view text) {
  const Uncancelled whole;
  const std::string line = fmt::format("XTREME {} [{}]: {}\n",
                                       kNames[static_cast<size_t>(static_cast<int>(level))],
                                       getpid(), text);
  [[maybe_unused]] const ssize_t written = Kernel().write(Descriptor(), line.data(), line.size());
}

}  // namespace xtreme::sockets
