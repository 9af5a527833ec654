// SPDX-License-Identifier: Apache-2.0
//
// Stream: what a socket of the program has beyond a datagram socket's when it is a connection or a
// listener of a ring.
//
// Threads: inside the ring's door.

#ifndef XTREME_API_SOCKETS_STREAM_H_
#define XTREME_API_SOCKETS_STREAM_H_

#include <cstdint>
#include <deque>
#include <memory>

namespace xtreme::sockets {

class Socket;

struct Stream {
  enum class State : uint8_t { kIdle, kListening, kConnecting, kConnected, kEnded };

  State state = State::kIdle;
  bool established = false;   // It was, at some time.
  bool peer_closed = false;   // FIN came, after what is queued.
  bool writable = true;       // No send was refused since there was space.
  int backlog = 128;
  std::deque<std::shared_ptr<Socket>> accepted;  // Of a listener, not handed out yet.
};

}  // namespace xtreme::sockets

#endif  // XTREME_API_SOCKETS_STREAM_H_
