// SPDX-License-Identifier: Apache-2.0

#include "tools/connectx/device/device.h"

#include <bit>
#include <cerrno>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "tools/connectx/device/device_state.h"

namespace xtreme::connectx {
namespace {

constexpr uint32_t kMinMtu = 576;

absl::Status Validate(const Device::Options& options) {
  if (options.mtu < kMinMtu || options.mtu > kMaxMtu) {
    return absl::InvalidArgumentError(absl::StrFormat("make %s: MTU %u asked, %u to %u offered",
                                                      options.name, options.mtu, kMinMtu, kMaxMtu));
  }
  if (options.hca_core_clock_khz == 0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("make %s: core clock of 0 kHz asked", options.name));
  }
  if ((options.mac[0] & 1) != 0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("make %s: a multicast address asked as its MAC", options.name));
  }
  return absl::OkStatus();
}

bool IsShape(const CqRequest& request, const Device::Limits& limits) {
  return request.ring != nullptr && request.doorbell_record != nullptr &&
         std::has_single_bit(request.entries) && request.entries <= limits.cqes &&
         (request.cqe_size == 64 || request.cqe_size == 128);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Device>> Device::Create(const Options& options, Wire* wire,
                                                       const Clock* clock) {
  if (absl::Status valid = Validate(options); !valid.ok()) return valid;
  absl::StatusOr<std::unique_ptr<UarTable>> uars = UarTable::Create(options.limits.uars);
  if (!uars.ok()) return uars.status();
  auto device_memory = DeviceMemoryTable::Create(options.limits.device_memory_bytes);
  if (!device_memory.ok()) return device_memory.status();
  auto state = std::make_unique<DeviceState>(options, *std::move(uars), *std::move(device_memory),
                                             wire, clock);
  state->pump.queue_pairs = &state->qps;
  state->pump.completion_queues = &state->cqs;
  state->BeginPass();
  return std::unique_ptr<Device>(new Device(std::move(state)));
}

Device::Device(std::unique_ptr<DeviceState> state) : state_(std::move(state)) {}
Device::~Device() = default;

bool Device::Service() {
  // Not forever: a control call that was put off the processor must not hold up the wire.
  constexpr int kYields = 16;
  for (int i = 0; i < kYields && state_->waiting.load(std::memory_order_relaxed) != 0; ++i) {
    std::this_thread::yield();
  }
  std::lock_guard lock(state_->mutex);
  // Once more, so that whoever shows the device's state sees that it is gone.
  if (removed()) return !std::exchange(state_->removal_served, true);
  state_->BeginPass();
  return state_->pump.Run();
}

int64_t Device::NextDeadline() const {
  ControlLock lock(state_.get());
  return removed() ? kNoDeadline : state_->pump.NextDeadline();
}

ContextId Device::OpenContext() {
  ControlLock lock(state_.get());
  ++state_->pump.open_contexts;
  return ++state_->pump.last_context;
}

void Device::CloseContext() {
  ControlLock lock(state_.get());
  --state_->pump.open_contexts;
}

int Device::AllocPd(uint32_t* pd) {
  ControlLock lock(state_.get());
  if (state_->pds.full()) return ENOMEM;
  *pd = state_->pds.Reserve();
  state_->pds.Put(*pd, std::make_unique<ProtectionDomain>());
  return 0;
}

int Device::FreePd(uint32_t pd) {
  ControlLock lock(state_.get());
  const ProtectionDomain* domain = state_->pds.Find(pd);
  if (domain == nullptr) return EINVAL;
  if (domain->queues != 0 || state_->environment.memory.Uses(pd)) return EBUSY;
  state_->pds.Remove(pd);
  return 0;
}

int Device::RegisterMemory(const MemoryRequest& request, MemoryKeys* keys) {
  ControlLock lock(state_.get());
  if (state_->pds.Find(request.pd) == nullptr) return EINVAL;
  return state_->environment.memory.Register(request, keys);
}

int Device::DeregisterMemory(uint32_t lkey) {
  ControlLock lock(state_.get());
  return state_->environment.memory.Deregister(lkey);
}

int Device::AllocDeviceMemory(uint64_t bytes, uint32_t alignment_log2, DeviceMemory* memory) {
  ControlLock lock(state_.get());
  return state_->device_memory->Alloc(bytes, alignment_log2, memory);
}

int Device::FreeDeviceMemory(uint64_t offset) {
  ControlLock lock(state_.get());
  return state_->device_memory->Free(offset);
}

int Device::device_memory_fd() const { return state_->device_memory->fd(); }

int Device::AllocUar(UarType type, Uar* uar) {
  if (type == UarType::kBlueFlame && !options().features.blueflame) return EOPNOTSUPP;
  ControlLock lock(state_.get());
  return state_->uars->Alloc(uar);
}

int Device::FreeUar(uint32_t page_id) {
  ControlLock lock(state_.get());
  return state_->uars->Free(page_id);
}

int Device::uar_fd() const { return state_->uars->fd(); }
std::span<uint8_t> Device::uar_memory() const { return state_->uars->memory(); }

int Device::CreateCq(const CqRequest& request, uint32_t* cqn) {
  ControlLock lock(state_.get());
  UarPage* page = state_->uars->Find(request.uar);
  if (page == nullptr || !IsShape(request, options().limits)) return EINVAL;
  if (state_->cqs.full()) return ENOMEM;
  *cqn = state_->cqs.Reserve();
  CompletionQueue* cq =
      state_->cqs.Put(*cqn, std::make_unique<CompletionQueue>(request, *cqn, &state_->environment));
  page->completion_queues.push_back(cq);
  return 0;
}

int Device::DestroyCq(uint32_t cqn, uint32_t* events) {
  ControlLock lock(state_.get());
  CompletionQueue* cq = state_->cqs.Find(cqn);
  if (cq == nullptr) return EINVAL;
  if (cq->users != 0) return EBUSY;
  UarPage* const page = state_->uars->Find(cq->uar());
  state_->pump.TakeRung(page);
  if (events != nullptr) *events = cq->events();
  std::erase(page->completion_queues, cq);
  std::erase(state_->pump.moderated, cq);
  state_->cqs.Remove(cqn);
  return 0;
}

int Device::ModerateCq(uint32_t cqn, uint16_t count, uint16_t period_us) {
  if (!options().features.cq_moderation) return EOPNOTSUPP;
  ControlLock lock(state_.get());
  CompletionQueue* cq = state_->cqs.Find(cqn);
  if (cq == nullptr) return EINVAL;
  std::erase(state_->pump.moderated, cq);
  if (period_us != 0) state_->pump.moderated.push_back(cq);
  cq->SetModeration(count, period_us);
  return 0;
}

uint64_t Device::HardwareClock() const { return CyclesAt(state_->clock->Now()); }
uint64_t Device::CyclesAt(int64_t time_ns) const {
  return state_->environment.clock.CyclesAt(time_ns);  // Of the clock's constants alone: no lock.
}

void Device::AdjustPhc(int64_t step_ns, int32_t parts_per_billion) {
  ControlLock lock(state_.get());
  state_->environment.clock.Adjust(state_->environment.pass.now_ns, step_ns, parts_per_billion);
  state_->clock_adjustments.fetch_add(1, std::memory_order_release);
}

int64_t Device::PhcAt(int64_t time_ns) const {
  ControlLock lock(state_.get());
  return state_->environment.clock.PhcAt(time_ns);
}

int32_t Device::phc_parts_per_billion() const {
  ControlLock lock(state_.get());
  return state_->environment.clock.parts_per_billion();
}

uint32_t Device::clock_adjustments() const {
  return state_->clock_adjustments.load(std::memory_order_acquire);
}

void Device::Subscribe(EventSink* sink) {
  ControlLock lock(state_.get());
  state_->pump.subscribers.push_back(sink);
}

void Device::Unsubscribe(EventSink* sink) {
  ControlLock lock(state_.get());
  std::erase(state_->pump.subscribers, sink);
}

void Device::SetPortUp(bool up) {
  ControlLock lock(state_.get());
  state_->pump.SetPortUp(up);
}

void Device::TellOfOtherPort(uint8_t port, bool up) {
  ControlLock lock(state_.get());
  state_->pump.Announce(up ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR, port);
}

void Device::Remove() {
  ControlLock lock(state_.get());
  if (state_->removed.exchange(true)) return;
  state_->pump.Announce(IBV_EVENT_DEVICE_FATAL, 0);
}

bool Device::removed() const { return state_->removed.load(std::memory_order_relaxed); }

Device::PortState Device::Port() const {
  ControlLock lock(state_.get());
  state_->pump.FollowMtu();
  return {.up = !removed() && state_->pump.port_up(),
          .mtu = state_->environment.mtu,
          .mac = options().mac};
}

std::vector<Device::NamedCounter> Device::Counters() const {
  return state_->environment.counters.Snapshot();
}

std::vector<std::string> Device::Violations() const {
  return state_->environment.violations.Snapshot();
}

void Device::BeforeFork() {
  state_->flows_mutex.lock();
  state_->waiting.fetch_add(1, std::memory_order_relaxed);
  state_->mutex.lock();
  state_->waiting.fetch_sub(1, std::memory_order_relaxed);
}

void Device::AfterFork() {
  state_->mutex.unlock();
  state_->flows_mutex.unlock();
}

const Device::Options& Device::options() const { return state_->environment.options; }
Wire* Device::wire() const { return state_->wire; }

}  // namespace xtreme::connectx
