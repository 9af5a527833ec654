// SPDX-License-Identifier: Apache-2.0
//
// Received: what came for a socket, in the buffers that the NIC wrote; ReceiveRequest: who asks;
// SocketCounters: how much came and went.
//
// Invariant: each link of the chain from `buffer` on holds one reference of whoever has the
// Received. Byte order: endpoints host. Threads: a plain value; references inside the ring's door.

#ifndef XTREME_API_SOCKETS_RECEIVED_H_
#define XTREME_API_SOCKETS_RECEIVED_H_

#include <sys/uio.h>

#include <cstdint>
#include <ctime>
#include <span>

#include "stack/packet/buffer.h"
#include "stack/wire/address.h"
#include "xtreme/engine/completion.h"

namespace xtreme::sockets {

class RingDoor;
class Socket;

struct Received {
  packet::Buffer* buffer = nullptr;  // First link; null: none.
  uint8_t* data = nullptr;           // First byte not taken yet, in the first link.
  uint32_t length = 0;               // From there on, over all links.
  uint32_t interface_index = 0;
  wire::Endpoint source;
  wire::Endpoint destination;
  int64_t hw_time_ns = 0;            // CLOCK_MONOTONIC, or the NIC's PTP clock; 0: none.
  bool on_ptp = false;               // Which of them.
  uint32_t dropped = 0;              // Datagrams that its socket had no room for, before it.
  timespec arrival{};                // CLOCK_REALTIME at the poll that took it; 0: not asked.
};

// A receive call: where to, and what came with it.
struct ReceiveRequest {
  std::span<const iovec> to;
  int flags = 0;              // Of recv(2).
  Received* took = nullptr;   // Not null: hands the packet over instead of copying it,
  size_t most_links = 0;      // if it has no more than these; else -ENOBUFS, and it stays.
  // Out.
  Received about;             // Addresses, times; its buffer is not to be used.
  int message_flags = 0;      // MSG_TRUNC.
};

// Counts that change together stand apart: a compiler that moves two as a vector takes longer.
struct SocketCounters {
  uint64_t received = 0;
  uint64_t sent = 0;
  uint64_t received_bytes = 0;
  uint64_t sent_bytes = 0;
  uint64_t dummies = 0;       // Sent to no wire.
  uint64_t dropped = 0;       // The queue was full.
  uint64_t by_callback = 0;   // A receive callback dropped or held it.
  uint64_t slow_path = 0;     // Came through the kernel.
};

inline wire::Endpoint SourceOf(const engine::Completion& completion) {
  return {wire::Ipv4Address::Load(completion.source_ip.data() + 12), completion.source_port};
}
// Of a plain datagram, by its headers, which stand before it.
wire::Endpoint SourceOf(const packet::Buffer& datagram);
Received ReceivedFrom(const engine::Completion& completion);

inline packet::ChainBytes BytesOf(const Received& received) {
  return {received.buffer, received.data, received.length};
}
// Copies up to `size` bytes; how many. Takes nothing.
size_t CopyOut(const Received& received, void* to, size_t size);
// Passes over `count` bytes, fewer than its length, and releases nothing.
void PassOver(Received* received, size_t count);
// Drops `count` bytes, at most its length, at the front; links that are empty then are released.
void TakeFront(Received* received, size_t count);
// Gives its references back.
void Release(Received* received);

// Beside epoll's bits, as VMA has them.
inline constexpr uint64_t kPacketHappened = uint64_t{1} << 32;
inline constexpr uint64_t kAcceptedHappened = uint64_t{1} << 33;

// One entry of what socketxtreme_poll() hands out.
struct Happening {
  Socket* socket = nullptr;
  uint64_t events = 0;
  Received packet;  // With kPacketHappened; `source` with kAcceptedHappened too.
  int listen_fd = -1;
};

}  // namespace xtreme::sockets

#endif  // XTREME_API_SOCKETS_RECEIVED_H_
