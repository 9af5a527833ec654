// SPDX-License-Identifier: Apache-2.0

#include "xtreme/engine/ring_exit.h"

#include <array>
#include <chrono>
#include <thread>

#include "xtreme/engine/mailbox.h"
#include "xtreme/engine/ring.h"
#include "xtreme/engine/ring_core.h"
#include "xtreme/engine/tcp.h"

namespace xtreme::engine {
namespace {

// Frames behind the last signalled one complete with the next: a signalled NOP goes behind them.
bool PostLast(RingCore& core) {
  static constexpr std::array<uint8_t, 64> kHeader{};
  nic::TxFrame nop{.header = kHeader.data(),
                   .payload = nullptr,
                   .header_length = kHeader.size(),
                   .payload_length = 0,
                   .key = 0,
                   .flags = nic::kTxWarm | nic::kTxSignal};
  return core.Post(nop, nullptr) == nic::TxStatus::kPosted;
}

}  // namespace

void ResetPeers(Ring& ring, base::Nanoseconds patience) {
  constexpr std::chrono::microseconds kPause{20};
  RingCore& core = ring.core();
  if (!core.device.started || core.device.broken || ring.tcp().Quiescent()) return;
  ring.tcp().AbortAll();
  using std::chrono::steady_clock;
  const auto deadline = steady_clock::now() + std::chrono::nanoseconds(patience.count());
  bool posted = false;
  for (;; std::this_thread::sleep_for(kPause)) {
    core.Reap();
    if (core.SendRoom() > 0) ring.tcp().OnRoom();
    ring.Flush();
    const bool behind_all = (core.attention & kRoomWanted) == 0;
    if (!posted && behind_all) posted = PostLast(core);
    if (posted && core.SendRoom() == core.device.send_queue_frames) return;
    if (core.device.queue->error() || steady_clock::now() >= deadline) return;
  }
}

std::shared_ptr<const std::atomic<bool>> AskToResetPeers(Ring& ring, base::Nanoseconds patience) {
  auto done = std::make_shared<std::atomic<bool>>(false);
  ring.core().host.mailbox->Push(MakeNotice([done, patience](Ring& asked) {
    ResetPeers(asked, patience);
    done->store(true, std::memory_order_release);
  }));
  return done;
}

}  // namespace xtreme::engine
