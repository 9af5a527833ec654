// SPDX-License-Identifier: Apache-2.0

#include "xtreme/mlx5/tapped_queue_pair.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "xtreme/mlx5/receive_known.h"
#include "xtreme/mlx5/send_queue_in_place.h"
#include "xtreme/mlx5/send_wqe.h"
#include "xtreme/nic/stream_post.h"

namespace xtreme::mlx5 {

using stats::FrameKind;
using stats::FrameTap;

namespace {

// Of frames that are shown when all of them were written.
constexpr size_t kMostAtOnce = stats::kSlotsAtWork / 2;

}  // namespace

TappedQueuePair::TappedQueuePair(FrameTap* tap, const QueuePairMemory& memory,
                                 const SendQueue::Options& send_options,
                                 const ReceiveQueue::Options& receive_options,
                                 const nic::Capabilities& capabilities, packet::BufferPool* pool,
                                 std::unique_ptr<QueuePairObjects> objects)
    : QueuePair(memory, send_options, receive_options, capabilities, pool, std::move(objects)),
      tap_(tap),
      ring_end_(memory.send.wqebbs + (size_t{kWqebbBytes} << memory.send.wqebbs_log2)),
      ring_bytes_(size_t{kWqebbBytes} << memory.send.wqebbs_log2),
      qpn_(memory.send.qpn),
      received_(receive_options.timestamps ? FrameKind::kReceived : FrameKind::kReceivedUntimed) {
  front_ = NoFront();  // Every post is seen here, or by who posts on the tap's front.
  if (!TakesStreams()) return;
  stream_front_ = &never_;
  if (tap->KeepsLeast()) sent_tap_ = {send().front(), tap};
}

uint32_t TappedQueuePair::PollReceive(std::span<nic::RxFrame> out) {
  const uint32_t taken = QueuePair::PollReceive(out);
  if (taken == 0) return 0;
  const std::span<const nic::RxFrame> frames = out.first(taken);
  if (!tap_->KeepsLeast()) [[unlikely]] {
    for (const nic::RxFrame& frame : frames) {
      tap_->Write(received_, frame.buffer->data, frame.buffer->length, frame.hw_clock);
    }
    tap_->Publish(taken);
    return taken;
  }
  FrameTap::Run run(tap_);
  for (const nic::RxFrame& frame : frames) {
    run.Write(received_, frame.buffer->data, frame.buffer->length, frame.hw_clock);
  }
  run.Publish(taken);
  return taken;
}

uint32_t TappedQueuePair::PollKnown(const completion::KnownFlows& flows,
                                    completion::Completion* out, uint32_t most) {
  if (!tap_->KeepsLeast()) [[unlikely]] return PollMany<Watch>(flows, out, most);
  return PollFlows<LeastWatch>(flows, out, most);
}

uint32_t TappedQueuePair::PollLinks(const completion::LinkFlows& flows,
                                    completion::LinkCompletion* out, uint32_t most) {
  bool declined = false;  // There are no others to leave it to.
  return PollInto<completion::LinkFlows, Watch>(flows, out, most, &declined);
}

packet::Buffer* TappedQueuePair::TakeKnown(const completion::KnownFlows& flows,
                                           const udp::Endpoint* endpoint, size_t most) {
  return TakeOne<Watch>(flows, endpoint, most);
}

[[gnu::noinline]] void TappedQueuePair::KeepParts(const uint8_t* wqe, const uint8_t* header,
                                                  uint32_t header_length, const uint8_t* payload,
                                                  uint32_t payload_length) {
  tap_->WriteParts(wqe, header, header_length, payload, payload_length, FrameTap::Now());
  tap_->Publish(1);
}

[[gnu::always_inline]] inline void TappedQueuePair::KeepWhole(const uint8_t* wqe,
                                                              const uint8_t* frame,
                                                              uint32_t bytes) {
  if (!tap_->KeepsLeast()) [[unlikely]] return KeepParts(wqe, frame, bytes, nullptr, 0);
  tap_->WriteWqe(wqe <= ring_end_ - kKeptBytes ? wqe : JoinOverEnd(wqe));
  tap_->Publish(1);
}

[[gnu::always_inline]] inline void TappedQueuePair::Keep(const uint8_t* wqe, const uint8_t* header,
                                                         uint32_t header_length,
                                                         const uint8_t* payload,
                                                         uint32_t payload_length) {
  constexpr uint32_t kShortest = FrameTap::kShortestHeaders;
  if (!tap_->KeepsLeast()) [[unlikely]] {
    KeepParts(wqe, header, header_length, payload, payload_length);
  } else if (InlineBytesOf(wqe) == header_length + payload_length) {
    KeepWhole(wqe, nullptr, 0);
  } else if (header_length - kShortest <= FrameTap::kLongestHeaders - kShortest &&
             payload_length >= FrameTap::kGatheredPayload) {
    if (wqe > ring_end_ - kKeptBytes) [[unlikely]] wqe = JoinOverEnd(wqe);
    using Halves = nic::HalfLine[FrameTap::kGatheredWqe / sizeof(nic::HalfLine)];
    tap_->WriteGathered(reinterpret_cast<const Halves&>(*wqe), header_length, payload,
                        payload_length);
    tap_->Publish(1);
  } else {
    KeepParts(wqe, header, header_length, payload, payload_length);
  }
}

template <size_t kHalves>
[[gnu::always_inline]] inline void TappedQueuePair::KeepLong(
    const uint8_t* wqe, const nic::HalfLine (&halves)[kHalves], uint32_t header_length,
    const uint8_t* payload, uint32_t payload_length) {
  FrameTap& tap = *tap_;  // As in PostCopied().
  if (!tap.KeepsLeast()) [[unlikely]] {
    return KeepParts(wqe, wqe + kInlineOffset, header_length, payload, payload_length);
  }
  tap.WriteGathered(halves, header_length, payload, payload_length);
  tap.Publish(1);
}

nic::TxStatus TappedQueuePair::Post(const nic::TxFrame& frame) {
  const bool plain = send().MayPostPlain(frame) && tap_->KeepsLeast();
  return plain ? PostPlain(frame) : PostOtherwise(frame);
}

[[gnu::noinline]] nic::TxStatus TappedQueuePair::PostPlain(const nic::TxFrame& frame) {
  FrameTap& tap = *tap_;  // As in PostCopied().
  const uint8_t* const wqe = NextWqe();
  send().PostPlain(frame);
  tap.WriteWqe(wqe);
  tap.Publish(1);
  return nic::TxStatus::kPosted;
}

[[gnu::noinline]] nic::TxStatus TappedQueuePair::PostOtherwise(const nic::TxFrame& frame) {
  const uint8_t* const wqe = NextWqe();
  const nic::TxStatus status = send().Post(frame);
  if (status != nic::TxStatus::kPosted || (frame.flags & nic::kTxWarm) != 0) return status;
  Keep(wqe, frame.header, frame.header_length, frame.payload, frame.payload_length);
  return status;
}

// What sees a WQE has all but the payload from the flow: the rest stands in no register by then.
nic::TxStatus TappedQueuePair::PostStored(const nic::TxTemplate& flow, const uint8_t* payload,
                                          uint32_t payload_length, uint32_t flags) {
  struct {
    TappedQueuePair& pair;
    const nic::TxTemplate& flow;
    const uint8_t* payload;

    void operator()(const uint8_t* wqe) const {
      pair.Keep(wqe, flow.stored.image.data() + kInlineOffset, flow.header_length, payload,
                flow.stored_length);
    }
    [[gnu::always_inline]] void operator()(const uint8_t* wqe,
                                           const nic::HalfLine (&halves)[4]) const {
      pair.KeepLong(wqe, halves, flow.header_length, payload, flow.stored_length);
    }
  } const see{*this, flow, payload};
  return send().PostStoredSeen(flow, payload, payload_length, flags, see);
}

// Most call nothing here, and save nothing.
nic::TxStatus TappedQueuePair::PostCopied(const nic::TxTemplate& flow, const uint8_t* payload,
                                          uint32_t payload_length, uint32_t flags) {
  FrameTap& tap = *tap_;  // Not to be read again behind what is written there.
  if (!send().MayCopyDirectly(flow, payload_length, flags) || !tap.KeepsLeast()) [[unlikely]] {
    return PostOtherwise(flow, payload, payload_length, flags);
  }
  send().CopyDirectly(flow, payload, [&tap](const auto& halves) __attribute__((always_inline)) {
    tap.WriteWqe(halves);
    tap.Publish(1);
  });
  return nic::TxStatus::kPosted;
}

[[gnu::noinline]] nic::TxStatus TappedQueuePair::PostOtherwise(const nic::TxTemplate& flow,
                                                               const uint8_t* payload,
                                                               uint32_t payload_length,
                                                               uint32_t flags) {
  const uint8_t* const wqe = NextWqe();
  const nic::TxStatus status = QueuePair::PostCopied(flow, payload, payload_length, flags);
  if (status != nic::TxStatus::kPosted) return status;
  KeepWhole(wqe, flow.frame.image.data() + kInlineOffset, flow.frame.frame_bytes());
  return status;
}

nic::TxBurst TappedQueuePair::PostBurst(const nic::TxTemplate& flow,
                                        std::span<const nic::TxPayload> payloads) {
  if (!tap_->KeepsLeast() || payloads.size() > kMostAtOnce) return PostEach(flow, payloads);
  const uint8_t* const wqe = NextWqe();
  const nic::TxBurst posted = send().PostBurst(flow, payloads);
  const auto frames = payloads.first(posted.frames);
  if (NextWqe() >= wqe) [[likely]] KeepBurst<false>(flow, frames, wqe);
  else KeepBurst<true>(flow, frames, wqe);
  return posted;
}

// From their WQEs, one behind the other.
template <bool kOverEnd>
[[gnu::always_inline]] inline void TappedQueuePair::KeepBurst(
    const nic::TxTemplate& flow, std::span<const nic::TxPayload> payloads, const uint8_t* wqe) {
  const uint32_t header_bytes = flow.header_length;
  const uint64_t now = FrameTap::Now();
  FrameTap::Run run(tap_);
  for (const nic::TxPayload& payload : payloads) {
    const bool cut = kOverEnd && wqe > ring_end_ - kKeptBytes;
    run.WriteWqe(cut ? JoinOverEnd(wqe) : wqe, now);
    wqe += size_t{WqebbsWithInline(header_bytes + payload.length)} * kWqebbBytes;
    if (kOverEnd && wqe >= ring_end_) wqe -= ring_bytes_;
  }
  run.Publish(static_cast<uint32_t>(payloads.size()));
}

[[gnu::noinline]] const uint8_t* TappedQueuePair::JoinOverEnd(const uint8_t* wqe) {
  const auto before = static_cast<size_t>(ring_end_ - wqe);
  memcpy(joined_.data(), wqe, before);
  memcpy(joined_.data() + before, ring_end_ - ring_bytes_, joined_.size() - before);
  return joined_.data();
}

[[gnu::noinline]] nic::TxBurst TappedQueuePair::PostEach(
    const nic::TxTemplate& flow, std::span<const nic::TxPayload> payloads) {
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
  if (!send().MayPostDirectly(prepared, flags) || !tap_->KeepsLeast()) [[unlikely]] {
    return PostOtherwise(prepared, flags);
  }
  send().PostDirectly(prepared, [this](const auto& halves) __attribute__((always_inline)) {
    tap_->WriteWqe(halves);
    tap_->Publish(1);
  });
  return nic::TxStatus::kPosted;
}

[[gnu::noinline]] nic::TxStatus TappedQueuePair::PostOtherwise(const nic::TxPrepared& prepared,
                                                               uint32_t flags) {
  const uint8_t* const wqe = NextWqe();
  const nic::TxStatus status = QueuePair::PostPrepared(prepared, flags);
  if (status != nic::TxStatus::kPosted || (flags & nic::kTxWarm) != 0) return status;
  KeepWhole(wqe, prepared.image.data() + prepared.frame_at, prepared.frame_bytes());
  return status;
}

// One of which more than the least is kept is put together anew.
template <uint32_t kBlocks>
[[gnu::always_inline]] inline void TappedQueuePair::KeepStream(const nic::StreamSegment& segment,
                                                               const uint8_t* wqe) {
  if (tap_->KeepsLeast()) [[likely]] return KeepWhole(wqe, nullptr, 0);
  nic::HalfLine halves[2 * kBlocks];
  nic::LoadStream(*send().front(), segment, halves);
  const auto* const frame = reinterpret_cast<const uint8_t*>(halves) + kInlineOffset;
  KeepParts(wqe, frame, segment.frame_bytes(), nullptr, 0);
}

bool TappedQueuePair::PostStreamOtherwise(const nic::StreamSegment& segment) {
  nic::TxFront& front = *send().front();
  const uint8_t* const wqe = front.next_wqe;
  if (front.Ready()) [[likely]] nic::PostStream(front, segment);
  else if (!send().PostStreamOtherwise(segment)) return false;
  KeepStream<kMaxWqebbs>(segment, wqe);
  return true;
}

bool TappedQueuePair::PlaceStream(const nic::StreamSegment& segment) {
  FrameTap& tap = *tap_;  // As in PostCopied().
  const uint8_t* const wqe = NextWqe();
  if (send().AttentionIsDue() || !tap.KeepsLeast()) [[unlikely]] {
    return PlaceStreamOtherwise(segment);
  }
  send().PlaceAtOnce(segment);
  tap.WriteWqe(wqe);
  tap.Publish(1);
  return true;
}

[[gnu::noinline]] bool TappedQueuePair::PlaceStreamOtherwise(const nic::StreamSegment& segment) {
  const uint8_t* const wqe = NextWqe();
  if (!send().PlaceStream(segment)) return false;
  KeepStream<2>(segment, wqe);
  return true;
}

std::optional<uint32_t> TappedQueuePair::PostGathered(const nic::StreamSegment& segment,
                                                      uint32_t key, uint32_t flags) {
  const auto see = [&](const uint8_t* wqe, const auto& halves) __attribute__((always_inline)) {
    KeepLong(wqe, halves, segment.header_bytes, segment.payload, segment.payload_length);
  };
  return send().PostGatheredSeen(segment, key, flags, see);
}

nic::TxStatus TappedQueuePair::PostSegments(const nic::TxSegments& segments) {
  const uint8_t* const wqe = NextWqe();
  const nic::TxStatus status = QueuePair::PostSegments(segments);
  if (status != nic::TxStatus::kPosted) return status;
  const nic::TxGather& first = segments.payload[0];
  Keep(wqe, segments.header, segments.header_length, first.data, first.length);
  return status;
}

// A completion is of the frame that was signalled, with its time, and of those before it.
uint32_t TappedQueuePair::PollSend(std::span<nic::TxCompletion> out) {
  uint32_t taken = 0;
  uint32_t timed = 0;
  while (taken < out.size() && QueuePair::PollSend(out.subspan(taken, 1)) != 0) {
    const uint64_t at = out[taken++].hw_clock;
    if (at == 0) continue;
    tap_->WriteSendTime(qpn_, send().completed_end(), at);
    ++timed;
  }
  tap_->Publish(timed);
  return taken;
}

}  // namespace xtreme::mlx5
