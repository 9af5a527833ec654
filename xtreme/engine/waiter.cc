// SPDX-License-Identifier: Apache-2.0

#include "xtreme/engine/waiter.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace xtreme::engine {
namespace {

timespec ToTimespec(base::Nanoseconds time) {
  return {.tv_sec = time / base::Seconds(1), .tv_nsec = time.count() % 1'000'000'000};
}

void TakeCount(int fd) {
  uint64_t count;
  [[maybe_unused]] const ssize_t got = read(fd, &count, sizeof count);  // EAGAIN: none.
}

}  // namespace

absl::StatusOr<std::unique_ptr<Waiter>> Waiter::Create() {
  const int epoll_fd = epoll_create1(EPOLL_CLOEXEC);
  const int event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  const int timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
  const int error = errno;
  std::unique_ptr<Waiter> waiter(new Waiter(epoll_fd, event_fd, timer_fd));
  if (epoll_fd < 0 || event_fd < 0 || timer_fd < 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat("create ring fd: ", std::generic_category().message(error)));
  }
  if (!waiter->Add(event_fd) || !waiter->Add(timer_fd)) {
    return absl::ResourceExhaustedError(
        absl::StrCat("create ring fd: epoll_ctl, ", std::generic_category().message(errno)));
  }
  return waiter;
}

Waiter::~Waiter() {
  for (int fd : {timer_fd_, event_fd_, epoll_fd_}) {
    if (fd >= 0) close(fd);
  }
}

bool Waiter::Add(int fd) {
  epoll_event event = {.events = EPOLLIN, .data = {.fd = fd}};
  return epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, fd, &event) == 0;
}

void Waiter::Remove(int fd) { epoll_ctl(epoll_fd_, EPOLL_CTL_DEL, fd, nullptr); }

void Waiter::Arm(base::Nanoseconds deadline) {
  TakeCount(event_fd_);
  if (timer_set_ || deadline != base::kNever) {
    itimerspec when = {};
    // Zero would disarm: a deadline in the past is one nanosecond after the start of time.
    if (deadline != base::kNever) {
      when.it_value = ToTimespec(std::max(deadline, base::Nanoseconds(1)));
    }
    timerfd_settime(timer_fd_, TFD_TIMER_ABSTIME, &when, nullptr);
    timer_set_ = deadline != base::kNever;
  }
  // Last, and not a plain store: it stands before the caller's look at what others put. Wake() has
  // the other half.
  armed_.exchange(true, std::memory_order_seq_cst);
}

void Waiter::Wake() {
  // Not a plain load: what the caller put stands before it.
  if (!armed_.exchange(false, std::memory_order_seq_cst)) return;
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(event_fd_, &one, sizeof one);
}

bool Waiter::Sleep(base::Nanoseconds timeout) {
  pollfd waited = {.fd = epoll_fd_, .events = POLLIN, .revents = 0};
  const timespec limit = timeout == base::kNever ? timespec{} : ToTimespec(timeout);
  const int ready = ppoll(&waited, 1, timeout == base::kNever ? nullptr : &limit, nullptr);
  return ready >= 0 || errno != EINTR;
}

}  // namespace xtreme::engine
