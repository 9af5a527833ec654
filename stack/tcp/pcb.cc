// SPDX-License-Identifier: Apache-2.0

#include "stack/tcp/pcb.h"

#include <cerrno>
#include <cstring>

#include "stack/tcp/every_segment.h"

namespace xtreme::tcp {
namespace {

// The least shift with which 16 bits can offer the whole window. RFC 7323 section 2.2.
uint8_t ScaleFor(const PcbOptions& options) {
  const uint32_t window = std::max(options.receive_window, options.scaled_window);
  uint8_t scale = 0;
  while (scale < wire::kTcpMaxWindowScale && (window >> scale) > UINT16_MAX) ++scale;
  return scale;
}

// The data offset of a header: RFC 9293 section 3.1.
constexpr uint64_t kTcpWords = wire::kTcpMinHeaderBytes / 4;
constexpr uint64_t kTcpWordsWithTimestamps =
    (wire::kTcpMinHeaderBytes + wire::kTcpTimestampsBytes) / 4;

}  // namespace

const char* NameOf(State state) {
  switch (state) {
    case State::kClosed: return "CLOSED";
    case State::kSynSent: return "SYN-SENT";
    case State::kSynReceived: return "SYN-RECEIVED";
    case State::kEstablished: return "ESTABLISHED";
    case State::kFinWait1: return "FIN-WAIT-1";
    case State::kFinWait2: return "FIN-WAIT-2";
    case State::kCloseWait: return "CLOSE-WAIT";
    case State::kClosing: return "CLOSING";
    case State::kLastAck: return "LAST-ACK";
    case State::kTimeWait: return "TIME-WAIT";
  }
  return "?";
}

Pcb::Pcb(Context& context, const PcbOptions& options)
    : context_(&context),
      options_(&options),
      queue_(*context.segments, Seq(0)),
      rtt_(options.rto),
      rack_(Seq(0)),
      congestion_(options.congestion, smss_),
      reassembler_(*context.reassembly),
      new_reno_(Seq(0)) {}

void Pcb::Connect(Seq iss, base::Nanoseconds now) {
  queue_.Reset(iss);
  new_reno_ = NewRenoRecovery(iss);
  rack_ = Rack(iss);
  rcv_scale_ = ScaleFor(*options_);
  quick_acks_left_ = options_->quick_acks;
  state_ = State::kSynSent;
  heard_at_ = progress_at_ = rto_base_ = now;
  if (!context_->segments->HasSpare() || !SendAlone(Segment::kSyn, now)) Terminate(ENOBUFS);
}

void Pcb::Establish(const Handshake& handshake, base::Nanoseconds now) {
  queue_.Reset(handshake.iss + 1);
  new_reno_ = NewRenoRecovery(handshake.iss);
  rack_ = Rack(handshake.iss + 1);
  rcv_nxt_ = rcv_edge_ = last_ack_sent_ = credited_ = handshake.irs + 1;
  snd_wl1_ = handshake.irs + 1;
  snd_wl2_ = handshake.iss + 1;
  snd_wnd_ = max_snd_wnd_ = handshake.peer_window;
  if (handshake.peer_window_scale) {
    Set(kScaling);
    snd_scale_ = std::min(*handshake.peer_window_scale, wire::kTcpMaxWindowScale);
    rcv_scale_ = ScaleFor(*options_);
  }
  if (handshake.sack) Set(kSack);
  if (handshake.peer_timestamp) {
    Set(kTimestamps);
    ts_recent_ = *handshake.peer_timestamp;
    ts_recent_at_ = now;
  }
  SetPeerMss(handshake.peer_mss);
  NoteLeastWait();
  quick_acks_left_ = options_->quick_acks;
  if (handshake.timed_out) {
    StartAfterLostSyn(handshake.rtt);
  } else if (handshake.rtt) {
    rtt_.Sample(*handshake.rtt);
  }
  state_ = State::kEstablished;
  heard_at_ = progress_at_ = rto_base_ = now;
  // What the handshake offered without a scale: the first segment offers more.
  rcv_edge_ = rcv_nxt_ + std::min(options_->receive_window, uint32_t{UINT16_MAX});
  ArmIdle(now);
  plain_ = Plainness();
  Raise(kEstablished);
}

uint16_t Pcb::SmssOf(uint32_t mss, bool timestamps) const {
  const uint32_t options = timestamps ? wire::kTcpTimestampsBytes : 0;
  const uint32_t least = kLeastMss + options;
  return static_cast<uint16_t>(std::max(std::min<uint32_t>(mss, options_->mss), least) - options);
}

void Pcb::SetPeerMss(uint32_t mss) {
  agreed_smss_ = SmssOf(mss, Has(kTimestamps));
  smss_ = LinkSmss();
  // A SYN may be on the way: it says nothing of the window (RFC 6928 section 2).
  congestion_.SetSmss(smss_, /*nothing_sent=*/true);
}

WindowAhead Pcb::LookAhead() const {
  const uint64_t offset = Has(kTimestamps) ? kTcpWordsWithTimestamps : kTcpWords;
  constexpr uint64_t kFlags = wire::kTcpAck | wire::kTcpPsh;
  return {.words = uint64_t{rcv_nxt_.value()} << 32 | offset << 28 | kFlags << 16 |
                   WindowToOffer(/*is_syn=*/false),
          .credited = credited_};
}

SendResult Pcb::WouldSend(uint32_t bytes) const {
  if (state_ != State::kEstablished && state_ != State::kCloseWait) return SendResult::kState;
  if (Has(kSinkFull)) return SendResult::kDevice;
  const uint32_t ahead = queue_.flight().outstanding + queue_.unsent_bytes();
  if (uint64_t{ahead} + bytes > std::min(snd_wnd_, options_->send_queue)) {
    return SendResult::kWindow;
  }
  if (bytes + queue_.unsent_bytes() > CongestionRoom()) {
    return InRecovery() ? SendResult::kRecovery : SendResult::kCongestion;
  }
  const uint32_t segments = UnsentSegments() + (bytes + smss_ - 1) / smss_;
  if (context_->sink->Room(*this) < segments) return SendResult::kDevice;
  return SendResult::kSent;
}

// Which small ones leave by themselves.
uint32_t Pcb::UnsentSegments() const {
  uint32_t segments = 0;
  for (const Segment* each = queue_.first_unsent(); each != nullptr; each = each->next) {
    segments += (each->length + smss_ - 1) / smss_;
  }
  return segments;
}

// Most bytes that WouldSend lets go.
uint32_t Pcb::RoomToLeave() const {
  if (Has(kSinkFull)) return 0;
  const uint32_t unsent = queue_.unsent_bytes();
  const uint32_t ahead = queue_.flight().outstanding + unsent;
  const uint32_t window = std::min(snd_wnd_, options_->send_queue);
  const uint32_t congestion = CongestionRoom();
  const uint32_t frames = context_->sink->Room(*this);
  const uint32_t before = UnsentSegments();
  if (window <= ahead || congestion <= unsent || frames <= before) return 0;
  const uint64_t leaves = std::min<uint64_t>(congestion - unsent,
                                             uint64_t{frames - before} * smss_);
  return static_cast<uint32_t>(std::min<uint64_t>(window - ahead, leaves));
}

void Pcb::RestartIfSilent(base::Nanoseconds now) {
  const bool silent = queue_.all_acknowledged() && timer_ != Timer::kPersist;
  if (silent && WasSilent(now)) congestion_.RestartAfterIdle();
}

// As Linux: in segments, of which the last one may be too much.
uint32_t Pcb::UnsentRoom() const {
  const uint32_t unsent = queue_.unsent_bytes();
  const uint32_t most = options_->unsent_low_water;
  return unsent < most ? std::max<uint32_t>(most - unsent, smss_) : 0;
}

bool Pcb::HasAmpleRoom() const {
  return SendRoom() >= AmpleRoom() &&
         uint64_t{2} * queue_.unsent_bytes() < options_->unsent_low_water;
}

uint32_t Pcb::CopyRoom(bool now_or_fail, base::Nanoseconds now) {
  if (now_or_fail) RestartIfSilent(now);
  const uint32_t pieces = std::min(BuffersForCopies(), context_->segments->free_count());
  const uint64_t memory = uint64_t{pieces} * CopySize();
  const uint32_t room = now_or_fail ? RoomToLeave() : std::min(SendRoom(), UnsentRoom());
  return static_cast<uint32_t>(std::min<uint64_t>(room, memory));
}

// By its state: where windows and queues have room, or get some.
bool Pcb::TakesSends() const {
  const bool opening = state_ == State::kSynSent || state_ == State::kSynReceived;
  return opening ? !Has(kFinQueued)
                 : state_ == State::kEstablished || state_ == State::kCloseWait;
}

SendResult Pcb::Admit(uint32_t bytes, const SendOptions& options) const {
  if (!TakesSends()) return SendResult::kState;
  if (options.now_or_fail) return WouldSend(bytes);
  if (bytes <= SendRoom() && UnsentRoom() != 0) return SendResult::kSent;
  return options.promised ? SendResult::kSent : SendResult::kWindow;
}

SendResult Pcb::Refuse(SendResult reason, uint32_t bytes, const SendOptions& options) {
  if (reason != SendResult::kState) {
    Set(kWantsSpace);
    Clear(kWantsAmple);
    options.now_or_fail ? Set(kWantsNow) : Clear(kWantsNow);
    (options.flags & Segment::kWantDone) != 0 ? Set(kWantsDone) : Clear(kWantsDone);
    options.in_place ? Set(kWantsInPlace) : Clear(kWantsInPlace);
    refused_bytes_ = bytes;
    if (reason == SendResult::kBuffers) context_->sink->OnShortOfMemory(*this);
    if (reason == SendResult::kDevice) context_->sink->OnShortOfRoom(*this);
    plain_ = Plainness();
  }
  return reason;
}

void Pcb::AwaitAmpleRoom() {
  Set(kWantsSpace | kWantsAmple);
  Clear(kWantsNow | kWantsDone | kWantsInPlace);
  refused_bytes_ = AmpleRoom();
  plain_ = Plainness();
}

// What waits for the peers leaves some: they may have to be heard first. What the application holds
// does not count: that comes back by itself.
uint32_t Pcb::BuffersForCopies() const {
  const Context& context = *context_;
  const auto above = [](uint32_t all, uint32_t part) { return all - std::min(all, part); };
  const uint32_t waiting = context.segments->capacity() - context.segments->free_count() +
                           context.reassembly->held_segments();
  const uint32_t most = above(context.buffers->capacity(), context.copies_leave);
  return std::min(context.buffers->free_count(),
                  std::max(above(context.BuffersLeft(), context.copies_leave),
                           above(most, waiting)));
}

SendResult Pcb::RefuseForDone(uint32_t bytes, const SendOptions& options) {
  return Refuse(SendResult::kBuffers, bytes, options);
}

SendResult Pcb::SendNothing() const {
  return TakesSends() ? SendResult::kSent : SendResult::kState;
}

// To copy `bytes` into.
bool Pcb::HasMemoryFor(uint32_t bytes) const {
  const uint32_t size = CopySize();
  const uint32_t buffers = bytes <= size ? 1 : (bytes + size - 1) / size;  // Seldom a division.
  const bool many = context_->buffers->free_count() >= buffers + context_->copies_leave;
  return (many || BuffersForCopies() >= buffers) && context_->segments->HasSpare(buffers);
}

// Before the peer says what it takes, as much as it may: what is too much then is cut as it leaves.
uint32_t Pcb::CopySize() const {
  const bool unknown = state_ == State::kSynSent;
  const uint32_t most = unknown ? SmssOf(options_->mss, options_->timestamps) : smss_;
  return std::min(context_->buffers->payload_bytes(), most);
}

SendResult Pcb::Send(std::span<const uint8_t> bytes, const SendOptions& options,
                     base::Nanoseconds now) {
  const uint32_t length = AskedBytes(bytes.size());
  if (options.now_or_fail) RestartIfSilent(now);
  const SendResult admitted = Admit(length, options);
  if (IsRefused(admitted)) return Refuse(admitted, length, options);
  if (!CopyIn(bytes, options)) return Refuse(SendResult::kBuffers, length, options);
  return SendQueued(options, now);
}

// All of `bytes`, or none: what was appended before memory ran out goes back.
bool Pcb::CopyIn(std::span<const uint8_t> bytes, const SendOptions& options) {
  if (!HasMemoryFor(static_cast<uint32_t>(bytes.size()))) return false;
  const uint32_t slot = CopySize();
  if (bytes.size() <= slot && queue_.first_unsent() == nullptr) [[likely]] {
    CopyOne(bytes, static_cast<uint16_t>(options.flags | Segment::kPush), options.cookie);
    return true;
  }
  if (options.flags == 0 && queue_.first_unsent() != nullptr) {
    bytes = bytes.subspan(queue_.ExtendLast(bytes, slot));
  }
  while (!bytes.empty()) {
    const std::span<const uint8_t> part = bytes.first(std::min<size_t>(bytes.size(), slot));
    bytes = bytes.subspan(part.size());
    const auto last = static_cast<uint16_t>(bytes.empty() ? options.flags | Segment::kPush : 0);
    CopyOne(part, last, options.cookie);
  }
  return true;
}

// There is memory for it.
inline void Pcb::CopyOne(std::span<const uint8_t> bytes, uint16_t flags, uint64_t cookie) {
  packet::Buffer* const buffer = context_->buffers->Acquire();
  std::memcpy(buffer->data, bytes.data(), bytes.size());
  buffer->length = static_cast<uint32_t>(bytes.size());
  queue_.Append({.bytes = buffer->data,
                 .length = buffer->length,
                 .buffer = buffer,
                 .flags = flags,
                 .cookie = cookie});
}

SendResult Pcb::Send(const SegmentQueue::Payload& payload, const SendOptions& options,
                     base::Nanoseconds now) {
  if (options.now_or_fail) RestartIfSilent(now);
  const SendResult admitted = Admit(payload.length, options);
  const auto refuse = [&](SendResult reason) {
    SendOptions of = options;
    of.in_place = true;
    return Refuse(reason, payload.length, of);
  };
  if (IsRefused(admitted)) return refuse(admitted);
  SegmentQueue::Payload taken = payload;
  taken.flags = static_cast<uint16_t>(options.flags | Segment::kPush);
  taken.cookie = options.cookie;
  if (!context_->segments->HasSpare() || queue_.Append(taken) == nullptr) {
    return refuse(SendResult::kBuffers);
  }
  return SendQueued(options, now);
}

SendResult Pcb::SendQueued(const SendOptions& options, base::Nanoseconds now) {
  options.more ? Set(kCorked) : Clear(kCorked);
  if (options.now_or_fail) Set(kSmallOverride);  // Nagle must not keep it
  // What waits for the peer's window has waited since the first of it did.
  if (queue_.all_acknowledged() && timer_ != Timer::kPersist) OnSendAfterSilence(now);
  Output(now);
  return queue_.first_unsent() == nullptr ? SendResult::kSent : SendResult::kQueued;
}

void Pcb::Credit(uint32_t bytes, base::Nanoseconds now) {
  credited_ += std::min(bytes, owed_credit());
  const bool receiving = state_ == State::kEstablished || state_ == State::kFinWait1 ||
                         state_ == State::kFinWait2;
  if (!receiving || !WindowGrewEnough(credited_)) return;
  // A field without a scale, or with a small one, may say all that it can already; and with a large
  // one so little may be less than it counts.
  const uint32_t offered = Distance(rcv_nxt_, rcv_edge_);
  const uint32_t most = uint32_t{UINT16_MAX} << rcv_scale_;
  const uint32_t says = uint32_t{WindowToOffer(/*is_syn=*/false)} << rcv_scale_;
  if (most >= uint64_t{offered} + WindowStep() && says > offered) SendAck(now);
}

void Pcb::Shutdown(base::Nanoseconds now) {
  switch (state_) {
    case State::kSynSent: return Terminate(ECANCELED);
    case State::kSynReceived:  // RFC 9293 section 3.10.4
      if (Has(kFinQueued)) return;
      Set(kFinQueued);
      break;
    case State::kEstablished: state_ = State::kFinWait1; break;
    case State::kCloseWait: state_ = State::kLastAck; break;
    default: return;  // closed already
  }
  if (queue_.all_acknowledged() && timer_ != Timer::kPersist) progress_at_ = now;
  const bool alone = queue_.empty() && state_ != State::kSynReceived && !Has(kWantsSpace);
  if (alone) {
    if (!SendAlone(Segment::kFin, now)) Abort(now);
    return;
  }
  if (!queue_.AddFinToLast() && queue_.Append({.flags = Segment::kFin}) == nullptr) {
    return Abort(now);
  }
  Output(now);
}

void Pcb::Close(base::Nanoseconds timeout, base::Nanoseconds now) {
  Set(kReceiveClosed);
  close_deadline_ = base::DeadlineAfter(now, timeout);
  reassembler_.Clear();
  Shutdown(now);
  if (state_ == State::kFinWait2) return AwaitFinAlone(now);
  if (state_ != State::kClosed) ArmIdle(now);
}

// Closed, and in FIN-WAIT-2: tcp(7), TCP_LINGER2.
void Pcb::AwaitFinAlone(base::Nanoseconds now) {
  const base::Nanoseconds timeout = options_->fin_wait_timeout;
  if (timeout < base::Nanoseconds(0)) return Reset(ECONNABORTED, now);
  if (timeout != base::kNever) close_deadline_ = base::DeadlineAfter(now, timeout);
  ArmIdle(now);
}

void Pcb::Abort(base::Nanoseconds now) {
  const bool known_to_peer = state_ != State::kClosed && state_ != State::kSynSent;
  if (!known_to_peer) return Terminate(ECONNABORTED);
  Reset(ECONNABORTED, now);
}

void Pcb::CloseUnread(base::Nanoseconds now) {
  if (state_ != State::kClosed) Reset(ECONNRESET, now);
}

void Pcb::Reset(int status, base::Nanoseconds now) {
  ++context_->counters.resets_out;
  EmitControl(wire::kTcpRst | wire::kTcpAck, NextWithinWindow(), now);
  Terminate(status);
}

void Pcb::Terminate(int status) {
  if (Has(kEnded)) return;
  Set(kEnded);
  state_ = State::kClosed;
  status_ = static_cast<int16_t>(status);
  SetSender(Timer::kNone, base::kNever);
  ack_deadline_ = idle_deadline_ = close_deadline_ = base::kNever;
  reassembler_.Clear();
  queue_.Cancel([&](const Segment& segment) {
    if (segment.Has(Segment::kWantDone) && segment.posted == 0) {
      context_->sink->OnDone(*this, segment.cookie, /*cancelled=*/true);
    }
  });
  Raise(kTerminated);
}

void Pcb::OnOptionsChanged(base::Nanoseconds now) {
  plain_ = 0;
  NoteLeastWait();
  if (state_ != State::kClosed) ArmIdle(now);
  if (options_->quick_ack && ack_deadline_ != base::kNever) Set(kAckNow);
  const bool sends = state_ == State::kEstablished || state_ == State::kCloseWait;
  sends ? Output(now) : ArmSender(now);
}

void Pcb::UseOptions(const PcbOptions& options) {
  options_ = &options;
  plain_ = 0;
  rtt_.UseOptions(options.rto);
  NoteLeastWait();
}

ConnectionReport Pcb::Report(base::Nanoseconds now) const {
  // Of a segment that was sent again, SND.UNA's last move is nearer to its first sending.
  base::Nanoseconds age{0};
  if (!queue_.all_acknowledged()) age = now - base::Earlier(progress_at_, queue_.first()->sent_at);
  return {.state = state_,
          .srtt = rtt_.srtt(),
          .rttvar = rtt_.rttvar(),
          .rto = rtt_.rto(),
          .oldest_unacknowledged = age,
          .smss = smss_,
          .path_mtu = path_mtu_deadline_ == base::kNever ? 0 : smss_ + HeaderBytes(),
          .congestion_window = congestion_.cwnd(),
          .slow_start_threshold = congestion_.ssthresh(),
          .send_window = snd_wnd_,
          .receive_window = Distance(rcv_nxt_, rcv_edge_),
          .in_flight = queue_.flight().outstanding,
          .unsent = queue_.unsent_bytes(),
          .owed_credit = owed_credit(),
          .retransmits = retransmits_,
          .in_recovery = InRecovery()};
}

}  // namespace xtreme::tcp
