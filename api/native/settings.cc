// SPDX-License-Identifier: Apache-2.0

#include "api/native/settings.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstring>
#include <optional>

#include "fmt/format.h"
#include "fmt/ranges.h"
#include "xtreme/host/cpus.h"

namespace xtreme::api {
namespace {

constexpr std::string_view kPrefix = "XTREME_";
constexpr std::array<std::string_view, 3> kOthersPrefixes = {"XTREME_CONNECTX_", "XTREME_TEST_",
                                                             "XTREME_DEMO_"};

// Of the preloaded library alone (api/sockets/settings.cc), which the sockets of a program that has
// rings of its own may be on.
constexpr auto kOfSockets = std::to_array<std::string_view>({
    "XTREME_RX_POLL", "XTREME_SELECT_POLL", "XTREME_SELECT_POLL_OS_RATIO", "XTREME_SELECT_SKIP_OS",
    "XTREME_PROGRESS_ENGINE_INTERVAL", "XTREME_LOG_LEVEL", "XTREME_LOG_FILE", "XTREME_CONFIG_FILE",
    "XTREME_APPLICATION_ID", "XTREME_OFFLOADED_SOCKETS", "XTREME_THREAD_MODE_SINGLE",
    "XTREME_SOCKETXTREME", "XTREME_TCP_NODELAY", "XTREME_TCP_QUICKACK", "XTREME_MSS",
    "XTREME_TCP_CC_ALGO", "XTREME_TCP_TIMESTAMP_OPTION", "XTREME_TCP_MAX_SYN_RATE",
    "XTREME_TX_MC_LOOPBACK", "XTREME_RING_ALLOCATION_LOGIC_RX", "XTREME_RING_ALLOCATION_LOGIC_TX",
    "XTREME_RING_LIMIT_PER_INTERFACE", "XTREME_CQ_MODERATION_COUNT",
    "XTREME_CQ_MODERATION_PERIOD_USEC", "XTREME_SPEC"});

constexpr std::array<std::string_view, 2> kSwitch = {"off", "on"};
constexpr std::array<std::string_view, 3> kHugepages = {"never", "try", "require"};
constexpr std::array<std::string_view, 2> kFragments = {"kernel", "own"};
constexpr std::array<std::string_view, 3> kWaits = {"busy", "sleep", "hybrid"};
constexpr std::array<std::string_view, 2> kHwTimes = {"monotonic", "ptp"};
constexpr std::array<std::string_view, 3> kAccess = {"user", "group", "all"};

using Options = xtreme_ring_options;

constexpr Setting kSettings[] = {
    {"interface", "Network interface of the ConnectX port, up and with an address.",
     offsetof(Options, interface_name), Setting::kText, 0, 0, {}},
    {"rx_burst_us", "Longest burst at link rate that must be absorbed, in microseconds.",
     offsetof(Options, rx_burst_us), 4, 1, 1'000'000, {500, 10'000, 2'000, 100}},
    {"rx_frame_bytes", "Typical frame of such a burst; with it the burst sizes the pool.",
     offsetof(Options, rx_frame_bytes), 4, 64, 9'018, {512, 512, 1'500, 512}},
    {"rx_buffers", "Buffers of the pool; 0: computed from the burst.",
     offsetof(Options, rx_buffers), 4, 64, 1u << 24, {0, 0, 0, 0}, false, {}, true},
    {"rx_queue_frames", "Length of the receive queue.", offsetof(Options, rx_queue_frames), 4, 64,
     32'768, {1'024, 4'096, 4'096, 512}, true},
    {"tx_queue_frames", "Length of the send queue.", offsetof(Options, tx_queue_frames), 4, 64,
     32'768, {512, 512, 2'048, 256}, true},
    {"completions", "Completions that can wait for the application.",
     offsetof(Options, completions), 4, 64, 65'536, {1'024, 4'096, 4'096, 512}, true},
    {"poll_batch", "Most packets that one poll takes.", offsetof(Options, poll_batch), 4, 1, 256,
     {16, 32, 64, 16}},
    {"signal_every", "One send completion for this many sends, of which one of more than 98 bytes "
     "counts twice, at most for a quarter of tx_queue_frames, and for each half of device_memory "
     "written.", offsetof(Options, signal_every), 4, 1, 256, {128, 128, 128, 8}},
    {"max_sockets", "Most sockets open on the ring.", offsetof(Options, max_sockets), 4, 1,
     1'000'000, {256, 1'024, 1'024, 64}},
    {"max_groups", "Most memberships of all its sockets together.", offsetof(Options, max_groups),
     4, 1, 65'536, {256, 1'024, 256, 64}},
    {"neighbour_queue", "Sends that wait for one unresolved neighbour; above: refused.",
     offsetof(Options, neighbour_queue), 4, 0, 1'024, {16, 16, 64, 16}},
    {"reassembly_datagrams", "Most datagrams in reassembly when fragments is own.",
     offsetof(Options, reassembly_datagrams), 4, 1, 4'096, {64, 64, 256, 16}},
    {"fragments", "kernel: fragments come by the kernel's reassembly; own: the ring takes whole "
     "addresses and reassembles.",
     offsetof(Options, fragments), 1, 0, 1, {0, 0, 0, 0}, false, kFragments},
    {"hugepages", "Memory of the pool: never; try, and where there are none ask the kernel to "
     "merge pages; or require. But with never, Start() merges the tables too.",
     offsetof(Options, hugepages), 1, 0, 2, {1, 1, 1, 0}, false, kHugepages},
    {"wait", "How xtreme_ring_wait() waits: busy spins, sleep sleeps in the kernel, hybrid does one"
     " after the other.",
     offsetof(Options, wait), 1, 0, 2, {0, 0, 2, 1}, false, kWaits},
    {"hw_time", "What hw_time_ns of completions is on: monotonic, CLOCK_MONOTONIC; ptp, the PTP "
     "clock of the NIC, where the system publishes that (XTREME_PTP_TIME says so).",
     offsetof(Options, hw_time), 1, 0, 1, {0, 0, 0, 0}, false, kHwTimes},
    {"blueflame", "Write small WQEs straight to the NIC, where the device has it.",
     offsetof(Options, blueflame), 1, 0, 1, {1, 1, 1, 1}, false, kSwitch},
    {"device_memory", "Bytes of on-device memory that frames too long for a WQE are sent from, "
     "where the device has it and BlueFlame; 0: they are gathered.",
     offsetof(Options, device_memory), 4, 4'096, 1 << 20, {32'768, 0, 0, 0}, true, {}, true},
    {"spin_us", "Hybrid wait: microseconds to spin before sleeping.", offsetof(Options, spin_us), 4,
     0, 1'000'000, {50, 50, 50, 20}},
    {"link_bits_per_second", "Rate that the burst arrives at; 0: what the port says.",
     offsetof(Options, link_bits_per_second), 8, 0, 800'000'000'000, {0, 0, 0, 0}},
    {"counters_directory", "Where the counters are published, a file for each ring; none given: "
     "/dev/shm; empty: not at all.",
     offsetof(Options, counters_directory), Setting::kText, 0, 0, {}, false, {}, false, false,
     "/dev/shm"},
    {"counters_access", "Who may read the published counters.", offsetof(Options, counters_access),
     1, 0, 2, {0, 0, 0, 0}, false, kAccess},
    {"histograms", "Count the times between polls, and from the wire to a poll.",
     offsetof(Options, histograms), 1, 0, 1, {0, 0, 0, 0}, false, kSwitch},
    {"dump_frames", "How many of the last frames received and sent are kept beside the counters, "
     "1024 at least, for xtreme_dump; 0: none.",
     offsetof(Options, dump_frames), 4, 0, 1u << 20, {0, 0, 0, 0}, true},
    {"dump_snap_bytes", "Bytes kept of each of them; 0: 96.", offsetof(Options, dump_snap_bytes), 2,
     96, 9'120, {96, 96, 96, 96}, false, {}, true},
    {"control_cpus", "CPUs of the library's own thread, as 0-3,8; none given: those of the process,"
     " but those that owners of rings are bound to.",
     offsetof(Options, control_cpus), Setting::kText, 0, 0, {}, false, {}, false, true},
    {"max_connections", "Most TCP connections and listeners; 0: the ring has no TCP.",
     offsetof(Options, max_connections), 4, 0, 1'000'000, {256, 64, 4'096, 256}},
    {"tcp_ports_log2", "Local ports of connects, leased as one block with the first: 2 to the "
     "power of this.",
     offsetof(Options, tcp_ports_log2), 1, 0, 12, {6, 4, 10, 6}},
    {"tcp_time_wait_ms", "How long the addresses of a connection that was closed here rest: 2 MSL, "
     "in milliseconds.",
     offsetof(Options, tcp_time_wait_ms), 4, 0, 600'000, {60'000, 60'000, 60'000, 1'000}},
    {"backup_interface", "Interface of another port or NIC, in the same networks, that the ring "
     "goes over to with its sockets and memberships when its own goes down; none given: it stays.",
     offsetof(Options, backup_interface), Setting::kText, 0, 0, {}},
    {"backup_stays", "A ring that went over stays there until that port goes down too; off: it "
     "comes back as soon as its own is up.",
     offsetof(Options, backup_stays), 1, 0, 1, {0, 0, 0, 0}, false, kSwitch},
};

std::string Upper(std::string_view text) {
  std::string upper(text);
  for (char& c : upper) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return upper;
}

const Setting* Find(std::string_view name) {
  const auto* found = std::find_if(std::begin(kSettings), std::end(kSettings),
                                   [name](const Setting& each) { return each.name == name; });
  return found == std::end(kSettings) ? nullptr : found;
}

uint64_t ReadNumber(const Setting& setting, const Options& options) {
  uint64_t value = 0;  // Little endian, as every machine with a ConnectX that we know.
  memcpy(&value, reinterpret_cast<const uint8_t*>(&options) + setting.offset, setting.width);
  return value;
}

void WriteNumber(const Setting& setting, uint64_t value, Options* options) {
  memcpy(reinterpret_cast<uint8_t*>(options) + setting.offset, &value, setting.width);
}

const char* ReadText(const Setting& setting, const Options& options) {
  const char* text = nullptr;
  memcpy(&text, reinterpret_cast<const uint8_t*>(&options) + setting.offset, sizeof text);
  return text == nullptr ? setting.unset : text;
}

// Whether options of this many bytes, of a program compiled earlier, have the field.
bool Has(size_t options_bytes, const Setting& setting) {
  const size_t width = setting.width == Setting::kText ? sizeof(char*) : setting.width;
  return setting.offset + width <= options_bytes;
}

std::string AllowedValues(const Setting& setting) {
  if (setting.width == Setting::kText) return setting.cpus ? "a list of CPUs" : "a name";
  if (!setting.choices.empty()) return fmt::format("{}", fmt::join(setting.choices, ", "));
  return fmt::format("{}{}{} to {}", setting.or_none ? "0, or " : "",
                     setting.power_of_two ? "a power of two, " : "", setting.least, setting.most);
}

bool InRange(const Setting& setting, uint64_t value) {
  if (value == 0 && setting.or_none) return true;
  if (value < setting.least || value > setting.most) return false;
  return !setting.power_of_two || (value & (value - 1)) == 0;
}

std::optional<uint64_t> ParseValue(const Setting& setting, std::string_view text) {
  for (size_t i = 0; i < setting.choices.size(); ++i) {
    if (text == setting.choices[i]) return i;
  }
  if (!setting.choices.empty()) return std::nullopt;
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return InRange(setting, value) ? std::optional(value) : std::nullopt;
}

bool IsPossible(const Setting& setting, const char* text) {
  if (!setting.cpus || text == nullptr || *text == 0) return true;
  return host::CpuSet::Parse(text).ok();
}

std::string ValueText(const Setting& setting, uint64_t value) {
  // A program may have filled in what is none of them: shown as it is.
  if (value >= setting.choices.size()) return fmt::format("{}", value);
  return std::string(setting.choices[value]);
}

bool IsOthers(std::string_view variable) {
  const std::string_view name = variable.substr(0, variable.find('='));
  return std::any_of(kOthersPrefixes.begin(), kOthersPrefixes.end(),
                     [=](std::string_view prefix) { return name.starts_with(prefix); }) ||
         std::find(kOfSockets.begin(), kOfSockets.end(), name) != kOfSockets.end();
}

}  // namespace

std::span<const Setting> Settings() { return kSettings; }

std::string FillProfile(std::string_view profile, Options* options) {
  const auto* found = std::find(kProfiles.begin(), kProfiles.end(), profile);
  if (found == kProfiles.end()) {
    return fmt::format("profile: '{}' asked, {} possible", profile, fmt::join(kProfiles, ", "));
  }
  if (options->size == 0) options->size = sizeof(Options);
  for (const Setting& setting : kSettings) {
    if (setting.width == Setting::kText) continue;
    WriteNumber(setting, setting.defaults[found - kProfiles.begin()], options);
  }
  return "";
}

std::string Set(std::string_view name, const char* value, Options* options) {
  const Setting* setting = Find(name);
  if (setting == nullptr || !Has(options->size, *setting)) {
    return fmt::format("setting '{}': there is none of that name", name);
  }
  const bool is_text = setting->width == Setting::kText;
  const std::string_view asked = value == nullptr ? "" : value;
  const auto parsed = is_text ? std::nullopt : ParseValue(*setting, asked);
  if (is_text ? !IsPossible(*setting, value) : !parsed) {
    return fmt::format("setting '{}': '{}' asked, {} possible", name, asked,
                       AllowedValues(*setting));
  }
  if (is_text) {
    memcpy(reinterpret_cast<uint8_t*>(options) + setting->offset, &value, sizeof value);
    return "";
  }
  WriteNumber(*setting, *parsed, options);
  return "";
}

std::string SetFromEnvironment(char** environment, Options* options) {
  constexpr std::string_view kProfileVariable = "XTREME_PROFILE=";
  if (environment == nullptr) return "";
  for (char** entry = environment; *entry != nullptr; ++entry) {
    const std::string_view variable(*entry);
    if (!variable.starts_with(kProfileVariable)) continue;
    const std::string wrong = FillProfile(variable.substr(kProfileVariable.size()), options);
    if (!wrong.empty()) return fmt::format("XTREME_PROFILE: {}", wrong);
  }
  for (char** entry = environment; *entry != nullptr; ++entry) {
    const std::string_view variable(*entry);
    const size_t equals = variable.find('=');
    if (!variable.starts_with(kPrefix) || IsOthers(variable) || equals == variable.npos ||
        variable.starts_with(kProfileVariable)) {
      continue;
    }
    std::string name(variable.substr(kPrefix.size(), equals - kPrefix.size()));
    for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    const std::string wrong = Set(name, *entry + equals + 1, options);
    if (!wrong.empty()) return fmt::format("{}: {}", variable.substr(0, equals), wrong);
  }
  return "";
}

std::string Check(const Options& options) {
  for (const Setting& setting : kSettings) {
    if (setting.width == Setting::kText) continue;
    const uint64_t value = ReadNumber(setting, options);
    if (InRange(setting, value)) continue;
    return fmt::format("setting '{}': {} asked, {} possible", setting.name, value,
                       AllowedValues(setting));
  }
  return "";
}

std::string Print(const Options& options) {
  std::string text;
  for (const Setting& setting : kSettings) {
    if (!Has(options.size, setting)) continue;
    const bool is_text = setting.width == Setting::kText;
    text += fmt::format("{} = {}\n", setting.name,
                        is_text ? std::string(ReadText(setting, options))
                                : ValueText(setting, ReadNumber(setting, options)));
  }
  return text;
}

std::string Reference() {
  std::string text = fmt::format("| setting | variable | values | meaning | {} |\n",
                                 fmt::join(kProfiles, " | "));
  text += "|---|---|---|---|---|---|---|---|\n";
  for (const Setting& setting : kSettings) {
    text += fmt::format("| `{}` | `{}{}` | {} | {} |", setting.name, kPrefix, Upper(setting.name),
                        AllowedValues(setting), setting.help);
    for (uint64_t value : setting.defaults) {
      text += fmt::format(" {} |",
                          setting.width == Setting::kText ? "" : ValueText(setting, value));
    }
    text += "\n";
  }
  return text;
}

}  // namespace xtreme::api
