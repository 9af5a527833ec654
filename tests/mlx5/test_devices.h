// SPDX-License-Identifier: Apache-2.0
//
// For tests: every device the driver must work on. Each personality of the software ConnectX, and
// one that has everything but one capability, for each capability in turn. Without net_raw, the
// program's own, there is no queue to work with.
//
// Thread: none, pure functions.

#ifndef XTREME_TESTS_MLX5_TEST_DEVICES_H_
#define XTREME_TESTS_MLX5_TEST_DEVICES_H_

#include <algorithm>
#include <ostream>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tools/connectx/device/personality.h"

namespace xtreme::mlx5 {

struct TestDevice {
  std::string name;  // "cx5", "without_blueflame"
  connectx::Device::Options options;

  friend std::ostream& operator<<(std::ostream& out, const TestDevice& device) {
    return out << device.name;
  }
};

inline std::vector<TestDevice> TestDevices() {
  std::vector<TestDevice> devices;
  for (std::string_view name : connectx::PersonalityNames()) {
    devices.push_back({std::string(name), *connectx::PersonalityNamed(name)});
  }
  for (std::string_view capability : connectx::CapabilityNames()) {
    if (capability == "net_raw") continue;
    TestDevice device{"without_" + std::string(capability), *connectx::PersonalityNamed("cx7")};
    EXPECT_TRUE(connectx::TakeCapability(capability, &device.options)) << capability;
    devices.push_back(std::move(device));
  }
  return devices;
}

inline std::string DeviceName(const testing::TestParamInfo<TestDevice>& info) {
  return info.param.name;
}

}  // namespace xtreme::mlx5

#endif  // XTREME_TESTS_MLX5_TEST_DEVICES_H_
