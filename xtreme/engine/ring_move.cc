// SPDX-License-Identifier: Apache-2.0
//
// The ports of a ring: news of them as completions, and the move to the other one when the ring's
// goes down, with its sockets, rules and memberships.
//
// It is a reset whose new queues are another port's; what had arrived at the old one is handed out
// before what comes to the new.
// Invariant: rules and memberships are on one port at a time, so no packet is counted twice: those
// of TCP that stay at the port that was left take nothing for the ring.

#include <algorithm>
#include <span>
#include <utility>

#include "xtreme/engine/control_side.h"
#include "xtreme/engine/control_thread.h"
#include "xtreme/engine/mailbox.h"
#include "xtreme/engine/neighbours.h"
#include "xtreme/engine/paced_queues.h"
#include "xtreme/engine/ring.h"
#include "xtreme/engine/ring_core.h"
#include "xtreme/engine/ring_port.h"
#include "xtreme/engine/tcp.h"
#include "xtreme/engine/udp.h"
#include "xtreme/host/snapshot.h"
#include "xtreme/nic/nic.h"

namespace xtreme::engine {
RingPort& Ring::PortOf(const nic::Nic* nic) {
  for (RingPort& port : core_->ports->all) {
    if (port.nic == nic) return port;
  }
  return core_->ports->current();
}

bool Ring::IsInUse(const RingPort& port) const { return &port == &core_->ports->current(); }

// The kernel tells a VLAN's own state too, and that an interface was set down or taken away.
void Ring::FollowInterfaces() {
  for (RingPort& port : core_->ports->all) {
    const host::Interface* interface = core_->host.routes->FindInterface(port.ifindex);
    TellLink(port, interface == nullptr ? port.link.Remove()
                                        : port.link.Kernel(interface->running));
  }
  FollowMtu();
}

void Ring::FollowMtu() {
  const host::Interface* interface =
      core_->host.routes->FindInterface(core_->device.ifindex);
  if (interface == nullptr || interface->mtu == mtu_seen_) return;
  mtu_seen_ = interface->mtu;
  Completion news = core_->Draft(RingEvent::kMtuChanged);
  news.count = interface->mtu;
  // What the ring was brought up with stays the most it can take.
  if (interface->mtu > core_->device.mtu) news.text = "above the MTU that the ring was opened with";
  core_->Tell(news);
}

void Ring::TellLink(const RingPort& port, RingEvent event) {
  if (event == RingEvent::kNone) return;
  RingCounters& counters = core_->tally.counters;
  counters.link_downs += event == RingEvent::kLinkDown;
  counters.removals += event == RingEvent::kRemoved;
  Completion news = core_->Draft(event);
  news.interface_index = port.ifindex;
  if (event == RingEvent::kRemoved) news.count = CountOfPorts();
  core_->Tell(news);
  ConsiderMove();
  const bool works = event == RingEvent::kLinkUp && IsInUse(port) && !resetting_;
  if (works) tcp_->OnLinkUp();
}

// Those that are there, up or down.
uint32_t Ring::CountOfPorts() const {
  const auto there = [](const RingPort& port) { return !port.link.removed(); };
  return static_cast<uint32_t>(std::ranges::count_if(core_->ports->all, there));
}

void Ring::OnPortEvent(nic::PortEvent event, const nic::Nic* of) {
  RingPort& port = PortOf(of);
  switch (event) {
    case nic::PortEvent::kLinkUp:
      return TellLink(port, port.link.Device(true));
    case nic::PortEvent::kLinkDown:
      return TellLink(port, port.link.Device(false));
    case nic::PortEvent::kDeviceRemoved: {
      port.pulled = true;
      if (IsInUse(port)) EndQueues();
      TellLink(port, port.link.Remove());
      return ConsiderMove();  // The kernel may have told of it before.
    }
    case nic::PortEvent::kQueueError:
      if (!IsInUse(port)) return;
      // Of some queue of the port: ours says so itself, once its completions are looked at.
      core_->LookForErrors();
      if (core_->BrokenQueue() != nullptr) OnBroken();
      return;
  }
}

// To the other port, if the ring is better there. A device that was pulled, and none to go to, is
// its connections' end.
void Ring::ConsiderMove() {
  if (resetting_) return;
  RingPorts& ports = *core_->ports;
  if (WouldMove()) return Move(1 - ports.in_use);
  if (!ports.current().pulled) return;
  EndQueues();
  StopSending();
}

bool Ring::WouldMove() const {
  const RingPorts& ports = *core_->ports;
  if (ports.all.size() < 2 || core_->device.taken != nullptr) return false;
  const bool homesick = ports.in_use != 0 && !core_->options.backup_stays;
  const bool better = !ports.current().link.up() || homesick;
  return better && ports.all[1 - ports.in_use].link.up();
}

// From here on what is started is for the other port: it comes after the move.
void Ring::Move(uint32_t to) {
  RingCore& core = *core_;
  core.ports->in_use = to;
  core.wheel.Cancel(&core.ports->left_rules);
  const RingPort& port = core.ports->current();
  core.device.nic = port.nic;
  core.device.ifindex = port.ifindex;
  core.device.mtu = port.nic->capabilities().mtu;
  if (const host::Interface* interface = core.host.routes->FindInterface(port.ifindex)) {
    mtu_seen_ = interface->mtu;
  }
  core.SetDeviceClock(port.clock);
  core.known.Forget();  // Their interface was the other.
  ReplaceQueues([](Ring& ring, const Outcome& outcome) { ring.OnMoved(outcome); });
  ForgetTimes();
}

// Of what has come, or left, and was not told: they are of the clock before.
void Ring::ForgetTimes() {
  const auto forget = [](std::span<nic::RxFrame> frames) {
    for (nic::RxFrame& frame : frames) frame.flags &= static_cast<uint16_t>(~nic::kRxTimestamp);
  };
  forget({frames_.get() + frames_at_, frames_end_ - frames_at_});
  forget(left_behind_);
  core_->sends.ForgetTimes();
  paced_->ForEachLog([](SendLog& log) {
    log.ForgetTimes();
    return true;
  });
  tcp_->ForgetTimes();
}

void Ring::OnMoved(const Outcome& outcome) {
  RingCore& core = *core_;
  TakeFreshQueues();
  SetTapClocks(/*other_device=*/true);
  ++core.tally.counters.moves;
  KeepLeftRules();
  udp_->AdoptRoutes();
  tcp_->OnRoutes();
  tcp_->OnMoved();
  core.ports->unannounced = true;
  AnnounceMove();
  // What failed of that may have taken the room.
  Completion moved = core.Draft(RingEvent::kMoved);
  moved.status = outcome.error;
  // The notice that brought it lives until it was handed out.
  moved.text = outcome.ok() ? nullptr : outcome.text.c_str();
  core.Tell(moved);
  // The ports may have changed meanwhile.
  ConsiderMove();
}

// With the first queues that the ring has at the port.
void Ring::AnnounceMove() {
  const RingDevice& device = core_->device;
  if (!core_->ports->unannounced || !device.started || device.broken) return;
  core_->ports->unannounced = false;
  udp_->neighbours().Announce();
}

// The control thread told what became of them with the move.
void Ring::KeepLeftRules() {
  const ControlSide& side = *core_->host.control_side;
  core_->tally.counters.rules_not_left += side.rules_not_left;
  if (!side.rules_left) return;
  core_->ArmTimer(&core_->ports->left_rules, core_->clock.Now() + kLeftRulesStay);
}

void Ring::EndLeftRules() {
  core_->Start(MakeOperation([side = core_->host.control_side] { side->rules.EndLeft(); }));
}

}  // namespace xtreme::engine
