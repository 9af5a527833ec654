// SPDX-License-Identifier: Apache-2.0

#include "xtreme/engine/fd_watches.h"

#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <utility>

#include "xtreme/engine/control_thread.h"

namespace xtreme::engine {
namespace {

constexpr uint32_t kAlwaysTold = EPOLLERR | EPOLLHUP;

}  // namespace

void FdWatches::Watch(ControlThread& control, const void* who, int fd, uint32_t events,
                      Tell tell) {
  List& list = by_fd_[fd];
  std::erase_if(list, [who](const Waiting& each) { return each.who == who; });
  list.push_back({who, events, std::move(tell)});
  Arm(control, fd);
}

void FdWatches::End(ControlThread& control, const void* who, int fd) {
  const auto found = by_fd_.find(fd);
  if (found == by_fd_.end()) return;
  std::erase_if(found->second, [who](const Waiting& each) { return each.who == who; });
  Arm(control, fd);
}

void FdWatches::EndAll(ControlThread& control, const void* who) {
  for (auto at = by_fd_.begin(); at != by_fd_.end();) End(control, who, (at++)->first);
}

// For what is waited for now. What the kernel refuses everybody is told.
void FdWatches::Arm(ControlThread& control, int fd) {
  const auto found = by_fd_.find(fd);
  uint32_t events = EPOLLONESHOT;
  for (const Waiting& each : found->second) events |= each.events;
  if (found->second.empty()) {
    control.Unwatch(fd);
    by_fd_.erase(found);
    return;
  }
  const auto ready = [this, &control, fd](uint32_t now) { OnReady(control, fd, now); };
  if (control.Watch(fd, events, ready)) return;
  const int error = errno;
  control.Unwatch(fd);
  const List refused = std::move(found->second);
  by_fd_.erase(found);
  for (const Waiting& each : refused) each.tell(0, error);
}

void FdWatches::OnReady(ControlThread& control, int fd, uint32_t ready) {
  const auto found = by_fd_.find(fd);
  if (found == by_fd_.end()) return;
  const auto waits = [ready](const Waiting& each) {
    return (ready & (each.events | kAlwaysTold)) == 0;
  };
  List& list = found->second;
  const auto told = std::stable_partition(list.begin(), list.end(), waits);
  const List now(std::make_move_iterator(told), std::make_move_iterator(list.end()));
  list.erase(told, list.end());
  Arm(control, fd);
  for (const Waiting& each : now) each.tell(ready & (each.events | kAlwaysTold), 0);
}

}  // namespace xtreme::engine
