// SPDX-License-Identifier: Apache-2.0
//
// Datagrams from their fragments, in the buffers the NIC wrote. RFC 791 section 3.2, RFC 815.
//
// RFC 815 keeps a list of holes; here overlaps end a datagram (as RFC 5722 rules for IPv6: nobody
// honest sends them), so a hole is what the sum of the fragments lacks, and a datagram is whole
// when the sum is its length. The invariant: every buffer given in is in exactly one datagram, or
// was released, or went out in a whole one; limits of datagrams, buffers, bytes and time hold
// always. Nothing is copied or allocated after construction. The thread of the buffers' pool.
// Units: bytes.
#ifndef XTREME_STACK_IP_REASSEMBLY_H_
#define XTREME_STACK_IP_REASSEMBLY_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "stack/base/counters.h"
#include "stack/base/intrusive_list.h"
#include "stack/base/small_hash_map.h"
#include "stack/base/time.h"
#include "stack/packet/buffer.h"
#include "stack/wire/address.h"
#include "stack/wire/frame.h"
#include "stack/wire/ipv4.h"

namespace xtreme::ip {

struct ReassemblyCounters {
  uint64_t fragments = 0;
  uint64_t reassembled = 0;
  uint64_t duplicates = 0;
  uint64_t overlaps = 0;
  uint64_t malformed = 0;
  uint64_t timed_out = 0;
  uint64_t evicted = 0;
  uint64_t too_large = 0;

  static constexpr auto Table() {
    using R = ReassemblyCounters;
    return std::to_array<base::CounterDescriptor<R>>({
        {"fragments", "fragments received", &R::fragments},
        {"reassembled", "datagrams that became whole", &R::reassembled},
        {"duplicates", "fragments dropped because the same was there", &R::duplicates},
        {"overlaps", "datagrams dropped because two fragments overlapped", &R::overlaps},
        {"malformed", "fragments dropped for a length no fragment has", &R::malformed},
        {"timed_out", "datagrams dropped because a fragment did not come in time", &R::timed_out},
        {"evicted", "datagrams dropped to make room for newer ones", &R::evicted},
        {"too_large", "datagrams dropped because they alone exceed the limits", &R::too_large},
    });
  }
};
static_assert(base::DescribesEveryCounter<ReassemblyCounters>());

// A whole datagram: its IP payload in a chain of buffers in byte order, one reference of each.
struct ReassembledDatagram {
  packet::Buffer* head = nullptr;
  uint32_t bytes = 0;
  wire::Ipv4Address source;
  wire::Ipv4Address destination;
  uint8_t protocol = 0;
  uint16_t vlan_id = 0;
};

class Reassembler {
 public:
  struct Options {
    size_t datagrams = 64;   // under way at once
    size_t buffers = 512;    // held by all of them
    size_t bytes = 1 << 20;  // of payload held by all of them
    // Held by one: 64 KB in packets of 576 bytes are 119. So few are walked for each fragment.
    size_t datagram_buffers = 128;
    // From the first fragment. RFC 1122 section 3.3.2 asks for 60 to 120 s, in which the 16-bit
    // identification wraps many times at today's rates: a short time mixes fewer datagrams up
    // (RFC 4963).
    base::Nanoseconds timeout = base::Seconds(1);
  };

  enum class Result : uint8_t {
    kHeld,     // waits for the others
    kWhole,    // `*whole` is the datagram
    kDropped,  // released and counted
  };

  explicit Reassembler(const Options& options);
  // Releases what it holds.
  ~Reassembler();
  Reassembler(const Reassembler&) = delete;
  Reassembler& operator=(const Reassembler&) = delete;

  // Takes the only reference of `frame`, the received frame of the fragment `ip`, which is a view
  // into it. The frame is one buffer, not a chain.
  Result Add(packet::Buffer* frame, const wire::Ipv4View& ip, uint16_t vlan_id,
             base::Nanoseconds now, ReassembledDatagram* whole);

  // Drops the datagrams whose time is over.
  void Expire(base::Nanoseconds now);
  base::Nanoseconds NextDeadline();

  size_t held_datagrams() const { return by_key_.size(); }
  size_t held_buffers() const { return held_buffers_; }
  size_t held_bytes() const { return held_bytes_; }
  const ReassemblyCounters& counters() const { return counters_; }

 private:
  // RFC 791: source, destination, protocol and identification; and the link it came by.
  struct Key {
    uint64_t addresses = 0;
    uint64_t rest = 0;
    bool operator==(const Key&) const = default;
    uint64_t Hash() const { return base::MixBits(base::MixBits(addresses) ^ rest); }
  };

  struct Partial {
    Key key;
    packet::Buffer* head = nullptr;  // by offset; data begins at each fragment's IP header
    packet::Buffer* tail = nullptr;
    uint32_t buffers = 0;
    uint32_t bytes = 0;        // the sum of the fragments
    uint32_t total_bytes = 0;  // known from the last fragment; 0 before
    base::Nanoseconds deadline = base::kNever;
    base::ListHook hook;  // in by_age_ or free_
  };
  using PartialList = base::IntrusiveList<Partial, &Partial::hook>;

  enum class Placement : uint8_t { kPlaced, kDuplicate, kOverlap };

  static Key KeyOf(const wire::Ipv4View& ip, uint16_t vlan_id);
  Partial* FindOrStart(const Key& key, base::Nanoseconds now);
  Result Drop(packet::Buffer* frame, uint64_t& counter);
  Result KeepWithinLimits(Partial& newest);
  static Placement Place(packet::Buffer* frame, uint32_t end, bool more, Partial& partial);
  ReassembledDatagram TakeWhole(Partial& partial);
  void DropPartial(Partial& partial, uint64_t& counter);
  void Free(Partial& partial);

  const Options options_;
  std::unique_ptr<Partial[]> partials_;
  base::SmallHashMap<Key, Partial> by_key_;
  PartialList by_age_;  // the oldest first; one timeout, so this is the order of deadlines
  PartialList free_;
  size_t held_buffers_ = 0;
  size_t held_bytes_ = 0;
  ReassemblyCounters counters_;
};

// What a reassembled UDP datagram is: kUdp, kNotUdp, kTruncated, kUdpLength or kUdpChecksum, the
// checksum being always verified, for a NIC verified none. When kUdp, fills `flow` and takes the
// UDP header off the chain and what is past the UDP length, releasing emptied buffers. Else the
// chain stays as it is. In both cases it stays the caller's.
wire::FrameVerdict OpenReassembledUdp(ReassembledDatagram& datagram, wire::UdpFlow* flow);

}  // namespace xtreme::ip

#endif  // XTREME_STACK_IP_REASSEMBLY_H_
