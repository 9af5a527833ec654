// SPDX-License-Identifier: Apache-2.0
//
// A program that sets what servers set of listeners and connections, waits as they do, and writes
// down what its calls and its peer said: run by the kernel and by rings, its transcripts are to be
// the same.
//
//   stream_options_subject SOCKET OWN-ADDRESS PEER-ADDRESS
//
// A case is a line of kCases. How long something took is told in whole seconds; numbers of bytes,
// of which each host has its own, by what they are below. Threads: one, but for Later().

#include <fcntl.h>
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <limits>
#include <string>
#include <thread>
#include <utility>

#include "tests/faces/transcript.h"

namespace xtreme::faces {
namespace {

void Set(int fd, const char* what, int name, int value) {
  Say(what, setsockopt(fd, IPPROTO_TCP, name, &value, sizeof value));
}

void Get(int fd, const char* what, int name) {
  int value = -1;
  socklen_t length = sizeof value;
  const int result = getsockopt(fd, IPPROTO_TCP, name, &value, &length);
  Say(what, result, std::to_string(value));
}

std::string EventsOf(int fd, int16_t events, int milliseconds) {
  pollfd one{.fd = fd, .events = events};
  const int ready = poll(&one, 1, milliseconds);
  char told[64];
  snprintf(told, sizeof told, "%d: %#x", ready, one.revents);
  return told;
}

void SayReady(int fd, int16_t events = POLLIN, int milliseconds = 0) {
  Say("poll", 0, EventsOf(fd, events, milliseconds));
}

int Number(int fd, unsigned long request) {
  int number = -1;
  ioctl(fd, request, &number);
  return number;
}

double Now() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

// In whole seconds, or no time.
std::string Since(double start) { return std::to_string(static_cast<int>(Now() - start + 0.2)); }

void Sleep(int milliseconds) { usleep(static_cast<useconds_t>(milliseconds) * 1'000); }

// --- TCP_DEFER_ACCEPT ---

void AcceptAndRead(Run& run) {
  const int fd = accept4(run.listener, nullptr, nullptr, SOCK_NONBLOCK);
  Say("accept", fd >= 0 ? 0 : -1);
  if (fd >= 0) Read(fd), close(fd);
}

void Deferred(Run& run) {
  Set(run.listener, "defer", TCP_DEFER_ACCEPT, 1);
  Get(run.listener, "deferred", TCP_DEFER_ACCEPT);
  epoll_event event{.events = EPOLLIN};
  epoll_ctl(run.set, EPOLL_CTL_ADD, run.listener, &event);
  Tell(run, "connect"), Settle(run);
  SayReady(run.listener), AcceptAndRead(run);
  Say("epoll_wait", epoll_wait(run.set, &event, 1, 0));
  Tell(run, "send 5"), Settle(run);
  SayReady(run.listener);
  Say("epoll_wait", epoll_wait(run.set, &event, 1, 0));
  AcceptAndRead(run), SayReady(run.listener);
  Set(run.listener, "defer", TCP_DEFER_ACCEPT, 0);
}

// Who says nothing is accepted in the end: when the time is over that SYN-ACK is sent again by.
void DeferredInSilence(Run& run) {
  for (const int seconds : {1, 2}) {
    Set(run.listener, "defer", TCP_DEFER_ACCEPT, seconds);
    Get(run.listener, "deferred", TCP_DEFER_ACCEPT);
    const double start = Now();
    Tell(run, "connect"), Settle(run);
    SayReady(run.listener, POLLIN, 10'000);
    Say("after", 0, Since(start));
    const int fd = accept4(run.listener, nullptr, nullptr, SOCK_NONBLOCK);
    Say("accept", fd >= 0 ? 0 : -1);
    Read(fd), Tell(run, "send 5"), Settle(run), Read(fd);
    Say("send", send(fd, "12345", 5, MSG_NOSIGNAL));
    Settle(run), Tell(run, "receive");
    close(fd);
  }
  Set(run.listener, "defer", TCP_DEFER_ACCEPT, 0);
}

void DeferredUntilTheEnd(Run& run) {
  Set(run.listener, "defer", TCP_DEFER_ACCEPT, 5);
  Tell(run, "connect"), Settle(run), SayReady(run.listener);
  Tell(run, "shutdown"), Settle(run), SayReady(run.listener), AcceptAndRead(run);
  Tell(run, "connect"), Settle(run), SayReady(run.listener);
  Tell(run, "reset"), Settle(run), SayReady(run.listener);
  AcceptAndRead(run);
  Set(run.listener, "defer", TCP_DEFER_ACCEPT, 0);
}

void DeferredWhileItBlocks(Run& run) {
  Set(run.listener, "defer", TCP_DEFER_ACCEPT, 5);
  Blocks(run.listener, true);
  Tell(run, "connect"), Settle(run);
  std::thread later = Later(run, "send 7");
  const int fd = accept4(run.listener, nullptr, nullptr, SOCK_NONBLOCK);
  later.join();
  Say("accept", fd >= 0 ? 0 : -1);
  Read(fd), close(fd);
  Blocks(run.listener, false);
  Set(run.listener, "defer", TCP_DEFER_ACCEPT, 0);
}

// Of a listener that is new, and by one word before it is waited for.
void DeferredFromTheFirst(Run& run) {
  for (const bool before : {true, false}) {
    const int listener = NewSocket(run, SOCK_STREAM, 7'009);
    if (before) Set(listener, "defer", TCP_DEFER_ACCEPT, 10);
    Say("listen", listen(listener, 4));
    if (!before) Set(listener, "defer", TCP_DEFER_ACCEPT, 10);
    SayReady(listener);
    Tell(run, "connect 0 7009"), Settle(run), SayReady(listener);
    Tell(run, "send 5"), Settle(run), SayReady(listener);
    const int fd = accept4(listener, nullptr, nullptr, SOCK_NONBLOCK);
    Say("accept", fd >= 0 ? 0 : -1);
    Read(fd), Get(fd, "a child's", TCP_DEFER_ACCEPT);
    close(fd), close(listener);
    Tell(run, "reset", /*quietly=*/true);
  }
}

// --- TCP_NOTSENT_LOWAT ---

constexpr int kLowWater = 8'192;

// Sends until nothing more is taken, nor when all that is under way has been acknowledged, which
// may let more go; and says how much of it waits, unsent.
void Fill(Run& run) {
  ssize_t sent = 0;
  pollfd room{.fd = run.fd, .events = POLLOUT};
  for (int i = 0; i < 1'000; ++i) {
    while ((sent = send(run.fd, Pattern(10'000), 10'000, MSG_NOSIGNAL)) > 0) continue;
    const int error = errno;
    Settle(run);
    const bool more = poll(&room, 1, 0) == 1;
    errno = error;
    if (!more) break;
  }
  Say("send", sent);
  const int unsent = Number(run.fd, SIOCOUTQNSD);
  Say("unsent", 0, unsent >= kLowWater / 2 && unsent < 16 * kLowWater ? "little" : "much");
}

void DrainPeer(Run& run) {
  for (int i = 0; i < 200 && Number(run.fd, SIOCOUTQ) > 0; ++i) {
    Tell(run, "receive", /*quietly=*/true);
    Settle(run);
  }
}

void LittleUnsent(Run& run) {
  Set(run.fd, "low water", TCP_NOTSENT_LOWAT, kLowWater);
  Get(run.fd, "low water", TCP_NOTSENT_LOWAT);
  epoll_event event{.events = EPOLLOUT};
  epoll_ctl(run.set, EPOLL_CTL_ADD, run.fd, &event);
  SayReady(run.fd, POLLOUT);
  Fill(run), SayReady(run.fd, POLLOUT);
  Say("epoll_wait", epoll_wait(run.set, &event, 1, 0));
  DrainPeer(run);
  SayReady(run.fd, POLLOUT, 1'000);
  Say("epoll_wait", epoll_wait(run.set, &event, 1, 0));
  Fill(run), SayReady(run.fd, POLLOUT);
  // As much as there may be without a word is more.
  Set(run.fd, "low water", TCP_NOTSENT_LOWAT, 0);
  SayReady(run.fd, POLLOUT, 1'000);
  Set(run.fd, "low water", TCP_NOTSENT_LOWAT, kLowWater);
  SayReady(run.fd, POLLOUT);
  DrainPeer(run);
  SayReady(run.fd, POLLOUT, 1'000);
}

void LittleUnsentWhileItBlocks(Run& run) {
  Set(run.fd, "low water", TCP_NOTSENT_LOWAT, 1);
  Blocks(run.fd, true);
  SayReady(run.fd, POLLOUT);
  std::thread other([&run] {
    for (int i = 0; i < 40; ++i) Sleep(10), Tell(run, "receive", /*quietly=*/true);
  });
  const std::string bytes(2'000'000, 'x');
  Say("send", send(run.fd, bytes.data(), bytes.size(), MSG_NOSIGNAL));
  other.join();
  Settle(run), DrainPeer(run), SayReady(run.fd, POLLOUT, 1'000);
}

void EdgeOfLittleUnsent(Run& run) {
  epoll_event event{.events = EPOLLOUT | EPOLLET};
  epoll_ctl(run.set, EPOLL_CTL_ADD, run.fd, &event);
  for (int i = 0; i < 2; ++i) Say("epoll_wait", epoll_wait(run.set, &event, 1, 0));
  Set(run.fd, "low water", TCP_NOTSENT_LOWAT, kLowWater);
  for (int i = 0; i < 2; ++i) Say("epoll_wait", epoll_wait(run.set, &event, 1, 0));
  Fill(run);
  Say("epoll_wait", epoll_wait(run.set, &event, 1, 0));
  DrainPeer(run);
  for (int i = 0; i < 2; ++i) Say("epoll_wait", epoll_wait(run.set, &event, 1, i == 0 ? 1'000 : 0));
}

// --- SO_LINGER ---

void SetLinger(int fd, int seconds) {
  const linger value{.l_onoff = 1, .l_linger = seconds};
  Say("SO_LINGER", setsockopt(fd, SOL_SOCKET, SO_LINGER, &value, sizeof value));
}

// More than the peer has room for.
void SendMuch(Run& run) {
  while (send(run.fd, Pattern(10'000), 10'000, MSG_NOSIGNAL) > 0) continue;
  errno = 0;
}

void CloseWithin(Run& run) {
  const double start = Now();
  const int closed = close(run.fd);
  Say("close", closed, "after " + Since(start));
}

// It waits for what was sent, and no longer; and not at all for what was not read.
void ClosingInTime(Run& run) {
  SetLinger(run.fd, 30), Say("send", send(run.fd, "12345", 5, 0)), CloseWithin(run);
  Settle(run), Tell(run, "receive"), Tell(run, "reset", /*quietly=*/true);
  ConnectStream(run), SetLinger(run.fd, 2), SendMuch(run), CloseWithin(run);
  Tell(run, "error"), Tell(run, "reset", /*quietly=*/true);
  ConnectStream(run), SetLinger(run.fd, 30), SendMuch(run);
  std::thread other([&run] {
    Sleep(300);
    for (int i = 0; i < 100; ++i) Tell(run, "receive", /*quietly=*/true), Sleep(10);
  });
  CloseWithin(run);
  other.join();
  Tell(run, "reset", /*quietly=*/true);
  ConnectStream(run), SetLinger(run.fd, 2), Bytes(run), CloseWithin(run);
  Settle(run), Tell(run, "error");
  ConnectStream(run), SetLinger(run.fd, 0), CloseWithin(run), Settle(run), Tell(run, "error");
  ConnectStream(run);
}

// --- TCP_LINGER2 ---

// What the peer finds that has not said FIN when it is closed, and says it `later` or sends.
void Orphan(Run& run, int linger, int later_ms, const char* then) {
  close(run.fd);
  ConnectStream(run);
  Set(run.fd, "linger", TCP_LINGER2, linger);
  Get(run.fd, "lingers", TCP_LINGER2);
  Say("close", close(run.fd));
  Settle(run), Tell(run, "receive"), Sleep(later_ms);
  Tell(run, then), Settle(run), Tell(run, "error");
  Tell(run, "reset", /*quietly=*/true);
  ConnectStream(run);
}

void Lingering(Run& run) {
  // A FIN is acknowledged in a while.
  constexpr int kSoon = 200;
  Orphan(run, 3, kSoon, "shutdown"), Orphan(run, 1, 1'800, "shutdown");
  Orphan(run, 20, 1'800, "shutdown"), Orphan(run, -1, kSoon, "shutdown");
  Orphan(run, -1, kSoon, "error"), Orphan(run, 5, kSoon, "send 5");
}

// FIN-WAIT-2 is not an orphan's until it is closed.
void LingeringHalfOpen(Run& run) {
  for (const int linger : {1, -1}) {
    Set(run.fd, "linger", TCP_LINGER2, linger);
    Say("shutdown", shutdown(run.fd, SHUT_WR));
    Settle(run), Sleep(1'300);
    Bytes(run), Read(run.fd), Tell(run, "error");
    Say("close", close(run.fd));
    Settle(run), Sleep(1'300), Tell(run, "shutdown"), Settle(run), Tell(run, "error");
    ConnectStream(run);
  }
}

// --- TCP_WINDOW_CLAMP: what it bounds a new kernel takes back as data comes ---

void Clamped(Run& run) {
  const int fd = NewSocket(run, SOCK_STREAM, 0);
  for (const int clamp : {8'000, 100, 0}) {
    Set(fd, "clamp", TCP_WINDOW_CLAMP, clamp), Get(fd, "clamped", TCP_WINDOW_CLAMP);
  }
  close(fd);
  Set(run.fd, "clamp", TCP_WINDOW_CLAMP, 8'000), Set(run.fd, "no clamp", TCP_WINDOW_CLAMP, 0);
  Set(run.listener, "clamp", TCP_WINDOW_CLAMP, 8'000);
  Tell(run, "connect"), Settle(run), AcceptAndRead(run);
  Set(run.listener, "no clamp", TCP_WINDOW_CLAMP, 0);
}

// --- IP_LOCAL_PORT_RANGE, IP_BIND_ADDRESS_NO_PORT ---

void PortWithinARange(Run& run) {
  constexpr int kPortRange = 51;
  for (const bool bound : {false, true}) {
    close(run.fd);
    Tell(run, "reset", /*quietly=*/true);
    run.fd = NewSocket(run, SOCK_STREAM, 0);
    const uint32_t range = 30'100u << 16 | 30'000;
    Say("range", setsockopt(run.fd, IPPROTO_IP, kPortRange, &range, sizeof range));
    const int on = 1;
    if (bound) {
      Say("no port", setsockopt(run.fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof on));
      Say("bind", bind(run.fd, Generic(&run.own), sizeof run.own));
    }
    sockaddr_in name{};
    socklen_t length = sizeof name;
    Say("name", getsockname(run.fd, Generic(&name), &length), std::to_string(name.sin_port));
    Say("connect", connect(run.fd, Generic(&run.peer), sizeof run.peer));
    WaitUntil(run.fd, POLLOUT), Settle(run), Tell(run, "accept");
    Say("name", getsockname(run.fd, Generic(&name), &length));
    const int port = ntohs(name.sin_port);
    Say("within", port >= 30'000 && port <= 30'100);
  }
}

// --- What a connection has of its listener ---

struct Kept {
  int level;
  int name;
  int value;
  const char* text;
};

// In the order they are set in: of some one takes another back. What Linux gives to no child is
// among them.
constexpr Kept kKept[] = {
    {SOL_SOCKET, SO_PRIORITY, 3, "SO_PRIORITY"},
    {SOL_SOCKET, SO_TIMESTAMPNS, 1, "SO_TIMESTAMPNS"},
    {SOL_SOCKET, SO_TIMESTAMP, 1, "SO_TIMESTAMP"},
    {IPPROTO_IP, IP_TOS, 0x10, "IP_TOS"},
    {IPPROTO_IP, IP_TTL, 33, "IP_TTL"},
    {SOL_SOCKET, SO_KEEPALIVE, 1, "SO_KEEPALIVE"},
    {SOL_SOCKET, SO_OOBINLINE, 1, "SO_OOBINLINE"},
    {SOL_SOCKET, SO_RCVLOWAT, 3, "SO_RCVLOWAT"},
    {SOL_SOCKET, SO_RXQ_OVFL, 1, "SO_RXQ_OVFL"},
    {IPPROTO_TCP, TCP_NODELAY, 1, "TCP_NODELAY"},
    {IPPROTO_TCP, TCP_KEEPIDLE, 77, "TCP_KEEPIDLE"},
    {IPPROTO_TCP, TCP_KEEPCNT, 3, "TCP_KEEPCNT"},
    {IPPROTO_TCP, TCP_SYNCNT, 3, "TCP_SYNCNT"},
    {IPPROTO_TCP, TCP_LINGER2, 7, "TCP_LINGER2"},
    {IPPROTO_TCP, TCP_USER_TIMEOUT, 9'000, "TCP_USER_TIMEOUT"},
    {IPPROTO_TCP, TCP_INQ, 1, "TCP_INQ"},
    {IPPROTO_TCP, TCP_DEFER_ACCEPT, 0, "TCP_DEFER_ACCEPT"},
};

void OfAListener(Run& run) {
  const int listener = NewSocket(run, SOCK_STREAM, 7'010);
  for (const Kept& each : kKept) {
    Say(each.text, setsockopt(listener, each.level, each.name, &each.value, sizeof each.value));
  }
  Say("listen", listen(listener, 4));
  SayReady(listener);
  Tell(run, "connect 0 7010"), Settle(run), SayReady(listener);
  const int fd = accept4(listener, nullptr, nullptr, SOCK_NONBLOCK);
  Say("accept", fd >= 0 ? 0 : -1);
  for (const Kept& each : kKept) {
    int value = -1;
    socklen_t length = sizeof value;
    const int result = getsockopt(fd, each.level, each.name, &value, &length);
    Say(each.text, result, std::to_string(value));
  }
  close(fd), close(listener);
  Tell(run, "reset", /*quietly=*/true);
}

// --- TCP_MAXSEG, TCP_INFO ---

// When the peer has acknowledged all of it, which it may do late.
void SayInfo(int fd, const char* what) {
  for (int tries = 0; tries < 1'000 && Number(fd, SIOCOUTQ) > 0; ++tries) Sleep(1);
  tcp_info about{};
  socklen_t length = sizeof about;
  const int result = getsockopt(fd, IPPROTO_TCP, TCP_INFO, &about, &length);
  char told[200];
  snprintf(told, sizeof told,
           "state %u, segments of %u, %u not acknowledged, %s again, %llu acknowledged, %llu came, "
           "%u not sent, packets of %u",
           about.tcpi_state, about.tcpi_snd_mss, about.tcpi_unacked,
           about.tcpi_total_retrans <= 2 ? "few" : "many",  // A busy machine acknowledges late.
           static_cast<unsigned long long>(about.tcpi_bytes_acked),
           static_cast<unsigned long long>(about.tcpi_bytes_received), about.tcpi_notsent_bytes,
           about.tcpi_pmtu);
  Say(what, result, told);
}

void Segments(Run& run) {
  Get(run.fd, "segments", TCP_MAXSEG);
  SayInfo(run.fd, "at first");
  Say("send", send(run.fd, Pattern(5'000), 5'000, 0));
  Settle(run), Tell(run, "receive"), Settle(run);
  SayInfo(run.fd, "sent");
  Bytes(run, 13), SayInfo(run.fd, "came"), Read(run.fd), SayInfo(run.fd, "read");
  Tell(run, "connect"), Settle(run);
  const int fd = accept4(run.listener, nullptr, nullptr, SOCK_NONBLOCK);
  Get(fd, "of a child", TCP_MAXSEG);
  SayInfo(fd, "a child");
  Bytes(run, 13);
  Say("send", send(fd, "12345", 5, 0));
  Settle(run), Tell(run, "receive"), Settle(run);
  SayInfo(fd, "a child");
  close(fd), Tell(run, "reset", /*quietly=*/true);
  const int idle = NewSocket(run, SOCK_STREAM, 0);
  Get(idle, "of none", TCP_MAXSEG);
  Set(idle, "fewer", TCP_MAXSEG, 1'000), Get(idle, "of none", TCP_MAXSEG);
  Say("connect", connect(idle, Generic(&run.peer), sizeof run.peer));
  WaitUntil(idle, POLLOUT), Settle(run), Tell(run, "accept");
  Get(idle, "of fewer", TCP_MAXSEG);
  close(idle), Tell(run, "reset", /*quietly=*/true);
}

// --- sendfile() ---

// Of what cannot be sent as a file nothing is.
void FilesThatAreNone(Run& run) {
  int ends[2];
  Say("pipe", pipe2(ends, O_NONBLOCK));
  const int zeros = open("/dev/zero", O_RDONLY);
  const std::pair<const char*, int> files[] = {
      {"directory", open("/", O_RDONLY | O_DIRECTORY)}, {"nothing", 900},
      {"/dev/null", open("/dev/null", O_RDWR)},         {"zeros", zeros},
      {"status", open("/proc/self/status", O_RDONLY)},  {"path", open("/dev/zero", O_PATH)},
      {"pipe", ends[0]},                                {"written", ends[1]},
      {"itself", run.fd}};
  for (const auto& [text, fd] : files) {
    off_t from = 0;
    Say(text, sendfile(run.fd, fd, nullptr, 10));
    Say("from its start", sendfile(run.fd, fd, &from, 10));
    Say("of it nothing", sendfile(run.fd, fd, nullptr, 0));
    Say("too much", sendfile(run.fd, fd, nullptr, std::numeric_limits<size_t>::max()));
  }
  for (off_t from : {off_t{-1}, std::numeric_limits<off_t>::max()}) {
    Say("before and behind it", sendfile(run.fd, zeros, &from, 10));
  }
  for (const auto& [text, fd] : files) {
    if (fd != run.fd) close(fd);
  }
  errno = 0;
  Settle(run), Tell(run, "receive");
}

// --- Values of no length ---

void OfNoLength(Run& run) {
  static char nothing[64] = {};
  const auto set = [&run](const char* what, int level, int name) {
    Say(what, setsockopt(run.fd, level, name, nothing, static_cast<socklen_t>(-1)));
  };
  set("SO_MARK", SOL_SOCKET, SO_MARK), set("IP_MINTTL", IPPROTO_IP, IP_MINTTL);
  set("TCP_MD5SIG", IPPROTO_TCP, TCP_MD5SIG), set("TCP_FASTOPEN", IPPROTO_TCP, TCP_FASTOPEN);
}

// --- The table ---

constexpr Case kCases[] = {
    {"deferred", false, Deferred},
    {"deferred in silence", false, DeferredInSilence},
    {"deferred until the end", false, DeferredUntilTheEnd},
    {"deferred while it blocks", false, DeferredWhileItBlocks},
    {"deferred from the first", false, DeferredFromTheFirst},
    {"little unsent", kConnection, LittleUnsent},
    {"little unsent while it blocks", kConnection, LittleUnsentWhileItBlocks},
    {"edge of little unsent", kConnection, EdgeOfLittleUnsent},
    {"closing in time", kConnection, ClosingInTime},
    {"lingering", kConnection, Lingering},
    {"lingering half open", kConnection, LingeringHalfOpen},
    {"clamped", kConnection, Clamped},
    {"of a listener", false, OfAListener},
    {"segments", kConnection, Segments},
    {"files that are none", kConnection, FilesThatAreNone},
    {"of no length", kConnection, OfNoLength},
    {"port within a range", kConnection, PortWithinARange},
};

}  // namespace
}  // namespace xtreme::faces

int main(int argc, char** argv) {
  return xtreme::faces::RunProgram(argc, argv, xtreme::faces::kCases);
}
