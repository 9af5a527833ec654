// SPDX-License-Identifier: Apache-2.0

#include "xtreme/host/netlink_socket.h"

#include <linux/rtnetlink.h>
#include <netlink/errno.h>
#include <netlink/msg.h>
#include <netlink/netlink.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "xtreme/host/file_descriptor.h"

namespace xtreme::host {
namespace {

constexpr size_t kBufferBytes = 64 * 1024;

absl::Status LibraryStatus(const char* action, int result) {
  return absl::InternalError(absl::StrCat(action, ": ", nl_geterror(result)));
}

void SetReceiveBuffer(int fd, uint32_t bytes) {
  const int asked = static_cast<int>(bytes);
  if (::setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &asked, sizeof(asked)) == 0) return;
  // Without the privilege the kernel caps it; a smaller buffer only overruns sooner.
  ::setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &asked, sizeof(asked));
}

// What a dump's message says about the dump itself.
enum class DumpStep : uint8_t { kObject, kDone, kForeign };

absl::StatusOr<DumpStep> Classify(const nlmsghdr& message, uint32_t sequence) {
  if (message.nlmsg_seq != sequence) return DumpStep::kForeign;
  if (message.nlmsg_type != NLMSG_ERROR && message.nlmsg_type != NLMSG_DONE) {
    return DumpStep::kObject;
  }
  int error = 0;
  if (message.nlmsg_len >= NLMSG_LENGTH(sizeof(error))) {
    error = *static_cast<const int*>(NLMSG_DATA(&message));
  }
  if (error != 0) return ErrnoStatus(-error, "dump a table by rtnetlink");
  return DumpStep::kDone;
}

}  // namespace

NetlinkSocket::NetlinkSocket() : socket_(nl_socket_alloc()), buffer_(kBufferBytes) {}

absl::StatusOr<NetlinkSocket> NetlinkSocket::Open(const Options& options) {
  NetlinkSocket opened;
  nl_sock* socket = opened.socket_.get();
  if (socket == nullptr) return absl::ResourceExhaustedError("open rtnetlink socket: no memory");
  nl_socket_disable_auto_ack(socket);  // A dump ends with NLMSG_DONE.
  if (const int result = nl_connect(socket, NETLINK_ROUTE); result < 0) {
    return LibraryStatus("open rtnetlink socket", result);
  }
  for (const int group : options.groups) {
    if (const int result = nl_socket_add_membership(socket, group); result < 0) {
      return LibraryStatus("follow an rtnetlink group", result);
    }
  }
  if (options.receive_buffer_bytes != 0)
    SetReceiveBuffer(opened.fd(), options.receive_buffer_bytes);
  if (options.non_blocking) nl_socket_set_nonblocking(socket);
  return opened;
}

// The length read, 0 with `error` set when the kernel had none.
absl::StatusOr<size_t> NetlinkSocket::Read(int& error) {
  for (;;) {
    const ssize_t length = ::recv(fd(), buffer_.data(), buffer_.size(), MSG_TRUNC);
    if (length < 0 && errno == EINTR) continue;
    if (length < 0) {
      error = errno;
      return 0;
    }
    if (static_cast<size_t>(length) > buffer_.size()) {
      return absl::InternalError(absl::StrCat("read rtnetlink: a message of ", length,
                                              " bytes, room for ", buffer_.size()));
    }
    return static_cast<size_t>(length);
  }
}

absl::StatusOr<NetlinkSocket::Received> NetlinkSocket::Receive(const NetlinkVisitor& visit) {
  int error = 0;
  const absl::StatusOr<size_t> length = Read(error);
  if (!length.ok()) return length.status();
  if (error == EAGAIN || error == EWOULDBLOCK) return Received::kEmpty;
  if (error == ENOBUFS) return Received::kOverrun;
  if (error != 0) return ErrnoStatus(error, "read rtnetlink notifications");
  auto left = static_cast<int>(*length);
  for (auto* message = reinterpret_cast<nlmsghdr*>(buffer_.data()); nlmsg_ok(message, left);
       message = nlmsg_next(message, &left)) {
    visit(*message);
  }
  return Received::kMessages;
}

absl::Status NetlinkSocket::Dump(uint16_t type, const NetlinkVisitor& visit) {
  nl_msg* request = nlmsg_alloc_simple(type, NLM_F_REQUEST | NLM_F_DUMP);
  if (request == nullptr) return absl::ResourceExhaustedError("dump by rtnetlink: no memory");
  const std::unique_ptr<nl_msg, void (*)(nl_msg*)> owner(request, nlmsg_free);
  // An ifinfomsg is as long as the longest of the headers that dumps take; the family is the first
  // byte of each. Interfaces have none.
  ifinfomsg header{};
  header.ifi_family = type == RTM_GETLINK ? AF_UNSPEC : AF_INET;
  nlmsg_append(request, &header, sizeof(header), NLMSG_ALIGNTO);
  if (const int result = nl_send_auto(socket_.get(), request); result < 0) {
    return LibraryStatus("dump by rtnetlink", result);
  }
  const uint32_t sequence = nlmsg_hdr(request)->nlmsg_seq;
  bool interrupted = false;
  for (bool done = false; !done;) {
    int error = 0;
    const absl::StatusOr<size_t> length = Read(error);
    if (!length.ok()) return length.status();
    if (error != 0) return ErrnoStatus(error, "read an rtnetlink dump");
    auto left = static_cast<int>(*length);
    for (auto* message = reinterpret_cast<nlmsghdr*>(buffer_.data()); nlmsg_ok(message, left);
         message = nlmsg_next(message, &left)) {
      const absl::StatusOr<DumpStep> step = Classify(*message, sequence);
      if (!step.ok()) return step.status();
      interrupted |= (message->nlmsg_flags & NLM_F_DUMP_INTR) != 0;
      done |= *step == DumpStep::kDone;
      if (*step == DumpStep::kObject) visit(*message);
    }
  }
  if (interrupted) return absl::AbortedError("dump by rtnetlink: the table changed meanwhile");
  return absl::OkStatus();
}

}  // namespace xtreme::host
