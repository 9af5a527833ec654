// SPDX-License-Identifier: Apache-2.0
//
// The software ConnectX of a process: devices on wires that the distribution's libibverbs and
// libmlx5 find and open as they would find a card's. From Create until it is destroyed,
// ibv_get_device_list returns these devices and no others.
//
// Invariant: one at a time in a process; when it goes, nothing of it is left.
// Three ways to run: an adaptive thread, a spinning thread, or no thread: then the caller steps it
// under a virtual clock.
// Thread: Create and the destructor when no thread is inside a verb; all else from any, Step from
// one at a time.
// Spec: docs/connectx.md.

#ifndef XTREME_TOOLS_CONNECTX_CONNECTX_H_
#define XTREME_TOOLS_CONNECTX_CONNECTX_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/connectx/device/clock.h"
#include "tools/connectx/device/device.h"
#include "tools/connectx/uverbs/context.h"
#include "tools/connectx/uverbs/service_thread.h"
#include "tools/connectx/wire/wire.h"

namespace xtreme::connectx {

class SysfsTree;
class Uverbs;

class SoftwareConnectX {
 public:
  enum class Mode {
    kAdaptive,  // A thread that spins for a moment, then sleeps until something happens.
    kSpin,      // A thread that never sleeps.
    kStep,      // No thread: Step() is the only thing that happens.
  };

  struct Port {
    // Name, MAC address, MTU and what the device can do. `step` is set by the mode.
    Device::Options device;
    // The network interface that is this port's, in the calling thread's namespace; empty: none. It
    // shows in the GID table (ibv_query_gid_table) and in sysfs (device/net).
    std::string interface;
    Wire* wire = nullptr;  // Outlives the SoftwareConnectX.
  };

  struct Options {
    Mode mode = Mode::kAdaptive;
    std::vector<Port> ports;  // One device each.
    ServiceThread::Options thread;
    // May be empty. Called before each open of a device, by the thread that opens it.
    std::function<void()> on_open;
  };

  // Makes the devices, their sysfs, and redirects the verbs libraries; it sets SYSFS_PATH in the
  // environment, so it comes before the first verb of the process. Errors: FailedPrecondition (one
  // exists), InvalidArgument (no port, no wire, device options), NotFound (interface), Internal
  // (memory, files, or no verbs library in the process).
  static absl::StatusOr<std::unique_ptr<SoftwareConnectX>> Create(Options options);

  // In a child after fork(): what there is stays the parent's, and is never destroyed here; this
  // process may create its own.
  static void ForgetAfterFork();

  // Contexts that are still open are released; their descriptors are then good for nothing but
  // closing.
  ~SoftwareConnectX();
  SoftwareConnectX(const SoftwareConnectX&) = delete;
  SoftwareConnectX& operator=(const SoftwareConnectX&) = delete;

  size_t size() const { return ports_.size(); }
  Device& device(size_t index);

  // Step mode: lets all devices work until none has anything to do now, and shows the present time
  // and the counters. False: nothing happened. `advance_ns` moves the clock first.
  bool Step(int64_t advance_ns = 0);
  // Step mode only.
  VirtualClock& clock();
  // How often the thread went to sleep; 0 in step mode.
  uint64_t sleeps() const;

  // Fault injection at the boundary. The next call of this name fails with `error` and has no
  // effect; false: no such name. "OPEN", "MMAP", and those of commands(), such as "CREATE_QP".
  bool FailNext(std::string_view command, int error);
  // The call after `calls` more, whatever it is, fails: for a test that fails each step in turn.
  // `spares_ends`: or the first behind it that ends no object, which no kernel refuses.
  void FailAfter(uint64_t calls, int error, bool spares_ends = false);
  // Calls that FailAfter counts, since Create.
  uint64_t calls() const;
  // The names of the last 256 of them, the oldest first: for a test of an order.
  std::vector<std::string> last_calls() const;
  static std::vector<std::string_view> commands();

  // What programs hold now, over all devices.
  LiveObjects live_objects() const;
  // Where the devices' /sys is.
  const std::string& sysfs_path() const;

  // Stops the thread and removes the files, and leaves the rest as it is: for a process that is
  // about to exit while other threads may still be inside a verb.
  void Retire();

 private:
  struct OwnedPort;

  SoftwareConnectX();
  absl::Status Build(Options options);
  absl::Status BuildPort(Port port, bool step);
  bool ServiceAll();
  void WriteCounters();
  void WritePort(OwnedPort& port);

  std::unique_ptr<VirtualClock> virtual_clock_;  // Step mode.
  std::unique_ptr<RealClock> real_clock_;        // Otherwise.
  std::vector<std::unique_ptr<OwnedPort>> ports_;
  std::unique_ptr<SysfsTree> sysfs_;
  std::unique_ptr<ServiceThread> thread_;  // Null in step mode.
  std::unique_ptr<Uverbs> uverbs_;
};

}  // namespace xtreme::connectx

#endif  // XTREME_TOOLS_CONNECTX_CONNECTX_H_
