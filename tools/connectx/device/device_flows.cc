// SPDX-License-Identifier: Apache-2.0
//
// The control calls of a Device that make and destroy flow rules, on the device and on its wire.

#include <cerrno>
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
    if (const auto tag = state_->steering.ConflictingTag(request)) {
      state_->environment.violations.Report(
          Rule::kFlowTag, absl::StrFormat("QP %#x", request.qp),
          absl::StrFormat("tag %#x asked, an equal match has %#x", *request.tag, *tag));
    }
    if (const int error = state_->steering.Add(request, qp->target(), flow); error != 0) {
      return error;
    }
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

}  // namespace xtreme::connectx
