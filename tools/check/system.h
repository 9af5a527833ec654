// SPDX-License-Identifier: Apache-2.0
//
// System: the machine as files, below a root that a test replaces.
//
// Reads only. Invariant: what is not there, or not readable, is nothing, never an error.
// Threads: any.

#ifndef XTREME_TOOLS_CHECK_SYSTEM_H_
#define XTREME_TOOLS_CHECK_SYSTEM_H_

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace xtreme::check {

class System {
 public:
  // `root` stands before every path; empty: this machine.
  explicit System(std::string root = "") : root_(std::move(root)) {}

  // All of a file, at most 64 KiB, without white space at its end.
  std::optional<std::string> Read(std::string_view path) const;
  // The number a file begins with.
  std::optional<int64_t> ReadNumber(std::string_view path) const;
  // The CPUs of a list: "0-3,8". A file without one has none.
  std::optional<std::set<int>> ReadCpus(std::string_view path) const;
  // What follows "key" and a separator (a colon, spaces, tabs) at the beginning of a line.
  std::optional<std::string> ReadField(std::string_view path, std::string_view key) const;
  // Names in a directory, sorted.
  std::vector<std::string> List(std::string_view path) const;
  bool Exists(std::string_view path) const;
  // Whether this user may read and write it.
  bool MayUse(std::string_view path) const;

 private:
  std::string At(std::string_view path) const { return root_ + std::string(path); }

  const std::string root_;
};

// Whose device a ring on `interface` uses: that of the interface below a VLAN, else its own.
std::string DeviceInterface(const System& system, const std::string& interface);

// "0-3,8"; nothing for anything else.
std::optional<std::set<int>> ParseCpus(std::string_view text);

}  // namespace xtreme::check

#endif  // XTREME_TOOLS_CHECK_SYSTEM_H_
