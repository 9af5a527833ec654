// SPDX-License-Identifier: Apache-2.0

#include "tools/connectx/device/send_queue.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tools/connectx/device/frame.h"

namespace xtreme::connectx {
namespace {

constexpr uint8_t kChecksumFlags = MLX5_ETH_WQE_L3_CSUM | MLX5_ETH_WQE_L4_CSUM;

uint32_t SegmentsOf(size_t bytes) {
  return static_cast<uint32_t>((bytes + kSegmentBytes - 1) / kSegmentBytes);
}

// Two bytes of the inline header stand in the Ethernet segment itself.
uint32_t HeaderSegments(uint32_t inline_bytes) {
  return 2 + (inline_bytes > 2 ? SegmentsOf(inline_bytes - 2) : 0);
}

}  // namespace

SendQueue::SendQueue(const QpRequest& request, uint32_t qpn, CompletionQueue* cq, QueueOwner* owner,
                     Environment* environment)
    : qpn_(qpn),
      context_(request.context),
      pd_(request.pd),
      uidx_(request.uidx),
      ring_(request.send.ring),
      wqebbs_(request.send.wqebbs),
      record_(&request.doorbell_record[MLX5_SND_DBR]),
      cq_(cq),
      owner_(owner),
      environment_(environment) {}

void SendQueue::SetState(QueueState state) {
  state_ = state;
  if (state == QueueState::kReset) consumer_ = target_ = 0;
  if (state != QueueState::kError) return;
  // A card flushes what is posted without being rung.
  Ring();
  environment_->look_at_all_pages = true;
}

void SendQueue::SetRate(uint32_t kbps) { pace_ = {.kbps = kbps}; }

void SendQueue::Ring() {
  if (state_ == QueueState::kReset) {
    Report(Rule::kQueueState, "doorbell before the queue is ready to send");
    return;
  }
  const uint16_t record = static_cast<uint16_t>(LoadRecord(record_));
  const uint16_t posted = static_cast<uint16_t>(record - consumer_);
  if (posted <= wqebbs_) {
    target_ = record;
    return;
  }
  if (state_ == QueueState::kError) return;
  Report(Rule::kSendOverrun,
         absl::StrFormat("record %u, next WQEBB %u, %u WQEBBs", record, consumer_, wqebbs_));
  target_ = consumer_;
  owner_->OnQueueError();
}

void SendQueue::CheckDoorbell(uint64_t rung, const uint8_t* slot) {
  uint8_t bytes[sizeof(rung)];
  std::memcpy(bytes, &rung, sizeof(rung));
  const uint16_t index = static_cast<uint16_t>(LoadBe32(bytes) >> 8);
  const uint16_t record = static_cast<uint16_t>(LoadRecord(record_));
  if (static_cast<int16_t>(index - record) >= 0) {
    Report(Rule::kDoorbellRecord,
           absl::StrFormat("doorbell for WQEBB %u, record %u", index, record));
    return;
  }
  // What has been executed may have been written over by now.
  if (static_cast<int16_t>(index - consumer_) < 0) return;
  uint8_t wqe[kBlueFlameBytes];
  const uint32_t offset = (index & (wqebbs_ - 1)) * kWqebbBytes;
  CopyFromRing(offset, std::min<size_t>(sizeof(wqe), size_t{wqebbs_} * kWqebbBytes), wqe);
  const bool same_start = std::memcmp(bytes, wqe, sizeof(bytes)) == 0;
  if (!same_start) {
    Report(Rule::kDoorbellBytes,
           absl::StrFormat("doorbell for WQEBB %u: not the WQE's first 8 bytes", index));
  }
  if (!same_start || !environment_->options.step) return;
  // In step mode the pump clears the register, so that anything in it is BlueFlame's.
  const uint32_t segments = LoadBe32(wqe + 4) & 0x3f;
  const size_t length = std::min<size_t>(segments * kSegmentBytes, kBlueFlameBytes);
  const auto written = [](uint8_t byte) { return byte != 0; };
  if (length <= sizeof(rung) || std::none_of(slot + sizeof(rung), slot + length, written)) return;
  if (std::memcmp(slot + sizeof(rung), wqe + sizeof(rung), length - sizeof(rung)) != 0) {
    Report(Rule::kDoorbellBytes,
           absl::StrFormat("BlueFlame of WQEBB %u differs from the ring", index));
  }
}

bool SendQueue::Run(Egress& egress, int budget) {
  bool ran = false;
  for (; has_work() && budget > 0; --budget) {
    if (state_ == QueueState::kReady && pace_.not_before_ns > environment_->pass.now_ns) break;
    ExecuteNext(egress);
    ran = true;
  }
  return ran;
}

const uint8_t* SendQueue::Segment(uint32_t segment) const {
  const uint32_t offset = consumer_ * kWqebbBytes + segment * kSegmentBytes;
  return ring_ + (offset & (wqebbs_ * kWqebbBytes - 1));
}

// `offset_bytes` is from the ring's start and may lie behind its end.
void SendQueue::CopyFromRing(uint32_t offset_bytes, size_t bytes, uint8_t* to) const {
  const size_t ring_bytes = size_t{wqebbs_} * kWqebbBytes;
  const size_t at = offset_bytes & (ring_bytes - 1);
  const size_t first = std::min(bytes, ring_bytes - at);
  CopyDma(to, ring_ + at, first);
  CopyDma(to + first, ring_, bytes - first);
}

void SendQueue::ExecuteNext(Egress& egress) {
  const auto* ctrl = reinterpret_cast<const mlx5_wqe_ctrl_seg*>(Segment(0));
  const uint32_t opmod_idx_opcode = be32toh(ctrl->opmod_idx_opcode);
  const uint32_t qpn_ds = be32toh(ctrl->qpn_ds);
  const uint16_t posted = static_cast<uint16_t>(target_ - consumer_);
  Wqe wqe{.opcode = opmod_idx_opcode & 0xff,
          .segments = qpn_ds & 0x3f,
          .index = consumer_,
          .completion = CompletionModeOf(ctrl->fm_ce_se)};
  const uint32_t wqebbs = (wqe.segments + kSegmentsPerWqebb - 1) / kSegmentsPerWqebb;
  wqe.wqebbs = static_cast<uint16_t>(std::clamp<uint32_t>(wqebbs, 1, posted));
  Fault fault{.syndrome = MLX5_CQE_SYNDROME_WR_FLUSH_ERR};
  if (state_ == QueueState::kReady) {
    fault = wqebbs > posted ? Refuse(Rule::kWqeSize, MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR, wqe,
                                     absl::StrFormat("%u segments, the record covers %u WQEBBs",
                                                     wqe.segments, posted))
                            : Check(wqe, (opmod_idx_opcode >> 8) & 0xffff, qpn_ds >> 8);
    if (fault.syndrome == 0 && wqe.opcode == MLX5_OPCODE_SEND) fault = Send(wqe, egress);
  }
  consumer_ = static_cast<uint16_t>(consumer_ + wqe.wqebbs);
  if (fault.syndrome == 0) {
    Complete(wqe);
  } else {
    CompleteInError(wqe, fault.syndrome, static_cast<uint8_t>(fault.rule));
  }
}

SendQueue::Fault SendQueue::Check(const Wqe& wqe, uint32_t index, uint32_t qpn) const {
  constexpr uint8_t kOpError = MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR;
  if (index != wqe.index) {
    return Refuse(Rule::kWqeIndex, kOpError, wqe, absl::StrFormat("WQE carries index %u", index));
  }
  if (qpn != qpn_) {
    return Refuse(Rule::kWqeQpn, kOpError, wqe, absl::StrFormat("WQE carries QPN %#x", qpn));
  }
  if (wqe.segments == 0) return Refuse(Rule::kWqeSize, kOpError, wqe, "no segments");
  if (wqe.opcode == MLX5_OPCODE_NOP || wqe.opcode == MLX5_OPCODE_SEND) return {};
  return Refuse(Rule::kOpcode, kOpError, wqe, absl::StrFormat("opcode %#x", wqe.opcode));
}

SendQueue::Fault SendQueue::Send(const Wqe& wqe, Egress& egress) {
  if (wqe.segments < 2) {
    return Refuse(Rule::kWqeSize, MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR, wqe, "no Ethernet segment");
  }
  const auto& eth = *reinterpret_cast<const mlx5_wqe_eth_seg*>(Segment(1));
  Fault fault = CheckHeader(wqe, eth);
  if (fault.syndrome != 0) return fault;
  const uint8_t checksums = eth.cs_flags & kChecksumFlags;
  std::span<const uint8_t> frame;
  fault = Gather(wqe, be16toh(eth.inline_hdr_sz), checksums == 0, &frame);
  if (fault.syndrome == 0) fault = CheckLength(wqe, frame);
  if (fault.syndrome != 0) return fault;
  if (checksums != 0) {
    FillChecksums({environment_->frame.data(), frame.size()},
                  (checksums & MLX5_ETH_WQE_L3_CSUM) != 0, (checksums & MLX5_ETH_WQE_L4_CSUM) != 0);
  }
  egress.Send(frame, context_);
  if (pace_.kbps != 0) Delay(frame.size());
  return {};
}

SendQueue::Fault SendQueue::CheckHeader(const Wqe& wqe, const mlx5_wqe_eth_seg& eth) const {
  constexpr uint8_t kOpError = MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR;
  const Device::Options& options = environment_->options;
  const uint32_t header_bytes = be16toh(eth.inline_hdr_sz);
  const bool offloads_checksums = options.features.checksum_offload;
  if ((eth.cs_flags & ~(offloads_checksums ? kChecksumFlags : 0)) != 0 || eth.mss != 0) {
    return Refuse(Rule::kFeature, kOpError, wqe,
                  absl::StrFormat("cs_flags %#x, mss %u", eth.cs_flags, be16toh(eth.mss)));
  }
  if (header_bytes > kInlineHeaderSizeMask) {
    return Refuse(Rule::kFeature, kOpError, wqe,
                  absl::StrFormat("inline_hdr_sz %#x asks for VLAN insertion", header_bytes));
  }
  if (HeaderSegments(header_bytes) > wqe.segments) {
    return Refuse(Rule::kWqeSize, kOpError, wqe,
                  absl::StrFormat("%u segments, %u header bytes", wqe.segments, header_bytes));
  }
  if (options.eth_min_inline == Device::MinInline::kL2 && header_bytes < kL2InlineBytes) {
    return Refuse(Rule::kInlineHeader, kOpError, wqe,
                  absl::StrFormat("%u header bytes inline, the device needs %u", header_bytes,
                                  kL2InlineBytes));
  }
  return {};
}

// Puts header and segments together in the environment's frame. A frame that is one piece of
// registered memory is left there when `contiguous_is_enough`: the wire's copy is then the only
// one.
SendQueue::Fault SendQueue::Gather(const Wqe& wqe, uint32_t header_bytes, bool contiguous_is_enough,
                                   std::span<const uint8_t>* frame) {
  uint8_t* const assembled = environment_->frame.data();
  uint32_t segment = HeaderSegments(header_bytes);
  size_t length = header_bytes;
  if (contiguous_is_enough && header_bytes == 0 && wqe.segments == segment + 1) {
    const auto& piece = *reinterpret_cast<const mlx5_wqe_data_seg*>(Segment(segment));
    const uint32_t bytes = be32toh(piece.byte_count);
    const uint8_t* memory =
        bytes < kMinFrameBytes || bytes > kMaxFrameBytes
            ? nullptr
            : environment_->memory.Translate(pd_, be32toh(piece.lkey), be64toh(piece.addr), bytes,
                                             /*write=*/false);
    if (memory != nullptr) {
      *frame = {memory, bytes};
      return {};
    }
  }
  CopyFromRing(wqe.index * kWqebbBytes + kSegmentBytes + kEthInlineOffset, header_bytes, assembled);
  while (segment < wqe.segments) {
    const bool in_ring = (LoadBe32(Segment(segment)) & MLX5_INLINE_SEG) != 0;
    const Fault fault =
        in_ring ? AppendInline(wqe, &segment, &length) : AppendMemory(wqe, segment++, &length);
    if (fault.syndrome != 0) return fault;
  }
  if (length >= kEthernetHeaderBytes && length < kMinFrameBytes) {
    std::memset(assembled + length, 0, kMinFrameBytes - length);
    length = kMinFrameBytes;
  }
  *frame = {assembled, length};
  return {};
}

SendQueue::Fault SendQueue::AppendInline(const Wqe& wqe, uint32_t* segment, size_t* length) {
  const uint32_t bytes = LoadBe32(Segment(*segment)) & ~uint32_t{MLX5_INLINE_SEG};
  const uint32_t segments = SegmentsOf(sizeof(mlx5_wqe_inl_data_seg) + size_t{bytes});
  if (segments > wqe.segments - *segment) {
    return Refuse(
        Rule::kWqeSize, MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR, wqe,
        absl::StrFormat("%u inline bytes in %u segments", bytes, wqe.segments - *segment));
  }
  const uint32_t at = wqe.index * kWqebbBytes + *segment * kSegmentBytes;
  // At most 63 segments: always within the frame's room when the header and the rest are.
  if (*length + bytes > kMaxFrameBytes) {
    return Refuse(Rule::kFrameLength, MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR, wqe,
                  absl::StrFormat("%u bytes and more", *length + bytes));
  }
  CopyFromRing(at + sizeof(mlx5_wqe_inl_data_seg), bytes, environment_->frame.data() + *length);
  *length += bytes;
  *segment += segments;
  return {};
}

SendQueue::Fault SendQueue::AppendMemory(const Wqe& wqe, uint32_t segment, size_t* length) {
  const auto& piece = *reinterpret_cast<const mlx5_wqe_data_seg*>(Segment(segment));
  const uint32_t bytes = be32toh(piece.byte_count);
  const uint32_t lkey = be32toh(piece.lkey);
  const uint64_t address = be64toh(piece.addr);
  // A byte count of 0 means 2^31 (PRM, data segment): never a frame.
  if (bytes == 0 || *length + bytes > kMaxFrameBytes) {
    return Refuse(Rule::kFrameLength, MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR, wqe,
                  absl::StrFormat("data segment of %u bytes behind %u", bytes, *length));
  }
  const uint8_t* memory =
      environment_->memory.Translate(pd_, lkey, address, bytes, /*write=*/false);
  if (memory == nullptr) {
    return Refuse(Rule::kMemoryKey, MLX5_CQE_SYNDROME_LOCAL_PROT_ERR, wqe,
                  absl::StrFormat("lkey %#x does not cover %u bytes at %#x", lkey, bytes, address));
  }
  CopyDma(environment_->frame.data() + *length, memory, bytes);
  *length += bytes;
  return {};
}

SendQueue::Fault SendQueue::CheckLength(const Wqe& wqe, std::span<const uint8_t> frame) const {
  size_t longest = environment_->options.mtu + kEthernetHeaderBytes;
  if (frame.size() > longest) longest += ParseFrame(frame).vlan_tags * kVlanTagBytes;
  if (frame.size() >= kEthernetHeaderBytes && frame.size() <= longest) return {};
  return Refuse(
      Rule::kFrameLength, MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR, wqe,
      absl::StrFormat("frame of %u bytes, MTU %u", frame.size(), environment_->options.mtu));
}

void SendQueue::Delay(size_t frame_bytes) {
  const int64_t start_ns = std::max(pace_.not_before_ns, environment_->pass.now_ns);
  pace_.not_before_ns = start_ns + static_cast<int64_t>(frame_bytes * 8 * 1'000'000 / pace_.kbps);
}

void SendQueue::Complete(const Wqe& wqe) {
  if (wqe.completion < CompletionMode::kAlways) return;
  mlx5_cqe64 cqe{};
  cqe.srqn_uidx = htobe32(uidx_);
  cqe.timestamp = htobe64(environment_->pass.cycles);
  cqe.sop_drop_qpn = htobe32(wqe.opcode << 24 | qpn_);
  cqe.wqe_counter = htobe16(wqe.index);
  const bool event = wqe.completion == CompletionMode::kAlwaysEvent;
  if (!cq_->Push(cqe, MLX5_CQE_REQ, event)) owner_->OnQueueError();
}

void SendQueue::CompleteInError(const Wqe& wqe, uint8_t syndrome, uint8_t vendor_syndrome) {
  const bool flushed = syndrome == MLX5_CQE_SYNDROME_WR_FLUSH_ERR;
  PortCounters& counters = environment_->counters;
  (flushed ? counters.request_cqe_flush_error : counters.request_cqe_error).Add(1);
  mlx5_cqe64 cqe{};
  auto* error = reinterpret_cast<mlx5_err_cqe*>(&cqe);
  error->srqn = htobe32(uidx_);
  error->vendor_err_synd = flushed ? 0 : vendor_syndrome;
  error->syndrome = syndrome;
  error->s_wqe_opcode_qpn = htobe32(wqe.opcode << 24 | qpn_);
  error->wqe_counter = htobe16(wqe.index);
  cq_->Push(cqe, MLX5_CQE_REQ_ERR, /*solicited=*/true);
  if (!flushed) owner_->OnQueueError();
}

void SendQueue::Report(Rule rule, std::string_view seen) const {
  environment_->violations.Report(rule, absl::StrFormat("QP %#x", qpn_), seen);
}

SendQueue::Fault SendQueue::Refuse(Rule rule, uint8_t syndrome, const Wqe& wqe,
                                   std::string_view seen) const {
  Report(rule, absl::StrCat("WQEBB ", wqe.index, ": ", std::string(seen)));
  return {.syndrome = syndrome, .rule = rule};
}

}  // namespace xtreme::connectx
