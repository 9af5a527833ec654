// SPDX-License-Identifier: Apache-2.0
//
// Waiting: how a call that blocks waits: it polls for a while, then sleeps in the kernel.
//
// Invariant: before it sleeps it is a watcher of what it waits for, the ring is armed, and it has
// looked once more; so nothing comes unseen. A poll for ever never sleeps.
// Units: nanoseconds of CLOCK_MONOTONIC. Threads: an object is its thread's.

#ifndef XTREME_API_SOCKETS_WAITING_H_
#define XTREME_API_SOCKETS_WAITING_H_

#include <poll.h>
#include <sys/time.h>

#include <csignal>
#include <cstdint>
#include <ctime>
#include <span>
#include <utility>
#include <vector>

#include "api/sockets/locks.h"
#include "api/sockets/ring_door.h"
#include "api/sockets/watch.h"
#include "stack/base/time.h"

namespace xtreme::sockets {

base::Nanoseconds SteadyNow();

// A span of whole seconds, and microseconds or nanoseconds beside them; what does not fit is never,
// what is negative is -1.
base::Nanoseconds SpanOf(const timeval& time);
base::Nanoseconds SpanOf(const timespec& time);
timespec ToTimespec(base::Nanoseconds span);
// Null: there is no limit.
inline bool IsValid(const timespec* time) {
  return time == nullptr ||
         (time->tv_sec >= 0 && time->tv_nsec >= 0 && time->tv_nsec < 1'000'000'000);
}

// Whether every handler the program has installed asks for interrupted calls to go on
// (SA_RESTART), so that one that was interrupted does.
bool CallsAreRestarted();

// Whether handlers of signals have run on this thread since it was made: of who polls what Linux
// tells who sleeps, by EINTR. Only of those that the preloaded library knows.
class Interruption {
 public:
  // Since the last time this was asked.
  bool happened() {
    const uint32_t now = WordsOfThread().handlers;
    return std::exchange(handlers_, now) != now;
  }

 private:
  uint32_t handlers_ = WordsOfThread().handlers;
};

// Whether one that `signals` lets through was waiting; then it has been handled. Null: none.
bool HasSignal(const sigset_t* signals);

// Sleeps until a ring has something for somebody, one of `others` is ready, the calling thread's
// Sleeper is told, or `until`. `others` get their revents. 1: something may have happened at a ring
// or the Sleeper. 0: only what `others` say, or the time is over. -EINTR.
int SleepOnRings(std::span<RingDoor* const> doors, std::span<pollfd> others,
                 base::Nanoseconds until, const sigset_t* signals);

// How long poll, select or epoll_wait waits, and polls before it sleeps. The clock is asked when a
// look found nothing, and the time begins with the first: who finds something never asks.
class TimeToWait {
 public:
  // `poll_us`: below 0, it polls all the time.
  TimeToWait(base::Nanoseconds limit, int64_t poll_us) : limit_(limit), poll_us_(poll_us) {}

  bool none() const { return limit_ == base::Nanoseconds(0); }
  void Look() {
    now_ = SteadyNow();
    if (std::exchange(began_, true)) return;
    until_ = base::DeadlineAfter(now_, limit_);
    poll_until_ = poll_us_ < 0 ? base::kNever : now_ + base::Microseconds(poll_us_);
  }
  // As of the last look.
  bool is_over() const { return now_ >= until_; }
  bool polls() const { return now_ < poll_until_ && !is_over(); }
  base::Nanoseconds until() const { return until_; }

 private:
  const base::Nanoseconds limit_;
  const int64_t poll_us_;
  bool began_ = false;
  base::Nanoseconds now_{};
  base::Nanoseconds until_{};
  base::Nanoseconds poll_until_{};
};

// Whose turn it is while poll, select or epoll_wait polls: rings are looked at each time, what is
// the kernel's once in so many.
class KernelTurns {
 public:
  // `every`: of how many looks one; 0: none but the first, and those that are made due.
  explicit KernelTurns(int64_t every) : every_(every) {}

  bool due() const { return left_ == 0; }
  void Next() { left_ = due() ? every_ - 1 : left_ - 1; }
  void BeDue() { left_ = 0; }

 private:
  const int64_t every_;
  int64_t left_ = 0;  // Looks until then; below 0: none.
};

class Waiting {
 public:
  // `limit`: how long in all; `polls`: how often before it sleeps (-1: always); `done`, if not
  // null: how much the call has done so far.
  Waiting(base::Nanoseconds limit, int64_t polls, const ssize_t* done = nullptr);

  // Between two looks at `watched`, on the ring of `door`, outside; who was cancelled ends here.
  // 0: look again. -EAGAIN: the time is over. -EINTR.
  int Once(Pollable* watched, RingDoor* door, uint32_t events);

 private:
  // 0 or -EINTR.
  int OnSignal() const;

  const base::Nanoseconds until_;
  const ssize_t* const done_;
  Interruption interruption_;
  int64_t polls_left_;
  uint32_t polls_ = 0;  // That were made, of which one in so many looks at the clock.
};

}  // namespace xtreme::sockets

#endif  // XTREME_API_SOCKETS_WAITING_H_
