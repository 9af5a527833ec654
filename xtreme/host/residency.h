// SPDX-License-Identifier: Apache-2.0
// Memory made present ahead of use: on the device's NUMA node, in hugepages, touched, locked.
//
// Nothing here is fatal: what the system refuses is said in one line, and the memory is at least
// touched. Units: bytes. Threads: one at a time; TouchStack is about the calling thread.
// Spec: mbind(2), mlock(2), madvise(2).

#ifndef XTREME_XTREME_HOST_RESIDENCY_H_
#define XTREME_XTREME_HOST_RESIDENCY_H_

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace xtreme::host {

// The NUMA node of the device behind `interface`, of a VLAN the one below. nullopt: the system does
// not say, as for interfaces of software and on machines with one node. `sysfs`: where that is.
std::optional<int> NumaNodeOf(const std::string& interface, const std::string& sysfs = "/sys");

// Touches the calling thread's stack below here, at most `bytes` and never below its limit; what
// was touched.
std::span<std::byte> TouchStack(size_t bytes);

class Residency {
 public:
  struct Options {
    std::optional<int> node;  // Where the memory should stand; nullopt: wherever it does.
    // Whole blocks of 2 MB in it become hugepages, where the kernel can (MADV_COLLAPSE, Linux 6.1;
    // one before merges them by and by, or never).
    bool merge = false;
    // mlock(2); another in tests.
    int (*lock)(const void* start, size_t bytes);
  };

  explicit Residency(const Options& options) : options_(options) {}
  // Unlocks the whole pages of what Keep() locked.
  ~Residency();
  Residency(const Residency&) = delete;
  Residency& operator=(const Residency&) = delete;

  // Moves, merges, touches and locks memory that is mapped and writable and outlives this object.
  // `what` names it when that fails.
  void Keep(std::string_view what, std::span<std::byte> memory);
  // The same for memory that is unmapped, and so unlocked, by itself.
  void KeepUntilUnmapped(std::string_view what, std::span<std::byte> memory);

  size_t locked_bytes() const { return locked_bytes_; }
  size_t merged_bytes() const { return merged_bytes_; }
  // One line: how much is locked and merged, where it stands, and each refusal with its errno.
  std::string ToString() const;

 private:
  bool Lock(std::string_view what, std::span<std::byte> memory);
  void Merge(std::span<std::byte> memory);

  const Options options_;
  size_t locked_bytes_ = 0;
  size_t merged_bytes_ = 0;
  bool bound_ = false;
  std::vector<std::span<std::byte>> kept_;
  std::vector<std::string> refusals_;
};

}  // namespace xtreme::host

#endif  // XTREME_XTREME_HOST_RESIDENCY_H_
