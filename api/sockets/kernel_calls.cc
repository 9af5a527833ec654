// SPDX-License-Identifier: Apache-2.0

#include "api/sockets/kernel_calls.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>

namespace xtreme::sockets {
namespace {

template <typename F>
void Find(const char* name, F* call) {
  *call = reinterpret_cast<F>(dlsym(RTLD_NEXT, name));
}

KernelCalls FindAll() {
  KernelCalls c{};
  Find("socket", &c.socket), Find("bind", &c.bind), Find("connect", &c.connect);
  Find("listen", &c.listen), Find("accept", &c.accept), Find("accept4", &c.accept4);
  Find("shutdown", &c.shutdown), Find("close", &c.close), Find("close_range", &c.close_range);
  Find("fdopen", &c.fdopen), Find("vdprintf", &c.vdprintf);
  Find("fclose", &c.fclose), Find("freopen", &c.freopen), Find("freopen64", &c.freopen64);
  Find("dup", &c.dup), Find("dup2", &c.dup2), Find("dup3", &c.dup3);
  Find("fcntl", &c.fcntl), Find("ioctl", &c.ioctl);
  Find("getsockname", &c.getsockname), Find("getpeername", &c.getpeername);
  Find("getsockopt", &c.getsockopt), Find("setsockopt", &c.setsockopt);
  Find("read", &c.read), Find("readv", &c.readv), Find("recv", &c.recv);
  Find("recvfrom", &c.recvfrom), Find("recvmsg", &c.recvmsg), Find("recvmmsg", &c.recvmmsg);
  Find("write", &c.write), Find("writev", &c.writev), Find("send", &c.send);
  Find("sendto", &c.sendto), Find("sendmsg", &c.sendmsg), Find("sendmmsg", &c.sendmmsg);
  Find("sendfile", &c.sendfile), Find("preadv2", &c.preadv2), Find("pwritev2", &c.pwritev2);
  Find("splice", &c.splice);
  Find("poll", &c.poll), Find("ppoll", &c.ppoll);
  Find("select", &c.select), Find("pselect", &c.pselect);
  Find("epoll_create", &c.epoll_create), Find("epoll_create1", &c.epoll_create1);
  Find("epoll_ctl", &c.epoll_ctl), Find("epoll_wait", &c.epoll_wait);
  Find("epoll_pwait", &c.epoll_pwait), Find("epoll_pwait2", &c.epoll_pwait2);
  Find("sigaction", &c.sigaction), Find("signal", &c.signal);
  Find("sysv_signal", &c.sysv_signal), Find("sigset", &c.sigset);
  Find("pthread_create", &c.pthread_create), Find("_exit", &c._exit);
  return c;
}

}  // namespace

const KernelCalls& Kernel() {
  static KernelCalls calls = FindAll();  // Not const: a test may stand in for one.
  return calls;
}

int HighDescriptor(int fd) {
  constexpr rlim_t kAbove = FD_SETSIZE / 2;
  rlimit limit{};
  if (fd < 0 || getrlimit(RLIMIT_NOFILE, &limit) != 0) return fd;
  const Uncancelled whole;
  const rlim_t above = std::min(kAbove, limit.rlim_cur / 4 * 3);
  const int high = Kernel().fcntl(fd, F_DUPFD_CLOEXEC, static_cast<int>(above));
  if (high < 0) return fd;
  Kernel().close(fd);
  return high;
}

namespace {

// A file that is opened for its path alone; -1: none could be. Programs close what they do not
// know: then there is a new one.
int PathFile() {
  static std::atomic<int> kept{-1};
  const int fd = kept.load(std::memory_order_relaxed);
  const int flags = fd < 0 ? -1 : Kernel().fcntl(fd, F_GETFL);
  if (flags >= 0 && (flags & O_PATH) != 0) return fd;
  const int made = HighDescriptor(open("/", O_PATH | O_CLOEXEC));
  int before = fd;
  if (made < 0 || kept.compare_exchange_strong(before, made)) return made;
  Kernel().close(made);
  return before;
}

}  // namespace

void Deaden(int fd) {
  const Uncancelled whole;
  const int file = PathFile();
  if (file >= 0) Kernel().dup3(file, fd, O_CLOEXEC);
}

}  // namespace xtreme::sockets
