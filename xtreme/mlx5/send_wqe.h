// SPDX-License-Identifier: Apache-2.0
//
// Send WQEs: one frame each, in at most four blocks of 64 bytes.
//
//   control segment (16) | Ethernet segment (14), inline bytes, to a multiple of 16 | data segment
//
// A short frame stands whole in the Ethernet segment's inline part; of a long one the headers do,
// and a data segment names the payload, in memory or on the device. So the headers are always
// inline, which satisfies every device, whatever part of a frame its steering must see. Pure
// functions on plain memory.
// Byte order: big endian in the WQE, host in arguments. Spec: mlx5dv.h; PRM, "Send WQE".

#ifndef XTREME_XTREME_MLX5_SEND_WQE_H_
#define XTREME_XTREME_MLX5_SEND_WQE_H_

#include <infiniband/mlx5dv.h>

#include <cstddef>
#include <cstdint>

#include "stack/base/byte_order.h"
#include "stack/base/copy.h"
#include "xtreme/nic/queue_pair.h"

namespace xtreme::mlx5 {

using base::Bytes32;
using base::Copy64;
using base::CopyShort;
using base::Load32;
using base::Store32;

inline constexpr uint32_t kWqebbBytes = MLX5_SEND_WQE_BB;
inline constexpr uint32_t kSegmentBytes = 16;
inline constexpr uint32_t kMaxWqebbs = 4;  // 256 bytes: one half of a BlueFlame register.
inline constexpr uint32_t kMaxWqeBytes = kMaxWqebbs * kWqebbBytes;
inline constexpr uint32_t kMaxHeaderBytes = 64;  // Of a template.

// Where inline bytes start.
inline constexpr uint32_t kInlineOffset =
    sizeof(mlx5_wqe_ctrl_seg) + offsetof(mlx5_wqe_eth_seg, inline_hdr_start);
static_assert(kInlineOffset == 30);
static_assert(kInlineOffset == nic::kStreamFrameAt && kMaxWqeBytes == nic::kStreamWqeBytes);
inline constexpr uint32_t kMaxInlineFrameBytes = kMaxWqeBytes - kInlineOffset;
// What every device accepts as the least that stands inline: Ethernet with a VLAN tag.
inline constexpr uint32_t kMinInlineBytes = 18;

// Segments of control, Ethernet and `inline_bytes`, which is at least 2.
constexpr uint32_t SegmentsWithInline(uint32_t inline_bytes) {
  return (kInlineOffset + inline_bytes + kSegmentBytes - 1) / kSegmentBytes;
}
constexpr uint32_t WqebbsWithInline(uint32_t inline_bytes) {
  return (kInlineOffset + inline_bytes + kWqebbBytes - 1) / kWqebbBytes;
}
constexpr uint32_t WqebbsOfSegments(uint32_t segments) { return (segments + 3) / 4; }
// Segments of a WQE as its control segment says.
inline uint32_t SegmentsOf(const uint8_t* wqe) { return base::LoadBe32(wqe + 4) & 0x3f; }
// The checksums that a WQE asks of the device, as TxFlags.
inline uint32_t ChecksumsOf(const uint8_t* wqe) { return wqe[20] >> 6; }

// Whether and when a WQE writes a CQE.
enum class Completion : uint8_t {
  kOnError = 0,
  kAlways = MLX5_WQE_CTRL_CQ_UPDATE,
};

// Writes the control segment. `wqebb_index` is the free-running count of blocks before this one.
inline void WriteControl(uint8_t* wqe, uint16_t wqebb_index, uint32_t opcode, uint32_t qpn,
                         uint32_t segments, Completion completion) {
  static_assert(offsetof(mlx5_wqe_ctrl_seg, qpn_ds) == 4);
  static_assert(offsetof(mlx5_wqe_ctrl_seg, fm_ce_se) == 11);
  base::StoreBe32(wqe, uint32_t{wqebb_index} << 8 | opcode);
  base::StoreBe32(wqe + 4, qpn << 8 | segments);
  // Signature, stream, fm_ce_se, imm.
  base::StoreBe64(wqe + 8, static_cast<uint64_t>(completion) << 32);
}

// Changes it in a WQE that is written.
inline void SetCompletion(uint8_t* wqe, Completion completion) {
  wqe[offsetof(mlx5_wqe_ctrl_seg, fm_ce_se)] = static_cast<uint8_t>(completion);
}

inline bool HasCompletion(const uint8_t* wqe) {
  return wqe[offsetof(mlx5_wqe_ctrl_seg, fm_ce_se)] == static_cast<uint8_t>(Completion::kAlways);
}

inline void SetOpcode(uint8_t* wqe, uint8_t opcode) { wqe[3] = opcode; }
inline void SetChecksums(uint8_t* wqe, uint32_t flags) {
  wqe[20] = static_cast<uint8_t>((flags & (nic::kTxIpChecksum | nic::kTxL4Checksum)) << 6);
}

// Bytes that stand inline, of a WQE as WriteEthernet() and templates write it.
inline uint32_t InlineBytesOf(const uint8_t* wqe) { return base::LoadBe16(wqe + 28); }

// The first 8 bytes as they lie: what rings for the WQE.
inline uint64_t DoorbellBytes(const uint8_t* wqe) { return base::LoadNative<uint64_t>(wqe); }

// Writes the Ethernet segment but for the inline bytes; clobbers the first 2 of those, so they are
// written afterwards. Of `flags` (TxFlag) the checksums count.
inline void WriteEthernet(uint8_t* wqe, uint32_t flags, uint32_t inline_bytes) {
  static_assert(offsetof(mlx5_wqe_eth_seg, cs_flags) == 4);
  static_assert(offsetof(mlx5_wqe_eth_seg, inline_hdr_sz) == 12);
  static_assert(MLX5_ETH_WQE_L3_CSUM == nic::kTxIpChecksum << 6);
  static_assert(MLX5_ETH_WQE_L4_CSUM == nic::kTxL4Checksum << 6);
  const uint64_t checksums = (flags & (nic::kTxIpChecksum | nic::kTxL4Checksum)) << 6;
  base::StoreBe64(wqe + 16, checksums << 24);                  // Reserved, cs_flags, mss.
  base::StoreBe64(wqe + 24, uint64_t{inline_bytes} << 16);     // Reserved, inline_hdr_sz.
}

// What nic::PostStream() puts a WQE together of.
inline uint64_t StreamControl(uint32_t qpn) {
  uint8_t wqe[kWqebbBytes];
  WriteControl(wqe, 0, MLX5_OPCODE_SEND, qpn, 0, Completion::kOnError);
  return base::LoadBe64(wqe);
}
inline uint64_t StreamOffloads() {
  uint8_t wqe[kWqebbBytes];
  WriteEthernet(wqe, nic::kTxIpChecksum | nic::kTxL4Checksum, 0);
  return base::LoadNative<uint64_t>(wqe + 16);
}

// Bytes that the device reads where they lie.
struct Gather {
  uint64_t address = 0;  // Under `key`.
  uint32_t key = 0;
};

inline void WriteDataSegment(uint8_t* segment, const Gather& from, uint32_t bytes) {
  base::StoreBe32(segment + offsetof(mlx5_wqe_data_seg, byte_count), bytes);
  base::StoreBe32(segment + offsetof(mlx5_wqe_data_seg, lkey), from.key);
  base::StoreBe64(segment + offsetof(mlx5_wqe_data_seg, addr), from.address);
}

// --- Frames of a flow ----------------------------------------------------------------------------

inline void SetStep(nic::TxPrepared& frame, uint32_t bytes, uint32_t blocks,
                    uint32_t most_direct_blocks) {
  frame.step = {.index = uint64_t{blocks} << nic::TxStep::kIndexShift,
                .wqe_bytes = uint64_t{blocks} * kWqebbBytes,
                .units = nic::TxStep::UnitsOf(blocks),
                .frame_bytes = bytes};
  frame.direct_blocks = blocks <= most_direct_blocks ? blocks : 0;
}

// Segments and header as they stand in the WQEs of a flow, but for index and lengths.
// `most_direct_blocks`: of WQEs that PostReady() may post.
// `stored_key`: of the registration of on-device memory.
inline void PrepareTemplate(const nic::TxHeader& header, uint32_t qpn, uint32_t most_direct_blocks,
                            uint32_t stored_key, nic::TxTemplate* flow) {
  static_assert(sizeof(flow->frame.image) == kMaxWqeBytes);
  uint8_t* const image = flow->frame.image.data();
  WriteControl(image, 0, MLX5_OPCODE_SEND, qpn, 0, Completion::kOnError);
  WriteEthernet(image, header.flags, 0);
  Copy64(image + kInlineOffset, header.bytes);
  flow->frame.frame_at = kInlineOffset;
  flow->frame.header_bytes = header.length;
  flow->payload_length = ~uint32_t{0};
  flow->header_length = header.length;
  flow->payload_at = kInlineOffset + header.length;
  flow->most_direct_blocks = most_direct_blocks;
  flow->max_payload_bytes = kMaxInlineFrameBytes - header.length;
  for (size_t i = 0; i < header.lengths.size(); ++i) {
    flow->lengths[i] = header.lengths[i];
    flow->lengths[i].at += kInlineOffset;
  }
  // With the payload elsewhere: the header inline, and a data segment.
  const uint32_t segments = SegmentsWithInline(header.length) + 1;
  flow->stored = flow->frame;
  flow->stored_length = ~uint32_t{0};
  flow->data_at = (segments - 1) * kSegmentBytes;
  uint8_t* const stored = flow->stored.image.data();
  stored[7] = static_cast<uint8_t>(segments);
  base::StoreBe16(stored + 28, static_cast<uint16_t>(header.length));
  WriteDataSegment(stored + flow->data_at, {.address = 0, .key = stored_key}, 0);
  SetStep(flow->stored, 0, WqebbsOfSegments(segments), most_direct_blocks);
}

// Brings the lengths of a flow's frame with a stored payload up to date.
[[gnu::noinline]] inline void SetStoredLength(const nic::TxTemplate& flow,
                                              uint32_t payload_length) {
  uint8_t* const image = flow.stored.image.data();
  flow.stored_length = payload_length;
  flow.stored.step.frame_bytes = flow.header_length + payload_length;
  base::StoreBe32(image + flow.data_at + offsetof(mlx5_wqe_data_seg, byte_count), payload_length);
  for (const nic::LengthField& field : flow.lengths) {
    base::StoreBe16(image + field.at, static_cast<uint16_t>(field.constant + payload_length));
  }
}

// Brings the lengths of a flow's frame up to date. Not inlined: messages of one flow are mostly of
// one length.
[[gnu::noinline]] inline void SetPayloadLength(const nic::TxTemplate& flow,
                                               uint32_t payload_length) {
  nic::TxPrepared& frame = flow.frame;
  uint8_t* const image = frame.image.data();
  flow.payload_length = payload_length;
  const uint32_t bytes = flow.header_length + payload_length;
  SetStep(frame, bytes, WqebbsWithInline(bytes), flow.most_direct_blocks);
  image[7] = static_cast<uint8_t>(SegmentsWithInline(bytes));
  base::StoreBe16(image + 28, static_cast<uint16_t>(bytes));
  for (const nic::LengthField& field : flow.lengths) {
    base::StoreBe16(image + field.at, static_cast<uint16_t>(field.constant + payload_length));
  }
}

// The frame of a flow with this payload, at most max_payload_bytes.
[[gnu::always_inline]] inline const nic::TxPrepared& FrameOf(const nic::TxTemplate& flow,
                                                             const uint8_t* payload,
                                                             uint32_t payload_length) {
  if (payload_length != flow.payload_length) [[unlikely]] SetPayloadLength(flow, payload_length);
  CopyShort(flow.frame.image.data() + flow.payload_at, payload, payload_length);
  return flow.frame;
}

// The frame of a flow on its way into many WQEs, in registers: stores into WQEs do not make the
// compiler read it again.
struct FrameWriter {
  // As long as the flow's lengths stay as they are.
  explicit FrameWriter(const nic::TxTemplate& flow)
      : image{Load32(flow.frame.image.data()), Load32(flow.frame.image.data() + 32),
              Load32(flow.frame.image.data() + 64)},
        payload_at(flow.payload_at),
        payload_length(flow.payload_length),
        blocks(flow.frame.blocks()) {}

  // Writes the WQE of one frame; `wqebb_index` as for WriteControl. The first 96 bytes at `wqe` are
  // written in any case.
  [[gnu::always_inline]] void Write(uint8_t* wqe, uint32_t wqebb_index,
                                    const uint8_t* payload) const {
    static_assert(kInlineOffset + kMaxHeaderBytes <= sizeof(image));
    Store32(wqe, image[0]);
    Store32(wqe + 32, image[1]);
    Store32(wqe + 64, image[2]);
    base::StoreBe16(wqe + 1, static_cast<uint16_t>(wqebb_index));
    CopyShort(wqe + payload_at, payload, payload_length);
  }

  Bytes32 image[3];
  size_t payload_at;
  uint32_t payload_length;
  uint32_t blocks;
};

// --- TCP segments --------------------------------------------------------------------------------

inline constexpr uint32_t kMaxTcpHeaderBytes = 98;  // Ethernet, VLAN tag, IPv4, TCP with options.

// Writes a WQE of segmentation offload but for its control segment: the Ethernet segment with the
// header inline, then the payload's pieces. Its segments. PRM, "Large Send Offload".
inline uint32_t WriteSegments(uint8_t* wqe, const nic::TxSegments& segments) {
  constexpr uint64_t kChecksums = MLX5_ETH_WQE_L3_CSUM | MLX5_ETH_WQE_L4_CSUM;
  base::StoreBe64(wqe + 16, kChecksums << 24 | (segments.segment_bytes & 0xffff));
  base::StoreBe64(wqe + 24, uint64_t{segments.header_length} << 16);
  CopyShort(wqe + kInlineOffset, segments.header, segments.header_length);
  uint32_t count = SegmentsWithInline(segments.header_length);
  for (const nic::TxGather& piece : segments.payload) {
    WriteDataSegment(wqe + count++ * kSegmentBytes,
                     {reinterpret_cast<uintptr_t>(piece.data), piece.key}, piece.length);
  }
  return count;
}

// --- Any frame -----------------------------------------------------------------------------------

// Headers with many options are the rare ones.
[[gnu::always_inline]] inline void WriteHeader(uint8_t* to, const uint8_t* header,
                                               uint32_t header_length) {
  Copy64(to, header);
  if (header_length > 64) [[unlikely]] Copy64(to + 64, header + 64);
}

// Writes header and payload as inline bytes. Together at least kMinInlineBytes and at most
// kMaxInlineFrameBytes; the 64 (or 128) bytes at `wqe` + 30 are written in any case.
[[gnu::always_inline]] inline void WriteInlineFrame(uint8_t* wqe,
                                                    const uint8_t* header,
                                                    uint32_t header_length, const uint8_t* payload,
                                                    uint32_t payload_length) {
  uint8_t* to = wqe + kInlineOffset;
  WriteHeader(to, header, header_length);
  CopyShort(to + header_length, payload, payload_length);
}

// Writes the header inline and a data segment for the payload behind `header_segments`
// (SegmentsWithInline of the header's length).
inline void WriteGatheredFrame(uint8_t* wqe, const nic::TxFrame& frame, const Gather& payload,
                               uint32_t header_segments) {
  WriteHeader(wqe + kInlineOffset, frame.header, frame.header_length);
  WriteDataSegment(wqe + header_segments * kSegmentBytes, payload, frame.payload_length);
}

}  // namespace xtreme::mlx5

#endif  // XTREME_XTREME_MLX5_SEND_WQE_H_
