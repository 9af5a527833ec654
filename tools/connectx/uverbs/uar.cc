// SPDX-License-Identifier: Apache-2.0
//
// User access regions: pages with doorbell and BlueFlame registers, each an object of its own.

#include <rdma/mlx5_user_ioctl_cmds.h>
#include <rdma/mlx5_user_ioctl_verbs.h>

#include <cerrno>

#include "tools/connectx/uverbs/context.h"
#include "tools/connectx/uverbs/mmap_offset.h"

namespace xtreme::connectx {
namespace {

constexpr uint32_t kUarBytes = 4096;

}  // namespace

int AllocUar(Context& context, const VerbsCall& call) {
  const auto type = call.Get<uint64_t>(MLX5_IB_ATTR_UAR_OBJ_ALLOC_TYPE);
  if (type != MLX5_IB_UAPI_UAR_ALLOC_TYPE_BF && type != MLX5_IB_UAPI_UAR_ALLOC_TYPE_NC) {
    return EOPNOTSUPP;
  }
  const bool blueflame = *type == MLX5_IB_UAPI_UAR_ALLOC_TYPE_BF;
  UarObject object;
  const int error = context.device->AllocUar(
      blueflame ? UarType::kBlueFlame : UarType::kNonCached, &object.uar);
  if (error != 0) return error;
  const MmapOffset offset{.command = MmapOffset::kUarCommand, .index = object.uar.page_id};
  call.Answer(MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET, offset.Emit());
  call.Answer(MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH, kUarBytes);
  call.Answer(MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID, object.uar.page_id);
  call.AnswerHandle(MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE, context.uars.Add(object));
  return 0;
}

int DestroyUar(Context& context, const VerbsCall& call) {
  const auto handle = call.Handle(MLX5_IB_ATTR_UAR_OBJ_DESTROY_HANDLE);
  const UarObject* object = context.uars.Find(handle);
  if (object == nullptr) return ENOENT;
  if (const int error = context.device->FreeUar(object->uar.page_id); error != 0) return error;
  context.uars.Remove(*handle);
  return 0;
}

}  // namespace xtreme::connectx
