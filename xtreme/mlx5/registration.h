// SPDX-License-Identifier: Apache-2.0
//
// Memory that the device may read and write.

#ifndef XTREME_XTREME_MLX5_REGISTRATION_H_
#define XTREME_XTREME_MLX5_REGISTRATION_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "xtreme/mlx5/verbs_handle.h"

namespace xtreme::mlx5 {

// Registers `bytes` bytes at `start` with `pd`. InvalidArgument: an empty or unmapped range.
// ResourceExhausted: the device or RLIMIT_MEMLOCK refuses; the message has both numbers.
absl::StatusOr<VerbsHandle<ibv_mr>> RegisterMemory(ibv_pd* pd, void* start, size_t bytes);

// What the kernel may pin for this process, in words, for when it refuses to: ", RLIMIT_MEMLOCK is
// ..."; empty for another `error` than ENOMEM and EAGAIN. Rings are pinned too.
std::string LockedMemoryHint(int error);

}  // namespace xtreme::mlx5

#endif  // XTREME_XTREME_MLX5_REGISTRATION_H_
