// SPDX-License-Identifier: Apache-2.0
//
// A program of two threads: one waits in a call, the other meanwhile makes a few calls on the same
// socket, or the peer does something; both write down what each call said. Run by the kernel and by
// rings, its transcripts are to be the same.
//
//   crossing_subject SOCKET OWN-ADDRESS PEER-ADDRESS SILENT-ADDRESS SEED RUNS FIRST-PORT
//
// SILENT-ADDRESS: nobody answers there. FIRST-PORT: no other run had ports from there on, one each.
// Not among the calls, for it is known to differ (docs/porting-from-vma.md): the close of the last
// descriptor of what is waited for. Threads: two.

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

#include "tests/faces/transcript.h"

namespace xtreme::faces {
namespace {

constexpr int kWaitMs = 600;

// What a sequence is about.
enum class About { kConnection, kAccepted, kDatagrams, kListener, kConnecting, kFull };

struct Crossing {
  Run run;
  About about = About::kConnection;
  int port = 0;
  sockaddr_in silent{};
  std::atomic<bool> begun{false};  // Nothing but the wait is left of what waits.
};

// --- Waits: what each says, and its error ---

std::string Ended(const char* what, ssize_t result, const std::string& more = "") {
  const int error = result < 0 ? errno : 0;
  return std::string(what) + " = " + std::to_string(result) +
         (error != 0 ? std::string(" ") + strerrorname_np(error) : "") + " " + more;
}

std::string Hex(uint32_t bits) {
  char text[16];
  snprintf(text, sizeof text, "%#x", bits);
  return text;
}

std::string WaitToReceive(Crossing& all) {
  char bytes[100];
  all.begun = true;
  const ssize_t got = recv(all.run.fd, bytes, sizeof bytes, 0);
  return Ended("recv", got, got > 0 ? Sum(bytes, got) : "");
}

std::string WaitForAll(Crossing& all) {
  char bytes[20];
  all.begun = true;
  const ssize_t got = recv(all.run.fd, bytes, sizeof bytes, MSG_WAITALL);
  return Ended("recv of all", got, got > 0 ? Sum(bytes, got) : "");
}

std::string WaitToPeek(Crossing& all) {
  char bytes[100];
  all.begun = true;
  const ssize_t got = recv(all.run.fd, bytes, sizeof bytes, MSG_PEEK);
  return Ended("recv to peek", got, got > 0 ? Sum(bytes, got) : "");
}

std::string WaitToRead(Crossing& all) {
  char bytes[100];
  iovec parts[] = {{bytes, 3}, {bytes + 3, 97}};
  all.begun = true;
  const ssize_t got = readv(all.run.fd, parts, 2);
  return Ended("readv", got, got > 0 ? Sum(bytes, got) : "");
}

template <int16_t events>
std::string WaitByPoll(Crossing& all) {
  pollfd one{.fd = all.run.fd, .events = events};
  all.begun = true;
  const int ready = poll(&one, 1, kWaitMs);
  return Ended("poll", ready, Hex(static_cast<uint16_t>(one.revents)));
}

std::string WaitBySelect(Crossing& all) {
  fd_set read{};
  FD_SET(all.run.fd, &read);
  timeval time{.tv_sec = 0, .tv_usec = kWaitMs * 1'000};
  all.begun = true;
  return Ended("select", select(all.run.fd + 1, &read, nullptr, nullptr, &time));
}

template <uint32_t events>
std::string WaitBySet(Crossing& all) {
  epoll_event event{.events = events, .data = {.u64 = 7}};
  epoll_ctl(all.run.set, EPOLL_CTL_ADD, all.run.fd, &event);
  // What holds already is no news.
  if ((events & EPOLLET) != 0) epoll_wait(all.run.set, &event, 1, 0);
  event = {};
  all.begun = true;
  const int ready = epoll_wait(all.run.set, &event, 1, kWaitMs);
  const std::string told = Hex(event.events) + " " + std::to_string(event.data.u64);
  return Ended("epoll_wait", ready, told);
}

// Another thread adds it.
std::string WaitByEmptySet(Crossing& all) {
  epoll_event event{};
  all.begun = true;
  const int ready = epoll_wait(all.run.set, &event, 1, kWaitMs);
  const std::string told = Hex(event.events) + " " + std::to_string(event.data.u64);
  return Ended("epoll_wait", ready, told);
}

std::string WaitToAccept(Crossing& all) {
  all.begun = true;
  const int fd = accept4(all.run.fd, nullptr, nullptr, SOCK_CLOEXEC);
  const std::string told = Ended("accept", fd < 0 ? -1 : 0);
  if (fd >= 0) close(fd);
  return told;
}

std::string WaitToConnect(Crossing& all) {
  all.begun = true;
  return Ended("connect", connect(all.run.fd, Generic(&all.silent), sizeof all.silent));
}

std::string WaitToSend(Crossing& all) {
  all.begun = true;
  // How much of it there was room for differs.
  const ssize_t sent = send(all.run.fd, Pattern(0), 60'000, MSG_NOSIGNAL);
  return sent == 60'000 ? "all is sent" : "not all is sent";
}

using Wait = std::string (*)(Crossing&);
constexpr Wait kReadWaits[] = {
    WaitToReceive, WaitToReceive, WaitForAll, WaitToPeek, WaitToRead, WaitByPoll<POLLIN>,
    WaitByPoll<POLLIN | POLLRDHUP>, WaitByPoll<0>, WaitByPoll<POLLPRI>, WaitBySelect,
    WaitBySet<EPOLLIN>, WaitBySet<EPOLLIN | EPOLLRDHUP>, WaitBySet<EPOLLIN | EPOLLOUT | EPOLLET>,
    WaitBySet<EPOLLIN | EPOLLONESHOT>, WaitBySet<0>, WaitByEmptySet};
constexpr Wait kAcceptWaits[] = {WaitToAccept, WaitToAccept, WaitByPoll<POLLIN>, WaitBySelect,
                                 WaitByPoll<0>, WaitBySet<EPOLLIN>, WaitBySet<EPOLLIN | EPOLLET>,
                                 WaitByEmptySet};
constexpr Wait kConnectWaits[] = {WaitToConnect};
constexpr Wait kSendWaits[] = {WaitToSend, WaitToSend, WaitByPoll<POLLOUT>, WaitBySet<EPOLLOUT>,
                               WaitBySet<EPOLLOUT | EPOLLET>};

// --- What happens meanwhile ---

void Stop(Crossing& all) {
  const int how = all.run.Of<int>({SHUT_RD, SHUT_WR, SHUT_RDWR});
  Say(("shutdown " + std::to_string(how)).c_str(), shutdown(all.run.fd, how));
}

void CopyAndClose(Crossing& all) {
  const int copy = dup(all.run.fd);
  Say("close of a copy", close(copy));
}

// The number is a copy's from here on; what waits, waits for the same socket.
void CloseAllButACopy(Crossing& all) {
  const int copy = dup(all.run.fd);
  Say("dup2 of itself", dup2(copy, all.run.fd) == all.run.fd);
  close(copy);
}

void SetFlag(Crossing& all) {
  const int on = all.run.Pick(2);
  Say("O_NONBLOCK", fcntl(all.run.fd, F_SETFL, O_RDWR | (on ? O_NONBLOCK : 0)));
}

void SetSome(Crossing& all) {
  struct Option {
    int level, name, value;
  };
  const Option option = all.run.Of<Option>({{SOL_SOCKET, SO_KEEPALIVE, 1},
                                            {SOL_SOCKET, SO_RCVBUF, 20'000},
                                            {SOL_SOCKET, SO_PRIORITY, 3},
                                            {IPPROTO_IP, IP_TTL, 33},
                                            {IPPROTO_TCP, TCP_NODELAY, 1},
                                            {SOL_SOCKET, SO_BROADCAST, 1}});
  Say(("setsockopt " + std::to_string(option.name)).c_str(),
      setsockopt(all.run.fd, option.level, option.name, &option.value, sizeof option.value));
}

void ChangeSet(Crossing& all) {
  const int operation = all.run.Of<int>({EPOLL_CTL_ADD, EPOLL_CTL_ADD, EPOLL_CTL_MOD,
                                         EPOLL_CTL_DEL});
  epoll_event event{
      .events = all.run.Of<uint32_t>({EPOLLIN, EPOLLIN | EPOLLET, EPOLLOUT, EPOLLIN | EPOLLRDHUP}),
      .data = {.u64 = 9}};
  Say(("epoll_ctl " + std::to_string(operation) + " " + Hex(event.events)).c_str(),
      epoll_ctl(all.run.set, operation, all.run.fd, &event));
}

void Steal(Crossing& all) {
  char bytes[100];
  Say("recv", recv(all.run.fd, bytes, static_cast<size_t>(all.run.Of({1, 10, 100})),
                   MSG_DONTWAIT | all.run.Of<int>({0, 0, MSG_PEEK})));
}

void SendSome(Crossing& all) {
  Say("send", send(all.run.fd, "12345", 5, MSG_NOSIGNAL | MSG_DONTWAIT));
}

void AskError(Crossing& all) {
  int error = -1;
  socklen_t length = sizeof error;
  const int result = getsockopt(all.run.fd, SOL_SOCKET, SO_ERROR, &error, &length);
  Say("SO_ERROR", result, error == 0 ? "none" : strerrorname_np(error));
}

// How much there is differs, not that there is room when it has all come.
void OfFull(Crossing& all) {
  if (all.run.Pick(4) == 0) return Tell(all.run, all.run.Pick(2) ? "shutdown" : "reset");
  for (int i = 0; i < 50; ++i) {
    Tell(all.run, "receive", /*quietly=*/true);
    usleep(1'000);
  }
}

// The socket is as new. Its error is the next call's.
void Dissolve(Crossing& all) {
  if (all.about == About::kDatagrams) return;
  const sockaddr nobody{.sa_family = AF_UNSPEC};
  Say("connect to nobody", connect(all.run.fd, &nobody, sizeof nobody));
}

void OfPeer(Crossing& all) {
  Run& run = all.run;
  switch (all.about) {
    case About::kListener:
      return Tell(run, "connect 0 " + std::to_string(all.port), /*quietly=*/true);
    case About::kDatagrams:
      return Tell(run, "datagram " + std::to_string(run.Of({0, 1, 13, 100})));
    case About::kConnecting:
      return;
    case About::kFull:
      return OfFull(all);
    default:
      break;
  }
  switch (run.Pick(6)) {
    case 0:
      return Tell(run, "shutdown");
    case 1:
      return Tell(run, run.Pick(2) ? "close" : "reset");
    default:
      return Tell(run, "send " + std::to_string(run.Of({1, 5, 13, 20, 100})));
  }
}

// The copy is as good.
void SendByCopy(Crossing& all) {
  const int copy = dup(all.run.fd);
  Say("send by a copy", send(copy, "12345", 5, MSG_NOSIGNAL | MSG_DONTWAIT));
  close(copy);
}

void ConnectAgain(Crossing& all) {
  if (all.about == About::kDatagrams || all.about == About::kListener) return;
  Say("connect", connect(all.run.fd, Generic(&all.run.peer), sizeof all.run.peer));
}

void ListenAgain(Crossing& all) {
  if (all.about == About::kListener) Say("listen", listen(all.run.fd, 5));
}

using Call = void (*)(Crossing&);
constexpr Call kCalls[] = {Stop, Stop, CopyAndClose, CloseAllButACopy, SetFlag, SetSome, ChangeSet,
                           ChangeSet, Steal, Steal, SendSome, AskError, OfPeer, OfPeer, OfPeer,
                           OfPeer, OfPeer, SendByCopy, ConnectAgain, ListenAgain, Dissolve};

// --- Sequences ---

void Fill(Crossing& all) {
  while (send(all.run.fd, Pattern(0), 60'000, MSG_NOSIGNAL | MSG_DONTWAIT) > 0) continue;
  // Until the peer's buffer is full, too.
  for (int i = 0; i < 20; ++i) {
    Settle(all.run);
    while (send(all.run.fd, Pattern(0), 60'000, MSG_NOSIGNAL | MSG_DONTWAIT) > 0) continue;
    usleep(5'000);
  }
  errno = 0;
}

void Open(Crossing& all) {
  Run& run = all.run;
  constexpr About kAll[] = {About::kConnection, About::kConnection, About::kAccepted,
                            About::kDatagrams, About::kListener, About::kConnecting, About::kFull};
  all.about = run.Of(kAll);
  printf("%d: ", static_cast<int>(all.about));
  run.peer.sin_port = htons(kPeerTcpPort);
  switch (all.about) {
    case About::kConnection:
      return ConnectStream(run);
    case About::kFull:
      ConnectStream(run);
      return Fill(all);
    case About::kAccepted:
      Tell(run, "connect");
      WaitUntil(run.listener, POLLIN);
      run.fd = accept4(run.listener, nullptr, nullptr, SOCK_NONBLOCK);
      return Say("accept", run.fd < 0 ? -1 : 0);
    case About::kDatagrams:
      return ConnectDatagrams(run);
    case About::kListener: {
      run.fd = NewSocket(run, SOCK_STREAM, all.port);
      Say("listen", listen(run.fd, 5));
      pollfd one{.fd = run.fd, .events = POLLIN};
      poll(&one, 1, 0);
      return;
    }
    default:
      run.fd = NewSocket(run, SOCK_STREAM, 0);
  }
}

Wait AnyWait(Crossing& all) {
  switch (all.about) {
    case About::kListener:
      return all.run.Of(kAcceptWaits);
    case About::kConnecting:
      return all.run.Of(kConnectWaits);
    case About::kFull:
      return all.run.Of(kSendWaits);
    default:
      return all.run.Of(kReadWaits);
  }
}

void SayState(Crossing& all) {
  pollfd one{.fd = all.run.fd, .events = POLLIN | POLLOUT | POLLRDHUP};
  if (all.about == About::kFull) one.events = POLLIN | POLLRDHUP;
  const int ready = poll(&one, 1, 0);
  Say("poll", ready, Hex(static_cast<uint16_t>(one.revents)));
  epoll_event event{};
  const int count = epoll_wait(all.run.set, &event, 1, 0);
  Say("epoll_wait", count, Hex(event.events));
  AskError(all);
  char bytes[100];
  Say("recv", recv(all.run.fd, bytes, sizeof bytes, MSG_DONTWAIT));
}

void Sequence(Crossing& all) {
  Run& run = all.run;
  constexpr useconds_t kBegins = 60'000;
  constexpr useconds_t kBetween = 30'000;
  run.set = epoll_create1(0);
  Open(all);
  Settle(run);
  const timeval time{.tv_sec = 0, .tv_usec = kWaitMs * 1'000};
  setsockopt(run.fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
  setsockopt(run.fd, SOL_SOCKET, SO_SNDTIMEO, &time, sizeof time);
  Blocks(run.fd, true);
  const Wait wait = AnyWait(all);
  std::string told;
  all.begun = false;
  std::thread other([&] { told = wait(all); });
  while (!all.begun) usleep(1'000);
  usleep(kBegins);
  const int calls = 1 + run.Pick(3);
  for (int i = 0; i < calls; ++i) {
    run.Of(kCalls)(all);
    Settle(run);
    usleep(kBetween);
  }
  other.join();
  puts(told.c_str());
  errno = 0;
  Settle(run);
  SayState(all);
  Say("close", close(run.fd));
  close(run.set);
  Settle(run);
  if (all.about == About::kConnection || all.about == About::kAccepted) Tell(run, "receive");
  Tell(run, "reset", /*quietly=*/true);
  // Of a connection that was begun anew.
  for (int i = 0; i < 3; ++i) Tell(run, "accept", /*quietly=*/true);
  Tell(run, "datagrams", /*quietly=*/true);
  Settle(run);
  fflush(stdout);
}

int Main(char** argv) {
  Crossing all;
  if (!Begin(argv, &all.run)) return 1;
  all.silent = all.run.peer;
  all.silent.sin_port = htons(kPeerTcpPort);
  inet_pton(AF_INET, argv[4], &all.silent.sin_addr);
  const auto seed = static_cast<uint32_t>(strtoul(argv[5], nullptr, 10));
  const auto first_port = static_cast<int>(strtol(argv[7], nullptr, 10));
  for (uint32_t i = 0; i < strtoul(argv[6], nullptr, 10); ++i) {
    printf("-- seed %u\n", seed + i);
    all.run.random.seed(seed + i);
    all.port = kFirstCrossingPort + (first_port + static_cast<int>(i)) % 20'000;
    Sequence(all);
  }
  puts("done");
  return 0;
}

}  // namespace
}  // namespace xtreme::faces

int main(int argc, char** argv) { return argc == 8 ? xtreme::faces::Main(argv) : 2; }
