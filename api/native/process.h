// SPDX-License-Identifier: Apache-2.0
//
// Process: the one table behind the C API's handles: which rings and groups there are.
//
// A ring's handle is its number in the upper 16 bits and 1 below; the handles of its sockets and
// timers carry the same number (xtreme/engine/handle.h). Numbers are given out in turn, so an old
// handle meets an empty place, not another ring, until 65,535 rings have been opened since.
// Invariant: the engine lives as long as there are rings. Finding is one load. Rings are brought up
// one after the other, and nobody who opens none waits for that. A child after fork() has a table
// of its own: its parent's is of threads that are not there, and whoever held its locks may be one.
// Threads: Find any; Add and Remove under a lock of its own.

#ifndef XTREME_API_NATIVE_PROCESS_H_
#define XTREME_API_NATIVE_PROCESS_H_

#include <sys/types.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "xtreme/engine/ring_options.h"

namespace xtreme::engine {
class Engine;
class Mailbox;
class Ring;
class RingGroup;
class RingLane;
struct TcpDoor;
}  // namespace xtreme::engine

namespace xtreme::api {

inline uint16_t NumberOf(uint64_t handle) { return static_cast<uint16_t>(handle >> 48); }

class Process {
 public:
  // The library's.
  static Process& The();

  // Rings are opened on `engine` from here on, until the last of them closes, instead of on the
  // host's kernel and devices: for who measures over devices of its own. No ring is open.
  void UseEngine(std::shared_ptr<engine::Engine> engine);
  // Opens a ring; its number is filled into the options. Errors as engine::Ring::Open.
  absl::StatusOr<uint64_t> OpenRing(engine::RingOptions options);
  // If the process ends by exit() while the ring is open, its peers are reset (ring_exit.h): at
  // once where the thread that exits owns it, else by its owner, for which kExitPatience is waited.
  void ResetAtExit(uint64_t handle);
  // 0, EBADF: no such ring, or EBUSY: it is in a group.
  int CloseRing(uint64_t handle);

  // Null: no such ring.
  engine::Ring* FindRing(uint64_t handle) const {
    return rings_[NumberOf(handle)].load(std::memory_order_acquire);
  }

  // Makes a ring look, also if it closes meanwhile. False: no such ring.
  bool WakeRing(uint64_t handle);

  // The way into a ring's TCP, from any thread, also if it closes meanwhile. False: no such ring;
  // null: it has no TCP.
  bool FindDoor(uint64_t handle, std::shared_ptr<engine::TcpDoor>* door);

  // ResourceExhausted: the ring has no room for another lane. 0: no place is left. A lane may be
  // posted to after its ring closed; who closes it knows that its poster has stopped.
  absl::StatusOr<uint64_t> OpenLane(engine::Ring* ring);
  bool CloseLane(uint64_t handle);
  engine::RingLane* FindLane(uint64_t handle) const {
    return lanes_[NumberOf(handle)].load(std::memory_order_acquire);
  }

  // `numbers` are those of the rings. FailedPrecondition: one is in a group, or there twice. 0: no
  // place is left.
  absl::StatusOr<uint64_t> OpenGroup(std::span<engine::Ring* const> rings,
                                     std::vector<uint16_t> numbers);
  bool CloseGroup(uint64_t handle);
  engine::RingGroup* FindGroup(uint64_t handle) const {
    return groups_[NumberOf(handle)].load(std::memory_order_acquire);
  }

  // Who polls by an fd: the ring, else the group, else neither.
  struct Polled {
    engine::Ring* ring = nullptr;
    engine::RingGroup* group = nullptr;
  };
  Polled FindByFd(int fd) const;

 private:
  static constexpr std::chrono::milliseconds kExitPatience{50};
  static constexpr size_t kPlaces = size_t{1} << 16;
  // The kernel's default fs.nr_open.
  static constexpr size_t kFds = size_t{1} << 20;
  // In by_fd_: a group's number, not a ring's.
  static constexpr uint32_t kGroupBit = 1u << 16;

  // `parents`: that of the process which forked this one; null: there is none.
  explicit Process(const Process* parents);
  static Process& Make();

  template <typename T>
  uint16_t NextFree(const std::array<std::atomic<T*>, kPlaces>& places, uint16_t* last);
  // What others may do with a ring that is closing under them.
  struct Way {
    std::shared_ptr<engine::TcpDoor> door;  // Null: no TCP.
    std::shared_ptr<engine::Mailbox> mailbox;
  };

  uint16_t ReserveRing();
  void GiveUpRing();
  absl::StatusOr<std::shared_ptr<engine::Engine>> AcquireEngine();
  absl::StatusOr<uint64_t> Bring(uint16_t number, engine::RingOptions options);
  void SetFd(int fd, uint32_t value);
  void AtExit();

  // Untouched pages of these cost nothing.
  std::array<std::atomic<engine::Ring*>, kPlaces> rings_{};
  std::array<std::atomic<engine::RingGroup*>, kPlaces> groups_{};
  std::array<std::atomic<engine::RingLane*>, kPlaces> lanes_{};
  std::array<std::atomic<uint32_t>, kFds> by_fd_{};

  std::mutex ways_mutex_;  // Of ways_; held for a moment only.
  std::map<uint16_t, Way> ways_;

  std::mutex opening_;  // Held while a ring is brought up; before mutex_.
  std::mutex mutex_;    // Of what follows.
  uint16_t last_ring_ = 0;
  uint16_t last_group_ = 0;
  uint16_t last_lane_ = 0;
  std::map<uint16_t, std::shared_ptr<engine::RingLane>> lane_owners_;
  std::map<uint16_t, std::vector<uint16_t>> rings_of_group_;
  std::set<uint16_t> grouped_rings_;
  std::set<uint16_t> reset_at_exit_;
  // Of the process that asked for that: a child's exit is its own, by the handler of its parent.
  pid_t pid_ = 0;
  uint32_t open_rings_ = 0;  // Those that are being brought up included.
  std::shared_ptr<engine::Engine> engine_;
  const Process* const parents_;  // What leak checkers find its parts by.
};

}  // namespace xtreme::api

#endif  // XTREME_API_NATIVE_PROCESS_H_
