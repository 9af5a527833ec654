// SPDX-License-Identifier: Apache-2.0

#include "tools/connectx/device/pump.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_format.h"
#include "tools/connectx/device/layout.h"

namespace xtreme::connectx {
namespace {

// What one queue, and the wire, may do before others get their turn.
constexpr int kSendBudget = 64;
constexpr int kReceiveBudget = 64;
// How late WQEs posted to a queue in error may be flushed when nothing else wakes the pump.
constexpr int64_t kFlushInterval = 1'000'000;

bool IsMulticast(std::span<const uint8_t> frame) { return (frame[0] & 1) != 0; }

}  // namespace

Pump::Pump(Environment* environment, UarTable* uars, Steering* steering, Wire* wire)
    : environment_(environment),
      uars_(uars),
      steering_(steering),
      wire_(wire),
      port_up_(wire->up()) {}

void Pump::SetPortUp(bool up) {
  admin_up_ = up;
  port_moved_ |= FollowPort();
}

void Pump::Announce(ibv_event_type type, uint64_t element) {
  for (EventSink* sink : subscribers) sink->OnAsync(type, element);
}

bool Pump::FollowPort() {
  constexpr uint64_t kPort = 1;
  const bool up = admin_up_ && wire_->up();
  if (up == port_up_) return false;
  port_up_ = up;
  Announce(up ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR, kPort);
  return true;
}

void Pump::FollowMtu() {
  const uint32_t mtu = wire_->mtu();
  if (mtu == 0) return;
  environment_->mtu = mtu;
  environment_->greatest_mtu = std::max(environment_->greatest_mtu, mtu);
}

bool Pump::Run() {
  bool worked = std::exchange(port_moved_, false);
  worked |= FollowPort();
  FollowMtu();
  const bool all = std::exchange(environment_->look_at_all_pages, false);
  for (const auto& page : uars_->pages()) worked |= ServePage(page.get(), all);
  if (std::exchange(sent_, false)) wire_->Flush();
  worked |= wire_->Receive(*this, kReceiveBudget, environment_->pass.now_ns) != 0;
  for (ReceiveQueue* queue : environment_->receive_queues_in_error) worked |= queue->FlushPosted();
  for (CompletionQueue* cq : moderated) cq->FireIfDue();
  return worked || environment_->look_at_all_pages;
}

int64_t Pump::NextDeadline() const {
  int64_t deadline_ns = wire_->NextDeadline();
  for (const CompletionQueue* cq : moderated) {
    deadline_ns = std::min(deadline_ns, cq->deadline_ns());
  }
  for (const auto& page : uars_->pages()) {
    if (!page->busy) continue;
    for (const SendQueue* queue : page->send_queues) {
      if (queue->has_work()) deadline_ns = std::min(deadline_ns, queue->not_before_ns());
    }
  }
  if (!environment_->receive_queues_in_error.empty()) {
    deadline_ns = std::min(deadline_ns, environment_->pass.now_ns + kFlushInterval);
  }
  return deadline_ns;
}

bool Pump::ServePage(UarPage* page, bool all) {
  const bool rung = TakeDoorbells(page);
  const bool armed = TakeArm(page);
  if (!rung && !page->busy && !all) return armed;
  page->busy = false;
  bool ran = false;
  for (SendQueue* queue : page->send_queues) {
    // A doorbell is for every queue of the page: one may have been written over by the next.
    if (rung) queue->Ring();
    ran |= queue->Run(*this, kSendBudget);
    page->busy |= queue->has_work();
  }
  return rung || armed || ran;
}

void Pump::TakeRung(UarPage* page) {
  if (page == nullptr) return;
  TakeArm(page);
  if (!TakeDoorbells(page)) return;
  for (SendQueue* queue : page->send_queues) queue->Ring();
  page->busy = true;
}

bool Pump::Finish(SendQueue* queue) {
  const bool ran = queue->Run(*this, kSendBudget);
  if (std::exchange(sent_, false)) wire_->Flush();
  return ran;
}

bool Pump::TakeArm(UarPage* page) {
  const uint64_t arm = TakeDoorbell(page->memory + kCqArmOffset);
  if (arm == 0) return false;
  if (environment_->violations.enabled()) CheckArm(*page, arm);
  // All CQs of a program share this word: it says that one was armed, the records say which.
  for (CompletionQueue* cq : page->completion_queues) cq->OnArmDoorbell();
  return true;
}

bool Pump::TakeDoorbells(UarPage* page) {
  bool rung = false;
  for (uint32_t offset : kDoorbellOffsets) {
    uint8_t* slot = page->memory + offset;
    const uint64_t doorbell = TakeDoorbell(slot);
    if (doorbell == 0) continue;
    rung = true;
    if (environment_->violations.enabled()) CheckDoorbell(page, doorbell, slot);
    if (environment_->options.step) std::memset(slot, 0, kBlueFlameBytes);
  }
  return rung;
}

void Pump::CheckDoorbell(UarPage* page, uint64_t rung, const uint8_t* slot) {
  uint8_t bytes[sizeof(rung)];
  std::memcpy(bytes, &rung, sizeof(rung));
  const uint32_t qpn = LoadBe32(bytes + 4) >> 8;
  for (SendQueue* queue : page->send_queues) {
    if (queue->qpn() != qpn) continue;
    queue->CheckDoorbell(rung, slot);
    return;
  }
  const bool freed = queue_pairs->WasFreed(qpn);
  environment_->violations.Report(
      freed ? Rule::kFreedQueue : Rule::kDoorbellBytes, absl::StrFormat("UAR page %u", page->id),
      absl::StrFormat("doorbell for QP %#x, %s", qpn,
                      freed ? "which was destroyed" : "not on this page"));
}

void Pump::CheckArm(const UarPage& page, uint64_t rung) {
  uint8_t bytes[sizeof(rung)];
  std::memcpy(bytes, &rung, sizeof(rung));
  const uint32_t cqn = LoadBe32(bytes + 4) & 0xffffff;
  for (const CompletionQueue* cq : page.completion_queues) {
    if (cq->number() != cqn) continue;
    cq->CheckArm(LoadBe32(bytes));
    return;
  }
  const bool freed = completion_queues->WasFreed(cqn);
  environment_->violations.Report(
      freed ? Rule::kFreedQueue : Rule::kCqArm, absl::StrFormat("CQ %#x", cqn),
      freed ? "armed after it was destroyed"
            : absl::StrFormat("armed on UAR page %u, which is not its own", page.id));
}

void Pump::Send(std::span<const uint8_t> frame, ContextId from) {
  const Pass& pass = environment_->pass;
  DirectionCounters& counters = environment_->counters.transmit;
  if (!steering_->sniffers().holders.empty()) {
    Arrival sniffed{.frame = ParseFrame(frame), .time_ns = pass.now_ns};
    DeliverTo(steering_->sniffers(), std::nullopt, &sniffed);
  }
  if (!port_up_ || TooLong(frame)) {
    counters.discards.Add(1);
    return;
  }
  const bool kept = LoopsBack(frame) && Steer(frame, pass.now_ns, from) && !IsMulticast(frame);
  sent_ = true;
  if (kept || wire_->Transmit(frame, pass.now_ns)) {
    counters.Count(frame);
  } else {
    counters.discards.Add(1);
  }
}

// A card switches between its own users: unicast to its own address never leaves it then, and
// multicast is looped back too. The kernel has it do so while there are two contexts, or a queue
// that takes what its own context sends (mlx5_ib_enable_lb).
bool Pump::LoopsBack(std::span<const uint8_t> frame) const {
  if ((open_contexts < 2 && queues_that_take_own == 0) || steering_->empty()) return false;
  const MacAddress& mac = environment_->options.mac;
  return IsMulticast(frame) || std::memcmp(frame.data(), mac.data(), mac.size()) == 0;
}

bool Pump::TooLong(std::span<const uint8_t> frame) const {
  const size_t longest = environment_->mtu + kEthernetHeaderBytes;
  return frame.size() > longest &&
         frame.size() > longest + ParseFrame(frame).vlan_tags * kVlanTagBytes;
}

void Pump::OnFrame(std::span<const uint8_t> frame, int64_t rx_time_ns) {
  PortCounters& counters = environment_->counters;
  if (frame.size() < kEthernetHeaderBytes || TooLong(frame) || !port_up_) {
    counters.receive.discards.Add(1);
    return;
  }
  counters.receive.Count(frame);
  if (!Steer(frame, rx_time_ns, std::nullopt)) counters.steering_missed.Add(1);
}

bool Pump::Steer(std::span<const uint8_t> frame, int64_t time_ns, std::optional<ContextId> from) {
  Arrival arrival{.frame = ParseFrame(frame), .time_ns = time_ns};
  if (!from.has_value() && !steering_->sniffers().holders.empty()) {
    DeliverTo(steering_->sniffers(), std::nullopt, &arrival);
  }
  return steering_->Walk(KeyOf(arrival.frame), [&](const Steering::Entry& entry) {
    entry.Count(frame.size());
    if (!entry.drops) DeliverTo(entry, from, &arrival);
  });
}

void Pump::DeliverTo(const Steering::Entry& entry, std::optional<ContextId> from,
                     Arrival* arrival) {
  arrival->flow_tag = entry.tag;
  // Once a frame, and not for frames that nobody here gets.
  if (!arrival->verified && environment_->options.features.checksum_offload) {
    arrival->verdict = VerifyChecksums(arrival->frame);
    arrival->verified = true;
  }
  for (const Steering::Holder& holder : entry.holders) {
    const SelfLoopback& own = holder.target->self_loopback();
    const bool taken = IsMulticast(arrival->frame.bytes) ? own.multicast : own.unicast;
    if (from == holder.target->context() && !taken) continue;
    const ReceiveTarget::Choice choice = holder.target->Choose(arrival->frame);
    arrival->rx_hash = choice.rx_hash;
    choice.queue->Deliver(*arrival);
  }
}

}  // namespace xtreme::connectx
