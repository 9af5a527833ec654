// SPDX-License-Identifier: Apache-2.0
//
// Lets an idle device sleep until somebody rings: while armed, the program's UAR pages are
// write-protected and its clock register is absent, and the first touch makes a descriptor
// readable.
// The toucher waits until the watch is disarmed and then goes on: no signal, no lost doorbell.
//
// It is userfaultfd in its unprivileged form (faults of user mode only). Where the system refuses
// that, complete() is false and the device has to look by itself from time to time.
// Invariant: nobody stays stopped: Disarm and the destructor let everybody go.
// Thread: Arm, Disarm and complete from the device's thread; Add... from any.
// Spec: userfaultfd(2), ioctl_userfaultfd(2).

#ifndef XTREME_TOOLS_CONNECTX_UVERBS_DOORBELL_WATCH_H_
#define XTREME_TOOLS_CONNECTX_UVERBS_DOORBELL_WATCH_H_

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

namespace xtreme::connectx {

class DoorbellWatch {
 public:
  // `wanted` false: behaves as where the system refuses.
  explicit DoorbellWatch(bool wanted);
  ~DoorbellWatch();
  DoorbellWatch(const DoorbellWatch&) = delete;
  DoorbellWatch& operator=(const DoorbellWatch&) = delete;

  // Readable while somebody waits; -1 where the system refused.
  int fd() const { return fd_; }

  // A mapping of the program's. It is forgotten after the program has unmapped it.
  void AddUar(void* address, size_t length);
  void AddClock(void* address, size_t length);

  // True when every touch will be noticed.
  bool complete() const;

  void Arm();
  void Disarm();

 private:
  struct Mapping {
    uintptr_t address;
    size_t length;
    bool is_uar;
  };

  void Add(const Mapping& mapping);
  bool Register(const Mapping& mapping) const;
  // False: the mapping is gone.
  bool Protect(const Mapping& mapping, bool protect) const;

  const int fd_;
  mutable std::mutex mutex_;
  std::vector<Mapping> mappings_;
  bool all_registered_ = true;
};

}  // namespace xtreme::connectx

#endif  // XTREME_TOOLS_CONNECTX_UVERBS_DOORBELL_WATCH_H_
