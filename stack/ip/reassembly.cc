// SPDX-License-Identifier: Apache-2.0
#include "stack/ip/reassembly.h"

#include <algorithm>
#include <utility>

#include "stack/base/byte_order.h"
#include "stack/packet/buffer_pool.h"
#include "stack/wire/checksum.h"
#include "stack/wire/udp.h"

namespace xtreme::ip {
namespace {

using base::Nanoseconds;
using packet::Buffer;
using packet::BufferPool;

// A held buffer begins at its IP header, already parsed: where it belongs can be read there.
uint32_t HeaderBytesOf(const Buffer& held) { return 4u * (held.data[0] & 0x0F); }
uint32_t OffsetOf(const Buffer& held) {
  return 8u * (base::LoadBe16(held.data + 6) & wire::kIpv4FragmentOffsetMask);
}
bool HasMoreFragments(const Buffer& held) {
  return (base::LoadBe16(held.data + 6) & wire::kIpv4MoreFragments) != 0;
}
uint32_t EndOf(const Buffer& held) { return OffsetOf(held) + held.length - HeaderBytesOf(held); }

void ReleaseFrom(Buffer* head) {
  while (head != nullptr) {
    Buffer* next = std::exchange(head->next, nullptr);
    BufferPool::ReleaseByOwner(head);
    head = next;
  }
}

// Keeps the first `bytes`, at least 1, of a chain.
void TrimChain(Buffer* head, uint32_t bytes) {
  Buffer* link = head;
  for (; bytes > link->length; link = link->next) bytes -= link->length;
  link->length = bytes;
  ReleaseFrom(std::exchange(link->next, nullptr));
}

bool HasValidChecksum(const ReassembledDatagram& datagram, uint32_t udp_bytes) {
  if (base::LoadBe16(datagram.head->data + 6) == 0) return true;
  wire::ChecksumSum sum;
  sum.AddPseudoHeader(datagram.source, datagram.destination, wire::kIpProtocolUdp,
                      static_cast<uint16_t>(udp_bytes));
  for (const Buffer* link = datagram.head; udp_bytes > 0; link = link->next) {
    const uint32_t bytes = std::min(udp_bytes, link->length);
    sum.Add({link->data, bytes});
    udp_bytes -= bytes;
  }
  return sum.Checksum() == 0;
}

}  // namespace

Reassembler::Reassembler(const Options& options)
    : options_(options),
      partials_(std::make_unique<Partial[]>(options.datagrams)),
      by_key_(options.datagrams) {
  for (size_t i = 0; i < options.datagrams; ++i) free_.PushBack(partials_[i]);
}

Reassembler::~Reassembler() {
  while (!by_age_.empty()) Free(by_age_.front());
}

Reassembler::Result Reassembler::Add(Buffer* frame, const wire::Ipv4View& ip, uint16_t vlan_id,
                                     Nanoseconds now, ReassembledDatagram* whole) {
  ++counters_.fragments;
  Expire(now);
  const auto bytes = static_cast<uint32_t>(ip.payload().size());
  const auto end = static_cast<uint32_t>(ip.fragment_offset_bytes()) + bytes;
  if (bytes == 0 || (ip.more_fragments() && bytes % wire::kIpv4FragmentUnitBytes != 0)) {
    return Drop(frame, counters_.malformed);
  }
  if (bytes > options_.bytes || options_.buffers == 0) return Drop(frame, counters_.too_large);
  Partial* partial = FindOrStart(KeyOf(ip, vlan_id), now);
  if (partial == nullptr) return Drop(frame, counters_.too_large);

  frame->data += ip.payload().data() - ip.header_bytes() - frame->data;
  frame->length = ip.total_bytes();
  switch (Place(frame, end, ip.more_fragments(), *partial)) {
    case Placement::kDuplicate:
      return Drop(frame, counters_.duplicates);
    case Placement::kOverlap:
      DropPartial(*partial, counters_.overlaps);
      BufferPool::ReleaseByOwner(frame);
      return Result::kDropped;
    case Placement::kPlaced:
      break;
  }
  ++partial->buffers;
  ++held_buffers_;
  partial->bytes += bytes;
  held_bytes_ += bytes;
  if (partial->bytes != partial->total_bytes) return KeepWithinLimits(*partial);
  *whole = TakeWhole(*partial);
  ++counters_.reassembled;
  return Result::kWhole;
}

// Older datagrams go first; one that is alone and still too large goes itself, as does one of too
// many fragments.
Reassembler::Result Reassembler::KeepWithinLimits(Partial& newest) {
  if (newest.buffers > options_.datagram_buffers) {
    DropPartial(newest, counters_.too_large);
    return Result::kDropped;
  }
  while (held_buffers_ > options_.buffers || held_bytes_ > options_.bytes) {
    Partial& oldest = by_age_.front();
    const bool own = &oldest == &newest;
    const bool alone = own && &by_age_.back() == &newest;
    DropPartial(oldest, alone ? counters_.too_large : counters_.evicted);
    if (own) return Result::kDropped;
  }
  return Result::kHeld;
}

void Reassembler::Expire(Nanoseconds now) {
  while (!by_age_.empty() && now >= by_age_.front().deadline) {
    DropPartial(by_age_.front(), counters_.timed_out);
  }
}

Nanoseconds Reassembler::NextDeadline() {
  return by_age_.empty() ? base::kNever : by_age_.front().deadline;
}

Reassembler::Key Reassembler::KeyOf(const wire::Ipv4View& ip, uint16_t vlan_id) {
  return {.addresses = uint64_t{ip.source().value()} << 32 | ip.destination().value(),
          .rest = uint64_t{vlan_id} << 32 | uint32_t{ip.protocol()} << 16 | ip.id()};
}

// Null only when the table is of size 0.
Reassembler::Partial* Reassembler::FindOrStart(const Key& key, Nanoseconds now) {
  if (Partial* known = by_key_.Find(key)) return known;
  if (free_.empty() && !by_age_.empty()) DropPartial(by_age_.front(), counters_.evicted);
  Partial* partial = free_.PopFront();
  if (partial == nullptr) return nullptr;
  partial->key = key;
  partial->deadline = base::DeadlineAfter(now, options_.timeout);
  by_key_.Insert(key, partial);
  by_age_.PushBack(*partial);
  return partial;
}

Reassembler::Result Reassembler::Drop(Buffer* frame, uint64_t& counter) {
  ++counter;
  BufferPool::ReleaseByOwner(frame);
  return Result::kDropped;
}

// Puts `frame`, which ends at `end`, into the chain by offset.
Reassembler::Placement Reassembler::Place(Buffer* frame, uint32_t end, bool more,
                                          Partial& partial) {
  const uint32_t offset = OffsetOf(*frame);
  Buffer* before = nullptr;
  Buffer* after = nullptr;
  if (partial.tail != nullptr && OffsetOf(*partial.tail) < offset) {
    before = partial.tail;  // As most come, without a walk.
  } else if (partial.tail != nullptr && OffsetOf(*partial.tail) == offset) {
    after = partial.tail;  // The same again, or an overlap: nothing is put before it.
  } else {
    after = partial.head;
    while (after != nullptr && OffsetOf(*after) < offset) {
      before = after;
      after = after->next;
    }
  }
  const bool same = after != nullptr && OffsetOf(*after) == offset && EndOf(*after) == end;
  if (same && HasMoreFragments(*after) == more) return Placement::kDuplicate;
  if (before != nullptr && EndOf(*before) > offset) return Placement::kOverlap;
  if (after != nullptr && OffsetOf(*after) < end) return Placement::kOverlap;
  // The last one's end is the datagram's: nothing lies past it, and there is one only.
  if (!more && (partial.total_bytes != 0 || after != nullptr)) return Placement::kOverlap;
  if (partial.total_bytes != 0 && end > partial.total_bytes) return Placement::kOverlap;
  if (!more) partial.total_bytes = end;
  frame->next = after;
  if (after == nullptr) partial.tail = frame;
  (before == nullptr ? partial.head : before->next) = frame;
  return Placement::kPlaced;
}

ReassembledDatagram Reassembler::TakeWhole(Partial& partial) {
  const ReassembledDatagram whole{
      .head = std::exchange(partial.head, nullptr),
      .bytes = partial.bytes,
      .source = wire::Ipv4Address(static_cast<uint32_t>(partial.key.addresses >> 32)),
      .destination = wire::Ipv4Address(static_cast<uint32_t>(partial.key.addresses)),
      .protocol = static_cast<uint8_t>(partial.key.rest >> 16),
      .vlan_id = static_cast<uint16_t>(partial.key.rest >> 32)};
  for (Buffer* link = whole.head; link != nullptr; link = link->next) {
    const uint32_t header_bytes = HeaderBytesOf(*link);
    link->data += header_bytes;
    link->length -= header_bytes;
  }
  Free(partial);
  return whole;
}

void Reassembler::DropPartial(Partial& partial, uint64_t& counter) {
  ++counter;
  Free(partial);
}

void Reassembler::Free(Partial& partial) {
  held_buffers_ -= partial.buffers;
  held_bytes_ -= partial.bytes;
  ReleaseFrom(std::exchange(partial.head, nullptr));
  by_key_.Erase(partial.key);
  partial.tail = nullptr;
  partial.hook.Unlink();
  partial.buffers = partial.bytes = partial.total_bytes = 0;
  free_.PushBack(partial);
}

wire::FrameVerdict OpenReassembledUdp(ReassembledDatagram& datagram, wire::UdpFlow* flow) {
  if (datagram.protocol != wire::kIpProtocolUdp) return wire::FrameVerdict::kNotUdp;
  Buffer* head = datagram.head;
  // The first fragment of several has at least eight bytes: enough for the header.
  if (head->length < wire::kUdpHeaderBytes) return wire::FrameVerdict::kTruncated;
  const uint32_t udp_bytes = base::LoadBe16(head->data + 4);
  if (udp_bytes < wire::kUdpHeaderBytes || udp_bytes > datagram.bytes) {
    return wire::FrameVerdict::kUdpLength;
  }
  if (!HasValidChecksum(datagram, udp_bytes)) return wire::FrameVerdict::kUdpChecksum;
  *flow = {.destination = datagram.destination,
           .source = datagram.source,
           .destination_port = base::LoadBe16(head->data + 2),
           .source_port = base::LoadBe16(head->data),
           .vlan_id = datagram.vlan_id};
  TrimChain(head, udp_bytes);
  head->data += wire::kUdpHeaderBytes;
  head->length -= wire::kUdpHeaderBytes;
  datagram.bytes = udp_bytes - wire::kUdpHeaderBytes;
  return wire::FrameVerdict::kUdp;
}

}  // namespace xtreme::ip
