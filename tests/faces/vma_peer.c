/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The other side of programs for VMA, on the kernel: answers datagrams and connections with what it
 * gets, until it is ended; a datagram that begins with @ goes to group 239.1.2.3 instead.
 *
 *   vma_peer ADDRESS UDP_PORT TCP_PORT
 */
#include <arpa/inet.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

enum { kMost = 16 };

static int Open(int type, const char* address, const char* port) {
  struct sockaddr_in local = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
  inet_pton(AF_INET, address, &local.sin_addr);
  const int fd = socket(AF_INET, type, 0);
  if (bind(fd, (struct sockaddr*)&local, sizeof local) != 0) exit(1);
  if (type == SOCK_STREAM && listen(fd, kMost) != 0) exit(1);
  return fd;
}

static void AnswerDatagram(int fd) {
  char bytes[65536];
  struct sockaddr_in from;
  socklen_t length = sizeof from;
  const ssize_t got = recvfrom(fd, bytes, sizeof bytes, 0, (struct sockaddr*)&from, &length);
  if (got > 0 && bytes[0] == '@') inet_pton(AF_INET, "239.1.2.3", &from.sin_addr);
  if (got >= 0) sendto(fd, bytes, (size_t)got, 0, (struct sockaddr*)&from, length);
}

/* 0: the other end has closed. */
static int AnswerBytes(int fd) {
  char bytes[65536];
  const ssize_t got = recv(fd, bytes, sizeof bytes, 0);
  return got > 0 && send(fd, bytes, (size_t)got, MSG_NOSIGNAL) == got;
}

int main(int argc, char** argv) {
  if (argc < 4) return 1;
  struct pollfd fds[2 + kMost] = {{.fd = Open(SOCK_DGRAM, argv[1], argv[2]), .events = POLLIN},
                                  {.fd = Open(SOCK_STREAM, argv[1], argv[3]), .events = POLLIN}};
  nfds_t count = 2;
  printf("ready\n");
  fflush(stdout);
  while (poll(fds, count, -1) > 0) {
    if (fds[0].revents != 0) AnswerDatagram(fds[0].fd);
    for (nfds_t i = 2; i < count; ++i) {
      if (fds[i].revents == 0 || AnswerBytes(fds[i].fd)) continue;
      close(fds[i].fd);
      fds[i--] = fds[--count];
    }
    if (fds[1].revents != 0 && count < 2 + kMost) {
      fds[count].fd = accept(fds[1].fd, NULL, NULL);
      fds[count].revents = 0;
      fds[count++].events = POLLIN;
    }
  }
  return 0;
}
