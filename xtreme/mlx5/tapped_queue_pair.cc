// SPDX-License-Identifier: Apache-2.0

#include "xtreme/mlx5/tapped_queue_pair.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "xtreme/mlx5/receive_known.h"
#include "xtreme/mlx5/send_queue_seen.h"
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
      usual_headers_(tap->KeepsLeast() ? kUsualHeaders : 0),
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

[[gnu::noinline]] void TappedQueuePair::KeepWholeInParts(const uint8_t* wqe) {
  const uint32_t bytes = InlineBytesOf(wqe);
  KeepInParts(wqe, bytes, nullptr, bytes);
}

[[gnu::noinline]] void TappedQueuePair::KeepInParts(const uint8_t* wqe, size_t header_length,
                                                    const uint8_t* payload, uint32_t bytes) {
  const auto header_bytes = static_cast<uint32_t>(header_length);
  tap_->WriteParts(wqe, wqe + kInlineOffset, header_bytes, payload, bytes - header_bytes,
                   FrameTap::Now());
  tap_->Publish(1);
}

[[gnu::noinline]] void TappedQueuePair::KeepLastInParts(uint32_t blocks) {
  KeepWholeInParts(LastWqe(blocks));
}

[[gnu::noinline]] void TappedQueuePair::KeepLastInParts(uint32_t blocks, size_t header_length,
                                                        const uint8_t* payload, uint32_t bytes) {
  KeepInParts(LastWqe(blocks), header_length, payload, bytes);
}

const uint8_t* TappedQueuePair::LastWqe(uint32_t blocks) {
  const uint8_t* wqe = NextWqe() - size_t{blocks} * kWqebbBytes;
  if (wqe < ring_end_ - ring_bytes_) wqe += ring_bytes_;
  return wqe > ring_end_ - kMaxWqeBytes ? JoinOverEnd(wqe) : wqe;
}

[[gnu::always_inline]] inline void TappedQueuePair::KeepWhole(const uint8_t* wqe) {
  FrameTap& tap = *tap_;  // Not to be read again behind what is written there.
  if (!tap.KeepsLeast()) [[unlikely]] return KeepWholeInParts(wqe);
  tap.WriteWqe(wqe);
  tap.Publish(1);
}

template <size_t kHalves>
[[gnu::always_inline]] inline void TappedQueuePair::KeepWhole(
    const nic::HalfLine (&halves)[kHalves]) {
  FrameTap& tap = *tap_;
  if (!tap.KeepsLeast()) [[unlikely]] return KeepLastInParts(kHalves / 2);
  tap.WriteWqe(halves);
  tap.Publish(1);
}

[[gnu::always_inline]] inline void TappedQueuePair::KeepLong(const uint8_t* wqe,
                                                             size_t header_length,
                                                             const uint8_t* payload,
                                                             uint32_t bytes) {
  constexpr size_t kHeld = kSeenBytes / sizeof(nic::HalfLine);
  using Halves = nic::HalfLine[kHeld];
  FrameTap& tap = *tap_;
  tap.WriteGathered<kHeld>(reinterpret_cast<const Halves&>(*wqe), header_length, payload, bytes);
  tap.Publish(1);
}

template <size_t kHalves>
[[gnu::always_inline]] inline void TappedQueuePair::KeepLong(
    const nic::HalfLine (&halves)[kHalves], size_t header_length, const uint8_t* payload,
    uint32_t bytes) {
  FrameTap& tap = *tap_;
  if (!tap.KeepsLeast()) [[unlikely]] {
    return KeepLastInParts(kHalves / 2, header_length, payload, bytes);
  }
  constexpr size_t kHeld = 3;
  constexpr size_t kHeldHeader = kHeld * sizeof(nic::HalfLine) - kInlineOffset;
  static_assert(std::max(nic::StreamSegment::kLongestHeader, kMaxHeaderBytes) <= kHeldHeader);
  tap.WriteGathered<kHeld>(halves, header_length, payload, bytes);
  tap.Publish(1);
}

struct TappedQueuePair::SeeWhole {
  TappedQueuePair* pair;

  template <size_t kHalves, typename... From>
  [[gnu::always_inline]] void operator()(const nic::HalfLine (&halves)[kHalves],
                                         const From&...) const {
    pair->KeepWhole(halves);
  }
  template <typename... From>
  [[gnu::always_inline]] void operator()(const uint8_t* wqe, const From&...) const {
    pair->KeepWhole(wqe);
  }
};

// Of Post(): if it is given the frame, its payload stands elsewhere.
struct TappedQueuePair::SeeAny {
  TappedQueuePair* pair;

  [[gnu::always_inline]] void operator()(const uint8_t* wqe) const { pair->KeepWhole(wqe); }
  [[gnu::always_inline]] void operator()(const uint8_t* wqe, const nic::TxFrame& frame,
                                         uint32_t bytes) const {
    static_assert(kMaxInlineFrameBytes - FrameTap::kLongestHeaders >= FrameTap::kGatheredPayload);
    if (!pair->KeepsWith(frame.header_length)) [[unlikely]] {
      return pair->KeepInParts(wqe, frame.header_length, frame.payload, bytes);
    }
    pair->KeepLong(wqe, frame.header_length, frame.payload, bytes);
  }
};

// Of PostGathered().
struct TappedQueuePair::SeeGathered {
  TappedQueuePair* pair;
  const nic::StreamSegment& segment;

  template <size_t kHalves>
  [[gnu::always_inline]] void operator()(const nic::HalfLine (&halves)[kHalves]) const {
    pair->KeepLong(halves, segment.header_bytes, segment.payload, segment.frame_bytes());
  }
};

// Of PostSegments(): uncut, as a kernel shows it; the header and the first piece.
struct TappedQueuePair::SeeSegments {
  TappedQueuePair* pair;
  const nic::TxSegments& segments;

  [[gnu::always_inline]] void operator()(const uint8_t* wqe) const {
    const uint32_t header_length = segments.header_length;
    const nic::TxGather& first = segments.payload[0];
    const uint32_t bytes = header_length + first.length;
    const bool is_long = first.length >= FrameTap::kGatheredPayload;
    if (!is_long || !pair->KeepsWith(header_length)) [[unlikely]] {
      return pair->KeepInParts(wqe, header_length, first.data, bytes);
    }
    pair->KeepLong(wqe, header_length, first.data, bytes);
  }
};

// Of PostStored(), which takes UDP's headers, and more than could be inline.
struct TappedQueuePair::SeeStored {
  TappedQueuePair* pair;
  const uint8_t* payload;

  template <size_t kHalves>
  [[gnu::always_inline]] void operator()(const nic::HalfLine (&halves)[kHalves],
                                         const nic::TxPrepared& stored) const {
    pair->KeepLong(halves, stored.header_bytes, payload, stored.frame_bytes());
  }
  [[gnu::always_inline]] void operator()(const uint8_t* wqe, const nic::TxPrepared& stored) const {
    if (!pair->tap_->KeepsLeast()) [[unlikely]] {
      return pair->KeepInParts(wqe, stored.header_bytes, payload, stored.frame_bytes());
    }
    pair->KeepLong(wqe, stored.header_bytes, payload, stored.frame_bytes());
  }
};

nic::TxStatus TappedQueuePair::Post(const nic::TxFrame& frame) {
  if (!send().MayPostPlain(frame)) return PostOtherwise(frame);
  return send().PostPlainSeen(frame, SeeWhole{this});
}

[[gnu::noinline]] nic::TxStatus TappedQueuePair::PostOtherwise(const nic::TxFrame& frame) {
  return send().PostOtherwiseSeen(frame, SeeAny{this});
}

nic::TxStatus TappedQueuePair::PostStored(const nic::TxTemplate& flow, const uint8_t* payload,
                                          uint32_t payload_length, uint32_t flags) {
  return send().PostStoredSeen(flow, payload, payload_length, flags, SeeStored{this, payload});
}

// Most call nothing here, and save nothing.
nic::TxStatus TappedQueuePair::PostCopied(const nic::TxTemplate& flow, const uint8_t* payload,
                                          uint32_t payload_length, uint32_t flags) {
  if (!send().MayCopyDirectly(flow, payload_length, flags)) [[unlikely]] {
    return PostOtherwise(flow, payload, payload_length, flags);
  }
  send().CopyDirectly(flow, payload, SeeWhole{this});
  return nic::TxStatus::kPosted;
}

[[gnu::noinline]] nic::TxStatus TappedQueuePair::PostOtherwise(const nic::TxTemplate& flow,
                                                               const uint8_t* payload,
                                                               uint32_t payload_length,
                                                               uint32_t flags) {
  if (payload_length != flow.payload_length) [[unlikely]] {
    return PostOtherLength(flow, payload, payload_length, flags);
  }
  CopyShort(flow.frame.image.data() + flow.payload_at, payload, payload_length);
  return TappedQueuePair::PostPrepared(flow.frame, flags);
}

[[gnu::noinline]] nic::TxStatus TappedQueuePair::PostOtherLength(const nic::TxTemplate& flow,
                                                                 const uint8_t* payload,
                                                                 uint32_t payload_length,
                                                                 uint32_t flags) {
  SetPayloadLength(flow, payload_length);
  CopyShort(flow.frame.image.data() + flow.payload_at, payload, payload_length);
  if (!send().MayPostDirectly(flow.frame, flags)) {
    return TappedQueuePair::PostPrepared(flow.frame, flags);
  }
  send().PostDirectly(flow.frame, SeeWhole{this});
  return nic::TxStatus::kPosted;
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
  return send().PostPreparedSeen(prepared, flags, SeeWhole{this});
}

bool TappedQueuePair::PostStreamOtherwise(const nic::StreamSegment& segment) {
  nic::TxFront& front = *send().front();
  if (!front.Ready()) [[unlikely]] return PostStreamDue(segment);
  nic::PostStream(front, segment, SeeWhole{this});
  return true;
}

[[gnu::noinline]] bool TappedQueuePair::PostStreamDue(const nic::StreamSegment& segment) {
  return send().PostStreamOtherwiseSeen(segment, SeeWhole{this});
}

bool TappedQueuePair::PlaceStream(const nic::StreamSegment& segment) {
  return send().PlaceStreamSeen(segment, SeeWhole{this});
}

std::optional<uint32_t> TappedQueuePair::PostGathered(const nic::StreamSegment& segment,
                                                      uint32_t key, uint32_t flags) {
  return send().PostGatheredSeen(segment, key, flags, SeeGathered{this, segment});
}

nic::TxStatus TappedQueuePair::PostSegments(const nic::TxSegments& segments) {
  return send().PostSegmentsSeen(segments, SeeSegments{this, segments});
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
