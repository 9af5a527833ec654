// SPDX-License-Identifier: Apache-2.0

#include "api/sockets/settings.h"

#include <algorithm>
#include <array>
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
};

using S = FaceSettings;
constexpr int64_t kMany = 1'000'000'000;

constexpr std::array kTable = {
    FaceSetting{"RX_POLL", "VMA_RX_POLL",
                "Polls of the ring before a receive call sleeps in the kernel; 0: it sleeps at "
                "once; -1: it never sleeps.",
                &S::rx_poll, -1, kMany},
    FaceSetting{"SELECT_POLL", "VMA_SELECT_POLL",
                "Microseconds that poll, select and epoll_wait poll before they sleep; 0 and -1 as "
                "above.",
                &S::select_poll_us, -1, kMany},
    FaceSetting{"PROGRESS_ENGINE_INTERVAL", "VMA_PROGRESS_ENGINE_INTERVAL",
                "Milliseconds after which a ring that nobody polls is polled by a thread of the "
                "library; 0: never.",
                &S::progress_ms, 0, 10'000},
    FaceSetting{"LOG_LEVEL", "VMA_TRACELEVEL",
                "How much is logged: none, panic, error, warning, info, details, debug, fine, "
                "finer, all, or -1 to 8.",
                &S::log_level, -1, 8},
    FaceSetting{"LOG_FILE", "VMA_LOG_FILE", "Where it is logged; empty: standard error.",
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
};

constexpr std::array<std::string_view, 10> kLevels = {"none",    "panic", "error", "warning",
                                                      "info",    "details", "debug", "fine",
                                                      "finer",   "all"};

std::string Lower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return lower;
}

std::optional<int64_t> Number(const FaceSetting& setting, std::string_view text) {
  if (setting.name == "LOG_LEVEL") {
    const auto level = std::find(kLevels.begin(), kLevels.end(), Lower(text));
    if (level != kLevels.end()) return level - kLevels.begin() - 1;
  }
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  if (value < setting.least || value > setting.most) return std::nullopt;
  return value;
}

std::string Apply(const FaceSetting& setting, std::string_view variable, std::string_view value,
                  FaceSettings* settings) {
  if (const auto* text = std::get_if<std::string FaceSettings::*>(&setting.field)) {
    settings->**text = std::string(value);
    return "";
  }
  const std::optional<int64_t> number = Number(setting, value);
  if (!number) {
    return fmt::format("{}: '{}' asked, {} to {} possible", variable, value, setting.least,
                       setting.most);
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

// A variable of VMA: ours, or a remark.
std::string ReadVma(std::string_view variable, std::string_view value, FaceSettings* settings,
                    std::vector<std::string>* remarks) {
  if (variable == "VMA_THREAD_MODE") {
    settings->single_thread = value == "0";
    return "";
  }
  for (const FaceSetting& setting : kTable) {
    if (!setting.vma.empty() && setting.vma == variable) {
      return Apply(setting, variable, value, settings);
    }
  }
  remarks->push_back(fmt::format("{} has no meaning here and no effect", variable));
  return "";
}

const FaceSetting* FindOurs(std::string_view variable) {
  for (const FaceSetting& setting : kTable) {
    if (variable == fmt::format("XTREME_{}", setting.name)) return &setting;
  }
  return nullptr;
}

}  // namespace

std::string ReadSettings(char** environment, FaceSettings* settings,
                         std::vector<std::string>* remarks) {
  std::string wrong = api::FillProfile(settings->profile, &settings->ring);
  std::vector<char*> of_rings;
  // VMA's first, so that ours prevail.
  for (const bool ours : {false, true}) {
    for (char** entry = environment; *entry != nullptr; ++entry) {
      const std::string_view whole(*entry);
      const size_t equals = std::min(whole.find('='), whole.size());
      const std::string_view variable = whole.substr(0, equals);
      const std::string_view value = whole.substr(std::min(equals + 1, whole.size()));
      if (!ours && variable.starts_with("VMA_") && wrong.empty()) {
        wrong = ReadVma(variable, value, settings, remarks);
      }
      if (!ours || !variable.starts_with("XTREME_") || !wrong.empty()) continue;
      if (const FaceSetting* setting = FindOurs(variable)) {
        wrong = Apply(*setting, variable, value, settings);
      } else {
        of_rings.push_back(*entry);
      }
    }
  }
  of_rings.push_back(nullptr);
  return wrong.empty() ? api::SetFromEnvironment(of_rings.data(), &settings->ring) : wrong;
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
  return text;
}

}  // namespace xtreme::sockets
