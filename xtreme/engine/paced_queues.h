// SPDX-License-Identifier: Apache-2.0
//
// PacedQueues: the send queues of a ring that the device paces, beside the ring's own. Sockets that
// asked for the same rate share one.
//
// Life: asked for by the first such socket and made by the control thread; replaced with the ring's
// own queues, by a reset or a move, and used when those are; ended when no socket uses it and all
// that was posted has left.
// Invariant: each has a log of its own, for frames complete in order only within a queue.
// Threads: the ring's owner; what enters the kernel is done by operations on the control thread.

#ifndef XTREME_XTREME_ENGINE_PACED_QUEUES_H_
#define XTREME_XTREME_ENGINE_PACED_QUEUES_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "xtreme/engine/outcome.h"
#include "xtreme/engine/paced_use.h"
#include "xtreme/engine/send_log.h"
#include "xtreme/nic/nic.h"
#include "xtreme/nic/queue_pair.h"

namespace xtreme::engine {

struct RingCore;
struct RingRemains;

struct PacedQueue {
  PacedQueue(const nic::RateLimit& rate, RingCore* core);

  // Frames there is room for.
  uint32_t Room() const {
    if (queue == nullptr) return 0;
    const uint32_t posted = queue->posted_frames() - sends.completed();
    return std::min(queue->capabilities().send_queue_frames - posted, sends.room());
  }
  bool IsMade() const { return queue != nullptr || fresh != nullptr; }
  bool HasFailed() const { return queue != nullptr && queue->error().has_value(); }

  const nic::RateLimit rate;
  RingCore* const core;
  std::unique_ptr<nic::QueuePair> queue;  // Null: it is being made, could not be, or waits:
  std::unique_ptr<nic::QueuePair> fresh;  // it is made, and the ring has none of its own yet.
  SendLog sends;
  Outcome failure;      // Why it could not be made.
  uint32_t users = 0;   // Sockets, and calls under way.
  uint32_t making = 0;  // Operations under way that make it.
  uint32_t barrier = 0; // The frame that was posted behind all others when the last user left.
  bool owed = false;    // Frames were posted without a doorbell.
};

class PacedQueues {
 public:
  explicit PacedQueues(RingCore* core) : core_(core) {}
  PacedQueues(const PacedQueues&) = delete;
  PacedQueues& operator=(const PacedQueues&) = delete;

  bool any() const { return !all_.empty(); }

  // Has the queue for `rate` made, if it is not there yet; no rate: the ring's own, null. `done` is
  // called by a notice, whose `outcome` lives until what it told was handed out. EOPNOTSUPP: the
  // device paces nothing. EINVAL: the packet size.
  using Done = std::function<void(PacedUse use, const Outcome& outcome)>;
  Outcome Ask(const nic::RateLimit& rate, Done done);

  // Takes send completions of all.
  void Reap();
  // See RingCore.
  void LookForErrors();
  // Calls `settle(log)` for each log until it says false.
  template <typename Settle>
  bool ForEachLog(Settle settle) {
    for (const auto& paced : all_) {
      if (!settle(paced->sends)) return false;
    }
    return true;
  }
  // Ends those that nobody uses, as far as all has left. Whether any must be looked at again.
  bool Retire();
  void Flush();
  // Takes events, or arms for send completions.
  void AcknowledgeEvents();
  void Arm();
  // Their device is gone: nothing wakes the ring for them, and what was posted is not sent.
  void OnRemoved();

  // The first that stopped; null: none.
  const nic::QueuePair* Broken() const;
  // What was posted to those that stopped may not have left.
  void AbandonBroken();
  // Has each made anew, on the port that the ring is on now. Before the ring's own is.
  void Replace();
  // The ring has its own, and rules that steer to it: what is sent from here on is answered there.
  void Adopt();
  // The first that could not be made.
  Outcome Failure() const;
  // All of them, with what they refer to.
  void Bury(RingRemains* remains);

  size_t size() const { return all_.size(); }
  void AddCounters(nic::QueueCounters& to) const;

 private:
  struct Making;

  PacedQueue* FindOrAdd(const nic::RateLimit& rate);
  void Make(PacedQueue& paced);
  void Arrive(PacedQueue* paced, absl::StatusOr<std::unique_ptr<nic::QueuePair>>& made);
  static void Adopt(PacedQueue& paced);
  std::unique_ptr<nic::QueuePair> Give(PacedQueue& paced);
  void End(std::unique_ptr<nic::QueuePair> queue);
  bool HasLeft(PacedQueue& paced);

  RingCore* const core_;
  std::vector<std::unique_ptr<PacedQueue>> all_;
  bool removed_ = false;  // Their device.
};

}  // namespace xtreme::engine

#endif  // XTREME_XTREME_ENGINE_PACED_QUEUES_H_
