// SPDX-License-Identifier: Apache-2.0

#include "api/sockets/settings.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cctype>
#include <charconv>
#include <optional>
#include <variant>

#include "api/native/settings.h"
#include "fmt/format.h"

namespace xtreme::sockets {
namespace {

using Field = std::variant<int64_t FaceSettings::*, bool FaceSettings::*,
                           std::string FaceSettings::*>;

struct FaceSetting {
  std::string_view name;  // Behind XTREME_.
  std::string_view vma;   // The variable of VMA; "": it has none.
  std::string_view help;
  Field field;
  int64_t least = 0;
  int64_t most = 0;
  std::string_view possible = "";  // In words, where it is more than these, or not all of them.
};

using S = FaceSettings;
constexpr int64_t kMany = 1'000'000'000;
constexpr std::string_view kLogics = "0, 1, 10, 11, 20, 30, 31";

constexpr std::array kTable = {
    FaceSetting{"RX_POLL", "VMA_RX_POLL",
                "Polls of the ring before a receive call sleeps in the kernel; 0: it sleeps at "
                "once; -1: it never sleeps.",
                &S::rx_poll, -1, kMany},
    FaceSetting{"SELECT_POLL", "VMA_SELECT_POLL",
                "Microseconds that poll, select and epoll_wait poll before they sleep; 0 and -1 as "
                "above.",
                &S::select_poll_us, -1, kMany},
    FaceSetting{"SELECT_POLL_OS_RATIO", "VMA_SELECT_POLL_OS_RATIO",
                "While they poll: of how many looks at rings one is at what is the kernel's, too; "
                "0: none but a call's first and what comes before it sleeps.",
                &S::select_poll_os_ratio, 0, kMany},
    FaceSetting{"SELECT_SKIP_OS", "VMA_SELECT_SKIP_OS",
                "Calls of them that rings alone answer, if they can, before one looks at what is "
                "the kernel's, too; 0: each does, as Linux; 4 where a SPEC never sleeps in them.",
                &S::select_skip_os, 0, 10'000},
    FaceSetting{"PROGRESS_ENGINE_INTERVAL", "VMA_PROGRESS_ENGINE_INTERVAL",
                "Milliseconds after which a ring that nobody polls is polled by a thread of the "
                "library; 0: never.",
                &S::progress_ms, 0, kMany},
    FaceSetting{"LOG_LEVEL", "VMA_TRACELEVEL",
                "How much is logged: none, panic, error, warning, info, details, debug, fine, "
                "finer, all, or -1 to 8.",
                &S::log_level, -1, 8,
                "none, panic, error, warning, info, details, debug, fine, finer, all, -1 to 8"},
    FaceSetting{"LOG_FILE", "VMA_LOG_FILE",
                "Where it is logged; a single %d in it is the process; empty: standard error.",
                &S::log_file},
    FaceSetting{"CONFIG_FILE", "VMA_CONFIG_FILE",
                "Rules that say which sockets are left to the kernel.", &S::config_file},
    FaceSetting{"APPLICATION_ID", "VMA_APPLICATION_ID",
                "The name by which rules know this program.", &S::application_id},
    FaceSetting{"OFFLOADED_SOCKETS", "VMA_OFFLOADED_SOCKETS",
                "Whether sockets are offloaded unless their thread said otherwise.",
                &S::offloaded_sockets, 0, 1},
    FaceSetting{"THREAD_MODE_SINGLE", "",
                "One thread uses sockets: nothing is locked.", &S::single_thread, 0, 1},
    FaceSetting{"SOCKETXTREME", "VMA_SOCKETXTREME",
                "Packets of every socket are completions of socketxtreme_poll(), from the first.",
                &S::socketxtreme, 0, 1},
    FaceSetting{"TCP_NODELAY", "VMA_TCP_NODELAY", "Connections begin with TCP_NODELAY.",
                &S::nodelay, 0, 1},
    FaceSetting{"TCP_QUICKACK", "VMA_TCP_QUICKACK",
                "Connections begin with TCP_QUICKACK: each segment is acknowledged at once.",
                &S::quick_ack, 0, 1},
    FaceSetting{"MSS", "VMA_MSS",
                "Most payload of a segment, sent or received, unless TCP_MAXSEG says so; 0: what "
                "the MTU of the interface allows.",
                &S::mss, 0, 32'767},
    FaceSetting{"TCP_CC_ALGO", "VMA_TCP_CC_ALGO",
                "Congestion control of connections without TCP_CONGESTION (reno or cubic): 0: "
                "NewReno; 1: CUBIC; 2: none.",
                &S::congestion, 0, 2},
    FaceSetting{"TCP_TIMESTAMP_OPTION", "VMA_TCP_TIMESTAMP_OPTION",
                "Timestamps of RFC 7323: 0: not offered; 1: offered; 2: as the kernel's "
                "net.ipv4.tcp_timestamps says.",
                &S::tcp_timestamps, 0, 2},
    FaceSetting{"TCP_MAX_SYN_RATE", "VMA_TCP_MAX_SYN_RATE",
                "SYNs that a listener answers in a second; more are dropped and counted "
                "(tcp/syns_withheld); 0: no limit.",
                &S::max_syn_rate, 0, 100'000},
    FaceSetting{"TX_MC_LOOPBACK", "VMA_TX_MC_LOOPBACK",
                "Sockets begin with IP_MULTICAST_LOOP: their multicast is received in this host.",
                &S::multicast_loop, 0, 1},
    FaceSetting{"RING_ALLOCATION_LOGIC_RX", "VMA_RING_ALLOCATION_LOGIC_RX",
                "By what sockets of an interface are divided among rings: 0: not at all; 1: local "
                "address; 10: socket; 11: user id (SO_VMA_RING_ALLOC_LOGIC); 20: thread that "
                "opened it; 30: core; 31: core, and the thread stays on it.",
                &S::ring_logic_rx, 0, 31, kLogics},
    FaceSetting{"RING_ALLOCATION_LOGIC_TX", "VMA_RING_ALLOCATION_LOGIC_TX",
                "The same, where the other is 0: a socket sends by the ring that it receives by.",
                &S::ring_logic_tx, 0, 31, kLogics},
    FaceSetting{"RING_LIMIT_PER_INTERFACE", "VMA_RING_LIMIT_PER_INTERFACE",
                "Rings of an interface, which are shared when there are as many; 0: no limit.",
                &S::ring_limit, 0, 65'535},
    FaceSetting{"CQ_MODERATION_COUNT", "VMA_CQ_MODERATION_COUNT",
                "Completions that wait before a sleeping ring is interrupted; 0: one.",
                &S::moderation_count, 0, 65'535},
    FaceSetting{"CQ_MODERATION_PERIOD_USEC", "VMA_CQ_MODERATION_PERIOD_USEC",
                "Microseconds that the first of them waits at most; without the one above 0.",
                &S::moderation_us, 0, 65'535},
    FaceSetting{"SPEC", "VMA_SPEC",
                "What all others begin with: latency (with TCP_NODELAY) and multi_ring_latency (a "
                "ring for each thread) never sleep; feed, throughput; dev sleeps at once. Rings "
                "have the profile of that name. VMA's other names and numbers are known too.",
                &S::spec},
};

// What a specification sets, before every other variable.
struct Spec {
  std::string_view name;
  std::string_view number;   // Of VMA's; "": it has none.
  std::string_view profile;  // Of rings.
  int64_t rx_poll = 10'000;
  int64_t select_poll_us = 1'000;
  RingLogic logic = RingLogic::kPerInterface;
  bool nodelay = false;
};
constexpr int64_t kForEver = -1;
constexpr auto kSpecs = std::to_array<Spec>({
    {"latency", "15", "latency", kForEver, kForEver, RingLogic::kPerInterface, true},
    {"multi_ring_latency", "", "latency", kForEver, kForEver, RingLogic::kPerThread},
    {"feed", "", "feed"},
    {"throughput", "", "throughput"},
    {"dev", "", "dev", 0, 0},
    // VMA's for single programs.
    {"none", "0", "latency"},
    {"ultra-latency", "10", "latency", kForEver, kForEver, RingLogic::kPerInterface, true},
    {"29west", "29", "latency", 0, 100'000},
    {"wombat_fh", "554", "latency", 0, 0},
    {"mcd", "623", "latency", 10'000, 1'000, RingLogic::kPerBoundCore},
    {"mcd-irq", "624", "latency", 0, 0, RingLogic::kPerBoundCore},
    {"rti", "784", "latency", kForEver},
    {"7750", "", "latency", kForEver, kForEver},
});

// A variable of VMA's that is a setting of rings.
struct RingAlias {
  std::string_view vma;
  std::string_view setting;  // Of api/native/settings.h.
  bool power_of_two = false; // The next one above is taken,
  bool wish = false;         // or what can be: VMA knows no bounds of it.
  std::string_view vmas = "";  // What is possible besides: VMA's own values.
};
constexpr std::array kRingAliases = {
    RingAlias{"VMA_RX_BUFS", "rx_buffers"},
    RingAlias{"VMA_RX_WRE", "rx_queue_frames", true, true},
    RingAlias{"VMA_TX_WRE", "tx_queue_frames", true, true},
    RingAlias{"VMA_TX_WRE_BATCHING", "signal_every"},
    RingAlias{"VMA_CQ_POLL_BATCH_MAX", "poll_batch"},
    RingAlias{"VMA_RING_DEV_MEM_TX", "device_memory", true, true},
    RingAlias{"VMA_BF", "blueflame", false, false, "0 to 1"},
    RingAlias{"VMA_HW_TS_CONVERSION", "hw_time", false, false, "0 to 4"},
    RingAlias{"VMA_MEM_ALLOC_TYPE", "hugepages", false, false, "0 to 2"},
    RingAlias{"VMA_STATS_SHMEM_DIR", "counters_directory"},
    RingAlias{"VMA_INTERNAL_THREAD_AFFINITY", "control_cpus", false, false, "-1, 0xMASK"},
};

// VMA's others: what they set has no counterpart here.
constexpr auto kWithoutMeaning = std::to_array<std::string_view>({
    "ALLOW_PRIVILEGED_SOCK_OPT", "AVOID_SYS_CALLS_ON_TCP_FD", "BUFFER_BATCHING_MODE",
    "CLOSE_ON_DUP2", "CPU_USAGE_STATS", "CQ_AIM_INTERRUPTS_RATE_PER_SEC", "CQ_AIM_INTERVAL_MSEC",
    "CQ_AIM_MAX_COUNT", "CQ_AIM_MAX_PERIOD_USEC", "CQ_KEEP_QP_FULL", "CQ_MODERATION_ENABLE",
    "DEFERRED_CLOSE", "ETH_MC_L2_ONLY_RULES", "EXCEPTION_HANDLING", "FORK", "GRO_STREAMS_MAX",
    "HANDLE_SIGINTR", "HANDLE_SIGSEGV", "HUGETBL", "INTERNAL_THREAD_ARM_CQ",
    "INTERNAL_THREAD_CPUSET", "INTERNAL_THREAD_TCP_TIMER_HANDLING", "IPOIB", "LOG_COLORS",
    "LOG_DETAILS", "MAX_INLINE", "MC_FORCE_FLOWTAG", "MTU", "NEIGH_NUM_ERR_RETRIES",
    "NEIGH_UC_ARP_DELAY_MSEC", "NEIGH_UC_ARP_QUATA", "NETLINK_TIMER", "PROGRESS_ENGINE_WCE_MAX",
    "QP_COMPENSATION_LEVEL", "RING_MIGRATION_RATIO_RX", "RING_MIGRATION_RATIO_TX", "RX_BYTES_MIN",
    "RX_CQ_DRAIN_RATE_NSEC", "RX_POLL_INIT", "RX_POLL_ON_TX_TCP", "RX_POLL_OS_RATIO",
    "RX_POLL_YIELD", "RX_PREFETCH_BYTES", "RX_PREFETCH_BYTES_BEFORE_POLL", "RX_SKIP_OS",
    "RX_UDP_POLL_OS_RATIO", "RX_WRE_BATCHING", "SPEC_PARAM1", "SPEC_PARAM2", "STATS_FD_NUM",
    "STATS_FILE", "TCP_3T_RULES", "TCP_CTL_THREAD", "TCP_TIMER_RESOLUTION_MSEC",
    "TIMER_RESOLUTION_MSEC", "TIME_MEASURE_NUM_SAMPLES", "TRIGGER_DUMMY_SEND_GETSOCKNAME",
    "TX_BUFS", "TX_MAX_INLINE", "TX_NONBLOCKED_EAGAINS", "TX_PREFETCH_BYTES", "TX_SEGS_TCP",
    "UDP_3T_RULES", "VMAD_NOTIFY_DIR", "WAIT_AFTER_JOIN_MSEC"});

// With the numbers of LogLevel, and VMA's other names.
struct LevelName {
  std::string_view name;
  int64_t level;
};
constexpr auto kLevels = std::to_array<LevelName>(
    {{"none", -1}, {"panic", 0}, {"error", 1}, {"warning", 2}, {"warn", 2}, {"info", 3},
     {"information", 3}, {"details", 4}, {"debug", 5}, {"fine", 6}, {"func", 6}, {"finer", 7},
     {"func_all", 7}, {"func-all", 7}, {"funcall", 7}, {"func+", 7}, {"all", 8}});

// VMA has no number for details.
constexpr auto kVmasLevels = std::to_array<LevelName>({{"4", 5}, {"5", 6}, {"6", 7}});

std::string Lower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return lower;
}

// A hexadecimal mask of CPUs, as a list.
std::string CpusOf(std::string_view mask) {
  std::string cpus;
  int cpu = 0;
  for (auto digit = mask.rbegin(); digit != mask.rend(); ++digit) {
    int bits = 0;
    const char* const at = &*digit;
    if (std::from_chars(at, at + 1, bits, 16).ec != std::errc()) return std::string(mask);
    for (int bit = 0; bit < 4; ++bit, ++cpu) {
      if ((bits >> bit & 1) != 0) cpus += fmt::format("{}{}", cpus.empty() ? "" : ",", cpu);
    }
  }
  return cpus;
}

std::optional<int64_t> Level(std::string_view variable, std::string_view text) {
  const auto find = [&](const auto& levels) -> std::optional<int64_t> {
    const auto* const level = std::ranges::find(levels, Lower(text), &LevelName::name);
    return level == levels.end() ? std::nullopt : std::optional(level->level);
  };
  const auto vmas = variable == "VMA_TRACELEVEL" ? find(kVmasLevels) : std::nullopt;
  return vmas ? vmas : find(kLevels);
}

std::optional<int64_t> Number(const FaceSetting& setting, std::string_view variable,
                              std::string_view text) {
  if (setting.name == "LOG_LEVEL") {
    if (const auto level = Level(variable, text)) return level;
  }
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  const bool is_logic = setting.name.starts_with("RING_ALLOCATION_LOGIC");
  if (is_logic && !RingLogicOf(value)) return std::nullopt;
  if (value < setting.least || value > setting.most) return std::nullopt;
  return value;
}

std::string Apply(const FaceSetting& setting, std::string_view variable, std::string_view value,
                  FaceSettings* settings) {
  if (const auto* text = std::get_if<std::string FaceSettings::*>(&setting.field)) {
    settings->**text = std::string(value);
    return "";
  }
  const std::optional<int64_t> number = Number(setting, variable, value);
  if (!number) {
    const std::string possible = setting.possible.empty()
                                     ? fmt::format("{} to {}", setting.least, setting.most)
                                     : std::string(setting.possible);
    return fmt::format("{}: '{}' asked, {} possible", variable, value, possible);
  }
  if (const auto* flag = std::get_if<bool FaceSettings::*>(&setting.field)) {
    settings->**flag = *number != 0;
  } else {
    settings->*std::get<int64_t FaceSettings::*>(setting.field) = *number;
  }
  return "";
}

std::string Value(const FaceSetting& setting, const FaceSettings& settings) {
  if (const auto* text = std::get_if<std::string FaceSettings::*>(&setting.field)) {
    return settings.**text;
  }
  if (const auto* flag = std::get_if<bool FaceSettings::*>(&setting.field)) {
    return settings.**flag ? "1" : "0";
  }
  return fmt::format("{}", settings.*std::get<int64_t FaceSettings::*>(setting.field));
}

// VMA's spelling of a ring's setting, in ours.
std::string OfRing(const RingAlias& alias, std::string_view value) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  const bool is_number = error == std::errc() && end == value.data() + value.size();
  if (alias.power_of_two && is_number && number != 0 && number <= uint64_t{1} << 32) {
    const uint64_t above = std::bit_ceil(number);
    const auto setting = std::ranges::find(api::Settings(), alias.setting, &api::Setting::name);
    return fmt::format("{}", alias.wish ? std::clamp(above, setting->least, setting->most) : above);
  }
  // Contiguous pages are not asked for: they are ordinary ones here.
  const bool pages = alias.setting == "hugepages" && is_number && number <= 2;
  if (pages) return number == 2 ? "try" : "never";
  // Times on a clock of the host's are on CLOCK_REALTIME whatever they were to be on.
  const bool times = alias.setting == "hw_time" && is_number && number <= 4;
  if (times) return number == 4 ? "ptp" : "monotonic";
  const bool on_off = alias.setting == "blueflame" && is_number && number <= 1;
  if (on_off) return number == 1 ? "on" : "off";
  if (alias.setting != "control_cpus") return std::string(value);
  if (value == "-1") return "";
  return value.starts_with("0x") ? CpusOf(value.substr(2)) : std::string(value);
}

// As a variable of ours, which a profile that ours name does not undo.
std::string ReadRingAlias(const RingAlias& alias, std::string_view value, FaceSettings* settings,
                          std::vector<char*>* of_rings) {
  const std::string ours = OfRing(alias, value);
  std::string upper(alias.setting);
  for (char& c : upper) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  settings->kept.push_back(fmt::format("XTREME_{}={}", upper, ours));
  char* const kept = settings->kept.back().data();
  const std::string wrong =
      api::Set(alias.setting, kept + (settings->kept.back().size() - ours.size()), &settings->ring);
  of_rings->push_back(kept);
  if (wrong.empty()) return "";
  return fmt::format("{}: {}{}{}", alias.vma, wrong, alias.vmas.empty() ? "" : ", or VMA's ",
                     alias.vmas);
}

bool IsOfVma(std::string_view variable) {
  return std::ranges::find(kWithoutMeaning, variable.substr(4)) != kWithoutMeaning.end();
}

// A variable of VMA: ours, or a remark.
std::string ReadVma(std::string_view variable, std::string_view value, FaceSettings* settings,
                    std::vector<std::string>* remarks, std::vector<char*>* of_rings) {
  if (variable == "VMA_THREAD_MODE") {
    const bool known = value.size() == 1 && value[0] >= '0' && value[0] <= '3';
    if (!known) return fmt::format("{}: '{}' asked, 0 to 3 possible", variable, value);
    settings->single_thread = value == "0";
    return "";
  }
  if (variable == "VMA_SELECT_POLL_OS_FORCE") {
    if (value != "0" && value != "1") {
      return fmt::format("{}: '{}' asked, 0 to 1 possible", variable, value);
    }
    if (value == "0") return "";
    settings->select_poll_os_ratio = 1;
    settings->select_skip_os = 0;
    return "";
  }
  for (const FaceSetting& setting : kTable) {
    if (!setting.vma.empty() && setting.vma == variable) {
      return Apply(setting, variable, value, settings);
    }
  }
  for (const RingAlias& alias : kRingAliases) {
    if (alias.vma == variable) return ReadRingAlias(alias, value, settings, of_rings);
  }
  remarks->push_back(fmt::format("{} {}", variable,
                                 IsOfVma(variable) ? "has no meaning here and no effect"
                                       : "is not known, and has no effect"));
  return "";
}

const FaceSetting* FindOurs(std::string_view variable) {
  for (const FaceSetting& setting : kTable) {
    if (variable == fmt::format("XTREME_{}", setting.name)) return &setting;
  }
  return nullptr;
}

}  // namespace

namespace {

struct Variable {
  std::string_view name;
  std::string_view value;
};

Variable VariableOf(const char* entry) {
  const std::string_view whole(entry);
  const size_t equals = std::min(whole.find('='), whole.size());
  return {whole.substr(0, equals), whole.substr(std::min(equals + 1, whole.size()))};
}

// VMA's, or ours; what is a ring's goes to `of_rings`.
std::string ReadOne(char* entry, bool ours, FaceSettings* settings,
                    std::vector<std::string>* remarks, std::vector<char*>* of_rings) {
  const auto [name, value] = VariableOf(entry);
  if (!ours && !name.starts_with("VMA_")) return "";
  if (!ours) return ReadVma(name, value, settings, remarks, of_rings);
  if (!name.starts_with("XTREME_")) return "";
  if (const FaceSetting* setting = FindOurs(name)) return Apply(*setting, name, value, settings);
  of_rings->push_back(entry);
  return "";
}

// The last of the two names that is there: ours prevails.
Variable FindSpec(char** environment) {
  Variable found{"", ""};
  for (char** entry = environment; *entry != nullptr; ++entry) {
    const Variable each = VariableOf(*entry);
    if (each.name == "XTREME_SPEC" || (each.name == "VMA_SPEC" && found.name.empty())) found = each;
  }
  return found;
}

std::string BeginBySpec(const Variable& variable, FaceSettings* settings) {
  if (variable.name.empty()) return api::FillProfile("latency", &settings->ring);
  const std::string asked = Lower(variable.value);
  const auto* const spec = std::ranges::find_if(kSpecs, [&](const Spec& each) {
    return !asked.empty() && (asked == each.name || asked == each.number);
  });
  if (spec == kSpecs.end()) {
    return fmt::format(
        "{}: '{}' asked; latency, multi_ring_latency, feed, throughput, dev possible",
        variable.name, variable.value);
  }
  settings->rx_poll = spec->rx_poll;
  settings->select_poll_us = spec->select_poll_us;
  settings->ring_logic_rx = static_cast<int64_t>(spec->logic);
  settings->nodelay = spec->nodelay;
  // VMA's number, of any specification.
  if (spec->select_poll_us == kForEver) settings->select_skip_os = 4;
  return api::FillProfile(spec->profile, &settings->ring);
}

// A program on sockets does not know how many clients it will have, and those that a listener has
// no connection for are reset: as many as profiles give is few, so that they are more unless
// somebody said how many.
void MakeRoomForClients(const std::vector<char*>& of_rings, xtreme_ring_options* ring) {
  constexpr uint32_t kClients = 4'096;
  const bool said = std::ranges::any_of(of_rings, [](const char* entry) {
    return entry != nullptr && std::string_view(entry).starts_with("XTREME_MAX_CONNECTIONS=");
  });
  if (!said) ring->max_connections = std::max(ring->max_connections, kClients);
}

// Sends keep their buffers, and their room in the queue, until a signal says that they are done:
// with little of either signals come more often than was asked.
void FitSignals(xtreme_ring_options* ring) {
  constexpr uint32_t kOften = 16;
  ring->signal_every = std::min(ring->signal_every, ring->tx_queue_frames / 4);
  if (ring->rx_buffers == 0) return;
  const uint32_t spare = ring->rx_buffers - std::min(ring->rx_buffers, ring->rx_queue_frames);
  const uint32_t least = std::min(kOften, ring->signal_every);
  ring->signal_every = std::clamp(spare / 2, least, ring->signal_every);
}

// All buffers would wait to receive, or for a signal that a send is done: none to send by.
std::string TooFewBuffers(const xtreme_ring_options& ring) {
  const uint32_t least = ring.rx_queue_frames + 2 * ring.signal_every;
  if (ring.rx_buffers == 0 || ring.rx_buffers >= least) return "";
  return fmt::format("XTREME_RX_BUFFERS (VMA_RX_BUFS): '{}' asked, {} and more possible: the "
                     "receive queue takes {}",
                     ring.rx_buffers, least, ring.rx_queue_frames);
}

}  // namespace

std::string ReadSettings(char** environment, FaceSettings* settings,
                         std::vector<std::string>* remarks) {
  char* none = nullptr;
  if (environment == nullptr) environment = &none;
  std::string wrong = BeginBySpec(FindSpec(environment), settings);
  std::vector<char*> of_rings;
  // VMA's first, so that ours prevail.
  for (const bool ours : {false, true}) {
    for (char** entry = environment; *entry != nullptr && wrong.empty(); ++entry) {
      wrong = ReadOne(*entry, ours, settings, remarks, &of_rings);
    }
  }
  of_rings.push_back(nullptr);
  if (wrong.empty()) wrong = api::SetFromEnvironment(of_rings.data(), &settings->ring);
  MakeRoomForClients(of_rings, &settings->ring);
  FitSignals(&settings->ring);
  return wrong.empty() ? TooFewBuffers(settings->ring) : wrong;
}

std::vector<std::string> DescribeSettings(const FaceSettings& settings) {
  std::vector<std::string> lines;
  for (const FaceSetting& setting : kTable) {
    lines.push_back(fmt::format("{:<28} {:<26} [XTREME_{}]", Lower(setting.name),
                                Value(setting, settings), setting.name));
  }
  return lines;
}

std::string FaceReference() {
  const FaceSettings defaults;
  std::string text = "| variable | VMA's | meaning | default |\n|---|---|---|---|\n";
  for (const FaceSetting& setting : kTable) {
    const std::string alias =
        setting.vma.empty() ? std::string() : fmt::format("`{}`", setting.vma);
    text += fmt::format("| `XTREME_{}` | {} | {} | {} |\n", setting.name, alias, setting.help,
                        Value(setting, defaults));
  }
  text += "\n| VMA's | setting of rings |\n|---|---|\n";
  for (const RingAlias& alias : kRingAliases) {
    text += fmt::format("| `{}` | `{}`{} |\n", alias.vma, alias.setting,
                        alias.wish           ? ", the next power of two, at most what can be"
                        : alias.power_of_two ? ", the next power of two"
                                             : "");
  }
  return text;
}

}  // namespace xtreme::sockets
