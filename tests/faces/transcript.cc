// SPDX-License-Identifier: Apache-2.0

#include "tests/faces/transcript.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace xtreme::faces {
namespace {

volatile sig_atomic_t broken_pipes = 0;

void PassFence(Run& run) {
  static int number = 0;
  ++number;
  for (int tries = 0; tries < 5; ++tries) {
    send(run.fence, &number, sizeof number, 0);
    int echo = 0;
    do {
      if (recv(run.fence, &echo, sizeof echo, 0) != sizeof echo) echo = -1;
    } while (echo != number && echo != -1);
    if (echo == number) return;
  }
  puts("the fence does not answer");
  exit(1);
}

int ConnectToPeer(const char* path) {
  const int control = socket(AF_UNIX, SOCK_SEQPACKET, 0);
  sockaddr_un name{.sun_family = AF_UNIX};
  strncpy(name.sun_path, path, sizeof name.sun_path - 1);
  if (connect(control, reinterpret_cast<sockaddr*>(&name), sizeof name) != 0) exit(1);
  return control;
}

}  // namespace

bool Begin(char** argv, Run* run) {
  setvbuf(stdout, nullptr, _IOFBF, 1 << 16);
  errno = 0;
  signal(SIGPIPE, [](int) { broken_pipes = broken_pipes + 1; });
  run->control = ConnectToPeer(argv[1]);
  run->own.sin_family = run->peer.sin_family = AF_INET;
  inet_pton(AF_INET, argv[2], &run->own.sin_addr);
  inet_pton(AF_INET, argv[3], &run->peer.sin_addr);
  run->fence = socket(AF_INET, SOCK_DGRAM, 0);
  sockaddr_in fence = run->peer;
  fence.sin_port = htons(kFencePort);
  const timeval limit{.tv_sec = 1, .tv_usec = 0};
  setsockopt(run->fence, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  if (connect(run->fence, Generic(&fence), sizeof fence) != 0) return false;
  run->listener = NewSocket(*run, SOCK_STREAM, kSubjectTcpPort);
  listen(run->listener, 64);
  pollfd one{.fd = run->listener, .events = POLLIN};
  poll(&one, 1, 0);
  return true;
}

sockaddr* Generic(sockaddr_in* address) { return reinterpret_cast<sockaddr*>(address); }

// A call: its result, and its error.
void Say(const char* what, ssize_t result, const std::string& more) {
  const int error = errno;
  printf("%s = %zd%s%s %s", what, result, error != 0 ? " " : "",
         error != 0 ? strerrorname_np(error) : "", more.c_str());
  if (broken_pipes != 0) printf(" SIGPIPE x%d", static_cast<int>(broken_pipes));
  broken_pipes = 0;
  puts("");
  errno = 0;  // A call that succeeds leaves it so.
}

std::string Sum(const char* bytes, ssize_t count) {
  uint32_t sum = 0;
  for (ssize_t i = 0; i < count; ++i) sum = sum * 31 + static_cast<uint8_t>(bytes[i]);
  return " of " + std::to_string(sum);
}

void Settle(Run& run) {
  PassFence(run);
  PassFence(run);
  errno = 0;
}

std::string AnswerTo(Run& run, const std::string& command) {
  char answer[1024] = "";
  send(run.control, command.data(), command.size(), MSG_NOSIGNAL);
  if (recv(run.control, answer, sizeof answer - 1, 0) <= 0) exit(1);
  return answer;
}

void Tell(Run& run, const std::string& command, bool quietly) {
  const std::string answer = AnswerTo(run, command);
  if (!quietly) printf("peer: %s: %s\n", command.c_str(), answer.c_str());
  errno = 0;
}

void Datagram(Run& run, int size) {
  Tell(run, "datagram " + std::to_string(size));
  Settle(run);
}

void Bytes(Run& run, int size) {
  Tell(run, "send " + std::to_string(size));
  Settle(run);
}

std::thread Later(Run& run, const std::string& command) {
  return std::thread([&run, command] {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, nullptr);
    usleep(150'000);
    Tell(run, command, /*quietly=*/true);
  });
}

void Read(int fd, const char* what, int flags, size_t size) {
  char bytes[4096];
  Say(what, recv(fd, bytes, size, flags));
}

void Blocks(int fd, bool blocks) {
  fcntl(fd, F_SETFL, blocks ? O_RDWR : O_RDWR | O_NONBLOCK);
}

void SetReceiveTimeout(int fd, int milliseconds) {
  const timeval time{.tv_sec = 0, .tv_usec = milliseconds * 1'000};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
}

int NewSocket(const Run& run, int type, int port) {
  const int fd = socket(AF_INET, type | SOCK_NONBLOCK, 0);
  const int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in local = run.own;
  local.sin_port = htons(static_cast<uint16_t>(port));
  if (port != 0) Say("bind", bind(fd, Generic(&local), sizeof local));
  return fd;
}

void WaitUntil(int fd, int16_t events) {
  pollfd one{.fd = fd, .events = events};
  poll(&one, 1, 60'000);
  errno = 0;
}

void SendAtOnce(const Run& run) {
  const int on = 1;
  setsockopt(run.fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

void ConnectStream(Run& run) {
  run.stream = true;
  run.peer.sin_port = htons(kPeerTcpPort);
  run.fd = NewSocket(run, SOCK_STREAM, 0);
  Say("connect", connect(run.fd, Generic(&run.peer), sizeof run.peer));
  WaitUntil(run.fd, POLLOUT);
  Settle(run);
  SendAtOnce(run);
  Tell(run, "accept");
}

void ConnectDatagrams(Run& run) {
  run.stream = false;
  run.peer.sin_port = htons(kPeerUdpPort);
  run.fd = NewSocket(run, SOCK_DGRAM, kSubjectUdpPort);
  Say("connect", connect(run.fd, Generic(&run.peer), sizeof run.peer));
}

void RunCases(std::span<const Case> cases, Run& run) {
  for (const Case& each : cases) {
    printf("-- %s\n", each.name);
    run.set = epoll_create1(0);
    Tell(run, "watch", /*quietly=*/true);
    each.connection ? ConnectStream(run) : ConnectDatagrams(run);
    Settle(run);
    each.run(run);
    close(run.fd);
    close(run.set);
    if (each.connection) Tell(run, "reset", /*quietly=*/true);
    Settle(run);
    // Of datagrams that nobody took.
    Tell(run, "datagrams", /*quietly=*/true);
    fflush(stdout);
  }
  puts("done");
}

int RunProgram(int argc, char** argv, std::span<const Case> cases) {
  Run run;
  if (argc != 4 || !Begin(argv, &run)) return 2;
  RunCases(cases, run);
  return 0;
}

}  // namespace xtreme::faces
