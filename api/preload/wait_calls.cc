// SPDX-License-Identifier: Apache-2.0
//
// poll, select and epoll in all their forms.

#include <poll.h>
#include <sys/epoll.h>
#include <sys/select.h>

#include <algorithm>
#include <span>

#include "api/preload/preload.h"
#include "api/sockets/descriptor_calls.h"
#include "api/sockets/epoll_set.h"
#include "api/sockets/poll.h"
#include "api/sockets/waiting.h"

using xtreme::base::Nanoseconds;
using xtreme::preload::Faces;
using xtreme::preload::Kernel;
using xtreme::preload::Result;
using xtreme::preload::ResultOf;
using xtreme::sockets::EpollSet;
using xtreme::sockets::kAskKernel;
using xtreme::sockets::Passage;

namespace xtreme::preload {
namespace {

Nanoseconds FromMilliseconds(int milliseconds) {
  return milliseconds < 0 ? base::kNever : base::Milliseconds(milliseconds);
}

Nanoseconds FromTimespec(const timespec* time) {
  return time == nullptr ? base::kNever : sockets::SpanOf(*time);
}

void LeaveIn(timeval* timeout, Nanoseconds left) {
  const int64_t microseconds = std::max<int64_t>(left / base::Microseconds(1), 0);
  timeout->tv_sec = microseconds / 1'000'000;
  timeout->tv_usec = microseconds % 1'000'000;
}

bool OursAmong(std::span<const pollfd> fds) {
  return fds.data() != nullptr && !Passage::Inside() && sockets::AnyOurs(Faces(), fds);
}

std::shared_ptr<EpollSet> OurSet(int fd) {
  if (Passage::Inside() || !Faces().descriptors().Has(fd)) return nullptr;
  return Faces().descriptors().FindEpoll(fd);
}

int NewSet(int fd) {
  if (fd < 0 || Passage::Inside() || Faces().off()) return fd;
  sockets::AddSet(Faces(), fd);
  return fd;
}

int SelectOurs(int count, fd_set* read, fd_set* write, fd_set* except, Nanoseconds limit,
               const sigset_t* signals) {
  if (Passage::Inside()) return kAskKernel;
  const sockets::ErrnoKept kept;
  return sockets::Select(Faces(), count, read, write, except, limit, signals);
}

}  // namespace
}  // namespace xtreme::preload

using xtreme::preload::FromMilliseconds;
using xtreme::preload::FromTimespec;
using xtreme::sockets::IsValid;
using xtreme::preload::OurSet;

XTREME_CALL int poll(pollfd* fds, nfds_t count, int timeout) {
  if (!xtreme::preload::OursAmong({fds, count})) return Kernel().poll(fds, count, timeout);
  return ResultOf([&] {
    return xtreme::sockets::Poll(Faces(), {fds, count}, FromMilliseconds(timeout), nullptr);
  });
}

XTREME_CALL int ppoll(pollfd* fds, nfds_t count, const timespec* timeout,
                      const sigset_t* signals) {
  if (!xtreme::preload::OursAmong({fds, count})) {
    return Kernel().ppoll(fds, count, timeout, signals);
  }
  if (!IsValid(timeout)) return Result(-EINVAL);
  return ResultOf([&] {
    return xtreme::sockets::Poll(Faces(), {fds, count}, FromTimespec(timeout), signals);
  });
}

XTREME_CALL int __poll_chk(pollfd* fds, nfds_t count, int timeout, size_t room) {
  if (room / sizeof(pollfd) < count) abort();
  return poll(fds, count, timeout);
}

XTREME_CALL int __ppoll_chk(pollfd* fds, nfds_t count, const timespec* timeout,
                            const sigset_t* signals, size_t room) {
  if (room / sizeof(pollfd) < count) abort();
  return ppoll(fds, count, timeout, signals);
}

// What is left of the time is left in `timeout`, as by Linux.
XTREME_CALL int select(int count, fd_set* read, fd_set* write, fd_set* except, timeval* timeout) {
  if (timeout != nullptr && (timeout->tv_sec < 0 || timeout->tv_usec < 0)) return Result(-EINVAL);
  const Nanoseconds limit =
      timeout == nullptr ? xtreme::base::kNever : xtreme::sockets::SpanOf(*timeout);
  const bool counts = timeout != nullptr && limit != Nanoseconds(0);
  const Nanoseconds start = counts ? xtreme::sockets::SteadyNow() : Nanoseconds(0);
  const int ready = xtreme::preload::SelectOurs(count, read, write, except, limit, nullptr);
  if (ready == kAskKernel) return Kernel().select(count, read, write, except, timeout);
  if (counts) xtreme::preload::LeaveIn(timeout, limit - (xtreme::sockets::SteadyNow() - start));
  return Result(ready);
}

XTREME_CALL int pselect(int count, fd_set* read, fd_set* write, fd_set* except,
                        const timespec* timeout, const sigset_t* signals) {
  if (!IsValid(timeout)) return Result(-EINVAL);
  const int ready =
      xtreme::preload::SelectOurs(count, read, write, except, FromTimespec(timeout), signals);
  return ready == kAskKernel ? Kernel().pselect(count, read, write, except, timeout, signals)
                             : Result(ready);
}

XTREME_CALL int epoll_create(int size) noexcept {
  return xtreme::preload::NewSet(Kernel().epoll_create(size));
}

XTREME_CALL int epoll_create1(int flags) noexcept {
  return xtreme::preload::NewSet(Kernel().epoll_create1(flags));
}

XTREME_CALL int epoll_ctl(int set, int operation, int fd, epoll_event* event) noexcept {
  const auto ours = OurSet(set);
  if (ours == nullptr) return Kernel().epoll_ctl(set, operation, fd, event);
  if (set == fd) return Result(-EINVAL);
  const xtreme::sockets::Uncancelled whole;
  const bool polls = operation != EPOLL_CTL_DEL;
  return ResultOf([&] {
    return ours->Control(operation, fd, event, xtreme::sockets::Target(Faces(), fd, polls));
  });
}

XTREME_CALL int epoll_pwait(int set, epoll_event* events, int most, int timeout,
                            const sigset_t* signals) {
  const auto ours = OurSet(set);
  if (ours == nullptr) return Kernel().epoll_pwait(set, events, most, timeout, signals);
  return Result(ours->Wait(events, most, FromMilliseconds(timeout), signals));
}

XTREME_CALL int epoll_wait(int set, epoll_event* events, int most, int timeout) {
  const auto ours = OurSet(set);
  if (ours == nullptr) return Kernel().epoll_wait(set, events, most, timeout);
  return Result(ours->Wait(events, most, FromMilliseconds(timeout), nullptr));
}

XTREME_CALL int epoll_pwait2(int set, epoll_event* events, int most, const timespec* timeout,
                             const sigset_t* signals) {
  const auto ours = OurSet(set);
  if (ours == nullptr) return Kernel().epoll_pwait2(set, events, most, timeout, signals);
  if (!IsValid(timeout)) return Result(-EINVAL);
  return Result(ours->Wait(events, most, FromTimespec(timeout), signals));
}
