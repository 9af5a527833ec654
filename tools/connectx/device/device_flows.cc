// SPDX-License-Identifier: Apache-2.0
//
// The control calls of a Device that make and destroy flow rules, on the device and on its wire.

#include <cerrno>
#include <memory>
#include <mutex>

#include "absl/strings/str_format.h"
#include "tools/connectx/device/device.h"
#include "tools/connectx/device/device_state.h"
#include "tools/connectx/device/wire_rule.h"

namespace xtreme::connectx {

int Device::CreateFlow(const FlowRequest& request, uint32_t* flow) {
  if (request.dont_trap && !options().features.dont_trap) return EOPNOTSUPP;
  WireRule wire_rule;
  if (const int error = ToWireRule(request, &wire_rule); error != 0) return error;
  std::lock_guard flows(state_->flows_mutex);
  {
    ControlLock lock(state_.get());
    QueuePair* qp = state_->qps.Find(request.qp);
    if (qp == nullptr || qp->target() == nullptr) return EINVAL;
    FlowCounter* counter = nullptr;
    if (request.counter.has_value()) {
      counter = state_->flow_counters.Find(*request.counter);
      if (counter == nullptr) return EINVAL;
    }
    if (const auto tag = state_->steering.ConflictingTag(request)) {
      state_->environment.violations.Report(
          Rule::kFlowTag, absl::StrFormat("QP %#x", request.qp),
          absl::StrFormat("tag %#x asked, an equal match has %#x", *request.tag, *tag));
    }
    const int error = state_->steering.Add(request, qp->target(), flow, counter);
    if (error != 0) return error;
  }
  // The queue is ready before the wire takes the first frame from the kernel.
  if (state_->wire->AddRule(wire_rule).ok()) return 0;
  ControlLock lock(state_.get());
  state_->steering.Remove(*flow);
  return EIO;
}

int Device::DestroyFlow(uint32_t flow) {
  std::lock_guard flows(state_->flows_mutex);
  WireRule wire_rule;
  {
    ControlLock lock(state_.get());
    const FlowRequest* request = state_->steering.Request(flow);
    if (request == nullptr) return EINVAL;
    ToWireRule(*request, &wire_rule);
  }
  // The other way round: what arrives from here on is the kernel's, and nothing falls between. A
  // wire that has already gone has no rule left to remove.
  (void)state_->wire->RemoveRule(wire_rule);
  ControlLock lock(state_.get());
  return state_->steering.Remove(flow);
}

int Device::CreateFlowCounter(uint32_t* counter) {
  ControlLock lock(state_.get());
  if (state_->flow_counters.full()) return ENOMEM;
  *counter = state_->flow_counters.Reserve();
  state_->flow_counters.Put(*counter, std::make_unique<FlowCounter>());
  return 0;
}

int Device::DestroyFlowCounter(uint32_t counter) {
  ControlLock lock(state_.get());
  const FlowCounter* found = state_->flow_counters.Find(counter);
  if (found == nullptr) return EINVAL;
  if (found->rules != 0) return EBUSY;
  state_->flow_counters.Remove(counter);
  return 0;
}

int Device::ReadFlowCounter(uint32_t counter, FlowCount* count) const {
  ControlLock lock(state_.get());
  const FlowCounter* found = state_->flow_counters.Find(counter);
  if (found == nullptr) return EINVAL;
  *count = found->count;
  return 0;
}

}  // namespace xtreme::connectx
