// SPDX-License-Identifier: Apache-2.0
//
// What leaves: lost segments first, then new ones as far as both windows reach, then what is owed
// in acknowledgements. RFC 9293 sections 3.7.4, 3.8.4 and 3.8.6; RFC 6675 section 5 for the order.

#include <algorithm>

#include "stack/tcp/every_segment.h"
#include "stack/wire/tcp.h"

namespace xtreme::tcp {
namespace {

// Nagle's algorithm (RFC 9293 section 3.7.4) as Minshall mended it, and Linux has it: what holds a
// small segment back is a small one under way; a tail behind full ones leaves with them. Where all
// are full the walk ends with a small one sent, at which the next walk ends.
bool SmallIsUnderWay(const SegmentQueue& queue, uint32_t smss) {
  for (const Segment* s = queue.last_sent(); s != nullptr; s = s->previous) {
    if (s->length % smss != 0) return true;  // of a run the last piece
  }
  return false;
}

}  // namespace

void Pcb::Output(base::Nanoseconds now) {
  if (state_ == State::kClosed) return;
  Clear(kSinkFull);
  if (queue_.first_unsent() != nullptr || queue_.flight().lost != 0) {
    if (MaySendRuns()) SendRuns(now);
    while (Segment* const segment = NextToSend()) {
      if (!SendSegment(*segment, now)) break;
    }
  }
  if (Has(kAckNow) && state_ != State::kSynSent) SendAck(now);
  if (Has(kWantsSpace)) [[unlikely]] OfferSendSpace();
  ArmSender(now);
  plain_ = Plainness();
}

// --- What may leave ---

// The segment to send next, cut to what one may carry; null: nothing may leave now.
Segment* Pcb::NextToSend() {
  if (queue_.flight().lost != 0) [[unlikely]] {
    Segment* const lost = queue_.FirstLost();
    if (lost != nullptr) return MayRetransmit() ? CutTo(*lost, smss_) : nullptr;
  }
  Segment* const segment = queue_.first_unsent();
  if (segment == nullptr) return nullptr;
  if (state_ == State::kSynSent || state_ == State::kSynReceived) {
    return segment->Has(Segment::kSyn) ? segment : nullptr;
  }
  if (segment->length == 0) return segment;  // FIN alone: no window keeps it back
  const uint32_t usable = UsableWindow();
  const uint32_t length = std::min({segment->length, uint32_t{smss_}, usable});
  if (length == 0 || length > CongestionRoom()) return nullptr;
  if (length < smss_ && MayWait(*segment, length)) return nullptr;
  if (length == segment->length) return segment;
  Segment* const front = CutTo(*segment, length);
  // The window cut it, for once: it may grow by a byte with each acknowledgement.
  if (front != nullptr && length < smss_) Clear(kSmallOverride);
  return front;
}

// After a time-out one segment goes whatever is believed to be in flight.
bool Pcb::MayRetransmit() const {
  return queue_.flight().Pipe() < congestion_.cwnd() || Has(kSendOne);
}

// How many bytes the peer's window takes beyond what was sent.
uint32_t Pcb::UsableWindow() const {
  const int32_t usable = queue_.una() + snd_wnd_ - queue_.nxt();
  return usable > 0 ? static_cast<uint32_t>(usable) : 0;
}

// How many bytes the congestion window takes beyond what is in flight; before the third duplicate
// acknowledgement, a segment more for each (RFC 3042).
uint32_t Pcb::CongestionRoom() const {
  const uint32_t extra =
      InRecovery() ? 0 : std::min(new_reno_.duplicates(), uint32_t{2}) * smss_;
  const uint32_t window = congestion_.cwnd() + (Has(kSack) ? 0 : extra);
  const uint32_t pipe = queue_.flight().Pipe();
  return window > pipe ? window - pipe : 0;
}

// Whether a segment of which `length` bytes, less than a full one, could leave had better wait.
bool Pcb::MayWait(const Segment& segment, uint32_t length) const {
  if (Has(kSmallOverride)) return false;
  // The window cuts it: the sender's half of silly window avoidance, RFC 9293 section 3.8.6.2.1.
  if (length < segment.length) return length < max_snd_wnd_ / 2;
  if (segment.next != nullptr || segment.Has(Segment::kFin)) return false;
  if (IsCorked()) return true;
  return options_->nagle && SmallIsUnderWay(queue_, smss_);
}

// The first `length` bytes of `segment`; null when that takes a segment and none is free. The
// reserve is for what was sent: what was not takes one of it, and waits until that is acknowledged.
Segment* Pcb::CutTo(Segment& segment, uint32_t length) {
  if (segment.length <= length) return &segment;
  const bool waits = segment.transmissions == 0 && !queue_.all_acknowledged();
  if (waits && !queue_.HasSpareSegment()) return nullptr;
  return queue_.Split(segment, length);
}

// --- Emitting ---

// False, and nothing changed, when the sink has no room.
bool Pcb::SendSegment(Segment& segment, base::Nanoseconds now) {
  Outgoing outgoing{.sequence = segment.sequence, .flags = FlagsOf(segment), .segment = &segment};
  const bool again = segment.transmissions != 0;
  const bool first_in_flight = queue_.all_acknowledged();
  const std::optional<Sink::Taken> taken = Emit(outgoing, now);
  if (!taken) {
    Set(kSinkFull);
    return false;
  }
  queue_.MarkSent(segment, now, *taken == Sink::Taken::kReferenced);
  Clear(kSendOne);
  if (first_in_flight) rto_base_ = now;
  if (again) [[unlikely]] {
    ++retransmits_;
    ++context_->counters.retransmits;
    if (InRecovery()) spurious_.OnRetransmit(segment, outgoing.timestamps.value, queue_.nxt());
  }
  if (Has(kFastRecovery)) [[unlikely]] reduction_.OnSent(segment.SequenceLength());
  return true;
}

// SYN or FIN, `flag`, with nothing queued before it: Append and Output in one, for no window keeps
// it back. False, and nothing changed, when no segment is free.
bool Pcb::SendAlone(uint16_t flag, base::Nanoseconds now) {
  Segment* const segment = queue_.Append({.flags = flag});
  if (segment == nullptr) return false;
  Clear(kSinkFull);
  Outgoing outgoing{.sequence = segment->sequence, .flags = FlagsOf(*segment), .segment = segment};
  const std::optional<Sink::Taken> taken = Emit(outgoing, now);
  plain_ = 0;  // not established yet, or no more
  if (!taken) {
    Set(kSinkFull);
    ArmSender(now);
    return true;
  }
  queue_.MarkSent(*segment, now, *taken == Sink::Taken::kReferenced);
  Clear(kSendOne);
  rto_base_ = now;
  if (state_ == State::kSynSent || progress_at_ != now) {
    ArmOutstanding();
  } else {
    Rearm(/*one=*/true, now);
  }
  return true;
}

uint8_t Pcb::FlagsOf(const Segment& segment) const {
  uint8_t flags = state_ == State::kSynSent ? 0 : wire::kTcpAck;
  if (segment.Has(Segment::kSyn)) flags |= wire::kTcpSyn;
  if (segment.Has(Segment::kFin)) flags |= wire::kTcpFin;
  if (segment.Has(Segment::kPush)) flags |= wire::kTcpPsh;
  return flags;
}

// SND.NXT; but if the peer took window back (RFC 9293 section 3.8.6), the end of what it left: what
// lies beyond that it drops, and would not learn what is acknowledged, or that it is reset. That
// its window is told in units, and a FIN, which no window keeps back, are less than that.
Seq Pcb::NextWithinWindow() const {
  const Seq next = queue_.nxt();
  const Seq edge = queue_.una() + snd_wnd_;
  const bool taken_back = edge < next && Distance(edge, next) > 1u << snd_scale_;
  return taken_back ? edge : next;
}

void Pcb::SendAck(base::Nanoseconds now) {
  Outgoing outgoing{.sequence = NextWithinWindow(), .flags = wire::kTcpAck};
  if (!Emit(outgoing, now)) {
    Set(kAckNow | kSinkFull);
  }
}

// A segment without payload: RST, or a probe. One that the sink has no room for is lost, as it
// might be on the way. The peer does not read what a probe acknowledges, as it is not acceptable:
// an acknowledgement that is due leaves beside it.
void Pcb::EmitControl(uint8_t flags, Seq sequence, base::Nanoseconds now) {
  const bool ack_is_due = Has(kAckNow) || ack_deadline_ != base::kNever;
  Outgoing outgoing{.sequence = sequence, .flags = flags};
  Emit(outgoing, now);
  if (ack_is_due) Set(kAckNow);
}

std::optional<Sink::Taken> Pcb::Emit(Outgoing& outgoing, base::Nanoseconds now) {
  FillHeader(outgoing, now);
  const bool is_syn = (outgoing.flags & wire::kTcpSyn) != 0;
  const bool more = is_syn || (Has(kSack) && (duplicate_ || !reassembler_.empty()));
  if (more) [[unlikely]] return EmitWithOptions(outgoing);
  const Sink::Taken taken = context_->sink->Transmit(*this, outgoing);
  if (taken == Sink::Taken::kRefused) [[unlikely]] return std::nullopt;
  OnOffered(outgoing);
  return taken;
}

// A SYN, or a segment that has something to select.
[[gnu::noinline]] std::optional<Sink::Taken> Pcb::EmitWithOptions(Outgoing& outgoing) {
  wire::TcpOptions options;
  if (FillOptions(outgoing, options)) outgoing.options = &options;
  const Sink::Taken taken = context_->sink->Transmit(*this, outgoing);
  const bool left = taken != Sink::Taken::kRefused;
  // Payload that leaves no room for them does not say what is due now.
  const bool still_due = Has(kAckNow) && outgoing.segment != nullptr && outgoing.options == nullptr;
  if (left) OnOffered(outgoing);
  if (still_due) Set(kAckNow);
  outgoing.options = nullptr;
  return left ? std::optional(taken) : std::nullopt;
}

// The options of a SYN, or selective acknowledgements; false when these find no room beside the
// payload.
bool Pcb::FillOptions(const Outgoing& outgoing, wire::TcpOptions& options) const {
  if (outgoing.has_timestamps) options.timestamps = outgoing.timestamps;
  if ((outgoing.flags & wire::kTcpSyn) != 0) {
    options.mss = options_->mss;
    const bool answers = state_ == State::kSynReceived;
    if (!answers || Has(kScaling)) options.window_scale = rcv_scale_;
    options.sack_permitted = answers ? Has(kSack) : options_->sack;
    return true;
  }
  std::array<wire::SackBlock, wire::kTcpMaxSackBlocks> blocks;
  const size_t most = outgoing.has_timestamps ? blocks.size() - 1 : blocks.size();
  const size_t held = reassembler_.SackBlocks(duplicate_, std::span(blocks).first(most));
  // What begins at RCV.NXT is behind no hole: it waits for room. RFC 2018 section 3.
  const auto end = std::remove_if(blocks.begin(), blocks.begin() + held,
                                  [this](auto block) { return Seq(block.left) == rcv_nxt_; });
  const auto count = static_cast<size_t>(end - blocks.begin());
  if (count == 0) return false;
  options.SetSack(std::span(blocks).first(count));
  const size_t more = options.emitted_bytes() -
                      (outgoing.has_timestamps ? wire::kTcpTimestampsBytes : 0);
  return outgoing.segment == nullptr || outgoing.segment->length + more <= smss_;
}

// Once after a refused send, when its length would be taken, or when there is ample room.
void Pcb::OfferSendSpace() {
  if (!HasWantedSpace()) return;
  Clear(kWantsSpace);
  Raise(kSendSpace);
}

// What it waits for in place of a segment that comes is asked to tell.
bool Pcb::HasWantedSpace() {
  if (!TakesSends()) return false;
  if (Has(kWantsAmple)) {
    if (!HasAmpleRoom()) return false;
  } else if (Has(kWantsNow)) {
    const SendResult would = WouldSend(refused_bytes_);
    if (would == SendResult::kDevice) context_->sink->OnShortOfRoom(*this);
    if (would != SendResult::kSent) return false;
  } else if (SendRoom() < refused_bytes_ || UnsentRoom() == 0) {
    return false;
  }
  const bool done = !Has(kWantsDone) || context_->sink->HasRoomForDone();
  const uint32_t copied = Has(kWantsAmple) ? 1 : refused_bytes_;
  const bool memory = Has(kWantsInPlace) ? queue_.HasSpareSegment() : HasMemoryFor(copied);
  if (done && memory) return true;
  context_->sink->OnShortOfMemory(*this);
  return false;
}

// A retransmission may have taken the room meanwhile.
bool Pcb::KeepsSpace() {
  if (Has(kWantsSpace)) return false;
  if (HasWantedSpace()) return true;
  Set(kWantsSpace);
  plain_ = Plainness();
  return false;
}

}  // namespace xtreme::tcp
