// SPDX-License-Identifier: Apache-2.0
//
// Faces: what the socket faces of a process share: settings, the rings by interface, the table of
// descriptors, and whether there is anything to offload to at all.
//
// The one table that a preloaded library has: made at the first call, never destroyed.
// Invariant: a ring is opened when the first socket needs it and stays.
// Threads: any.

#ifndef XTREME_API_SOCKETS_FACES_H_
#define XTREME_API_SOCKETS_FACES_H_

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "api/sockets/descriptors.h"
#include "api/sockets/ring_choice.h"
#include "api/sockets/ring_door.h"
#include "api/sockets/rules.h"
#include "api/sockets/locks.h"
#include "api/sockets/settings.h"

namespace xtreme::sockets {

class DeferredListeners;

class Faces {
 public:
  static Faces& The() {
    Faces* const made = the_.load(std::memory_order_acquire);
    return made != nullptr ? *made : Make();
  }

  // Null: no call has asked for it yet.
  static Faces* IfMade() { return the_.load(std::memory_order_acquire); }

  // Whether the host has an RDMA device; asked once, by the first socket that could be offloaded,
  // and not by those that libraries open before the program begins. False: every call is the
  // kernel's.
  bool enabled();
  // Whether that was asked, and the answer was no.
  bool off() const { return off_.load(std::memory_order_relaxed); }

  const FaceSettings& settings() const { return settings_; }
  Descriptors& descriptors() { return descriptors_; }
  SetupLock& setup() { return setup_; }
  DeferredListeners& deferred() { return *deferred_; }

  // The ring of that key, or the one it shares because the interface has as many as it may. Null:
  // `why` says why there is none.
  RingDoor* DoorOf(const RingKey& key, std::string* why);
  // On the first interface that has one.
  RingDoor* AnyDoor(RingKey key, std::string* why);
  // The newest of all, each with the next older one.
  RingDoor* doors() const { return newest_door_.load(std::memory_order_acquire); }

  // Its number, from 1 on, by which choices name it; equal ones have one.
  uint32_t AddProfile(const RingProfile& profile);
  // Null: no such profile.
  const RingProfile* FindProfile(uint32_t number);

  // Whence the memory of rings' buffers comes from here on. False: there is a ring already.
  struct Allocator {
    void* (*allocate)(size_t bytes) = nullptr;
    void (*release)(void* memory) = nullptr;
  };
  bool UseAllocator(const Allocator& allocator);

  Rules& rules() { return rules_; }
  // Of sockets that `thread` opens from here on.
  void SetThreadOffload(pthread_t thread, bool offload);
  bool OffloadsThisThread();

  // A socket was left to the kernel.
  void CountLeft(const std::string& reason);
  std::map<std::string, uint64_t> left();

  // The process ends.
  void End();
  // The same from where locks may be held, even by the caller, as in a signal handler: by the
  // thread that makes progress, which is waited for 1.5 s at most. Without that thread, or in a
  // child of vfork(): nothing.
  void EndByProgress();

  // Around fork(), in the parent: no other thread is in the middle of anything that the child has
  // a copy of. After handlers that the program registered for before it, and before those for after
  // it. What was made in between was not locked.
  void BeforeFork();
  void AfterFork();
  // In the child, instead of AfterFork(): a parent's rings stay its own, and so do the connections
  // on them; what the child opens is then the kernel's. If the parent had none, the child may have
  // its own.
  void Forked();
  // False in a child after vfork(), which has this memory and descriptors of its own.
  bool OwnsDescriptors() const { return pid_ == getpid(); }

 private:
  struct Place {
    std::unique_ptr<RingDoor> door;
    std::string why;
  };

  Faces();
  static Faces& Make();
  std::string ReadRules();
  void Begin();
  void Moderate(RingDoor* door);
  RingDoor* SharedDoor(const RingKey& key);
  absl::StatusOr<std::unique_ptr<RingDoor>> TryDoor(const RingKey& key,
                                                    const xtreme_ring_options& ring);
  void OpenDoor(const RingKey& key, Place* place);
  void StartProgress();
  void RunProgress();
  void EndBelow();

  static inline std::atomic<Faces*> the_{nullptr};

  FaceSettings settings_;
  pid_t pid_ = 0;
  std::string wrong_;  // Of the settings; not empty: nothing is offloaded.
  std::once_flag begun_;
  std::atomic<bool> enabled_{false};
  std::atomic<bool> off_{false};
  Descriptors descriptors_;

  std::atomic<RingDoor*> newest_door_{nullptr};
  SetupLock setup_{&newest_door_};
  const std::unique_ptr<DeferredListeners> deferred_;
  std::atomic<uintptr_t> forking_{0};  // Token of the thread that locked all for it; 0: none.
  std::map<RingKey, Place> places_;
  std::vector<RingProfile> profiles_;
  Allocator allocator_;  // Of the program; none: the engine's.
  Rules rules_;
  std::map<pthread_t, bool> thread_offload_;
  std::map<std::string, uint64_t> left_;
  // The thread that polls what nobody does: there is one; it is to end all; it has.
  std::atomic<bool> progressing_{false};
  std::atomic<bool> end_asked_{false};
  std::atomic<bool> ended_{false};
};

}  // namespace xtreme::sockets

#endif  // XTREME_API_SOCKETS_FACES_H_
