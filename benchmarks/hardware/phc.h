// SPDX-License-Identifier: Apache-2.0
//
// Phc: the clock of a NIC as the kernel shows it (/dev/ptpN), and what it says of the times of
// packets.
//
// Units: nanoseconds; of the clock's own epoch. Threads: one at a time.
// Spec: the kernel's Documentation/driver-api/ptp.rst, "PTP hardware clock user API".

#ifndef XTREME_BENCHMARKS_HARDWARE_PHC_H_
#define XTREME_BENCHMARKS_HARDWARE_PHC_H_

#include <time.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace xtreme::hardware {

// The name of an interface's clock, as "ptp0": the first of its device in `sysfs`; empty: it has
// none.
std::string PhcOf(const std::string& interface, const std::string& sysfs = "/sys");

class Phc {
 public:
  // `path` as "/dev/ptp0". Nothing: it cannot be opened, or it is no clock.
  static std::optional<Phc> Open(const std::string& path);
  // One that is no device's, for tests.
  explicit Phc(clockid_t clock) : clock_(clock) {}
  Phc(Phc&& other) noexcept;
  Phc& operator=(Phc&&) = delete;
  ~Phc();

  int64_t Now() const;

 private:
  Phc(clockid_t clock, int fd) : clock_(clock), fd_(fd) {}

  clockid_t clock_;
  int fd_ = -1;
};

// One packet between two looks at both clocks: when it was asked for, and when it was seen.
struct PhcSample {
  int64_t asked_host_ns = 0;
  int64_t asked_phc_ns = 0;
  int64_t packet_ns = 0;  // Its time, on the host's clock.
  int64_t seen_host_ns = 0;
  int64_t seen_phc_ns = 0;
};

struct PhcComparison {
  uint32_t packets = 0;
  uint32_t outside = 0;     // Not between the looks, on the PHC's scale.
  int64_t worst_ns = 0;     // How far the worst of them was.
  int64_t offset_ns = 0;    // Of the PHC from the host's clock, at the last look.
  double drift_ppm = 0;     // Of the PHC against the host's clock, from the first look to the last.
};

// `error_ns`: what the ring admits of its own conversion.
PhcComparison CompareWithPhc(std::span<const PhcSample> samples, int64_t error_ns);

}  // namespace xtreme::hardware

#endif  // XTREME_BENCHMARKS_HARDWARE_PHC_H_
