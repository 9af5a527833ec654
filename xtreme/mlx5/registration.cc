// SPDX-License-Identifier: Apache-2.0

#include "xtreme/mlx5/registration.h"

#include <sys/resource.h>

#include <cerrno>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "xtreme/mlx5/device.h"

namespace xtreme::mlx5 {
namespace {

// An int, because the macro ibv_reg_mr would mix enumerations.
constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE;

}  // namespace

std::string LockedMemoryHint(int error) {
  if (error != ENOMEM && error != EAGAIN) return "";
  rlimit limit{};
  if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
    return ", RLIMIT_MEMLOCK is unlimited";
  }
  return absl::StrCat(", RLIMIT_MEMLOCK is ", limit.rlim_cur,
                      " bytes (ulimit -l, LimitMEMLOCK= of a unit, or CAP_IPC_LOCK)");
}

absl::StatusOr<VerbsHandle<ibv_mr>> RegisterMemory(ibv_pd* pd, void* start, size_t bytes) {
  if (start == nullptr || bytes == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("register memory: ", bytes, " bytes asked at ",
                     start == nullptr ? "null" : "an address"));
  }
  errno = 0;
  VerbsHandle<ibv_mr> region(ibv_reg_mr(pd, start, bytes, kAccess));
  if (region != nullptr) return region;
  const int error = errno;
  const std::string action =
      absl::StrCat("register memory: ", bytes, " bytes asked", LockedMemoryHint(error));
  // The kernel's words for memory that is not mapped, or not writable.
  return VerbsError(error == EFAULT ? EINVAL : error, action);
}

}  // namespace xtreme::mlx5
