// SPDX-License-Identifier: Apache-2.0
//
// Which frames are a socket's, by their addresses, and what one line says of a frame.
//
// Frames are the wire's bytes, possibly cut: nothing is believed. Units: ports in host order.
// Threads: any.

#ifndef XTREME_TOOLS_DUMP_FRAME_FILTER_H_
#define XTREME_TOOLS_DUMP_FRAME_FILTER_H_

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "xtreme/stats/frame_reader.h"
#include "xtreme/stats/reader.h"

namespace xtreme::dump {

// The ends of an IPv4 frame. Of a fragment that is not the first the ports are 0.
struct Ends {
  std::array<uint8_t, 4> source_ip = {};
  std::array<uint8_t, 4> destination_ip = {};
  uint16_t source_port = 0;
  uint16_t destination_port = 0;
  uint8_t protocol = 0;
};

// Nothing: it is not IPv4, or too short.
std::optional<Ends> ParseEnds(std::span<const uint8_t> frame);

struct PeerEnd {
  std::array<uint8_t, 4> ip = {};
  uint16_t port = 0;
};

// A socket's own end; of a connection the peer's too, for others may have the same own one.
struct LocalEnd {
  std::optional<std::array<uint8_t, 4>> ip;  // Nothing: any.
  uint16_t port = 0;
  std::optional<uint8_t> protocol;  // Nothing: any.
  std::optional<PeerEnd> peer;      // Nothing: any.

  // That of a socket, as its ring publishes it.
  static LocalEnd Of(const stats::SocketCounters& socket);
  // "10.0.0.1:7000" or ":7000"; nothing: it is neither.
  static std::optional<LocalEnd> Parse(std::string_view text);
  // Whether the frame came to it, or was sent from it.
  bool Has(const stats::TappedFrame& frame) const;
};

// "10.0.0.2:9 > 10.0.0.1:7000 udp 64 bytes", or what else it is.
std::string Describe(const stats::TappedFrame& frame);

}  // namespace xtreme::dump

#endif  // XTREME_TOOLS_DUMP_FRAME_FILTER_H_
