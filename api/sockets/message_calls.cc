// SPDX-License-Identifier: Apache-2.0

#include "api/sockets/message_calls.h"

#include <linux/net_tstamp.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/time.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <iterator>
#include <span>

#include "api/sockets/data_calls.h"
#include "api/sockets/host_addresses.h"
#include "api/sockets/real_time.h"
#include "api/sockets/short_way.h"
#include "api/sockets/waiting.h"
#include "xtreme/engine/ring.h"

namespace xtreme::sockets {
namespace {

// Of parts that are put together to be sent: more than a frame takes.
constexpr size_t kMostJoined = 2'048;

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
      times[2] = RealTime(about.hw_time_ns, about.on_ptp);
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

// Writes what is said of a message that was received.
void Tell(Socket& socket, const Received& about, int message_flags, msghdr* message) {
  message->msg_flags = message_flags;
  GiveSource(socket, about.source, message->msg_name, &message->msg_namelen);
  AddControl(socket, about, message);
}

ssize_t ReceiveMessage(Socket& socket, msghdr* message, int flags) {
  if (IsTooMany(message->msg_iovlen)) return kAskKernel;
  ReceiveRequest request{.to = {message->msg_iov, message->msg_iovlen}, .flags = flags};
  const ssize_t got = socket.Receive(&request);
  if (got >= 0) Tell(socket, request.about, request.message_flags, message);
  return got;
}

ssize_t ReceiveMessageLong(int fd, msghdr* message, int flags) {
  const ErrnoKept kept;
  const auto ours = OursByFd(fd);
  if (ours == nullptr) return kAskKernel;
  MakeWay(fd, ours.get());
  return ReceiveMessage(*ours, message, flags);
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

// Control messages of a datagram change where it goes: the kernel's socket has the same name.
bool IsPlain(const Socket& socket, const msghdr& message) {
  // Of less than a header there is none (cmsg(3)).
  const bool goes =
      message.msg_controllen < sizeof(cmsghdr) || socket.type() != SOCK_DGRAM;
  return goes && !IsTooMany(message.msg_iovlen);
}

// Whether they may be put together: few bytes, all there, and nothing asked for that a short way
// does not know.
bool MayJoin(std::span<const iovec> parts, int flags) {
  if ((flags & ~kUsualFlags) != 0) return false;
  size_t bytes = 0;
  for (const iovec& part : parts) {
    if (part.iov_len > kMostJoined || part.iov_base == nullptr) return false;
    bytes += part.iov_len;
    if (bytes > kMostJoined) return false;
  }
  return true;
}

// Of parts to the peer, or `to`. kLongWay: it does not lead there.
ssize_t SendShort(int fd, std::span<const iovec> parts, int flags, const sockaddr* to,
                  socklen_t length) {
  if (parts.size() == 1 && parts[0].iov_base != nullptr) {
    return SendOurs(fd, parts[0].iov_base, parts[0].iov_len, flags, to, length);
  }
  // Of files of the kernel's nothing is copied.
  const Descriptors::Way* const way = Descriptors::WayTo(fd);
  if (way == nullptr || way->door() == nullptr || !MayJoin(parts, flags)) return kLongWay;
  std::array<uint8_t, kMostJoined> joined;
  size_t bytes = 0;
  for (const iovec& part : parts) {
    memcpy(joined.data() + bytes, part.iov_base, part.iov_len);
    bytes += part.iov_len;
  }
  return SendOurs(fd, joined.data(), bytes, flags, to, length);
}

// Of recvmmsg(): looked at after each message, and what is left of it is left in `timeout`.
class TimeOfMany {
 public:
  explicit TimeOfMany(timespec* timeout) : timeout_(timeout) {
    if (timeout == nullptr) return;
    start_ = SteadyNow();
    limit_ = SpanOf(*timeout);
  }

  bool IsOver() {
    if (timeout_ == nullptr) return false;
    const base::Nanoseconds passed = SteadyNow() - start_;
    const base::Nanoseconds left = base::Later(limit_ - passed, base::Nanoseconds(0));
    *timeout_ = ToTimespec(left);
    return left == base::Nanoseconds(0);
  }

 private:
  timespec* const timeout_;
  base::Nanoseconds start_{0};
  base::Nanoseconds limit_{0};
};

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
  if (message == nullptr || (message->msg_iov == nullptr && message->msg_iovlen != 0)) return true;
  return message->msg_name != nullptr && static_cast<int>(message->msg_namelen) < 0;
}

}  // namespace

ssize_t ReceivePartsOurs(int fd, const iovec* parts, int count, int flags) {
  if (IsWrong(parts, count)) return kAskKernel;
  const std::span all(parts, static_cast<size_t>(count));
  if (all.size() == 1 && all[0].iov_len != 0) {
    return ReceiveOurs(fd, all[0].iov_base, all[0].iov_len, flags);
  }
  const auto ours = OursByFd(fd);
  if (ours == nullptr) return kAskKernel;
  if (IsNothing(all)) return 0;
  return ReceiveInto(*ours, all, flags, nullptr, nullptr);
}

ssize_t SendPartsOurs(int fd, const iovec* parts, int count, int flags) {
  if (IsWrong(parts, count)) return kAskKernel;
  const std::span all(parts, static_cast<size_t>(count));
  if (!IsNothing(all)) {
    const ssize_t sent = SendShort(fd, all, flags, nullptr, 0);
    if (sent != kLongWay) return sent;
  }
  const auto ours = OursByFd(fd);
  if (ours == nullptr) return kAskKernel;
  if (IsNothing(all)) return 0;
  return SendFrom(*ours, all, flags, nullptr, 0);
}

ssize_t ReceiveMessageOurs(int fd, msghdr* message, int flags) {
  if (IsWrong(message)) return kAskKernel;
  const auto call = [&](Socket& socket, RingDoor* door) {
    const iovec& part = message->msg_iov[0];
    const std::span<uint8_t> to(static_cast<uint8_t*>(part.iov_base), part.iov_len);
    Received about;
    const ssize_t got = socket.ReceiveMessageShort(door, to, flags, &about);
    if (got == kGiveFirst) {
      return GiveAndCall(&socket, [&](Socket& ours) {
        return ReceiveMessage(ours, message, flags);
      });
    }
    if (got >= 0) Tell(socket, about, about.length > to.size() ? MSG_TRUNC : 0, message);
    return got;
  };
  const ssize_t got = message->msg_iovlen == 1 ? ByShortWay(fd, call) : kLongWay;
  return got != kLongWay ? got : ReceiveMessageLong(fd, message, flags);
}

int ReceiveMessagesOurs(int fd, mmsghdr* messages, unsigned count, int flags, timespec* timeout) {
  const auto ours = messages == nullptr ? nullptr : OursByFd(fd);
  if (ours == nullptr || ours->path() == Path::kKernel) return kAskKernel;
  if (!IsValid(timeout)) return -EINVAL;
  // As Linux: an error that waits comes before anything else, but where those of the queue are
  // asked for, and one that comes later waits.
  const int error = (flags & MSG_ERRQUEUE) != 0 ? 0 : ours->TakePendingError();
  if (error != 0) return -error;
  TimeOfMany time(timeout);
  for (unsigned i = 0; i < count; ++i) {
    // As Linux: the first may block, with MSG_WAITFORONE no other; the time is looked at between.
    const int later = i > 0 && (flags & MSG_WAITFORONE) != 0 ? MSG_DONTWAIT : 0;
    const ssize_t got =
        ReceiveMessageOurs(fd, &messages[i].msg_hdr, (flags & ~MSG_WAITFORONE) | later);
    if (got < 0 && i == 0) return static_cast<int>(got);
    if (got < 0 && got != -EAGAIN && got != kAskKernel) ours->KeepError(static_cast<int>(-got));
    if (got < 0) return static_cast<int>(i);
    messages[i].msg_len = static_cast<unsigned>(got);
    if (time.IsOver()) return static_cast<int>(i + 1);
  }
  return static_cast<int>(count);
}

ssize_t SendMessageOurs(int fd, const msghdr* message, int flags) {
  if (IsWrong(message)) return kAskKernel;
  const bool has_control = message->msg_control != nullptr &&
                           message->msg_controllen >= sizeof(cmsghdr);
  const std::span<const iovec> parts(message->msg_iov, message->msg_iovlen);
  // Linux: an address of no length is none here, and a wrong one of sendto().
  const auto* const to =
      static_cast<const sockaddr*>(message->msg_namelen == 0 ? nullptr : message->msg_name);
  if (message->msg_controllen < sizeof(cmsghdr) && !parts.empty() && !IsTooMany(parts.size())) {
    const ssize_t sent = SendShort(fd, parts, flags, to, message->msg_namelen);
    if (sent != kLongWay) return sent;
  }
  const auto ours = OursByFd(fd);
  if (ours == nullptr) return kAskKernel;
  const bool wrong = has_control && HasWrongControl(*message);
  // One that the kernel's socket is to send, which does not know of every error.
  const bool kernels = has_control && !wrong && ours->type() == SOCK_DGRAM &&
                       ours->path() == Path::kOffloaded;
  if (kernels) {
    if (const int error = ours->TakePendingError(); error != 0) return -error;
    return ours->SendByKernel(*message, flags);
  }
  if (!IsPlain(*ours, *message)) return kAskKernel;
  return SendFrom(*ours, parts, flags, to, message->msg_namelen, wrong);
}

}  // namespace xtreme::sockets
