// SPDX-License-Identifier: Apache-2.0
//
// The UDP part of a socket: its local end, the peer it is connected to, the groups it joined.
//
// An endpoint is reached through its bindings, one for its local address and one for each group; a
// `Demux` chains those of equal address, port and VLAN. The invariant: while the endpoint is
// attached to a demux, every binding that can receive is in one chain of that demux, and nothing
// that decides about receiving changes except through the demux. Addresses and ports in host order.
// One thread.
#ifndef XTREME_STACK_UDP_ENDPOINT_H_
#define XTREME_STACK_UDP_ENDPOINT_H_

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "stack/base/counters.h"
#include "stack/udp/source_filter.h"
#include "stack/wire/address.h"
#include "stack/wire/frame.h"

namespace xtreme::udp {

class Demux;
class Endpoint;

// A VLAN id for sockets that receive from every VLAN.
inline constexpr uint16_t kAnyVlan = 0xFFFF;

// What a lookup compares: address, VLAN id and port in one word.
constexpr uint64_t BindingKey(wire::Ipv4Address address, uint16_t vlan_id, uint16_t port) {
  return uint64_t{address.value()} << 32 | uint32_t{vlan_id} << 16 | port;
}

// One way by which datagrams reach an endpoint.
struct Binding {
  enum class Kind : uint8_t {
    kUnicast,    // a local address: one endpoint gets the datagram
    kConnected,  // a local address and a peer: one endpoint
    kWildcard,   // any local address: one endpoint for unicast, all for broadcast
    kBroadcast,  // a broadcast address: all endpoints
    kGroup,      // a joined group: all endpoints
  };

  uint64_t key = 0;
  Binding* next = nullptr;  // in the chain of this key
  Endpoint* endpoint = nullptr;
  Kind kind = Kind::kUnicast;
  bool linked = false;      // in a chain
  bool admits_all = false;  // no look at the source is needed
  // Heads the chain of its key and admits all: the right answer whenever the key is equal.
  bool answers_key = false;
  uint16_t vlan_id = 0;     // of the interface
};

// A group that was joined. Its binding is of kind kGroup, and no other in a chain is.
struct Membership : Binding {
  wire::Ipv4Address group;
  SourceFilter filter;
};

struct EndpointCounters {
  uint64_t datagrams = 0;
  uint64_t bytes = 0;

  static constexpr auto Table() {
    using E = EndpointCounters;
    return std::to_array<base::CounterDescriptor<E>>({
        {"datagrams", "datagrams received", &E::datagrams},
        {"bytes", "payload bytes of those datagrams", &E::bytes},
    });
  }
};
static_assert(base::DescribesEveryCounter<EndpointCounters>());

struct GroupCounters {
  uint64_t source_filtered = 0;

  static constexpr auto Table() {
    using G = GroupCounters;
    return std::to_array<base::CounterDescriptor<G>>({
        {"source_filtered", "group datagrams from sources the filter refuses", &G::source_filtered},
    });
  }
};
static_assert(base::DescribesEveryCounter<GroupCounters>());

// What an endpoint has from its first join on: there are many sockets, and most join nothing.
struct JoinedGroups {
  std::vector<std::unique_ptr<Membership>> memberships;  // Whose bindings must not move.
  GroupCounters counters;
};

class Endpoint {
 public:
  struct Options {
    wire::Endpoint local;   // any address: every local one; a group: nothing but joined groups
    wire::Endpoint remote;  // port 0: not connected
    uint16_t vlan_id = 0;   // of the interface; kAnyVlan only with an address of Any
  };

  explicit Endpoint(const Options& options) { Become(options); }
  // Not attached.
  ~Endpoint() = default;
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  const wire::Endpoint& local() const { return local_; }
  const wire::Endpoint& remote() const { return remote_; }
  uint16_t vlan_id() const { return binding_.vlan_id; }
  bool connected() const { return remote_.port != 0; }
  bool attached() const { return attached_; }

  // Whether a datagram from there may reach a socket connected to remote().
  bool IsPeer(const wire::UdpFlow& flow) const {
    return flow.source == remote_.address && flow.source_port == remote_.port;
  }

  // The joined groups, in the order of joining.
  std::span<const std::unique_ptr<Membership>> memberships() const {
    if (groups_ == nullptr) return {};
    return groups_->memberships;
  }
  // Null when `group` was not joined on that VLAN.
  const Membership* FindMembership(wire::Ipv4Address group, uint16_t vlan_id) const {
    for (const std::unique_ptr<Membership>& membership : memberships()) {
      if (membership->group == group && membership->vlan_id == vlan_id) return membership.get();
    }
    return nullptr;
  }

  // The binding of local(): the hint for flows whose rule carries this socket's tag.
  const Binding& binding() const { return binding_; }

  EndpointCounters& counters() { return counters_; }
  const EndpointCounters& counters() const { return counters_; }
  const GroupCounters& group_counters() const {
    static constexpr GroupCounters kNone;
    return groups_ == nullptr ? kNone : groups_->counters;
  }

  void CountReceived(uint32_t payload_bytes) {
    ++counters_.datagrams;
    counters_.bytes += payload_bytes;
  }

 private:
  friend class Demux;

  void Become(const Options& options) {
    local_ = options.local;
    remote_ = options.remote;
    binding_.vlan_id = options.vlan_id;
  }

  Binding binding_;
  EndpointCounters counters_;
  std::unique_ptr<JoinedGroups> groups_;  // Null: nothing was ever joined.
  wire::Endpoint local_;
  wire::Endpoint remote_;
  bool attached_ = false;  // To a demux.
};

}  // namespace xtreme::udp

#endif  // XTREME_STACK_UDP_ENDPOINT_H_
