// SPDX-License-Identifier: Apache-2.0
//
// SocketTable: the sockets of a ring by handle, those with something to tell, and how many of them
// one datagram can reach. A datagram to one address reaches one socket, however many are bound
// there: of those the demultiplexer knows, and nothing is counted here.
//
// Threads: the ring's owner. Allocates only where sockets or listeners become more.

#ifndef XTREME_XTREME_ENGINE_SOCKET_TABLE_H_
#define XTREME_XTREME_ENGINE_SOCKET_TABLE_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "stack/wire/frame.h"
#include "xtreme/engine/handle.h"
#include "xtreme/engine/held_buffers.h"
#include "xtreme/engine/socket_counts.h"
#include "xtreme/engine/udp_socket.h"

namespace xtreme::engine {

class SocketTable {
 public:
  SocketTable(uint16_t ring, uint32_t capacity)
      : sockets_(ring, capacity) {}
  SocketTable(const SocketTable&) = delete;
  SocketTable& operator=(const SocketTable&) = delete;

  // Null when all are in use.
  UdpSocket* Take(const udp::Endpoint::Options& options) {
    UdpSocket* socket = sockets_.Take();
    if (socket != nullptr) Renew(socket, options);
    return socket;
  }
  void Put(UdpSocket* socket) {
    Renew(socket, {});
    sockets_.Free(socket->handle);
  }

  // Null for a stale handle. The number of its ring is not looked at.
  UdpSocket* Find(Handle handle) const { return sockets_.Find(handle); }
  // What stands at a place now, of whatever generation, or nobody's; null when there is none.
  UdpSocket* At(uint32_t place) const { return sockets_.At(place); }
  uint32_t size() const { return sockets_.size(); }
  std::span<std::byte> memory() { return sockets_.memory(); }

  template <typename Visit>
  void ForEach(Visit&& visit) const {
    sockets_.ForEach(visit);
  }

  // `change` listeners more, or fewer, on what `key` names: a group, or broadcasts to a port.
  // Returns the most on any key, which is how many completions one frame can cause.
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

  // The same of sockets connected from there, each of which has its peer's datagrams to itself.
  void CountConnected(uint64_t key, int change) { connected_.Add(key, change); }
  bool HasConnected(uint64_t key) const { return connected_.Of(key) > 0; }

  // Adds `socket` to those with something to tell, behind the others, if it is not among them.
  void AddNews(UdpSocket& socket) {
    if (socket.next_news != UdpSocket::kNoNews) return;
    socket.next_news = UdpSocket::kLastNews;
    const uint32_t place = PlaceOf(socket.handle);
    (HasNews() ? At(last_news_)->next_news : first_news_) = place;
    last_news_ = place;
  }
  bool HasNews() const { return first_news_ != UdpSocket::kLastNews; }
  // The first of them, which is none of them any more.
  UdpSocket* TakeNews() {
    UdpSocket* first = At(first_news_);
    first_news_ = std::exchange(first->next_news, UdpSocket::kNoNews);
    return first;
  }

  // Memberships of all sockets together.
  uint32_t groups = 0;
  // Set when a socket has a limit of held buffers: then received buffers are numbered.
  std::unique_ptr<BufferSerials> serials;

 private:
  // But for its handle.
  static void Renew(UdpSocket* socket, const udp::Endpoint::Options& options) {
    const Handle handle = socket->handle;
    std::destroy_at(socket);
    std::construct_at(socket, options)->handle = handle;
  }

  HandleTable<UdpSocket> sockets_;
  uint32_t first_news_ = UdpSocket::kLastNews;
  uint32_t last_news_ = 0;  // If there are any.
  SocketCounts<uint16_t> listeners_;  // Of one key fewer than completions.
  SocketCounts<uint32_t> connected_;
  std::vector<uint32_t> keys_with_ = std::vector<uint32_t>(2);  // By number of listeners.
  uint32_t most_ = 1;
};

// How many frames got each verdict of the parser.
struct FrameLedger {
  wire::FrameCounters verdicts;
};

}  // namespace xtreme::engine

#endif  // XTREME_XTREME_ENGINE_SOCKET_TABLE_H_
