// SPDX-License-Identifier: Apache-2.0
//
// The frame that UDP rows send and receive: 64 bytes, Ethernet to the last byte of payload.
//
// Byte order: host in the constants. Threads: values.

#ifndef XTREME_BENCHMARKS_FRAMES_H_
#define XTREME_BENCHMARKS_FRAMES_H_

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "benchmarks/frame_sizes.h"
#include "stack/wire/address.h"
#include "stack/wire/frame_template.h"

namespace xtreme::benchmarks {

// One end of a conversation.
struct Host {
  wire::MacAddress mac;
  wire::Endpoint endpoint;
};

// Us, and the peer that the kernel in memory knows (engine/testing/memory_kernel.h).
inline Host HostA() {
  return {wire::MacAddress({2, 0, 0, 0, 0, 1}), {wire::Ipv4Address(10, 0, 0, 1), 7000}};
}
inline Host HostB() {
  return {wire::MacAddress({2, 0, 0, 0, 0, 2}), {wire::Ipv4Address(10, 0, 0, 2), 26477}};
}

inline wire::FrameTemplate Headers(const Host& from, const Host& to) {
  return wire::FrameTemplate({.destination_mac = to.mac,
                              .source_mac = from.mac,
                              .vlan = {},
                              .destination = to.endpoint,
                              .source = from.endpoint});
}

// The frame with both checksums right.
inline std::vector<uint8_t> UdpFrame(const Host& from, const Host& to) {
  const wire::FrameTemplate headers = Headers(from, to);
  std::vector<uint8_t> frame(kFrameBytes, 0x5a);
  std::copy(headers.data(), headers.data() + headers.header_bytes(), frame.begin());
  headers.PatchLengths(frame.data(), kPayloadBytes);
  headers.FillChecksums(frame.data(), std::span(frame).subspan(kUdpHeadersBytes));
  return frame;
}

}  // namespace xtreme::benchmarks

#endif  // XTREME_BENCHMARKS_FRAMES_H_
