/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A datagram program like many: it echoes, or asks; with plain calls, poll, select or epoll. It
 * knows the socket API and nothing else.
 *
 *   udp_program serve ADDRESS PORT COUNT [recvfrom|recvmsg|poll|select|epoll|epollet] [GROUP]
 *   udp_program ask ADDRESS PORT COUNT BYTES [connect]
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

static char bytes[65536];

static void Die(const char* what) {
  printf("%s: %s\n", what, strerror(errno));
  exit(1);
}

static struct sockaddr_in Address(const char* text, const char* port) {
  struct sockaddr_in address = {.sin_family = AF_INET};
  inet_pton(AF_INET, text, &address.sin_addr);
  address.sin_port = htons((uint16_t)atoi(port));
  return address;
}

static int epoll_set = -1;

/* Until `fd` is readable, in the way that was asked for. */
static void WaitFor(int fd, const char* way) {
  if (strcmp(way, "poll") == 0) {
    struct pollfd one = {.fd = fd, .events = POLLIN};
    if (poll(&one, 1, 10000) != 1 || one.revents != POLLIN) Die("poll");
  } else if (strcmp(way, "select") == 0) {
    fd_set set;
    FD_ZERO(&set);
    FD_SET(fd, &set);
    struct timeval limit = {.tv_sec = 10};
    if (select(fd + 1, &set, NULL, NULL, &limit) != 1 || !FD_ISSET(fd, &set)) Die("select");
  } else if (strncmp(way, "epoll", 5) == 0) {
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = 0x1122334455667788};
    if (strcmp(way, "epollet") == 0) event.events |= EPOLLET;
    if (epoll_set < 0) {
      epoll_set = epoll_create1(0);
      if (epoll_ctl(epoll_set, EPOLL_CTL_ADD, fd, &event) != 0) Die("epoll_ctl");
    }
    memset(&event, 0, sizeof event);
    if (epoll_wait(epoll_set, &event, 1, 10000) != 1) Die("epoll_wait");
    if (event.data.u64 != 0x1122334455667788 || !(event.events & EPOLLIN)) Die("epoll data");
  }
}

static ssize_t Receive(int fd, const char* way, struct sockaddr_in* from) {
  socklen_t length = sizeof *from;
  if (strcmp(way, "recvmsg") != 0) {
    return recvfrom(fd, bytes, sizeof bytes, 0, (struct sockaddr*)from, &length);
  }
  struct iovec parts[2] = {{bytes, 5}, {bytes + 5, sizeof bytes - 5}};
  char control[256];
  struct msghdr message = {.msg_name = from,
                           .msg_namelen = sizeof *from,
                           .msg_iov = parts,
                           .msg_iovlen = 2,
                           .msg_control = control,
                           .msg_controllen = sizeof control};
  const ssize_t got = recvmsg(fd, &message, 0);
  int infos = 0;
  for (struct cmsghdr* c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c)) {
    infos += c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_PKTINFO;
  }
  if (infos != 1) Die("IP_PKTINFO");
  return got;
}

static int Serve(int argc, char** argv) {
  const char* way = argc > 5 ? argv[5] : "recvfrom";
  struct sockaddr_in local = Address(argv[2], argv[3]);
  const int fd = socket(AF_INET, SOCK_DGRAM, 0);
  const int on = 1;
  setsockopt(fd, IPPROTO_IP, IP_PKTINFO, &on, sizeof on);
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (bind(fd, (struct sockaddr*)&local, sizeof local) != 0) Die("bind");
  if (argc > 6) {
    struct ip_mreq request = {.imr_multiaddr.s_addr = inet_addr(argv[6])};
    if (setsockopt(fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &request, sizeof request)) Die("join");
  }
  if (strcmp(way, "epollet") == 0) fcntl(fd, F_SETFL, O_NONBLOCK);
  printf("ready\n");
  fflush(stdout);
  for (int left = atoi(argv[4]); left > 0;) {
    struct sockaddr_in from;
    WaitFor(fd, way);
    ssize_t got;
    do {
      got = Receive(fd, way, &from);
      if (got < 0 && errno == EAGAIN && strcmp(way, "epollet") == 0) break;
      if (got < 0) Die("receive");
      if (sendto(fd, bytes, (size_t)got, 0, (struct sockaddr*)&from, sizeof from) != got) {
        Die("sendto");
      }
      --left;
    } while (strcmp(way, "epollet") == 0 && left > 0);
  }
  if (close(fd) != 0) Die("close");
  printf("served\n");
  return 0;
}

static int Ask(int argc, char** argv) {
  const struct sockaddr_in peer = Address(argv[2], argv[3]);
  const size_t size = (size_t)atoi(argv[5]);
  const int connected = argc > 6 && strcmp(argv[6], "connect") == 0;
  const int fd = socket(AF_INET, SOCK_DGRAM, 0);
  const struct timeval limit = {.tv_sec = 1};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  if (connected && connect(fd, (const struct sockaddr*)&peer, sizeof peer)) Die("connect");
  char question[65536];
  int lost = 0;
  for (int i = 0; i < atoi(argv[4]); ++i) {
    memset(question, 'a' + i % 26, size);
    const ssize_t sent = connected ? send(fd, question, size, 0)
                                   : sendto(fd, question, size, 0, (const struct sockaddr*)&peer,
                                            sizeof peer);
    if (sent != (ssize_t)size) Die("send");
    const ssize_t got = recv(fd, bytes, sizeof bytes, 0);
    if (got < 0 && errno == EAGAIN && ++lost < 5) continue;
    if (got != (ssize_t)size || memcmp(question, bytes, size) != 0) Die("answer");
  }
  close(fd);
  printf("asked, %d lost\n", lost);
  return 0;
}

int main(int argc, char** argv) {
  if (argc > 4 && strcmp(argv[1], "serve") == 0) return Serve(argc, argv);
  if (argc > 5 && strcmp(argv[1], "ask") == 0) return Ask(argc, argv);
  return 2;
}
