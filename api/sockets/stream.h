// SPDX-License-Identifier: Apache-2.0
//
// Stream: what a socket of the program has beyond a datagram socket's when it is a connection or a
// listener of a ring.
//
// Threads: inside the ring's door; what is atomic is read anywhere.

#ifndef XTREME_API_SOCKETS_STREAM_H_
#define XTREME_API_SOCKETS_STREAM_H_

#include <sys/types.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace xtreme::engine {
struct TcpSocket;
}

namespace xtreme::sockets {

class Socket;

// An option of a socket, as the program set it.
struct StreamOption {
  int level;
  int name;
  std::vector<uint8_t> value;
};

struct Stream {
  // kOffered: listens in the kernel; goes to the ring of the process that first accepts or polls.
  // kDeferred: was offered, and no ring may have it yet (deferred_listeners.h).
  enum class State : uint8_t {
    kIdle,
    kOffered,
    kDeferred,
    kListening,
    kConnecting,
    kConnected,
    kEnded
  };

  std::atomic<State> state{State::kIdle};
  std::atomic<bool> established{false};  // It was, at some time.
  bool connects = false;     // It is one that the program connected, or tries to.
  // The ring's, of the connection; kept, because it is until the ring's poll says that it ended, or
  // the socket has closed it.
  engine::TcpSocket* tcp_socket = nullptr;
  bool peer_closed = false;  // FIN came, after what is queued.
  bool writable = true;      // No send was refused, or left little room, since there was space.
  bool bounds_unsent = false;  // TCP_NOTSENT_LOWAT was set: no send takes the short way.
  std::atomic<bool> tells_queued{false};  // TCP_INQ.
  std::atomic<int> peek_offset{-1};       // SO_PEEK_OFF; below 0: off. Set inside the door.
  // Behind so many bytes the next look ahead begins.
  size_t PeekOffset() const {
    return static_cast<size_t>(std::max(peek_offset.load(std::memory_order_relaxed), 0));
  }
  void MovePeekOffset(ssize_t bytes);
  std::atomic<bool> error_in_kernel{false};  // Of a connection before: LeaveErrorInKernel().
  std::atomic<bool> dissolved{false};        // The last one was, by connect() to AF_UNSPEC.
  bool spoiled = false;      // The attempt to connect failed, and it was shut before it was told.
  uint32_t backlog = 128;    // As listen() was told.
  std::atomic<bool> connect_told{false};  // connect() has said that it is established.
  std::mutex options_mutex;               // Taken last.
  // What the program set, each once, the last one last, for one may change another: a listener's
  // children begin with it.
  std::vector<StreamOption> options;
  void Keep(int level, int name, const void* value, size_t length);
  // One of them (stream_settings.cc): a number, or a text; nothing, or "": the program did not.
  std::optional<int> Asked(int level, int name);
  std::string AskedText(int level, int name);
  int claim = -1;                                // Of a listener: as ClaimListener().
  std::deque<std::shared_ptr<Socket>> accepted;  // Of a listener, not handed out yet.
  std::mutex kernel_accept_mutex;                // Taken last: Socket::AcceptInKernel().
  std::atomic<int> kernel_accepts{0};            // Threads that are a Socket::KernelAccept.
};

}  // namespace xtreme::sockets

#endif  // XTREME_API_SOCKETS_STREAM_H_
