// SPDX-License-Identifier: Apache-2.0

#include "xtreme/engine/engine.h"

#include <sys/epoll.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "xtreme/engine/bounded_way.h"
#include "xtreme/engine/control_thread.h"
#include "xtreme/engine/loopback_queue.h"
#include "xtreme/engine/path_errors.h"
#include "xtreme/engine/ring.h"
#include "xtreme/engine/ring_core.h"
#include "xtreme/engine/tcp.h"
#include "xtreme/engine/udp.h"
#include "xtreme/host/snapshot.h"
#include "xtreme/host/tsc_clock.h"
#include "xtreme/nic/nic.h"

namespace xtreme::engine {

struct Engine::Device {
  std::unique_ptr<nic::Nic> nic;
  struct Listener {
    uint32_t ifindex;
    std::weak_ptr<Mailbox> mailbox;
    BoundedWay path_errors{PathErrors::kMostWaiting};
    BoundedWay sightings{kMostSightings};

    // Whether nothing of its ring is left.
    bool gone() const {
      const auto held = mailbox.lock();
      return held == nullptr || held->buried();
    }
  };
  std::vector<Listener> listeners;
  nic::PortCounters counters;
  bool has_counters = false;
  // What it was opened for, and may be no more.
  uint32_t ifindex = 0;
  uint32_t mtu = 0;
  wire::MacAddress mac;
  bool removed = false;

  // Whether to open it anew: it is not what it was, and nothing of a ring is on it.
  bool IsStale(const host::Interface& now) const {
    const bool same = !removed && now.ifindex == ifindex && now.mtu == mtu && now.mac == mac;
    return !same && std::all_of(listeners.begin(), listeners.end(),
                                [](const Listener& listener) { return listener.gone(); });
  }
};

namespace {

// What a ring needs of its interface `found`, on the device behind `below`. Both may be the same.
absl::Status CheckUsable(const host::Snapshot& kernel, const host::Interface& found,
                         const host::Interface& below) {
  for (const host::Interface* needed : {&below, &found}) {
    if (needed->up) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("open ring: interface ", needed->name, " is down"));
  }
  for (const host::InterfaceAddress& address : kernel.addresses()) {
    if (address.ifindex == found.ifindex) return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      absl::StrCat("open ring: interface ", found.name, " has no IPv4 address"));
}

}  // namespace

Engine::Engine(Options options)
    : open_nic_(std::move(options.open_nic)),
      ticks_(options.ticks),
      clock_period_(options.clock_period),
      counters_period_(options.counters_period),
      send_patience_(options.send_patience),
      kernel_(std::move(options.kernel)) {}

absl::StatusOr<std::unique_ptr<Engine>> Engine::Create(Options options) {
  std::unique_ptr<Engine> engine(new Engine(std::move(options)));
  auto tsc = host::TscClock::Start({});
  if (!tsc.ok()) return tsc.status();
  engine->tsc_ = std::make_unique<host::TscClock>(*std::move(tsc));
  auto control = ControlThread::Create();
  if (!control.ok()) return control.status();
  engine->control_ = *std::move(control);
  absl::Status started;
  engine->control_->RunAndWait([&] { started = engine->StartKernel(); });
  if (!started.ok()) return started;
  return engine;
}

absl::Status Engine::StartKernel() {
  control_->StartPeriodic(clock_period_, [this] { SampleClocks(); });
  control_->StartPeriodic(counters_period_, [this] { SampleCounters(); });
  return kernel_->Start(
      control_.get(),
      {.routes_changed = [this] { RoutesChanged(); },
       .neighbour_seen = [this](uint32_t ifindex, wire::Ipv4Address address,
                                wire::MacAddress mac) { NeighbourSeen(ifindex, address, mac); },
       .path_errors = [this](uint32_t ifindex, std::shared_ptr<const PathErrors> batch) {
         PathErrorsCame(ifindex, batch);
       }});
}

Engine::~Engine() {
  if (control_ == nullptr) return;
  // In order: the burials of the rings, then what serves events; the thread ends with both done.
  control_->RunAndWait([this] {
    for (auto& [interface, device] : devices_) {
      if (device->nic->event_fd() >= 0) control_->Unwatch(device->nic->event_fd());
    }
    kernel_->Stop();
  });
  control_.reset();
}

RingClock Engine::NewClock() const {
  std::optional<RingClock> clock;
  // There, because it recalibrates the conversion.
  control_->RunAndWait([&] { clock.emplace(ticks_, tsc_->conversion()); });
  return *clock;
}

absl::StatusOr<Engine::Port> Engine::OpenPort(const std::string& interface) {
  const auto routes = kernel_->Routes();
  const host::Interface* found = routes->FindInterface(interface);
  if (found == nullptr) {
    return absl::NotFoundError(absl::StrCat("open ring: no interface ", interface));
  }
  Port port{.ifindex = found->ifindex};
  const host::Interface* below = found;
  if (found->vlan) {
    port.vlan_id = found->vlan->id;
    below = routes->FindInterface(found->parent_ifindex);
    if (below == nullptr) {
      return absl::NotFoundError(absl::StrCat("open ring: no interface below VLAN ", interface));
    }
  }
  if (absl::Status usable = CheckUsable(*routes, *found, *below); !usable.ok()) return usable;
  std::unique_ptr<Device>& device = devices_[below->name];
  if (device != nullptr && device->IsStale(*below)) {
    if (device->nic->event_fd() >= 0) control_->Unwatch(device->nic->event_fd());
    device.reset();
  }
  // Nobody would tell the ring, which would take it for one that works.
  if (device != nullptr && device->removed) {
    return absl::FailedPreconditionError(
        absl::StrCat("open ring: the device of ", below->name,
                     " is gone, and a ring of this process still on it"));
  }
  if (device == nullptr) {
    auto nic = open_nic_(below->name);
    if (!nic.ok()) {
      devices_.erase(below->name);
      return nic.status();
    }
    device = std::make_unique<Device>();
    device->nic = *std::move(nic);
    device->ifindex = below->ifindex;
    device->mtu = below->mtu;
    device->mac = below->mac;
    if (device->nic->event_fd() >= 0) {
      control_->Watch(device->nic->event_fd(), EPOLLIN,
                      [this, served = device.get()](uint32_t) { ServePortEvents(served); });
    }
  }
  if (absl::Status watched = kernel_->WatchNeighbours(port.ifindex); !watched.ok()) return watched;
  if (absl::Status watched = kernel_->WatchPathErrors(port.ifindex); !watched.ok()) return watched;
  port.nic = device->nic.get();
  const RingClock clock = NewClock();
  port.clock = port.nic->SampleClock([&clock] { return clock.Now().count(); });
  return port;
}

void Engine::Subscribe(nic::Nic* nic, uint32_t ifindex, const std::shared_ptr<Mailbox>& mailbox) {
  for (auto& [interface, device] : devices_) {
    if (device->nic.get() != nic) continue;
    device->listeners.push_back({.ifindex = ifindex, .mailbox = mailbox});
  }
}

// `act(Ring&)` runs on every ring of the device that is still there.
template <typename Act>
void Engine::Tell(Device& device, Act act) {
  std::erase_if(device.listeners,
                [](const Device::Listener& listener) { return listener.gone(); });
  for (const Device::Listener& listener : device.listeners) {
    if (const auto mailbox = listener.mailbox.lock()) mailbox->Push(MakeNotice(act));
  }
}

void Engine::RoutesChanged() {
  for (auto& [interface, device] : devices_) {
    Tell(*device, [](Ring& ring) { ring.OnRoutes(); });
  }
}

// `hand_on(Device::Listener&, Mailbox&)` for every ring that listens on that interface.
template <typename HandOn>
void Engine::ForEachAt(uint32_t ifindex, HandOn hand_on) {
  for (auto& [interface, device] : devices_) {
    for (Device::Listener& listener : device->listeners) {
      const auto mailbox = listener.mailbox.lock();
      if (mailbox != nullptr && listener.ifindex == ifindex) hand_on(listener, *mailbox);
    }
  }
}

void Engine::NeighbourSeen(uint32_t ifindex, wire::Ipv4Address address, wire::MacAddress mac) {
  ForEachAt(ifindex, [&](Device::Listener& listener, Mailbox& mailbox) {
    listener.sightings.HandOn(mailbox, 1, [ifindex, address, mac](Ring& ring, uint64_t lost) {
      ring.core().tally.counters.sightings_lost += lost;
      if (ring.core().device.ifindex == ifindex) ring.udp().NeighbourSeen(address, mac);
    });
  });
}

void Engine::PathErrorsCame(uint32_t ifindex, const std::shared_ptr<const PathErrors>& batch) {
  ForEachAt(ifindex, [&](Device::Listener& listener, Mailbox& mailbox) {
    listener.path_errors.HandOn(mailbox, batch->errors.size(), [batch](Ring& ring, uint64_t lost) {
      ring.tcp().OnPathErrors(*batch, lost);
    });
  });
}

void Engine::ServePortEvents(Device* device) {
  while (const auto event = device->nic->PollEvent()) {
    if (*event == nic::PortEvent::kDeviceRemoved) {
      device->removed = true;
      // The kernel closed its events, which are ready for ever: no wait would last.
      control_->Unwatch(device->nic->event_fd());
    }
    Tell(*device, [event = *event, nic = device->nic.get()](Ring& ring) {
      ring.OnPortEvent(event, nic);
    });
  }
}

void Engine::SampleClocks() {
  // A calibration that fails leaves the old one standing, which is what rings are told then.
  tsc_->Recalibrate();
  const RingClock clock(ticks_, tsc_->conversion());
  for (auto& [interface, device] : devices_) {
    const nic::DeviceClock sample =
        device->nic->SampleClock([&clock] { return clock.Now().count(); });
    Tell(*device, [sample, tsc = tsc_->conversion(), nic = device->nic.get()](Ring& ring) {
      ring.OnClock(sample, tsc, nic);
      ring.Publish();
    });
  }
}

void Engine::SampleCounters() {
  for (auto& [interface, device] : devices_) {
    const auto now = device->nic->ReadPortCounters();
    if (!now.ok()) continue;
    const nic::PortCounters before = device->counters;
    // Somebody may set them to 0.
    const auto risen = [](uint64_t to, uint64_t from) { return to < from ? to : to - from; };
    const nic::PortCounters rise{.out_of_buffer = risen(now->out_of_buffer, before.out_of_buffer),
                                 .discards = risen(now->discards, before.discards)};
    const bool first = !std::exchange(device->has_counters, true);
    device->counters = *now;
    if (first || rise.out_of_buffer + rise.discards == 0) continue;
    Tell(*device, [rise, nic = device->nic.get()](Ring& ring) {
      ring.OnPortCounters(rise, nic);
    });
  }
}

}  // namespace xtreme::engine
