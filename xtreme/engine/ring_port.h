// SPDX-License-Identifier: Apache-2.0
//
// RingPorts: the ports that a ring may be on: its own, and the backup if it has one.
//
// Threads: the ring's owner, but for bring-up.

#ifndef XTREME_XTREME_ENGINE_RING_PORT_H_
#define XTREME_XTREME_ENGINE_RING_PORT_H_

#include <cstdint>
#include <vector>

#include "xtreme/engine/link_state.h"
#include "xtreme/nic/queue_pair.h"

namespace xtreme::nic {
class Nic;
}

namespace xtreme::engine {

struct RingPort {
  nic::Nic* nic = nullptr;
  uint32_t ifindex = 0;
  nic::DeviceClock clock;  // As last told.
  LinkState link;
  bool pulled = false;  // The device is gone: it completes nothing any more, and makes no queues.
};

struct RingPorts {
  RingPort& current() { return all[in_use]; }
  const RingPort& current() const { return all[in_use]; }

  std::vector<RingPort> all;  // The ring's own, then its backup.
  uint32_t in_use = 0;
};

}  // namespace xtreme::engine

#endif  // XTREME_XTREME_ENGINE_RING_PORT_H_
