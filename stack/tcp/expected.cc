// SPDX-License-Identifier: Apache-2.0

#include "stack/tcp/expected.h"

#include "stack/packet/buffer_pool.h"

namespace xtreme::tcp {

bool Pcb::ArriveAsExpected(const wire::TcpSegment& segment, packet::Buffer* payload,
                           uint64_t stamp, base::Nanoseconds now) {
  if (!IsExpected(segment, /*quietly=*/false)) [[unlikely]] return false;
  TakeExpected(segment, now);
  if (const uint32_t bytes = segment.payload_bytes; bytes != 0) {
    if (context_->sink->Deliver(*this, payload, bytes, stamp)) [[likely]] {
      TakeExpectedPayload(bytes, now);
    } else {
      ++context_->counters.no_room;
      packet::BufferPool::ReleaseChain(payload);
    }
  }
  AfterExpected(now);
  return true;
}

}  // namespace xtreme::tcp
