// SPDX-License-Identifier: Apache-2.0
//
// What the interposed calls have in common. Each asks whether the descriptor is ours; if it is not,
// or the call comes from below us, the C library's own is called.
//
// Results of the faces are 0 or a count, or -errno; calls return -1 and set errno.
// Threads: any.

#ifndef XTREME_API_PRELOAD_PRELOAD_H_
#define XTREME_API_PRELOAD_PRELOAD_H_

#include <cerrno>
#include <memory>

#include "api/sockets/faces.h"
#include "api/sockets/kernel_calls.h"
#include "api/sockets/socket.h"

#define XTREME_CALL extern "C" __attribute__((visibility("default")))

namespace xtreme::preload {

inline sockets::Faces& Faces() { return sockets::Faces::The(); }
inline const sockets::KernelCalls& Kernel() { return sockets::Kernel(); }

// Null: the kernel's.
inline std::shared_ptr<sockets::Socket> Ours(int fd) {
  if (sockets::Passage::Inside() || !Faces().descriptors().Has(fd)) return nullptr;
  return Faces().descriptors().FindSocket(fd);
}

template <typename T>
T Result(T result) {
  if (result >= 0) return result;
  errno = static_cast<int>(-result);
  return -1;
}

// Streams on sockets write what they have: the program ends.
void FlushStreams();

// `fd` is another file: stdin, stdout or stderr, if it is theirs, goes by calls that come here as
// long as it is a connection or datagram socket of a ring.
void FollowStandard(int fd);

// `fd` is about to be closed, or another file's.
void Forget(int fd);

// The result of `call`, which asks the kernel for more than the program did.
template <typename Call>
auto ResultOf(const Call& call) {
  const auto asked = [&] {
    const sockets::ErrnoKept kept;
    return call();
  };
  return Result(asked());
}

}  // namespace xtreme::preload

#endif  // XTREME_API_PRELOAD_PRELOAD_H_
