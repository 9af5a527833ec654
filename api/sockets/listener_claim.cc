// SPDX-License-Identifier: Apache-2.0

#include "api/sockets/listener_claim.h"

#include <sys/un.h>

#include <cstddef>
#include <string>

#include "api/sockets/kernel_calls.h"
#include "stack/wire/address_text.h"

namespace xtreme::sockets {

int ClaimListener(const wire::Endpoint& local) {
  const std::string name = "xtreme listener " + wire::ToString(local);
  sockaddr_un address{.sun_family = AF_UNIX};
  // The first byte stays 0: an abstract name.
  name.copy(address.sun_path + 1, sizeof address.sun_path - 1);
  const auto length =
      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  const int fd = HighDescriptor(Kernel().socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (fd < 0) return -1;
  if (Kernel().bind(fd, reinterpret_cast<const sockaddr*>(&address), length) == 0) return fd;
  Kernel().close(fd);
  return -1;
}

}  // namespace xtreme::sockets
