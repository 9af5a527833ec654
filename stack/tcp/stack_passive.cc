// SPDX-License-Identifier: Apache-2.0
//
// Segments of no connection: for a listener, in SYN-RECEIVED, in TIME-WAIT, or for nobody. RFC 9293
// sections 3.10.7.1, 3.10.7.2 and 3.10.7.4, as far as these states go; RFC 4987, RFC 6191.

#include <algorithm>

#include "stack/packet/buffer_pool.h"
#include "stack/tcp/connection.h"
#include "stack/tcp/handshake.h"
#include "stack/tcp/stack.h"
#include "stack/tcp/stack_tables.h"
#include "stack/wire/tcp_frame.h"
#include "stack/wire/tcp_template.h"

namespace xtreme::tcp {
namespace {

constexpr uint16_t kDefaultMss = 536;  // RFC 9293 section 3.7.1: without the option

// The way `frame` came.
LinkPath BackTo(const wire::TcpFrame& frame, const uint8_t* ethernet) {
  LinkPath path{.local = wire::MacAddress::Load(ethernet),
                .peer = wire::MacAddress::Load(ethernet + wire::MacAddress::kBytes)};
  if (frame.tagged()) path.vlan_tci = frame.vlan_tci;
  return path;
}

// No host of the wire has it, so it is not answered. RFC 1122 section 3.2.1.3.
bool IsBadSource(const FlowKey& key) {
  const wire::Ipv4Address source = key.remote().address;
  return !source.IsUnicastHost() || source == key.local().address;
}

Listener& ListenerOf(const SynRecord& record) {
  return *reinterpret_cast<Listener*>(record.listener);
}

// What is never scaled: the window of a SYN.
uint16_t FirstWindow(const PcbOptions& options) {
  return static_cast<uint16_t>(std::min<uint32_t>(options.receive_window, UINT16_MAX));
}

void TakeOffer(const wire::TcpSegment& syn, const PcbOptions& options, SynRecord* record) {
  record->irs = Seq(syn.sequence);
  record->mss = syn.options.mss.value_or(kDefaultMss);
  record->window = syn.window;
  // RFC 7323 section 2.3: one beyond the greatest means the greatest.
  record->window_scale = syn.options.window_scale;
  if (record->window_scale > wire::kTcpMaxWindowScale) {
    record->window_scale = wire::kTcpMaxWindowScale;
  }
  record->sack_permitted = options.sack && syn.options.sack_permitted;
  record->timestamps = options.timestamps && syn.options.timestamps.has_value();
  if (record->timestamps) record->timestamp = syn.options.timestamps->value;
}

// Whether the segment that ended the handshake of `child` says nothing that this did not tell.
bool SaysNoMore(const wire::TcpSegment& segment, const Pcb& child) {
  return segment.flags == wire::kTcpAck && segment.payload_bytes == 0 &&
         segment.options.sack_count == 0 && Seq(segment.sequence) == child.receive_next();
}

// As a receiver's own counterpart: the least shift that offers the whole window.
uint8_t ScaleFor(const PcbOptions& options) {
  const uint32_t window = std::max(options.receive_window, options.scaled_window);
  uint8_t scale = 0;
  while (scale < wire::kTcpMaxWindowScale && (window >> scale) > UINT16_MAX) ++scale;
  return scale;
}

}  // namespace

// --- Listeners ---

Listener* Stack::OpenListener(const Listen& listen) {
  const auto place = StackTables::Place::Of(listen.local, listen.vlan_id);
  if (Listener* const there = tables_->places.Find(place)) {
    if (!there->closed) return nullptr;
    *there = Listener::Of(listen);
    return there;
  }
  tables_->places.Reserve(tables_->places.size() + 1);
  tables_->listeners.push_back(std::make_unique<Listener>(Listener::Of(listen)));
  Listener* const listener = tables_->listeners.back().get();
  tables_->places.Insert(place, listener);
  return listener;
}

void Stack::Welcome(Listener& listener) { listener.listen.hushed = false; }

void Stack::Hush(Listener& listener) { listener.listen.hushed = true; }

void Stack::SetBacklog(Listener& listener, uint32_t backlog) { listener.listen.backlog = backlog; }

void Stack::TookOne(Listener& listener) {
  if (listener.listen.holds && listener.waiting > 0) --listener.waiting;
}

void Stack::CloseListener(Listener& listener) {
  tables_->syns.RemoveIf(
      [&listener](const SynRecord& record) { return &ListenerOf(record) == &listener; });
  // A child that was not taken yet is told as accepted by nobody any more.
  for (Connection& connection : tables_->news) {
    if (connection.listener_ == &listener) connection.listener_ = nullptr;
  }
  listener.closed = true;
  if (!listener.listen.hushed) ForgetClosed(listener.listen.local, listener.listen.vlan_id);
}

void Stack::ForgetClosed(const wire::Endpoint& local, uint16_t vlan_id) {
  const auto place = StackTables::Place::Of(local, vlan_id);
  const Listener* const listener = tables_->places.Find(place);
  if (listener == nullptr || !listener->closed) return;
  tables_->places.Erase(place);
  std::erase_if(tables_->listeners, [listener](const std::unique_ptr<Listener>& candidate) {
    return candidate.get() == listener;
  });
}

void Stack::UseOptions(Listener& listener, const PcbOptions& options, base::Nanoseconds now) {
  listener.listen.options = &options;
  for (Connection& connection : tables_->news) {
    const bool waits = (connection.news_ & Connection::kAccepted) != 0;
    if (waits && connection.listener_ == &listener) UseOptions(connection, options, now);
  }
}

Listener* Stack::FindListener(const FlowKey& key) const {
  const wire::Endpoint local = key.local();
  Listener* const exact = tables_->places.Find(StackTables::Place::Of(local, key.vlan_id()));
  if (exact != nullptr) return exact;
  return tables_->places.Find(
      StackTables::Place::Of({wire::Ipv4Address::Any(), local.port}, key.vlan_id()));
}

// --- Which state is it in? ---

void Stack::ArriveWithoutConnection(const FlowKey& key, const wire::TcpFrame& frame,
                                    packet::Buffer* buffer, uint64_t stamp, base::Nanoseconds now) {
  if (tables_->departed.size() != 0) [[unlikely]] {
    if (Onward* const to = tables_->departed.Find(key)) {
      ++counters_.strays_passed_on;
      return to->PassOn(frame, buffer, stamp);
    }
  }
  if (IsBadSource(key)) {
    ++counters_.bad_sources;
    packet::BufferPool::ReleaseByOwner(buffer);
    return;
  }
  const LinkPath path = BackTo(frame, buffer->data);
  Connection* child = nullptr;
  TimeWaitRecord* const old = tables_->time_wait.Find(key);
  if (old != nullptr && ArriveInTimeWait(*old, frame, path)) {
    packet::BufferPool::ReleaseByOwner(buffer);
    return;
  }
  if (SynRecord* const record = tables_->syns.Find(key)) {
    child = ArriveInSynReceived(*record, frame, path);
  } else if (Listener* const listener = FindListener(key)) {
    child = ArriveInListen(*listener, key, frame, path, old);
  } else {
    ++counters_.strangers;
    ResetStranger(key, frame.segment, path);
  }
  if (child == nullptr) {
    packet::BufferPool::ReleaseByOwner(buffer);
    return;
  }
  if (SaysNoMore(frame.segment, *child)) {
    ++context_.counters.segments_in;
    packet::BufferPool::ReleaseByOwner(buffer);
    return Schedule(*child);
  }
  // The segment that ended the handshake may carry bytes, or FIN.
  Arrive(*child, frame, buffer, stamp, now);
}

// --- TIME-WAIT. False: a newer incarnation may begin ---

bool Stack::ArriveInTimeWait(TimeWaitRecord& record, const wire::TcpFrame& frame,
                             const LinkPath& path) {
  switch (tables_->time_wait.OnSegment(record, frame.segment, now_)) {
    case TimeWait::Verdict::kIgnore:
      return true;
    case TimeWait::Verdict::kReuse:
      return false;
    case TimeWait::Verdict::kAcknowledge:
      break;
  }
  const TimestampClock clock{.offset = record.timestamp_offset};
  Reply(record.key, path,
        {.sequence = record.snd_nxt,
         .acknowledgement = record.rcv_nxt,
         .window = record.window,
         .flags = wire::kTcpAck,
         .timestamps = {clock.At(now_), record.ts_recent},
         .has_timestamps = record.timestamps});
  return true;
}

// --- 3.10.7.2: LISTEN. `old`: in whose place a new connection begins; null: in nobody's ---

Connection* Stack::ArriveInListen(Listener& listener, const FlowKey& key,
                                  const wire::TcpFrame& frame, const LinkPath& path,
                                  TimeWaitRecord* old) {
  const wire::TcpSegment& segment = frame.segment;
  if (listener.listen.hushed) {
    ++counters_.hushed;
    return nullptr;
  }
  // First: RST. It can only be about something that is over.
  if (segment.Has(wire::kTcpRst)) return nullptr;
  // Second: ACK. Nothing was sent that it could acknowledge, but by a cookie.
  if (segment.Has(wire::kTcpAck)) {
    const Seq irs(segment.sequence - 1);
    const std::optional<Handshake> handshake = ReadCookie(listener, key, irs, segment);
    if (!handshake) return ResetStranger(key, segment, path), nullptr;
    Connection* const child = Accept(listener, key, *handshake, path);
    counters_.cookies_accepted += child != nullptr;
    return child;
  }
  // Third: SYN. Fourth: anything else is dropped.
  if (segment.Has(wire::kTcpSyn)) {
    OnSyn(listener, key, frame, path, old);
  } else {
    ++context_.counters.without_ack;
  }
  return nullptr;
}

void Stack::OnSyn(Listener& listener, const FlowKey& key, const wire::TcpFrame& frame,
                  const LinkPath& path, TimeWaitRecord* old) {
  // Its own first: what it may not have takes nothing from others.
  const bool may = !listener.syn_limit || listener.syn_limit->Take(now_);
  if (!may || !tables_->syn_limit.Take(now_)) {
    ++counters_.syns_withheld;
    return;
  }
  // It is answered: what is not leaves TIME-WAIT as it was.
  std::optional<Seq> after;
  if (old != nullptr) {
    after = old->snd_nxt;
    tables_->time_wait.Reuse(*old);
  }
  const PcbOptions& options = *listener.listen.options;
  if (SynRecord* const record = tables_->syns.Insert(key, now_)) {
    TakeOffer(frame.segment, options, record);
    record->listener = reinterpret_cast<uint64_t>(&listener);
    record->iss = tables_->initial_sequence.For(key, now_).iss;
    if (after && record->iss <= *after) record->iss = *after + 1;
    record->timestamp_offset = options.timestamp_clock.offset;
    record->peer_mac = path.peer;
    record->local_mac = path.local;
    return SendSynAck(*record, path);
  }
  // No room to remember it: the answer says all there is to know.
  ++counters_.cookies_sent;
  listener.cookies_until = now_ + 2 * SynCookie::kPeriod;
  SynRecord record;
  record.key = key;
  TakeOffer(frame.segment, options, &record);
  record.listener = reinterpret_cast<uint64_t>(&listener);
  record.iss = tables_->cookie.Make(key, record.irs, record.mss, now_);
  record.cookie = true;
  SendSynAck(record, path);
}

// The peer's first acknowledgement brings back what the cookie said. None: it has no valid one.
std::optional<Handshake> Stack::ReadCookie(const Listener& listener, const FlowKey& key, Seq irs,
                                           const wire::TcpSegment& segment) const {
  if (now_ >= listener.cookies_until || segment.Has(wire::kTcpSyn)) return std::nullopt;
  const Seq ack(segment.acknowledgement);
  const std::optional<uint16_t> mss = tables_->cookie.Check(key, irs, ack, now_);
  if (!mss) return std::nullopt;
  Handshake handshake{.iss = ack - 1u, .irs = irs, .peer_mss = *mss};
  if (listener.listen.options->timestamps && segment.options.timestamps) {
    const SynCookie::Choices choices = SynCookie::Decode(segment.options.timestamps->echo);
    handshake.peer_window_scale = choices.window_scale;
    handshake.sack = choices.sack_permitted;
    handshake.peer_timestamp = segment.options.timestamps->value;
  }
  handshake.peer_window = uint32_t{segment.window} << handshake.peer_window_scale.value_or(0);
  return handshake;
}

// --- SYN-RECEIVED, of a connection that a listener has only noted ---

Connection* Stack::ArriveInSynReceived(SynRecord& record, const wire::TcpFrame& frame,
                                       const LinkPath& path) {
  if (!CheckHandshake(record, frame, path)) return nullptr;
  const wire::TcpSegment& segment = frame.segment;
  const bool ours = Seq(segment.acknowledgement) == record.iss + 1;
  if (!ours) return AcceptByCookie(record, segment, path);
  const uint8_t deferrals = ListenerOf(record).listen.options->deferrals;
  if (record.resends < deferrals && segment.SequenceLength() == 0) {
    tables_->syns.Defer(record, deferrals, now_);
    return nullptr;
  }
  Handshake handshake{.iss = record.iss,
                      .irs = record.irs,
                      .peer_window = uint32_t{segment.window} << record.window_scale.value_or(0),
                      .peer_mss = record.mss,
                      .peer_window_scale = record.window_scale,
                      .sack = record.sack_permitted};
  if (record.timestamps) {
    // RFC 7323 section 4.3: of what begins at RCV.NXT.
    const bool next = Seq(segment.sequence) == record.irs + 1;
    handshake.peer_timestamp = next ? segment.options.timestamps->value : record.timestamp;
  }
  if (record.deferrals != 0) {
    if (record.acknowledged_after.count() != 0) handshake.rtt = record.acknowledged_after;
    handshake.timed_out = record.acknowledged_after.count() == 0;
  } else {
    handshake.timed_out = record.resends != 0;
    handshake.rtt = RoundTrip(record, segment);
  }
  Connection* const child = Accept(ListenerOf(record), record.key, handshake, path);
  if (child != nullptr) tables_->syns.Remove(record);
  return child;
}

// Karn: of two SYN-ACKs only a timestamp says which was acknowledged.
std::optional<base::Nanoseconds> Stack::RoundTrip(const SynRecord& record,
                                                  const wire::TcpSegment& segment) const {
  const bool again = record.resends != 0 || record.answered_again;
  if (!again) return now_ - record.first_sent;
  if (!record.timestamps || record.resends == 0) return std::nullopt;
  const TimestampClock clock{.offset = record.timestamp_offset};
  return clock.RoundTrip(segment.options.timestamps->echo, record.first_sent, now_);
}

// Its SYN had come before, when there was no room, and been answered by a cookie: where that is
// what is acknowledged, the peer goes by it.
Connection* Stack::AcceptByCookie(SynRecord& record, const wire::TcpSegment& segment,
                                  const LinkPath& path) {
  Listener& listener = ListenerOf(record);
  std::optional<Handshake> handshake = ReadCookie(listener, record.key, record.irs, segment);
  if (!handshake) return ResetStranger(record.key, segment, path), nullptr;
  // As above: what comes before it may be older.
  const bool next = Seq(segment.sequence) == record.irs + 1;
  const bool stamped = handshake->peer_timestamp && record.timestamps;
  if (stamped && !next) handshake->peer_timestamp = record.timestamp;
  Connection* const child = Accept(listener, record.key, *handshake, path);
  if (child == nullptr) return nullptr;
  ++counters_.cookies_accepted;
  tables_->syns.Remove(record);
  return child;
}

// Steps one to five of 3.10.7.4, as they are in SYN-RECEIVED, but for what is acknowledged. True:
// the handshake is done if that is ours.
bool Stack::CheckHandshake(SynRecord& record, const wire::TcpFrame& frame, const LinkPath& path) {
  const wire::TcpSegment& segment = frame.segment;
  const Seq expected = record.irs + 1;
  const uint16_t window = FirstWindow(*ListenerOf(record).listen.options);
  if (segment.Has(wire::kTcpSyn)) {
    // The same SYN again: our answer was lost. Another one: RFC 5961 section 4.2.
    const bool again = Seq(segment.sequence) == record.irs && !segment.Has(wire::kTcpAck);
    if (!again) {
      AcknowledgeSyn(record, path);
    } else if (!tables_->reset_limit.Take(now_)) {
      ++counters_.answers_withheld;
    } else {
      record.answered_again = true;
      // What it says now stands, and its sender goes by that: some leave options out of a SYN that
      // nobody answered, and one of a later attempt may have the same number.
      TakeOffer(segment, *ListenerOf(record).listen.options, &record);
      SendSynAck(record, path);
    }
    return false;
  }
  if (!IsAcceptable(Seq(segment.sequence), segment.SequenceLength(), expected, window)) {
    ++context_.counters.unacceptable;
    if (!segment.Has(wire::kTcpRst)) AcknowledgeSyn(record, path);
    return false;
  }
  if (segment.Has(wire::kTcpRst)) {
    if (Seq(segment.sequence) == expected) {
      tables_->syns.Remove(record);
    } else {
      AcknowledgeSyn(record, path);
    }
    return false;
  }
  if (!segment.Has(wire::kTcpAck)) {
    ++context_.counters.without_ack;
    return false;
  }
  if (!record.timestamps) return true;
  // RFC 7323 section 5.3, R1.
  const bool older = !segment.options.timestamps ||
                     IsOlderTimestamp(segment.options.timestamps->value, record.timestamp);
  context_.counters.old_timestamp += older;
  return !older;
}

Connection* Stack::Accept(Listener& listener, const FlowKey& key, const Handshake& handshake,
                          const LinkPath& path) {
  if (listener.waiting >= listener.listen.backlog) {
    ++counters_.backlog_full;  // the peer's next segment tries again
    return nullptr;
  }
  Connection* const child = Make(key, *listener.listen.options);
  if (child == nullptr) return nullptr;
  ++counters_.accepted;
  ++listener.waiting;
  child->listener_ = &listener;
  child->user = listener.listen.user;
  SetHeaders(*child, path, handshake.peer_timestamp.has_value());
  child->Establish(handshake, now_);
  return child;
}

// --- Answers of no connection ---

void Stack::SendSynAck(const SynRecord& record, const LinkPath& path) {
  const PcbOptions& options = *ListenerOf(record).listen.options;
  wire::TcpOptions offer{.mss = options.mss};
  SynCookie::Choices choices{.window_scale = record.window_scale,
                             .sack_permitted = record.sack_permitted};
  // Without timestamps a cookie has no room for them.
  if (record.timestamps || !record.cookie) {
    if (record.window_scale) offer.window_scale = ScaleFor(options);
    offer.sack_permitted = record.sack_permitted;
  }
  if (record.timestamps) {
    uint32_t value = options.timestamp_clock.At(now_);
    if (record.cookie) value = SynCookie::Encode(value, choices);
    offer.timestamps = wire::TcpTimestamps{value, record.timestamp};
  }
  Reply(record.key, path,
        {.sequence = record.iss,
         .acknowledgement = record.irs + 1,
         .window = FirstWindow(options),
         .flags = wire::kTcpSyn | wire::kTcpAck,
         .options = &offer});
}

// Says where the handshake stands: RFC 9293 section 3.10.7.4, first check, and RFC 5961.
void Stack::AcknowledgeSyn(const SynRecord& record, const LinkPath& path) {
  if (!tables_->reset_limit.Take(now_)) {
    ++counters_.answers_withheld;
    return;
  }
  const PcbOptions& options = *ListenerOf(record).listen.options;
  Reply(record.key, path,
        {.sequence = record.iss + 1,
         .acknowledgement = record.irs + 1,
         .window = static_cast<uint16_t>(
             FirstWindow(options) >> (record.window_scale ? ScaleFor(options) : 0)),
         .flags = wire::kTcpAck,
         .timestamps = {options.timestamp_clock.At(now_), record.timestamp},
         .has_timestamps = record.timestamps});
}

// --- 3.10.7.1: CLOSED ---

void Stack::ResetStranger(const FlowKey& key, const wire::TcpSegment& segment,
                          const LinkPath& path) {
  if (!tables_->options.answer_strangers || segment.Has(wire::kTcpRst)) return;
  if (!tables_->reset_limit.Take(now_)) {
    ++counters_.answers_withheld;
    return;
  }
  ++counters_.resets_to_strangers;
  Outgoing reset{.flags = wire::kTcpRst};
  if (segment.Has(wire::kTcpAck)) {
    reset.sequence = Seq(segment.acknowledgement);
  } else {
    reset.flags |= wire::kTcpAck;
    reset.acknowledgement = Seq(segment.sequence) + segment.SequenceLength();
  }
  Reply(key, path, reset);
}

void Stack::Reply(const FlowKey& key, const LinkPath& path, const Outgoing& outgoing) {
  const wire::TcpTemplate headers(FieldsOf(key, path, outgoing.has_timestamps));
  const Taken taken = device_->Transmit({.headers = &headers, .outgoing = &outgoing});
  counters_.answers_refused += taken == Taken::kRefused;
}

}  // namespace xtreme::tcp
