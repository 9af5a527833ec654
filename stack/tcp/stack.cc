// SPDX-License-Identifier: Apache-2.0

#include "stack/tcp/stack.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "stack/packet/buffer_pool.h"
#include "stack/tcp/connection.h"
#include "stack/tcp/expected.h"
#include "stack/tcp/fire.h"
#include "stack/tcp/stack_tables.h"
#include "stack/wire/tcp_frame.h"
#include "stack/wire/tcp_template.h"

namespace xtreme::tcp {

static_assert(OutgoingFrame::kMaxHeadersBytes == wire::TcpTemplate::kMaxHeadersBytes);

namespace {

// After so long a send that was refused for want of memory is thought of again.
constexpr base::Nanoseconds kMemoryRetry = base::Milliseconds(1);

LinkPath PathOf(const SynRecord& record) {
  LinkPath path{.local = record.local_mac, .peer = record.peer_mac};
  if (record.key.vlan_id() != 0) path.vlan_tci = record.key.vlan_id();
  return path;
}

}  // namespace

size_t OutgoingFrame::WriteHeaders(uint8_t* to) const {
  headers->CopyTo(to);
  headers->PatchSegment(to, {.sequence = outgoing->sequence.value(),
                             .acknowledgement = outgoing->acknowledgement.value(),
                             .window = outgoing->window,
                             .flags = outgoing->flags});
  size_t bytes = headers->header_bytes();
  if (outgoing->options != nullptr) [[unlikely]] {
    bytes = headers->PatchOptions(to, *outgoing->options);
  } else if (outgoing->has_timestamps) {
    headers->PatchTimestamps(to, outgoing->timestamps);
  }
  headers->PatchLengths(to, bytes, segment() != nullptr ? segment()->length : 0);
  return bytes;
}

StackTables::StackTables(const Stack::Options& options, base::Nanoseconds now)
    : options(options),
      segments(options.segments),
      reassembly({.segments = options.held_segments,
                  .connections = std::min(options.connections, options.held_segments),
                  .buffers_per_connection = options.held_buffers}),
      slots(std::make_unique<Slot[]>(options.connections)),
      demux(options.connections, options.secret[0]),
      places(16),
      departed(0),
      syns({.capacity = options.syn_queue, .seed = options.secret[0]}),
      cookie(options.secret),
      initial_sequence(options.secret),
      time_wait({.capacity = options.time_wait,
                 .duration = options.time_wait_duration,
                 .seed = options.secret[0]}),
      wheel(now),
      syn_limit(options.syns_per_second, options.syns_per_second / 10 + 1),
      reset_limit(options.resets_per_second, options.resets_per_second / 10 + 1),
      deliveries(options.deliveries),
      dones(options.segments),
      owed_resets(std::min(options.connections, kMostOwedResets)) {
  for (uint32_t i = options.connections; i-- > 0;) {
    slots[i].next_free = std::exchange(first_free, &slots[i]);
  }
}

size_t StackTables::memory_bytes() const {
  return segments.memory_bytes() + reassembly.memory_bytes() + demux.memory_bytes() +
         options.connections * sizeof(Slot) + places.memory_bytes() +
         departed.memory_bytes() +
         syns.memory_bytes() + time_wait.memory_bytes() + deliveries.memory_bytes() +
         dones.memory_bytes() + owed_resets.memory_bytes() + sizeof(*this);
}

std::vector<std::span<std::byte>> StackTables::memory() {
  const std::array<std::span<std::byte>, 2> held = reassembly.memory();
  return {segments.memory(),
          held[0],
          held[1],
          std::as_writable_bytes(std::span(slots.get(), options.connections)),
          demux.memory(),
          syns.memory(),
          time_wait.memory(),
          deliveries.memory(),
          dones.memory(),
          owed_resets.memory(),
          std::as_writable_bytes(std::span(this, 1))};
}

std::vector<Connection*> StackTables::InUse() {
  std::vector<bool> is_free(options.connections);
  for (const Slot* slot = first_free; slot != nullptr; slot = slot->next_free) {
    is_free[static_cast<size_t>(slot - slots.get())] = true;
  }
  std::vector<Connection*> in_use;
  for (uint32_t i = 0; i < options.connections; ++i) {
    if (!is_free[i]) in_use.push_back(reinterpret_cast<Connection*>(&slots[i]));
  }
  return in_use;
}

Stack::Stack(const Options& options, Device& device, packet::BufferPool& buffers,
             base::Nanoseconds now)
    : device_(&device), now_(now), tables_(std::make_unique<StackTables>(options, now)) {
  context_.sink = this;
  context_.segments = &tables_->segments;
  context_.reassembly = &tables_->reassembly;
  context_.buffers = &buffers;
  context_.copies_leave = buffers.capacity() / 4;
  context_.holes_leave = buffers.capacity() / 16 * 3;
}

Stack::~Stack() {
  for (Connection* const connection : tables_->InUse()) connection->Fail(0);
  Event event;
  while (TakeEvent(&event)) packet::BufferPool::ReleaseChain(event.chain);
}

uint32_t Stack::connections() const { return tables_->slots_in_use; }

size_t Stack::memory_bytes() const { return sizeof(*this) + tables_->memory_bytes(); }

std::vector<std::span<std::byte>> Stack::memory() {
  std::vector<std::span<std::byte>> all = tables_->memory();
  all.push_back(std::as_writable_bytes(std::span(this, 1)));
  return all;
}

// --- What comes in ---

void Stack::Input(const wire::TcpFrame& frame, packet::Buffer* buffer, uint64_t stamp,
                  base::Nanoseconds now) {
  now_ = now;
  ++counters_.segments;
  const FlowKey key = FlowKey::Of(frame.flow);
  if (Connection* const connection = tables_->demux.Find(key)) [[likely]] {
    return Arrive(*connection, frame, buffer, stamp, now);
  }
  ArriveWithoutConnection(key, frame, buffer, stamp, now);
}

bool Stack::Input(const wire::TcpFrame& frame, packet::Buffer* buffer, uint64_t stamp,
                  base::Nanoseconds now, Event* first) {
  first_event_ = first;
  Input(frame, buffer, stamp, now);
  return std::exchange(first_event_, nullptr) == nullptr;
}

// With all that it calls here inlined, which others call too.
[[gnu::flatten]] bool Stack::Input(Connection* connection, const wire::TcpFrame& frame,
                                   packet::Buffer* buffer, uint64_t stamp, base::Nanoseconds now,
                                   Event* first) {
  now_ = now;
  ++counters_.segments;
  first_event_ = first;
  if (connection != nullptr) [[likely]] {
    Arrive(*connection, frame, buffer, stamp, now);
  } else {
    ArriveWithoutConnection(FlowKey::Of(frame.flow), frame, buffer, stamp, now);
  }
  return std::exchange(first_event_, nullptr) == nullptr;
}

// From here on it is one of the recent.
Connection* Stack::FindAnew(FlowKey key) const {
  Connection* const connection = tables_->demux.FindFirst(key);
  if (connection == nullptr) [[unlikely]] return FindFurther(key);
  tables_->recent[key.Place(StackTables::kRecent)] = connection;
  return connection;
}

[[gnu::noinline]] Connection* Stack::FindFurther(FlowKey key) const {
  Connection* const connection = tables_->demux.Find(key);
  if (connection != nullptr) tables_->recent[key.Place(StackTables::kRecent)] = connection;
  return connection;
}

void Stack::Arrive(Connection& connection, const wire::TcpFrame& frame, packet::Buffer* buffer,
                   uint64_t stamp, base::Nanoseconds now) {
  if (frame.segment.payload_bytes == 0) {
    packet::BufferPool::ReleaseByOwner(buffer);
    buffer = nullptr;
  } else {
    buffer->data += frame.payload_offset;
    buffer->length = frame.segment.payload_bytes;  // without the padding of a short frame
  }
  connection.Arrive(frame.segment, buffer, stamp, now);
  Schedule(connection);
}

bool Stack::WaitsForRoom() const {
  return !tables_->blocked.empty() || !tables_->owed_resets.empty();
}

bool Stack::Quiescent() const { return connections() == 0 && tables_->owed_resets.empty(); }

void Stack::OnRoom(base::Nanoseconds now) {
  now_ = now;
  if (!SendOwedResets()) return;
  const Connection* refused = nullptr;  // The first of this call.
  while (Connection* const connection = tables_->blocked.PopFront()) {
    if (connection == refused) return tables_->blocked.PushBack(*connection);
    connection->OnRoom(now);
    Schedule(*connection);
    if (!connection->blocked_hook_.linked()) continue;
    // With room left it is a queue of its own that refused: the others do not wait for it.
    if (device_->Room(nullptr) == 0) return;
    if (refused == nullptr) refused = connection;
  }
}

SegmentQueue::Due Stack::OnWqeCompleted(Connection& connection, Segment& segment) {
  const SegmentQueue::Due due = connection.Pcb::OnWqeCompleted(segment);
  tables_->dones_promised -= due.done;
  const bool ended = (connection.news_ & Pcb::kTerminated) != 0;
  if (ended && !connection.IsReferenced() && !connection.news_hook_.linked()) {
    tables_->news.PushBack(connection);
  }
  return due;
}

void Stack::OnPathError(const FlowKey& key, const PathError& error, base::Nanoseconds now) {
  now_ = now;
  Connection* const connection = tables_->demux.Find(key);
  if (connection == nullptr) return path_verdicts_.Count(PathVerdict::kNoConnection);
  path_verdicts_.Count(connection->OnPathError(error, now));
  Schedule(*connection);
}

// --- What connections emit ---

Sink::Taken Stack::Transmit(Pcb& pcb, const Outgoing& outgoing) {
  auto& connection = static_cast<Connection&>(pcb);
  // Both SYNs had timestamps, so every header has from now on, or one of them had not.
  wire::TcpTemplate& headers = connection.headers_;
  const bool other = outgoing.has_timestamps != headers.timestamps();
  if (other && outgoing.options == nullptr) [[unlikely]] {
    headers.UseTimestamps(outgoing.has_timestamps);
  }
  const Taken taken = device_->Transmit(
      {.connection = &connection, .headers = &headers, .outgoing = &outgoing});
  if (taken == Taken::kRefused) [[unlikely]] {
    if ((outgoing.flags & wire::kTcpRst) != 0) OweReset(headers, outgoing);
    Block(connection);
  }
  return taken;
}

// What Pcb::Output() comes to where an acknowledgement is due and nothing else. False: there is
// more, or the device takes none so.
bool Stack::AcknowledgeAtOnce(Connection& connection, base::Nanoseconds now) {
  return connection.AckAlone(
      now, [&](const Outgoing& says) { return device_->PlaceAck(connection, says); });
}

// Nobody would send it again, and a peer that has nothing to send would never learn.
void Stack::OweReset(const wire::TcpTemplate& headers, const Outgoing& reset) {
  if (tables_->owed_resets.full()) {
    ++counters_.answers_refused;
    return;
  }
  ++counters_.resets_owed;
  StackTables::OwedReset owed{.headers = headers, .reset = reset};
  owed.reset.options = nullptr;  // The caller's.
  if (reset.has_timestamps != headers.timestamps()) {
    owed.headers.UseTimestamps(reset.has_timestamps);
  }
  tables_->owed_resets.Push(owed);
}

void Stack::SetOwedSource(wire::MacAddress mac) {
  tables_->owed_resets.ForEach(
      [mac](StackTables::OwedReset& owed) { owed.headers.SetSourceMac(mac); });
}

// False: the device has no more room.
bool Stack::SendOwedResets() {
  while (!tables_->owed_resets.empty()) {
    const StackTables::OwedReset& owed = tables_->owed_resets.front();
    const Taken taken = device_->Transmit({.headers = &owed.headers, .outgoing = &owed.reset});
    if (taken == Taken::kRefused) return false;
    tables_->owed_resets.Pop();
  }
  return true;
}

uint32_t Stack::RunBytes(const Pcb& pcb) const {
  return device_->RunBytes(static_cast<const Connection&>(pcb));
}

uint32_t Stack::Room(const Pcb& pcb) const {
  return device_->Room(static_cast<const Connection*>(&pcb));
}

// One that is refused leaves segment by segment, or is refused again.
Sink::Taken Stack::TransmitRun(Pcb& pcb, const Outgoing& outgoing, std::span<Segment* const> run,
                               uint32_t segment_bytes) {
  auto& connection = static_cast<Connection&>(pcb);
  wire::TcpTemplate& headers = connection.headers_;
  if (outgoing.has_timestamps != headers.timestamps()) [[unlikely]] {
    headers.UseTimestamps(outgoing.has_timestamps);
  }
  return device_->TransmitRun(
      {.connection = &connection, .headers = &headers, .outgoing = &outgoing}, run, segment_bytes);
}

bool Stack::Deliver(Pcb& pcb, packet::Buffer* chain, uint32_t bytes, uint64_t stamp) {
  if (first_event_ != nullptr && !HasEvents()) [[likely]] {
    *std::exchange(first_event_, nullptr) = {.kind = Event::Kind::kData,
                                             .connection = static_cast<Connection*>(&pcb),
                                             .chain = chain,
                                             .bytes = bytes,
                                             .stamp = stamp};
    return true;
  }
  if (tables_->deliveries.full()) return false;
  tables_->deliveries.Push({static_cast<Connection*>(&pcb), chain, bytes, stamp});
  return true;
}

// Memory comes back by whoever had it, on any thread: it is looked for now and then.
void Stack::OnShortOfMemory(Pcb& pcb) {
  auto& connection = static_cast<Connection&>(pcb);
  if (!connection.attached_ || connection.starved_hook_.linked()) return;
  tables_->starved.PushBack(connection);
  if (tables_->starved_timer.armed()) return;
  tables_->wheel.Arm(&tables_->starved_timer, now_ + kMemoryRetry);
}

// Each once: those that still find none come again.
void Stack::RetryForMemory(base::Nanoseconds now) {
  StackTables::Starved waiting;
  while (Connection* const connection = tables_->starved.PopFront()) waiting.PushBack(*connection);
  while (Connection* const connection = waiting.PopFront()) {
    connection->OnRoom(now);
    Schedule(*connection);
  }
}

void Stack::OnDone(Pcb& pcb, uint64_t cookie, bool cancelled) {
  tables_->dones.Push({static_cast<Connection*>(&pcb), cookie, cancelled});
}

void Stack::OnEvents(Pcb& pcb) {
  auto& connection = static_cast<Connection&>(pcb);
  uint8_t news = connection.TakeEvents();
  if ((news & Pcb::kTerminated) != 0) {
    if (connection.ended_in_time_wait()) KeepTimeWait(connection);
    Detach(connection);
  }
  if (connection.closed_) news &= Pcb::kTerminated;
  if ((news & Pcb::kEstablished) != 0 && connection.listener_ != nullptr) {
    news = static_cast<uint8_t>((news & ~Pcb::kEstablished) | Connection::kAccepted);
  }
  if (news == 0) return;
  if (first_event_ != nullptr && TellFirst(connection, news)) return;
  connection.news_ |= news;
  if (connection.news_hook_.linked()) return;
  // That it opened is told before anything else waits behind the deliveries.
  const bool opened = (news & (Pcb::kEstablished | Connection::kAccepted)) != 0;
  opened ? tables_->news.PushFront(connection) : tables_->news.PushBack(connection);
}

// Of what its caller takes at once nothing is queued. False: something comes before it, or it is
// not told by an event alone.
inline bool Stack::TellFirst(Connection& connection, uint8_t news) {
  using Kind = Event::Kind;
  Kind kind;
  switch (news) {
    case Pcb::kEstablished:
      kind = Kind::kEstablished;
      break;
    case Connection::kAccepted:
      kind = Kind::kAccepted;
      break;
    case Pcb::kPeerClosed:
      kind = Kind::kPeerClosed;
      break;
    case Pcb::kTerminated:
      if (connection.departed_ || connection.IsReferenced()) return false;
      kind = Kind::kTerminated;
      break;
    default:
      return false;
  }
  if (HasEvents()) return false;
  if (kind == Kind::kAccepted) connection.listener_->Took();
  *std::exchange(first_event_, nullptr) = {
      .kind = kind, .status = connection.status(), .connection = &connection};
  return true;
}

void Stack::Detach(Connection& connection) {
  if (!connection.attached_) return;
  tables_->demux.Detach(connection);
  Connection*& recent = tables_->recent[connection.key_.Place(StackTables::kRecent)];
  if (recent == &connection) recent = nullptr;
  tables_->wheel.Cancel(&connection);
  connection.blocked_hook_.Unlink();
  connection.starved_hook_.Unlink();
  connection.attached_ = false;
}

void Stack::KeepTimeWait(const Connection& connection) {
  TimeWaitRecord& record = tables_->time_wait.Enter(connection.key_, now_);
  record.snd_nxt = connection.send_next();
  record.rcv_nxt = connection.receive_next();
  record.window = connection.offered_window();
  record.timestamps = connection.uses_timestamps();
  record.ts_recent = connection.recent_timestamp();
  record.timestamp_offset = connection.options().timestamp_clock.offset;
  record.peer_mac = wire::MacAddress::Load(connection.headers_.data());
}

// --- What comes out ---

bool Stack::TakeEvent(Event* event) {
  for (;;) {
    const bool front_opened =
        !tables_->news.empty() &&
        (tables_->news.front().news_ & (Pcb::kEstablished | Connection::kAccepted)) != 0;
    if (front_opened) return TakeNews(tables_->news.front(), event);
    if (!tables_->deliveries.empty()) {
      const StackTables::Delivery delivery = tables_->deliveries.Pop();
      if (delivery.connection == nullptr) continue;
      *event = {.kind = Event::Kind::kData,
                .connection = delivery.connection,
                .chain = delivery.chain,
                .bytes = delivery.bytes,
                .stamp = delivery.stamp};
      return true;
    }
    if (!tables_->dones.empty()) {
      const StackTables::Done done = tables_->dones.Pop();
      --tables_->dones_promised;
      *event = {.kind = Event::Kind::kDone,
                .cancelled = done.cancelled,
                .connection = done.connection,
                .cookie = done.cookie};
      return true;
    }
    if (tables_->news.empty()) return false;
    if (TakeNews(tables_->news.front(), event)) return true;
  }
}

// One event of `connection`, the first in the list; it leaves the list when there is no more.
// False: there was none to tell after all.
bool Stack::TakeNews(Connection& connection, Event* event) {
  using Kind = Event::Kind;
  struct Order {
    uint8_t bit;
    Kind kind;
  };
  static constexpr Order kOrder[] = {
      {Pcb::kEstablished, Kind::kEstablished}, {Connection::kAccepted, Kind::kAccepted},
      {Pcb::kDeliverable, Kind::kData},        {Pcb::kPeerClosed, Kind::kPeerClosed},
      {Pcb::kSendSpace, Kind::kSendSpace},     {Pcb::kTerminated, Kind::kTerminated}};
  if (connection.news_ == Pcb::kTerminated && connection.IsReferenced()) {
    connection.news_hook_.Unlink();  // its last WQE's completion brings it back
    return false;
  }
  const Order* order = kOrder;
  while ((connection.news_ & order->bit) == 0) ++order;
  connection.news_ &= static_cast<uint8_t>(~order->bit);
  if (connection.news_ == 0) connection.news_hook_.Unlink();
  switch (order->kind) {
    case Kind::kAccepted:
      if (connection.listener_ != nullptr) connection.listener_->Took();
      break;
    case Kind::kData:
      connection.Pcb::Deliver(now_);
      Schedule(connection);
      return false;
    default:
      break;
  }
  const bool departed = connection.departed_ && order->kind == Kind::kTerminated;
  *event = {.kind = departed ? Kind::kDeparted : order->kind,
            .status = connection.status(),
            .connection = &connection};
  return true;
}

// --- Time ---

base::Nanoseconds Stack::NextDeadline() {
  return base::Earlier(
      tables_->wheel.NextDeadline(),
      base::Earlier(tables_->syns.NextDeadline(), tables_->time_wait.NextDeadline()));
}

void Stack::OnTimers(base::Nanoseconds now) {
  now_ = now;
  uint32_t left = kMostTimers;
  tables_->wheel.Expire(now, [&](base::Timer* timer) {
    OnTimer(*timer, now);
    return --left != 0;
  });
  tables_->syns.Expire(
      now, kMostTimers, [this](SynRecord& record) { SendSynAck(record, PathOf(record)); },
      [](const SynRecord&) {});
  tables_->time_wait.Expire(now, kMostTimers);
}

inline void Stack::OnTimer(base::Timer& timer, base::Nanoseconds now) {
  if (&timer == &tables_->starved_timer) [[unlikely]] return RetryForMemory(now);
  auto& connection = static_cast<Connection&>(timer);
  if (connection.OnlyAckIsDue(now) && AcknowledgeAtOnce(connection, now)) {
    return Schedule(connection);
  }
  if (connection.Pcb::NextDeadline() <= now) connection.OnTimer(now);
  ScheduleAt(connection, connection.Pcb::NextDeadline());
}

// What has not been worked out yet is when the timer fires.
void Stack::Schedule(Connection& connection) {
  ScheduleAt(connection, connection.EarliestDeadline());
}

// The timer is moved when it has to fire earlier; that it may fire later is seen when it fires, for
// most deadlines move with every segment.
inline void Stack::ScheduleAt(Connection& connection, base::Nanoseconds deadline) {
  if (!connection.attached_) return;
  base::Timer& timer = connection;
  if (deadline == base::kNever || (timer.armed() && timer.deadline <= deadline)) return;
  // One that is due already stays so, however often it is looked at before it fires.
  const base::Nanoseconds earliest = base::Later(deadline, now_ + base::Nanoseconds(1));
  if (timer.armed() && timer.deadline <= earliest) return;
  tables_->wheel.Arm(&timer, earliest);
}

// After one of the short ways: what has not been worked out yet is when the timer fires.
void Stack::Watch(Connection& connection) {
  const base::Nanoseconds deadline = connection.SoonestDeadline();
  if (!connection.attached_ || deadline == base::kNever) return;
  tables_->wheel.Arm(&connection, base::Later(deadline, now_ + base::Nanoseconds(1)));
}

// --- Making and releasing ---

Connection* Stack::Make(const FlowKey& key, const PcbOptions& options) {
  StackTables::Slot* const slot = tables_->first_free;
  if (slot == nullptr) {
    ++counters_.connections_exhausted;
    return nullptr;
  }
  tables_->first_free = slot->next_free;
  ++tables_->slots_in_use;
  auto* const connection = new (slot) Connection(context_, options, key);
  tables_->demux.Attach(*connection);  // which has room for as many
  tables_->recent[key.Place(StackTables::kRecent)] = connection;  // mostly it receives next
  connection->attached_ = true;
  return connection;
}

// Made where they stay.
void Stack::SetHeaders(Connection& connection, const LinkPath& path, bool timestamps) {
  std::construct_at(&connection.headers_, FieldsOf(connection.key_, path, timestamps));
}

void Stack::Release(Connection& connection) {
  DropDeliveries(connection);
  connection.~Connection();
  auto* const slot = reinterpret_cast<StackTables::Slot*>(&connection);
  slot->next_free = std::exchange(tables_->first_free, slot);
  --tables_->slots_in_use;
}

}  // namespace xtreme::tcp
