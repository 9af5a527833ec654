// SPDX-License-Identifier: Apache-2.0
//
// TappedQueuePair: a queue pair that copies every frame it takes and posts to a frame tap; who
// posts on its front (nic::SentTap) does so himself.
//
// Invariant: a received frame is copied once, before anybody sees it: what is sent in answer comes
// behind it. What is not posted is not copied; warm sends, which reach no wire, are not either. A
// frame that stands whole in its WQE is copied as the device gets it, with the time of posting; the
// device's follows, of those whose completion is polled.
// Thread: the ring's owner.

#ifndef XTREME_XTREME_MLX5_TAPPED_QUEUE_PAIR_H_
#define XTREME_XTREME_MLX5_TAPPED_QUEUE_PAIR_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "xtreme/mlx5/queue_pair.h"
#include "xtreme/mlx5/send_wqe.h"
#include "xtreme/stats/frame_tap.h"

namespace xtreme::mlx5 {

class TappedQueuePair final : public QueuePair {
 public:
  // As QueuePair; `tap` outlives it.
  TappedQueuePair(stats::FrameTap* tap, const QueuePairMemory& memory,
                  const SendQueue::Options& send_options,
                  const ReceiveQueue::Options& receive_options,
                  const nic::Capabilities& capabilities, packet::BufferPool* pool,
                  std::unique_ptr<QueuePairObjects> objects);

  uint32_t PollReceive(std::span<nic::RxFrame> out) override;
  uint32_t PollKnown(const completion::KnownFlows& flows, completion::Completion* out,
                     uint32_t most) override;
  uint32_t PollLinks(const completion::LinkFlows& flows, completion::LinkCompletion* out,
                     uint32_t most) override;
  packet::Buffer* TakeKnown(const completion::KnownFlows& flows, const udp::Endpoint* endpoint,
                            size_t most) override;
  nic::TxStatus Post(const nic::TxFrame& frame) override;
  nic::TxStatus PostCopied(const nic::TxTemplate& flow, const uint8_t* payload,
                           uint32_t payload_length, uint32_t flags) override;
  nic::TxStatus PostStored(const nic::TxTemplate& flow, const uint8_t* payload,
                           uint32_t payload_length, uint32_t flags) override;
  nic::TxBurst PostBurst(const nic::TxTemplate& flow,
                         std::span<const nic::TxPayload> payloads) override;
  nic::TxStatus PostPrepared(const nic::TxPrepared& prepared, uint32_t flags) override;
  bool PostStreamOtherwise(const nic::StreamSegment& segment) override;
  bool PlaceStream(const nic::StreamSegment& segment) override;
  std::optional<uint32_t> PostGathered(const nic::StreamSegment& segment, uint32_t key,
                                       uint32_t flags) override;
  nic::TxStatus PostSegments(const nic::TxSegments& segments) override;
  uint32_t PollSend(std::span<nic::TxCompletion> out) override;

 private:
  // Writes frames before they are taken; one that was not is taken back, and comes again. What
  // takes them looks at no frame without a time.
  class Watch {
   public:
    explicit Watch(QueuePair* of) : pair_(*static_cast<TappedQueuePair*>(of)) {}
    [[gnu::always_inline]] void Show(const ReceiveQueue::Posted& posted, uint32_t bytes,
                                     const mlx5_cqe64& cqe) const {
      pair_.tap_->Write(stats::FrameKind::kReceived, posted.data, bytes, HardwareClock(cqe));
    }
    void Keep() const { pair_.tap_->Publish(1); }
    void TakeBack() const { pair_.tap_->TakeBack(); }

   protected:
    TappedQueuePair& pair_;
  };
  // The same where the least of a frame is kept; calls nothing.
  class LeastWatch : public Watch {
   public:
    using Watch::Watch;
    [[gnu::always_inline]] void Show(const ReceiveQueue::Posted& posted, uint32_t bytes,
                                     const mlx5_cqe64& cqe) const {
      pair_.tap_->WriteLeast(
          stats::FrameKind::kReceived, bytes, [&] { return HardwareClock(cqe); },
          [&] { return posted.data; });
    }
  };
  // What sees WQEs (send_queue_seen.h): of frames that stand whole in them, and by who posts them.
  struct SeeWhole;
  struct SeeAny;
  struct SeeStored;
  struct SeeGathered;
  struct SeeSegments;
  // Keeps a frame that was posted, from its WQE in registers or memory: a whole one, or one whose
  // payload stands elsewhere.
  void KeepWhole(const uint8_t* wqe);
  template <size_t kHalves>
  void KeepWhole(const nic::HalfLine (&halves)[kHalves]);
  // Of payload, FrameTap::kGatheredPayload. What stands in registers has usual headers; of what is
  // in memory they are, as KeepsWith() or who posts it says, and the least is kept.
  template <size_t kHalves>
  void KeepLong(const nic::HalfLine (&halves)[kHalves], size_t header_length,
                const uint8_t* payload, uint32_t bytes);
  void KeepLong(const uint8_t* wqe, size_t header_length, const uint8_t* payload, uint32_t bytes);
  bool KeepsWith(size_t header_length) const {
    return header_length - stats::FrameTap::kShortestHeaders < usual_headers_;
  }
  // The same of whatever frame, as much of it as is kept; and of the last one, of so many blocks.
  void KeepWholeInParts(const uint8_t* wqe);
  void KeepInParts(const uint8_t* wqe, size_t header_length, const uint8_t* payload,
                   uint32_t bytes);
  void KeepLastInParts(uint32_t blocks);
  void KeepLastInParts(uint32_t blocks, size_t header_length, const uint8_t* payload,
                       uint32_t bytes);
  // Where its WQE can be read.
  const uint8_t* LastWqe(uint32_t blocks);

  // Posts with which more is due, or of another length than the flow's last.
  nic::TxStatus PostOtherwise(const nic::TxFrame& frame);
  nic::TxStatus PostOtherwise(const nic::TxTemplate& flow, const uint8_t* payload,
                              uint32_t payload_length, uint32_t flags);
  nic::TxStatus PostOtherLength(const nic::TxTemplate& flow, const uint8_t* payload,
                                uint32_t payload_length, uint32_t flags);
  bool PostStreamDue(const nic::StreamSegment& segment);
  // A burst of which more is kept than the least.
  nic::TxBurst PostEach(const nic::TxTemplate& flow, std::span<const nic::TxPayload> payloads);
  // Of frames that were posted, the first at `wqe`; the last goes to the ring's end or over it.
  template <bool kOverEnd>
  void KeepBurst(const nic::TxTemplate& flow, std::span<const nic::TxPayload> payloads,
                 const uint8_t* wqe);
  // Where the WQE of a frame begins that is posted next.
  const uint8_t* NextWqe() { return send().front()->next_wqe; }

  // What is kept of a WQE at least; one that goes over the ring's end is put together for it.
  static constexpr size_t kKeptBytes = 2 * kWqebbBytes;
  static_assert(kKeptBytes == stats::SlotBytes(stats::kLeastSnapBytes));
  const uint8_t* JoinOverEnd(const uint8_t* wqe);

  stats::FrameTap* const tap_;
  const uint8_t* const ring_end_;  // Of the send queue's WQEs.
  const size_t ring_bytes_;
  const uint32_t qpn_;
  // How many lengths of headers there are with which a long frame is kept from its WQE.
  static constexpr size_t kUsualHeaders =
      stats::FrameTap::kLongestHeaders - stats::FrameTap::kShortestHeaders + 1;
  const size_t usual_headers_;
  const stats::FrameKind received_;
  alignas(kWqebbBytes) std::array<uint8_t, kMaxWqeBytes> joined_;
  nic::TxFront never_;  // Of streams, which are posted and never ready.
};

}  // namespace xtreme::mlx5

#endif  // XTREME_XTREME_MLX5_TAPPED_QUEUE_PAIR_H_
