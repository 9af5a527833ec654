// SPDX-License-Identifier: Apache-2.0

#include "xtreme/host/cpus.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace xtreme::host {
namespace {

// "3" or "0-3".
std::optional<std::pair<int, int>> ParseRange(std::string_view text) {
  const std::pair<absl::string_view, absl::string_view> ends =
      absl::StrSplit(absl::string_view(text.data(), text.size()), absl::MaxSplits('-', 1));
  int first = 0;
  int last = 0;
  if (!absl::SimpleAtoi(ends.first, &first)) return std::nullopt;
  const bool single = ends.first.size() == text.size();
  if (!single && !absl::SimpleAtoi(ends.second, &last)) return std::nullopt;
  if (single) last = first;
  if (first < 0 || first > last || last >= CpuSet::kMaxCpus) return std::nullopt;
  return std::pair(first, last);
}

}  // namespace

absl::StatusOr<CpuSet> CpuSet::Parse(std::string_view list) {
  CpuSet cpus;
  for (const absl::string_view part :
       absl::StrSplit(absl::string_view(list.data(), list.size()), ',')) {
    const auto range = ParseRange({part.data(), part.size()});
    if (!range.has_value()) {
      return absl::InvalidArgumentError(
          absl::StrCat("list of CPUs: \"", absl::string_view(list.data(), list.size()),
                       "\", must be as \"0-3,8\", each below ", kMaxCpus));
    }
    for (int cpu = range->first; cpu <= range->second; ++cpu) cpus.Add(cpu);
  }
  return cpus;
}

CpuSet CpuSet::OfThisThread() {
  CpuSet cpus;
  sched_getaffinity(0, sizeof(cpus.cpus_), &cpus.cpus_);
  return cpus;
}

CpuSet CpuSet::OfProcess() {
  CpuSet all = OfThisThread();
  std::error_code error;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task", error)) {
    int tid = 0;
    CpuSet cpus;
    // A thread may have ended meanwhile.
    if (!absl::SimpleAtoi(task.path().filename().string(), &tid) ||
        sched_getaffinity(tid, sizeof(cpus.cpus_), &cpus.cpus_) != 0) {
      continue;
    }
    CPU_OR(&all.cpus_, &all.cpus_, &cpus.cpus_);
  }
  return all;
}

std::optional<int> CpuSet::Single() const {
  if (count() != 1) return std::nullopt;
  int cpu = 0;
  while (!Has(cpu)) ++cpu;
  return cpu;
}

std::string CpuSet::ToString() const {
  std::string list;
  for (int first = 0; first < kMaxCpus; ++first) {
    if (!Has(first)) continue;
    int last = first;
    while (last + 1 < kMaxCpus && Has(last + 1)) ++last;
    absl::StrAppend(&list, list.empty() ? "" : ",", first);
    if (last != first) absl::StrAppend(&list, "-", last);
    first = last;
  }
  return list;
}

bool CpuSet::Bind() const { return sched_setaffinity(0, sizeof(cpus_), &cpus_) == 0; }

}  // namespace xtreme::host
