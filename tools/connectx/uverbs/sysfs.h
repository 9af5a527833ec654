// SPDX-License-Identifier: Apache-2.0
//
// The files under /sys/class/infiniband and /sys/class/infiniband_verbs that the kernel would show
// for our devices, in a private directory that the environment variable SYSFS_PATH names.
//
// Invariant: one directory for the life of the process, because libibverbs reads SYSFS_PATH once.
// It is removed with the tree; what a killed process left behind is removed by the next Create.
// Thread: Create and the destructor before and after all others; WriteCounter has one caller.
// Spec: Linux Documentation/ABI/stable/sysfs-class-infiniband.

#ifndef XTREME_TOOLS_CONNECTX_UVERBS_SYSFS_H_
#define XTREME_TOOLS_CONNECTX_UVERBS_SYSFS_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tools/connectx/uverbs/identity.h"

namespace xtreme::connectx {

class SysfsTree {
 public:
  // Writes the tree, the n-th device as uverbs<n>, and sets SYSFS_PATH. Errors: Internal (cannot
  // make a directory or a file), AlreadyExists (this process has a tree).
  static absl::StatusOr<std::unique_ptr<SysfsTree>> Create(std::span<const DeviceIdentity> devices);
  ~SysfsTree();
  SysfsTree(const SysfsTree&) = delete;
  SysfsTree& operator=(const SysfsTree&) = delete;

  // In a child after fork(): the tree is the parent's, and this process may have another. Where
  // libibverbs has read SYSFS_PATH already it goes on with the parent's files.
  static void ForgetAfterFork();

  const std::string& root() const { return root_; }

  // Sets one port counter: `file` is "counters/NAME" or "hw_counters/NAME". A reader sees the old
  // value or the new, never a part. Errors: Internal with errno.
  absl::Status WriteCounter(absl::string_view device, absl::string_view file, uint64_t value);
  // The files `state` and `phys_state` of the port.
  absl::Status WritePortState(absl::string_view device, bool up);
  // Takes the device's files away, as the kernel does when a card is pulled.
  void RemoveDevice(absl::string_view device);

 private:
  SysfsTree(std::string root, int lock_fd) : root_(std::move(root)), lock_fd_(lock_fd) {}
  absl::Status WriteDevice(const DeviceIdentity& device, size_t index);
  absl::Status WritePciFunction(const DeviceIdentity& device, size_t index);
  absl::Status WritePort(const DeviceIdentity& device, const std::string& directory);
  absl::Status WriteFile(const std::string& path, absl::string_view content);

  std::string root_;
  std::vector<std::string> devices_;  // The n-th is uverbs<n>.
  int lock_fd_;  // Holds a lock on the directory: the sign that its process lives.
};

}  // namespace xtreme::connectx

#endif  // XTREME_TOOLS_CONNECTX_UVERBS_SYSFS_H_
