// SPDX-License-Identifier: Apache-2.0

#include "xtreme/mlx5/port_counters.h"

#include <fstream>
#include <optional>

#include "absl/strings/str_cat.h"

namespace xtreme::mlx5 {
namespace {

std::optional<uint64_t> ReadCounter(const std::string& path) {
  std::ifstream file(path);
  uint64_t value = 0;
  if (!(file >> value)) return std::nullopt;
  return value;
}

}  // namespace

absl::StatusOr<nic::PortCounters> ReadPortCounters(const std::string& sysfs_path, uint8_t port) {
  const std::string directory = absl::StrCat(sysfs_path, "/ports/", port, "/");
  const std::string path = directory + "hw_counters/out_of_buffer";
  const std::optional<uint64_t> out_of_buffer = ReadCounter(path);
  if (!out_of_buffer.has_value()) {
    return absl::NotFoundError(absl::StrCat("read port counters: no number in ", path));
  }
  return nic::PortCounters{
      .out_of_buffer = *out_of_buffer,
      .discards = ReadCounter(directory + "counters/port_rcv_errors").value_or(0)};
}

}  // namespace xtreme::mlx5
