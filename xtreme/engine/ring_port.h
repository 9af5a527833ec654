// SPDX-License-Identifier: Apache-2.0
//
// RingPorts: the ports that a ring may be on: its own, and the backup if it has one.
//
// Threads: the ring's owner, but for bring-up.

#ifndef XTREME_XTREME_ENGINE_RING_PORT_H_
#define XTREME_XTREME_ENGINE_RING_PORT_H_

#include <cstdint>
#include <vector>

#include "stack/base/time.h"
#include "xtreme/engine/link_state.h"
#include "xtreme/engine/ring_timer.h"
#include "xtreme/nic/queue_pair.h"

namespace xtreme::nic {
class Nic;
}

namespace xtreme::engine {

// So long TCP's rules stay at a port that the ring left: switches and peers learn of an address's
// new place from what is sent from there, at once, or when their own entries are looked at again.
inline constexpr base::Nanoseconds kLeftRulesStay = base::Seconds(10);

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
  bool unannounced = false;  // The network is still to hear where the addresses are now.
  RingTimer left_rules{RingTimer::Use::kLeftRules};  // Armed while some stay at the other port.
};

}  // namespace xtreme::engine

#endif  // XTREME_XTREME_ENGINE_RING_PORT_H_
