// SPDX-License-Identifier: Apache-2.0
//
// A program that sets options of sockets, each when it is new, bound or connected, sends and
// receives with every flag, and writes down what its calls said and what the peer saw: run by the
// kernel and by rings, its transcripts are to be the same, by whichever way its sockets go.
//
//   options_subject SOCKET OWN-ADDRESS PEER-ADDRESS OTHER-OWN-ADDRESS
//
// OTHER-OWN-ADDRESS is of the interface `ours2`, to which the route of 239.2.0.0/16 leads.
// A case is a line of kCases. Threads: one, but for those that a case starts.

#include <arpa/inet.h>
#include <linux/net_tstamp.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <netinet/udp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "tests/faces/transcript.h"

namespace xtreme::faces {
namespace {

in_addr other_own{};

template <typename Value>
void Set(int fd, const char* what, int level, int name, const Value& value) {
  Say(what, setsockopt(fd, level, name, &value, sizeof value));
}

// A new socket, not connected, of the case's own.
void Anew(Run& run, int type, int port = 0) {
  close(run.fd);
  run.fd = NewSocket(run, type, port);
}

void SendTo(Run& run, const char* host, int length = 20, int port = kPeerUdpPort) {
  sockaddr_in to{.sin_family = AF_INET, .sin_port = htons(static_cast<uint16_t>(port))};
  inet_pton(AF_INET, host, &to.sin_addr);
  Say("sendto", sendto(run.fd, Pattern(length), static_cast<size_t>(length), 0, Generic(&to),
                       sizeof to));
}

void Seen(Run& run) {
  Settle(run);
  Tell(run, "seen");
}

// --- Groups ---

constexpr const char* kGroup = "239.1.1.1";       // By the route on `ours`.
constexpr const char* kOtherGroup = "239.2.1.1";  // By the route on `ours2`.

void SendToGroups(Run& run, int length) {
  SendTo(run, kGroup, length);
  SendTo(run, kOtherGroup, length + 1);
}

void GroupsByRoute(Run& run) {
  Anew(run, SOCK_DGRAM);
  SendToGroups(run, 20), Seen(run);
  Anew(run, SOCK_DGRAM, kSubjectUdpPort);
  SendToGroups(run, 30), Seen(run);
}

void GroupsByAddress(Run& run) {
  Anew(run, SOCK_DGRAM);
  Set(run.fd, "IP_MULTICAST_IF", IPPROTO_IP, IP_MULTICAST_IF, other_own);
  SendToGroups(run, 20), Seen(run);
  Set(run.fd, "IP_MULTICAST_IF", IPPROTO_IP, IP_MULTICAST_IF, run.own.sin_addr);
  SendToGroups(run, 30), Seen(run);
  Set(run.fd, "IP_MULTICAST_IF", IPPROTO_IP, IP_MULTICAST_IF, in_addr{});
  SendToGroups(run, 40), Seen(run);
}

void GroupsByIndex(Run& run) {
  for (const char* name : {"ours2", "ours"}) {
    const ip_mreqn by{.imr_ifindex = static_cast<int>(if_nametoindex(name))};
    Anew(run, SOCK_DGRAM);
    SendTo(run, kGroup);
    Set(run.fd, "IP_MULTICAST_IF", IPPROTO_IP, IP_MULTICAST_IF, by);
    SendToGroups(run, 30), Seen(run);
    Anew(run, SOCK_DGRAM);
    Set(run.fd, "IP_MULTICAST_IF", IPPROTO_IP, IP_MULTICAST_IF, by);
    sockaddr_in group = run.peer;
    inet_pton(AF_INET, kOtherGroup, &group.sin_addr);
    Say("connect", connect(run.fd, Generic(&group), sizeof group));
    Say("send", send(run.fd, Pattern(40), 40, 0));
    Seen(run);
  }
}

// --- Ways of the kernel's beside the ring's ---

int ConnectToSelf(const Run& run) {
  const int fd = NewSocket(run, SOCK_STREAM, 0);
  sockaddr_in self = run.own;
  self.sin_port = htons(kSubjectTcpPort);
  connect(fd, Generic(&self), sizeof self);
  return fd;
}

// A connection from the network and one from this host are one event of a one-shot listener.
void OneShotListener(Run& run) {
  epoll_event event{.events = EPOLLIN | EPOLLONESHOT, .data = {.u64 = 5}};
  Say("add", epoll_ctl(run.set, EPOLL_CTL_ADD, run.listener, &event));
  for (int round = 0; round < 2; ++round) {
    const int own = ConnectToSelf(run);
    Tell(run, "connect"), Settle(run);
    for (int i = 0; i < 3; ++i) {
      epoll_event told[4];
      Say("wait", epoll_wait(run.set, told, 4, 100));
    }
    for (int i = 0; i < 2; ++i) Say("accept", close(accept(run.listener, nullptr, nullptr)));
    close(own);
    Say("modify", epoll_ctl(run.set, EPOLL_CTL_MOD, run.listener, &event));
  }
}

// Linux tells who has no peer of no error, whoever listens for them beside it.
void NobodyInThisHost(Run& run) {
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  iovec part{.iov_base = const_cast<char*>(Pattern(20)), .iov_len = 20};
  sockaddr_in nobody = run.own;
  nobody.sin_port = htons(9);
  msghdr message{.msg_name = &nobody,
                 .msg_namelen = sizeof nobody,
                 .msg_iov = &part,
                 .msg_iovlen = 1,
                 .msg_control = control,
                 .msg_controllen = sizeof control};
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  *header = {.cmsg_len = CMSG_LEN(4), .cmsg_level = IPPROTO_IP, .cmsg_type = IP_TTL};
  const int hops = 9;
  memcpy(CMSG_DATA(header), &hops, sizeof hops);
  for (int i = 0; i < 30; ++i) {
    Anew(run, SOCK_DGRAM, kSubjectUdpPort);
    for (int j = 0; j < 3; ++j) {
      Say("sendto", sendto(run.fd, "1", 1, 0, Generic(&nobody), sizeof nobody));
      Say("sendmsg", sendmsg(run.fd, &message, 0));
    }
  }
}

void SayReadable(int fd) {
  pollfd one{.fd = fd, .events = POLLIN};
  Say("poll", poll(&one, 1, 0));
}

// It has nothing to send, and what waits there stays.
void ListenerShutForSending(Run& run) {
  Tell(run, "connect"), Settle(run), SayReadable(run.listener);
  Say("shutdown", shutdown(run.listener, SHUT_WR));
  SayReadable(run.listener);
  Say("accept", close(accept(run.listener, nullptr, nullptr)));
}

void AcceptedAfterAReset(Run& run) {
  Tell(run, "connect"), Settle(run), SayReadable(run.listener);
  Tell(run, "reset");
  for (int i = 0; i < 5; ++i) Settle(run), SayReadable(run.listener);
  sockaddr_in from{};
  socklen_t length = 4;
  const int fd = accept(run.listener, Generic(&from), &length);
  Say("accept", close(fd), std::to_string(length));
}

// --- Devices ---

void BindToDevice(int fd, const char* device) {
  Say(device, setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, device,
                         static_cast<socklen_t>(strlen(device) + 1)));
}

int AnyAddress(Run& run, int type, int port, const char* device = nullptr) {
  const in_addr own = run.own.sin_addr;
  run.own.sin_addr = {};
  const int fd = NewSocket(run, type, 0);
  if (device != nullptr) BindToDevice(fd, device);
  sockaddr_in any{.sin_family = AF_INET, .sin_port = htons(static_cast<uint16_t>(port))};
  const int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  Say("bind", bind(fd, Generic(&any), sizeof any));
  run.own.sin_addr = own;
  return fd;
}

// A listener that has a device is reached by no other.
void ListenerOfADevice(Run& run) {
  close(run.listener);
  for (const char* device : {"lo", "ours", "ours2"}) {
    const int listener = AnyAddress(run, SOCK_STREAM, kSubjectTcpPort, device);
    Say("listen", listen(listener, 4));
    pollfd one{.fd = listener, .events = POLLIN};
    Say("poll", poll(&one, 1, 0));
    Tell(run, "connect"), Settle(run);
    Say("accept", close(accept(listener, nullptr, nullptr)));
    Tell(run, "reset", /*quietly=*/true);
    BindToDevice(listener, "lo");
    Tell(run, "connect");
    close(listener);
  }
  run.listener = NewSocket(run, SOCK_STREAM, kSubjectTcpPort);
  listen(run.listener, 4);
}

// A datagram socket too, whenever it gets it.
void DatagramsOfADevice(Run& run) {
  const auto hear = [&run] {
    Tell(run, "datagram 7"), Settle(run);
    char bytes[10];
    Say("recv", recv(run.fd, bytes, sizeof bytes, 0));
  };
  for (const char* device : {"lo", "ours"}) {
    close(run.fd);
    run.fd = AnyAddress(run, SOCK_DGRAM, kSubjectUdpPort, device);
    hear();
    close(run.fd);
    run.fd = AnyAddress(run, SOCK_DGRAM, kSubjectUdpPort);
    hear(), BindToDevice(run.fd, device), hear();
    BindToDevice(run.fd, ""), hear();
  }
}

// --- Groups that are joined ---

// Of a group that is left, every source is.
void SourcesOfAGroup(Run& run) {
  close(run.fd);
  run.fd = AnyAddress(run, SOCK_DGRAM, kSubjectUdpPort);
  const auto hear = [&run] {
    Tell(run, "group 7 " + std::to_string(kSubjectUdpPort)), Settle(run);
    char bytes[10];
    Say("recv", recv(run.fd, bytes, sizeof bytes, 0));
  };
  ip_mreq group{.imr_interface = run.own.sin_addr};
  inet_pton(AF_INET, kDifferentialGroup, &group.imr_multiaddr);
  ip_mreq_source source{.imr_multiaddr = group.imr_multiaddr,
                        .imr_interface = group.imr_interface,
                        .imr_sourceaddr = run.peer.sin_addr};
  const auto change = [&run](const char* what, int name, const auto& value) {
    Set(run.fd, what, IPPROTO_IP, name, value);
  };
  change("add source", IP_ADD_SOURCE_MEMBERSHIP, source), hear();
  source.imr_sourceaddr = run.own.sin_addr;
  change("add another", IP_ADD_SOURCE_MEMBERSHIP, source), hear();
  change("drop", IP_DROP_MEMBERSHIP, group), hear();
  change("add", IP_ADD_MEMBERSHIP, group), hear();
  source.imr_sourceaddr = run.peer.sin_addr;
  change("block", IP_BLOCK_SOURCE, source), hear();
  change("drop", IP_DROP_MEMBERSHIP, group), hear();
  change("add", IP_ADD_MEMBERSHIP, group), hear();
  change("drop", IP_DROP_MEMBERSHIP, group), hear();
}

// --- Times ---

// As long as there are seconds for: what comes later is waited for.
void LongTimes(Run& run) {
  constexpr long kMost = std::numeric_limits<long>::max();
  timeval most{.tv_sec = kMost, .tv_usec = 999'999};
  timespec most_ns{.tv_sec = kMost, .tv_nsec = 999'999'999};
  char bytes[10];
  iovec part{.iov_base = bytes, .iov_len = sizeof bytes};
  mmsghdr messages[2] = {{.msg_hdr = {.msg_iov = &part, .msg_iovlen = 1}},
                         {.msg_hdr = {.msg_iov = &part, .msg_iovlen = 1}}};
  fd_set read{};
  pollfd one{.fd = run.fd, .events = POLLIN};
  epoll_event event{.events = EPOLLIN};
  epoll_ctl(run.set, EPOLL_CTL_ADD, run.fd, &event);
  const auto later = [&](const char* what, const auto& wait) {
    FD_SET(run.fd, &read);
    std::thread other([&run] {
      usleep(100'000);
      Tell(run, "datagram 6", /*quietly=*/true);
    });
    Say(what, wait());
    other.join();
  };
  const int blocking = 0;
  ioctl(run.fd, FIONBIO, &blocking);
  later("select", [&] { return select(run.fd + 1, &read, nullptr, nullptr, &most); });
  Say("recv", recv(run.fd, bytes, sizeof bytes, 0));
  later("pselect", [&] { return pselect(run.fd + 1, &read, nullptr, nullptr, &most_ns, nullptr); });
  Say("recv", recv(run.fd, bytes, sizeof bytes, 0));
  later("ppoll", [&] { return ppoll(&one, 1, &most_ns, nullptr); });
  Say("recv", recv(run.fd, bytes, sizeof bytes, 0));
  later("epoll_pwait2", [&] { return epoll_pwait2(run.set, &event, 1, &most_ns, nullptr); });
  Set(run.fd, "SO_RCVTIMEO", SOL_SOCKET, SO_RCVTIMEO, most);
  Say("recv", recv(run.fd, bytes, sizeof bytes, 0));
  later("recv", [&] { return recv(run.fd, bytes, sizeof bytes, 0); });
  Tell(run, "datagram 6"), Tell(run, "datagram 6"), Settle(run);
  Say("recvmmsg", recvmmsg(run.fd, messages, 2, 0, &most_ns));
  for (const timeval& wrong : {timeval{-1, 0}, timeval{0, -1}, timeval{0, 1'000'000}}) {
    timeval time = wrong;
    FD_ZERO(&read);
    Set(run.fd, "SO_RCVTIMEO", SOL_SOCKET, SO_RCVTIMEO, wrong);
    Say("select", select(0, &read, nullptr, nullptr, &time));
  }
  Set(run.fd, "SO_RCVTIMEO", SOL_SOCKET, SO_RCVTIMEO, timeval{-1, 0});
  Say("recv", recv(run.fd, bytes, sizeof bytes, 0));
}

// --- Headers, and what becomes of long datagrams ---

// Cut by the option, by control data of a message, and not at all.
void Segments(Run& run) {
  const auto came = [&run] {
    for (int i = 0; i < 5; ++i) Tell(run, "length");
  };
  Set(run.fd, "UDP_SEGMENT", IPPROTO_UDP, UDP_SEGMENT, 100);
  Say("send", send(run.fd, Pattern(350), 350, 0));
  Settle(run), came();
  Set(run.fd, "UDP_SEGMENT", IPPROTO_UDP, UDP_SEGMENT, 0);
  Say("send", send(run.fd, Pattern(350), 350, 0));
  Settle(run), came();
  close(run.fd);
  ConnectDatagrams(run);
  Set(run.fd, "UDP_SEGMENT", IPPROTO_UDP, UDP_SEGMENT, 0);
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(uint16_t))] = {};
  iovec part{.iov_base = const_cast<char*>(Pattern(250)), .iov_len = 250};
  msghdr message{.msg_iov = &part,
                 .msg_iovlen = 1,
                 .msg_control = control,
                 .msg_controllen = sizeof control};
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  *header = {.cmsg_len = CMSG_LEN(2), .cmsg_level = IPPROTO_UDP, .cmsg_type = UDP_SEGMENT};
  const uint16_t cut = 100;
  memcpy(CMSG_DATA(header), &cut, sizeof cut);
  Say("sendmsg", sendmsg(run.fd, &message, 0));
  Settle(run), came();
  // The first of a socket without a name, and then one of the usual kind.
  Anew(run, SOCK_DGRAM);
  message.msg_name = &run.peer;
  message.msg_namelen = sizeof run.peer;
  Say("sendmsg", sendmsg(run.fd, &message, 0));
  Say("sendto", sendto(run.fd, Pattern(20), 20, 0, Generic(&run.peer), sizeof run.peer));
  Settle(run), came();
}

void LongDatagrams(Run& run) {
  SendTo(run, kGroup, 100), SendTo(run, kGroup, 3'000);
  for (const bool before : {true, false}) {
    for (int discovers = IP_PMTUDISC_OMIT; discovers >= IP_PMTUDISC_DONT; --discovers) {
      if (before) Anew(run, SOCK_DGRAM, kSubjectUdpPort);
      Set(run.fd, "IP_MTU_DISCOVER", IPPROTO_IP, IP_MTU_DISCOVER, discovers);
      run.peer.sin_port = htons(kPeerUdpPort);
      if (before) Say("connect", connect(run.fd, Generic(&run.peer), sizeof run.peer));
      for (const int length : {100, 1'472, 1'473, 3'000}) {
        Say("send", send(run.fd, Pattern(length), static_cast<size_t>(length), 0));
      }
      SendTo(run, kGroup, 3'000);
      Seen(run), Tell(run, "datagrams");
    }
  }
}

void SetMarks(int fd, int tos, int ttl) {
  Set(fd, "IP_TOS", IPPROTO_IP, IP_TOS, tos);
  Set(fd, "IP_TTL", IPPROTO_IP, IP_TTL, ttl);
}

void MarksOfAConnection(Run& run) {
  SetMarks(run.fd, 0x10, 7);
  Tell(run, "watch");
  Say("send", send(run.fd, Pattern(100), 100, 0)), Seen(run);
  Tell(run, "reset"), Settle(run);
  Anew(run, SOCK_STREAM);
  SetMarks(run.fd, 0x28, 33);
  Tell(run, "watch");
  Say("connect", connect(run.fd, Generic(&run.peer), sizeof run.peer));
  WaitUntil(run.fd, POLLOUT), Seen(run);
  Tell(run, "accept"), Tell(run, "send 100"), Seen(run);
  SetMarks(run.fd, 0, -1);
  Say("send", send(run.fd, Pattern(100), 100, 0)), Seen(run);
}

// But for SYN-ACK, which a ring sends with the usual ones.
void MarksOfAListener(Run& run) {
  SetMarks(run.listener, 0x28, 33);
  close(run.fd);
  Tell(run, "connect"), Settle(run);
  run.fd = accept4(run.listener, nullptr, nullptr, SOCK_NONBLOCK);
  Tell(run, "watch");
  Say("send", send(run.fd, Pattern(100), 100, 0)), Seen(run);
  SetMarks(run.fd, 0x10, 7);
  Say("send", send(run.fd, Pattern(100), 100, 0)), Seen(run);
  SetMarks(run.listener, 0, -1);
}

void MarksOfDatagrams(Run& run) {
  SetMarks(run.fd, 0x28, 33);
  Say("send", send(run.fd, Pattern(100), 100, 0)), Seen(run);
  SetMarks(run.fd, 0, -1);
  Say("send", send(run.fd, Pattern(100), 100, 0)), Seen(run);
}

// --- What comes with messages ---

void TimesOfSending(Run& run) {
  Set(run.fd, "SO_TIMESTAMPING", SOL_SOCKET, SO_TIMESTAMPING,
      SOF_TIMESTAMPING_TX_SOFTWARE | SOF_TIMESTAMPING_SOFTWARE);
  Say("send", send(run.fd, Pattern(20), 20, 0));
  Settle(run);
  alignas(cmsghdr) char control[500];
  char bytes[100];
  iovec part{.iov_base = bytes, .iov_len = sizeof bytes};
  msghdr message{.msg_iov = &part,
                 .msg_iovlen = 1,
                 .msg_control = control,
                 .msg_controllen = sizeof control};
  const ssize_t got = recvmsg(run.fd, &message, MSG_ERRQUEUE | MSG_DONTWAIT);
  Say("recvmsg", got, std::to_string(message.msg_controllen > 0));
}

std::string KindsOf(msghdr* message) {
  std::string kinds;
  for (cmsghdr* each = CMSG_FIRSTHDR(message); each != nullptr; each = CMSG_NXTHDR(message, each)) {
    kinds += std::to_string(each->cmsg_type) + " ";
  }
  return kinds;
}

// What a ring had on for itself is off, and what the program asked for is on, on the kernel's way.
void LeftToTheKernel(Run& run) {
  const auto asks = [&run] {
    for (const int name : {IP_PKTINFO, IP_RECVERR, IP_RECVFRAGSIZE}) {
      int value = -1;
      socklen_t length = sizeof value;
      const int result = getsockopt(run.fd, IPPROTO_IP, name, &value, &length);
      Say("get", result, std::to_string(value));
    }
  };
  for (const int wanted : {0, 1}) {
    close(run.fd);
    ConnectDatagrams(run);
    Set(run.fd, "IP_PKTINFO", IPPROTO_IP, IP_PKTINFO, wanted);
    asks();
    Set(run.fd, "UDP_SEGMENT", IPPROTO_UDP, UDP_SEGMENT, 1'000);
    asks();
    Tell(run, "datagram 7"), Settle(run);
    alignas(cmsghdr) char control[500];
    char bytes[100];
    iovec part{.iov_base = bytes, .iov_len = sizeof bytes};
    msghdr message{.msg_iov = &part,
                   .msg_iovlen = 1,
                   .msg_control = control,
                   .msg_controllen = sizeof control};
    const ssize_t got = recvmsg(run.fd, &message, 0);
    Say("recvmsg", got, KindsOf(&message));
    Tell(run, "deaf");
    Say("send", send(run.fd, "x", 1, 0));
    for (const int16_t events : {POLLIN, POLLOUT}) {
      pollfd one{.fd = run.fd, .events = events};
      const int ready = poll(&one, 1, 1'000);
      Say("poll", ready, std::to_string(one.revents));
      Say("recv", recv(run.fd, bytes, sizeof bytes, MSG_DONTWAIT));
    }
    Tell(run, "hearing");
  }
  Set(run.fd, "IP_RECVERR", IPPROTO_IP, IP_RECVERR, 1);
  asks();
  close(run.fd);
  ConnectDatagrams(run);
  Set(run.fd, "IP_RECVERR", IPPROTO_IP, IP_RECVERR, 0);
  asks();
  Set(run.fd, "IP_RECVERR", IPPROTO_IP, IP_RECVERR, 1);
  asks();
}

// A length that is less than nothing is none.
void LessThanNoRoom(Run& run) {
  const auto ask = [&run](const char* what, int level, int name) {
    char value[300];
    socklen_t length = static_cast<socklen_t>(-1);
    Say(what, getsockopt(run.fd, level, name, value, &length));
  };
  ask("TCP_INFO", IPPROTO_TCP, TCP_INFO), ask("SO_ERROR", SOL_SOCKET, SO_ERROR);
  ask("IP_PKTINFO", IPPROTO_IP, IP_PKTINFO), ask("IP_MTU", IPPROTO_IP, IP_MTU);
}

// Of a datagram that came in several.
void SizeOfFragments(Run& run) {
  Set(run.fd, "IP_RECVFRAGSIZE", IPPROTO_IP, IP_RECVFRAGSIZE, 1);
  Tell(run, "datagram 3000"), Settle(run);
  alignas(cmsghdr) char control[64];
  char bytes[4000];
  iovec part{.iov_base = bytes, .iov_len = sizeof bytes};
  msghdr message{.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = 64};
  const ssize_t got = recvmsg(run.fd, &message, MSG_DONTWAIT);
  const cmsghdr* const first = CMSG_FIRSTHDR(&message);
  Say("recvmsg", got, first == nullptr ? "" : std::to_string(first->cmsg_type));
}

void TimeOf64Bits(Run& run) {
  Blocks(run.fd, true);
  const int64_t time[2] = {0, 50'000};
  Say("time", setsockopt(run.fd, SOL_SOCKET, SO_RCVTIMEO_NEW, time, sizeof time));
  std::thread later = Later(run, "datagram 7");
  Read(run.fd, "recv", 0);
  later.join();
}

void PeekOffset(Run& run) {
  Set(run.fd, "SO_PEEK_OFF", SOL_SOCKET, SO_PEEK_OFF, 0);
  Tell(run, "datagram 13"), Settle(run);
  char bytes[100];
  for (int i = 0; i < 2; ++i) Say("peek", recv(run.fd, bytes, 10, MSG_PEEK));
  Say("recv", recv(run.fd, bytes, sizeof bytes, 0));
}

// What was lost before a message is told with it.
void Overflow(Run& run) {
  Set(run.fd, "SO_RXQ_OVFL", SOL_SOCKET, SO_RXQ_OVFL, 1);
  Set(run.fd, "SO_RCVBUF", SOL_SOCKET, SO_RCVBUF, 1);
  for (int i = 0; i < 40; ++i) Tell(run, "datagram 1000", /*quietly=*/true);
  Settle(run);
  char bytes[1000];
  while (recv(run.fd, bytes, sizeof bytes, 0) > 0) continue;
  Tell(run, "datagram 10"), Settle(run);
  alignas(cmsghdr) char control[100];
  iovec part{.iov_base = bytes, .iov_len = sizeof bytes};
  msghdr message{.msg_iov = &part,
                 .msg_iovlen = 1,
                 .msg_control = control,
                 .msg_controllen = sizeof control};
  const ssize_t got = recvmsg(run.fd, &message, 0);
  const cmsghdr* const header = CMSG_FIRSTHDR(&message);
  const bool told = header != nullptr && header->cmsg_type == SO_RXQ_OVFL &&
                    *reinterpret_cast<const uint32_t*>(CMSG_DATA(header)) > 0;
  Say("recvmsg", got, std::to_string(told));
}

// What is more than there is, or less than nothing, is as much as there may be.
void RoomForAll(Run& run) {
  constexpr int kMost = std::numeric_limits<int>::max();
  for (const int room : {kMost, 1 << 30, -1}) {
    Set(run.fd, "SO_RCVBUF", SOL_SOCKET, SO_RCVBUF, room);
    for (int i = 0; i < 50; ++i) Tell(run, "datagram 1000", /*quietly=*/true);
    Settle(run);
    char bytes[1000];
    int came = 0;
    while (recv(run.fd, bytes, sizeof bytes, 0) > 0) ++came;
    Say("came", came);
  }
}

// --- Low water ---

void LowWater(Run& run) {
  Set(run.fd, "SO_RCVLOWAT", SOL_SOCKET, SO_RCVLOWAT, 10);
  epoll_event event{.events = EPOLLIN};
  epoll_ctl(run.set, EPOLL_CTL_ADD, run.fd, &event);
  const auto ready = [&run] {
    pollfd one{.fd = run.fd, .events = POLLIN};
    epoll_event told{};
    Say("poll", poll(&one, 1, 0));
    Say("epoll_wait", epoll_wait(run.set, &told, 1, 0));
  };
  char bytes[100];
  Tell(run, "send 5"), Settle(run), ready();
  Tell(run, "send 7"), Settle(run), ready();
  Say("recv", recv(run.fd, bytes, 4, 0));
  ready();
  Say("recv", recv(run.fd, bytes, sizeof bytes, 0));
  const int blocking = 0;
  ioctl(run.fd, FIONBIO, &blocking);
  std::thread other([&run] {
    usleep(100'000);
    Tell(run, "send 6", /*quietly=*/true);
    usleep(100'000);
    Tell(run, "send 7", /*quietly=*/true);
  });
  Say("recv", recv(run.fd, bytes, sizeof bytes, 0));
  other.join();
  Tell(run, "send 3"), Settle(run);
  Say("recv of fewer", recv(run.fd, bytes, 2, 0));
  Set(run.fd, "SO_RCVLOWAT", SOL_SOCKET, SO_RCVLOWAT, 1);
  ready();
  Set(run.fd, "SO_RCVLOWAT", SOL_SOCKET, SO_RCVLOWAT, 10);
  ready(), Tell(run, "shutdown"), Settle(run), ready();
  Say("recv", recv(run.fd, bytes, sizeof bytes, 0));
}

void EdgeOfLowWater(Run& run) {
  epoll_event event{.events = EPOLLIN | EPOLLET};
  epoll_ctl(run.set, EPOLL_CTL_ADD, run.fd, &event);
  Tell(run, "send 5"), Settle(run);
  for (const int low : {1, 5, 6, 1}) {
    Set(run.fd, "SO_RCVLOWAT", SOL_SOCKET, SO_RCVLOWAT, low);
    for (int i = 0; i < 2; ++i) Say("epoll_wait", epoll_wait(run.set, &event, 1, 0));
  }
}

// --- Flags ---

void FlagsOfReceiving(Run& run) {
  Bytes(run, 13);
  Read(run.fd, "peek", MSG_DONTWAIT | MSG_PEEK, 4), Read(run.fd, "peek", MSG_PEEK, 100);
  Read(run.fd, "all", MSG_WAITALL, 13);
  Bytes(run, 13);
  Blocks(run.fd, true);
  std::thread later = Later(run, "send 13");
  Read(run.fd, "all", MSG_WAITALL, 26);
  later.join();
  later = Later(run, "shutdown");
  Bytes(run, 13);
  Read(run.fd, "all, and the end", MSG_WAITALL, 26);
  later.join();
  Read(run.fd, "recv", 0);
}

void BytesAreDiscarded(Run& run) {
  Bytes(run, 13);
  Say("count", recv(run.fd, nullptr, 100, MSG_TRUNC | MSG_PEEK));
  Say("discard", recv(run.fd, nullptr, 4, MSG_TRUNC));
  Bytes(run, 5);
  Say("discard all", recv(run.fd, nullptr, 12, MSG_TRUNC | MSG_WAITALL));
  char bytes[100];
  const ssize_t got = recv(run.fd, bytes, sizeof bytes, 0);
  Say("recv", got, Sum(bytes, got));
}

void FlagsOfSending(Run& run) {
  Say("more", send(run.fd, "12345", 5, MSG_MORE));
  Settle(run), Tell(run, "receive");
  Say("and last", send(run.fd, "67890", 5, 0));
  Settle(run), Tell(run, "receive");
  Say("shutdown", shutdown(run.fd, SHUT_WR));
  Say("send", send(run.fd, "1", 1, MSG_NOSIGNAL));
  Say("send", send(run.fd, "1", 1, 0));
  Settle(run), Tell(run, "receive");
}

void CorkOfAConnection(Run& run) {
  Set(run.fd, "cork", IPPROTO_TCP, TCP_CORK, 1);
  Say("send", send(run.fd, "12345", 5, 0));
  Say("send", send(run.fd, "678", 3, 0));
  Settle(run), Tell(run, "receive");
  Set(run.fd, "uncork", IPPROTO_TCP, TCP_CORK, 0);
  Settle(run), Tell(run, "receive");
  Say("send", send(run.fd, "90", 2, 0));
  Settle(run), Tell(run, "receive");
}

void FlagsOfDatagrams(Run& run) {
  Datagram(run, 100);
  char bytes[200];
  Say("peek", recv(run.fd, bytes, 10, MSG_PEEK | MSG_TRUNC));
  iovec part{.iov_base = bytes, .iov_len = 10};
  msghdr message{.msg_iov = &part, .msg_iovlen = 1};
  Say("recvmsg", recvmsg(run.fd, &message, MSG_DONTWAIT),
      std::to_string((message.msg_flags & MSG_TRUNC) != 0));
  Read(run.fd);
  Datagram(run, 0), Read(run.fd), Read(run.fd);
  Blocks(run.fd, true);
  Read(run.fd, "recv", MSG_DONTWAIT);
  SetReceiveTimeout(run.fd, 50);
  Read(run.fd, "recv", 0);
  std::thread later = Later(run, "datagram 9");
  SetReceiveTimeout(run.fd, 900);
  Read(run.fd, "recv", MSG_WAITALL);
  later.join();
}

// Of bytes that wait to be acknowledged none do, after a while.
void BytesUnderWay(Run& run) {
  int bytes = -1;
  Say("SIOCOUTQ", ioctl(run.fd, SIOCOUTQ, &bytes), std::to_string(bytes));
  Say("send", send(run.fd, "12345", 5, 0));
  Settle(run), Tell(run, "receive");
  for (int i = 0; i < 1000 && ioctl(run.fd, SIOCOUTQ, &bytes) == 0 && bytes != 0; ++i) usleep(1000);
  Say("SIOCOUTQ", ioctl(run.fd, SIOCOUTQ, &bytes), std::to_string(bytes));
  Say("SIOCOUTQNSD", ioctl(run.fd, SIOCOUTQNSD, &bytes), std::to_string(bytes));
  const auto state = [&run] {
    tcp_info info{};
    socklen_t length = sizeof info;
    getsockopt(run.fd, IPPROTO_TCP, TCP_INFO, &info, &length);
    return std::to_string(info.tcpi_state);
  };
  Say("state", 0, state());
  Tell(run, "shutdown"), Settle(run);
  Say("after the peer's FIN", 0, state());
}

void DatagramInParts(Run& run) {
  Say("more", send(run.fd, "12345", 5, MSG_MORE));
  Say("more of nothing", send(run.fd, "", 0, MSG_MORE));
  Settle(run), Tell(run, "datagrams");
  Say("and last", send(run.fd, "6789", 4, 0));
  Settle(run), Tell(run, "datagrams");
  Say("more", send(run.fd, "12", 2, MSG_MORE));
  const std::vector<char> large(65'507);
  Say("too long with it", send(run.fd, large.data(), large.size(), MSG_MORE));
  Say("anew", send(run.fd, "345", 3, 0));
  Settle(run), Tell(run, "datagrams");
  const int on = 1, off = 0;
  Say("cork", setsockopt(run.fd, IPPROTO_UDP, UDP_CORK, &on, sizeof on));
  Say("first", send(run.fd, "12", 2, 0));
  Say("second", send(run.fd, "3456", 4, 0));
  Settle(run), Tell(run, "datagrams");
  Say("uncork", setsockopt(run.fd, IPPROTO_UDP, UDP_CORK, &off, sizeof off));
  Settle(run), Tell(run, "datagrams");
  Say("uncork again", setsockopt(run.fd, IPPROTO_UDP, UDP_CORK, &off, sizeof off));
  Say("whole", send(run.fd, "1234567", 7, 0));
  Settle(run), Tell(run, "datagrams");
  // What was begun before goes on.
  Say("more", send(run.fd, "12", 2, MSG_MORE));
  Say("shutdown", shutdown(run.fd, SHUT_WR));
  Say("and last", send(run.fd, "345", 3, MSG_NOSIGNAL));
  Say("anew", send(run.fd, "67", 2, MSG_MORE | MSG_NOSIGNAL));
  Settle(run), Tell(run, "datagrams");
}

// --- The table ---

constexpr Case kCases[] = {
    {"groups by the route", false, GroupsByRoute},
    {"groups by an interface's address", false, GroupsByAddress},
    {"groups by an interface's index", false, GroupsByIndex},
    {"nobody in this host", false, NobodyInThisHost},
    {"one-shot listener", false, OneShotListener},
    {"listener shut for sending", false, ListenerShutForSending},
    {"accepted after a reset", false, AcceptedAfterAReset},
    {"listener of a device", false, ListenerOfADevice},
    {"datagrams of a device", false, DatagramsOfADevice},
    {"sources of a group", false, SourcesOfAGroup},
    {"long times", false, LongTimes},
    {"segments", false, Segments},
    {"long datagrams", false, LongDatagrams},
    {"marks of a connection", kConnection, MarksOfAConnection},
    {"marks of a listener", kConnection, MarksOfAListener},
    {"marks of datagrams", false, MarksOfDatagrams},
    {"times of sending", false, TimesOfSending},
    {"left to the kernel", false, LeftToTheKernel},
    {"less than no room", false, LessThanNoRoom},
    {"less than no room for a connection's", kConnection, LessThanNoRoom},
    {"size of fragments", false, SizeOfFragments},
    {"time of 64 bits", false, TimeOf64Bits},
    {"peek offset", false, PeekOffset},
    {"overflow", false, Overflow},
    {"room for all", false, RoomForAll},
    {"low water", kConnection, LowWater},
    {"edge of low water", kConnection, EdgeOfLowWater},
    {"flags of receiving", kConnection, FlagsOfReceiving},
    {"bytes are discarded", kConnection, BytesAreDiscarded},
    {"flags of sending", kConnection, FlagsOfSending},
    {"cork of a connection", kConnection, CorkOfAConnection},
    {"flags of datagrams", false, FlagsOfDatagrams},
    {"datagram in parts", false, DatagramInParts},
    {"bytes under way", kConnection, BytesUnderWay},
};

}  // namespace
}  // namespace xtreme::faces

int main(int argc, char** argv) {
  xtreme::faces::Run run;
  if (argc != 5 || !xtreme::faces::Begin(argv, &run)) return 2;
  inet_pton(AF_INET, argv[4], &xtreme::faces::other_own);
  xtreme::faces::RunCases(xtreme::faces::kCases, run);
}
