// SPDX-License-Identifier: Apache-2.0
//
// CpuSet: CPUs that threads may run on.
//
// CPUs from 1,024 on are not known here. Threads: each function is about the calling thread or the
// process, and any thread may call. Spec: sched_setaffinity(2); lists as in cpuset(7).

#ifndef XTREME_XTREME_HOST_CPUS_H_
#define XTREME_XTREME_HOST_CPUS_H_

#include <sched.h>

#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace xtreme::host {

class CpuSet {
 public:
  static constexpr int kMaxCpus = CPU_SETSIZE;

  CpuSet() { CPU_ZERO(&cpus_); }
  // "0-3,8". InvalidArgument: not such a list, or a CPU from kMaxCpus on.
  static absl::StatusOr<CpuSet> Parse(std::string_view list);
  // What the calling thread may run on.
  static CpuSet OfThisThread();
  // What any thread of the process may run on.
  static CpuSet OfProcess();

  void Add(int cpu) { CPU_SET(cpu, &cpus_); }
  void Remove(int cpu) { CPU_CLR(cpu, &cpus_); }
  bool Has(int cpu) const { return CPU_ISSET(cpu, &cpus_); }
  int count() const { return CPU_COUNT(&cpus_); }
  bool empty() const { return count() == 0; }
  // The only one; nothing unless there is exactly one.
  std::optional<int> Single() const;
  // As Parse takes it.
  std::string ToString() const;

  // Has the calling thread run on these only. False: the system refuses (errno), as it does when it
  // leaves the process none of them.
  bool Bind() const;

  friend bool operator==(const CpuSet& a, const CpuSet& b) {
    return CPU_EQUAL(&a.cpus_, &b.cpus_) != 0;
  }

 private:
  cpu_set_t cpus_;
};

}  // namespace xtreme::host

#endif  // XTREME_XTREME_HOST_CPUS_H_
