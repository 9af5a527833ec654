// SPDX-License-Identifier: Apache-2.0

#include "xtreme/engine/ring_remains.h"

#include <chrono>
#include <span>
#include <thread>

#include "xtreme/engine/barrier.h"
#include "xtreme/engine/control_side.h"
#include "xtreme/engine/control_thread.h"
#include "xtreme/engine/fd_watches.h"
#include "xtreme/engine/loopback_directory.h"
#include "xtreme/engine/loopback_queue.h"
#include "xtreme/engine/mailbox.h"
#include "xtreme/nic/queue_pair.h"
#include "xtreme/stats/publisher.h"

namespace xtreme::engine {

RingRemains::RingRemains() = default;
RingRemains::~RingRemains() = default;

namespace {

using std::chrono::steady_clock;

void AwaitSends(nic::QueuePair& queue, uint32_t completed, steady_clock::time_point deadline) {
  constexpr std::chrono::microseconds kPause{20};
  bool posted = false;
  queue.Flush();
  while (completed != queue.posted_frames() && !queue.error().has_value()) {
    if (!posted) posted = PostBarrier(queue) == nic::TxStatus::kPosted;
    nic::TxCompletion done;
    if (queue.PollSend(std::span(&done, 1)) == 1) {
      completed = done.frames;
    } else if (steady_clock::now() >= deadline) {
      return;
    } else {
      std::this_thread::sleep_for(kPause);
    }
  }
}

}  // namespace

// A device forgets the frames of a queue that is destroyed.
void RingRemains::AwaitSends(base::Nanoseconds patience) {
  const auto deadline = steady_clock::now() + std::chrono::nanoseconds(patience.count());
  for (const Posted& posted : queues) {
    engine::AwaitSends(*posted.queue, posted.frames_completed, deadline);
  }
}

void RingRemains::Bury(ControlThread& control, base::Nanoseconds patience) {
  for (auto& held : holdings) held->Release(*side, control);
  for (SocketHoldings& held : side->of_udp) held.Release(*side, control);
  if (side->port_watch != 0) control.EndMany(side->port_watch);
  side->watches->EndAll(control, side.get());
  side->directory->Leave(side->loopback.get());
  if (side->fault_count != 0) control.StopPeriodic(side->fault_count);
  mailbox->inbox().TakeAll([](std::unique_ptr<Notice>) {});
  ports.clear();
  if (patience > base::Nanoseconds{}) AwaitSends(patience);
  // Of connections that were on their way here; rules that are still asked for stand on nothing.
  side->rules.End();
  queues.clear();
  tap.reset();
  side->fresh_queue.reset();
  for (const nic::RxFrame& frame : side->left_behind) packet::BufferPool::Release(frame.buffer);
  publisher.reset();
  side->registrations.clear();
  for (packet::Buffer* buffer : sending) packet::BufferPool::Release(buffer);
  packet::BufferPool::Release(guard);
  mailbox->Bury();
}

}  // namespace xtreme::engine
