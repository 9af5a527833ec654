// SPDX-License-Identifier: Apache-2.0

#include "xtreme/engine/testing/memory_kernel.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <utility>

#include "xtreme/engine/control_thread.h"

namespace xtreme::engine::testing {

class MemoryKernel::Port final : public KernelPort {
 public:
  Port(MemoryKernel* kernel, wire::Endpoint local, bool deliver)
      : kernel_(kernel), local_(local), fd_(deliver ? eventfd(0, EFD_NONBLOCK) : -1) {}
  ~Port() override {
    std::lock_guard lock(kernel_->mutex_);
    std::erase_if(kernel_->leased_, [this](const auto& leased) { return leased.second == this; });
    if (fd_ >= 0) close(fd_);
  }
  wire::Endpoint local() const override { return local_; }
  int fd() const override { return fd_; }
  void Drain(const std::function<void(const KernelDatagram&)>& take) override {
    std::deque<std::pair<KernelDatagram, std::string>> waiting;
    {
      std::lock_guard lock(kernel_->mutex_);
      eventfd_t value;
      eventfd_read(fd_, &value);
      waiting.swap(waiting_);
    }
    for (auto& [datagram, payload] : waiting) {
      datagram.payload = {reinterpret_cast<const uint8_t*>(payload.data()), payload.size()};
      take(datagram);
    }
  }
  bool EndListening() override { return !kernel_->keeps_listening_; }
  // The kernel's mutex is held.
  void Push(const KernelDatagram& datagram, const std::string& payload) {
    waiting_.emplace_back(datagram, payload);
    eventfd_write(fd_, 1);
  }
  bool waits() const { return !waiting_.empty(); }

 private:
  MemoryKernel* const kernel_;
  const wire::Endpoint local_;
  const int fd_;
  std::deque<std::pair<KernelDatagram, std::string>> waiting_;
};

MemoryKernel::MemoryKernel(const Link& link) {
  const wire::Ipv4Address own = link.own;
  host::Interface interface;
  interface.ifindex = kIfindex;
  interface.name = kInterface;
  interface.mac = link.own_mac;
  interface.mtu = link.mtu;
  interface.up = interface.multicast = true;
  interface.running = link.carrier;
  tables_.interfaces = {interface};
  if (link.vlan_id != 0) {
    host::Interface& tagged = tables_.interfaces[0];
    tagged.name = std::string(kInterface) + "." + std::to_string(link.vlan_id);
    tagged.vlan = host::Vlan{.id = link.vlan_id};
    tagged.parent_ifindex = interface.ifindex = kIfindex + 1;
    tables_.interfaces.push_back(interface);
  }
  tables_.addresses = {{.ifindex = kIfindex,
                        .local = own,
                        .peer = own,
                        .broadcast = wire::Ipv4Address(10, 0, 0, 255),
                        .prefix_length = 24,
                        .scope = RT_SCOPE_UNIVERSE}};
  const auto route = [](uint32_t table, host::RouteType type, wire::Ipv4Prefix to,
                        std::optional<wire::Ipv4Address> gateway, uint32_t ifindex = kIfindex) {
    host::Route made;
    made.table = table;
    made.type = type;
    made.destination = to;
    made.next_hops = {{.ifindex = ifindex, .gateway = gateway}};
    return made;
  };
  std::vector<host::Route> routes{
          route(RT_TABLE_LOCAL, host::RouteType::kLocal, {own, 32}, std::nullopt),
          route(RT_TABLE_LOCAL, host::RouteType::kBroadcast, {{10, 0, 0, 255}, 32}, std::nullopt),
          route(RT_TABLE_MAIN, host::RouteType::kUnicast, {{10, 0, 0, 0}, 24}, std::nullopt),
          route(RT_TABLE_MAIN, host::RouteType::kUnicast, {{}, 0},
                wire::Ipv4Address(10, 0, 0, 254))};
  tables_.neighbours = {{.ifindex = kIfindex,
                         .address = link.peer,
                         .mac = link.peer_mac,
                         .state = NUD_PERMANENT}};
  if (link.backup.has_value()) {
    routes.push_back(
        route(RT_TABLE_LOCAL, host::RouteType::kLocal, {*link.backup, 32}, std::nullopt,
              kBackupIfindex));
    // The kernel prefers the other one, whether its link is up or not.
    routes.push_back(route(RT_TABLE_MAIN, host::RouteType::kUnicast, {{10, 0, 0, 0}, 24},
                           std::nullopt, kBackupIfindex));
    routes.back().metric = 100;
    AddBackup(link);
  }
  tables_.fib =
      std::make_shared<host::Fib>(std::move(routes), std::vector<host::RoutingRule>{});
  current_ = std::make_shared<host::Snapshot>(++version_, tables_);
}

void MemoryKernel::AddBackup(const Link& link) {
  host::Interface interface;
  interface.ifindex = kBackupIfindex;
  interface.name = kBackupInterface;
  interface.mac = link.backup_mac;
  interface.mtu = link.backup_mtu;
  interface.up = interface.running = interface.multicast = true;
  tables_.interfaces.push_back(interface);
  host::InterfaceAddress address = tables_.addresses[0];
  address.ifindex = kBackupIfindex;
  address.local = address.peer = *link.backup;
  tables_.addresses.push_back(address);
  host::Neighbour peer = tables_.neighbours[0];
  peer.ifindex = kBackupIfindex;
  tables_.neighbours.push_back(peer);
}

void MemoryKernel::Publish() {
  control_->RunAndWait([this] {
    {
      std::lock_guard lock(mutex_);
      current_ = std::make_shared<host::Snapshot>(++version_, tables_);
    }
    events_.routes_changed();
  });
}

void MemoryKernel::Answer(wire::Ipv4Address address, wire::MacAddress mac) {
  control_->RunAndWait([&] { events_.neighbour_seen(kIfindex, address, mac); });
}

void MemoryKernel::Complain(std::shared_ptr<const PathErrors> batch) {
  control_->RunAndWait([&] { events_.path_errors(kIfindex, std::move(batch)); });
}

void MemoryKernel::Push(uint16_t port, const KernelDatagram& datagram,
                        const std::string& payload) {
  std::lock_guard lock(mutex_);
  leased_.find(port)->second->Push(datagram, payload);
}

bool MemoryKernel::Waits(uint16_t port) const {
  std::lock_guard lock(mutex_);
  return leased_.find(port)->second->waits();
}

size_t MemoryKernel::ports() const {
  std::lock_guard lock(mutex_);
  return leased_.size();
}

std::map<wire::Ipv4Address, host::SourceFilter> MemoryKernel::memberships() const {
  std::lock_guard lock(mutex_);
  std::map<wire::Ipv4Address, host::SourceFilter> by_group;
  for (const auto& [id, membership] : joined_) by_group[membership.group] = membership.filter;
  return by_group;
}

std::multimap<wire::Ipv4Address, uint32_t> MemoryKernel::joined_on() const {
  std::lock_guard lock(mutex_);
  std::multimap<wire::Ipv4Address, uint32_t> by_group;
  for (const auto& [id, membership] : joined_) {
    by_group.emplace(membership.group, membership.ifindex);
  }
  return by_group;
}

std::shared_ptr<const host::Snapshot> MemoryKernel::Routes() const {
  std::lock_guard lock(mutex_);
  return current_;
}

absl::Status MemoryKernel::Start(ControlThread* control, KernelEvents events) {
  control_ = control;
  events_ = std::move(events);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<KernelPort>> MemoryKernel::LeasePort(const wire::Endpoint& local,
                                                                    bool reuse, bool deliver) {
  wire::Endpoint bound = local;
  std::lock_guard lock(mutex_);
  if (bound.port == 0) bound.port = next_port_++;
  if (taken_.count(bound.port) > 0 || (!reuse && leased_.count(bound.port) > 0)) {
    return absl::AlreadyExistsError("lease port: it is in use");
  }
  auto port = std::make_unique<Port>(this, bound, deliver);
  leased_.emplace(bound.port, port.get());
  return port;
}

absl::StatusOr<std::unique_ptr<KernelPort>> MemoryKernel::AdoptPort(int, bool) {
  return absl::UnimplementedError("adopt port: a kernel in memory knows no sockets");
}

absl::StatusOr<std::unique_ptr<KernelPort>> MemoryKernel::LeaseTcpPorts(
    const wire::Endpoint& local, uint8_t count_log2) {
  if (local.port != 0) return LeasePort(local, /*reuse=*/false, /*deliver=*/false);
  std::lock_guard lock(mutex_);
  if (blocks_taken_) return absl::ResourceExhaustedError("lease ports: no block is free");
  const wire::Endpoint first{local.address, next_block_};
  next_block_ = static_cast<uint16_t>(next_block_ + (1u << count_log2));
  auto port = std::make_unique<Port>(this, first, /*deliver=*/false);
  leased_.emplace(first.port, port.get());
  return port;
}

absl::StatusOr<Kernel::MembershipId> MemoryKernel::Join(uint32_t ifindex,
                                                        wire::Ipv4Address group,
                                                        const host::SourceFilter& filter) {
  if (!join_status_.ok()) return join_status_;
  std::lock_guard lock(mutex_);
  joined_[next_id_] = {ifindex, group, filter};
  return next_id_++;
}

absl::Status MemoryKernel::Change(MembershipId id, const host::SourceFilter& filter) {
  std::lock_guard lock(mutex_);
  joined_.at(id).filter = filter;
  return absl::OkStatus();
}

void MemoryKernel::Leave(MembershipId id) {
  std::lock_guard lock(mutex_);
  joined_.erase(id);
}

}  // namespace xtreme::engine::testing
