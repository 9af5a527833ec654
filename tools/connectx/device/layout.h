// SPDX-License-Identifier: Apache-2.0
//
// Where things stand in a ConnectX's memory formats, as far as infiniband/mlx5dv.h does not name
// them, and loads and stores of words that the program and the device share.
//
// Invariant: a word the other side may write at any time is only touched through Load*, Store* and
// Take* here, so that it is one whole access with the ordering it needs.
// Units: bytes unless the name says otherwise. Byte order: big endian in memory, host in arguments.

#ifndef XTREME_TOOLS_CONNECTX_DEVICE_LAYOUT_H_
#define XTREME_TOOLS_CONNECTX_DEVICE_LAYOUT_H_

#include <endian.h>
#include <infiniband/mlx5dv.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace xtreme::connectx {

// Send queue. Indices and wqe_counter count WQEBBs; a WQE is `ds` segments of 16 bytes.
inline constexpr uint32_t kWqebbBytes = 64;
inline constexpr uint32_t kSegmentBytes = 16;
inline constexpr uint32_t kSegmentsPerWqebb = kWqebbBytes / kSegmentBytes;
inline constexpr uint32_t kMaxSendWqeBytes = 1008;  // max_sq_desc_sz: ds has 6 bits.
inline constexpr uint32_t kMaxReceiveWqeBytes = 512;
inline constexpr size_t kEthInlineOffset = offsetof(mlx5_wqe_eth_seg, inline_hdr_start);
inline constexpr uint32_t kInlineHeaderSizeMask = 0x3ff;
// Instead of a size in inline_hdr_sz: the tag whose TCI follows is to be inserted.
inline constexpr uint16_t kInsertVlan = 1 << 15;
inline constexpr uint16_t kInsertServiceTag = 1 << 0;
inline constexpr uint32_t kCustomerTagTpid = 0x8100;
inline constexpr uint32_t kServiceTagTpid = 0x88a8;
inline constexpr uint32_t kL2InlineBytes = 18;            // Ethernet with one VLAN tag.

// fm_ce_se: bits 3:2 say when a CQE is written.
enum class CompletionMode : uint8_t {
  kOnError = 0,
  kOnFirstError = 1,
  kAlways = 2,
  kAlwaysEvent = 3
};
inline CompletionMode CompletionModeOf(uint8_t fm_ce_se) {
  return static_cast<CompletionMode>((fm_ce_se >> 2) & 3);
}

// UAR page.
inline constexpr uint32_t kUarPageBytes = 4096;
inline constexpr uint32_t kCqArmOffset = 0x20;
inline constexpr uint32_t kBlueFlameBytes = 256;
inline constexpr uint32_t kDoorbellOffsets[] = {0x800, 0x900, 0xa00, 0xb00};

// Completion queue.
inline constexpr uint32_t kCqeBytes = 64;           // In a 128-byte CQE: the last 64.
inline constexpr uint32_t kCqIndexMask = 0xffffff;  // Consumer index in record and arm word.
inline constexpr uint32_t kCqArmSolicitedOnly = 1 << 24;
inline constexpr uint32_t kCqArmSequenceShift = 28;
inline constexpr uint32_t kCqArmUnwritten = 0xffffffff;  // No arm word looks like this.
inline constexpr size_t kCqeRxHashOffset = 12;           // rx_hash_result, big endian.
inline constexpr size_t kCqeRxHashTypeOffset = 16;       // What was hashed: L4 in 7:6, L3 in 3:2.
inline constexpr uint8_t kCqeVlanStripped = 1;           // In l4_hdr_type_etc.

// l4_hdr_type in the upper half of l4_hdr_type_etc; the two bits of l3_hdr_type start at bit 2.
enum class CqeL4Type : uint8_t { kNone = 0, kTcpNoAck = 1, kUdp = 2, kTcpAck = 3, kTcpAckData = 4 };

// Doorbell record of a CQ.
inline constexpr int kCqConsumerWord = 0;
inline constexpr int kCqArmWord = 1;

// A word of a doorbell record. Acquire: what the program wrote before it is then visible.
inline uint32_t LoadRecord(uint32_t* word) {
  return be32toh(std::atomic_ref<uint32_t>(*word).load(std::memory_order_acquire));
}

// Takes what was rung at a UAR offset, 0 if nothing. A plain load first: an exchange would pull the
// line away from the program at every look. Acquire: the doorbell record is written before.
inline uint64_t TakeDoorbell(uint8_t* slot) {
  std::atomic_ref<uint64_t> word(*reinterpret_cast<uint64_t*>(slot));
  if (word.load(std::memory_order_relaxed) == 0) return 0;
  return word.exchange(0, std::memory_order_acquire);
}

// Moves bytes between the program's memory and the device's. To a thread sanitizer it is what it is
// on a card: no access of a thread. What orders it (doorbell, CQE) goes through libmlx5, which the
// sanitizer does not see, so every buffer would be reported as a race.
inline void CopyDma(void* to, const void* from, size_t bytes) {
#ifdef __SANITIZE_THREAD__
  asm volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(bytes) : : "memory");
#else
  std::memcpy(to, from, bytes);
#endif
}

inline uint16_t LoadBe16(const uint8_t* bytes) {
  uint16_t value;
  std::memcpy(&value, bytes, sizeof(value));
  return be16toh(value);
}

inline uint32_t LoadBe32(const uint8_t* bytes) {
  uint32_t value;
  std::memcpy(&value, bytes, sizeof(value));
  return be32toh(value);
}

inline void StoreBe16(uint8_t* bytes, uint16_t value) {
  value = htobe16(value);
  std::memcpy(bytes, &value, sizeof(value));
}

inline void StoreBe32(uint8_t* bytes, uint32_t value) {
  value = htobe32(value);
  std::memcpy(bytes, &value, sizeof(value));
}

}  // namespace xtreme::connectx

#endif  // XTREME_TOOLS_CONNECTX_DEVICE_LAYOUT_H_
