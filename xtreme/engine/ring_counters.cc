// SPDX-License-Identifier: Apache-2.0

#include "xtreme/engine/ring_counters.h"

namespace xtreme::engine {

base::CounterName DescribeReason(Drop reason) {
  static constexpr auto kNames = std::to_array<base::CounterName>({
      {"held_limit", "datagrams above the number of buffers the socket may hold"},
      {"loopback_buffers", "looped-back datagrams for which the pool had no buffer"},
      {"loopback_room", "looped-back datagrams for which the completion fifo had no room"},
      {"loopback_full", "looped-back datagrams for which another ring's queue had no room"},
      {"slow_path_full", "datagrams through the kernel for which a queue on the way had no room"},
      {"slow_path_buffers", "datagrams from the kernel for which the pool had no buffer"},
      {"slow_path_group", "group datagrams from the kernel that the socket did not ask for"},
      {"slow_path_peer", "datagrams from the kernel to a connected socket, not from its peer"},
      {"closed", "datagrams not handed out before their socket was closed"},
      {"neighbour", "queued sends whose next hop never answered"},
      {"send_failed", "queued sends that could not be posted in the end"},
      {"tcp_port", "segments to a TCP port that is not the ring's"},
      {"tcp_rule", "times that TCP's rules could not follow the interface's addresses"},
      {"stray_buffers", "segments that a connection's old ring passed on, and no buffer was free"},
  });
  static_assert(kNames.size() == static_cast<size_t>(Drop::kCount));
  return kNames[static_cast<size_t>(reason)];
}

base::CounterName DescribeReason(Refusal reason) {
  static constexpr auto kNames = std::to_array<base::CounterName>({
      {"refused_neighbour", "sends refused because the next hop is not known"},
      {"refused_sq_full", "sends refused because the send queue was full"},
      {"refused_buffers", "sends refused because the pool had no buffer"},
      {"refused_state", "sends refused because of the state of socket, ring or port"},
      {"refused_size", "sends refused because they are longer than a datagram can be"},
      {"refused_route", "sends refused because no route leads there by this ring"},
      {"refused_window", "sends refused because the peer's window or the send queue was full"},
      {"refused_congestion", "sends refused because the congestion window was full"},
      {"refused_recovery", "sends refused because losses were being repaired"},
  });
  static_assert(kNames.size() == static_cast<size_t>(Refusal::kCount));
  return kNames[static_cast<size_t>(reason)];
}

}  // namespace xtreme::engine
