// SPDX-License-Identifier: Apache-2.0
//
// What a program may do with a ring itself: ask for one of its own kind, have its interrupts
// moderated, its memory registered, and the addresses of its queues.

#include <cerrno>
#include <cstdint>
#include <cstring>

#include "api/sockets/faces.h"
#include "api/sockets/ring_device.h"
#include "api/sockets/socket.h"
#include "api/vma/api.h"

namespace xtreme::vma {
namespace {

using sockets::Faces;
using sockets::RingDevice;
using sockets::RingDoor;

constexpr uint32_t kCqeBytes = 64;
constexpr uint32_t kWqebbBytes = 64;
constexpr uint32_t kDataSegmentBytes = 16;

// 0 or -errno, as a call.
int Result(int result) {
  if (result >= 0) return result;
  errno = -result;
  return -1;
}

// By the fd of a ring, or of a socket on it; null: neither.
RingDoor* DoorOf(int fd) {
  const auto meaning = Faces::The().descriptors().Find(fd);
  if (meaning.ring != nullptr) return meaning.ring;
  return meaning.socket == nullptr ? nullptr : meaning.socket->door();
}

hw_cq_data ToVma(nic::CompletionAddresses* queue) {
  return {.buf = queue->cqes,
          .dbrec = queue->record,
          .cq_size = queue->entries,
          .cqe_size = kCqeBytes,
          .cqn = queue->number,
          .uar = nullptr,
          .cons_idx = &queue->consumer};
}

hw_sq_data SendQueueOf(nic::QueueAddresses* queues) {
  const auto next = reinterpret_cast<uintptr_t>(queues->send_register);
  const uintptr_t half = queues->blueflame_bytes;
  return {.wq_data = {.buf = queues->send_blocks,
                      .wqe_cnt = queues->send_block_count,
                      .stride = kWqebbBytes,
                      .dbrec = queues->send_record,
                      .cq_data = ToVma(&queues->send_completions)},
          .sq_num = queues->queue_number,
          .bf = {.reg = reinterpret_cast<void*>(next & ~half),
                 .size = queues->blueflame_bytes,
                 .offset = static_cast<uint32_t>(next & half)}};
}

hw_rq_data ReceiveQueueOf(nic::QueueAddresses* queues) {
  return {.wq_data = {.buf = queues->receive_segments,
                      .wqe_cnt = queues->receive_segment_count,
                      .stride = kDataSegmentBytes,
                      .dbrec = queues->receive_record,
                      .cq_data = ToVma(&queues->receive_completions)},
          .head = &queues->receive_producer,
          // As many as have completed.
          .tail = &queues->receive_completions.consumer};
}

}  // namespace

int AddRingProfile(vma_ring_type_attr* profile, vma_ring_profile_key* key) {
  if (profile == nullptr || key == nullptr) return Result(-EINVAL);
  // A number: the program may have written one that is none of the enum's.
  uint32_t type;
  static_assert(sizeof type == sizeof profile->ring_type);
  memcpy(&type, &profile->ring_type, sizeof type);
  const bool external = type == VMA_RING_EXTERNAL_MEM;
  if (!external && type != VMA_RING_PACKET) return Result(-EINVAL);
  // Nothing is there to be asked for by either's own mask.
  const uint32_t mask =
      external ? profile->ring_ext.comp_mask : profile->ring_pktq.comp_mask;
  if (mask != 0) return Result(-EOPNOTSUPP);
  *key = static_cast<int>(Faces::The().AddProfile({.external = external}));
  return 0;
}

int GetDirectDescriptors(int fd, vma_mlx_hw_device_data* descriptors) {
  RingDoor* const door = DoorOf(fd);
  if (door == nullptr || descriptors == nullptr) return Result(-EINVAL);
  const RingDoor::Entry entry(door);
  int error = 0;
  nic::QueueAddresses* const queues = door->device().Queues(&error);
  if (queues == nullptr) return Result(error);
  *descriptors = {.vma_hw_data_valid_mask = DATA_VALID_SQ | DATA_VALID_RQ,
                  .dev_data = {},
                  .sq_data = SendQueueOf(queues),
                  .rq_data = ReceiveQueueOf(queues)};
  if (const auto identity = door->device().Identify()) {
    descriptors->vma_hw_data_valid_mask |= DATA_VALID_DEV;
    descriptors->dev_data = {.vendor_id = identity->vendor,
                             .vendor_part_id = identity->part,
                             .device_cap = identity->capabilities};
  }
  return 0;
}

int RegisterMemory(int fd, void* start, size_t length, uint32_t* key) {
  RingDoor* const door = DoorOf(fd);
  if (door == nullptr || start == nullptr || length == 0 || key == nullptr) return Result(-EINVAL);
  const RingDoor::Entry entry(door);
  return Result(door->device().Register(start, length, key));
}

int DeregisterMemory(int fd, void* start, size_t length) {
  RingDoor* const door = DoorOf(fd);
  if (door == nullptr) return Result(-EINVAL);
  const RingDoor::Entry entry(door);
  return Result(door->device().Deregister(start, length));
}

int ModifyRing(vma_modify_ring_attr* change) {
  constexpr uint32_t kKnown = VMA_RING_MODIFY_CQ_MODERATION | VMA_RING_MODIFY_CQ_ARM;
  RingDoor* const door = change == nullptr ? nullptr : DoorOf(change->ring_fd);
  if (door == nullptr) return Result(-EINVAL);
  const uint32_t asked = change->comp_bit_mask;
  if (asked == 0 || (asked & ~kKnown) != 0) return Result(-EINVAL);
  const RingDoor::Entry entry(door);
  if ((asked & VMA_RING_MODIFY_CQ_MODERATION) != 0) {
    const vma_cq_moderation_attr& moderation = change->cq_moderation;
    const int set = door->device().Moderate(moderation.cq_moderation_count,
                                            moderation.cq_moderation_period_usec);
    if (set != 0) return Result(set);
  }
  // Something waits already: the fd is not readable for it, a poll finds it.
  const bool waits = (asked & VMA_RING_MODIFY_CQ_ARM) != 0 && !door->Arm();
  return waits ? 1 : 0;
}

}  // namespace xtreme::vma
