// SPDX-License-Identifier: Apache-2.0
//
// On-device memory: allocated, mapped by page index, registered with addresses that start at 0.
//
// Spec: ibv_alloc_dm(3), ibv_reg_dm_mr(3), <rdma/mlx5_user_ioctl_cmds.h>.

#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/mlx5_user_ioctl_cmds.h>
#include <rdma/mlx5_user_ioctl_verbs.h>

#include <cerrno>

#include "tools/connectx/uverbs/context.h"

namespace xtreme::connectx {

int AllocDeviceMemory(Context& context, const VerbsCall& call) {
  const auto length = call.Get<uint64_t>(UVERBS_ATTR_ALLOC_DM_LENGTH);
  if (!length) return EINVAL;
  const auto type = call.GetPrefix<uint64_t>(MLX5_IB_ATTR_ALLOC_DM_REQ_TYPE);
  // The other kinds are the steering tables' own memory.
  if (type != MLX5_IB_UAPI_DM_TYPE_MEMIC) return EOPNOTSUPP;
  DmObject object;
  const int error = context.device->AllocDeviceMemory(
      *length, call.GetPrefix<uint32_t>(UVERBS_ATTR_ALLOC_DM_ALIGNMENT), &object.memory);
  if (error != 0) return error;
  constexpr uint64_t kOffsetInPage = 0;
  call.Answer(MLX5_IB_ATTR_ALLOC_DM_RESP_START_OFFSET, kOffsetInPage);
  call.Answer(MLX5_IB_ATTR_ALLOC_DM_RESP_PAGE_INDEX, PageIndex(object));
  call.AnswerHandle(UVERBS_ATTR_ALLOC_DM_HANDLE, context.device_memories.Add(object));
  return 0;
}

int FreeDeviceMemory(Context& context, const VerbsCall& call) {
  const auto handle = call.Handle(UVERBS_ATTR_FREE_DM_HANDLE);
  const DmObject* object = context.device_memories.Find(handle);
  if (object == nullptr) return ENOENT;
  if (object->regions != 0) return EBUSY;
  if (const int error = context.device->FreeDeviceMemory(object->memory.offset); error != 0) {
    return error;
  }
  context.device_memories.Remove(*handle);
  return 0;
}

int RegisterDeviceMemory(Context& context, const VerbsCall& call) {
  constexpr uint32_t kRemote = IB_UVERBS_ACCESS_REMOTE_WRITE | IB_UVERBS_ACCESS_REMOTE_READ |
                               IB_UVERBS_ACCESS_REMOTE_ATOMIC;
  constexpr uint32_t kAllowed =
      IB_UVERBS_ACCESS_LOCAL_WRITE | kRemote | IB_UVERBS_ACCESS_ZERO_BASED;
  const auto handle = call.Handle(UVERBS_ATTR_REG_DM_MR_DM_HANDLE);
  DmObject* object = context.device_memories.Find(handle);
  const PdObject* pd = context.pds.Find(call.Handle(UVERBS_ATTR_REG_DM_MR_PD_HANDLE));
  if (object == nullptr || pd == nullptr) return ENOENT;
  const auto offset = call.GetPrefix<uint64_t>(UVERBS_ATTR_REG_DM_MR_OFFSET);
  const auto length = call.GetPrefix<uint64_t>(UVERBS_ATTR_REG_DM_MR_LENGTH);
  const auto access = call.GetPrefix<uint32_t>(UVERBS_ATTR_REG_DM_MR_ACCESS_FLAGS);
  // The kernel takes nothing but zero-based regions: the program has no address of the memory.
  if ((access & IB_UVERBS_ACCESS_ZERO_BASED) == 0) return EINVAL;
  if ((access & ~(kAllowed | IB_UVERBS_ACCESS_OPTIONAL_RANGE)) != 0) return EINVAL;
  if (offset > object->memory.bytes || length > object->memory.bytes - offset) return EINVAL;
  MemoryKeys keys;
  const int error = context.device->RegisterMemory(
      {.pd = pd->pdn,
       .start = object->memory.start + offset,
       .length = length,
       .iova = 0,
       .local_write = (access & IB_UVERBS_ACCESS_LOCAL_WRITE) != 0},
      &keys);
  if (error != 0) return error;
  ++object->regions;
  call.Answer(UVERBS_ATTR_REG_DM_MR_RESP_LKEY, keys.lkey);
  call.Answer(UVERBS_ATTR_REG_DM_MR_RESP_RKEY, keys.rkey);
  call.AnswerHandle(UVERBS_ATTR_REG_DM_MR_HANDLE,
                    context.memory_regions.Add({.lkey = keys.lkey, .device_memory = *handle}));
  return 0;
}

}  // namespace xtreme::connectx
