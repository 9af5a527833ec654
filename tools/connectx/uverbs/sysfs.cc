// SPDX-License-Identifier: Apache-2.0

#include "tools/connectx/uverbs/sysfs.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace xtreme::connectx {
namespace {

namespace fs = std::filesystem;

constexpr char kDirectoryPrefix[] = "xtreme-connectx-";
// A directory this young may not be locked yet by the process that makes it.
constexpr std::chrono::seconds kYoung{10};

// Memory rather than a disk where there is a choice: counters are rewritten while traffic flows.
std::string ParentDirectory() {
  return ::access("/dev/shm", W_OK | X_OK) == 0 ? "/dev/shm" : "/tmp";
}

absl::Status ErrnoStatus(absl::string_view action) { return absl::ErrnoToStatus(errno, action); }

// A descriptor of `directory` that holds its lock, or -1 when somebody else does.
int LockDirectory(const std::string& directory) {
  const int fd = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return -1;
  if (::flock(fd, LOCK_EX | LOCK_NB) == 0) return fd;
  ::close(fd);
  return -1;
}

void RemoveAbandonedTrees() {
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(ParentDirectory(), error)) {
    if (!entry.path().filename().string().starts_with(kDirectoryPrefix)) continue;
    const auto written = fs::last_write_time(entry.path(), error);
    if (error || fs::file_time_type::clock::now() - written < kYoung) continue;
    const int lock = LockDirectory(entry.path().string());
    if (lock < 0) continue;
    fs::remove_all(entry.path(), error);
    ::close(lock);
  }
}

// The process's directory name, chosen once; see the invariant in the header. Never destroyed.
std::string& ProcessRoot() {
  static auto& root = *new std::string;
  return root;
}

absl::StatusOr<std::string> MakeRoot() {
  std::string& root = ProcessRoot();
  if (!root.empty()) {
    if (::mkdir(root.c_str(), 0755) == 0) return root;
    return ErrnoStatus(absl::StrCat("make the sysfs directory ", root, " of this process again"));
  }
  RemoveAbandonedTrees();
  std::string name = absl::StrCat(ParentDirectory(), "/", kDirectoryPrefix, "XXXXXX");
  if (::mkdtemp(name.data()) == nullptr) {
    return ErrnoStatus(absl::StrCat("make a sysfs directory like ", name));
  }
  root = std::move(name);
  return root;
}

std::string GuidText(uint64_t guid) {
  return absl::StrFormat("%04x:%04x:%04x:%04x", guid >> 48, (guid >> 32) & 0xffff,
                         (guid >> 16) & 0xffff, guid & 0xffff);
}

std::string GidText(const Gid& gid) {
  std::string text;
  for (size_t i = 0; i < gid.size(); i += 2) {
    absl::StrAppendFormat(&text, "%s%02x%02x", i == 0 ? "" : ":", gid[i], gid[i + 1]);
  }
  return text;
}

}  // namespace

absl::StatusOr<std::unique_ptr<SysfsTree>> SysfsTree::Create(
    std::span<const DeviceIdentity> devices) {
  absl::StatusOr<std::string> root = MakeRoot();
  if (!root.ok()) return root.status();
  auto tree = std::unique_ptr<SysfsTree>(new SysfsTree(*root, LockDirectory(*root)));
  absl::Status status =
      tree->WriteFile("class/infiniband_verbs/abi_version", "6");  // IB_USER_VERBS_ABI_VERSION
  for (size_t i = 0; status.ok() && i < devices.size(); ++i) {
    status = tree->WriteDevice(devices[i], i);
    tree->devices_.push_back(devices[i].name);
  }
  if (!status.ok()) return status;
  if (::setenv("SYSFS_PATH", root->c_str(), 1) != 0) return ErrnoStatus("set SYSFS_PATH");
  return tree;
}

void SysfsTree::ForgetAfterFork() { ProcessRoot().clear(); }

SysfsTree::~SysfsTree() {
  std::error_code error;
  fs::remove_all(root_, error);
  if (lock_fd_ >= 0) ::close(lock_fd_);
}

absl::Status SysfsTree::WriteDevice(const DeviceIdentity& device, size_t index) {
  const std::string verbs = absl::StrCat("class/infiniband_verbs/uverbs", index, "/");
  const std::string ib = absl::StrCat("class/infiniband/", device.name, "/");
  std::vector<std::pair<std::string, std::string>> files = {
      {verbs + "ibdev", device.name},
      // /dev/null stands in for the character device: a real one, that every process may open.
      {verbs + "dev", "1:3"},
      {verbs + "abi_version", "1"},  // MLX5_IB_UVERBS_ABI_VERSION
      {ib + "node_type", "1: CA"},
      {ib + "node_guid", GuidText(device.node_guid)},
      {ib + "sys_image_guid", GuidText(device.node_guid)},
      {ib + "fw_ver", absl::StrFormat("%d.%d.%04d", device.firmware[0], device.firmware[1],
                                       device.firmware[2])},
      {ib + "hca_type", device.hca_type},
      {ib + "hw_rev", "0"},
      {ib + "board_id", device.board_id},
      {ib + "device/vendor", "0x15b3"},
      {ib + "device/device", absl::StrFormat("0x%04x", device.pci_device_id)},
      {ib + "device/numa_node", "-1"},
      {ib + "device/modalias",
       absl::StrFormat("pci:v000015B3d%08Xsv000015B3sd00000000bc02sc00i00",
                       device.pci_device_id)},
  };
  if (!device.interface.empty()) {
    const std::string net = absl::StrCat(ib, "device/net/", device.interface, "/");
    files.emplace_back(net + "ifindex",
                       absl::StrCat(device.interface_index));
    files.emplace_back(net + "dev_port", "0");
  }
  for (const auto& [path, content] : files) {
    if (absl::Status status = WriteFile(path, content); !status.ok()) return status;
  }
  return WritePort(device, ib + "ports/1/");
}

absl::Status SysfsTree::WritePort(const DeviceIdentity& device, const std::string& directory) {
  std::vector<std::pair<std::string, std::string>> files = {
      {"link_layer", "Ethernet"}, {"state", "4: ACTIVE"},   {"phys_state", "5: LinkUp"},
      {"rate", "100 Gb/sec (4X EDR)"}, {"pkeys/0", "0xffff"},
  };
  for (size_t i = 0; i < device.gids.size(); ++i) {
    files.emplace_back(absl::StrCat("gids/", i), GidText(device.gids[i]));
    files.emplace_back(absl::StrCat("gid_attrs/types/", i),
                       i % 2 == 0 ? "IB/RoCE v1" : "RoCE v2");
    if (device.interface.empty()) continue;
    files.emplace_back(absl::StrCat("gid_attrs/ndevs/", i), device.interface);
  }
  for (const auto& [name, content] : files) {
    if (absl::Status status = WriteFile(directory + name, content); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status SysfsTree::WriteCounter(absl::string_view device, absl::string_view file,
                                     uint64_t value) {
  return WriteFile(absl::StrCat("class/infiniband/", device, "/ports/1/", file),
                   absl::StrCat(value));
}

absl::Status SysfsTree::WritePortState(absl::string_view device, bool up) {
  const std::string port = absl::StrCat("class/infiniband/", device, "/ports/1/");
  const absl::Status status = WriteFile(port + "state", up ? "4: ACTIVE" : "1: DOWN");
  return status.ok() ? WriteFile(port + "phys_state", up ? "5: LinkUp" : "3: Disabled") : status;
}

void SysfsTree::RemoveDevice(absl::string_view device) {
  std::error_code error;
  fs::remove_all(absl::StrCat(root_, "/class/infiniband/", device), error);
  for (size_t i = 0; i < devices_.size(); ++i) {
    if (devices_[i] != device) continue;
    fs::remove_all(absl::StrCat(root_, "/class/infiniband_verbs/uverbs", i), error);
  }
}

absl::Status SysfsTree::WriteFile(const std::string& path, absl::string_view content) {
  const fs::path target = fs::path(root_) / path;
  std::error_code error;
  fs::create_directories(target.parent_path(), error);
  // Renamed into place, so that no reader sees half a number; drafted elsewhere, so that one that
  // lists a directory of counters sees counters only.
  const std::string draft = root_ + "/draft";
  const int fd = ::open(draft.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return ErrnoStatus(absl::StrCat("write ", target.string()));
  const std::string line = absl::StrCat(content, "\n");
  const bool written =
      ::write(fd, line.data(), line.size()) == static_cast<ssize_t>(line.size());
  ::close(fd);
  if (written && ::rename(draft.c_str(), target.c_str()) == 0) return absl::OkStatus();
  return ErrnoStatus(absl::StrCat("write ", target.string()));
}

}  // namespace xtreme::connectx
