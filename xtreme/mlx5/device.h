// SPDX-License-Identifier: Apache-2.0
//
// The RDMA device of an interface: found, opened, and asked what it can do.
//
// Invariant: an open Device has a context and a protection domain, and everything made on it goes
// before it. Slow work; any thread, one at a time.

#ifndef XTREME_XTREME_MLX5_DEVICE_H_
#define XTREME_XTREME_MLX5_DEVICE_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "xtreme/mlx5/verbs_handle.h"

namespace xtreme::mlx5 {

// A port of a device as RDMA counts: "mlx5_0", port 1.
struct DevicePort {
  std::string device;
  uint8_t port = 1;
};

// The device whose port the interface is. Looks for the interface under the device in sysfs, which
// needs no privilege and no open; and where sysfs does not show it (another network namespace's
// view) for its index in the GID tables. NotFound: the message lists the devices there are, or says
// that the interface is a function's representor.
absl::StatusOr<DevicePort> FindDevice(std::string_view interface, int interface_index);

// What the device offers; see ibv_query_device_ex.
struct DeviceLimits {
  uint32_t wqebbs = 0;          // Of one send queue.
  uint32_t receive_wqes = 0;
  uint32_t cqes = 0;            // Of one completion queue.
  bool checksums = false;       // Both ways, of raw packets.
  uint32_t segmented_bytes = 0;  // Of one send that is cut into TCP segments; 0: it cannot.
  uint32_t least_rate_kbps = 0;  // Of one send queue.
  uint32_t most_rate_kbps = 0;   // 0: no rates.
  uint16_t most_moderated_cqes = 0;  // That an interrupt waits for; 0: no moderation.
  uint16_t most_moderated_us = 0;
  uint64_t device_memory_bytes = 0;  // On-device, of all programs together.
  uint64_t timestamp_mask = 0;  // Valid bits of a CQE's time; 0: none.
  uint64_t clock_khz = 0;       // Nominal; 0: not told.
  uint64_t link_bits_per_second = 0;
};

struct Device {
  std::string name;
  uint8_t port = 1;
  std::string sysfs_path;  // Of the device: ".../class/infiniband/mlx5_0".
  DeviceLimits limits;
  VerbsHandle<ibv_context> context;
  VerbsHandle<ibv_pd> pd;
};

// NotFound: no such device. Unimplemented: not a device of the mlx5 driver. InvalidArgument: no
// such port, or not Ethernet. Otherwise the errno of the step that failed, which the message names.
absl::StatusOr<Device> OpenDevice(const DevicePort& port);

// The Status of a verb that failed with `error`; libmlx5 leaves 0 in errno on some paths, which is
// told as EIO. `action` says what was asked.
absl::Status VerbsError(int error, std::string_view action);

}  // namespace xtreme::mlx5

#endif  // XTREME_XTREME_MLX5_DEVICE_H_
