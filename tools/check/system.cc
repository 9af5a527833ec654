// SPDX-License-Identifier: Apache-2.0

#include "tools/check/system.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <tuple>

namespace xtreme::check {
namespace {

constexpr std::streamsize kMostBytes = 64 << 10;
constexpr int kMostCpus = 4'096;

}  // namespace

std::optional<std::string> System::Read(std::string_view path) const {
  std::error_code error;
  const std::string file_path = At(path);
  if (!std::filesystem::is_regular_file(file_path, error)) return std::nullopt;
  std::ifstream file(file_path);
  std::string text(kMostBytes, '\0');
  file.read(text.data(), kMostBytes);
  text.resize(static_cast<size_t>(file.gcount()));
  if (file.bad()) return std::nullopt;
  const size_t last = text.find_last_not_of(" \t\n");
  text.resize(last == text.npos ? 0 : last + 1);
  return text;
}

std::optional<int64_t> System::ReadNumber(std::string_view path) const {
  const auto text = Read(path);
  int64_t number = 0;
  if (!text) return std::nullopt;
  const char* const end = text->data() + text->size();
  if (std::from_chars(text->data(), end, number).ec != std::errc()) return std::nullopt;
  return number;
}

std::optional<std::set<int>> System::ReadCpus(std::string_view path) const {
  const auto text = Read(path);
  return text ? ParseCpus(*text) : std::nullopt;
}

std::optional<std::string> System::ReadField(std::string_view path, std::string_view key) const {
  const auto text = Read(path);
  if (!text) return std::nullopt;
  for (size_t at = 0; at < text->size();) {
    const size_t end = std::min(text->find('\n', at), text->size());
    const std::string_view line = std::string_view(*text).substr(at, end - at);
    at = end + 1;
    if (!line.starts_with(key)) continue;
    const size_t value = line.find_first_not_of(": \t", key.size());
    return value == line.npos || value == key.size() ? "" : std::string(line.substr(value));
  }
  return std::nullopt;
}

std::vector<std::string> System::List(std::string_view path) const {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(At(path), error)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

bool System::Exists(std::string_view path) const { return access(At(path).c_str(), F_OK) == 0; }

bool System::MayUse(std::string_view path) const {
  return access(At(path).c_str(), R_OK | W_OK) == 0;
}

std::string DeviceInterface(const System& system, const std::string& interface) {
  constexpr std::string_view kLower = "lower_";
  const std::string at = "/sys/class/net/" + interface + "/";
  const std::string event = "\n" + system.Read(at + "uevent").value_or("") + "\n";
  if (event.find("\nDEVTYPE=vlan\n") == event.npos) return interface;
  for (const std::string& name : system.List(at)) {
    if (name.starts_with(kLower)) return name.substr(kLower.size());
  }
  return interface;
}

std::optional<std::set<int>> ParseCpus(std::string_view text) {
  std::set<int> cpus;
  while (!text.empty()) {
    const std::string_view part = text.substr(0, text.find(','));
    text.remove_prefix(std::min(part.size() + 1, text.size()));
    int first = 0;
    const char* const end = part.data() + part.size();
    auto [at, error] = std::from_chars(part.data(), end, first);
    int last = first;
    if (error == std::errc() && at != end && *at == '-') {
      std::tie(at, error) = [&, from = at + 1] {
        const auto parsed = std::from_chars(from, end, last);
        return std::pair(parsed.ptr, parsed.ec);
      }();
    }
    if (error != std::errc() || at != end || first < 0 || last < first || last >= kMostCpus) {
      return std::nullopt;
    }
    for (int cpu = first; cpu <= last; ++cpu) cpus.insert(cpu);
  }
  return cpus;
}

}  // namespace xtreme::check
