// SPDX-License-Identifier: Apache-2.0
//
// Rules at run time, offloading by thread, and what is known of a socket.

#include <cerrno>

#include "api/sockets/faces.h"
#include "api/sockets/log.h"
#include "api/sockets/socket.h"
#include "api/vma/api.h"
#include "stack/wire/address_text.h"

namespace xtreme::vma {
namespace {

using sockets::Faces;
using sockets::Log;
using sockets::LogLevel;
using sockets::RingDoor;
using sockets::Socket;

int Fail(int error) {
  errno = error;
  return -1;
}

void DumpSocket(int fd, const Socket& socket, LogLevel level) {
  RingDoor* const door = socket.door();
  if (door == nullptr) {
    return Log(level, "fd {}: not offloaded{}{}", fd, socket.reason().empty() ? "" : ": ",
               socket.reason());
  }
  const RingDoor::Entry entry(door);
  const sockets::SocketCounters& counters = socket.counters();
  Log(level,
      "fd {}: offloaded on {} as {}; received {} packets, {} bytes ({} by the kernel), {} dropped "
      "for a full queue, {} taken by the callback; sent {} packets, {} bytes, {} dummies; {} "
      "queued",
      fd, door->interface(), wire::ToString(socket.local()), counters.received,
      counters.received_bytes, counters.slow_path, counters.dropped, counters.by_callback,
      counters.sent, counters.sent_bytes, counters.dummies, socket.queued());
}

}  // namespace

int AddConfRule(const char* line) {
  Faces& faces = Faces::The();
  const std::lock_guard lock(faces.setup());
  const std::string wrong = line == nullptr ? "no rule" : faces.rules().Prepend(line);
  if (wrong.empty()) return 0;
  Log(LogLevel::kWarning, "add_conf_rule: {}", wrong);
  return Fail(EINVAL);
}

int ThreadOffload(int offload, pthread_t thread) {
  Faces::The().SetThreadOffload(thread, offload != 0);
  return 0;
}

int Ioctl(void*, size_t) { return Fail(EOPNOTSUPP); }

int DumpFdStats(int fd, int log_level) {
  const auto level = static_cast<LogLevel>(log_level);
  if (log_level < 0 || level > LogLevel::kAll) return Fail(EINVAL);
  Faces& faces = Faces::The();
  if (fd != 0) {
    const auto socket = faces.descriptors().FindSocket(fd);
    if (socket == nullptr) return Fail(EBADF);
    DumpSocket(fd, *socket, level);
    return 0;
  }
  faces.descriptors().ForEach([=](int each, const sockets::Descriptors::Meaning& meaning) {
    if (meaning.socket != nullptr) DumpSocket(each, *meaning.socket, level);
  });
  for (const auto& [reason, count] : faces.left()) {
    Log(level, "left to the kernel: {} sockets: {}", count, reason);
  }
  return 0;
}

}  // namespace xtreme::vma
