// SPDX-License-Identifier: Apache-2.0
//
// Telling the device: doorbell records, doorbells, BlueFlame, and the order between them; and the
// post that needs no more, of a frame that was built ahead (PostReady).
//
// Invariant: the device must find WQEs when it sees the record, and the record when it sees the
// doorbell. Each step that needs order calls the function whose name says which, in this order:
// on-device memory, FlushDeviceMemory, WQEs, OrderWqeBeforeRecord, record,
// OrderRecordBeforeDoorbell, doorbell or BlueFlame, FlushBlueFlame. On x86 ordinary stores stay in
// order, so only the compiler is held back before the record; registers and on-device memory are
// write-combining, which is ordered by SFENCE alone.
// Byte order: records are big endian; a doorbell is the first 8 bytes of a WQE as they lie.
// Threads: one writer a record and a register.

#ifndef XTREME_XTREME_NIC_DOORBELL_H_
#define XTREME_XTREME_NIC_DOORBELL_H_

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "stack/base/byte_order.h"
#include "xtreme/nic/queue_pair.h"

namespace xtreme::nic {

// Bytes written to on-device memory before the record that covers the WQE which names them: the
// device may follow the record on its own, and they may stand in a write-combining buffer until
// then.
inline void FlushDeviceMemory() {
#if defined(__aarch64__)
  asm volatile("dmb oshst" ::: "memory");
#else
  asm volatile("sfence" ::: "memory");
#endif
}

// WQEs in memory before the doorbell record that covers them: the device may read the record at any
// time, on its own, and fetch what it covers.
inline void OrderWqeBeforeRecord() {
#if defined(__aarch64__)
  asm volatile("dmb oshst" ::: "memory");
#else
  asm volatile("" ::: "memory");
#endif
}

// The record before the doorbell: a device that is rung reads the record to learn how far it may
// go. On x86 the store to write-combining memory could otherwise overtake the record.
inline void OrderRecordBeforeDoorbell() {
#if defined(__aarch64__)
  asm volatile("dmb oshst" ::: "memory");
#else
  asm volatile("sfence" ::: "memory");
#endif
}

// Pushes the write-combining buffer out now, and before the next doorbell is written to the other
// half of the register: the device would otherwise see them late, or the wrong way round.
inline void FlushBlueFlame() {
#if defined(__aarch64__)
  asm volatile("dsb st" ::: "memory");
#else
  asm volatile("sfence" ::: "memory");
#endif
}

// Writes a doorbell record. Release: for readers that are threads of this process (a software
// device) what was written before is visible with it; costs nothing on x86.
inline void StoreRecord(uint32_t* record, uint32_t value) {
  std::atomic_ref<uint32_t>(*record).store(base::HostToBigEndian(value),
                                           std::memory_order_release);
}
// The same of a value in its byte order. x86 orders stores by itself, and an atomic one is made by
// way of a register more where `value` stands in a vector.
inline void StoreRecordAsIs(uint32_t* record, uint32_t value) {
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)
  *static_cast<volatile uint32_t*>(record) = value;
#else
  std::atomic_ref<uint32_t>(*record).store(value, std::memory_order_release);
#endif
}

// Rings: one 8-byte store, as the device requires. `bytes` as they shall lie in the register.
inline void RingDoorbell(uint8_t* device_register, uint64_t bytes) {
  std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(device_register))
      .store(bytes, std::memory_order_release);
}

// Half a cache line, moved as one.
typedef uint64_t HalfLine __attribute__((vector_size(32), may_alias));

// Writes a WQE of `wqebbs` blocks of 64 bytes, at most four, into a BlueFlame register, in
// ascending order: the first 8 bytes are its doorbell. Both are 64-byte aligned. Not for the thread
// sanitizer's eyes: a device on another thread reads the register while it fills, as a card's
// write-combining buffer lets it.
__attribute__((no_sanitize("thread"))) inline void WriteBlueFlame(uint8_t* device_register,
                                                                  const uint8_t* wqe,
                                                                  uint32_t wqebbs) {
  auto* to = reinterpret_cast<volatile HalfLine*>(device_register);
  const auto* from = reinterpret_cast<const HalfLine*>(wqe);
#pragma GCC unroll 4
  for (uint32_t half = 0; half < 8; half += 2) {
    to[half] = from[half];
    to[half + 1] = from[half + 1];
    if (half + 2 == 2 * wqebbs) return;
  }
}

// The same of a WQE that stands in registers of the processor.
template <size_t kHalves>
__attribute__((no_sanitize("thread"), always_inline)) inline void WriteBlueFlame(
    uint8_t* device_register, const HalfLine (&halves)[kHalves]) {
  auto* to = reinterpret_cast<volatile HalfLine*>(device_register);
#pragma GCC unroll 8
  for (size_t i = 0; i < kHalves; ++i) to[i] = halves[i];
}

// --- A whole post --------------------------------------------------------------------------------

// What OR-ed into the first 32 bytes of a WQE, as they lie, gives it its index; they have 0 there.
inline HalfLine IndexBits(const TxFront& front) {
  typedef uint32_t Words __attribute__((vector_size(32), may_alias));
  constexpr size_t kInRecord = 1;  // Bytes 1 and 2 of the WQE are 2 and 3 of the record.
  const Words index = {
      base::LoadNative<uint32_t>(reinterpret_cast<const uint8_t*>(&front.index) + kInRecord)};
  return reinterpret_cast<HalfLine>(index);
}

// The half of the register that is due; the other one is, next: the device may still take what was
// written to this.
inline uint8_t* TakeRegister(TxFront& front, uintptr_t half_bytes = TxFront::kHalfBytes) {
  // As if somebody else wrote it, or the compiler would store what it computes of this: that is one
  // instruction more than to change it where it is.
  const auto taken = std::atomic_ref(front.next_register).load(std::memory_order_relaxed);
  front.next_register ^= half_bytes;
  return reinterpret_cast<uint8_t*>(taken);
}

// The defaults of PostReady() and PostStream().
struct Unedited {
  template <size_t kHalves>
  void operator()(HalfLine (&)[kHalves]) const {}
};
struct Unseen {
  template <size_t kHalves>
  void operator()(const HalfLine (&)[kHalves]) const {}
};

// The WQE of a frame that was built ahead, in registers, with its index.
template <size_t kHalves>
[[gnu::always_inline]] inline void LoadReady(const TxFront& front, const TxPrepared& prepared,
                                             HalfLine (&halves)[kHalves]) {
  const auto* const image = reinterpret_cast<const HalfLine*>(prepared.image.data());
#pragma GCC unroll 8
  for (size_t i = 0; i < kHalves; ++i) halves[i] = image[i];
  halves[0] |= IndexBits(front);
}

// Rings for it, alone by BlueFlame: it stands in the ring now. `record`: as it lies, of the block
// behind it.
template <size_t kHalves>
[[gnu::always_inline]] inline void RingReady(TxFront& front, uint32_t record,
                                             const HalfLine (&halves)[kHalves]) {
  OrderWqeBeforeRecord();
  StoreRecordAsIs(front.record, record);
  OrderRecordBeforeDoorbell();
  WriteBlueFlame(TakeRegister(front), halves);
  FlushBlueFlame();
}

// Counts a post, but for `wide`. The record of what is posted then, as it lies.
[[gnu::always_inline]] inline uint32_t Advance(TxFront& front, const HalfLine& step) {
  static_assert(offsetof(TxFront, index) == offsetof(TxStep, index) &&
                offsetof(TxFront, next_wqe) == offsetof(TxStep, wqe_bytes) &&
                offsetof(TxFront, gate) == offsetof(TxStep, units) &&
                offsetof(TxFront, direct_bytes) == offsetof(TxStep, frame_bytes) &&
                sizeof(TxStep) == sizeof(HalfLine));
  typedef uint8_t Bytes __attribute__((vector_size(32), may_alias));
  typedef uint32_t Words __attribute__((vector_size(32), may_alias));
  auto& words = reinterpret_cast<HalfLine&>(front);
  const auto sum = reinterpret_cast<Bytes>(words + step);
  // The index as the record has it, of the 16 bits that were added to; all else as it is.
  const Bytes after = __builtin_shufflevector(sum, sum, 4, 4, 6, 5, 4, 5, 6, 7, 8, 9, 10, 11, 12,
                                              13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25,
                                              26, 27, 28, 29, 30, 31);
  words = reinterpret_cast<HalfLine>(after);
  return reinterpret_cast<Words>(after)[0];
}
// The same of one that was not built ahead.
template <uint32_t kBlocks>
[[gnu::always_inline]] inline uint32_t Advance(TxFront& front, uint32_t frame_bytes) {
  constexpr uint32_t kBlockBytes = 64;
  if constexpr (kBlocks > 2) ++front.wide;
  return Advance(front, HalfLine{uint64_t{kBlocks} << TxStep::kIndexShift, kBlocks * kBlockBytes,
                                 TxStep::UnitsOf(kBlocks), frame_bytes});
}
[[gnu::always_inline]] inline uint32_t Advance(TxFront& front, const TxStep& step) {
  return Advance(front, reinterpret_cast<const HalfLine&>(step));
}

// Does what QueuePair::PostPrepared() does with no flags, where its caller stands: front.Ready(),
// and `prepared.direct_blocks` is kBlocks. The queue learns of it by what both share. Two blocks
// are a frame of up to 98 bytes, three one of up to 162, as most orders over TCP are: between
// loading them and BlueFlame they stay in registers. There `edit(halves)` may change them, but for
// the first 28 bytes: what is stored into `prepared` just before would be waited for. When it was
// rung for, `see(halves)` is shown the WQE.
template <uint32_t kBlocks = 2, typename Edit = Unedited, typename See = Unseen>
[[gnu::always_inline]] inline void PostReady(TxFront& front, const TxPrepared& prepared,
                                             const Edit& edit = {}, const See& see = {}) {
  HalfLine halves[2 * kBlocks];
  LoadReady(front, prepared, halves);
  edit(halves);
  auto* const wqe = reinterpret_cast<HalfLine*>(front.next_wqe);
#pragma GCC unroll 8
  for (uint32_t i = 0; i < 2 * kBlocks; ++i) wqe[i] = halves[i];
  const uint32_t record = Advance(front, prepared.step);
  if constexpr (kBlocks > 2) ++front.wide;
  RingReady(front, record, halves);
  see(halves);
}

}  // namespace xtreme::nic

#endif  // XTREME_XTREME_NIC_DOORBELL_H_
