// SPDX-License-Identifier: Apache-2.0
//
// poll() and select() over any mixture of the kernel's descriptors and ours.
//
// Results as poll(2) and select(2), or -errno. Threads: any.

#ifndef XTREME_API_SOCKETS_POLL_H_
#define XTREME_API_SOCKETS_POLL_H_

#include <poll.h>
#include <sys/select.h>

#include <csignal>
#include <span>

#include "stack/base/time.h"

namespace xtreme::sockets {

class Faces;

// Whether any of them is ours; if not, the call is the kernel's.
bool AnyOurs(Faces& faces, std::span<const pollfd> fds);
int Poll(Faces& faces, std::span<pollfd> fds, base::Nanoseconds limit, const sigset_t* signals);

// kAskKernel: none of them is ours.
int Select(Faces& faces, int count, fd_set* read, fd_set* write, fd_set* except,
           base::Nanoseconds limit, const sigset_t* signals);

}  // namespace xtreme::sockets

#endif  // XTREME_API_SOCKETS_POLL_H_
