// SPDX-License-Identifier: Apache-2.0
//
// Rules at run time, offloading by thread, the memory of rings, and what is known of a socket.

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

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
  const sockets::SocketCounters counters = socket.counters();
  Log(level,
      "fd {}: offloaded on {} as {}; received {} packets, {} bytes ({} by the kernel), {} dropped "
      "for a full queue, {} taken by the callback; sent {} packets, {} bytes, {} dummies; {} "
      "queued",
      fd, door->interface(), wire::ToString(socket.local()), counters.received,
      counters.received_bytes, counters.slow_path, counters.dropped, counters.by_callback,
      counters.sent, counters.sent_bytes, counters.dummies, socket.queued());
}

// The message at `at`; the bytes it takes of `left`, or 0: it is not a whole one that names both
// functions and what they are for. A ring has one pool, for what it sends and what it receives:
// either flag is for it.
size_t TakeAllocator(uint8_t* at, size_t left, Faces::Allocator* allocator) {
  constexpr int kPools = VMA_IOCTL_USER_ALLOC_FLAG_TX | VMA_IOCTL_USER_ALLOC_FLAG_RX;
  cmsghdr header;
  vma_cmsg_ioctl_user_alloc_t asked;
  if (at == nullptr || left < CMSG_LEN(sizeof asked)) return 0;
  memcpy(&header, at, sizeof header);
  if (header.cmsg_type != CMSG_VMA_IOCTL_USER_ALLOC) return 0;
  if (header.cmsg_len != CMSG_LEN(sizeof asked)) return 0;
  memcpy(&asked, at + CMSG_LEN(0), sizeof asked);
  *allocator = {.allocate = asked.memalloc, .release = asked.memfree};
  const bool whole = allocator->allocate != nullptr && allocator->release != nullptr;
  return whole && (asked.flags & kPools) != 0 ? std::min(left, CMSG_SPACE(sizeof asked)) : 0;
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

int Ioctl(void* messages, size_t length) {
  Faces::Allocator allocator;
  auto* at = static_cast<uint8_t*>(messages);
  do {
    const size_t taken = TakeAllocator(at, length, &allocator);
    if (taken == 0) return Fail(EINVAL);
    at += taken;
    length -= taken;
  } while (length >= sizeof(cmsghdr));
  return Faces::The().UseAllocator(allocator) ? 0 : Fail(EINVAL);
}

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
