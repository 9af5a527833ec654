// SPDX-License-Identifier: Apache-2.0

#include "tools/connectx/preload/settings.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace xtreme::connectx {
namespace {

struct Setting {
  absl::string_view name;  // Behind kSettingPrefix.
  absl::string_view values;
  absl::string_view help;
  bool (*parse)(absl::string_view text, Settings& settings);
};

// Sets `*field` to the value that `text` names.
template <typename T, size_t n>
bool Choose(absl::string_view text, const std::array<std::pair<absl::string_view, T>, n>& choices,
            T* field) {
  const auto chosen =
      std::find_if(choices.begin(), choices.end(), [&](auto& c) { return c.first == text; });
  if (chosen == choices.end()) return false;
  *field = chosen->second;
  return true;
}

bool ParseInterface(absl::string_view text, Settings& settings) {
  settings.interface = std::string(text);
  return true;
}

bool ParseMode(absl::string_view text, Settings& settings) {
  using Mode = SoftwareConnectX::Mode;
  return Choose<Mode, 2>(text, {{{"adaptive", Mode::kAdaptive}, {"spin", Mode::kSpin}}},
                         &settings.mode);
}

bool ParseMtu(absl::string_view text, Settings& settings) {
  return absl::SimpleAtoi(text, &settings.mtu) && settings.mtu >= 576 && settings.mtu <= 9000;
}

bool ParseMinInline(absl::string_view text, Settings& settings) {
  using MinInline = Device::MinInline;
  return Choose<MinInline, 2>(text, {{{"none", MinInline::kNone}, {"l2", MinInline::kL2}}},
                              &settings.min_inline);
}

bool ParseFlag(absl::string_view text, bool* field) {
  return Choose<bool, 2>(text, {{{"0", false}, {"1", true}}}, field);
}

bool ParseBlueFlame(absl::string_view text, Settings& settings) {
  return ParseFlag(text, &settings.blueflame);
}

bool ParseCounters(absl::string_view text, Settings& settings) {
  settings.counters = std::string(text);
  return true;
}

bool ParseReport(absl::string_view text, Settings& settings) {
  return ParseFlag(text, &settings.report);
}

constexpr std::array kSettings = {
    Setting{"INTERFACE", "NAME",
            "network interface that is the device's port; without it two devices, mlx5_0 and "
            "mlx5_1, on one cable",
            &ParseInterface},
    Setting{"MODE", "adaptive|spin", "let the device's thread sleep when it is idle, or never",
            &ParseMode},
    Setting{"MTU", "576..9000", "MTU of the devices on the cable (1500)", &ParseMtu},
    Setting{"MIN_INLINE", "none|l2", "headers that a send must carry inline (l2)",
            &ParseMinInline},
    Setting{"BLUEFLAME", "0|1", "offer BlueFlame registers (1)", &ParseBlueFlame},
    Setting{"COUNTERS", "FILE", "write the wires' counters to this file at exit, one a line",
            &ParseCounters},
    Setting{"REPORT", "0|1", "print at exit what hardware would have punished (0)", &ParseReport},
};

absl::Status ApplySetting(absl::string_view name, absl::string_view value, Settings& settings) {
  for (const Setting& setting : kSettings) {
    if (setting.name != name) continue;
    if (setting.parse(value, settings)) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(kSettingPrefix, name, "=", value,
                                                   ": not one of ", setting.values));
  }
  return absl::InvalidArgumentError(absl::StrCat(kSettingPrefix, name, ": no such setting"));
}

}  // namespace

absl::StatusOr<Settings> ReadSettings(const char* const* environment) {
  Settings settings;
  for (; *environment != nullptr; ++environment) {
    absl::string_view entry = *environment;
    if (!absl::ConsumePrefix(&entry, kSettingPrefix)) continue;
    const size_t equals = std::min(entry.find('='), entry.size());
    const absl::string_view value = entry.substr(std::min(equals + 1, entry.size()));
    const absl::Status status = ApplySetting(entry.substr(0, equals), value, settings);
    if (!status.ok()) return status;
  }
  return settings;
}

std::string DescribeSettings() {
  std::string text;
  for (const Setting& setting : kSettings) {
    absl::StrAppendFormat(&text, "  %s%s=%s\n      %s\n", kSettingPrefix, setting.name,
                          setting.values, setting.help);
  }
  return text;
}

}  // namespace xtreme::connectx
