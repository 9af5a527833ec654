// SPDX-License-Identifier: Apache-2.0
//
// SocketXtreme: completions of rings, sockets and epoll sets, and the buffers they carry.

#include <algorithm>
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
#include "xtreme/engine/ring.h"

namespace xtreme::vma {
namespace {

using sockets::Faces;
using sockets::Happening;
using sockets::LinkView;
using sockets::Received;
using sockets::RingDoor;
using sockets::Socket;

static_assert(offsetof(LinkView, next) == offsetof(vma_buff_t, next));
static_assert(offsetof(LinkView, payload) == offsetof(vma_buff_t, payload));
static_assert(offsetof(LinkView, length) == offsetof(vma_buff_t, len));
static_assert(sockets::kPacketHappened == VMA_SOCKETXTREME_PACKET);
static_assert(sockets::kAcceptedHappened == VMA_SOCKETXTREME_NEW_CONNECTION_ACCEPTED);

int Fail(int error) {
  errno = error;
  return -1;
}

// The rest of the links of a packet, `length` bytes from the end of the first one's on.
[[gnu::noinline]] void DescribeLinks(RingDoor* door, const packet::Buffer* first, uint32_t length,
                                     vma_packet_desc_t* description) {
  LinkView* view = door->ViewOf(first);
  for (packet::Buffer* link = first->next; link != nullptr; link = link->next) {
    view = view->next = door->ViewOf(link);
    view->payload = link->data;
    view->length = static_cast<uint16_t>(std::min(length, link->length));
    length -= view->length;
    ++description->num_bufs;
  }
  view->next = nullptr;
}

// The links of a packet, as the application sees them. `Packet`: a completion or a Received.
template <typename Packet>
void Describe(RingDoor* door, const Packet& packet, vma_packet_desc_t* description) {
  LinkView* const view = door->ViewOf(packet.buffer);
  description->num_bufs = 1;
  description->total_len = static_cast<uint16_t>(packet.length);
  description->buff_lst = reinterpret_cast<vma_buff_t*>(view);
  description->hw_timestamp = door->real_clock().At(packet.hw_time_ns);
  view->next = nullptr;
  view->payload = packet.data;
  view->length = static_cast<uint16_t>(packet.length);
  if (packet.buffer->next == nullptr) [[likely]] return;
  const packet::Buffer& first = *packet.buffer;
  const auto there = static_cast<uint32_t>(first.data + first.length - packet.data);
  view->length = static_cast<uint16_t>(std::min(packet.length, there));
  DescribeLinks(door, &first, packet.length - view->length, description);
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

// Every socket's.
unsigned PollDoor(RingDoor* door, vma_completion_t* completions, unsigned most) {
  const RingDoor::Entry entry(door);
  door->TakeByCompletions();
  unsigned count = door->HasWaiting() ? TakeWaiting(door, nullptr, completions, most) : 0;
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
  return count;
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

LinkView* ViewOf(vma_buff_t* buff) { return reinterpret_cast<LinkView*>(buff); }

// References to a link, inside the door of its ring.
int References(const packet::Buffer& buffer) {
  return static_cast<int>(buffer.owner_references) +
         packet::ForeignCount(buffer.foreign.load(std::memory_order_acquire));
}

// One packet of one link, as most programs free them.
bool FreeAtOnce(LinkView* view) {
  if (view == nullptr || view->next != nullptr) [[unlikely]] return false;
  const RingDoor::QuickEntry entry(view->door);
  if (!entry.inside()) [[unlikely]] return false;
  packet::BufferPool::ReleaseByOwner(view->buffer);
  return true;
}

[[gnu::noinline]] int FreeEach(vma_packet_desc_t* packets, int count) {
  for (int i = 0; i < count; ++i) {
    LinkView* view = ViewOf(packets[i].buff_lst);
    if (view == nullptr) continue;
    const RingDoor::Entry entry(view->door);
    while (view != nullptr) {
      // Read before it is free: whoever gets the buffer next writes it.
      LinkView* const next = view->next;
      packet::BufferPool::ReleaseByOwner(view->buffer);
      view = next;
    }
  }
  return 0;
}

}  // namespace

int SocketxtremePoll(int fd, vma_completion_t* completions, unsigned most, int) {
  if (completions == nullptr || most == 0) return Fail(EINVAL);
  if (RingDoor* const ring = sockets::Descriptors::FindRing(fd)) {
    return static_cast<int>(PollDoor(ring, completions, most));
  }
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

int FreeVmaPackets(vma_packet_desc_t* packets, int count) {
  if (packets == nullptr || count < 0) return Fail(EINVAL);
  if (count == 1 && FreeAtOnce(ViewOf(packets->buff_lst))) [[likely]] return 0;
  return FreeEach(packets, count);
}

int RefVmaBuff(vma_buff_t* buff) {
  if (buff == nullptr) return Fail(EINVAL);
  LinkView* const view = ViewOf(buff);
  const RingDoor::Entry entry(view->door);
  packet::BufferPool::AddReferenceByOwner(view->buffer);
  return References(*view->buffer);
}

int FreeVmaBuff(vma_buff_t* buff) {
  if (buff == nullptr) return Fail(EINVAL);
  LinkView* const view = ViewOf(buff);
  const RingDoor::Entry entry(view->door);
  const int before = References(*view->buffer);
  packet::BufferPool::ReleaseByOwner(view->buffer);
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
