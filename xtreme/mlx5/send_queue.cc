// SPDX-License-Identifier: Apache-2.0

#include "xtreme/mlx5/send_queue.h"

#include <algorithm>
#include <cstring>

#include "xtreme/mlx5/queue_error.h"
#include "xtreme/mlx5/send_queue_in_place.h"
#include "xtreme/mlx5/software_checksum.h"

namespace xtreme::mlx5 {
namespace {

// Finishes the checksums of a frame that stands whole in its WQE, and asks for none of them.
void SumInline(uint8_t* wqe, uint32_t header_length, uint32_t payload_length) {
  const std::span frame(wqe + kInlineOffset, header_length + payload_length);
  FinishChecksums(ChecksumsOf(wqe), frame.first(header_length), frame.subspan(header_length));
  SetChecksums(wqe, 0);
}

void CopyBlocks(uint8_t* to, const uint8_t* from, uint32_t wqebbs) {
  for (uint32_t at = 0; at < wqebbs * kWqebbBytes; at += kWqebbBytes) Copy64(to + at, from + at);
}

}  // namespace

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

[[gnu::always_inline]] inline bool SendQueue::TakeSent(const mlx5_cqe64& cqe) {
  const Mark& mark = marks_[WqeCounter(cqe) & mask_];
  // Blocks that hold no signalled frame still have the count of one that completed in an earlier
  // lap: whoever wrote this CQE, counts do not run backwards, nor beyond what was posted.
  const uint32_t under_way = posted_frames() - completed_;
  if (mark.frames - completed_ - 1 >= under_way) [[unlikely]] {
    ++counters_->tx_malformed;
    return false;
  }
  completed_ = mark.frames;
  device_memory_.Release(mark.memory);
  oldest_wqebb_ = mark.end;
  return true;
}

// Without a time, so only where nobody waits for one. Errors are Poll()'s, but nothing more is
// posted behind one.
[[gnu::always_inline]] inline void SendQueue::TakeOneAhead() {
  ahead_ = false;
  SetAttention(behind_ahead_);
  const mlx5_cqe64& cqe = completions_.Next();
  const uint8_t op_owner = completions_.NextOpOwner();
  if (!IsWrittenSent(op_owner)) [[unlikely]] {
    if (!IsWritten(op_owner)) return;
    frames_ = 0;
    SetAttention(front_.units());
    return;
  }
  const bool sent = TakeSent(cqe);
  asked_ = completed_;  // Never so old that it seems to be ahead.
  if (sent) {
    if (untold_) --*completions_due_;
    untold_ = true;  // For Poll() one is still due.
  }
  completions_.Pop();
  completions_.Publish();
}

// Only where the room before it was too little is the room that it gave back asked for.
void SendQueue::TakeAhead() {
  TakeOneAhead();
  if (AttentionIsDue()) [[unlikely]] UpdateAttention();
}

nic::TxStatus SendQueue::Post(const nic::TxFrame& frame) {
  if (MayPostPlain(frame)) [[likely]] return PostPlain(frame);
  if (ahead_) {
    TakeAhead();
    return Post(frame);
  }
  if (IsFull()) return Refuse();
  constexpr uint32_t kChecksums = nic::kTxIpChecksum | nic::kTxL4Checksum;
  if (!options_.checksums && (frame.flags & kChecksums) != 0) return PostSummed(frame);
  return PostAsked(frame);
}

// What the device is asked for and cannot do is done here.
nic::TxStatus SendQueue::PostSummed(const nic::TxFrame& frame) {
  uint8_t header[128];
  WriteHeader(header, frame.header, frame.header_length);
  FinishChecksums(frame.flags, std::span(header).first(frame.header_length),
                  {frame.payload, frame.payload_length});
  nic::TxFrame summed = frame;
  summed.header = header;
  summed.flags &= static_cast<uint16_t>(~(nic::kTxIpChecksum | nic::kTxL4Checksum));
  return PostAsked(summed);
}

nic::TxStatus SendQueue::PostAsked(const nic::TxFrame& frame) {
  return frame.header_length + frame.payload_length <= kMaxInlineFrameBytes ? PostWhole(frame)
                                                                            : PostLong(frame);
}

nic::TxStatus SendQueue::PostWhole(const nic::TxFrame& frame) {
  const uint32_t bytes = frame.header_length + frame.payload_length;
  const uint32_t segments = SegmentsWithInline(bytes);
  uint8_t* const wqe = NextWqe();
  WriteFrame(wqe, frame, bytes, segments);
  WriteInlineFrame(wqe, frame.header, frame.header_length, frame.payload, frame.payload_length);
  return Commit(wqe, WqebbsOfSegments(segments), bytes, frame.flags);
}

nic::TxStatus SendQueue::PostLong(const nic::TxFrame& frame) {
  const uint32_t bytes = frame.header_length + frame.payload_length;
  if (bytes > options_.max_frame_bytes) return nic::TxStatus::kTooLong;
  const Gather payload = PlaceOf(frame);
  if (payload.key == 0) return nic::TxStatus::kTooLong;
  const uint32_t header_segments = SegmentsWithInline(frame.header_length);
  uint8_t* const wqe = NextWqe();
  WriteFrame(wqe, frame, frame.header_length, header_segments + 1);
  WriteGatheredFrame(wqe, frame, payload, header_segments);
  return Commit(wqe, WqebbsOfSegments(header_segments + 1), bytes, frame.flags);
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
  if (!MayPostDirectly(flow.frame, flags)) return PostCopied(flow, payload, payload_length, flags);
  CopyDirectly(flow, payload);
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
  if (ahead_) TakeOneAhead();
  if (flags == 0 && front_.Ready() && prepared.direct_blocks != 0) {
    if (prepared.direct_blocks == 2) {
      PostDirectly(prepared);
    } else {
      nic::PostReady<3>(front_, prepared);
    }
    return nic::TxStatus::kPosted;
  }
  if (MayPostInPlace(prepared, flags)) {
    return prepared.direct_blocks == 3 ? PostInPlace<3>(prepared) : PostInPlace<2>(prepared);
  }
  if (AttentionIsDue() || (flags & ~uint32_t{nic::kTxMore}) != 0) {
    return PostSpecial(prepared, flags);
  }
  uint8_t* const wqe = front_.next_wqe;
  const uint32_t wqebbs = prepared.blocks();
  CopyBlocks(wqe, prepared.image.data(), wqebbs);
  base::StoreBe16(wqe + 1, static_cast<uint16_t>(Index()));
  front_.next_wqe = wqe + wqebbs * kWqebbBytes;
  front_.Advance(wqebbs);
  counters_->tx_bytes += prepared.frame_bytes();
  return Ring(wqe, wqebbs, flags);
}

// As PostReady() does; and the signal, if it is due, and the next lap of the ring. For one of them
// it is here.
template <uint32_t kBlocks>
[[gnu::always_inline]] inline nic::TxStatus SendQueue::PostInPlace(
    const nic::TxPrepared& prepared) {
  const uint32_t first = Index();
  const uint32_t behind = BlocksBehind();
  if (behind < kBlocks) [[unlikely]] return PostAtEnd<kBlocks>(prepared);
  const bool signal = NextIsSignalled();
  nic::PostReady<kBlocks>(front_, prepared, [signal](auto& halves) {
    if (signal) [[likely]] halves[0] |= nic::HalfLine{0, kAskForCompletion};
  });
  return AttendInPlace(signal, first, first + kBlocks);
}

// The same of a WQE that ends with the ring, or goes over its end.
template <uint32_t kBlocks>
[[gnu::noinline]] nic::TxStatus SendQueue::PostAtEnd(const nic::TxPrepared& prepared) {
  const uint32_t first = Index();
  const bool signal = NextIsSignalled();
  nic::HalfLine halves[2 * kBlocks];
  nic::LoadReady(front_, prepared, halves);
  if (signal) halves[0] |= nic::HalfLine{0, kAskForCompletion};
  WriteInPlace(first, halves);
  const uint32_t record = nic::Advance(front_, prepared.step);
  if (kBlocks > 2) ++front_.wide;
  BeginLap();
  nic::RingReady(front_, record, halves);
  if (signal) return AttendInPlace(signal, first, first + kBlocks);
  return AttendAhead(front_.units(), ToSignal());
}

nic::TxStatus SendQueue::PostSpecial(const nic::TxPrepared& prepared, uint32_t flags) {
  if (IsFull()) return Refuse();
  // Exactly its blocks are written: one that ends with the ring stands there at once.
  const bool crosses = (Index() & mask_) + prepared.blocks() > mask_ + 1;
  uint8_t* const wqe = crosses ? scratch_ : front_.next_wqe;
  CopyBlocks(wqe, prepared.image.data(), prepared.blocks());
  base::StoreBe16(wqe + 1, static_cast<uint16_t>(Index()));
  if ((flags & nic::kTxWarm) != 0) {
    SetOpcode(wqe, MLX5_OPCODE_NOP);
    ++counters_->tx_warm;
  }
  if (!options_.checksums) {
    SumInline(wqe, prepared.header_bytes, prepared.frame_bytes() - prepared.header_bytes);
  }
  return Commit(wqe, prepared.blocks(), prepared.frame_bytes(), flags);
}

nic::TxStatus SendQueue::PostSegments(const nic::TxSegments& segments) {
  if (IsFull()) return Refuse();
  uint32_t bytes = 0;
  for (const nic::TxGather& piece : segments.payload) bytes += piece.length;
  const bool fits = bytes != 0 && bytes <= options_.max_segmented_bytes &&
                    segments.payload.size() <= nic::kMaxTxGathers &&
                    segments.header_length <= kMaxTcpHeaderBytes &&
                    segments.header_length + segments.segment_bytes <= options_.max_frame_bytes;
  if (!fits) return nic::TxStatus::kTooLong;
  uint8_t* const wqe = NextWqe();
  const uint32_t count = WriteSegments(wqe, segments);
  WriteControl(wqe, static_cast<uint16_t>(Index()), MLX5_OPCODE_TSO, qpn_, count,
               Completion::kOnError);
  ++counters_->tx_segmented;
  return Commit(wqe, WqebbsOfSegments(count), segments.header_length + bytes, segments.flags);
}

nic::TxStatus SendQueue::Commit(uint8_t* wqe, uint32_t wqebbs, uint32_t bytes, uint32_t flags) {
  const uint32_t first = Index();
  const uint32_t slot = first & mask_;
  // Where it was due; an attention that comes too early costs less than one made anew each time.
  const bool due = AttentionIsDue();
  const bool signal = NextIsSignalled();
  const bool asked = (flags & nic::kTxSignal) != 0;
  AdvanceOverEnd(wqebbs);
  if (signal || asked) {
    SetCompletion(wqe, Completion::kAlways);
    NoteSignal(front_.units(), slot, first + wqebbs);
    if (asked) asked_ = posted_frames();
    ahead_ = !AskedIsDue();
  }
  if (wqe == scratch_) SpreadOverRingEnd(slot, wqebbs);
  front_.next_wqe = wqebbs_ + size_t{Index() & mask_} * kWqebbBytes;
  counters_->tx_bytes += bytes;
  if (due) UpdateAttention();
  return Ring(wqe, wqebbs, flags);
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

// All of a WQE but the frame's bytes.
void SendQueue::WriteFrame(uint8_t* wqe, const nic::TxFrame& frame, uint32_t inline_bytes,
                           uint32_t segments) {
  const uint32_t opcode = frame.flags & nic::kTxWarm ? MLX5_OPCODE_NOP : MLX5_OPCODE_SEND;
  WriteControl(wqe, static_cast<uint16_t>(Index()), opcode, qpn_, segments,
               Completion::kOnError);
  WriteEthernet(wqe, frame.flags, inline_bytes);
  counters_->tx_warm += opcode == MLX5_OPCODE_NOP;
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
