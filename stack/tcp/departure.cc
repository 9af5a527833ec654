// SPDX-License-Identifier: Apache-2.0
//
// Moving a connection: out of one context into a Departure, and out of that into another. Both
// steps are one function: TakeOver.

#include "stack/tcp/departure.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <span>
#include <utility>

#include "stack/packet/buffer_pool.h"

namespace xtreme::tcp {
namespace {

using packet::Buffer;
using packet::BufferPool;

uint32_t SegmentsOf(const SegmentQueue& queue) {
  uint32_t count = 0;
  for (const Segment* s = queue.first(); s != nullptr; s = s->next) ++count;
  return count;
}

// A chain in buffers of `pool`; null when there are too few, or a link is too long for one.
Buffer* CopyChain(BufferPool& pool, const Buffer* from) {
  Buffer* head = nullptr;
  Buffer** link = &head;
  for (; from != nullptr; from = from->next) {
    *link = from->length <= pool.payload_bytes() ? pool.Acquire() : nullptr;
    if (*link == nullptr) {
      BufferPool::ReleaseChain(head);
      return nullptr;
    }
    std::memcpy((*link)->data, from->data, from->length);
    (*link)->length = from->length;
    link = &(*link)->next;
  }
  return head;
}

// What a payload needs to be another's.
bool CopyPayload(BufferPool& pool, Segment& segment) {
  if (segment.length == 0) return true;
  Buffer* const copy = pool.Acquire();
  if (copy == nullptr) return false;
  std::memcpy(copy->data, segment.bytes, segment.length);
  copy->length = segment.length;
  segment.buffer = copy;
  segment.bytes = copy->data;
  return true;
}

}  // namespace

// --- Pcb ---

bool Pcb::MayDepart() const {
  const bool open = state_ == State::kEstablished || state_ == State::kCloseWait ||
                    state_ == State::kFinWait1 || state_ == State::kFinWait2;
  return open && !Has(kReceiveClosed) && !RefersToMemory();
}

bool Pcb::RefersToMemory() const {
  for (const Segment* s = queue_.first(); s != nullptr; s = s->next) {
    if (s->length != 0 && (s->buffer == nullptr || s->memory_key != 0)) return true;
  }
  return false;
}

bool Pcb::TakeOver(Pcb& from) {
  if (!HasBuffersFor(from) || !TakeQueue(from)) return false;
  TakeState(from);
  TakeHeld(from);
  return true;
}

bool Pcb::HasBuffersFor(const Pcb& from) const {
  if (context_->buffers == nullptr) return true;
  uint32_t needed = 0;
  for (const Segment* s = from.queue_.first(); s != nullptr; s = s->next) {
    if (s->length > context_->buffers->payload_bytes()) return false;
    needed += s->length != 0;
  }
  return needed <= BuffersForCopies();
}

bool Pcb::TakeQueue(const Pcb& from) {
  BufferPool* const pool = context_->buffers;
  return queue_.CopyFrom(from.queue_, [pool](Segment& segment) {
    // That of a copy that left is told where it left from.
    if (segment.transmissions != 0) segment.flags &= static_cast<uint16_t>(~Segment::kWantWire);
    if (pool != nullptr) return CopyPayload(*pool, segment);
    if (segment.buffer != nullptr) BufferPool::AddReferenceByOwner(segment.buffer);
    return true;
  });
}

void Pcb::TakeHeld(Pcb& from) {
  std::array<wire::SackBlock, wire::kTcpMaxSackBlocks> recent;
  const size_t count = from.reassembler_.SackBlocks(std::nullopt, recent);
  while (std::optional<Run> run = from.reassembler_.TakeFirst()) {
    if (context_->buffers != nullptr) {
      Buffer* const copy = CopyChain(*context_->buffers, run->head);
      BufferPool::ReleaseChain(run->head);
      run->head = copy;
    }
    if (run->head == nullptr) {
      ++context_->counters.no_room;
      continue;
    }
    reassembler_.Insert(*run, rcv_nxt_, Distance(rcv_nxt_, rcv_edge_));
  }
  reassembler_.PutFirst(std::span(recent).first(count));
}

// Whatever is a value. What else there is: context, options, events (told by the sink they were
// raised for), the queue and what is held after holes.
void Pcb::TakeState(const Pcb& from) {
  rcv_nxt_ = from.rcv_nxt_;
  rcv_edge_ = from.rcv_edge_;
  fin_at_ = from.fin_at_;
  last_ack_sent_ = from.last_ack_sent_;
  snd_wnd_ = from.snd_wnd_;
  snd_wl1_ = from.snd_wl1_;
  snd_wl2_ = from.snd_wl2_;
  max_snd_wnd_ = from.max_snd_wnd_;
  credited_ = from.credited_;
  ts_recent_ = from.ts_recent_;
  flags_ = from.flags_ & ~uint32_t{kSinkFull};
  smss_ = from.smss_;
  state_ = from.state_;
  snd_scale_ = from.snd_scale_;
  rcv_scale_ = from.rcv_scale_;
  timer_ = from.timer_;
  quick_acks_left_ = from.quick_acks_left_;
  probes_ = from.probes_;
  retries_ = from.retries_;
  retransmit_deadline_ = from.retransmit_deadline_;
  ack_deadline_ = from.ack_deadline_;
  idle_deadline_ = from.idle_deadline_;
  duplicate_ = from.duplicate_;
  congestion_ = from.congestion_;
  rtt_ = from.rtt_;
  rtt_.UseOptions(options_->rto);
  NoteLeastWait();
  recover_ = from.recover_;
  scoreboard_ = from.scoreboard_;
  rack_ = from.rack_;
  tail_probe_ = from.tail_probe_;
  reduction_ = from.reduction_;
  new_reno_ = from.new_reno_;
  spurious_ = from.spurious_;
  reorder_deadline_ = from.reorder_deadline_;
  progress_at_ = from.progress_at_;
  rto_base_ = from.rto_base_;
  heard_at_ = from.heard_at_;
  ts_recent_at_ = from.ts_recent_at_;
  close_deadline_ = from.close_deadline_;
  refused_bytes_ = from.refused_bytes_;
  retransmits_ = from.retransmits_;
  soft_error_ = from.soft_error_;
  soft_error_at_ = from.soft_error_at_;
  path_mtu_deadline_ = from.path_mtu_deadline_;
  agreed_smss_ = from.agreed_smss_;
}
// One member more is one more to take along.
static_assert(sizeof(Pcb) == 568);

void Pcb::OweSendSpace() { Set(kWantsSpace); }

void Pcb::Leave() {
  queue_.Leave();
  Terminate(0);
}

// What it could not hand out in its old place, or had no room to send, it does now.
void Pcb::Resume(base::Nanoseconds now) {
  Deliver(now);
  Output(now);
}

// --- Departure ---

Departure::Departure(Pcb& from, const FlowKey& key, const wire::TcpTemplate& headers)
    : key_(key),
      headers_(headers),
      options_(from.options()),
      segments_(SegmentsOf(from.queue())),
      // Of its own, with room for all, so that nothing is copied and nothing dropped.
      reassembly_({.segments = std::max(from.held_buffers(), 1u),
                   .connections = 1,
                   .buffers_per_connection = UINT32_MAX,
                   .bytes_per_connection = UINT32_MAX,
                   .coalesce_after_buffers = UINT32_MAX}),
      pcb_((context_.segments = &segments_, context_.reassembly = &reassembly_, context_),
           options_) {
  pcb_.TakeOver(from);
}

// Its thread may not be that of the buffers' pool.
Departure::~Departure() {
  for (Segment* s = pcb_.queue_.first(); s != nullptr; s = s->next) {
    if (s->buffer != nullptr) BufferPool::Release(std::exchange(s->buffer, nullptr));
  }
  pcb_.queue_.Leave();
}

uint32_t Departure::promised() const {
  uint32_t count = 0;
  ForEachPromised([&count](uint64_t) { ++count; });
  return count;
}

}  // namespace xtreme::tcp
