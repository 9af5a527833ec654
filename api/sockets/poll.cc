// SPDX-License-Identifier: Apache-2.0

#include "api/sockets/poll.h"

#include <pthread.h>
#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>

#include "absl/container/inlined_vector.h"
#include "api/sockets/deferred_listeners.h"
#include "api/sockets/epoll_set.h"
#include "api/sockets/faces.h"
#include "api/sockets/kernel_calls.h"
#include "api/sockets/locks.h"
#include "api/sockets/ring_door.h"
#include "api/sockets/socket.h"
#include "api/sockets/waiting.h"

namespace xtreme::sockets {
namespace {

// epoll's bits are poll's.
static_assert(EPOLLIN == POLLIN && EPOLLOUT == POLLOUT && EPOLLERR == POLLERR);
static_assert(EPOLLHUP == POLLHUP && EPOLLRDHUP == POLLRDHUP && EPOLLPRI == POLLPRI);

// A call on so many descriptors allocates nothing.
constexpr size_t kFew = 8;
using Pollfds = absl::InlinedVector<pollfd, kFew>;

// What one call looks at.
class Looks {
 public:
  Looks(Faces& faces, std::span<pollfd> fds)
      : skip_(faces.settings().select_skip_os), fds_(fds), kernel_(fds.begin(), fds.end()) {
    ours_.reserve(fds.size());
    for (const pollfd& each : fds) ours_.push_back(Find(faces, each.fd));
  }

  // How many are ready now; their revents. `kernel`: it is asked if rings have nothing; if they
  // have, in one call of so many (SELECT_SKIP_OS). -EINTR: none, and it was asked, and one of the
  // signals that `signals` lets through was waiting.
  int Once(const sigset_t* signals, bool kernel) {
    Follow(&doors_);
    for (RingDoor* door : doors_) {
      const RingDoor::Entry entry(door);
      door->Progress();
    }
    if (any_of_kernel_) {
      for (pollfd& each : kernel_) each.revents = 0;
    }
    int ready = Merge();
    if (ready != 0 ? IsDue() : kernel && any_of_kernel_) {
      WordsOfThread().skips = 0;
      if (Kernel().poll(kernel_.data(), kernel_.size(), 0) < 0) return -errno;
      ready = Merge();
    }
    return kernel && ready == 0 && HasSignal(signals) ? -EINTR : ready;
  }
  int Sleep(base::Nanoseconds until, const sigset_t* signals) {
    Sleeper::OfThread().Rest();
    absl::InlinedVector<std::unique_ptr<Attachment>, kFew> attachments;
    for (const auto& each : ours_) {
      if (each == nullptr) continue;
      attachments.push_back(std::make_unique<Attachment>(each.get(), &Sleeper::OfThread()));
    }
    if (const int ready = Merge(); ready != 0) return 0;
    // One that went to a ring, or from it, before it could tell this.
    Doors doors_now;
    Follow(&doors_now);
    if (doors_now != doors_) return 0;
    return SleepOnRings(doors_, kernel_, until, signals);
  }
  bool spins() const { return !doors_.empty(); }

 private:
  // The rings to poll, and what the kernel is to look at: a socket may change from one to the other
  // while this waits.
  void Follow(Doors* doors) {
    doors->clear();
    any_of_kernel_ = false;
    for (size_t i = 0; i < fds_.size(); ++i) {
      if (ours_[i] != nullptr) {
        ours_[i]->AddDoors(doors);
        // The kernel's half of an epoll set still counts.
        const bool on_ring = ours_[i]->door() != nullptr && !ours_[i]->KernelToo();
        kernel_[i].fd = on_ring || ours_[i]->Ended() ? -1 : fds_[i].fd;
      }
      any_of_kernel_ |= kernel_[i].fd >= 0;
    }
  }
  // Of calls that rings answer.
  bool IsDue() const { return any_of_kernel_ && ++WordsOfThread().skips > skip_; }
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

  const int64_t skip_;
  const std::span<pollfd> fds_;
  Pollfds kernel_;
  bool any_of_kernel_ = false;  // Whether anything of them is to be asked for.
  absl::InlinedVector<std::shared_ptr<Pollable>, kFew> ours_;
  Doors doors_;
};

// --- Sets of select() ---

constexpr size_t kBitsOfWord = 64;

size_t WordsOf(int count) { return (static_cast<size_t>(count) + kBitsOfWord - 1) / kBitsOfWord; }

// A set of the program's, which may have more bits than an fd_set, or fewer: as Linux, this looks
// at and writes those of `words` words, and no others.
class Bits {
 public:
  Bits(fd_set* set, size_t words) : set_(reinterpret_cast<uint8_t*>(set)), words_(words) {}

  // Of no set: 0.
  uint64_t word(size_t index) const {
    uint64_t bits = 0;
    if (set_ != nullptr) std::memcpy(&bits, set_ + index * sizeof bits, sizeof bits);
    return bits;
  }
  bool Has(int fd) const { return (word(IndexOf(fd)) & BitOf(fd)) != 0; }
  void Set(int fd) const {
    const uint64_t bits = word(IndexOf(fd)) | BitOf(fd);
    std::memcpy(set_ + IndexOf(fd) * sizeof bits, &bits, sizeof bits);
  }
  void Clear() const {
    if (set_ != nullptr) std::memset(set_, 0, words_ * sizeof(uint64_t));
  }

 private:
  static size_t IndexOf(int fd) { return static_cast<size_t>(fd) / kBitsOfWord; }
  static uint64_t BitOf(int fd) { return uint64_t{1} << (static_cast<size_t>(fd) % kBitsOfWord); }

  uint8_t* const set_;
  const size_t words_;
};

// The places of the kernel's table of descriptors, which never become fewer; 0: it does not say.
int TablePlaces() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    int places = 0;
    if (std::sscanf(line.c_str(), "FDSize: %d", &places) == 1) return places;
  }
  return 0;
}

// Linux: what is beyond the table is not looked at, so that a program may name its limit of
// descriptors and have sets of FD_SETSIZE bits.
int Clipped(int count) {
  static std::atomic<int> places{FD_SETSIZE};
  if (count <= places.load(std::memory_order_relaxed)) return count;
  const int now = std::max(TablePlaces(), FD_SETSIZE);
  places.store(now, std::memory_order_relaxed);
  return std::min(count, now);
}

}  // namespace

bool AnyOurs(Faces& faces, std::span<const pollfd> fds) {
  return std::any_of(fds.begin(), fds.end(),
                     [&](const pollfd& each) { return faces.descriptors().Has(each.fd); });
}

int Poll(Faces& faces, std::span<pollfd> fds, base::Nanoseconds limit, const sigset_t* signals) {
  Looks looks(faces, fds);
  TimeToWait time(limit, faces.settings().select_poll_us);
  KernelTurns turns(faces.settings().select_poll_os_ratio);
  Interruption interruption;
  for (;;) {
    pthread_testcancel();
    const int ready = looks.Once(signals, turns.due());
    if (ready == 0 && turns.due()) faces.deferred().OfferAgain();
    if (ready != 0 || time.none()) return ready;
    if (interruption.happened()) return -EINTR;
    time.Look();
    if (time.is_over() && turns.due()) return 0;
    if (time.polls() && looks.spins()) {
      turns.Next();
      continue;
    }
    turns.BeDue();
    if (time.is_over()) continue;
    const int slept = looks.Sleep(faces.deferred().SleepUntil(time.until()), signals);
    if (slept < 0) return slept;
  }
}

int Select(Faces& faces, int count, fd_set* read, fd_set* write, fd_set* except,
           base::Nanoseconds limit, const sigset_t* signals) {
  if (count < 0) return kAskKernel;
  const size_t words = WordsOf(Clipped(count));
  const std::array<Bits, 3> sets = {Bits(read, words), Bits(write, words), Bits(except, words)};
  Pollfds fds;
  for (size_t word = 0; word < words; ++word) {
    uint64_t any = sets[0].word(word) | sets[1].word(word) | sets[2].word(word);
    for (; any != 0; any &= any - 1) {
      const int fd = static_cast<int>(word * kBitsOfWord) + std::countr_zero(any);
      if (fd >= count) break;
      const int events = (sets[0].Has(fd) ? POLLIN : 0) | (sets[1].Has(fd) ? POLLOUT : 0) |
                         (sets[2].Has(fd) ? POLLPRI : 0);
      fds.push_back({.fd = fd, .events = static_cast<int16_t>(events)});
    }
  }
  if (!AnyOurs(faces, fds)) return kAskKernel;
  const int ready = Poll(faces, fds, limit, signals);
  if (ready < 0) return ready;
  for (const pollfd& each : fds) {
    if ((each.revents & POLLNVAL) != 0) return -EBADF;
  }
  for (const Bits& set : sets) set.Clear();
  int bits = 0;
  const auto put = [&](const Bits& set, const pollfd& each, int asked, int when) {
    if ((each.events & asked) == 0 || (each.revents & when) == 0) return;
    set.Set(each.fd);
    ++bits;
  };
  // Which events make which set, as the kernel has it (fs/select.c of Linux).
  for (const pollfd& each : fds) {
    put(sets[0], each, POLLIN, POLLIN | POLLHUP | POLLERR);
    put(sets[1], each, POLLOUT, POLLOUT | POLLERR);
    put(sets[2], each, POLLPRI, POLLPRI);
  }
  return bits;
}

}  // namespace xtreme::sockets
