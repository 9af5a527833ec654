// SPDX-License-Identifier: Apache-2.0

#include "benchmarks/hardware/phc.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <utility>
#include <vector>

namespace xtreme::hardware {
namespace {

// The kernel's FD_TO_CLOCKID.
clockid_t ClockOf(int fd) {
  constexpr unsigned kClockFd = 3;
  return static_cast<clockid_t>(~static_cast<unsigned>(fd) << 3 | kClockFd);
}

}  // namespace

std::string PhcOf(const std::string& interface, const std::string& sysfs) {
  std::error_code error;
  std::vector<std::string> names;
  const std::string directory = sysfs + "/class/net/" + interface + "/device/ptp";
  for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
    names.push_back(entry.path().filename());
  }
  const auto first = std::min_element(names.begin(), names.end());
  return first == names.end() ? "" : *first;
}

std::optional<Phc> Phc::Open(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return std::nullopt;
  Phc phc(ClockOf(fd), fd);
  timespec now;
  if (clock_gettime(phc.clock_, &now) != 0) return std::nullopt;
  return phc;
}

Phc::Phc(Phc&& other) noexcept : clock_(other.clock_), fd_(std::exchange(other.fd_, -1)) {}

Phc::~Phc() {
  if (fd_ >= 0) close(fd_);
}

int64_t Phc::Now() const {
  timespec now{};
  clock_gettime(clock_, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

PhcComparison CompareWithPhc(std::span<const PhcSample> samples, int64_t error_ns) {
  PhcComparison comparison;
  if (samples.empty()) return comparison;
  for (const PhcSample& sample : samples) {
    ++comparison.packets;
    // The PHC's time of the packet, as from either look.
    const int64_t from_asked = sample.asked_phc_ns + (sample.packet_ns - sample.asked_host_ns);
    const int64_t from_seen = sample.seen_phc_ns - (sample.seen_host_ns - sample.packet_ns);
    const int64_t early = sample.asked_phc_ns - error_ns - from_seen;
    const int64_t late = from_asked - (sample.seen_phc_ns + error_ns);
    const int64_t off = std::max(early, late);
    comparison.outside += off > 0;
    comparison.worst_ns = std::max(comparison.worst_ns, off);
  }
  const PhcSample& first = samples.front();
  const PhcSample& last = samples.back();
  comparison.offset_ns = last.seen_phc_ns - last.seen_host_ns;
  const auto host_ns = static_cast<double>(last.seen_host_ns - first.asked_host_ns);
  const auto phc_ns = static_cast<double>(last.seen_phc_ns - first.asked_phc_ns);
  if (host_ns > 0) comparison.drift_ppm = (phc_ns - host_ns) / host_ns * 1e6;
  return comparison;
}

}  // namespace xtreme::hardware
