// SPDX-License-Identifier: Apache-2.0

#include "tools/connectx/preload/settings.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "tools/connectx/device/personality.h"

namespace xtreme::connectx {
namespace {

constexpr uint32_t kMaxDevices = 8;

// What was set, before one setting is laid over another.
struct Wishes {
  Settings settings;
  Device::Options personality;
  std::vector<std::string> without;
  std::optional<Device::MinInline> min_inline;
  std::optional<bool> blueflame;
  int64_t ptp_offset_ns = 0;
  bool mtu_set = false;
};

struct Setting {
  absl::string_view name;  // Behind kSettingPrefix.
  absl::string_view values;
  absl::string_view help;
  bool (*parse)(absl::string_view text, Wishes& wishes);
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

// "" is none.
bool ParseInterface(absl::string_view text, Wishes& wishes) {
  std::vector<std::string>& interfaces = wishes.settings.interfaces;
  interfaces.clear();
  if (text.empty()) return true;
  for (const absl::string_view name : absl::StrSplit(text, ',')) {
    const bool again = std::find(interfaces.begin(), interfaces.end(), name) != interfaces.end();
    if (name.empty() || again || interfaces.size() == kMaxDevices) return false;
    interfaces.emplace_back(name);
  }
  return true;
}

bool ParseShared(absl::string_view text, Wishes& wishes) {
  wishes.settings.shared = std::string(text);
  return !text.empty();
}

bool ParseDevices(absl::string_view text, Wishes& wishes) {
  return absl::SimpleAtoi(text, &wishes.settings.devices) && wishes.settings.devices >= 1 &&
         wishes.settings.devices <= kMaxDevices;
}

template <double Impairment::*rate>
bool ParseRate(absl::string_view text, Wishes& wishes) {
  Impairment& faults = wishes.settings.faults;
  return absl::SimpleAtod(text, &(faults.*rate)) && faults.Validate().ok();
}

// In microseconds.
template <int64_t Impairment::*time_ns>
bool ParseTime(absl::string_view text, Wishes& wishes) {
  constexpr double kLongestUs = 1e9;
  double us = 0;
  if (!absl::SimpleAtod(text, &us) || !(us >= 0 && us <= kLongestUs)) return false;
  wishes.settings.faults.*time_ns = static_cast<int64_t>(us * 1000);
  return true;
}

bool ParseSeed(absl::string_view text, Wishes& wishes) {
  return absl::SimpleAtoi(text, &wishes.settings.seed);
}

bool ParseCapture(absl::string_view text, Wishes& wishes) {
  wishes.settings.capture = std::string(text);
  return !text.empty();
}

bool ParseMode(absl::string_view text, Wishes& wishes) {
  using Mode = SoftwareConnectX::Mode;
  return Choose<Mode, 2>(text, {{{"adaptive", Mode::kAdaptive}, {"spin", Mode::kSpin}}},
                         &wishes.settings.mode);
}

bool ParseMtu(absl::string_view text, Wishes& wishes) {
  uint32_t& mtu = wishes.settings.mtu;
  wishes.mtu_set = true;
  return absl::SimpleAtoi(text, &mtu) && mtu >= 576 && mtu <= kMaxMtu;
}

bool ParsePtpOffset(absl::string_view text, Wishes& wishes) {
  constexpr double kMost = 1e9;
  double seconds = 0;
  if (!absl::SimpleAtod(text, &seconds) || !(seconds >= -kMost && seconds <= kMost)) return false;
  wishes.ptp_offset_ns = static_cast<int64_t>(seconds * 1e9);
  return true;
}

bool ParsePersonality(absl::string_view text, Wishes& wishes) {
  const auto options = PersonalityNamed({text.data(), text.size()});
  if (options) wishes.personality = *options;
  return options.has_value();
}

bool ParseWithout(absl::string_view text, Wishes& wishes) {
  wishes.without = absl::StrSplit(text, ',');
  Device::Options any;
  return std::all_of(wishes.without.begin(), wishes.without.end(),
                     [&](const std::string& name) { return TakeCapability(name, &any); });
}

bool ParseMinInline(absl::string_view text, Wishes& wishes) {
  using MinInline = Device::MinInline;
  return Choose<MinInline, 2>(text, {{{"none", MinInline::kNone}, {"l2", MinInline::kL2}}},
                              &wishes.min_inline.emplace());
}

bool ParseFlag(absl::string_view text, bool* field) {
  return Choose<bool, 2>(text, {{{"0", false}, {"1", true}}}, field);
}

bool ParseBlueFlame(absl::string_view text, Wishes& wishes) {
  return ParseFlag(text, &wishes.blueflame.emplace());
}

bool ParseCounters(absl::string_view text, Wishes& wishes) {
  wishes.settings.counters = std::string(text);
  return true;
}

bool ParseReport(absl::string_view text, Wishes& wishes) {
  return ParseFlag(text, &wishes.settings.report);
}

constexpr std::array kSettings = {
    Setting{"INTERFACE", "NAME,...",
            "network interface that is the port of mlx5_0, and more for mlx5_1 ..., eight at most; "
            "without it devices of these names on one cable",
            &ParseInterface},
    Setting{"SHARED", "SEGMENT",
            "put the devices on the switch that all programs with the same segment share: a plain "
            "name, or the path of a directory",
            &ParseShared},
    Setting{"DEVICES", "1..8", "devices on the cable (2) or on the shared switch (1)",
            &ParseDevices},
    Setting{"LOSS", "0..1", "share of frames that are lost", &ParseRate<&Impairment::loss>},
    Setting{"DUPLICATION", "0..1", "share of frames that come twice",
            &ParseRate<&Impairment::duplication>},
    Setting{"REORDERING", "0..1", "share of frames that others overtake",
            &ParseRate<&Impairment::reordering>},
    Setting{"CORRUPTION", "0..1", "share of frames with a flipped bit",
            &ParseRate<&Impairment::corruption>},
    Setting{"DELAY_US", "US", "how long each frame takes", &ParseTime<&Impairment::delay_ns>},
    Setting{"JITTER_US", "US", "up to so much longer", &ParseTime<&Impairment::jitter_ns>},
    Setting{"SEED", "N", "decides which frames are hit (1)", &ParseSeed},
    Setting{"CAPTURE", "FILE",
            "write the frames of a program's devices to this pcapng file, from its first open of "
            "one; while another program writes it, to one with the process id in its name",
            &ParseCapture},
    Setting{"MODE", "adaptive|spin", "let the device's thread sleep when it is idle, or never",
            &ParseMode},
    Setting{"MTU", "576..9978",
            "MTU of the devices on the cable or the switch (1500); an interface has its own",
            &ParseMtu},
    Setting{"PERSONALITY", "cx4lx|cx5|cx6dx|cx7|vf",
            "the card that the devices are (a ConnectX-5 that needs the L2 header inline)",
            &ParsePersonality},
    Setting{"WITHOUT", "CAPABILITY,...",
            "what the devices lack: timestamps, blueflame, checksums, tso, device_memory, "
            "vlan_insertion, vlan_stripping, receive_scaling, packet_pacing, pacing_bursts, "
            "real_time_clock, free_running_clock, devx, cq_moderation, clock_info, dont_trap, and "
            "net_raw: programs without CAP_NET_RAW",
            &ParseWithout},
    Setting{"MIN_INLINE", "none|l2", "headers that a send must carry inline (the card's)",
            &ParseMinInline},
    Setting{"BLUEFLAME", "0|1", "offer BlueFlame registers (the card's)", &ParseBlueFlame},
    Setting{"PTP_OFFSET", "SECONDS",
            "what the devices' PTP clocks are ahead of CLOCK_REALTIME (0): 37, and they tell TAI",
            &ParsePtpOffset},
    Setting{"COUNTERS", "FILE", "write the wires' counters to this file at exit, one a line",
            &ParseCounters},
    Setting{"REPORT", "0|1", "print at exit what hardware would have punished (0)", &ParseReport},
};

absl::Status ApplySetting(absl::string_view name, absl::string_view value, Wishes& wishes) {
  for (const Setting& setting : kSettings) {
    if (setting.name != name) continue;
    if (setting.parse(value, wishes)) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(kSettingPrefix, name, "=", value,
                                                   ": not one of ", setting.values, ", ",
                                                   setting.help));
  }
  return absl::InvalidArgumentError(absl::StrCat(kSettingPrefix, name, ": no such setting"));
}

}  // namespace

absl::StatusOr<Settings> ReadSettings(const char* const* environment) {
  Wishes wishes;
  for (; environment != nullptr && *environment != nullptr; ++environment) {
    absl::string_view entry = *environment;
    if (!absl::ConsumePrefix(&entry, kSettingPrefix)) continue;
    const size_t equals = std::min(entry.find('='), entry.size());
    const absl::string_view value = entry.substr(std::min(equals + 1, entry.size()));
    const absl::Status status = ApplySetting(entry.substr(0, equals), value, wishes);
    if (!status.ok()) return status;
  }
  Device::Options& device = wishes.settings.device;
  device = wishes.personality;
  for (const std::string& name : wishes.without) TakeCapability(name, &device);
  if (wishes.min_inline) device.eth_min_inline = *wishes.min_inline;
  if (wishes.blueflame) device.features.blueflame = *wishes.blueflame;
  device.phc_offset_ns = wishes.ptp_offset_ns;
  const Settings& settings = wishes.settings;
  const std::vector<std::string>& interfaces = settings.interfaces;
  if (!interfaces.empty() && (!settings.shared.empty() || settings.devices > 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat(kSettingPrefix, "INTERFACE=", absl::StrJoin(interfaces, ","),
                     ": one device on each interface; not with SHARED or DEVICES"));
  }
  if (!interfaces.empty() && wishes.mtu_set) {
    return absl::InvalidArgumentError(
        absl::StrCat(kSettingPrefix, "MTU=", settings.mtu, ": an interface has its own; set it ",
                     "with ip link set ", interfaces.front(), " mtu ", settings.mtu));
  }
  if (settings.shared.empty() && settings.devices == 1) {
    return absl::InvalidArgumentError(
        absl::StrCat(kSettingPrefix, "DEVICES=1: a cable has two ends; 1 needs SHARED"));
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
