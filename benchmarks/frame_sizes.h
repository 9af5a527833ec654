// SPDX-License-Identifier: Apache-2.0
//
// How long the frames of UDP rows are: 64 bytes, Ethernet to the last byte of payload.
//
// Threads: constants.

#ifndef XTREME_BENCHMARKS_FRAME_SIZES_H_
#define XTREME_BENCHMARKS_FRAME_SIZES_H_

#include <cstdint>

namespace xtreme::benchmarks {

inline constexpr uint32_t kFrameBytes = 64;
inline constexpr uint32_t kUdpHeadersBytes = 42;
inline constexpr uint32_t kPayloadBytes = kFrameBytes - kUdpHeadersBytes;
// Too long for a WQE.
inline constexpr uint32_t kLongFrameBytes = 1024;
inline constexpr uint32_t kLongPayloadBytes = kLongFrameBytes - kUdpHeadersBytes;

}  // namespace xtreme::benchmarks

#endif  // XTREME_BENCHMARKS_FRAME_SIZES_H_
