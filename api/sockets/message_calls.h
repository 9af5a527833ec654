// SPDX-License-Identifier: Apache-2.0
//
// The calls that send and receive in several parts, and with more than bytes, by the program's
// descriptors: as readv(2), writev(2), recvmsg(2), recvmmsg(2) and sendmsg(2).
//
// Of one part with nothing beside it they are data_calls.h's. A message with what its socket was
// asked to say of it (SO_TIMESTAMP and so on) has a short way of its own; short parts that are sent
// together are put together first. Everything else is the long way's.
// Results and threads: as in data_calls.h. What the kernel has an error for, whatever the socket,
// is the kernel's.

#ifndef XTREME_API_SOCKETS_MESSAGE_CALLS_H_
#define XTREME_API_SOCKETS_MESSAGE_CALLS_H_

#include <sys/socket.h>
#include <sys/uio.h>

namespace xtreme::sockets {

ssize_t ReceivePartsOurs(int fd, const iovec* parts, int count, int flags);
ssize_t SendPartsOurs(int fd, const iovec* parts, int count, int flags);
ssize_t ReceiveMessageOurs(int fd, msghdr* message, int flags);
ssize_t SendMessageOurs(int fd, const msghdr* message, int flags);
int ReceiveMessagesOurs(int fd, mmsghdr* messages, unsigned count, int flags, timespec* timeout);

}  // namespace xtreme::sockets

#endif  // XTREME_API_SOCKETS_MESSAGE_CALLS_H_
