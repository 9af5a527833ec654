// SPDX-License-Identifier: Apache-2.0

#include "xtreme/host/sysctl.h"

#include <cstdint>
#include <fstream>
#include <optional>
#include <string>
#include <utility>

namespace xtreme::host {

std::optional<uint32_t> ReadSysctl(const std::string& path) {
  std::ifstream file("/proc/sys/" + path);
  uint32_t value = 0;
  if (!(file >> value)) return std::nullopt;
  return value;
}

std::optional<std::pair<uint32_t, uint32_t>> ReadSysctlPair(const std::string& path) {
  std::ifstream file("/proc/sys/" + path);
  std::pair<uint32_t, uint32_t> values;
  if (!(file >> values.first >> values.second)) return std::nullopt;
  return values;
}

}  // namespace xtreme::host
