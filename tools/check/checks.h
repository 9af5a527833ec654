// SPDX-License-Identifier: Apache-2.0
//
// What has to be right before a ring is opened, and what costs time if it is not: one function a
// question, each of the machine's files and of what the device says.
//
// Threads: any; pure but for reading files.

#ifndef XTREME_TOOLS_CHECK_CHECKS_H_
#define XTREME_TOOLS_CHECK_CHECKS_H_

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tools/check/device_facts.h"
#include "tools/check/system.h"

namespace xtreme::check {

// kFail: a ring cannot be opened, or loses packets. kWarn: it is slower or jittery.
enum class Verdict { kPass, kWarn, kFail };

struct Result {
  Verdict verdict = Verdict::kPass;
  std::string finding;
  std::string fix;  // Empty: there is nothing to fix.
};

// What is asked about.
struct Target {
  std::string interface;
  std::optional<int> cpu;  // Of the thread that will own the ring.
  DeviceFacts device;
};

struct Check {
  std::string_view name;
  Result (*run)(const System& system, const Target& target);
};

// Of the host: kernel, permissions, memory, CPUs, clocks.
std::span<const Check> HostChecks();
// Of the NIC: device, port, bus, what it offers.
std::span<const Check> NicChecks();

struct NamedResult {
  std::string_view name;
  Result result;
};
// All of them, the NIC's first.
std::vector<NamedResult> RunChecks(const System& system, const Target& target);

inline Result Pass(std::string finding) { return {Verdict::kPass, std::move(finding), ""}; }
inline Result Warn(std::string finding, std::string fix) {
  return {Verdict::kWarn, std::move(finding), std::move(fix)};
}
inline Result Fail(std::string finding, std::string fix) {
  return {Verdict::kFail, std::move(finding), std::move(fix)};
}

}  // namespace xtreme::check

#endif  // XTREME_TOOLS_CHECK_CHECKS_H_
