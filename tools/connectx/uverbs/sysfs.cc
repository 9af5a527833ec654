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
constexpr char kPciDevices[] = "bus/pci/devices";
// All devices are functions of one card, in a domain that no real one is in.
constexpr char kPciSlot[] = "c07e:00:00";
constexpr int kPciResources = 6;
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
  // A program's own choice of PCI devices stands.
  const std::string pci = absl::StrCat(*root, "/", kPciDevices);
  if (::setenv("SYSFS_PCI_DEVICES", pci.c_str(), 0) != 0) {
    return ErrnoStatus("set SYSFS_PCI_DEVICES");
  }
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
  };
  for (const auto& [path, content] : files) {
    if (absl::Status status = WriteFile(path, content); !status.ok()) return status;
  }
  if (absl::Status status = WritePciFunction(device, index); !status.ok()) return status;
  return WritePort(device, ib + "ports/1/");
}

// The function of the card that the device is, with `device` pointing to it as in the kernel's
// tree: libibverbs looks there for a driver, others for an address or an interface.
absl::Status SysfsTree::WritePciFunction(const DeviceIdentity& device, size_t index) {
  const std::string slot = absl::StrFormat("%s.%d", kPciSlot, index);
  const std::string function = absl::StrCat(kPciDevices, "/", slot, "/");
  const std::string id = absl::StrFormat("%04x", device.pci_device_id);
  const std::string modalias = absl::StrFormat(
      "pci:v000015B3d%08Xsv000015B3sd00000000bc02sc00i00", device.pci_device_id);
  std::string no_resources = "0x0000000000000000 0x0000000000000000 0x0000000000000000";
  for (int i = 1; i < kPciResources; ++i) {
    absl::StrAppend(&no_resources, "\n0x0000000000000000 0x0000000000000000 0x0000000000000000");
  }
  std::vector<std::pair<std::string, std::string>> files = {
      {"vendor", "0x15b3"},
      {"device", absl::StrCat("0x", id)},
      {"subsystem_vendor", "0x15b3"},
      {"subsystem_device", "0x0000"},
      {"class", "0x020000"},  // Ethernet controller.
      {"numa_node", "-1"},
      {"resource", std::move(no_resources)},
      {"modalias", modalias},
      {"uevent", absl::StrCat("DRIVER=mlx5_core\nPCI_CLASS=20000\nPCI_ID=15B3:", id,
                              "\nPCI_SUBSYS_ID=15B3:0000\nPCI_SLOT_NAME=", slot,
                              "\nMODALIAS=", modalias)},
  };
  if (!device.interface.empty()) {
    const std::string net = absl::StrCat("net/", device.interface, "/");
    files.emplace_back(net + "ifindex", absl::StrCat(device.interface_index));
    files.emplace_back(net + "dev_port", "0");
  }
  for (const auto& [name, content] : files) {
    if (absl::Status status = WriteFile(function + name, content); !status.ok()) return status;
  }
  std::error_code error;
  fs::create_directories(absl::StrCat(root_, "/bus/pci/drivers/mlx5_core"), error);
  fs::create_directory_symlink("../../drivers/mlx5_core",
                               absl::StrCat(root_, "/", function, "driver"), error);
  const std::string ib = absl::StrCat(root_, "/class/infiniband/", device.name, "/device");
  if (!error) fs::create_directory_symlink(absl::StrCat("../../../", function), ib, error);
  if (!error) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("link ", ib, ": ", error.message()));
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
