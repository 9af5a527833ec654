// SPDX-License-Identifier: Apache-2.0

#include "xtreme/engine/control_thread.h"

#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <future>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace xtreme::engine {
namespace {

base::Nanoseconds MonotonicNow() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return base::Seconds(now.tv_sec) + base::Nanoseconds(now.tv_nsec);
}

// What epoll tells of an fd: which watch of many it is of, and its number there; of none, itself.
constexpr uint32_t kAlone = 0;
constexpr uint64_t Told(uint32_t many, uint32_t number) { return uint64_t{many} << 32 | number; }

void Wake(int wake_fd) {
  const uint64_t one = 1;
  // EAGAIN: the counter is full of wake-ups already.
  [[maybe_unused]] const ssize_t written = write(wake_fd, &one, sizeof one);
}

}  // namespace

absl::StatusOr<std::unique_ptr<ControlThread>> ControlThread::Create() {
  const int epoll_fd = epoll_create1(EPOLL_CLOEXEC);
  const int wake_fd = epoll_fd < 0 ? -1 : eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (wake_fd < 0) {
    const int error = errno;
    if (epoll_fd >= 0) close(epoll_fd);
    return absl::ResourceExhaustedError(
        absl::StrCat("create control thread: no fd, ", std::generic_category().message(error)));
  }
  std::unique_ptr<ControlThread> control(new ControlThread(epoll_fd, wake_fd));
  control->cpus_ = host::CpuSet::OfProcess();
  epoll_event event = {.events = EPOLLIN,
                       .data = {.u64 = Told(kAlone, static_cast<uint32_t>(wake_fd))}};
  epoll_ctl(epoll_fd, EPOLL_CTL_ADD, wake_fd, &event);
  // The application's signals are the application's: the new thread inherits a full mask.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    control->thread_ = std::thread(&ControlThread::Loop, control.get());
  } catch (const std::system_error& error) {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return absl::ResourceExhaustedError(absl::StrCat("create control thread: ", error.what()));
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_setname_np(control->thread_.native_handle(), "xtreme-control");
  return control;
}

ControlThread::~ControlThread() {
  if (thread_.joinable()) {
    stop_.store(true, std::memory_order_release);
    Wake(wake_fd_);
    thread_.join();
  }
  close(wake_fd_);
  close(epoll_fd_);
}

void ControlThread::StartNow(std::unique_ptr<Operation> operation) {
  Start(std::move(operation));
  Wake(wake_fd_);
}

void ControlThread::RunAndWait(const std::function<void()>& work) {
  if (OnThisThread()) return work();
  std::promise<void> done;
  StartNow(MakeOperation([&] {
    work();
    done.set_value();
  }));
  done.get_future().wait();
}

bool ControlThread::Add(int fd, uint32_t events, uint64_t told) {
  epoll_event event = {.events = events, .data = {.u64 = told}};
  return epoll_ctl(epoll_fd_, EPOLL_CTL_MOD, fd, &event) == 0 ||
         (errno == ENOENT && epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, fd, &event) == 0);
}

void ControlThread::Remove(int fd) { epoll_ctl(epoll_fd_, EPOLL_CTL_DEL, fd, nullptr); }

bool ControlThread::Watch(int fd, uint32_t events, std::function<void(uint32_t)> ready) {
  if (!Add(fd, events, Told(kAlone, static_cast<uint32_t>(fd)))) return false;
  watched_[fd] = std::move(ready);
  return true;
}

uint32_t ControlThread::StartMany(std::function<void(uint32_t, uint32_t)> ready) {
  const uint32_t many = next_many_++;
  many_[many] = std::move(ready);
  return many;
}

bool ControlThread::WatchOneOf(uint32_t many, uint32_t number, int fd, uint32_t events) {
  return Add(fd, events, Told(many, number));
}

void ControlThread::Unwatch(int fd) {
  if (watched_.erase(fd) != 0) Remove(fd);
}

uint64_t ControlThread::StartPeriodic(base::Nanoseconds period, std::function<void()> work) {
  const uint64_t number = next_periodic_++;
  periodic_[number] = {period, MonotonicNow() + period, std::move(work)};
  return number;
}

void ControlThread::StopPeriodic(uint64_t number) { periodic_.erase(number); }

bool ControlThread::UseCpus(const host::CpuSet& cpus) {
  const host::CpuSet before = std::exchange(cpus_, cpus);
  if (Bind()) return true;
  cpus_ = before;
  return false;
}

bool ControlThread::KeepOff(int cpu) {
  owners_cpus_.Add(cpu);
  return Bind() && !host::CpuSet::OfThisThread().Has(cpu);
}

bool ControlThread::Bind() {
  host::CpuSet left = cpus_;
  for (int cpu = 0; cpu < host::CpuSet::kMaxCpus; ++cpu) {
    if (owners_cpus_.Has(cpu)) left.Remove(cpu);
  }
  return left.empty() ? cpus_.Bind() : left.Bind();
}

void ControlThread::Loop() {
  // Of whoever made it: a thread that is bound to one CPU for its rings, perhaps.
  Bind();
  constexpr auto kTimeoutMs = static_cast<int>(kPeriod / base::Milliseconds(1));
  for (;;) {
    const bool last = stop_.load(std::memory_order_acquire);
    if (requests_.HasAny()) RunRequests();
    if (last) return;
    RunPeriodic();
    ServeFds(kTimeoutMs);
  }
}

void ControlThread::ServeFds(int timeout_ms) {
  std::array<epoll_event, 32> events;
  const int count = epoll_wait(epoll_fd_, events.data(), events.size(), timeout_ms);
  for (int i = 0; i < count; ++i) {
    const auto many = static_cast<uint32_t>(events[i].data.u64 >> 32);
    const auto number = static_cast<uint32_t>(events[i].data.u64);
    if (many != kAlone) {
      const auto found = many_.find(many);
      if (found != many_.end()) found->second(number, events[i].events);
      continue;
    }
    const auto fd = static_cast<int>(number);
    if (fd == wake_fd_) {
      uint64_t wakes;
      [[maybe_unused]] const ssize_t got = read(wake_fd_, &wakes, sizeof wakes);
      continue;
    }
    // A callback before this one may have unwatched the fd; this one may unwatch itself.
    const auto found = watched_.find(fd);
    if (found == watched_.end()) continue;
    const std::function<void(uint32_t)> ready = found->second;
    ready(events[i].events);
  }
}

void ControlThread::RunRequests() {
  requests_.TakeAll([](std::unique_ptr<Notice> request) {
    std::unique_ptr<Operation> operation(static_cast<Operation*>(request.release()));
    operation->Run();
    Operation& done = *operation;
    done.Pass(std::move(operation));
  });
}

void ControlThread::RunPeriodic() {
  const base::Nanoseconds now = MonotonicNow();
  std::vector<uint64_t> due;
  for (const auto& [number, periodic] : periodic_) {
    if (periodic.due <= now) due.push_back(number);
  }
  for (uint64_t number : due) {
    const auto found = periodic_.find(number);
    if (found == periodic_.end()) continue;  // Stopped by one before it.
    found->second.due = now + found->second.period;
    const std::function<void()> work = found->second.work;
    work();
  }
}

}  // namespace xtreme::engine
