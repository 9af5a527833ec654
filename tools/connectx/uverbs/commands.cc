// SPDX-License-Identifier: Apache-2.0

#include "tools/connectx/uverbs/commands.h"

#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5_user_ioctl_cmds.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <iterator>

namespace xtreme::connectx {
namespace {

struct MethodEntry {
  uint16_t object;
  uint16_t method;
  Command command;
};

struct WriteEntry {
  uint32_t number;  // With IB_USER_VERBS_CMD_FLAG_EXTENDED where it has it.
  Command command;
};

constexpr std::array kMethods = {
    MethodEntry{UVERBS_OBJECT_DEVICE, UVERBS_METHOD_GET_CONTEXT, {"GET_CONTEXT", &GetContext}},
    MethodEntry{UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_PORT, {"QUERY_PORT", &QueryPort}},
    MethodEntry{UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_GID_ENTRY,
                {"QUERY_GID_ENTRY", &QueryGidEntry}},
    MethodEntry{UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_GID_TABLE,
                {"QUERY_GID_TABLE", &QueryGidTable}},
    MethodEntry{UVERBS_OBJECT_ASYNC_EVENT, UVERBS_METHOD_ASYNC_EVENT_ALLOC,
                {"ALLOC_ASYNC_EVENTS", &AllocAsyncEvents}},
    MethodEntry{UVERBS_OBJECT_PD, UVERBS_METHOD_PD_DESTROY, {"DESTROY_PD", &DestroyPd}},
    MethodEntry{UVERBS_OBJECT_MR, UVERBS_METHOD_MR_DESTROY, {"DESTROY_MR", &DestroyMemoryRegion}},
    MethodEntry{UVERBS_OBJECT_MR, UVERBS_METHOD_DM_MR_REG, {"REG_DM_MR", &RegisterDeviceMemory}},
    MethodEntry{UVERBS_OBJECT_DM, UVERBS_METHOD_DM_ALLOC, {"ALLOC_DM", &AllocDeviceMemory}},
    MethodEntry{UVERBS_OBJECT_DM, UVERBS_METHOD_DM_FREE, {"FREE_DM", &FreeDeviceMemory}},
    MethodEntry{UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_CREATE, {"CREATE_CQ", &CreateCq}},
    MethodEntry{UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_DESTROY, {"DESTROY_CQ", &DestroyCq}},
    MethodEntry{UVERBS_OBJECT_QP, UVERBS_METHOD_QP_CREATE, {"CREATE_QP", &CreateQp}},
    MethodEntry{UVERBS_OBJECT_QP, UVERBS_METHOD_QP_DESTROY, {"DESTROY_QP", &DestroyQp}},
    MethodEntry{UVERBS_OBJECT_WQ, UVERBS_METHOD_WQ_CREATE, {"CREATE_WQ", &CreateWq}},
    MethodEntry{UVERBS_OBJECT_WQ, UVERBS_METHOD_WQ_DESTROY, {"DESTROY_WQ", &DestroyWq}},
    MethodEntry{UVERBS_OBJECT_RWQ_IND_TBL, UVERBS_METHOD_RWQ_IND_TBL_DESTROY,
                {"DESTROY_RWQ_IND_TBL", &DestroyIndirectionTable}},
    MethodEntry{UVERBS_OBJECT_FLOW, UVERBS_METHOD_FLOW_DESTROY, {"DESTROY_FLOW", &DestroyFlow}},
    MethodEntry{UVERBS_OBJECT_COUNTERS, UVERBS_METHOD_COUNTERS_CREATE,
                {"CREATE_COUNTERS", &CreateCounters}},
    MethodEntry{UVERBS_OBJECT_COUNTERS, UVERBS_METHOD_COUNTERS_DESTROY,
                {"DESTROY_COUNTERS", &DestroyCounters}},
    MethodEntry{UVERBS_OBJECT_COUNTERS, UVERBS_METHOD_COUNTERS_READ,
                {"READ_COUNTERS", &ReadCounters}},
    MethodEntry{MLX5_IB_OBJECT_UAR, MLX5_IB_METHOD_UAR_OBJ_ALLOC, {"ALLOC_UAR", &AllocUar}},
    MethodEntry{MLX5_IB_OBJECT_UAR, MLX5_IB_METHOD_UAR_OBJ_DESTROY, {"DESTROY_UAR", &DestroyUar}},
    MethodEntry{MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_OTHER,
                {"DEVX_GENERAL", &RunGeneralCommand}},
    MethodEntry{MLX5_IB_OBJECT_PP, MLX5_IB_METHOD_PP_OBJ_ALLOC, {"ALLOC_PP", &AllocRate}},
    MethodEntry{MLX5_IB_OBJECT_PP, MLX5_IB_METHOD_PP_OBJ_DESTROY, {"DESTROY_PP", &FreeRate}},
};

constexpr uint32_t Extended(uint32_t number) { return number | IB_USER_VERBS_CMD_FLAG_EXTENDED; }

constexpr std::array kWrites = {
    WriteEntry{IB_USER_VERBS_CMD_QUERY_DEVICE, {"QUERY_DEVICE", &QueryDevice}},
    WriteEntry{Extended(IB_USER_VERBS_EX_CMD_QUERY_DEVICE),
               {"QUERY_DEVICE_EX", &QueryDeviceExtended}},
    WriteEntry{IB_USER_VERBS_CMD_ALLOC_PD, {"ALLOC_PD", &AllocPd}},
    WriteEntry{IB_USER_VERBS_CMD_REG_MR, {"REG_MR", &RegisterMemory}},
    WriteEntry{IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL,
               {"CREATE_COMP_CHANNEL", &CreateCompletionChannel}},
    WriteEntry{Extended(IB_USER_VERBS_EX_CMD_MODIFY_CQ), {"MODIFY_CQ", &ModifyCq}},
    WriteEntry{IB_USER_VERBS_CMD_MODIFY_QP, {"MODIFY_QP", &ModifyQp}},
    WriteEntry{Extended(IB_USER_VERBS_EX_CMD_MODIFY_QP), {"MODIFY_QP_EX", &ModifyQpExtended}},
    WriteEntry{IB_USER_VERBS_CMD_QUERY_QP, {"QUERY_QP", &QueryQp}},
    WriteEntry{Extended(IB_USER_VERBS_EX_CMD_MODIFY_WQ), {"MODIFY_WQ", &ModifyWq}},
    WriteEntry{Extended(IB_USER_VERBS_EX_CMD_CREATE_RWQ_IND_TBL),
               {"CREATE_RWQ_IND_TBL", &CreateIndirectionTable}},
    WriteEntry{Extended(IB_USER_VERBS_EX_CMD_CREATE_FLOW), {"CREATE_FLOW", &CreateFlow}},
};

const Command* FindWrite(const VerbsCall& call, int* error) {
  // libibverbs asks without a body whether legacy commands come this way: ENOSPC says they do.
  *error = ENOSPC;
  if (!call.Has(UVERBS_ATTR_CORE_IN) && !call.Has(UVERBS_ATTR_CORE_OUT)) return nullptr;
  *error = EOPNOTSUPP;
  const auto number = call.GetPrefix<uint32_t>(UVERBS_ATTR_WRITE_CMD);
  for (const WriteEntry& entry : kWrites) {
    if (entry.number == number) return &entry.command;
  }
  return nullptr;
}

}  // namespace

const Command* FindCommand(const VerbsCall& call, int* error) {
  if (call.object() == UVERBS_OBJECT_DEVICE && call.method() == UVERBS_METHOD_INVOKE_WRITE) {
    return FindWrite(call, error);
  }
  for (const MethodEntry& entry : kMethods) {
    if (entry.object == call.object() && entry.method == call.method()) return &entry.command;
  }
  *error = EOPNOTSUPP;
  return nullptr;
}

std::span<const std::string_view> CommandNames() {
  static constexpr auto kNames = [] {
    std::array<std::string_view, std::size(kMethods) + std::size(kWrites)> names;
    size_t at = 0;
    for (const MethodEntry& entry : kMethods) names[at++] = entry.command.name;
    for (const WriteEntry& entry : kWrites) names[at++] = entry.command.name;
    return names;
  }();
  return kNames;
}

}  // namespace xtreme::connectx
