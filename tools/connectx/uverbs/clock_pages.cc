// SPDX-License-Identifier: Apache-2.0

#include "tools/connectx/uverbs/clock_pages.h"

#include <endian.h>
#include <fcntl.h>
#include <rdma/mlx5-abi.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>

namespace xtreme::connectx {
namespace {

// The kernel's mlx5 driver reads 41 bits of the counter and refreshes well within half of them.
constexpr uint64_t kCycleMask = (uint64_t{1} << 41) - 1;
constexpr int64_t kParameterPeriodNs = 100'000'000;
// Leaves a multiplier of 32 bits for clocks from 1 MHz to 1 GHz and above.
constexpr uint32_t kShift = 21;

template <typename T>
void Store(T& field, T value) {
  // Release, so that it is seen after the signature that says an update is under way.
  std::atomic_ref<T>(field).store(value, std::memory_order_release);
}

}  // namespace

std::unique_ptr<ClockPages> ClockPages::Create(const Device* device, const Clock* clock) {
  const int fd = ::memfd_create("connectx-clock", MFD_CLOEXEC);
  if (fd < 0) return nullptr;
  void* memory = MAP_FAILED;
  if (::ftruncate(fd, 2 * kPageBytes) == 0) {
    memory = ::mmap(nullptr, 2 * kPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  }
  if (memory == MAP_FAILED) {
    ::close(fd);
    return nullptr;
  }
  return std::unique_ptr<ClockPages>(
      new ClockPages(device, clock, fd, static_cast<uint8_t*>(memory)));
}

ClockPages::ClockPages(const Device* device, const Clock* clock, int fd, uint8_t* memory)
    : device_(device), clock_(clock), fd_(fd), memory_(memory) {
  Update();
}

ClockPages::~ClockPages() {
  ::munmap(memory_, 2 * kPageBytes);
  ::close(fd_);
}

void ClockPages::Update() {
  const int64_t now_ns = clock_->Now();
  const uint64_t cycles = device_->CyclesAt(now_ns);
  // Readers take the high word, the low word and the high word again; one store of eight bytes
  // keeps that protocol.
  Store(*reinterpret_cast<uint64_t*>(memory_ + kRegisterOffset), htobe64(cycles));
  const uint32_t adjustments = device_->clock_adjustments();
  if (now_ns < parameters_due_ns_ && adjustments == adjustments_) return;
  adjustments_ = adjustments;
  UpdateParameters(now_ns, cycles);
}

void ClockPages::UpdateParameters(int64_t now_ns, uint64_t cycles) {
  parameters_due_ns_ = now_ns + kParameterPeriodNs;
  auto& page = *reinterpret_cast<mlx5_ib_clock_info*>(memory_ + kParametersOffset);
  std::atomic_ref<uint32_t> signature(page.sign);
  const uint32_t before = signature.load(std::memory_order_relaxed);
  signature.store(before | MLX5_IB_CLOCK_INFO_KERNEL_UPDATING, std::memory_order_relaxed);
  const uint64_t khz = device_->options().hca_core_clock_khz;
  const uint64_t nominal = (uint64_t{1'000'000} << kShift) / khz;
  const int64_t correction = static_cast<int64_t>(nominal) * device_->phc_parts_per_billion() /
                             1'000'000'000;
  Store<__u64>(page.nsec, static_cast<uint64_t>(device_->PhcAt(now_ns)));
  Store<__u64>(page.cycles, cycles & kCycleMask);
  Store<__u64>(page.frac, 0);
  Store<__u32>(page.mult, static_cast<uint32_t>(static_cast<int64_t>(nominal) + correction));
  Store<__u32>(page.shift, kShift);
  Store<__u64>(page.mask, kCycleMask);
  Store<__u64>(page.overflow_period, kParameterPeriodNs);
  signature.store((before | MLX5_IB_CLOCK_INFO_KERNEL_UPDATING) + 1, std::memory_order_release);
}

void ClockPages::Hide() {
  ::fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, kRegisterOffset, kPageBytes);
}

}  // namespace xtreme::connectx
