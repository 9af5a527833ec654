// SPDX-License-Identifier: Apache-2.0

#include "api/sockets/waiting.h"

#include <pthread.h>
#include <sys/epoll.h>

#include <cerrno>
#include <ctime>

#include "api/sockets/kernel_calls.h"
#include "xtreme/engine/ring.h"

namespace xtreme::sockets {

base::Nanoseconds SteadyNow() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return base::Seconds(now.tv_sec) + base::Nanoseconds(now.tv_nsec);
}

base::Nanoseconds SpanOf(const timespec& time) {
  constexpr int64_t kSecond = 1'000'000'000;
  int64_t span = 0;
  if (time.tv_sec < 0) return base::Nanoseconds(-1);
  const bool overflows = __builtin_mul_overflow(time.tv_sec, kSecond, &span) ||
                         __builtin_add_overflow(span, time.tv_nsec, &span);
  return overflows ? base::kNever : base::Nanoseconds(span);
}

base::Nanoseconds SpanOf(const timeval& time) {
  constexpr int64_t kSecond = 1'000'000;
  timespec split{.tv_sec = time.tv_sec, .tv_nsec = time.tv_usec % kSecond * 1'000};
  // select() takes more than a second of them.
  if (__builtin_add_overflow(split.tv_sec, time.tv_usec / kSecond, &split.tv_sec)) {
    return base::kNever;
  }
  return SpanOf(split);
}

timespec ToTimespec(base::Nanoseconds span) {
  constexpr int64_t kSecond = 1'000'000'000;
  return {.tv_sec = span.count() / kSecond, .tv_nsec = span.count() % kSecond};
}

bool CallsAreRestarted() {
  for (int signal = 1; signal <= SIGRTMAX; ++signal) {
    struct sigaction action{};
    if (sigaction(signal, nullptr, &action) != 0) continue;
    const bool handled = action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN;
    if (handled && (action.sa_flags & SA_RESTART) == 0) return false;
  }
  return true;
}

bool HasSignal(const sigset_t* signals) {
  constexpr timespec kNow{};
  return signals != nullptr && Kernel().ppoll(nullptr, 0, &kNow, signals) < 0;
}

int SleepOnRings(std::span<RingDoor* const> doors, std::span<pollfd> others,
                 base::Nanoseconds until, const sigset_t* signals) {
  const ErrnoKept kept;
  Sleeper& sleeper = Sleeper::OfThread();
  std::vector<pollfd> fds(others.begin(), others.end());
  for (RingDoor* door : doors) {
    const RingDoor::Entry entry(door);
    if (!door->Arm()) return 1;
    fds.push_back({.fd = door->fd(), .events = POLLIN});
  }
  fds.push_back({.fd = sleeper.fd(), .events = POLLIN});
  timespec left{};
  if (until != base::kNever) {
    left = ToTimespec(base::Later(until - SteadyNow(), base::Nanoseconds(0)));
  }
  const int ready =
      Kernel().ppoll(fds.data(), fds.size(), until == base::kNever ? nullptr : &left, signals);
  if (ready < 0) return -errno;
  int ours = 0;
  for (size_t i = 0; i < fds.size(); ++i) {
    if (i < others.size()) others[i].revents = fds[i].revents;
    if (i >= others.size() && fds[i].revents != 0) ours = 1;
  }
  if (ours != 0) sleeper.Rest();
  return ours;
}

Waiting::Waiting(base::Nanoseconds limit, int64_t polls, const ssize_t* done)
    : until_(limit == base::kNever || limit == base::Nanoseconds(0)
                 ? limit
                 : base::DeadlineAfter(SteadyNow(), limit)),
      done_(done),
      polls_left_(polls) {}

int Waiting::Once(Pollable* watched, RingDoor* door, uint32_t events) {
  pthread_testcancel();
  constexpr uint32_t kBetweenLooks = 64;
  if (interruption_.happened()) [[unlikely]] return OnSignal();
  if (polls_left_ != 0) {
    if (polls_left_ > 0) --polls_left_;
    const bool looks = until_ != base::kNever && ++polls_ % kBetweenLooks == 0;
    return looks && SteadyNow() >= until_ ? -EAGAIN : 0;
  }
  if (until_ != base::kNever && SteadyNow() >= until_) return -EAGAIN;
  Sleeper::OfThread().Rest();
  const Attachment attachment(watched, &Sleeper::OfThread());
  {
    const RingDoor::Entry entry(door);
    door->Progress();
  }
  if ((watched->mask() & (events | EPOLLERR | EPOLLHUP)) != 0) return 0;
  if (watched->door() != door) return 0;
  RingDoor* const doors[] = {door};
  const int slept = SleepOnRings(doors, {}, until_, nullptr);
  return slept == -EINTR ? OnSignal() : 0;
}

// With a time limit a call is never begun anew (signal(7)); nor, on Linux, one that did a part.
int Waiting::OnSignal() const {
  const bool anew = until_ == base::kNever && (done_ == nullptr || *done_ == 0);
  return anew && CallsAreRestarted() ? 0 : -EINTR;
}

}  // namespace xtreme::sockets
