// SPDX-License-Identifier: Apache-2.0
//
// How a ring makes progress for who can use what came at once: a caller that receives, and
// socketxtreme_poll(), for which what came is written where it is wanted as it is found.
//
// Inlined into both, which have engine::Ring defined. Threads: inside the ring's door.

#ifndef XTREME_API_SOCKETS_PROGRESS_H_
#define XTREME_API_SOCKETS_PROGRESS_H_

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>

#include "api/sockets/real_time.h"
#include "api/sockets/ring_door.h"
#include "api/sockets/socket.h"
#include "stack/packet/buffer_pool.h"

namespace xtreme::sockets {

inline RingDoor* RingDoor::Of(const packet::Buffer& buffer) {
  return static_cast<RingDoor*>(buffer.pool->context());
}

template <typename Ring>
std::span<const engine::Completion> RingDoor::BeginProgress(uint32_t most) {
  behind_ = Behind::kPolling;
  polled_count_ = static_cast<Ring*>(ring_)->Poll(polled_.data(), most, sizeof(engine::Completion));
  return {polled_.data(), polled_count_};
}

template <typename Ring>
packet::Buffer* RingDoor::PollDatagram(const engine::UdpSocket& socket, size_t most) {
  return static_cast<Ring*>(ring_)->TakeDatagram(socket, most);
}

inline void RingDoor::EndProgress(uint32_t first) {
  if (first != polled_count_ || polled_count_ == kBatch) [[unlikely]] GiveFrom(first);
  FinishProgress();
}

inline void RingDoor::FinishProgress() {
  behind_ = Behind::kNo;
  progressed_.store(true, std::memory_order_relaxed);
  if (!claims_.empty()) [[unlikely]] EndClaimsOfNobody();
}

template <typename Ring>
RingDoor::Linked RingDoor::PollLinks(uint32_t most, completion::LinkCompletion* out) {
  // Behind what waits they would be out of order.
  if (behind() || !happenings_.empty()) [[unlikely]] return {0, true};
  const auto linked = static_cast<Ring*>(ring_)->PollLinks(out, most);
  FinishProgress();
  return {linked.count, linked.rest};
}

template <typename Sink>
uint32_t RingDoor::PollPackets(uint32_t most, Sink sink) {
  if (!CatchUp() || !happenings_.empty()) return 0;
  const std::span<const engine::Completion> polled = BeginProgress(std::min(most, kBatch));
  if (!polled.empty() && !real_clock_->IsFresh(polled.front().poll_tsc)) FollowRealTime();
  uint32_t taken = 0;
  const auto end = polled.end();
  for (auto next = polled.begin(); next != end;) {
    const engine::Handle handle = next->socket;
    Socket* const socket = next->kind == engine::Kind::kPacket ? Find(handle) : nullptr;
    // Behind what waits it would be out of order.
    if (socket == nullptr || !socket->HandsOn() || !happenings_.empty()) [[unlikely]] {
      Give(*next++);
      continue;
    }
    // What goes for the first goes for all that come for the same socket in a row.
    const auto first = next;
    uint64_t bytes = 0;
    uint16_t flags = 0;
    do {
      bytes += next->length;
      flags |= next->flags;
      sink(*next, socket->user_data);
      ++next;
    } while (next != end && next->socket == handle && next->kind == engine::Kind::kPacket);
    socket->CountReceived({first, next}, bytes, flags);
    taken += static_cast<uint32_t>(next - first);
  }
  if (!later_.empty()) [[unlikely]] GiveLater();
  FinishProgress();
  return taken;
}

// Whoever watches is told, so it has to be there.
inline bool Socket::IsForCall(const engine::Completion& first) const {
  return first.kind == engine::Kind::kPacket && first.socket == handle_ && !watched();
}

[[gnu::always_inline]] inline ssize_t Socket::TakeDatagram(RingDoor* door,
                                                           packet::Buffer* datagram,
                                                           std::span<uint8_t> to,
                                                           Arrived* about) {
  const uint32_t length = datagram->length;
  if (about != nullptr) *about = {SourceOf(*datagram), length};
  memcpy(to.data(), datagram->data, length);
  packet::BufferPool::ReleaseByOwner(datagram);
  door->FinishProgress();
  return length;
}

[[gnu::always_inline]] inline ssize_t Socket::TakeArriving(RingDoor* door,
                                                           std::span<uint8_t> to,
                                                           Arrived* about) {
  // Of a datagram that is gone again nobody who watches is told: nothing is to be found.
  if (udp_socket_ != nullptr) {
    packet::Buffer* const datagram = door->PollDatagram(*udp_socket_, to.size());
    if (datagram != nullptr) [[likely]] return TakeDatagram(door, datagram, to, about);
  }
  const std::span<const engine::Completion> polled = door->BeginProgress();
  if (polled.empty()) {
    door->FinishProgress();
    return -EAGAIN;
  }
  const engine::Completion& first = polled.front();
  const bool is_all = polled.size() == 1 && IsForCall(first) && first.length <= to.size() &&
                      (first.flags & engine::kSlowPath) == 0 && first.buffer->next == nullptr;
  if (!is_all) [[unlikely]] return TakeFirst(door, to, about);
  const uint32_t length = first.length;
  if (about != nullptr) *about = {SourceOf(first), length};
  memcpy(to.data(), first.data, length);
  if (stream_ != nullptr) {
    ++counters_.received;
    counters_.received_bytes += length;
    ReleaseRead(door, first.buffer);
  } else {
    packet::BufferPool::ReleaseByOwner(first.buffer);
  }
  door->FinishProgress();
  return length;
}

}  // namespace xtreme::sockets

#endif  // XTREME_API_SOCKETS_PROGRESS_H_
