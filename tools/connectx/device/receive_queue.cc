// SPDX-License-Identifier: Apache-2.0

#include "tools/connectx/device/receive_queue.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_format.h"
#include "tools/connectx/device/layout.h"

namespace xtreme::connectx {
namespace {

constexpr uint8_t kTcpFlagAck = 0x10;
constexpr size_t kMacAddressesBytes = 12;

CqeL4Type L4Type(const Frame& frame) {
  if (frame.l4 == Frame::L4::kNone) return CqeL4Type::kNone;
  if (frame.l4 == Frame::L4::kUdp) return CqeL4Type::kUdp;
  const uint8_t* header = frame.bytes.data() + frame.l4_offset;
  if ((header[13] & kTcpFlagAck) == 0) return CqeL4Type::kTcpNoAck;
  const size_t header_bytes = (header[12] >> 4) * size_t{4};
  return frame.l4_bytes > header_bytes ? CqeL4Type::kTcpAckData : CqeL4Type::kTcpAck;
}

uint8_t L3Type(const Frame& frame) {
  if (frame.l3 == Frame::L3::kIpv4) return MLX5_CQE_L3_HDR_TYPE_IPV4;
  return frame.l3 == Frame::L3::kIpv6 ? MLX5_CQE_L3_HDR_TYPE_IPV6 : MLX5_CQE_L3_HDR_TYPE_NONE;
}

// What a hash was of: 1 TCP or 2 UDP in bits 7:6, 1 IPv4 or 2 IPv6 in bits 3:2.
uint8_t HashType(const Frame& frame) {
  const uint8_t l3 = frame.l3 == Frame::L3::kIpv4 ? 1 : 2;
  const uint8_t l4 = static_cast<uint8_t>(frame.l4);
  return static_cast<uint8_t>(l4 << 6 | l3 << 2);
}

}  // namespace

ReceiveQueue::ReceiveQueue(const ReceiveQueueRequest& request, uint32_t* record,
                           const Identity& identity, CompletionQueue* cq, QueueOwner* owner,
                           Environment* environment)
    : identity_(identity),
      ring_(request.ring),
      wqes_(request.wqes),
      wqe_shift_log2_(request.wqe_shift_log2),
      record_(record),
      cq_(cq),
      owner_(owner),
      environment_(environment),
      strip_vlan_(request.strip_vlan) {}

ReceiveQueue::~ReceiveQueue() { std::erase(environment_->receive_queues_in_error, this); }

void ReceiveQueue::SetState(QueueState state) {
  state_ = state;
  if (state == QueueState::kReset) producer_ = consumer_ = 0;
  std::erase(environment_->receive_queues_in_error, this);
  if (state == QueueState::kError) environment_->receive_queues_in_error.push_back(this);
}

void ReceiveQueue::Deliver(const Arrival& arrival) {
  if (state_ != QueueState::kReady) return;
  if (!TakePosted()) {
    if (state_ == QueueState::kReady) environment_->counters.out_of_buffer.Add(1);
    return;
  }
  const bool stripped = Strips(arrival.frame);
  const auto tag = arrival.frame.bytes.subspan(kMacAddressesBytes, stripped ? kVlanTagBytes : 0);
  const Fault fault = Scatter(arrival.frame.bytes, tag);
  if (fault.syndrome == 0) {
    Complete(arrival, stripped);
    return;
  }
  environment_->counters.response_cqe_error.Add(1);
  const bool completed = CompleteInError(fault.syndrome, VendorSyndrome(fault.rule));
  // A frame that is too long costs its WQE and nothing else: cards stay ready then, of which the
  // kernel's mlx5e says "not actually in ERR state" and recovers nothing.
  if (fault.rule != Rule::kReceiveLength || !completed) Fail(completed);
}

// True when a WQE is there to use. The record's line is the program's: it is looked at when all
// that it told of is used up, and in step mode always.
bool ReceiveQueue::TakePosted() {
  if (!environment_->options.step && consumer_ != producer_) return true;
  producer_ = static_cast<uint16_t>(LoadRecord(record_));
  const uint16_t posted = static_cast<uint16_t>(producer_ - consumer_);
  if (posted <= wqes_) return posted != 0;
  environment_->violations.Report(
      Rule::kReceiveOverrun, absl::StrFormat("RQ %#x", identity_.number),
      absl::StrFormat("record %u, next WQE %u, %u WQEs", producer_, consumer_, wqes_));
  producer_ = consumer_;
  Fail(/*completed=*/false);
  return false;
}

bool ReceiveQueue::Strips(const Frame& frame) const {
  return strip_vlan_ && frame.StartsWithCustomerTag();
}

ReceiveQueue::Fault ReceiveQueue::Scatter(std::span<const uint8_t> frame,
                                          std::span<const uint8_t> gap) {
  // Up to the gap, then what is behind it.
  std::span<const uint8_t> behind;
  if (!gap.empty()) {
    behind = frame.subspan(static_cast<size_t>(gap.data() - frame.data()) + gap.size());
    frame = frame.first(static_cast<size_t>(gap.data() - frame.data()));
  }
  const uint8_t* wqe = ring_ + (size_t{consumer_ & (wqes_ - 1)} << wqe_shift_log2_);
  const auto* segment = reinterpret_cast<const mlx5_wqe_data_seg*>(wqe);
  const auto* end = segment + (size_t{1} << wqe_shift_log2_) / sizeof(*segment);
  for (; !frame.empty() && segment != end; ++segment) {
    const uint32_t lkey = be32toh(segment->lkey);
    if (lkey == MLX5_INVALID_LKEY) break;
    const uint32_t length = be32toh(segment->byte_count);
    const uint64_t address = be64toh(segment->addr);
    uint8_t* memory =
        environment_->memory.Translate(identity_.pd, lkey, address, length, /*write=*/true);
    if (memory == nullptr) {
      environment_->violations.Report(
          Rule::kMemoryKey, absl::StrFormat("RQ %#x", identity_.number),
          absl::StrFormat("WQE %u: lkey %#x does not let %u bytes at %#x be written", consumer_,
                          lkey, length, address));
      return {MLX5_CQE_SYNDROME_LOCAL_PROT_ERR, Rule::kMemoryKey};
    }
    size_t room = length;
    while (room != 0 && !frame.empty()) {
      const size_t bytes = std::min(room, frame.size());
      CopyDma(memory, frame.data(), bytes);
      memory += bytes;
      room -= bytes;
      frame = frame.subspan(bytes);
      if (frame.empty()) frame = std::exchange(behind, {});
    }
  }
  if (frame.empty()) return {};
  environment_->counters.response_local_length_error.Add(1);
  environment_->violations.Report(
      Rule::kReceiveLength, absl::StrFormat("RQ %#x", identity_.number),
      absl::StrFormat("WQE %u: %u bytes of the frame have no room", consumer_, frame.size()));
  return {MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR, Rule::kReceiveLength};
}

void ReceiveQueue::Complete(const Arrival& arrival, bool stripped) {
  mlx5_cqe64 cqe{};
  const Frame& frame = arrival.frame;
  auto* bytes = reinterpret_cast<uint8_t*>(&cqe);
  StoreBe32(bytes + kCqeRxHashOffset, arrival.rx_hash);
  if (arrival.rx_hash != 0) bytes[kCqeRxHashTypeOffset] = HashType(frame);
  cqe.hds_ip_ext =
      static_cast<uint8_t>(MLX5_CQE_L2_OK | (arrival.verdict.l3_ok ? MLX5_CQE_L3_OK : 0) |
                           (arrival.verdict.l4_ok ? MLX5_CQE_L4_OK : 0));
  cqe.l4_hdr_type_etc =
      static_cast<uint8_t>(static_cast<uint8_t>(L4Type(frame)) << 4 | L3Type(frame) << 2 |
                           (stripped ? kCqeVlanStripped : 0));
  if (stripped) cqe.vlan_info = htobe16(frame.vlan_tci);
  cqe.srqn_uidx = htobe32(identity_.uidx);
  const size_t length = frame.bytes.size() - (stripped ? kVlanTagBytes : 0);
  cqe.byte_cnt = htobe32(static_cast<uint32_t>(length));
  cqe.timestamp = htobe64(cq_->TimestampAt(arrival.time_ns));
  cqe.sop_drop_qpn = htobe32(arrival.flow_tag);
  cqe.wqe_counter = htobe16(consumer_);
  ++consumer_;
  if (!cq_->Push(cqe, MLX5_CQE_RESP_SEND, /*solicited=*/false)) Fail(/*completed=*/false);
}

bool ReceiveQueue::CompleteInError(uint8_t syndrome, uint8_t vendor_syndrome) {
  mlx5_cqe64 cqe{};
  auto* error = reinterpret_cast<mlx5_err_cqe*>(&cqe);
  error->srqn = htobe32(identity_.uidx);
  error->vendor_err_synd = vendor_syndrome;
  error->syndrome = syndrome;
  error->s_wqe_opcode_qpn = htobe32(identity_.number);
  error->wqe_counter = htobe16(consumer_);
  ++consumer_;
  return cq_->Push(cqe, MLX5_CQE_RESP_ERR, /*solicited=*/true);
}

bool ReceiveQueue::FlushPosted() {
  if (state_ != QueueState::kError) return false;
  const uint16_t producer = static_cast<uint16_t>(LoadRecord(record_));
  const uint16_t posted = static_cast<uint16_t>(producer - consumer_);
  if (posted == 0 || posted > wqes_) return false;
  while (consumer_ != producer) {
    environment_->counters.response_cqe_flush_error.Add(1);
    CompleteInError(MLX5_CQE_SYNDROME_WR_FLUSH_ERR, kFlushVendorSyndrome);
  }
  producer_ = producer;
  return true;
}

// The pump then flushes what is posted.
void ReceiveQueue::Fail(bool completed) {
  SetState(QueueState::kError);
  owner_->OnQueueError(completed);
}

}  // namespace xtreme::connectx
