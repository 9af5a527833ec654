// SPDX-License-Identifier: Apache-2.0

#include "tools/connectx/uverbs/service_thread.h"

#include <signal.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

namespace xtreme::connectx {
namespace {

constexpr int64_t kSecondNs = 1'000'000'000;
// A wire that goes down or comes up announces itself to nobody.
constexpr int64_t kLongestSleepNs = 100'000'000;

// A thread that no signal of the program's is delivered to.
std::thread StartWithoutSignals(std::function<void()> body) {
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread(std::move(body));
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

}  // namespace

ServiceThread::ServiceThread(std::vector<Served> served, const Clock* clock, Options options,
                             std::function<void()> housekeeping)
    : served_(std::move(served)),
      clock_(clock),
      options_(options),
      housekeeping_(std::move(housekeeping)),
      watch_(options.watch_doorbells),
      wake_fd_(static_cast<int>(::syscall(SYS_eventfd2, 0, EFD_CLOEXEC | EFD_NONBLOCK))) {
  sources_.push_back({.fd = wake_fd_, .events = POLLIN});
  sources_.push_back({.fd = watch_.fd(), .events = POLLIN});
  for (const Served& served_device : served_) {
    sources_.push_back({.fd = served_device.device->wire()->fd(), .events = POLLIN});
  }
  thread_ = StartWithoutSignals([this] { Run(); });
}

ServiceThread::~ServiceThread() {
  stop_.store(true);
  Wake();
  thread_.join();
  ::syscall(SYS_close, wake_fd_);
}

void ServiceThread::OnUarMapped(void* address, size_t length) {
  watch_.AddUar(address, length);
  Wake();
}

void ServiceThread::OnClockMapped(void* address, size_t length) {
  watch_.AddClock(address, length);
  Wake();
}

void ServiceThread::OnCommand() { Wake(); }

void ServiceThread::Wake() {
  // Pairs with Sleep: it sets the flag before its last look for work, so either that look sees what
  // the caller did, or the caller sees the flag. An exchange, because a mere load might run ahead
  // of what the caller did.
  if (!asleep_.exchange(false, std::memory_order_seq_cst)) return;
  const uint64_t one = 1;
  ::syscall(SYS_write, wake_fd_, &one, sizeof(one));
}

void ServiceThread::Run() {
  int64_t last_work_ns = clock_->Now();
  while (!stop_.load(std::memory_order_relaxed)) {
    const bool worked = ServiceAll();
    const int64_t now_ns = clock_->Now();
    KeepHouse(now_ns);
    if (worked) {
      last_work_ns = now_ns;
    } else if (options_.spin || now_ns - last_work_ns < options_.spin_ns) {
      __builtin_ia32_pause();
    } else {
      Sleep();
      last_work_ns = clock_->Now();
    }
  }
}

bool ServiceThread::ServiceAll() {
  bool worked = false;
  for (const Served& served : served_) {
    worked |= served.device->Service();
    served.clock_pages->Update();
  }
  counters_stale_ |= worked;
  return worked;
}

void ServiceThread::KeepHouse(int64_t now_ns) {
  if (!counters_stale_ || now_ns < housekeeping_due_ns_) return;
  housekeeping_due_ns_ = now_ns + options_.housekeeping_ns;
  counters_stale_ = false;
  housekeeping_();
}

void ServiceThread::Sleep() {
  asleep_.store(true, std::memory_order_seq_cst);
  const bool watched = watch_.complete();
  if (watched) watch_.Arm();
  // What rang before the pages were protected is found here; what rings from here on waits for us.
  if (!ServiceAll() && ArmWires() && !stop_.load(std::memory_order_relaxed)) {
    if (watched) {
      for (const Served& served : served_) served.clock_pages->Hide();
    }
    sleeps_.fetch_add(1, std::memory_order_relaxed);
    const int64_t longest_ns = watched ? kLongestSleepNs : options_.blind_sleep_ns;
    Block(std::min(NextDeadline(), clock_->Now() + longest_ns));
  }
  asleep_.store(false, std::memory_order_relaxed);
  for (const Served& served : served_) served.clock_pages->Update();
  if (watched) watch_.Disarm();
}

bool ServiceThread::ArmWires() const {
  return std::all_of(served_.begin(), served_.end(),
                     [](const Served& served) { return served.device->wire()->Arm(); });
}

void ServiceThread::Block(int64_t deadline_ns) {
  const int64_t wait_ns = std::max<int64_t>(0, deadline_ns - clock_->Now());
  const timespec timeout{.tv_sec = wait_ns / kSecondNs, .tv_nsec = wait_ns % kSecondNs};
  for (pollfd& source : sources_) source.revents = 0;
  // Raw: a preloaded socket library under test may have its own poll, and would see our
  // descriptors.
  ::syscall(SYS_ppoll, sources_.data(), sources_.size(), &timeout, nullptr, 0);
  uint64_t count;
  if (sources_.front().revents != 0) ::syscall(SYS_read, wake_fd_, &count, sizeof(count));
}

int64_t ServiceThread::NextDeadline() const {
  // Counters that changed are shown though nothing else happens any more.
  int64_t deadline_ns = counters_stale_ ? housekeeping_due_ns_ : kNoDeadline;
  for (const Served& served : served_) {
    deadline_ns = std::min(deadline_ns, served.device->NextDeadline());
  }
  return deadline_ns;
}

}  // namespace xtreme::connectx
