// SPDX-License-Identifier: Apache-2.0
//
// QueuePair: a send queue and a receive queue behind the seam that the engine polls.
//
// Built from the memory that bring-up found, and owning what keeps that memory alive; or from any
// memory at all, for benchmarks and tests. Invariant: the device's objects go first, then the
// queues return what was posted: until then the device may write into a posted buffer.
// Thread: the ring's owner; constructed and destroyed by whoever opens and closes the ring.

#ifndef XTREME_XTREME_MLX5_QUEUE_PAIR_H_
#define XTREME_XTREME_MLX5_QUEUE_PAIR_H_

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "stack/packet/buffer_pool.h"
#include "xtreme/mlx5/cqe.h"
#include "xtreme/mlx5/queue_memory.h"
#include "xtreme/mlx5/receive_queue.h"
#include "xtreme/mlx5/send_queue.h"
#include "xtreme/nic/nic.h"
#include "xtreme/nic/queue_pair.h"

namespace xtreme::mlx5 {

// What a queue pair lives on: destroyed before its queues.
class QueuePairObjects {
 public:
  virtual ~QueuePairObjects() = default;
  // The completion channel, non-blocking; -1 without one.
  virtual int event_fd() const = 0;
  // Takes one event off the channel: whether there was one, and whose.
  enum class Event : uint8_t { kNone, kReceive, kSend };
  virtual Event TakeEvent() = 0;
  // What rules steer to.
  virtual ibv_qp* verbs_qp() const = 0;
  // Of receive and send.
  virtual std::array<ibv_cq*, 2> verbs_cqs() const = 0;
  // Whether the device has said that a queue of them stopped.
  virtual bool stopped() const = 0;
};

struct QueuePairMemory {
  SendQueueMemory send;
  ReceiveQueueMemory receive;
};

class QueuePair : public nic::QueuePair {
 public:
  // `objects` may be null: the memory is then the caller's, and no device is there.
  // PrepareCqes() was called for both completion queues.
  QueuePair(const QueuePairMemory& memory, const SendQueue::Options& send_options,
            const ReceiveQueue::Options& receive_options, const nic::Capabilities& capabilities,
            packet::BufferPool* pool, std::unique_ptr<QueuePairObjects> objects);
  ~QueuePair() override;

  uint32_t PollReceive(std::span<nic::RxFrame> out) override;
  uint32_t PollKnown(const completion::KnownFlows& flows, completion::Completion* out,
                     uint32_t most) override;
  uint32_t PollLinks(const completion::LinkFlows& flows, completion::LinkCompletion* out,
                     uint32_t most) override;
  packet::Buffer* TakeKnown(const completion::KnownFlows& flows, const udp::Endpoint* endpoint,
                            size_t most) override;
  uint32_t Refill() override;
  uint32_t posted() const override { return receive_.posted(); }
  uint32_t TakeLowWater() override { return receive_.TakeLowWater(); }

  nic::TxStatus Post(const nic::TxFrame& frame) override;
  void Prepare(const nic::TxHeader& header, nic::TxTemplate* flow) const override {
    send_.Prepare(header, flow);
  }
  nic::TxStatus PostCopied(const nic::TxTemplate& flow, const uint8_t* payload,
                           uint32_t payload_length, uint32_t flags) override;
  nic::TxStatus PostStored(const nic::TxTemplate& flow, const uint8_t* payload,
                           uint32_t payload_length, uint32_t flags) override {
    return send_.PostStored(flow, payload, payload_length, flags);
  }
  bool HasRoomToStore(uint32_t payload_length) const override {
    return send_.HasRoomToStore(payload_length);
  }
  nic::TxBurst PostBurst(const nic::TxTemplate& flow,
                         std::span<const nic::TxPayload> payloads) override;
  bool PrepareFrame(const nic::TxFrame& frame, nic::TxPrepared* prepared) const override {
    return send_.PrepareFrame(frame, prepared);
  }
  nic::TxStatus PostPrepared(const nic::TxPrepared& prepared, uint32_t flags) override;
  bool PostStreamOtherwise(const nic::StreamSegment& segment) override {
    return send_.PostStreamOtherwise(segment);
  }
  bool PlaceStream(const nic::StreamSegment& segment) override {
    return send_.PlaceStream(segment);
  }
  std::optional<uint32_t> PostGathered(const nic::StreamSegment& segment, uint32_t key,
                                       uint32_t flags) override {
    return send_.PostGathered(segment, key, flags);
  }
  nic::TxStatus PostSegments(const nic::TxSegments& segments) override;
  bool SignalLast() override { return send_.SignalLast(); }
  void Flush() override { send_.Flush(); }
  uint32_t posted_frames() const override { return send_.posted_frames(); }
  uint32_t PollSend(std::span<nic::TxCompletion> out) override;

  void Arm(bool for_send) override;
  int fd() const override { return objects_ == nullptr ? -1 : objects_->event_fd(); }
  void AcknowledgeEvents() override;

  void LookForStop() override;
  const std::optional<nic::QueueError>& error() const override { return error_; }
  const nic::Capabilities& capabilities() const override { return capabilities_; }
  const nic::QueueCounters& counters() const override {
    send_.SettleCounters();
    receive_.SettleCounters();
    return counters_;
  }
  uint32_t pool_key() const override { return pool_key_; }

  std::optional<nic::QueueAddresses> Addresses() const override;

  // Null without a device.
  std::array<ibv_cq*, 2> verbs_cqs() const {
    return objects_ == nullptr ? std::array<ibv_cq*, 2>{} : objects_->verbs_cqs();
  }
  // What rules steer to; null without a device.
  ibv_qp* verbs_qp() const { return objects_ == nullptr ? nullptr : objects_->verbs_qp(); }

 protected:
  SendQueue& send() { return send_; }
  const ReceiveQueue& receive() const { return receive_; }
  // PollKnown(), of either form, and TakeKnown(), of frames that somebody watches
  // (receive_known.h); PollMany() is PollFlows() of several, or where more is due.
  template <typename Watch>
  uint32_t PollFlows(const completion::KnownFlows& flows, completion::Completion* out,
                     uint32_t most);
  template <typename Watch>
  uint32_t PollMany(const completion::KnownFlows& flows, completion::Completion* out,
                    uint32_t most);
  template <typename Flows, typename Watch>
  uint32_t PollInto(const Flows& flows, typename Flows::Out* out, uint32_t most, bool* declined);
  template <typename Watch>
  packet::Buffer* TakeOne(const completion::KnownFlows& flows, const udp::Endpoint* endpoint,
                          size_t most);

 private:
  // Whether the CQE behind the next one is written too, if that one is, and stands behind it.
  bool IsFollowed() const;
  template <typename Watch>
  uint32_t PollOther(const completion::KnownFlows& flows, const ReceiveQueue::Posted& posted,
                     uint32_t length, completion::Completion* out);
  template <typename Watch>
  uint32_t PollUnknown(const completion::KnownFlows& flows, completion::Completion* out);
  // PostCopied() that is more than to copy and to ring.
  nic::TxStatus PostCopiedOtherwise(const nic::TxTemplate& flow, const uint8_t* payload,
                                    uint32_t payload_length, uint32_t flags);
  uint32_t Decline() {
    declined_ = true;
    return kRest;
  }
  // The next CQE, at `peek`, was a frame that is taken; with how many completions, which it gives
  // back.
  uint32_t PassOne(uint32_t taken, const uint8_t* peek);
  uint32_t PassStop(uint32_t taken);
  // Says that a refill is due, which then finds out.
  void BeginAnew() {
    receive_.BeginAnew();
    ShowNextCqe();
    receive_stop_ = receive_peek_;
  }
  void ShowReceiveQueue();
  void ShowNextCqe() {
    receive_peek_ = receive_.completions().peek();
    receive_phase_ = receive_.completions().phase();
  }

  const nic::Capabilities capabilities_;
  const uint32_t pool_key_;
  nic::QueueCounters counters_;
  std::optional<nic::QueueError> error_;
  ReceiveQueue receive_;
  SendQueue send_;
  const QueuePairMemory memory_;
  std::unique_ptr<QueuePairObjects> objects_;  // Last: destroyed first.
};

// Whether to take the loop, and nothing of the frame: that orders its own loads.
[[gnu::always_inline]] inline bool QueuePair::IsFollowed() const {
  if (receive_.AtLast()) [[unlikely]] return false;
  const uint8_t first = __atomic_load_n(receive_peek_, __ATOMIC_RELAXED);
  const uint8_t second = __atomic_load_n(receive_peek_ + kCqeBytes, __ATOMIC_RELAXED);
  return ((first ^ second) & 1) == 0;
}

// One that nothing is derived from, for callers that know what they have.
class PlainQueuePair final : public QueuePair {
 public:
  using QueuePair::QueuePair;
};

}  // namespace xtreme::mlx5

#endif  // XTREME_XTREME_MLX5_QUEUE_PAIR_H_
