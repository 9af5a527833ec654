// SPDX-License-Identifier: Apache-2.0
//
// The calls that send and receive, in all their forms, as one receive and one send.

#include <fcntl.h>
#include <linux/net_tstamp.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstring>
#include <iterator>
#include <limits>
#include <numeric>
#include <span>

#include "api/preload/preload.h"
#include "api/sockets/data_calls.h"
#include "api/sockets/host_addresses.h"
#include "api/sockets/log.h"
#include "api/sockets/real_time.h"
#include "api/sockets/waiting.h"

using xtreme::preload::Kernel;
using xtreme::preload::Ours;
using xtreme::preload::Result;
using xtreme::sockets::kAskKernel;
using xtreme::sockets::Received;
using xtreme::sockets::ReceiveRequest;
using xtreme::sockets::SendRequest;
using xtreme::sockets::Socket;
using xtreme::sockets::Uncancelled;

namespace xtreme::preload {
namespace {

// Appends control messages to what the program gave room for.
class Control {
 public:
  explicit Control(msghdr* message) : message_(message), room_(message->msg_controllen) {
    message_->msg_controllen = 0;
  }

  // Linux: what has no room is cut, if its header has.
  void Add(int level, int type, const void* value, size_t length) {
    if (message_->msg_control == nullptr) room_ = 0;
    if (room_ < CMSG_LEN(length)) message_->msg_flags |= MSG_CTRUNC;
    if (room_ < sizeof(cmsghdr)) return;
    const size_t given = std::min(CMSG_LEN(length), room_);
    const cmsghdr header{.cmsg_len = given, .cmsg_level = level, .cmsg_type = type};
    auto* const at = static_cast<uint8_t*>(message_->msg_control) + message_->msg_controllen;
    memcpy(at, &header, sizeof header);
    memcpy(at + CMSG_LEN(0), value, given - CMSG_LEN(0));
    const size_t taken = std::min(CMSG_SPACE(length), room_);
    room_ -= taken;
    message_->msg_controllen += taken;
  }

 private:
  msghdr* const message_;
  size_t room_;
};

void AddControl(Socket& socket, const Received& about, msghdr* message) {
  const Socket::Wanted wanted = socket.wanted();
  Control control(message);
  if (wanted.timestamp_ns) {
    control.Add(SOL_SOCKET, SCM_TIMESTAMPNS, &about.arrival, sizeof about.arrival);
  } else if (wanted.timestamp_us) {
    const timeval time{.tv_sec = about.arrival.tv_sec, .tv_usec = about.arrival.tv_nsec / 1'000};
    control.Add(SOL_SOCKET, SCM_TIMESTAMP, &time, sizeof time);
  }
  if (wanted.timestamping != 0) {
    // Software, unused, hardware; each if it was asked for. Of none there is no message.
    timespec times[3] = {};
    if ((wanted.timestamping & SOF_TIMESTAMPING_SOFTWARE) != 0) times[0] = about.arrival;
    if ((wanted.timestamping & SOF_TIMESTAMPING_RAW_HARDWARE) != 0) {
      times[2] = sockets::RealTime(about.hw_time_ns, about.on_ptp);
    }
    const bool any = std::any_of(std::begin(times), std::end(times), [](const timespec& each) {
      return each.tv_sec != 0 || each.tv_nsec != 0;
    });
    if (any) control.Add(SOL_SOCKET, SCM_TIMESTAMPING, times, sizeof times);
  }
  if (wanted.overflow && about.dropped != 0) {
    control.Add(SOL_SOCKET, SO_RXQ_OVFL, &about.dropped, sizeof about.dropped);
  }
  if (wanted.packet_info) {
    in_pktinfo info{};
    info.ipi_ifindex = static_cast<int>(about.interface_index);
    info.ipi_addr.s_addr = htonl(about.destination.address.value());
    const wire::Ipv4Address local = socket.local().address;
    const bool own = !about.destination.address.IsMulticast();
    info.ipi_spec_dst.s_addr = htonl((own ? about.destination.address : local).value());
    control.Add(IPPROTO_IP, IP_PKTINFO, &info, sizeof info);
  }
  const int behind = socket.TellableBytes();
  if (behind >= 0) control.Add(IPPROTO_TCP, TCP_CM_INQ, &behind, sizeof behind);
}

// More than the kernel takes in one call: it says so.
bool IsTooMany(size_t parts) { return parts > IOV_MAX; }

ssize_t ReceiveMessage(Socket& socket, msghdr* message, int flags) {
  if (IsTooMany(message->msg_iovlen)) return kAskKernel;
  ReceiveRequest request{.to = {message->msg_iov, message->msg_iovlen}, .flags = flags};
  const ssize_t got = socket.Receive(&request);
  if (got < 0) return got;
  message->msg_flags = request.message_flags;
  sockets::GiveSource(socket, request.about.source, message->msg_name, &message->msg_namelen);
  AddControl(socket, request.about, message);
  return got;
}

// What Linux says of control data that goes with bytes of a connection: of sockets in general only
// some is known, and of anything else nothing is looked at.
bool HasWrongControl(const msghdr& message) {
  auto* const all = const_cast<msghdr*>(&message);
  for (cmsghdr* each = CMSG_FIRSTHDR(all); each != nullptr; each = CMSG_NXTHDR(all, each)) {
    const auto before = static_cast<size_t>(reinterpret_cast<uint8_t*>(each) -
                                            static_cast<uint8_t*>(all->msg_control));
    const bool whole =
        each->cmsg_len >= sizeof *each && each->cmsg_len <= all->msg_controllen - before;
    const int type = each->cmsg_type;
    const bool known = type == SCM_RIGHTS || type == SCM_CREDENTIALS || type == SO_MARK ||
                       type == SO_TIMESTAMPING || type == SO_PRIORITY;
    if (!whole || (each->cmsg_level == SOL_SOCKET && !known)) return true;
  }
  return false;
}

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

// Control messages of a datagram change where it goes: the kernel's socket has the same name.
bool IsPlain(const Socket& socket, const msghdr& message) {
  // Of less than a header there is none (cmsg(3)).
  const bool goes =
      message.msg_controllen < sizeof(cmsghdr) || socket.type() != SOCK_DGRAM;
  return goes && !IsTooMany(message.msg_iovlen);
}

// readv() and writev() of nothing do nothing, whatever the descriptor; nor does read().
bool IsNothing(std::span<const iovec> parts) {
  return std::all_of(parts.begin(), parts.end(),
                     [](const iovec& part) { return part.iov_len == 0; });
}

// What the kernel has an error for, whatever the socket.
bool IsWrong(const iovec* parts, int count) {
  return count < 0 || count > IOV_MAX || (parts == nullptr && count != 0);
}
bool IsWrong(const msghdr* message) {
  return message == nullptr || (message->msg_iov == nullptr && message->msg_iovlen != 0);
}

ssize_t ReadParts(int fd, const iovec* parts, int count, int flags) {
  const auto ours = IsWrong(parts, count) ? nullptr : Ours(fd);
  if (ours == nullptr) return kAskKernel;
  const auto number = static_cast<size_t>(count);
  if (IsNothing({parts, number})) return 0;
  return sockets::ReceiveInto(*ours, {parts, number}, flags, nullptr, nullptr);
}

ssize_t WriteParts(int fd, const iovec* parts, int count, int flags) {
  const auto ours = IsWrong(parts, count) ? nullptr : Ours(fd);
  if (ours == nullptr) return kAskKernel;
  const auto number = static_cast<size_t>(count);
  if (IsNothing({parts, number})) return 0;
  return sockets::SendFrom(*ours, {parts, number}, flags, nullptr, 0);
}

// Of recvmmsg(): looked at after each message, and what is left of it is left in `timeout`.
class TimeOfMany {
 public:
  explicit TimeOfMany(timespec* timeout) : timeout_(timeout) {
    if (timeout == nullptr) return;
    start_ = sockets::SteadyNow();
    limit_ = sockets::SpanOf(*timeout);
  }

  bool IsOver() {
    if (timeout_ == nullptr) return false;
    const base::Nanoseconds passed = sockets::SteadyNow() - start_;
    const base::Nanoseconds left = base::Later(limit_ - passed, base::Nanoseconds(0));
    *timeout_ = sockets::ToTimespec(left);
    return left == base::Nanoseconds(0);
  }

 private:
  timespec* const timeout_;
  base::Nanoseconds start_{0};
  base::Nanoseconds limit_{0};
};

// Whether preadv2() and pwritev2() are as readv() and writev(): elsewhere than at the offset of the
// file there is nothing of a socket.
bool IsOfStreams(off_t offset, int flags) {
  return offset == -1 && (flags & ~(RWF_HIPRI | RWF_NOWAIT)) == 0;
}

}  // namespace
}  // namespace xtreme::preload

using xtreme::preload::ReceiveMessage;
using xtreme::sockets::ReceiveOurs;
using xtreme::sockets::SendFrom;
using xtreme::sockets::SendOurs;

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
  const ssize_t got = xtreme::preload::ReadParts(fd, parts, count, 0);
  return got != kAskKernel ? Result(got) : Kernel().readv(fd, parts, count);
}

XTREME_CALL ssize_t preadv2(int fd, const iovec* parts, int count, off_t offset, int flags) {
  const bool streams = xtreme::preload::IsOfStreams(offset, flags);
  const int at_once = (flags & RWF_NOWAIT) != 0 ? MSG_DONTWAIT : 0;
  const ssize_t got =
      streams ? xtreme::preload::ReadParts(fd, parts, count, at_once) : kAskKernel;
  return got != kAskKernel ? Result(got) : Kernel().preadv2(fd, parts, count, offset, flags);
}

XTREME_CALL ssize_t preadv64v2(int fd, const iovec* parts, int count, off64_t offset, int flags) {
  return preadv2(fd, parts, count, offset, flags);
}

XTREME_CALL ssize_t recvmsg(int fd, msghdr* message, int flags) {
  const auto ours = xtreme::preload::IsWrong(message) ? nullptr : Ours(fd);
  if (ours != nullptr) {
    const ssize_t got = ReceiveMessage(*ours, message, flags);
    if (got != kAskKernel) return Result(got);
  }
  return Kernel().recvmsg(fd, message, flags);
}

XTREME_CALL int recvmmsg(int fd, mmsghdr* messages, unsigned count, int flags, timespec* timeout) {
  const auto ours = messages == nullptr ? nullptr : Ours(fd);
  if (ours == nullptr || ours->path() == xtreme::sockets::Path::kKernel) {
    return Kernel().recvmmsg(fd, messages, count, flags, timeout);
  }
  if (!xtreme::preload::IsValid(timeout)) return Result(-EINVAL);
  // As Linux: an error that waits comes before anything else, but where those of the queue are
  // asked for, and one that comes later waits.
  const int error = (flags & MSG_ERRQUEUE) != 0 ? 0 : ours->TakePendingError();
  if (error != 0) return Result(-error);
  xtreme::preload::TimeOfMany time(timeout);
  for (unsigned i = 0; i < count; ++i) {
    // As Linux: the first may block, with MSG_WAITFORONE no other; the time is looked at between.
    const int later = i > 0 && (flags & MSG_WAITFORONE) != 0 ? MSG_DONTWAIT : 0;
    const ssize_t got =
        ReceiveMessage(*ours, &messages[i].msg_hdr, (flags & ~MSG_WAITFORONE) | later);
    if (got == kAskKernel && i == 0) {
      return Kernel().recvmmsg(fd, messages, count, flags, timeout);
    }
    if (got < 0 && i == 0) return Result(static_cast<int>(got));
    if (got < 0 && got != -EAGAIN && got != kAskKernel) ours->KeepError(static_cast<int>(-got));
    if (got < 0) return static_cast<int>(i);
    messages[i].msg_len = static_cast<unsigned>(got);
    if (time.IsOver()) return static_cast<int>(i + 1);
  }
  return static_cast<int>(count);
}

XTREME_CALL ssize_t sendto(int fd, const void* from, size_t size, int flags, const sockaddr* to,
                           socklen_t length) {
  const ssize_t sent = SendOurs(fd, from, size, flags, to, length);
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
  const ssize_t sent = xtreme::preload::WriteParts(fd, parts, count, 0);
  return sent != kAskKernel ? Result(sent) : Kernel().writev(fd, parts, count);
}

XTREME_CALL ssize_t pwritev2(int fd, const iovec* parts, int count, off_t offset, int flags) {
  const bool streams = xtreme::preload::IsOfStreams(offset, flags);
  const int at_once = (flags & RWF_NOWAIT) != 0 ? MSG_DONTWAIT : 0;
  const ssize_t sent =
      streams ? xtreme::preload::WriteParts(fd, parts, count, at_once) : kAskKernel;
  return sent != kAskKernel ? Result(sent) : Kernel().pwritev2(fd, parts, count, offset, flags);
}

XTREME_CALL ssize_t pwritev64v2(int fd, const iovec* parts, int count, off64_t offset,
                                int flags) {
  return pwritev2(fd, parts, count, offset, flags);
}

XTREME_CALL ssize_t sendmsg(int fd, const msghdr* message, int flags) {
  if (xtreme::preload::IsWrong(message)) return Kernel().sendmsg(fd, message, flags);
  const auto ours = Ours(fd);
  const bool has_control = message->msg_control != nullptr &&
                           message->msg_controllen >= sizeof(cmsghdr);
  const bool wrong =
      ours != nullptr && has_control && xtreme::preload::HasWrongControl(*message);
  // One that the kernel's socket is to send, which does not know of every error.
  const bool kernels = ours != nullptr && has_control && !wrong && ours->type() == SOCK_DGRAM &&
                       ours->path() == xtreme::sockets::Path::kOffloaded;
  if (kernels) {
    if (const int error = ours->TakePendingError(); error != 0) return Result(ssize_t{-error});
    return Result(ours->SendByKernel(*message, flags));
  }
  if (ours != nullptr && xtreme::preload::IsPlain(*ours, *message)) {
    // Linux: an address of no length is none here, and a wrong one of sendto().
    const void* const to = message->msg_namelen == 0 ? nullptr : message->msg_name;
    const ssize_t sent =
        SendFrom(*ours, {message->msg_iov, message->msg_iovlen}, flags,
                 static_cast<const sockaddr*>(to), message->msg_namelen, wrong);
    if (sent != kAskKernel) return Result(sent);
  }
  if (ours == nullptr && has_control) xtreme::preload::WarnOfHandedOver(*message);
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
