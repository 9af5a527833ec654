// SPDX-License-Identifier: Apache-2.0
//
// LinkFlows::Write, inlined into the loops of drivers: as KnownFlows::Write, with other bytes.

#ifndef XTREME_XTREME_COMPLETION_LINK_FLOWS_WRITE_H_
#define XTREME_XTREME_COMPLETION_LINK_FLOWS_WRITE_H_

#include "xtreme/completion/known_flows_write.h"
#include "xtreme/completion/link_flows.h"

namespace xtreme::completion {

[[gnu::always_inline]] inline bool LinkFlows::Write(packet::Buffer* buffer, uint8_t* frame,
                                                    uint32_t length, uint64_t hw_clock,
                                                    LinkCompletion* out) const {
  const Entry& entry = entries_[KnownFlows::PlaceOf(frame)];
  uint32_t payload_bytes = 0;
  if (!KnownFlows::IsOf(entry.header.data(), frame, length, &payload_bytes)) [[unlikely]] {
    return false;
  }
  const auto nanoseconds = static_cast<uint64_t>(scale_.ToNanoseconds(hw_clock));
  if (nanoseconds >= kSecond) [[unlikely]] return false;
  buffer->data = frame + wire::kPlainPayloadOffset;
  buffer->length = payload_bytes;
  entry.endpoint->CountReceived(payload_bytes);
  auto* const to = reinterpret_cast<uint8_t*>(out);
  const auto* const from = reinterpret_cast<const uint8_t*>(&entry.form);
  base::Store32(to, base::Load32(from));
  base::Store32(to + 32, base::Load32(from + 32));
  base::Store16(to + 64, base::Load16(from + 64));
  out->length = payload_bytes;
  out->first = buffer;
  out->nanoseconds = static_cast<int64_t>(nanoseconds);
  return true;
}

}  // namespace xtreme::completion

#endif  // XTREME_XTREME_COMPLETION_LINK_FLOWS_WRITE_H_
