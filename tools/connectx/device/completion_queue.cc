// SPDX-License-Identifier: Apache-2.0

#include "tools/connectx/device/completion_queue.h"

#include <atomic>
#include <cstring>

#include "absl/strings/str_format.h"

namespace xtreme::connectx {
namespace {

// `a` is ahead of `b`, both of 24 bits.
bool Ahead(uint32_t a, uint32_t b) {
  const uint32_t distance = (a - b) & kCqIndexMask;
  return distance != 0 && distance <= kCqIndexMask / 2;
}

}  // namespace

CompletionQueue::CompletionQueue(const CqRequest& request, uint32_t cqn, Environment* environment)
    : cqn_(cqn),
      uar_(request.uar),
      mask_(request.entries - 1),
      cqe_bytes_(request.cqe_size),
      ring_(request.ring + request.cqe_size - kCqeBytes),
      record_(request.doorbell_record),
      completions_(request.completions),
      async_(request.async),
      user_handle_(request.user_handle),
      real_time_(request.real_time || !environment->options.features.free_running_clock),
      wants_counter_(request.timed && !request.real_time),
      ignore_overrun_(request.ignore_overrun),
      environment_(environment) {
  std::atomic_ref<uint32_t>(record_[kCqArmWord]).store(kCqArmUnwritten, std::memory_order_relaxed);
}

bool CompletionQueue::Push(const mlx5_cqe64& cqe, uint8_t opcode, bool solicited) {
  if (broken_ || !HasRoom()) return false;
  uint8_t* slot = ring_ + size_t{producer_ & mask_} * cqe_bytes_;
  const uint8_t owner = (producer_ & (mask_ + 1)) != 0 ? 1 : 0;
  std::memcpy(slot, &cqe, kCqeBytes - 1);
  // Release: the program takes the CQE when it sees this byte.
  std::atomic_ref<uint8_t>(slot[kCqeBytes - 1])
      .store(static_cast<uint8_t>(opcode << 4 | (solicited ? 2 : 0) | owner),
             std::memory_order_release);
  ++producer_;
  if (solicited) solicited_producer_ = producer_;
  if (event_.armed) ConsiderEvent();
  return true;
}

bool CompletionQueue::has_clock() const {
  return !wants_counter_ || environment_->options.features.free_running_clock;
}

uint64_t CompletionQueue::TimestampAt(int64_t time_ns) const {
  if (!environment_->options.features.timestamps) return 0;
  return real_time_ ? environment_->clock.RealTimeAt(time_ns)
                    : environment_->clock.CyclesAt(time_ns);
}

// The record's line is the program's: it is looked at only when the last reading leaves no room.
bool CompletionQueue::HasRoom() {
  if (!environment_->options.step && producer_ - consumer_ <= mask_) return true;
  if (ignore_overrun_) return true;
  const uint32_t record = LoadRecord(&record_[kCqConsumerWord]) & kCqIndexMask;
  const uint32_t unread = (producer_ - record) & kCqIndexMask;
  if (unread > mask_ + 1) {
    Break(Rule::kCqConsumer, absl::StrFormat("consumer index %u, producer index %u, %u entries",
                                             record, producer_ & kCqIndexMask, mask_ + 1)
                                 .c_str());
    return false;
  }
  consumer_ = producer_ - unread;
  if (unread <= mask_) return true;
  Break(Rule::kCqOverrun, absl::StrFormat("%u CQEs unread, no room for one more", unread).c_str());
  return false;
}

void CompletionQueue::Break(Rule rule, const char* seen) {
  broken_ = true;
  environment_->violations.Report(rule, absl::StrFormat("CQ %#x", cqn_), seen);
  if (async_ != nullptr) async_->OnAsync(IBV_EVENT_CQ_ERR, user_handle_);
}

void CompletionQueue::OnArmDoorbell() {
  const uint32_t word = LoadRecord(&record_[kCqArmWord]);
  if (completions_ == nullptr || word == event_.seen_word) return;
  event_.seen_word = word;
  const uint8_t sequence = (word >> kCqArmSequenceShift) & 3;
  if (sequence != event_.sequence) {
    // The number before is an arm that an event already answered: cards ignore it.
    if (sequence == ((event_.sequence - 1) & 3)) return;
    environment_->violations.Report(
        Rule::kCqArm, absl::StrFormat("CQ %#x", cqn_),
        absl::StrFormat("arm sequence %u, expected %u", sequence, event_.sequence));
    return;
  }
  event_.consumer = word & kCqIndexMask;
  if (Ahead(event_.consumer, producer_ & kCqIndexMask)) {
    environment_->violations.Report(Rule::kCqConsumer, absl::StrFormat("CQ %#x", cqn_),
                                    absl::StrFormat("armed at %u, producer index %u",
                                                    event_.consumer, producer_ & kCqIndexMask));
  }
  event_.solicited_only = (word & kCqArmSolicitedOnly) != 0;
  event_.armed = true;
  due_ns_ = kNoDeadline;
  ConsiderEvent();
}

// Between the steps of a device every arm is whole: the record first, then the doorbell.
void CompletionQueue::CheckArm(uint32_t rung) const {
  const uint32_t record = LoadRecord(&record_[kCqArmWord]);
  if (!environment_->options.step || rung == record) return;
  environment_->violations.Report(Rule::kCqArm, absl::StrFormat("CQ %#x", cqn_),
                                  absl::StrFormat("doorbell %#x, record %#x", rung, record));
}

void CompletionQueue::SetModeration(uint16_t count, uint16_t period_us) {
  moderation_ = {.count = count, .period_us = period_us};
  due_ns_ = kNoDeadline;
  if (event_.armed) ConsiderEvent();
}

void CompletionQueue::FireIfDue() {
  if (event_.armed && environment_->pass.now_ns >= due_ns_) Fire();
}

// Armed: fires when a CQE that counts stands at or behind the arm's consumer index.
void CompletionQueue::ConsiderEvent() {
  const uint64_t newest = event_.solicited_only ? solicited_producer_ : producer_;
  // The program read long ago what is further back than a ring, though 24 bits may say otherwise.
  if (producer_ - newest > mask_ + 1) return;
  if (!Ahead(newest & kCqIndexMask, event_.consumer)) return;
  const uint32_t waiting = (newest - event_.consumer) & kCqIndexMask;
  if (moderation_.count <= 1 || moderation_.period_us == 0 || waiting >= moderation_.count) {
    Fire();
  } else if (due_ns_ == kNoDeadline) {
    due_ns_ = environment_->pass.now_ns + int64_t{moderation_.period_us} * 1000;
  }
}

void CompletionQueue::Fire() {
  event_.armed = false;
  event_.sequence = (event_.sequence + 1) & 3;
  ++event_.fired;
  due_ns_ = kNoDeadline;
  completions_->OnCompletion(user_handle_);
}

}  // namespace xtreme::connectx
