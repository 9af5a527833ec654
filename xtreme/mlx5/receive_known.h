// SPDX-License-Identifier: Apache-2.0
//
// From a CQE to the completion of a packet: in one loop, for each of the two forms, and of a frame
// that is alone without it.
//
// Invariant: what is taken here are received frames, whole and verified, of flows that are known;
// the first that is anything else is left to ReceiveQueue::Poll().
//
// A `Watch` is shown each frame before anybody takes it, so that what is sent in answer comes
// behind it, and told whether it was taken: Show(posted, bytes, cqe), then Keep() or TakeBack(). It
// is made of its queue pair where it is needed, so that one that does nothing costs nothing.

#ifndef XTREME_XTREME_MLX5_RECEIVE_KNOWN_H_
#define XTREME_XTREME_MLX5_RECEIVE_KNOWN_H_

#include <algorithm>
#include <cstdint>

#include "xtreme/completion/known_flows_write.h"
#include "xtreme/completion/link_flows_write.h"
#include "xtreme/mlx5/cqe.h"
#include "xtreme/mlx5/queue_pair.h"

namespace xtreme::mlx5 {

// Nobody watches.
struct Unwatched {
  explicit Unwatched(QueuePair*) {}
  void Show(const ReceiveQueue::Posted&, uint32_t, const mlx5_cqe64&) const {}
  void Keep() const {}
  void TakeBack() const {}
};

inline constexpr uint8_t kVerdicts = MLX5_CQE_L3_OK | MLX5_CQE_L4_OK;
// Where a plain frame has its protocol; of any other it is some byte.
inline constexpr uint32_t kProtocolAt = wire::kEthernetHeaderBytes + 9;
static_assert(kProtocolAt < completion::KnownFlows::kLeastFrameBytes);

// What comes of a frame that is no completion alone; false: it was not taken.
template <typename Flows>
[[gnu::always_inline]] inline bool GoesOnAfter(completion::KnownFlows::Taken taken,
                                               typename Flows::Out** out, uint32_t* left,
                                               uint32_t* silent, bool* declined) {
  using Taken = completion::KnownFlows::Taken;
  if (taken == Taken::kNot) {
    *declined = true;
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
  const bool fits = length - completion::KnownFlows::kLeastFrameBytes < known_below_;
  return fits && (cqe.hds_ip_ext & kVerdicts) == kVerdicts;
}

// No further than to the ring's end, so that nothing in the loop wraps. There are at least as many
// CQEs as WQEs: their ring ends where that of the WQEs does, or not here. What is not needed at
// every turn has no register in the loop.
template <typename Flows, typename Watch>
[[gnu::always_inline]] inline const uint8_t* ReceiveQueue::PollKnown(
    const Flows& flows, const uint8_t* op_own, uint8_t phase, typename Flows::Out* out,
    uint32_t most, Sums* sums, bool* declined, Watch watch) {
  using completion::KnownFlows;
  uint32_t left = std::min(most, size() - slot());
  if (left == 0) [[unlikely]] return op_own;
  const uint32_t received = ReceivedOpOwn(phase);
  const Posted* posted = next_;
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
      *declined = true;
      break;
    }
    watch.Show(*posted, length, cqe);
    if (!flows.Write(posted->buffer, data, length, HardwareClock(cqe), out)) [[unlikely]] {
      const KnownFlows::Taken taken =
          flows.AskOthers(posted->buffer, data, length, HardwareClock(cqe), out);
      const bool seldom = taken != KnownFlows::Taken::kCompletion;
      if (seldom && !GoesOnAfter<Flows>(taken, &out, &left, &sums->silent, declined)) {
        watch.TakeBack();
        break;
      }
    }
    watch.Keep();
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

template <typename Watch>
[[gnu::always_inline]] inline packet::Buffer* ReceiveQueue::TakeKnown(
    const completion::KnownFlows& flows, const udp::Endpoint* endpoint, size_t most,
    const uint8_t* op_own, uint8_t phase, uint64_t* bytes, Watch watch) {
  const mlx5_cqe64& cqe = *CqeOfOpOwn(op_own);
  if (!IsReceivedFrame(LoadOpOwn(cqe), ReceivedOpOwn(phase))) return nullptr;
  const uint32_t length = FrameBytes(cqe);
  if (!MayBeKnown(cqe, length)) [[unlikely]] return nullptr;
  const Posted& posted = next();
  watch.Show(posted, length, cqe);
  if (!flows.Take(endpoint, posted.buffer, posted.data, length, most)) {
    watch.TakeBack();
    return nullptr;
  }
  watch.Keep();
  *bytes += length;
  return posted.buffer;
}

template <typename Flows, typename Watch>
[[gnu::always_inline]] inline uint32_t QueuePair::PollInto(const Flows& flows,
                                                           typename Flows::Out* out, uint32_t most,
                                                           bool* declined) {
  ReceiveQueue::Sums sums;
  const auto first = [this] { return receive_peek_; };
  const uint8_t* const after = receive_.PollKnown(flows, first(), receive_phase_, out,
                                                  std::min(most, receive_.posted()), &sums,
                                                  declined, Watch(this));
  const auto passed = static_cast<uint32_t>(after - first()) / kCqeBytes;
  counters_.rx_bytes += sums.bytes;
  receive_peek_ = after;
  receive_.Pass(passed);
  if (receive_.AtEnd()) [[unlikely]] BeginAnew();
  return passed - sums.silent;
}

// As PollMany() where nothing is due and no frame behind the next one, or no room for it: it has
// nothing to share with others, and goes without the loop and what that is set up with.
template <typename Watch>
[[gnu::always_inline]] inline uint32_t QueuePair::PollFlows(const completion::KnownFlows& flows,
                                                            completion::Completion* out,
                                                            uint32_t most) {
  if (RefillDue() || (most > 1 && IsFollowed())) return PollMany<Watch>(flows, out, most);
  if (most == 0) [[unlikely]] return 0;
  const uint8_t* const peek = receive_peek_;  // Not to be read again behind what is written.
  const mlx5_cqe64& cqe = *CqeOfOpOwn(peek);
  if (!IsReceivedFrame(LoadOpOwn(cqe), ReceivedOpOwn(receive_phase_))) [[unlikely]] return kRest;
  const uint32_t length = FrameBytes(cqe);
  if (!receive_.MayBeKnown(cqe, length)) [[unlikely]] return Decline();
  const ReceiveQueue::Posted& posted = receive_.next();
  const Watch watch(this);
  watch.Show(posted, length, cqe);
  // A segment need not be compared with a flow of datagrams.
  const bool datagram = posted.data[kProtocolAt] == wire::kIpProtocolUdp;
  if (!datagram) return PollOther<Watch>(flows, posted, length, out);
  uint32_t payload_bytes = 0;
  const auto* const flow = flows.Find(posted.data, length, &payload_bytes);
  if (flow == nullptr) [[unlikely]] return PollUnknown<Watch>(flows, out);
  flows.WriteAs(*flow, posted.buffer, posted.data, payload_bytes, out);
  flows.WriteTime(HardwareClock(cqe), out);
  watch.Keep();
  counters_.rx_bytes += FrameBytes(cqe);
  return PassOne(1, peek);
}

// What stands by itself has the arguments that its caller has: gcc would pass what it finds in
// them, which is more than there are registers for. clang does not, and knows no such attribute.
#if defined(__clang__)
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wunknown-attributes"
#endif

// By itself, so that a datagram alone saves no registers for a loop,
template <typename Watch>
[[gnu::noinline, gnu::noipa]] uint32_t QueuePair::PollMany(
    const completion::KnownFlows& flows, completion::Completion* out, uint32_t most) {
  const uint32_t taken = PollInto<completion::KnownFlows, Watch>(flows, out, most, &declined_);
  if (taken != most) return taken | kRest;
  return RefillDue() ? taken | kRefill : taken;
}

// nor for a call: of the next frame, which is no datagram,
template <typename Watch>
[[gnu::noinline, gnu::noipa]] uint32_t QueuePair::PollOther(
    const completion::KnownFlows& flows, const ReceiveQueue::Posted& posted, uint32_t length,
    completion::Completion* out) {
  using Taken = completion::KnownFlows::Taken;
  const uint64_t hw_clock = HardwareClock(*CqeOfOpOwn(receive_peek_));
  const Taken taken = flows.AskOthers(posted.buffer, posted.data, length, hw_clock, out);
  const Watch watch(this);
  if (taken == Taken::kNot) [[unlikely]] {
    watch.TakeBack();
    return Decline();
  }
  watch.Keep();
  counters_.rx_bytes += FrameBytes(*CqeOfOpOwn(receive_peek_));
  if (taken == Taken::kFirst) [[unlikely]] return PassOne(1, receive_peek_) | kRest;
  return PassOne(static_cast<uint32_t>(taken), receive_peek_);
}

// or which is one of no flow that is known.
template <typename Watch>
[[gnu::noinline, gnu::noipa]] uint32_t QueuePair::PollUnknown(
    const completion::KnownFlows& flows, completion::Completion* out) {
  return PollOther<Watch>(flows, receive_.next(), FrameBytes(*CqeOfOpOwn(receive_peek_)), out);
}

#if defined(__clang__)
#pragma clang diagnostic pop
#endif

[[gnu::always_inline]] inline uint32_t QueuePair::PassOne(uint32_t taken,
                                                          const uint8_t* peek) {
  receive_peek_ = peek + kCqeBytes;
  receive_.Pass(1);
  return RefillDue() ? PassStop(taken) : taken;
}

template <typename Watch>
[[gnu::always_inline]] inline packet::Buffer* QueuePair::TakeOne(
    const completion::KnownFlows& flows, const udp::Endpoint* endpoint, size_t most) {
  if (receive_.posted() == 0) [[unlikely]] return nullptr;
  packet::Buffer* const buffer = receive_.TakeKnown(flows, endpoint, most, receive_peek_,
                                                    receive_phase_, &counters_.rx_bytes,
                                                    Watch(this));
  if (buffer == nullptr) [[unlikely]] return nullptr;
  PassOne(1, receive_peek_);
  return buffer;
}

}  // namespace xtreme::mlx5

#endif  // XTREME_XTREME_MLX5_RECEIVE_KNOWN_H_
