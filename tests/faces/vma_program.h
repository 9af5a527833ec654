/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the programs for VMA in this folder begin with: the API, sockets, waiting for completions.
 * Compiled against mellanox/vma_extra.h alone. A check that fails says where, and ends the program.
 */
#ifndef XTREME_TESTS_FACES_VMA_PROGRAM_H_
#define XTREME_TESTS_FACES_VMA_PROGRAM_H_

#include <arpa/inet.h>
#include <errno.h>
#include <mellanox/vma_extra.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define CHECK(condition)                                             \
  if (!(condition)) {                                                \
    printf("%d: %s: %s\n", __LINE__, #condition, strerror(errno)); \
    exit(1);                                                         \
  }
#define CHECK_FAILS(call, error) CHECK((call) == -1 && errno == (error))

#define OURS "10.9.0.1"
#define THEIRS "10.9.0.2"
enum { kUdpEcho = 7000, kTcpEcho = 7001 };

static struct vma_api_t* vma;

static struct sockaddr_in Address(const char* ip, int port) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
  inet_pton(AF_INET, ip, &address.sin_addr);
  return address;
}

static int Bound(int fd, const char* ip, int port) {
  const struct sockaddr_in local = Address(ip, port);
  CHECK(bind(fd, (const struct sockaddr*)&local, sizeof local) == 0);
  return fd;
}

static int Connected(int fd, int port) {
  const struct sockaddr_in peer = Address(THEIRS, port);
  CHECK(connect(fd, (const struct sockaddr*)&peer, sizeof peer) == 0);
  return fd;
}

/* A datagram socket of ours that is connected to the peer, who answers what it gets. */
static inline int Asking(int port) {
  return Connected(Bound(socket(AF_INET, SOCK_DGRAM, 0), OURS, port), kUdpEcho);
}

static inline int RingOf(int fd) {
  int ring = -1;
  CHECK(vma->get_socket_rings_fds(fd, &ring, 1) == 1 && ring > 0);
  return ring;
}

static int64_t Now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* The next completion, which is 0 when `wait_ms` are over. */
static inline struct vma_completion_t Next(int polled, int wait_ms) {
  struct vma_completion_t completion;
  memset(&completion, 0, sizeof completion);
  const int64_t end = Now() + wait_ms * (int64_t)1000000;
  while (Now() < end) {
    const int count = vma->socketxtreme_poll(polled, &completion, 1, 0);
    CHECK(count >= 0);
    if (count == 1) break;
  }
  return completion;
}

/* The next packet, whose text is `text`; freed. */
static inline void ExpectPacket(int polled, const char* text) {
  struct vma_completion_t c = Next(polled, 5000);
  CHECK((c.events & VMA_SOCKETXTREME_PACKET) != 0);
  CHECK(c.packet.total_len == strlen(text));
  CHECK(memcmp(c.packet.buff_lst->payload, text, strlen(text)) == 0);
  CHECK(vma->socketxtreme_free_vma_packets(&c.packet, 1) == 0);
}

static inline void Say(int fd, const char* text) {
  CHECK(send(fd, text, strlen(text), MSG_NOSIGNAL) == (ssize_t)strlen(text));
}

#endif /* XTREME_TESTS_FACES_VMA_PROGRAM_H_ */
