// SPDX-License-Identifier: Apache-2.0

#include "tests/net/kernel_state.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <fstream>
#include <sstream>

namespace xtreme::net {

int UdpBindError(uint16_t port) {
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  const sockaddr_in address{.sin_family = AF_INET, .sin_port = htons(port)};
  const int bound = bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  const int error = bound == 0 ? 0 : errno;
  close(fd);
  return error;
}

bool IsGroupMember(const std::string& group) {
  // The kernel writes the address as it stands in memory.
  in_addr address{};
  if (inet_pton(AF_INET, group.c_str(), &address) != 1) return false;
  char hexadecimal[16];
  snprintf(hexadecimal, sizeof(hexadecimal), "%08X", address.s_addr);
  std::ifstream file("/proc/thread-self/net/igmp");
  std::stringstream all;
  all << file.rdbuf();
  return all.str().find(hexadecimal) != std::string::npos;
}

}  // namespace xtreme::net
