// SPDX-License-Identifier: Apache-2.0
//
// Waiter: the fd of a ring: what an application that does not spin waits for.
//
// An epoll fd over the queue's completion fd, an eventfd for other threads and a timerfd for the
// next deadline, so it works in poll, select and epoll beside any other fd. It is readable from an
// event after Arm() until the next Arm(): reading what made it readable is left to Arm(), so that a
// poll makes no system call.
// Invariant: what another thread put before its Wake() is either seen by the owner's look after
// Arm(), or makes the fd readable.
// Units: nanoseconds of CLOCK_MONOTONIC. Threads: Wake any, the rest the ring's owner.

#ifndef XTREME_XTREME_ENGINE_WAITER_H_
#define XTREME_XTREME_ENGINE_WAITER_H_

#include <atomic>
#include <memory>

#include "absl/status/statusor.h"
#include "stack/base/time.h"

namespace xtreme::engine {

class Waiter {
 public:
  // ResourceExhausted: no fd is to be had (the message has errno).
  static absl::StatusOr<std::unique_ptr<Waiter>> Create();
  ~Waiter();
  Waiter(const Waiter&) = delete;
  Waiter& operator=(const Waiter&) = delete;

  // Makes fd() readable when `fd` is; it stays the caller's. False: errno.
  bool Add(int fd);
  void Remove(int fd);

  int fd() const { return epoll_fd_; }

  // Takes earlier events off and waits for new ones, or for `deadline` (kNever: none). The caller
  // then looks once more at everything that can wake it (see the invariant). Makes system calls.
  void Arm(base::Nanoseconds deadline);

  // Makes the fd readable if it is armed: one system call for each Arm(), none otherwise.
  void Wake();

  // Sleeps until fd() is readable or `timeout` has passed (kNever: no limit). False: interrupted by
  // a signal.
  bool Sleep(base::Nanoseconds timeout);

 private:
  Waiter(int epoll_fd, int event_fd, int timer_fd)
      : epoll_fd_(epoll_fd), event_fd_(event_fd), timer_fd_(timer_fd) {}

  const int epoll_fd_;
  const int event_fd_;
  const int timer_fd_;
  bool timer_set_ = false;
  std::atomic<bool> armed_{false};
};

}  // namespace xtreme::engine

#endif  // XTREME_XTREME_ENGINE_WAITER_H_
