// SPDX-License-Identifier: Apache-2.0
//
// Counters of flow rules.
//
// Spec: ibv_create_counters(3), ibv_read_counters(3); the kernel's drivers/infiniband/hw/mlx5
// (flow_counters_set_data) for what libmlx5 says of them with the rule.

#include <infiniband/verbs.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/mlx5-abi.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "tools/connectx/uverbs/context.h"

namespace xtreme::connectx {

int CreateCounters(Context& context, const VerbsCall& call) {
  CountersObject counters;
  if (const int error = context.device->CreateFlowCounter(&counters.number); error != 0) {
    return error;
  }
  call.AnswerHandle(UVERBS_ATTR_CREATE_COUNTERS_HANDLE,
                    context.flow_counters.Add(std::move(counters)));
  return 0;
}

int DestroyCounters(Context& context, const VerbsCall& call) {
  const auto handle = call.Handle(UVERBS_ATTR_DESTROY_COUNTERS_HANDLE);
  const CountersObject* counters = context.flow_counters.Find(handle);
  if (counters == nullptr) return ENOENT;
  const int error = context.device->DestroyFlowCounter(counters->number);
  if (error != 0) return error;
  context.flow_counters.Remove(*handle);
  return 0;
}

int ReadCounters(Context& context, const VerbsCall& call) {
  const CountersObject* counters =
      context.flow_counters.Find(call.Handle(UVERBS_ATTR_READ_COUNTERS_HANDLE));
  if (counters == nullptr) return ENOENT;
  // Without a rule that counts by it nothing was said of what it counts.
  if (counters->flows == 0) return EINVAL;
  std::vector<uint64_t> values(call.Output(UVERBS_ATTR_READ_COUNTERS_BUFF).size() /
                               sizeof(uint64_t));
  FlowCount count;
  const int error = context.device->ReadFlowCounter(counters->number, &count);
  if (error != 0) return error;
  for (const CountersObject::Point& point : counters->points) {
    if (point.index >= values.size()) return EINVAL;
    values[point.index] += point.bytes ? count.bytes : count.packets;
  }
  call.AnswerBytes(UVERBS_ATTR_READ_COUNTERS_BUFF, std::as_bytes(std::span(values)));
  return 0;
}

int BindCounters(const VerbsCall& call, CountersObject* counters) {
  constexpr uint32_t kMostPoints = 0xffff / sizeof(uint64_t);
  // mlx5_ib_create_flow and one of what follows it.
  struct Command {
    uint32_t count;
    uint32_t reserved;
    mlx5_ib_flow_counters_data data;
  };
  const auto command = call.GetPrefix<Command>(UVERBS_ATTR_UHW_IN);
  const bool bound = counters->flows != 0;
  if (command.count == 0) return bound ? 0 : EINVAL;
  if (bound || command.count != 1 || command.data.ncounters > kMostPoints) return EINVAL;
  using Said = mlx5_ib_flow_counters_desc;
  const auto* from = reinterpret_cast<const Said*>(command.data.counters_data);
  if (from == nullptr) return EFAULT;
  std::vector<Said> said(command.data.ncounters);
  std::copy_n(from, said.size(), said.begin());
  counters->points.clear();
  for (const Said& point : said) {
    if (point.description > IBV_COUNTER_BYTES) return EINVAL;
    counters->points.push_back({point.description == IBV_COUNTER_BYTES, point.index});
  }
  return 0;
}

}  // namespace xtreme::connectx
