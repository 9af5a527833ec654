/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program that opens the library by itself and takes every call from it by name, as programs do
 * that have VMA as a choice at run time; vma_peer answers.
 *
 *   vma_loads LIBRARY
 */
#include <arpa/inet.h>
#include <dlfcn.h>
#include <mellanox/vma_extra.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                \
  if (!(condition)) {                                   \
    printf("%d: %s: %s\n", __LINE__, #condition, dlerror()); \
    exit(1);                                            \
  }

static struct {
  int (*socket)(int, int, int);
  int (*bind)(int, const struct sockaddr*, socklen_t);
  int (*getsockopt)(int, int, int, void*, socklen_t*);
  ssize_t (*sendto)(int, const void*, size_t, int, const struct sockaddr*, socklen_t);
  int (*close)(int);
} call;

static void* Find(void* library, const char* name) {
  void* const found = dlsym(library, name);
  CHECK(found != NULL);
  return found;
}

/* Names that such programs look for; those that are not ours are the C library's. */
static void FindAll(void* library) {
  static const char* const kNames[] = {
      "accept", "connect", "listen", "shutdown", "setsockopt", "fcntl", "ioctl", "getsockname",
      "getpeername", "read", "readv", "recv", "recvmsg", "recvmmsg", "recvfrom", "write", "writev",
      "send", "sendmsg", "sendmmsg", "select", "pselect", "poll", "ppoll", "epoll_create",
      "epoll_create1", "epoll_ctl", "epoll_wait", "epoll_pwait", "socketpair", "pipe", "open",
      "creat", "dup", "dup2", "clone", "fork", "vfork", "daemon", "sigaction"};
  for (size_t i = 0; i < sizeof kNames / sizeof *kNames; ++i) Find(library, kNames[i]);
  call.socket = (int (*)(int, int, int))Find(library, "socket");
  call.bind = (int (*)(int, const struct sockaddr*, socklen_t))Find(library, "bind");
  call.getsockopt =
      (int (*)(int, int, int, void*, socklen_t*))Find(library, "getsockopt");
  call.sendto = (ssize_t (*)(int, const void*, size_t, int, const struct sockaddr*, socklen_t))Find(
      library, "sendto");
  call.close = (int (*)(int))Find(library, "close");
}

int main(int argc, char** argv) {
  CHECK(argc > 1);
  void* const library = dlopen(argv[1], RTLD_LAZY);
  CHECK(library != NULL);
  FindAll(library);
  struct vma_api_t* vma = NULL;
  socklen_t length = sizeof vma;
  CHECK(call.getsockopt(-1, SOL_SOCKET, SO_VMA_GET_API, &vma, &length) == 0 && vma != NULL);
  const int fd = call.socket(AF_INET, SOCK_DGRAM, 0);
  struct sockaddr_in ours = {.sin_family = AF_INET, .sin_port = htons(5000)};
  struct sockaddr_in theirs = {.sin_family = AF_INET, .sin_port = htons(7000)};
  inet_pton(AF_INET, "10.9.0.1", &ours.sin_addr);
  inet_pton(AF_INET, "10.9.0.2", &theirs.sin_addr);
  CHECK(call.bind(fd, (struct sockaddr*)&ours, sizeof ours) == 0);
  int ring = -1;
  CHECK(vma->get_socket_rings_fds(fd, &ring, 1) == 1);
  CHECK(call.sendto(fd, "opened", 6, 0, (struct sockaddr*)&theirs, sizeof theirs) == 6);
  struct vma_completion_t completion;
  while (vma->socketxtreme_poll(ring, &completion, 1, 0) == 0) {
  }
  CHECK((completion.events & VMA_SOCKETXTREME_PACKET) != 0);
  CHECK(memcmp(completion.packet.buff_lst->payload, "opened", 6) == 0);
  CHECK(vma->socketxtreme_free_vma_packets(&completion.packet, 1) == 0);
  CHECK(call.close(fd) == 0);
  printf("done\n");
  return 0;
}
