// SPDX-License-Identifier: Apache-2.0
//
// socket, bind, connect, names, options, shutdown.

#include <netinet/in.h>

#include "api/preload/preload.h"
#include "api/vma/api.h"

using xtreme::preload::Faces;
using xtreme::preload::Kernel;
using xtreme::preload::Ours;
using xtreme::preload::Result;
using xtreme::sockets::kAskKernel;
using xtreme::sockets::Path;
using xtreme::sockets::Socket;

XTREME_CALL int socket(int domain, int type, int protocol) noexcept {
  const int fd = Kernel().socket(domain, type, protocol);
  if (fd < 0 || domain != AF_INET || xtreme::sockets::Passage::Inside()) return fd;
  const int kind = type & ~(SOCK_NONBLOCK | SOCK_CLOEXEC);
  const bool datagrams =
      kind == SOCK_DGRAM && (protocol == 0 || protocol == IPPROTO_UDP);
  if (!datagrams || Faces().off()) return fd;
  Faces().descriptors().Put(fd, {.socket = std::make_shared<Socket>(
                                     &Faces(), fd, kind, (type & SOCK_NONBLOCK) != 0)});
  return fd;
}

XTREME_CALL int bind(int fd, const sockaddr* address, socklen_t length) noexcept {
  const auto ours = Ours(fd);
  const bool inet = length >= sizeof(sockaddr_in) && address->sa_family == AF_INET;
  if (ours == nullptr || !inet) return Kernel().bind(fd, address, length);
  return Result(ours->Bind(*reinterpret_cast<const sockaddr_in*>(address)));
}

XTREME_CALL int connect(int fd, const sockaddr* address, socklen_t length) {
  const auto ours = Ours(fd);
  const bool known = length >= sizeof(sa_family_t) &&
                     (address->sa_family == AF_UNSPEC ||
                      (address->sa_family == AF_INET && length >= sizeof(sockaddr_in)));
  if (ours == nullptr || !known) return Kernel().connect(fd, address, length);
  return Result(ours->Connect(address, length));
}

XTREME_CALL int shutdown(int fd, int how) noexcept {
  const auto ours = Ours(fd);
  return ours == nullptr ? Kernel().shutdown(fd, how) : Result(ours->Shutdown(how));
}

XTREME_CALL int setsockopt(int fd, int level, int name, const void* value,
                           socklen_t length) noexcept {
  const auto ours = Ours(fd);
  const bool of_vma = level == SOL_SOCKET && name >= 2800 && name < 2830;
  if (ours == nullptr || !of_vma) {
    const int result = Kernel().setsockopt(fd, level, name, value, length);
    if (result != 0 || ours == nullptr) return result;
  }
  return Result(ours->SetOption(level, name, value, length));
}

XTREME_CALL int getsockopt(int fd, int level, int name, void* value, socklen_t* length) noexcept {
  if (level == SOL_SOCKET && name == SO_VMA_GET_API && fd == -1) {
    if (length == nullptr || *length < sizeof(vma_api_t*) || !Faces().enabled()) {
      return Result(-EINVAL);
    }
    *static_cast<vma_api_t**>(value) = xtreme::vma::Api();
    *length = sizeof(vma_api_t*);
    return 0;
  }
  const auto ours = Ours(fd);
  int result = 0;
  if (ours != nullptr && ours->GetOption(level, name, value, length, &result)) {
    return Result(result);
  }
  return Kernel().getsockopt(fd, level, name, value, length);
}
