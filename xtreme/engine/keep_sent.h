// SPDX-License-Identifier: Apache-2.0
//
// KeepSent: how a ring that keeps its frames for xtreme_dump keeps one that is posted where its
// caller stands, by nic::PostReady() or nic::PostStream(): from the registers in which its WQE is,
// when the device was rung for.
//
// Threads: the ring's owner.

#ifndef XTREME_XTREME_ENGINE_KEEP_SENT_H_
#define XTREME_XTREME_ENGINE_KEEP_SENT_H_

#include <cstddef>
#include <cstdint>

#include "xtreme/nic/doorbell.h"
#include "xtreme/nic/queue_pair.h"
#include "xtreme/stats/frame_tap.h"

namespace xtreme::engine {

class KeepSent {
 public:
  // Of `queue`, which has such a way: SentTap.
  explicit KeepSent(const nic::QueuePair& queue) : tap_(queue.sent_tap()) {}

  template <size_t kHalves>
  [[gnu::always_inline]] void operator()(const nic::HalfLine (&halves)[kHalves]) const {
    stats::FrameTap& frames = *tap_.frames;  // Not to be read again behind what is written there.
    frames.WriteWqe(halves);
    frames.Publish(1);
  }

 private:
  const nic::SentTap& tap_;
};

}  // namespace xtreme::engine

#endif  // XTREME_XTREME_ENGINE_KEEP_SENT_H_
