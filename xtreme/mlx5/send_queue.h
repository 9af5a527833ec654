// SPDX-License-Identifier: Apache-2.0
//
// SendQueue: posts frames as WQEs, rings for them, and learns from CQEs how far the device is.
//
// Invariant: completed <= posted <= completed + frames (free-running counts of frames). The ring
// has four blocks for each frame, so a queue that is not full in frames has room for any WQE, and
// one comparison decides. A WQE that would cross the ring's end is written elsewhere and spread.
// A signalled block remembers the count of frames up to it, and how far on-device memory was
// written: its CQE names it, and so both.
// Units: frames, WQEBBs, bytes. Thread: the ring's owner. Allocates only when it is made.

#ifndef XTREME_XTREME_MLX5_SEND_QUEUE_H_
#define XTREME_XTREME_MLX5_SEND_QUEUE_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "xtreme/mlx5/completion_queue.h"
#include "xtreme/mlx5/device_memory.h"
#include "xtreme/mlx5/queue_memory.h"
#include "xtreme/mlx5/send_wqe.h"
#include "xtreme/nic/doorbell.h"
#include "xtreme/nic/queue_pair.h"

namespace xtreme::mlx5 {

class SendQueue {
 public:
  struct Options {
    uint32_t signal_every = 128;      // Units; 1 .. a quarter of the frames the ring holds.
    uint32_t max_frame_bytes = 1518;  // MTU, Ethernet header and a VLAN tag.
    bool timestamps = true;           // CQEs carry a time.
    bool checksums = true;            // The device computes them; else they are finished here.
    uint32_t max_segmented_bytes = 0;  // Of one send that the device cuts; 0: it does not.
  };

  // `counters` and `completions_due`, which the queue keeps at the number of CQEs that will come,
  // outlive it.
  SendQueue(const SendQueueMemory& memory, const Options& options, nic::QueueCounters* counters,
            uint32_t* completions_due);
  SendQueue(const SendQueue&) = delete;
  SendQueue& operator=(const SendQueue&) = delete;

  // See nic::QueuePair.
  nic::TxStatus Post(const nic::TxFrame& frame);
  void Prepare(const nic::TxHeader& header, nic::TxTemplate* flow) const {
    PrepareTemplate(header, qpn_, most_direct_blocks(), device_memory_.key(), flow);
  }
  // For who has looked whether MayCopyDirectly().
  nic::TxStatus PostCopied(const nic::TxTemplate& flow, const uint8_t* payload,
                           uint32_t payload_length, uint32_t flags);
  nic::TxStatus PostStored(const nic::TxTemplate& flow, const uint8_t* payload,
                           uint32_t payload_length, uint32_t flags);
  bool HasRoomToStore(uint32_t payload_length) const {
    return device_memory_.present() && device_memory_.HasRoom(payload_length);
  }
  nic::TxBurst PostBurst(const nic::TxTemplate& flow, std::span<const nic::TxPayload> payloads);
  bool PrepareFrame(const nic::TxFrame& frame, nic::TxPrepared* prepared) const;
  nic::TxStatus PostPrepared(const nic::TxPrepared& prepared, uint32_t flags);
  nic::TxStatus PostSegments(const nic::TxSegments& segments);
  bool SignalLast();
  void Flush();
  // Whether PostReady() would do what PostPrepared() does: two blocks for the register, behind
  // nothing that waits for a doorbell, and nothing is due. Then it calls nothing.
  bool MayPostDirectly(const nic::TxPrepared& prepared, uint32_t flags) const {
    return prepared.direct_blocks == 2 && flags == 0 && front_.Ready();
  }
  template <typename See = nic::Unseen>
  [[gnu::always_inline]] void PostDirectly(const nic::TxPrepared& prepared, const See& see = {}) {
    nic::PostReady(front_, prepared, nic::Unedited(), see);
  }
  // The same of PostCopied(): of a payload as long as the flow's last.
  bool MayCopyDirectly(const nic::TxTemplate& flow, uint32_t payload_length,
                       uint32_t flags) const {
    return payload_length == flow.payload_length && MayPostDirectly(flow.frame, flags);
  }
  template <typename See = nic::Unseen>
  [[gnu::always_inline]] void CopyDirectly(const nic::TxTemplate& flow, const uint8_t* payload,
                                           const See& see = {}) {
    CopyShort(flow.frame.image.data() + flow.payload_at, payload, flow.payload_length);
    PostDirectly(flow.frame, see);
  }
  // PostReady() is made for frames of two and of three, whose checksums are the device's, and for
  // registers as most have it.
  uint32_t most_direct_blocks() const {
    return MayPostStreams() ? 3 : 0;
  }
  // PostStream(): WQEs of up to four blocks for the register.
  bool MayPostStreams() const { return options_.checksums && blueflame_wqebbs_ == kMaxWqebbs; }
  bool PostStreamOtherwise(const nic::StreamSegment& segment);
  bool PlaceStream(const nic::StreamSegment& segment);
  std::optional<uint32_t> PostGathered(const nic::StreamSegment& segment, uint32_t key,
                                       uint32_t flags);

  // The same posts for who sees their WQEs (send_queue_seen.h); Post() is two: of a frame that
  // stands whole in its WQE and with which no more is due, and of any other.
  bool MayPostPlain(const nic::TxFrame& frame) const;
  template <typename See>
  nic::TxStatus PostPlainSeen(const nic::TxFrame& frame, See see);
  template <typename See>
  nic::TxStatus PostOtherwiseSeen(const nic::TxFrame& frame, See see);
  template <typename See>
  nic::TxStatus PostStoredSeen(const nic::TxTemplate& flow, const uint8_t* payload,
                               uint32_t payload_length, uint32_t flags, See see);
  template <typename See>
  nic::TxStatus PostPreparedSeen(const nic::TxPrepared& prepared, uint32_t flags, See see);
  template <typename See>
  nic::TxStatus PostSegmentsSeen(const nic::TxSegments& segments, See see);
  template <typename See>
  bool PostStreamOtherwiseSeen(const nic::StreamSegment& segment, See see);
  template <typename See>
  bool PlaceStreamSeen(const nic::StreamSegment& segment, See see);
  template <typename See>
  std::optional<uint32_t> PostGatheredSeen(const nic::StreamSegment& segment, uint32_t key,
                                           uint32_t flags, See see);

  // Whether more than a post is due, whatever waits to be rung for.
  bool AttentionIsDue() const { return front_.MoreIsDue(); }
  nic::TxFront* front() { return &front_; }
  // Brings the counters up to what was posted.
  void SettleCounters() const;

  // Takes completions; see nic::QueuePair::PollSend. An error CQE ends the queue: its frames count
  // as completed, with no time, and `error` gets the cause if it is the first. One that names no
  // posted frame is counted and passed over.
  uint32_t Poll(std::span<nic::TxCompletion> out, std::optional<nic::QueueError>* error);

  // Nothing more is posted.
  void End() {
    frames_ = 0;
    UpdateAttention();
  }

  // Free-running counts of frames.
  uint32_t posted_frames() const { return static_cast<uint32_t>(front_.posted()); }
  uint32_t completed_frames() const { return completed_; }
  // The block behind the WQE that completed last.
  uint16_t completed_end() const { return static_cast<uint16_t>(oldest_wqebb_); }
  CompletionQueue& completions() { return completions_; }
  const CompletionQueue& completions() const { return completions_; }
  // Blocks posted so far, free-running; the half of the register that is due.
  uint32_t producer() const { return laps_ + Index(); }
  uint8_t* next_register() const { return reinterpret_cast<uint8_t*>(front_.next_register); }

 private:
  // Post() of what is not plain.
  nic::TxStatus PostOtherwise(const nic::TxFrame& frame);
  // PostCopied() of another length than the flow's last.
  nic::TxStatus PostOtherLength(const nic::TxTemplate& flow, const uint8_t* payload,
                                uint32_t payload_length, uint32_t flags);
  // Of PostPrepared() what goes from memory to memory; what is asked for, the ring's end, refusals.
  template <typename See>
  nic::TxStatus PostInMemory(const nic::TxPrepared& prepared, uint32_t flags, See see);
  template <typename See>
  nic::TxStatus PostSpecial(const nic::TxPrepared& prepared, uint32_t flags, See see);
  // Whether nothing but the post is due, once what can be seen to at once has been.
  bool IsClear() {
    if (!AttentionIsDue()) [[likely]] return true;
    return ClearAttention();
  }
  bool ClearAttention();
  // Of a frame that PostReady() is made for: whether its place can take it, and it does.
  bool MayPostInPlace(const nic::TxPrepared& prepared, uint32_t flags) const {
    const bool alone = (flags | reinterpret_cast<uintptr_t>(unrung_)) == 0;
    return prepared.direct_blocks != 0 && alone && !IsFull();
  }
  template <uint32_t kBlocks, typename See>
  nic::TxStatus PostInPlace(const nic::TxPrepared& prepared, See see);
  template <uint32_t kBlocks, typename See>
  nic::TxStatus PostAtEnd(const nic::TxPrepared& prepared, See see);
  // A WQE was entered that may reach the ring's end: the next one's place, and its index.
  [[gnu::always_inline]] void BeginLap() {
    front_.next_wqe = wqebbs_ + size_t{Index() & mask_} * kWqebbBytes;
    if (Index() < kIndices) return;
    front_.SetFirstBlock(Index() - kIndices);
    laps_ += kIndices;
  }
  // Writes the WQE whose first block is `first` to its place, also over the ring's end.
  template <size_t kHalves>
  void WriteInPlace(uint32_t first, const nic::HalfLine (&halves)[kHalves]);
  // Enters a segment put together in `halves`; whether it is signalled.
  template <size_t kHalves>
  bool EnterStream(const nic::StreamSegment& segment, nic::HalfLine (&halves)[kHalves]);
  template <uint32_t kBlocks, typename See>
  void PostStreamInPlace(const nic::StreamSegment& segment, See see);
  // PlaceStream() with which no more is due.
  void PlaceAtOnce(const nic::StreamSegment& segment);
  template <typename See>
  bool PlaceStreamOtherwise(const nic::StreamSegment& segment, See see);
  // How many units come before the next frame that is signalled as one in N; whether that is next.
  uint32_t ToSignal() const { return NextIsSignalled() ? 0 : signal_at_ - Units(); }
  bool NextIsSignalled() const { return static_cast<int32_t>(Units() - signal_at_) >= 0; }
  // Writes a WQE, with the signal if it has one, to its place, also over the ring's end.
  template <size_t kHalves>
  void EnterInPlace(bool signal, nic::HalfLine (&halves)[kHalves]);
  // And what is due behind it, the last one, when it was rung for: it stands in [first, end).
  // Always kPosted, as the two that it ends in: posts end in them.
  nic::TxStatus AttendInPlace(bool signal, uint32_t first, uint32_t end);
  // The last frame, with which `units` were posted, has a completion of its own; its WQE stands in
  // [slot, end).
  void NoteSignal(uint64_t units, uint32_t slot, uint32_t end) {
    NoteSignal(units, slot, end, options_.signal_every - 1);
  }
  void NoteSignal(uint64_t units, uint32_t slot, uint32_t end, uint32_t next);
  // The frames of a burst that need no attention, from `next` on; the first that was not posted.
  const nic::TxPayload* PostRun(const nic::TxTemplate& flow, const nic::TxPayload* next,
                                const nic::TxPayload* end);
  // How many of so many blocks need none; whether behind so many, of a unit each, a signal is all
  // that is due.
  size_t PlainFrames(uint32_t blocks) const {
    const uint64_t units = front_.units();
    const uint32_t each = nic::TxStep::UnitsOf(blocks);
    return units < attention_at_ ? (attention_at_ - units + each - 1) / each : 0;
  }
  bool EndsWithSignal(size_t plain) const {
    return static_cast<uint32_t>(attention_at_) == signal_at_ && options_.checksums &&
           plain < BeforeEnd() && posted_frames() - completed_ + plain < frames_;
  }
  // Those that do; the same.
  const nic::TxPayload* PostCut(const nic::TxTemplate& flow, const nic::TxPayload* next,
                                const nic::TxPayload* end);
  nic::TxStatus Refuse();
  // Takes the next completion, if there is one and no caller asked for any that is due: a queue
  // whose user only sends so does not run full, and no single send pays for its completions.
  void TakeAhead();
  bool AskedIsDue() const { return static_cast<int32_t>(asked_ - completed_) > 0; }
  void TakeOneAhead();  // The room that it gave back is not counted yet.
  // UpdateAttention() where the last frame was signalled or begins a lap, so that more was due with
  // it; `units` were posted, and the next signal is so many away. If nothing asked is due the next
  // post begins with TakeAhead(), unless more is due with that one; what is due behind it is known
  // now.
  nic::TxStatus AttendAhead(uint64_t units, uint32_t to_signal);
  // A payload of the next frame is to be written to the device; false: there is no room.
  bool MakeRoomToStore(uint32_t payload_length);
  // Post() and PostSpecial() where there is room; of warm sends, and where checksums are finished
  // here.
  nic::TxStatus PostWarm(const nic::TxFrame& frame);
  nic::TxStatus PostWarm(const nic::TxPrepared& prepared, uint32_t flags);
  template <typename See>
  nic::TxStatus PostSummed(const nic::TxFrame& frame, See see);
  template <uint32_t kOpcode, typename See>
  nic::TxStatus PostAs(const nic::TxFrame& frame, See see);
  template <uint32_t kOpcode, typename See>
  nic::TxStatus PostAs(const nic::TxPrepared& prepared, uint32_t flags, See see);
  template <uint32_t kOpcode, typename See>
  nic::TxStatus PostWhole(const nic::TxFrame& frame, See see);
  template <uint32_t kOpcode, typename See>
  nic::TxStatus PostLong(const nic::TxFrame& frame, See see);
  Gather PlaceOf(const nic::TxFrame& frame);

  uint32_t Index() const { return front_.first_block(); }
  uint32_t FramesOf(uint64_t units) const { return static_cast<uint32_t>(units - front_.wide); }
  uint32_t Units() const { return static_cast<uint32_t>(front_.units()); }
  bool IsFull() const { return posted_frames() - completed_ >= frames_; }
  void SetAttention(uint64_t at) {
    attention_at_ = at;
    front_.BeReadyUntil(at);
  }
  // A frame was posted that may end with the ring, or go beyond it: indices begin anew with it.
  static constexpr uint32_t kIndices = 1 << 16;
  void AdvanceOverEnd(uint32_t blocks) {
    front_.Advance(blocks);
    if (Index() < kIndices) return;
    front_.SetFirstBlock(Index() - kIndices);
    laps_ += kIndices;
  }
  // Where the next WQE is written, whatever its length; Commit() brings it to its place, enters it
  // and rings for it.
  uint8_t* NextWqe() { return AtRingEnd() ? scratch_ : front_.next_wqe; }
  void Commit(uint8_t* wqe, uint32_t wqebbs, uint32_t bytes, uint32_t flags);
  bool AtRingEnd() const { return (Index() & mask_) + kMaxWqebbs > mask_ + 1; }
  void SpreadOverRingEnd(uint32_t slot, uint32_t wqebbs);
  // Units of whatever frames that end before the ring does, the last of them with a frame of two.
  uint32_t BeforeEnd() const {
    const uint32_t pairs = BlocksBehind() / 2;
    return pairs - (pairs != 0);
  }
  // The next one.
  uint32_t BlocksBehind() const { return mask_ - (Index() & mask_); }
  void UpdateAttention();
  nic::TxStatus AttendAfter();  // The same, where a post ends in it.

  // Ring for everything posted, `wqe` being the last. Always kPosted: posts end in them.
  nic::TxStatus Ring(const uint8_t* wqe, uint32_t wqebbs, uint32_t flags);
  bool MayRingByBlueFlame(uint32_t wqebbs) const {
    return unrung_ == nullptr && wqebbs <= blueflame_wqebbs_;
  }
  nic::TxStatus RingByBlueFlame(const uint8_t* wqe, uint32_t wqebbs);
  nic::TxStatus RingByDoorbell(const uint8_t* wqe);
  template <typename See, typename From>
  nic::TxStatus RingSeen(const uint8_t* wqe, uint32_t wqebbs, uint32_t flags, const From& from,
                         See see);
  template <typename See, typename From>
  nic::TxStatus RingByDoorbellSeen(const uint8_t* wqe, const From& from, See see);
  uint8_t* TakeRegister() {
    return nic::TakeRegister(front_, size_t{blueflame_wqebbs_} * kWqebbBytes);
  }

  // What stands up to a signalled block, and where its WQE ends.
  struct alignas(16) Mark {
    uint32_t frames;
    uint32_t memory;
    uint32_t end;
  };

  // False: it names no signalled frame that waits.
  bool TakeSent(const mlx5_cqe64& cqe);
  nic::TxCompletion TakeError(const mlx5_cqe64& cqe, std::optional<nic::QueueError>* error);
  const uint8_t* WqeAt(uint32_t wqebb) const { return wqebbs_ + (wqebb & mask_) * kWqebbBytes; }

  // Constant.
  uint8_t* const wqebbs_;
  const uint32_t mask_;            // Of WQEBBs in the ring.
  const uint32_t qpn_;
  const uint32_t blueflame_wqebbs_;  // The longest WQE for BlueFlame; 0: none.
  const Options options_;
  nic::QueueCounters* const counters_;
  uint32_t* const completions_due_;

  // Producer side.
  mutable nic::TxFront front_;  // Mutable: what is counted there goes to the counters.
  const uint8_t* unrung_ = nullptr;  // The last WQE that waits for Flush().
  uint32_t laps_ = 0;           // Blocks before index 0.
  uint64_t otherwise_rung_ = 0;  // Frames that were not written to BlueFlame.
  uint64_t attention_at_ = 0;   // The count of units from which on more than a post is due.
  uint32_t signal_at_;          // The one from which on the next frame is signalled.
  bool ahead_ = false;          // Nothing asked is due; the next post begins with TakeAhead(),
  uint64_t behind_ahead_ = 0;   // and then attention_at_ is this.
  alignas(64) uint8_t scratch_[kMaxWqeBytes] = {};
  DeviceMemoryRing device_memory_;

  // Consumer side.
  uint32_t frames_;                          // The queue's size; 0 once an error was seen.
  uint32_t completed_ = 0;
  uint32_t asked_ = 0;                       // The last frame whose completion a caller asked for.
  bool untold_ = false;                      // TakeAhead() took what Poll() has not told.
  uint32_t oldest_wqebb_ = 0;                // First block not known to be completed.
  std::unique_ptr<Mark[]> marks_;            // By block, of signalled WQEs.
  CompletionQueue completions_;
};

[[gnu::always_inline]] inline nic::TxStatus SendQueue::PostCopied(const nic::TxTemplate& flow,
                                                                  const uint8_t* payload,
                                                                  uint32_t payload_length,
                                                                  uint32_t flags) {
  if (payload_length != flow.payload_length) [[unlikely]] {
    return PostOtherLength(flow, payload, payload_length, flags);
  }
  CopyShort(flow.frame.image.data() + flow.payload_at, payload, payload_length);
  return PostPrepared(flow.frame, flags);
}

// BlueFlame carries one WQE: the only one that the device does not know of.
[[gnu::always_inline]] inline nic::TxStatus SendQueue::Ring(const uint8_t* wqe, uint32_t wqebbs,
                                                            uint32_t flags) {
  if ((flags & nic::kTxMore) != 0) {
    ++otherwise_rung_;
    front_.Owe();
    unrung_ = wqe;
    return nic::TxStatus::kPosted;
  }
  if (MayRingByBlueFlame(wqebbs)) return RingByBlueFlame(wqe, wqebbs);
  ++otherwise_rung_;
  return RingByDoorbell(wqe);
}

[[gnu::always_inline]] inline nic::TxStatus SendQueue::RingByBlueFlame(const uint8_t* wqe,
                                                                       uint32_t wqebbs) {
  nic::OrderWqeBeforeRecord();
  nic::StoreRecord(front_.record, Index());
  nic::OrderRecordBeforeDoorbell();
  nic::WriteBlueFlame(TakeRegister(), wqe, wqebbs);
  nic::FlushBlueFlame();
  return nic::TxStatus::kPosted;
}

inline void SendQueue::SettleCounters() const {
  counters_->tx_frames = front_.posted();
  counters_->tx_blueflame = counters_->tx_frames - otherwise_rung_;
  counters_->tx_bytes += front_.direct_bytes;
  front_.direct_bytes = 0;
}

inline void SendQueue::Flush() {
  if (unrung_ != nullptr) RingByDoorbell(unrung_);
}

}  // namespace xtreme::mlx5

#endif  // XTREME_XTREME_MLX5_SEND_QUEUE_H_
