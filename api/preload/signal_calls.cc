// SPDX-License-Identifier: Apache-2.0
//
// sigaction() and what else sets a handler of a signal: the kernel gets one of ours in its place,
// which leaves a note in the thread's words and calls it. So who polls a ring, however long, learns
// that it was interrupted, as who sleeps in the kernel does.
//
// Invariant: all else is as the program said, and it is told of its own handlers alone. Signals of
// faults are not touched: nobody waits while they come.
// Threads: any, and handlers of signals: these calls are safe in them, and take no lock.

#include <pthread.h>
#include <sys/types.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstdint>

#include "api/preload/preload.h"
#include "api/sockets/locks.h"

namespace xtreme::preload {
namespace {

using Handler = sighandler_t;
using Action = struct sigaction;

// The program's, by signal.
std::array<std::atomic<Handler>, NSIG> handlers;
// Whose they are: a child of vfork() has this memory, and actions of its own.
std::atomic<pid_t> owner{0};

[[gnu::constructor(101)]] void BeOwner() {
  owner = getpid();
  pthread_atfork(nullptr, nullptr, [] { owner = getpid(); });
}

// Of one kind of handler, the other.
template <typename To, typename From>
To As(From* handler) {
  return reinterpret_cast<To>(reinterpret_cast<uintptr_t>(handler));
}

// Linux gives all three to whoever asked for one, too.
void Note(int number, siginfo_t* info, void* context) {
  sockets::ThreadWords& words = sockets::WordsOfThread();
  words.handlers = words.handlers + 1;
  const Handler handler = handlers[static_cast<size_t>(number)].load(std::memory_order_acquire);
  As<void (*)(int, siginfo_t*, void*)>(handler)(number, info, context);
}

Handler NoteAsHandler() { return As<Handler>(&Note); }

bool IsNoted(int number) {
  switch (number) {
    case SIGSEGV:
    case SIGBUS:
    case SIGFPE:
    case SIGILL:
    case SIGTRAP:
    case SIGSYS: return false;
    default: break;
  }
  return number > 0 && number < NSIG && owner.load(std::memory_order_relaxed) == getpid();
}

bool IsFunction(Handler handler) {
  return handler != SIG_DFL && handler != SIG_IGN && handler != SIG_ERR && handler != SIG_HOLD;
}

// `set(what the kernel is to have)`: whether it does.
template <typename Set>
Handler Swap(int number, Handler handler, const Set& set) {
  std::atomic<Handler>& kept = handlers[static_cast<size_t>(number)];
  const Handler before = kept.load(std::memory_order_acquire);
  const bool notes = IsFunction(handler) && handler != NoteAsHandler();
  // First: it may be called at once.
  if (notes) kept.store(handler, std::memory_order_release);
  const bool done = set(notes ? NoteAsHandler() : handler);
  if (notes && !done) kept.store(before, std::memory_order_release);
  return before;
}

Handler SetBy(Handler (*call)(int, Handler), int number, Handler handler) {
  if (!IsNoted(number)) return call(number, handler);
  Handler old = SIG_ERR;
  const Handler before = Swap(number, handler, [&](Handler of_kernel) {
    old = call(number, of_kernel);
    return old != SIG_ERR;
  });
  return old == NoteAsHandler() ? before : old;
}

int SetAction(int number, const Action* action, Action* old) {
  if (!IsNoted(number)) return Kernel().sigaction(number, action, old);
  int result = -1;
  Action asked{};
  if (action != nullptr) asked = *action;
  const Handler before = Swap(number, asked.sa_handler, [&](Handler of_kernel) {
    asked.sa_handler = of_kernel;
    result = Kernel().sigaction(number, action == nullptr ? nullptr : &asked, old);
    return result == 0;
  });
  const bool is_ours = result == 0 && old != nullptr && old->sa_handler == NoteAsHandler();
  if (is_ours) old->sa_handler = before;
  return result;
}

}  // namespace
}  // namespace xtreme::preload

using xtreme::preload::Kernel;

XTREME_CALL int sigaction(int number, const struct sigaction* action,
                          struct sigaction* old) noexcept {
  return xtreme::preload::SetAction(number, action, old);
}

XTREME_CALL sighandler_t signal(int number, sighandler_t handler) noexcept {
  return xtreme::preload::SetBy(Kernel().signal, number, handler);
}
XTREME_CALL sighandler_t bsd_signal(int number, sighandler_t handler) noexcept {
  return signal(number, handler);
}
XTREME_CALL sighandler_t ssignal(int number, sighandler_t handler) noexcept {
  return signal(number, handler);
}
XTREME_CALL sighandler_t sysv_signal(int number, sighandler_t handler) noexcept {
  return xtreme::preload::SetBy(Kernel().sysv_signal, number, handler);
}
// What signal() is by _XOPEN_SOURCE.
XTREME_CALL sighandler_t __sysv_signal(int number, sighandler_t handler) noexcept {
  return sysv_signal(number, handler);
}
XTREME_CALL sighandler_t sigset(int number, sighandler_t handler) noexcept {
  return xtreme::preload::SetBy(Kernel().sigset, number, handler);
}
