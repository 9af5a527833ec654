// SPDX-License-Identifier: Apache-2.0

#include "api/sockets/descriptors.h"

#include <utility>

#include "api/sockets/epoll_set.h"
#include "api/sockets/socket.h"

namespace xtreme::sockets {

Descriptors::Meaning Descriptors::Find(int fd) const {
  if (!Has(fd)) return {};
  const Place& place = *At(fd);
  const Hold hold(&place.lock);
  return place.meaning;
}

std::shared_ptr<Socket> Descriptors::FindSocket(int fd) const {
  if (!Has(fd)) return nullptr;
  const Place& place = *At(fd);
  const Hold hold(&place.lock);
  return place.meaning.socket;
}

std::shared_ptr<EpollSet> Descriptors::FindEpoll(int fd) const {
  if (!Has(fd)) return nullptr;
  const Place& place = *At(fd);
  const Hold hold(&place.lock);
  return place.meaning.epoll;
}

void Descriptors::MakeWay(int fd, Socket* socket, RingDoor* door) {
  if (!Has(fd) || WayTo(fd) == nullptr) return;
  const Place& place = *At(fd);
  Way& way = ways_[static_cast<size_t>(fd)];
  const Hold hold(&place.lock);
  const bool leads = place.meaning.socket.get() == socket && !place.meaning.closing;
  if (!leads || way.door() != nullptr) return;
  way.socket_.store(socket, std::memory_order_release);
  way.door_.store(door, std::memory_order_release);
  const bool alone = door->single() && socket->type() == SOCK_DGRAM;
  way.alone_.store(alone ? socket : nullptr, std::memory_order_relaxed);
}

void Descriptors::CloseWay(int fd) {
  const Place& place = *At(fd);
  const Hold hold(&place.lock);
  ShutWay(fd);
}

Descriptors::Meaning Descriptors::Put(int fd, Meaning meaning) {
  if (fd < 0 || static_cast<size_t>(fd) >= kPlaces) return {};
  if (At(fd) == nullptr) {
    Chunk* none = nullptr;
    auto chunk = std::make_unique<Chunk>();
    const Hold hold(&making_);
    if (chunks_[static_cast<size_t>(fd) / kChunk].compare_exchange_strong(none, chunk.get())) {
      [[maybe_unused]] Chunk* const kept = chunk.release();
    }
  }
  Place& place = *At(fd);
  Meaning before;
  {
    const Hold hold(&place.lock);
    before = Exchange(fd, place, std::move(meaning));
    place.taken.store(true, std::memory_order_release);
  }
  int highest = highest_.load();
  while (highest < fd && !highest_.compare_exchange_weak(highest, fd)) {
  }
  // Who closes it counts it.
  return before.closing ? Meaning() : before;
}

Descriptors::Meaning Descriptors::Share(int fd, int copy) {
  if (!Has(fd)) return {};
  Meaning meaning;
  {
    // Counted while this one still counts: else it might end in between.
    const Place& place = *At(fd);
    const Hold hold(&place.lock);
    if (place.meaning.closing) return {};
    meaning = place.meaning;
    if (meaning.socket != nullptr) ++meaning.socket->descriptors;
    if (meaning.epoll != nullptr) ++meaning.epoll->descriptors;
  }
  return Put(copy, std::move(meaning));
}

Descriptors::Meaning Descriptors::BeginClose(int fd) {
  if (!Has(fd)) return {};
  Place& place = *At(fd);
  const Hold hold(&place.lock);
  if (place.meaning.closing) return {};
  Meaning meaning = place.meaning;
  place.meaning.closing = true;
  meaning.way = ShutWay(fd);
  return meaning;
}

void Descriptors::EndClose(int fd) {
  Meaning meaning;  // Ends outside the lock.
  Place& place = *At(fd);
  const Hold hold(&place.lock);
  if (!place.meaning.closing) return;  // It is another's already.
  place.taken.store(false, std::memory_order_release);
  meaning = Exchange(fd, place, {});
}

Descriptors::Meaning Descriptors::Remove(int fd) {
  if (!Has(fd)) return {};
  Place& place = *At(fd);
  const Hold hold(&place.lock);
  place.taken.store(false, std::memory_order_release);
  return Exchange(fd, place, {});
}

void Descriptors::LockAll() {
  while (making_.exchange(true, std::memory_order_acquire)) {
  }
  for (size_t index = 0; index < chunks_.size(); ++index) {
    Chunk* const chunk = ChunkOf(index);
    if (chunk == nullptr) continue;
    for (Place& place : *chunk) {
      while (place.lock.exchange(true, std::memory_order_acquire)) {
      }
    }
  }
}

void Descriptors::UnlockAll() {
  for (size_t index = 0; index < chunks_.size(); ++index) {
    Chunk* const chunk = ChunkOf(index);
    if (chunk == nullptr) continue;
    for (Place& place : *chunk) place.lock.store(false, std::memory_order_release);
  }
  making_.store(false, std::memory_order_release);
}

void Descriptors::ForEach(
    const std::function<void(int fd, const Meaning& meaning)>& visit) const {
  for (int fd = 0; fd <= highest_.load(); ++fd) {
    if (Has(fd)) visit(fd, Find(fd));
  }
}

}  // namespace xtreme::sockets
