// SPDX-License-Identifier: Apache-2.0

#include "tools/connectx/device/send_queue.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace xtreme::connectx {
namespace {

constexpr uint8_t kOpError = MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR;

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
  segments_sent_ = 0;
  if (state == QueueState::kReset) consumer_ = target_ = 0;
  if (state != QueueState::kError) return;
  // A card flushes what is posted without being rung.
  Ring();
  environment_->look_at_all_pages = true;
}

void SendQueue::SetRate(const Rate& rate) {
  constexpr uint64_t kNsKbit = 8'000'000;
  pace_ = {.rate = rate};
  if (rate.kbps == 0) return;
  pace_.burst_ns = static_cast<int64_t>(rate.burst_bytes * kNsKbit / rate.kbps);
}

void SendQueue::Ring() {
  if (state_ == QueueState::kReset) {
    // With nothing posted it was another's, of the same page.
    if (LoadRecord(record_) == 0) return;
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
  Fail(/*completed=*/false);
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
  const WqeStart wqe = StartOf(index);
  if (std::memcmp(bytes, wqe.bytes.data(), sizeof(bytes)) != 0) {
    Report(Rule::kDoorbellBytes,
           absl::StrFormat("doorbell for WQEBB %u: not the WQE's first 8 bytes", index));
    return;
  }
  if (environment_->options.step && !MayLieInBlueFlame(slot, index)) {
    Report(Rule::kDoorbellBytes,
           absl::StrFormat("BlueFlame of WQEBB %u differs from the ring", index));
  }
}

SendQueue::WqeStart SendQueue::StartOf(uint16_t index) const {
  WqeStart start;
  const uint32_t offset = (index & (wqebbs_ - 1)) * kWqebbBytes;
  CopyFromRing(offset, std::min(start.bytes.size(), size_t{wqebbs_} * kWqebbBytes),
               start.bytes.data());
  start.segments = LoadBe32(start.bytes.data() + 4) & 0x3f;
  return start;
}

// In step mode the pump clears the register, so that anything in it is BlueFlame's: of the WQE that
// was rung for, or of those before it, the later over the earlier, which nobody looked at yet and
// over which a doorbell's eight bytes were written since.
bool SendQueue::MayLieInBlueFlame(const uint8_t* slot, uint16_t index) const {
  std::vector<WqeStart> posted;
  const auto span = static_cast<uint16_t>(index - consumer_);
  for (uint32_t i = 0; i < std::min<uint32_t>(span, wqebbs_); i += posted.back().wqebbs()) {
    posted.push_back(StartOf(static_cast<uint16_t>(consumer_ + i)));
  }
  posted.push_back(StartOf(index));
  const size_t most = posted.back().length();
  size_t explained = sizeof(uint64_t);
  for (auto wqe = posted.rbegin(); wqe != posted.rend() && explained < most; ++wqe) {
    const size_t length = std::min(wqe->length(), most);
    if (length <= explained) continue;
    if (!std::equal(slot + explained, slot + length, wqe->bytes.data() + explained)) continue;
    explained = std::min(most, (length + kWqebbBytes - 1) / kWqebbBytes * kWqebbBytes);
  }
  return std::all_of(slot + explained, slot + std::max(explained, most),
                     [](uint8_t byte) { return byte == 0; });
}

bool SendQueue::Run(Egress& egress, int budget) {
  bool ran = false;
  for (; has_work() && budget > 0; --budget) {
    if (state_ == QueueState::kReady && MustWait()) {
      pace_.waiting = true;
      return ran;
    }
    ExecuteNext(egress);
    ran = true;
  }
  if (!has_work()) pace_.waiting = false;
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
    // The program may have written another WQE over one that its pace interrupted.
    if (wqe.opcode != MLX5_OPCODE_TSO) segments_sent_ = 0;
    fault = wqebbs > posted ? Refuse(Rule::kWqeSize, kOpError, wqe,
                                     absl::StrFormat("%u segments, the record covers %u WQEBBs",
                                                     wqe.segments, posted))
                            : Check(wqe, (opmod_idx_opcode >> 8) & 0xffff, qpn_ds >> 8);
    if (fault.syndrome == 0 && wqe.opcode != MLX5_OPCODE_NOP) fault = Send(wqe, egress);
    if (fault.syndrome == 0 && segments_sent_ != 0) return;
  }
  consumer_ = static_cast<uint16_t>(consumer_ + wqe.wqebbs);
  if (fault.syndrome == 0) {
    Complete(wqe);
  } else {
    CompleteInError(wqe, fault);
  }
}

SendQueue::Fault SendQueue::Check(const Wqe& wqe, uint32_t index, uint32_t qpn) const {
  if (index != wqe.index) {
    return Refuse(Rule::kWqeIndex, kOpError, wqe, absl::StrFormat("WQE carries index %u", index));
  }
  if (qpn != qpn_) {
    return Refuse(Rule::kWqeQpn, kOpError, wqe, absl::StrFormat("WQE carries QPN %#x", qpn));
  }
  if (wqe.segments == 0) return Refuse(Rule::kWqeSize, kOpError, wqe, "no segments");
  if (wqe.opcode == MLX5_OPCODE_NOP || wqe.opcode == MLX5_OPCODE_SEND) return {};
  if (wqe.opcode == MLX5_OPCODE_TSO && environment_->options.limits.tso_bytes != 0) return {};
  return Refuse(Rule::kOpcode, kOpError, wqe, absl::StrFormat("opcode %#x", wqe.opcode));
}

bool SendQueue::MustWait() const {
  return pace_.rate.kbps != 0 && not_before_ns() > environment_->pass.now_ns;
}

// A frame costs its bytes at the rate, to the nanosecond. A queue that had work all the time
// catches up with what a late pump cost it; one that was idle starts from now.
void SendQueue::Delay(size_t frame_bytes) {
  constexpr int64_t kCatchUpNs = 100'000'000;
  constexpr uint64_t kNsKbit = 8'000'000;  // Nanoseconds that one byte takes at 1 kbit/s.
  if (pace_.rate.kbps == 0) return;
  const int64_t now_ns = environment_->pass.now_ns;
  const int64_t earliest_ns = pace_.waiting ? now_ns - kCatchUpNs : now_ns;
  const uint64_t cost = frame_bytes * kNsKbit + pace_.remainder;
  pace_.next_ns =
      std::max(pace_.next_ns, earliest_ns) + static_cast<int64_t>(cost / pace_.rate.kbps);
  pace_.remainder = cost % pace_.rate.kbps;
}

void SendQueue::Complete(const Wqe& wqe) {
  if (wqe.completion < CompletionMode::kAlways) return;
  mlx5_cqe64 cqe{};
  cqe.srqn_uidx = htobe32(uidx_);
  cqe.timestamp = htobe64(cq_->TimestampAt(environment_->pass.now_ns));
  cqe.sop_drop_qpn = htobe32(wqe.opcode << 24 | qpn_);
  cqe.wqe_counter = htobe16(wqe.index);
  const bool event = wqe.completion == CompletionMode::kAlwaysEvent;
  if (!cq_->Push(cqe, MLX5_CQE_REQ, event)) Fail(/*completed=*/false);
}

void SendQueue::CompleteInError(const Wqe& wqe, const Fault& fault) {
  const bool flushed = fault.syndrome == MLX5_CQE_SYNDROME_WR_FLUSH_ERR;
  PortCounters& counters = environment_->counters;
  (flushed ? counters.request_cqe_flush_error : counters.request_cqe_error).Add(1);
  mlx5_cqe64 cqe{};
  auto* error = reinterpret_cast<mlx5_err_cqe*>(&cqe);
  error->srqn = htobe32(uidx_);
  error->vendor_err_synd = flushed ? kFlushVendorSyndrome : VendorSyndrome(fault.rule);
  error->syndrome = fault.syndrome;
  error->s_wqe_opcode_qpn = htobe32(wqe.opcode << 24 | qpn_);
  error->wqe_counter = htobe16(wqe.index);
  const bool completed = cq_->Push(cqe, MLX5_CQE_REQ_ERR, /*solicited=*/true);
  if (!flushed) Fail(completed);
}

void SendQueue::Fail(bool completed) {
  SetState(QueueState::kError);
  owner_->OnQueueError(completed);
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
