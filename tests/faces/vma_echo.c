/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A SocketXtreme echo server for datagrams, as programs for VMA are written: the API is asked for at
 * run time, one ring is polled, answers are sent out of the buffers that were received.
 *
 *   vma_echo ADDRESS PORT COUNT [ring|socket|epoll|ref|callback|zcopy|mask]
 */
#include <arpa/inet.h>
#include <errno.h>
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
static int fd;
static int left;
static const uint64_t kUserData = 0xfeedfacecafebeefULL;

static void Answer(const struct vma_buff_t* buff, const struct sockaddr_in* to) {
  CHECK(buff->next == NULL);
  CHECK(sendto(fd, buff->payload, buff->len, MSG_NOSIGNAL, (const struct sockaddr*)to,
               sizeof *to) == buff->len);
  --left;
}

static void PollFor(int polled, int takes_references) {
  struct vma_completion_t completions[16];
  while (left > 0) {
    const int count = vma->socketxtreme_poll(polled, completions, 16, 0);
    CHECK(count >= 0);
    for (int i = 0; i < count; ++i) {
      struct vma_completion_t* c = &completions[i];
      CHECK(c->events == VMA_SOCKETXTREME_PACKET);
      CHECK(c->user_data == kUserData);
      CHECK(c->packet.num_bufs == 1);
      CHECK(c->packet.total_len == c->packet.buff_lst->len);
      CHECK(c->src.sin_family == AF_INET);
      struct vma_buff_t* const held = c->packet.buff_lst;
      if (takes_references) {
        CHECK(vma->socketxtreme_ref_vma_buff(held) == 2);
        CHECK(vma->socketxtreme_ref_vma_buff(held) == 3);
        CHECK(vma->socketxtreme_free_vma_buff(held) == 2);
        CHECK(vma->socketxtreme_free_vma_packets(&c->packet, 1) == 0);
      }
      Answer(held, &c->src);
      if (takes_references) {
        CHECK(vma->socketxtreme_free_vma_buff(held) == 0);
      } else {
        CHECK(vma->socketxtreme_free_vma_packets(&c->packet, 1) == 0);
      }
    }
  }
}

/* Packets whose number is 0 modulo 3 are held and answered from the loop, 1 are answered inside and
 * dropped, 2 go to recv(). */
static struct vma_packet_t* held_packet;
static struct sockaddr_in held_source;
static int calls;

static vma_recv_callback_retval_t OnPacket(int s, size_t parts, struct iovec iov[],
                                           struct vma_info_t* about, void* context) {
  CHECK(s == fd && context == &calls && parts == 1);
  CHECK(about->struct_sz >= sizeof(struct vma_info_t) && about->payload_sz == iov[0].iov_len);
  CHECK(about->dst->sin_family == AF_INET && about->sw_timestamp.tv_sec != 0);
  const int turn = calls++ % 3;
  if (turn == 2) return VMA_PACKET_RECV;
  if (turn == 1) {
    CHECK(sendto(fd, iov[0].iov_base, iov[0].iov_len, 0, (struct sockaddr*)about->src,
                 sizeof *about->src) == (ssize_t)iov[0].iov_len);
    --left;
    return VMA_PACKET_DROP;
  }
  held_packet = malloc(sizeof *held_packet + sizeof(struct iovec));
  held_packet->packet_id = about->packet_id;
  held_packet->sz_iov = 1;
  held_packet->iov[0] = iov[0];
  held_source = *about->src;
  return VMA_PACKET_HOLD;
}

static void RunCallback(void) {
  char bytes[2048];
  CHECK(vma->register_recv_callback(0, OnPacket, NULL) == -1 && errno == EINVAL);
  CHECK(vma->register_recv_callback(fd, OnPacket, &calls) == 0);
  while (left > 0) {
    struct sockaddr_in from;
    socklen_t length = sizeof from;
    const ssize_t got = recvfrom(fd, bytes, sizeof bytes, MSG_DONTWAIT, (struct sockaddr*)&from,
                                 &length);
    if (got >= 0) {
      CHECK(sendto(fd, bytes, (size_t)got, 0, (struct sockaddr*)&from, length) == got);
      --left;
    } else {
      CHECK(errno == EAGAIN);
    }
    if (held_packet == NULL) continue;
    CHECK(sendto(fd, held_packet->iov[0].iov_base, held_packet->iov[0].iov_len, 0,
                 (struct sockaddr*)&held_source, sizeof held_source) > 0);
    --left;
    CHECK(vma->free_packets(fd, held_packet, 1) == 0);
    CHECK(vma->free_packets(fd, held_packet, 1) == -1 && errno == ENOENT);
    free(held_packet);
    held_packet = NULL;
  }
  CHECK(vma->register_recv_callback(fd, NULL, NULL) == 0);
}

static void RunZcopy(void) {
  char bytes[2048];
  struct sockaddr_in from;
  socklen_t length = sizeof from;
  int flags = 0;
  CHECK(vma->recvfrom_zcopy(fd, bytes, 8, &flags, NULL, NULL) == -1 && errno == ENOBUFS);
  while (left > 0) {
    flags = 0;
    const int got = vma->recvfrom_zcopy(fd, bytes, sizeof bytes, &flags, (struct sockaddr*)&from,
                                        &length);
    CHECK(got > 0 && (flags & MSG_VMA_ZCOPY) != 0);
    struct vma_packets_t* packets = (struct vma_packets_t*)bytes;
    CHECK(packets->n_packet_num == 1 && packets->pkts[0].sz_iov == 1);
    CHECK(packets->pkts[0].iov[0].iov_len == (size_t)got);
    CHECK(sendto(fd, packets->pkts[0].iov[0].iov_base, (size_t)got, 0, (struct sockaddr*)&from,
                 length) == got);
    CHECK(vma->free_packets(fd, packets->pkts, packets->n_packet_num) == 0);
    --left;
  }
}

/* Every bit that is set belongs to a function that works; the others say EOPNOTSUPP. */
static void CheckMask(void) {
  uint64_t members[sizeof *vma / 8];
  memcpy(members, vma, sizeof members);
  for (size_t i = 0; i < sizeof *vma / 8; ++i) CHECK(members[i] != 0);
  uint16_t header = 0;
  struct vma_modify_ring_attr modify = {0};
  const uint64_t mask = vma->vma_extra_supported_mask;
  CHECK((mask & VMA_EXTRA_API_GET_SOCKET_NETWORK_HEADER) != 0 ||
        (vma->get_socket_network_header(fd, NULL, &header) == -1 && errno == EOPNOTSUPP));
  CHECK((mask & VMA_EXTRA_API_MODIFY_RING) != 0 ||
        (vma->vma_modify_ring(&modify) == -1 && errno == EOPNOTSUPP));
  CHECK((mask & VMA_EXTRA_API_IOCTL) != 0 && vma->ioctl(NULL, 0) == -1 && errno == EINVAL);
  CHECK(vma->socketxtreme_free_vma_packets(NULL, 1) == -1 && errno == EINVAL);
  CHECK(vma->socketxtreme_ref_vma_buff(NULL) == -1 && errno == EINVAL);
  CHECK(vma->socketxtreme_free_vma_buff(NULL) == -1 && errno == EINVAL);
  struct vma_completion_t completion;
  CHECK(vma->socketxtreme_poll(0, &completion, 1, 0) == -1 && errno == EBADFD);
  CHECK(vma->socketxtreme_poll(fd, NULL, 1, 0) == -1 && errno == EINVAL);
  CHECK(vma->socketxtreme_poll(fd, &completion, 0, 0) == -1 && errno == EINVAL);
  CHECK(vma->add_conf_rule("use os udp_receiver *:9999") == 0);
  CHECK(vma->add_conf_rule("use nobody udp_receiver *:9999") == -1 && errno == EINVAL);
  CHECK(vma->dump_fd_stats(fd, 3) == 0);
  CHECK(vma->dump_fd_stats(0, 3) == 0);
  int number = 77;
  const int unbound = socket(AF_INET, SOCK_DGRAM, 0);
  CHECK(vma->get_socket_rings_num(unbound) == 0);
  CHECK(vma->get_socket_rings_fds(unbound, &number, 1) == 0 && number == 77);
  CHECK(vma->get_socket_rings_fds(unbound, NULL, 1) == -1 && errno == EINVAL);
  CHECK(vma->thread_offload(0, pthread_self()) == 0);
  struct sockaddr_in any = {.sin_family = AF_INET};
  const int kernels = socket(AF_INET, SOCK_DGRAM, 0);
  CHECK(bind(kernels, (struct sockaddr*)&any, sizeof any) == 0);
  CHECK(vma->get_socket_rings_num(kernels) == 0);
}

int main(int argc, char** argv) {
  const char* way = argc > 4 ? argv[4] : "ring";
  CHECK(argc > 3);
  vma = vma_get_api();
  CHECK(vma != NULL);
  left = atoi(argv[3]);
  fd = socket(AF_INET, SOCK_DGRAM, 0);
  struct sockaddr_in local = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(argv[2]))};
  inet_pton(AF_INET, argv[1], &local.sin_addr);
  CHECK(bind(fd, (struct sockaddr*)&local, sizeof local) == 0);
  CHECK(setsockopt(fd, SOL_SOCKET, SO_VMA_USER_DATA, &kUserData, 4) == -1 && errno == EINVAL);
  CHECK(setsockopt(fd, SOL_SOCKET, SO_VMA_USER_DATA, &kUserData, sizeof kUserData) == 0);
  int ring = -1;
  int set = -1;
  CHECK(vma->get_socket_rings_num(fd) == 1);
  CHECK(vma->get_socket_tx_ring_fd(fd, NULL, 0) > 0);
  if (strcmp(way, "ring") == 0 || strcmp(way, "ref") == 0) {
    CHECK(vma->get_socket_rings_fds(fd, &ring, 1) == 1 && ring > 0);
    /* What is a completion is not stolen by a call. */
    char byte;
    CHECK(recv(fd, &byte, 1, MSG_DONTWAIT) == -1 && errno == EOPNOTSUPP);
  }
  if (strcmp(way, "epoll") == 0) {
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    set = epoll_create1(0);
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0);
  }
  printf("ready\n");
  fflush(stdout);
  if (strcmp(way, "ring") == 0) PollFor(ring, 0);
  if (strcmp(way, "ref") == 0) PollFor(ring, 1);
  if (strcmp(way, "socket") == 0) PollFor(fd, 0);
  if (strcmp(way, "epoll") == 0) PollFor(set, 0);
  if (strcmp(way, "callback") == 0) RunCallback();
  if (strcmp(way, "zcopy") == 0) RunZcopy();
  if (strcmp(way, "mask") == 0) CheckMask();
  CHECK(close(fd) == 0);
  printf("served\n");
  return 0;
}
