// SPDX-License-Identifier: Apache-2.0
//
// A program that waits in every way there is, copies and closes descriptors, is interrupted and
// asks for errors, and writes down what each call said: run by the kernel and by rings, its
// transcripts are to be the same.
//
//   waiting_subject SOCKET OWN-ADDRESS PEER-ADDRESS
//
// A case is a line of kCases. It finds `fd`, a datagram socket that is connected to the peer, or a
// connection (kConnection), and `set`, an empty epoll set. Threads: one, but for Later().

#include <fcntl.h>
#include <linux/close_range.h>
#include <linux/sockios.h>
#include <netinet/tcp.h>
#include <netinet/udp.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <map>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "tests/faces/transcript.h"

namespace xtreme::faces {
namespace {

volatile sig_atomic_t alarms = 0;

// --- Calls, written down ---

void Control(Run& run, int operation, int fd, uint32_t events, uint64_t tag = 1) {
  epoll_event event{.events = events, .data = {.u64 = tag}};
  char what[64];
  snprintf(what, sizeof what, "epoll_ctl %d %#x", operation, events);
  Say(what, epoll_ctl(run.set, operation, fd, &event));
}

// Events in the order of their tags.
std::string Told(std::span<const epoll_event> events, int count) {
  std::map<uint64_t, uint32_t> by_tag;
  for (int i = 0; i < count; ++i) {
    by_tag[events[static_cast<size_t>(i)].data.u64] = events[static_cast<size_t>(i)].events;
  }
  std::string told;
  for (const auto& [tag, bits] : by_tag) {
    char one[64];
    snprintf(one, sizeof one, "%llx: %#x, ", static_cast<unsigned long long>(tag), bits);
    told += one;
  }
  return told;
}

void Wait(int set, int milliseconds = 0) {
  std::array<epoll_event, 8> events{};
  const int count = epoll_wait(set, events.data(), 8, milliseconds);
  Say("epoll_wait", count, Told(events, count));
}

void PollOne(int fd, int16_t events, int milliseconds = 0) {
  pollfd one{.fd = fd, .events = events};
  const int ready = poll(&one, 1, milliseconds);
  char told[32];
  snprintf(told, sizeof told, "%#x", one.revents);
  Say("poll", ready, told);
}

void AskError(int fd) {
  int error = -1;
  socklen_t length = sizeof error;
  const int result = getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length);
  Say("SO_ERROR", result, error == 0 ? "none" : strerrorname_np(error));
}

// `by` every 50 ms until SayAlarms(), whose handler is installed with `flags`: on a busy machine
// the first may come before the call waits.
timer_t alarm_timer;
int alarm_signal = 0;
void Alarm(int flags, int by = SIGALRM) {
  struct sigaction action{};
  action.sa_handler = [](int) { alarms = alarms + 1; };
  action.sa_flags = flags;
  sigaction(by, &action, nullptr);
  alarm_signal = by;
  sigevent tells{};
  tells.sigev_notify = SIGEV_SIGNAL;
  tells.sigev_signo = by;
  timer_create(CLOCK_MONOTONIC, &tells, &alarm_timer);
  const timespec soon{.tv_sec = 0, .tv_nsec = 50'000'000};
  const itimerspec often{.it_interval = soon, .it_value = soon};
  timer_settime(alarm_timer, 0, &often, nullptr);
}

void SayAlarms() {
  timer_delete(alarm_timer);
  Say("alarms", alarms > 0);
  alarms = 0;
  signal(alarm_signal, SIG_IGN);
}

// --- epoll ---

void Level(Run& run) {
  Control(run, EPOLL_CTL_ADD, run.fd, EPOLLIN);
  Wait(run.set), Datagram(run), Wait(run.set), Wait(run.set), Read(run.fd), Wait(run.set);
}

void Edge(Run& run) {
  Control(run, EPOLL_CTL_ADD, run.fd, EPOLLIN | EPOLLET);
  Datagram(run), Wait(run.set), Wait(run.set), Datagram(run), Wait(run.set), Wait(run.set);
}

void EdgeOfWriting(Run& run) {
  Control(run, EPOLL_CTL_ADD, run.fd, EPOLLIN | EPOLLOUT | EPOLLET);
  Wait(run.set), Wait(run.set);
  Say("send", send(run.fd, "12345", 5, 0));
  Settle(run);
  Wait(run.set), Wait(run.set);
}

void EdgeIsArmedByModification(Run& run) {
  Control(run, EPOLL_CTL_ADD, run.fd, EPOLLIN | EPOLLET);
  Datagram(run), Wait(run.set), Wait(run.set);
  Control(run, EPOLL_CTL_MOD, run.fd, EPOLLIN | EPOLLET, 2);
  Wait(run.set), Wait(run.set);
}

void OneShot(Run& run) {
  Control(run, EPOLL_CTL_ADD, run.fd, EPOLLIN | EPOLLONESHOT);
  Datagram(run), Wait(run.set), Datagram(run), Wait(run.set);
  Control(run, EPOLL_CTL_MOD, run.fd, EPOLLIN | EPOLLONESHOT);
  Wait(run.set), Wait(run.set);
}

// What has been told stays so when its socket gets a name, or a peer.
void OneShotBeforeIt(Run& run) {
  const uint32_t once = EPOLLOUT | EPOLLONESHOT;
  for (const int type : {SOCK_DGRAM, SOCK_STREAM}) {
    close(run.fd);
    run.fd = NewSocket(run, type, 0);
    run.peer.sin_port = htons(type == SOCK_DGRAM ? kPeerUdpPort : kPeerTcpPort);
    Control(run, EPOLL_CTL_ADD, run.fd, once), Wait(run.set), Wait(run.set);
    Say("connect", connect(run.fd, Generic(&run.peer), sizeof run.peer));
    WaitUntil(run.fd, POLLOUT), Settle(run), Wait(run.set);
    Control(run, EPOLL_CTL_MOD, run.fd, once), Wait(run.set), Wait(run.set);
  }
  Tell(run, "accept");
}

// What a listener that is armed again had before it, and what a set that is waited on gets.
void ArmedAgain(Run& run) {
  Control(run, EPOLL_CTL_ADD, run.listener, EPOLLIN | EPOLLONESHOT);
  for (int i = 0; i < 2; ++i) Tell(run, "connect"), Settle(run), Wait(run.set);
  Say("accept", close(accept(run.listener, nullptr, nullptr)));
  Control(run, EPOLL_CTL_MOD, run.listener, EPOLLIN | EPOLLONESHOT), Wait(run.set), Wait(run.set);
  Control(run, EPOLL_CTL_MOD, run.listener, 0), Wait(run.set);
  Control(run, EPOLL_CTL_MOD, run.listener, EPOLLIN, 2), Wait(run.set), Wait(run.set);
  Say("accept", close(accept(run.listener, nullptr, nullptr)));
  Wait(run.set);
  Control(run, EPOLL_CTL_DEL, run.listener, 0);
  Datagram(run);
  for (const int operation : {EPOLL_CTL_ADD, EPOLL_CTL_MOD}) {
    timespec start{};
    timespec end{};
    clock_gettime(CLOCK_MONOTONIC, &start);
    std::thread other([&run, operation] {
      usleep(150'000);
      epoll_event event{.events = EPOLLIN | EPOLLONESHOT, .data = {.u64 = 3}};
      epoll_ctl(run.set, operation, run.fd, &event);
    });
    Wait(run.set, 3'000);
    clock_gettime(CLOCK_MONOTONIC, &end);
    other.join();
    Say("at once", end.tv_sec - start.tv_sec < 2);
  }
}

void Exclusive(Run& run) {
  Control(run, EPOLL_CTL_ADD, run.fd, EPOLLIN | EPOLLONESHOT | EPOLLEXCLUSIVE);
  Control(run, EPOLL_CTL_ADD, run.fd, EPOLLIN | EPOLLRDHUP | EPOLLEXCLUSIVE);
  Control(run, EPOLL_CTL_ADD, run.set, EPOLLIN | EPOLLEXCLUSIVE);
  Control(run, EPOLL_CTL_ADD, run.fd, EPOLLIN | EPOLLEXCLUSIVE);
  Control(run, EPOLL_CTL_MOD, run.fd, EPOLLIN | EPOLLEXCLUSIVE);
  Control(run, EPOLL_CTL_MOD, run.fd, EPOLLIN);
  Datagram(run), Wait(run.set), Wait(run.set);
  Control(run, EPOLL_CTL_DEL, run.fd, 0);
  Wait(run.set);
}

void TwoSets(Run& run) {
  const int first = run.set;
  const int other = epoll_create1(0);
  Control(run, EPOLL_CTL_ADD, run.fd, EPOLLIN);
  run.set = other;
  Control(run, EPOLL_CTL_ADD, run.fd, EPOLLIN | EPOLLET, 2);
  run.set = first;
  Datagram(run), Wait(first), Wait(other), Wait(first), Wait(other);
  close(other);
  Wait(first);
}

void Nested(Run& run) {
  const int inner = run.set;
  Control(run, EPOLL_CTL_ADD, run.fd, EPOLLIN);
  run.set = epoll_create1(0);
  Control(run, EPOLL_CTL_ADD, inner, EPOLLIN, 2);
  Wait(run.set), Datagram(run), PollOne(run.set, POLLIN), PollOne(inner, POLLIN);
  Wait(run.set), Wait(run.set), Wait(inner), Read(run.fd), Wait(run.set), PollOne(run.set, POLLIN);
  Datagram(run), Wait(run.set, 1'000);
  close(inner);
  Wait(run.set);
}

void SetsInCircles(Run& run) {
  const int first = run.set;
  const int other = epoll_create1(0);
  Control(run, EPOLL_CTL_ADD, first, EPOLLIN);
  Control(run, EPOLL_CTL_ADD, other, EPOLLIN);
  run.set = other;
  Control(run, EPOLL_CTL_ADD, first, EPOLLIN);
  run.set = first;
  close(other);
}

void WrongControl(Run& run) {
  Control(run, EPOLL_CTL_MOD, run.fd, EPOLLIN), Control(run, EPOLL_CTL_DEL, run.fd, 0);
  Control(run, EPOLL_CTL_ADD, 900, EPOLLIN), Control(run, EPOLL_CTL_ADD, -1, EPOLLIN);
  Control(run, EPOLL_CTL_ADD, run.fd, EPOLLIN), Control(run, EPOLL_CTL_ADD, run.fd, EPOLLOUT);
  Control(run, 7, run.fd, EPOLLIN);
  std::array<epoll_event, 8> events{};
  Say("epoll_wait of none", epoll_wait(run.set, events.data(), 0, 0));
  Say("epoll_wait of a socket", epoll_wait(run.fd, events.data(), 8, 0));
}

void WaitByTimespec(Run& run) {
  Control(run, EPOLL_CTL_ADD, run.fd, EPOLLIN);
  std::array<epoll_event, 8> events{};
  for (const timespec& time : {timespec{0, 0}, timespec{0, 20'000'000}, timespec{0, 1'000'000'000},
                               timespec{-1, 0}}) {
    Say("epoll_pwait2", epoll_pwait2(run.set, events.data(), 8, &time, nullptr));
  }
  Datagram(run);
  const int count = epoll_pwait2(run.set, events.data(), 8, nullptr, nullptr);
  Say("epoll_pwait2", count, Told(events, count));
}

void CopyStaysInASet(Run& run) {
  const int copy = dup(run.fd);
  Control(run, EPOLL_CTL_ADD, run.fd, EPOLLIN, 1), Control(run, EPOLL_CTL_ADD, copy, EPOLLIN, 2);
  Datagram(run), Wait(run.set);
  Say("close", close(run.fd));
  Wait(run.set);
  // The number is another socket's, which may be added beside what has it no more.
  const int other = NewSocket(run, SOCK_DGRAM, 7100);
  Say("the same number", other == run.fd);
  Control(run, EPOLL_CTL_ADD, other, EPOLLIN, 3);
  Wait(run.set);
  Say("close", close(copy));
  Wait(run.set);
  run.fd = other;
}

// What was added by a number that is closed goes on by its copy, also where it connects then.
void CopyConnects(Run& run) {
  for (const int type : {SOCK_DGRAM, SOCK_STREAM}) {
    close(run.fd);
    run.fd = NewSocket(run, type, 0);
    run.peer.sin_port = htons(type == SOCK_DGRAM ? kPeerUdpPort : kPeerTcpPort);
    Control(run, EPOLL_CTL_ADD, run.fd, EPOLLIN | EPOLLOUT), Wait(run.set);
    const int copy = dup(run.fd);
    Say("close", close(run.fd));
    Wait(run.set);
    Say("connect", connect(copy, Generic(&run.peer), sizeof run.peer));
    WaitUntil(copy, POLLOUT), Settle(run), Wait(run.set);
    run.fd = copy;
  }
  Tell(run, "accept");
}

void EventsOfAConnection(Run& run) {
  Control(run, EPOLL_CTL_ADD, run.fd, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET);
  Wait(run.set), Bytes(run), Wait(run.set), Wait(run.set);
  Read(run.fd), Wait(run.set);
  Tell(run, "shutdown"), Settle(run), Wait(run.set), Wait(run.set), Read(run.fd);
  Say("shutdown", shutdown(run.fd, SHUT_WR));
  Settle(run), Wait(run.set), Wait(run.set);
}

// A read that got fewer bytes than it asked for had all there was: the end is an edge of its own.
void EdgeOfTheEnd(Run& run) {
  Control(run, EPOLL_CTL_ADD, run.fd, EPOLLIN | EPOLLET);
  Bytes(run), Wait(run.set), Tell(run, "shutdown"), Settle(run), Read(run.fd);
  Wait(run.set), Read(run.fd), Wait(run.set);
}

void EdgeOfShutdown(Run& run) {
  Control(run, EPOLL_CTL_ADD, run.fd, EPOLLIN | EPOLLOUT | EPOLLET);
  run.stream ? Bytes(run) : Datagram(run);
  Wait(run.set), Wait(run.set);
  for (const int how : {SHUT_RD, SHUT_WR}) Say("shut", shutdown(run.fd, how)), Wait(run.set);
}

// What was ready in a set that is in another is not when it is closed.
void NestedAndClosed(Run& run) {
  const int inner = run.set;
  Control(run, EPOLL_CTL_ADD, run.fd, EPOLLIN);
  run.set = epoll_create1(0);
  Control(run, EPOLL_CTL_ADD, inner, EPOLLIN, 2);
  Datagram(run), PollOne(run.set, POLLIN);
  close(run.fd);
  PollOne(run.set, POLLIN), Wait(run.set);
  close(inner);
  ConnectDatagrams(run);
}

// --- poll and select ---

void PollOfAnything(Run& run) {
  int ends[2];
  Say("pipe", pipe(ends));
  pollfd all[] = {{run.fd, POLLIN | POLLOUT, 0}, {-1, POLLIN, 7}, {ends[0], POLLIN, 0},
                  {ends[1], POLLOUT, 0},         {900, POLLIN, 0}};
  const int ready = poll(all, 5, 0);
  std::string told;
  for (const pollfd& each : all) told += std::to_string(each.revents) + " ";
  Say("poll", ready, told);
  const int gone = dup(run.fd);
  close(gone);
  fd_set read{};
  FD_SET(gone, &read), FD_SET(run.fd, &read);
  timeval now{};
  Say("select of a closed one", select(gone + 1, &read, nullptr, nullptr, &now));
  timespec wrong{0, 1'000'000'000};
  Say("ppoll", ppoll(all, 1, &wrong, nullptr));
  close(ends[0]), close(ends[1]);
}

// Of `fd`; what is behind the words that `count` bits take is not the program's set.
void SelectOne(int fd, int count, size_t words) {
  constexpr uint64_t kBehind = 0xa5a5'a5a5'a5a5'a5a5;
  std::array<uint64_t, 64> bits;
  bits.fill(kBehind);
  std::fill_n(bits.begin(), words, 0);
  const auto word = static_cast<size_t>(fd) / 64;
  const uint64_t bit = uint64_t{1} << (fd % 64);
  for (const uint64_t before : {bit, uint64_t{0}}) {
    bits[word] = before;
    timeval now{};
    const int ready = select(count, reinterpret_cast<fd_set*>(bits.data()), nullptr, nullptr, &now);
    const bool whole = std::count(bits.begin(), bits.end(), kBehind) == 64 - ssize_t(words);
    Say("select", ready, (bits[word] == bit ? "it, " : "") + std::string(whole ? "whole" : ""));
  }
}

// Sets of more bits than an fd_set has, and of fewer; and a count beyond the table of descriptors,
// which has 2,048 places then.
void SelectBySetsOfOtherSizes(Run& run) {
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  const int high = fcntl(run.fd, F_DUPFD, 1'500);
  Say("copy", high);
  for (const bool ready : {false, true}) {
    if (ready) Datagram(run);
    for (const int fd : {run.fd, high}) {
      SelectOne(fd, fd + 1, static_cast<size_t>(fd) / 64 + 1);
      SelectOne(fd, 1'000'000, 2'048 / 64);
    }
  }
  Read(run.fd);
  close(high);
}

// What select() leaves of the time.
void TimeLeft(Run& run) {
  const auto wait = [&](const char* what, timeval time) {
    fd_set read;
    FD_ZERO(&read);
    FD_SET(run.fd, &read);
    const int ready = select(run.fd + 1, &read, nullptr, nullptr, &time);
    // In seconds that were begun: of a short wait the whole time is left.
    const auto left = time.tv_sec + (time.tv_usec > 0 ? 1 : 0);
    const bool waited_some = time.tv_usec != 0;
    Say(what, ready, std::to_string(left) + (waited_some ? " and waited" : ""));
  };
  wait("of nothing", {});
  wait("of a wait that is over", {.tv_sec = 0, .tv_usec = 30'000});
  Datagram(run);
  wait("of a minute, and one is there", {.tv_sec = 60});
  wait("of nothing, and one is there", {});
  Read(run.fd);
}


// A signal that is blocked but while the call waits.
template <typename Call>
void WithPendingAlarm(const Call& call) {
  sigset_t block;
  sigset_t before;
  sigemptyset(&block), sigaddset(&block, SIGALRM);
  sigprocmask(SIG_BLOCK, &block, &before);
  Alarm(0);
  usleep(60'000);
  call(&before);
  sigprocmask(SIG_SETMASK, &before, nullptr);
  SayAlarms();
}

void MasksOfSignals(Run& run) {
  Control(run, EPOLL_CTL_ADD, run.fd, EPOLLIN);
  for (const long wait_ns : {0L, 100'000'000L}) {
    const timespec time{0, wait_ns};
    WithPendingAlarm([&](const sigset_t* mask) {
      pollfd one{run.fd, POLLIN, 0};
      Say("ppoll", ppoll(&one, 1, &time, mask));
    });
    WithPendingAlarm([&](const sigset_t* mask) {
      fd_set read{};
      FD_SET(run.fd, &read);
      Say("pselect", pselect(run.fd + 1, &read, nullptr, nullptr, &time, mask));
    });
    WithPendingAlarm([&](const sigset_t* mask) {
      std::array<epoll_event, 8> events{};
      Say("epoll_pwait", epoll_pwait(run.set, events.data(), 8, wait_ns == 0 ? 0 : 100, mask));
    });
  }
}

// --- Interruption ---

void Interrupted(Run& run, int flags) {
  Control(run, EPOLL_CTL_ADD, run.fd, EPOLLIN);
  Alarm(flags), PollOne(run.fd, POLLIN, 5'000), SayAlarms();
  Alarm(flags), Wait(run.set, 5'000), SayAlarms();
  fd_set read{};
  FD_SET(run.fd, &read);
  timeval time{.tv_sec = 5, .tv_usec = 0};
  Alarm(flags);
  Say("select", select(run.fd + 1, &read, nullptr, nullptr, &time));
  SayAlarms();
  // With a time limit a receive is never begun anew (signal(7)).
  Blocks(run.fd, true);
  SetReceiveTimeout(run.fd, 500);
  Alarm(flags), Read(run.fd, "recv", 0), SayAlarms();
  Read(run.fd, "recv", 0);
}

void InterruptedForGood(Run& run) {
  Interrupted(run, 0);
  SetReceiveTimeout(run.fd, 0);
  Alarm(0), Read(run.fd, "recv", 0), SayAlarms();
}

void InterruptedByARealTimeSignal(Run& run) {
  Blocks(run.fd, true);
  for (const int by : {SIGRTMIN, SIGRTMAX}) Alarm(0, by), Read(run.fd, "recv", 0), SayAlarms();
}

void InterruptedAndBegunAnew(Run& run) {
  Interrupted(run, SA_RESTART);
  SetReceiveTimeout(run.fd, 0);
  std::thread later = Later(run, "datagram 7");
  Alarm(SA_RESTART), Read(run.fd, "recv", 0), SayAlarms();
  later.join();
}

// Who has a part of it is not begun anew, but has that.
void InterruptedInPart(Run& run) {
  Blocks(run.fd, true);
  Bytes(run);
  std::thread later = Later(run, "send 15");
  Alarm(SA_RESTART), Read(run.fd, "recv", MSG_WAITALL, 20), SayAlarms();
  later.join();
  Settle(run), Read(run.fd);
  std::atomic<bool> over{false};
  std::thread reader([&run, &over] {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, nullptr);
    usleep(600'000);
    while (!over) Tell(run, "receive", /*quietly=*/true);
  });
  const std::vector<char> much(64 << 20);
  Alarm(SA_RESTART);
  const ssize_t sent = send(run.fd, much.data(), much.size(), MSG_NOSIGNAL);
  over = true;
  reader.join();
  Say("send", sent > 0 && sent < static_cast<ssize_t>(much.size()));
  SayAlarms();
}

void AcceptIsInterrupted(Run& run) {
  Blocks(run.listener, true);
  Alarm(0);
  Say("accept", accept(run.listener, nullptr, nullptr));
  SayAlarms();
  SetReceiveTimeout(run.listener, 100);
  Say("accept", accept(run.listener, nullptr, nullptr));
  SetReceiveTimeout(run.listener, 0);
  Blocks(run.listener, false);
}

// --- Descriptors ---

void CopiesOfOne(Run& run) {
  const int copy = dup(run.fd);
  Say("O_NONBLOCK of both", fcntl(copy, F_GETFL) == fcntl(run.fd, F_GETFL));
  Bytes(run), Read(copy, "recv of the copy", MSG_DONTWAIT, 2), Read(run.fd);
  Say("close", close(run.fd));
  Bytes(run), Read(copy);
  Say("send", send(copy, "12345", 5, MSG_NOSIGNAL));
  Settle(run), Tell(run, "receive");
  run.fd = fcntl(copy, F_DUPFD, 40);
  Say("F_DUPFD", run.fd >= 40);
  Say("close", close(copy));
  Say("send", send(run.fd, "12345", 5, MSG_NOSIGNAL));
  Settle(run), Tell(run, "receive");
  Say("close", close(run.fd));
  Settle(run), Tell(run, "receive");
}

void CopyOverAnother(Run& run) {
  const int other = open("/dev/null", O_RDWR);
  Say("dup2 of nothing", dup2(900, run.fd));
  Say("dup2 of itself", dup2(run.fd, run.fd) == run.fd);
  Say("dup3 of itself", dup3(run.fd, run.fd, 0));
  Say("dup3 with no flag of its", dup3(other, run.fd, 7));
  Bytes(run), Read(run.fd);
  Say("dup2", dup2(other, run.fd) == run.fd);
  Settle(run), Tell(run, "receive");
  Read(run.fd, "recv of /dev/null");
  close(other);
}

void RangeIsClosed(Run& run) {
  const auto fd = static_cast<unsigned>(run.fd);
  Say("close_range", close_range(fd + 1, fd, 0));
  Say("close_range", close_range(fd, fd, 64));
  Say("close_range", close_range(fd, fd, CLOSE_RANGE_CLOEXEC));
  Say("F_GETFD", fcntl(run.fd, F_GETFD));
  Bytes(run), Read(run.fd);
  Say("close_range", close_range(fd, fd, 0));
  Settle(run), Tell(run, "receive");
}

// --- Others' calls ---

// What another thread does in 150 ms.
template <typename Call>
std::thread InAWhile(const Call& call) {
  return std::thread([call] {
    usleep(150'000);
    call();
  });
}

// A wait on a datagram socket without a name ends with what comes after another thread's first
// send, which gives it one.
template <typename Wait>
void WokenByFirstSend(Run& run, const Wait& wait) {
  sockaddr_in echo = run.peer;
  echo.sin_port = htons(kFencePort);
  std::thread other = InAWhile([&] { sendto(run.fd, "ping", 4, 0, Generic(&echo), sizeof echo); });
  wait();
  other.join();
  Settle(run), Read(run.fd);
}

void FirstSend(Run& run) {
  const auto anew = [&run] {
    close(run.fd);
    run.fd = NewSocket(run, SOCK_DGRAM, 0);
    Blocks(run.fd, true), SetReceiveTimeout(run.fd, 900);
    sockaddr_in name{};
    socklen_t length = sizeof name;
    Say("port", getsockname(run.fd, Generic(&name), &length), std::to_string(name.sin_port));
  };
  anew(), WokenByFirstSend(run, [&] { Read(run.fd, "recv", 0); });
  anew(), WokenByFirstSend(run, [&] {
    char bytes[10];
    iovec part{.iov_base = bytes, .iov_len = sizeof bytes};
    mmsghdr message{.msg_hdr = {.msg_iov = &part, .msg_iovlen = 1}};
    Say("recvmmsg", recvmmsg(run.fd, &message, 1, 0, nullptr));
  });
  anew(), WokenByFirstSend(run, [&] { PollOne(run.fd, POLLIN, 1'000); });
  anew(), Control(run, EPOLL_CTL_ADD, run.fd, EPOLLIN);
  WokenByFirstSend(run, [&] { Wait(run.set, 1'000); });
  // And one that another thread sends for, but nothing comes.
  anew(), Alarm(0), Read(run.fd, "recv", 0), SayAlarms(), Read(run.fd, "recv", 0);
}

void DissolvedWhileItIsWaitedFor(Run& run) {
  close(run.fd);
  run.fd = NewSocket(run, SOCK_DGRAM, 0);
  Say("connect", connect(run.fd, Generic(&run.peer), sizeof run.peer));
  Blocks(run.fd, true), SetReceiveTimeout(run.fd, 900);
  const sockaddr nobody{.sa_family = AF_UNSPEC};
  Say("dissolve", connect(run.fd, &nobody, sizeof nobody));
  WokenByFirstSend(run, [&] { Read(run.fd, "recv", 0); });
  Say("connect", connect(run.fd, Generic(&run.peer), sizeof run.peer));
  std::thread other = InAWhile([&] {
    connect(run.fd, &nobody, sizeof nobody);
    sockaddr_in echo = run.peer;
    echo.sin_port = htons(kFencePort);
    usleep(150'000);
    sendto(run.fd, "ping", 4, 0, Generic(&echo), sizeof echo);
  });
  Read(run.fd, "recv", 0);
  other.join();
}

// --- Errors that come later ---

void RefusedConnection(Run& run) {
  close(run.fd);
  run.fd = NewSocket(run, SOCK_STREAM, 0);
  sockaddr_in nobody = run.peer;
  nobody.sin_port = htons(7999);
  Control(run, EPOLL_CTL_ADD, run.fd, EPOLLIN | EPOLLOUT | EPOLLET);
  Say("connect", connect(run.fd, Generic(&nobody), sizeof nobody));
  WaitUntil(run.fd, POLLOUT);
  PollOne(run.fd, POLLIN | POLLOUT), Wait(run.set);
  AskError(run.fd), AskError(run.fd), PollOne(run.fd, POLLIN | POLLOUT);
  Say("send", send(run.fd, "12345", 5, MSG_NOSIGNAL));
  Read(run.fd);
}

// Between two names there is one connection.
void SecondOfTheSameNames(Run& run) {
  Tell(run, "reset"), close(run.fd);
  run.fd = NewSocket(run, SOCK_STREAM, 7102);
  Say("connect", connect(run.fd, Generic(&run.peer), sizeof run.peer));
  WaitUntil(run.fd, POLLOUT), Settle(run), Tell(run, "accept");
  const int other = NewSocket(run, SOCK_STREAM, 7102);
  Blocks(other, true);
  Say("connect", connect(other, Generic(&run.peer), sizeof run.peer));
  Say("close", close(other));
  Say("send", send(run.fd, "12345", 5, MSG_NOSIGNAL));
  Settle(run), Tell(run, "receive");
}

// Who watches it goes on watching when the socket is as new, and one that blocked is so at once.
void RefusedAndTriedAgain(Run& run) {
  sockaddr_in nobody = run.peer;
  nobody.sin_port = htons(7999);
  for (const bool blocks : {false, true}) {
    close(run.fd);
    run.fd = NewSocket(run, SOCK_STREAM, 0);
    Blocks(run.fd, blocks);
    Control(run, EPOLL_CTL_ADD, run.fd, EPOLLIN | EPOLLOUT | EPOLLET);
    Say("connect", connect(run.fd, Generic(&nobody), sizeof nobody));
    WaitUntil(run.fd, POLLOUT);
    if (!blocks) Say("its result", connect(run.fd, Generic(&nobody), sizeof nobody));
    Wait(run.set), PollOne(run.fd, POLLIN | POLLOUT), Read(run.fd), Blocks(run.fd, true);
    Say("connect again", connect(run.fd, Generic(&run.peer), sizeof run.peer));
    Settle(run), Tell(run, "accept");
  }
}

// Datagrams that came before stay, and so does who watches.
void Dissolved(Run& run) {
  Control(run, EPOLL_CTL_ADD, run.fd, EPOLLIN);
  Datagram(run, 7), Datagram(run, 0);
  const sockaddr nobody{.sa_family = AF_UNSPEC};
  Say("dissolve", connect(run.fd, &nobody, sizeof nobody));
  Wait(run.set), Read(run.fd), Read(run.fd), Read(run.fd), Datagram(run), Wait(run.set);
  // Without a name of its own the kernel's is watched.
  close(run.fd);
  run.fd = NewSocket(run, SOCK_DGRAM, 0);
  Say("connect", connect(run.fd, Generic(&run.peer), sizeof run.peer));
  Control(run, EPOLL_CTL_ADD, run.fd, EPOLLOUT);
  Say("dissolve", connect(run.fd, &nobody, sizeof nobody));
  Wait(run.set);
}

void RefusedDatagram(Run& run) {
  Tell(run, "deaf");
  Control(run, EPOLL_CTL_ADD, run.fd, EPOLLIN);
  for (const bool asks : {true, false}) {
    Say("send", send(run.fd, "12345", 5, 0));
    // A ring hears of it by a thread, which the fence does not wait for.
    Settle(run), WaitUntil(run.fd, 0);
    PollOne(run.fd, POLLIN | POLLOUT), Wait(run.set);
    asks ? AskError(run.fd) : Read(run.fd);
    Read(run.fd), PollOne(run.fd, POLLIN | POLLOUT);
  }
  Tell(run, "hearing");
}

void Reset(Run& run) {
  Control(run, EPOLL_CTL_ADD, run.fd, EPOLLIN | EPOLLRDHUP);
  Bytes(run), Tell(run, "reset"), Settle(run);
  PollOne(run.fd, POLLIN | POLLOUT), Wait(run.set), AskError(run.fd), AskError(run.fd);
  Read(run.fd), Read(run.fd), PollOne(run.fd, POLLIN | POLLOUT);
  Say("send", send(run.fd, "12345", 5, 0));
}

void ResetAfterFin(Run& run) {
  Tell(run, "shutdown"), Settle(run);
  Say("shutdown", shutdown(run.fd, SHUT_WR));
  Settle(run), Tell(run, "reset"), Settle(run);
  PollOne(run.fd, POLLIN | POLLOUT), AskError(run.fd), Read(run.fd);
}

void PeerClosesWithUnread(Run& run) {
  Say("send", send(run.fd, "12345", 5, 0));
  Bytes(run, 100), Tell(run, "close"), Settle(run);
  PollOne(run.fd, POLLIN | POLLOUT | POLLRDHUP);
  Read(run.fd, "recv", MSG_DONTWAIT, 10), PollOne(run.fd, POLLIN | POLLOUT | POLLRDHUP);
  AskError(run.fd), Read(run.fd);
  Say("send", send(run.fd, "12345", 5, 0));
}

// --- The table ---

constexpr Case kCases[] = {
    {"level", false, Level},
    {"edge", false, Edge},
    {"edge of writing", false, EdgeOfWriting},
    {"edge is armed by modification", false, EdgeIsArmedByModification},
    {"one-shot", false, OneShot},
    {"one-shot before it", false, OneShotBeforeIt},
    {"armed again", false, ArmedAgain},
    {"exclusive", false, Exclusive},
    {"two sets", false, TwoSets},
    {"nested", false, Nested},
    {"sets in circles", false, SetsInCircles},
    {"wrong control", false, WrongControl},
    {"wait by timespec", false, WaitByTimespec},
    {"time left", false, TimeLeft},
    {"copy stays in a set", false, CopyStaysInASet},
    {"copy connects", false, CopyConnects},
    {"events of a connection", kConnection, EventsOfAConnection},
    {"edge of the end", kConnection, EdgeOfTheEnd},
    {"edge of shutdown", kConnection, EdgeOfShutdown},
    {"edge of shut datagrams", false, EdgeOfShutdown},
    {"nested and closed", false, NestedAndClosed},
    {"poll of anything", false, PollOfAnything},
    {"select by sets of other sizes", false, SelectBySetsOfOtherSizes},
    {"masks of signals", false, MasksOfSignals},
    {"interrupted for good", false, InterruptedForGood},
    {"interrupted by a real-time signal", false, InterruptedByARealTimeSignal},
    {"interrupted and begun anew", false, InterruptedAndBegunAnew},
    {"interrupted in part", kConnection, InterruptedInPart},
    {"accept is interrupted", false, AcceptIsInterrupted},
    {"copies of one", kConnection, CopiesOfOne},
    {"copy over another", kConnection, CopyOverAnother},
    {"range is closed", kConnection, RangeIsClosed},
    {"first send of another thread", false, FirstSend},
    {"dissolved while it is waited for", false, DissolvedWhileItIsWaitedFor},
    {"refused connection", kConnection, RefusedConnection},
    {"second of the same names", kConnection, SecondOfTheSameNames},
    {"refused and tried again", kConnection, RefusedAndTriedAgain},
    {"dissolved", false, Dissolved},
    {"refused datagram", false, RefusedDatagram},
    {"reset", kConnection, Reset},
    {"reset after FIN", kConnection, ResetAfterFin},
    {"peer closes with unread bytes", kConnection, PeerClosesWithUnread},
};

}  // namespace
}  // namespace xtreme::faces

int main(int argc, char** argv) {
  return xtreme::faces::RunProgram(argc, argv, xtreme::faces::kCases);
}
