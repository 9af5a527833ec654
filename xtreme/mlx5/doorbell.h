// SPDX-License-Identifier: Apache-2.0
//
// Telling the device: doorbell records, doorbells, BlueFlame, and the order between them.
//
// Invariant: the device must find WQEs when it sees the record, and the record when it sees the
// doorbell. Each step that needs order calls the function whose name says which, in this order:
// on-device memory, FlushDeviceMemory, WQEs, OrderWqeBeforeRecord, record,
// OrderRecordBeforeDoorbell, doorbell or BlueFlame, FlushBlueFlame. On x86 ordinary stores stay in
// order, so only the compiler is held back before the record; registers and on-device memory are
// write-combining, which is ordered by SFENCE alone.
// Byte order: records are big endian; a doorbell is the first 8 bytes of a WQE as they lie.
// Threads: one writer a record and a register.

#ifndef XTREME_XTREME_MLX5_DOORBELL_H_
#define XTREME_XTREME_MLX5_DOORBELL_H_

#include <atomic>
#include <cstdint>
#include <cstring>

#include "stack/base/byte_order.h"

namespace xtreme::mlx5 {

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

// The same of a WQE of two blocks that stands in registers of the processor.
__attribute__((no_sanitize("thread"))) inline void WriteBlueFlame(uint8_t* device_register,
                                                                  HalfLine first, HalfLine second,
                                                                  HalfLine third,
                                                                  HalfLine fourth) {
  auto* to = reinterpret_cast<volatile HalfLine*>(device_register);
  to[0] = first;
  to[1] = second;
  to[2] = third;
  to[3] = fourth;
}

}  // namespace xtreme::mlx5

#endif  // XTREME_XTREME_MLX5_DOORBELL_H_
