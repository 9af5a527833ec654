// SPDX-License-Identifier: Apache-2.0
//
// A program that makes seeded sequences of socket calls and writes down what each said: run by the
// kernel and by rings, its transcripts are to be the same.
//
//   differential_subject SOCKET OWN-ADDRESS PEER-ADDRESS SEED RUNS
//
// Calls never block. Threads: one.

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>

#include "tests/faces/transcript.h"

namespace xtreme::faces {
namespace {

// --- Calls ---

void Send(Run& run) {
  const int size = run.Of({0, 1, 7, 100, 1000, 1400, 1460, 1973, 65'508});
  if (run.stream && size > 2000) return;
  const int flags = run.Of<int>({0, 0, 0, MSG_NOSIGNAL, MSG_DONTWAIT, MSG_DONTWAIT | MSG_NOSIGNAL});
  const char* const bytes = Pattern(size % 70'000);
  const auto length = static_cast<size_t>(size);
  iovec parts[] = {{const_cast<char*>(bytes), length / 3},
                   {nullptr, 0},
                   {const_cast<char*>(bytes) + length / 3, length - length / 3}};
  msghdr message{.msg_iov = parts, .msg_iovlen = 3};
  errno = 0;
  switch (run.Pick(5)) {
    case 0:
      return Say("send", send(run.fd, bytes, length, flags));
    case 1:
      return Say("write", write(run.fd, bytes, length));
    case 2:
      return Say("writev", writev(run.fd, parts, 3));
    case 3:
      return Say("sendmsg", sendmsg(run.fd, &message, flags));
    default:
      return Say("sendto nobody", sendto(run.fd, bytes, length, flags, nullptr, 0));
  }
}

void SendTo(Run& run) {
  const int size = run.Of({0, 1, 100, 1472, 1473, 1999});
  sockaddr_in to = run.peer;
  socklen_t length = sizeof to;
  switch (run.Pick(8)) {
    case 0:
      to.sin_port = 0;
      break;
    case 1:
      to.sin_family = AF_UNIX;
      break;
    case 2:
      length = 4;
      break;
    default:
      break;
  }
  Say("sendto",
      sendto(run.fd, Pattern(size), static_cast<size_t>(size), MSG_NOSIGNAL, Generic(&to), length));
}

void Receive(Run& run) {
  static char bytes[70'000];
  const auto size = static_cast<size_t>(run.Of({0, 1, 10, 100, 1000, 65'536}));
  const int flags = MSG_DONTWAIT | run.Of<int>({0, 0, 0, 0, MSG_PEEK, MSG_TRUNC,
                                                MSG_PEEK | MSG_TRUNC, MSG_WAITALL});
  // MSG_TRUNC of a connection throws bytes away (tcp(7)), where nothing is written.
  const bool kept = !run.stream || (flags & MSG_TRUNC) == 0;
  const auto sum = [&](ssize_t got) {
    return got > 0 && kept ? Sum(bytes, std::min<ssize_t>(got, static_cast<ssize_t>(size))) : "";
  };
  ssize_t got = 0;
  sockaddr_in from{};
  socklen_t length = sizeof from;
  iovec parts[] = {{bytes, size / 2}, {bytes + size / 2, size - size / 2}};
  switch (run.Pick(5)) {
    case 0:
      got = recv(run.fd, bytes, size, flags);
      return Say("recv", got, sum(got));
    case 1:
      got = read(run.fd, bytes, size);
      return Say("read", got, got > 0 ? Sum(bytes, got) : "");
    case 2:
      got = readv(run.fd, parts, 2);
      return Say("readv", got, got > 0 ? Sum(bytes, got) : "");
    case 3: {
      got = recvfrom(run.fd, bytes, size, flags, Generic(&from), &length);
      const std::string who =
          got >= 0 && !run.stream ? " port " + std::to_string(ntohs(from.sin_port)) : "";
      return Say("recvfrom", got,
                 sum(got) + who + (got >= 0 ? " length " + std::to_string(length) : ""));
    }
    default: {
      msghdr message{
          .msg_name = &from, .msg_namelen = sizeof from, .msg_iov = parts, .msg_iovlen = 2};
      got = recvmsg(run.fd, &message, flags);
      const std::string flag =
          got >= 0 ? " flags " + std::to_string(message.msg_flags & ~MSG_CMSG_CLOEXEC) : "";
      return Say("recvmsg", got, sum(got) + flag);
    }
  }
}

void Poll(Run& run) {
  pollfd one{.fd = run.fd,
             .events = run.Of<int16_t>({POLLIN, POLLOUT, POLLIN | POLLOUT | POLLRDHUP, POLLPRI, 0,
                                        POLLIN | POLLRDNORM | POLLOUT | POLLWRNORM})};
  const int ready = poll(&one, 1, 0);
  char events[64];
  snprintf(events, sizeof events, "of %#x: %#x", one.events, one.revents);
  Say("poll", ready, events);
}

void Select(Run& run) {
  fd_set read{};
  fd_set write{};
  fd_set except{};
  for (fd_set* set : {&read, &write, &except}) FD_SET(run.fd, set);
  timeval now{};
  const int ready = select(run.fd + 1, &read, &write, run.Pick(2) ? &except : nullptr, &now);
  Say("select", ready,
      std::string(FD_ISSET(run.fd, &read) ? "r" : "") + (FD_ISSET(run.fd, &write) ? "w" : ""));
}

void ChangeSet(Run& run) {
  const int operation = run.Of<int>({EPOLL_CTL_ADD, EPOLL_CTL_ADD, EPOLL_CTL_MOD, EPOLL_CTL_DEL});
  const uint32_t mode = run.Of<uint32_t>({0, EPOLLET, EPOLLONESHOT, EPOLLET | EPOLLONESHOT});
  epoll_event event{
      .events = mode | run.Of<uint32_t>({EPOLLIN, EPOLLOUT, EPOLLIN | EPOLLOUT | EPOLLRDHUP, 0}),
      .data = {.u64 = 0x0102030405060708}};
  char what[64];
  snprintf(what, sizeof what, "epoll_ctl %d of %#x", operation, event.events);
  Say(what, epoll_ctl(run.set, operation, run.fd, &event));
}

void WaitSet(Run& run) {
  epoll_event events[4];
  const int ready = epoll_wait(run.set, events, 4, 0);
  char told[64] = "";
  if (ready > 0)
    snprintf(told, sizeof told, "%#x for %llx", events[0].events,
             static_cast<unsigned long long>(events[0].data.u64));
  Say("epoll_wait", ready, told);
}

// The peer may take its time to acknowledge a FIN, and Linux wakes who waits once more when it has.
void WaitForAcknowledgement(int fd) {
  constexpr int kMost = 200;  // Unread bytes at a peer may keep it for ever.
  int bytes = 0;
  for (int i = 0; i < kMost && ioctl(fd, SIOCOUTQ, &bytes) == 0 && bytes != 0; ++i) usleep(1000);
}

void Shut(Run& run) {
  const int how = run.Of<int>({SHUT_RD, SHUT_WR, SHUT_WR, SHUT_RDWR, 99});
  Say(("shutdown " + std::to_string(how)).c_str(), shutdown(run.fd, how));
  if (run.stream) WaitForAcknowledgement(run.fd);
}

void Ask(Run& run) {
  struct Option {
    int level, name;
  };
  const Option option = run.Of<Option>({{SOL_SOCKET, SO_ERROR},
                                        {SOL_SOCKET, SO_ERROR},
                                        {SOL_SOCKET, SO_TYPE},
                                        {SOL_SOCKET, SO_DOMAIN},
                                        {SOL_SOCKET, SO_PROTOCOL},
                                        {SOL_SOCKET, SO_ACCEPTCONN},
                                        {SOL_SOCKET, SO_KEEPALIVE},
                                        {SOL_SOCKET, SO_REUSEADDR},
                                        {SOL_SOCKET, SO_BROADCAST},
                                        {IPPROTO_TCP, TCP_NODELAY},
                                        {IPPROTO_IP, IP_TTL},
                                        {IPPROTO_IP, IP_MTU_DISCOVER},
                                        {SOL_SOCKET, 9999},
                                        {9999, 1}});
  int value = -1;
  socklen_t length = run.Of({4u, 4u, 4u, 2u, 8u});
  const int result = getsockopt(run.fd, option.level, option.name, &value, &length);
  char what[96];
  snprintf(what, sizeof what, "getsockopt %d %d", option.level, option.name);
  Say(what, result, result == 0 ? std::to_string(value) + " in " + std::to_string(length) : "");
}

void Set(Run& run) {
  struct Option {
    int level, name, value;
  };
  const Option option = run.Of<Option>({{SOL_SOCKET, SO_KEEPALIVE, 1},
                                        {SOL_SOCKET, SO_BROADCAST, 1},
                                        {IPPROTO_TCP, TCP_NODELAY, 1},
                                        {IPPROTO_IP, IP_TTL, 0},
                                        {IPPROTO_IP, IP_TTL, 33},
                                        {IPPROTO_IP, IP_TTL, 300},
                                        {SOL_SOCKET, SO_TYPE, 1},
                                        {IPPROTO_TCP, TCP_KEEPIDLE, 0},
                                        {IPPROTO_TCP, TCP_KEEPIDLE, 9},
                                        {IPPROTO_TCP, TCP_CORK, 0},
                                        {IPPROTO_TCP, TCP_QUICKACK, 1},
                                        {SOL_SOCKET, SO_REUSEADDR, 1}});
  char what[96];
  snprintf(what, sizeof what, "setsockopt %d %d %d", option.level, option.name, option.value);
  Say(what, setsockopt(run.fd, option.level, option.name, &option.value, run.Of({4u, 4u, 4u, 2u})));
}

void Name(Run& run) {
  sockaddr_in name{};
  socklen_t length = run.Of({16u, 16u, 100u, 4u});
  const bool full = length >= 16;
  const int own = getsockname(run.fd, Generic(&name), &length);
  Say("getsockname", own,
      full ? inet_ntoa(name.sin_addr) + std::string(" in ") + std::to_string(length) : "");
  length = sizeof name;
  const int peer = getpeername(run.fd, Generic(&name), &length);
  Say("getpeername", peer, peer == 0 ? inet_ntoa(name.sin_addr) : "");
}

void Control(Run& run) {
  int number = -1;
  switch (run.Pick(3)) {
    case 0: {
      const int result = ioctl(run.fd, FIONREAD, &number);
      return Say("FIONREAD", result, result == 0 ? std::to_string(number) : "");
    }
    case 1:
      return Say("F_GETFL", fcntl(run.fd, F_GETFL));
    default: {
      const int copy = dup(run.fd);
      Say("send on a copy", send(copy, Pattern(5), 5, MSG_NOSIGNAL));
      return Say("close of the copy", close(copy));
    }
  }
}

void Misuse(Run& run) {
  // A connection that was reset may be bound anew where the kernel chose its port.
  sockaddr_in address = run.Pick(2) ? run.peer : run.own;
  socklen_t length = run.Of({16u, 16u, 3u});
  switch (run.Pick(4)) {
    case 0:
      return Say("bind again", bind(run.fd, Generic(&address), length));
    case 1:
      return Say("accept of it", accept(run.fd, nullptr, nullptr));
    case 2:
      return Say("listen", listen(run.fd, 1));
    default:
      // A datagram socket may be connected anew; a connection may not.
      return run.stream ? Say("connect again", connect(run.fd, Generic(&run.peer), sizeof run.peer))
                        : Name(run);
  }
}

void OfPeer(Run& run) {
  const std::string size = std::to_string(run.Of({1, 13, 100, 1448, 2000}));
  // Fragments come by another way, in their own order.
  const std::string whole = std::to_string(run.Of({0, 1, 13, 100, 1472}));
  if (!run.stream) return Tell(run, run.Pick(3) ? "datagram " + whole : std::string("datagrams"));
  switch (run.Pick(8)) {
    case 0:
      return Tell(run, "shutdown");
    case 1:
      return Tell(run, run.Pick(2) ? "close" : "reset");
    case 2:
      return Tell(run, "receive");
    default:
      return Tell(run, "send " + size);
  }
}

using Call = void (*)(Run&);
constexpr Call kCalls[] = {Send,   Send,      SendTo,  Receive, Receive, Receive, Poll,  Poll,
                           Select, ChangeSet, WaitSet, WaitSet, Shut,    Ask,     Ask,   Set,
                           Name,   Control,   Misuse,  OfPeer,  OfPeer,  OfPeer,  OfPeer};

// --- Sequences ---

// How a sequence begins; what it is about is in `run.fd` then.
void BeginSequence(Run& run) {
  const int kind = run.Pick(5);
  run.stream = kind >= 2;
  run.peer.sin_port = htons(run.stream ? kPeerTcpPort : kPeerUdpPort);
  switch (kind) {
    case 0:
      run.fd = NewSocket(run, SOCK_DGRAM, kSubjectUdpPort);
      return;
    case 1:
      return ConnectDatagrams(run);
    case 2:
    case 3:
      return ConnectStream(run);
    default:
      Tell(run, "connect");
      WaitUntil(run.listener, POLLIN);
      run.fd = accept4(run.listener, nullptr, nullptr, SOCK_NONBLOCK);
      Say("accept", run.fd < 0 ? -1 : 0);
      return SendAtOnce(run);
  }
}

void Sequence(Run& run) {
  constexpr int kLength = 14;
  run.set = epoll_create1(0);
  BeginSequence(run);
  for (int i = 0; i < kLength; ++i) {
    Settle(run);
    run.Of(kCalls)(run);
  }
  Settle(run);
  Say("close", close(run.fd));
  Settle(run);
  Tell(run, run.stream ? "receive" : "datagrams");
  if (run.stream) Tell(run, "reset");
  close(run.set);
  Settle(run);
}

int Main(char** argv) {
  Run run;
  if (!Begin(argv, &run)) return 1;
  const auto seed = static_cast<uint32_t>(strtoul(argv[4], nullptr, 10));
  for (uint32_t i = 0; i < strtoul(argv[5], nullptr, 10); ++i) {
    printf("-- seed %u\n", seed + i);
    run.random.seed(seed + i);
    Sequence(run);
  }
  puts("done");
  return 0;
}

}  // namespace
}  // namespace xtreme::faces

int main(int argc, char** argv) { return argc == 6 ? xtreme::faces::Main(argv) : 2; }
