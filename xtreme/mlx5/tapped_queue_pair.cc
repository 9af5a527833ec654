// SPDX-License-Identifier: Apache-2.0

#include "xtreme/mlx5/tapped_queue_pair.h"

#include <utility>

#include "xtreme/mlx5/send_wqe.h"

namespace xtreme::mlx5 {

using stats::FrameKind;
using stats::FrameTap;

TappedQueuePair::TappedQueuePair(FrameTap* tap, const QueuePairMemory& memory,
                                 const SendQueue::Options& send_options,
                                 const ReceiveQueue::Options& receive_options,
                                 const nic::Capabilities& capabilities, packet::BufferPool* pool,
                                 std::unique_ptr<QueuePairObjects> objects)
    : QueuePair(memory, send_options, receive_options, capabilities, pool, std::move(objects)),
      tap_(tap),
      sent_(stats::OfQueue(FrameKind::kSent, tap->AddQueue())),
      received_(receive_options.timestamps ? FrameKind::kReceived : FrameKind::kReceivedUntimed) {
  front_ = stream_front_ = NoFront();  // Every post is seen here.
}

uint32_t TappedQueuePair::PollReceive(std::span<nic::RxFrame> out) {
  const uint32_t taken = QueuePair::PollReceive(out);
  if (taken == 0) return 0;
  for (const nic::RxFrame& frame : out.first(taken)) {
    tap_->Write(received_, frame.buffer->data, frame.buffer->length, frame.hw_clock);
  }
  tap_->Publish(taken);
  return taken;
}

nic::TxStatus TappedQueuePair::Post(const nic::TxFrame& frame) {
  const nic::TxStatus status = QueuePair::Post(frame);
  if (status != nic::TxStatus::kPosted || (frame.flags & nic::kTxWarm) != 0) return status;
  tap_->WriteParts(sent_, frame.header, frame.header_length, frame.payload,
                   frame.payload_length, FrameTap::Now(), send().posted_frames());
  tap_->Publish(1);
  return status;
}

// The flow's frame is what was written into the WQE. Most call nothing here, and save nothing.
nic::TxStatus TappedQueuePair::PostCopied(const nic::TxTemplate& flow, const uint8_t* payload,
                                          uint32_t payload_length, uint32_t flags) {
  const bool same = payload_length == flow.payload_length;
  if (!same || !send().MayPostDirectly(flow.frame, flags) || !tap_->KeepsLeast()) [[unlikely]] {
    return PostOtherwise(flow, payload, payload_length, flags);
  }
  CopyShort(flow.frame.image.data() + flow.payload_at, payload, payload_length);
  send().PostDirectly(flow.frame);
  tap_->WriteLeast(sent_, flow.frame.image.data() + kInlineOffset,
                   flow.frame.frame_bytes, FrameTap::Now(), send().posted_frames());
  tap_->Publish(1);
  return nic::TxStatus::kPosted;
}

[[gnu::noinline]] nic::TxStatus TappedQueuePair::PostOtherwise(const nic::TxTemplate& flow,
                                                               const uint8_t* payload,
                                                               uint32_t payload_length,
                                                               uint32_t flags) {
  const nic::TxStatus status = send().PostCopied(flow, payload, payload_length, flags);
  if (status != nic::TxStatus::kPosted) return status;
  tap_->Write(sent_, flow.frame.image.data() + kInlineOffset, flow.frame.frame_bytes,
              FrameTap::Now(), send().posted_frames());
  tap_->Publish(1);
  return status;
}

nic::TxBurst TappedQueuePair::PostBurst(const nic::TxTemplate& flow,
                                        std::span<const nic::TxPayload> payloads) {
  nic::TxBurst posted = {0, 0};
  for (const nic::TxPayload& payload : payloads) {
    if (payload.length > flow.max_payload_bytes ||
        PostCopied(flow, payload.data, payload.length, nic::kTxMore) != nic::TxStatus::kPosted) {
      break;
    }
    ++posted.frames;
    posted.payload_bytes += payload.length;
  }
  return posted;
}

nic::TxStatus TappedQueuePair::PostPrepared(const nic::TxPrepared& prepared, uint32_t flags) {
  const nic::TxStatus status = QueuePair::PostPrepared(prepared, flags);
  if (status != nic::TxStatus::kPosted || (flags & nic::kTxWarm) != 0) return status;
  tap_->Write(sent_, prepared.image.data() + prepared.frame_at, prepared.frame_bytes,
              FrameTap::Now(), send().posted_frames());
  tap_->Publish(1);
  return status;
}

nic::TxStatus TappedQueuePair::PostSegments(const nic::TxSegments& segments) {
  const nic::TxStatus status = QueuePair::PostSegments(segments);
  if (status != nic::TxStatus::kPosted) return status;
  const nic::TxGather& first = segments.payload[0];
  tap_->WriteParts(sent_, segments.header, segments.header_length, first.data,
                   first.length, FrameTap::Now(), send().posted_frames());
  tap_->Publish(1);
  return status;
}

// A completion is of the frame that was signalled, with its time, and of those before it.
uint32_t TappedQueuePair::PollSend(std::span<nic::TxCompletion> out) {
  const uint32_t taken = QueuePair::PollSend(out);
  uint32_t timed = 0;
  for (const nic::TxCompletion& done : out.first(taken)) {
    if (done.hw_clock == 0) continue;
    tap_->WriteSendTime(done.frames, done.hw_clock, stats::QueueOf(sent_));
    ++timed;
  }
  tap_->Publish(timed);
  return taken;
}

}  // namespace xtreme::mlx5
