// SPDX-License-Identifier: Apache-2.0
//
// FrameTap: copies what a ring receives and sends into a file in memory (frame_layout.h) that
// xtreme_dump reads, while the ring runs or after its process was killed.
//
// Invariant: after Create() nothing enters the kernel or waits: the oldest frame gives way, and a
// reader who comes too late counts what it missed. The file goes with the tap; a killed process
// leaves it, without its lock, until the next tap of that directory is made.
// Threads: Create and the destructor any; the rest one at a time, but for what says otherwise.

#ifndef XTREME_XTREME_STATS_FRAME_TAP_H_
#define XTREME_XTREME_STATS_FRAME_TAP_H_

#include <x86intrin.h>

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "xtreme/stats/frame_layout.h"

namespace xtreme::stats {

class FrameTap {
  static constexpr size_t kLeastSlotBytes = SlotBytes(kLeastSnapBytes);
  static constexpr size_t kPageBytes = 4'096;
  static_assert(kLeastSlots * kLeastSlotBytes % kPageBytes == 0 &&
                sizeof(FramesHeader) + kLeastSlotBytes <= kPageBytes);  // See WriteGathered().
  typedef uint64_t Bytes32 __attribute__((vector_size(32), aligned(1), may_alias));

 public:
  struct Options {
    std::string directory;  // There; on a file system in memory, or writing costs I/O.
    uint32_t ring = 0;
    std::string interface;
    std::string program;
    uint32_t frames = 4'096;                // Power of two, up to kMostSlots; least kLeastSlots.
    uint32_t snap_bytes = kLeastSnapBytes;  // kLeastSnapBytes .. kMostSnapBytes.
  };

  // The file is readable by this user and root only: it holds what was said. InvalidArgument: the
  // options. Unavailable: the system refuses; the message says what and why.
  static absl::StatusOr<std::unique_ptr<FrameTap>> Create(const Options& options);
  ~FrameTap();
  FrameTap(const FrameTap&) = delete;
  FrameTap& operator=(const FrameTap&) = delete;

  // Copies a received frame. kLeastSnapBytes are readable at `frame`, however short it is.
  [[gnu::always_inline]] void Write(FrameKind kind, const uint8_t* frame, uint32_t length,
                                    uint64_t ticks) {
    uint8_t* const slot = TakeSlot(slot_bytes_);
    WriteHead(slot, FirstWord(kind), length, ticks);
    CopyFirst(slot + sizeof(FrameSlot), frame);
    if (!KeepsLeast()) [[unlikely]] CopyRest(slot, frame, length);
  }
  // Whether no more than kLeastSnapBytes of a frame are kept.
  bool KeepsLeast() const { return snap_bytes_ == kLeastSnapBytes; }
  // Then this is all that Write() does, for who has few registers left: `ticks` and `frame` say
  // what they are when it is written.
  template <typename Ticks, typename Frame>
  [[gnu::always_inline]] void WriteLeast(FrameKind kind, uint32_t length, Ticks ticks,
                                         Frame frame) {
    uint8_t* const slot = next_slot_;
    WriteHead(slot, FirstWord(kind), length, ticks());
    CopyFirst(slot + sizeof(FrameSlot), frame());
    GoBehind(slot, kLeastSlotBytes);
  }
  // The last one was none, and nothing was written behind it: its place is the next one's.
  void TakeBack() { next_slot_ = (next_slot_ == slots_ ? end_ : next_slot_) - slot_bytes_; }
  // Frames one behind the other, of which the least is kept: what changes with each stands in
  // registers until Publish(), and nothing else is written meanwhile.
  class Run {
   public:
    explicit Run(FrameTap* tap)
        : tap_(tap), slot_(tap->next_slot_), end_(tap->end_) {}
    [[gnu::always_inline]] void Write(FrameKind kind, const uint8_t* frame, uint32_t length,
                                      uint64_t ticks) {
      WriteHead(slot_, FirstWord(kind), length, ticks);
      CopyFirst(slot_ + sizeof(FrameSlot), frame);
      Advance();
    }
    // As WriteWqe().
    [[gnu::always_inline]] void WriteWqe(const uint8_t* wqe, uint64_t ticks) {
      CopyWqe(slot_, wqe);
      reinterpret_cast<SentSlot*>(slot_)->ticks = ticks;
      Advance();
    }
    [[gnu::always_inline]] void Publish(uint32_t frames) {
      tap_->next_slot_ = slot_;
      tap_->Publish(frames);
    }

   private:
    [[gnu::always_inline]] void Advance() {
      slot_ += kLeastSlotBytes;
      if (slot_ == end_) [[unlikely]] slot_ = tap_->slots_;
    }

    FrameTap* const tap_;
    uint8_t* slot_;
    uint8_t* const end_;
  };
  // A frame that was just posted and stands whole in its WQE, of which kLeastSlotBytes can be read,
  // in `halves` or at `wqe`; behind its end they are whatever they are. KeepsLeast().
  template <typename Half, size_t kHalves>
  [[gnu::always_inline]] void WriteWqe(const Half (&halves)[kHalves]) {
    constexpr size_t kKept = kLeastSlotBytes / sizeof(Half);
    static_assert(sizeof(Half) == sizeof(Bytes32) && kKept <= kHalves);
    uint8_t* const slot = next_slot_;
#pragma GCC unroll 4
    for (size_t i = 0; i < kKept; ++i) {
      reinterpret_cast<Bytes32*>(slot)[i] = reinterpret_cast<const Bytes32&>(halves[i]);
    }
    WriteNow(slot);
    GoBehind(slot, kLeastSlotBytes);
  }
  [[gnu::always_inline]] void WriteWqe(const uint8_t* wqe) {
    uint8_t* const slot = next_slot_;
    CopyWqe(slot, wqe);
    WriteNow(slot);
    GoBehind(slot, kLeastSlotBytes);
  }
  // One whose payload the device reads elsewhere, of which kGatheredPayload bytes can be read: the
  // first kHeld halves of its WQE hold its headers, kShortestHeaders to kLongestHeaders of them.
  // KeepsLeast(). The payload may go on behind the slot, where nothing is yet, or, behind the last
  // one, the rest of a page.
  static constexpr uint32_t kGatheredPayload = 2 * sizeof(Bytes32);
  static constexpr uint32_t kShortestHeaders = kLeastSnapBytes - kGatheredPayload;
  static constexpr uint32_t kLongestHeaders = kLeastSlotBytes - kSentFrameAt;
  template <size_t kHeld, typename Half, size_t kHalves>
  [[gnu::always_inline]] void WriteGathered(const Half (&halves)[kHalves], size_t header_length,
                                            const uint8_t* payload, uint32_t bytes) {
    static_assert(sizeof(Half) == sizeof(Bytes32) && kHeld <= kHalves);
    static_assert(kHeld <= kLeastSlotBytes / sizeof(Half));
    uint8_t* const slot = next_slot_;
#pragma GCC unroll 4
    for (size_t i = 0; i < kHeld; ++i) {
      reinterpret_cast<Bytes32*>(slot)[i] = reinterpret_cast<const Bytes32&>(halves[i]);
    }
    CopyHalves<2>(slot + kSentFrameAt + header_length, payload);
    reinterpret_cast<SentSlot*>(slot)->whole_bytes = bytes;
    WriteNow(slot);
    GoBehind(slot, kLeastSlotBytes);
  }
  // Any other, in two parts, as long as they are, when its WQE begins with what is at `wqe`.
  void WriteParts(const uint8_t* wqe, const uint8_t* header, uint32_t header_length,
                  const uint8_t* payload, uint32_t payload_length, uint64_t ticks);
  // The device's time of the last frame of the send queue, by its QPN, whose WQE ended there.
  void WriteSendTime(uint32_t queue, uint16_t end, uint64_t ticks) {
    WriteHead(TakeSlot(slot_bytes_), FirstWord(FrameKind::kSendTime) | uint32_t{end} << 8, queue,
              ticks);
  }
  // Shows readers the last `frames` that were written, all there are that they do not know of. One
  // instruction, so that none of it is seen half; stores stay in order (Intel SDM volume 3, 9.2.2).
  [[gnu::always_inline]] void Publish(uint32_t frames) {
    std::atomic_signal_fence(std::memory_order_release);
    header_->produced += frames;
  }
  // What else there is to say at this place, as much as a slot holds. Published.
  void Note(std::string_view text);

  static uint64_t Now() { return __rdtsc(); }
  // How ticks become time from here on; a `host` without a rate: the TSC does not tell time.
  // `other_device`: those of the device are another one's from the next frame on.
  void SetClocks(const TickScale& device, const TickScale& host, bool other_device = false);

  const std::string& path() const { return path_; }

 private:
  FrameTap(std::string path, uint8_t* memory, const FramesHeader& shape);

  uint8_t* TakeSlot(uint64_t slot_bytes) {
    uint8_t* const slot = next_slot_;
    GoBehind(slot, slot_bytes);
    return slot;
  }
  void GoBehind(uint8_t* slot, uint64_t slot_bytes) {
    uint8_t* const next = slot + slot_bytes;
    next_slot_ = next == end_ ? slots_ : next;
  }
  [[gnu::always_inline]] static void WriteHead(uint8_t* slot, uint32_t kind, uint32_t length,
                                               uint64_t ticks) {
    auto* const head = reinterpret_cast<FrameSlot*>(slot);
    head->kind = kind;
    head->frame_bytes = length;
    head->ticks = ticks;
  }
  // In two stores, as the processor gives it.
  [[gnu::always_inline]] static void WriteNow(uint8_t* slot) {
    static_assert(std::endian::native == std::endian::little);
    uint32_t now[2];
    asm volatile("rdtsc" : "=a"(now[0]), "=d"(now[1]));
    auto* const ticks = reinterpret_cast<uint32_t*>(slot + offsetof(SentSlot, ticks));
    ticks[0] = now[0];
    ticks[1] = now[1];
  }
  template <int kHalves>
  [[gnu::always_inline]] static void CopyHalves(uint8_t* to, const uint8_t* from) {
#pragma GCC unroll 4
    for (int i = 0; i < kHalves; ++i) {
      reinterpret_cast<Bytes32*>(to)[i] = reinterpret_cast<const Bytes32*>(from)[i];
    }
  }
  [[gnu::always_inline]] static void CopyWqe(uint8_t* to, const uint8_t* from) {
    CopyHalves<kLeastSlotBytes / sizeof(Bytes32)>(to, from);
  }
  [[gnu::always_inline]] static void CopyFirst(uint8_t* to, const uint8_t* from) {
    static_assert(kLeastSnapBytes == 3 * sizeof(Bytes32));
    CopyHalves<3>(to, from);
  }
  void CopyRest(uint8_t* slot, const uint8_t* frame, uint32_t length);

  // What every frame needs.
  uint8_t* next_slot_;
  const uint64_t slot_bytes_;
  uint8_t* const end_;
  uint8_t* const slots_;
  FramesHeader* const header_;
  const uint32_t snap_bytes_;

  const std::string path_;
  const size_t file_bytes_;
};

}  // namespace xtreme::stats

#endif  // XTREME_XTREME_STATS_FRAME_TAP_H_
