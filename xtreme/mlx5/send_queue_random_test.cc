// SPDX-License-Identifier: Apache-2.0
//
// A send queue under random use: every way to post, each length, doorbells put off, completions
// asked for or not, and a device that comes late. Whatever the order, the device finds each frame
// once, in order and whole, where the record says; and each completion tells how far it is. Where a
// frame fails, the device flushes those behind it, and each is told as lost once.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <memory>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "xtreme/mlx5/queue_pair.h"
#include "xtreme/mlx5/queue_pair_testing.h"
#include "xtreme/nic/doorbell.h"
#include "xtreme/nic/stream_post.h"

namespace xtreme::mlx5::testing {
namespace {

constexpr uint32_t kHeaderBytes = 42;
constexpr uint32_t kNumberAt = 20;  // In the header, of its frame's number.
constexpr uint32_t kStoredLog2 = 12;
constexpr uint32_t kStoredKey = 0x77;
constexpr uint32_t kMemoryKey = 0x5500;

// The device and the program, frame by frame.
class RandomSends {
 public:
  RandomSends(uint32_t seed, uint32_t signal_every, uint32_t blueflame_bytes, bool stores)
      : random_(seed) {
    auto made = packet::BufferPool::Create(
        {.buffers = 8, .buffer_bytes = 2048,
         .hugepages = packet::BufferPool::Hugepages::kNever});
    pool_ = *std::move(made);
    QueuePairMemory memory = device_.memory();
    memory.send.blueflame_bytes = blueflame_bytes;
    if (stores) memory.send.device_memory = {stored_.data(), kStoredLog2, kStoredKey};
    queues_ = std::make_unique<QueuePair>(memory, SendQueue::Options{.signal_every = signal_every},
                                          ReceiveQueue::Options{}, nic::Capabilities{},
                                          pool_.get(), nullptr);
    queues_->Prepare({.bytes = Header(0), .length = kHeaderBytes, .flags = 0,
                      .lengths = {{{.at = 16, .constant = 28}, {.at = 38, .constant = 8}}}},
                     &flow_);
  }

  void Run(int steps) {
    for (int i = 0; i < steps && !::testing::Test::HasFatalFailure(); ++i) {
      switch (random_() % 8) {
        case 0: Work(random_() % 12); break;
        case 1: Poll(); break;
        case 2: queues_->Flush(); break;
        case 3: Burst(); break;
        case 4: queues_->SignalLast(); break;
        default: PostOne(); break;
      }
    }
    Finish();
  }
  // The first frame that ends at or behind so many blocks fails.
  void FailAt(uint32_t blocks) { fail_at_ = blocks; }
  // Since the beginning.
  uint32_t blocks() const { return executed_wqebb_; }

 private:
  const uint8_t* Header(uint32_t number) {
    base::StoreBe32(&header_[kNumberAt], number);
    return header_.data();
  }
  // Untouched until the frame is done: a place for as many as can be under way.
  uint8_t* Payload(uint32_t number, uint32_t length) {
    std::vector<uint8_t>& payload = payloads_[number % payloads_.size()];
    payload.assign(std::max<uint32_t>(length, 64), 0);
    for (uint32_t i = 0; i < length; ++i) payload[i] = static_cast<uint8_t>(number * 7 + i);
    return payload.data();
  }
  uint32_t Length() {
    constexpr std::array<uint32_t, 8> kLengths = {0, 22, 56, 57, 120, 121, 184, 1400};
    return random_() % 2 == 0 ? kLengths[random_() % kLengths.size()] : random_() % 600;
  }

  void PostOne() {
    const uint32_t number = queues_->posted_frames();
    const uint32_t length = Length();
    const uint32_t asks = random_() % 8 == 0 ? nic::kTxSignal : 0;
    const uint32_t flags = (random_() % 3 == 0 ? nic::kTxMore : 0) | asks;
    const nic::TxFrame frame{.header = Header(number), .payload = Payload(number, length),
                             .header_length = kHeaderBytes, .payload_length = length,
                             .key = kMemoryKey, .flags = static_cast<uint16_t>(flags)};
    nic::TxPrepared prepared;
    nic::TxStatus status;
    if (random_() % 2 == 0 && MayPlace(length) && asks == 0) {
      status = PlaceStream(frame);
    } else if (random_() % 4 == 0 && MayStream(length) && flags == 0) {
      status = PostStream(frame);
    } else if (random_() % 2 == 0 && queues_->PrepareFrame(frame, &prepared)) {
      status = PostBuilt(prepared, flags);
    } else if (random_() % 2 == 0 && asks == 0) {
      status = PostOfFlow(frame, flags);
    } else {
      status = queues_->Post(frame);
    }
    Note(number, length, status);
  }
  nic::TxStatus PostBuilt(const nic::TxPrepared& prepared, uint32_t flags) {
    if (flags == 0 && queues_->FrontFor<2>(prepared)->Ready()) {
      nic::PostReady<2>(*queues_->FrontFor<2>(prepared), prepared);
      return nic::TxStatus::kPosted;
    }
    if (flags == 0 && queues_->FrontFor<3>(prepared)->Ready()) {
      nic::PostReady<3>(*queues_->FrontFor<3>(prepared), prepared);
      return nic::TxStatus::kPosted;
    }
    return queues_->PostPrepared(prepared, flags);
  }
  // A stream's header is longer: it goes on where others have payload.
  static constexpr uint32_t kOfPayload = nic::StreamSegment::kLongestHeader - kHeaderBytes;
  bool MayStream(uint32_t length) const {
    return queues_->TakesStreams() && length > kOfPayload &&
           length - kOfPayload <= nic::StreamSegment::kMostPayloadBytes;
  }
  static bool MayPlace(uint32_t length) {
    return length >= kOfPayload && length - kOfPayload <= sizeof(nic::HalfLine);
  }
  using StreamBytes = std::array<uint8_t, nic::StreamSegment::kLongestHeader +
                                              nic::StreamSegment::kPayloadReadable>;
  // In `bytes`, which are to stay.
  static nic::StreamSegment SegmentOf(const nic::TxFrame& frame, StreamBytes& bytes) {
    using Segment = nic::StreamSegment;
    std::copy_n(frame.header, kHeaderBytes, bytes.data());
    std::copy_n(frame.payload, frame.payload_length, &bytes[kHeaderBytes]);
    Segment segment{.headers = bytes.data(), .header_bytes = Segment::kLongestHeader, .tcp = {},
                    .payload = &bytes[Segment::kLongestHeader],
                    .payload_length = frame.payload_length - kOfPayload};
    memcpy(&segment.tcp, &bytes[Segment::kTcpAt], sizeof(segment.tcp));
    return segment;
  }
  nic::TxStatus PlaceStream(const nic::TxFrame& frame) {
    StreamBytes bytes{};
    const bool placed = queues_->PlaceStream(SegmentOf(frame, bytes));
    return placed ? nic::TxStatus::kPosted : nic::TxStatus::kFull;
  }
  nic::TxStatus PostStream(const nic::TxFrame& frame) {
    StreamBytes bytes{};
    const nic::StreamSegment segment = SegmentOf(frame, bytes);
    if (queues_->StreamFront()->Ready()) {
      nic::PostStream(*queues_->StreamFront(), segment);
      return nic::TxStatus::kPosted;
    }
    return queues_->PostStreamOtherwise(segment) ? nic::TxStatus::kPosted : nic::TxStatus::kFull;
  }
  // The header of a flow is constant: its frames have the number 0 there.
  nic::TxStatus PostOfFlow(const nic::TxFrame& frame, uint32_t flags) {
    of_flow_ = true;
    if (frame.payload_length <= flow_.max_payload_bytes) {
      return queues_->PostCopied(flow_, frame.payload, frame.payload_length, flags);
    }
    return queues_->PostStored(flow_, frame.payload, frame.payload_length, flags);
  }
  void Burst() {
    const uint32_t number = queues_->posted_frames();
    std::vector<nic::TxPayload> payloads(random_() % 6);
    uint32_t length = 22;
    for (uint32_t i = 0; i < payloads.size(); ++i) {
      if (random_() % 3 == 0) length = random_() % 220;
      payloads[i] = {Payload(number + i, length), length};
    }
    const nic::TxBurst burst = queues_->PostBurst(flow_, payloads);
    for (uint32_t i = 0; i < burst.frames; ++i) {
      of_flow_ = true;
      NotePosted(number + i, payloads[i].length);
    }
    ASSERT_EQ(queues_->posted_frames(), number + burst.frames);
  }

  void Note(uint32_t number, uint32_t length, nic::TxStatus status) {
    if (status == nic::TxStatus::kPosted) {
      NotePosted(number, length);
    } else {
      ASSERT_TRUE(status != nic::TxStatus::kBroken || failed_);
      if (status == nic::TxStatus::kFull && !failed_) {
        ASSERT_GE(number - completed_, kFrames);
      }
    }
    of_flow_ = false;
    const uint32_t posted = number + (status == nic::TxStatus::kPosted ? 1 : 0);
    ASSERT_EQ(queues_->posted_frames(), posted);
  }
  void NotePosted(uint32_t number, uint32_t length) {
    expected_[number % expected_.size()] = {number, length, of_flow_};
    of_flow_ = false;
  }

  // The device takes up to `most` WQEs that were rung for.
  void Work(uint32_t most) {
    for (; most != 0 && (executed_wqebb_ & 0xffff) != device_.send_record(); --most) Execute();
  }
  void Execute() {
    std::array<uint8_t, kMaxWqeBytes> wqe;
    for (uint32_t i = 0; i < kMaxWqebbs; ++i) {
      memcpy(&wqe[i * 64], device_.wqe(executed_wqebb_ + i), 64);
    }
    const uint32_t index = base::LoadBe32(wqe.data()) >> 8 & 0xffff;
    ASSERT_EQ(index, executed_wqebb_ & 0xffff) << "frame " << executed_;
    const Expected& expected = expected_[executed_ % expected_.size()];
    ASSERT_EQ(expected.number, executed_) << "rung for before it was posted";
    CheckFrame(wqe, expected);
    const uint32_t begin = executed_wqebb_;
    executed_wqebb_ += WqebbsOfSegments(SegmentsOf(wqe.data()));
    ++executed_;
    if (executed_wqebb_ >= fail_at_) return Fail(static_cast<uint16_t>(begin));
    if (HasCompletion(wqe.data())) device_.CompleteSend(static_cast<uint16_t>(begin));
  }
  void Fail(uint16_t wqebb) {
    const uint8_t why = std::exchange(failed_, true) ? MLX5_CQE_SYNDROME_WR_FLUSH_ERR
                                                     : MLX5_CQE_SYNDROME_LOCAL_PROT_ERR;
    device_.CompleteSend(wqebb, MLX5_CQE_REQ_ERR, why);
    lost_.push_back(executed_);
  }
  struct Expected {
    uint32_t number = ~uint32_t{0};
    uint32_t length = 0;
    bool of_flow = false;
  };
  void CheckFrame(const std::array<uint8_t, kMaxWqeBytes>& wqe, const Expected& expected) {
    const uint32_t inlined = InlineBytesOf(wqe.data());
    const uint8_t* payload = &wqe[kInlineOffset + kHeaderBytes];
    if (inlined != kHeaderBytes + expected.length) {
      ASSERT_EQ(inlined, kHeaderBytes);
      const uint8_t* segment = &wqe[(SegmentsOf(wqe.data()) - 1) * kSegmentBytes];
      ASSERT_EQ(base::LoadBe32(segment), expected.length);
      const uint64_t address = base::LoadBe64(segment + 8);
      const bool stored = base::LoadBe32(segment + 4) == kStoredKey;
      payload = stored ? &stored_[address] : reinterpret_cast<const uint8_t*>(address);
    }
    const uint32_t number = base::LoadBe32(&wqe[kInlineOffset + kNumberAt]);
    ASSERT_EQ(number, expected.of_flow ? 0 : expected.number);
    for (uint32_t i = 0; i < expected.length; ++i) {
      ASSERT_EQ(payload[i], static_cast<uint8_t>(expected.number * 7 + i))
          << "byte " << i << " of frame " << expected.number;
    }
  }

  void Poll() {
    std::array<nic::TxCompletion, 3> done;
    const uint32_t count = queues_->PollSend(std::span(done).first(1 + random_() % 3));
    for (uint32_t i = 0; i < count; ++i) {
      if (done[i].lost) {
        ASSERT_FALSE(lost_.empty());
        ASSERT_EQ(done[i].frames, lost_.front());
        lost_.pop_front();
        ++lost_told_;
        completed_ = done[i].frames;
        continue;
      }
      ASSERT_EQ(lost_told_, 0u) << "nothing leaves behind one that is lost";
      ASSERT_LE(done[i].frames - completed_, executed_ - completed_) << "told too early";
      completed_ = done[i].frames;
    }
  }
  // Also what is due no completion may have one: it fails.
  void FinishFailed() {
    for (int i = 0; i < 100 && completed_ != queues_->posted_frames(); ++i) {
      queues_->Flush();
      Work(kFrames);
      Poll();
    }
    EXPECT_EQ(queues_->Post({.header = Header(0), .payload = nullptr,
                             .header_length = kHeaderBytes, .payload_length = 0, .key = 0,
                             .flags = 0}),
              nic::TxStatus::kBroken);
    ASSERT_TRUE(queues_->error().has_value());
    EXPECT_EQ(queues_->error()->syndrome, MLX5_CQE_SYNDROME_LOCAL_PROT_ERR);
    EXPECT_EQ(queues_->counters().tx_errors, lost_told_);
    EXPECT_TRUE(lost_.empty());
  }
  // Everything leaves, and a frame behind all tells so.
  void Finish() {
    if (failed_) {
      FinishFailed();
      return ExpectAllTold();
    }
    for (int i = 0; i < 100 && completed_ != queues_->posted_frames(); ++i) {
      queues_->Flush();
      Work(kFrames);
      Poll();
      const uint32_t number = queues_->posted_frames();
      if (queues_->SendIdle() && completed_ != number) {
        Note(number, 0, queues_->Post({.header = Header(number), .payload = nullptr,
                                       .header_length = kHeaderBytes, .payload_length = 0,
                                       .key = 0, .flags = nic::kTxSignal}));
      }
    }
    ExpectAllTold();
  }
  void ExpectAllTold() {
    EXPECT_EQ(executed_, queues_->posted_frames());
    EXPECT_EQ(completed_, queues_->posted_frames());
    EXPECT_TRUE(queues_->SendIdle());
    EXPECT_EQ(queues_->counters().tx_frames, queues_->posted_frames());
    EXPECT_EQ(queues_->counters().tx_malformed, 0u);
  }

  std::mt19937 random_;
  PlainDevice device_;
  packet::BufferPool::Handle pool_;
  std::unique_ptr<QueuePair> queues_;
  nic::TxTemplate flow_;
  alignas(64) std::array<uint8_t, 128> header_{};
  std::array<std::vector<uint8_t>, 4 * kFrames> payloads_;
  std::array<Expected, 4 * kFrames> expected_;
  alignas(64) std::array<uint8_t, size_t{1} << kStoredLog2> stored_{};
  bool of_flow_ = false;
  uint32_t executed_ = 0;        // Frames.
  uint32_t executed_wqebb_ = 0;
  uint32_t completed_ = 0;       // As told.
  uint32_t fail_at_ = ~uint32_t{0};
  bool failed_ = false;
  std::deque<uint32_t> lost_;    // Frames completed in error and not told yet.
  uint64_t lost_told_ = 0;
};

TEST(SendQueueRandomTest, EachFrameLeavesOnceWholeAndInOrder) {
  for (uint32_t seed = 1; seed <= 400; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    RandomSends sends(seed, /*signal_every=*/1 + seed % 2,
                      /*blueflame_bytes=*/seed % 5 == 0 ? 0 : 256, /*stores=*/seed % 3 != 0);
    sends.Run(2'000);
    if (::testing::Test::HasFailure()) return;
  }
}

TEST(SendQueueRandomTest, BehindAFrameThatFailsEachIsLostOnce) {
  for (uint32_t seed = 1; seed <= 4'000; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    RandomSends sends(seed, /*signal_every=*/1 + seed % 2,
                      /*blueflame_bytes=*/seed % 5 == 0 ? 0 : 256, /*stores=*/seed % 3 != 0);
    sends.FailAt(1 + seed % 300);
    sends.Run(400);
    if (::testing::Test::HasFailure()) return;
  }
}

TEST(SendQueueRandomTest, WhereIndicesBeginAnewToo) {
  for (uint32_t seed = 1; seed <= 16; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    RandomSends sends(seed, /*signal_every=*/1 + seed % 2,
                      /*blueflame_bytes=*/seed % 5 == 0 ? 0 : 256, /*stores=*/seed % 3 != 0);
    sends.FailAt((1u << 16) - 8 + seed);
    sends.Run(160'000);
    EXPECT_GT(sends.blocks(), (1u << 16) - 8);
    if (::testing::Test::HasFailure()) return;
  }
}

// A WQE names its index in 16 bits, and so does the record.
TEST(SendQueueRandomTest, IndicesBeginAnewAndNothingElseDoes) {
  for (uint32_t seed = 1; seed <= 6; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    RandomSends sends(seed, /*signal_every=*/1 + seed % 2,
                      /*blueflame_bytes=*/seed % 5 == 0 ? 0 : 256, /*stores=*/seed % 3 != 0);
    sends.Run(300'000);
    EXPECT_GT(sends.blocks(), 2u << 16);
    if (::testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace xtreme::mlx5::testing
