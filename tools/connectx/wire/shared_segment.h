// SPDX-License-Identifier: Apache-2.0
//
// The memory behind a shared wire: a directory with one mapped file (ports, learned addresses, a
// ring for every ordered pair of ports) and one FIFO a port to wake who sleeps there.
//
// Invariant: a port belongs to whoever holds the kernel's lock on its byte of the file, and the
// kernel lets go of it when that process dies, however it dies. Who opens the segment while nobody
// lives makes it anew; who leaves last removes it. A child made by fork is no member: it has
// neither its parent's locks nor the memory, which it must not use (SIGSEGV).
// Trust: members are of one user (directory 0700, owner checked); a member that writes nonsense
// costs the others frames. One that truncates the file ends them (SIGBUS).
// Thread: Open and the destructor by one; all else by any.
// Spec: fcntl(2), open file description locks.

#ifndef XTREME_TOOLS_CONNECTX_WIRE_SHARED_SEGMENT_H_
#define XTREME_TOOLS_CONNECTX_WIRE_SHARED_SEGMENT_H_

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tools/connectx/wire/mac_table.h"
#include "tools/connectx/wire/shared_ring.h"

namespace xtreme::connectx {

// What the members know of a port. In shared memory.
struct SharedPort {
  // Generation << 1 | attached.
  alignas(64) std::atomic<uint32_t> state;
  // Not 0 while its member is about to sleep: the number of that sleep.
  std::atomic<uint32_t> armed;
};

class SharedSegment {
 public:
  struct Shape {
    uint32_t ports = 0;       // 2 to 64.
    uint32_t ring_bytes = 0;  // A power of two, 16 KB to 16 MB.

    bool Valid() const;
  };

  // Joins the segment in `directory`, or makes it: `shape` counts only then. Claims the first free
  // port. Errors: PermissionDenied (the directory is another's, or writable by others),
  // FailedPrecondition (not a segment, or of another version), ResourceExhausted (all ports taken,
  // no room), Unavailable (somebody has been opening it for 5 seconds), Internal.
  static absl::StatusOr<std::unique_ptr<SharedSegment>> Open(const std::string& directory,
                                                             const Shape& shape);
  ~SharedSegment();
  SharedSegment(const SharedSegment&) = delete;
  SharedSegment& operator=(const SharedSegment&) = delete;

  const Shape& shape() const { return shape_; }
  uint8_t own_port() const { return own_port_; }

  SharedPort& port(size_t index) const;
  MacTable& stations() const;
  SharedRingIndices* indices(size_t from, size_t to) const;
  std::span<uint8_t> ring(size_t from, size_t to) const;

  // Shows the claimed port to the others, with a new generation; the opposite.
  void Attach();
  void Detach();

  // Whether somebody holds the port's lock. A system call.
  bool Lives(size_t index) const;

  // Becomes readable when somebody wakes our port.
  int wake_fd() const { return wake_fds_[own_port_]; }
  void Wake(size_t index) const;
  // Takes the wakes that have come.
  void DrainWakes() const;

 private:
  SharedSegment(std::string directory, int directory_fd, int file);

  // False: the file was removed meanwhile, or is being set up; begin again.
  absl::StatusOr<bool> Enter(const Shape& shape);
  absl::Status Create(const Shape& shape);
  absl::Status ReadShape();
  absl::Status Map();
  absl::Status Claim();
  absl::Status OpenWakes(bool create);
  bool NobodyElseLives() const;

  const pid_t owner_;
  const std::string directory_;
  const int directory_fd_;
  const int file_;
  Shape shape_;
  uint8_t* memory_ = nullptr;
  uint8_t own_port_ = 0;
  bool claimed_ = false;
  std::vector<int> wake_fds_;  // By port.
};

}  // namespace xtreme::connectx

#endif  // XTREME_TOOLS_CONNECTX_WIRE_SHARED_SEGMENT_H_
