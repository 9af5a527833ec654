// SPDX-License-Identifier: Apache-2.0
//
// What became of a send on a connection.

#ifndef XTREME_STACK_TCP_SEND_RESULT_H_
#define XTREME_STACK_TCP_SEND_RESULT_H_

#include <cstdint>

namespace xtreme::tcp {

enum class SendResult : uint8_t {
  kSent,
  kQueued,      // waits for the window, the congestion window, or the handshake
  kWindow,      // refused: the peer's window, or the send queue, is full
  kCongestion,  // refused: the congestion window is full
  kRecovery,    // refused: losses are being repaired
  kDevice,      // refused: the device's send queue is full
  kBuffers,     // refused: no buffer or segment is free
  kState,       // refused: not established yet, or closed
};

constexpr bool IsRefused(SendResult result) { return result > SendResult::kQueued; }

}  // namespace xtreme::tcp

#endif  // XTREME_STACK_TCP_SEND_RESULT_H_
