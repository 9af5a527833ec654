// SPDX-License-Identifier: Apache-2.0
//
// The two pages in which a device shows its time: the hardware clock register, and the parameters
// that turn its cycles into nanoseconds (mlx5_ib_clock_info).
//
// Invariant: a reader that checks the signature before and after sees one consistent set.
// Units: cycles of hca_core_clock (register: big endian), nanoseconds of the device's PHC.
// Thread: Update and Hide have one caller at a time; readers are any program's threads.
// Spec: rdma/mlx5-abi.h; the register is PRM initialization segment, internal_timer.

#ifndef XTREME_TOOLS_CONNECTX_UVERBS_CLOCK_PAGES_H_
#define XTREME_TOOLS_CONNECTX_UVERBS_CLOCK_PAGES_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "tools/connectx/device/clock.h"
#include "tools/connectx/device/device.h"

namespace xtreme::connectx {

class ClockPages {
 public:
  static constexpr size_t kPageBytes = 4096;
  static constexpr uint64_t kRegisterOffset = 0;
  static constexpr uint64_t kParametersOffset = kPageBytes;

  // `device` and `clock` outlive the pages. Null: no memory.
  static std::unique_ptr<ClockPages> Create(const Device* device, const Clock* clock);
  ~ClockPages();
  ClockPages(const ClockPages&) = delete;
  ClockPages& operator=(const ClockPages&) = delete;

  // Memory to map: the register page, then the parameters' page.
  int fd() const { return fd_; }

  // Writes the present time into the register, and every 100 ms new parameters.
  void Update();

  // Takes the register page away until the next Update, so that whoever watches for its absence
  // sees the next read of the clock.
  void Hide();

 private:
  ClockPages(const Device* device, const Clock* clock, int fd, uint8_t* memory);
  void UpdateParameters(int64_t now_ns, uint64_t cycles);

  const Device* const device_;
  const Clock* const clock_;
  const int fd_;
  uint8_t* const memory_;
  int64_t parameters_due_ns_ = 0;
  uint32_t adjustments_ = 0;  // Of the PHC, that the parameters show.
};

}  // namespace xtreme::connectx

#endif  // XTREME_TOOLS_CONNECTX_UVERBS_CLOCK_PAGES_H_
