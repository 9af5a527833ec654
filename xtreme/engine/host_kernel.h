// SPDX-License-Identifier: Apache-2.0
//
// HostKernel: the seam to the kernel, over the real one (xtreme/host).
//
// Threads: as Kernel says. Works in the network namespace of the thread that calls Create() and of
// the control thread, which must be the same.

#ifndef XTREME_XTREME_ENGINE_HOST_KERNEL_H_
#define XTREME_XTREME_ENGINE_HOST_KERNEL_H_

#include <map>
#include <memory>

#include "absl/status/statusor.h"
#include "xtreme/engine/kernel.h"

namespace xtreme::host {
class IcmpErrors;
class MembershipMirror;
class NeighbourProbe;
class NetlinkMonitor;
}  // namespace xtreme::host

namespace xtreme::engine {

class HostKernel final : public Kernel {
 public:
  // Reads the kernel's tables. The errors of rtnetlink.
  static absl::StatusOr<std::unique_ptr<HostKernel>> Create();
  ~HostKernel() override;

  std::shared_ptr<const host::Snapshot> Routes() const override;
  absl::Status Start(ControlThread* control, KernelEvents events) override;
  void Stop() override;
  absl::Status WatchNeighbours(uint32_t ifindex) override;
  absl::Status WatchPathErrors(uint32_t ifindex) override;
  absl::StatusOr<std::unique_ptr<KernelPort>> LeasePort(const wire::Endpoint& local, bool reuse,
                                                        bool deliver) override;
  absl::StatusOr<std::unique_ptr<KernelPort>> AdoptPort(int bound_socket, bool deliver) override;
  absl::StatusOr<std::unique_ptr<KernelPort>> LeaseTcpPorts(const wire::Endpoint& local,
                                                            uint8_t count_log2) override;
  absl::StatusOr<MembershipId> Join(uint32_t ifindex, wire::Ipv4Address group,
                                    const host::SourceFilter& filter) override;
  absl::Status Change(MembershipId id, const host::SourceFilter& filter) override;
  void Leave(MembershipId id) override;

 private:
  explicit HostKernel(std::unique_ptr<host::NetlinkMonitor> monitor);
  void FollowTables();
  void ServeProbe(host::NeighbourProbe* probe);
  void ServePathErrors(uint32_t ifindex, host::IcmpErrors* errors);

  const std::unique_ptr<host::NetlinkMonitor> monitor_;

  // Control thread.
  ControlThread* control_ = nullptr;
  KernelEvents events_;
  std::unique_ptr<host::MembershipMirror> memberships_;
  std::map<uint32_t, std::unique_ptr<host::NeighbourProbe>> probes_;
  std::map<uint32_t, std::unique_ptr<host::IcmpErrors>> path_errors_;
};

}  // namespace xtreme::engine

#endif  // XTREME_XTREME_ENGINE_HOST_KERNEL_H_
