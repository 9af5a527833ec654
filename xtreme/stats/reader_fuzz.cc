// SPDX-License-Identifier: Apache-2.0
//
// Any bytes as a segment: a small one whose header is right but for what the input changes, and the
// input as it is. What is accepted has what its header says, and no more.

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "xtreme/stats/layout.h"
#include "xtreme/stats/reader.h"

namespace {

using xtreme::stats::Places;
using xtreme::stats::SegmentHeader;

void Check(const std::vector<uint8_t>& bytes) {
  const auto segment = xtreme::stats::ParseSegment(bytes);
  if (!segment.ok()) return;
  if (segment->sockets.size() > xtreme::stats::kMaxSocketSlots) abort();
  for (const auto& counter : segment->counters) {
    for (const char c : counter.scope + counter.name + counter.meaning) {
      if (c < ' ' || c > '~') abort();
    }
  }
  for (const auto& socket : segment->sockets) {
    if (socket.values.size() != segment->socket_names.size()) abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t length) {
  Check({bytes, bytes + length});
  SegmentHeader header = {};
  header.magic = xtreme::stats::kMagic;
  header.version = xtreme::stats::kVersion;
  header.ring_counters = length > 0 ? bytes[0] % 8 : 1;
  header.socket_counters = length > 1 ? bytes[1] % 8 : 1;
  header.socket_slots = length > 2 ? bytes[2] % 8 : 1;
  header.sockets = length > 3 ? bytes[3] % 8 : 1;
  header.group_slots = header.socket_slots;
  header.groups = header.sockets;
  std::vector<uint8_t> segment(Places(header).file_bytes);
  memcpy(segment.data(), &header, sizeof header);
  if (length > 4) {
    // The first half of the input goes over the header's end or what follows it, at a place of its
    // own choosing.
    const size_t place = bytes[4] * segment.size() / 256;
    memcpy(segment.data() + place, bytes + 4, std::min(length - 4, segment.size() - place));
  }
  Check(segment);
  return 0;
}
