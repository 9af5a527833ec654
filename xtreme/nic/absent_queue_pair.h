// SPDX-License-Identifier: Apache-2.0
//
// AbsentQueuePair: what a ring holds while it has no queues: nothing arrives, nothing can be sent.
//
// Threads: the ring's owner.

#ifndef XTREME_NIC_ABSENT_QUEUE_PAIR_H_
#define XTREME_NIC_ABSENT_QUEUE_PAIR_H_

#include <cstdint>
#include <optional>
#include <span>

#include "xtreme/nic/nic.h"
#include "xtreme/nic/queue_pair.h"

namespace xtreme::nic {

class AbsentQueuePair final : public QueuePair {
 public:
  // `capabilities` are those of the queues that were there.
  explicit AbsentQueuePair(const Capabilities& capabilities) : capabilities_(capabilities) {
    receive_peek_ = &kNothing;
    receive_phase_ = 1;
  }

  uint32_t PollReceive(std::span<RxFrame>) override { return 0; }
  uint32_t PollKnown(const completion::KnownFlows&, completion::Completion*, uint32_t) override {
    return kRest;
  }
  uint32_t Refill() override { return 0; }
  uint32_t posted() const override { return 0; }
  uint32_t TakeLowWater() override { return 0; }
  TxStatus Post(const TxFrame&) override { return TxStatus::kBroken; }
  void Prepare(const TxHeader&, TxTemplate*) const override {}
  TxStatus PostCopied(const TxTemplate&, const uint8_t*, uint32_t, uint32_t) override {
    return TxStatus::kBroken;
  }
  TxBurst PostBurst(const TxTemplate&, std::span<const TxPayload>) override { return {}; }
  bool PrepareFrame(const TxFrame&, TxPrepared*) const override { return false; }
  TxStatus PostPrepared(const TxPrepared&, uint32_t) override { return TxStatus::kBroken; }
  TxStatus PostSegments(const TxSegments&) override { return TxStatus::kBroken; }
  void Flush() override {}
  uint32_t posted_frames() const override { return 0; }
  uint32_t PollSend(std::span<TxCompletion>) override { return 0; }
  void Arm(bool) override {}
  int fd() const override { return -1; }
  void AcknowledgeEvents() override {}
  const std::optional<QueueError>& error() const override { return error_; }
  const Capabilities& capabilities() const override { return capabilities_; }
  const QueueCounters& counters() const override { return counters_; }
  uint32_t pool_key() const override { return 0; }

 private:
  static constexpr uint8_t kNothing = 0;

  const Capabilities capabilities_;
  const QueueCounters counters_;
  const std::optional<QueueError> error_ = QueueError{.text = "the queues are not there"};
};

}  // namespace xtreme::nic

#endif  // XTREME_NIC_ABSENT_QUEUE_PAIR_H_
