// SPDX-License-Identifier: Apache-2.0

#include "benchmarks/row.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace xtreme::benchmarks {
namespace {

std::string Number(const std::optional<double>& value) {
  if (!value) return "-";
  const double size = *value < 0 ? -*value : *value;
  if (size != 0 && size < 10) return absl::StrFormat("%.3f", *value);
  return size < 1000 ? absl::StrFormat("%.1f", *value) : absl::StrFormat("%.0f", *value);
}

std::string Verdict(const Row& row) {
  if (const auto met = row.met()) return *met ? "yes" : "NO";
  return row.value ? "" : "?";
}

nlohmann::json Json(const std::optional<double>& value) {
  return value ? nlohmann::json(*value) : nlohmann::json(nullptr);
}

}  // namespace

std::string Goal::ToString() const {
  std::vector<std::string> parts;
  if (most) parts.push_back(absl::StrFormat("<= %g", *most));
  if (most_of_peer) parts.push_back(absl::StrFormat("<= %g x", *most_of_peer));
  if (peer_at_least) parts.push_back(absl::StrFormat("peer >= %g x", *peer_at_least));
  return absl::StrJoin(parts, ", ");
}

std::optional<double> Row::ratio() const {
  if (!value || !peer_value || *peer_value == 0) return std::nullopt;
  return *value / *peer_value;
}

std::optional<bool> Row::met() const {
  std::optional<bool> met;
  const auto require = [&met](bool holds) { met = met.value_or(true) && holds; };
  if (goal.most && value) require(*value <= *goal.most);
  if (goal.most_of_peer && ratio()) require(*ratio() <= *goal.most_of_peer);
  if (goal.peer_at_least && ratio()) require(*ratio() * *goal.peer_at_least <= 1);
  return met;
}

Row Unmeasured(std::string name, std::string unit, Goal goal, const absl::Status& why) {
  return {.name = std::move(name),
          .unit = std::move(unit),
          .goal = std::move(goal),
          .note = absl::StrCat("not measured: ", why.message())};
}

std::string ToTable(const std::vector<Row>& rows) {
  constexpr char kFormat[] = "%-18s %10s %-26s %10s %7s  %-16s %-4s %s\n";
  std::string table = absl::StrFormat(kFormat, "name", "value", "unit", "peer", "ratio", "goal",
                                      "met", "peer is");
  std::string notes;
  for (const Row& row : rows) {
    absl::StrAppendFormat(&table, kFormat, row.name, Number(row.value), row.unit,
                          Number(row.peer_value), Number(row.ratio()), row.goal.ToString(),
                          Verdict(row), row.peer);
    if (!row.note.empty()) {
      absl::StrAppend(&notes, row.name, " [", row.unit, "]: ", row.note, "\n");
    }
  }
  return absl::StrCat(table, "\n", notes);
}

std::string ToJsonLines(const std::vector<Row>& rows) {
  std::string lines;
  for (const Row& row : rows) {
    const auto met = row.met();
    const nlohmann::json line = {{"name", row.name},
                                 {"value", Json(row.value)},
                                 {"unit", row.unit},
                                 {"peer", row.peer},
                                 {"peer_value", Json(row.peer_value)},
                                 {"ratio", Json(row.ratio())},
                                 {"goal", row.goal.ToString()},
                                 {"met", met ? nlohmann::json(*met) : nlohmann::json(nullptr)},
                                 {"note", row.note}};
    absl::StrAppend(&lines, line.dump(), "\n");
  }
  return lines;
}

}  // namespace xtreme::benchmarks
