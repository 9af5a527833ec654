// SPDX-License-Identifier: Apache-2.0

#include "api/native/process.h"

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "xtreme/engine/engine.h"
#include "xtreme/engine/host_kernel.h"
#include "xtreme/engine/mailbox.h"
#include "xtreme/engine/ring.h"
#include "xtreme/engine/ring_exit.h"
#include "xtreme/engine/ring_group.h"
#include "xtreme/engine/ring_lane.h"
#include "xtreme/engine/tcp.h"
#include "xtreme/host/snapshot.h"
#include "xtreme/mlx5/device.h"
#include "xtreme/mlx5/nic.h"

namespace xtreme::api {
namespace {

// The ConnectX port behind an interface, which the kernel knows by this state.
absl::StatusOr<std::unique_ptr<nic::Nic>> OpenNic(const host::Snapshot& kernel,
                                                  const std::string& name) {
  const host::Interface* interface = kernel.FindInterface(std::string_view(name));
  if (interface == nullptr) {
    return absl::NotFoundError(absl::StrCat("interface '", name, "': there is none"));
  }
  auto port = mlx5::FindDevice(name, static_cast<int>(interface->ifindex));
  if (!port.ok()) return port.status();
  mlx5::Nic::Options options;
  options.port = *std::move(port);
  options.mac = interface->mac;
  options.mtu = interface->mtu;
  auto opened = mlx5::Nic::Open(options);
  if (!opened.ok()) return opened.status();
  return std::unique_ptr<nic::Nic>(*std::move(opened));
}

std::atomic<Process*> the{nullptr};  // Null: nobody has asked for it.
std::atomic<pid_t> made_in{0};       // The process that asked first.
const Process* parents_own = nullptr;

// Nothing of the parent's is locked, changed or destroyed: it may be half done, its queues are the
// parent's, and its thread would be waited for.
void BecomeChild() {
  if (const Process* const process = the.exchange(nullptr)) parents_own = process;
}

}  // namespace

Process& Process::The() {
  Process* const process = the.load(std::memory_order_acquire);
  return process != nullptr ? *process : Make();
}

// Numbers go on where they were: handles of the parent's meet an empty place.
Process::Process(const Process* parents) : parents_(parents) {
  if (parents_ == nullptr) {
    pthread_atfork(nullptr, nullptr, BecomeChild);
    return;
  }
  last_ring_ = parents_->last_ring_;
  last_group_ = parents_->last_group_;
  last_lane_ = parents_->last_lane_;
  pid_ = parents_->pid_;
}

// In memory of its own and never destroyed: a thread may poll while the process exits.
Process& Process::Make() {
  auto made = std::unique_ptr<Process>(new Process(parents_own));
  made_in.store(getpid(), std::memory_order_relaxed);
  Process* there = nullptr;
  if (!the.compare_exchange_strong(there, made.get())) return *there;
  return *made.release();
}

// The ring counts as open already, so that the engine stays.
absl::StatusOr<std::shared_ptr<engine::Engine>> Process::AcquireEngine() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (engine_ != nullptr) return engine_;
  }
  auto kernel = engine::HostKernel::Create();
  if (!kernel.ok()) return kernel.status();
  engine::Engine::Options options;
  // The engine owns the kernel's side, and asks for devices while it lives.
  options.open_nic = [host = kernel->get()](const std::string& interface) {
    return OpenNic(*host->Routes(), interface);
  };
  options.kernel = *std::move(kernel);
  auto made = engine::Engine::Create(std::move(options));
  if (!made.ok()) return made.status();
  const std::lock_guard<std::mutex> lock(mutex_);
  engine_ = std::move(*made);
  return engine_;
}

void Process::UseEngine(std::shared_ptr<engine::Engine> engine) {
  const std::lock_guard<std::mutex> lock(mutex_);
  engine_ = std::move(engine);
}

template <typename T>
uint16_t Process::NextFree(const std::array<std::atomic<T*>, kPlaces>& places, uint16_t* last) {
  for (size_t tries = 0; tries < kPlaces; ++tries) {
    ++*last;
    if (*last != 0 && places[*last].load(std::memory_order_relaxed) == nullptr) return *last;
  }
  return 0;
}

// 0: no place is left.
uint16_t Process::ReserveRing() {
  const std::lock_guard<std::mutex> lock(mutex_);
  const uint16_t number = NextFree(rings_, &last_ring_);
  if (number != 0) ++open_rings_;
  return number;
}

void Process::GiveUpRing() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (--open_rings_ == 0) engine_.reset();
}

absl::StatusOr<uint64_t> Process::OpenRing(engine::RingOptions options) {
  // A child that was made by the system call itself: no handler has run.
  if (made_in.load(std::memory_order_relaxed) != getpid()) {
    BecomeChild();
    return The().OpenRing(std::move(options));
  }
  const std::lock_guard<std::mutex> opening(opening_);
  const uint16_t number = ReserveRing();
  if (number == 0) return absl::ResourceExhaustedError("open ring: 65535 rings are open");
  auto handle = Bring(number, std::move(options));
  if (!handle.ok()) GiveUpRing();
  return handle;
}

absl::StatusOr<uint64_t> Process::Bring(uint16_t number, engine::RingOptions options) {
  auto engine = AcquireEngine();
  if (!engine.ok()) return engine.status();
  options.number = number;
  auto ring = engine::Ring::Open(engine->get(), options);
  if (!ring.ok()) return ring.status();
  const std::lock_guard<std::mutex> lock(mutex_);
  SetFd((*ring)->fd(), number);
  {
    const std::lock_guard<std::mutex> ways_lock(ways_mutex_);
    ways_[number] = {.door = (*ring)->tcp().door(), .mailbox = (*ring)->mailbox()};
  }
  rings_[number].store(ring->release(), std::memory_order_release);
  return uint64_t{number} << 48 | 1;
}

int Process::CloseRing(uint64_t handle) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (grouped_rings_.contains(NumberOf(handle))) return EBUSY;
  // The engine goes after the last ring: it is declared before it.
  const std::shared_ptr<engine::Engine> engine = engine_;
  const std::unique_ptr<engine::Ring> ring(
      rings_[NumberOf(handle)].exchange(nullptr, std::memory_order_acq_rel));
  if (ring == nullptr) return EBADF;
  SetFd(ring->fd(), 0);
  {
    const std::lock_guard<std::mutex> ways_lock(ways_mutex_);
    ways_.erase(NumberOf(handle));
  }
  reset_at_exit_.erase(NumberOf(handle));
  if (--open_rings_ == 0) engine_.reset();
  return 0;
}

bool Process::WakeRing(uint64_t handle) {
  std::shared_ptr<engine::Mailbox> mailbox;
  {
    const std::lock_guard<std::mutex> lock(ways_mutex_);
    const auto found = ways_.find(NumberOf(handle));
    if (found == ways_.end()) return false;
    mailbox = found->second.mailbox;
  }
  mailbox->Knock();
  return true;
}

bool Process::FindDoor(uint64_t handle, std::shared_ptr<engine::TcpDoor>* door) {
  const std::lock_guard<std::mutex> lock(ways_mutex_);
  const auto found = ways_.find(NumberOf(handle));
  if (found == ways_.end()) return false;
  *door = found->second.door;
  return true;
}

void Process::ResetAtExit(uint64_t handle) {
  const std::lock_guard<std::mutex> lock(mutex_);
  // Handlers run before those that were registered earlier: what the program makes from here on,
  // its own rings among it, is gone by then.
  if (pid_ == 0) {
    std::atexit([] {
      if (Process* const process = the.load(std::memory_order_acquire)) process->AtExit();
    });
  }
  pid_ = getpid();
  reset_at_exit_.insert(NumberOf(handle));
}

void Process::AtExit() {
  if (getpid() != pid_) return;  // Of a child that has not asked for it.
  const std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return;  // A thread that opens or closes one is not waited for.
  const base::Nanoseconds patience(std::chrono::nanoseconds(kExitPatience).count());
  std::vector<std::shared_ptr<const std::atomic<bool>>> asked;
  for (const uint16_t number : reset_at_exit_) {
    engine::Ring& ring = *rings_[number].load(std::memory_order_acquire);
    if (ring.OwnedByThisThread()) {
      engine::ResetPeers(ring, patience);
    } else {
      asked.push_back(engine::AskToResetPeers(ring, patience));
    }
  }
  const auto end = std::chrono::steady_clock::now() + kExitPatience;
  for (const auto& done : asked) {
    while (!done->load(std::memory_order_acquire) && std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }
}

absl::StatusOr<uint64_t> Process::OpenLane(engine::Ring* ring) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const uint16_t number = NextFree(lanes_, &last_lane_);
  if (number == 0) return 0;
  std::shared_ptr<engine::RingLane> lane = ring->OpenLane();
  if (lane == nullptr) {
    return absl::ResourceExhaustedError(
        absl::StrCat("open lane: ", engine::Ring::kMaxLanes, " are open"));
  }
  lanes_[number].store(lane.get(), std::memory_order_release);
  lane_owners_[number] = std::move(lane);
  return uint64_t{number} << 48 | 1;
}

bool Process::CloseLane(uint64_t handle) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto owner = lane_owners_.find(NumberOf(handle));
  if (owner == lane_owners_.end()) return false;
  lanes_[NumberOf(handle)].store(nullptr, std::memory_order_release);
  owner->second->Close();
  lane_owners_.erase(owner);
  return true;
}

absl::StatusOr<uint64_t> Process::OpenGroup(std::span<engine::Ring* const> rings,
                                            std::vector<uint16_t> numbers) {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::set<uint16_t> grouped = grouped_rings_;
  for (const uint16_t ring : numbers) {
    if (grouped.insert(ring).second) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("open group: ring ", ring, " is in a group, or named twice"));
  }
  const uint16_t number = NextFree(groups_, &last_group_);
  if (number == 0) return 0;
  auto group = engine::RingGroup::Create(rings);
  if (!group.ok()) return group.status();
  grouped_rings_ = std::move(grouped);
  rings_of_group_[number] = std::move(numbers);
  SetFd((*group)->fd(), kGroupBit | number);
  groups_[number].store(group->release(), std::memory_order_release);
  return uint64_t{number} << 48 | 1;
}

bool Process::CloseGroup(uint64_t handle) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const std::unique_ptr<engine::RingGroup> group(
      groups_[NumberOf(handle)].exchange(nullptr, std::memory_order_acq_rel));
  if (group == nullptr) return false;
  SetFd(group->fd(), 0);
  for (const uint16_t ring : rings_of_group_[NumberOf(handle)]) grouped_rings_.erase(ring);
  rings_of_group_.erase(NumberOf(handle));
  return true;
}

void Process::SetFd(int fd, uint32_t value) {
  if (fd >= 0 && static_cast<size_t>(fd) < kFds) {
    by_fd_[static_cast<size_t>(fd)].store(value, std::memory_order_release);
  }
}

Process::Polled Process::FindByFd(int fd) const {
  if (fd < 0 || static_cast<size_t>(fd) >= kFds) return {};
  const uint32_t value = by_fd_[static_cast<size_t>(fd)].load(std::memory_order_acquire);
  const uint16_t number = static_cast<uint16_t>(value);
  if (value & kGroupBit) return {nullptr, groups_[number].load(std::memory_order_acquire)};
  return {rings_[number].load(std::memory_order_acquire), nullptr};
}

}  // namespace xtreme::api
