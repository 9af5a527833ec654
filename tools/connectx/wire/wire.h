// SPDX-License-Identifier: Apache-2.0
//
// The seam between a software ConnectX and what carries its frames: memory, a network interface, or
// a decorator that loses some of them. A frame is a whole Ethernet frame without preamble and FCS,
// its VLAN tag in place, its L4 checksum as the sender meant it.
//
// Invariant: a frame is delivered whole or it is dropped, and every drop is in one named counter.
// Units: nanoseconds of whatever clock the caller hands in (step mode has a virtual one), bytes.
// Numbers in a WireRule are in host byte order, MAC addresses in wire order.
// Thread: Transmit has one caller at a time and Receive has one; the two may be different threads.
// AddRule, RemoveRule and counters may be called from any thread.

#ifndef XTREME_TOOLS_CONNECTX_WIRE_WIRE_H_
#define XTREME_TOOLS_CONNECTX_WIRE_WIRE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace xtreme::connectx {

using MacAddress = std::array<uint8_t, 6>;
using Ipv6Address = std::array<uint8_t, 16>;  // In wire order.

inline constexpr size_t kEthernetHeaderBytes = 14;
inline constexpr size_t kVlanTagBytes = 4;

// The longest frame any wire carries: the greatest MTU of a card's interface (the kernel's mlx5e: a
// port's 10,000 bytes, without headers and FCS), an Ethernet header and two VLAN tags.
inline constexpr size_t kMaxMtu = 9978;
inline constexpr size_t kMaxFrameBytes = kMaxMtu + kEthernetHeaderBytes + 2 * kVlanTagBytes;

// A deadline that never comes.
inline constexpr int64_t kNoDeadline = std::numeric_limits<int64_t>::max();

struct NamedCount {
  std::string name;  // "rx_frames", "tx_dropped_full": the same spelling for every kind of wire.
  uint64_t count = 0;
};

// Addresses to match, bit by bit; a mask of zeros matches anything.
struct Ipv6Match {
  Ipv6Address src{};
  Ipv6Address src_mask{};
  Ipv6Address dst{};
  Ipv6Address dst_mask{};

  friend bool operator==(const Ipv6Match&, const Ipv6Match&) = default;
};

// What the device asks of a wire that it shares with a kernel. A field left at its default matches
// anything; `everything` and `all_multicast` ignore the fields below them. As on a card, a rule
// with a port matches no fragment, the first one included.
struct WireRule {
  bool everything = false;     // Promiscuous: every frame that arrives.
  bool all_multicast = false;  // Every frame whose destination MAC has the group bit.
  bool dont_trap = false;      // The kernel gets its copy too.

  MacAddress dst_mac{};
  MacAddress dst_mac_mask{};
  MacAddress src_mac{};
  MacAddress src_mac_mask{};
  std::optional<uint16_t> ethertype;  // Of the payload, behind a VLAN tag if there is one.
  std::optional<uint16_t> vlan;       // VLAN id 1-4095; 0: untagged frames only.

  uint32_t src_ip = 0;
  uint32_t src_ip_mask = 0;
  uint32_t dst_ip = 0;
  uint32_t dst_ip_mask = 0;
  Ipv6Match ipv6;                   // Under EtherType 0x86dd only.
  std::optional<uint8_t> protocol;  // Of IPv6 under that EtherType, else of IPv4.
  std::optional<uint16_t> src_port;  // Need `protocol` to be TCP or UDP.
  std::optional<uint16_t> dst_port;
  uint16_t src_port_mask = 0xffff;   // Bits compared, not 0.
  uint16_t dst_port_mask = 0xffff;

  friend bool operator==(const WireRule&, const WireRule&) = default;
};

// Receives frames from Wire::Receive. `frame` is readable until OnFrame returns and no longer.
class FrameSink {
 public:
  virtual ~FrameSink() = default;
  virtual void OnFrame(std::span<const uint8_t> frame, int64_t rx_time_ns) = 0;
};

class Wire {
 public:
  virtual ~Wire() = default;

  // Sends one frame, whose checksums the caller has finished. The frame is copied: the caller may
  // reuse its memory at once. False: it was dropped and counted (wire full, wire down, too long,
  // shorter than an Ethernet header).
  virtual bool Transmit(std::span<const uint8_t> frame, int64_t now_ns) = 0;

  // Pushes out what Transmit may have held back to send many frames in one system call. The device
  // calls it at the end of each burst of transmits.
  virtual void Flush() {}

  // Hands at most `max` waiting frames to `sink`, oldest first, and returns how many. `rx_time_ns`
  // is the arrival's time where the wire knows it (on a network interface CLOCK_REALTIME, as if
  // nobody had set it since), else `now_ns`.
  virtual int Receive(FrameSink& sink, int max, int64_t now_ns) = 0;

  // A descriptor that polls readable (POLLIN) when Receive may have something, so that an idle
  // device can sleep on it after Arm; -1 when there is none. Nobody but the wire reads it.
  virtual int fd() const = 0;

  // Called by the receiving thread right before it sleeps on fd(). False: frames wait, do not
  // sleep.
  // True: the next frame makes fd() readable, until the next Receive. A sender pays for waking a
  // receiver only when the receiver armed: a spinning one costs it nothing.
  virtual bool Arm() { return true; }

  // When a frame that the wire holds back becomes due in the time handed in; kNoDeadline if none.
  virtual int64_t NextDeadline() const { return kNoDeadline; }

  // Takes frames that match `rule` from the kernel that shares this wire. When it returns OK the
  // rule
  // is in force: no frame that arrives later and matches goes the other way. Equal rules nest: as
  // many RemoveRule as AddRule. A wire that is shared with nobody delivers everything and answers
  // OK.
  // Errors: InvalidArgument (ports without TCP or UDP), ResourceExhausted, or what the kernel said.
  virtual absl::Status AddRule(const WireRule& rule) = 0;
  // NotFound when no equal rule is there.
  virtual absl::Status RemoveRule(const WireRule& rule) = 0;

  // True while frames can pass.
  virtual bool up() const = 0;

  // What a frame may carry behind its Ethernet header and VLAN tags, where the wire says so and may
  // say otherwise later; 0: it has no say.
  virtual uint32_t mtu() const { return 0; }

  // A snapshot; names are unique within it. Any thread.
  virtual std::vector<NamedCount> counters() const = 0;
};

}  // namespace xtreme::connectx

#endif  // XTREME_TOOLS_CONNECTX_WIRE_WIRE_H_
