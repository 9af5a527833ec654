// SPDX-License-Identifier: Apache-2.0
//
// What the calls that send and receive have in common, behind the C library's names.
//
// Results are a count, or -errno; kAskKernel: the call is the kernel's. Threads: any.

#ifndef XTREME_API_PRELOAD_TRANSFER_H_
#define XTREME_API_PRELOAD_TRANSFER_H_

#include <sys/socket.h>
#include <sys/uio.h>

#include <cstddef>
#include <span>

#include "stack/wire/address.h"

namespace xtreme::sockets {
class Socket;
}

namespace xtreme::preload {

// As recvfrom(2) and sendto(2), by the descriptor.
ssize_t ReceiveOurs(int fd, void* to, size_t size, int flags, sockaddr* from,
                    socklen_t* from_length);
ssize_t SendOurs(int fd, const void* from, size_t size, int flags, const sockaddr* to,
                 socklen_t length);

// The same of a socket that was found, and in parts. A send to where nobody reads any more raises
// SIGPIPE, if it may.
ssize_t ReceiveInto(sockets::Socket& socket, std::span<const iovec> parts, int flags,
                    sockaddr* from, socklen_t* from_length);
ssize_t SendFrom(sockets::Socket& socket, std::span<const iovec> parts, int flags,
                 const sockaddr* to, socklen_t length);

// Writes `endpoint` as a source; cut where there is no room, as the kernel does.
void GiveAddress(const wire::Endpoint& endpoint, void* to, socklen_t* length);

}  // namespace xtreme::preload

#endif  // XTREME_API_PRELOAD_TRANSFER_H_
