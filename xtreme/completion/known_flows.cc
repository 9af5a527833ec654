// SPDX-License-Identifier: Apache-2.0

#include "xtreme/completion/known_flows.h"

#include <algorithm>

#include "xtreme/completion/known_flows_write.h"

namespace xtreme::completion {

void KnownFlows::Forget() {
  for (uint32_t place = 0; place < kEntries; ++place) {
    Entry& entry = entries_[place];
    entry = {};
    MakeEmpty(place, entry.header.data());
  }
  any_ = false;
  if (changes_ != nullptr) followed_ = *changes_;
}

// Addresses whose place is another's.
void KnownFlows::MakeEmpty(uint32_t place, uint8_t* header) {
  uint64_t addresses = 0;
  while (Place(addresses, 0) == place) ++addresses;
  base::StoreNative(header + wire::kPlainAddressesOffset - kHeaderAt, addresses);
}

void KnownFlows::Learn(const uint8_t* frame, const Completion& form, udp::Endpoint* endpoint) {
  Entry& entry = entries_[PlaceOf(frame)];
  const auto* from = reinterpret_cast<const uint8_t*>(&form);
  base::Store32(entry.header.data(), base::Load32(frame + kHeaderAt));
  base::Store32(entry.head.data(), base::Load32(from));
  base::Store32(entry.tail.data(), base::Load32(from + offsetof(Completion, source_ip)));
  base::Store32(entry.tail.data() + 32, base::Load32(from + offsetof(Completion, source_port)));
  entry.endpoint = endpoint;
  any_ = true;
}

// Ticks are moved up so far that the product's upper half is nanoseconds. Six bits at least: a tick
// may take up to 32 ns, and lie 2^57 ticks from the base.
ClockScale ClockScale::Of(uint64_t base_raw, int64_t base_ns, int64_t ns_per_tick_q32,
                          int unused_bits) {
  constexpr int kLeastShift = 6;
  const int shift = std::max(unused_bits, kLeastShift);
  return {.base_raw = base_raw,
          .base_ns = base_ns,
          .multiplier =
              shift <= 32 ? ns_per_tick_q32 << (32 - shift) : ns_per_tick_q32 >> (shift - 32),
          .shift = shift};
}

}  // namespace xtreme::completion
