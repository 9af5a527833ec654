// SPDX-License-Identifier: Apache-2.0
//
// socket, bind, connect, names, options, shutdown. With null pointers the kernel is asked: EFAULT,
// mostly.

#include <netinet/in.h>

#include "api/preload/preload.h"
#include "api/sockets/descriptor_calls.h"
#include "api/vma/api.h"

using xtreme::preload::Faces;
using xtreme::preload::Kernel;
using xtreme::preload::Ours;
using xtreme::preload::Result;
using xtreme::preload::ResultOf;
using xtreme::sockets::ErrnoKept;
using xtreme::sockets::Path;
using xtreme::sockets::Uncancelled;

XTREME_CALL int socket(int domain, int type, int protocol) noexcept {
  const int fd = Kernel().socket(domain, type, protocol);
  if (xtreme::sockets::Passage::Inside()) return xtreme::sockets::HighDescriptor(fd);
  if (fd < 0 || domain != AF_INET) return fd;
  const int kind = type & ~(SOCK_NONBLOCK | SOCK_CLOEXEC);
  const bool datagrams = kind == SOCK_DGRAM && (protocol == 0 || protocol == IPPROTO_UDP);
  const bool stream = kind == SOCK_STREAM && (protocol == 0 || protocol == IPPROTO_TCP);
  if (!datagrams && !stream) return fd;
  const ErrnoKept kept;
  if (Faces().off()) return fd;
  xtreme::sockets::AddSocket(Faces(), fd, kind, (type & SOCK_NONBLOCK) != 0);
  return fd;
}

XTREME_CALL int bind(int fd, const sockaddr* address, socklen_t length) noexcept {
  const auto ours = Ours(fd);
  const bool inet = address != nullptr && length >= sizeof(sockaddr_in) &&
                    address->sa_family == AF_INET;
  if (ours == nullptr || !inet) return Kernel().bind(fd, address, length);
  return ResultOf([&] { return ours->Bind(*reinterpret_cast<const sockaddr_in*>(address)); });
}

XTREME_CALL int connect(int fd, const sockaddr* address, socklen_t length) {
  const auto ours = Ours(fd);
  const bool known = address != nullptr && length >= sizeof(sa_family_t) &&
                     (address->sa_family == AF_UNSPEC ||
                      (address->sa_family == AF_INET && length >= sizeof(sockaddr_in)) ||
                      // Of a connection its state is looked at before the address.
                      (address->sa_family == AF_INET && ours != nullptr && ours->HasConnected()));
  if (ours == nullptr || !known) return Kernel().connect(fd, address, length);
  return ResultOf([&] { return ours->Connect(address, length); });
}

XTREME_CALL int listen(int fd, int backlog) noexcept {
  const auto ours = Ours(fd);
  return ours == nullptr ? Kernel().listen(fd, backlog)
                         : ResultOf([&] { return ours->Listen(backlog); });
}

XTREME_CALL int getsockname(int fd, sockaddr* address, socklen_t* length) noexcept {
  const auto ours = Ours(fd);
  return ours == nullptr ? Kernel().getsockname(fd, address, length)
                         : ResultOf([&] { return ours->Name(address, length); });
}

XTREME_CALL int getpeername(int fd, sockaddr* address, socklen_t* length) noexcept {
  const auto ours = Ours(fd);
  return ours == nullptr ? Kernel().getpeername(fd, address, length)
                         : ResultOf([&] { return ours->PeerName(address, length); });
}

XTREME_CALL int accept4(int fd, sockaddr* address, socklen_t* length, int flags) {
  const auto ours = Ours(fd);
  if (ours != nullptr && ours->path() == Path::kUndecided) {
    const ErrnoKept kept;
    ours->Decide();
  }
  const bool ring_may_have_some = ours != nullptr && (ours->listening() || ours->deferred());
  if (!ring_may_have_some) return Kernel().accept4(fd, address, length, flags);
  return ResultOf(
      [&] { return xtreme::sockets::Accept(Faces(), ours, fd, address, length, flags); });
}

XTREME_CALL int accept(int fd, sockaddr* address, socklen_t* length) {
  return accept4(fd, address, length, 0);
}

XTREME_CALL int shutdown(int fd, int how) noexcept {
  const auto ours = Ours(fd);
  return ours == nullptr ? Kernel().shutdown(fd, how)
                         : ResultOf([&] { return ours->Shutdown(how); });
}

XTREME_CALL int setsockopt(int fd, int level, int name, const void* value,
                           socklen_t length) noexcept {
  const auto ours = Ours(fd);
  const Uncancelled whole;
  const bool paces = name == SO_MAX_PACING_RATE && length == xtreme::sockets::kVmaRateBytes;
  const bool of_vma = level == SOL_SOCKET && ((name >= 2800 && name < 2830) || paces);
  const int refused = ours == nullptr ? 0 : ours->RefuseOption(level, name, value, length);
  if (refused != 0) return Result(refused);
  if (ours == nullptr || !of_vma) {
    const int result = Kernel().setsockopt(fd, level, name, value, length);
    if (result != 0 || ours == nullptr) return result;
  }
  return ResultOf([&] { return ours->SetOption(level, name, value, length); });
}

XTREME_CALL int getsockopt(int fd, int level, int name, void* value, socklen_t* length) noexcept {
  if (level == SOL_SOCKET && name == SO_VMA_GET_API && fd == -1) {
    const auto enabled = [] {
      const ErrnoKept kept;
      return Faces().enabled();
    };
    if (length == nullptr || *length < sizeof(vma_api_t*) || !enabled()) return Result(-EINVAL);
    *static_cast<vma_api_t**>(value) = xtreme::vma::Api();
    *length = sizeof(vma_api_t*);
    return 0;
  }
  const auto ours = value == nullptr || length == nullptr ? nullptr : Ours(fd);
  const Uncancelled whole;
  int result = 0;
  const auto known = [&] {
    const ErrnoKept kept;
    return ours->GetOption(level, name, value, length, &result);
  };
  if (ours != nullptr && known()) return Result(result);
  return Kernel().getsockopt(fd, level, name, value, length);
}
