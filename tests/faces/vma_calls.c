/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A function of VMA's API at a time, by its effect. The other side runs vma_peer.
 *
 *   vma_calls FUNCTION
 */
#define _GNU_SOURCE  /* gettid() */
#include <linux/net_tstamp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/mman.h>

#include "tests/faces/vma_program.h"

enum { kQuietMs = 200 };

/* ---- Rings ----------------------------------------------------------------------------------- */

static void Rings(void) {
  int fds[2] = {77, 77};
  const int unbound = socket(AF_INET, SOCK_DGRAM, 0);
  CHECK(vma->get_socket_rings_num(unbound) == 0);
  CHECK(vma->get_socket_rings_fds(unbound, fds, 2) == 0 && fds[0] == 77);
  CHECK_FAILS(vma->get_socket_rings_fds(unbound, NULL, 2), EINVAL);
  CHECK_FAILS(vma->get_socket_rings_fds(unbound, fds, 0), EINVAL);
  CHECK_FAILS(vma->get_socket_tx_ring_fd(unbound, NULL, 0), EINVAL);
  CHECK(vma->get_socket_rings_num(0) == 0);
  const int asking = Asking(5000);
  CHECK(vma->get_socket_rings_num(asking) == 1);
  CHECK(vma->get_socket_rings_fds(asking, fds, 2) == 1 && fds[0] > 0 && fds[1] == 77);
  CHECK(vma->get_socket_tx_ring_fd(asking, NULL, 0) == fds[0]);
  Say(asking, "on the ring");
  ExpectPacket(fds[0], "on the ring");
  /* Before it connects. */
  const int stream = Bound(socket(AF_INET, SOCK_STREAM, 0), OURS, 5001);
  CHECK(vma->get_socket_tx_ring_fd(stream, NULL, 0) == RingOf(stream));
  /* Before it is bound to an address: a device says it too. */
  for (int type = SOCK_STREAM; type <= SOCK_DGRAM; ++type) {
    const int on_device = socket(AF_INET, type, 0);
    CHECK(setsockopt(on_device, SOL_SOCKET, SO_BINDTODEVICE, "ours", sizeof "ours") == 0);
    CHECK(vma->get_socket_rings_num(on_device) == 1 && RingOf(on_device) == fds[0]);
    const int on_loopback = socket(AF_INET, type, 0);
    CHECK(setsockopt(on_loopback, SOL_SOCKET, SO_BINDTODEVICE, "lo", sizeof "lo") == 0);
    CHECK(vma->get_socket_rings_num(on_loopback) == 0);
    CHECK(vma->get_socket_rings_fds(on_loopback, fds + 1, 1) == 0 && fds[1] == 77);
    if (type == SOCK_STREAM) continue;
    /* And it gets what comes by completions. */
    const int bound = Connected(Bound(on_device, OURS, 5002), kUdpEcho);
    Say(bound, "of the device");
    ExpectPacket(fds[0], "of the device");
  }
}

static int Choosing(int port, const struct vma_ring_alloc_logic_attr* attr) {
  const int fd = socket(AF_INET, SOCK_DGRAM, 0);
  CHECK(setsockopt(fd, SOL_SOCKET, SO_VMA_RING_ALLOC_LOGIC, attr, sizeof *attr) == 0);
  Connected(Bound(fd, OURS, port), kUdpEcho);
  CHECK_FAILS(setsockopt(fd, SOL_SOCKET, SO_VMA_RING_ALLOC_LOGIC, attr, sizeof *attr), EBUSY);
  return fd;
}

static void ThreeSockets(void) {
  for (int port = 5000; port < 5003; ++port) {
    const int asking = Asking(port);
    Say(asking, "one of three");
    ExpectPacket(RingOf(asking), "one of three");
  }
}

static void AllocLogic(void) {
  struct vma_ring_alloc_logic_attr attr = {.comp_mask = VMA_RING_ALLOC_MASK_RING_INGRESS,
                                           .ring_alloc_logic = RING_LOGIC_PER_SOCKET,
                                           .ingress = 1};
  const int common = Asking(5000);
  const int common_too = Asking(5001);
  CHECK(RingOf(common) == RingOf(common_too));
  const int own = Choosing(5002, &attr);
  const int own_too = Choosing(5003, &attr);
  CHECK(RingOf(own) != RingOf(own_too) && RingOf(own) != RingOf(common));
  attr.ring_alloc_logic = RING_LOGIC_PER_USER_ID;
  attr.comp_mask = VMA_RING_ALLOC_MASK_RING_USER_ID;
  attr.user_id = 1;
  const int of_one = Choosing(5004, &attr);
  CHECK(RingOf(of_one) == RingOf(Choosing(5005, &attr)));
  attr.user_id = 2;
  const int of_two = Choosing(5006, &attr);
  CHECK(RingOf(of_one) != RingOf(of_two));
  const int all[] = {common, own, own_too, of_one, of_two};
  for (int i = 0; i < 5; ++i) {
    Say(all[i], "each by its ring");
    ExpectPacket(RingOf(all[i]), "each by its ring");
  }
  const int fd = socket(AF_INET, SOCK_DGRAM, 0);
  CHECK_FAILS(setsockopt(fd, SOL_SOCKET, SO_VMA_RING_ALLOC_LOGIC, &attr, 16), EINVAL);
  attr.comp_mask = 0;
  CHECK_FAILS(setsockopt(fd, SOL_SOCKET, SO_VMA_RING_ALLOC_LOGIC, &attr, sizeof attr), EINVAL);
  attr.comp_mask = VMA_RING_ALLOC_MASK_RING_INGRESS;
  attr.ring_alloc_logic = (ring_logic_t)2;
  CHECK_FAILS(setsockopt(fd, SOL_SOCKET, SO_VMA_RING_ALLOC_LOGIC, &attr, sizeof attr), EINVAL);
}

static void RingProfile(void) {
  struct vma_ring_type_attr packets = {.ring_type = VMA_RING_PACKET};
  vma_ring_profile_key key = 0, again = 0;
  CHECK(vma->vma_add_ring_profile(&packets, &key) == 0 && key > 0);
  CHECK(vma->vma_add_ring_profile(&packets, &again) == 0 && again == key);
  struct vma_ring_alloc_logic_attr attr = {.comp_mask = VMA_RING_ALLOC_MASK_RING_PROFILE_KEY,
                                           .ring_profile_key = (uint32_t)key};
  const int profiled = Choosing(5000, &attr);
  CHECK(RingOf(profiled) != RingOf(Asking(5001)));
  Say(profiled, "by a profile");
  ExpectPacket(RingOf(profiled), "by a profile");
  attr.ring_profile_key = 99;
  const int fd = socket(AF_INET, SOCK_DGRAM, 0);
  CHECK_FAILS(setsockopt(fd, SOL_SOCKET, SO_VMA_RING_ALLOC_LOGIC, &attr, sizeof attr), EINVAL);
  packets.ring_type = (vma_ring_type)7;
  CHECK_FAILS(vma->vma_add_ring_profile(&packets, &key), EINVAL);
  CHECK_FAILS(vma->vma_add_ring_profile(NULL, &key), EINVAL);
}

static void ModifyRing(void) {
  const int asking = Asking(5000);
  const int ring = RingOf(asking);
  struct vma_modify_ring_attr change = {
      .comp_bit_mask = VMA_RING_MODIFY_CQ_MODERATION,
      .ring_fd = ring,
      .cq_moderation = {.cq_moderation_count = 8, .cq_moderation_period_usec = 0xFFFF}};
  CHECK_FAILS(vma->vma_modify_ring(&change), EINVAL);
  change.cq_moderation.cq_moderation_period_usec = 500;
  CHECK(vma->vma_modify_ring(&change) == 0);
  change.comp_bit_mask = VMA_RING_MODIFY_CQ_ARM;
  struct pollfd waiting = {.fd = ring, .events = POLLIN};
  while (Next(ring, kQuietMs).events != 0) {
  }
  CHECK(vma->vma_modify_ring(&change) == 0);
  CHECK(poll(&waiting, 1, 0) == 0);
  Say(asking, "wakes");
  CHECK(poll(&waiting, 1, 5000) == 1);
  ExpectPacket(ring, "wakes");
  change.comp_bit_mask = 4;
  CHECK_FAILS(vma->vma_modify_ring(&change), EINVAL);
  change = (struct vma_modify_ring_attr){.comp_bit_mask = VMA_RING_MODIFY_CQ_ARM};
  CHECK_FAILS(vma->vma_modify_ring(&change), EINVAL);
  CHECK_FAILS(vma->vma_modify_ring(NULL), EINVAL);
}

/* ---- Sockets --------------------------------------------------------------------------------- */

static void CheckHeader(int fd, uint16_t length, int port) {
  unsigned char header[128];
  uint16_t room = 8;
  CHECK_FAILS(vma->get_socket_network_header(fd, header, &room), ENOBUFS);
  CHECK(room == length);
  room = sizeof header;
  CHECK(vma->get_socket_network_header(fd, NULL, &room) == 0 && room == length);
  room = sizeof header;
  CHECK(vma->get_socket_network_header(fd, header, &room) == 0 && room == length);
  struct sockaddr_in own, peer = Address(THEIRS, port);
  socklen_t own_length = sizeof own;
  CHECK(getsockname(fd, (struct sockaddr*)&own, &own_length) == 0);
  CHECK(header[12] == 8 && header[13] == 0 && header[14] == 0x45);
  CHECK(memcmp(header, "\0\0\0\0\0\0", 6) != 0 && memcmp(header + 6, "\0\0\0\0\0\0", 6) != 0);
  CHECK(memcmp(header + 26, &own.sin_addr, 4) == 0 && memcmp(header + 30, &peer.sin_addr, 4) == 0);
  CHECK(memcmp(header + 34, &own.sin_port, 2) == 0 && memcmp(header + 36, &peer.sin_port, 2) == 0);
}

static void NetworkHeader(void) {
  uint16_t room = 0;
  CheckHeader(Asking(5000), 42, kUdpEcho);
  const int unconnected = Bound(socket(AF_INET, SOCK_DGRAM, 0), OURS, 5001);
  CHECK_FAILS(vma->get_socket_network_header(unconnected, NULL, &room), ENOTCONN);
  CHECK_FAILS(vma->get_socket_network_header(0, NULL, &room), EINVAL);
  const int stream = Connected(socket(AF_INET, SOCK_STREAM, 0), kTcpEcho);
  CHECK(vma->get_socket_network_header(stream, NULL, &room) == 0);
  CheckHeader(stream, room == 54 ? 54 : 66, kTcpEcho);
  /* Headers are a flow's: sending does not change them, and goes on. */
  Say(stream, "after");
  char bytes[8];
  CHECK(recv(stream, bytes, sizeof bytes, 0) == 5);
}

static void Dummy(void) {
  const int asking = Asking(5000);
  const int ring = RingOf(asking);
  Say(asking, "resolve");
  ExpectPacket(ring, "resolve");
  CHECK(send(asking, "dummy", 5, VMA_SND_FLAGS_DUMMY) == 5);
  CHECK(Next(ring, kQuietMs).events == 0);
  Say(asking, "real");
  ExpectPacket(ring, "real");
  const int stream = Connected(socket(AF_INET, SOCK_STREAM, 0), kTcpEcho);
  CHECK((Next(ring, 5000).events & EPOLLOUT) != 0);
  CHECK(send(stream, "dummy", 5, VMA_SND_FLAGS_DUMMY) == 5);
  CHECK(Next(ring, kQuietMs).events == 0);
  Say(stream, "real");
  ExpectPacket(ring, "real");
  CHECK(vma->thread_offload(0, pthread_self()) == 0);
  CHECK_FAILS(send(Asking(5001), "dummy", 5, VMA_SND_FLAGS_DUMMY), EINVAL);
}

static void UserData(void) {
  const int asking = Asking(5000);
  const int ring = RingOf(asking);
  uint64_t value = 0x1122334455667788ULL;
  socklen_t length = sizeof value;
  Say(asking, "default");
  struct vma_completion_t c = Next(ring, 5000);
  CHECK(c.user_data == (uint64_t)asking);
  CHECK(vma->socketxtreme_free_vma_packets(&c.packet, 1) == 0);
  CHECK_FAILS(setsockopt(asking, SOL_SOCKET, SO_VMA_USER_DATA, &value, 4), EINVAL);
  CHECK(setsockopt(asking, SOL_SOCKET, SO_VMA_USER_DATA, &value, sizeof value) == 0);
  Say(asking, "changed");
  c = Next(ring, 5000);
  CHECK(c.user_data == value);
  CHECK(vma->socketxtreme_free_vma_packets(&c.packet, 1) == 0);
  value = 0;
  CHECK(getsockopt(asking, SOL_SOCKET, SO_VMA_USER_DATA, &value, &length) == 0);
  CHECK(value == 0x1122334455667788ULL);
}

static void ShutdownRx(void) {
  const int asking = Asking(5000);
  const int ring = RingOf(asking);
  Say(asking, "heard");
  ExpectPacket(ring, "heard");
  CHECK(setsockopt(asking, SOL_SOCKET, SO_VMA_SHUTDOWN_RX, NULL, 0) == 0);
  Say(asking, "not heard");
  CHECK((Next(ring, kQuietMs).events & VMA_SOCKETXTREME_PACKET) == 0);
  const int unconnected = Bound(socket(AF_INET, SOCK_DGRAM, 0), OURS, 5001);
  CHECK(setsockopt(unconnected, SOL_SOCKET, SO_VMA_SHUTDOWN_RX, NULL, 0) == 0);
}

/* Whether it is `ahead` seconds from now. */
static int IsNow(const struct timespec* time, long ahead) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return labs(now.tv_sec + ahead - time->tv_sec) < 10;
}

/* The hardware's clock is `ahead` of the host's. */
static void TimestampsAhead(long ahead) {
  const int asking = Asking(5000);
  const int wanted = SOF_TIMESTAMPING_RX_HARDWARE | SOF_TIMESTAMPING_RAW_HARDWARE |
                     SOF_TIMESTAMPING_RX_SOFTWARE | SOF_TIMESTAMPING_SOFTWARE;
  CHECK(setsockopt(asking, SOL_SOCKET, SO_TIMESTAMPING, &wanted, sizeof wanted) == 0);
  Say(asking, "when");
  char bytes[16];
  char control[256];
  struct iovec part = {bytes, sizeof bytes};
  struct msghdr message = {
      .msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
  CHECK(recvmsg(asking, &message, 0) == 4);
  struct cmsghdr* const cmsg = CMSG_FIRSTHDR(&message);
  CHECK(cmsg != NULL && cmsg->cmsg_type == SCM_TIMESTAMPING);
  struct timespec times[3];
  memcpy(times, CMSG_DATA(cmsg), sizeof times);
  CHECK(IsNow(&times[0], 0) && times[1].tv_sec == 0 && IsNow(&times[2], ahead));
  const int completing = Asking(5001);
  const int ring = RingOf(completing);
  Say(completing, "when");
  struct vma_completion_t c = Next(ring, 5000);
  CHECK(IsNow(&c.packet.hw_timestamp, ahead));
}

static void Timestamps(void) { TimestampsAhead(0); }
static void PtpTimestamps(void) { TimestampsAhead(37); }

/* ---- Control --------------------------------------------------------------------------------- */

static int IsOffloaded(int port) {
  const int fd = Bound(socket(AF_INET, SOCK_DGRAM, 0), OURS, port);
  const int offloaded = vma->get_socket_rings_num(fd) == 1;
  CHECK(close(fd) == 0);
  return offloaded;
}

static void ConfRule(void) {
  CHECK(IsOffloaded(5000));
  CHECK(vma->add_conf_rule("use os udp_receiver *:5000") == 0);
  CHECK(!IsOffloaded(5000) && IsOffloaded(5001));
  CHECK(vma->add_conf_rule("use xtreme udp_receiver *:5000") == 0);
  CHECK(IsOffloaded(5000));
  CHECK(vma->add_conf_rule("use os udp_receiver *:5001 # with a comment\n") == 0);
  CHECK(!IsOffloaded(5001));
  CHECK_FAILS(vma->add_conf_rule("use nobody udp_receiver *:5000"), EINVAL);
  CHECK_FAILS(vma->add_conf_rule(NULL), EINVAL);
}

static void ThreadOffload(void) {
  const int before = socket(AF_INET, SOCK_DGRAM, 0);
  CHECK(vma->thread_offload(0, pthread_self()) == 0);
  CHECK(!IsOffloaded(5000));
  CHECK(vma->get_socket_rings_num(Bound(before, OURS, 5001)) == 1);
  CHECK(vma->thread_offload(1, pthread_self()) == 0);
  CHECK(IsOffloaded(5000));
}

static void DumpFdStats(void) {
  const int asking = Asking(5000);
  const int ring = RingOf(asking);
  Say(asking, "counted");
  ExpectPacket(ring, "counted");
  CHECK(send(asking, "dummy", 5, VMA_SND_FLAGS_DUMMY) == 5);
  CHECK(vma->dump_fd_stats(asking, 3) == 0);
  const int loopback = Bound(socket(AF_INET, SOCK_DGRAM, 0), "127.0.0.1", 5001);
  CHECK(vma->dump_fd_stats(loopback, 3) == 0);
  CHECK(vma->dump_fd_stats(0, 3) == 0);
  CHECK_FAILS(vma->dump_fd_stats(asking, 9), EINVAL);
  CHECK_FAILS(vma->dump_fd_stats(ring, 3), EBADF);
}

/* ---- Memory of the program ------------------------------------------------------------------- */

static char* given;
static size_t given_bytes;

/* Of no alignment. */
static void* Give(size_t bytes) {
  CHECK(given == NULL);
  given_bytes = bytes;
  return given = (char*)malloc(bytes + 40) + 40;
}
/* The library may be at its end: no stdio. */
static void TakeBack(void* memory) {
  const char* const text = memory == given ? "freed\n" : "freed what was not given\n";
  CHECK(write(STDOUT_FILENO, text, strlen(text)) > 0);
}
static void* GiveNothing(size_t bytes) {
  (void)bytes;
  return NULL;
}
/* What is behind the first of it cannot be written. */
static void* GiveTooLittle(size_t bytes) {
  char* const memory =
      (char*)mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(memory != MAP_FAILED && mprotect(memory, 1 << 16, PROT_READ | PROT_WRITE) == 0);
  return given = memory;
}

enum { kBoth = VMA_IOCTL_USER_ALLOC_FLAG_TX | VMA_IOCTL_USER_ALLOC_FLAG_RX };
static int UseMemory(int type, size_t length, struct vma_cmsg_ioctl_user_alloc_t data) {
  union {
    struct cmsghdr header;
    char bytes[CMSG_SPACE(sizeof data)];
  } message = {.header = {.cmsg_len = length, .cmsg_level = SOL_SOCKET, .cmsg_type = type}};
  memcpy(CMSG_DATA(&message.header), &data, sizeof data);
  return vma->ioctl(&message, length);
}
static int Use(int flags, void* (*allocate)(size_t), void (*release)(void*)) {
  struct vma_cmsg_ioctl_user_alloc_t data = {
      .flags = (uint8_t)flags, .memalloc = allocate, .memfree = release};
  return UseMemory(CMSG_VMA_IOCTL_USER_ALLOC, CMSG_LEN(sizeof data), data);
}

/* Two messages in one call. */
static int UseInTurn(void* (*first)(size_t), void* (*second)(size_t)) {
  enum { kSpace = CMSG_SPACE(sizeof(struct vma_cmsg_ioctl_user_alloc_t)) };
  void* (*const allocate[])(size_t) = {first, second};
  union {
    struct cmsghdr header;
    char bytes[2 * kSpace];
  } messages = {.bytes = {0}};
  for (int i = 0; i < 2; ++i) {
    const struct vma_cmsg_ioctl_user_alloc_t data = {
        .flags = kBoth, .memalloc = allocate[i], .memfree = TakeBack};
    struct cmsghdr* const header = (struct cmsghdr*)(messages.bytes + i * kSpace);
    header->cmsg_len = CMSG_LEN(sizeof data);
    header->cmsg_type = CMSG_VMA_IOCTL_USER_ALLOC;
    memcpy(CMSG_DATA(header), &data, sizeof data);
  }
  return vma->ioctl(&messages, sizeof messages);
}

static void Ask(const char* text) {
  const int asking = Asking(5000);
  Say(asking, text);
  ExpectPacket(RingOf(asking), text);
}

static void UserAlloc(void) {
  const struct vma_cmsg_ioctl_user_alloc_t data = {
      .flags = kBoth, .memalloc = GiveNothing, .memfree = TakeBack};
  CHECK_FAILS(vma->ioctl(NULL, 0), EINVAL);
  CHECK_FAILS(UseMemory(CMSG_VMA_IOCTL_USER_ALLOC, 4, data), EINVAL);
  CHECK_FAILS(UseMemory(CMSG_VMA_IOCTL_USER_ALLOC, CMSG_LEN(sizeof data) - 1, data), EINVAL);
  CHECK_FAILS(UseMemory(CMSG_VMA_IOCTL_USER_ALLOC, CMSG_SPACE(sizeof data), data), EINVAL);
  CHECK_FAILS(UseMemory(2901, CMSG_LEN(sizeof data), data), EINVAL);
  CHECK_FAILS(Use(0, Give, TakeBack), EINVAL);
  CHECK_FAILS(Use(kBoth, NULL, TakeBack), EINVAL);
  CHECK_FAILS(Use(kBoth, Give, NULL), EINVAL);
  /* What was refused is forgotten, the last one stands. */
  CHECK(Use(VMA_IOCTL_USER_ALLOC_FLAG_TX, GiveNothing, TakeBack) == 0);
  CHECK(Use(VMA_IOCTL_USER_ALLOC_FLAG_RX, GiveNothing, TakeBack) == 0);
  CHECK_FAILS(UseInTurn(GiveNothing, NULL), EINVAL);
  CHECK(UseInTurn(GiveNothing, Give) == 0);
  CHECK(given == NULL);
  const int asking = Asking(5000);
  const int ring = RingOf(asking);
  CHECK(given != NULL);
  Say(asking, "in my memory");
  struct vma_completion_t c = Next(ring, 5000);
  const char* const payload = (const char*)c.packet.buff_lst->payload;
  CHECK(c.packet.total_len == 12 && memcmp(payload, "in my memory", 12) == 0);
  CHECK(payload >= given && payload + 12 <= given + given_bytes);
  CHECK(vma->socketxtreme_free_vma_packets(&c.packet, 1) == 0);
  CHECK_FAILS(Use(kBoth, Give, TakeBack), EINVAL);
}

static void UserAllocNone(void) {
  CHECK(Use(kBoth, GiveNothing, TakeBack) == 0);
  Ask("without it");
}

static void UserAllocTooLittle(void) {
  CHECK(Use(kBoth, GiveTooLittle, TakeBack) == 0);
  Ask("without it");
}

/* ---- Receiving by calls ---------------------------------------------------------------------- */

static void ZcopyOfAStream(void) {
  const int stream = Connected(socket(AF_INET, SOCK_STREAM, 0), kTcpEcho);
  char room[512];
  int flags = MSG_VMA_ZCOPY_FORCE;
  Say(stream, "no copy");
  const int got = vma->recvfrom_zcopy(stream, room, sizeof room, &flags, NULL, NULL);
  CHECK(got == 7 && flags == MSG_VMA_ZCOPY);
  struct vma_packets_t* const packets = (struct vma_packets_t*)room;
  CHECK(packets->n_packet_num == 1 && packets->pkts[0].sz_iov == 1);
  CHECK(memcmp(packets->pkts[0].iov[0].iov_base, "no copy", 7) == 0);
  CHECK(vma->free_packets(stream, packets->pkts, 1) == 0);
  CHECK_FAILS(vma->free_packets(stream, packets->pkts, 1), ENOENT);
  CHECK_FAILS(vma->free_packets(stream, NULL, 1), EINVAL);
  CHECK_FAILS(vma->free_packets(0, packets->pkts, 1), EINVAL);
  CHECK(shutdown(stream, SHUT_WR) == 0);
  flags = 0;
  CHECK(vma->recvfrom_zcopy(stream, room, sizeof room, &flags, NULL, NULL) == 0);
}

/* A packet that there is no room for stays; one that is peeked at is copied, and stays too. */
static void ZcopyWithoutRoom(void) {
  const int asking = Asking(5000);
  static char big[5000];
  char room[512];
  int flags = 0;
  CHECK(send(asking, big, sizeof big, 0) == sizeof big);
  CHECK_FAILS(vma->recvfrom_zcopy(asking, room, 40, &flags, NULL, NULL), ENOBUFS);
  flags = MSG_PEEK;
  CHECK(vma->recvfrom_zcopy(asking, room, 40, &flags, NULL, NULL) == 40);
  CHECK((flags & MSG_VMA_ZCOPY) == 0);
  flags = MSG_PEEK | MSG_VMA_ZCOPY_FORCE;
  CHECK_FAILS(vma->recvfrom_zcopy(asking, room, sizeof room, &flags, NULL, NULL), EOPNOTSUPP);
  flags = MSG_DONTWAIT;
  CHECK(vma->recvfrom_zcopy(asking, room, sizeof room, &flags, NULL, NULL) == sizeof big);
  CHECK((flags & MSG_VMA_ZCOPY) != 0 && ((struct vma_packets_t*)room)->pkts[0].sz_iov > 1);
  /* However many bytes recv() is to wait for. */
  const int stream = Connected(socket(AF_INET, SOCK_STREAM, 0), kTcpEcho);
  const int most = 3;
  CHECK(setsockopt(stream, SOL_SOCKET, SO_RCVLOWAT, &most, sizeof most) == 0);
  Say(stream, "bytes");
  flags = 0;
  CHECK(vma->recvfrom_zcopy(stream, room, sizeof room, &flags, NULL, NULL) == 5);
}

/* What the program has of a socket that went to the kernel stays until it frees it. */
static void ZcopyOutlivesTheRing(void) {
  const int asking = Asking(5000);
  char room[512];
  int flags = 0;
  Say(asking, "kept");
  CHECK(vma->recvfrom_zcopy(asking, room, sizeof room, &flags, NULL, NULL) == 4);
  CHECK((flags & MSG_VMA_ZCOPY) != 0);
  const int on = 1;
  CHECK(setsockopt(asking, IPPROTO_IP, IP_RECVTTL, &on, sizeof on) == 0);
  struct vma_packets_t* const packets = (struct vma_packets_t*)room;
  CHECK(memcmp(packets->pkts[0].iov[0].iov_base, "kept", 4) == 0);
  CHECK(vma->free_packets(asking, packets->pkts, 1) == 0);
  CHECK_FAILS(vma->free_packets(asking, packets->pkts, 1), EINVAL);
}

static unsigned ready_packets, ready_bytes;
static vma_recv_callback_retval_t Keep(int fd, size_t parts, struct iovec iov[],
                                       struct vma_info_t* about, void* context) {
  (void)fd, (void)parts, (void)iov;
  ready_packets = about->socket_ready_packets;
  ready_bytes = about->socket_ready_bytes;
  ++*(int*)context;
  return VMA_PACKET_RECV;
}

static void CallbackKnowsWhatIsReady(void) {
  const int fds[] = {Asking(5000), Connected(socket(AF_INET, SOCK_STREAM, 0), kTcpEcho)};
  for (int i = 0; i < 2; ++i) {
    int kept = 0;
    CHECK(vma->register_recv_callback(fds[i], Keep, &kept) == 0);
    struct pollfd waiting = {.fd = fds[i], .events = POLLIN};
    Say(fds[i], "12345");
    while (kept < 1) poll(&waiting, 1, 1);
    Say(fds[i], "678");
    while (kept < 2) poll(&waiting, 1, 1);
    CHECK(ready_packets == 1 && ready_bytes == 5);
    CHECK(vma->register_recv_callback(fds[i], NULL, NULL) == 0);
  }
}

static int called;
static vma_recv_callback_retval_t Drop(int fd, size_t parts, struct iovec iov[],
                                       struct vma_info_t* about, void* context) {
  called += fd == *(int*)context && parts == 1 && iov[0].iov_len == about->payload_sz;
  return VMA_PACKET_DROP;
}

static void CallbackOfAStream(void) {
  int stream = Connected(socket(AF_INET, SOCK_STREAM, 0), kTcpEcho);
  CHECK(vma->register_recv_callback(stream, Drop, &stream) == 0);
  Say(stream, "dropped");
  char bytes[16];
  const int64_t end = Now() + 5000000000;
  while (called == 0 && Now() < end) {
    CHECK_FAILS(recv(stream, bytes, sizeof bytes, MSG_DONTWAIT), EAGAIN);
  }
  CHECK(called == 1);
  CHECK(vma->register_recv_callback(stream, NULL, NULL) == 0);
  Say(stream, "kept");
  CHECK(recv(stream, bytes, sizeof bytes, 0) == 4);
}

static struct {
  int tid, calls, answers, closes;
} of_thread;
static vma_recv_callback_retval_t Answer(int fd, size_t parts, struct iovec iov[],
                                         struct vma_info_t* about, void* context) {
  (void)fd, (void)parts, (void)iov, (void)about, (void)context;
  of_thread.tid = gettid();
  CHECK(send(of_thread.answers, "answer", 6, MSG_NOSIGNAL) == 6);
  CHECK(close(of_thread.closes) == 0);
  ++of_thread.calls;
  return VMA_PACKET_RECV;
}

/* The library's own thread polls meanwhile, whose calls are the kernel's. */
static void CallbackIsCalledByTheProgramsThread(void) {
  const int asking = Asking(5000);
  of_thread.answers = Connected(socket(AF_INET, SOCK_STREAM, 0), kTcpEcho);
  of_thread.closes = Asking(5001);
  CHECK(vma->register_recv_callback(asking, Answer, NULL) == 0);
  Say(asking, "question");
  const struct timespec pause = {.tv_nsec = 1000000};
  for (int i = 0; i < kQuietMs && of_thread.calls == 0; ++i) nanosleep(&pause, NULL);
  CHECK(of_thread.calls == 0);
  char bytes[16];
  CHECK(recv(asking, bytes, sizeof bytes, 0) == 8);
  CHECK(of_thread.calls == 1 && of_thread.tid == gettid());
  CHECK(recv(of_thread.answers, bytes, sizeof bytes, 0) == 6);
  CHECK(memcmp(bytes, "answer", 6) == 0);
  /* Its number, and its port, are nobody's any more. */
  CHECK(Asking(5001) == of_thread.closes);
}

/* ---- Clients of SocketXtreme, as the manual has the server ----------------------------------- */

static void UdpClient(void) {
  const int asking = Asking(5000);
  const int ring = RingOf(asking);
  char text[32];
  for (int i = 0; i < 200; ++i) {
    snprintf(text, sizeof text, "question %d", i);
    Say(asking, text);
    ExpectPacket(ring, text);
  }
}

static void TcpClient(void) {
  const int stream = Bound(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), OURS, 0);
  const struct sockaddr_in peer = Address(THEIRS, kTcpEcho);
  CHECK_FAILS(connect(stream, (const struct sockaddr*)&peer, sizeof peer), EINPROGRESS);
  const int ring = RingOf(stream);
  struct vma_completion_t c = Next(ring, 5000);
  CHECK((c.events & EPOLLOUT) != 0 && c.user_data == (uint64_t)stream);
  for (int i = 0; i < 200; ++i) {
    Say(stream, "question");
    ExpectPacket(ring, "question");
  }
  CHECK(shutdown(stream, SHUT_WR) == 0);
  c = Next(ring, 5000);
  CHECK((c.events & (EPOLLIN | EPOLLRDHUP)) == (EPOLLIN | EPOLLRDHUP));
  CHECK(close(stream) == 0);
}

/* What happened before its ring was asked for is told, as it came. */
static void TcpClientIsLate(void) {
  const struct timespec pause = {.tv_nsec = kQuietMs * 1000000};
  const int stream = Bound(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), OURS, 0);
  const struct sockaddr_in peer = Address(THEIRS, kTcpEcho);
  CHECK_FAILS(connect(stream, (const struct sockaddr*)&peer, sizeof peer), EINPROGRESS);
  nanosleep(&pause, NULL);
  Say(stream, "question");
  CHECK(shutdown(stream, SHUT_WR) == 0);
  nanosleep(&pause, NULL);
  const int ring = RingOf(stream);
  struct vma_completion_t c = Next(ring, 5000);
  CHECK(c.events == EPOLLOUT && c.user_data == (uint64_t)stream);
  ExpectPacket(ring, "question");
  c = Next(ring, 5000);
  CHECK((c.events & (EPOLLIN | EPOLLRDHUP)) == (EPOLLIN | EPOLLRDHUP));
  CHECK(close(stream) == 0);
  /* Nobody is there. */
  const struct sockaddr_in nobody = Address(THEIRS, 9);
  const int refused = Bound(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), OURS, 0);
  CHECK_FAILS(connect(refused, (const struct sockaddr*)&nobody, sizeof nobody), EINPROGRESS);
  nanosleep(&pause, NULL);
  CHECK(RingOf(refused) == ring);
  c = Next(ring, 5000);
  CHECK((c.events & (EPOLLERR | EPOLLHUP)) == (EPOLLERR | EPOLLHUP));
  CHECK(c.user_data == (uint64_t)refused);
}

/* The first use of a socket decides, of whichever kind. */
static void ReceivesByCalls(void) {
  const int calls = Asking(5000);
  char bytes[16];
  Say(calls, "by calls");
  CHECK(recv(calls, bytes, sizeof bytes, 0) == 8);
  const int other = Asking(5001);
  const int ring = RingOf(other);
  Say(other, "completion");
  ExpectPacket(ring, "completion");
  Say(calls, "by calls");
  CHECK(recv(calls, bytes, sizeof bytes, 0) == 8);
  CHECK(Next(ring, kQuietMs).events == 0);
}

static const struct {
  const char* name;
  void (*run)(void);
} kFunctions[] = {
    {"rings", Rings},
    {"three_sockets", ThreeSockets},
    {"alloc_logic", AllocLogic},
    {"add_ring_profile", RingProfile},
    {"modify_ring", ModifyRing},
    {"network_header", NetworkHeader},
    {"dummy", Dummy},
    {"user_data", UserData},
    {"shutdown_rx", ShutdownRx},
    {"timestamps", Timestamps},
    {"ptp_timestamps", PtpTimestamps},
    {"add_conf_rule", ConfRule},
    {"thread_offload", ThreadOffload},
    {"dump_fd_stats", DumpFdStats},
    {"user_alloc", UserAlloc},
    {"user_alloc_none", UserAllocNone},
    {"user_alloc_too_little", UserAllocTooLittle},
    {"recvfrom_zcopy", ZcopyOfAStream},
    {"zcopy_without_room", ZcopyWithoutRoom},
    {"zcopy_kept", ZcopyOutlivesTheRing},
    {"recv_callback", CallbackOfAStream},
    {"recv_callback_ready", CallbackKnowsWhatIsReady},
    {"recv_callback_thread", CallbackIsCalledByTheProgramsThread},
    {"udp_client", UdpClient},
    {"tcp_client", TcpClient},
    {"tcp_client_late", TcpClientIsLate},
    {"receives_by_calls", ReceivesByCalls},
};

int main(int argc, char** argv) {
  vma = vma_get_api();
  CHECK(argc > 1 && vma != NULL);
  for (size_t i = 0; i < sizeof kFunctions / sizeof *kFunctions; ++i) {
    if (strcmp(argv[1], kFunctions[i].name) != 0) continue;
    kFunctions[i].run();
    printf("done\n");
    return 0;
  }
  return 2;
}
