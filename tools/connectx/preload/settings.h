// SPDX-License-Identifier: Apache-2.0
//
// What can be set for a preloaded software ConnectX: one table of environment variables, read by
// the library and printed by the launcher's --help.
//
// An unknown XTREME_CONNECTX_ variable or a malformed value is an error that names it.
// Thread: any.

#ifndef XTREME_TOOLS_CONNECTX_PRELOAD_SETTINGS_H_
#define XTREME_TOOLS_CONNECTX_PRELOAD_SETTINGS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/connectx/connectx.h"
#include "tools/connectx/wire/impairment.h"

namespace xtreme::connectx {

inline constexpr char kSettingPrefix[] = "XTREME_CONNECTX_";

struct Settings {
  // Of mlx5_0, mlx5_1 ...; empty: devices of these names, joined by a cable in memory.
  std::vector<std::string> interfaces;
  std::string shared;     // Segment of a shared wire, in place of the cable; empty: none.
  uint32_t devices = 0;   // 0: two on a cable, one on a shared wire.
  Impairment faults;      // Of every frame of a wire, once.
  uint64_t seed = 1;
  std::string capture;    // A pcapng file; empty: none.
  SoftwareConnectX::Mode mode = SoftwareConnectX::Mode::kAdaptive;
  uint32_t mtu = 1500;  // Of devices on the cable; an interface has its own.
  // What the devices are, as PERSONALITY, WITHOUT, MIN_INLINE and BLUEFLAME have it together.
  Device::Options device;
  std::string counters;  // A file that the counters are written to at exit; empty: none.
  bool report = false;  // Print what the program did wrong when it exits.
};

// Reads the process's environment; null, as after clearenv(3), is an empty one. Error:
// InvalidArgument, also for settings that exclude each other.
absl::StatusOr<Settings> ReadSettings(const char* const* environment);

// One line a setting: its variable, its values, what it does.
std::string DescribeSettings();

}  // namespace xtreme::connectx

#endif  // XTREME_TOOLS_CONNECTX_PRELOAD_SETTINGS_H_
