// SPDX-License-Identifier: Apache-2.0
//
// Pcb: one TCP connection. RFC 9293; the arrival of a segment follows section 3.10.7 step by step.
//
// The invariants: time is an argument and nothing blocks; SND.UNA =< SND.NXT =< SND.UNA + window
// whenever a segment leaves; the right edge of the receive window never moves back; every byte is
// delivered once and in order; TERMINATED is the last event, comes once, and nothing is emitted
// after it. The window that is offered is what the application does not owe credit for.
// Files: pcb.cc (calls of the user) and its short way fire.h, arrival.cc and its short way
// expected.h, acknowledgement.cc, output.cc, runs.cc, timers.cc, and what these share:
// every_segment.h; departure.cc (to another stack).
// Units: bytes, nanoseconds. One thread.
#ifndef XTREME_STACK_TCP_PCB_H_
#define XTREME_STACK_TCP_PCB_H_

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include "stack/base/time.h"
#include "stack/packet/buffer.h"
#include "stack/tcp/challenge_limit.h"
#include "stack/tcp/congestion/congestion_control.h"
#include "stack/tcp/connection_report.h"
#include "stack/tcp/context.h"
#include "stack/tcp/handshake.h"
#include "stack/tcp/new_reno_recovery.h"
#include "stack/tcp/path_error.h"
#include "stack/tcp/prr.h"
#include "stack/tcp/rack.h"
#include "stack/tcp/reassembler.h"
#include "stack/tcp/rtt.h"
#include "stack/tcp/scoreboard.h"
#include "stack/tcp/segment_queue.h"
#include "stack/tcp/send_result.h"
#include "stack/tcp/sequence.h"
#include "stack/tcp/spurious_loss.h"
#include "stack/tcp/tail_loss_probe.h"
#include "stack/tcp/window_ahead.h"
#include "stack/wire/tcp_frame.h"
#include "stack/wire/tcp_options.h"

namespace xtreme::tcp {

class Departure;

class Pcb {
 public:
  // What happened since TakeEvents, bits; in this order when they come together.
  enum Event : uint8_t {
    kEstablished = 1 << 0,
    kPeerClosed = 1 << 1,   // after the last byte
    kSendSpace = 1 << 2,    // what was refused would be taken now
    kDeliverable = 1 << 3,  // the sink had no room for bytes that are in order: call Deliver
    kTerminated = 1 << 4,   // status() says why
  };

  // `context` and `options` outlive the connection.
  Pcb(Context& context, const PcbOptions& options);
  ~Pcb() = default;
  Pcb(const Pcb&) = delete;
  Pcb& operator=(const Pcb&) = delete;

  // --- Opening. In state kClosed, once ---

  // Sends SYN from sequence number `iss`. Ends in kEstablished or kTerminated.
  void Connect(Seq iss, base::Nanoseconds now);
  // The handshake was done by a listener: established at once.
  void Establish(const Handshake& handshake, base::Nanoseconds now);

  // --- Sending ---

  struct SendOptions {
    bool now_or_fail = false;  // never kQueued
    bool more = false;  // more follows at once: a segment that is not full may wait, up to 200 ms
    bool promised = false;     // it was taken before: only memory may refuse it
    bool in_place = false;     // refused, it waits for no buffers: Send of a Payload says so itself
    uint16_t flags = 0;        // Segment::kWantWire, kWantDone
    uint64_t cookie = 0;
  };
  // Takes all of `bytes`, by copying, or nothing.
  SendResult Send(std::span<const uint8_t> bytes, const SendOptions& options,
                  base::Nanoseconds now);
  // The same for bytes that are not copied: see SegmentQueue::Payload. Takes the reference of its
  // buffer unless refused.
  SendResult Send(const SegmentQueue::Payload& payload, const SendOptions& options,
                  base::Nanoseconds now);
  // In place of a Send whose OnDone has no place: kBuffers.
  SendResult RefuseForDone(uint32_t bytes, const SendOptions& options);
  // Of no bytes: kState where none are taken whatever room there is, else kSent.
  SendResult SendNothing() const;
  // What Send of `bytes` with now_or_fail would say.
  SendResult WouldSend(uint32_t bytes) const;
  // kSendSpace is to be told. False: it is not true now, and is raised again when it is.
  bool KeepsSpace();
  // How many bytes Send would take without refusing, if there is memory for them.
  uint32_t SendRoom() const {
    const uint32_t used = queue_.flight().outstanding + queue_.unsent_bytes();
    return options_->send_queue > used ? options_->send_queue - used : 0;
  }
  // The same of bytes that are copied, with the memory there is, and with `now_or_fail` of what may
  // leave at once.
  uint32_t CopyRoom(bool now_or_fail, base::Nanoseconds now);
  // Before WouldSend(): the congestion window becomes what a send of now would find.
  void RestartIfSilent(base::Nanoseconds now);
  // How many there should be for a socket to be writable: a third of the queue, as by Linux.
  uint32_t AmpleRoom() const { return options_->send_queue / 3 + 1; }
  bool HasAmpleRoom() const;
  // Whether there is as much when `bytes` more have been sent, as far as SendRoom() goes.
  bool LeavesAmpleRoom(uint32_t bytes) const {
    // Mostly all was sent, and less than half of the queue is in use: seen without a division.
    const uint64_t used = uint64_t{queue_.flight().outstanding} + bytes;
    if (!queue_.has_unsent() && 2 * used < options_->send_queue) [[likely]] return true;
    return SendRoom() >= uint64_t{AmpleRoom()} + bytes;
  }
  // Raises kSendSpace, once, at ample room and a segment's memory, not at what a send was refused.
  void AwaitAmpleRoom();

  // --- Sending a segment that the caller posts (fire.h, inlined) ---

  // Whether `bytes` may leave now as one segment with no option but timestamps: nothing is queued
  // ahead, both windows and the pool of segments have room, no loss is being repaired, nobody waits
  // to send; and, unless `now_or_fail`, Nagle's algorithm does not keep it. If so, `outgoing` gets
  // what its header says now. Changes nothing.
  bool MayFire(uint32_t bytes, bool now_or_fail, base::Nanoseconds now, Outgoing* outgoing) const;
  // Its two halves, so that the clock is read only where it may.
  bool MayLeave(uint32_t bytes, bool now_or_fail) const;
  void FillFired(base::Nanoseconds now, Outgoing* outgoing) const;
  // The same by what is known ahead, which is worked out anew where it does not hold.
  bool MayFireAhead(uint32_t bytes, base::Nanoseconds now, WindowAhead* ahead,
                    Outgoing* outgoing) const;
  // Of a connection that is established; and whether it is what would be worked out now.
  WindowAhead LookAhead() const;
  bool Holds(const WindowAhead& ahead) const {
    return ahead.acknowledgement() == rcv_nxt_.value() && ahead.credited == credited_ &&
           ahead.words != 0;
  }
  // It left so. `payload`, as long as asked, is kept until it is acknowledged; its reference is
  // taken. `posts_reference`: as in SegmentQueue::MarkSent. What Send would come to.
  Segment& Fired(const Outgoing& outgoing, const SegmentQueue::Payload& payload,
                 bool posts_reference, base::Nanoseconds now);

  // --- Receiving ---

  // The application is done with `bytes` that were delivered: the window opens.
  void Credit(uint32_t bytes, base::Nanoseconds now);
  // The same if the window does not open by so much that the peer had better know at once; false,
  // and nothing done: Credit is due. Emits nothing.
  bool CreditQuietly(uint32_t bytes);
  // After kDeliverable: hands the sink what is in order.
  void Deliver(base::Nanoseconds now);

  // --- Closing ---

  // FIN behind what is queued; receiving goes on. RFC 9293 section 3.10.4.
  void Shutdown(base::Nanoseconds now);
  // The same, and nothing more is received: data that still comes resets the connection (RFC 2525
  // section 2.17). Without an end after `timeout` it is reset.
  void Close(base::Nanoseconds timeout, base::Nanoseconds now);
  // In its place where bytes that were acknowledged will not be read: RST (RFC 9293 section 3.6.1,
  // RFC 2525 section 2.17); TERMINATED with ECONNRESET.
  void CloseUnread(base::Nanoseconds now);
  void Close(base::Nanoseconds now) { Close(options_->close_timeout, now); }
  // RST; TERMINATED with ECONNABORTED.
  void Abort(base::Nanoseconds now);
  // Ends it with `error` and tells the peer nothing: there is no way to it.
  void Fail(int error) { Terminate(error); }

  // --- Moving to another context (departure.cc) ---

  // Whether it can: established, at least one way is open, and no payload RefersToMemory().
  bool MayDepart() const;
  // Whether something that is not acknowledged stands in memory of the application.
  bool RefersToMemory() const;
  // Becomes what `from` is, in state kClosed. Payload is copied to the context's buffers; a context
  // that has none holds what `from` does. What `from` held after holes is taken, and dropped where
  // there is no room for it: the peer still has it. False, and nothing is taken: the context has
  // too few segments or buffers, or these are too short.
  bool TakeOver(Pcb& from);
  // It is about to go on as another, and kSendSpace was raised but nobody told: that one raises it.
  void OweSendSpace();
  // Another goes on: ends it here, with kTerminated, and tells the peer nothing.
  void Leave();
  // It is another's continuation, in its place from now on.
  void Resume(base::Nanoseconds now);

  // --- What comes in ---

  // A segment of this connection. Takes the reference of `payload`, whose chain has
  // `segment.payload_bytes`; null when there are none. `stamp` is handed on with the bytes.
  void Arrive(const wire::TcpSegment& segment, packet::Buffer* payload, uint64_t stamp,
              base::Nanoseconds now);
  // The same in steps, inlined (expected.h), of a segment that is expected, as a ParsedAck or a
  // wire::PlainTcpView says it: whether it is, and of what kind; all but its payload; its payload,
  // unless it has none, which the caller took; and what is due then. `quietly`: and nobody need be
  // told anything else, so the sink is not called but to transmit. `acknowledge()`: whether an
  // acknowledgement that is due has left. The last three tell whether SoonestDeadline() may be
  // sooner by them.
  enum class Expected : uint8_t {
    kNot,         // Arrive() takes it
    kNothingNew,  // it acknowledges nothing new
    kOnly,        // or all there is, one segment
    kSeveral,     // or what else was sent once
  };
  Expected Judge(const auto& segment, uint32_t payload_bytes, bool quietly) const;
  bool TakeExpected(const auto& segment, Expected what, bool quietly, base::Nanoseconds now);
  bool TakeExpectedPayload(uint32_t bytes, base::Nanoseconds now, auto&& acknowledge);
  bool AfterExpected(base::Nanoseconds now);
  // Where an acknowledgement is due and nothing else, has `place(const Outgoing&)` send it. False:
  // there is more, or that did not (also expected.h).
  bool AckAlone(base::Nanoseconds now, auto&& place);
  // Whether `segment` says no more than a ParsedAck tells, with timestamps if these are in use.
  bool SaysAckOnly(const wire::TcpSegment& segment) const;
  bool IsExpected(const wire::TcpSegment& segment, bool quietly) const;
  // `now` is at or after NextDeadline().
  void OnTimer(base::Nanoseconds now);
  bool OnlyAckIsDue(base::Nanoseconds now) const;  // Mostly nothing else is.
  // After the sink refused, it has room again; or after OnShortOfMemory.
  void OnRoom(base::Nanoseconds now) { Output(now); }
  // A WQE that refers to `segment` completed.
  SegmentQueue::Due OnWqeCompleted(Segment& segment) { return queue_.OnWqeCompleted(segment); }
  // An ICMP error about a segment of ours (path_error.cc). A smaller MTU: what was too long goes
  // again, cut; after path_mtu_timeout segments are tried as long as they were. Another error:
  // remembered as the cause should it time out before SND.UNA moves; a hard one ends a connection
  // that is not established yet.
  PathVerdict OnPathError(const PathError& error, base::Nanoseconds now);
  // Context::link_mtu is another now: from here on segments are as long as it lets them.
  void OnLinkMtu();
  // The link works again: if time-outs were backed off from, the first segment goes at once.
  void OnLinkUp(base::Nanoseconds now);

  // --- Accessors ---

  // When OnTimer is due; kNever: never. Read it again after every call.
  base::Nanoseconds NextDeadline() const {
    return base::Earlier(base::Earlier(SenderDeadline(), ack_deadline_), idle_deadline_);
  }
  // The same, or earlier by what has not been worked out: an OnTimer that comes then may find that
  // nothing is due. Of what the short ways (expected.h, fire.h) move.
  base::Nanoseconds SoonestDeadline() const {
    return base::Earlier(retransmit_deadline_, ack_deadline_);
  }
  // The same, of what any call moves.
  base::Nanoseconds EarliestDeadline() const;
  uint8_t events() const { return events_; }
  uint8_t TakeEvents() { return std::exchange(events_, uint8_t{0}); }
  State state() const { return state_; }
  int status() const { return status_; }  // errno of TERMINATED; 0: closed in order
  const SegmentQueue& queue() const { return queue_; }
  ConnectionReport Report(base::Nanoseconds now) const;
  Seq receive_next() const { return rcv_nxt_; }
  // The right edge that was offered to the peer.
  Seq receive_edge() const { return rcv_edge_; }
  // What a header says of it.
  uint16_t offered_window() const {
    return static_cast<uint16_t>(Distance(rcv_nxt_, rcv_edge_) >> rcv_scale_);
  }
  const PcbOptions& options() const { return *options_; }
  // They were changed in place: what waits for a time that they say is due by them from now on.
  // What waits only by what they said before leaves.
  void OnOptionsChanged(base::Nanoseconds now);
  // Others from now on, which outlive it. What both ends agreed on stays.
  void UseOptions(const PcbOptions& options);
  bool uses_timestamps() const { return Has(kTimestamps); }
  // Posted WQEs refer to its segments: it must stay though it is closed.
  bool IsReferenced() const { return queue_.waiting_for_wqe() != 0; }
  // Terminated as TIME-WAIT began: the peer may repeat its FIN. RFC 9293 section 3.6.
  bool ended_in_time_wait() const { return Has(kTimeWait); }
  Seq send_next() const { return queue_.nxt(); }
  // Where an acknowledgement or a reset stands, so that the peer takes it.
  Seq NextWithinWindow() const;
  uint32_t recent_timestamp() const { return ts_recent_; }
  // Most payload in a segment.
  uint32_t smss() const { return smss_; }
  // Bytes delivered and not credited.
  uint32_t owed_credit() const { return Distance(credited_, rcv_nxt_); }
  // Those that hold what came after a hole.
  uint32_t held_buffers() const { return reassembler_.held_buffers(); }

 private:
  friend class Departure;

  enum Flag : uint32_t {
    kScaling = 1 << 0,
    kTimestamps = 1 << 1,
    kSack = 1 << 2,
    kAckNow = 1 << 3,
    kFinReceived = 1 << 4,
    kReceiveClosed = 1 << 5,  // Close was called
    kCorked = 1 << 6,         // the last segment may wait for more, as its send said
    kWantsSpace = 1 << 7,     // a send was refused
    kWantsNow = 1 << 8,       // and it was one with now_or_fail
    kSmallOverride = 1 << 9,  // send what fits, however small
    kSendOne = 1 << 10,       // retransmit a segment, whatever is in flight
    kFastRecovery = 1 << 11,
    kTimeoutRecovery = 1 << 12,
    kSinkFull = 1 << 13,
    kTimeWait = 1 << 14,
    kEnded = 1 << 15,
    kFinSeen = 1 << 16,  // perhaps before bytes that come before it
    kFinQueued = 1 << 17,  // in SYN-RECEIVED: it leaves when the handshake is done
    kWantsDone = 1 << 18,  // the refused send was one with kWantDone
    kWantsAmple = 1 << 19,  // none was refused: refused_bytes_ of room, and memory for a segment
    kWantsInPlace = 1 << 20,  // the refused send was one that is not copied
  };
  // What the one deadline for the sender is about. RFC 8985 section 7.2: one runs at a time.
  // kOutstanding: one of the first three, not before retransmit_deadline_; which, and when, is
  // worked out if nothing is acknowledged until then.
  enum class Timer : uint8_t { kNone, kRetransmit, kProbe, kReorder, kPersist, kOutstanding };
  // What makes the short ways right, in `plain_` (Plainness).
  enum Plain : uint8_t {
    kPlainIn = 1 << 0,     // nothing is lost, held after a hole, or being repaired
    kPlainQuiet = 1 << 1,  // nor is anybody waiting to send
    kPlainOut = 1 << 2,    // nor anything unsent, or to be told beside an acknowledgement
    kPlainDelays = 1 << 3,  // and what comes is acknowledged later, by kLongestDelay at most
  };
  static constexpr base::Nanoseconds kLongestDelay = base::Seconds(3600);

  // Unanswered ones.
  struct Probes {
    uint8_t window = 0;  // of one that is closed
    uint8_t idle = 0;    // keepalives
  };

  // What an acknowledgement brought.
  struct Progress {
    uint32_t acked = 0;
    uint32_t newly_sacked = 0;
    uint32_t sacked_before = 0;  // of `acked`
    uint32_t outstanding_before = 0;
    std::optional<wire::SackBlock> dsack;
    bool has_sack = false;
    bool duplicate = false;  // RFC 5681 section 2
    bool first_copy = false;  // of a segment that was sent again: SpuriousLoss::IsOfFirstCopy
    std::optional<base::Nanoseconds> rtt;
  };

  bool Has(uint32_t any_of) const { return (flags_ & any_of) != 0; }
  void Set(uint32_t flag) {
    flags_ |= flag;
    plain_ = 0;
  }
  void Clear(uint32_t flag) { flags_ &= ~flag; }
  uint8_t Plainness() const;
  bool IsPlain(uint8_t bit) const {
#if XTREME_DEBUG
    assert((plain_ & ~Plainness()) == 0 && "a short way was open that should not be");
#endif
    return (plain_ & bit) != 0;
  }
  bool InRecovery() const { return Has(kFastRecovery | kTimeoutRecovery); }
  void Raise(uint8_t event) {
    events_ |= event;
    context_->sink->OnEvents(*this);
  }
  static constexpr uint32_t kLeastMss = 48;  // a peer that asks for less costs more than it brings
  static constexpr uint16_t kDefaultMss = 536;  // RFC 9293 section 3.7.1: without the option

  // fire.h
  void FillFired(Seq acknowledgement, uint16_t window, base::Nanoseconds now,
                 Outgoing* outgoing) const;

  // pcb.cc
  uint16_t SmssOf(uint32_t mss, bool timestamps) const;
  void SetPeerMss(uint32_t mss);
  uint32_t UnsentRoom() const;
  bool TakesSends() const;
  SendResult Admit(uint32_t bytes, const SendOptions& options) const;
  SendResult Refuse(SendResult reason, uint32_t bytes, const SendOptions& options);
  uint32_t BuffersForCopies() const;
  bool HasMemoryFor(uint32_t bytes) const;
  uint32_t UnsentSegments() const;
  uint32_t RoomToLeave() const;
  uint32_t CopySize() const;
  bool CopyIn(std::span<const uint8_t> bytes, const SendOptions& options);
  void CopyOne(std::span<const uint8_t> bytes, uint16_t flags, uint64_t cookie);
  SendResult SendQueued(const SendOptions& options, base::Nanoseconds now);
  void Terminate(int status);
  void Reset(int status, base::Nanoseconds now);

  // departure.cc
  bool TakeQueue(const Pcb& from);
  void TakeHeld(Pcb& from);
  void TakeState(const Pcb& from);
  bool HasBuffersFor(const Pcb& from) const;

  // path_error.cc
  uint32_t HeaderBytes() const;
  PathVerdict OnPathMtu(const PathError& error, base::Nanoseconds now);
  void ForgetPathMtu();
  uint16_t LinkSmss() const;
  int TimeoutStatus() const;

  // expected.cc, expected.h
  bool ArriveAsExpected(const wire::TcpSegment& segment, packet::Buffer* payload, uint64_t stamp,
                        base::Nanoseconds now);
  Expected JudgeSeveral(Seq ack, bool quietly) const;
  void TakeAckOfOnly(bool quietly, base::Nanoseconds now);
  void TakeAckOfSeveral(Seq ack, base::Nanoseconds now);
  void TakeSeveral(Seq ack, Progress* progress, base::Nanoseconds now);
  void SampleOnly(base::Nanoseconds rtt, base::Nanoseconds now);
  void GrowByOnly(uint32_t acked, base::Nanoseconds rtt, base::Nanoseconds now);
  void OutputIfDue(base::Nanoseconds now);
  bool IsWindowLimited(uint32_t outstanding_before) const;

  // arrival.cc
  void ArriveInSynSent(const wire::TcpSegment& segment, base::Nanoseconds now);
  void AgreeOn(const wire::TcpSegment& segment, base::Nanoseconds now);
  void BecomeEstablished(const wire::TcpSegment& segment, base::Nanoseconds now);
  void StartAfterLostSyn(std::optional<base::Nanoseconds> rtt);
  bool CheckTimestamp(const wire::TcpSegment& segment, base::Nanoseconds now);
  bool CheckSequence(const wire::TcpSegment& segment, base::Nanoseconds now);
  bool IsProbe(const wire::TcpSegment& segment) const;
  bool IsOpeningAnswer(const wire::TcpSegment& segment) const;
  bool CheckReset(const wire::TcpSegment& segment, base::Nanoseconds now);
  bool CheckSyn(const wire::TcpSegment& segment, base::Nanoseconds now);
  bool CheckAck(const wire::TcpSegment& segment, base::Nanoseconds now);
  void CheckUrgent(const wire::TcpSegment& segment);
  bool ProcessText(const wire::TcpSegment& segment, packet::Buffer* payload, uint64_t stamp,
                   base::Nanoseconds now);
  void ProcessFin(const wire::TcpSegment& segment, base::Nanoseconds now);
  bool TakeInOrder(const wire::TcpSegment& segment, packet::Buffer* payload, uint64_t stamp);
  void TakeFinIfNext(base::Nanoseconds now);
  void DrainReassembler();
  void ScheduleAck(base::Nanoseconds now);
  void ChallengeAck(base::Nanoseconds now);
  void EnterTimeWait(base::Nanoseconds now);

  // acknowledgement.cc
  void UpdateSendWindow(const wire::TcpSegment& segment);
  void ProcessAck(const wire::TcpSegment& segment, base::Nanoseconds now);
  Progress TakeAcknowledged(const wire::TcpSegment& segment, base::Nanoseconds now);
  void RecoverBySack(const Progress& progress, base::Nanoseconds now);
  void RecoverByDuplicates(const Progress& progress, base::Nanoseconds now);
  void GrowWindow(const Progress& progress, base::Nanoseconds now);
  void JudgeReduction();
  void TakeBackReduction();
  void EnterFastRecovery(const Progress& progress, base::Nanoseconds now);
  void ReduceWindow(const Progress& progress, bool safe);
  void OnOursAcknowledged(base::Nanoseconds now);
  void OnWindowOpened(base::Nanoseconds now);
  uint32_t ExpectedSamples() const;

  // output.cc
  void Output(base::Nanoseconds now);
  Segment* NextToSend();
  bool MayRetransmit() const;
  uint32_t UsableWindow() const;
  uint32_t CongestionRoom() const;
  bool MayWait(const Segment& segment, uint32_t length) const;
  Segment* CutTo(Segment& segment, uint32_t length);
  bool SendSegment(Segment& segment, base::Nanoseconds now);
  bool SendAlone(uint16_t flag, base::Nanoseconds now);
  void FillHeader(Outgoing& outgoing, base::Nanoseconds now) const;
  uint8_t FlagsOf(const Segment& segment) const;
  void SendAck(base::Nanoseconds now);
  void EmitControl(uint8_t flags, Seq sequence, base::Nanoseconds now);
  std::optional<Sink::Taken> Emit(Outgoing& outgoing, base::Nanoseconds now);
  std::optional<Sink::Taken> EmitWithOptions(Outgoing& outgoing);
  bool FillOptions(const Outgoing& outgoing, wire::TcpOptions& options) const;
  uint32_t FreeWindow() const;
  uint16_t WindowToOffer(bool is_syn) const;
  void OnOffered(const Outgoing& outgoing);
  bool WasSilent(base::Nanoseconds now) const;
  void OnSendAfterSilence(base::Nanoseconds now);
  uint32_t WindowStep() const;
  bool WindowGrewEnough(Seq credited) const;
  void OfferSendSpace();
  bool HasWantedSpace();

  // runs.cc
  bool MaySendRuns() const;
  void SendRuns(base::Nanoseconds now);
  bool SendRun(base::Nanoseconds now);
  uint32_t TakenByRun(const Segment& segment, uint32_t room) const;

  // timers.cc
  struct SenderTimer {
    Timer timer = Timer::kNone;
    base::Nanoseconds deadline = base::kNever;
  };
  void SetSender(Timer timer, base::Nanoseconds deadline) {
    timer_ = timer;
    retransmit_deadline_ = deadline;
  }
  base::Nanoseconds SenderDeadline() const {
    if (timer_ != Timer::kOutstanding) return retransmit_deadline_;
    const base::Nanoseconds deadline = OutstandingTimer().deadline;
#if XTREME_DEBUG
    assert(deadline >= retransmit_deadline_ && "a timer would come too late");
#endif
    return deadline;
  }
  SenderTimer OutstandingTimer() const;
  void ArmSender(base::Nanoseconds now);
  void ArmOutstanding();
  void NoteLeastWait();
  void Rearm(bool one, base::Nanoseconds now);
  void ArmBehind(base::Nanoseconds now);
  void ArmPersist(base::Nanoseconds now);
  bool IsCorked() const { return Has(kCorked) || options_->cork; }
  bool KeptByCork() const;
  base::Nanoseconds Capped(base::Nanoseconds deadline) const;
  bool GaveUp(base::Nanoseconds now) const;
  void OnSenderTimer(base::Nanoseconds now);
  void OnRetransmissionTimeout(base::Nanoseconds now);
  void MarkAllLost(base::Nanoseconds now);
  Rack::Context RackContext(base::Nanoseconds now) const;
  void OnProbeTimer(base::Nanoseconds now);
  Segment* LastPiece();
  void OnReorderTimer(base::Nanoseconds now);
  void OnPersistTimer(base::Nanoseconds now);
  void AwaitFinAlone(base::Nanoseconds now);
  void ArmIdle(base::Nanoseconds now);
  void OnIdleTimer(base::Nanoseconds now);

  Context* context_;
  const PcbOptions* options_;

  // What every segment touches, side by side: with many connections each line is a miss.
  SegmentQueue queue_;
  Seq rcv_nxt_;
  Seq rcv_edge_;  // RCV.NXT + RCV.WND as last offered
  Seq fin_at_;    // the number of the peer's FIN, under kFinSeen
  Seq last_ack_sent_;
  uint32_t snd_wnd_ = 0;
  Seq snd_wl1_;
  Seq snd_wl2_;
  uint32_t max_snd_wnd_ = 0;
  Seq credited_;  // up to where the application is done with what was delivered
  uint32_t ts_recent_ = 0;
  uint32_t flags_ = 0;
  uint16_t smss_ = kDefaultMss;
  State state_ = State::kClosed;
  uint8_t events_ = 0;
  uint8_t snd_scale_ = 0;
  uint8_t rcv_scale_ = 0;  // 0 as well once the peer is known not to scale
  Timer timer_ = Timer::kNone;
  uint8_t quick_acks_left_ = 0;
  Probes probes_;
  uint8_t retries_ = 0;
  uint8_t plain_ = 0;  // bits of Plain: right where they are set, made anew by Output
  base::Nanoseconds retransmit_deadline_ = base::kNever;
  base::Nanoseconds ack_deadline_ = base::kNever;
  base::Nanoseconds idle_deadline_ = base::kNever;
  // When SND.UNA moved, sending began after silence, or a closed window opened.
  base::Nanoseconds progress_at_;
  base::Nanoseconds rto_base_;     // when the retransmission timer was last restarted
  base::Nanoseconds heard_at_;     // when the last segment came
  base::Nanoseconds ts_recent_at_;
  base::Nanoseconds reorder_deadline_ = base::kNever;
  RttEstimator rtt_;
  Rack rack_;
  CongestionControl congestion_;  // Its window first.

  // What is out of order, and loss recovery.
  Reassembler reassembler_;
  std::optional<wire::SackBlock> duplicate_;  // to be told with the next acknowledgement
  Seq recover_;  // SND.NXT as it began
  Scoreboard scoreboard_;
  TailLossProbe tail_probe_;
  ProportionalRateReduction reduction_;
  NewRenoRecovery new_reno_;
  SpuriousLoss spurious_;

  base::Nanoseconds close_deadline_ = base::kNever;
  uint32_t refused_bytes_ = 0;  // of the send that kWantsSpace is about
  uint32_t retransmits_ = 0;
  int16_t status_ = 0;      // both errnos
  int16_t soft_error_ = 0;  // of ICMP, when SND.UNA was soft_error_at_
  Seq soft_error_at_;
  base::Nanoseconds path_mtu_deadline_ = base::kNever;  // when a lowered smss_ is
  uint16_t agreed_smss_ = kDefaultMss;                  // again, as the handshake said
  ChallengeLimit challenges_;
};

}  // namespace xtreme::tcp

#endif  // XTREME_STACK_TCP_PCB_H_
