// SPDX-License-Identifier: Apache-2.0
//
// FdWatches: kernel fds that rings wait for, each told once. Several rings may wait for the same
// one, a program's stop fd above all; the control thread's epoll has it once.
//
// Invariant: an fd is watched exactly while somebody waits to be told of it, so that a number which
// the program closed and somebody else got is let alone.
// Threads: the control thread.

#ifndef XTREME_XTREME_ENGINE_FD_WATCHES_H_
#define XTREME_XTREME_ENGINE_FD_WATCHES_H_

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

namespace xtreme::engine {

class ControlThread;

class FdWatches {
 public:
  // What is ready, or why the kernel does not watch it.
  using Tell = std::function<void(uint32_t events, int error)>;

  // Tells `who` once when `fd` has one of `events`; in place of what it waited for there before.
  void Watch(ControlThread& control, const void* who, int fd, uint32_t events, Tell tell);
  // `who` waits for `fd` no more; for none at all.
  void End(ControlThread& control, const void* who, int fd);
  void EndAll(ControlThread& control, const void* who);

 private:
  struct Waiting {
    const void* who;
    uint32_t events;
    Tell tell;
  };
  using List = std::vector<Waiting>;

  void Arm(ControlThread& control, int fd);
  void OnReady(ControlThread& control, int fd, uint32_t ready);

  std::map<int, List> by_fd_;  // No list is empty between calls.
};

}  // namespace xtreme::engine

#endif  // XTREME_XTREME_ENGINE_FD_WATCHES_H_
