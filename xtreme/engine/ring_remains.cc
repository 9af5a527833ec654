// SPDX-License-Identifier: Apache-2.0

#include "xtreme/engine/ring_remains.h"

#include <array>
#include <chrono>
#include <thread>

#include "xtreme/engine/control_side.h"
#include "xtreme/engine/control_thread.h"
#include "xtreme/engine/loopback_directory.h"
#include "xtreme/engine/loopback_queue.h"
#include "xtreme/engine/mailbox.h"
#include "xtreme/nic/queue_pair.h"
#include "xtreme/stats/publisher.h"

namespace xtreme::engine {

RingRemains::RingRemains() = default;
RingRemains::~RingRemains() = default;

// A device forgets the frames of a queue that is destroyed. Frames behind the last signalled one
// complete with the next, so a signalled NOP goes behind them all.
void RingRemains::AwaitSends(base::Nanoseconds patience) {
  static constexpr std::array<uint8_t, 64> kHeader{};
  constexpr std::chrono::microseconds kPause{20};
  const nic::TxFrame nop{.header = kHeader.data(),
                         .payload = nullptr,
                         .header_length = kHeader.size(),
                         .payload_length = 0,
                         .key = 0,
                         .flags = nic::kTxWarm | nic::kTxSignal};
  using std::chrono::steady_clock;
  const auto deadline = steady_clock::now() + std::chrono::nanoseconds(patience.count());
  bool posted = false;
  queue->Flush();
  while (frames_completed != queue->posted_frames() && !queue->error().has_value()) {
    if (!posted) posted = queue->Post(nop) == nic::TxStatus::kPosted;
    nic::TxCompletion done;
    if (queue->PollSend(std::span(&done, 1)) == 1) {
      frames_completed = done.frames;
    } else if (steady_clock::now() >= deadline) {
      return;
    } else {
      std::this_thread::sleep_for(kPause);
    }
  }
}

void RingRemains::Bury(ControlThread& control, base::Nanoseconds patience) {
  for (auto& held : holdings) held->Release(*side, control);
  for (int fd : side->watched) control.Unwatch(fd);
  side->directory->Leave(side->loopback.get());
  if (side->fault_count != 0) control.StopPeriodic(side->fault_count);
  mailbox->inbox().TakeAll([](std::unique_ptr<Notice>) {});
  ports.clear();
  if (patience > base::Nanoseconds{}) AwaitSends(patience);
  queue.reset();
  tap.reset();
  side->fresh_queue.reset();
  publisher.reset();
  for (packet::Buffer* buffer : sending) packet::BufferPool::Release(buffer);
  packet::BufferPool::Release(guard);
}

}  // namespace xtreme::engine
