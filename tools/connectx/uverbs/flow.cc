// SPDX-License-Identifier: Apache-2.0
//
// Flow rules.

#include <infiniband/verbs.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_verbs.h>

#include <cerrno>
#include <cstddef>

#include "tools/connectx/uverbs/context.h"
#include "tools/connectx/uverbs/flow_specs.h"

namespace xtreme::connectx {

int CreateFlow(Context& context, const VerbsCall& call) {
  ib_uverbs_create_flow command;
  if (!call.Read(UVERBS_ATTR_CORE_IN, &command)) return EINVAL;
  const auto specs = call.Input(UVERBS_ATTR_CORE_IN).subspan(sizeof(ib_uverbs_create_flow));
  const ib_uverbs_flow_attr& rule = command.flow_attr;
  if (command.comp_mask != 0) return EINVAL;
  if (!context.device->options().features.net_raw) return EPERM;
  if (rule.port != 1 || rule.size != specs.size()) return EINVAL;
  constexpr uint32_t kKnown = IBV_FLOW_ATTR_FLAGS_DONT_TRAP | IBV_FLOW_ATTR_FLAGS_EGRESS;
  if ((rule.flags & ~kKnown) != 0) return EINVAL;
  if ((rule.flags & IBV_FLOW_ATTR_FLAGS_EGRESS) != 0) return EOPNOTSUPP;
  const QpObject* qp = context.qps.Find(command.qp_handle);
  if (qp == nullptr) return EINVAL;

  FlowRequest request{.type = static_cast<ibv_flow_attr_type>(rule.type),
                      .priority = rule.priority,
                      .dont_trap = (rule.flags & IBV_FLOW_ATTR_FLAGS_DONT_TRAP) != 0,
                      .qp = qp->qpn};
  if (const int error = ParseFlowSpecs(specs, rule.num_of_specs, &request); error != 0) {
    return error;
  }
  FlowObject flow{.counters = request.counter.value_or(0)};
  CountersObject* const counters = context.flow_counters.Find(flow.counters);
  if (request.counter.has_value()) {
    if (counters == nullptr) return EINVAL;
    if (const int error = BindCounters(call, counters); error != 0) return error;
    request.counter = counters->number;
  }
  const int error = context.device->CreateFlow(request, &flow.flow);
  if (error != 0) {
    if (counters != nullptr && counters->flows == 0) counters->points.clear();
    return error;
  }
  if (counters != nullptr) ++counters->flows;
  call.Answer(UVERBS_ATTR_CORE_OUT,
              ib_uverbs_create_flow_resp{.flow_handle = context.flows.Add(flow)});
  return 0;
}

int DestroyFlow(Context& context, const VerbsCall& call) {
  const auto handle = call.Handle(UVERBS_ATTR_DESTROY_FLOW_HANDLE);
  const FlowObject* flow = context.flows.Find(handle);
  if (flow == nullptr) return ENOENT;
  if (const int error = context.device->DestroyFlow(flow->flow); error != 0) return error;
  CountersObject* const counters = context.flow_counters.Find(flow->counters);
  if (counters != nullptr && --counters->flows == 0) counters->points.clear();
  context.flows.Remove(*handle);
  return 0;
}

}  // namespace xtreme::connectx
