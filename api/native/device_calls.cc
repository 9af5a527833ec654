// SPDX-License-Identifier: Apache-2.0
//
// xtreme.h: a ring's device: its interrupts, and its queues for who posts and polls by himself.

#include <cerrno>
#include <string>
#include <utility>

#include "api/native/calls.h"
#include "api/native/sized.h"
#include "fmt/format.h"
#include "xtreme/nic/nic.h"

namespace xtreme::api {
namespace {

xtreme_completion_queue ToC(const nic::CompletionAddresses& queue) {
  return {.cqes = queue.cqes,
          .record = queue.record,
          .count = queue.entries,
          .consumer = queue.consumer,
          .number = queue.number,
          .reserved = 0};
}

xtreme_queues ToC(const nic::QueueAddresses& queues) {
  return {.size = sizeof(xtreme_queues),
          .sq = queues.send_blocks,
          .sq_record = queues.send_record,
          .sq_register = queues.send_register,
          .sq_wqebbs = queues.send_block_count,
          .sq_producer = queues.send_producer,
          .blueflame_bytes = queues.blueflame_bytes,
          .qpn = queues.queue_number,
          .rq = queues.receive_segments,
          .rq_record = queues.receive_record,
          .rq_segments = queues.receive_segment_count,
          .rq_producer = queues.receive_producer,
          .pool_key = queues.pool_key,
          .reserved = 0,
          .send_cq = ToC(queues.send_completions),
          .receive_cq = ToC(queues.receive_completions)};
}

}  // namespace
}  // namespace xtreme::api

int xtreme_ring_moderate(xtreme_ring ring, uint16_t completions, uint16_t microseconds,
                         uint64_t cookie) {
  xtreme::engine::Ring* found;
  if (const int failed = xtreme::api::Reach(ring.value, &found)) return failed;
  xtreme::engine::Outcome outcome = found->ModerateInterrupts(
      {.completions = completions, .microseconds = microseconds}, cookie);
  return outcome.ok() ? 0 : xtreme::api::Fail(outcome.error, std::move(outcome.text));
}

int xtreme_ring_take_queues(xtreme_ring ring, xtreme_queues* queues) {
  xtreme::engine::Ring* found;
  if (const int failed = xtreme::api::Reach(ring.value, &found)) return failed;
  const int wrong =
      xtreme::api::CheckSize("take queues", queues->size, xtreme::api::kFirstQueues);
  if (wrong != 0) return wrong;
  xtreme::nic::QueueAddresses addresses;
  xtreme::engine::Outcome outcome = found->TakeQueues(&addresses);
  if (!outcome.ok()) return xtreme::api::Fail(outcome.error, std::move(outcome.text));
  xtreme::api::GiveSized(xtreme::api::ToC(addresses), queues, queues->size);
  return 0;
}
