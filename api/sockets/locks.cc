// SPDX-License-Identifier: Apache-2.0

#include "api/sockets/locks.h"

#include "api/sockets/ring_door.h"

namespace xtreme::sockets {

void SetupLock::lock() {
  if (mutex_.try_lock()) return;
  RingDoor* door = newest_->load(std::memory_order_acquire);
  while (door != nullptr && !door->IsInside()) door = door->older();
  if (door == nullptr) return mutex_.lock();
  const uint32_t depth = door->StepOut();
  mutex_.lock();
  door->StepIn(depth);
}

}  // namespace xtreme::sockets
