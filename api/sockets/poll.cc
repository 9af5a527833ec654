// SPDX-License-Identifier: Apache-2.0

#include "api/sockets/poll.h"

#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <vector>

#include "api/sockets/epoll_set.h"
#include "api/sockets/faces.h"
#include "api/sockets/kernel_calls.h"
#include "api/sockets/ring_door.h"
#include "api/sockets/socket.h"
#include "api/sockets/waiting.h"

namespace xtreme::sockets {
namespace {

// epoll's bits are poll's.
static_assert(EPOLLIN == POLLIN && EPOLLOUT == POLLOUT && EPOLLERR == POLLERR);
static_assert(EPOLLHUP == POLLHUP && EPOLLRDHUP == POLLRDHUP && EPOLLPRI == POLLPRI);

// What one call looks at.
class Looks {
 public:
  Looks(Faces& faces, std::span<pollfd> fds) : fds_(fds), kernel_(fds.begin(), fds.end()) {
    for (const pollfd& each : fds) ours_.push_back(Find(faces, each.fd));
  }

  // How many are ready now; their revents. -EINTR: none, and one of the signals that `signals` lets
  // through was waiting.
  int Once(const sigset_t* signals) {
    doors_ = Follow();
    for (RingDoor* door : doors_) {
      const RingDoor::Entry entry(door);
      door->Progress();
    }
    if (Kernel().poll(kernel_.data(), kernel_.size(), 0) < 0) return -errno;
    const int ready = Merge();
    constexpr timespec kNow{};
    const bool interrupted =
        ready == 0 && signals != nullptr && Kernel().ppoll(nullptr, 0, &kNow, signals) < 0;
    return interrupted ? -errno : ready;
  }
  int Sleep(base::Nanoseconds until, const sigset_t* signals) {
    Sleeper::OfThread().Rest();
    std::vector<std::unique_ptr<Attachment>> attachments;
    for (const auto& each : ours_) {
      if (each == nullptr) continue;
      attachments.push_back(std::make_unique<Attachment>(each.get(), &Sleeper::OfThread()));
    }
    if (const int ready = Merge(); ready != 0) return 0;
    // One that went to a ring, or from it, before it could tell this.
    if (Follow() != doors_) return 0;
    return SleepOnRings(doors_, kernel_, until, signals);
  }
  bool spins() const { return !doors_.empty(); }

 private:
  // The rings to poll, and what the kernel is to look at: a socket may change from one to the other
  // while this waits.
  std::vector<RingDoor*> Follow() {
    std::vector<RingDoor*> doors;
    for (size_t i = 0; i < fds_.size(); ++i) {
      if (ours_[i] == nullptr) continue;
      ours_[i]->AddDoors(&doors);
      // The kernel's half of an epoll set still counts.
      const bool on_ring = ours_[i]->door() != nullptr && !ours_[i]->KernelToo();
      kernel_[i].fd = on_ring || ours_[i]->Ended() ? -1 : fds_[i].fd;
    }
    return doors;
  }
  static std::shared_ptr<Pollable> Find(Faces& faces, int fd) {
    if (auto socket = faces.descriptors().FindSocket(fd)) {
      socket->TakeByCalls();
      if (socket->path() == Path::kUndecided) socket->Decide();
      const Path path = socket->path();
      if (path == Path::kOffloaded || path == Path::kUndecided || socket->Ended()) return socket;
    }
    return faces.descriptors().FindEpoll(fd);
  }
  int Merge() {
    int ready = 0;
    for (size_t i = 0; i < fds_.size(); ++i) {
      fds_[i].revents = kernel_[i].fd < 0 ? int16_t{0} : kernel_[i].revents;
      if (ours_[i] != nullptr) {
        const auto wanted = static_cast<uint32_t>(fds_[i].events) | POLLERR | POLLHUP | POLLNVAL;
        fds_[i].revents |= static_cast<int16_t>(ours_[i]->Look() & wanted);
      }
      ready += fds_[i].revents != 0;
    }
    return ready;
  }

  const std::span<pollfd> fds_;
  std::vector<pollfd> kernel_;
  std::vector<std::shared_ptr<Pollable>> ours_;
  std::vector<RingDoor*> doors_;
};

}  // namespace

bool AnyOurs(Faces& faces, std::span<const pollfd> fds) {
  return std::any_of(fds.begin(), fds.end(),
                     [&](const pollfd& each) { return faces.descriptors().Has(each.fd); });
}

int Poll(Faces& faces, std::span<pollfd> fds, base::Nanoseconds limit, const sigset_t* signals) {
  Looks looks(faces, fds);
  const bool waits = limit != base::Nanoseconds(0);
  const base::Nanoseconds start = waits ? SteadyNow() : base::Nanoseconds(0);
  const base::Nanoseconds until = base::DeadlineAfter(start, limit);
  const int64_t poll_us = faces.settings().select_poll_us;
  const base::Nanoseconds poll_until =
      poll_us < 0 ? base::kNever : start + base::Microseconds(poll_us);
  for (;;) {
    const int ready = looks.Once(signals);
    if (ready != 0 || !waits) return ready;
    const base::Nanoseconds now = SteadyNow();
    if (now >= until) return 0;
    if (now < poll_until && looks.spins()) continue;
    const int slept = looks.Sleep(until, signals);
    if (slept < 0) return slept;
  }
}

int Select(Faces& faces, int count, fd_set* read, fd_set* write, fd_set* except,
           base::Nanoseconds limit, const sigset_t* signals) {
  if (count < 0 || count > FD_SETSIZE) return kAskKernel;
  const auto in = [](const fd_set* set, int fd) { return set != nullptr && FD_ISSET(fd, set); };
  std::vector<pollfd> fds;
  for (int fd = 0; fd < count; ++fd) {
    const int events = (in(read, fd) ? POLLIN : 0) | (in(write, fd) ? POLLOUT : 0) |
                       (in(except, fd) ? POLLPRI : 0);
    if (events != 0) fds.push_back({.fd = fd, .events = static_cast<int16_t>(events)});
  }
  if (!AnyOurs(faces, fds)) return kAskKernel;
  const int ready = Poll(faces, fds, limit, signals);
  if (ready < 0) return ready;
  for (const pollfd& each : fds) {
    if ((each.revents & POLLNVAL) != 0) return -EBADF;
  }
  for (fd_set* set : {read, write, except}) {
    if (set != nullptr) FD_ZERO(set);
  }
  int bits = 0;
  const auto put = [&](fd_set* set, const pollfd& each, int asked, int when) {
    if (set == nullptr || (each.events & asked) == 0 || (each.revents & when) == 0) return;
    FD_SET(each.fd, set);
    ++bits;
  };
  // Which events make which set, as the kernel has it (fs/select.c of Linux).
  for (const pollfd& each : fds) {
    put(read, each, POLLIN, POLLIN | POLLHUP | POLLERR);
    put(write, each, POLLOUT, POLLOUT | POLLERR);
    put(except, each, POLLPRI, POLLPRI);
  }
  return bits;
}

}  // namespace xtreme::sockets
