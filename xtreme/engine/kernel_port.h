// SPDX-License-Identifier: Apache-2.0
//
// LeasedPort: a port leased from the kernel, and what comes to the kernel's socket behind it: the
// datagrams that it reassembled and the ICMP errors about what we sent.
//
// Of datagrams to groups only those come that arrived in fragments, which no rule with a port
// takes: the others a ring gets by its own rules, also where the kernel has a copy. The kernel
// hands a socket those of every group the host has joined, if it is bound to any address, and of
// its own group only, if it is bound to one: fragments of others that it joins are the kernel's.
// Threads: the control thread. Spec: ip(7) (IP_RECVERR, IP_PKTINFO, IP_MULTICAST_ALL).

#ifndef XTREME_XTREME_ENGINE_KERNEL_PORT_H_
#define XTREME_XTREME_ENGINE_KERNEL_PORT_H_

#include <optional>
#include <utility>
#include <vector>

#include "xtreme/engine/kernel.h"
#include "xtreme/host/port_lease.h"

namespace xtreme::engine {

class LeasedPort final : public KernelPort {
 public:
  // The errors of PortLease::Acquire, or of setsockopt.
  static absl::StatusOr<std::unique_ptr<KernelPort>> Lease(const wire::Endpoint& local, bool reuse,
                                                           bool deliver);
  // The errors of PortLease::Adopt, or of setsockopt.
  static absl::StatusOr<std::unique_ptr<KernelPort>> Adopt(int bound_socket, bool deliver);

  wire::Endpoint local() const override { return lease_.local(); }
  int fd() const override { return reads_ == Reads::kNothing ? -1 : lease_.fd(); }
  void Drain(const std::function<void(const KernelDatagram&)>& take) override;
  uint32_t TakeLost() override;
  bool EndListening() override { return lease_.EndListening(); }

 private:
  static constexpr int kBound = 64;  // Datagrams of one Drain.

  enum class Reads : uint8_t {
    kNothing,
    kErrors,  // ICMP's, about what was sent from the port.
    kAll,     // And datagrams.
  };

  static absl::StatusOr<std::unique_ptr<KernelPort>> Configure(host::PortLease lease, Reads reads);
  LeasedPort(host::PortLease lease, Reads reads)
      : lease_(std::move(lease)), reads_(reads), payload_(reads == Reads::kAll ? 65'536 : 0) {}

  // False: nothing more waits. `flags`: of recvmsg.
  bool Take(int flags, const std::function<void(const KernelDatagram&)>& take);

  host::PortLease lease_;
  const Reads reads_;
  std::vector<uint8_t> payload_;
  uint32_t lost_ = 0;  // The kernel's count, as of the last TakeLost().
};

// TCP ports leased from the kernel, one or a block: its sockets are bound and never listen, so it
// answers for them with RST when we are gone.
class LeasedTcpPorts final : public KernelPort {
 public:
  // The errors of PortLease::Acquire and PortBlock::Acquire.
  static absl::StatusOr<std::unique_ptr<KernelPort>> LeaseOne(const wire::Endpoint& local);
  static absl::StatusOr<std::unique_ptr<KernelPort>> LeaseBlock(wire::Ipv4Address address,
                                                                uint8_t count_log2);

  wire::Endpoint local() const override { return local_; }
  int fd() const override { return -1; }
  void Drain(const std::function<void(const KernelDatagram&)>&) override {}

 private:
  LeasedTcpPorts(const wire::Endpoint& local, std::optional<host::PortLease> one,
                 std::optional<host::PortBlock> block)
      : local_(local), one_(std::move(one)), block_(std::move(block)) {}

  const wire::Endpoint local_;
  const std::optional<host::PortLease> one_;
  const std::optional<host::PortBlock> block_;
};

}  // namespace xtreme::engine

#endif  // XTREME_XTREME_ENGINE_KERNEL_PORT_H_
