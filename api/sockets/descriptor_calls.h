// SPDX-License-Identifier: Apache-2.0
//
// The calls that make, copy and close the program's descriptors, and what stands behind one.
//
// Invariant: what descriptors stand for ends with the last of them, and before the kernel closes
// it, for the number may be somebody else's at once. Results are 0 or a descriptor, or -errno.
// Threads: any; nobody is cancelled inside, but in Accept().

#ifndef XTREME_API_SOCKETS_DESCRIPTOR_CALLS_H_
#define XTREME_API_SOCKETS_DESCRIPTOR_CALLS_H_

#include <sys/socket.h>

#include <memory>

namespace xtreme::sockets {

class EpollSet;
class Faces;
class Pollable;
class Socket;

// The kernel's new socket, or epoll set, `fd` is ours to serve.
std::shared_ptr<Socket> AddSocket(Faces& faces, int fd, int type, bool nonblocking);
std::shared_ptr<EpollSet> AddSet(Faces& faces, int fd);

// `copy`, the kernel's copy of `fd`, stands for what `fd` does. -1 stays -1.
int Share(Faces& faces, int fd, int copy);
// `fd` stands for nothing of ours any more. If that was on a ring, it does not stand for the
// kernel's side of it either: until the caller closes it or puts something in its place, every call
// by it fails with EBADF.
void Forget(Faces& faces, int fd);

// As accept4(2), from the ring, else from the kernel; a listener that blocks waits for both.
int Accept(Faces& faces, const std::shared_ptr<Socket>& listener, int fd, sockaddr* address,
           socklen_t* length, int flags);

// What an item of an epoll set stands for; null: the kernel's. `polls`: it is polled from here on.
std::shared_ptr<Pollable> Target(Faces& faces, int fd, bool polls);

}  // namespace xtreme::sockets

#endif  // XTREME_API_SOCKETS_DESCRIPTOR_CALLS_H_
