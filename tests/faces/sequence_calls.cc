// SPDX-License-Identifier: Apache-2.0

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <netinet/tcp.h>
#include <netinet/udp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

#include "tests/faces/sequences.h"

namespace xtreme::faces {
namespace {

std::string SumOf(ssize_t got, size_t size) {
  return got > 0 ? Sum(received_bytes, std::min(got, static_cast<ssize_t>(size))) : "";
}

// Bytes that are acknowledged later, or never.
void AwaitAcknowledgement(int fd) {
  constexpr int kMost = 200;
  int bytes = 0;
  for (int i = 0; i < kMost && ioctl(fd, SIOCOUTQ, &bytes) == 0 && bytes != 0; ++i) usleep(1000);
}

bool HasEnded(const Slot& slot) {
  pollfd one{.fd = slot.fd, .events = 0};
  return poll(&one, 1, 0) > 0;
}

ssize_t SendFile(int fd, const char* bytes, size_t length) {
  const int file = memfd_create("sequence", MFD_CLOEXEC);
  if (write(file, bytes, length) != static_cast<ssize_t>(length)) return -1;
  off_t from = 0;
  const ssize_t sent = sendfile(fd, file, &from, length);
  const int error = errno;
  printf("to %ld ", static_cast<long>(from));
  close(file);
  errno = error;
  return sent;
}

// What came beside the bytes: kinds, and what of them the host does not choose.
std::string Beside(msghdr& message) {
  std::string all = " flags " + std::to_string(message.msg_flags & ~MSG_CMSG_CLOEXEC) + " name " +
                    std::to_string(message.msg_namelen);
  for (cmsghdr* each = CMSG_FIRSTHDR(&message); each != nullptr;
       each = CMSG_NXTHDR(&message, each)) {
    all += " with " + std::to_string(each->cmsg_level) + "/" + std::to_string(each->cmsg_type) +
           " of " + std::to_string(each->cmsg_len);
    if (each->cmsg_level != IPPROTO_IP || each->cmsg_type != IP_PKTINFO) continue;
    in_pktinfo about{};
    memcpy(&about, CMSG_DATA(each), sizeof about);
    all += " to " + std::string(inet_ntoa(about.ipi_addr));
    all += " by " + std::string(inet_ntoa(about.ipi_spec_dst));
  }
  return all;
}

}  // namespace

void SendSome(Sequence& all, Slot& slot) {
  Run& run = all.run;
  const bool stream = slot.kind != Kind::kDatagrams;
  const int size = stream ? run.Of({0, 1, 7, 100, 1000, 1460, 1973})
                          : run.Of({0, 1, 7, 100, 1000, 1471, 1472, 65'508});
  // MSG_MORE of a connection holds bytes back for a time.
  const int more = stream ? 0 : MSG_MORE;
  const int flags = run.Of<int>({0, 0, MSG_NOSIGNAL, MSG_DONTWAIT, MSG_EOR, MSG_CONFIRM, more});
  const auto length = static_cast<size_t>(size);
  char* const bytes = const_cast<char*>(Pattern(size));
  iovec parts[] = {{bytes, length / 3}, {nullptr, 0}, {bytes + length / 3, length - length / 3}};
  msghdr message{.msg_iov = parts, .msg_iovlen = 3};
  mmsghdr messages[2] = {{.msg_hdr = message}, {.msg_hdr = message}};
  errno = 0;
  // Of a connection the first may be answered by a reset before the second.
  switch (run.Pick(stream ? 8 : 9)) {
    case 0:
      return Say("write", write(slot.fd, bytes, length));
    case 1:
      return Say("writev", writev(slot.fd, parts, 3));
    case 2:
      return Say("sendmsg", sendmsg(slot.fd, &message, flags));
    case 3:
      return Say("sendto nobody", sendto(slot.fd, bytes, length, flags, nullptr, 0));
    case 8: {
      const int sent = sendmmsg(slot.fd, messages, 2, flags);
      return Say("sendmmsg", sent,
                 sent == 2 ? std::to_string(messages[0].msg_len + messages[1].msg_len) : "");
    }
    case 4:
      return Say("sendfile", SendFile(slot.fd, bytes, std::min<size_t>(length, 1000)));
    case 5:
      return Say("pwritev2", pwritev2(slot.fd, parts, 3, -1, 0));
    default:
      return Say("send", send(slot.fd, bytes, length, flags));
  }
}

void SendSomeTo(Sequence& all, Slot& slot) {
  Run& run = all.run;
  const int size = run.Of({0, 1, 100, 1472});
  sockaddr_in to = PeerAt(all, kPeerUdpPort);
  socklen_t length = sizeof to;
  switch (run.Pick(10)) {
    case 0:
      to.sin_port = 0;
      break;
    case 1:
      to.sin_family = run.Of<sa_family_t>({AF_UNIX, AF_INET6});
      break;
    case 2:
      length = run.Of({0u, 4u, 8u, 15u, 17u, 28u, 128u});
      break;
    default:
      break;
  }
  // An address longer than this one's.
  char bytes[256] = "";
  memcpy(bytes, &to, sizeof to);
  printf("%d to %d/%u: ", size, to.sin_family, length);
  // Linux looks at no address of a datagram that was begun (MSG_MORE).
  if (slot.kind == Kind::kDatagrams) send(slot.fd, "", 0, MSG_NOSIGNAL);
  Say("sendto", sendto(slot.fd, Pattern(size), static_cast<size_t>(size), MSG_NOSIGNAL,
                       reinterpret_cast<const sockaddr*>(bytes), length));
}

void ReceiveSome(Sequence& all, Slot& slot) {
  Run& run = all.run;
  const bool stream = slot.kind != Kind::kDatagrams;
  const auto size = static_cast<size_t>(run.Of({0, 1, 10, 100, 1000, 65'536}));
  const int flags =
      MSG_DONTWAIT | run.Of<int>({0, 0, 0, 0, MSG_PEEK, MSG_TRUNC, MSG_PEEK | MSG_TRUNC,
                                  MSG_WAITALL, MSG_PEEK | MSG_WAITALL, MSG_NOSIGNAL});
  // MSG_TRUNC of a connection throws bytes away (tcp(7)), where nothing is written.
  const bool kept = !stream || (flags & MSG_TRUNC) == 0;
  char* const bytes = received_bytes;
  iovec parts[] = {{bytes, size / 2}, {nullptr, 0}, {bytes + size / 2, size - size / 2}};
  sockaddr_in from{};
  socklen_t room = run.Of({16u, 16u, 16u, 8u, 0u, 28u});
  ssize_t got = 0;
  switch (run.Pick(6)) {
    case 0:
      got = read(slot.fd, bytes, size);
      return Say("read", got, SumOf(got, size));
    case 1:
      got = readv(slot.fd, parts, 3);
      return Say("readv", got, SumOf(got, size));
    case 2:
      got = recvfrom(slot.fd, bytes, size, flags, Generic(&from), &room);
      return Say("recvfrom", got,
                 (kept ? SumOf(got, size) : "") + " from " + std::to_string(ntohs(from.sin_port)) +
                     (got >= 0 ? " in " + std::to_string(room) : ""));
    case 3:
      got = preadv2(slot.fd, parts, 3, -1, RWF_NOWAIT);
      return Say("preadv2", got, SumOf(got, size));
    default:
      got = recv(slot.fd, bytes, size, flags);
      return Say("recv", got, kept ? SumOf(got, size) : "");
  }
}

void ReceiveMessages(Sequence& all, Slot& slot) {
  Run& run = all.run;
  const auto size = static_cast<size_t>(run.Of({0, 10, 100, 2000}));
  const int flags = MSG_DONTWAIT | run.Of<int>({0, 0, MSG_PEEK, MSG_TRUNC, MSG_CMSG_CLOEXEC});
  const size_t control_size = run.Of<size_t>({0, 12, 20, 32, 50, 100, 200});
  alignas(cmsghdr) char control[2][200] = {};
  sockaddr_in from[2] = {};
  iovec parts[2] = {{received_bytes, size}, {received_bytes + 2000, size}};
  mmsghdr messages[2] = {};
  for (size_t i = 0; i < 2; ++i) {
    messages[i].msg_hdr = {.msg_name = run.Pick(5) ? &from[i] : nullptr,
                           .msg_namelen = run.Of({16u, 16u, 0u, 8u}),
                           .msg_iov = &parts[i],
                           .msg_iovlen = 1,
                           .msg_control = control_size == 0 ? nullptr : control[i],
                           .msg_controllen = control_size};
  }
  const bool kept = slot.kind == Kind::kDatagrams || (flags & MSG_TRUNC) == 0;
  if (run.Pick(2) == 0) {
    const ssize_t got = recvmsg(slot.fd, &messages[0].msg_hdr, flags);
    return Say("recvmsg", got,
               got < 0 ? "" : (kept ? SumOf(got, size) : "") + Beside(messages[0].msg_hdr));
  }
  timespec limit{.tv_sec = 0, .tv_nsec = run.Of({0, 0, 1'000'000'000})};
  const int got = recvmmsg(slot.fd, messages, 2, flags, run.Pick(2) ? &limit : nullptr);
  std::string told;
  for (int i = 0; i < got; ++i) {
    told += std::to_string(messages[i].msg_len) + Beside(messages[i].msg_hdr) + "; ";
  }
  Say("recvmmsg", got, told);
}

// Blocking, with a time limit.
void ReceiveWaiting(Sequence& all, Slot& slot) {
  Run& run = all.run;
  const timeval limit{.tv_sec = 0, .tv_usec = 20'000};
  const timeval none{};
  setsockopt(slot.fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  fcntl(slot.fd, F_SETFL, O_RDWR);
  // Not of nothing: Linux waits, and then says that it has it.
  const auto size = static_cast<size_t>(run.Of({1, 1, 100, 5000}));
  const int flags = run.Of<int>(
      {0, 0, MSG_WAITALL, MSG_PEEK, MSG_PEEK | MSG_WAITALL, MSG_TRUNC | MSG_WAITALL, MSG_DONTWAIT});
  const ssize_t got = recv(slot.fd, received_bytes, size, flags);
  Say("recv, waiting", got, SumOf(got, size));
  fcntl(slot.fd, F_SETFL, O_RDWR | O_NONBLOCK);
  setsockopt(slot.fd, SOL_SOCKET, SO_RCVTIMEO, &none, sizeof none);
}

namespace {

struct Option {
  int level, name;
};
// Not among them: sizes of buffers and of segments, what only the kernel's socket knows.
constexpr Option kOptions[] = {
    {SOL_SOCKET, SO_ERROR},        {SOL_SOCKET, SO_ERROR},       {SOL_SOCKET, SO_TYPE},
    {SOL_SOCKET, SO_DOMAIN},       {SOL_SOCKET, SO_PROTOCOL},    {SOL_SOCKET, SO_ACCEPTCONN},
    {SOL_SOCKET, SO_KEEPALIVE},    {SOL_SOCKET, SO_BROADCAST},   {SOL_SOCKET, SO_REUSEADDR},
    {SOL_SOCKET, SO_OOBINLINE},    {SOL_SOCKET, SO_PRIORITY},    {SOL_SOCKET, SO_RCVLOWAT},
    {SOL_SOCKET, SO_SNDLOWAT},     {SOL_SOCKET, SO_TIMESTAMP},   {SOL_SOCKET, SO_TIMESTAMPNS},
    {SOL_SOCKET, SO_LINGER},       {SOL_SOCKET, SO_RCVTIMEO},    {SOL_SOCKET, SO_SNDTIMEO},
    {SOL_SOCKET, SO_BINDTODEVICE}, {SOL_SOCKET, SO_PEEK_OFF},    {SOL_SOCKET, SO_BUSY_POLL},
    {SOL_SOCKET, SO_RXQ_OVFL},     {SOL_SOCKET, SO_PASSCRED},    {SOL_SOCKET, SO_PEERNAME},
    {SOL_SOCKET, SO_DONTROUTE},    {SOL_SOCKET, 9999},           {9999, 1},
    {IPPROTO_IP, IP_TTL},          {IPPROTO_IP, IP_TOS},         {IPPROTO_IP, IP_MTU},
    {IPPROTO_IP, IP_MTU_DISCOVER}, {IPPROTO_IP, IP_PKTINFO},     {IPPROTO_IP, IP_MULTICAST_IF},
    {IPPROTO_IP, IP_MULTICAST_TTL}, {IPPROTO_IP, IP_MULTICAST_LOOP},
    {IPPROTO_IP, IP_OPTIONS},      {IPPROTO_IP, IP_ADD_MEMBERSHIP},
    {IPPROTO_TCP, TCP_NODELAY},    {IPPROTO_TCP, TCP_CORK},      {IPPROTO_TCP, TCP_KEEPIDLE},
    {IPPROTO_TCP, TCP_KEEPINTVL},  {IPPROTO_TCP, TCP_KEEPCNT},   {IPPROTO_TCP, TCP_USER_TIMEOUT},
    {IPPROTO_TCP, TCP_SYNCNT},     {IPPROTO_TCP, TCP_DEFER_ACCEPT},
    {IPPROTO_TCP, TCP_LINGER2},    {IPPROTO_TCP, TCP_CONGESTION}, {IPPROTO_TCP, TCP_FASTOPEN},
    {IPPROTO_TCP, TCP_NOTSENT_LOWAT}, {IPPROTO_UDP, UDP_CORK},
};

std::string Hex(const char* bytes, socklen_t length) {
  std::string all;
  for (socklen_t i = 0; i < length; ++i) {
    char two[3];
    snprintf(two, sizeof two, "%02x", static_cast<uint8_t>(bytes[i]));
    all += two;
  }
  return all;
}

}  // namespace

void AskOption(Sequence& all, Slot& slot) {
  Run& run = all.run;
  const Option option = run.Of(kOptions);
  // A connection that was accepted has what came with SYN there.
  const bool of_groups = option.level == IPPROTO_IP && option.name >= IP_MULTICAST_IF;
  if (of_groups && slot.kind != Kind::kDatagrams) return;
  // The host's choice.
  const bool name = option.name == SO_PEERNAME || option.name == TCP_CONGESTION;
  char value[128];
  memset(value, 0x5A, sizeof value);
  socklen_t length = run.Of({4u, 4u, 4u, 0u, 1u, 2u, 8u, 16u, 100u});
  char what[64];
  snprintf(what, sizeof what, "getsockopt %d %d in %u", option.level, option.name, length);
  errno = 0;
  const int result = getsockopt(slot.fd, option.level, option.name, value, &length);
  Say(what, result,
      result == 0 ? (name ? "" : Hex(value, std::min(length, 100u))) + " " + std::to_string(length)
                  : "");
}

namespace {

struct Change {
  int level, name, value;
};
constexpr Change kChanges[] = {
    {SOL_SOCKET, SO_KEEPALIVE, 1},      {SOL_SOCKET, SO_KEEPALIVE, 0},
    {SOL_SOCKET, SO_BROADCAST, 1},      {SOL_SOCKET, SO_BROADCAST, 0},
    {SOL_SOCKET, SO_TIMESTAMP, 1},      {SOL_SOCKET, SO_TIMESTAMP, 0},
    {SOL_SOCKET, SO_TIMESTAMPNS, 1},    {SOL_SOCKET, SO_TIMESTAMPNS, 0},
    {SOL_SOCKET, SO_RCVLOWAT, 20},
    {SOL_SOCKET, SO_RCVLOWAT, 0},       {SOL_SOCKET, SO_RCVLOWAT, 1},
    {SOL_SOCKET, SO_OOBINLINE, 1},      {SOL_SOCKET, SO_PEEK_OFF, -1},
    {SOL_SOCKET, SO_TYPE, 1},
    {SOL_SOCKET, SO_ERROR, 1},          {SOL_SOCKET, SO_PRIORITY, 3},
    {SOL_SOCKET, SO_PRIORITY, 9},       {SOL_SOCKET, SO_RCVTIMEO, 0},
    {SOL_SOCKET, SO_REUSEADDR, 1},      {SOL_SOCKET, SO_RXQ_OVFL, 1},
    {IPPROTO_IP, IP_TTL, 0},            {IPPROTO_IP, IP_TTL, 33},
    {IPPROTO_IP, IP_TTL, 300},          {IPPROTO_IP, IP_TTL, -1},
    {IPPROTO_IP, IP_TOS, 0x28},         {IPPROTO_IP, IP_TOS, 0x03},
    {IPPROTO_IP, IP_PKTINFO, 1},        {IPPROTO_IP, IP_PKTINFO, 0},
    {IPPROTO_IP, IP_MULTICAST_TTL, 3},  {IPPROTO_IP, IP_MULTICAST_TTL, -1},
    {IPPROTO_IP, IP_MULTICAST_TTL, 256}, {IPPROTO_IP, IP_MULTICAST_LOOP, 0},
    {IPPROTO_IP, IP_MULTICAST_LOOP, 7}, {IPPROTO_IP, IP_MTU_DISCOVER, 9},
    {IPPROTO_TCP, TCP_NODELAY, 1},      {IPPROTO_TCP, TCP_KEEPIDLE, 0},
    {IPPROTO_TCP, TCP_KEEPIDLE, 9},     {IPPROTO_TCP, TCP_KEEPINTVL, 40'000},
    {IPPROTO_TCP, TCP_KEEPCNT, 5},      {IPPROTO_TCP, TCP_KEEPCNT, 128},
    {IPPROTO_TCP, TCP_CORK, 0},         {IPPROTO_TCP, TCP_QUICKACK, 1},
    {IPPROTO_TCP, TCP_USER_TIMEOUT, -1}, {IPPROTO_TCP, TCP_USER_TIMEOUT, 50'000},
    {IPPROTO_TCP, TCP_SYNCNT, 0},       {IPPROTO_TCP, TCP_SYNCNT, 3},
    {IPPROTO_TCP, TCP_LINGER2, -1},
    {SOL_SOCKET, 9999, 1},              {9999, 1, 1},
};

void SetTime(Run& run, int fd) {
  const timeval time{.tv_sec = run.Of({0, 0, 1, -1}), .tv_usec = run.Of({0, 1, 3'999, 1'000'000})};
  const int name = run.Of<int>({SO_RCVTIMEO, SO_SNDTIMEO});
  Say("set a time", setsockopt(fd, SOL_SOCKET, name, &time, run.Of({16u, 16u, 8u, 20u})));
  timeval told{};
  socklen_t length = run.Of({16u, 16u, 8u, 20u});
  const int result = getsockopt(fd, SOL_SOCKET, name, &told, &length);
  Say("and ask", result,
      result == 0 ? std::to_string(told.tv_sec) + "." + std::to_string(told.tv_usec) + " in " +
                        std::to_string(length)
                  : "");
}

// close() is then to reset, or not.
void SetLinger(Run& run, int fd) {
  const linger now{.l_onoff = run.Pick(2), .l_linger = 0};
  Say("SO_LINGER", setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, run.Of({8u, 8u, 4u})),
      std::to_string(now.l_onoff));
}

void ChangeMembership(Run& run, int fd) {
  ip_mreq membership{};
  inet_pton(AF_INET, run.Pick(5) ? kDifferentialGroup : "10.1.1.1", &membership.imr_multiaddr);
  membership.imr_interface = run.Pick(3) ? run.own.sin_addr : in_addr{};
  const bool joins = run.Pick(3) != 0;
  Say(joins ? "join" : "leave",
      setsockopt(fd, IPPROTO_IP, joins ? IP_ADD_MEMBERSHIP : IP_DROP_MEMBERSHIP, &membership,
                 run.Of({8u, 8u, 8u, 4u})));
}

}  // namespace

void SetOption(Sequence& all, Slot& slot) {
  Run& run = all.run;
  if (slot.kind == Kind::kDatagrams && run.Pick(4) == 0) return ChangeMembership(run, slot.fd);
  if (run.Pick(12) == 0) return SetTime(run, slot.fd);
  if (run.Pick(12) == 0) return SetLinger(run, slot.fd);
  const Change change = run.Of(kChanges);
  // Linux begins to take them when it gets to it, and then of what it likes.
  const bool times = change.name == SO_TIMESTAMP || change.name == SO_TIMESTAMPNS;
  if (times && change.level == SOL_SOCKET && slot.kind != Kind::kDatagrams) return;
  const socklen_t length = run.Of({4u, 4u, 4u, 4u, 0u, 1u, 2u, 8u});
  const int value[2] = {change.value, 0};
  char what[96];
  snprintf(what, sizeof what, "setsockopt %d %d %d in %u", change.level, change.name, change.value,
           length);
  Say(what, setsockopt(slot.fd, change.level, change.name, value, length));
}

void AskName(Sequence& all, Slot& slot) {
  Run& run = all.run;
  for (const bool own : {true, false}) {
    sockaddr_in name{};
    socklen_t length = run.Of({16u, 16u, 100u, 8u, 4u, 0u});
    const bool full = length >= 8;
    const int result = own ? getsockname(slot.fd, Generic(&name), &length)
                           : getpeername(slot.fd, Generic(&name), &length);
    const std::string host = full ? inet_ntoa(name.sin_addr) : "";
    Say(own ? "getsockname" : "getpeername", result,
        result == 0 ? host + " in " + std::to_string(length) : "");
  }
}

void AskNumbers(Sequence& all, Slot& slot) {
  Run& run = all.run;
  int number = -1;
  int result = 0;
  switch (run.Pick(6)) {
    case 0:
    case 1:
      result = ioctl(slot.fd, FIONREAD, &number);
      return Say("FIONREAD", result, result == 0 ? std::to_string(number) : "");
    case 2:
      AwaitAcknowledgement(slot.fd);
      result = ioctl(slot.fd, SIOCOUTQ, &number);
      // Of one that has ended Linux says what it counted last.
      // Of datagrams what the host has not freed yet.
      if (slot.kind == Kind::kDatagrams || HasEnded(slot)) return Say("SIOCOUTQ", result);
      return Say("SIOCOUTQ", result, std::to_string(number));
    case 3:
      result = ioctl(slot.fd, SIOCATMARK, &number);
      return Say("SIOCATMARK", result, result == 0 ? std::to_string(number) : "");
    case 4: {
      tcp_info about{};
      socklen_t length = sizeof about;
      AwaitAcknowledgement(slot.fd);
      result = getsockopt(slot.fd, IPPROTO_TCP, TCP_INFO, &about, &length);
      return Say("TCP_INFO", result, result == 0 ? std::to_string(about.tcpi_state) : "");
    }
    default:
      return Say("F_GETFL", fcntl(slot.fd, F_GETFL));
  }
}

void AskError(Slot& slot) {
  int error = -1;
  socklen_t length = sizeof error;
  const int result = getsockopt(slot.fd, SOL_SOCKET, SO_ERROR, &error, &length);
  Say("SO_ERROR", result, std::to_string(error));
}

void ShutDown(Sequence& all, Slot& slot) {
  const int how = all.run.Of<int>({SHUT_RD, SHUT_WR, SHUT_WR, SHUT_RDWR, 99, -1});
  Say(("shutdown " + std::to_string(how)).c_str(), shutdown(slot.fd, how));
  // Linux wakes who waits once more when a FIN is acknowledged.
  if (slot.kind == Kind::kStream) AwaitAcknowledgement(slot.fd);
}

void Misuse(Sequence& all, Slot& slot) {
  Run& run = all.run;
  sockaddr_in address = run.Pick(2) ? run.peer : run.own;
  address.sin_port = 0;
  address.sin_family = run.Of<sa_family_t>({AF_INET, AF_INET, AF_UNSPEC, AF_INET6});
  const socklen_t length = run.Of({16u, 16u, 28u, 8u, 3u, 1u, 0u});
  switch (run.Pick(7)) {
    case 0:
      return Say("bind again", bind(slot.fd, Generic(&address), length));
    case 1:
      return Say("accept4, wrong flags", accept4(slot.fd, nullptr, nullptr, 1));
    case 2:
      return Say("listen", slot.kind == Kind::kDatagrams ? listen(slot.fd, 1) : 0);
    case 3:
      return Say("recv of urgent bytes", recv(slot.fd, received_bytes, 1, MSG_OOB | MSG_DONTWAIT));
    case 4:
      return Say("lseek", lseek(slot.fd, 0, SEEK_CUR));
    case 5:
      return Say("pread", pread(slot.fd, received_bytes, 10, 0));
    default:
      // Of a connection: crossing_subject, calls_subject.
      if (slot.kind != Kind::kDatagrams) return AskName(all, slot);
      address.sin_port = htons(kPeerUdpPort);
      printf("%d/%u: ", address.sin_family, length);
      // What waits is lost to a ring that does not lead to the new peer.
      AskError(slot);
      while (recv(slot.fd, received_bytes, 1, MSG_DONTWAIT) >= 0) continue;
      return Say("connect anew", connect(slot.fd, Generic(&address), length));
  }
}

}  // namespace xtreme::faces
