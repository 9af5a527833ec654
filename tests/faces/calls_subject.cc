// SPDX-License-Identifier: Apache-2.0
//
// A program that makes each call there is on a socket in each state that a socket may be in, and
// writes down what it said: run by the kernel and by rings, its transcripts are to be the same.
//
//   calls_subject SOCKET OWN-ADDRESS PEER-ADDRESS SILENT-ADDRESS
//
// Each pair is a part of the transcript, on a socket of its own, which never blocks. A state is a
// line of kStates, a call one of the tables. SYNs to SILENT-ADDRESS are not answered.
// Not among the calls, for they are known to differ: pointers to nowhere; what only the kernel's
// socket answers (sizes of buffers, TCP_MAXSEG).
// Threads: one.

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <netinet/tcp.h>
#include <netinet/udp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

#include "tests/faces/transcript.h"

namespace xtreme::faces {
namespace {

constexpr int kOtherTcpPort = 7006;
constexpr int kFreeTcpPort = 7016;
sockaddr_in silent{};

// --- States ---

void Connected(Run& run) { ConnectStream(run); }
void HalfClosed(Run& run) {
  ConnectStream(run);
  shutdown(run.fd, SHUT_WR);
}
void DeafHalf(Run& run) {
  ConnectStream(run);
  shutdown(run.fd, SHUT_RD);
}
// Of a socket that has no connection yet it is an error, and remembered.
void ConnectWhatIsShut(Run& run, int how, bool listens = false) {
  run.fd = NewSocket(run, SOCK_STREAM, 0);
  if (listens) Say("listen", listen(run.fd, 4));
  Say("shutdown", shutdown(run.fd, how));
  Say("connect", connect(run.fd, Generic(&run.peer), sizeof run.peer));
  WaitUntil(run.fd, POLLOUT);
  Settle(run);
  Tell(run, "accept");
}
void ShutBeforeForWriting(Run& run) { ConnectWhatIsShut(run, SHUT_WR); }
void ShutBeforeForReading(Run& run) { ConnectWhatIsShut(run, SHUT_RD); }
void ListenedBefore(Run& run) { ConnectWhatIsShut(run, SHUT_RDWR, /*listens=*/true); }
void PeerHalfClosed(Run& run) {
  ConnectStream(run);
  Tell(run, "send 10", /*quietly=*/true);
  Tell(run, "shutdown", /*quietly=*/true);
}
void BothClosed(Run& run) {
  ConnectStream(run);
  shutdown(run.fd, SHUT_WR);
  Tell(run, "shutdown", /*quietly=*/true);
}
void ConnectedWithBytes(Run& run) {
  ConnectStream(run);
  Tell(run, "send 100", /*quietly=*/true);
}
void ResetByPeer(Run& run) {
  ConnectStream(run);
  Tell(run, "reset", /*quietly=*/true);
}
// Its error is another.
void ShutAndResetByPeer(Run& run) {
  ConnectStream(run);
  Tell(run, "shutdown", /*quietly=*/true);
  Settle(run);
  Tell(run, "reset", /*quietly=*/true);
}
void ConnectAndBeReset(Run& run) {
  connect(run.fd, Generic(&run.peer), sizeof run.peer);
  WaitUntil(run.fd, POLLOUT);
  Settle(run);
  Tell(run, "accept", /*quietly=*/true);
  Tell(run, "reset", /*quietly=*/true);
  WaitUntil(run.fd, 0);  // A ring gives the port back before it tells.
}
// By a port of the program's, which it keeps.
void BoundAndResetByPeer(Run& run) {
  run.fd = NewSocket(run, SOCK_STREAM, kOtherTcpPort);
  ConnectAndBeReset(run);
}
void BindToAnyPort(Run& run) {
  run.fd = NewSocket(run, SOCK_STREAM, 0);
  Say("bind", bind(run.fd, Generic(&run.own), sizeof run.own));
}
// By a port that the host chose, which goes with the connection.
void AnyPortAndResetByPeer(Run& run) {
  BindToAnyPort(run);
  ConnectAndBeReset(run);
}
void BeRefused(Run& run) {
  sockaddr_in nobody = run.peer;
  nobody.sin_port = htons(9);
  connect(run.fd, Generic(&nobody), sizeof nobody);
  WaitUntil(run.fd, POLLOUT);
}
void Refused(Run& run) {
  run.fd = NewSocket(run, SOCK_STREAM, 0);
  BeRefused(run);
}
void AnyPortAndRefused(Run& run) {
  BindToAnyPort(run);
  BeRefused(run);
}
void Connecting(Run& run) {
  run.fd = NewSocket(run, SOCK_STREAM, 0);
  connect(run.fd, Generic(&silent), sizeof silent);
}
void Unbound(Run& run) { run.fd = NewSocket(run, SOCK_STREAM, 0); }
void Bound(Run& run) { run.fd = NewSocket(run, SOCK_STREAM, kOtherTcpPort); }
void Listening(Run& run) {
  run.fd = NewSocket(run, SOCK_STREAM, kOtherTcpPort);
  listen(run.fd, 4);
  pollfd one{.fd = run.fd, .events = POLLIN};
  poll(&one, 1, 0);
}
void UnboundDatagrams(Run& run) { run.fd = NewSocket(run, SOCK_DGRAM, 0); }
void BoundDatagrams(Run& run) { run.fd = NewSocket(run, SOCK_DGRAM, kSubjectUdpPort); }
void DatagramsWithOne(Run& run) {
  run.fd = NewSocket(run, SOCK_DGRAM, kSubjectUdpPort);
  Tell(run, "datagram 100", /*quietly=*/true);
}
void ConnectedDatagrams(Run& run) { ConnectDatagrams(run); }
void ShutDatagrams(Run& run) {
  ConnectDatagrams(run);
  shutdown(run.fd, SHUT_RDWR);
}
void RefusedDatagrams(Run& run) {
  ConnectDatagrams(run);
  Tell(run, "deaf", /*quietly=*/true);
  send(run.fd, "x", 1, 0);
  WaitUntil(run.fd, POLLERR);
}
void Closed(Run& run) {
  ConnectStream(run);
  // Of numbers that no thread of the library takes for a while.
  const int high = fcntl(run.fd, F_DUPFD, 500);
  close(run.fd);
  close(high);
  run.fd = high;
}

struct State {
  const char* name;
  bool stream;
  void (*reach)(Run&);
};
constexpr State kStates[] = {
    {"new stream", true, Unbound},
    {"bound stream", true, Bound},
    {"listener", true, Listening},
    {"connecting", true, Connecting},
    {"refused", true, Refused},
    {"any port and refused", true, AnyPortAndRefused},
    {"connected", true, Connected},
    {"connected, bytes wait", true, ConnectedWithBytes},
    {"shut for writing", true, HalfClosed},
    {"shut for reading", true, DeafHalf},
    {"shut for writing, then connected", true, ShutBeforeForWriting},
    {"shut for reading, then connected", true, ShutBeforeForReading},
    {"listened and shut, then connected", true, ListenedBefore},
    {"peer has shut", true, PeerHalfClosed},
    {"both have shut", true, BothClosed},
    {"reset", true, ResetByPeer},
    {"peer has shut, and reset", true, ShutAndResetByPeer},
    {"bound and reset", true, BoundAndResetByPeer},
    {"any port and reset", true, AnyPortAndResetByPeer},
    {"closed", true, Closed},
    {"new datagrams", false, UnboundDatagrams},
    {"bound datagrams", false, BoundDatagrams},
    {"bound datagrams, one waits", false, DatagramsWithOne},
    {"connected datagrams", false, ConnectedDatagrams},
    {"shut datagrams", false, ShutDatagrams},
    {"refused datagrams", false, RefusedDatagrams},
};

// --- Calls that send and receive: a result ---

char buffer[256];
volatile int no_number = -1;  // The compiler would see through a constant.
iovec parts[2] = {{buffer, 60}, {buffer + 60, 60}};
const iovec* volatile no_parts = nullptr;
iovec many_parts[1'025];  // One more than Linux takes.

msghdr Message() { return {.msg_iov = parts, .msg_iovlen = 2}; }
// A socket of a ring is the kernel's from SO_ZEROCOPY on, and with it what was begun.
ssize_t InParts(Run& run, int more) {
  if (run.stream) return 0;
  const int on = more == 0;
  const int off = 0;
  if (on != 0) Say("cork", setsockopt(run.fd, IPPROTO_UDP, UDP_CORK, &on, sizeof on));
  Say("first", send(run.fd, "begun ", 6, more | MSG_NOSIGNAL));
  const int yes = 1;
  Say("left", setsockopt(run.fd, SOL_SOCKET, SO_ZEROCOPY, &yes, sizeof yes));
  Say("last", send(run.fd, "and ended", 9, MSG_NOSIGNAL));
  if (on != 0) Say("uncork", setsockopt(run.fd, IPPROTO_UDP, UDP_CORK, &off, sizeof off));
  Settle(run);
  Tell(run, "datagrams");
  return 0;
}
ssize_t SendMany(Run& run) {
  mmsghdr messages[2] = {{.msg_hdr = Message()}, {.msg_hdr = Message()}};
  return sendmmsg(run.fd, messages, 2, MSG_NOSIGNAL);
}
ssize_t ReceiveMany(Run& run) {
  mmsghdr messages[2] = {{.msg_hdr = Message()}, {.msg_hdr = Message()}};
  return recvmmsg(run.fd, messages, 2, MSG_DONTWAIT, nullptr);
}
ssize_t SendAFile(Run& run) {
  const int file = memfd_create("calls", MFD_CLOEXEC);
  if (write(file, Pattern(100), 100) != 100) return -1;
  lseek(file, 0, SEEK_SET);
  const ssize_t sent = sendfile(run.fd, file, nullptr, 100);
  const int error = errno;
  printf("at %ld ", static_cast<long>(lseek(file, 0, SEEK_CUR)));
  close(file);
  errno = error;
  return sent;
}
ssize_t ReceiveMessage(Run& run, int flags) {
  sockaddr_in from{};
  msghdr message = Message();
  message.msg_name = &from;
  message.msg_namelen = sizeof from;
  const ssize_t got = recvmsg(run.fd, &message, flags);
  if (got >= 0) {
    printf("name of %u, flags %#x ", message.msg_namelen, message.msg_flags & ~MSG_CMSG_CLOEXEC);
  }
  return got;
}
// With one message of control data.
ssize_t SendControl(Run& run, int level, int type, int value) {
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof value)] = {};
  msghdr message = Message();
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  *header = {.cmsg_len = CMSG_LEN(sizeof value), .cmsg_level = level, .cmsg_type = type};
  memcpy(CMSG_DATA(header), &value, sizeof value);
  return sendmsg(run.fd, &message, MSG_NOSIGNAL);
}
// What waits behind what was read.
ssize_t ReceiveAndLookBehind(Run& run) {
  const int on = 1;
  Say("TCP_INQ", setsockopt(run.fd, IPPROTO_TCP, TCP_INQ, &on, sizeof on));
  ssize_t got = 1;
  for (int i = 0; i < 3 && got > 0; ++i) {
    alignas(cmsghdr) char control[100] = {};
    iovec part{.iov_base = buffer, .iov_len = 60};
    msghdr message{.msg_iov = &part,
                   .msg_iovlen = 1,
                   .msg_control = control,
                   .msg_controllen = sizeof control};
    got = recvmsg(run.fd, &message, MSG_DONTWAIT);
    const cmsghdr* const header = got < 0 ? nullptr : CMSG_FIRSTHDR(&message);
    const bool told = header != nullptr && header->cmsg_type == TCP_CM_INQ;
    Say("recvmsg", got,
        told ? std::to_string(*reinterpret_cast<const int*>(CMSG_DATA(header))) : "");
  }
  return 0;
}
ssize_t SendAPipe(Run& run) {
  int ends[2];
  if (pipe(ends) != 0 || write(ends[1], "12345", 5) != 5) return -1;
  const ssize_t sent = sendfile(run.fd, ends[0], nullptr, 5);
  const int error = errno;
  close(ends[0]), close(ends[1]);
  errno = error;
  return sent;
}
ssize_t ReceiveFrom(Run& run) {
  sockaddr_in from{};
  socklen_t length = sizeof from;
  const ssize_t got = recvfrom(run.fd, buffer, 50, 0, Generic(&from), &length);
  if (got >= 0) printf("from %d in %u ", ntohs(from.sin_port), length);
  return got;
}
sockaddr_in ToPort(const sockaddr_in& host, int port) {
  sockaddr_in address = host;
  address.sin_port = htons(static_cast<uint16_t>(port));
  return address;
}
int PeerOption(Run& run, socklen_t room) {
  char value[100] = "";
  const int result = getsockopt(run.fd, SOL_SOCKET, SO_PEERNAME, value, &room);
  if (result == 0) printf("%s in %u ", Sum(value, 8).c_str(), room);
  return result;
}
int AskInShort(Run& run) {
  int value = 0;
  socklen_t length = 2;
  const int result = getsockopt(run.fd, IPPROTO_IP, IP_PKTINFO, &value, &length);
  if (result == 0) printf("%d in %u ", value, length);
  return result;
}
ssize_t SendTo(Run& run, sockaddr_in to, socklen_t length, size_t bytes = 20) {
  return sendto(run.fd, buffer, bytes, MSG_NOSIGNAL, Generic(&to), length);
}

// --- Calls on names, options and descriptors ---

int Bind(Run& run, sockaddr_in to, socklen_t length = sizeof(sockaddr_in)) {
  return bind(run.fd, Generic(&to), length);
}
int Connect(Run& run, sockaddr_in to, socklen_t length = sizeof(sockaddr_in)) {
  return connect(run.fd, Generic(&to), length);
}
int Dissolve(Run& run) {
  const sockaddr nobody{.sa_family = AF_UNSPEC};
  return connect(run.fd, &nobody, sizeof nobody);
}
int NameOf(Run& run, int (*call)(int, sockaddr*, socklen_t*), socklen_t length) {
  sockaddr_in name{};
  const int result = call(run.fd, Generic(&name), &length);
  const char* const port = name.sin_port != 0 ? " and a port" : "";
  if (result == 0) printf("%s%s in %u ", inet_ntoa(name.sin_addr), port, length);
  return result;
}
int Poll(Run& run, int16_t events) {
  pollfd one{.fd = run.fd, .events = events};
  const timespec now{};
  const int ready = ppoll(&one, 1, &now, nullptr);
  printf("%#x ", one.revents);
  return ready;
}
int Select(Run& run) {
  fd_set sets[3] = {};
  for (fd_set& each : sets) FD_SET(run.fd, &each);
  const timespec now{};
  const int ready = pselect(run.fd + 1, &sets[0], &sets[1], &sets[2], &now, nullptr);
  for (const fd_set& each : sets) printf("%d", ready >= 0 && FD_ISSET(run.fd, &each));
  printf(" ");
  return ready;
}
int Watch(Run& run) {
  epoll_event event{.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP, .data = {.u64 = 7}};
  const int added = epoll_ctl(run.set, EPOLL_CTL_ADD, run.fd, &event);
  Say("add", added);
  Say("add again", epoll_ctl(run.set, EPOLL_CTL_ADD, run.fd, &event));
  epoll_event told{};
  const int ready = epoll_wait(run.set, &told, 1, 0);
  printf("%#x ", ready == 1 ? told.events : 0);
  Say("wait", ready);
  Say("modify", epoll_ctl(run.set, EPOLL_CTL_MOD, run.fd, &event));
  return epoll_ctl(run.set, EPOLL_CTL_DEL, run.fd, nullptr);
}
int Number(Run& run, unsigned long request, int number) {
  const int result = ioctl(run.fd, request, &number);
  if (result == 0) printf("%d ", number);
  return result;
}
// A FIN is acknowledged late.
int StateOf(Run& run) {
  tcp_info about{};
  int result = 0;
  for (int tries = 0; tries < 1'000; ++tries) {
    socklen_t length = sizeof about;
    result = getsockopt(run.fd, IPPROTO_TCP, TCP_INFO, &about, &length);
    if (result != 0 || about.tcpi_state != TCP_FIN_WAIT1) break;
    usleep(1'000);
  }
  return result == 0 ? about.tcpi_state : result;
}
int Kind(Run& run) {
  struct stat about{};
  const int result = fstat(run.fd, &about);
  if (result == 0) printf("%d ", S_ISSOCK(about.st_mode));
  return result;
}
int Copied(int copy) {
  if (copy < 0) return copy;
  char none = 0;
  Say("send on the copy", send(copy, &none, 0, MSG_NOSIGNAL));
  return close(copy);
}
int Listen(Run& run, int backlog) { return listen(run.fd, backlog); }
// Accepted or not: the number is the host's.
int Accepted(int fd) { return fd < 0 ? fd : close(fd); }

struct Call {
  const char* name;
  ssize_t (*make)(Run&);
};

constexpr Call kCalls[] = {
    {"send", [](Run& r) { return send(r.fd, buffer, 20, MSG_NOSIGNAL); }},
    {"send nothing", [](Run& r) { return send(r.fd, buffer, 0, MSG_NOSIGNAL); }},
    {"send, SIGPIPE", [](Run& r) { return send(r.fd, buffer, 20, 0); }},
    {"send at once", [](Run& r) { return send(r.fd, buffer, 20, MSG_DONTWAIT | MSG_NOSIGNAL); }},
    {"send more", [](Run& r) { return send(r.fd, buffer, 20, MSG_MORE | MSG_NOSIGNAL); }},
    {"parts, the last by the kernel", [](Run& r) { return InParts(r, MSG_MORE); }},
    {"corked, the last by the kernel", [](Run& r) { return InParts(r, 0); }},
    {"bytes under way", [](Run& r) {
       int bytes = 0;
       return ssize_t{ioctl(r.fd, SIOCOUTQ, &bytes)};
     }},
    {"sendto the peer", [](Run& r) { return SendTo(r, ToPort(r.peer, kPeerUdpPort), 16); }},
    {"sendto port 0", [](Run& r) { return SendTo(r, ToPort(r.peer, 0), 16); }},
    {"sendto, short address", [](Run& r) { return SendTo(r, r.peer, 7); }},
    {"sendto, no address", [](Run& r) { return SendTo(r, ToPort(r.peer, kPeerUdpPort), 0); }},
    {"sendto, too long", [](Run& r) {
       return r.stream ? 0 : sendto(r.fd, Pattern(0), 65'508, MSG_NOSIGNAL, Generic(&r.peer), 16);
     }},
    {"sendmsg", [](Run& r) {
       const msghdr message = Message();
       return sendmsg(r.fd, &message, MSG_NOSIGNAL);
     }},
    {"sendmsg, more parts than may be", [](Run& r) {
       const msghdr message{.msg_iov = many_parts, .msg_iovlen = 1'025};
       return sendmsg(r.fd, &message, MSG_NOSIGNAL);
     }},
    {"sendmsg, a part of it nowhere", [](Run& r) {
       iovec some[] = {{nullptr, 0}, {buffer, 4}, {nullptr, 1'000}};
       const msghdr message{.msg_iov = some, .msg_iovlen = 3};
       return sendmsg(r.fd, &message, MSG_NOSIGNAL);
     }},
    {"sendmsg, nowhere", [](Run& r) { return sendmsg(r.fd, nullptr, MSG_NOSIGNAL); }},
    {"recvmsg, nowhere", [](Run& r) { return recvmsg(r.fd, nullptr, 0); }},
    {"writev, nowhere", [](Run& r) { return writev(r.fd, no_parts, 2); }},
    {"readv, nowhere", [](Run& r) { return readv(r.fd, no_parts, 2); }},
    {"sendmsg, a hop limit", [](Run& r) { return SendControl(r, IPPROTO_IP, IP_TTL, 5); }},
    {"sendmsg, a priority", [](Run& r) { return SendControl(r, SOL_SOCKET, SO_PRIORITY, 1); }},
    {"sendmsg, no such control data", [](Run& r) {
       return SendControl(r, SOL_SOCKET, 9999, 5);
     }},
    {"sendmsg, less than a header of control data", [](Run& r) {
       msghdr message = Message();
       message.msg_control = buffer;
       message.msg_controllen = sizeof(cmsghdr) - 1;
       return sendmsg(r.fd, &message, MSG_NOSIGNAL);
     }},
    {"sendmmsg", SendMany},
    {"write", [](Run& r) { return write(r.fd, buffer, 20); }},
    {"write nothing", [](Run& r) { return write(r.fd, buffer, 0); }},
    {"writev", [](Run& r) { return writev(r.fd, parts, 2); }},
    {"pwritev2", [](Run& r) { return pwritev2(r.fd, parts, 2, -1, RWF_NOWAIT); }},
    {"pwritev2, elsewhere", [](Run& r) { return pwritev2(r.fd, parts, 2, 3, 0); }},
    {"writev, more parts than may be", [](Run& r) { return writev(r.fd, many_parts, 1'025); }},
    {"writev, -1 parts", [](Run& r) { return writev(r.fd, parts, no_number); }},
    {"pwrite", [](Run& r) { return pwrite(r.fd, buffer, 20, 0); }},
    {"sendfile", SendAFile},
    {"sendfile of a pipe", SendAPipe},
    {"send, zero copy", [](Run& r) {
       return send(r.fd, buffer, 20, MSG_ZEROCOPY | MSG_NOSIGNAL);
     }},
    {"send, fast open", [](Run& r) -> ssize_t {
       if (!r.stream) return 0;
       return sendto(r.fd, buffer, 20, MSG_FASTOPEN | MSG_NOSIGNAL, Generic(&silent), 16);
     }},
    {"recv", [](Run& r) { return recv(r.fd, buffer, 50, 0); }},
    {"recv nothing", [](Run& r) { return recv(r.fd, buffer, 0, 0); }},
    {"recv at once", [](Run& r) { return recv(r.fd, buffer, 50, MSG_DONTWAIT); }},
    {"recv all", [](Run& r) { return recv(r.fd, buffer, 200, MSG_WAITALL | MSG_DONTWAIT); }},
    {"peek", [](Run& r) { return recv(r.fd, buffer, 50, MSG_PEEK); }},
    {"recv, true length", [](Run& r) {
       return recv(r.fd, r.stream ? nullptr : buffer, 50, MSG_TRUNC);
     }},
    {"recv of urgent bytes", [](Run& r) {
       return recv(r.fd, buffer, 1, MSG_OOB | MSG_DONTWAIT);
     }},
    {"recv of errors", [](Run& r) { return recv(r.fd, buffer, 50, MSG_ERRQUEUE); }},
    {"recvfrom", ReceiveFrom},
    {"recvmsg, and what is behind", ReceiveAndLookBehind},
    {"recvmsg", [](Run& r) { return ReceiveMessage(r, 0); }},
    {"recvmsg, peek", [](Run& r) { return ReceiveMessage(r, MSG_PEEK); }},
    {"recvmsg, more parts than may be", [](Run& r) {
       msghdr message{.msg_iov = many_parts, .msg_iovlen = 1'025};
       return recvmsg(r.fd, &message, 0);
     }},
    {"recvmmsg", ReceiveMany},
    {"read", [](Run& r) { return read(r.fd, buffer, 50); }},
    {"read nothing", [](Run& r) { return read(r.fd, buffer, 0); }},
    {"readv", [](Run& r) { return readv(r.fd, parts, 2); }},
    {"preadv2", [](Run& r) { return preadv2(r.fd, parts, 2, -1, RWF_NOWAIT); }},
    {"preadv2, elsewhere", [](Run& r) { return preadv2(r.fd, parts, 2, 3, 0); }},
    {"readv, more parts than may be", [](Run& r) { return readv(r.fd, many_parts, 1'025); }},
    {"readv, -1 parts", [](Run& r) { return readv(r.fd, parts, no_number); }},
    {"pread", [](Run& r) { return pread(r.fd, buffer, 20, 0); }},
    {"accept", [](Run& r) -> ssize_t { return Accepted(accept(r.fd, nullptr, nullptr)); }},
    {"accept4, wrong flags", [](Run& r) -> ssize_t {
       return Accepted(accept4(r.fd, nullptr, nullptr, 1));
     }},
    {"listen", [](Run& r) -> ssize_t { return Listen(r, 4); }},
    {"listen, -1", [](Run& r) -> ssize_t { return Listen(r, -1); }},
    {"bind to any port", [](Run& r) -> ssize_t { return Bind(r, ToPort(r.own, 0)); }},
    {"bind elsewhere", [](Run& r) -> ssize_t { return Bind(r, ToPort(r.peer, 0)); }},
    {"bind, short address", [](Run& r) -> ssize_t { return Bind(r, r.own, 7); }},
    {"bind to what is taken", [](Run& r) -> ssize_t {
       return Bind(r, ToPort(r.own, r.stream ? kSubjectTcpPort : 1)) == 0 ? 0 : -1;
     }},
    {"bind twice, and connect", [](Run& r) -> ssize_t {
       Say("first", Bind(r, ToPort(r.own, kFreeTcpPort)));
       Say("name", NameOf(r, getsockname, 16));
       Say("second", Bind(r, ToPort(r.own, 0)));
       return r.fd >= 0 && r.stream ? Connect(r, silent) : 0;
     }},
    {"connect", [](Run& r) -> ssize_t {
       return r.stream ? 0 : Connect(r, ToPort(r.peer, kPeerUdpPort));
     }},
    {"connect again", [](Run& r) -> ssize_t {
       return r.fd >= 0 && r.stream ? Connect(r, silent) : 0;
     }},
    {"connect again, and bind to any port", [](Run& r) -> ssize_t {
       if (r.fd < 0 || !r.stream) return 0;
       Say("connect", Connect(r, silent));
       return Bind(r, ToPort(r.own, 0));
     }},
    {"connect, short address", [](Run& r) -> ssize_t { return Connect(r, r.peer, 7); }},
    {"connect to port 0", [](Run& r) -> ssize_t {
       if (r.stream) return 0;
       // Its error is lost to the ring.
       int error = 0;
       socklen_t length = sizeof error;
       Say("SO_ERROR", getsockopt(r.fd, SOL_SOCKET, SO_ERROR, &error, &length));
       Say("connect", Connect(r, ToPort(r.peer, 0)));
       return send(r.fd, buffer, 20, MSG_NOSIGNAL);
     }},
    {"connect to nobody", [](Run& r) -> ssize_t { return Dissolve(r); }},
    {"connect to nobody, and again", [](Run& r) -> ssize_t {
       if (r.fd < 0 || !r.stream) return 0;
       Say("to nobody", Dissolve(r));
       Say("peer", NameOf(r, getpeername, 16));
       Say("shutdown", shutdown(r.fd, SHUT_RD));
       return Connect(r, silent);
     }},
    {"connect to nobody, and receive", [](Run& r) -> ssize_t {
       if (r.fd < 0 || !r.stream) return 0;
       Say("to nobody", Dissolve(r));
       Say("bytes", Number(r, FIONREAD, -1));
       Say("recv", recv(r.fd, buffer, 50, MSG_DONTWAIT));
       return recv(r.fd, buffer, 50, MSG_DONTWAIT);
     }},
    {"connect to nobody, and its error", [](Run& r) -> ssize_t {
       if (r.fd < 0 || !r.stream) return 0;
       Say("to nobody", Dissolve(r));
       int error = 0;
       socklen_t length = sizeof error;
       Say("SO_ERROR", getsockopt(r.fd, SOL_SOCKET, SO_ERROR, &error, &length));
       printf("%d ", error);
       return Listen(r, 4);
     }},
    {"shutdown, and connect", [](Run& r) -> ssize_t {
       if (r.fd < 0 || !r.stream) return 0;
       Say("shutdown", shutdown(r.fd, SHUT_RDWR));
       return Connect(r, silent);
     }},
    {"shutdown, connect to nobody, and connect", [](Run& r) -> ssize_t {
       if (r.fd < 0 || !r.stream) return 0;
       Say("shutdown", shutdown(r.fd, SHUT_WR));
       Say("to nobody", Dissolve(r));
       Say("poll", Poll(r, POLLIN | POLLOUT | POLLRDHUP));
       return Connect(r, silent);
     }},
    {"connect to nobody, and poll", [](Run& r) -> ssize_t {
       if (r.fd < 0 || !r.stream) return 0;
       Say("to nobody", Dissolve(r));
       Say("poll", Poll(r, POLLIN | POLLOUT | POLLRDHUP));
       Say("epoll", Watch(r));
       Say("select", Select(r));
       return Poll(r, POLLIN);
     }},
    {"watched, and connect to nobody", [](Run& r) -> ssize_t {
       if (r.fd < 0 || !r.stream) return 0;
       epoll_event event{.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET};
       Say("add", epoll_ctl(r.set, EPOLL_CTL_ADD, r.fd, &event));
       Say("wait", epoll_wait(r.set, &event, 1, 0));
       Say("to nobody", Dissolve(r));
       const int ready = epoll_wait(r.set, &event, 1, 0);
       printf("%#x ", ready == 1 ? event.events : 0);
       return ready;
     }},
    {"shutdown, receiving", [](Run& r) -> ssize_t { return shutdown(r.fd, SHUT_RD); }},
    {"shutdown, sending", [](Run& r) -> ssize_t { return shutdown(r.fd, SHUT_WR); }},
    {"shutdown, sending, and send", [](Run& r) -> ssize_t {
       Say("shutdown", shutdown(r.fd, SHUT_WR));
       return SendTo(r, ToPort(r.peer, kPeerUdpPort), 16);
     }},
    {"shutdown", [](Run& r) -> ssize_t { return shutdown(r.fd, SHUT_RDWR); }},
    {"shutdown twice, of a listener", [](Run& r) -> ssize_t {
       int listens = 0;
       socklen_t length = sizeof listens;
       getsockopt(r.fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &length);
       if (listens == 0) return 0;
       Say("for sending", shutdown(r.fd, SHUT_WR));
       Say("both ways", shutdown(r.fd, SHUT_RDWR));
       return shutdown(r.fd, SHUT_WR);
     }},
    {"shutdown, wrong", [](Run& r) -> ssize_t { return shutdown(r.fd, 3); }},
    {"getsockname", [](Run& r) -> ssize_t { return NameOf(r, getsockname, 16); }},
    {"getsockname, little room", [](Run& r) -> ssize_t { return NameOf(r, getsockname, 8); }},
    {"getsockname, nowhere", [](Run& r) -> ssize_t {
       return getsockname(r.fd, nullptr, nullptr);
     }},
    {"getpeername, nowhere", [](Run& r) -> ssize_t {
       return getpeername(r.fd, nullptr, nullptr);
     }},
    {"bind, nowhere", [](Run& r) -> ssize_t { return bind(r.fd, nullptr, 16); }},
    {"connect, nowhere", [](Run& r) -> ssize_t { return connect(r.fd, nullptr, 16); }},
    {"what is known of it, nowhere", [](Run& r) -> ssize_t {
       return r.stream ? getsockopt(r.fd, IPPROTO_TCP, TCP_INFO, nullptr, nullptr)
                       : getsockopt(r.fd, SOL_SOCKET, SO_ERROR, nullptr, nullptr);
     }},
    {"bytes that wait, nowhere", [](Run& r) -> ssize_t {
       return ioctl(r.fd, FIONREAD, nullptr);
     }},
    {"getpeername", [](Run& r) -> ssize_t { return NameOf(r, getpeername, 16); }},
    {"SO_PEERNAME", [](Run& r) -> ssize_t { return PeerOption(r, 16); }},
    {"SO_PEERNAME, much room", [](Run& r) -> ssize_t { return PeerOption(r, 100); }},
    {"IP_PKTINFO in two bytes", [](Run& r) -> ssize_t { return AskInShort(r); }},
    {"poll to read", [](Run& r) -> ssize_t { return Poll(r, POLLIN | POLLRDNORM | POLLPRI); }},
    {"poll to write", [](Run& r) -> ssize_t { return Poll(r, POLLOUT | POLLWRNORM); }},
    {"poll for bands", [](Run& r) -> ssize_t { return Poll(r, POLLRDBAND | POLLWRBAND); }},
    {"poll for all", [](Run& r) -> ssize_t { return Poll(r, POLLIN | POLLOUT | POLLRDHUP); }},
    {"poll for nothing", [](Run& r) -> ssize_t { return Poll(r, 0); }},
    {"pselect", [](Run& r) -> ssize_t { return Select(r); }},
    {"epoll", [](Run& r) -> ssize_t { return Watch(r); }},
    {"epoll of a descriptor that is no set", [](Run& r) -> ssize_t {
       epoll_event event{};
       return epoll_ctl(r.fd, EPOLL_CTL_ADD, r.listener, &event);
     }},
    {"FIONREAD", [](Run& r) -> ssize_t { return Number(r, FIONREAD, -1); }},
    {"SIOCATMARK", [](Run& r) -> ssize_t { return Number(r, SIOCATMARK, -1); }},
    {"FIONBIO", [](Run& r) -> ssize_t { return Number(r, FIONBIO, 1); }},
    {"state in TCP_INFO", [](Run& r) -> ssize_t { return StateOf(r); }},
    {"an ioctl of terminals", [](Run& r) -> ssize_t { return Number(r, TIOCGPGRP, 0); }},
    {"F_GETFL", [](Run& r) -> ssize_t { return fcntl(r.fd, F_GETFL); }},
    {"F_SETFL", [](Run& r) -> ssize_t { return fcntl(r.fd, F_SETFL, O_NONBLOCK); }},
    {"F_GETFD", [](Run& r) -> ssize_t { return fcntl(r.fd, F_GETFD); }},
    {"F_DUPFD", [](Run& r) -> ssize_t { return Copied(fcntl(r.fd, F_DUPFD, 100)); }},
    {"F_GETLK", [](Run& r) -> ssize_t {
       struct flock lock{.l_type = F_WRLCK};
       return fcntl(r.fd, F_GETLK, &lock);
     }},
    {"dup", [](Run& r) -> ssize_t { return Copied(dup(r.fd)); }},
    {"dup2 over itself", [](Run& r) -> ssize_t { return dup2(r.fd, r.fd) < 0 ? -1 : 0; }},
    {"dup3 over itself", [](Run& r) -> ssize_t { return dup3(r.fd, r.fd, 0); }},
    {"dup2 to nowhere", [](Run& r) -> ssize_t { return dup2(r.fd, -1); }},
    {"fstat", [](Run& r) -> ssize_t { return Kind(r); }},
    {"lseek", [](Run& r) -> ssize_t { return lseek(r.fd, 0, SEEK_SET); }},
    {"ftruncate", [](Run& r) -> ssize_t { return ftruncate(r.fd, 0); }},
    {"fsync", [](Run& r) -> ssize_t { return fsync(r.fd); }},
    {"close twice", [](Run& r) -> ssize_t {
       Say("first", close(r.fd));
       return close(r.fd);
     }},
};

// --- Options: read, set to 1, and set with too little ---

struct Option {
  const char* name;
  int level;
  int number;
};
constexpr Option kOptions[] = {
    {"SO_ERROR", SOL_SOCKET, SO_ERROR},
    {"SO_TYPE", SOL_SOCKET, SO_TYPE},
    {"SO_DOMAIN", SOL_SOCKET, SO_DOMAIN},
    {"SO_PROTOCOL", SOL_SOCKET, SO_PROTOCOL},
    {"SO_ACCEPTCONN", SOL_SOCKET, SO_ACCEPTCONN},
    {"SO_REUSEADDR", SOL_SOCKET, SO_REUSEADDR},
    {"SO_KEEPALIVE", SOL_SOCKET, SO_KEEPALIVE},
    {"SO_BROADCAST", SOL_SOCKET, SO_BROADCAST},
    {"SO_OOBINLINE", SOL_SOCKET, SO_OOBINLINE},
    {"SO_PRIORITY", SOL_SOCKET, SO_PRIORITY},
    {"SO_RCVLOWAT", SOL_SOCKET, SO_RCVLOWAT},
    {"SO_TIMESTAMP", SOL_SOCKET, SO_TIMESTAMP},
    {"SO_TIMESTAMPNS", SOL_SOCKET, SO_TIMESTAMPNS},
    {"SO_DONTROUTE", SOL_SOCKET, SO_DONTROUTE},
    {"SO_MARK", SOL_SOCKET, SO_MARK},
    {"IP_TTL", IPPROTO_IP, IP_TTL},
    {"IP_TOS", IPPROTO_IP, IP_TOS},
    {"IP_MTU", IPPROTO_IP, IP_MTU},
    {"IP_PKTINFO", IPPROTO_IP, IP_PKTINFO},
    {"IP_FREEBIND", IPPROTO_IP, IP_FREEBIND},
    {"IP_MULTICAST_TTL", IPPROTO_IP, IP_MULTICAST_TTL},
    {"IP_MULTICAST_LOOP", IPPROTO_IP, IP_MULTICAST_LOOP},
    {"TCP_NODELAY", IPPROTO_TCP, TCP_NODELAY},
    {"TCP_CORK", IPPROTO_TCP, TCP_CORK},
    {"TCP_KEEPIDLE", IPPROTO_TCP, TCP_KEEPIDLE},
    {"TCP_KEEPINTVL", IPPROTO_TCP, TCP_KEEPINTVL},
    {"TCP_KEEPCNT", IPPROTO_TCP, TCP_KEEPCNT},
    {"TCP_USER_TIMEOUT", IPPROTO_TCP, TCP_USER_TIMEOUT},
    {"TCP_SYNCNT", IPPROTO_TCP, TCP_SYNCNT},
    {"TCP_DEFER_ACCEPT", IPPROTO_TCP, TCP_DEFER_ACCEPT},
    {"TCP_LINGER2", IPPROTO_TCP, TCP_LINGER2},
    {"TCP_NOTSENT_LOWAT", IPPROTO_TCP, TCP_NOTSENT_LOWAT},
    {"TCP_FASTOPEN", IPPROTO_TCP, TCP_FASTOPEN},
    {"TCP_FASTOPEN_CONNECT", IPPROTO_TCP, TCP_FASTOPEN_CONNECT},
    {"TCP_FASTOPEN_NO_COOKIE", IPPROTO_TCP, TCP_FASTOPEN_NO_COOKIE},
    {"TCP_INQ", IPPROTO_TCP, TCP_INQ},
    {"TCP_THIN_LINEAR_TIMEOUTS", IPPROTO_TCP, TCP_THIN_LINEAR_TIMEOUTS},
    {"TCP_SAVE_SYN", IPPROTO_TCP, TCP_SAVE_SYN},
    {"TCP_ULP", IPPROTO_TCP, TCP_ULP},
    {"UDP_GRO", IPPROTO_UDP, UDP_GRO},
    {"UDP_SEGMENT", IPPROTO_UDP, UDP_SEGMENT},
    {"UDP_NO_CHECK6_TX", IPPROTO_UDP, UDP_NO_CHECK6_TX},
    {"SO_NO_CHECK", SOL_SOCKET, SO_NO_CHECK},
    {"SO_BUSY_POLL", SOL_SOCKET, SO_BUSY_POLL},
    {"SO_PREFER_BUSY_POLL", SOL_SOCKET, SO_PREFER_BUSY_POLL},
    {"SO_PEEK_OFF", SOL_SOCKET, SO_PEEK_OFF},
    {"SO_SELECT_ERR_QUEUE", SOL_SOCKET, SO_SELECT_ERR_QUEUE},
    {"SO_LOCK_FILTER", SOL_SOCKET, SO_LOCK_FILTER},
    {"SO_RXQ_OVFL", SOL_SOCKET, SO_RXQ_OVFL},
    {"SO_LINGER", SOL_SOCKET, SO_LINGER},
    {"SO_REUSEPORT", SOL_SOCKET, SO_REUSEPORT},
    {"IP_RECVTTL", IPPROTO_IP, IP_RECVTTL},
    {"IP_RECVTOS", IPPROTO_IP, IP_RECVTOS},
    {"IP_MTU_DISCOVER", IPPROTO_IP, IP_MTU_DISCOVER},
    {"IP_BIND_ADDRESS_NO_PORT", IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT},
    {"IP_MULTICAST_ALL", IPPROTO_IP, IP_MULTICAST_ALL},
    {"IP_RECVORIGDSTADDR", IPPROTO_IP, IP_RECVORIGDSTADDR},
    {"IP_NODEFRAG", IPPROTO_IP, IP_NODEFRAG},
    {"no option", SOL_SOCKET, 9999},
};

void ReadOption(Run& run, const Option& option) {
  int value = -1;
  socklen_t length = sizeof value;
  const int result = getsockopt(run.fd, option.level, option.number, &value, &length);
  Say("get", result, result == 0 ? std::to_string(value) + " in " + std::to_string(length) : "");
}

void TryOption(Run& run, const Option& option) {
  ReadOption(run, option);
  const int one = 1;
  Say("set", setsockopt(run.fd, option.level, option.number, &one, sizeof one));
  Say("set little", setsockopt(run.fd, option.level, option.number, &one, 0));
  ReadOption(run, option);
}

// --- The table ---

template <typename Make>
void Part(Run& run, const State& state, const char* name, const Make& make) {
  printf("-- %s: %s\n", state.name, name);
  run.stream = state.stream;
  run.peer.sin_port = htons(state.stream ? kPeerTcpPort : kPeerUdpPort);
  run.set = epoll_create1(0);
  state.reach(run);
  Settle(run);
  make();
  close(run.fd);
  close(run.set);
  if (state.stream) Tell(run, "reset", /*quietly=*/true);
  if (state.reach == RefusedDatagrams) Tell(run, "hearing", /*quietly=*/true);
  Settle(run);
  // Of datagrams that nobody took.
  if (!state.stream) Tell(run, "datagrams", /*quietly=*/true);
}

int Main(char** argv) {
  Run run;
  if (!Begin(argv, &run)) return 1;
  silent = ToPort(run.peer, kPeerTcpPort);
  inet_pton(AF_INET, argv[4], &silent.sin_addr);
  for (const State& state : kStates) {
    for (const Call& each : kCalls) {
      Part(run, state, each.name, [&] { Say("result", each.make(run)); });
    }
    for (const Option& each : kOptions) {
      Part(run, state, each.name, [&] { TryOption(run, each); });
    }
    fflush(stdout);
  }
  puts("done");
  return 0;
}

}  // namespace
}  // namespace xtreme::faces

int main(int argc, char** argv) { return argc == 5 ? xtreme::faces::Main(argv) : 2; }
