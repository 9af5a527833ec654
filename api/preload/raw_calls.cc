// SPDX-License-Identifier: Apache-2.0
//
// syscall(2), by which libraries go past the C library's calls: libuv closes by it. What is asked
// of a descriptor that is ours does what the call of that name does. A child that is made by it is
// one of fork(), whose handlers the C library does not call (vsftpd does so).
//
// Everything else goes to the kernel from here, by nothing that may come here again: allocators
// and locks ask by it while there is nothing else yet.
// Spec: syscall(2): the registers of x86-64.

#include <fcntl.h>
#include <linux/sched.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/sendfile.h>
#include <sys/syscall.h>

#include <array>
#include <cstdarg>
#include <type_traits>
#include <utility>

#include "api/preload/preload.h"

namespace xtreme::preload {
namespace {

using Words = std::array<long, 6>;

long AskKernel(long number, const Words& words) {
  long result = number;
  register long fourth asm("r10") = words[3];
  register long fifth asm("r8") = words[4];
  register long sixth asm("r9") = words[5];
  asm volatile("syscall"
               : "+a"(result)
               : "D"(words[0]), "S"(words[1]), "d"(words[2]), "r"(fourth), "r"(fifth), "r"(sixth)
               : "rcx", "r11", "memory");
  constexpr long kMostErrno = 4'095;
  return result < 0 && result >= -kMostErrno ? Result(result) : result;
}

template <typename T>
T Of(long word) {
  if constexpr (std::is_pointer_v<T>) {
    return reinterpret_cast<T>(word);
  } else {
    return static_cast<T>(word);
  }
}

template <typename R, typename... P, size_t... I>
long Ask(R (*call)(P...), const Words& words, std::index_sequence<I...>) {
  return static_cast<long>(call(Of<P>(words[I])...));
}

// The first of the words are what `call` takes.
template <typename R, typename... P>
long Ask(R (*call)(P...), const Words& words) {
  return Ask(call, words, std::index_sequence_for<P...>());
}

// What is not here has nothing to do with what stands behind a descriptor.
long AskOurs(long number, const Words& words) {
  const int fd = Of<int>(words[0]);
  switch (number) {
    case SYS_close: return Ask(&close, words);
    case SYS_dup: return Ask(&dup, words);
    case SYS_dup2: return Ask(&dup2, words);
    case SYS_dup3: return Ask(&dup3, words);
    case SYS_fcntl: return fcntl(fd, Of<int>(words[1]), words[2]);
    case SYS_ioctl: return ioctl(fd, Of<unsigned long>(words[1]), words[2]);
    case SYS_bind: return Ask(&bind, words);
    case SYS_connect: return Ask(&connect, words);
    case SYS_listen: return Ask(&listen, words);
    case SYS_accept: return Ask(&accept, words);
    case SYS_accept4: return Ask(&accept4, words);
    case SYS_getsockname: return Ask(&getsockname, words);
    case SYS_getpeername: return Ask(&getpeername, words);
    case SYS_getsockopt: return Ask(&getsockopt, words);
    case SYS_setsockopt: return Ask(&setsockopt, words);
    case SYS_shutdown: return Ask(&shutdown, words);
    case SYS_read: return Ask(&read, words);
    case SYS_readv: return Ask(&readv, words);
    case SYS_recvfrom: return Ask(&recvfrom, words);
    case SYS_recvmsg: return Ask(&recvmsg, words);
    case SYS_recvmmsg: return Ask(&recvmmsg, words);
    case SYS_write: return Ask(&write, words);
    case SYS_writev: return Ask(&writev, words);
    case SYS_sendto: return Ask(&sendto, words);
    case SYS_sendmsg: return Ask(&sendmsg, words);
    case SYS_sendmmsg: return Ask(&sendmmsg, words);
    case SYS_sendfile: return Ask(&sendfile, words);
    case SYS_splice: return Ask(&splice, words);
    case SYS_epoll_ctl: return Ask(&epoll_ctl, words);
    case SYS_epoll_wait: return Ask(&epoll_wait, words);
    case SYS_epoll_pwait: return Ask(&epoll_pwait, words);
    case SYS_epoll_pwait2: return Ask(&epoll_pwait2, words);
    default: return AskKernel(number, words);
  }
}

bool IsOfOurs(long number, const Words& words) {
  sockets::Faces* const faces = sockets::Faces::IfMade();
  if (faces == nullptr) return false;
  const sockets::Descriptors& ours = faces->descriptors();
  const bool onto = number == SYS_dup2 || number == SYS_dup3;
  if (number == SYS_splice && ours.Has(Of<int>(words[2]))) return true;
  return ours.Has(Of<int>(words[0])) || (onto && ours.Has(Of<int>(words[1])));
}

// With memory of its own, and that goes on from where the parent does.
bool MakesChild(long number, const Words& words) {
  if (number == SYS_fork) return true;
  uint64_t flags = CLONE_VM;
  uint64_t stack = 0;
  if (number == SYS_clone) {
    flags = static_cast<uint64_t>(words[0]);
    stack = static_cast<uint64_t>(words[1]);
  } else if (const auto* const asked = Of<const clone_args*>(words[0]);
             number == SYS_clone3 && asked != nullptr) {
    flags = asked->flags;
    stack = asked->stack;
  }
  return (flags & CLONE_VM) == 0 && stack == 0;
}

long MakeChild(long number, const Words& words) {
  sockets::Faces* const faces = sockets::Faces::IfMade();
  if (faces == nullptr) return AskKernel(number, words);
  faces->BeforeFork();
  const long child = AskKernel(number, words);
  child == 0 ? faces->Forked() : faces->AfterFork();
  return child;
}

}  // namespace
}  // namespace xtreme::preload

XTREME_CALL long syscall(long number, ...) noexcept {
  xtreme::preload::Words words;
  va_list arguments;
  va_start(arguments, number);
  for (long& word : words) word = va_arg(arguments, long);
  va_end(arguments);
  if (xtreme::preload::MakesChild(number, words)) return xtreme::preload::MakeChild(number, words);
  return xtreme::preload::IsOfOurs(number, words) ? xtreme::preload::AskOurs(number, words)
                                                  : xtreme::preload::AskKernel(number, words);
}
