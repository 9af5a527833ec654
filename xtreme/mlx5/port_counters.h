// SPDX-License-Identifier: Apache-2.0
//
// The port's own counters of losses, as sysfs shows them: port-wide, everybody's.

#ifndef XTREME_XTREME_MLX5_PORT_COUNTERS_H_
#define XTREME_XTREME_MLX5_PORT_COUNTERS_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "xtreme/nic/nic.h"

namespace xtreme::mlx5 {

// Of `port` under the device's directory in sysfs. NotFound: sysfs has no hw_counters/out_of_buffer
// there. A device without counters/port_rcv_errors counts 0 discards.
absl::StatusOr<nic::PortCounters> ReadPortCounters(const std::string& sysfs_path, uint8_t port);

}  // namespace xtreme::mlx5

#endif  // XTREME_XTREME_MLX5_PORT_COUNTERS_H_
