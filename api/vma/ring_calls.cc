// SPDX-License-Identifier: Apache-2.0
//
// SocketXtreme: completions of rings, sockets and epoll sets, and the buffers they carry.

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

#include "api/sockets/epoll_set.h"
#include "api/sockets/faces.h"
#include "api/sockets/host_addresses.h"
#include "api/sockets/progress.h"
#include "api/sockets/real_time.h"
#include "api/sockets/socket.h"
#include "api/vma/api.h"
#include "stack/packet/buffer_pool.h"
#include "xtreme/completion/link_completion.h"
#include "xtreme/engine/ring.h"

namespace xtreme::vma {
namespace {

using sockets::Faces;
using sockets::Happening;
using sockets::Received;
using sockets::RingDoor;
using sockets::Socket;

// A buffer begins with the link that programs see; of its length the lower half is theirs.
static_assert(offsetof(packet::Buffer, next) == offsetof(vma_buff_t, next));
static_assert(offsetof(packet::Buffer, data) == offsetof(vma_buff_t, payload));
static_assert(offsetof(packet::Buffer, length) == offsetof(vma_buff_t, len));
static_assert(std::endian::native == std::endian::little);
// What the driver writes.
using completion::LinkCompletion;
static_assert(sizeof(LinkCompletion) == sizeof(vma_completion_t));
static_assert(offsetof(LinkCompletion, links) == offsetof(vma_completion_t, packet.num_bufs));
static_assert(offsetof(LinkCompletion, length) == offsetof(vma_completion_t, packet.total_len));
static_assert(offsetof(LinkCompletion, first) == offsetof(vma_completion_t, packet.buff_lst));
static_assert(offsetof(LinkCompletion, seconds) ==
              offsetof(vma_completion_t, packet.hw_timestamp.tv_sec));
static_assert(offsetof(LinkCompletion, nanoseconds) ==
              offsetof(vma_completion_t, packet.hw_timestamp.tv_nsec));
static_assert(offsetof(LinkCompletion, events) == offsetof(vma_completion_t, events));
static_assert(offsetof(LinkCompletion, user_data) == offsetof(vma_completion_t, user_data));
static_assert(offsetof(LinkCompletion, family) == offsetof(vma_completion_t, src.sin_family));
static_assert(offsetof(LinkCompletion, port) == offsetof(vma_completion_t, src.sin_port));
static_assert(offsetof(LinkCompletion, address) == offsetof(vma_completion_t, src.sin_addr));
static_assert(offsetof(LinkCompletion, zero) == offsetof(vma_completion_t, src.sin_zero));
static_assert(offsetof(LinkCompletion, listen_fd) == offsetof(vma_completion_t, listen_fd));
static_assert(sockets::kPacketHappened == VMA_SOCKETXTREME_PACKET);
static_assert(sockets::kAcceptedHappened == VMA_SOCKETXTREME_NEW_CONNECTION_ACCEPTED);

int Fail(int error) {
  errno = error;
  return -1;
}

vma_buff_t* LinkOf(packet::Buffer* buffer) { return reinterpret_cast<vma_buff_t*>(buffer); }
packet::Buffer* BufferOf(vma_buff_t* link) { return reinterpret_cast<packet::Buffer*>(link); }

// The links of a packet that begins elsewhere than its first buffer does, or has several of them:
// each is to have the packet's bytes and no others. How many they are. Where they are right already
// nothing is written: who else has them may be reading.
[[gnu::noinline]] size_t FitLinks(packet::Buffer* link, uint8_t* data, uint32_t length) {
  size_t count = 0;
  uint8_t* begin = data;
  for (;;) {
    const auto there = static_cast<uint32_t>(link->data + link->length - begin);
    const uint32_t bytes = std::min(length, there);
    if (link->data != begin) link->data = begin;
    if (link->length != bytes) link->length = bytes;
    length -= bytes;
    ++count;
    link = link->next;
    if (link == nullptr) return count;
    begin = link->data;
  }
}

// The links of a packet, as the application sees them. `Packet`: a completion or a Received.
template <typename Packet>
void Describe(RingDoor* door, const Packet& packet, vma_packet_desc_t* description) {
  packet::Buffer* const first = packet.buffer;
  description->num_bufs = 1;
  description->total_len = static_cast<uint16_t>(packet.length);
  description->buff_lst = LinkOf(first);
  description->hw_timestamp = door->real_clock().At(packet.hw_time_ns);
  const bool is_one = first->next == nullptr && first->data == packet.data &&
                      first->length == packet.length;
  if (!is_one) [[unlikely]] {
    description->num_bufs = FitLinks(first, packet.data, packet.length);
  }
}

void Describe(RingDoor* door, const Happening& happening, vma_completion_t* completion) {
  memset(completion, 0, sizeof *completion);
  completion->events = happening.events;
  completion->user_data = happening.socket->user_data;
  completion->listen_fd = happening.listen_fd;
  const Received& packet = happening.packet;
  completion->src = sockets::ToSockaddr(packet.source);
  if ((happening.events & sockets::kPacketHappened) == 0) return;
  Describe(door, packet, &completion->packet);
}

// What did not have to wait.
void Describe(RingDoor* door, const engine::Completion& packet, uint64_t user_data,
              vma_completion_t* completion) {
  constexpr size_t kOfIpv4 = 12;  // Behind ::ffff:0:0/96.
  completion->events = sockets::kPacketHappened;
  completion->user_data = user_data;
  completion->listen_fd = -1;
  completion->src.sin_family = AF_INET;
  completion->src.sin_port = htons(packet.source_port);
  memcpy(&completion->src.sin_addr, packet.source_ip.data() + kOfIpv4, sizeof(in_addr));
  memset(completion->src.sin_zero, 0, sizeof completion->src.sin_zero);
  Describe(door, packet, &completion->packet);
}

// What waits to be taken: every socket's, or one's.
unsigned TakeWaiting(RingDoor* door, Socket* only, vma_completion_t* completions, unsigned most) {
  unsigned count = 0;
  Happening happening;
  while (count < most && door->Take(only, &happening, 1) != 0) {
    door->FollowRealTime();
    Describe(door, happening, &completions[count++]);
  }
  return count;
}

// Of one ring: one socket's. Inside nothing.
unsigned PollDoor(RingDoor* door, Socket* only, vma_completion_t* completions, unsigned most) {
  const RingDoor::Entry entry(door);
  only->TakeByCompletions();
  const unsigned count = TakeWaiting(door, only, completions, most);
  if (count == most) return count;
  door->Progress();
  return count + TakeWaiting(door, only, completions + count, most - count);
}

// Every socket's: what waits, and what the driver wrote no completions of, behind `count` of them.
[[gnu::noinline]] unsigned PollRest(RingDoor* door, vma_completion_t* completions, unsigned most,
                                    unsigned count) {
  if (door->HasWaiting()) count += TakeWaiting(door, nullptr, completions + count, most - count);
  uint32_t arrived = 0;
  do {
    if (count == most) return count;
    arrived = door->PollPackets(most - count, [door, next = completions + count](
                                    const engine::Completion& packet, uint64_t user_data) mutable {
      Describe(door, packet, user_data, next++);
    });
    count += arrived;
  } while (arrived == RingDoor::kBatch);
  if (door->HasWaiting()) count += TakeWaiting(door, nullptr, completions + count, most - count);
  door->TellTime();
  return count;
}

unsigned PollDoor(RingDoor* door, vma_completion_t* completions, unsigned most) {
  const RingDoor::Entry entry(door);
  door->TakeByCompletions();
  const RingDoor::Linked linked =
      door->PollLinks(most, reinterpret_cast<LinkCompletion*>(completions));
  if (!linked.rest) [[likely]] return linked.count;
  return PollRest(door, completions, most, linked.count);
}

// The sockets of an epoll set, in turn.
unsigned PollSet(const sockets::EpollSet& set, vma_completion_t* completions, unsigned most) {
  unsigned count = 0;
  for (const std::shared_ptr<sockets::Pollable>& member : set.Members()) {
    if (count == most) break;
    auto* const socket = dynamic_cast<Socket*>(member.get());
    RingDoor* const door = member->door();
    if (socket == nullptr || door == nullptr) continue;
    count += PollDoor(door, socket, completions + count, most - count);
  }
  return count;
}

// Of what is no ring.
[[gnu::noinline]] int PollOther(int fd, vma_completion_t* completions, unsigned most) {
  const auto meaning = Faces::The().descriptors().Find(fd);
  unsigned count = 0;
  if (meaning.socket != nullptr) {
    RingDoor* const door = meaning.socket->door();
    if (door != nullptr) count = PollDoor(door, meaning.socket.get(), completions, most);
  } else if (meaning.epoll != nullptr) {
    count = PollSet(*meaning.epoll, completions, most);
  } else {
    return Fail(EBADFD);
  }
  return static_cast<int>(count);
}

// References to a link, inside the door of its ring.
int References(const packet::Buffer& buffer) {
  return static_cast<int>(buffer.owner_references) +
         packet::ForeignCount(buffer.foreign.load(std::memory_order_acquire));
}

void ReleaseLinks(packet::Buffer* link) {
  while (link != nullptr) {
    // Read before it is free: whoever gets the buffer next writes it.
    packet::Buffer* const next = link->next;
    packet::BufferPool::ReleaseByOwner(link);
    link = next;
  }
}

// One packet of one link that nobody else has, as most programs free them, and which calls nothing.
[[gnu::always_inline]] inline bool ReleaseAlone(const vma_packet_desc_t& packet) {
  packet::Buffer* const link = BufferOf(packet.buff_lst);
  return link != nullptr && link->next == nullptr &&
         packet::BufferPool::ReleaseOnlyReference(link);
}

// The same as the only call.
[[gnu::always_inline]] inline bool FreeAtOnce(const vma_packet_desc_t& packet) {
  if (packet.buff_lst == nullptr) [[unlikely]] return false;
  const RingDoor::QuickEntry entry(RingDoor::Of(*BufferOf(packet.buff_lst)));
  return entry.inside() && ReleaseAlone(packet);
}

// Of packets of one ring in a row one entry for all.
[[gnu::noinline]] int FreeEach(const vma_packet_desc_t* packets, int count) {
  const vma_packet_desc_t* const end = packets + count;
  while (packets != end) {
    if (packets->buff_lst == nullptr) {
      ++packets;
      continue;
    }
    RingDoor* const door = RingDoor::Of(*BufferOf(packets->buff_lst));
    const RingDoor::Entry entry(door);
    do {
      ReleaseLinks(BufferOf(packets->buff_lst));
      ++packets;
    } while (packets != end && packets->buff_lst != nullptr &&
             RingDoor::Of(*BufferOf(packets->buff_lst)) == door);
  }
  return 0;
}

}  // namespace

int SocketxtremePoll(int fd, vma_completion_t* completions, unsigned most, int) {
  if (completions == nullptr || most == 0) [[unlikely]] return Fail(EINVAL);
  RingDoor* const ring = sockets::Descriptors::FindRing(fd);
  if (ring == nullptr) [[unlikely]] return PollOther(fd, completions, most);
  return static_cast<int>(PollDoor(ring, completions, most));
}

int FreeVmaPackets(vma_packet_desc_t* packets, int count) {
  if (packets == nullptr || count < 0) return Fail(EINVAL);
  if (count == 1 && FreeAtOnce(*packets)) [[likely]] return 0;
  return FreeEach(packets, count);
}

int FreeVmaPacketsAlone(vma_packet_desc_t* packets, int count) {
  if (packets == nullptr || count <= 0) [[unlikely]] return FreeVmaPackets(packets, count);
  do {
    if (!ReleaseAlone(*packets)) [[unlikely]] return FreeEach(packets, count);
    ++packets;
  } while (--count != 0);
  return 0;
}

int RefVmaBuff(vma_buff_t* buff) {
  if (buff == nullptr) return Fail(EINVAL);
  packet::Buffer* const buffer = BufferOf(buff);
  const RingDoor::Entry entry(RingDoor::Of(*buffer));
  packet::BufferPool::AddReferenceByOwner(buffer);
  return References(*buffer);
}

int FreeVmaBuff(vma_buff_t* buff) {
  if (buff == nullptr) return Fail(EINVAL);
  packet::Buffer* const buffer = BufferOf(buff);
  const RingDoor::Entry entry(RingDoor::Of(*buffer));
  const int before = References(*buffer);
  packet::BufferPool::ReleaseByOwner(buffer);
  return before - 1;
}

int GetSocketRingsNum(int fd) {
  const auto socket = Faces::The().descriptors().FindSocket(fd);
  return socket != nullptr && socket->RingToBe() != nullptr ? 1 : 0;
}

int GetSocketRingsFds(int fd, int* fds, int size) {
  if (fds == nullptr || size <= 0) return Fail(EINVAL);
  const auto socket = Faces::The().descriptors().FindSocket(fd);
  RingDoor* const door = socket == nullptr ? nullptr : socket->RingToBe();
  if (door == nullptr) return 0;
  const RingDoor::Entry entry(door);
  socket->TakeByCompletions();
  fds[0] = door->fd();
  return 1;
}

int GetSocketTxRingFd(int fd, sockaddr*, socklen_t) {
  const auto socket = Faces::The().descriptors().FindSocket(fd);
  RingDoor* const door = socket == nullptr ? nullptr : socket->RingToBe();
  return door == nullptr ? Fail(EINVAL) : door->fd();
}

int GetNetworkHeader(int fd, void* to, uint16_t* length) {
  const auto socket = Faces::The().descriptors().FindSocket(fd);
  const int result = socket == nullptr || length == nullptr ? -EINVAL
                                                            : socket->NetworkHeader(to, length);
  return result == 0 ? 0 : Fail(-result);
}

}  // namespace xtreme::vma
