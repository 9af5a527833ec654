// SPDX-License-Identifier: Apache-2.0
//
// The seam to the kernel beside us: routes, ports, group memberships, sightings of neighbours,
// ICMP errors.
//
// The engine asks for these through one interface, so that it runs over the real kernel
// (host_kernel.h) and, in tests, over one in memory. Threads: Routes any; the rest the control
// thread.

#ifndef XTREME_XTREME_ENGINE_KERNEL_H_
#define XTREME_XTREME_ENGINE_KERNEL_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "stack/wire/address.h"

namespace xtreme::host {
class Snapshot;
struct SourceFilter;
}  // namespace xtreme::host

namespace xtreme::engine {

class ControlThread;
struct PathErrors;

// A datagram that came through the kernel, or the ICMP error for one of ours.
struct KernelDatagram {
  wire::Endpoint source;       // Of an error: who complains (port 0).
  wire::Endpoint destination;  // Of an error: the offending destination.
  std::span<const uint8_t> payload;  // Until the callback returns.
  int error = 0;               // An errno, or 0 for a datagram.
  uint32_t ifindex = 0;        // Where it came in; 0: not said.
};

// A port that the kernel keeps for us by a bound socket, until destroyed.
class KernelPort {
 public:
  virtual ~KernelPort() = default;
  virtual wire::Endpoint local() const = 0;
  // Readable (or in error) when Drain has something; -1: never.
  virtual int fd() const = 0;
  // Takes what the socket has, up to a bound of its own; never blocks.
  virtual void Drain(const std::function<void(const KernelDatagram&)>& take) = 0;
  // Datagrams that the kernel dropped at the socket since the last call.
  virtual uint32_t TakeLost() { return 0; }
  // Of a listener's, which was closed: as host::PortLease::EndListening().
  virtual bool EndListening() { return true; }
};

// What the kernel tells by itself, on the control thread.
struct KernelEvents {
  std::function<void()> routes_changed;
  std::function<void(uint32_t ifindex, wire::Ipv4Address, wire::MacAddress)> neighbour_seen;
  std::function<void(uint32_t ifindex, std::shared_ptr<const PathErrors>)> path_errors;
};

class Kernel {
 public:
  using MembershipId = uint64_t;

  virtual ~Kernel() = default;

  // The newest state of interfaces, addresses, routes and neighbours; never null.
  virtual std::shared_ptr<const host::Snapshot> Routes() const = 0;

  // Serves the kernel's events on `control` (whose thread this is) until Stop().
  virtual absl::Status Start(ControlThread* control, KernelEvents events) = 0;
  virtual void Stop() = 0;
  // Neighbours on `ifindex` are reported from here on, as they answer.
  virtual absl::Status WatchNeighbours(uint32_t ifindex) = 0;
  // ICMP errors about TCP that come in on `ifindex` are reported from here on.
  virtual absl::Status WatchPathErrors(uint32_t ifindex) = 0;

  // Port 0: the kernel chooses. `deliver`: what reaches the kernel's socket can be drained.
  // AlreadyExists: in use. FailedPrecondition: not an address of this host.
  virtual absl::StatusOr<std::unique_ptr<KernelPort>> LeasePort(const wire::Endpoint& local,
                                                                bool reuse, bool deliver) = 0;
  // The same behind a bound socket of the caller's, which is duplicated; `deliver`: UDP only.
  virtual absl::StatusOr<std::unique_ptr<KernelPort>> AdoptPort(int bound_socket,
                                                                bool deliver) = 0;

  // The same for TCP, where nothing is drained: the port given, or, of port 0, an aligned block of
  // 2^`count_log2` ports, of which local() is the first. ResourceExhausted: no block is free.
  virtual absl::StatusOr<std::unique_ptr<KernelPort>> LeaseTcpPorts(const wire::Endpoint& local,
                                                                    uint8_t count_log2) = 0;

  virtual absl::StatusOr<MembershipId> Join(uint32_t ifindex, wire::Ipv4Address group,
                                            const host::SourceFilter& filter) = 0;
  virtual absl::Status Change(MembershipId id, const host::SourceFilter& filter) = 0;
  virtual void Leave(MembershipId id) = 0;
};

}  // namespace xtreme::engine

#endif  // XTREME_XTREME_ENGINE_KERNEL_H_
