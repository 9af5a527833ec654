// SPDX-License-Identifier: Apache-2.0
//
// The layout of a frame tap: the last frames that one ring received and sent, in one file named
// "xtreme-frames.PID.RING", or one beside it, that other programs read.
//
//   FramesHeader
//   { FrameSlot, uint8_t[snap_bytes] } or { SentSlot, the rest of snap_bytes } [slots]
//
// Invariant: frame n stands in slot n % slots from when `produced` is above n until it is
// overwritten; the writer may be at work on up to kSlotsAtWork slots behind `produced`. Header is
// constant but for `produced` and the clocks, which are consistent while `sequence` is even and
// the same before and after. Little endian. The writer holds an flock() on the file as it lives.
// Threads: one writer; readers are other programs.

#ifndef XTREME_XTREME_STATS_FRAME_LAYOUT_H_
#define XTREME_XTREME_STATS_FRAME_LAYOUT_H_

#include <array>
#include <cstddef>
#include <cstdint>

namespace xtreme::stats {

inline constexpr std::array<char, 8> kFramesMagic = {'X', 'T', 'F', 'R', 'A', 'M', 'E', 'S'};
inline constexpr uint32_t kFramesVersion = 6;

inline constexpr uint32_t kLeastSlots = 1'024;
inline constexpr uint32_t kMostSlots = 1u << 20;
inline constexpr uint32_t kLeastSnapBytes = 96;  // Copied of each frame whatever its length.
inline constexpr uint32_t kMostSnapBytes = 9'120;
// A batch of frames is counted when all of it was written.
inline constexpr uint32_t kSlotsAtWork = 512;

// ns = base_ns + (ticks - base_ticks) * ns_per_tick_q32 / 2^32, the difference taken as signed in
// the low 64 - unused_bits bits. ns of CLOCK_MONOTONIC.
struct TickScale {
  uint64_t base_ticks = 0;
  int64_t base_ns = 0;
  int64_t ns_per_tick_q32 = 0;  // 0: not known.
  uint32_t unused_bits = 0;
  uint32_t reserved = 0;

  int64_t ToNanoseconds(uint64_t ticks) const {
    const int64_t passed =
        static_cast<int64_t>((ticks - base_ticks) << unused_bits) >> unused_bits;
    return base_ns + static_cast<int64_t>((static_cast<__int128>(passed) * ns_per_tick_q32) >> 32);
  }
};
static_assert(sizeof(TickScale) == 32);

// How ticks become time. Those of a device are of the frames from `device_from` on; of those before
// it, back to `before_from`, another device told the time; of older ones there is none.
struct FrameClocks {
  TickScale device;
  TickScale host;
  TickScale device_before;
  uint64_t device_from = 0;
  uint64_t before_from = 0;
};

// The upper byte of a slot's first word. Those of sent frames are opcodes of mlx5 (mlx5dv.h).
enum class FrameKind : uint8_t {
  kReceived = 1,         // `ticks` is the device's time of reception.
  kReceivedUntimed = 2,  // The device gave none.
  kNote = 4,             // No frame, a text; `ticks` is the TSC.
  kSendTime = 5,         // No frame: `ticks` is the device's time of one sent before.
  kSent = 0x0A,          // A SentSlot.
  kSentSegments = 0x0E,  // The same of one that the device cuts into segments. Readers say kSent.
};
constexpr uint32_t FirstWord(FrameKind kind) { return static_cast<uint32_t>(kind) << 24; }
constexpr FrameKind KindOf(uint32_t first_word) { return static_cast<FrameKind>(first_word >> 24); }

struct FrameSlot {
  uint32_t kind;         // FirstWord(); of a send time the two bytes below say which end it is of.
  uint32_t frame_bytes;  // On the wire, without FCS; of which snap_bytes at most follow. Of a send
                         // time the number of its send queue (QPN).
  uint64_t ticks;
};
static_assert(sizeof(FrameSlot) == 16);

// A sent frame's WQE as the device got it, which begins so; big endian but where `ticks` and
// `whole_bytes` were written over it. What names the frame until another one does is its queue and
// the block, of 64 bytes, that its WQE ends before. Spec: mlx5dv.h; PRM, "Send WQE".
struct SentSlot {
  uint32_t kind;         // Opcode, and in the two bytes below it the WQE's first block.
  uint32_t queue;        // The send queue's number (QPN), and the WQE's length in 16 bytes.
  uint64_t ticks;        // The TSC when it was posted.
  uint32_t whole_bytes;  // Of the frame; 0: all of it stands inline.
  uint32_t checksums;
  uint32_t reserved;
  uint16_t inline_bytes;
  std::array<uint8_t, 2> frame;  // Its first bytes.
};
inline constexpr size_t kSentFrameAt = offsetof(SentSlot, frame);
static_assert(kSentFrameAt == 30 && offsetof(SentSlot, ticks) == offsetof(FrameSlot, ticks));

// Slots share no cache line.
inline constexpr uint32_t kSlotLineBytes = 64;
constexpr uint32_t SlotBytes(uint32_t snap_bytes) {
  constexpr uint32_t kHead = kSentFrameAt;
  return (kHead + snap_bytes + kSlotLineBytes - 1) / kSlotLineBytes * kSlotLineBytes;
}

struct FramesHeader {
  std::array<char, 8> magic;
  uint32_t version;
  uint32_t pid;
  uint32_t ring;
  uint32_t slots;       // Power of two.
  uint32_t slot_bytes;  // SlotBytes(snap_bytes).
  uint32_t snap_bytes;
  std::array<char, 32> interface;
  std::array<char, 32> program;

  // Written with every frame.
  alignas(64) uint64_t produced;  // Frames and notes so far.

  // Written about once a second.
  alignas(64) uint64_t sequence;  // Odd while they are written.
  FrameClocks clocks;
};
static_assert(sizeof(FramesHeader) == 320 && sizeof(FramesHeader) % kSlotLineBytes == 0);

}  // namespace xtreme::stats

#endif  // XTREME_XTREME_STATS_FRAME_LAYOUT_H_
