// SPDX-License-Identifier: Apache-2.0
//
// Threads that are cancelled in calls on sockets; says what became of them and of the others.
//
//   cancel_program CASE OWN-ADDRESS PEER-ADDRESS
//
// The peer echoes at TCP port 8000 and UDP port 9000, and at TCP port 8001 reads nothing.

#define _GNU_SOURCE
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "tests/faces/echo_client.h"

static atomic_int go;

static int Number(void* argument) { return (int)(intptr_t)argument; }

// Whether an echo comes, within two seconds.
static const char* Echoes(int fd) {
  char byte = 'x';
  struct pollfd one = {.fd = fd, .events = POLLIN};
  if (send(fd, &byte, 1, 0) != 1) return "sends nothing";
  if (poll(&one, 1, 2000) != 1) return "hears nothing";
  return recv(fd, &byte, 1, MSG_DONTWAIT) == 1 ? "echoes" : "receives nothing";
}

static const char* Joined(pthread_t thread) {
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += 5;
  void* result = NULL;
  if (pthread_timedjoin_np(thread, &result, &until) != 0) return "goes on";
  return result == PTHREAD_CANCELED ? "cancelled" : "ended";
}

static pthread_t Started(void* (*body)(void*), int fd) {
  pthread_t thread;
  pthread_create(&thread, NULL, body, (void*)(intptr_t)fd);
  return thread;
}

static void* Receive(void* fd) {
  char bytes[100];
  recv(Number(fd), bytes, sizeof bytes, 0);
  return NULL;
}

static void* WaitForReadable(void* fd) {
  struct pollfd one = {.fd = Number(fd), .events = POLLIN};
  return (void*)(intptr_t)poll(&one, 1, 5000);
}

static void* Accept(void* fd) {
  accept(Number(fd), NULL, NULL);
  return NULL;
}

static void* WaitForEvent(void* fd) {
  const int set = epoll_create1(0);
  struct epoll_event event = {.events = EPOLLIN};
  epoll_ctl(set, EPOLL_CTL_ADD, Number(fd), &event);
  epoll_wait(set, &event, 1, -1);
  return NULL;
}

// Until the thread is cancelled already.
static void AwaitGo(void) {
  while (!go) {
  }
}

// None of them is a cancellation point, and each asks the kernel, or waits for it.
static void* CallWhatIsNone(void* unused) {
  (void)unused;
  AwaitGo();
  const struct sockaddr_in name = Address(own, 5555);
  const struct sockaddr_in any = Address("0.0.0.0", 5556);
  const int fd = socket(AF_INET, SOCK_DGRAM, 0);
  int bad = bind(fd, (const struct sockaddr*)&name, sizeof name);
  const struct ip_mreq group = {.imr_multiaddr.s_addr = inet_addr("239.1.1.1"),
                                .imr_interface.s_addr = inet_addr(own)};
  bad |= setsockopt(fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &group, sizeof group);
  const int on = 1;
  bad |= setsockopt(fd, IPPROTO_IP, IP_RECVTTL, &on, sizeof on);
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  bad |= bind(listener, (const struct sockaddr*)&any, sizeof any);
  bad |= listen(listener, 5);
  const int set = epoll_create1(0);
  struct epoll_event event = {.events = EPOLLIN};
  bad |= epoll_ctl(set, EPOLL_CTL_ADD, listener, &event);
  bad |= dup2(fd, listener) != listener;
  bad |= shutdown(set, SHUT_RDWR) == 0;
  bad |= close_range((unsigned)fd, (unsigned)fd, 0);
  printf("calls: %d\n", bad);
  fflush(stdout);
  close(listener);
  return NULL;
}

static int file;

static void* SendFileForEver(void* fd) {
  for (;;) {
    off_t from = 0;
    if (sendfile(Number(fd), file, &from, 1 << 26) < 0) return NULL;
  }
}

static int socket_to_close;

static void* Close(void* unused) {
  (void)unused;
  AwaitGo();
  close(socket_to_close);
  return NULL;
}

// A thread that waits in `body` on `fd`, and the ring without it.
static void CancelWaiting(void* (*body)(void*), int fd) {
  const int other = Connected(SOCK_DGRAM, 9000);
  printf("before: %s\n", Echoes(other));
  const pthread_t thread = Started(body, fd);
  usleep(300 * 1000);
  pthread_cancel(thread);
  printf("waiting: %s\n", Joined(thread));
  printf("after: %s\n", Echoes(other));
}

// It polls the ring for ever; what it is given wakes another thread, by a call that is a
// cancellation point.
static void CancelTelling(void) {
  const int connection = Connected(SOCK_STREAM, 8000);
  const int datagrams = Connected(SOCK_DGRAM, 9000);
  printf("before: %s, %s\n", Echoes(connection), Echoes(datagrams));
  const pthread_t sleeper = Started(WaitForReadable, connection);
  usleep(200 * 1000);
  const pthread_t teller = Started(Receive, datagrams);
  usleep(200 * 1000);
  // Bytes arrive about when the cancel does.
  send(connection, "hello", 5, 0);
  pthread_cancel(teller);
  printf("telling: %s\n", Joined(teller));
  void* told = NULL;
  pthread_join(sleeper, &told);
  char bytes[8];
  printf("told: %d, %zd\n", Number(told), recv(connection, bytes, sizeof bytes, MSG_DONTWAIT));
  printf("after: %s, %s\n", Echoes(connection), Echoes(datagrams));
}

int main(int count, char** words) {
  if (count != 4) return 2;
  const char* const which = words[1];
  own = words[2];
  peer = words[3];
  setvbuf(stdout, NULL, _IOLBF, 0);
  if (!strcmp(which, "recv")) CancelWaiting(Receive, Connected(SOCK_DGRAM, 9000));
  if (!strcmp(which, "stream")) CancelWaiting(Receive, Connected(SOCK_STREAM, 8000));
  if (!strcmp(which, "poll")) CancelWaiting(WaitForReadable, Connected(SOCK_STREAM, 8000));
  if (!strcmp(which, "epoll")) CancelWaiting(WaitForEvent, Connected(SOCK_STREAM, 8000));
  if (!strcmp(which, "accept")) {
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    const struct sockaddr_in name = Address(own, 5555);
    if (bind(listener, (const struct sockaddr*)&name, sizeof name) != 0) return 1;
    listen(listener, 5);
    CancelWaiting(Accept, listener);
  }
  if (!strcmp(which, "telling")) CancelTelling();
  if (!strcmp(which, "none")) {
    const pthread_t thread = Started(CallWhatIsNone, 0);
    pthread_cancel(thread);
    go = 1;
    printf("calling: %s\n", Joined(thread));
    printf("after: %s\n", Echoes(Connected(SOCK_STREAM, 8000)));
  }
  if (!strcmp(which, "sendfile")) {
    file = memfd_create("file", 0);
    if (ftruncate(file, 1 << 26) != 0) return 1;
    const pthread_t thread = Started(SendFileForEver, Connected(SOCK_STREAM, 8001));
    usleep(500 * 1000);
    pthread_cancel(thread);
    printf("sending: %s\n", Joined(thread));
    printf("after: %s\n", Echoes(Connected(SOCK_STREAM, 8000)));
  }
  if (!strcmp(which, "close")) {
    socket_to_close = Connected(SOCK_STREAM, 8000);
    printf("before: %s\n", Echoes(socket_to_close));
    const pthread_t thread = Started(Close, 0);
    pthread_cancel(thread);
    go = 1;
    printf("closing: %s\n", Joined(thread));
    printf("after: %s\n", Echoes(socket_to_close));
  }
  _exit(0);
}
