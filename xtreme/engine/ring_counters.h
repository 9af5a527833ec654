// SPDX-License-Identifier: Apache-2.0
//
// The counters of a ring: what the engine did, what it dropped and why, what it refused and why.

#ifndef XTREME_XTREME_ENGINE_RING_COUNTERS_H_
#define XTREME_XTREME_ENGINE_RING_COUNTERS_H_

#include <array>
#include <cstdint>

#include "stack/base/counters.h"

namespace xtreme::completion {
enum class SendResult : int;
}

namespace xtreme::engine {

// Why the engine, not a header's parser nor the demultiplexer, lost a datagram.
enum class Drop : uint8_t {
  kHeldLimit,        // The socket's max_held.
  kLoopbackBuffers,  // No buffer for a looped-back copy.
  kLoopbackRoom,     // No room in the completion FIFO for one.
  kLoopbackFull,     // Another ring of the process did not take it up.
  kSlowPathFull,     // The kernel's queue behind a port, or the way from there, was full.
  kSlowPathBuffers,  // No buffer for a datagram that came through the kernel.
  kSlowPathGroup,    // To a group that the socket did not join here, or from an unwanted source.
  kSlowPathPeer,     // Not from the peer of a connected socket, or not to its address.
  kClosed,           // Not handed out before its socket was closed.
  kNeighbour,        // A queued send whose next hop never answered.
  kSendFailed,       // A queued send that could not be posted in the end.
  kTcpPort,          // A segment to a port that no listener or connection of the ring has.
  kTcpRule,          // Rules that could not follow the addresses of the interface.
  kStrayBuffers,     // A segment that a connection's old ring passed on, and no buffer for it.
  kCount,
};

base::CounterName DescribeReason(Drop reason);

// Sends by what was wrong, in the order of SendResult, negated, less 1.
enum class Refusal : uint8_t {
  kNeighbour,
  kSqFull,
  kBuffers,
  kState,
  kSize,
  kRoute,
  kWindow,
  kCongestion,
  kRecovery,
  kCount,
};

base::CounterName DescribeReason(Refusal reason);
inline Refusal RefusalOf(completion::SendResult result) {
  return static_cast<Refusal>(-static_cast<int>(result) - 1);
}

// What the port lost while the ring was open, of whatever program.
struct PortLosses {
  uint64_t out_of_buffer = 0;
  uint64_t discards = 0;

  static constexpr auto Table() {
    using P = PortLosses;
    return std::to_array<base::CounterDescriptor<P>>({
        {"out_of_buffer", "frames for queues with nothing posted, of all programs on the port",
         &P::out_of_buffer},
        {"discards", "frames the port dropped before any queue, of all programs on the port",
         &P::discards},
    });
  }
};
static_assert(base::DescribesEveryCounter<PortLosses>());

struct RingCounters {
  uint64_t packets = 0;
  uint64_t slow_path = 0;
  uint64_t loopback = 0;
  uint64_t shared = 0;
  uint64_t sends_queued = 0;
  uint64_t fragments_sent = 0;
  uint64_t arp_requests = 0;
  uint64_t timers = 0;
  uint64_t timers_forced = 0;
  uint64_t notices = 0;
  uint64_t posted = 0;
  uint64_t fired = 0;
  uint64_t fallback_rules = 0;
  uint64_t pool_low = 0;
  uint64_t page_faults = 0;
  uint64_t resets = 0;
  uint64_t moves = 0;
  uint64_t link_downs = 0;
  uint64_t removals = 0;
  uint64_t queues_stopped = 0;
  uint64_t left_port_drops = 0;
  uint64_t rules_not_left = 0;
  uint64_t sightings_lost = 0;

  static constexpr auto Table() {
    using C = RingCounters;
    return std::to_array<base::CounterDescriptor<C>>({
        {"packets", "PACKET completions from the receive queue", &C::packets},
        {"slow_path", "datagrams that came through the kernel", &C::slow_path},
        {"loopback", "own multicast given to own listeners", &C::loopback},
        {"shared", "datagrams that went to more than one socket", &C::shared},
        {"sends_queued", "sends that waited for a neighbour", &C::sends_queued},
        {"fragments_sent", "IPv4 fragments sent", &C::fragments_sent},
        {"arp_requests", "ARP requests sent", &C::arp_requests},
        {"timers", "timers that fired", &C::timers},
        {"timers_forced", "timers that fired although the receive queue was never seen empty",
         &C::timers_forced},
        {"notices", "results and news from other threads", &C::notices},
        {"posted", "values that other threads posted", &C::posted},
        {"fired", "prepared sends that other threads fired, refused ones included", &C::fired},
        {"fallback_rules", "shared rules used because the device's table was full",
         &C::fallback_rules},
        {"pool_low", "times the pool ran low", &C::pool_low},
        {"page_faults", "page faults of the owner thread after Start()", &C::page_faults},
        {"resets", "times the ring got new queues", &C::resets},
        {"moves", "times it went over to its other port", &C::moves},
        {"link_downs", "times a port of it went down", &C::link_downs},
        {"removals", "devices or interfaces of it that are gone", &C::removals},
        {"queues_stopped", "times a queue stopped, which a reset mends", &C::queues_stopped},
        {"left_port_drops",
         "out_of_buffer of the port that it left, while TCP's rules stayed there",
         &C::left_port_drops},
        {"rules_not_left", "rules of TCP that could not stay at the port that it left",
         &C::rules_not_left},
        {"sightings_lost", "sightings of neighbours that found too many waiting for the ring",
         &C::sightings_lost},
    });
  }
};
static_assert(base::DescribesEveryCounter<RingCounters>());

}  // namespace xtreme::engine

#endif  // XTREME_XTREME_ENGINE_RING_COUNTERS_H_
