/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A SocketXtreme echo server for streams: one ring is polled for the listener and all its children,
 * which are accepted by themselves.
 *
 *   vma_tcp_echo ADDRESS PORT CONNECTIONS
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <mellanox/vma_extra.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define CHECK(condition)                                              \
  if (!(condition)) {                                                 \
    printf("%d: %s: %s\n", __LINE__, #condition, strerror(errno)); \
    exit(1);                                                          \
  }

static struct vma_api_t* vma;

/* All of it, however often the connection says that it is full. */
static void Echo(int fd, const struct vma_packet_desc_t* packet) {
  for (const struct vma_buff_t* buff = packet->buff_lst; buff != NULL; buff = buff->next) {
    size_t done = 0;
    while (done < buff->len) {
      const ssize_t sent = send(fd, (char*)buff->payload + done, buff->len - done, MSG_NOSIGNAL);
      CHECK(sent > 0 || errno == EAGAIN);
      if (sent > 0) done += (size_t)sent;
    }
  }
}

int main(int argc, char** argv) {
  CHECK(argc > 3);
  vma = vma_get_api();
  CHECK(vma != NULL);
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  struct sockaddr_in local = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(argv[2]))};
  inet_pton(AF_INET, argv[1], &local.sin_addr);
  CHECK(bind(listener, (struct sockaddr*)&local, sizeof local) == 0);
  int ring = -1;
  CHECK(vma->get_socket_rings_fds(listener, &ring, 1) == 1 && ring > 0);
  CHECK(listen(listener, 10) == 0);
  printf("ready\n");
  fflush(stdout);
  for (int left = atoi(argv[3]); left > 0;) {
    struct vma_completion_t completions[8];
    const int count = vma->socketxtreme_poll(ring, completions, 8, 0);
    CHECK(count >= 0);
    for (int i = 0; i < count; ++i) {
      struct vma_completion_t* c = &completions[i];
      const int fd = (int)c->user_data;
      if (c->events & VMA_SOCKETXTREME_NEW_CONNECTION_ACCEPTED) {
        CHECK(c->listen_fd == listener && fd != listener && c->src.sin_family == AF_INET);
        CHECK(fcntl(fd, F_SETFL, O_NONBLOCK) == 0);
      } else if (c->events & VMA_SOCKETXTREME_PACKET) {
        Echo(fd, &c->packet);
        CHECK(vma->socketxtreme_free_vma_packets(&c->packet, 1) == 0);
      } else if (c->events & (EPOLLHUP | EPOLLRDHUP)) {
        char byte;
        CHECK(recvfrom(fd, &byte, 1, MSG_NOSIGNAL, NULL, NULL) == 0);
        CHECK(close(fd) == 0);
        --left;
      }
    }
  }
  CHECK(close(listener) == 0);
  printf("served\n");
  return 0;
}
