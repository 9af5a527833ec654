// SPDX-License-Identifier: Apache-2.0
// Any bytes behind an honest netlink length: every parser reads only those. The first byte chooses
// the message's family, so that half of the inputs reach the attributes.

#include <linux/netlink.h>
#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>

#include "xtreme/host/netlink_parse.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t length) {
  const size_t total = NLMSG_HDRLEN + length;
  const std::unique_ptr<uint8_t[]> exact(new uint8_t[total]);
  std::memset(exact.get(), 0, NLMSG_HDRLEN);
  if (length > 0) {
    std::memcpy(exact.get() + NLMSG_HDRLEN, bytes, length);
    exact[NLMSG_HDRLEN] = bytes[0] % 2 == 0 ? AF_INET : AF_UNSPEC;
  }
  auto* message = reinterpret_cast<nlmsghdr*>(exact.get());
  message->nlmsg_len = static_cast<uint32_t>(total);
  xtreme::host::ParseInterface(*message);
  xtreme::host::ParseAddress(*message);
  xtreme::host::ParseRoute(*message);
  xtreme::host::ParseRule(*message);
  xtreme::host::ParseNeighbour(*message);
  return 0;
}
