// SPDX-License-Identifier: Apache-2.0
//
// Calls on sockets that signals interrupt, and what sigaction() and signal() say; prints what came
// of each.
//
//   interrupt_program OWN-ADDRESS PEER-ADDRESS
//
// The peer echoes at TCP port 8000 and UDP port 9000.

#define _GNU_SOURCE
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/faces/echo_client.h"

static pthread_t caller;
static atomic_int handled;
static atomic_int value;
static atomic_int returned;

static void Count(int number) {
  (void)number;
  ++handled;
}

static void DoNothing(int number) { (void)number; }

static void CountWithValue(int number, siginfo_t* info, void* context) {
  (void)number, (void)context;
  ++handled;
  value = info->si_value.sival_int;
}

static void Handle(int flags) {
  struct sigaction action = {.sa_handler = Count, .sa_flags = flags};
  sigaction(SIGUSR1, &action, NULL);
}

// --- Calls ---

static int Receive(int fd) {
  char bytes[16];
  return (int)recv(fd, bytes, sizeof bytes, 0);
}

static int Poll(int fd) {
  struct pollfd one = {.fd = fd, .events = POLLIN};
  return poll(&one, 1, -1);
}

static int Select(int fd) {
  fd_set set;
  FD_ZERO(&set);
  FD_SET(fd, &set);
  return select(fd + 1, &set, NULL, NULL, NULL);
}

static int WaitForEvent(int fd) {
  const int set = epoll_create1(EPOLL_CLOEXEC);
  struct epoll_event event = {.events = EPOLLIN};
  epoll_ctl(set, EPOLL_CTL_ADD, fd, &event);
  const int count = epoll_wait(set, &event, 1, -1);
  const int error = errno;
  close(set);
  errno = error;
  return count;
}

// With the signal blocked, but while they wait.
static int PollUnblocked(int fd) {
  sigset_t none;
  sigemptyset(&none);
  struct pollfd one = {.fd = fd, .events = POLLIN};
  return ppoll(&one, 1, NULL, &none);
}

static int WaitUnblocked(int fd) {
  sigset_t none;
  sigemptyset(&none);
  const int set = epoll_create1(EPOLL_CLOEXEC);
  struct epoll_event event = {.events = EPOLLIN};
  epoll_ctl(set, EPOLL_CTL_ADD, fd, &event);
  const int count = epoll_pwait(set, &event, 1, -1, &none);
  const int error = errno;
  close(set);
  errno = error;
  return count;
}

static int Accept(int fd) { return accept(fd, NULL, NULL); }

// --- Who interrupts ---

static void AwaitReturn(int milliseconds) {
  for (int i = 0; i < milliseconds && !returned; ++i) usleep(1000);
}

// A call that goes on is given what it waits for.
static void* Interrupt(void* fd) {
  usleep(200 * 1000);
  pthread_kill(caller, SIGUSR1);
  AwaitReturn(500);
  if (returned) return NULL;
  const int to = *(const int*)fd;
  // To a listener nobody comes: then it is the test's time that ends.
  send(to, "hello", 5, MSG_NOSIGNAL);
  return NULL;
}

static void Try(const char* what, int (*call)(int), int fd) {
  pthread_t other;
  handled = returned = 0;
  pthread_create(&other, NULL, Interrupt, &fd);
  const int result = call(fd);
  const int error = errno;
  returned = 1;
  pthread_join(other, NULL);
  printf("%s: %s, handled %d\n", what, result < 0 ? strerror(error) : "went on", handled);
  char bytes[16];
  if (result >= 0 && call != Receive) recv(fd, bytes, sizeof bytes, MSG_DONTWAIT);
}

static void TryAll(const char* how) {
  const int datagrams = Connected(SOCK_DGRAM, 9000);
  const int connection = Connected(SOCK_STREAM, 8000);
  printf("%s\n", how);
  Try("recv", Receive, datagrams);
  Try("stream", Receive, connection);
  Try("poll", Poll, datagrams);
  Try("select", Select, connection);
  Try("epoll_wait", WaitForEvent, datagrams);
  close(datagrams);
  close(connection);
}

static void TryUnblocked(void) {
  const int datagrams = Connected(SOCK_DGRAM, 9000);
  sigset_t blocked;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGUSR1);
  pthread_sigmask(SIG_BLOCK, &blocked, NULL);
  Try("ppoll", PollUnblocked, datagrams);
  Try("epoll_pwait", WaitUnblocked, datagrams);
  Try("recv of who blocks it", Receive, datagrams);
  pthread_sigmask(SIG_UNBLOCK, &blocked, NULL);
  close(datagrams);
}

static void TryAccept(void) {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  const struct sockaddr_in name = Address(own, 5555);
  if (bind(listener, (const struct sockaddr*)&name, sizeof name) != 0) perror("bind");
  listen(listener, 5);
  Try("accept", Accept, listener);
  close(listener);
}

// --- What is told ---

static void TellHandlers(void) {
  struct sigaction action = {.sa_sigaction = CountWithValue, .sa_flags = SA_SIGINFO | SA_RESETHAND};
  struct sigaction old;
  sigaddset(&action.sa_mask, SIGUSR2);
  printf("none before: %d\n", sigaction(SIGALRM, &action, &old) == 0 && old.sa_handler == SIG_DFL);
  sigaction(SIGALRM, NULL, &old);
  printf("own: %d, flags %x, blocks %d\n", old.sa_sigaction == CountWithValue,
         (unsigned)old.sa_flags & (SA_SIGINFO | SA_RESETHAND), sigismember(&old.sa_mask, SIGUSR2));
  handled = 0;
  sigqueue(getpid(), SIGALRM, (union sigval){.sival_int = 77});
  printf("handled %d, value %d\n", handled, value);
  sigaction(SIGALRM, NULL, &old);
  printf("reset: %d\n", old.sa_handler == SIG_DFL);
  printf("signal: %d", signal(SIGALRM, Count) == SIG_DFL);
  printf(" %d", signal(SIGALRM, SIG_IGN) == Count);
  printf(" %d\n", signal(SIGALRM, SIG_DFL) == SIG_IGN);
  printf("wrong: %d", sigaction(SIGKILL, &action, NULL));
  printf(" %d", sigaction(1000, &action, NULL));
  printf(" %d\n", signal(SIGKILL, Count) == SIG_ERR);
  // A child that has this memory sets a handler of its own.
  signal(SIGALRM, Count);
  const pid_t child = vfork();
  if (child == 0) {
    signal(SIGALRM, DoNothing);
    _exit(0);
  }
  waitpid(child, NULL, 0);
  handled = 0;
  raise(SIGALRM);
  printf("handled %d\n", handled);
}

int main(int count, char** words) {
  if (count != 3) return 2;
  own = words[1];
  peer = words[2];
  setvbuf(stdout, NULL, _IOLBF, 0);
  caller = pthread_self();
  Handle(0);
  TryAll("sigaction()");
  TryAccept();
  TryUnblocked();
  signal(SIGUSR1, Count);
  TryAll("signal()");
  TellHandlers();
  return 0;
}
