// SPDX-License-Identifier: Apache-2.0
//
// From a CQE to the completion of a packet: in one loop, for each of the two forms, and of a frame
// that is alone without it.
//
// Invariant: what is taken here are received frames, whole and verified, of flows that are known;
// the first that is anything else is left to ReceiveQueue::Poll().

#include <algorithm>

#include "xtreme/completion/known_flows_write.h"
#include "xtreme/completion/link_flows_write.h"
#include "xtreme/mlx5/cqe.h"
#include "xtreme/mlx5/queue_pair.h"

namespace xtreme::mlx5 {

constexpr uint8_t kVerdicts = MLX5_CQE_L3_OK | MLX5_CQE_L4_OK;
// Where a plain frame has its protocol; of any other it is some byte.
constexpr uint32_t kProtocolAt = wire::kEthernetHeaderBytes + 9;
static_assert(kProtocolAt < completion::KnownFlows::kLeastFrameBytes);

// What comes of a frame that is no completion alone; false: it was not taken.
template <typename Flows>
[[gnu::always_inline]] inline bool GoesOnAfter(completion::KnownFlows::Taken taken,
                                               const Flows& flows, typename Flows::Out** out,
                                               uint32_t* left, uint32_t* silent) {
  using Taken = completion::KnownFlows::Taken;
  if (taken == Taken::kNot) {
    flows.Decline();
    return false;
  }
  if (taken == Taken::kSilently) {
    --*out;  // Its place is the next one's.
    ++*silent;
  }
  if (taken == Taken::kFirst) *left = 1;
  return true;
}

// Whether both checksums are good, and in one: no frame without headers, or longer than its buffer.
[[gnu::always_inline]] inline bool ReceiveQueue::MayBeKnown(const mlx5_cqe64& cqe,
                                                            uint32_t length) const {
  const bool verified = (cqe.hds_ip_ext & kVerdicts) == kVerdicts;
  const bool fits = length - completion::KnownFlows::kLeastFrameBytes < known_below_;
  return verified && fits;
}

// The ring ends where both do, or the WQEs' alone.
[[gnu::always_inline]] inline bool ReceiveQueue::GoesOn(const uint8_t* op_own) const {
  if ((completions_.consumer() & mask_) == mask_) return false;
  // Whether to take the loop, and nothing of the frame: that orders its own loads.
  const uint8_t first = __atomic_load_n(op_own, __ATOMIC_RELAXED);
  const uint8_t second = __atomic_load_n(op_own + kCqeBytes, __ATOMIC_RELAXED);
  return ((first ^ second) & 1) == 0;
}

// No further than to the ring's end, so that nothing in the loop wraps. There are at least as many
// CQEs as WQEs: their ring ends where that of the WQEs does, or not here. What is not needed at
// every turn has no register in the loop.
template <typename Flows>
[[gnu::always_inline]] inline const uint8_t* ReceiveQueue::PollKnown(
    const Flows& flows, const uint8_t* op_own, uint8_t phase, typename Flows::Out* out,
    uint32_t most, Sums* sums) {
  using completion::KnownFlows;
  const uint32_t slot = completions_.consumer() & mask_;
  uint32_t left = std::min(most, size() - slot);
  if (left == 0) [[unlikely]] return op_own;
  const uint32_t received = ReceivedOpOwn(phase);
  const Posted* posted = &posted_[slot];
  uint8_t* data = posted->data;
  uint32_t sum = 0;
  for (;;) {
    // The owner bit first: the device writes it last.
    const mlx5_cqe64& cqe = *CqeOfOpOwn(op_own);
    if (!IsReceivedFrame(LoadOpOwn(cqe), received)) break;
    const uint32_t length = FrameBytes(cqe);
    const bool verified = (cqe.hds_ip_ext & kVerdicts) == kVerdicts;
    // In one: a frame without headers, or longer than its buffer.
    const bool fits = length - KnownFlows::kLeastFrameBytes < known_below_;
    if (!verified || !fits) [[unlikely]] {
      flows.Decline();
      break;
    }
    if (!flows.Write(posted->buffer, data, length, HardwareClock(cqe), out)) [[unlikely]] {
      const KnownFlows::Taken taken =
          flows.AskOthers(posted->buffer, data, length, HardwareClock(cqe), out);
      const bool seldom = taken != KnownFlows::Taken::kCompletion;
      if (seldom && !GoesOnAfter(taken, flows, &out, &left, &sums->silent)) break;
    }
    sum += length;
    op_own += kCqeBytes;
    if (--left == 0) break;
    ++posted;
    ++out;
    data = posted->data;
    __builtin_prefetch(data);
  }
  sums->bytes += sum;
  return op_own;
}

[[gnu::always_inline]] inline packet::Buffer* ReceiveQueue::TakeKnown(
    const completion::KnownFlows& flows, const udp::Endpoint* endpoint, size_t most,
    const uint8_t* op_own, uint8_t phase, uint64_t* bytes) {
  const mlx5_cqe64& cqe = *CqeOfOpOwn(op_own);
  if (!IsReceivedFrame(LoadOpOwn(cqe), ReceivedOpOwn(phase))) return nullptr;
  const uint32_t length = FrameBytes(cqe);
  if (!MayBeKnown(cqe, length)) [[unlikely]] return nullptr;
  const Posted& posted = next();
  if (!flows.Take(endpoint, posted.buffer, posted.data, length, most)) return nullptr;
  *bytes += length;
  return posted.buffer;
}

template <typename Flows>
[[gnu::always_inline]] inline uint32_t QueuePair::PollInto(const Flows& flows,
                                                           typename Flows::Out* out,
                                                           uint32_t most) {
  ReceiveQueue::Sums sums;
  const auto first = [this] { return receive_peek_; };
  const uint8_t* const after = receive_.PollKnown(flows, first(), receive_phase_, out,
                                                  std::min(most, receive_posted_), &sums);
  const auto passed = static_cast<uint32_t>(after - first()) / kCqeBytes;
  counters_.rx_bytes += sums.bytes;
  receive_peek_ = after;
  receive_posted_ -= passed;
  counters_.rx_frames += passed;
  if (receive_.Pass(passed)) [[unlikely]] ShowNextCqe();
  return passed - sums.silent;
}

[[gnu::always_inline]] inline void QueuePair::PassOne() {
  receive_peek_ += kCqeBytes;
  --receive_posted_;
  ++counters_.rx_frames;
  if (receive_.Pass(1)) [[unlikely]] ShowNextCqe();
}

// A frame behind which there is none, or no room, has nothing to share with others: it goes without
// the loop and what that is set up with. Who polls looks whether another came meanwhile.
uint32_t QueuePair::PollKnown(const completion::KnownFlows& flows, completion::Completion* out,
                              uint32_t most) {
  if (most > 1 && receive_.GoesOn(receive_peek_)) return PollMany(flows, out, most);
  if (most == 0 || receive_posted_ == 0) [[unlikely]] return 0;
  const mlx5_cqe64& cqe = *CqeOfOpOwn(receive_peek_);
  if (!IsReceivedFrame(LoadOpOwn(cqe), ReceivedOpOwn(receive_phase_))) [[unlikely]] return 0;
  const uint32_t length = FrameBytes(cqe);
  if (!receive_.MayBeKnown(cqe, length)) [[unlikely]] {
    flows.Decline();
    return 0;
  }
  const ReceiveQueue::Posted& posted = receive_.next();
  // A segment need not be compared with a flow of datagrams.
  const bool datagram = posted.data[kProtocolAt] == wire::kIpProtocolUdp;
  if (!datagram || !flows.Write(posted.buffer, posted.data, length, HardwareClock(cqe), out)) {
    return PollOther(flows, posted, length, out);
  }
  counters_.rx_bytes += length;
  PassOne();
  return 1;
}

// By itself, so that a datagram alone saves no registers for a loop,
[[gnu::noinline]] uint32_t QueuePair::PollMany(const completion::KnownFlows& flows,
                                               completion::Completion* out, uint32_t most) {
  return PollInto(flows, out, most);
}

// nor for a call: of the next frame, which Write() said is not its.
[[gnu::noinline]] uint32_t QueuePair::PollOther(const completion::KnownFlows& flows,
                                                const ReceiveQueue::Posted& posted,
                                                uint32_t length, completion::Completion* out) {
  using Taken = completion::KnownFlows::Taken;
  const uint64_t hw_clock = HardwareClock(*CqeOfOpOwn(receive_peek_));
  const Taken taken = flows.AskOthers(posted.buffer, posted.data, length, hw_clock, out);
  if (taken == Taken::kNot) [[unlikely]] {
    flows.Decline();
    return 0;
  }
  counters_.rx_bytes += length;
  PassOne();
  return taken == Taken::kSilently ? 0 : 1;
}

uint32_t QueuePair::PollLinks(const completion::LinkFlows& flows, completion::LinkCompletion* out,
                              uint32_t most) {
  return PollInto(flows, out, most);
}

packet::Buffer* QueuePair::TakeKnown(const completion::KnownFlows& flows,
                                     const udp::Endpoint* endpoint, size_t most) {
  if (receive_posted_ == 0) [[unlikely]] return nullptr;
  packet::Buffer* const buffer = receive_.TakeKnown(flows, endpoint, most, receive_peek_,
                                                    receive_phase_, &counters_.rx_bytes);
  if (buffer == nullptr) [[unlikely]] return nullptr;
  PassOne();
  return buffer;
}

}  // namespace xtreme::mlx5
