// SPDX-License-Identifier: Apache-2.0
// A rtnetlink socket of the calling thread's network namespace: dumps, and notifications of groups.
//
// Threads: one at a time. Spec: netlink(7), rtnetlink(7).

#ifndef XTREME_XTREME_HOST_NETLINK_SOCKET_H_
#define XTREME_XTREME_HOST_NETLINK_SOCKET_H_

#include <linux/netlink.h>
#include <netlink/socket.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace xtreme::host {

// Sees one message; it is gone when the call returns.
using NetlinkVisitor = std::function<void(const nlmsghdr& message)>;

class NetlinkSocket {
 public:
  struct Options {
    // RTNLGRP_* to follow; none for a socket that only asks.
    std::span<const int> groups;
    // Asked of the kernel (SO_RCVBUFFORCE where allowed, else SO_RCVBUF up to its limit); 0: its
    // default.
    uint32_t receive_buffer_bytes = 0;
    bool non_blocking = false;
  };

  enum class Received : uint8_t {
    kMessages,  // at least one was visited
    kEmpty,     // nothing waits
    kOverrun,   // ENOBUFS: the kernel dropped notifications since the last call
  };

  // The errors of socket(2), bind(2) and of joining a group.
  static absl::StatusOr<NetlinkSocket> Open(const Options& options);

  // To be polled for input.
  int fd() const { return nl_socket_get_fd(socket_.get()); }

  // Reads one batch of notifications. Any error of recv(2) but EAGAIN and ENOBUFS is a Status.
  absl::StatusOr<Received> Receive(const NetlinkVisitor& visit);

  // Asks for every IPv4 object of `type` (RTM_GETLINK, ...) and visits the answers. A dump during
  // which the table changed may be inconsistent: that is ABORTED, after the visits, and the caller
  // asks again. The kernel's refusal is a Status with its errno. For a blocking socket.
  absl::Status Dump(uint16_t type, const NetlinkVisitor& visit);

 private:
  struct Free {
    void operator()(nl_sock* socket) const { nl_socket_free(socket); }
  };

  NetlinkSocket();
  absl::StatusOr<size_t> Read(int& error);

  std::unique_ptr<nl_sock, Free> socket_;
  // Larger than any batch the kernel builds (32 KiB), so nothing is ever cut.
  std::vector<std::byte> buffer_;
};

}  // namespace xtreme::host

#endif  // XTREME_XTREME_HOST_NETLINK_SOCKET_H_
