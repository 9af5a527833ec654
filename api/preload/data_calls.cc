// SPDX-License-Identifier: Apache-2.0
//
// The calls that send and receive, in all their forms, as one receive and one send.

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstring>
#include <limits>
#include <numeric>
#include <span>

#include "api/preload/preload.h"
#include "api/sockets/data_calls.h"
#include "api/sockets/log.h"
#include "api/sockets/message_calls.h"
#include "api/sockets/waiting.h"

using xtreme::preload::Kernel;
using xtreme::preload::Ours;
using xtreme::preload::Result;
using xtreme::sockets::kAskKernel;
using xtreme::sockets::Socket;
using xtreme::sockets::Uncancelled;

namespace xtreme::preload {
namespace {

// Whoever gets descriptors of ours by a Unix socket gets the kernel's sockets, which know nothing
// of what is on a ring.
void WarnOfHandedOver(const msghdr& message) {
  auto* const all = const_cast<msghdr*>(&message);
  for (cmsghdr* each = CMSG_FIRSTHDR(all); each != nullptr; each = CMSG_NXTHDR(all, each)) {
    if (each->cmsg_level != SOL_SOCKET || each->cmsg_type != SCM_RIGHTS) continue;
    for (size_t at = CMSG_LEN(0); at + sizeof(int) <= each->cmsg_len; at += sizeof(int)) {
      int fd = -1;
      memcpy(&fd, reinterpret_cast<const uint8_t*>(each) + at, sizeof fd);
      const auto ours = Ours(fd);
      const bool lost = ours != nullptr && ours->door() != nullptr && !ours->listening();
      if (!lost) continue;
      sockets::Log(sockets::LogLevel::kWarning,
                   "fd {} is handed over (SCM_RIGHTS): it stays on the ring here, and who gets it "
                   "cannot use it: leave it to the kernel by a rule",
                   fd);
    }
  }
}

// Where a file that is sent begins: its position, or what `offset` says; else -errno, as Linux says
// it before it reads.
off_t StartOf(int in, const off_t* offset, size_t count) {
  const int flags = Kernel().fcntl(in, F_GETFL);
  const bool reads = flags >= 0 && (flags & O_PATH) == 0 && (flags & O_ACCMODE) != O_WRONLY;
  if (!reads) return -EBADF;
  const off_t at = lseek(in, 0, SEEK_CUR);
  if (at < 0) return offset != nullptr ? -ESPIPE : -EINVAL;
  const off_t start = offset != nullptr ? *offset : at;
  const off_t room = std::numeric_limits<off_t>::max() - std::max<off_t>(start, 0);
  return start < 0 || count > static_cast<size_t>(room) ? -EINVAL : start;
}

// Linux: only what can be spliced, which the kernel says of a byte of it; files on disks can be.
int WhyNotSpliced(int in, off_t start) {
  struct stat about{};
  if (fstat(in, &about) != 0) return -errno;
  if (S_ISREG(about.st_mode) && about.st_size != 0) return 0;
  const int scratch = memfd_create("sendfile", MFD_CLOEXEC);
  const ssize_t sent = Kernel().sendfile(scratch, in, &start, 1);
  const int error = sent < 0 ? -errno : 0;
  Kernel().close(scratch);
  return error;
}

// A file read and sent in parts: a ring sends bytes, not pages of the kernel. Where it goes on is
// behind what was sent, as with the kernel's.
ssize_t SendFile(Socket& socket, int in, off_t* offset, size_t count) {
  if (socket.path() != sockets::Path::kOffloaded) return kAskKernel;
  std::array<uint8_t, 32'768> bytes;
  const off_t start = StartOf(in, offset, count);
  if (start < 0) return start;
  ssize_t done = 0;
  ssize_t result = count == 0 ? 0 : WhyNotSpliced(in, start);
  while (result >= 0 && static_cast<size_t>(done) < count) {
    const size_t most = std::min(bytes.size(), count - static_cast<size_t>(done));
    const ssize_t got = pread(in, bytes.data(), most, start + done);
    result = got >= 0 ? got : -errno;
    if (result <= 0) break;
    const iovec part{.iov_base = bytes.data(), .iov_len = static_cast<size_t>(got)};
    result = sockets::SendFrom(socket, {&part, 1}, 0, nullptr, 0);
    if (result > 0) done += result;
    if (result < got) break;
  }
  if (offset != nullptr) *offset = start + done;
  if (offset == nullptr && done > 0) lseek(in, start + done, SEEK_SET);
  return done > 0 ? done : result;
}

// Whether preadv2() and pwritev2() are as readv() and writev(): elsewhere than at the offset of the
// file there is nothing of a socket.
bool IsOfStreams(off_t offset, int flags) {
  return offset == -1 && (flags & ~(RWF_HIPRI | RWF_NOWAIT)) == 0;
}

}  // namespace
}  // namespace xtreme::preload

using xtreme::sockets::ReceiveMessageOurs;
using xtreme::sockets::ReceiveMessagesOurs;
using xtreme::sockets::ReceiveOurs;
using xtreme::sockets::ReceivePartsOurs;
using xtreme::sockets::SendMessageOurs;
using xtreme::sockets::SendOurs;
using xtreme::sockets::SendPartsOurs;

XTREME_CALL ssize_t recvfrom(int fd, void* to, size_t size, int flags, sockaddr* from,
                             socklen_t* from_length) {
  const ssize_t got = ReceiveOurs(fd, to, size, flags, from, from_length);
  return got != kAskKernel ? Result(got)
                           : Kernel().recvfrom(fd, to, size, flags, from, from_length);
}

XTREME_CALL ssize_t recv(int fd, void* to, size_t size, int flags) {
  const ssize_t got = ReceiveOurs(fd, to, size, flags);
  return got != kAskKernel ? Result(got) : Kernel().recv(fd, to, size, flags);
}

XTREME_CALL ssize_t read(int fd, void* to, size_t size) {
  const ssize_t got = size == 0 ? kAskKernel : ReceiveOurs(fd, to, size, 0);
  return got != kAskKernel ? Result(got) : Kernel().read(fd, to, size);
}

XTREME_CALL ssize_t readv(int fd, const iovec* parts, int count) {
  const ssize_t got = ReceivePartsOurs(fd, parts, count, 0);
  return got != kAskKernel ? Result(got) : Kernel().readv(fd, parts, count);
}

XTREME_CALL ssize_t preadv2(int fd, const iovec* parts, int count, off_t offset, int flags) {
  const bool streams = xtreme::preload::IsOfStreams(offset, flags);
  const int at_once = (flags & RWF_NOWAIT) != 0 ? MSG_DONTWAIT : 0;
  const ssize_t got =
      streams ? ReceivePartsOurs(fd, parts, count, at_once) : kAskKernel;
  return got != kAskKernel ? Result(got) : Kernel().preadv2(fd, parts, count, offset, flags);
}

XTREME_CALL ssize_t preadv64v2(int fd, const iovec* parts, int count, off64_t offset, int flags) {
  return preadv2(fd, parts, count, offset, flags);
}

XTREME_CALL ssize_t recvmsg(int fd, msghdr* message, int flags) {
  const ssize_t got = ReceiveMessageOurs(fd, message, flags);
  return got != kAskKernel ? Result(got) : Kernel().recvmsg(fd, message, flags);
}

XTREME_CALL int recvmmsg(int fd, mmsghdr* messages, unsigned count, int flags, timespec* timeout) {
  const int got = ReceiveMessagesOurs(fd, messages, count, flags, timeout);
  return got != kAskKernel ? Result(got) : Kernel().recvmmsg(fd, messages, count, flags, timeout);
}

XTREME_CALL ssize_t sendto(int fd, const void* from, size_t size, int flags, const sockaddr* to,
                           socklen_t length) {
  // An address of less than nothing, or more than there is, is wrong for connections too.
  const bool is_wrong = to != nullptr && length > sizeof(sockaddr_storage);
  const ssize_t sent = is_wrong ? kAskKernel : SendOurs(fd, from, size, flags, to, length);
  return sent != kAskKernel ? Result(sent) : Kernel().sendto(fd, from, size, flags, to, length);
}

XTREME_CALL ssize_t send(int fd, const void* from, size_t size, int flags) {
  const ssize_t sent = SendOurs(fd, from, size, flags);
  return sent != kAskKernel ? Result(sent) : Kernel().send(fd, from, size, flags);
}

XTREME_CALL ssize_t write(int fd, const void* from, size_t size) {
  const ssize_t sent = SendOurs(fd, from, size, 0);
  return sent != kAskKernel ? Result(sent) : Kernel().write(fd, from, size);
}

XTREME_CALL ssize_t writev(int fd, const iovec* parts, int count) {
  const ssize_t sent = SendPartsOurs(fd, parts, count, 0);
  return sent != kAskKernel ? Result(sent) : Kernel().writev(fd, parts, count);
}

XTREME_CALL ssize_t pwritev2(int fd, const iovec* parts, int count, off_t offset, int flags) {
  const bool streams = xtreme::preload::IsOfStreams(offset, flags);
  const int at_once = (flags & RWF_NOWAIT) != 0 ? MSG_DONTWAIT : 0;
  const ssize_t sent =
      streams ? SendPartsOurs(fd, parts, count, at_once) : kAskKernel;
  return sent != kAskKernel ? Result(sent) : Kernel().pwritev2(fd, parts, count, offset, flags);
}

XTREME_CALL ssize_t pwritev64v2(int fd, const iovec* parts, int count, off64_t offset,
                                int flags) {
  return pwritev2(fd, parts, count, offset, flags);
}

XTREME_CALL ssize_t sendmsg(int fd, const msghdr* message, int flags) {
  const ssize_t sent = SendMessageOurs(fd, message, flags);
  if (sent != kAskKernel) return Result(sent);
  const bool hands_over = message != nullptr && message->msg_control != nullptr &&
                          message->msg_controllen >= sizeof(cmsghdr) && Ours(fd) == nullptr;
  if (hands_over) xtreme::preload::WarnOfHandedOver(*message);
  return Kernel().sendmsg(fd, message, flags);
}

// As Linux: 1,024 messages at most, and none behind one that was sent in part.
XTREME_CALL int sendmmsg(int fd, mmsghdr* messages, unsigned count, int flags) {
  if (messages == nullptr || Ours(fd) == nullptr) {
    return Kernel().sendmmsg(fd, messages, count, flags);
  }
  const unsigned most = std::min<unsigned>(count, IOV_MAX);
  for (unsigned i = 0; i < most; ++i) {
    const msghdr& message = messages[i].msg_hdr;
    const ssize_t sent = sendmsg(fd, &message, flags);
    if (sent < 0) return i > 0 ? static_cast<int>(i) : -1;
    messages[i].msg_len = static_cast<unsigned>(sent);
    const std::span parts(message.msg_iov, message.msg_iovlen);
    const size_t bytes = std::accumulate(
        parts.begin(), parts.end(), size_t{0},
        [](size_t sum, const iovec& part) { return sum + part.iov_len; });
    if (static_cast<size_t>(sent) < bytes) return static_cast<int>(i) + 1;
  }
  return static_cast<int>(most);
}

XTREME_CALL ssize_t sendfile(int out, int in, off_t* offset, size_t count) noexcept {
  if (const auto ours = Ours(out)) {
    const Uncancelled whole;  // Linux: it is no cancellation point.
    const ssize_t sent = xtreme::preload::SendFile(*ours, in, offset, count);
    if (sent != kAskKernel) return Result(sent);
  }
  return Kernel().sendfile(out, in, offset, count);
}

XTREME_CALL ssize_t sendfile64(int out, int in, off64_t* offset, size_t count) noexcept {
  return sendfile(out, in, offset, count);
}

// Pages that the kernel would move: who is told that it cannot reads and writes (splice(2)).
XTREME_CALL ssize_t splice(int in, off64_t* in_offset, int out, off64_t* out_offset, size_t count,
                           unsigned flags) {
  for (const int fd : {in, out}) {
    const auto ours = Ours(fd);
    if (ours != nullptr && ours->path() == xtreme::sockets::Path::kOffloaded) {
      return Result(ssize_t{-EINVAL});
    }
  }
  return Kernel().splice(in, in_offset, out, out_offset, count, flags);
}

// --- What _FORTIFY_SOURCE makes of them: the size of the buffer is checked first ----------------

XTREME_CALL ssize_t __recv_chk(int fd, void* to, size_t size, size_t room, int flags) {
  if (size > room) abort();
  return recv(fd, to, size, flags);
}

XTREME_CALL ssize_t __recvfrom_chk(int fd, void* to, size_t size, size_t room, int flags,
                                   sockaddr* from, socklen_t* from_length) {
  if (size > room) abort();
  return recvfrom(fd, to, size, flags, from, from_length);
}

XTREME_CALL ssize_t __read_chk(int fd, void* to, size_t size, size_t room) {
  if (size > room) abort();
  return read(fd, to, size);
}
