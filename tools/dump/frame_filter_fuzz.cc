// SPDX-License-Identifier: Apache-2.0
//
// Any bytes as a frame: its ends are found within them, and described in print.

#include <cstdint>
#include <cstdlib>

#include "tools/dump/frame_filter.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t length) {
  using xtreme::dump::LocalEnd;
  xtreme::stats::TappedFrame frame{.kind = xtreme::stats::FrameKind::kSent,
                                   .frame_bytes = static_cast<uint32_t>(length),
                                   .bytes = {bytes, bytes + length}};
  const auto ends = xtreme::dump::ParseEnds(frame.bytes);
  if (xtreme::dump::Describe(frame).empty()) abort();
  if (ends && ends->source_port != 0 && !LocalEnd{.port = ends->source_port}.Has(frame)) abort();
  LocalEnd::Parse({reinterpret_cast<const char*>(bytes), length});
  return 0;
}
