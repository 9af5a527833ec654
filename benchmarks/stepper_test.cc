// SPDX-License-Identifier: Apache-2.0

#include "benchmarks/stepper.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdlib>

#include "gtest/gtest.h"

namespace xtreme::benchmarks {
namespace {

// Runs what it is given.
template <typename Work>
class Lambda : public Scenario {
 public:
  explicit Lambda(Work work) : work_(work) {}
  uint32_t operations() const override { return 1; }
  void Run() override { work_(); }

 private:
  Work work_;
};

template <typename Work>
Steps StepThrough(Work work) {
  Lambda scenario(work);
  return Stepper().Step(scenario);
}

TEST(Stepper, CountsTheSameTwice) {
  const auto work = [] {
    for (int i = 0; i < 100; ++i) asm volatile("" : "+r"(i));
  };
  const Steps steps = StepThrough(work);
  EXPECT_GT(steps.instructions, 200u);
  EXPECT_LT(steps.instructions, 1'000u);
  EXPECT_EQ(StepThrough(work).instructions, steps.instructions);
}

TEST(Stepper, SeesLockedInstructions) {
  std::atomic<int> counter{0};
  const Steps steps = StepThrough([&counter] {
    for (int i = 0; i < 7; ++i) counter.fetch_add(1);
  });
  EXPECT_EQ(steps.locked, 7u);
}

TEST(Stepper, SeesSystemCalls) {
  EXPECT_EQ(StepThrough([] { syscall(SYS_getppid); }).system_calls, 1u);
}

TEST(Stepper, SeesAllocations) {
  const Steps steps = StepThrough([] {
    void* volatile memory = malloc(100);
    free(memory);
  });
  EXPECT_EQ(steps.allocations, 2u);
}

TEST(Stepper, LeavesTheDeviceOut) {
  std::atomic<int> counter{0};
  const Steps steps = StepThrough([&counter] {
    auto device = [&counter] { counter.fetch_add(1); };
    AsDevice(device);
    counter.fetch_add(1);
  });
  EXPECT_EQ(counter.load(), 2);
  EXPECT_EQ(steps.locked, 1u);
}

TEST(Stepper, CountsDistinctLines) {
  // Lines of their own: nothing else that the steps touch lies in them.
  alignas(64) std::array<char, 64 * 32> bytes = {};
  const auto touch = [&bytes](size_t stride) {
    return StepThrough([&bytes, stride] {
             for (size_t i = 0; i < 32; ++i) {
               std::atomic_ref<char>(bytes[stride * i]).store(1, std::memory_order_relaxed);
             }
           })
        .data_lines;
  };
  EXPECT_EQ(touch(64) - touch(0), 31u);
}

}  // namespace
}  // namespace xtreme::benchmarks
