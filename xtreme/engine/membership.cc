// SPDX-License-Identifier: Apache-2.0
//
// Joining and leaving groups, connecting. What the sockets of this ring get changes at once; rule
// and kernel membership are started, and if they fail the join is undone. Others may have been
// started behind it by then: each says only what it adds or takes off, on both threads.

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "stack/udp/demux.h"
#include "stack/wire/address_text.h"
#include "stack/wire/ipv4.h"
#include "xtreme/engine/control_side.h"
#include "xtreme/engine/ip_bytes.h"
#include "xtreme/engine/loopback_directory.h"
#include "xtreme/engine/neighbours.h"
#include "xtreme/engine/prepared_sends.h"
#include "xtreme/engine/ring.h"
#include "xtreme/engine/ring_core.h"
#include "xtreme/engine/round_trip.h"
#include "xtreme/engine/send_flow.h"
#include "xtreme/engine/socket_table.h"
#include "xtreme/engine/udp.h"
#include "xtreme/host/membership.h"

namespace xtreme::engine {
namespace {

using Mode = udp::SourceFilter::Mode;

host::SourceFilter ForKernel(const udp::SourceFilter& filter) {
  return {.mode = filter.mode() == Mode::kInclude ? host::FilterMode::kInclude
                                                  : host::FilterMode::kExclude,
          .sources = {filter.sources().begin(), filter.sources().end()}};
}

// `standing` (null: none) with one join more; nothing when wanted and unwanted sources would be
// mixed.
std::optional<udp::SourceFilter> Widened(const udp::SourceFilter* standing, Mode mode,
                                         std::optional<wire::Ipv4Address> source) {
  udp::SourceFilter filter = standing != nullptr ? *standing : udp::SourceFilter(mode, {});
  if (filter.mode() != mode) return std::nullopt;
  if (source) filter.Add(*source);
  return filter;
}

bool Lists(const udp::SourceFilter& filter, wire::Ipv4Address source) {
  return std::binary_search(filter.sources().begin(), filter.sources().end(), source);
}

bool AdmitsNobody(const udp::SourceFilter& filter) {
  return filter.mode() == Mode::kInclude && filter.sources().empty();
}

// What joining or leaving a group asks of the control thread, and what came of it.
struct GroupWork {
  enum class Kind : uint8_t { kJoin, kNarrow, kLeave };

  Kind kind = Kind::kJoin;
  Mode mode = Mode::kExclude;  // Of a join.
  bool fallback = false;
  bool kernel_excluded = false;
  uint64_t cookie = 0;
  GroupJoin join;  // Or what is taken off.
  uint64_t key = 0;
  nic::FlowRule rule;
  std::shared_ptr<ControlSide> side;
  Outcome outcome;
  std::optional<udp::SourceFilter> standing;  // Of the kernel's membership, after a failed join.

  SocketHoldings& holdings() const { return side->HoldingsOf(join.handle); }

  void Run() {
    switch (kind) {
      case Kind::kJoin: outcome = OutcomeOf(Join()); SayWhoIsExcluded(); break;
      case Kind::kNarrow: outcome = OutcomeOf(Narrow()); break;
      case Kind::kLeave: Leave(); break;
    }
    const SocketHoldings::Group* joined = holdings().Find(join.group);
    if (!outcome.ok() && joined != nullptr) standing = joined->filter;
    side.reset();
  }

  void Arrive(Ring& ring) {
    Udp& udp = ring.udp();
    if (kind == Kind::kJoin) {
      udp.JoinDone(join, outcome.ok(), standing ? &*standing : nullptr);
    }
    udp.OpDone(join.handle, cookie, outcome, fallback);
  }

  void SayWhoIsExcluded() {
    if (!outcome.ok() || !kernel_excluded) return;
    outcome.text = "join: the device does not share frames: the kernel's listeners get none of "
                   "the group's";
  }

  absl::Status Join() {
    const wire::Ipv4Address group = join.group;
    SocketHoldings::Group* joined = holdings().Find(group);
    if (joined != nullptr) {
      // For its answer: a match that is shared otherwise is refused.
      auto again = side->rules.Hold(rule);
      if (!again.ok()) return again.status();
      kernel_excluded = again->kernel_excluded;
      side->rules.Drop(again->entry);
      auto widened = Widened(&joined->filter, mode, join.source);
      // The kernel refused to let go of what the ring has left since.
      if (!widened) widened = Widened(nullptr, mode, join.source);
      return Change(joined, *std::move(widened));
    }
    const udp::SourceFilter filter = *Widened(nullptr, mode, join.source);
    auto held = side->rules.Hold(rule);
    if (!held.ok()) return held.status();
    auto membership = side->kernel->Join(side->ifindex, group, ForKernel(filter));
    if (!membership.ok()) {
      side->rules.Drop(held->entry);
      return membership.status();
    }
    fallback = held->fallback;
    kernel_excluded = held->kernel_excluded;
    auto& groups = holdings().groups;
    if (groups == nullptr) groups = std::make_unique<SocketHoldings::Groups>();
    (*groups)[group] = {.rule = held->entry,
                        .membership = *membership,
                        .ifindex = side->ifindex,
                        .key = key,
                        .filter = filter};
    side->directory->Join(side->loopback.get(), key);
    return absl::OkStatus();
  }

  absl::Status Narrow() {
    SocketHoldings::Group* joined = holdings().Find(join.group);
    if (joined == nullptr) return absl::OkStatus();
    udp::SourceFilter filter = joined->filter;
    filter.Remove(*join.source);
    if (!AdmitsNobody(filter)) return Change(joined, std::move(filter));
    // The ring had others, of joins that have failed.
    Leave();
    return absl::OkStatus();
  }

  absl::Status Change(SocketHoldings::Group* joined, udp::SourceFilter filter) {
    absl::Status changed = side->kernel->Change(joined->membership, ForKernel(filter));
    if (changed.ok()) joined->filter = std::move(filter);
    return changed;
  }

  void Leave() {
    const SocketHoldings::Group* joined = holdings().Find(join.group);
    if (joined == nullptr) return;
    side->directory->Part(side->loopback.get(), key);
    side->rules.Drop(joined->rule);
    side->kernel->Leave(joined->membership);
    holdings().groups->erase(join.group);
  }
};

// Of a rule that says nothing yet.
void TakeGroup(const RingCore& core, wire::Ipv4Address group, uint16_t port, nic::FlowRule* rule) {
  rule->match.destination_mac = wire::MulticastMac(group);
  if (core.device.vlan_id != 0) rule->match.vlan_id = core.device.vlan_id;
  rule->match.destination_ip = group;
  rule->match.protocol = wire::kIpProtocolUdp;
  // No fragment matches a port: who reassembles takes the whole group.
  if (core.options.fragments == Fragments::kKernel) rule->match.destination_port = port;
}

// Written where it stays: there is much of it.
std::unique_ptr<RoundTrip<GroupWork>> NewWork(const RingCore& core, const UdpSocket& socket,
                                              wire::Ipv4Address group,
                                              std::optional<wire::Ipv4Address> source,
                                              uint64_t cookie) {
  auto trip = std::make_unique<RoundTrip<GroupWork>>(core.host.mailbox);
  GroupWork& work = trip->work();
  work.join = {.handle = socket.handle, .group = group, .source = source};
  work.cookie = cookie;
  work.key = udp::BindingKey(group, core.device.vlan_id, socket.local().port);
  TakeGroup(core, group, socket.local().port, &work.rule);
  work.rule.tag = socket.flow_tag();
  work.side = core.host.control_side;
  return trip;
}

}  // namespace

Outcome Udp::Join(Handle handle, const wire::Endpoint& group,
                  std::optional<wire::Ipv4Address> source, uint32_t flags, uint64_t cookie) {
  core_->CheckOwner();
  UdpSocket* socket = Find(handle);
  if (socket == nullptr) return {EBADF, "join: no such socket"};
  const bool right_port = group.port == 0 || group.port == socket->local().port;
  if (!group.address.IsMulticast() || !right_port) {
    return {EINVAL, absl::StrCat("join: ", wire::ToString(group),
                                 " asked of a socket bound to ", wire::ToString(socket->local()))};
  }
  const uint16_t vlan_id = core_->device.vlan_id;
  const udp::Membership* joined = socket->FindMembership(group.address, vlan_id);
  const Mode mode =
      source && (flags & kExcludeSource) == 0 ? Mode::kInclude : Mode::kExclude;
  std::optional<udp::SourceFilter> filter =
      Widened(joined != nullptr ? &joined->filter : nullptr, mode, source);
  if (!filter) return {EINVAL, "join: wanted and unwanted sources of one group asked"};
  const uint64_t key = udp::BindingKey(group.address, vlan_id, socket->local().port);
  const bool first = joined == nullptr;
  if (first && (sockets_->groups == core_->options.max_groups ||
                sockets_->Listeners(key) + 1 >= core_->options.completions)) {
    return {ENOBUFS, absl::StrCat("join: max_groups ", core_->options.max_groups,
                                  " are joined, or the fifo is too small for one more listener")};
  }
  auto trip = NewWork(*core_, *socket, group.address, source, cookie);
  GroupWork& work = trip->work();
  work.rule.share_with_kernel = (flags & kShareWithKernel) != 0;
  work.mode = mode;
  joins_.push_back(work.join);
  if (first) {
    demux_->Join(*socket, group.address, vlan_id, *std::move(filter));
    core_->fanout = sockets_->CountListener(key, +1);
    ++sockets_->groups;
    core_->ChangeWorld();  // Own sends to the group have a listener more.
  } else {
    demux_->SetFilter(*socket, group.address, vlan_id, *std::move(filter));
  }
  core_->Start(std::move(trip));
  return {};
}

absl::Status SocketHoldings::Rejoin(ControlSide& side) {
  absl::Status first;
  if (groups == nullptr) return first;
  for (auto& [address, group] : *groups) {
    if (group.ifindex == side.ifindex) continue;
    const auto joined = side.kernel->Join(side.ifindex, address, ForKernel(group.filter));
    first.Update(joined.status());
    if (!joined.ok()) continue;
    side.kernel->Leave(std::exchange(group.membership, *joined));
    group.ifindex = side.ifindex;
  }
  return first;
}

void Udp::Forget(Handle handle, wire::Ipv4Address group) {
  UdpSocket* socket = Find(handle);
  if (socket == nullptr) return;
  const uint16_t vlan_id = core_->device.vlan_id;
  if (demux_->Leave(*socket, group, vlan_id) != udp::JoinResult::kOk) return;
  core_->fanout = sockets_->CountListener(
      udp::BindingKey(group, vlan_id, socket->local().port), -1);
  --sockets_->groups;
  core_->ChangeWorld();
}

void Udp::JoinDone(const GroupJoin& join, bool ok, const udp::SourceFilter* standing) {
  // The control thread takes them in order.
  joins_.erase(std::find(joins_.begin(), joins_.end(), join));
  if (!ok) UndoJoin(join, standing);
}

// Takes off what it alone added: another that is under way may want the same.
void Udp::UndoJoin(const GroupJoin& failed, const udp::SourceFilter* standing) {
  UdpSocket* socket = Find(failed.handle);
  if (socket == nullptr) return;
  const uint16_t vlan_id = core_->device.vlan_id;
  const udp::Membership* joined = socket->FindMembership(failed.group, vlan_id);
  if (joined == nullptr) return;
  const bool others = std::any_of(joins_.begin(), joins_.end(), [&failed](const GroupJoin& join) {
    return join.handle == failed.handle && join.group == failed.group;
  });
  if (standing == nullptr && !others) return Forget(failed.handle, failed.group);
  if (!failed.source || std::find(joins_.begin(), joins_.end(), failed) != joins_.end()) return;
  const bool stands = standing != nullptr && Lists(*standing, *failed.source);
  udp::SourceFilter filter = joined->filter;
  if (stands || !filter.Remove(*failed.source)) return;
  if (AdmitsNobody(filter)) return Forget(failed.handle, failed.group);
  demux_->SetFilter(*socket, failed.group, vlan_id, std::move(filter));
}

Outcome Udp::Leave(Handle handle, const wire::Endpoint& group,
                   std::optional<wire::Ipv4Address> source, uint64_t cookie) {
  core_->CheckOwner();
  UdpSocket* socket = Find(handle);
  if (socket == nullptr) return {EBADF, "leave: no such socket"};
  const uint16_t vlan_id = core_->device.vlan_id;
  const udp::Membership* joined = socket->FindMembership(group.address, vlan_id);
  udp::SourceFilter filter = joined == nullptr ? udp::SourceFilter() : joined->filter;
  const bool whole = !source && filter.mode() == Mode::kExclude;
  if (joined == nullptr || (!whole && (!source || !filter.Remove(*source)))) {
    return {EADDRNOTAVAIL, absl::StrCat("leave: ", wire::ToString(group.address),
                                        " asked, not joined with these arguments")};
  }
  auto trip = NewWork(*core_, *socket, group.address, source, cookie);
  GroupWork& work = trip->work();
  // The last wanted source takes the membership with it; the last unwanted one leaves "all".
  const bool last = whole || AdmitsNobody(filter);
  work.kind = last ? GroupWork::Kind::kLeave : GroupWork::Kind::kNarrow;
  if (last) {
    Forget(handle, group.address);
  } else {
    demux_->SetFilter(*socket, group.address, vlan_id, std::move(filter));
  }
  core_->Start(std::move(trip));
  return {};
}

Outcome Udp::Connect(Handle handle, const wire::Endpoint& peer, uint64_t cookie) {
  core_->CheckOwner();
  UdpSocket* socket = Find(handle);
  if (socket == nullptr) return {EBADF, "connect: no such socket"};
  if (peer.port == 0 || peer.address.IsAny()) {
    return {EINVAL, absl::StrCat("connect: ", wire::ToString(peer), " asked, no destination")};
  }
  if (socket->flows == nullptr) socket->flows = std::make_unique<SendFlows>();
  SendFlow& flow = socket->flows->connected;
  flow = SendFlow();
  flow.peer = peer;
  core_->prepared->Outdate(handle);
  Resolve(*socket, flow);
  udp::Endpoint::Options bound{
      .local = socket->local(), .remote = peer, .vlan_id = socket->vlan_id()};
  // A connected socket receives on the address it sends from.
  CountLocal(*socket, -1);
  const bool routed = flow.state != SendFlow::State::kNoRoute;
  if (bound.local.address.IsAny() && routed) bound.local.address = flow.source.address;
  demux_->Rebind(*socket, bound);
  CountLocal(*socket, +1);

  if (flow.state == SendFlow::State::kNeighbour) {
    const WaitingConnect waiting{.socket = handle, .cookie = cookie};
    const int error = neighbours_->Wait(flow.next_hop, waiting);
    if (error != 0) OnConnected(waiting, error);
    return {};
  }
  Completion completion;
  Clear(&completion, Kind::kOpDone);
  completion.status = routed ? 0 : ENETUNREACH;
  completion.socket = handle;
  completion.user_data = socket->user_data;
  completion.interface_index = core_->device.ifindex;
  completion.cookie = cookie;
  if (!routed) completion.text = "connect: no route leads there by the ring's interface";
  core_->Tell(completion);
  return {};
}

}  // namespace xtreme::engine
