// SPDX-License-Identifier: Apache-2.0
//
// A kernel in memory for tests: the tables the test gives it, ports and memberships it can look at.
//
// Threads: any; the engine's callbacks run on the control thread.

#ifndef XTREME_XTREME_ENGINE_TESTING_MEMORY_KERNEL_H_
#define XTREME_XTREME_ENGINE_TESTING_MEMORY_KERNEL_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "xtreme/engine/kernel.h"
#include "xtreme/host/membership.h"
#include "xtreme/host/snapshot.h"

namespace xtreme::engine::testing {

class MemoryKernel final : public Kernel {
 public:
  static constexpr uint32_t kIfindex = 7;
  static constexpr const char* kInterface = "xt0";
  static constexpr uint32_t kBackupIfindex = 9;
  static constexpr const char* kBackupInterface = "xt1";

  // Who we are, and the one neighbour that is known.
  struct Link {
    wire::Ipv4Address own{10, 0, 0, 1};
    wire::MacAddress own_mac{{2, 0, 0, 0, 0, 1}};
    wire::Ipv4Address peer{10, 0, 0, 2};
    wire::MacAddress peer_mac{{2, 0, 0, 0, 0, 2}};
    uint32_t mtu = 1'500;
    uint16_t vlan_id = 0;  // Not 0: the addresses are those of a VLAN interface above xt0.
    bool carrier = true;   // Of xt0, to begin with.
    // There is xt1 as well, in the same network, with this address.
    std::optional<wire::Ipv4Address> backup = std::nullopt;
    wire::MacAddress backup_mac{{2, 0, 0, 0, 0, 3}};
    uint32_t backup_mtu = 1'500;
  };

  // xt0 (or xt0.N) with `link.own`/24 in 10.0.0.0/24, and a default gateway 10.0.0.254.
  explicit MemoryKernel(const Link& link);

  // --- The test's side ---

  // The tables of the next snapshot.
  host::KernelTables& tables() { return tables_; }
  // Publishes them and tells the engine, on the control thread.
  void Publish();
  // As if `address` had answered our ARP request.
  void Answer(wire::Ipv4Address address, wire::MacAddress mac);
  // As if these ICMP errors had come in on xt0.
  void Complain(std::shared_ptr<const PathErrors> batch);
  // Something for the kernel socket behind `port`.
  void Push(uint16_t port, const KernelDatagram& datagram, const std::string& payload);
  // Whether nobody has begun to take all that was pushed there.
  bool Waits(uint16_t port) const;
  void FailJoins(absl::Status status) { join_status_ = std::move(status); }
  // Where listeners end, others listen on.
  void KeepListening() { keeps_listening_ = true; }
  void TakePort(uint16_t port) { taken_.insert(port); }
  // No block of TCP ports is free.
  void TakeBlocks() { blocks_taken_ = true; }
  size_t ports() const;
  std::map<wire::Ipv4Address, host::SourceFilter> memberships() const;
  // The interface of each.
  std::multimap<wire::Ipv4Address, uint32_t> joined_on() const;

  // --- Kernel ---

  std::shared_ptr<const host::Snapshot> Routes() const override;
  absl::Status Start(ControlThread* control, KernelEvents events) override;
  void Stop() override {}
  absl::Status WatchNeighbours(uint32_t) override { return absl::OkStatus(); }
  absl::Status WatchPathErrors(uint32_t) override { return absl::OkStatus(); }
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
  class Port;
  struct Membership {
    uint32_t ifindex;
    wire::Ipv4Address group;
    host::SourceFilter filter;
  };

  void AddBackup(const Link& link);

  ControlThread* control_ = nullptr;
  KernelEvents events_;
  host::KernelTables tables_;
  absl::Status join_status_;
  uint64_t version_ = 0;
  mutable std::mutex mutex_;
  std::shared_ptr<const host::Snapshot> current_;  // Guarded by mutex_, as all below.
  std::multimap<uint16_t, Port*> leased_;
  std::set<uint16_t> taken_;
  std::map<MembershipId, Membership> joined_;
  uint16_t next_port_ = 40'000;
  uint16_t next_block_ = 32'768;
  bool blocks_taken_ = false;
  std::atomic<bool> keeps_listening_{false};
  MembershipId next_id_ = 1;
};

}  // namespace xtreme::engine::testing

#endif  // XTREME_XTREME_ENGINE_TESTING_MEMORY_KERNEL_H_
