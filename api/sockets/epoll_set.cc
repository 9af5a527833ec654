// SPDX-License-Identifier: Apache-2.0

#include "api/sockets/epoll_set.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "api/sockets/faces.h"
#include "api/sockets/kernel_calls.h"
#include "api/sockets/ring_door.h"
#include "api/sockets/waiting.h"

namespace xtreme::sockets {
namespace {

constexpr uint32_t kAlwaysTold = EPOLLERR | EPOLLHUP;

}  // namespace

EpollSet::EpollSet(Faces* faces, int fd) : faces_(faces), fd_(fd) {}

EpollSet::~EpollSet() {
  // Nobody else has the set any more; a target that ends meanwhile forgets us first.
  std::vector<std::shared_ptr<Item>> items;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const auto& [fd, item] : items_) items.push_back(item);
  }
  for (const auto& item : items) {
    if (item->target != nullptr) item->target->Detach(item.get());
  }
}

int EpollSet::Place(Item* item) {
  const bool wanted = item->target == nullptr || item->target->door() == nullptr ||
                      item->target->KernelToo();
  if (wanted == item->in_kernel) return 0;
  item->in_kernel = wanted;
  const int operation = wanted ? EPOLL_CTL_ADD : EPOLL_CTL_DEL;
  return Kernel().epoll_ctl(fd_, operation, item->fd, &item->event) == 0 ? 0 : -errno;
}

void EpollSet::QueueIfReady(Item* item) {
  const bool ready = item->target != nullptr && item->target->ServedHere() &&
                     (item->target->mask() & (item->event.events | kAlwaysTold)) != 0;
  if (!ready || item->queued || item->disabled) return;
  item->queued = true;
  ready_.push_back(item);
}

void EpollSet::OnTold(Item* item, uint32_t events) {
  bool ready = false;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (item->target == nullptr) return;
    Place(item);
    if ((events & (item->event.events | kAlwaysTold)) != 0) QueueIfReady(item);
    ready = item->queued;
  }
  if (ready) Change(EPOLLIN, 0, EPOLLIN);
}

// The descriptor is about to be closed; the kernel's set forgets it by itself.
void EpollSet::OnGone(Item* item) {
  const std::lock_guard<std::mutex> lock(mutex_);
  item->target = nullptr;
  if (item->queued) std::erase(ready_, item);
  const auto found = items_.find(item->fd);
  if (found != items_.end() && found->second.get() == item) items_.erase(found);
}

int EpollSet::Control(int operation, int fd, const epoll_event* event,
                      std::shared_ptr<Pollable> target) {
  std::shared_ptr<Item> item;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = items_.find(fd);
    if (found != items_.end()) item = found->second;
  }
  if (target == nullptr && item == nullptr) {
    epoll_event copy = event == nullptr ? epoll_event{} : *event;
    return Kernel().epoll_ctl(fd_, operation, fd, event == nullptr ? nullptr : &copy) == 0 ? 0
                                                                                         : -errno;
  }
  if (operation != EPOLL_CTL_DEL && event == nullptr) return -EFAULT;
  switch (operation) {
    case EPOLL_CTL_ADD: return item != nullptr ? -EEXIST : Add(fd, *event, target);
    case EPOLL_CTL_MOD: return item == nullptr ? -ENOENT : Modify(item.get(), *event);
    case EPOLL_CTL_DEL: return item == nullptr ? -ENOENT : Remove(fd);
    default: return -EINVAL;
  }
}

int EpollSet::Add(int fd, const epoll_event& event, const std::shared_ptr<Pollable>& target) {
  auto item = std::make_shared<Item>();
  item->set = this;
  item->fd = fd;
  item->target = target.get();
  item->event = event;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!items_.emplace(fd, item).second) return -EEXIST;
  }
  target->Attach(item.get());
  int placed = 0;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    placed = Place(item.get());
    if (placed == 0) QueueIfReady(item.get());
    if (placed != 0) items_.erase(fd);
  }
  if (placed != 0) target->Detach(item.get());
  return placed;
}

int EpollSet::Modify(Item* item, const epoll_event& event) {
  const std::lock_guard<std::mutex> lock(mutex_);
  item->event = event;
  item->disabled = false;
  if (item->in_kernel) {
    return Kernel().epoll_ctl(fd_, EPOLL_CTL_MOD, item->fd, &item->event) == 0 ? 0 : -errno;
  }
  QueueIfReady(item);
  return 0;
}

int EpollSet::Remove(int fd) {
  std::shared_ptr<Item> item;
  Pollable* target = nullptr;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = items_.find(fd);
    if (found == items_.end()) return -ENOENT;
    item = found->second;
    items_.erase(found);
    if (item->queued) std::erase(ready_, item.get());
    if (item->in_kernel) Kernel().epoll_ctl(fd_, EPOLL_CTL_DEL, fd, nullptr);
    target = std::exchange(item->target, nullptr);
  }
  if (target != nullptr) target->Detach(item.get());
  return 0;
}

int EpollSet::CollectOnce(epoll_event* events, int most) {
  const std::lock_guard<std::mutex> lock(mutex_);
  int count = 0;
  for (size_t looks = ready_.size(); looks > 0 && count < most; --looks) {
    Item* const item = ready_.front();
    ready_.pop_front();
    item->queued = false;
    const uint32_t told = item->target->Look() & (item->event.events | kAlwaysTold);
    if (told == 0 || item->disabled || !item->target->ServedHere()) continue;
    events[count].events = told;
    events[count].data = item->event.data;
    ++count;
    if ((item->event.events & EPOLLONESHOT) != 0) {
      item->disabled = true;
    } else if ((item->event.events & EPOLLET) == 0) {
      item->queued = true;
      ready_.push_back(item);
    }
  }
  return count;
}

// Both halves; who comes first changes, so that neither starves.
int EpollSet::Collect(epoll_event* events, int most) {
  kernel_first_ = !kernel_first_;
  int count = 0;
  for (const bool kernel : {kernel_first_, !kernel_first_}) {
    if (count == most) break;
    const int more = kernel ? Kernel().epoll_wait(fd_, events + count, most - count, 0)
                            : CollectOnce(events + count, most - count);
    if (more < 0) return -errno;
    count += more;
  }
  return count;
}

int EpollSet::Wait(epoll_event* events, int most, base::Nanoseconds limit,
                   const sigset_t* signals) {
  if (most <= 0) return -EINVAL;
  const bool waits = limit != base::Nanoseconds(0);
  const base::Nanoseconds start = waits ? SteadyNow() : base::Nanoseconds(0);
  const base::Nanoseconds until = base::DeadlineAfter(start, limit);
  const int64_t poll_us = faces_->settings().select_poll_us;
  const base::Nanoseconds poll_until =
      poll_us < 0 ? base::kNever : start + base::Microseconds(poll_us);
  std::vector<RingDoor*> doors;
  for (;;) {
    doors.clear();
    AddDoors(&doors);
    for (RingDoor* door : doors) {
      const RingDoor::Entry entry(door);
      door->Progress();
    }
    const int count = Collect(events, most);
    if (count != 0 || !waits) return count;
    const base::Nanoseconds now = SteadyNow();
    if (now >= until) return 0;
    if (now < poll_until && !doors.empty()) continue;
    Sleeper::OfThread().Rest();
    const Attachment attachment(this, &Sleeper::OfThread());
    if ((Look() & EPOLLIN) != 0) continue;
    pollfd own[] = {{.fd = fd_, .events = POLLIN}};
    const int slept = SleepOnRings(doors, own, until, signals);
    if (slept < 0) return slept;
  }
}

uint32_t EpollSet::Look() {
  const std::lock_guard<std::mutex> lock(mutex_);
  const bool ready = std::any_of(ready_.begin(), ready_.end(), [](const Item* item) {
    return item->target != nullptr && !item->disabled &&
           (item->target->mask() & (item->event.events | kAlwaysTold)) != 0;
  });
  return ready ? EPOLLIN | EPOLLRDNORM : 0;
}

void EpollSet::AddDoors(std::vector<RingDoor*>* doors) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& [fd, item] : items_) {
    if (item->target != nullptr) item->target->AddDoors(doors);
  }
}

std::vector<Pollable*> EpollSet::Members() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<Pollable*> members;
  for (const auto& [fd, item] : items_) {
    if (item->target != nullptr) members.push_back(item->target);
  }
  return members;
}

}  // namespace xtreme::sockets
