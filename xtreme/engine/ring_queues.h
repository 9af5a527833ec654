// SPDX-License-Identifier: Apache-2.0
//
// A ring's queues, from its options: at bring-up and again at a reset.
//
// Threads: said per function.

#ifndef XTREME_XTREME_ENGINE_RING_QUEUES_H_
#define XTREME_XTREME_ENGINE_RING_QUEUES_H_

#include <memory>

#include "absl/status/statusor.h"

namespace xtreme::nic {
class Nic;
class QueuePair;
}  // namespace xtreme::nic
namespace xtreme::packet {
class BufferPool;
}
namespace xtreme::stats {
class FrameTap;
}

namespace xtreme::engine {

class Waiter;
struct RingDevice;
struct RingOptions;

// Makes them; `waiter` waits for their fd; `tap`, which may be null, sees their frames. Errors of
// Nic::CreateQueuePair. ResourceExhausted: no fd can be waited for. Control thread.
absl::StatusOr<std::unique_ptr<nic::QueuePair>> MakeQueues(const RingOptions& options,
                                                           nic::Nic* nic,
                                                           packet::BufferPool* pool,
                                                           stats::FrameTap* tap, Waiter* waiter);

// From here on the ring is on `queue`. The ring's owner, or who brings it up.
void AdoptQueues(std::unique_ptr<nic::QueuePair> queue, RingDevice* device);

}  // namespace xtreme::engine

#endif  // XTREME_XTREME_ENGINE_RING_QUEUES_H_
