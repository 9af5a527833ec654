// SPDX-License-Identifier: Apache-2.0
//
// The calls that send and receive, by the program's descriptors: as recvfrom(2) and sendto(2).
//
// Most take a short way: of one part, on a socket that is open and plain, which is one word, with
// one lock, the ring's, and without a reference to the socket (Descriptors::Way). Everything else
// is the long way's: Socket::Receive and Socket::Send.
// Results are a count, or -errno; kAskKernel: the call is the kernel's. Threads: any.

#ifndef XTREME_API_SOCKETS_DATA_CALLS_H_
#define XTREME_API_SOCKETS_DATA_CALLS_H_

#include <sys/socket.h>
#include <sys/uio.h>

#include <cstddef>
#include <span>

#include "stack/wire/address.h"

namespace xtreme::sockets {

class Socket;

// Most have no address, and a way that does not ask for one.
ssize_t ReceiveOurs(int fd, void* to, size_t size, int flags);
ssize_t SendOurs(int fd, const void* from, size_t size, int flags);
ssize_t ReceiveOurs(int fd, void* to, size_t size, int flags, sockaddr* from,
                    socklen_t* from_length);
ssize_t SendOurs(int fd, const void* from, size_t size, int flags, const sockaddr* to,
                 socklen_t length);

// The same the long way, of a socket that was found, and in parts. A send to where nobody reads any
// more raises SIGPIPE, if it may. `wrong`: as in SendRequest.
ssize_t ReceiveInto(Socket& socket, std::span<const iovec> parts, int flags, sockaddr* from,
                    socklen_t* from_length);
ssize_t SendFrom(Socket& socket, std::span<const iovec> parts, int flags, const sockaddr* to,
                 socklen_t length, bool wrong = false);

// Writes `endpoint` as a source; cut where there is no room, as the kernel does.
void GiveAddress(const wire::Endpoint& endpoint, void* to, socklen_t* length);
// The same of what came for `socket`: connections have no source to tell (recv(2)).
void GiveSource(const Socket& socket, const wire::Endpoint& source, void* to, socklen_t* length);

}  // namespace xtreme::sockets

#endif  // XTREME_API_SOCKETS_DATA_CALLS_H_
