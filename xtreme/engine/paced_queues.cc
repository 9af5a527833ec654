// SPDX-License-Identifier: Apache-2.0

#include "xtreme/engine/paced_queues.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "xtreme/engine/barrier.h"
#include "xtreme/engine/control_thread.h"
#include "xtreme/engine/mailbox.h"
#include "xtreme/engine/ring.h"
#include "xtreme/engine/ring_core.h"
#include "xtreme/engine/ring_queues.h"
#include "xtreme/engine/ring_remains.h"

namespace xtreme::engine {
namespace {

// Nothing is steered to a paced queue's receive side: the fewest that a device makes.
constexpr uint32_t kReceiveFrames = 8;
constexpr uint32_t kMostPacketBytes = 0xFFFF;

RingOptions OptionsOfPaced(const RingOptions& ring) {
  RingOptions options = ring;
  options.rx_queue_frames = kReceiveFrames;
  options.device_memory = 0;
  return options;
}

}  // namespace

// What making a queue asks of the control thread.
struct PacedQueues::Making {
  RingOptions options;
  nic::RateLimit rate;
  nic::Nic* nic;
  packet::BufferPool* pool;  // Outlives the ring's operations.
  std::shared_ptr<stats::FrameTap> tap;
  std::shared_ptr<Mailbox> mailbox;
  std::unique_ptr<nic::QueuePair> old;  // Whose place it takes.

  absl::StatusOr<std::unique_ptr<nic::QueuePair>> Run() {
    old.reset();
    auto made = MakeQueues(options, nic, pool, tap.get(), &mailbox->waiter());
    if (!made.ok()) return made.status();
    const absl::Status set = nic->SetRate(made->get(), rate);
    if (set.ok()) return made;
    mailbox->waiter().Remove((*made)->fd());
    return set;
  }
};

PacedQueue::PacedQueue(const nic::RateLimit& rate, RingCore* core)
    : rate(rate), core(core), sends(core->options.tx_queue_frames) {}

void EndPacedUse::operator()(PacedQueue* queue) const {
  // The polls look until it has gone.
  if (--queue->users == 0) queue->core->attention |= kSendsWanted;
}

PacedQueue* PacedQueues::FindOrAdd(const nic::RateLimit& rate) {
  const auto found = std::find_if(all_.begin(), all_.end(), [&rate](const auto& paced) {
    return paced->rate == rate && (paced->IsMade() || paced->making != 0);
  });
  if (found != all_.end()) return found->get();
  PacedQueue& added = *all_.emplace_back(std::make_unique<PacedQueue>(rate, core_));
  Make(added);
  return &added;
}

Outcome PacedQueues::Ask(const nic::RateLimit& rate, Done done) {
  PacedQueue* paced = nullptr;
  if (rate.bytes_per_second != 0) {
    const nic::Capabilities& device = core_->device.nic->capabilities();
    const auto refuse = [&](int error, std::string why) {
      return Outcome(error, absl::StrCat("limit sends to ", rate.bytes_per_second,
                                         " bytes a second: ", why));
    };
    if (!device.rate_limit) return refuse(EOPNOTSUPP, device.device + " has no packet pacing");
    if (rate.typical_packet_bytes > kMostPacketBytes) {
      return refuse(EINVAL, absl::StrCat("packets of ", rate.typical_packet_bytes, " asked, ",
                                         kMostPacketBytes, " possible"));
    }
    paced = FindOrAdd(rate);
    ++paced->users;
  }
  // Operations run in order: the queue was made, or not, before this one.
  core_->Start(MakeOperation([paced, done = std::move(done), mailbox = core_->host.mailbox] {
    mailbox->Push(MakeNotice([paced, done, outcome = Outcome()](Ring&) mutable {
      PacedUse use(paced);
      // One that is still in the making is a reset's, or a move's, which tells how that went.
      if (use != nullptr && !use->IsMade() && use->making == 0) {
        outcome = use->failure;
        use.reset();
      }
      done(std::move(use), outcome);
    }));
  }));
  return {};
}

void PacedQueues::Make(PacedQueue& paced) {
  ++paced.making;
  Making work{.options = OptionsOfPaced(core_->options),
              .rate = paced.rate,
              .nic = core_->device.nic,
              .pool = core_->device.pool.get(),
              .tap = core_->device.tap,
              .mailbox = core_->host.mailbox,
              .old = Give(paced)};
  core_->Start(MakeOperation([work = std::move(work), to = &paced]() mutable {
    work.mailbox->Push(MakeNotice([to, made = work.Run()](Ring& ring) mutable {
      ring.core().paced->Arrive(to, made);
    }));
  }));
}

void PacedQueues::Arrive(PacedQueue* paced,
                         absl::StatusOr<std::unique_ptr<nic::QueuePair>>& made) {
  // Of several only the last is on the port that the ring is on now.
  if (--paced->making != 0) {
    if (made.ok()) End(*std::move(made));
    return;
  }
  // The device is done with what was posted to the one before, sent or not.
  paced->sends.Abandon();
  core_->attention |= kSendsWanted;
  paced->failure = OutcomeOf(made.status());
  if (!made.ok()) return;
  paced->fresh = *std::move(made);
  if (!core_->device.broken) Adopt(*paced);
}

void PacedQueues::Adopt(PacedQueue& paced) {
  if (paced.fresh == nullptr) return;
  paced.sends.Restart();
  paced.barrier = 0;
  paced.queue = std::move(paced.fresh);
}

void PacedQueues::Adopt() {
  for (const auto& paced : all_) Adopt(*paced);
}

// Leaves `paced` without a queue; the one it had.
std::unique_ptr<nic::QueuePair> PacedQueues::Give(PacedQueue& paced) {
  if (!paced.IsMade()) return nullptr;
  std::unique_ptr<nic::QueuePair>& given = paced.queue != nullptr ? paced.queue : paced.fresh;
  base::AddCounters(given->counters(), core_->tally.queues_before);
  core_->host.mailbox->waiter().Remove(given->fd());
  paced.owed = false;
  return std::move(given);
}

void PacedQueues::End(std::unique_ptr<nic::QueuePair> queue) {
  core_->Start(MakeOperation([ended = std::move(queue)]() mutable { ended.reset(); }));
}

void PacedQueues::Reap() {
  for (const auto& paced : all_) {
    if (paced->queue != nullptr) core_->ReapInto(*paced->queue, paced->sends, ~uint32_t{0});
  }
}

void PacedQueues::LookForErrors() {
  for (const auto& paced : all_) {
    if (paced->queue != nullptr) RingCore::LookInto(*paced->queue, paced->sends);
  }
}

// Frames behind the last signalled one complete with the barrier.
bool PacedQueues::HasLeft(PacedQueue& paced) {
  const uint32_t posted = paced.queue->posted_frames();
  const bool ended = removed_ || paced.HasFailed();
  if (paced.sends.completed() == posted || ended) return paced.sends.empty();
  const bool behind_all = paced.barrier == posted;
  if (!behind_all && PostBarrier(*paced.queue) == nic::TxStatus::kPosted) {
    paced.barrier = paced.queue->posted_frames();
  }
  return false;
}

bool PacedQueues::Retire() {
  bool waits = false;
  std::erase_if(all_, [&](const std::unique_ptr<PacedQueue>& paced) {
    waits |= paced->sends.wanted() != 0;
    if (paced->users != 0 || paced->making != 0) return false;
    const bool gone = paced->queue == nullptr ? paced->sends.empty() : HasLeft(*paced);
    waits |= !gone;
    if (gone && paced->IsMade()) End(Give(*paced));
    return gone;
  });
  return waits;
}

void PacedQueues::Flush() {
  for (const auto& paced : all_) {
    if (std::exchange(paced->owed, false)) paced->queue->Flush();
  }
}

void PacedQueues::AcknowledgeEvents() {
  for (const auto& paced : all_) {
    if (paced->queue != nullptr) paced->queue->AcknowledgeEvents();
  }
}

void PacedQueues::OnRemoved() {
  removed_ = true;
  for (const auto& paced : all_) {
    paced->sends.Abandon();
    for (const auto* queue : {&paced->queue, &paced->fresh}) {
      if (*queue != nullptr) core_->host.mailbox->waiter().Remove((*queue)->fd());
    }
  }
}

void PacedQueues::Arm() {
  for (const auto& paced : all_) {
    if (paced->queue != nullptr) paced->queue->Arm(/*for_send=*/true);
  }
}

const nic::QueuePair* PacedQueues::Broken() const {
  const auto broken = std::find_if(all_.begin(), all_.end(),
                                   [](const auto& paced) { return paced->HasFailed(); });
  return broken == all_.end() ? nullptr : (*broken)->queue.get();
}

void PacedQueues::AbandonBroken() {
  for (const auto& paced : all_) {
    if (paced->HasFailed()) paced->sends.Abandon();
  }
}

void PacedQueues::Replace() {
  removed_ = false;
  for (const auto& paced : all_) Make(*paced);
}

Outcome PacedQueues::Failure() const {
  for (const auto& paced : all_) {
    if (!paced->failure.ok()) return paced->failure;
  }
  return {};
}

void PacedQueues::Bury(RingRemains* remains) {
  for (const auto& paced : all_) {
    paced->sends.ForEach([&](const SendRecord& record) {
      if (record.buffer != nullptr) remains->sending.push_back(record.buffer);
    });
    const uint32_t completed = paced->queue != nullptr ? paced->sends.completed() : 0;
    if (paced->IsMade()) remains->queues.push_back({Give(*paced), completed});
  }
  all_.clear();
}

void PacedQueues::AddCounters(nic::QueueCounters& to) const {
  for (const auto& paced : all_) {
    if (paced->queue != nullptr) base::AddCounters(paced->queue->counters(), to);
  }
}

}  // namespace xtreme::engine
