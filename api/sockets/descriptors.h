// SPDX-License-Identifier: Apache-2.0
//
// Descriptors: what stands behind the program's file descriptors that are ours to serve.
//
// Invariant: a place has at most one of a socket, an epoll set and a ring; whoever found one keeps
// it alive. Descriptors above kPlaces are the kernel's.
// A socket on a ring is found without a lock and a reference too (Way), if its descriptor is below
// kWays. Threads: any.

#ifndef XTREME_API_SOCKETS_DESCRIPTORS_H_
#define XTREME_API_SOCKETS_DESCRIPTORS_H_

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <utility>

namespace xtreme::sockets {

class EpollSet;
class RingDoor;
class Socket;

class Descriptors {
 public:
  static constexpr size_t kPlaces = size_t{1} << 20;
  static constexpr size_t kWays = size_t{1} << 16;

  // What one stands for; nothing: the kernel's. `closing`: from BeginClose() to EndClose().
  struct Meaning {
    std::shared_ptr<Socket> socket;
    std::shared_ptr<EpollSet> epoll;
    RingDoor* ring = nullptr;
    bool closing = false;
    // Of what was taken away: the door of the way that led there; null: none. Who still goes by it
    // is inside: the socket is to be kept until that door has been passed.
    RingDoor* way = nullptr;
  };

  // The short way to a socket on a ring: its door, and inside it, and only there, the socket, which
  // stays alive for as long as the caller is inside.
  class alignas(32) Way {
   public:
    RingDoor* door() const { return door_.load(std::memory_order_acquire); }  // Null: none.
    // Null: it was closed meanwhile.
    Socket* socket() const { return socket_.load(std::memory_order_acquire); }
    // The same without the door, of datagrams in a program that has one thread; null: ask the door.
    Socket* alone() const { return alone_.load(std::memory_order_relaxed); }

   private:
    friend class Descriptors;
    RingDoor* Close() {
      alone_.store(nullptr, std::memory_order_relaxed);
      socket_.store(nullptr, std::memory_order_release);
      return door_.exchange(nullptr, std::memory_order_acq_rel);
    }

    std::atomic<RingDoor*> door_;
    std::atomic<Socket*> socket_;
    std::atomic<Socket*> alone_;
  };

  // Whether there may be something: one load.
  bool Has(int fd) const {
    const Place* const place = At(fd);
    return place != nullptr && place->taken.load(std::memory_order_acquire);
  }
  // Null: there is none, ever. Of the one table that there is.
  static const Way* WayTo(int fd) {
    const auto place = static_cast<size_t>(fd);
    return place < kWays ? &ways_[place] : nullptr;
  }
  // Makes a way to `socket`, if `fd` stands for it and there is none; it leads there for good: when
  // the socket goes to another ring's door, who finds it behind this one turns back.
  void MakeWay(int fd, Socket* socket, RingDoor* door);
  // While nobody can be on their way, or the socket is taken off its ring next.
  void CloseWay(int fd);
  std::shared_ptr<Socket> FindSocket(int fd) const;
  std::shared_ptr<EpollSet> FindEpoll(int fd) const;
  // Without a lock: rings stay.
  static RingDoor* FindRing(int fd) {
    const Place* const place = At(fd);
    return place == nullptr ? nullptr : place->ring.load(std::memory_order_acquire);
  }
  Meaning Find(int fd) const;

  // What stood there: a descriptor that was closed behind our back. Above kPlaces it is not kept.
  Meaning Put(int fd, Meaning meaning);
  // `copy` stands for what `fd` does, and is counted; what stood there.
  Meaning Share(int fd, int copy);
  // What stands there, to whom closes it: nothing, if another thread does already. Calls find it
  // until EndClose(), so that none asks the kernel by a number that is about to be nobody's.
  Meaning BeginClose(int fd);
  void EndClose(int fd);
  // What stood there.
  Meaning Remove(int fd);
  // Around fork(): until UnlockAll(), in parent and child, nobody changes anything or looks. A
  // thread that was in the middle of it is not in the child, and nothing would end what it began.
  void LockAll();
  void UnlockAll();
  // In order of descriptors; `visit` may look at the others.
  void ForEach(const std::function<void(int fd, const Meaning& meaning)>& visit) const;

 private:
  // A lock for a few instructions.
  class Hold {
   public:
    explicit Hold(std::atomic<bool>* lock) : lock_(lock) {
      while (lock_->exchange(true, std::memory_order_acquire)) {
      }
    }
    ~Hold() { lock_->store(false, std::memory_order_release); }

   private:
    std::atomic<bool>* const lock_;
  };

  struct Place {
    std::atomic<bool> taken{false};
    mutable std::atomic<bool> lock{false};
    Meaning meaning;
    std::atomic<RingDoor*> ring{nullptr};  // As the meaning has it.
  };

  static constexpr size_t kChunk = 256;
  using Chunk = std::array<Place, kChunk>;

  // Null: nothing ever stood near it.
  static Place* At(int fd) {
    const auto place = static_cast<size_t>(fd);
    if (fd < 0 || place >= kPlaces) return nullptr;
    Chunk* const chunk = chunks_[place / kChunk].load(std::memory_order_acquire);
    return chunk == nullptr ? nullptr : &(*chunk)[place % kChunk];
  }

  // What stood there, the place of `fd`, and the way that led there. With the lock.
  static Meaning Exchange(int fd, Place& place, Meaning next) {
    place.ring.store(next.ring, std::memory_order_release);
    Meaning before = std::exchange(place.meaning, std::move(next));
    before.way = ShutWay(fd);
    return before;
  }
  // Which door it led to.
  static RingDoor* ShutWay(int fd) {
    const auto place = static_cast<size_t>(fd);
    return place < kWays ? ways_[place].Close() : nullptr;
  }

  // Null: they have not been made.
  static Chunk* ChunkOf(size_t index) { return chunks_[index].load(std::memory_order_acquire); }

  // Made when something is first put there, with `making_`; never freed. Descriptors are the
  // process', and so is this: a call need not look for it.
  static inline constinit std::array<std::atomic<Chunk*>, kPlaces / kChunk> chunks_{};
  // A table of its own and in one piece, which every call looks into: pages that no descriptor
  // reaches are none. What is there changes with the lock of the descriptor's place.
  static inline constinit std::array<Way, kWays> ways_{};
  std::atomic<bool> making_{false};
  std::atomic<int> highest_{-1};
};

}  // namespace xtreme::sockets

#endif  // XTREME_API_SOCKETS_DESCRIPTORS_H_
