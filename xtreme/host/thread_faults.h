// SPDX-License-Identifier: Apache-2.0
// The page faults of one thread of this process, read by another.
//
// Threads: one at a time, any. Spec: proc(5), /proc/PID/task/TID/stat.

#ifndef XTREME_XTREME_HOST_THREAD_FAULTS_H_
#define XTREME_XTREME_HOST_THREAD_FAULTS_H_

#include <cstdint>
#include <optional>

#include "xtreme/host/file_descriptor.h"

namespace xtreme::host {

class ThreadFaults {
 public:
  // `tid` as gettid(2) has it.
  explicit ThreadFaults(int tid);

  // Minor and major faults since the thread began; nullopt: it has ended, or /proc is hidden.
  std::optional<uint64_t> Read() const;

 private:
  FileDescriptor stat_;
};

}  // namespace xtreme::host

#endif  // XTREME_XTREME_HOST_THREAD_FAULTS_H_
