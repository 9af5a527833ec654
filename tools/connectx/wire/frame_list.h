// SPDX-License-Identifier: Apache-2.0
//
// What the wires' tests share: a sink that keeps what it was handed, and frames with a number in
// them.

#ifndef XTREME_TOOLS_CONNECTX_WIRE_FRAME_LIST_H_
#define XTREME_TOOLS_CONNECTX_WIRE_FRAME_LIST_H_

#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "tools/connectx/wire/wire.h"

namespace xtreme::connectx {

// Keeps a copy of every frame and its time.
class FrameList final : public FrameSink {
 public:
  struct Entry {
    std::vector<uint8_t> bytes;
    int64_t time_ns;
  };

  void OnFrame(std::span<const uint8_t> frame, int64_t rx_time_ns) override {
    entries.push_back({{frame.begin(), frame.end()}, rx_time_ns});
  }

  std::vector<Entry> entries;
};

// A frame of `size_bytes` (at least 18) with an unassigned EtherType that carries `number`.
inline std::vector<uint8_t> NumberedFrame(uint32_t number, size_t size_bytes = 64) {
  std::vector<uint8_t> frame(size_bytes, 0xA5);
  frame[12] = 0x88;
  frame[13] = 0xB5;  // IEEE 802 local experimental EtherType 1.
  std::memcpy(&frame[14], &number, sizeof number);
  return frame;
}

inline uint32_t NumberOf(std::span<const uint8_t> frame) {
  uint32_t number = 0;
  std::memcpy(&number, &frame[14], sizeof number);
  return number;
}

// The count called `name`; all ones if there is no such counter, so that a misspelt name fails.
inline uint64_t CountOf(const Wire& wire, std::string_view name) {
  for (const NamedCount& count : wire.counters()) {
    if (count.name == name) return count.count;
  }
  return ~uint64_t{0};
}

}  // namespace xtreme::connectx

#endif  // XTREME_TOOLS_CONNECTX_WIRE_FRAME_LIST_H_
