// SPDX-License-Identifier: Apache-2.0
//
// What a buffer that is lent to the application tells when it is released, and whose a connection
// is.
//
// Threads: the ring's owner.

#ifndef XTREME_XTREME_ENGINE_TCP_LOAN_H_
#define XTREME_XTREME_ENGINE_TCP_LOAN_H_

#include <cstdint>

#include "xtreme/engine/handle.h"
#include "xtreme/engine/tcp_socket.h"

namespace xtreme::engine {

// Its socket without the number of the ring, and its bytes.
inline constexpr int kLoanBytesShift = 48;

inline uint64_t LoanOf(Handle socket, uint32_t bytes) {
  return uint64_t{bytes} << kLoanBytesShift | (socket << 16 >> 16);
}

// From tcp::Connection::user; null: accepted by nobody.
inline TcpSocket* SocketOf(uint64_t user) {
  return reinterpret_cast<TcpSocket*>(static_cast<uintptr_t>(user));
}

}  // namespace xtreme::engine

#endif  // XTREME_XTREME_ENGINE_TCP_LOAN_H_
