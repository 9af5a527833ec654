// SPDX-License-Identifier: Apache-2.0
//
// The receive callback, receiving without a copy, and freeing what either held.

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <utility>
#include <vector>

#include "api/sockets/data_calls.h"
#include "api/sockets/faces.h"
#include "api/sockets/host_addresses.h"
#include "api/sockets/kernel_calls.h"
#include "api/sockets/real_time.h"
#include "api/sockets/socket.h"
#include "api/vma/api.h"

namespace xtreme::vma {
namespace {

using sockets::Faces;
using sockets::Received;
using sockets::RingDoor;
using sockets::Socket;
using sockets::Verdict;

int Fail(int error) {
  errno = error;
  return -1;
}

// A part for each link.
std::vector<iovec> PartsOf(const Received& packet) {
  std::vector<iovec> parts;
  uint32_t left = packet.length;
  uint8_t* data = packet.data;
  uint32_t there = sockets::BytesOf(packet).InFirstLink();
  for (const packet::Buffer* link = packet.buffer; link != nullptr; link = link->next) {
    const uint32_t length = std::min(left, there);
    parts.push_back({.iov_base = data, .iov_len = length});
    left -= length;
    if (link->next == nullptr) break;
    data = link->next->data;
    there = link->next->length;
  }
  return parts;
}

Verdict Call(vma_recv_callback_t callback, void* context, Socket& socket, const Received& packet) {
  std::vector<iovec> parts = PartsOf(packet);
  sockaddr_in source = sockets::ToSockaddr(packet.source);
  sockaddr_in destination = sockets::ToSockaddr(packet.destination);
  vma_info_t about{.struct_sz = sizeof(vma_info_t),
                   .packet_id = packet.buffer,
                   .src = &source,
                   .dst = &destination,
                   .payload_sz = packet.length,
                   .socket_ready_packets = static_cast<uint32_t>(socket.queued()),
                   .socket_ready_bytes = socket.queued_payload(),
                   .hw_timestamp = sockets::RealTime(packet.hw_time_ns, packet.on_ptp),
                   .sw_timestamp = packet.arrival};
  switch (callback(socket.fd(), parts.size(), parts.data(), &about, context)) {
    case VMA_PACKET_DROP: return Verdict::kDrop;
    case VMA_PACKET_HOLD: return Verdict::kHold;
    default: return Verdict::kQueue;
  }
}

// The structures of one packet at `to`; how many bytes.
size_t Write(const Received& packet, const std::vector<iovec>& parts, void* to) {
  auto* const packets = static_cast<vma_packets_t*>(to);
  packets->n_packet_num = 1;
  vma_packet_t* const first = packets->pkts;
  first->packet_id = packet.buffer;
  first->sz_iov = parts.size();
  memcpy(first->iov, parts.data(), parts.size() * sizeof(iovec));
  return sizeof(vma_packets_t) + sizeof(vma_packet_t) + parts.size() * sizeof(iovec);
}

// In a copy.
int Peek(Socket& socket, void* to, size_t size, int flags, sockaddr* from,
         socklen_t* from_length) {
  const iovec whole{.iov_base = to, .iov_len = size};
  const ssize_t got = sockets::ReceiveInto(socket, {&whole, 1}, flags, from, from_length);
  if (got == sockets::kAskKernel) {
    return static_cast<int>(
        sockets::Kernel().recvfrom(socket.fd(), to, size, flags, from, from_length));
  }
  return got < 0 ? Fail(static_cast<int>(-got)) : static_cast<int>(got);
}

// Where nothing else is done with what the socket holds.
int FreeEach(Socket& socket, vma_packet_t* packets, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    // Before it is freed: its size says where the next one stands.
    auto* const next = reinterpret_cast<vma_packet_t*>(reinterpret_cast<uint8_t*>(packets) +
                                                       sizeof(vma_packet_t) +
                                                       packets->sz_iov * sizeof(iovec));
    const int freed = socket.Free(static_cast<packet::Buffer*>(packets->packet_id));
    if (freed != 0) return Fail(-freed);
    packets = next;
  }
  return 0;
}

}  // namespace

int RegisterRecvCallback(int fd, vma_recv_callback_t callback, void* context) {
  const auto socket = Faces::The().descriptors().FindSocket(fd);
  if (socket == nullptr || socket->path() == sockets::Path::kKernel) return Fail(EINVAL);
  const auto set = [&] {
    if (callback == nullptr) return socket->SetCallback(nullptr);
    socket->SetCallback([=](Socket& of, const Received& packet) {
      return Call(callback, context, of, packet);
    });
  };
  RingDoor* const door = socket->door();
  if (door == nullptr) {
    set();
    return 0;
  }
  const RingDoor::Entry entry(door);
  set();
  return 0;
}

int RecvfromZcopy(int fd, void* to, size_t size, int* flags, sockaddr* from,
                  socklen_t* from_length) {
  constexpr size_t kLeast = sizeof(vma_packets_t) + sizeof(vma_packet_t) + sizeof(iovec);
  if (flags == nullptr) return Fail(EINVAL);
  const bool forced = (*flags & MSG_VMA_ZCOPY_FORCE) != 0;
  *flags &= ~(MSG_VMA_ZCOPY_FORCE | MSG_VMA_ZCOPY);
  const auto socket = Faces::The().descriptors().FindSocket(fd);
  if (socket != nullptr && socket->path() != sockets::Path::kKernel) {
    // What stays in the queue is not handed over.
    if ((*flags & MSG_PEEK) != 0) {
      return forced ? Fail(EOPNOTSUPP) : Peek(*socket, to, size, *flags, from, from_length);
    }
    if (to == nullptr || size < kLeast) return Fail(ENOBUFS);
    Received packet;
    sockets::ReceiveRequest request{.flags = *flags,
                                    .took = &packet,
                                    .most_links = 1 + (size - kLeast) / sizeof(iovec)};
    const ssize_t got = socket->Receive(&request);
    if (got != sockets::kAskKernel) {
      if (got < 0) return Fail(static_cast<int>(-got));
      if (packet.buffer == nullptr) return 0;
      const std::vector<iovec> parts = PartsOf(packet);
      Write(packet, parts, to);
      *flags |= MSG_VMA_ZCOPY;
      if (from != nullptr && from_length != nullptr) {
        const sockaddr_in source = sockets::ToSockaddr(packet.source);
        memcpy(from, &source, std::min<size_t>(*from_length, sizeof source));
        *from_length = sizeof source;
      }
      return static_cast<int>(got);
    }
  }
  if (forced) return Fail(EOPNOTSUPP);
  return static_cast<int>(sockets::Kernel().recvfrom(fd, to, size, *flags, from, from_length));
}

int FreePackets(int fd, vma_packet_t* packets, size_t count) {
  Faces& faces = Faces::The();
  const auto socket = faces.descriptors().FindSocket(fd);
  if (packets == nullptr || socket == nullptr) return Fail(EINVAL);
  for (;;) {
    if (RingDoor* const door = socket->door()) {
      const RingDoor::Entry entry(door);
      if (socket->door() == door) return FreeEach(*socket, packets, count);
      continue;
    }
    // It may have left its ring with what the program holds.
    const std::lock_guard lock(faces.setup());
    if (socket->door() != nullptr) continue;
    const bool held = count != 0 && FreeEach(*socket, packets, count) == 0;
    return held ? 0 : Fail(EINVAL);
  }
}

}  // namespace xtreme::vma
