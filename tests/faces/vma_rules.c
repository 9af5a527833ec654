/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rules of each role, by their effect. The other side runs vma_peer.
 *
 *   vma_rules peers|senders|groups
 */
#include "tests/faces/vma_program.h"

/* Connections and connected sockets are known by the peer's end, whoever bound first. */
static void OfPeers(void) {
  CHECK(vma->add_conf_rule("use os tcp_client " THEIRS "/32:7001:*:*") == 0);
  CHECK(vma->get_socket_rings_num(Connected(socket(AF_INET, SOCK_STREAM, 0), kTcpEcho)) == 0);
  CHECK(vma->add_conf_rule("use os tcp_client *:*:" OURS ":7001") == 0);
  CHECK(vma->add_conf_rule("use os udp_connect *:7000") == 0);
  CHECK(vma->get_socket_rings_num(Connected(socket(AF_INET, SOCK_DGRAM, 0), kUdpEcho)) == 0);
  const int bound = Bound(socket(AF_INET, SOCK_DGRAM, 0), OURS, 5000);
  CHECK(vma->get_socket_rings_num(bound) == 1);
  Connected(bound, kUdpEcho);
  CHECK(vma->get_socket_rings_num(bound) == 0);
  char byte;
  Say(bound, "?");
  CHECK(recv(bound, &byte, 1, 0) == 1);
}

static void SayTo(int fd, int port) {
  const struct sockaddr_in to = Address(THEIRS, port);
  CHECK(sendto(fd, "to", 2, 0, (const struct sockaddr*)&to, sizeof to) == 2);
}

/* What is sent to such a peer leaves by the kernel; the ring counts the rest. */
static void OfSenders(void) {
  CHECK(vma->add_conf_rule("use os udp_sender " THEIRS ":7000") == 0);
  const int fd = Bound(socket(AF_INET, SOCK_DGRAM, 0), OURS, 5000);
  const int ring = RingOf(fd);
  SayTo(fd, kUdpEcho);
  ExpectPacket(ring, "to");
  SayTo(fd, 7002);
  CHECK(vma->dump_fd_stats(fd, 3) == 0);
  const struct sockaddr_in to = Address(THEIRS, kUdpEcho);
  CHECK_FAILS(sendto(fd, "to", 2, VMA_SND_FLAGS_DUMMY, (const struct sockaddr*)&to, sizeof to),
              EINVAL);
  Connected(fd, kUdpEcho);
  Say(fd, "in ");
  CHECK(send(fd, "two ", 4, MSG_MORE) == 4);
  CHECK(send(fd, "parts", 5, 0) == 5);
  ExpectPacket(ring, "in ");
  ExpectPacket(ring, "two parts");
  CHECK(vma->dump_fd_stats(fd, 3) == 0);
}

static void OfGroups(void) {
  CHECK(vma->add_conf_rule("use os udp_receiver 239.1.0.0/16:5000") == 0);
  for (int late = 0; late <= 1; ++late) {
    const int fd = socket(AF_INET, SOCK_DGRAM, 0);
    const struct ip_mreq group = {.imr_multiaddr = Address("239.1.2.3", 0).sin_addr,
                                  .imr_interface = Address(OURS, 0).sin_addr};
    const int on = 1;
    CHECK(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0);
    if (late) Bound(fd, "0.0.0.0", 5000);
    CHECK(vma->get_socket_rings_num(fd) == late);
    CHECK(setsockopt(fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &group, sizeof group) == 0);
    if (!late) Bound(fd, "0.0.0.0", 5000);
    CHECK(vma->get_socket_rings_num(fd) == 0);
  }
}

int main(int argc, char** argv) {
  vma = vma_get_api();
  CHECK(argc > 1 && vma != NULL);
  switch (argv[1][0]) {
    case 'p': OfPeers(); break;
    case 's': OfSenders(); break;
    case 'g': OfGroups(); break;
    default: return 2;
  }
  printf("done\n");
  return 0;
}
