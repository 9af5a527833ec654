// SPDX-License-Identifier: Apache-2.0
//
// The end of a process that leaves rings open: the peers of their connections are told by RST.
//
// A ring is its owner's also then, and the owner may run on until the process is gone: it is asked,
// by a notice that its next poll takes. Nothing is freed. Threads: said per function.

#ifndef XTREME_XTREME_ENGINE_RING_EXIT_H_
#define XTREME_XTREME_ENGINE_RING_EXIT_H_

#include <atomic>
#include <memory>

#include "stack/base/time.h"

namespace xtreme::engine {

class Ring;

// Resets the peers of all connections, and returns when that has left the NIC, or when the
// `patience` is over. Nothing can be sent by them afterwards. The ring's owner.
void ResetPeers(Ring& ring, base::Nanoseconds patience);

// Asks the owner to. True from when it did. Any thread, while the ring is open.
std::shared_ptr<const std::atomic<bool>> AskToResetPeers(Ring& ring, base::Nanoseconds patience);

}  // namespace xtreme::engine

#endif  // XTREME_XTREME_ENGINE_RING_EXIT_H_
