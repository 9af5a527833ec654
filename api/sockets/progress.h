// SPDX-License-Identifier: Apache-2.0
//
// How a ring makes progress for who can use what came at once: a caller that receives, and
// socketxtreme_poll(), for which what came is written where it is wanted as it is found.
//
// Inlined into both. Threads: inside the ring's door.

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

inline void RingDoor::EndProgress(uint32_t first) {
  if (first != polled_count_ || polled_count_ == kBatch) [[unlikely]] GiveFrom(first);
  FinishProgress();
}

inline void RingDoor::FinishProgress() {
  polling_ = false;
  progressed_.store(true, std::memory_order_relaxed);
  if (!claims_.empty()) [[unlikely]] EndClaimsOfNobody();
}

template <typename Sink>
uint32_t RingDoor::PollPackets(uint32_t most, const Sink& sink) {
  if (polling_ || !happenings_.empty()) return 0;
  const std::span<const engine::Completion> polled = BeginProgress(std::min(most, kBatch));
  if (!polled.empty() && !real_clock_->IsFresh(polled.front().poll_tsc)) FollowRealTime();
  uint32_t taken = 0;
  for (const engine::Completion& completion : polled) {
    Socket* const socket =
        completion.kind == engine::Kind::kPacket ? Find(completion.socket) : nullptr;
    // Behind what waits it would be out of order.
    if (socket == nullptr || !socket->HandsOn() || !happenings_.empty()) [[unlikely]] {
      Give(completion);
      continue;
    }
    socket->CountReceived(completion);
    sink(completion, socket->user_data);
    ++taken;
  }
  if (!later_.empty()) [[unlikely]] GiveLater();
  FinishProgress();
  return taken;
}

[[gnu::always_inline]] inline size_t Socket::TakeArrived(const engine::Completion& packet,
                                                         std::span<uint8_t> to) {
  CountReceived(packet);
  const size_t copied = std::min<size_t>(to.size(), packet.length);
  const bool leaves = stream_ != nullptr && copied < packet.length;
  if (packet.buffer->next == nullptr && !leaves) [[likely]] {
    memcpy(to.data(), packet.data, copied);
    packet::BufferPool::ReleaseByOwner(packet.buffer);
    return copied;
  }
  Received received = ReceivedFrom(packet);
  CopyOut(received, to.data(), to.size());
  if (!leaves) {
    Release(&received);
  } else {
    TakeFront(&received, copied);
    Queue(received);
  }
  return copied;
}

[[gnu::always_inline]] inline ssize_t Socket::TakeArriving(RingDoor* door,
                                                           std::span<uint8_t> to, Arrived* about,
                                                           std::shared_ptr<Socket>* held) {
  if (door->polling()) [[unlikely]] return kLongWay;
  const std::span<const engine::Completion> polled = door->BeginProgress();
  if (polled.empty()) {
    door->EndProgress(0);
    return -EAGAIN;
  }
  const engine::Completion& first = polled.front();
  // Whoever watches is told, so it has to be there. A connection's next bytes belong to this call.
  const bool takes = first.kind == engine::Kind::kPacket && first.socket == handle_ &&
                     !watched() && (stream_ == nullptr || polled.size() == 1);
  if (!takes) {
    if (held != nullptr) *held = shared_from_this();
    door->EndProgress(0);
    return kLongWay;
  }
  about->source = {wire::Ipv4Address::Load(first.source_ip.data() + 12), first.source_port};
  about->length = first.length;
  const size_t copied = TakeArrived(first, to);
  door->EndProgress(1);
  return static_cast<ssize_t>(copied);
}

}  // namespace xtreme::sockets

#endif  // XTREME_API_SOCKETS_PROGRESS_H_
