// SPDX-License-Identifier: Apache-2.0

#include "xtreme/host/membership.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "stack/wire/address_text.h"
#include "xtreme/host/sysctl.h"

namespace xtreme::host {
namespace {

using Sources = std::vector<wire::Ipv4Address>;

// The kernel's defaults, should /proc be hidden.
constexpr uint32_t kDefaultGroupsPerSocket = 20;
constexpr uint32_t kDefaultSourcesPerFilter = 10;

Sources Sorted(Sources sources) {
  std::sort(sources.begin(), sources.end());
  sources.erase(std::unique(sources.begin(), sources.end()), sources.end());
  return sources;
}

sockaddr_storage SocketAddress(wire::Ipv4Address address) {
  sockaddr_in ipv4{};
  ipv4.sin_family = AF_INET;
  ipv4.sin_addr.s_addr = htonl(address.value());
  sockaddr_storage storage{};
  std::memcpy(&storage, &ipv4, sizeof(ipv4));
  return storage;
}

ip_mreqn AnySourceRequest(uint32_t ifindex, wire::Ipv4Address group) {
  ip_mreqn request{};
  request.imr_multiaddr.s_addr = htonl(group.value());
  request.imr_ifindex = static_cast<int>(ifindex);
  return request;
}

// 0 or an errno, as all below.
int JoinAnySource(int fd, uint32_t ifindex, wire::Ipv4Address group) {
  const ip_mreqn request = AnySourceRequest(ifindex, group);
  return ::setsockopt(fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &request, sizeof(request)) == 0 ? 0
                                                                                         : errno;
}

int JoinSource(int fd, uint32_t ifindex, wire::Ipv4Address group, wire::Ipv4Address source) {
  group_source_req request{};
  request.gsr_interface = ifindex;
  request.gsr_group = SocketAddress(group);
  request.gsr_source = SocketAddress(source);
  return ::setsockopt(fd, IPPROTO_IP, MCAST_JOIN_SOURCE_GROUP, &request, sizeof(request)) == 0
             ? 0
             : errno;
}

// Replaces mode and sources of a membership in one call, and so in one report.
int SetFilter(int fd, uint32_t ifindex, wire::Ipv4Address group, const SourceFilter& filter) {
  const size_t bytes = std::max(GROUP_FILTER_SIZE(filter.sources.size()), sizeof(group_filter));
  std::vector<uint64_t> storage((bytes + sizeof(uint64_t) - 1) / sizeof(uint64_t));
  group_filter fixed{};
  fixed.gf_interface = ifindex;
  fixed.gf_group = SocketAddress(group);
  fixed.gf_fmode = filter.mode == FilterMode::kInclude ? MCAST_INCLUDE : MCAST_EXCLUDE;
  fixed.gf_numsrc = static_cast<uint32_t>(filter.sources.size());
  auto* request = reinterpret_cast<uint8_t*>(storage.data());
  std::memcpy(request, &fixed, sizeof(fixed));
  uint8_t* next = request + offsetof(group_filter, gf_slist);
  for (const wire::Ipv4Address source : filter.sources) {
    const sockaddr_storage address = SocketAddress(source);
    std::memcpy(next, &address, sizeof(address));
    next += sizeof(address);
  }
  const auto length = static_cast<socklen_t>(GROUP_FILTER_SIZE(filter.sources.size()));
  return ::setsockopt(fd, IPPROTO_IP, MCAST_MSFILTER, request, length) == 0 ? 0 : errno;
}

void Drop(int fd, uint32_t ifindex, wire::Ipv4Address group) {
  const ip_mreqn request = AnySourceRequest(ifindex, group);
  // An interface that is gone took the membership with it.
  ::setsockopt(fd, IPPROTO_IP, IP_DROP_MEMBERSHIP, &request, sizeof(request));
}

// A join that has the right mode from its first report on.
int JoinWithFilter(int fd, uint32_t ifindex, wire::Ipv4Address group, const SourceFilter& filter) {
  const bool include = filter.mode == FilterMode::kInclude;
  const int error = include ? JoinSource(fd, ifindex, group, filter.sources.front())
                            : JoinAnySource(fd, ifindex, group);
  if (error != 0) return error;
  if (filter.sources.size() <= (include ? 1u : 0u)) return 0;
  const int filter_error = SetFilter(fd, ifindex, group, filter);
  if (filter_error != 0) Drop(fd, ifindex, group);
  return filter_error;
}

absl::Status JoinStatus(int error, uint32_t ifindex, wire::Ipv4Address group,
                        const SourceFilter& filter) {
  return ErrnoStatus(error,
                     absl::StrCat("join ", wire::ToString(group), " on interface ", ifindex,
                                  filter.mode == FilterMode::kInclude ? " from " : " but from ",
                                  filter.sources.size(), " sources"));
}

}  // namespace

SourceFilter MergeFilters(std::span<const SourceFilter> filters) {
  Sources included;
  Sources excluded;
  bool exclude = false;
  for (const SourceFilter& filter : filters) {
    const Sources sources = Sorted(filter.sources);
    Sources merged;
    if (filter.mode == FilterMode::kInclude) {
      std::set_union(included.begin(), included.end(), sources.begin(), sources.end(),
                     std::back_inserter(merged));
      included.swap(merged);
    } else if (exclude) {
      std::set_intersection(excluded.begin(), excluded.end(), sources.begin(), sources.end(),
                            std::back_inserter(merged));
      excluded.swap(merged);
    } else {
      exclude = true;
      excluded = sources;
    }
  }
  if (!exclude) return {FilterMode::kInclude, included};
  Sources unwanted;
  std::set_difference(excluded.begin(), excluded.end(), included.begin(), included.end(),
                      std::back_inserter(unwanted));
  return {FilterMode::kExclude, unwanted};
}

std::unique_ptr<MembershipMirror> MembershipMirror::Create() {
  const uint32_t groups =
      ReadSysctl("net/ipv4/igmp_max_memberships").value_or(kDefaultGroupsPerSocket);
  const uint32_t sources = ReadSysctl("net/ipv4/igmp_max_msf").value_or(kDefaultSourcesPerFilter);
  return std::unique_ptr<MembershipMirror>(
      new MembershipMirror(std::max(groups, 1u), std::max(sources, 1u)));
}

absl::StatusOr<MembershipMirror::Id> MembershipMirror::Join(uint32_t ifindex,
                                                            wire::Ipv4Address group,
                                                            const SourceFilter& filter) {
  if (!group.IsMulticast() || ifindex == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "join ", wire::ToString(group), " on interface ", ifindex,
        ": the address must be in 224.0.0.0/4 and the interface be named by its index"));
  }
  const Key key(ifindex, group);
  const Id id = ++last_id_;
  Membership& membership = memberships_[key];
  membership.holders.emplace(id, filter);
  holders_.emplace(id, key);
  const absl::Status status = Apply(key, membership);
  if (status.ok()) return id;
  Leave(id);
  return status;
}

absl::Status MembershipMirror::Change(Id id, const SourceFilter& filter) {
  const auto holder = holders_.find(id);
  if (holder == holders_.end()) {
    return absl::NotFoundError(
        absl::StrCat("change the source filter of membership ", id, ": it is not held"));
  }
  const Key key = holder->second;
  Membership& membership = memberships_[key];
  SourceFilter& current = membership.holders[id];
  SourceFilter old = current;
  current = filter;
  absl::Status status = Apply(key, membership);
  if (status.ok()) return status;
  current = std::move(old);
  // What the kernel had before fits it again; were it not so, its filter is wider than needed.
  (void)Apply(key, membership);
  return status;
}

void MembershipMirror::Leave(Id id) {
  const auto holder = holders_.find(id);
  if (holder == holders_.end()) return;
  const Key key = holder->second;
  holders_.erase(holder);
  Membership& membership = memberships_[key];
  membership.holders.erase(id);
  // Fewer holders never need more of the kernel; should it refuse, its filter stays wider.
  (void)Apply(key, membership);
  if (membership.holders.empty()) memberships_.erase(key);
}

std::vector<int> MembershipMirror::SocketFds() const {
  std::vector<int> fds;
  for (const KernelSocket& socket : sockets_) {
    if (socket.fd.valid()) fds.push_back(socket.fd.get());
  }
  return fds;
}

// Tells the kernel the merged filter of the holders, one part of it a socket.
absl::Status MembershipMirror::Apply(const Key& key, Membership& membership) {
  std::vector<SourceFilter> filters;
  for (const auto& [id, filter] : membership.holders) filters.push_back(filter);
  const std::vector<SourceFilter> parts = Split(MergeFilters(filters));
  const size_t kept = std::min(membership.sockets.size(), parts.size());
  for (size_t i = 0; i < kept; ++i) {
    const int fd = sockets_[membership.sockets[i]].fd.get();
    const int error = SetFilter(fd, key.first, key.second, parts[i]);
    if (error != 0) return JoinStatus(error, key.first, key.second, parts[i]);
  }
  for (size_t i = kept; i < parts.size(); ++i) {
    if (absl::Status status = JoinOnSomeSocket(key, parts[i], membership); !status.ok()) {
      return status;
    }
  }
  // Last, so that the network sees a filter grow before it sees it shrink.
  while (membership.sockets.size() > parts.size()) {
    LeaveSocket(key, membership.sockets.back());
    membership.sockets.pop_back();
  }
  return absl::OkStatus();
}

// Parts that one socket takes each and that together let through at least what `filter` does. The
// union of excluding sockets excludes only what all exclude, so a list too long for one is not
// told.
std::vector<SourceFilter> MembershipMirror::Split(const SourceFilter& filter) const {
  if (filter.mode == FilterMode::kExclude) {
    return {filter.sources.size() <= sources_per_filter_ ? filter : SourceFilter{}};
  }
  std::vector<SourceFilter> parts;
  for (size_t i = 0; i < filter.sources.size(); ++i) {
    if (i % sources_per_filter_ == 0) parts.push_back({FilterMode::kInclude, {}});
    parts.back().sources.push_back(filter.sources[i]);
  }
  return parts;
}

absl::Status MembershipMirror::JoinOnSomeSocket(const Key& key, const SourceFilter& filter,
                                                Membership& membership) {
  for (;;) {
    const absl::StatusOr<size_t> index = FindSocket(membership);
    if (!index.ok()) return index.status();
    KernelSocket& socket = sockets_[*index];
    const int error = JoinWithFilter(socket.fd.get(), key.first, key.second, filter);
    if (error == 0) {
      ++socket.groups;
      membership.sockets.push_back(*index);
      return absl::OkStatus();
    }
    if (socket.groups == 0) {
      socket = {};
      return JoinStatus(error, key.first, key.second, filter);
    }
    if (error != ENOBUFS) return JoinStatus(error, key.first, key.second, filter);
    socket.limit = socket.groups;  // The limit was lowered since it was read.
  }
}

// A socket with room that does not carry `membership` yet, opened if there is none.
absl::StatusOr<size_t> MembershipMirror::FindSocket(const Membership& membership) {
  const auto carries = [&](size_t index) {
    return std::find(membership.sockets.begin(), membership.sockets.end(), index) !=
           membership.sockets.end();
  };
  size_t unopened = sockets_.size();
  for (size_t i = 0; i < sockets_.size(); ++i) {
    if (!sockets_[i].fd.valid()) unopened = std::min(unopened, i);
    if (sockets_[i].fd.valid() && sockets_[i].groups < sockets_[i].limit && !carries(i)) return i;
  }
  FileDescriptor fd(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return ErrnoStatus(errno, "open a socket for multicast memberships");
  if (unopened == sockets_.size()) sockets_.emplace_back();
  sockets_[unopened] = {.fd = std::move(fd), .limit = groups_per_socket_};
  return unopened;
}

void MembershipMirror::LeaveSocket(const Key& key, size_t index) {
  KernelSocket& socket = sockets_[index];
  Drop(socket.fd.get(), key.first, key.second);
  if (--socket.groups == 0) socket = {};
}

}  // namespace xtreme::host
