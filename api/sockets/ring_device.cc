// SPDX-License-Identifier: Apache-2.0

#include "api/sockets/ring_device.h"

#include <infiniband/verbs.h>

#include <cerrno>
#include <limits>
#include <string>

#include "api/sockets/kernel_calls.h"
#include "api/sockets/log.h"
#include "api/sockets/ring_door.h"
#include "xtreme/engine/control_thread.h"
#include "xtreme/engine/ring.h"
#include "xtreme/engine/ring_core.h"
#include "xtreme/nic/nic.h"

namespace xtreme::sockets {
namespace {

// Of OP_DONE completions that are the ring's own.
constexpr uint64_t kModerated = 1;

}  // namespace

RingDevice::RingDevice(RingDoor* door, bool external) : door_(door), external_(external) {}

RingDevice::~RingDevice() = default;

int RingDevice::Moderate(uint32_t completions, uint32_t microseconds) {
  constexpr uint32_t kMost = std::numeric_limits<uint16_t>::max();
  if (completions > kMost || microseconds > kMost) return -EINVAL;
  engine::Outcome outcome = door_->ring().ModerateInterrupts(
      {.completions = static_cast<uint16_t>(completions),
       .microseconds = static_cast<uint16_t>(microseconds)},
      kModerated);
  if (outcome.ok()) outcome = door_->Await(0, kModerated);
  if (!outcome.ok()) Log(LogLevel::kDetails, "{}", outcome.text);
  return -outcome.error;
}

int RingDevice::Register(void* start, size_t bytes, uint32_t* key) {
  if (memory_.contains({start, bytes})) return -EEXIST;
  engine::RingCore& core = door_->ring().core();
  absl::StatusOr<std::unique_ptr<nic::Registration>> registered = absl::UnknownError("");
  const Passage passage;
  core.host.control->RunAndWait([&] { registered = core.device.nic->Register(start, bytes); });
  if (!registered.ok()) {
    Log(LogLevel::kDetails, "register memory on {}: {}", door_->interface(),
        std::string(registered.status().message()));
    return absl::IsInvalidArgument(registered.status()) ? -EINVAL : -ENOMEM;
  }
  *key = (*registered)->key();
  memory_[{start, bytes}] = *std::move(registered);
  return 0;
}

int RingDevice::Deregister(void* start, size_t bytes) {
  const auto found = memory_.find({start, bytes});
  if (found == memory_.end()) return -ENOENT;
  const Passage passage;
  door_->ring().core().host.control->RunAndWait([&] { memory_.erase(found); });
  return 0;
}

nic::QueueAddresses* RingDevice::Queues(int* error) {
  *error = -EOPNOTSUPP;
  if (!external_) return nullptr;
  constexpr int kTries = 1'000;
  constexpr timespec kPause{.tv_sec = 0, .tv_nsec = 100'000};
  for (int tries = 0; tries < kTries && !queues_; ++tries) {
    nic::QueueAddresses addresses;
    const engine::Outcome taken = door_->ring().TakeQueues(&addresses);
    if (taken.ok()) queues_ = addresses;
    *error = taken.error == EAGAIN ? -ETIMEDOUT : -taken.error;
    if (taken.error != EAGAIN) break;
    // What was sent is on its way.
    nanosleep(&kPause, nullptr);
    door_->Progress();
  }
  return queues_ ? &*queues_ : nullptr;
}

std::optional<RingDevice::Identity> RingDevice::Identify() const {
  const std::string& port = door_->ring().core().device.nic->capabilities().device;
  const std::string name = port.substr(0, port.find(' '));
  const Passage passage;
  std::optional<Identity> identity;
  int count = 0;
  ibv_device** const devices = ibv_get_device_list(&count);
  for (int i = 0; i < count; ++i) {
    if (name != ibv_get_device_name(devices[i])) continue;
    ibv_context* const context = ibv_open_device(devices[i]);
    if (context == nullptr) continue;
    ibv_device_attr attributes{};
    if (ibv_query_device(context, &attributes) == 0) {
      identity = {.vendor = attributes.vendor_id,
                  .part = attributes.vendor_part_id,
                  .capabilities = attributes.device_cap_flags};
    }
    ibv_close_device(context);
  }
  if (devices != nullptr) ibv_free_device_list(devices);
  return identity;
}

}  // namespace xtreme::sockets
