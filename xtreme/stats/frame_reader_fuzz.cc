// SPDX-License-Identifier: Apache-2.0
//
// A frame tap with anything in it: a header that is accepted gives frames no longer than it says.

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "xtreme/stats/frame_reader.h"

namespace xtreme::stats {
namespace {

void CheckSlot(const FramesHeader& header, std::span<const uint8_t> slot) {
  const auto frame = ParseSlot(header, 7, slot);
  if (!frame) return;
  if (frame->bytes.size() > header.snap_bytes || frame->number != 7) abort();
}

}  // namespace
}  // namespace xtreme::stats

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t length) {
  using xtreme::stats::FramesHeader;
  // As it comes: a header, then a slot.
  FramesHeader header = {};
  memcpy(&header, bytes, std::min(length, sizeof header));
  const uint64_t wanted = sizeof header + uint64_t{header.slots} * header.slot_bytes;
  if (xtreme::stats::CheckFramesHeader(header, wanted).ok() && length > sizeof header) {
    xtreme::stats::CheckSlot(header, {bytes + sizeof header, length - sizeof header});
  }
  // A right header, and the slot from the input.
  header = {};
  header.snap_bytes = xtreme::stats::kLeastSnapBytes;
  header.clocks.host.ns_per_tick_q32 = header.clocks.device.ns_per_tick_q32 = int64_t{1} << 32;
  xtreme::stats::CheckSlot(header, {bytes, length});
  return 0;
}
