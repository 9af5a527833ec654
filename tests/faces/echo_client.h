/* SPDX-License-Identifier: Apache-2.0
 *
 * Sockets of C programs whose peer echoes at TCP port 8000 and UDP port 9000 (echo_peer.h).
 */
#ifndef XTREME_TESTS_FACES_ECHO_CLIENT_H_
#define XTREME_TESTS_FACES_ECHO_CLIENT_H_

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/socket.h>

static const char* own;
static const char* peer;

static inline struct sockaddr_in Address(const char* text, int port) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
  inet_pton(AF_INET, text, &address.sin_addr);
  return address;
}

// To the peer.
static inline int Connected(int type, int port) {
  const int fd = socket(AF_INET, type, 0);
  const struct sockaddr_in to = Address(peer, port);
  if (connect(fd, (const struct sockaddr*)&to, sizeof to) != 0) perror("connect");
  return fd;
}

#endif /* XTREME_TESTS_FACES_ECHO_CLIENT_H_ */
