// SPDX-License-Identifier: Apache-2.0
//
// What a send WQE says, and the frames that leave because of it.

#include <algorithm>
#include <cstring>

#include "absl/strings/str_format.h"
#include "tools/connectx/device/frame.h"
#include "tools/connectx/device/segmentation.h"
#include "tools/connectx/device/send_queue.h"

namespace xtreme::connectx {
namespace {

constexpr uint8_t kOpError = MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR;
constexpr uint8_t kLengthError = MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR;
constexpr uint8_t kChecksumFlags = MLX5_ETH_WQE_L3_CSUM | MLX5_ETH_WQE_L4_CSUM;
constexpr size_t kMacAddressesBytes = 12;

uint32_t SegmentsOf(size_t bytes) {
  return static_cast<uint32_t>((bytes + kSegmentBytes - 1) / kSegmentBytes);
}

// Two bytes of the inline header stand in the Ethernet segment itself.
uint32_t HeaderSegments(uint32_t inline_bytes) {
  return 2 + (inline_bytes > 2 ? SegmentsOf(inline_bytes - 2) : 0);
}

}  // namespace

SendQueue::Fault SendQueue::Send(const Wqe& wqe, Egress& egress) {
  Ethernet eth;
  Fault fault = ReadEthernet(wqe, &eth);
  if (fault.syndrome == 0) fault = CheckInline(wqe, eth);
  if (fault.syndrome == 0) fault = Collect(wqe, eth);
  if (fault.syndrome != 0) return fault;
  return wqe.opcode == MLX5_OPCODE_TSO ? SendSegments(wqe, eth, egress)
                                       : SendWhole(wqe, eth, egress);
}

SendQueue::Fault SendQueue::ReadEthernet(const Wqe& wqe, Ethernet* eth) const {
  if (wqe.segments < 2) return Refuse(Rule::kWqeSize, kOpError, wqe, "no Ethernet segment");
  const auto& segment = *reinterpret_cast<const mlx5_wqe_eth_seg*>(Segment(1));
  const Device::Features& features = environment_->options.features;
  const uint16_t header = be16toh(segment.inline_hdr_sz);
  eth->checksums = segment.cs_flags & kChecksumFlags;
  eth->mss = be16toh(segment.mss);
  const bool segmented = wqe.opcode == MLX5_OPCODE_TSO;
  const uint8_t offered = features.checksum_offload ? kChecksumFlags : 0;
  if ((segment.cs_flags & ~offered) != 0 || (eth->mss != 0) != segmented) {
    return Refuse(Rule::kFeature, kOpError, wqe,
                  absl::StrFormat("cs_flags %#x, mss %u", segment.cs_flags, eth->mss));
  }
  if ((header & kInsertVlan) == 0) {
    eth->header_bytes = header;
    if (header <= kInlineHeaderSizeMask) return {};
  } else if (features.vlan_insertion) {
    const uint32_t tpid = (header & kInsertServiceTag) != 0 ? kServiceTagTpid : kCustomerTagTpid;
    eth->vlan_tag = tpid << 16 | LoadBe16(segment.inline_hdr_start);
    return {};
  }
  return Refuse(Rule::kFeature, kOpError, wqe, absl::StrFormat("inline_hdr_sz %#x", header));
}

SendQueue::Fault SendQueue::CheckInline(const Wqe& wqe, const Ethernet& eth) const {
  if (HeaderSegments(eth.header_bytes) > wqe.segments) {
    return Refuse(Rule::kWqeSize, kOpError, wqe,
                  absl::StrFormat("%u segments, %u header bytes", wqe.segments, eth.header_bytes));
  }
  const bool needs_l2 = environment_->options.eth_min_inline == Device::MinInline::kL2;
  if (needs_l2 && eth.header_bytes < kL2InlineBytes) {
    return Refuse(Rule::kInlineHeader, kOpError, wqe,
                  absl::StrFormat("%u header bytes inline, the device needs %u", eth.header_bytes,
                                  kL2InlineBytes));
  }
  return {};
}

// Lists what stands behind the headers, checked.
SendQueue::Fault SendQueue::Collect(const Wqe& wqe, const Ethernet& eth) {
  environment_->gather.Clear();
  uint32_t segment = HeaderSegments(eth.header_bytes);
  while (segment < wqe.segments) {
    const bool in_ring = (LoadBe32(Segment(segment)) & MLX5_INLINE_SEG) != 0;
    const Fault fault =
        in_ring ? CollectInline(wqe, &segment) : CollectMemory(wqe, segment++);
    if (fault.syndrome != 0) return fault;
  }
  const bool segmented = wqe.opcode == MLX5_OPCODE_TSO;
  const size_t limit =
      segmented ? environment_->options.limits.tso_bytes : kMaxFrameBytes - kVlanTagBytes;
  const size_t bytes = (segmented ? 0 : eth.header_bytes) + environment_->gather.remaining();
  if (bytes <= limit) return {};
  return Refuse(Rule::kFrameLength, kLengthError, wqe,
                absl::StrFormat("%u bytes, at most %u", bytes, limit));
}

SendQueue::Fault SendQueue::CollectInline(const Wqe& wqe, uint32_t* segment) {
  const uint32_t bytes = LoadBe32(Segment(*segment)) & ~uint32_t{MLX5_INLINE_SEG};
  const uint32_t segments = SegmentsOf(sizeof(mlx5_wqe_inl_data_seg) + size_t{bytes});
  if (segments > wqe.segments - *segment) {
    return Refuse(
        Rule::kWqeSize, kOpError, wqe,
        absl::StrFormat("%u inline bytes in %u segments", bytes, wqe.segments - *segment));
  }
  const size_t ring_bytes = size_t{wqebbs_} * kWqebbBytes;
  const uint32_t start =
      wqe.index * kWqebbBytes + *segment * kSegmentBytes + sizeof(mlx5_wqe_inl_data_seg);
  const size_t at = start & (ring_bytes - 1);
  const size_t first = std::min<size_t>(bytes, ring_bytes - at);
  if (first != 0) environment_->gather.Add(ring_ + at, first);
  if (first != bytes) environment_->gather.Add(ring_, bytes - first);
  *segment += segments;
  return {};
}

SendQueue::Fault SendQueue::CollectMemory(const Wqe& wqe, uint32_t segment) {
  const auto& piece = *reinterpret_cast<const mlx5_wqe_data_seg*>(Segment(segment));
  const uint32_t bytes = be32toh(piece.byte_count);
  const uint32_t lkey = be32toh(piece.lkey);
  const uint64_t address = be64toh(piece.addr);
  const uint32_t longest =
      std::max<uint32_t>(kMaxFrameBytes, environment_->options.limits.tso_bytes);
  // A byte count of 0 means 2^31 (PRM, data segment): never a frame.
  if (bytes == 0 || bytes > longest) {
    return Refuse(Rule::kFrameLength, kLengthError, wqe,
                  absl::StrFormat("data segment of %u bytes", bytes));
  }
  const uint8_t* memory =
      environment_->memory.Translate(pd_, lkey, address, bytes, /*write=*/false);
  if (memory == nullptr) {
    return Refuse(Rule::kMemoryKey, MLX5_CQE_SYNDROME_LOCAL_PROT_ERR, wqe,
                  absl::StrFormat("lkey %#x does not cover %u bytes at %#x", lkey, bytes, address));
  }
  environment_->gather.Add(memory, bytes);
  return {};
}

SendQueue::Fault SendQueue::SendWhole(const Wqe& wqe, const Ethernet& eth, Egress& egress) {
  const size_t bytes = eth.header_bytes + environment_->gather.remaining();
  if (bytes < kEthernetHeaderBytes) {
    return Refuse(Rule::kFrameLength, kLengthError, wqe,
                  absl::StrFormat("frame of %u bytes", bytes));
  }
  return Emit(wqe, eth, Assemble(wqe, eth), egress);
}

// One frame of header and payload, in the environment's room for it. One that is a single piece of
// registered memory and needs nothing is left there: the wire's copy is then the only one.
std::span<const uint8_t> SendQueue::Assemble(const Wqe& wqe, const Ethernet& eth) {
  GatherList& gather = environment_->gather;
  const bool as_it_is = eth.header_bytes == 0 && eth.vlan_tag == 0 && eth.checksums == 0;
  if (as_it_is && gather.count() == 1 && gather.remaining() >= kMinFrameBytes) {
    return gather.piece(0);
  }
  uint8_t* const frame = environment_->frame.data();
  CopyFromRing(wqe.index * kWqebbBytes + kSegmentBytes + kEthInlineOffset, eth.header_bytes, frame);
  size_t length = eth.header_bytes;
  if (eth.vlan_tag != 0) {
    gather.Take(kMacAddressesBytes, frame);
    StoreBe32(frame + kMacAddressesBytes, eth.vlan_tag);
    length = kMacAddressesBytes + kVlanTagBytes;
  }
  const size_t rest = gather.remaining();
  gather.Take(rest, frame + length);
  length += rest;
  if (length < kMinFrameBytes) {
    std::memset(frame + length, 0, kMinFrameBytes - length);
    length = kMinFrameBytes;
  }
  return {frame, length};
}

SendQueue::Fault SendQueue::SendSegments(const Wqe& wqe, const Ethernet& eth, Egress& egress) {
  std::array<uint8_t, kInlineHeaderSizeMask + 1> whole;
  CopyFromRing(wqe.index * kWqebbBytes + kSegmentBytes + kEthInlineOffset, eth.header_bytes,
               whole.data());
  const auto header = ParseSegmentedHeader(std::span(whole).first(eth.header_bytes));
  if (!header) {
    return Refuse(Rule::kSegmentation, kOpError, wqe,
                  absl::StrFormat("%u inline bytes are not the headers of a TCP segment",
                                  eth.header_bytes));
  }
  GatherList& payload = environment_->gather;
  uint8_t* const frame = environment_->frame.data();
  uint32_t sent = segments_sent_;
  const size_t sent_bytes = size_t{sent} * eth.mss;
  if (sent != 0 && sent_bytes >= payload.remaining()) {
    return Refuse(Rule::kSegmentation, kOpError, wqe,
                  absl::StrFormat("of %u bytes, %u of which were sent already",
                                  payload.remaining(), sent_bytes));
  }
  payload.Skip(sent_bytes);
  segments_sent_ = 0;
  do {
    if (segments_sent_ != 0 && MustWait()) return {};
    const TcpSegment segment{
        .index = sent,
        .payload_offset = sent * eth.mss,
        .payload_bytes = std::min(eth.mss, static_cast<uint32_t>(payload.remaining())),
        .last = payload.remaining() <= eth.mss};
    std::memcpy(frame, whole.data(), header->bytes);
    const size_t bytes = header->bytes + segment.payload_bytes;
    if (bytes <= kMaxFrameBytes) payload.Take(segment.payload_bytes, frame + header->bytes);
    WriteSegmentHeader(*header, segment, frame);
    if (bytes < kMinFrameBytes) std::memset(frame + bytes, 0, kMinFrameBytes - bytes);
    const Fault fault = Emit(wqe, eth, {frame, std::max(bytes, kMinFrameBytes)}, egress);
    segments_sent_ = fault.syndrome == 0 ? ++sent : 0;
    if (fault.syndrome != 0) return fault;
  } while (payload.remaining() != 0);
  segments_sent_ = 0;
  return {};
}

// A frame with its headers in place: what is left is checksums, the wire, and the pace.
SendQueue::Fault SendQueue::Emit(const Wqe& wqe, const Ethernet& eth,
                                 std::span<const uint8_t> frame, Egress& egress) {
  if (const Fault fault = CheckLength(wqe, frame); fault.syndrome != 0) return fault;
  if (eth.checksums != 0) {
    FillChecksums({environment_->frame.data(), frame.size()},
                  (eth.checksums & MLX5_ETH_WQE_L3_CSUM) != 0,
                  (eth.checksums & MLX5_ETH_WQE_L4_CSUM) != 0);
  }
  egress.Send(frame, context_);
  Delay(frame.size());
  return {};
}

SendQueue::Fault SendQueue::CheckLength(const Wqe& wqe, std::span<const uint8_t> frame) const {
  size_t longest = environment_->greatest_mtu + kEthernetHeaderBytes;
  if (frame.size() > longest && frame.size() <= kMaxFrameBytes) {
    longest += ParseFrame(frame).vlan_tags * kVlanTagBytes;
  }
  if (frame.size() <= longest) return {};
  return Refuse(
      Rule::kFrameLength, kLengthError, wqe,
      absl::StrFormat("frame of %u bytes, MTU %u", frame.size(), environment_->greatest_mtu));
}

}  // namespace xtreme::connectx
