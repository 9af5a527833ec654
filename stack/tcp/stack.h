// SPDX-License-Identifier: Apache-2.0
//
// Stack: all of TCP of one ring. Frames, calls and time go in; frames go out to a Device, and what
// happened is taken out one event at a time.
//
//   stack.Input(frame, buffer, stamp, now);          // per received segment
//   while (stack.TakeEvent(&event)) HandOut(event);  // before the next one
//   if (stack.NextDeadline() <= now) stack.OnTimers(now);   // when no packet waits
//
// The invariants: nothing is allocated after construction but in Listen; no event is lost, merged
// or out of order per connection; kTerminated is its last one, comes once, and not while a posted
// WQE refers to its bytes. A connection lives until Release. Units: bytes, nanoseconds. One thread.
#ifndef XTREME_STACK_TCP_STACK_H_
#define XTREME_STACK_TCP_STACK_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "stack/base/counters.h"
#include "stack/base/time.h"
#include "stack/packet/buffer.h"
#include "stack/tcp/context.h"
#include "stack/tcp/path_error.h"
#include "stack/tcp/segment_queue.h"
#include "stack/wire/address.h"

namespace xtreme::base {
struct Timer;
}
namespace xtreme::wire {
class PlainTcpView;
class TcpTemplate;
struct TcpFrame;
struct TcpSegment;
}  // namespace xtreme::wire

namespace xtreme::tcp {

class Connection;
class Departure;
struct FlowKey;
struct Handshake;
struct Listener;
struct StackTables;
struct SynRecord;
struct TimeWaitRecord;
enum class SendResult : uint8_t;

// A frame to be sent.
struct OutgoingFrame {
  // The most that WriteHeaders writes.
  static constexpr size_t kMaxHeadersBytes = 98;

  Connection* connection = nullptr;  // null: an answer on behalf of none
  const wire::TcpTemplate* headers = nullptr;
  const Outgoing* outgoing = nullptr;

  // The payload with its buffer or memory key; null: none. Say it again in
  // Stack::OnWqeCompleted when the WQE refers to it.
  Segment* segment() const { return outgoing->segment; }
  // Ethernet to TCP, checksum fields 0. Returns how many bytes.
  size_t WriteHeaders(uint8_t* to) const;
};

// What the stack sends by. Transmit may not call the stack.
class Device {
 public:
  // kReferenced also when the bytes were copied but the segment has Segment::kWantWire. After
  // kRefused, Stack::OnRoom is due when there is room.
  virtual Sink::Taken Transmit(const OutgoingFrame& frame) = 0;
  // The same of an acknowledgement that carries nothing and has no option but timestamps, on the
  // connection's headers, which are not patched first. False: it was not taken, and Transmit may.
  virtual bool PlaceAck(const Connection& /*connection*/, const Outgoing& /*says*/) {
    return false;
  }
  // Segments that the device cuts itself: as Sink's of the same names.
  virtual uint32_t RunBytes(const Connection& /*connection*/) const { return 0; }
  virtual Sink::Taken TransmitRun(const OutgoingFrame& /*first*/,
                                  std::span<Segment* const> /*run*/, uint32_t /*segment_bytes*/) {
    return Sink::Taken::kRefused;
  }
  // Frames of a connection that Transmit would take now: a send with now_or_fail asks before it
  // takes any byte. Null: of those that have no queue of their own.
  virtual uint32_t Room(const Connection* /*connection*/) const { return UINT32_MAX; }
  // It was too little for a connection: as after kRefused.
  virtual void OnShortOfRoom() {}
  // Buffers of the stack's pool that wait for frames.
  virtual uint32_t PostedBuffers() const { return 0; }

 protected:
  ~Device() = default;
};

// Where frames go that come for a connection which departed: the user's, one for each.
class Onward {
 public:
  // `frame` was parsed from `buffer`, which begins with the Ethernet header, one reference of which
  // is taken. May not call the stack.
  virtual void PassOn(const wire::TcpFrame& frame, packet::Buffer* buffer, uint64_t stamp) = 0;

 protected:
  ~Onward() = default;
};

// How a peer is reached: from the neighbour cache, or the way its frames came.
struct LinkPath {
  wire::MacAddress local;
  wire::MacAddress peer;
  std::optional<uint16_t> vlan_tci;
  uint8_t tos = 0;
  uint8_t ttl = 64;
};

struct StackCounters {
  uint64_t segments = 0;
  uint64_t accepted = 0;
  uint64_t bad_sources = 0;
  uint64_t strangers = 0;
  uint64_t resets_to_strangers = 0;
  uint64_t answers_withheld = 0;
  uint64_t hushed = 0;
  uint64_t syns_withheld = 0;
  uint64_t cookies_sent = 0;
  uint64_t cookies_accepted = 0;
  uint64_t backlog_full = 0;
  uint64_t connections_exhausted = 0;
  uint64_t answers_refused = 0;
  uint64_t resets_owed = 0;
  uint64_t departed = 0;
  uint64_t admitted = 0;
  uint64_t strays_passed_on = 0;
  uint64_t strays_taken = 0;
  uint64_t strays_lost = 0;
  uint64_t unread = 0;

  static constexpr auto Table() {
    using C = StackCounters;
    return std::to_array<base::CounterDescriptor<C>>({
        {"segments", "segments received", &C::segments},
        {"accepted", "connections that listeners accepted", &C::accepted},
        {"bad_sources", "segments of no connection from a source that no other host can have",
         &C::bad_sources},
        {"strangers", "segments of no connection and for no listener", &C::strangers},
        {"resets_to_strangers", "resets sent in answer to those", &C::resets_to_strangers},
        {"answers_withheld", "answers to those, and to handshakes, not sent: too many this second",
         &C::answers_withheld},
        {"hushed", "segments for listeners that did not answer yet", &C::hushed},
        {"syns_withheld", "SYNs dropped because too many came", &C::syns_withheld},
        {"cookies_sent", "SYNs answered by a cookie because the SYN queue was full",
         &C::cookies_sent},
        {"cookies_accepted", "connections accepted by their cookie", &C::cookies_accepted},
        {"backlog_full", "handshakes not finished because the listener's backlog was full",
         &C::backlog_full},
        {"connections_exhausted", "connections not made because none was free",
         &C::connections_exhausted},
        {"answers_refused", "answers of no connection that the device had no room for",
         &C::answers_refused},
        {"resets_owed", "resets of connections that waited for room in the device",
         &C::resets_owed},
        {"departed", "connections that moved to another ring", &C::departed},
        {"admitted", "connections that moved here from another ring", &C::admitted},
        {"strays_passed_on", "segments of connections that moved, passed on to their new ring",
         &C::strays_passed_on},
        {"strays_taken", "segments that a connection's old ring passed on", &C::strays_taken},
        {"strays_lost", "segments that were passed on and are of no connection any more",
         &C::strays_lost},
        {"unread", "runs of bytes that had come, and waited as their connection was closed",
         &C::unread},
    });
  }
};
static_assert(base::DescribesEveryCounter<StackCounters>());

class Stack final : private Sink {
 public:
  struct Options {
    uint32_t connections = 1024;
    uint32_t segments = 8192;    // queued and unacknowledged, of all connections
    uint32_t deliveries = 1024;  // runs of bytes that wait for TakeEvent
    uint32_t syn_queue = 1024;
    uint32_t time_wait = 16'384;
    base::Nanoseconds time_wait_duration = base::Seconds(60);
    uint32_t held_segments = 4096;  // after holes, of all connections
    uint32_t held_buffers = 512;    // the same of one, in buffers
    uint32_t syns_per_second = 1'000'000;
    uint32_t resets_per_second = 1000;  // to strangers
    bool answer_strangers = true;       // RST to what belongs to nobody
    std::array<uint64_t, 2> secret{};   // random, once per start
  };

  // What happened.
  struct Event {
    enum class Kind : uint8_t {
      kEstablished,
      kAccepted,    // connection->listener() finished a handshake; before any kData of it
      kData,        // `bytes` in `chain`, whose references are the taker's; credit is due for them
      kDone,        // `cookie`; `cancelled`: it may not have arrived
      kPeerClosed,  // after the last kData
      kSendSpace,
      kTerminated,  // `status`: errno, 0 for an orderly end. Release is due
      kDeparted,    // in its place: it is another stack's. Release is due
    };
    Kind kind = Kind::kData;
    bool cancelled = false;
    int status = 0;
    Connection* connection = nullptr;
    packet::Buffer* chain = nullptr;
    uint32_t bytes = 0;
    uint64_t stamp = 0;
    uint64_t cookie = 0;
  };

  // `device` and `buffers`, the pool that sends are copied to, outlive the stack.
  Stack(const Options& options, Device& device, packet::BufferPool& buffers, base::Nanoseconds now);
  // Every connection and listener is gone, or is now, without a word to the peers.
  ~Stack() override;
  Stack(const Stack&) = delete;
  Stack& operator=(const Stack&) = delete;

  // --- Opening ---

  struct Listen {
    wire::Endpoint local;  // any address: every one
    uint16_t vlan_id = 0;
    const PcbOptions* options = nullptr;  // of the children; outlives them
    uint32_t backlog = 128;               // accepted and not taken by TakeEvent
    uint64_t user = 0;
    // SYNs answered, beside what Options allow all listeners; 0: no limit, else up to 10^9. A whole
    // second's may come at once.
    uint32_t syns_per_second = 0;
    bool hushed = false;  // nobody is answered, as if what came were lost, until Welcome
    bool holds = false;   // what TakeEvent took counts in the backlog too, until TookOne
  };
  // Null when somebody listens there already. May allocate.
  Listener* OpenListener(const Listen& listen);
  void Welcome(Listener& listener);
  // From now on it is as if it had been opened hushed.
  void Hush(Listener& listener);
  void SetBacklog(Listener& listener, uint32_t backlog);
  // Of a listener that holds them.
  void TookOne(Listener& listener);
  // Handshakes under way are forgotten; what was accepted stays. Where a hushed one stood nobody is
  // answered until another one opens there, or it is forgotten.
  void CloseListener(Listener& listener);
  // Where a hushed listener was closed, if one was, strangers are answered as anywhere.
  void ForgetClosed(const wire::Endpoint& local, uint16_t vlan_id);

  struct Connect {
    wire::Endpoint local;  // both given
    wire::Endpoint remote;
    uint16_t vlan_id = 0;
    const PcbOptions* options = nullptr;  // outlives the connection
    LinkPath path;
    uint64_t user = 0;
  };
  struct Opened {
    Connection* connection = nullptr;
    int error = 0;  // EADDRINUSE: the flow is taken; ENOBUFS: no connection is free
  };
  // Sends SYN. Ends in exactly one of kEstablished and kTerminated.
  Opened Open(const Connect& connect, base::Nanoseconds now);

  // --- Calls on a connection: as Pcb says ---

  struct Send {
    bool now_or_fail = false;
    bool more = false;
    bool want_wire = false;
    bool want_done = false;
    bool promised = false;
    uint64_t cookie = 0;
  };
  // All of `bytes` or nothing. Of no bytes: kSent, and no kDone follows, or kState.
  SendResult SendCopy(Connection& connection, std::span<const uint8_t> bytes, const Send& send,
                      base::Nanoseconds now);
  // As many of `bytes` as fit; 0 is a refusal.
  size_t SendSome(Connection& connection, std::span<const uint8_t> bytes, const Send& send,
                  base::Nanoseconds now);
  // One kSendSpace follows when there is ample room (Pcb::AmpleRoom): in place of the one that a
  // refused send asked for.
  void AwaitAmpleRoom(Connection& connection);
  // To be asked before a kSendSpace is told. False: it is not true any more, and another follows.
  bool KeepsSpace(Connection& connection, base::Nanoseconds now);
  // As SendCopy, of bytes that are not copied. Takes the reference of `payload.buffer` unless
  // refused; its flags and cookie are `send`'s.
  SendResult SendInPlace(Connection& connection, const SegmentQueue::Payload& payload,
                         const Send& send, base::Nanoseconds now);
  // The same in steps, inlined (fire.h), for who posts the frame himself: whether `bytes` may leave
  // now as one segment, and what its header says then; the headers that say so, unless they were
  // copied ahead; and that it left (`posts_reference`: as in SegmentQueue::MarkSent). Between them
  // nothing else may be called. What may not leave so
  // may still be sent by SendCopy.
  bool MayFire(const Connection& connection, uint32_t bytes, const Send& send,
               base::Nanoseconds now, Outgoing* outgoing) const;
  // Right until the next call about the connection; of its data() 128 bytes are readable.
  const wire::TcpTemplate& Headers(Connection& connection, const Outgoing& outgoing,
                                   uint32_t payload_bytes);
  Segment& Fired(Connection& connection, const Outgoing& outgoing,
                 const SegmentQueue::Payload& payload, const Send& send, bool posts_reference,
                 base::Nanoseconds now);
  void Credit(Connection& connection, uint32_t bytes, base::Nanoseconds now);
  // The same if the peer need not be told at once, from inside any other call too (inlined:
  // take_expected.h). False: Credit is due.
  bool CreditQuietly(Connection& connection, uint32_t bytes);
  void Shutdown(Connection& connection, base::Nanoseconds now);
  // SO_LINGER off, or on with `timeout`. After it only kDone and kTerminated come. Data that
  // TakeEvent has not told of is lost, and the peer told by a reset.
  void Close(Connection& connection, base::Nanoseconds timeout, base::Nanoseconds now);
  // In place of Close where data that TakeEvent has told of will not be read either.
  void CloseUnread(Connection& connection, base::Nanoseconds now);
  // RST: SO_LINGER with a time of 0.
  void Abort(Connection& connection, base::Nanoseconds now);
  // Ends it with `error`, telling nobody: the neighbour is lost, the ring is broken.
  void Fail(Connection& connection, int error);
  // kTerminated was taken.
  void Release(Connection& connection);
  // `options`, which outlive it, from now on; what the handshake settled stays.
  void UseOptions(Connection& connection, const PcbOptions& options, base::Nanoseconds now);
  // The same of children that TakeEvent has not told of.
  void UseOptions(Listener& listener, const PcbOptions& options, base::Nanoseconds now);
  // Its options were changed in place.
  void OnOptionsChanged(Connection& connection, base::Nanoseconds now);
  // The peer is reached by another way from now on.
  void SetPath(Connection& connection, const LinkPath& path);
  // The device is another one, whose address this is: resets that are owed to peers come from it.
  void SetOwedSource(wire::MacAddress mac);

  // --- Moving a connection to another stack (stack_moving.cc) ---

  // Whether it can: Pcb::MayDepart, and the user has not closed it.
  bool MayDepart(const Connection& connection) const;
  // Packs it up. What it has still to tell comes, kDeparted last: when no posted WQE refers to it.
  // Nothing else may be called about it but Release. What comes for it from here on goes to `to`,
  // which stays until Forget.
  std::unique_ptr<Departure> Depart(Connection& connection, Onward& to, base::Nanoseconds now);
  // Makes it a connection of this stack, with `options`, which outlive it; as if it had always been
  // one, so kEstablished does not come. EADDRINUSE: the flow is taken; ENOBUFS: no connection, or
  // too few segments or buffers are free. The departure is done with only if it is admitted.
  Opened Admit(Departure& departure, const PcbOptions& options, uint64_t user,
               base::Nanoseconds now);
  // Resets its peer: nobody admits it.
  void Refuse(const Departure& departure, base::Nanoseconds now);
  // As Input of a frame that another stack passed on: for a connection, or to be passed on again;
  // else it is dropped, and nobody is answered.
  void InputStray(const wire::TcpFrame& frame, packet::Buffer* buffer, uint64_t stamp,
                  base::Nanoseconds now);
  // Null: none is known of that key, here or departed.
  Connection* Find(const FlowKey& key) const;
  Onward* FindDeparted(const FlowKey& key) const;
  // Nothing comes for it any more, or it is back here.
  void Forget(const FlowKey& key);
  // The record of a connection that ended in TIME-WAIT in a stack that it moved to is also for the
  // one that gets its frames from here on. Null: there is none.
  const TimeWaitRecord* FindTimeWait(const FlowKey& key) const;
  void EnterTimeWait(const TimeWaitRecord& record, base::Nanoseconds now);

  // --- What comes in ---

  // `frame` was parsed from `buffer`, which begins with the Ethernet header, one reference of which
  // is taken. `stamp` is handed on with its bytes.
  void Input(const wire::TcpFrame& frame, packet::Buffer* buffer, uint64_t stamp,
             base::Nanoseconds now);
  // The same; true: `*first` is the first event of what it caused, and TakeEvent has the others.
  // TakeEvent had nothing to tell before.
  bool Input(const wire::TcpFrame& frame, packet::Buffer* buffer, uint64_t stamp,
             base::Nanoseconds now, Event* first);
  // The same where FindPlain has just found `connection`, or null.
  bool Input(Connection* connection, const wire::TcpFrame& frame, packet::Buffer* buffer,
             uint64_t stamp, base::Nanoseconds now, Event* first);
  // The same in two steps, inlined (take_expected.h), for who makes the completion himself: the
  // connection of a plain frame, or null; and what it says taken, if that is just what is expected
  // and nothing would be told but its payload. False: nothing was done, and it is for Input. The
  // buffer, and what is in it, stays the caller's. `time()`: now, asked for only then.
  Connection* FindPlain(const wire::PlainTcpView& frame) const;
  bool TakeIfExpected(Connection& connection, const auto& segment, uint32_t payload_bytes,
                      auto&& time);
  // The stamps of what has come and was not taken by TakeEvent are 0 from now on. Slow path.
  void ForgetStamps();
  // A WQE that refers to `segment` completed. The result is due to the user now; kTerminated may
  // follow.
  SegmentQueue::Due OnWqeCompleted(Connection& connection, Segment& segment);
  // The device has room again: resets it refused leave, and connections it refused send on.
  void OnRoom(base::Nanoseconds now);
  // Whether OnRoom is due when there is.
  bool WaitsForRoom() const;
  // While it is so no payload is taken; the peers send it again.
  void SetShortOfBuffers(bool is) { context_.short_of_buffers = is; }
  // The most that a packet may have on the link that all leave by, from here on; segments that were
  // longer are cut when they go again. 0, as at first: what handshakes allow.
  void SetLinkMtu(uint32_t mtu);
  // That link works again, after it did not, or all leave by another: what waits for a time-out
  // that was backed off from goes at once.
  void OnLinkUp(base::Nanoseconds now);
  // An ICMP error about a segment that the connection of `key` sent, or is said to have.
  void OnPathError(const FlowKey& key, const PathError& error, base::Nanoseconds now);

  // --- What comes out ---

  // The next event; false when there is none. What the last Input caused comes before the next
  // Input: otherwise bytes may have to be dropped and sent again.
  bool TakeEvent(Event* event);
  // False: TakeEvent has nothing to tell. (Inlined: stack_tables.h.)
  bool HasEvents() const;

  // --- Time ---

  // kNever: nothing waits.
  base::Nanoseconds NextDeadline();
  // The same, inlined (take_expected.h).
  base::Nanoseconds Deadline();
  // What is due at `now`, no more than kMostTimers of a kind (connections, half-open ones, those in
  // TIME-WAIT) in one call: while NextDeadline() is not after `now` there are more.
  void OnTimers(base::Nanoseconds now);
  static constexpr uint32_t kMostTimers = 16;

  // --- Accessors ---

  uint32_t connections() const;  // not released yet
  // Nothing waits for any peer, and no reset for the device: the process may end.
  bool Quiescent() const;
  const StackCounters& counters() const { return counters_; }
  const PcbCounters& pcb_counters() const { return context_.counters; }
  const ReassemblyCounters& reassembly_counters() const { return context_.reassembly->counters(); }
  const base::ReasonCounters<PathVerdict>& path_verdicts() const { return path_verdicts_; }
  const StackTables& tables() const { return *tables_; }
  size_t memory_bytes() const;
  // Of its tables and itself, to be touched and locked.
  std::vector<std::span<std::byte>> memory();

 private:
  // Sink.
  Taken Transmit(Pcb& pcb, const Outgoing& outgoing) override;
  uint32_t RunBytes(const Pcb& pcb) const override;
  Taken TransmitRun(Pcb& pcb, const Outgoing& outgoing, std::span<Segment* const> run,
                    uint32_t segment_bytes) override;
  uint32_t Room(const Pcb& pcb) const override;
  bool Deliver(Pcb& pcb, packet::Buffer* chain, uint32_t bytes, uint64_t stamp) override;
  void OnEvents(Pcb& pcb) override;
  void OnShortOfMemory(Pcb& pcb) override;
  void OnShortOfRoom(Pcb& pcb) override;
  uint32_t PostedBuffers() const override { return device_->PostedBuffers(); }
  bool HasRoomForDone() const override;
  void OnDone(Pcb& pcb, uint64_t cookie, bool cancelled) override;

  // stack.cc
  void Block(Connection& connection);
  void RetryForMemory(base::Nanoseconds now);
  void OnTimer(base::Timer& timer, base::Nanoseconds now);
  void Arrive(Connection& connection, const wire::TcpFrame& frame, packet::Buffer* buffer,
              uint64_t stamp, base::Nanoseconds now);
  void OweReset(const wire::TcpTemplate& headers, const Outgoing& reset);
  bool SendOwedResets();
  bool AcknowledgeAtOnce(Connection& connection, base::Nanoseconds now);
  void Schedule(Connection& connection);
  void ScheduleAt(Connection& connection, base::Nanoseconds deadline);
  void Watch(Connection& connection);
  // Of one that is not among those that received last; and where Demux::FindFirst() finds none.
  Connection* FindAnew(FlowKey key) const;
  Connection* FindFurther(FlowKey key) const;
  bool TellFirst(Connection& connection, uint8_t news);
  void Detach(Connection& connection);
  void KeepTimeWait(const Connection& connection);
  bool TakeNews(Connection& connection, Event* event);
  bool HasDeliveries(const Connection& connection) const;
  void DropDeliveries(const Connection& connection);
  Connection* Make(const FlowKey& key, const PcbOptions& options);
  void SetHeaders(Connection& connection, const LinkPath& path, bool timestamps);

  // stack_calls.cc
  void Silence(Connection& connection);
  SendResult After(Connection& connection, const Send& send, SendResult result);

  // stack_passive.cc
  void ArriveWithoutConnection(const FlowKey& key, const wire::TcpFrame& frame,
                               packet::Buffer* buffer, uint64_t stamp, base::Nanoseconds now);
  bool ArriveInTimeWait(TimeWaitRecord& record, const wire::TcpFrame& frame, const LinkPath& path);
  Connection* ArriveInListen(Listener& listener, const FlowKey& key, const wire::TcpFrame& frame,
                             const LinkPath& path, TimeWaitRecord* old);
  void OnSyn(Listener& listener, const FlowKey& key, const wire::TcpFrame& frame,
             const LinkPath& path, TimeWaitRecord* old);
  Connection* ArriveInSynReceived(SynRecord& record, const wire::TcpFrame& frame,
                                  const LinkPath& path);
  bool CheckHandshake(SynRecord& record, const wire::TcpFrame& frame, const LinkPath& path);
  std::optional<base::Nanoseconds> RoundTrip(const SynRecord& record,
                                             const wire::TcpSegment& segment) const;
  Connection* AcceptByCookie(SynRecord& record, const wire::TcpSegment& segment,
                             const LinkPath& path);
  std::optional<Handshake> ReadCookie(const Listener& listener, const FlowKey& key, Seq irs,
                                      const wire::TcpSegment& segment) const;
  Connection* Accept(Listener& listener, const FlowKey& key, const Handshake& handshake,
                     const LinkPath& path);
  Listener* FindListener(const FlowKey& key) const;
  void SendSynAck(const SynRecord& record, const LinkPath& path);
  void AcknowledgeSyn(const SynRecord& record, const LinkPath& path);
  void ResetStranger(const FlowKey& key, const wire::TcpSegment& segment, const LinkPath& path);
  void Reply(const FlowKey& key, const LinkPath& path, const Outgoing& outgoing);

  Device* device_;
  Context context_;
  base::Nanoseconds now_;  // of the call under way
  Event* first_event_ = nullptr;  // of the Input under way, if nothing is told yet and it is wanted
  StackCounters counters_;
  base::ReasonCounters<PathVerdict> path_verdicts_;
  std::unique_ptr<StackTables> tables_;
};

}  // namespace xtreme::tcp

#endif  // XTREME_STACK_TCP_STACK_H_
