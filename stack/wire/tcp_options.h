// SPDX-License-Identifier: Apache-2.0
//
// The options of a TCP header: RFC 9293 section 3.2, RFC 7323 (window scale, timestamps), RFC 2018
// (SACK).
//
// The invariant: whatever the bytes are, parsing reads only them, takes every option it knows and
// whose length is right, and names the first thing that was wrong. Options it does not know are
// skipped by their length (RFC 9293, MUST-6). All values in host order.
#ifndef XTREME_STACK_WIRE_TCP_OPTIONS_H_
#define XTREME_STACK_WIRE_TCP_OPTIONS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "stack/base/byte_order.h"
#include "stack/base/counters.h"

namespace xtreme::wire {

inline constexpr size_t kTcpMaxOptionsBytes = 40;
// The timestamps option behind two NOPs: RFC 7323 appendix A.
inline constexpr size_t kTcpTimestampsBytes = 12;
// The most that a scale may shift by; a larger one is read as this. RFC 7323 section 2.3.
inline constexpr uint8_t kTcpMaxWindowScale = 14;
// As many as fit into 40 bytes; 3 beside timestamps. RFC 2018 section 3.
inline constexpr size_t kTcpMaxSackBlocks = 4;

// IANA, "TCP Option Kind Numbers".
enum class TcpOptionKind : uint8_t {
  kEnd = 0,
  kNop = 1,
  kMss = 2,
  kWindowScale = 3,
  kSackPermitted = 4,
  kSack = 5,
  kTimestamps = 8,
};

// The first thing that was wrong with options. An option of a known kind and a wrong length is
// skipped; after kLength nothing more can be read.
enum class TcpOptionsError : uint8_t {
  kNone,
  kLength,  // 0 or 1, or past the header's end
  kMssLength,
  kWindowScaleLength,
  kSackPermittedLength,
  kSackLength,
  kTimestampsLength,
  kCount,
};

base::CounterName DescribeReason(TcpOptionsError error);

// How many segments had each.
using TcpOptionsCounters = base::ReasonCounters<TcpOptionsError>;

struct TcpTimestamps {
  uint32_t value = 0;  // TSval
  uint32_t echo = 0;   // TSecr; means something only under ACK
  friend constexpr bool operator==(const TcpTimestamps&, const TcpTimestamps&) = default;
};

// Sequence numbers from `left` to before `right`. RFC 2018 section 3.
struct SackBlock {
  uint32_t left = 0;
  uint32_t right = 0;
  friend constexpr bool operator==(const SackBlock&, const SackBlock&) = default;
};

struct TcpOptions {
  std::optional<uint16_t> mss;
  std::optional<uint8_t> window_scale;  // as sent: may be above kTcpMaxWindowScale
  bool sack_permitted = false;
  uint8_t sack_count = 0;
  std::optional<TcpTimestamps> timestamps;
  std::array<SackBlock, kTcpMaxSackBlocks> sack_blocks{};  // the first `sack_count` of them

  std::span<const SackBlock> sack() const { return {sack_blocks.data(), sack_count}; }
  // At most kTcpMaxSackBlocks; what is more is left out.
  void SetSack(std::span<const SackBlock> blocks);

  friend bool operator==(const TcpOptions& a, const TcpOptions& b);

  // Back to none. The blocks are left as they lie.
  void Clear() {
    mss.reset();
    window_scale.reset();
    sack_permitted = false;
    sack_count = 0;
    timestamps.reset();
  }

  // Replaces this by the options in `bytes`, what is between the fixed header and the payload.
  // Returns what was wrong first; what was right is set all the same. Nothing is read past an
  // end-of-options. The last option of a kind counts.
  TcpOptionsError Parse(std::span<const uint8_t> bytes);

  // The bytes that Emit writes: a multiple of 4, at most kTcpMaxOptionsBytes.
  size_t emitted_bytes() const;
  // Writes the options, aligned with NOPs as RFC 7323 appendix A proposes. SACK blocks that would
  // not fit beside the others are left out. Returns emitted_bytes(); 0 when `to` is shorter.
  size_t Emit(std::span<uint8_t> to) const;

 private:
  // How many SACK blocks go out.
  size_t EmittedSackBlocks() const;
  size_t BytesWithoutSack() const;
  bool TakeUsualSyn(std::span<const uint8_t> bytes);
  TcpOptionsError Take(TcpOptionKind kind, std::span<const uint8_t> value);
};

// Whether `options`, at least kTcpTimestampsBytes of them, begin with the timestamps as everybody
// lays them out: NOP NOP kind length.
inline bool BeginsWithTimestamps(const uint8_t* options) {
  return base::LoadNative<uint32_t>(options) == base::HostToBigEndian<uint32_t>(0x0101080A);
}

// Writes NOP, NOP and the timestamps option: kTcpTimestampsBytes.
inline void EmitTimestamps(uint8_t* to, const TcpTimestamps& timestamps) {
  base::StoreBe32(to, 0x0101080A);
  base::StoreBe32(to + 4, timestamps.value);
  base::StoreBe32(to + 8, timestamps.echo);
}

}  // namespace xtreme::wire

#endif  // XTREME_STACK_WIRE_TCP_OPTIONS_H_
