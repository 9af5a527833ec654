// SPDX-License-Identifier: Apache-2.0
//
// Protection domains and memory regions.

#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5-abi.h>

#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <fstream>
#include <string>
#include <utility>

#include "tools/connectx/uverbs/context.h"
#include "tools/connectx/uverbs/pinned_memory.h"

namespace xtreme::connectx {
namespace {

constexpr uint64_t kPageBytes = 4096;

// Whether the pages, which are mapped, permit what the region is for: pinning asks for that too. As
// /proc/self/maps has it, "start-end rw-p ..." a line; without /proc nobody is refused.
bool IsPermitted(uint64_t start, uint64_t length, bool write) {
  std::ifstream maps("/proc/self/maps");
  const uint64_t end = start + length;
  uint64_t at = start;
  for (std::string line; at < end && std::getline(maps, line);) {
    uint64_t first = 0;
    uint64_t behind = 0;
    char permissions[2] = {};
    const int fields =
        std::sscanf(line.c_str(), "%" SCNx64 "-%" SCNx64 " %2c", &first, &behind, permissions);
    if (fields != 3 || at < first || at >= behind) continue;
    if (permissions[0] != 'r' || (write && permissions[1] != 'w')) return false;
    at = behind;
  }
  return true;
}

// The kernel's ib_check_mr_access, and what this device has not.
int CheckAccess(uint32_t access) {
  constexpr uint32_t kNeedsLocalWrite =
      IB_UVERBS_ACCESS_REMOTE_WRITE | IB_UVERBS_ACCESS_REMOTE_ATOMIC;
  // Of those that may be left out at will, the ones that nobody has yet as well.
  constexpr uint32_t kKnown =
      (uint32_t{IB_UVERBS_ACCESS_HUGETLB} * 2 - 1) | IB_UVERBS_ACCESS_OPTIONAL_RANGE;
  if ((access & ~kKnown) != 0) return EINVAL;
  if ((access & kNeedsLocalWrite) != 0 && (access & IB_UVERBS_ACCESS_LOCAL_WRITE) == 0) {
    return EINVAL;
  }
  if ((access & IB_UVERBS_ACCESS_ON_DEMAND) != 0) return EOPNOTSUPP;
  return 0;
}

}  // namespace

int AllocPd(Context& context, const VerbsCall& call) {
  PdObject pd;
  if (const int error = context.device->AllocPd(&pd.pdn); error != 0) return error;
  call.Answer(UVERBS_ATTR_CORE_OUT, ib_uverbs_alloc_pd_resp{.pd_handle = context.pds.Add(pd)});
  call.Answer(UVERBS_ATTR_UHW_OUT, mlx5_ib_alloc_pd_resp{.pdn = pd.pdn});
  return 0;
}

int DestroyPd(Context& context, const VerbsCall& call) {
  const auto handle = call.Handle(UVERBS_ATTR_DESTROY_PD_HANDLE);
  const PdObject* pd = context.pds.Find(handle);
  if (pd == nullptr) return ENOENT;
  if (const int error = context.device->FreePd(pd->pdn); error != 0) return error;
  context.pds.Remove(*handle);
  return 0;
}

int RegisterMemory(Context& context, const VerbsCall& call) {
  ib_uverbs_reg_mr request;
  if (!call.Read(UVERBS_ATTR_CORE_IN, &request)) return EINVAL;
  const PdObject* pd = context.pds.Find(request.pd_handle);
  if (pd == nullptr) return EINVAL;
  if (const int error = CheckAccess(request.access_flags); error != 0) return error;
  if (request.length == 0) return EINVAL;
  if (request.start % kPageBytes != request.hca_va % kPageBytes) return EINVAL;
  auto pinned = std::make_shared<PinnedMemory>();
  const int refused = pinned->Pin(context.pinned_pages, request.start, request.length);
  if (refused != 0) return refused;
  const bool local_write = (request.access_flags & IB_UVERBS_ACCESS_LOCAL_WRITE) != 0;
  if (!IsPermitted(request.start, request.length, local_write)) return EFAULT;
  MemoryKeys keys;
  const int error = context.device->RegisterMemory(
      {.pd = pd->pdn,
       .start = reinterpret_cast<uint8_t*>(request.start),
       .length = request.length,
       .iova = request.hca_va,
       .local_write = local_write},
      &keys);
  if (error != 0) return error;
  const uint32_t handle =
      context.memory_regions.Add({.lkey = keys.lkey, .pinned = std::move(pinned)});
  call.Answer(
      UVERBS_ATTR_CORE_OUT,
      ib_uverbs_reg_mr_resp{.mr_handle = handle, .lkey = keys.lkey, .rkey = keys.rkey});
  return 0;
}

int DestroyMemoryRegion(Context& context, const VerbsCall& call) {
  const auto handle = call.Handle(UVERBS_ATTR_DESTROY_MR_HANDLE);
  const MrObject* region = context.memory_regions.Find(handle);
  if (region == nullptr) return ENOENT;
  if (const int error = context.device->DeregisterMemory(region->lkey); error != 0) return error;
  DmObject* memory = context.device_memories.Find(region->device_memory);
  if (memory != nullptr) --memory->regions;
  context.memory_regions.Remove(*handle);
  return 0;
}

}  // namespace xtreme::connectx
