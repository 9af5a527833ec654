// SPDX-License-Identifier: Apache-2.0
//
// Settings: the one table from which a ring's options are filled, set by name, read from an
// environment, printed, and documented (docs/settings.md).
//
// A setting is one field of xtreme_ring_options: its name is the field's, its variable is XTREME_
// and the name in capitals. Invariant: an unknown name or a value out of form or range changes
// nothing and is an error that names it.
// Threads: any; the table is constant.

#ifndef XTREME_API_NATIVE_SETTINGS_H_
#define XTREME_API_NATIVE_SETTINGS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "api/xtreme.h"

namespace xtreme::api {

inline constexpr std::array<std::string_view, 4> kProfiles = {"latency", "feed", "throughput",
                                                              "dev"};

struct Setting {
  std::string_view name;
  std::string_view help;
  size_t offset;            // Of the field in xtreme_ring_options.
  size_t width;             // Of the field: 1, 2, 4 or 8 bytes; kText: a const char*.
  uint64_t least;
  uint64_t most;
  std::array<uint64_t, kProfiles.size()> defaults;  // In the order of kProfiles.
  bool power_of_two = false;
  std::span<const std::string_view> choices = {};  // Names of 0, 1, ...; empty: a number.
  bool or_none = false;     // 0 is possible, too, and means something else than a number.
  bool cpus = false;        // A text: a list of CPUs.
  const char* unset = "";   // What a text is that nobody gave.

  static constexpr size_t kText = 0;
};

std::span<const Setting> Settings();

// "" or what is wrong, in one sentence. `options` is the whole structure; its size, unless 0,
// stays: fields behind it cannot be set or printed. What is no number of the table stays too:
// texts, user data, the program's memory.
std::string FillProfile(std::string_view profile, xtreme_ring_options* options);
// `value` of a text setting is kept by reference.
std::string Set(std::string_view name, const char* value, xtreme_ring_options* options);
// Applies each "XTREME_NAME=value" of a null-terminated array; XTREME_PROFILE first, wherever it
// stands. Null, as `environ` is after clearenv(3): there is none. Variables of the tools
// (XTREME_CONNECTX_..., XTREME_TEST_..., XTREME_DEMO_...), and of the preloaded library alone, are
// theirs.
std::string SetFromEnvironment(char** environment, xtreme_ring_options* options);
// Every setting out of range, as Set() would refuse it: for options that a program filled itself.
std::string Check(const xtreme_ring_options& options);

// "name = value" lines.
std::string Print(const xtreme_ring_options& options);
// The reference as Markdown: name, variable, values, meaning, default in each profile.
std::string Reference();

}  // namespace xtreme::api

#endif  // XTREME_API_NATIVE_SETTINGS_H_
