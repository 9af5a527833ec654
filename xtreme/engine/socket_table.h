// SPDX-License-Identifier: Apache-2.0
//
// SocketTable: the sockets of a ring by handle, those with something to tell, and how many of them
// one datagram can reach.
//
// Owns the sockets. Threads: the ring's owner. Allocates only when sockets are opened or join.

#ifndef XTREME_XTREME_ENGINE_SOCKET_TABLE_H_
#define XTREME_XTREME_ENGINE_SOCKET_TABLE_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "stack/wire/frame.h"
#include "xtreme/engine/handle.h"
#include "xtreme/engine/held_buffers.h"
#include "xtreme/engine/listener_counts.h"
#include "xtreme/engine/udp_socket.h"

namespace xtreme::engine {

class SocketTable {
 public:
  SocketTable(uint16_t ring, uint32_t capacity) : by_handle_(ring, capacity) {}
  ~SocketTable() {
    ForEach([](UdpSocket& socket) { delete &socket; });
  }
  SocketTable(const SocketTable&) = delete;
  SocketTable& operator=(const SocketTable&) = delete;

  // 0: the table is full, and nothing was taken.
  Handle Insert(std::unique_ptr<UdpSocket>& socket) {
    const Handle handle = by_handle_.Insert(socket.get());
    if (handle != 0) socket.release()->handle = handle;
    return handle;
  }
  void Erase(UdpSocket* socket) {
    by_handle_.Erase(socket->handle);
    delete socket;
  }

  UdpSocket* Find(Handle handle) const { return by_handle_.Find(handle); }
  UdpSocket* At(uint32_t place) const { return by_handle_.At(place); }
  uint32_t size() const { return by_handle_.size(); }
  std::span<std::byte> memory() { return by_handle_.memory(); }

  template <typename Visit>
  void ForEach(Visit&& visit) const {
    // Places fill from the first on: the last socket ends the walk.
    uint32_t left = by_handle_.size();
    for (uint32_t i = 0; left > 0 && i < by_handle_.capacity(); ++i) {
      UdpSocket* socket = by_handle_.At(i);
      if (socket == nullptr) continue;
      --left;
      visit(*socket);
    }
  }

  // `change` listeners more, or fewer, on what `key` names. Returns the most on any key, which is
  // how many completions one frame can cause.
  uint32_t CountListener(uint64_t key, int change) {
    const uint32_t now = listeners_.Add(key, change);
    // One key moved from the row of `before` to that of `now`: the highest row in use follows.
    const uint32_t before = now - static_cast<uint32_t>(change);
    if (keys_with_.size() <= std::max(before, now)) keys_with_.resize(std::max(before, now) + 1);
    if (before > 0) --keys_with_[before];
    if (now > 0) ++keys_with_[now];
    most_ = std::max(most_, now);
    while (most_ > 1 && keys_with_[most_] == 0) --most_;
    return most_;
  }
  uint32_t Listeners(uint64_t key) const { return listeners_.Of(key); }

  base::IntrusiveList<UdpSocket, &UdpSocket::news>& news() { return news_; }

  // Memberships of all sockets together.
  uint32_t groups = 0;
  // Set when a socket has a limit of held buffers: then received buffers are numbered.
  std::unique_ptr<BufferSerials> serials;

 private:
  HandleTable<UdpSocket> by_handle_;
  base::IntrusiveList<UdpSocket, &UdpSocket::news> news_;
  ListenerCounts listeners_;
  std::vector<uint32_t> keys_with_ = std::vector<uint32_t>(2);  // By number of listeners.
  uint32_t most_ = 1;
};

// How many frames got each verdict of the parser.
struct FrameLedger {
  wire::FrameCounters verdicts;
};

}  // namespace xtreme::engine

#endif  // XTREME_XTREME_ENGINE_SOCKET_TABLE_H_
