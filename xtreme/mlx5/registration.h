// SPDX-License-Identifier: Apache-2.0
//
// Memory that the device may read and write.

#ifndef XTREME_XTREME_MLX5_REGISTRATION_H_
#define XTREME_XTREME_MLX5_REGISTRATION_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "xtreme/mlx5/verbs_handle.h"

namespace xtreme::mlx5 {

// Registers `bytes` bytes at `start` with `pd`. InvalidArgument: an empty or unmapped range.
// ResourceExhausted: the device or RLIMIT_MEMLOCK refuses; the message has both numbers.
absl::StatusOr<VerbsHandle<ibv_mr>> RegisterMemory(ibv_pd* pd, void* start, size_t bytes);

}  // namespace xtreme::mlx5

#endif  // XTREME_XTREME_MLX5_REGISTRATION_H_
