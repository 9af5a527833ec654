// SPDX-License-Identifier: Apache-2.0
//
// Entries of the card's rate table, taken by index for queues that a program makes itself.
//
// Spec: mlx5dv_pp_alloc(3); PRM SET_PP_RATE_LIMIT context: rate in kbit/s, burst in bytes, typical
// packet in bytes, big endian.

#include <endian.h>
#include <rdma/mlx5_user_ioctl_cmds.h>
#include <rdma/mlx5_user_ioctl_verbs.h>

#include <cerrno>

#include "tools/connectx/uverbs/context.h"

namespace xtreme::connectx {
namespace {

struct RateContext {
  uint32_t rate_limit;
  uint32_t burst_upper_bound;
  uint16_t reserved;
  uint16_t typical_packet_size;
};

}  // namespace

int AllocRate(Context& context, const VerbsCall& call) {
  // An entry is for queues that are made by DevX (the kernel's qos.c).
  if (!context.devx) return EINVAL;
  // Empty where the program asks for nothing: that is no rate.
  if (call.Input(MLX5_IB_ATTR_PP_OBJ_ALLOC_CTX).empty()) return EINVAL;
  const auto wanted = call.GetPrefix<RateContext>(MLX5_IB_ATTR_PP_OBJ_ALLOC_CTX);
  const auto flags = call.GetPrefix<uint32_t>(MLX5_IB_ATTR_PP_OBJ_ALLOC_FLAGS);
  if ((flags & ~MLX5_IB_UAPI_PP_ALLOC_FLAGS_DEDICATED_INDEX) != 0) return EINVAL;
  RateObject rate;
  const int error =
      context.device->AllocRate({.kbps = be32toh(wanted.rate_limit),
                                 .burst_bytes = be32toh(wanted.burst_upper_bound),
                                 .typical_packet_bytes = be16toh(wanted.typical_packet_size)},
                                (flags & MLX5_IB_UAPI_PP_ALLOC_FLAGS_DEDICATED_INDEX) != 0,
                                &rate.index);
  if (error != 0) return error;
  call.Answer(MLX5_IB_ATTR_PP_OBJ_ALLOC_INDEX, rate.index);
  call.AnswerHandle(MLX5_IB_ATTR_PP_OBJ_ALLOC_HANDLE, context.rates.Add(rate));
  return 0;
}

int FreeRate(Context& context, const VerbsCall& call) {
  const auto handle = call.Handle(MLX5_IB_ATTR_PP_OBJ_DESTROY_HANDLE);
  const RateObject* rate = context.rates.Find(handle);
  if (rate == nullptr) return ENOENT;
  if (const int error = context.device->FreeRate(rate->index); error != 0) return error;
  context.rates.Remove(*handle);
  return 0;
}

}  // namespace xtreme::connectx
