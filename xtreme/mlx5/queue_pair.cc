// SPDX-License-Identifier: Apache-2.0

#include "xtreme/mlx5/queue_pair.h"

#include <utility>

namespace xtreme::mlx5 {

QueuePair::QueuePair(const QueuePairMemory& memory, const SendQueue::Options& send_options,
                     const ReceiveQueue::Options& receive_options,
                     const nic::Capabilities& capabilities, packet::BufferPool* pool,
                     std::unique_ptr<QueuePairObjects> objects)
    : capabilities_(capabilities),
      pool_key_(memory.receive.key),
      receive_(memory.receive, receive_options, pool, &counters_, &receive_stop_),
      send_(memory.send, send_options, &counters_, &send_completions_due_),
      memory_(memory),
      objects_(std::move(objects)) {
  front_ = send_.front();
  if (send_.MayPostStreams()) stream_front_ = send_.front();
  ShowReceiveQueue();
}

QueuePair::~QueuePair() = default;

// For ReceiveReady() and RefillDue(), which read no more than this.
void QueuePair::ShowReceiveQueue() {
  if (receive_.ended()) [[unlikely]] {
    static constexpr uint8_t kNothing = 0;
    receive_peek_ = receive_stop_ = &kNothing;
    receive_phase_ = 1;
    return;
  }
  ShowNextCqe();
  receive_.ShowStop(receive_peek_);
}

uint32_t QueuePair::PollReceive(std::span<nic::RxFrame> out) {
  const uint32_t taken = receive_.Poll(out, &error_);
  ShowReceiveQueue();
  return taken;
}

uint32_t QueuePair::Refill() {
  return receive_.Refill(receive_peek_);
}

nic::TxStatus QueuePair::Post(const nic::TxFrame& frame) {
  return send_.Post(frame);
}

// What it is left to has the same arguments, which stay in their registers.
nic::TxStatus QueuePair::PostCopied(const nic::TxTemplate& flow, const uint8_t* payload,
                                    uint32_t payload_length, uint32_t flags) {
  if (!send_.MayCopyDirectly(flow, payload_length, flags)) [[unlikely]] {
    return PostCopiedOtherwise(flow, payload, payload_length, flags);
  }
  send_.CopyDirectly(flow, payload);
  return nic::TxStatus::kPosted;
}

[[gnu::noinline]] nic::TxStatus QueuePair::PostCopiedOtherwise(const nic::TxTemplate& flow,
                                                               const uint8_t* payload,
                                                               uint32_t payload_length,
                                                               uint32_t flags) {
  return send_.PostCopied(flow, payload, payload_length, flags);
}

nic::TxBurst QueuePair::PostBurst(const nic::TxTemplate& flow,
                                  std::span<const nic::TxPayload> payloads) {
  return send_.PostBurst(flow, payloads);
}

nic::TxStatus QueuePair::PostPrepared(const nic::TxPrepared& prepared, uint32_t flags) {
  return send_.PostPrepared(prepared, flags);
}

nic::TxStatus QueuePair::PostSegments(const nic::TxSegments& segments) {
  return send_.PostSegments(segments);
}

uint32_t QueuePair::PollSend(std::span<nic::TxCompletion> out) {
  return send_.Poll(out, &error_);
}

void QueuePair::Arm(bool for_send) {
  receive_.completions().Publish();
  receive_.completions().Arm();
  if (for_send) send_.completions().Arm();
}

// What has come is looked at first: it may tell why.
void QueuePair::LookForStop() {
  if (error_ || ReceiveReady() || objects_ == nullptr || !objects_->stopped()) return;
  send_.End();
  receive_.End();
  error_ = nic::QueueError{.receive = true,
                           .text = "queue pair: the device says that a queue of it stopped, and no "
                                   "completion says why"};
}

std::optional<nic::QueueAddresses> QueuePair::Addresses() const {
  if (objects_ == nullptr) return std::nullopt;
  const auto completions = [](const CompletionQueueMemory& memory, const CompletionQueue& queue) {
    return nic::CompletionAddresses{.cqes = memory.cqes,
                                    .entries = 1u << memory.cqes_log2,
                                    .consumer = queue.consumer(),
                                    .record = memory.record,
                                    .number = memory.cqn};
  };
  const SendQueueMemory& send = memory_.send;
  const ReceiveQueueMemory& receive = memory_.receive;
  return nic::QueueAddresses{
      .send_blocks = send.wqebbs,
      .send_block_count = 1u << send.wqebbs_log2,
      .send_producer = send_.producer(),
      .send_record = send.record,
      .send_register = send_.next_register(),
      .blueflame_bytes = send.blueflame_bytes,
      .queue_number = send.qpn,
      .send_completions = completions(send.completions, send_.completions()),
      .receive_segments = receive.wqes,
      .receive_segment_count = 1u << receive.wqes_log2,
      .receive_producer = receive_.producer(),
      .receive_record = receive.record,
      .receive_completions = completions(receive.completions, receive_.completions()),
      .pool_key = pool_key_};
}

void QueuePair::AcknowledgeEvents() {
  if (objects_ == nullptr) return;
  for (;;) {
    switch (objects_->TakeEvent()) {
      case QueuePairObjects::Event::kNone:
        return;
      case QueuePairObjects::Event::kReceive:
        receive_.completions().CountEvent();
        break;
      case QueuePairObjects::Event::kSend:
        send_.completions().CountEvent();
        break;
    }
  }
}

}  // namespace xtreme::mlx5
