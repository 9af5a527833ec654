// SPDX-License-Identifier: Apache-2.0
//
// CQEs: what a completion says, read from the 64 bytes the device wrote.
//
// Invariant: nothing here is read before the owner bit said that the CQE is ours (CompletionQueue).
// Pure functions. Units: bytes, ticks of the device's clock. Byte order: big endian in memory, host
// in results. Spec: mlx5dv.h; Mellanox Adapters PRM, "Completion Queue Entry".

#ifndef XTREME_XTREME_MLX5_CQE_H_
#define XTREME_XTREME_MLX5_CQE_H_

#include <infiniband/mlx5dv.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "stack/base/byte_order.h"
#include "xtreme/nic/queue_pair.h"

namespace xtreme::mlx5 {

inline constexpr size_t kCqeBytes = sizeof(mlx5_cqe64);
static_assert(kCqeBytes == 64 && sizeof(mlx5_err_cqe) == 64);
static_assert(offsetof(mlx5_cqe64, op_own) == 63 && offsetof(mlx5_err_cqe, op_own) == 63);

// What bring-up writes into op_own of every CQE: no opcode, and owner bit 1, which no CQE of the
// first lap has. libmlx5 leaves the bit 0 and looks at the opcode too; so the bit alone decides.
inline constexpr uint8_t kUnwrittenOpOwn = MLX5_CQE_INVALID << 4 | 1;

// The owner bit of a CQE at `index`, a free-running count of CQEs: it changes with every lap.
constexpr uint8_t OwnerBit(uint32_t index, uint32_t entries_log2) {
  return static_cast<uint8_t>(index >> entries_log2 & 1);
}

// op_own as the device wrote it last: the other bytes of a CQE that is ours are read after it.
inline uint8_t LoadOpOwn(const mlx5_cqe64& cqe) {
  return std::atomic_ref<const uint8_t>(cqe.op_own).load(std::memory_order_acquire);
}
// What CqeRing::OpOwner gives: op_own with the owner bit 0 where the CQE is written.
inline bool IsWritten(uint8_t op_owner) { return (op_owner & 1) == 0; }
// Written, and a received frame in one uncompressed CQE; the solicited bit may be anything.
inline bool IsReceivedFrame(uint8_t op_owner) {
  return (op_owner & ~uint32_t{2}) == MLX5_CQE_RESP_SEND << 4;
}
// op_own of a received frame in a CQE that is written, in a lap whose owner bit is `owner_bit`.
constexpr uint32_t ReceivedOpOwn(uint32_t owner_bit) {
  return MLX5_CQE_RESP_SEND << 4 | owner_bit;
}
// Whether `op_own` is that; the solicited bit may be anything.
inline bool IsReceivedFrame(uint8_t op_own, uint32_t received_op_own) {
  return ((op_own ^ received_op_own) & ~uint32_t{2}) == 0;
}
// Written, and a completed send; the solicited bit may be anything.
inline bool IsWrittenSent(uint8_t op_owner) {
  return (op_owner & ~uint32_t{2}) == MLX5_CQE_REQ << 4;
}
// A completed send.
inline bool IsSent(uint8_t op_own) { return op_own >> 2 == MLX5_CQE_REQ << 2; }

inline uint32_t FrameBytes(const mlx5_cqe64& cqe) {
  return base::HostToBigEndian(uint32_t{cqe.byte_cnt});
}
inline uint64_t HardwareClock(const mlx5_cqe64& cqe) {
  return base::HostToBigEndian(uint64_t{cqe.timestamp});
}
// Of the rule that took the frame; 24 bits, 0 for none.
inline uint32_t FlowTag(const mlx5_cqe64& cqe) {
  return base::HostToBigEndian(uint32_t{cqe.sop_drop_qpn}) & 0xffffff;
}
// First WQEBB of the completed send WQE, or index of the receive WQE.
inline uint16_t WqeCounter(const mlx5_cqe64& cqe) {
  return base::HostToBigEndian(uint16_t{cqe.wqe_counter});
}

// The device's checksum verdicts as RxFlags. hds_ip_ext has "L2 ok", "L3 ok", "L4 ok" from bit 0.
inline uint16_t ChecksumFlags(const mlx5_cqe64& cqe) {
  static_assert(MLX5_CQE_L3_OK >> 1 == nic::kRxIpChecksumOk);
  static_assert(MLX5_CQE_L4_OK >> 1 == nic::kRxL4ChecksumOk);
  return cqe.hds_ip_ext >> 1 & (nic::kRxIpChecksumOk | nic::kRxL4ChecksumOk);
}

struct CqeError {
  uint8_t syndrome = 0;
  uint8_t vendor_syndrome = 0;
  bool flushed = false;  // Not a cause: the queue was in error already.
};

// Of a CQE with opcode MLX5_CQE_REQ_ERR or MLX5_CQE_RESP_ERR.
CqeError ParseError(const mlx5_cqe64& cqe);

// A syndrome in words. PRM, "CQE Error Syndrome".
std::string_view DescribeSyndrome(uint8_t syndrome);

}  // namespace xtreme::mlx5

#endif  // XTREME_XTREME_MLX5_CQE_H_
