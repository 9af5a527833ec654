// SPDX-License-Identifier: Apache-2.0
//
// Options: the kernel's socket took them already, so their errors are the kernel's; what the ring
// has to know is told to it, and what a ring cannot do takes the socket to the kernel.

#include <linux/net_tstamp.h>
#include <netinet/ip.h>
#include <netinet/tcp.h>
#include <netinet/udp.h>
#include <sys/epoll.h>
#include <sys/time.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "api/sockets/faces.h"
#include "api/sockets/host_addresses.h"
#include "api/sockets/kernel_calls.h"
#include "api/sockets/socket.h"
#include "api/sockets/stream.h"
#include "api/sockets/waiting.h"
#include "fmt/format.h"
#include "xtreme/engine/ring.h"
#include "xtreme/engine/ring_core.h"
#include "xtreme/engine/tcp.h"
#include "xtreme/engine/udp.h"
#include "xtreme/engine/udp_socket.h"

namespace xtreme::sockets {
namespace {

int IntOf(const void* value, socklen_t length) {
  if (length >= sizeof(int)) {
    int number;
    memcpy(&number, value, sizeof number);
    return number;
  }
  return length >= 1 ? *static_cast<const uint8_t*>(value) : 0;
}

base::Nanoseconds TimeOf(const void* value, socklen_t length) {
  timeval time{};
  if (length < sizeof time) return base::kNever;
  memcpy(&time, value, sizeof time);
  const base::Nanoseconds span = SpanOf(time);
  return span == base::Nanoseconds(0) ? base::kNever : span;
}

wire::Ipv4Address AddressOf(const in_addr& address) {
  return wire::Ipv4Address(ntohl(address.s_addr));
}

int KernelInt(int fd, int name, int otherwise) {
  int value = 0;
  socklen_t length = sizeof value;
  if (Kernel().getsockopt(fd, IPPROTO_IP, name, &value, &length) != 0) return otherwise;
  return length == 1 ? *reinterpret_cast<uint8_t*>(&value) : value;
}

// As Linux doubles it, but for net.core.rmem_max: what is negative is the most, or by force the
// least.
uint32_t RoomFor(int name, int asked) {
  constexpr uint32_t kMost = std::numeric_limits<int>::max() / 2;
  constexpr uint32_t kLeast = 2'304;
  if (name == SO_RCVBUFFORCE) asked = std::max(asked, 0);
  return std::max(2 * std::min(static_cast<uint32_t>(asked), kMost), kLeast);
}

// As Linux: either takes the other back.
void SetTimestamp(int name, bool on, Socket::Wanted* wanted) {
  wanted->timestamp_us = on && name == SO_TIMESTAMP;
  wanted->timestamp_ns = on && name == SO_TIMESTAMPNS;
}

// Whether an open connection, or a listener, is told of it: what changes nothing then is not.
bool IsOfOpenStream(int level, int name) {
  if (level == IPPROTO_IP) return name == IP_TOS || name == IP_TTL;
  if (level == SOL_SOCKET) {
    return name == SO_KEEPALIVE || name == SO_SNDBUF || name == SO_SNDBUFFORCE;
  }
  return level == IPPROTO_TCP;
}

}  // namespace

// What sends look at, from the kernel's socket to the ring's.
void Socket::CopySettings() {
  RingDoor* const ring = door();
  if (ring == nullptr || type_ != SOCK_DGRAM) return;
  const std::lock_guard lock(faces_->setup());
  int broadcast = 0;
  socklen_t length = sizeof broadcast;
  Kernel().getsockopt(fd(), SOL_SOCKET, SO_BROADCAST, &broadcast, &length);
  const RingDoor::Entry entry(ring);
  engine::UdpSocket* const socket = ring->ring().udp().Find(handle_);
  if (socket == nullptr) return;
  socket->settings.ttl = static_cast<uint8_t>(KernelInt(fd(), IP_TTL, 64));
  socket->settings.tos = static_cast<uint8_t>(KernelInt(fd(), IP_TOS, 0));
  socket->settings.multicast_ttl = static_cast<uint8_t>(KernelInt(fd(), IP_MULTICAST_TTL, 1));
  socket->settings.multicast_loop = KernelInt(fd(), IP_MULTICAST_LOOP, 1) != 0;
  socket->settings.broadcast = broadcast != 0;
  // ip(7); as Linux, DO, PROBE and INTERFACE send nothing in parts, DONT, INTERFACE and OMIT let
  // routers cut it.
  const int discovers = KernelInt(fd(), IP_MTU_DISCOVER, IP_PMTUDISC_WANT);
  socket->settings.whole = discovers >= IP_PMTUDISC_DO && discovers <= IP_PMTUDISC_INTERFACE;
  socket->settings.dont_fragment =
      discovers >= IP_PMTUDISC_WANT && discovers <= IP_PMTUDISC_PROBE;
  using Groups = engine::UdpSocket::Groups;
  const bool by_ring = group_interface_ == ring->interface();
  socket->settings.groups = group_interface_.empty() ? Groups::kByRoute
                            : by_ring                ? Groups::kByRing
                                                     : Groups::kElsewhere;
  socket->SetGroupSource(group_source_);
  // Flows that were resolved with the old ones are resolved anew.
  ring->ring().core().ChangeWorld();
}

int Socket::SetOption(int level, int name, const void* value, socklen_t length) {
  if (IsVmaOption(level, name)) return SetVmaOption(name, value, length);
  if (level == IPPROTO_IP && stream_ == nullptr) return SetIpOption(name, value, length);
  if (level == IPPROTO_UDP && name == UDP_CORK && stream_ == nullptr) {
    return Cork(IntOf(value, length) != 0);
  }
  if (level == IPPROTO_UDP && name == UDP_SEGMENT && IntOf(value, length) != 0) {
    LeaveToKernel("UDP_SEGMENT: the kernel cuts what it sends");
  }
  if (const int no = HeedKernelOption(level, name, value, length); no != 0) return no;
  if (stream_ != nullptr && value != nullptr) stream_->Keep(level, name, value, length);
  if (stream_ != nullptr && IsOfOpenStream(level, name)) FollowStreamOption(level, name);
  if (stream_ != nullptr && level == IPPROTO_TCP) return FollowTcpOption(name, value, length);
  if (level != SOL_SOCKET) return 0;
  const bool on = IntOf(value, length) != 0;
  Wanted asked = wanted();
  switch (name) {
    case SO_RCVTIMEO:
    case SO_RCVTIMEO_NEW: receive_timeout_ = TimeOf(value, length); break;
    case SO_SNDTIMEO:
    case SO_SNDTIMEO_NEW: send_timeout_ = TimeOf(value, length); break;
    case SO_REUSEPORT: reuse_port_ = on; break;
    case SO_BROADCAST: CopySettings(); break;
    case SO_TIMESTAMP:
    case SO_TIMESTAMPNS: SetTimestamp(name, on, &asked); break;
    case SO_RXQ_OVFL: asked.overflow = on; break;
    case SO_PEEK_OFF: SetPeekOffset(IntOf(value, length)); break;
    case SO_RCVLOWAT: SetLowWater(IntOf(value, length)); break;
    case SO_TIMESTAMPING:
      asked.timestamping = static_cast<uint32_t>(IntOf(value, length));
      if (stream_ == nullptr && (asked.timestamping & SOF_TIMESTAMPING_TX_RECORD_MASK) != 0) {
        LeaveToKernel("SO_TIMESTAMPING: it asks when what it sends has left");
      }
      break;
    case SO_RCVBUF:
    case SO_RCVBUFFORCE: queue_limit_ = RoomFor(name, IntOf(value, length)); break;
    case SO_MAX_PACING_RATE: return SetPace(value, length);
    case SO_BINDTODEVICE:
    case SO_BINDTOIFINDEX: return FollowDevice();
    case SO_ATTACH_FILTER:
    case SO_ATTACH_BPF:
      if (HasConnected()) return -EOPNOTSUPP;
      LeaveToKernel("a filter of packets is attached");
      break;
    case SO_ZEROCOPY:
      if (!on) break;
      // It would end with the ring's socket; a program that is refused copies.
      if (HasConnected()) return -EOPNOTSUPP;
      LeaveToKernel("SO_ZEROCOPY");
      break;
  }
  wanted_.store(asked, std::memory_order_relaxed);
  return 0;
}

int Socket::FollowTcpOption(int name, const void* value, socklen_t length) {
  if (name == TCP_NOTSENT_LOWAT) FollowUnsentLowWater();
  if (name == TCP_INQ) stream_->tells_queued = IntOf(value, length) != 0;
  return 0;
}

// Of datagrams one is enough, on Linux too. At most what may wait, however little is read.
void Socket::SetLowWater(int bytes) {
  constexpr int kMost = 128 * 1024;
  if (stream_ == nullptr) return;
  low_water_ = static_cast<uint32_t>(bytes < 0 ? kMost : std::clamp(bytes, 1, kMost));
  RingDoor* const ring = door();
  if (ring == nullptr) return;
  const RingDoor::Entry entry(ring);
  Mark();
  // Linux: an edge, if there is enough.
  Change(0, 0, QueueMask() & EPOLLIN);
}

void Socket::SetPeekOffset(int bytes) {
  if (stream_ == nullptr) {
    if (bytes >= 0) LeaveToKernel("SO_PEEK_OFF");
    return;
  }
  RingDoor* const ring = door();
  std::optional<RingDoor::Entry> entry;
  if (ring != nullptr) entry.emplace(ring);
  stream_->peek_offset = bytes;
  if (entry) SetPlain();
}

// What comes and goes by another device than the ring's is the kernel's.
int Socket::FollowDevice() {
  if (door() == nullptr) return 0;  // A child that inherits it, inside its listener's door, too.
  const std::lock_guard lock(faces_->setup());
  RingDoor* const ring = door();
  const std::string device = DeviceOf(fd());
  if (ring == nullptr || device.empty() || device == ring->interface()) return 0;
  if (HasConnected()) return -EOPNOTSUPP;
  LeaveToKernelLocked("it is bound to " + device + ", its ring is on " + ring->interface());
  return 0;
}

// What a ring has on at the kernel's socket of datagrams, to hear of errors and fragments
// (LeasedPort), whatever the program said of it; off: as the program has it. The kernel then
// forgets what errors it had queued.
void Socket::SetForRing(bool on) const {
  for (const int name : {IP_PKTINFO, IP_RECVERR, IP_RECVFRAGSIZE}) {
    const int value = on || (name == IP_PKTINFO && wanted().packet_info) ? 1 : 0;
    Kernel().setsockopt(fd(), IPPROTO_IP, name, &value, sizeof value);
  }
}

int Socket::SetIpOption(int name, const void* value, socklen_t length) {
  switch (name) {
    case IP_TTL:
    case IP_TOS:
    case IP_MTU_DISCOVER:
    case IP_MULTICAST_TTL:
    case IP_MULTICAST_LOOP: CopySettings(); return 0;
    case IP_MULTICAST_IF: return SetGroupInterface(value, length);
    case IP_PKTINFO: {
      Wanted asked = wanted();
      asked.packet_info = IntOf(value, length) != 0;
      wanted_.store(asked, std::memory_order_relaxed);
      if (path() == Path::kOffloaded) SetForRing(true);
      return 0;
    }
    case IP_ADD_MEMBERSHIP:
    case IP_DROP_MEMBERSHIP:
    case IP_ADD_SOURCE_MEMBERSHIP:
    case IP_DROP_SOURCE_MEMBERSHIP:
    case IP_BLOCK_SOURCE:
    case IP_UNBLOCK_SOURCE: return ChangeMembership(name, value, length);
    case MCAST_JOIN_GROUP:
    case MCAST_LEAVE_GROUP:
    case MCAST_JOIN_SOURCE_GROUP:
    case MCAST_LEAVE_SOURCE_GROUP:
    case MCAST_BLOCK_SOURCE:
    case MCAST_UNBLOCK_SOURCE:
    case MCAST_MSFILTER:
    case IP_MSFILTER: LeaveToKernel("it joins groups by protocol-independent options"); return 0;
    case IP_RECVTTL:
    case IP_RECVTOS:
    case IP_RECVOPTS:
    case IP_RETOPTS:
    case IP_RECVERR:
    case IP_RECVORIGDSTADDR:
    case IP_RECVFRAGSIZE:
    case IP_OPTIONS:
    case IP_HDRINCL:
    case IP_TRANSPARENT:
    case IP_UNICAST_IF:
      if (IntOf(value, length) != 0) {
        LeaveToKernel(fmt::format("IP option {} is the kernel's alone", name));
        // With the ring's own it was taken back.
        const bool own = name == IP_RECVERR || name == IP_RECVFRAGSIZE;
        if (own) Kernel().setsockopt(fd(), IPPROTO_IP, name, value, length);
      } else if (path() == Path::kOffloaded) {
        SetForRing(true);
      }
      return 0;
    default: return 0;
  }
}

// Datagrams to groups that leave by another interface than the ring's are the kernel's to send.
int Socket::SetGroupInterface(const void* value, socklen_t length) {
  ip_mreqn request{};
  // As Linux tells them apart.
  if (length >= sizeof(ip_mreq)) {
    memcpy(&request, value, std::min<size_t>(length, sizeof request));
  } else {
    memcpy(&request.imr_address, value, std::min<size_t>(length, sizeof request.imr_address));
  }
  const std::lock_guard lock(faces_->setup());
  group_source_ = AddressOf(request.imr_address);
  group_interface_ = request.imr_ifindex != 0
                         ? InterfaceNamed(static_cast<unsigned>(request.imr_ifindex))
                         : InterfaceOf(group_source_);
  CopySettings();
  return 0;
}

int Socket::ChangeMembership(int name, const void* value, socklen_t length) {
  Membership change;
  in_addr interface{};
  const bool sourced = name != IP_ADD_MEMBERSHIP && name != IP_DROP_MEMBERSHIP;
  unsigned index = 0;
  if (sourced) {
    ip_mreq_source request{};
    memcpy(&request, value, std::min<size_t>(length, sizeof request));
    change.group = AddressOf(request.imr_multiaddr);
    change.source = AddressOf(request.imr_sourceaddr);
    interface = request.imr_interface;
  } else {
    ip_mreqn request{};
    memcpy(&request, value, std::min<size_t>(length, sizeof request));
    change.group = AddressOf(request.imr_multiaddr);
    interface = request.imr_address;
    if (length >= sizeof request) index = static_cast<unsigned>(request.imr_ifindex);
  }
  change.exclude = name == IP_BLOCK_SOURCE || name == IP_UNBLOCK_SOURCE;
  if (index != 0) {
    change.interface = InterfaceNamed(index);
  } else if (!AddressOf(interface).IsAny()) {
    change.interface = InterfaceOf(AddressOf(interface));
  } else if (name != IP_DROP_MEMBERSHIP) {
    const auto departure = DepartureTo(-1, {change.group, 9});
    if (departure) change.interface = departure->interface;
  }
  const std::lock_guard lock(faces_->setup());
  const bool joins = name == IP_ADD_MEMBERSHIP || name == IP_ADD_SOURCE_MEMBERSHIP ||
                     name == IP_BLOCK_SOURCE;
  if (joins) {
    memberships_.insert(change);
    if (path() == Path::kUndecided && bound_) DecideLocked();
    else if (path() == Path::kOffloaded) JoinOnRing(change);
    return 0;
  }
  GiveUpMembership(change, /*all_sources=*/name == IP_DROP_MEMBERSHIP);
  return 0;
}

// `all_sources`: as Linux leaves a group, with whatever sources of it were joined or blocked; of no
// interface, wherever it is.
void Socket::GiveUpMembership(const Membership& change, bool all_sources) {
  std::vector<Membership> left;
  if (!all_sources) left.push_back(change);
  std::erase_if(memberships_, [&](const Membership& each) {
    if (!all_sources) return each == change;
    const bool same = each.group == change.group &&
                      (change.interface.empty() || each.interface == change.interface);
    // Those that are blocked go with the rest.
    if (same && !each.exclude) left.push_back(each);
    return same;
  });
  if (path() != Path::kOffloaded) return;
  const RingDoor::Entry entry(door());
  const uint64_t cookie = 1 + change.group.value();
  for (const Membership& each : left) {
    const auto source = each.source.IsAny() ? std::nullopt : std::optional(each.source);
    const engine::Outcome outcome =
        door()->ring().udp().Leave(handle_, {each.group, 0}, source, cookie);
    if (outcome.ok()) door()->Await(handle_, cookie);
  }
}

// Of what the kernel's socket does not know, or is asked for by the ring itself.
bool Socket::GetIpOption(int name, void* value, socklen_t* length) {
  RingDoor* const ring = door();
  int answer = 0;
  if (ring == nullptr || value == nullptr) return false;
  if (name == IP_PKTINFO && stream_ == nullptr) {
    answer = wanted().packet_info ? 1 : 0;
  } else if ((name == IP_RECVERR || name == IP_RECVFRAGSIZE) && stream_ == nullptr) {
    answer = 0;
  } else if (name == IP_MTU && HasConnected()) {
    const RingDoor::Entry entry(ring);
    answer = static_cast<int>(ring->ring().tcp().PathMtu(handle_, peer_, local_.address));
  } else {
    return false;
  }
  // As Linux: with less room than a number has, what fits into a byte is one.
  const bool byte = *length > 0 && *length < sizeof answer && answer >= 0 && answer <= 255;
  *length = byte ? 1 : std::min<socklen_t>(*length, sizeof answer);
  memcpy(value, &answer, *length);
  return true;
}

bool Socket::GetTcpOption(int name, void* value, socklen_t* length, int* result) {
  *result = 0;
  int bytes = 0;
  if (name == TCP_INFO) return FillTcpInfo(value, length);
  if (name == TCP_MAXSEG && SegmentBytes(&bytes)) {
    *length = std::min<socklen_t>(*length, sizeof bytes);
    memcpy(value, &bytes, *length);
    return true;
  }
  // The kernel's socket would say, for ever, that nothing waits.
  if (name != TCP_ZEROCOPY_RECEIVE || !HasConnected()) return false;
  *result = -EOPNOTSUPP;
  return true;
}

// The peer of a connection, whose kernel's socket has none.
int Socket::GetPeerOption(void* value, socklen_t* length) {
  const auto ends = EndsOnRing();
  if (!ends) return -ENOTCONN;
  const sockaddr_in peer = ToSockaddr(ends->peer);
  if (*length > sizeof peer) return -EINVAL;
  memcpy(value, &peer, *length);
  return 0;
}

bool Socket::GetOption(int level, int name, void* value, socklen_t* length, int* result) {
  if (static_cast<int>(*length) < 0) return false;  // EINVAL.
  if (level == IPPROTO_TCP) return GetTcpOption(name, value, length, result);
  if (IsVmaOption(level, name)) {
    *result = GetVmaOption(name, value, length);
    return true;
  }
  if (level == IPPROTO_IP && path() == Path::kOffloaded && GetIpOption(name, value, length)) {
    *result = 0;
    return true;
  }
  if (level != SOL_SOCKET) return false;
  if (name == SO_PEERNAME && HasConnected() && value != nullptr) {
    *result = GetPeerOption(value, length);
    return true;
  }
  if (name == SO_PEEK_OFF && HasConnected()) {
    // As Linux, however few bytes it is asked into.
    const int offset = stream_->peek_offset;
    *length = std::min<socklen_t>(*length, sizeof offset);
    memcpy(value, &offset, *length);
    *result = 0;
    return true;
  }
  if (name == SO_MAX_PACING_RATE && TellPace(value, length)) {
    *result = 0;
    return true;
  }
  if (name != SO_ERROR || path() == Path::kKernel) return false;
  const int error = TakePendingError();
  if (error == 0) return false;
  *length = std::min<socklen_t>(*length, sizeof error);
  memcpy(value, &error, *length);
  *result = 0;
  return true;
}

}  // namespace xtreme::sockets
