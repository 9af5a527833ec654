// SPDX-License-Identifier: Apache-2.0
// Multicast membership, mirrored on kernel sockets: the kernel answers IGMP queries and reports
// again after the link came up, so that switches do not prune what our rings receive.
//
// Each (interface, group) has any number of holders with a source filter each; the kernel is told
// the one filter that lets through what any of them wants. It may be wider than that where a limit
// of the kernel says so, never narrower: holders filter again.
//
// Invariant: the sockets are bound to no port, so no datagram ever reaches them.
// Threads: the control thread. Spec: RFC 3376 sections 3 and 3.2, RFC 3678, ip(7).

#ifndef XTREME_XTREME_HOST_MEMBERSHIP_H_
#define XTREME_XTREME_HOST_MEMBERSHIP_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "stack/wire/address.h"
#include "xtreme/host/file_descriptor.h"

namespace xtreme::host {

enum class FilterMode : uint8_t { kInclude, kExclude };

// Which sources of a group are wanted. The default is all of them.
struct SourceFilter {
  FilterMode mode = FilterMode::kExclude;
  // Wanted (kInclude) or not wanted (kExclude). Any order; repetitions do not matter.
  std::vector<wire::Ipv4Address> sources;
  friend bool operator==(const SourceFilter&, const SourceFilter&) = default;
};

// The narrowest filter that lets through what any of `filters` does, sources ascending; no filters
// give kInclude of nothing. RFC 3376 section 3.2.
SourceFilter MergeFilters(std::span<const SourceFilter> filters);

class MembershipMirror {
 public:
  // Names one holder of one group.
  using Id = uint64_t;

  // For the network namespace of the calling thread, whose limits are read once; later calls must
  // come from the same namespace.
  static std::unique_ptr<MembershipMirror> Create();

  MembershipMirror(const MembershipMirror&) = delete;
  MembershipMirror& operator=(const MembershipMirror&) = delete;

  // Adds a holder. INVALID_ARGUMENT: `group` is no group, or `ifindex` is 0. Else what the kernel
  // said, above all ENODEV (no such interface) and ENOBUFS (out of memory for options). After an
  // error nothing is held.
  absl::StatusOr<Id> Join(uint32_t ifindex, wire::Ipv4Address group, const SourceFilter& filter);

  // Replaces the holder's filter. The network sees one step, no leave and join, unless a list of
  // wanted sources is longer than one socket takes (net.ipv4.igmp_max_msf). NOT_FOUND: `id` was
  // never given or has left. Else as Join; then the old filter stands.
  absl::Status Change(Id id, const SourceFilter& filter);

  // Removes the holder; an unknown `id` is ignored. Never fails: the interface may be gone.
  void Leave(Id id);

  // Groups held, counted once per interface, and the kernel sockets they take.
  size_t group_count() const { return memberships_.size(); }
  size_t socket_count() const { return SocketFds().size(); }
  // To look at from outside; still owned here.
  std::vector<int> SocketFds() const;

 private:
  using Key = std::pair<uint32_t, wire::Ipv4Address>;

  struct KernelSocket {
    FileDescriptor fd;  // None while it has no groups.
    uint32_t groups = 0;
    // How many it takes: igmp_max_memberships, or less where the kernel said so.
    uint32_t limit = 0;
  };

  struct Membership {
    std::map<Id, SourceFilter> holders;
    // The sockets that carry it, each once: a filter may be longer than one socket takes.
    std::vector<size_t> sockets;
  };

  MembershipMirror(uint32_t groups_per_socket, uint32_t sources_per_filter)
      : groups_per_socket_(groups_per_socket), sources_per_filter_(sources_per_filter) {}

  absl::Status Apply(const Key& key, Membership& membership);
  std::vector<SourceFilter> Split(const SourceFilter& filter) const;
  absl::Status JoinOnSomeSocket(const Key& key, const SourceFilter& filter, Membership& membership);
  absl::StatusOr<size_t> FindSocket(const Membership& membership);
  void LeaveSocket(const Key& key, size_t index);

  const uint32_t groups_per_socket_;
  const uint32_t sources_per_filter_;
  std::map<Key, Membership> memberships_;
  std::map<Id, Key> holders_;
  Id last_id_ = 0;
  std::vector<KernelSocket> sockets_;
};

}  // namespace xtreme::host

#endif  // XTREME_XTREME_HOST_MEMBERSHIP_H_
