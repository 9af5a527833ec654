// SPDX-License-Identifier: Apache-2.0
//
// KernelCalls: the socket calls as the C library has them, underneath those that we put before it.
//
// Whatever the engine and the libraries below it call on our behalf must not come back to us: they
// do so inside a Passage, and their calls go straight to the kernel. A thread that is made inside
// one stays inside (api/preload/thread_calls.cc).
// Threads: any; a Passage is its thread's.

#ifndef XTREME_API_SOCKETS_KERNEL_CALLS_H_
#define XTREME_API_SOCKETS_KERNEL_CALLS_H_

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <ctime>

#include "api/sockets/locks.h"

namespace xtreme::sockets {

struct KernelCalls {
  decltype(&::socket) socket;
  decltype(&::bind) bind;
  decltype(&::connect) connect;
  decltype(&::listen) listen;
  int (*accept)(int, sockaddr*, socklen_t*);
  int (*accept4)(int, sockaddr*, socklen_t*, int);
  decltype(&::shutdown) shutdown;
  decltype(&::close) close;
  decltype(&::close_range) close_range;
  FILE* (*fdopen)(int, const char*);
  int (*fclose)(FILE*);
  int (*vdprintf)(int, const char*, va_list);
  FILE* (*freopen)(const char*, const char*, FILE*);
  FILE* (*freopen64)(const char*, const char*, FILE*);
  decltype(&::dup) dup;
  decltype(&::dup2) dup2;
  decltype(&::dup3) dup3;
  int (*fcntl)(int, int, ...);
  int (*ioctl)(int, unsigned long, ...);
  int (*getsockname)(int, sockaddr*, socklen_t*);
  int (*getpeername)(int, sockaddr*, socklen_t*);
  int (*getsockopt)(int, int, int, void*, socklen_t*);
  int (*setsockopt)(int, int, int, const void*, socklen_t);
  ssize_t (*read)(int, void*, size_t);
  ssize_t (*readv)(int, const iovec*, int);
  ssize_t (*preadv2)(int, const iovec*, int, off_t, int);
  ssize_t (*recv)(int, void*, size_t, int);
  ssize_t (*recvfrom)(int, void*, size_t, int, sockaddr*, socklen_t*);
  ssize_t (*recvmsg)(int, msghdr*, int);
  int (*recvmmsg)(int, mmsghdr*, unsigned, int, timespec*);
  ssize_t (*write)(int, const void*, size_t);
  ssize_t (*writev)(int, const iovec*, int);
  ssize_t (*pwritev2)(int, const iovec*, int, off_t, int);
  ssize_t (*send)(int, const void*, size_t, int);
  ssize_t (*sendto)(int, const void*, size_t, int, const sockaddr*, socklen_t);
  ssize_t (*sendmsg)(int, const msghdr*, int);
  int (*sendmmsg)(int, mmsghdr*, unsigned, int);
  ssize_t (*sendfile)(int, int, off_t*, size_t);
  decltype(&::splice) splice;
  int (*poll)(pollfd*, nfds_t, int);
  int (*ppoll)(pollfd*, nfds_t, const timespec*, const sigset_t*);
  int (*select)(int, fd_set*, fd_set*, fd_set*, timeval*);
  int (*pselect)(int, fd_set*, fd_set*, fd_set*, const timespec*, const sigset_t*);
  int (*epoll_create)(int);
  int (*epoll_create1)(int);
  int (*epoll_ctl)(int, int, int, epoll_event*);
  int (*epoll_wait)(int, epoll_event*, int, int);
  int (*epoll_pwait)(int, epoll_event*, int, int, const sigset_t*);
  void (*_exit)(int);
  decltype(&::sigaction) sigaction;
  sighandler_t (*signal)(int, sighandler_t);
  sighandler_t (*sysv_signal)(int, sighandler_t);
  sighandler_t (*sigset)(int, sighandler_t);
  int (*pthread_create)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  int (*epoll_pwait2)(int, epoll_event*, int, const timespec*, const sigset_t*);
};

// Those behind this library in the order of the program's libraries.
const KernelCalls& Kernel();

// `fd`, or a copy above those that programs use, in its place: programs size tables by the numbers
// they expect. Within select()'s 1,024, by which libraries below us wait. -1 stays -1.
int HighDescriptor(int fd);

// Puts a file in place of `fd`'s of which the kernel says EBADF to every call, and POLLNVAL to
// poll(): the number stays taken, what it stood for is closed. Nothing, where none can be opened.
void Deaden(int fd);

// Leaves errno as it found it: Linux's calls that succeed do, and programs tell by it what a result
// of 0 means. Results here are -errno, so nothing is lost.
class ErrnoKept {
 public:
  ErrnoKept() : where_(&errno), before_(*where_) {}
  ~ErrnoKept() { *where_ = before_; }
  ErrnoKept(const ErrnoKept&) = delete;
  ErrnoKept& operator=(const ErrnoKept&) = delete;

 private:
  int* const where_;
  const int before_;
};

// While one stands, this thread is not cancelled (pthread_cancel(3)), which would end a call in the
// middle of what it changes: for what asks the kernel with a lock held, or for calls that cannot
// end so. What waits, waits outside.
class Uncancelled {
 public:
  Uncancelled() { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
  ~Uncancelled() { pthread_setcancelstate(before_, nullptr); }
  Uncancelled(const Uncancelled&) = delete;
  Uncancelled& operator=(const Uncancelled&) = delete;

 private:
  int before_ = PTHREAD_CANCEL_ENABLE;
};

// While one stands, the calls of this thread are the kernel's, it is not cancelled, and errno is as
// it was in the end.
class Passage {
 public:
  Passage() { Begin(); }
  ~Passage() {
    --WordsOfThread().passages;
    ShowOutside();
  }
  Passage(const Passage&) = delete;
  Passage& operator=(const Passage&) = delete;
  static bool Inside() { return WordsOfThread().passages != 0; }
  // For a thread that belongs to the engine.
  static void Forever() { Begin(); }

 private:
  static void Begin() {
    ++WordsOfThread().passages;
    ShowOutside();
  }

  const ErrnoKept errno_;
  const Uncancelled uncancelled_;
};

}  // namespace xtreme::sockets

#endif  // XTREME_API_SOCKETS_KERNEL_CALLS_H_
