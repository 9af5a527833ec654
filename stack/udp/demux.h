// SPDX-License-Identifier: Apache-2.0
//
// Which sockets a received datagram is for.
//
//   unicast     the socket connected to its source, else one bound to the address, else one bound
//   to
//               any address; of several equal ones the last attached
//   multicast   every socket that joined the group on that VLAN, whose source filter admits the
//   source broadcast   every socket bound to that broadcast address or to any address
// A connected socket receives from its peer only. The demux decides and counts who is not served
// and why; it never touches the datagram. It owns no endpoint. One thread. RFC 1122
// section 4.1.3.5, RFC 3376 section 3.
//
//   for (const Binding* b = demux.First(flow, hint); b != nullptr; b = demux.Next(b, flow))
//     Deliver(*b->endpoint);
#ifndef XTREME_STACK_UDP_DEMUX_H_
#define XTREME_STACK_UDP_DEMUX_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "stack/base/counters.h"
#include "stack/base/keyed_set.h"
#include "stack/base/small_hash_map.h"
#include "stack/udp/endpoint.h"
#include "stack/udp/source_filter.h"
#include "stack/wire/address.h"
#include "stack/wire/frame.h"

namespace xtreme::udp {

// Why a datagram is for nobody.
enum class Misaddressed : uint8_t {
  kBadSource,       // a source no host may have: a group, a broadcast, class E, loopback
  kNotLocal,        // a unicast address that is not ours
  kNoSocket,        // ours, and nobody is bound to the port who would take it from this source
  kNotMember,       // a group nobody joined with this port
  kSourceFiltered,  // joined, but no filter admits the source
  kCount,
};

base::CounterName DescribeReason(Misaddressed reason);

// What came of an operation on memberships, as errno says it.
enum class JoinResult : uint8_t {
  kOk,
  kNotMulticast,   // EINVAL
  kAlreadyJoined,  // EADDRINUSE
  kNotJoined,      // EADDRNOTAVAIL
};

// An address of our own, and of which network.
struct LocalAddress {
  wire::Ipv4Prefix prefix;
  uint16_t vlan_id = 0;
  friend bool operator==(const LocalAddress&, const LocalAddress&) = default;
};

class Demux {
 public:
  using LocalAddress = udp::LocalAddress;

  // Tables for `bindings` local addresses and groups, and `connections` connected sockets.
  explicit Demux(size_t bindings = 64, size_t connections = 16)
      : bindings_(bindings), connected_(connections) {}
  // Nobody is attached.
  ~Demux() = default;
  Demux(const Demux&) = delete;
  Demux& operator=(const Demux&) = delete;

  // --- Slow path: these may allocate ---

  // The addresses that sockets bound to any address receive for, with their broadcast addresses.
  // Attached sockets bound to a broadcast address are attached again by the caller when it changes.
  void SetLocalAddresses(std::span<const LocalAddress> addresses);

  // Enters an endpoint with all its groups. It is attached to no demux and stays where it is until
  // Detach.
  void Attach(Endpoint& endpoint);
  // Takes it out; a hint to one of its bindings must not be used again.
  void Detach(Endpoint& endpoint);

  // Changes an endpoint, attached here or not at all. An empty remote disconnects.
  void Rebind(Endpoint& endpoint, const Endpoint::Options& options);
  JoinResult Join(Endpoint& endpoint, wire::Ipv4Address group, uint16_t vlan_id,
                  SourceFilter filter);
  JoinResult SetFilter(Endpoint& endpoint, wire::Ipv4Address group, uint16_t vlan_id,
                       SourceFilter filter);
  JoinResult Leave(Endpoint& endpoint, wire::Ipv4Address group, uint16_t vlan_id);

  // --- Data path ---

  // The first binding whose endpoint gets the datagram, or null, and then the reason is counted.
  // `hint` is null or any binding of an endpoint attached here: believed only where it is right.
  const Binding* First(const wire::UdpFlow& flow, const Binding* hint) {
    const uint64_t key = BindingKey(flow.destination, flow.vlan_id, flow.destination_port);
    if (connected_.size() == 0 && !IsBadSource(flow.source)) [[likely]] {
      if (hint != nullptr && hint->key == key && hint->answers_key) return hint;
      const Binding* head = bindings_.Find({key});
      if (head != nullptr && head->answers_key) return head;
    }
    return Find(flow, key);
  }

  // Whether First gives `binding` for the same flow, and Next nothing after it, counting nothing,
  // until changes() moves on. They did.
  bool IsLasting(const Binding* binding) const {
    if (binding->kind == Binding::Kind::kConnected) return true;
    // Members after it are those whose filters refuse the flow, which count each datagram.
    const bool alone = binding->kind != Binding::Kind::kGroup || binding->next == nullptr;
    return alone && bindings_.Find({binding->key}) == binding;
  }

  // The one after `binding`, which First or Next returned for the same flow; null after the last.
  // To be asked once a binding: whose filter refuses is counted.
  const Binding* Next(const Binding* binding, const wire::UdpFlow& flow) {
    if (binding->kind <= Binding::Kind::kConnected) return nullptr;
    if (binding->kind == Binding::Kind::kGroup && binding->next == nullptr) return nullptr;
    return FindNext(binding, flow);
  }

  // --- Accessors ---

  // Moves on with everything that may change who gets a datagram.
  uint64_t changes() const { return changes_; }
  const uint64_t* changes_counter() const { return &changes_; }
  const base::ReasonCounters<Misaddressed>& misaddressed() const { return misaddressed_; }
  std::span<const LocalAddress> local_addresses() const { return local_addresses_; }
  bool IsLocal(wire::Ipv4Address address) const;
  bool IsBroadcast(wire::Ipv4Address address) const;
  // Whether a socket that is not connected is bound to, or joined, what `key` names.
  bool HasBinding(uint64_t key) const { return bindings_.Find({key}) != nullptr; }
  // Of the tables.
  size_t memory_bytes() const { return bindings_.memory_bytes() + connected_.memory_bytes(); }

 private:
  struct Key {
    uint64_t value = 0;
    static Key Of(const Binding& binding) { return {binding.key}; }
    bool operator==(const Key&) const = default;
    uint64_t Hash() const { return base::MixBits(value); }
  };
  struct ConnectedKey {
    uint64_t local = 0;
    uint64_t remote = 0;
    static ConnectedKey Of(const Binding& binding) {
      const wire::Endpoint& remote = binding.endpoint->remote();
      return {.local = binding.key, .remote = BindingKey(remote.address, 0, remote.port)};
    }
    bool operator==(const ConnectedKey&) const = default;
    uint64_t Hash() const { return base::MixBits(base::MixBits(local) ^ remote); }
  };

  // Multicast, broadcast and class E: 224.0.0.0 to the end; loopback. RFC 1122 sections 4.1.3.6
  // and 3.2.1.3.
  static bool IsBadSource(wire::Ipv4Address source) {
    return source.value() >= 0xE0000000 || source.IsLoopback();
  }

  const Binding* Find(const wire::UdpFlow& flow, uint64_t key);
  const Binding* FindNext(const Binding* binding, const wire::UdpFlow& flow);
  const Binding* FindWildcard(const wire::UdpFlow& flow);
  const Binding* FirstAdmitting(const Binding* binding, const wire::UdpFlow& flow);
  bool Admits(const Binding& binding, const wire::UdpFlow& flow);
  void CountMisaddressed(const wire::UdpFlow& flow, uint64_t key);

  Binding::Kind KindOf(const Endpoint& endpoint) const;
  void LinkLocal(Endpoint& endpoint);
  void LinkGroup(Endpoint& endpoint, Membership& membership);
  void Unlink(Binding& binding);

  // Of each chain the first.
  base::KeyedSet<Key, Binding> bindings_;
  base::KeyedSet<ConnectedKey, Binding> connected_;
  std::vector<LocalAddress> local_addresses_;
  uint64_t changes_ = 1;
  base::ReasonCounters<Misaddressed> misaddressed_;
};

}  // namespace xtreme::udp

#endif  // XTREME_STACK_UDP_DEMUX_H_
