// SPDX-License-Identifier: Apache-2.0
//
// Forks while other threads ask for sockets and copy and close them; says how many children ended.
//
//   fork_program PEER-ADDRESS FORKS [streams]
//
// With "streams", handlers of fork() that it registers first open and close streams of the C
// library on sockets; an alarm ends it if they do not go on.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static int fd;

static void* Ask(void* unused) {
  for (;;) {
    struct sockaddr_in own;
    socklen_t length = sizeof own;
    struct pollfd one = {.fd = fd, .events = POLLIN};
    poll(&one, 1, 0);
    getsockname(fd, (struct sockaddr*)&own, &length);
    close(dup(fd));
  }
  return unused;
}

// Whether it ended within 20 seconds, and well.
static int Ends(pid_t child) {
  for (int tries = 0; tries < 20000; ++tries) {
    int status = 0;
    if (waitpid(child, &status, WNOHANG) == child) return status == 0;
    usleep(1000);
  }
  kill(child, SIGKILL);
  return 0;
}

static void UseStream(void) {
  FILE* const stream = fdopen(dup(fd), "w");
  if (stream == NULL || fclose(stream) != 0) _exit(3);
}

static void UseStreamInChild(void) {
  alarm(20);
  UseStream();
}

int main(int count, char** arguments) {
  if (count < 3) return 2;
  if (count > 3) pthread_atfork(&UseStream, &UseStream, &UseStreamInChild);
  struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(9000)};
  inet_pton(AF_INET, arguments[1], &to.sin_addr);
  fd = socket(AF_INET, SOCK_DGRAM, 0);
  if (connect(fd, (const struct sockaddr*)&to, sizeof to) != 0) return 2;
  if (count > 3) {
    alarm(60);
    UseStream();
  }
  for (int i = 0; i < 3; ++i) {
    pthread_t thread;
    pthread_create(&thread, NULL, &Ask, NULL);
  }
  const int forks = atoi(arguments[2]);
  int ended = 0;
  for (int i = 0; i < forks && ended == i; ++i) {
    const pid_t child = fork();
    if (child == 0) _exit(close(fd) == 0 ? 0 : 1);
    ended += Ends(child);
  }
  printf("%d children ended\n", ended);
  return 0;
}
