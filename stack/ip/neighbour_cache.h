// SPDX-License-Identifier: Apache-2.0
//
// Which MAC address a next hop on one link has, and what waits until it is known. RFC 826,
// RFC 1122 section 2.3.2.
//
// Sans I/O: calls tell the cache what happened; `Next` tells what is to be done, one action at a
// time, until there is none. The invariant: a packet handed to `Enqueue` and accepted comes back
// exactly once, in a kTransmit or a kUnreachable. A neighbour in use is asked again, by unicast,
// before its entry expires, so a flow does not stall for it. Nothing is allocated after
// construction. One thread.
#ifndef XTREME_STACK_IP_NEIGHBOUR_CACHE_H_
#define XTREME_STACK_IP_NEIGHBOUR_CACHE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "stack/base/counters.h"
#include "stack/base/small_hash_map.h"
#include "stack/base/time.h"
#include "stack/wire/address.h"
#include "stack/wire/arp.h"

namespace xtreme::ip {

struct NeighbourCounters {
  uint64_t requests = 0;
  uint64_t probes = 0;
  uint64_t answers = 0;
  uint64_t answers_dropped = 0;
  uint64_t resolved = 0;
  uint64_t changed = 0;
  uint64_t failed = 0;
  uint64_t queue_full = 0;
  uint64_t table_full = 0;
  uint64_t evicted = 0;
  uint64_t ignored = 0;
  uint64_t unused = 0;

  static constexpr auto Table() {
    using N = NeighbourCounters;
    return std::to_array<base::CounterDescriptor<N>>({
        {"requests", "broadcast ARP requests asked to be sent", &N::requests},
        {"probes", "unicast ARP requests to a neighbour about to expire", &N::probes},
        {"answers", "ARP replies to requests for our address", &N::answers},
        {"answers_dropped", "requests not answered because too many waited", &N::answers_dropped},
        {"resolved", "neighbours whose address became known", &N::resolved},
        {"changed", "neighbours that were seen at another MAC address", &N::changed},
        {"failed", "neighbours that did not answer", &N::failed},
        {"queue_full", "packets refused because too many waited for the neighbour", &N::queue_full},
        {"table_full", "next hops refused because every entry was in use", &N::table_full},
        {"evicted", "neighbours forgotten before their time to make room", &N::evicted},
        {"ignored", "ARP packets that concern nobody here or name an impossible sender",
         &N::ignored},
        {"unused", "neighbours that the kernel knows, forgotten as nobody sent to them",
         &N::unused},
    });
  }
};
static_assert(base::DescribesEveryCounter<NeighbourCounters>());

class NeighbourCache {
 public:
  struct Options {
    wire::MacAddress mac;       // ours
    wire::Ipv4Address address;  // ours, the sender of requests
    // For a wire without a kernel: answer requests for `address`.
    bool answer_requests = false;
    size_t entries = 256;
    size_t queue_packets = 4;  // a neighbour
    // At most one request a second to a neighbour: RFC 1122 section 2.3.2.1.
    base::Nanoseconds request_interval = base::Seconds(1);
    int requests = 3;  // without answer: the neighbour has failed
    // How long an answer is good, and how long before its end it is asked for again.
    base::Nanoseconds lifetime = base::Seconds(30);
    base::Nanoseconds probe_ahead = base::Seconds(5);
    // How long a failed neighbour that nothing is to be sent to is known as such: until then nobody
    // who only looks has it asked for.
    base::Nanoseconds failure_hold = base::Seconds(3);
  };

  enum class Status : uint8_t {
    kReachable,    // `mac` is good
    kPending,      // asked for; an accepted packet waits
    kUnreachable,  // EHOSTUNREACH: it did not answer, lately
    kQueueFull,    // the packet was not accepted
    kTableFull,    // the packet was not accepted
  };
  struct Resolution {
    Status status = Status::kPending;
    wire::MacAddress mac;
  };

  // What waits for a neighbour; callers derive from it. From Enqueue's kPending until it comes back
  // it is the cache's.
  struct Packet {
    Packet* next = nullptr;
  };

  struct Action {
    enum class Kind : uint8_t {
      kNone,
      kSendArp,      // emit `arp` in a frame to `mac`
      kTransmit,     // send `packet` to `mac`
      kUnreachable,  // `packet` cannot be sent: EHOSTUNREACH for `address`
      kResolved,     // `address` is at `mac`, newly or changed: headers of its flows are patched
      kLost,         // `address` has failed; `mac`: where it was, zero when it never answered
    };
    Kind kind = Kind::kNone;
    wire::Ipv4Address address;
    wire::MacAddress mac;
    wire::ArpRepr arp;
    Packet* packet = nullptr;
  };

  explicit NeighbourCache(const Options& options);
  NeighbourCache(const NeighbourCache&) = delete;
  NeighbourCache& operator=(const NeighbourCache&) = delete;

  // --- What the caller wants ---

  // The MAC address of `next_hop`; begins to ask for it when it is not known.
  Resolution Resolve(wire::Ipv4Address next_hop, base::Nanoseconds now);
  // The same for what is to be sent: a neighbour that failed is asked for anew, once what waited
  // for it has come back. As Linux does with NUD_FAILED.
  Resolution ResolveToSend(wire::Ipv4Address next_hop, base::Nanoseconds now);
  // The same, and with kPending `packet` waits; with every other status it remains the caller's.
  Resolution Enqueue(wire::Ipv4Address next_hop, Packet* packet, base::Nanoseconds now);
  // Resolve() of a neighbour that somebody else, who may be wrong, knows to be at `seed`: believed,
  // and asked for in time, like one that answered. None: it has not answered, or no entry is free;
  // `seed` is as good as anything then.
  std::optional<wire::MacAddress> ResolveFrom(wire::Ipv4Address next_hop, wire::MacAddress seed,
                                              base::Nanoseconds now);
  // How many packets more may wait for `next_hop`, which was resolved; 0 while it is unreachable.
  size_t QueueRoom(wire::Ipv4Address next_hop) const;
  bool Knows(wire::Ipv4Address address) const { return Find(address) != nullptr; }
  // A pinned neighbour is kept known as if always in use. Resolve does not undo it. False: no room.
  bool Pin(wire::Ipv4Address next_hop, base::Nanoseconds now);
  void Unpin(wire::Ipv4Address next_hop);

  // --- What was seen ---

  // An ARP packet from the wire.
  void OnArp(const wire::ArpView& arp, base::Nanoseconds now);
  // Somebody who knows (the kernel, a sighting of a reply) says that `address` is at `mac`. It
  // updates an entry; it makes none. Whether there is one, and `mac` can be a host's.
  bool Confirm(wire::Ipv4Address address, wire::MacAddress mac, base::Nanoseconds now);
  // Who knows, and may be wrong, says so: believed only when it is new. Whether it was.
  bool Adopt(wire::Ipv4Address address, wire::MacAddress seed, base::Nanoseconds now);
  // What is known about `address` is wrong: it is asked for again when it is in use, else
  // forgotten.
  void Invalidate(wire::Ipv4Address address, base::Nanoseconds now);

  // --- What is to be done ---

  // The next action at `now`, or kNone.
  Action Next(base::Nanoseconds now);
  // When Next will have something even if nothing is seen until then.
  base::Nanoseconds NextDeadline() const { return has_work_ ? kNow : deadline_; }

  const NeighbourCounters& counters() const { return counters_; }

 private:
  static constexpr base::Nanoseconds kNow{0};
  static constexpr size_t kMaxAnswers = 8;

  enum class State : uint8_t {
    kFree,
    kIncomplete,  // broadcast requests are under way
    kReachable,
    kProbing,  // still good; unicast requests are under way
    kFailed,
  };

  struct Entry {
    wire::Ipv4Address address;
    wire::MacAddress mac;
    wire::MacAddress seed;  // As somebody else last said; zero: nobody did.
    State state = State::kFree;
    bool pinned = false;
    bool used = false;         // since the last confirmation
    bool request_due = false;  // what Next has to say of it
    bool resolved_due = false;
    bool lost_due = false;
    uint8_t requests_left = 0;
    uint32_t waiting = 0;  // packets from `first` to `last`
    base::Nanoseconds deadline = base::kNever;
    base::Nanoseconds expiry = base::kNever;
    Packet* first = nullptr;
    Packet* last = nullptr;

    bool Waits() const { return first != nullptr; }
    bool Idle() const { return !pinned && !Waits() && !request_due && !resolved_due && !lost_due; }
  };
  struct Key {
    uint32_t value = 0;
    bool operator==(const Key&) const = default;
    uint64_t Hash() const { return base::MixBits(value); }
  };

  Entry* Find(wire::Ipv4Address address) const { return by_address_.Find({address.value()}); }
  Entry* FindOrAdd(wire::Ipv4Address address, base::Nanoseconds now);
  Entry* Add(wire::Ipv4Address address, Entry* free);
  Entry* FindFree();
  Entry* TakeFree();
  void Free(Entry& entry);
  void Forget(Entry& entry);
  static void Append(Entry& entry, Packet* packet);
  static Packet* TakeFirst(Entry& entry);
  void StartAsking(Entry& entry, base::Nanoseconds now);
  void Learn(Entry& entry, wire::MacAddress mac, base::Nanoseconds now);
  void Believe(Entry& entry, base::Nanoseconds now);
  void OnDeadline(Entry& entry, base::Nanoseconds now);
  void Ask(Entry& entry, base::Nanoseconds now);
  void Fail(Entry& entry, base::Nanoseconds now);
  void Arm(Entry& entry, base::Nanoseconds deadline);
  void FindEarliestDeadline();
  void FireDeadlines(base::Nanoseconds now);
  Action ActionOf(Entry& entry);
  Action Request(Entry& entry);
  Action Answer();

  const Options options_;
  std::unique_ptr<Entry[]> entries_;
  base::SmallHashMap<Key, Entry> by_address_;
  std::array<wire::ArpRepr, kMaxAnswers> answers_{};
  size_t answers_waiting_ = 0;
  bool has_work_ = false;
  base::Nanoseconds deadline_ = base::kNever;  // not after the earliest of the entries'
  NeighbourCounters counters_;
};

}  // namespace xtreme::ip

#endif  // XTREME_STACK_IP_NEIGHBOUR_CACHE_H_
