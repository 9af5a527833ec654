// SPDX-License-Identifier: Apache-2.0

#include "xtreme/mlx5/device.h"

#include <infiniband/mlx5dv.h>

#include <array>
#include <cerrno>
#include <fstream>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "xtreme/host/file_descriptor.h"

namespace xtreme::mlx5 {
namespace {

// The list stays valid, and so do the devices in it, until it is freed.
class DeviceList {
 public:
  DeviceList() : devices_(ibv_get_device_list(&count_)) {}
  ~DeviceList() {
    if (devices_ != nullptr) ibv_free_device_list(devices_);
  }
  DeviceList(const DeviceList&) = delete;
  DeviceList& operator=(const DeviceList&) = delete;

  std::span<ibv_device* const> devices() const {
    return {devices_, devices_ == nullptr ? 0 : static_cast<size_t>(count_)};
  }
  std::string Names() const {
    return count_ == 0 || devices_ == nullptr
               ? "there are none"
               : absl::StrCat("there are ", absl::StrJoin(devices(), ", ",
                                                          [](std::string* out, ibv_device* device) {
                                                            out->append(device->name);
                                                          }));
  }

 private:
  int count_ = 0;
  ibv_device** devices_;
};

std::optional<int> ReadNumber(const std::string& path) {
  std::ifstream file(path);
  int number = 0;
  if (!(file >> number)) return std::nullopt;
  return number;
}

std::string DirectoryOf(const ibv_device& device, std::string_view interface) {
  return absl::StrCat(device.ibdev_path, "/device/net/", std::string(interface), "/");
}

// The device's port that is this interface according to sysfs.
std::optional<uint8_t> PortInSysfs(const ibv_device& device, std::string_view interface,
                                   int interface_index) {
  const std::string path = DirectoryOf(device, interface);
  if (ReadNumber(path + "ifindex") != interface_index) return std::nullopt;
  // Counted from 0, and of one RDMA port where a port is a PCI function of its own.
  return static_cast<uint8_t>(ReadNumber(path + "dev_port").value_or(0) + 1);
}

// What the interface represents: "pf0vf3", where the port itself is "p0" or has no name; empty: it
// is the port. In switchdev mode the device has both in its directory, and they look the same else.
std::string RepresentedBy(const ibv_device& device, std::string_view interface) {
  std::ifstream file(DirectoryOf(device, interface) + "phys_port_name");
  std::string name;
  file >> name;
  return name.find("pf") == std::string::npos ? "" : name;
}

std::optional<uint8_t> PortInGids(ibv_device* device, int interface_index) {
  const VerbsHandle<ibv_context> context(ibv_open_device(device));
  if (context == nullptr) return std::nullopt;
  std::vector<ibv_gid_entry> entries(512);
  const ssize_t count = ibv_query_gid_table(context.get(), entries.data(), entries.size(), 0);
  for (ssize_t i = 0; i < count; ++i) {
    if (entries[i].ndev_ifindex != static_cast<uint32_t>(interface_index)) continue;
    return static_cast<uint8_t>(entries[i].port_num);
  }
  return std::nullopt;
}

// Speed of one lane times lanes. InfiniBand Architecture, "PortInfo": LinkSpeed, LinkWidth.
uint64_t LinkBitsPerSecond(const ibv_port_attr& port) {
  uint64_t lane_mbps = 0;
  switch (port.active_speed) {
    case 1: lane_mbps = 2'500; break;
    case 2: lane_mbps = 5'000; break;
    case 4:
    case 8: lane_mbps = 10'000; break;
    case 16: lane_mbps = 14'000; break;
    case 32: lane_mbps = 25'000; break;
    case 64: lane_mbps = 50'000; break;
    case 128: lane_mbps = 100'000; break;
    default: return 0;
  }
  // Bits of active_width: 1x, 4x, 8x, 12x, 2x.
  constexpr std::array<uint64_t, 5> kLanes = {1, 4, 8, 12, 2};
  for (size_t bit = 0; bit < kLanes.size(); ++bit) {
    if (port.active_width == 1 << bit) return lane_mbps * 1'000'000 * kLanes[bit];
  }
  return 0;
}

absl::Status QueryLimits(Device* device) {
  ibv_device_attr_ex attributes{};
  if (int error = ibv_query_device_ex(device->context.get(), nullptr, &attributes)) {
    return VerbsError(error, absl::StrCat("query device ", device->name));
  }
  DeviceLimits& limits = device->limits;
  limits.wqebbs = static_cast<uint32_t>(attributes.orig_attr.max_qp_wr);
  limits.receive_wqes = limits.wqebbs;
  limits.cqes = static_cast<uint32_t>(attributes.orig_attr.max_cqe);
  limits.checksums = (attributes.orig_attr.device_cap_flags & IBV_DEVICE_RAW_IP_CSUM) != 0;
  limits.device_memory_bytes = attributes.max_dm_size;
  constexpr uint32_t kRawPacket = 1u << IBV_QPT_RAW_PACKET;
  if ((attributes.tso_caps.supported_qpts & kRawPacket) != 0) {
    limits.segmented_bytes = attributes.tso_caps.max_tso;
  }
  if ((attributes.packet_pacing_caps.supported_qpts & kRawPacket) != 0) {
    limits.least_rate_kbps = attributes.packet_pacing_caps.qp_rate_limit_min;
    limits.most_rate_kbps = attributes.packet_pacing_caps.qp_rate_limit_max;
  }
  limits.most_moderated_cqes = attributes.cq_mod_caps.max_cq_count;
  limits.most_moderated_us = attributes.cq_mod_caps.max_cq_period;
  limits.timestamp_mask = attributes.completion_timestamp_mask;
  limits.clock_khz = attributes.hca_core_clock;
  ibv_port_attr port{};
  if (device->port == 0 || device->port > attributes.orig_attr.phys_port_cnt) {
    return absl::InvalidArgumentError(
        absl::StrCat("open ", device->name, ": port ", device->port, " asked, the device has ",
                     attributes.orig_attr.phys_port_cnt));
  }
  // libmlx5 remembers the link layer from this call and needs it when the queue pair is started.
  if (int error = ibv_query_port(device->context.get(), device->port, &port)) {
    return VerbsError(error, absl::StrCat("query ", device->name, " port ", device->port));
  }
  if (port.link_layer != IBV_LINK_LAYER_ETHERNET) {
    return absl::InvalidArgumentError(
        absl::StrCat("open ", device->name, ": port ", device->port, " is not Ethernet"));
  }
  limits.link_bits_per_second = LinkBitsPerSecond(port);
  return absl::OkStatus();
}

}  // namespace

absl::Status VerbsError(int error, std::string_view action) {
  return host::ErrnoStatus(error == 0 ? EIO : error, action);
}

absl::StatusOr<DevicePort> FindDevice(std::string_view interface, int interface_index) {
  const DeviceList list;
  for (ibv_device* device : list.devices()) {
    const auto port = PortInSysfs(*device, interface, interface_index);
    if (!port.has_value()) continue;
    const std::string represented = RepresentedBy(*device, interface);
    if (represented.empty()) return DevicePort{device->name, *port};
    return absl::NotFoundError(absl::StrCat(
        "find the RDMA device of ", std::string(interface), ": it is a representor (",
        represented, ") on ", device->name, ", whose frames are another function's"));
  }
  for (ibv_device* device : list.devices()) {
    if (const auto port = PortInGids(device, interface_index)) {
      return DevicePort{device->name, *port};
    }
  }
  return absl::NotFoundError(absl::StrCat("find the RDMA device of ", std::string(interface),
                                          " (index ", interface_index,
                                          "): no device has it; ", list.Names()));
}

absl::StatusOr<Device> OpenDevice(const DevicePort& port) {
  const DeviceList list;
  ibv_device* found = nullptr;
  for (ibv_device* candidate : list.devices()) {
    if (port.device == candidate->name) found = candidate;
  }
  if (found == nullptr) {
    return absl::NotFoundError(
        absl::StrCat("open ", port.device, ": no such RDMA device; ", list.Names()));
  }
  if (!mlx5dv_is_supported(found)) {
    return absl::UnimplementedError(
        absl::StrCat("open ", port.device, ": not a device of the mlx5 driver"));
  }
  Device device{.name = port.device, .port = port.port, .sysfs_path = found->ibdev_path};
  errno = 0;
  device.context.reset(ibv_open_device(found));
  if (device.context == nullptr) return VerbsError(errno, absl::StrCat("open ", port.device));
  if (absl::Status status = QueryLimits(&device); !status.ok()) return status;
  errno = 0;
  device.pd.reset(ibv_alloc_pd(device.context.get()));
  if (device.pd == nullptr) {
    return VerbsError(errno, absl::StrCat("allocate a protection domain of ", port.device));
  }
  return device;
}

}  // namespace xtreme::mlx5
