// SPDX-License-Identifier: Apache-2.0

#include "xtreme/engine/host_kernel.h"

#include <sys/epoll.h>

#include <array>
#include <utility>

#include "xtreme/engine/control_thread.h"
#include "xtreme/engine/kernel_port.h"
#include "xtreme/engine/path_errors.h"
#include "xtreme/host/icmp_errors.h"
#include "xtreme/host/membership.h"
#include "xtreme/host/neighbour_probe.h"
#include "xtreme/host/netlink_monitor.h"

namespace xtreme::engine {

HostKernel::HostKernel(std::unique_ptr<host::NetlinkMonitor> monitor)
    : monitor_(std::move(monitor)) {}

HostKernel::~HostKernel() = default;

absl::StatusOr<std::unique_ptr<HostKernel>> HostKernel::Create() {
  auto monitor = host::NetlinkMonitor::Open({});
  if (!monitor.ok()) return monitor.status();
  return std::unique_ptr<HostKernel>(new HostKernel(*std::move(monitor)));
}

std::shared_ptr<const host::Snapshot> HostKernel::Routes() const { return monitor_->Current(); }

absl::Status HostKernel::Start(ControlThread* control, KernelEvents events) {
  control_ = control;
  events_ = std::move(events);
  memberships_ = host::MembershipMirror::Create();
  if (!control_->Watch(monitor_->fd(), EPOLLIN, [this](uint32_t) { FollowTables(); })) {
    return absl::ResourceExhaustedError("follow the kernel's tables: epoll refuses the socket");
  }
  return absl::OkStatus();
}

void HostKernel::Stop() {
  control_->Unwatch(monitor_->fd());
  for (auto& [ifindex, probe] : probes_) control_->Unwatch(probe->fd());
  probes_.clear();
  for (auto& [ifindex, errors] : path_errors_) control_->Unwatch(errors->fd());
  path_errors_.clear();
  memberships_.reset();
}

void HostKernel::FollowTables() {
  const uint64_t before = monitor_->version().load(std::memory_order_relaxed);
  // After an error the old state stands, and what is left to read is read at the next event.
  monitor_->Process().IgnoreError();
  if (monitor_->version().load(std::memory_order_relaxed) != before) events_.routes_changed();
}

absl::Status HostKernel::WatchNeighbours(uint32_t ifindex) {
  if (probes_.count(ifindex) > 0) return absl::OkStatus();
  auto opened = host::NeighbourProbe::Open(ifindex);
  if (!opened.ok()) return opened.status();
  auto probe = std::make_unique<host::NeighbourProbe>(*std::move(opened));
  host::NeighbourProbe* served = probe.get();
  if (!control_->Watch(probe->fd(), EPOLLIN, [this, served](uint32_t) { ServeProbe(served); })) {
    return absl::ResourceExhaustedError("watch ARP replies: epoll refuses the socket");
  }
  probes_[ifindex] = std::move(probe);
  return absl::OkStatus();
}

// One batch; the socket stays readable while there are more.
void HostKernel::ServeProbe(host::NeighbourProbe* probe) {
  std::array<host::NeighbourSighting, 16> sightings;
  const size_t count = probe->Poll(sightings);
  for (size_t i = 0; i < count; ++i) {
    events_.neighbour_seen(sightings[i].ifindex, sightings[i].address, sightings[i].mac);
  }
}

absl::Status HostKernel::WatchPathErrors(uint32_t ifindex) {
  if (path_errors_.count(ifindex) > 0) return absl::OkStatus();
  auto opened = host::IcmpErrors::Open(ifindex);
  if (!opened.ok()) return opened.status();
  auto errors = std::make_unique<host::IcmpErrors>(*std::move(opened));
  const auto serve = [this, ifindex, served = errors.get()](uint32_t) {
    ServePathErrors(ifindex, served);
  };
  if (!control_->Watch(errors->fd(), EPOLLIN, serve)) {
    return absl::ResourceExhaustedError("watch ICMP: epoll refuses the socket");
  }
  path_errors_[ifindex] = std::move(errors);
  return absl::OkStatus();
}

// One batch; the socket stays readable while there are more.
void HostKernel::ServePathErrors(uint32_t ifindex, host::IcmpErrors* errors) {
  constexpr size_t kBatch = 64;
  auto batch = std::make_shared<PathErrors>();
  batch->errors.resize(kBatch);
  batch->errors.resize(errors->Poll(batch->errors));
  batch->refusals = errors->TakeRefusals();
  events_.path_errors(ifindex, std::move(batch));
}

absl::StatusOr<std::unique_ptr<KernelPort>> HostKernel::LeasePort(const wire::Endpoint& local,
                                                                  bool reuse, bool deliver) {
  return LeasedPort::Lease(local, reuse, deliver);
}

absl::StatusOr<std::unique_ptr<KernelPort>> HostKernel::AdoptPort(int bound_socket,
                                                                  bool deliver) {
  return LeasedPort::Adopt(bound_socket, deliver);
}

absl::StatusOr<std::unique_ptr<KernelPort>> HostKernel::LeaseTcpPorts(
    const wire::Endpoint& local, uint8_t count_log2) {
  return local.port != 0 ? LeasedTcpPorts::LeaseOne(local)
                         : LeasedTcpPorts::LeaseBlock(local.address, count_log2);
}

absl::StatusOr<Kernel::MembershipId> HostKernel::Join(uint32_t ifindex, wire::Ipv4Address group,
                                                      const host::SourceFilter& filter) {
  return memberships_->Join(ifindex, group, filter);
}

absl::Status HostKernel::Change(MembershipId id, const host::SourceFilter& filter) {
  return memberships_->Change(id, filter);
}

void HostKernel::Leave(MembershipId id) {
  if (memberships_ != nullptr) memberships_->Leave(id);
}

}  // namespace xtreme::engine
