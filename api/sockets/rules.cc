// SPDX-License-Identifier: Apache-2.0

#include "api/sockets/rules.h"

#include <fnmatch.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "fmt/format.h"
#include "stack/wire/address_text.h"

namespace xtreme::sockets {
namespace {

constexpr std::array<std::string_view, 5> kRoles = {"tcp_server", "tcp_client", "udp_sender",
                                                    "udp_receiver", "udp_connect"};

std::optional<uint32_t> ParseNumber(std::string_view text, uint32_t most) {
  uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  return whole && value <= most ? std::optional(value) : std::nullopt;
}

bool IsSpace(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

// Without the comment.
std::string_view Bare(std::string_view line) { return line.substr(0, line.find('#')); }

bool Matches(std::string_view pattern, std::string_view name) {
  return fnmatch(std::string(pattern).c_str(), std::string(name).c_str(), 0) == 0;
}

}  // namespace

// The words of one line, with the column of each.
class Rules::Line {
 public:
  Line(std::string_view text, uint32_t number) : text_(text), number_(number) {}

  // "" at the end.
  std::string_view Next() {
    while (at_ < text_.size() && IsSpace(text_[at_])) ++at_;
    start_ = at_;
    while (at_ < text_.size() && !IsSpace(text_[at_])) ++at_;
    return text_.substr(start_, at_ - start_);
  }
  std::string Expected(std::string_view what) const {
    return fmt::format("{}:{}: {} expected", number_, start_ + 1, what);
  }

  // The parts of a `use` line behind the word.
  std::string ParseUse(Rule* rule) {
    const std::string_view who = Next();
    if (who != "xtreme" && who != "vma" && who != "os") return Expected("xtreme, vma or os");
    rule->offload = who != "os";
    const std::string_view role = Next();
    size_t index = 0;
    while (index < kRoles.size() && kRoles[index] != role) ++index;
    if (index == kRoles.size()) {
      return Expected("tcp_server, tcp_client, udp_sender, udp_receiver or udp_connect");
    }
    rule->role = static_cast<Role>(index);
    std::string_view ends = Next();
    const size_t first_colon = ends.find(':');
    const size_t second = first_colon == ends.npos ? ends.npos : ends.find(':', first_colon + 1);
    if (!ParseRange(ends.substr(0, second), &rule->first)) {
      return Expected("ADDRESS[/BITS]:PORT[-PORT]");
    }
    if (second != ends.npos) {
      rule->second = Rules::Range{};
      start_ += second + 1;
      if (!ParseRange(ends.substr(second + 1), &*rule->second)) {
        return Expected("ADDRESS[/BITS]:PORT[-PORT]");
      }
    }
    return Next().empty() ? "" : Expected("the end of the line");
  }

 private:
  static bool ParseRange(std::string_view text, Range* range) {
    const size_t colon = text.find(':');
    if (colon == text.npos) return false;
    const std::string_view ports = text.substr(colon + 1);
    return ParsePrefix(text.substr(0, colon), &range->addresses) && ParsePorts(ports, range);
  }
  static bool ParsePrefix(std::string_view text, wire::Ipv4Prefix* prefix) {
    if (text == "*") return true;
    const size_t slash = text.find('/');
    const auto address = wire::ParseIpv4Address(text.substr(0, slash));
    const auto length =
        slash == text.npos ? std::optional<uint32_t>(32) : ParseNumber(text.substr(slash + 1), 32);
    if (!address.ok() || !length) return false;
    *prefix = {*address, static_cast<uint8_t>(*length)};
    return true;
  }
  static bool ParsePorts(std::string_view text, Range* range) {
    if (text == "*") return true;
    const size_t dash = text.find('-');
    const auto first = ParseNumber(text.substr(0, dash), 0xFFFF);
    // VMA's ranges go to 65536, which no port is.
    const auto last = dash == text.npos ? first : ParseNumber(text.substr(dash + 1), 0x10000);
    if (!first || !last || *last < *first) return false;
    range->first_port = static_cast<uint16_t>(*first);
    range->last_port = static_cast<uint16_t>(std::min(*last, 0xFFFFu));
    return true;
  }

  const std::string_view text_;
  const uint32_t number_;
  size_t at_ = 0;
  size_t start_ = 0;
};

std::string Rules::Append(std::string_view text, std::string_view program, std::string_view id) {
  std::vector<Rule> rules;
  bool for_us = true;
  uint32_t number = 0;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view whole = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    Line line(Bare(whole), ++number);
    const std::string_view word = line.Next();
    if (word.empty()) continue;
    if (word == "application-id") {
      const std::string_view name = line.Next();
      if (name.empty()) return line.Expected("a program's name");
      const std::string_view wanted = line.Next();
      if (!line.Next().empty()) return line.Expected("the end of the line");
      for_us = Matches(name, program) && (wanted.empty() || wanted == "*" || wanted == id);
      continue;
    }
    if (word == "log") continue;  // Of VMA's grammar: settings say what is logged.
    if (word != "use") return line.Expected("application-id or use");
    Rule rule{.line = std::string(whole)};
    if (std::string wrong = line.ParseUse(&rule); !wrong.empty()) return wrong;
    if (for_us) rules.push_back(std::move(rule));
  }
  rules_.insert(rules_.end(), rules.begin(), rules.end());
  return "";
}

std::string Rules::Prepend(std::string_view text) {
  Line line(Bare(text), 1);
  if (line.Next() != "use") return line.Expected("use");
  Rule rule{.line = std::string(text)};
  if (std::string wrong = line.ParseUse(&rule); !wrong.empty()) return wrong;
  rules_.insert(rules_.begin(), std::move(rule));
  return "";
}

bool Rules::HasSenders() const {
  return std::ranges::any_of(rules_,
                             [](const Rule& each) { return each.role == Role::kUdpSender; });
}

bool Rules::Offloads(Role role, const wire::Endpoint& first, const wire::Endpoint& second,
                     std::string* line) const {
  for (const Rule& rule : rules_) {
    const bool matches = rule.role == role && rule.first.Contains(first) &&
                         (!rule.second || rule.second->Contains(second));
    if (!matches) continue;
    *line = rule.line;
    return rule.offload;
  }
  return true;
}

}  // namespace xtreme::sockets
