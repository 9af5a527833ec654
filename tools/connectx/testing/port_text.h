// SPDX-License-Identifier: Apache-2.0
//
// One entry of a connectx_test's `devices`, as connectx_test.bzl has it.

#ifndef XTREME_TOOLS_CONNECTX_TESTING_PORT_TEXT_H_
#define XTREME_TOOLS_CONNECTX_TESTING_PORT_TEXT_H_

#include <algorithm>
#include <string>

namespace xtreme::connectx {

struct PortText {
  std::string interface;  // Empty: a device for verbs alone.
  std::string address;
  std::string host;
};

// "eth2=10.0.0.1/24+10.0.0.9/24", "eth2=10.0.0.1/24", "mlx5_0".
inline PortText ParsePort(const std::string& device) {
  const size_t equals = device.find('=');
  if (equals == std::string::npos) return {};
  const size_t plus = std::min(device.find('+', equals), device.size());
  return {device.substr(0, equals), device.substr(equals + 1, plus - equals - 1),
          plus < device.size() ? device.substr(plus + 1) : ""};
}

}  // namespace xtreme::connectx

#endif  // XTREME_TOOLS_CONNECTX_TESTING_PORT_TEXT_H_
