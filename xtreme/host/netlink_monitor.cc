// SPDX-License-Identifier: Apache-2.0

#include "xtreme/host/netlink_monitor.h"

#include <linux/rtnetlink.h>
#include <sys/socket.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "xtreme/host/netlink_parse.h"

namespace xtreme::host {
namespace {

constexpr int kGroups[] = {RTNLGRP_LINK, RTNLGRP_IPV4_IFADDR, RTNLGRP_IPV4_ROUTE, RTNLGRP_IPV4_RULE,
                           RTNLGRP_NEIGH};

// A table that changes this often while it is read is being rewritten; leave it until it settles.
constexpr int kDumpTries = 8;

// What the kernel learned of one destination (the MTU on the way, a better gateway), which it lists
// among the routes: it lasts for minutes, and ends without a notification.
bool IsLearned(const nlmsghdr& message) {
  const auto* header = static_cast<const rtmsg*>(NLMSG_DATA(&message));
  return message.nlmsg_type == RTM_NEWROUTE && message.nlmsg_len >= NLMSG_LENGTH(sizeof(*header)) &&
         (header->rtm_flags & RTM_F_CLONED) != 0;
}

// Where the kernel would send what is for `neighbour`.
std::optional<wire::MacAddress> UsableMac(const Neighbour& neighbour) {
  if (!neighbour.usable()) return std::nullopt;
  return neighbour.mac;
}

}  // namespace

absl::StatusOr<std::unique_ptr<NetlinkMonitor>> NetlinkMonitor::Open(const Options& options) {
  if (options.receive_buffer_bytes < 4'096 || options.receive_buffer_bytes > (1u << 30)) {
    return absl::InvalidArgumentError(absl::StrCat("follow rtnetlink: a receive buffer of ",
                                                   options.receive_buffer_bytes,
                                                   " bytes asked, 4,096 to 1,073,741,824 offered"));
  }
  // Notifications first, dumps second: a change between the two is seen twice, never missed.
  auto events = NetlinkSocket::Open({.groups = kGroups,
                                     .receive_buffer_bytes = options.receive_buffer_bytes,
                                     .non_blocking = true});
  if (!events.ok()) return events.status();
  auto dumps = NetlinkSocket::Open({});
  if (!dumps.ok()) return dumps.status();
  std::unique_ptr<NetlinkMonitor> monitor(
      new NetlinkMonitor(*std::move(events), *std::move(dumps)));
  if (absl::Status status = monitor->Process(); !status.ok()) return status;
  return monitor;
}

NetlinkMonitor::NetlinkMonitor(NetlinkSocket events, NetlinkSocket dumps)
    : events_(std::move(events)),
      dumps_(std::move(dumps)),
      fib_(std::make_shared<Fib>()),
      current_(std::make_shared<Snapshot>(0, KernelTables())) {}

absl::Status NetlinkMonitor::Process() {
  if (absl::Status status = Drain(); !status.ok()) return status;
  if (absl::Status status = ReadStale(); !status.ok()) return status;
  if (changed_) Publish();
  return absl::OkStatus();
}

std::shared_ptr<const Snapshot> NetlinkMonitor::Current() const {
  const std::lock_guard lock(mutex_);
  return current_;
}

absl::Status NetlinkMonitor::Drain() {
  for (;;) {
    const auto received = events_.Receive([this](const nlmsghdr& message) { Take(message); });
    if (!received.ok()) return received.status();
    if (*received == NetlinkSocket::Received::kEmpty) return absl::OkStatus();
    if (*received == NetlinkSocket::Received::kOverrun) {
      ++counters_.overruns;
      stale_ = kEverything;
    }
  }
}

void NetlinkMonitor::Take(const nlmsghdr& message) {
  ++counters_.notifications;
  switch (message.nlmsg_type) {
    case RTM_NEWLINK:
    case RTM_DELLINK:
      TakeInterface(message);
      break;
    case RTM_NEWADDR:
    case RTM_DELADDR:
      stale_ |= kAddresses | kRoutes;
      break;
    case RTM_NEWROUTE:
    case RTM_DELROUTE:
    case RTM_NEWRULE:
    case RTM_DELRULE:
      stale_ |= kRoutes;
      break;
    case RTM_NEWNEIGH:
    case RTM_DELNEIGH:
      TakeNeighbour(message);
      break;
    default:
      break;
  }
}

void NetlinkMonitor::TakeInterface(const nlmsghdr& message) {
  const auto* header = static_cast<const ifinfomsg*>(NLMSG_DATA(&message));
  if (message.nlmsg_len < NLMSG_LENGTH(sizeof(*header)) || header->ifi_family != AF_UNSPEC) return;
  std::optional<Interface> interface = ParseInterface(message);
  if (!interface) {
    ++counters_.unreadable;
    stale_ |= kInterfaces;
    return;
  }
  // The routes of an interface that goes down or away are removed without a word.
  stale_ |= kRoutes;
  changed_ = true;
  if (message.nlmsg_type == RTM_DELLINK) {
    interfaces_.erase(interface->ifindex);
  } else {
    interfaces_.insert_or_assign(interface->ifindex, *std::move(interface));
  }
}

void NetlinkMonitor::TakeNeighbour(const nlmsghdr& message) {
  // Other families (IPv6, a bridge's forwarding entries) share the type.
  const std::optional<Neighbour> neighbour = ParseNeighbour(message);
  if (!neighbour) return;
  const std::pair key(neighbour->ifindex, neighbour->address);
  const auto known = neighbours_.find(key);
  const auto before = known == neighbours_.end() ? std::nullopt : UsableMac(known->second);
  if (message.nlmsg_type == RTM_DELNEIGH) {
    changed_ |= before.has_value();
    neighbours_.erase(key);
  } else {
    // The kernel's doubts of an address that it still sends to change nothing for a datagram.
    changed_ |= before != UsableMac(*neighbour);
    neighbours_.insert_or_assign(key, *neighbour);
  }
}

absl::Status NetlinkMonitor::ReadStale() {
  for (const Table table : {kInterfaces, kAddresses, kRoutes, kNeighbours}) {
    if ((stale_ & table) == 0) continue;
    if (absl::Status status = ReadTable(table); !status.ok()) return status;
    stale_ &= ~static_cast<uint32_t>(table);
    changed_ = true;
  }
  return absl::OkStatus();
}

absl::Status NetlinkMonitor::ReadTable(Table table) {
  for (int i = 0; i < kDumpTries; ++i) {
    ++counters_.dumps;
    absl::Status status;
    switch (table) {
      case kInterfaces:
        status = ReadInterfaces();
        break;
      case kAddresses:
        status = ReadAddresses();
        break;
      case kRoutes:
        status = ReadRoutes();
        break;
      default:
        status = ReadNeighbours();
        break;
    }
    if (!absl::IsAborted(status)) return status;
    ++counters_.interrupted_dumps;
  }
  return absl::UnavailableError(
      absl::StrCat("read the kernel's tables: changed during each of ", kDumpTries, " dumps"));
}

// Calls `keep` with each row of the dump. A message of another type in it, or of another family, is
// no row; one that is and cannot be read is counted.
template <typename Row, typename Keep>
absl::Status NetlinkMonitor::DumpRows(uint16_t get, uint16_t type,
                                      std::optional<Row> (*parse)(const nlmsghdr&), Keep keep) {
  return dumps_.Dump(get, [&](const nlmsghdr& message) {
    if (message.nlmsg_type != type || IsLearned(message)) return;
    std::optional<Row> row = parse(message);
    if (row) {
      keep(*std::move(row));
    } else {
      ++counters_.unreadable;
    }
  });
}

absl::Status NetlinkMonitor::ReadInterfaces() {
  interfaces_.clear();
  return DumpRows(RTM_GETLINK, RTM_NEWLINK, &ParseInterface, [this](Interface row) {
    const uint32_t ifindex = row.ifindex;
    interfaces_.insert_or_assign(ifindex, std::move(row));
  });
}

absl::Status NetlinkMonitor::ReadAddresses() {
  addresses_.clear();
  return DumpRows(RTM_GETADDR, RTM_NEWADDR, &ParseAddress,
                  [this](InterfaceAddress row) { addresses_.push_back(row); });
}

absl::Status NetlinkMonitor::ReadRoutes() {
  std::vector<Route> routes;
  std::vector<RoutingRule> rules;
  absl::Status status = DumpRows(RTM_GETROUTE, RTM_NEWROUTE, &ParseRoute,
                                 [&](Route row) { routes.push_back(std::move(row)); });
  if (!status.ok()) return status;
  status = DumpRows(RTM_GETRULE, RTM_NEWRULE, &ParseRule,
                    [&](RoutingRule row) { rules.push_back(std::move(row)); });
  // A kernel without policy routing has no rules to read; Fib knows its order of tables.
  if (!status.ok() && !absl::IsUnimplemented(status)) return status;
  fib_ = std::make_shared<Fib>(std::move(routes), std::move(rules));
  return absl::OkStatus();
}

absl::Status NetlinkMonitor::ReadNeighbours() {
  neighbours_.clear();
  return DumpRows(RTM_GETNEIGH, RTM_NEWNEIGH, &ParseNeighbour, [this](const Neighbour& row) {
    neighbours_.insert_or_assign({row.ifindex, row.address}, row);
  });
}

void NetlinkMonitor::Publish() {
  KernelTables tables;
  for (const auto& [ifindex, interface] : interfaces_) tables.interfaces.push_back(interface);
  tables.addresses = addresses_;
  tables.fib = fib_;
  for (const auto& [key, neighbour] : neighbours_) tables.neighbours.push_back(neighbour);
  const uint64_t version = version_.load(std::memory_order_relaxed) + 1;
  auto snapshot = std::make_shared<const Snapshot>(version, std::move(tables));
  {
    const std::lock_guard lock(mutex_);
    current_.swap(snapshot);
    version_.store(version, std::memory_order_relaxed);
  }
  ++counters_.snapshots;
  changed_ = false;
}

}  // namespace xtreme::host
