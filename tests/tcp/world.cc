// SPDX-License-Identifier: Apache-2.0

#include "tests/tcp/world.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "stack/tcp/connection.h"
#include "stack/wire/tcp_frame.h"
#include "stack/wire/tcp_template.h"

namespace xtreme::tcp::testing {

Host::Host(World& world, int index, const Stack::Options& options, uint32_t send_queue)
    : world_(world), index_(index), send_queue_(send_queue) {
  using packet::BufferPool;
  auto pool = BufferPool::Create(
      {.buffers = 16'384, .buffer_bytes = 2048, .hugepages = BufferPool::Hugepages::kNever});
  pool_ = *std::move(pool);
  Stack::Options own = options;
  own.secret = {world.options().seed, static_cast<uint64_t>(index) + 77};
  stack_ = std::make_unique<Stack>(own, *this, *pool_, world.now());
}

Host::~Host() { stack_.reset(); }

wire::Endpoint Host::At(uint16_t port) const {
  return {wire::Ipv4Address(10, 0, 0, static_cast<uint8_t>(index_ + 1)), port};
}

LinkPath Host::path() const {
  LinkPath path;
  path.local = wire::MacAddress({2, 0, 0, 0, 0, static_cast<uint8_t>(index_)});
  path.peer = wire::MacAddress({2, 0, 0, 0, 0, static_cast<uint8_t>(1 - index_)});
  return path;
}

Sink::Taken Host::Transmit(const OutgoingFrame& frame) {
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
            [this, segment, connection = frame.connection] { CompleteWqe(connection, segment); });
  return Sink::Taken::kReferenced;
}

void Host::CompleteWqe(Connection* connection, Segment* segment) {
  --posted_;
  const SegmentQueue::Due due = stack_->OnWqeCompleted(*connection, *segment);
  if (due.done && on_event) {
    on_event({.kind = Stack::Event::Kind::kDone,
              .cancelled = due.cancelled,
              .connection = connection,
              .cookie = due.cookie});
  }
  if (std::exchange(refused_, false)) stack_->OnRoom(world_.now());
  Drain();
}

void Host::Receive(const std::vector<uint8_t>& frame) {
  wire::TcpFrame tcp;
  packet::Buffer* const buffer = pool_->Acquire();
  std::memcpy(buffer->data, frame.data(), frame.size());
  buffer->length = static_cast<uint32_t>(frame.size());
  if (wire::ParseTcpFrame(buffer->data, frame.size(), wire::kNoChecksumVerified, &tcp) !=
      wire::FrameVerdict::kTcp) {
    ++bad_frames_;
    packet::BufferPool::ReleaseByOwner(buffer);
    return;
  }
  stack_->Input(tcp, buffer, static_cast<uint64_t>(world_.now().count()), world_.now());
  Drain();
}

void Host::Drain() {
  Stack::Event event;
  while (stack_->TakeEvent(&event)) {
    if (on_event) {
      on_event(event);
    } else {
      packet::BufferPool::ReleaseChain(event.chain);
      if (event.kind == Stack::Event::Kind::kTerminated) stack_->Release(*event.connection);
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
    free = base::Later(free, now_);
    if (link.queue_frames != 0 && (free - now_).count() > takes * link.queue_frames) return;
    free += base::Nanoseconds(takes);
    arrival = free + link.delay;
  }
  if (Chance(link.reorder)) {
    arrival += base::Nanoseconds(
        static_cast<int64_t>(random_() % static_cast<uint64_t>(link.reorder_by.count())));
  }
  At(arrival, [this, to, moved = std::move(frame)] { host(to).Receive(moved); });
}

base::Nanoseconds World::NextDeadline() {
  return base::Earlier(host(0).stack().NextDeadline(), host(1).stack().NextDeadline());
}

void World::RunTimers() {
  for (const auto& host : hosts_) {
    if (host->stack().NextDeadline() > now_) continue;
    host->stack().OnTimers(now_);
    host->Drain();
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
    if (IsRefused(stack.SendCopy(*connection_, bytes, send, world_.now()))) return;
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
