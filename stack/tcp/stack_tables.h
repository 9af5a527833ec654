// SPDX-License-Identifier: Apache-2.0
//
// What a Stack holds: its connections, listeners, and the tables and pools they share. Sized at
// construction. One thread.
#ifndef XTREME_STACK_TCP_STACK_TABLES_H_
#define XTREME_STACK_TCP_STACK_TABLES_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "stack/base/intrusive_list.h"
#include "stack/base/small_hash_map.h"
#include "stack/base/timer_wheel.h"
#include "stack/tcp/connection.h"
#include "stack/tcp/demux.h"
#include "stack/tcp/fifo.h"
#include "stack/tcp/isn.h"
#include "stack/tcp/stack.h"
#include "stack/tcp/syn_cookie.h"
#include "stack/tcp/syn_queue.h"
#include "stack/tcp/time_wait.h"
#include "stack/tcp/token_bucket.h"

namespace xtreme::tcp {

// RFC 9293 section 3.10.7.2: a place where SYNs are welcome.
struct Listener {
  static Listener Of(const Stack::Listen& listen) {
    Listener listener{.listen = listen};
    const uint32_t syns = listen.syns_per_second;
    if (syns != 0) listener.syn_limit.emplace(syns, syns);
    return listener;
  }
  // By TakeEvent.
  void Took() { waiting -= listen.holds ? 0 : 1; }

  Stack::Listen listen;
  std::optional<TokenBucket> syn_limit;
  bool closed = false;   // was hushed, and its place still is
  uint32_t waiting = 0;  // accepted, and not yet taken by TakeEvent, or by TookOne
  // When a cookie was sent last: before that no acknowledgement can bring one back.
  base::Nanoseconds cookies_until{INT64_MIN};
};

struct StackTables {
  StackTables(const Stack::Options& options, base::Nanoseconds now);

  // Where a listener stands: address, VLAN and port in one word.
  struct Place {
    uint64_t value = 0;
    static Place Of(const wire::Endpoint& local, uint16_t vlan_id) {
      return {uint64_t{local.address.value()} << 32 | uint64_t{vlan_id} << 16 | local.port};
    }
    uint64_t Hash() const { return base::MixBits(value); }
    friend bool operator==(const Place&, const Place&) = default;
  };

  struct Delivery {
    Connection* connection = nullptr;  // null: dropped meanwhile
    packet::Buffer* chain = nullptr;
    uint32_t bytes = 0;
    uint64_t stamp = 0;
  };
  struct Done {
    Connection* connection = nullptr;
    uint64_t cookie = 0;
    bool cancelled = false;
  };

  // The reset of a connection that is no more, which the device had no room for.
  struct OwedReset {
    wire::TcpTemplate headers;
    Outgoing reset;
  };
  static constexpr uint32_t kMostOwedResets = 1024;

  using News = base::IntrusiveList<Connection, &Connection::news_hook_>;
  using Blocked = base::IntrusiveList<Connection, &Connection::blocked_hook_>;
  using Starved = base::IntrusiveList<Connection, &Connection::starved_hook_>;
  // A place for a connection.
  union alignas(64) Slot {
    std::array<std::byte, sizeof(Connection)> bytes;
    Slot* next_free;  // null: the last free one
  };

  size_t memory_bytes() const;
  // Of what was allocated for the tables, all but the indices of SYNs and TIME-WAIT by flow.
  std::vector<std::span<std::byte>> memory();

  // Every connection that is not released. Slow path.
  std::vector<Connection*> InUse();

  const Stack::Options options;
  SegmentPool segments;
  ReassemblyStore reassembly;
  std::unique_ptr<Slot[]> slots;
  Slot* first_free = nullptr;
  uint32_t slots_in_use = 0;
  Demux<Connection> demux;
  // Those of the demultiplexer that received last, by FlowKey::Place; null: none.
  static constexpr uint32_t kRecent = 64;
  std::array<Connection*, kRecent> recent{};
  std::vector<std::unique_ptr<Listener>> listeners;
  base::SmallHashMap<Place, Listener> places;
  base::SmallHashMap<FlowKey, Onward> departed;  // of connections that moved away
  SynQueue syns;
  SynCookie cookie;
  InitialSequence initial_sequence;
  TimeWait time_wait;
  base::TimerWheel wheel;
  TokenBucket syn_limit;
  TokenBucket reset_limit;
  News news;        // connections with something to tell
  Blocked blocked;  // those that the device refused
  Starved starved;  // those whose sends were refused for want of memory
  base::Timer starved_timer;  // armed while there are any
  Fifo<Delivery> deliveries;
  Fifo<Done> dones;
  Fifo<OwedReset> owed_resets;
  uint32_t dones_promised = 0;  // sends that will end in a Done
};

inline bool Stack::HasEvents() const {
  return !tables_->news.empty() || !tables_->deliveries.empty() || !tables_->dones.empty();
}

// What the headers of a connection, or of one answer, say.
[[gnu::always_inline]] inline wire::TcpTemplate::Fields FieldsOf(const FlowKey& key,
                                                                 const LinkPath& path,
                                                                 bool timestamps) {
  std::optional<wire::VlanTag> tag;
  if (path.vlan_tci) tag = wire::VlanTag::FromTci(*path.vlan_tci);
  return {.destination_mac = path.peer,
          .source_mac = path.local,
          .vlan = tag,
          .destination = key.remote(),
          .source = key.local(),
          .ttl = path.ttl,
          .tos = path.tos,
          .timestamps = timestamps};
}

}  // namespace xtreme::tcp

#endif  // XTREME_STACK_TCP_STACK_TABLES_H_
