// SPDX-License-Identifier: Apache-2.0
//
// The thread that is the silicon of all devices of a process when nobody steps them by hand.
//
// Adaptive: it spins for a moment after the last work, then sleeps on doorbells, wires and
// deadlines.
// Spinning: it never sleeps. In both it keeps the clock pages and the port counters fresh.
// Invariant: it does not sleep while there is work that nothing would announce.
// Units: nanoseconds of the devices' real clock.
// Thread: its own; the observer's calls come from any.

#ifndef XTREME_TOOLS_CONNECTX_UVERBS_SERVICE_THREAD_H_
#define XTREME_TOOLS_CONNECTX_UVERBS_SERVICE_THREAD_H_

#include <poll.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include "tools/connectx/uverbs/clock_pages.h"
#include "tools/connectx/uverbs/doorbell_watch.h"
#include "tools/connectx/uverbs/uverbs.h"

namespace xtreme::connectx {

class ServiceThread final : public DeviceObserver {
 public:
  struct Served {
    Device* device = nullptr;
    ClockPages* clock_pages = nullptr;
  };

  struct Options {
    bool spin = false;
    bool watch_doorbells = true;          // False: as where the system refuses userfaultfd.
    int64_t spin_ns = 50'000;             // How long it stays awake without work.
    int64_t blind_sleep_ns = 500'000;     // Longest sleep where doorbells cannot wake it.
    int64_t housekeeping_ns = 10'000'000; // Between two refreshes of the counters.
  };

  // `clock` is the devices'; `housekeeping` writes the counters. All outlive the thread.
  ServiceThread(std::vector<Served> served, const Clock* clock, Options options,
                std::function<void()> housekeeping);
  // Stops it and waits.
  ~ServiceThread() override;

  void OnUarMapped(void* address, size_t length) override;
  void OnClockMapped(void* address, size_t length) override;
  void OnCommand() override;

  // How often it went to sleep.
  uint64_t sleeps() const { return sleeps_.load(std::memory_order_relaxed); }

 private:
  void Run();
  bool ServiceAll();
  void KeepHouse(int64_t now_ns);
  void Sleep();
  // False: a wire has frames.
  bool ArmWires() const;
  // Blocks until a doorbell, a wire, Wake or `deadline_ns`.
  void Block(int64_t deadline_ns);
  int64_t NextDeadline() const;
  void Wake();

  const std::vector<Served> served_;
  const Clock* const clock_;
  const Options options_;
  const std::function<void()> housekeeping_;
  DoorbellWatch watch_;
  const int wake_fd_;
  std::vector<pollfd> sources_;
  int64_t housekeeping_due_ns_ = 0;
  bool counters_stale_ = true;  // Something has happened since the last housekeeping.
  std::atomic<bool> stop_{false};
  std::atomic<bool> asleep_{false};
  std::atomic<uint64_t> sleeps_{0};
  std::thread thread_;  // Last: it starts when all else is there.
};

}  // namespace xtreme::connectx

#endif  // XTREME_TOOLS_CONNECTX_UVERBS_SERVICE_THREAD_H_
