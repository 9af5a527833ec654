// SPDX-License-Identifier: Apache-2.0
// Follows the kernel's interfaces, addresses, routes, rules and neighbours by rtnetlink and
// publishes each state as an immutable Snapshot.
//
// Invariant: once the socket is drained, the newest snapshot is what the kernel holds, but for the
// state of a neighbour, which is as it was when it last became usable, unusable or another's: the
// kernel goes from one state to the next every few seconds, and each snapshot costs its readers
// what they had worked out. Rows with a key of their own (interfaces, neighbours) are taken from
// the notifications. Lists whose order means something, or that the kernel empties in silence (IPv4
// routes of an interface that goes down), are read anew when a notification says they may have
// changed: the notification is the signal, the dump is the truth. Lost notifications (ENOBUFS) make
// everything be read anew.
//
// Threads: Open and Process on the control thread; Current and version on any.

#ifndef XTREME_XTREME_HOST_NETLINK_MONITOR_H_
#define XTREME_XTREME_HOST_NETLINK_MONITOR_H_

#include <linux/netlink.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "stack/base/counters.h"
#include "stack/wire/address.h"
#include "xtreme/host/kernel_tables.h"
#include "xtreme/host/netlink_socket.h"
#include "xtreme/host/snapshot.h"

namespace xtreme::host {

struct NetlinkCounters {
  uint64_t notifications = 0;
  uint64_t unreadable = 0;
  uint64_t overruns = 0;
  uint64_t dumps = 0;
  uint64_t interrupted_dumps = 0;
  uint64_t snapshots = 0;

  static constexpr auto Table() {
    return std::to_array<base::CounterDescriptor<NetlinkCounters>>({
        {"notifications", "rtnetlink notifications read", &NetlinkCounters::notifications},
        {"unreadable", "messages about our tables that could not be parsed",
         &NetlinkCounters::unreadable},
        {"overruns", "times the kernel dropped notifications (all tables were read anew)",
         &NetlinkCounters::overruns},
        {"dumps", "tables read from the kernel", &NetlinkCounters::dumps},
        {"interrupted_dumps", "dumps asked again because the table changed meanwhile",
         &NetlinkCounters::interrupted_dumps},
        {"snapshots", "snapshots published", &NetlinkCounters::snapshots},
    });
  }
};
static_assert(base::DescribesEveryCounter<NetlinkCounters>());

class NetlinkMonitor {
 public:
  struct Options {
    // Room for notifications between two calls of Process, in bytes; at least 4,096.
    uint32_t receive_buffer_bytes = 4 << 20;
  };

  // Follows the network namespace of the calling thread; the first snapshot is there on return.
  // INVALID_ARGUMENT: an option out of range. Otherwise the errors of Process and of opening
  // rtnetlink sockets.
  static absl::StatusOr<std::unique_ptr<NetlinkMonitor>> Open(const Options& options);

  NetlinkMonitor(const NetlinkMonitor&) = delete;
  NetlinkMonitor& operator=(const NetlinkMonitor&) = delete;

  // Readable when Process has something to do.
  int fd() const { return events_.fd(); }

  // Drains the notifications, reads anew what they put in doubt, and publishes at most one
  // snapshot, none if nothing changed. UNAVAILABLE: a table kept changing while it was read; call
  // again. Else the kernel's error. After an error the old snapshot stands and the work is done by
  // the next call.
  absl::Status Process();

  // The newest snapshot; never nullptr.
  std::shared_ptr<const Snapshot> Current() const;

  // Its version; compare before asking for Current. A relaxed load is enough: Current synchronises.
  const std::atomic<uint64_t>& version() const { return version_; }

  const NetlinkCounters& counters() const { return counters_; }

 private:
  enum Table : uint32_t {
    kInterfaces = 1 << 0,
    kAddresses = 1 << 1,
    kRoutes = 1 << 2,
    kNeighbours = 1 << 3,
    kEverything = kInterfaces | kAddresses | kRoutes | kNeighbours,
  };

  NetlinkMonitor(NetlinkSocket events, NetlinkSocket dumps);

  absl::Status Drain();
  void Take(const nlmsghdr& message);
  void TakeInterface(const nlmsghdr& message);
  void TakeNeighbour(const nlmsghdr& message);
  absl::Status ReadStale();
  absl::Status ReadTable(Table table);
  absl::Status ReadInterfaces();
  absl::Status ReadAddresses();
  absl::Status ReadRoutes();
  absl::Status ReadNeighbours();
  template <typename Row, typename Keep>
  absl::Status DumpRows(uint16_t get, uint16_t type, std::optional<Row> (*parse)(const nlmsghdr&),
                        Keep keep);
  void Publish();

  NetlinkSocket events_;
  NetlinkSocket dumps_;
  NetlinkCounters counters_;

  // The state that the next snapshot shows, and the tables to read before that.
  std::map<uint32_t, Interface> interfaces_;
  std::vector<InterfaceAddress> addresses_;
  std::shared_ptr<const Fib> fib_;
  std::map<std::pair<uint32_t, wire::Ipv4Address>, Neighbour> neighbours_;
  uint32_t stale_ = kEverything;
  bool changed_ = false;

  // Read by any thread.
  std::atomic<uint64_t> version_{0};
  mutable std::mutex mutex_;
  std::shared_ptr<const Snapshot> current_;  // Guarded by mutex_.
};

}  // namespace xtreme::host

#endif  // XTREME_XTREME_HOST_NETLINK_MONITOR_H_
