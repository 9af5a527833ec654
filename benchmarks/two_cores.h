// SPDX-License-Identifier: Apache-2.0
//
// Two cores: a thread bound to each, and how long a cache line takes between them.
//
// Invariant: what measures runs on core 0, what stands for devices on core 1.
// Threads: in the names.

#ifndef XTREME_BENCHMARKS_TWO_CORES_H_
#define XTREME_BENCHMARKS_TWO_CORES_H_

#include <pthread.h>
#include <sched.h>

#include <atomic>
#include <cstdint>
#include <thread>

#include "benchmarks/timing.h"

namespace xtreme::benchmarks {

// Binds the calling thread to one core until the end of the scope.
class Pinned {
 public:
  explicit Pinned(int core) {
    sched_getaffinity(0, sizeof(before_), &before_);
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    sched_setaffinity(0, sizeof(one), &one);
  }
  ~Pinned() { sched_setaffinity(0, sizeof(before_), &before_); }
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;

 private:
  cpu_set_t before_;
};

// A thread on core 1 that runs `work` over and over until this goes.
class Spinner {
 public:
  template <typename Work>
  explicit Spinner(Work work)
      : thread_([this, work] {
          const Pinned pinned(1);
          while (!stop_.load(std::memory_order_relaxed)) work();
        }) {}
  ~Spinner() {
    stop_.store(true, std::memory_order_relaxed);
    thread_.join();
  }

 private:
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

// Nanoseconds for a line to go to the other core and come back.
inline double CacheLineRoundTrip(uint32_t rounds, double ticks_per_ns) {
  struct alignas(128) Line {
    std::atomic<uint32_t> value{0};
  };
  Line there, back;
  const Spinner echo([&] {
    const uint32_t value = there.value.load(std::memory_order_acquire);
    if (value != back.value.load(std::memory_order_relaxed)) {
      back.value.store(value, std::memory_order_release);
    }
  });
  const Pinned pinned(0);
  const uint64_t start = ReadTicks();
  for (uint32_t i = 1; i <= rounds; ++i) {
    there.value.store(i, std::memory_order_release);
    while (back.value.load(std::memory_order_acquire) != i) {
    }
  }
  return static_cast<double>(ReadTicks() - start) / ticks_per_ns / rounds;
}

}  // namespace xtreme::benchmarks

#endif  // XTREME_BENCHMARKS_TWO_CORES_H_
