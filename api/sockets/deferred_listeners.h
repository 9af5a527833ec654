// SPDX-License-Identifier: Apache-2.0
//
// DeferredListeners: listeners that no ring may have yet, and that are the kernel's until then:
// another process serves their address, or the kernel has connections there.
//
// A call that waits for anything offers them again when it found nothing: soon, and then ever more
// seldom. So nobody who has something to do pays for it, and who sleeps wakes once a second.
// Threads: any; the list under the setup lock, which is taken inside no door.

#ifndef XTREME_API_SOCKETS_DEFERRED_LISTENERS_H_
#define XTREME_API_SOCKETS_DEFERRED_LISTENERS_H_

#include <algorithm>
#include <atomic>
#include <memory>
#include <set>

#include "api/sockets/locks.h"
#include "stack/base/time.h"

namespace xtreme::sockets {

class Socket;

class DeferredListeners {
 public:
  explicit DeferredListeners(SetupLock* setup) : setup_(setup) {}

  // Under the setup lock.
  void Add(const std::shared_ptr<Socket>& listener);
  // Outside every door: each of them, if it is time.
  void OfferAgain() {
    if (any_.load(std::memory_order_relaxed)) [[unlikely]] OfferIfDue();
  }
  // How long a call may sleep that would until `until`.
  base::Nanoseconds SleepUntil(base::Nanoseconds until) const {
    if (!any_.load(std::memory_order_relaxed)) [[likely]] return until;
    return std::min(until, due_.load(std::memory_order_relaxed));
  }

 private:
  static constexpr base::Nanoseconds kFirstPause = base::Milliseconds(10);
  static constexpr base::Nanoseconds kLongestPause = base::Seconds(1);

  void OfferIfDue();
  void Pause(base::Nanoseconds pause);

  SetupLock* const setup_;
  std::set<std::weak_ptr<Socket>, std::owner_less<>> listeners_;
  base::Nanoseconds pause_ = kFirstPause;
  std::atomic<bool> any_{false};
  std::atomic<base::Nanoseconds> due_{base::kNever};
};

}  // namespace xtreme::sockets

#endif  // XTREME_API_SOCKETS_DEFERRED_LISTENERS_H_
