// SPDX-License-Identifier: Apache-2.0
//
// SocketXtreme: completions of rings, sockets and epoll sets, and the buffers they carry.

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "api/sockets/epoll_set.h"
#include "api/sockets/faces.h"
#include "api/sockets/host_addresses.h"
#include "api/sockets/real_time.h"
#include "api/sockets/socket.h"
#include "api/vma/api.h"
#include "stack/packet/buffer_pool.h"

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

// The links of a packet as the application sees them.
void Describe(RingDoor* door, const Received& packet, vma_packet_desc_t* description) {
  description->total_len = static_cast<uint16_t>(packet.length);
  description->hw_timestamp = sockets::RealTime(packet.hw_time_ns);
  uint32_t left = packet.length;
  void* payload = packet.data;
  uint32_t there = sockets::FirstLinkBytes(packet);
  LinkView** next = reinterpret_cast<LinkView**>(&description->buff_lst);
  for (packet::Buffer* link = packet.buffer; link != nullptr; link = link->next) {
    LinkView* const view = door->ViewOf(link);
    view->payload = payload;
    view->length = static_cast<uint16_t>(std::min(left, there));
    left -= view->length;
    *next = view;
    next = &view->next;
    ++description->num_bufs;
    if (link->next == nullptr) break;
    payload = link->next->data;
    there = link->next->length;
  }
  *next = nullptr;
}

void Describe(RingDoor* door, const Happening& happening, vma_completion_t* completion) {
  memset(completion, 0, sizeof *completion);
  completion->events = happening.events;
  completion->user_data = happening.socket->user_data;
  completion->listen_fd = happening.listen_fd;
  completion->src = sockets::ToSockaddr(happening.packet.source);
  if ((happening.events & sockets::kPacketHappened) != 0) {
    Describe(door, happening.packet, &completion->packet);
  }
}

// Of one ring: every socket's, or one's. Inside nothing.
unsigned PollDoor(RingDoor* door, Socket* only, vma_completion_t* completions, unsigned most) {
  const RingDoor::Entry entry(door);
  if (only != nullptr) {
    only->TakeByCompletions();
  } else {
    door->TakeByCompletions();
  }
  std::array<Happening, RingDoor::kBatch> happenings;
  unsigned count = 0;
  bool polled = false;
  while (count < most) {
    const auto room = std::min<uint32_t>(most - count, RingDoor::kBatch);
    const uint32_t taken = door->Take(only, happenings.data(), room);
    for (uint32_t i = 0; i < taken; ++i) Describe(door, happenings[i], &completions[count++]);
    if (taken == room) continue;
    if (polled) break;
    polled = true;
    door->Progress();
  }
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

// One less; how many are left.
int Drop(LinkView* view) {
  const int before = References(*view->buffer);
  packet::BufferPool::Release(view->buffer);
  return before - 1;
}

}  // namespace

int SocketxtremePoll(int fd, vma_completion_t* completions, unsigned most, int) {
  if (completions == nullptr || most == 0) return Fail(EINVAL);
  const auto meaning = Faces::The().descriptors().Find(fd);
  unsigned count = 0;
  if (meaning.ring != nullptr) {
    count = PollDoor(meaning.ring, nullptr, completions, most);
  } else if (meaning.socket != nullptr) {
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
  for (int i = 0; i < count; ++i) {
    LinkView* view = ViewOf(packets[i].buff_lst);
    if (view == nullptr) continue;
    const RingDoor::Entry entry(view->door);
    while (view != nullptr) {
      // Read before it is free: whoever gets the buffer next writes it.
      LinkView* const next = view->next;
      Drop(view);
      view = next;
    }
  }
  return 0;
}

int RefVmaBuff(vma_buff_t* buff) {
  if (buff == nullptr) return Fail(EINVAL);
  LinkView* const view = ViewOf(buff);
  const RingDoor::Entry entry(view->door);
  packet::BufferPool::AddReference(view->buffer);
  return References(*view->buffer);
}

int FreeVmaBuff(vma_buff_t* buff) {
  if (buff == nullptr) return Fail(EINVAL);
  LinkView* const view = ViewOf(buff);
  const RingDoor::Entry entry(view->door);
  return Drop(view);
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
  RingDoor* const door = socket == nullptr ? nullptr : socket->door();
  return door == nullptr ? Fail(EINVAL) : door->fd();
}

int GetNetworkHeader(int fd, void* to, uint16_t* length) {
  const auto socket = Faces::The().descriptors().FindSocket(fd);
  const int result = socket == nullptr || length == nullptr ? -EINVAL
                                                            : socket->NetworkHeader(to, length);
  return result == 0 ? 0 : Fail(-result);
}

}  // namespace xtreme::vma
