// SPDX-License-Identifier: Apache-2.0
//
// Engine: what the rings of a process share: the control thread, the kernel's side, the devices.
//
// Owned by the caller, not a global; outlives its rings. A device is opened with the first ring on
// its interface and stays. Its clock and its port's counters are sampled by the control thread, and
// every ring on it is told.
// Threads: Create and the destructor one thread; the rest any.

#ifndef XTREME_XTREME_ENGINE_ENGINE_H_
#define XTREME_XTREME_ENGINE_ENGINE_H_

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "stack/base/time.h"
#include "xtreme/engine/fd_watches.h"
#include "xtreme/engine/kernel.h"
#include "xtreme/engine/loopback_directory.h"
#include "xtreme/engine/ring_clock.h"

namespace xtreme::host {
class TscClock;
}
namespace xtreme::nic {
class Nic;
struct PortCounters;
}  // namespace xtreme::nic

namespace xtreme::engine {

class ControlThread;
class Mailbox;
struct PathErrors;

// Opens the device behind an interface. NotFound: there is none.
using NicFactory =
    std::function<absl::StatusOr<std::unique_ptr<nic::Nic>>(const std::string& interface)>;

class Engine {
 public:
  // Sightings of neighbours that wait for a ring: what is beyond that is counted by it and gone.
  static constexpr uint32_t kMostSightings = 256;

  struct Options {
    NicFactory open_nic;
    std::unique_ptr<Kernel> kernel;  // host_kernel.h, unless it is a test.
    TickSource ticks;
    base::Nanoseconds clock_period = base::Seconds(1);
    base::Nanoseconds counters_period = base::Milliseconds(100);
    // How long a closed ring's frames have to leave. 0: they may be lost.
    base::Nanoseconds send_patience = base::Milliseconds(50);
  };

  // The error of the kernel's side or of the control thread.
  static absl::StatusOr<std::unique_ptr<Engine>> Create(Options options);
  // No ring is open. Finishes what was started.
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // A port of a device, as rings see it.
  struct Port {
    nic::Nic* nic = nullptr;
    uint32_t ifindex = 0;
    uint16_t vlan_id = 0;
    nic::DeviceClock clock;
  };

  // --- Control thread (inside RunAndWait) ---

  // The port behind `interface` (a VLAN's is its parent's). NotFound: no such interface, or
  // no device. FailedPrecondition: it is down or has no address, or its device was removed and a
  // ring is still on it. A device that was removed, or whose interface has another MTU or MAC
  // address by now, is opened anew if no ring is on it.
  absl::StatusOr<Port> OpenPort(const std::string& interface);
  // From here on `mailbox` is told of the port, until nobody else holds it or it is closed.
  void Subscribe(nic::Nic* nic, uint32_t ifindex, const std::shared_ptr<Mailbox>& mailbox);

  LoopbackDirectory& loopback() { return loopback_; }
  FdWatches& watches() { return watches_; }

  // --- Any thread ---

  ControlThread& control() { return *control_; }
  base::Nanoseconds send_patience() const { return send_patience_; }
  Kernel& kernel() { return *kernel_; }
  RingClock NewClock() const;
  base::Nanoseconds clock_period() const { return clock_period_; }

 private:
  struct Device;

  explicit Engine(Options options);
  absl::Status StartKernel();
  void RoutesChanged();
  void NeighbourSeen(uint32_t ifindex, wire::Ipv4Address address, wire::MacAddress mac);
  void PathErrorsCame(uint32_t ifindex, const std::shared_ptr<const PathErrors>& batch);
  void ServePortEvents(Device* device);
  void SampleClocks();
  void SampleCounters();
  template <typename Act>
  void Tell(Device& device, Act act);
  template <typename HandOn>
  void ForEachAt(uint32_t ifindex, HandOn hand_on);

  const NicFactory open_nic_;
  const TickSource ticks_;
  const base::Nanoseconds clock_period_;
  const base::Nanoseconds counters_period_;
  const base::Nanoseconds send_patience_;
  const std::unique_ptr<Kernel> kernel_;
  std::unique_ptr<host::TscClock> tsc_;  // Control thread, after Create().

  // Control thread.
  std::map<std::string, std::unique_ptr<Device>> devices_;
  LoopbackDirectory loopback_;
  FdWatches watches_;

  std::unique_ptr<ControlThread> control_;  // Last: its operations use all of the above.
};

}  // namespace xtreme::engine

#endif  // XTREME_XTREME_ENGINE_ENGINE_H_
