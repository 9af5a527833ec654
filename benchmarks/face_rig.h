// SPDX-License-Identifier: Apache-2.0
//
// FaceRig: the socket faces of this process, as HostA, over a null device: their calls are those of
// a program, their kernel is the real one, in a namespace of its own, and nothing is on a wire.
//
// The faces are one to a process, and so is this: the first who asks makes it, it stays, and the
// thread stays in its namespace. How threads are taken is the settings' (XTREME_...), read then.
// Threads: the one that made it, and the engine's control thread.

#ifndef XTREME_BENCHMARKS_FACE_RIG_H_
#define XTREME_BENCHMARKS_FACE_RIG_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace xtreme::net {
class Namespace;
}
namespace xtreme::sockets {
class RingDoor;
}

namespace xtreme::benchmarks {

class NullDevice;
class NullNic;
class TcpRig;

class FaceRig {
 public:
  // PermissionDenied: no namespaces here.
  static absl::StatusOr<FaceRig*> The();

  NullDevice& device();

  // A datagram socket of HostA's name, connected to HostB; from here on what arrives is HostB's.
  absl::StatusOr<int> OpenDatagrams();
  // A connection to `port` of `server`, which listens there.
  absl::StatusOr<int> Connect(TcpRig& server, uint16_t port);
  static void Close(int fd);
  // The fd of the ring that sockets are on, for socketxtreme_poll.
  int ring_fd() const;

 private:
  FaceRig();
  absl::Status Open();
  absl::StatusOr<int> Offloaded(int type, uint16_t port);

  std::unique_ptr<net::Namespace> space_;
  NullNic* nic_ = nullptr;  // The engine's.
  sockets::RingDoor* door_ = nullptr;
};

}  // namespace xtreme::benchmarks

#endif  // XTREME_BENCHMARKS_FACE_RIG_H_
