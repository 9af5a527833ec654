// SPDX-License-Identifier: Apache-2.0
//
// ControlThread: the one thread of the process that does slow work for rings.
//
// Whatever may enter the kernel (rules, joins, port leases, statistics of the port, logging) is an
// Operation: a ring's owner starts it without a system call, it runs here, and what came of it goes
// back as a Notice to the ring's Inbox. The thread also serves fds (netlink, ARP replies, watched
// fds, port events) and periodic work (clock samples, port counters).
// Invariant: operations of one starter run in the order they were started; everything on this
// thread runs one at a time. It takes no signals, and runs where the process may, but off the CPUs
// that owners of rings are bound to, as long as that leaves one.
// Units: nanoseconds. Threads: said per function.

#ifndef XTREME_XTREME_ENGINE_CONTROL_THREAD_H_
#define XTREME_XTREME_ENGINE_CONTROL_THREAD_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "stack/base/time.h"
#include "xtreme/engine/inbox.h"
#include "xtreme/host/cpus.h"

namespace xtreme::engine {

// Slow work, owned by the control thread from Start() on.
struct Operation : Notice {
  virtual void Run() = 0;
  // After Run(): it is destroyed there, or passed on.
  virtual void Pass(std::unique_ptr<Operation> /*self*/) {}
};

// An Operation from a callable.
template <typename Work>
std::unique_ptr<Operation> MakeOperation(Work work) {
  struct Callable final : Operation {
    explicit Callable(Work work) : work(std::move(work)) {}
    void Run() override { work(); }
    Work work;
  };
  return std::make_unique<Callable>(std::move(work));
}

class ControlThread {
 public:
  // ResourceExhausted: no fd or no thread is to be had (the message has errno).
  static absl::StatusOr<std::unique_ptr<ControlThread>> Create();

  // Runs what was started, then ends the thread. Not from the control thread.
  ~ControlThread();
  ControlThread(const ControlThread&) = delete;
  ControlThread& operator=(const ControlThread&) = delete;

  // --- Any thread ---

  // Starts an operation without a system call: it runs within kPeriod.
  void Start(std::unique_ptr<Operation> operation) { requests_.Push(std::move(operation)); }
  // The same, and wakes the thread (one system call): for bring-up.
  void StartNow(std::unique_ptr<Operation> operation);
  // Runs `work` on the control thread and waits for it; directly when called there. Bring-up only.
  void RunAndWait(const std::function<void()>& work);

  bool OnThisThread() const { return std::this_thread::get_id() == thread_.get_id(); }

  // --- Control thread only (inside an operation or a callback) ---

  // Calls `ready(events)` whenever `fd` has one of `events` (EPOLLIN...; level triggered, unless
  // EPOLLONESHOT or EPOLLET is among them). Again for the same fd: replaces. False: errno of
  // epoll_ctl (EPERM: an fd that cannot be waited for, such as a file).
  bool Watch(int fd, uint32_t events, std::function<void(uint32_t events)> ready);
  // One watch of many fds, each of which has a number, which nothing is kept for: the number of the
  // watch, of which `ready` is called until EndMany().
  uint32_t StartMany(std::function<void(uint32_t number, uint32_t events)> ready);
  // False: as Watch().
  bool WatchOneOf(uint32_t many, uint32_t number, int fd, uint32_t events);
  void EndMany(uint32_t many) { many_.erase(many); }
  // No call of `ready` comes after it, of one of many but what is under way. Before the fd is
  // closed.
  void Unwatch(int fd);
  void UnwatchOneOf(int fd) { Remove(fd); }

  // Calls `work` about every `period`, until StopPeriodic() with the number returned.
  uint64_t StartPeriodic(base::Nanoseconds period, std::function<void()> work);
  void StopPeriodic(uint64_t number);

  // Runs on `cpus` from now on, in place of those that the process may use at its creation. False:
  // the system leaves none of them.
  bool UseCpus(const host::CpuSet& cpus);
  // A ring's owner is bound to `cpu`. False: there is no other, and the two share it.
  bool KeepOff(int cpu);

  // How long a started operation may wait at most before it is looked at.
  static constexpr base::Nanoseconds kPeriod = base::Milliseconds(1);

 private:
  struct Periodic {
    base::Nanoseconds period;
    base::Nanoseconds due;
    std::function<void()> work;
  };

  ControlThread(int epoll_fd, int wake_fd) : epoll_fd_(epoll_fd), wake_fd_(wake_fd) {}
  bool Bind();
  void Loop();
  // `told`: what ServeFds() is told.
  bool Add(int fd, uint32_t events, uint64_t told);
  void Remove(int fd);
  void ServeFds(int timeout_ms);
  void RunRequests();
  void RunPeriodic();

  const int epoll_fd_;
  const int wake_fd_;
  Inbox requests_;
  std::atomic<bool> stop_{false};

  // Control thread.
  host::CpuSet cpus_;         // It may run on.
  host::CpuSet owners_cpus_;  // Of these, to keep off.
  std::map<int, std::function<void(uint32_t events)>> watched_;
  std::map<uint32_t, std::function<void(uint32_t number, uint32_t events)>> many_;
  uint32_t next_many_ = 1;
  std::map<uint64_t, Periodic> periodic_;
  uint64_t next_periodic_ = 1;

  std::thread thread_;  // Last: it uses all of the above.
};

}  // namespace xtreme::engine

#endif  // XTREME_XTREME_ENGINE_CONTROL_THREAD_H_
