// SPDX-License-Identifier: Apache-2.0
//
// Row: one figure, beside its peer's and its goal; and the table and JSON lines that rows become.
//
// Invariant: a row without a value says why. Units: in the row. Threads: values.

#ifndef XTREME_BENCHMARKS_ROW_H_
#define XTREME_BENCHMARKS_ROW_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace xtreme::benchmarks {

// What to reach: an absolute bound, a bound of value / peer, or neither (reported only).
struct Goal {
  std::optional<double> most;
  std::optional<double> most_of_peer;   // value / peer_value <= this.
  std::optional<double> peer_at_least;  // peer_value / value >= this.

  std::string ToString() const;
};

struct Row {
  std::string name;
  std::string unit;
  std::optional<double> value = {};
  std::string peer = {};  // Who, and what it did.
  std::optional<double> peer_value = {};
  Goal goal = {};
  std::string note = {};  // How it was got; without a value: why not.

  // value / peer_value.
  std::optional<double> ratio() const;
  // Nothing when there is no goal, or nothing to hold against it.
  std::optional<bool> met() const;
};

// A row without a value.
Row Unmeasured(std::string name, std::string unit, Goal goal, const absl::Status& why);

// Aligned, for a terminal; notes below the table.
std::string ToTable(const std::vector<Row>& rows);
// One JSON object a line: name, value, unit, peer, peer_value, ratio, goal, met, note.
std::string ToJsonLines(const std::vector<Row>& rows);

}  // namespace xtreme::benchmarks

#endif  // XTREME_BENCHMARKS_ROW_H_
