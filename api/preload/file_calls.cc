// SPDX-License-Identifier: Apache-2.0
//
// Calls on any descriptor that change what it stands for: close, dup, fcntl, ioctl.

#include <fcntl.h>
#include <linux/close_range.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <cstdarg>
#include <cstring>

#include "api/preload/preload.h"
#include "api/sockets/descriptor_calls.h"

using xtreme::preload::Faces;
using xtreme::preload::Kernel;
using xtreme::preload::Ours;
using xtreme::preload::Result;
using xtreme::sockets::kAskKernel;
using xtreme::sockets::Passage;
using xtreme::sockets::Uncancelled;

namespace xtreme::preload {
namespace {

// Whether what the caller does to `fd` changes what stands behind it here.
bool IsOurs(int fd) {
  return !Passage::Inside() && Faces().descriptors().Has(fd) && Faces().OwnsDescriptors();
}

int Share(int fd, int copy) {
  if (copy < 0) return copy;
  const sockets::ErrnoKept kept;
  if (!IsOurs(fd)) return copy;
  sockets::Share(Faces(), fd, copy);
  FollowStandard(copy);
  return copy;
}

int Control(int fd, int command, long argument) {
  const int result = Kernel().fcntl(fd, command, argument);
  if (command == F_DUPFD || command == F_DUPFD_CLOEXEC) return Share(fd, result);
  const auto ours = command == F_SETFL && result == 0 ? Ours(fd) : nullptr;
  if (ours == nullptr) return result;
  const sockets::ErrnoKept kept;
  ours->SetNonBlocking((argument & O_NONBLOCK) != 0);
  if ((argument & O_ASYNC) != 0) ours->WantSignals();
  return result;
}

}  // namespace

void Forget(int fd) {
  const sockets::ErrnoKept kept;
  if (!IsOurs(fd)) return;
  sockets::Forget(Faces(), fd);
  FollowStandard(fd);
}

}  // namespace xtreme::preload

using xtreme::preload::Forget;
using xtreme::preload::Share;

XTREME_CALL int close(int fd) {
  if (Passage::Inside() || !Faces().descriptors().Has(fd)) return Kernel().close(fd);
  // Who was cancelled has closed nothing yet.
  pthread_testcancel();
  const Uncancelled whole;
  Forget(fd);
  return Kernel().close(fd);
}

XTREME_CALL int close_range(unsigned first, unsigned last, int flags) noexcept {
  // With CLOSE_RANGE_CLOEXEC nothing is closed yet, with flags that do not exist nothing ever.
  const bool closes = (flags & ~static_cast<int>(CLOSE_RANGE_UNSHARE)) == 0;
  if (closes && !Passage::Inside()) {
    Faces().descriptors().ForEach([=](int fd, const auto&) {
      if (static_cast<unsigned>(fd) >= first && static_cast<unsigned>(fd) <= last) Forget(fd);
    });
  }
  return Kernel().close_range(first, last, flags);
}

// The C library's would go past ours.
XTREME_CALL void closefrom(int first) noexcept {
  close_range(static_cast<unsigned>(std::max(first, 0)), ~0u, 0);
}

XTREME_CALL int dup(int fd) noexcept { return Share(fd, Kernel().dup(fd)); }

XTREME_CALL int dup2(int fd, int copy) noexcept {
  if (fd != copy && Kernel().fcntl(fd, F_GETFD) >= 0) Forget(copy);
  return Share(fd, Kernel().dup2(fd, copy));
}

XTREME_CALL int dup3(int fd, int copy, int flags) noexcept {
  const bool valid = (flags & ~O_CLOEXEC) == 0;
  if (valid && fd != copy && Kernel().fcntl(fd, F_GETFD) >= 0) Forget(copy);
  return Share(fd, Kernel().dup3(fd, copy, flags));
}

XTREME_CALL int fcntl(int fd, int command, ...) {
  va_list arguments;
  va_start(arguments, command);
  const long argument = va_arg(arguments, long);
  va_end(arguments);
  return xtreme::preload::Control(fd, command, argument);
}

XTREME_CALL int fcntl64(int fd, int command, ...) {
  va_list arguments;
  va_start(arguments, command);
  const long argument = va_arg(arguments, long);
  va_end(arguments);
  return xtreme::preload::Control(fd, command, argument);
}

XTREME_CALL int ioctl(int fd, unsigned long request, ...) noexcept {
  va_list arguments;
  va_start(arguments, request);
  void* const argument = va_arg(arguments, void*);
  va_end(arguments);
  const auto ours = Ours(fd);
  const Uncancelled whole;
  if (ours != nullptr && argument != nullptr) {
    int bytes = kAskKernel;
    switch (request) {
      case FIONREAD: bytes = ours->ReadableBytes(); break;
      case SIOCOUTQ: bytes = ours->UnacknowledgedBytes(); break;
      case SIOCOUTQNSD: bytes = ours->UnsentBytes(); break;
      // Of the last one that was read, as the kernel remembers it.
      case SIOCGSTAMP_OLD:
      case SIOCGSTAMPNS_OLD:
        if (ours->type() == SOCK_DGRAM) ours->LeaveToKernel("the time of a datagram is asked for");
        break;
      default: break;
    }
    if (bytes != kAskKernel) {
      if (bytes >= 0) std::memcpy(argument, &bytes, sizeof bytes);
      return Result(std::min(bytes, 0));
    }
  }
  const int result = Kernel().ioctl(fd, request, argument);
  if (ours == nullptr || result != 0 || (request != FIONBIO && request != FIOASYNC)) return result;
  int on = 0;
  std::memcpy(&on, argument, sizeof on);  // The kernel does not ask for its alignment either.
  if (request == FIONBIO) ours->SetNonBlocking(on != 0);
  if (request == FIOASYNC && on != 0) ours->WantSignals();
  return result;
}
