// SPDX-License-Identifier: Apache-2.0

#include "api/sockets/deferred_listeners.h"

#include <mutex>
#include <utility>

#include "api/sockets/socket.h"
#include "api/sockets/waiting.h"

namespace xtreme::sockets {

void DeferredListeners::Add(const std::shared_ptr<Socket>& listener) {
  const bool is_new = listeners_.insert(listener).second;
  if (is_new) Pause(kFirstPause);
  any_.store(true, std::memory_order_relaxed);
}

void DeferredListeners::Pause(base::Nanoseconds pause) {
  pause_ = pause;
  due_.store(SteadyNow() + pause, std::memory_order_relaxed);
}

// Those that are to wait on are still in the list.
void DeferredListeners::OfferIfDue() {
  if (SteadyNow() < due_.load(std::memory_order_relaxed)) return;
  const std::lock_guard lock(*setup_);
  if (SteadyNow() < due_.load(std::memory_order_relaxed)) return;  // Another thread just did.
  std::erase_if(listeners_, [](const std::weak_ptr<Socket>& each) {
    const std::shared_ptr<Socket> listener = each.lock();
    return listener == nullptr || !listener->ServeDeferred();
  });
  any_.store(!listeners_.empty(), std::memory_order_relaxed);
  Pause(std::min(2 * pause_, kLongestPause));
}

}  // namespace xtreme::sockets
