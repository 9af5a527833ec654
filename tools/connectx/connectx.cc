// SPDX-License-Identifier: Apache-2.0

#include "tools/connectx/connectx.h"

#include <net/if.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "tools/connectx/uverbs/clock_pages.h"
#include "tools/connectx/uverbs/commands.h"
#include "tools/connectx/uverbs/hook.h"
#include "tools/connectx/uverbs/identity.h"
#include "tools/connectx/uverbs/sysfs.h"
#include "tools/connectx/uverbs/uverbs.h"

#ifdef __SANITIZE_THREAD__
// What orders a program's work-queue entries against the device's reading of them is a store to a
// mapped page, which libmlx5 makes and the sanitizer does not see.
extern "C" __attribute__((weak)) const char* __tsan_default_suppressions() {
  return "race:libmlx5.so\n"
         "race:xtreme::connectx::SendQueue::\n"
         "race:xtreme::connectx::ReceiveQueue::Scatter\n";
}
#endif

namespace xtreme::connectx {
namespace {

// The hooks are the process's, so their owner is one.
std::atomic<bool> g_exists{false};

// Holds what there is still while a thread forks: a child has its locks as they were then, and none
// of the threads that would let go of them.
class ForkGuard {
 public:
  // Never destroyed: a child may be made while the process ends.
  static ForkGuard& OfThisProcess() {
    static ForkGuard& guard = *new ForkGuard;
    return guard;
  }

  // Null: there is nothing.
  void Watch(Uverbs* uverbs) {
    const std::lock_guard lock(mutex_);
    uverbs_ = uverbs;
  }

 private:
  ForkGuard() {
    pthread_atfork([] { OfThisProcess().Hold(); },  //
                   [] { OfThisProcess().LetGo(&Uverbs::AfterForkInParent); },
                   [] { OfThisProcess().LetGo(&Uverbs::AfterForkInChild); });
  }

  void Hold() {
    mutex_.lock();
    if (uverbs_ != nullptr) uverbs_->BeforeFork();
  }
  void LetGo(void (Uverbs::*after_fork)()) {
    if (uverbs_ != nullptr) (uverbs_->*after_fork)();
    mutex_.unlock();
  }

  std::mutex mutex_;
  Uverbs* uverbs_ = nullptr;
};

// Where the card's sysfs has a counter of this name.
std::string CounterFile(absl::string_view name) {
  for (absl::string_view prefix : {"port_", "unicast_", "multicast_"}) {
    if (name.substr(0, prefix.size()) == prefix) return absl::StrCat("counters/", name);
  }
  return absl::StrCat("hw_counters/", name);
}

}  // namespace

struct SoftwareConnectX::OwnedPort {
  DeviceIdentity identity;
  std::unique_ptr<Device> device;
  std::unique_ptr<ClockPages> clock_pages;
  // As the files have them.
  std::vector<uint64_t> written_counters;
  bool written_up = true;
  bool in_sysfs = true;
};

SoftwareConnectX::SoftwareConnectX() = default;

absl::StatusOr<std::unique_ptr<SoftwareConnectX>> SoftwareConnectX::Create(Options options) {
  if (g_exists.exchange(true)) {
    return absl::FailedPreconditionError("create a software ConnectX: this process has one");
  }
  auto connectx = std::unique_ptr<SoftwareConnectX>(new SoftwareConnectX);
  if (absl::Status status = connectx->Build(std::move(options)); !status.ok()) return status;
  return connectx;
}

absl::Status SoftwareConnectX::Build(Options options) {
  if (options.ports.empty()) {
    return absl::InvalidArgumentError("create a software ConnectX: no port asked for");
  }
  const bool step = options.mode == Mode::kStep;
  if (step) {
    virtual_clock_ = std::make_unique<VirtualClock>();
  } else {
    real_clock_ = std::make_unique<RealClock>();
  }
  for (Port& port : options.ports) {
    if (absl::Status status = BuildPort(std::move(port), step); !status.ok()) return status;
  }
  std::vector<DeviceIdentity> identities;
  for (const auto& port : ports_) identities.push_back(port->identity);
  absl::StatusOr<std::unique_ptr<SysfsTree>> sysfs = SysfsTree::Create(identities);
  if (!sysfs.ok()) return sysfs.status();
  sysfs_ = *std::move(sysfs);
  WriteCounters();

  if (!step) {
    std::vector<ServiceThread::Served> served;
    for (const auto& port : ports_) served.push_back({port->device.get(), port->clock_pages.get()});
    options.thread.spin = options.mode == Mode::kSpin;
    thread_ = std::make_unique<ServiceThread>(std::move(served), real_clock_.get(), options.thread,
                                              [this] { WriteCounters(); });
  }
  std::vector<Uverbs::Port> verbs_ports;
  for (const auto& port : ports_) {
    verbs_ports.push_back({port->device.get(), &port->identity, port->clock_pages.get()});
  }
  uverbs_ = std::make_unique<Uverbs>(std::move(verbs_ports), thread_.get(),
                                     std::move(options.on_open));
  if (PatchCallSlots() == 0) {
    return absl::InternalError("create a software ConnectX: no verbs library in this process");
  }
  ForkGuard::OfThisProcess().Watch(uverbs_.get());
  SetBoundary(uverbs_.get());
  return absl::OkStatus();
}

absl::Status SoftwareConnectX::BuildPort(Port port, bool step) {
  const std::string action = absl::StrCat("create device ", port.device.name, ": ");
  if (port.wire == nullptr) return absl::InvalidArgumentError(action + "no wire");
  auto owned = std::make_unique<OwnedPort>();
  owned->identity = IdentityOf(port.device.name, port.interface, port.device.mac);
  owned->identity.pci_device_id = port.device.model.pci_device_id;
  owned->identity.hca_type = port.device.model.hca_type;
  owned->identity.board_id = port.device.model.board_id;
  owned->identity.firmware = port.device.model.firmware;
  if (!port.interface.empty()) {
    owned->identity.interface_index = ::if_nametoindex(port.interface.c_str());
    if (owned->identity.interface_index == 0) {
      return absl::NotFoundError(absl::StrCat(action, "no interface ", port.interface));
    }
  }
  port.device.step = step;
  const Clock* clock = step ? static_cast<const Clock*>(virtual_clock_.get()) : real_clock_.get();
  auto device = Device::Create(port.device, port.wire, clock);
  if (!device.ok()) return device.status();
  owned->device = *std::move(device);
  owned->clock_pages = ClockPages::Create(owned->device.get(), clock);
  if (owned->clock_pages == nullptr) return absl::InternalError(action + "no memory for its clock");
  ports_.push_back(std::move(owned));
  return absl::OkStatus();
}

void SoftwareConnectX::ForgetAfterFork() {
  SetBoundary(nullptr);
  SysfsTree::ForgetAfterFork();
  g_exists.store(false);
}

SoftwareConnectX::~SoftwareConnectX() {
  SetBoundary(nullptr);
  ForkGuard::OfThisProcess().Watch(nullptr);
  // Contexts first: they hold objects of the devices, which the thread serves until they are gone.
  uverbs_.reset();
  thread_.reset();
  sysfs_.reset();
  ports_.clear();
  g_exists.store(false);
}

Device& SoftwareConnectX::device(size_t index) { return *ports_.at(index)->device; }

// What falls due on the way happens at its own time.
bool SoftwareConnectX::Step(int64_t advance_ns) {
  const int64_t end_ns = virtual_clock_->Now() + advance_ns;
  bool worked = false;
  while (virtual_clock_->Now() < end_ns) {
    int64_t due_ns = kNoDeadline;
    for (const auto& port : ports_) due_ns = std::min(due_ns, port->device->NextDeadline());
    const int64_t now_ns = virtual_clock_->Now();
    // What is overdue and was not done by a service needs something else than time.
    if (due_ns >= end_ns || due_ns <= now_ns) break;
    virtual_clock_->Advance(due_ns - now_ns);
    worked |= ServiceAll();
  }
  virtual_clock_->Advance(end_ns - virtual_clock_->Now());
  worked |= ServiceAll();
  for (const auto& port : ports_) port->clock_pages->Update();
  WriteCounters();
  return worked;
}

bool SoftwareConnectX::ServiceAll() {
  bool worked = false;
  for (bool again = true; again;) {
    again = false;
    for (const auto& port : ports_) again |= port->device->Service();
    worked |= again;
  }
  return worked;
}

VirtualClock& SoftwareConnectX::clock() { return *virtual_clock_; }

uint64_t SoftwareConnectX::sleeps() const { return thread_ == nullptr ? 0 : thread_->sleeps(); }

bool SoftwareConnectX::FailNext(std::string_view command, int error) {
  return uverbs_->FailNext(command, error);
}

void SoftwareConnectX::FailAfter(uint64_t calls, int error, bool spares_ends) {
  uverbs_->FailAfter(calls, error, spares_ends);
}

std::vector<std::string> SoftwareConnectX::last_calls() const { return uverbs_->last_calls(); }

uint64_t SoftwareConnectX::calls() const { return uverbs_->calls(); }

std::vector<std::string_view> SoftwareConnectX::commands() {
  const auto names = CommandNames();
  return {names.begin(), names.end()};
}

LiveObjects SoftwareConnectX::live_objects() const { return uverbs_->live_objects(); }

const std::string& SoftwareConnectX::sysfs_path() const { return sysfs_->root(); }

void SoftwareConnectX::Retire() {
  // Later calls are the kernel's. Whoever is inside one keeps the boundary's lock, for which Detach
  // waits; after it nobody wakes the thread that is to go.
  SetBoundary(nullptr);
  uverbs_->Detach();
  thread_.reset();
  sysfs_.reset();
}

void SoftwareConnectX::WriteCounters() {
  for (const auto& port : ports_) {
    WritePort(*port);
    if (!port->in_sysfs) continue;
    const auto counters = port->device->Counters();
    port->written_counters.resize(counters.size(), ~uint64_t{0});
    for (size_t i = 0; i < counters.size(); ++i) {
      if (port->written_counters[i] == counters[i].value) continue;
      port->written_counters[i] = counters[i].value;
      // A full disk must not stop the traffic: the file then keeps its old value.
      (void)sysfs_->WriteCounter(port->identity.name, CounterFile(counters[i].name),
                                 counters[i].value);
    }
  }
}

void SoftwareConnectX::WritePort(OwnedPort& port) {
  if (port.in_sysfs && port.device->removed()) {
    port.in_sysfs = false;
    sysfs_->RemoveDevice(port.identity.name);
  }
  const bool up = port.device->Port().up;
  if (!port.in_sysfs || up == port.written_up) return;
  port.written_up = up;
  (void)sysfs_->WritePortState(port.identity.name, up);
}

}  // namespace xtreme::connectx
