// SPDX-License-Identifier: Apache-2.0

#include "xtreme/mlx5/send_queue.h"

#include <algorithm>
#include <cstring>

#include "xtreme/mlx5/queue_error.h"
#include "xtreme/mlx5/send_queue_seen.h"

namespace xtreme::mlx5 {

SendQueue::SendQueue(const SendQueueMemory& memory, const Options& options,
                     nic::QueueCounters* counters, uint32_t* completions_due)
    : wqebbs_(memory.wqebbs),
      mask_((1u << memory.wqebbs_log2) - 1),
      qpn_(memory.qpn),
      blueflame_wqebbs_(memory.blueflame_bytes / kWqebbBytes),
      options_(options),
      counters_(counters),
      completions_due_(completions_due),
      front_{.next_wqe = memory.wqebbs,
             .record = memory.record,
             .next_register = reinterpret_cast<uintptr_t>(memory.doorbell_register),
             .stream_control = StreamControl(memory.qpn),
             .stream_offloads = StreamOffloads()},
      signal_at_(options.signal_every - 1),
      device_memory_(memory.device_memory),
      frames_((mask_ + 1) / kMaxWqebbs),
      marks_(std::make_unique<Mark[]>(size_t{mask_} + 1)),
      completions_(memory.completions) {
  UpdateAttention();
}

// The queue is full, a signal is due, or a WQE of the longest kind might cross the ring's end:
// whichever is first. In distances from what is posted, as counts wrap; a frame is a unit at least.
// Where checksums are finished here, every frame needs attention.
void SendQueue::UpdateAttention() {
  const uint64_t posted = front_.posted();
  const uint32_t used = static_cast<uint32_t>(posted) - completed_;
  const uint32_t room = used < frames_ ? frames_ - used : 0;
  const uint32_t most = options_.checksums ? room : 0;
  const uint64_t units = front_.units();
  // Nor up to the end: who needs no attention leaves the next WQE's place where it would be beyond.
  behind_ahead_ = units + std::min(std::min(most, ToSignal()), BeforeEnd());
  SetAttention(ahead_ ? units : behind_ahead_);
}

nic::TxStatus SendQueue::AttendAfter() {
  UpdateAttention();
  return nic::TxStatus::kPosted;
}

// Only where the room before it was too little is the room that it gave back asked for.
void SendQueue::TakeAhead() {
  TakeOneAhead();
  if (AttentionIsDue()) [[unlikely]] UpdateAttention();
}

[[gnu::noinline]] nic::TxStatus SendQueue::PostOtherwise(const nic::TxFrame& frame) {
  return PostOtherwiseSeen(frame, UnseenWqe());
}

[[gnu::noinline]] nic::TxStatus SendQueue::PostWarm(const nic::TxFrame& frame) {
  const nic::TxStatus posted = PostAs<MLX5_OPCODE_NOP>(frame, UnseenWqe());
  counters_->tx_warm += posted == nic::TxStatus::kPosted;
  return posted;
}

nic::TxStatus SendQueue::Post(const nic::TxFrame& frame) {
  if (MayPostPlain(frame)) [[likely]] return PostPlainSeen(frame, UnseenWqe());
  return PostOtherwise(frame);
}

// On the device if there is room, else where the payload lies; key 0: it has none there.
Gather SendQueue::PlaceOf(const nic::TxFrame& frame) {
  const Gather here = {reinterpret_cast<uintptr_t>(frame.payload), frame.key};
  if (device_memory_.present()) {
    const uint32_t length = frame.payload_length;
    if (device_memory_.HasRun(length) || MakeRoomToStore(length)) {
      ++counters_->tx_device_memory;
      counters_->tx_device_memory_bytes += length;
      return {device_memory_.Write(frame.payload, length), device_memory_.key()};
    }
    counters_->tx_device_memory_full += here.key != 0;
  }
  counters_->tx_gathered += here.key != 0;
  return here;
}

bool SendQueue::PrepareFrame(const nic::TxFrame& frame, nic::TxPrepared* prepared) const {
  const uint32_t bytes = frame.header_length + frame.payload_length;
  if (bytes > kMaxInlineFrameBytes) return false;
  const uint32_t segments = SegmentsWithInline(bytes);
  uint8_t* const image = prepared->image.data();
  WriteControl(image, 0, MLX5_OPCODE_SEND, qpn_, segments, Completion::kOnError);
  WriteEthernet(image, frame.flags, bytes);
  WriteInlineFrame(image, frame.header, frame.header_length, frame.payload, frame.payload_length);
  prepared->frame_at = kInlineOffset;
  prepared->header_bytes = frame.header_length;
  SetStep(*prepared, bytes, WqebbsOfSegments(segments), most_direct_blocks());
  return true;
}

nic::TxStatus SendQueue::PostOtherLength(const nic::TxTemplate& flow, const uint8_t* payload,
                                         uint32_t payload_length, uint32_t flags) {
  SetPayloadLength(flow, payload_length);
  CopyShort(flow.frame.image.data() + flow.payload_at, payload, payload_length);
  if (!MayPostDirectly(flow.frame, flags)) return PostPrepared(flow.frame, flags);
  PostDirectly(flow.frame);
  return nic::TxStatus::kPosted;
}

nic::TxStatus SendQueue::PostStored(const nic::TxTemplate& flow, const uint8_t* payload,
                                    uint32_t payload_length, uint32_t flags) {
  return PostStoredSeen(flow, payload, payload_length, flags, UnseenWqe());
}

// By the next completion, if it is there; and when much was written since the last frame that has
// one, this frame has.
[[gnu::noinline]] bool SendQueue::MakeRoomToStore(uint32_t payload_length) {
  if (!device_memory_.MakeRun(payload_length)) {
    if (!AskedIsDue()) TakeOneAhead();
    UpdateAttention();
    if (!device_memory_.MakeRun(payload_length)) return false;
  }
  if (device_memory_.mark_is_due()) {
    signal_at_ = Units();
    UpdateAttention();
  }
  return true;
}

nic::TxStatus SendQueue::PostPrepared(const nic::TxPrepared& prepared, uint32_t flags) {
  return PostPreparedSeen(prepared, flags, UnseenWqe());
}

[[gnu::noinline]] nic::TxStatus SendQueue::PostWarm(const nic::TxPrepared& prepared,
                                                    uint32_t flags) {
  const nic::TxStatus posted = PostAs<MLX5_OPCODE_NOP>(prepared, flags, UnseenWqe());
  counters_->tx_warm += posted == nic::TxStatus::kPosted;
  return posted;
}

nic::TxStatus SendQueue::PostSegments(const nic::TxSegments& segments) {
  return PostSegmentsSeen(segments, UnseenWqe());
}

// The device reads no WQE before it was rung for.
bool SendQueue::SignalLast() {
  if (unrung_ == nullptr || frames_ == 0) return false;
  // It begins in its place even if it was written elsewhere and spread over the ring's end.
  const uint32_t wqebbs = WqebbsOfSegments(SegmentsOf(unrung_));
  const uint32_t slot = (Index() - wqebbs) & mask_;
  uint8_t* const wqe = wqebbs_ + size_t{slot} * kWqebbBytes;
  asked_ = posted_frames();
  ahead_ = false;  // attention_at_ may come too early, as above
  if (HasCompletion(wqe)) return true;
  SetCompletion(wqe, Completion::kAlways);
  NoteSignal(front_.units(), slot, Index());
  return true;
}

nic::TxStatus SendQueue::Refuse() {
  if (frames_ == 0) return nic::TxStatus::kBroken;
  ++counters_->tx_full;
  return nic::TxStatus::kFull;
}

nic::TxBurst SendQueue::PostBurst(const nic::TxTemplate& flow,
                                  std::span<const nic::TxPayload> payloads) {
  const uint64_t bytes_before = counters_->tx_bytes;
  const nic::TxPayload* const first = payloads.data();
  const nic::TxPayload* const end = first + payloads.size();
  const nic::TxPayload* next = first;
  const nic::TxPayload* cut = first;
  do {
    if (ahead_) TakeAhead();
    cut = PostRun(flow, next, end);
    next = cut == end ? end : PostCut(flow, cut, end);
  } while ((next != cut || ahead_) && next != end);
  const auto frames = static_cast<uint32_t>(next - first);
  return {frames, counters_->tx_bytes - bytes_before - uint64_t{frames} * flow.header_length};
}

const nic::TxPayload* SendQueue::PostCut(const nic::TxTemplate& flow, const nic::TxPayload* next,
                                         const nic::TxPayload* end) {
  for (; next != end && !ahead_ && AttentionIsDue(); ++next) {
    if (next->length > flow.max_payload_bytes) break;
    const nic::TxPrepared& frame = FrameOf(flow, next->data, next->length);
    if (PostPrepared(frame, nic::kTxMore) != nic::TxStatus::kPosted) break;
  }
  return next;
}

[[gnu::always_inline]] inline const nic::TxPayload* SendQueue::PostRun(
    const nic::TxTemplate& flow, const nic::TxPayload* next, const nic::TxPayload* end) {
  bool signals = false;
  // As many as have one length at a time.
  while (next != end && !signals) {
    if (next->length != flow.payload_length) [[unlikely]] {
      if (next->length > flow.max_payload_bytes) break;
      SetPayloadLength(flow, next->length);
    }
    const FrameWriter writer(flow);
    const auto asked = static_cast<size_t>(end - next);
    size_t plain = PlainFrames(writer.blocks);
    // Where a signal is all that is due, the run ends with the frame that is signalled.
    signals = asked > plain && writer.blocks <= 2 && EndsWithSignal(plain);
    plain += signals;
    if (plain == 0) break;
    const nic::TxPayload* const cut = next + std::min(asked, plain);
    const size_t wqe_bytes = size_t{writer.blocks} * kWqebbBytes;
    uint8_t* wqe = front_.next_wqe;
    uint32_t index = Index();
    const nic::TxPayload* const first = next;
    do {
      writer.Write(wqe, index, next->data);
      wqe += wqe_bytes;
      index += writer.blocks;
      ++next;
    } while (next != cut && next->length == writer.payload_length);
    signals = signals && next == cut;
    const auto count = static_cast<uint64_t>(next - first);
    front_.next_wqe = wqe;
    front_.SetFirstBlock(index);
    front_.gate += count * nic::TxStep::UnitsOf(writer.blocks);
    front_.wide += writer.blocks > 2 ? count : 0;
    front_.Owe();
    unrung_ = wqe - wqe_bytes;
    otherwise_rung_ += count;
    counters_->tx_bytes += count * flow.frame.frame_bytes();
  }
  // Nobody has rung for it: the device has not looked at it.
  if (signals) {
    const uint32_t slot = (Index() - flow.frame.blocks()) & mask_;
    SetCompletion(wqebbs_ + size_t{slot} * kWqebbBytes, Completion::kAlways);
    const uint64_t units = front_.units();
    NoteSignal(units, slot, Index());
    AttendAhead(units, options_.signal_every - 1);
  }
  return next;
}

// The WQE stands in scratch_; its place is [slot, slot + wqebbs) of the ring, modulo its size.
void SendQueue::SpreadOverRingEnd(uint32_t slot, uint32_t wqebbs) {
  const uint32_t before_end = std::min(wqebbs, mask_ + 1 - slot);
  const size_t first_bytes = size_t{before_end} * kWqebbBytes;
  std::memcpy(wqebbs_ + size_t{slot} * kWqebbBytes, scratch_, first_bytes);
  std::memcpy(wqebbs_, scratch_ + first_bytes, size_t{wqebbs} * kWqebbBytes - first_bytes);
}

nic::TxStatus SendQueue::RingByDoorbell(const uint8_t* wqe) {
  nic::OrderWqeBeforeRecord();
  nic::StoreRecord(front_.record, Index());
  nic::OrderRecordBeforeDoorbell();
  nic::RingDoorbell(TakeRegister(), DoorbellBytes(wqe));
  nic::FlushBlueFlame();
  unrung_ = nullptr;
  front_.Settle();
  ++counters_->tx_doorbells;
  return nic::TxStatus::kPosted;
}

// What TakeAhead() took is told with the next completion, or by itself: of frames that nobody asked
// about, so with no time.
uint32_t SendQueue::Poll(std::span<nic::TxCompletion> out,
                         std::optional<nic::QueueError>* error) {
  uint32_t taken = 0;
  uint32_t passed = 0;
  for (; taken < out.size(); ++passed) {
    const mlx5_cqe64* cqe = completions_.Peek();
    if (cqe == nullptr) break;
    if (!IsSent(cqe->op_own)) [[unlikely]] {
      out[taken++] = TakeError(*cqe, error);
    } else if (TakeSent(*cqe)) [[likely]] {
      --*completions_due_;
      out[taken++] = {completed_, options_.timestamps ? HardwareClock(*cqe) : 0};
    }
    completions_.Pop();
  }
  if (passed != 0) {
    completions_.Publish();
    UpdateAttention();
  }
  if (untold_ && !out.empty()) [[unlikely]] {
    untold_ = false;
    if (taken == 0) out[taken++] = {completed_, 0};
    if (frames_ != 0) --*completions_due_;
  }
  return taken;
}

// In error the device completes every WQE with a CQE of its own, signalled or not. Those that were
// not have left no count: it is found by walking the ring, which nobody writes any more.
nic::TxCompletion SendQueue::TakeError(const mlx5_cqe64& cqe,
                                       std::optional<nic::QueueError>* error) {
  const uint16_t failed = WqeCounter(cqe);
  bool found = false;
  while (!found && completed_ != posted_frames()) {
    found = static_cast<uint16_t>(oldest_wqebb_) == failed;
    oldest_wqebb_ += WqebbsOfSegments(SegmentsOf(WqeAt(oldest_wqebb_)));
    ++completed_;
  }
  frames_ = 0;
  ++counters_->tx_errors;
  NoteError(ParseError(cqe), /*receive=*/false, error);
  *completions_due_ = posted_frames() - completed_;
  return {.frames = completed_, .hw_clock = 0, .lost = true};
}

}  // namespace xtreme::mlx5
