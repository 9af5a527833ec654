// SPDX-License-Identifier: Apache-2.0

#include "tests/tcp/world.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "stack/tcp/connection.h"
#include "stack/tcp/departure.h"
#include "stack/wire/tcp.h"
#include "stack/wire/tcp_frame.h"
#include "stack/wire/tcp_template.h"

namespace xtreme::tcp::testing {

Host::Host(World& world, int index, const Stack::Options& options, uint32_t send_queue)
    : world_(world), index_(index), options_(options), send_queue_(send_queue) {
  AddStack(16'384);
}

Host::~Host() {
  for (const auto& place : places_) place->stack.reset();
}

void Host::AddStack(uint32_t buffers) {
  using packet::BufferPool;
  auto place = std::make_unique<Place>();
  place->host = this;
  auto pool = BufferPool::Create(
      {.buffers = buffers, .buffer_bytes = 2048, .hugepages = BufferPool::Hugepages::kNever});
  place->pool = *std::move(pool);
  Stack::Options own = options_;
  own.secret = {world_.options().seed, static_cast<uint64_t>(index_) + 77};
  place->stack = std::make_unique<Stack>(own, *place, *place->pool, world_.now());
  places_.push_back(std::move(place));
}

uint32_t Host::free_buffers() const {
  uint32_t free = 0;
  for (const auto& place : places_) free += place->pool->free_count();
  return free;
}

void Host::Move(Connection& connection, size_t to, base::Nanoseconds way,
                base::Nanoseconds steering, std::function<void(Connection*)> moved) {
  places_[at_]->to = to;
  const std::shared_ptr<Departure> departure =
      stack().Depart(connection, *places_[at_], world_.now());
  Drain();
  at_ = to;
  const PcbOptions* const options = &connection.options();
  world_.At(world_.now() + way, [this, to, departure, options, moved] {
    moved(stack(to).Admit(*departure, *options, 0, world_.now()).connection);
    Drain();
  });
  world_.At(world_.now() + way + steering, [this, to] { steered_ = to; });
}

// As rings do: what is received stands in the pool of its own ring.
void Host::Place::PassOn(const wire::TcpFrame& frame, packet::Buffer* buffer, uint64_t stamp) {
  const std::vector<uint8_t> bytes(buffer->data, buffer->data + buffer->length);
  packet::BufferPool::ReleaseByOwner(buffer);
  World& world = host->world_;
  world.At(world.now() + base::Microseconds(30), [this, frame, bytes, stamp] {
    Place& next = *host->places_[to];
    packet::Buffer* const copy = next.pool->Acquire();
    if (copy == nullptr) return;
    std::memcpy(copy->data, bytes.data(), bytes.size());
    copy->length = static_cast<uint32_t>(bytes.size());
    next.stack->InputStray(frame, copy, stamp, host->world_.now());
    host->Drain();
  });
}

base::Nanoseconds Host::NextDeadline() {
  base::Nanoseconds next = base::kNever;
  for (const auto& place : places_) next = base::Earlier(next, place->stack->NextDeadline());
  return next;
}

void Host::RunTimers() {
  for (const auto& place : places_) {
    if (place->stack->NextDeadline() <= world_.now()) place->stack->OnTimers(world_.now());
  }
  Drain();
}

wire::Endpoint Host::At(uint16_t port) const {
  return {wire::Ipv4Address(10, 0, 0, static_cast<uint8_t>(index_ + 1)), port};
}

LinkPath Host::path() const {
  LinkPath path;
  path.local = wire::MacAddress({2, 0, 0, 0, 0, static_cast<uint8_t>(index_)});
  path.peer = wire::MacAddress({2, 0, 0, 0, 0, static_cast<uint8_t>(1 - index_)});
  return path;
}

Sink::Taken Host::Transmit(const OutgoingFrame& frame, Stack& of) {
  if (deaf || posted_ == send_queue_) {
    refused_ = true;
    return Sink::Taken::kRefused;
  }
  uint8_t headers[OutgoingFrame::kMaxHeadersBytes];
  const size_t bytes = frame.WriteHeaders(headers);
  Segment* const segment = frame.segment();
  std::span<const uint8_t> payload;
  if (segment != nullptr) payload = {segment->bytes, segment->length};
  frame.headers->FillChecksums(headers, payload);
  std::vector<uint8_t> whole(headers, headers + bytes);
  whole.insert(whole.end(), payload.begin(), payload.end());
  if (on_frame) on_frame(whole);
  world_.Carry(index_, std::move(whole));
  if (segment == nullptr || segment->length < 200) return Sink::Taken::kCopied;
  ++posted_;
  world_.At(world_.now() + world_.options().wqe_delay,
            [this, &of, segment, connection = frame.connection] {
              CompleteWqe(of, connection, segment);
            });
  return Sink::Taken::kReferenced;
}

uint32_t Host::Place::RunBytes(const Connection&) const {
  return host->world_.options().run_bytes;
}

// As the NIC cuts it: sequence numbers are counted on, FIN and PSH are the last piece's.
Sink::Taken Host::TransmitRun(const OutgoingFrame& first, std::span<Segment* const> run,
                              uint32_t segment_bytes, Stack& of) {
  if (deaf || posted_ + run.size() > send_queue_) return Sink::Taken::kRefused;
  ++runs_;
  std::vector<uint8_t> payload;
  for (Segment* const segment : run) {
    payload.insert(payload.end(), segment->bytes, segment->bytes + segment->length);
    ++posted_;
    world_.At(world_.now() + world_.options().wqe_delay,
              [this, &of, segment, connection = first.connection] {
                CompleteWqe(of, connection, segment);
              });
  }
  for (size_t at = 0; at < payload.size(); at += segment_bytes) {
    const bool last = at + segment_bytes >= payload.size();
    Segment piece{.length = static_cast<uint32_t>(
                      std::min<size_t>(segment_bytes, payload.size() - at))};
    Outgoing outgoing = *first.outgoing;
    outgoing.sequence += static_cast<uint32_t>(at);
    outgoing.segment = &piece;
    if (!last) outgoing.flags &= static_cast<uint8_t>(~(wire::kTcpFin | wire::kTcpPsh));
    uint8_t headers[OutgoingFrame::kMaxHeadersBytes];
    const OutgoingFrame frame{.headers = first.headers, .outgoing = &outgoing};
    const size_t bytes = frame.WriteHeaders(headers);
    first.headers->FillChecksums(headers, std::span(payload).subspan(at, piece.length));
    std::vector<uint8_t> whole(headers, headers + bytes);
    whole.insert(whole.end(), &payload[at], &payload[at] + piece.length);
    if (on_frame) on_frame(whole);
    world_.Carry(index_, std::move(whole));
  }
  return Sink::Taken::kReferenced;
}

void Host::CompleteWqe(Stack& of, Connection* connection, Segment* segment) {
  --posted_;
  const SegmentQueue::Due due = of.OnWqeCompleted(*connection, *segment);
  if (due.done && on_event) {
    on_event({.kind = Stack::Event::Kind::kDone,
              .cancelled = due.cancelled,
              .connection = connection,
              .cookie = due.cookie});
  }
  if (std::exchange(refused_, false)) {
    for (const auto& place : places_) place->stack->OnRoom(world_.now());
  }
  Drain();
}

void Host::Receive(const std::vector<uint8_t>& frame) {
  wire::TcpFrame tcp;
  packet::Buffer* const buffer = places_[steered_]->pool->Acquire();
  if (buffer == nullptr) return;
  std::memcpy(buffer->data, frame.data(), frame.size());
  buffer->length = static_cast<uint32_t>(frame.size());
  if (wire::ParseTcpFrame(buffer->data, frame.size(), wire::kNoChecksumVerified, &tcp) !=
      wire::FrameVerdict::kTcp) {
    ++bad_frames_;
    packet::BufferPool::ReleaseByOwner(buffer);
    return;
  }
  places_[steered_]->stack->Input(tcp, buffer, static_cast<uint64_t>(world_.now().count()),
                                  world_.now());
  Drain();
}

void Host::Drain() {
  for (const auto& place : places_) Drain(*place->stack);
}

void Host::Drain(Stack& stack) {
  using Kind = Stack::Event::Kind;
  Stack::Event event;
  while (stack.TakeEvent(&event)) {
    if (event.kind == Kind::kDeparted) {
      stack.Release(*event.connection);
    } else if (on_event) {
      on_event(event);
    } else {
      packet::BufferPool::ReleaseChain(event.chain);
      if (event.kind == Kind::kTerminated) stack.Release(*event.connection);
    }
  }
}

World::World(const Options& options)
    : options_(options), now_(options.start), random_(options.seed) {
  for (int i : {0, 1}) {
    hosts_[i] = std::make_unique<Host>(*this, i, options.stack, options.send_queue);
  }
}

void World::At(base::Nanoseconds when, std::function<void()> act) {
  acts_.push({when, order_++, std::move(act)});
}

bool World::Chance(uint32_t of_ten_thousand) { return random_() % 10'000 < of_ten_thousand; }

void World::Carry(int from, std::vector<uint8_t> frame) {
  ++frames_;
  if (Chance(options_.link.lose)) return;
  if (Chance(options_.link.duplicate)) CarryOne(1 - from, frame);
  if (Chance(options_.link.corrupt)) {
    const uint64_t bit = random_() % (8 * frame.size());
    frame[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
  }
  CarryOne(1 - from, std::move(frame));
}

void World::CarryOne(int to, std::vector<uint8_t> frame) {
  const Impairments& link = options_.link;
  base::Nanoseconds arrival = now_ + link.delay;
  if (link.bits_per_second != 0) {
    const auto takes =
        static_cast<int64_t>(frame.size() * 8 * 1'000'000'000 / link.bits_per_second);
    base::Nanoseconds& free = line_free_[to];
    std::deque<base::Nanoseconds>& waiting = departures_[to];
    while (!waiting.empty() && waiting.front() <= now_) waiting.pop_front();
    if (link.queue_frames != 0 && waiting.size() >= link.queue_frames) return;
    free = base::Later(free, now_) + base::Nanoseconds(takes);
    waiting.push_back(free);
    arrival = free + link.delay;
  }
  if (Chance(link.reorder)) {
    arrival += base::Nanoseconds(
        static_cast<int64_t>(random_() % static_cast<uint64_t>(link.reorder_by.count())));
  }
  At(arrival, [this, to, moved = std::move(frame)] { host(to).Receive(moved); });
}

base::Nanoseconds World::NextDeadline() {
  return base::Earlier(host(0).NextDeadline(), host(1).NextDeadline());
}

void World::RunTimers() {
  for (const auto& host : hosts_) {
    if (host->NextDeadline() <= now_) host->RunTimers();
  }
}

bool World::RunUntil(const std::function<bool()>& done, base::Nanoseconds limit) {
  while (!done()) {
    const base::Nanoseconds deadline = NextDeadline();
    const base::Nanoseconds act = acts_.empty() ? base::kNever : acts_.top().when;
    const base::Nanoseconds next = base::Earlier(deadline, act);
    if (next > limit) {
      now_ = base::Later(now_, limit);
      return false;
    }
    now_ = base::Later(now_, next);
    if (act <= deadline) {  // packets before timers
      const std::function<void()> run = acts_.top().act;
      acts_.pop();
      run();
    } else {
      RunTimers();
    }
  }
  return true;
}

void Party::OnEvent(const Stack::Event& event) {
  using Kind = Stack::Event::Kind;
  if (terminated) ++out_of_order_events;
  switch (event.kind) {
    case Kind::kEstablished:
    case Kind::kAccepted:
      out_of_order_events += established;
      established = true;
      Pump();
      break;
    case Kind::kData:
      out_of_order_events += !established || peer_closed;
      TakeBytes(event);
      break;
    case Kind::kDone:
      ++done[event.cookie];
      cancelled += event.cancelled;
      break;
    case Kind::kPeerClosed:
      out_of_order_events += peer_closed;
      peer_closed = true;
      MaybeClose();
      break;
    case Kind::kSendSpace:
      Pump();
      break;
    case Kind::kTerminated:
      terminated = true;
      status = event.status;
      world_.host(host_).stack().Release(*event.connection);
      connection_ = nullptr;
      break;
    case Kind::kDeparted:
      ++out_of_order_events;  // Its host keeps that.
      break;
  }
}

void Party::TakeBytes(const Stack::Event& event) {
  for (const packet::Buffer* link = event.chain; link != nullptr; link = link->next) {
    for (uint32_t i = 0; i < link->length; ++i, ++received) {
      wrong_bytes += link->data[i] != ByteAt(plan_.peer_stream, received);
    }
  }
  packet::BufferPool::ReleaseChain(event.chain);
  const auto credit = [this, bytes = event.bytes] {
    if (connection_ == nullptr) return;
    world_.host(host_).stack().Credit(*connection_, bytes, world_.now());
    world_.host(host_).Drain();
  };
  if (plan_.credit_delay == base::Nanoseconds(0)) return credit();
  world_.At(world_.now() + plan_.credit_delay, credit);
}

void Party::Pump() {
  Stack& stack = world_.host(host_).stack();
  std::vector<uint8_t> bytes;
  while (sent < plan_.to_send && connection_ != nullptr) {
    const auto length = static_cast<size_t>(std::min<uint64_t>(plan_.chunk, plan_.to_send - sent));
    bytes.resize(length);
    for (size_t i = 0; i < length; ++i) bytes[i] = ByteAt(plan_.stream, sent + i);
    const Stack::Send send{.want_done = plan_.want_done, .cookie = sent};
    const SendResult result =
        plan_.in_place
            ? stack.SendInPlace(*connection_,
                                {.bytes = bytes.data(),
                                 .length = static_cast<uint32_t>(length),
                                 .memory_key = 1},
                                send, world_.now())
            : stack.SendCopy(*connection_, bytes, send, world_.now());
    if (IsRefused(result)) return;
    if (plan_.in_place) memory_.push_back(std::exchange(bytes, {}));
    promised += plan_.want_done;
    sent += length;
  }
  MaybeClose();
}

void Party::MaybeClose() {
  const bool may = sent == plan_.to_send && (plan_.closes_first || peer_closed);
  if (!may || shut_ || connection_ == nullptr) return;
  shut_ = true;
  world_.host(host_).stack().Shutdown(*connection_, world_.now());
}

}  // namespace xtreme::tcp::testing
