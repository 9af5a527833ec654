// SPDX-License-Identifier: Apache-2.0

#include "xtreme/nic/nic.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace xtreme::nic {

namespace {

const char* TextOf(TimeSource source) {
  switch (source) {
    case TimeSource::kNone: break;
    case TimeSource::kCompletion: return "by completion";
    case TimeSource::kPort: return "at the port";
  }
  return "no";
}

}  // namespace

std::string Capabilities::ToString() const {
  const auto have = [](bool yes) { return yes ? "yes" : "no"; };
  std::string line = absl::StrCat(
      device, ": MTU ", mtu, ", send queue ", send_queue_frames, ", receive queue ",
      receive_queue_frames, ", inline ", max_inline_bytes, " B, BlueFlame ",
      blueflame ? absl::StrCat(blueflame_bytes, " B") : "no", ", checksums sent ",
      have(transmit_checksum), " received ", have(receive_checksum), ", timestamps sent ",
      TextOf(transmit_time), " received ", TextOf(receive_time), ", on-device memory ",
      device_memory_bytes, " B, segmentation ", max_segmented_bytes, " B, rate limit ",
      have(rate_limit));
  if (!lacking.empty()) absl::StrAppend(&line, "; lacking: ", absl::StrJoin(lacking, "; "));
  return line;
}

}  // namespace xtreme::nic
