// SPDX-License-Identifier: Apache-2.0
//
// A queue pair that keeps its frames: whichever way they are taken and sent, each is kept once, in
// order, and as it was.

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "stack/udp/endpoint.h"
#include "stack/wire/frame.h"
#include "xtreme/completion/known_flows.h"
#include "xtreme/mlx5/queue_pair_testing.h"
#include "xtreme/mlx5/stream_frame_testing.h"
#include "xtreme/mlx5/tapped_queue_pair.h"
#include "xtreme/nic/doorbell.h"
#include "xtreme/stats/frame_reader.h"
#include "xtreme/stats/frame_tap.h"

namespace xtreme::mlx5::testing {
namespace {

using stats::FrameKind;
using ::testing::ElementsAreArray;

class TappedTest : public QueuePairTest {
 protected:
  TappedTest() {
    EXPECT_NE(mkdtemp(directory_.data()), nullptr);
    Open(stats::kLeastSnapBytes);
    flows_.Watch(&changes_);
    flows_.SetScale(completion::ClockScale::Of(0, 0, int64_t{1} << 32, 0));
    completion::Completion form;
    completion::Clear(&form, completion::Kind::kPacket);
    flows_.Learn(Datagram(kKnown).data(), form, &endpoint_);
    queues_->Refill();
  }
  ~TappedTest() override {
    queues_.reset();
    tap_.reset();
    rmdir(directory_.c_str());
  }

  // Of each frame `snap_bytes` are kept. `on_device`: the queue has that on-device memory.
  void Open(uint32_t snap_bytes, uint32_t signal_every = 2, const DeviceMemory& on_device = {}) {
    queues_.reset();
    tap_.reset();
    auto tap = stats::FrameTap::Create(
        {.directory = directory_, .frames = 1'024, .snap_bytes = snap_bytes});
    ASSERT_TRUE(tap.ok()) << tap.status();
    tap_ = *std::move(tap);
    tap_->SetClocks({.ns_per_tick_q32 = int64_t{1} << 32}, {});
    QueuePairMemory memory = device_.memory();
    memory.send.device_memory = on_device;
    const SendQueue::Options send{.signal_every = signal_every, .max_segmented_bytes = 65'535};
    queues_ = std::make_unique<TappedQueuePair>(tap_.get(), memory, send, ReceiveQueue::Options{},
                                                nic::Capabilities{}, pool_.get(), nullptr);
    auto reader = stats::FrameReader::Open(tap_->path());
    ASSERT_TRUE(reader.ok()) << reader.status();
    reader_ = *std::move(reader);
  }
  // Those that were sent since the last call.
  std::vector<stats::TappedFrame> Sent() {
    std::vector<stats::TappedFrame> sent;
    while (true) {  // One call ends with the file.
      auto frames = reader_->Take(1'000);
      EXPECT_TRUE(frames.ok()) << frames.status();
      if (!frames.ok() || frames->empty()) return sent;
      std::copy_if(frames->begin(), frames->end(), std::back_inserter(sent),
                   [](const auto& frame) { return frame.kind == FrameKind::kSent; });
    }
  }
  // The WQE at `block`, if it is signalled.
  void Complete(uint32_t block) {
    if ((device_.wqe(block)[11] & MLX5_WQE_CTRL_CQ_UPDATE) == 0) return;
    device_.CompleteSend(static_cast<uint16_t>(block));
    std::array<nic::TxCompletion, 4> done;
    EXPECT_EQ(queues_->PollSend(done), 1u);
  }
  static void ExpectDatagram(const stats::TappedFrame& frame, const std::vector<uint8_t>& payload) {
    ASSERT_EQ(frame.frame_bytes, 42 + payload.size());
    EXPECT_EQ(base::LoadBe16(&frame.bytes[16]), payload.size() + 28);
    EXPECT_EQ(base::LoadBe16(&frame.bytes[38]), payload.size() + 8);
    ASSERT_EQ(frame.bytes.size(), std::min<size_t>(42 + payload.size(), 96));
    for (size_t at = 42; at < frame.bytes.size(); ++at) ASSERT_EQ(frame.bytes[at], payload[0]);
  }
  uint32_t Poll(uint32_t most = kFrames) {
    std::array<completion::Completion, kFrames> out;
    const uint32_t taken =
        queues_->PollKnown(flows_, out.data(), most) & nic::QueuePair::kPolled;
    for (uint32_t i = 0; i < taken; ++i) packet::BufferPool::ReleaseByOwner(out[i].buffer);
    return taken;
  }
  bool Take() {
    packet::Buffer* const taken = queues_->TakeKnown(flows_, &endpoint_, 100);
    if (taken != nullptr) packet::BufferPool::ReleaseByOwner(taken);
    return taken != nullptr;
  }
  std::vector<stats::TappedFrame> Kept() {
    const auto reader = stats::FrameReader::Open(tap_->path());
    EXPECT_TRUE(reader.ok()) << reader.status();
    auto frames = (*reader)->Take(1'000);
    EXPECT_TRUE(frames.ok()) << frames.status();
    return frames.ok() ? *std::move(frames) : std::vector<stats::TappedFrame>{};
  }
  // Of received ones, by the device.
  std::vector<int64_t> Times() {
    std::vector<int64_t> times;
    for (const stats::TappedFrame& frame : Kept()) times.push_back(frame.time_ns.value_or(-1));
    return times;
  }
  // Answers a frame, and gives its buffer back, which another may write into at once.
  static completion::KnownFlows::Taken Answer(void* context, packet::Buffer* buffer,
                                              uint8_t* frame, uint32_t bytes, uint64_t,
                                              completion::Completion*) {
    auto* const test = static_cast<TappedTest*>(context);
    EXPECT_EQ(test->queues_->Post(test->Frame64()), nic::TxStatus::kPosted);
    memset(frame, 0xEE, bytes);
    packet::BufferPool::ReleaseByOwner(buffer);
    return completion::KnownFlows::Taken::kSilently;
  }

  static constexpr uint16_t kKnown = 5000;
  static constexpr uint16_t kOther = 5001;
  std::string directory_ = "/dev/shm/xtreme_tapped_test.XXXXXX";
  std::unique_ptr<stats::FrameTap> tap_;
  std::unique_ptr<stats::FrameReader> reader_;
  uint64_t changes_ = 1;
  udp::Endpoint endpoint_{{}};
  completion::KnownFlows flows_;
};

TEST_F(TappedTest, AFrameIsKeptOnceWhicheverWayItIsTaken) {
  device_.CompleteFrame(Datagram(kKnown), 1);
  EXPECT_EQ(Poll(), 1u);
  device_.CompleteFrame(Datagram(kKnown), 2);
  EXPECT_TRUE(Take());
  device_.CompleteFrame(Datagram(kKnown), 3);
  device_.CompleteFrame(Datagram(kKnown), 4);
  EXPECT_EQ(Poll(1), 1u);
  EXPECT_EQ(Poll(), 1u);
  queues_->Refill();
  device_.CompleteFrame(Datagram(kKnown), 5);
  EXPECT_EQ(Receive(), 1u) << "by the long way";
  EXPECT_EQ(Times(), (std::vector<int64_t>{1, 2, 3, 4, 5}));
}

TEST_F(TappedTest, WhatTheShortWaysLookAtAndLeaveIsNotKeptAgain) {
  device_.CompleteFrame(Datagram(kKnown), 1);
  device_.CompleteFrame(Datagram(kOther), 2);
  device_.CompleteFrame(Datagram(kKnown), 3);
  EXPECT_EQ(Poll(), 1u);
  EXPECT_EQ(Poll(), 0u);
  EXPECT_FALSE(Take());
  EXPECT_EQ(Receive(1), 1u);
  EXPECT_EQ(Poll(), 1u);
  device_.CompleteFrame(Datagram(kOther), 4);
  device_.CompleteFrame(Datagram(kOther), 5);
  EXPECT_EQ(Poll(), 0u);
  device_.CompleteFrame(Datagram(kOther), 6);
  EXPECT_EQ(Receive(), 3u);
  queues_->Refill();
  device_.CompleteFrame(Datagram(kOther), 7);  // Alone, and nothing is due.
  EXPECT_EQ(Poll(), 0u);
  EXPECT_EQ(Poll(), 0u);
  EXPECT_EQ(Receive(), 1u);
  EXPECT_EQ(Times(), (std::vector<int64_t>{1, 2, 3, 4, 5, 6, 7}));
}

TEST_F(TappedTest, OverTheRingsEndAndOfWhatIsNotVerifiedToo) {
  std::vector<int64_t> sent;
  for (int64_t time = 1; time <= 60; ++time) {
    const bool verified = time % 7 != 0;
    device_.CompleteFrame(Datagram(kKnown), static_cast<uint64_t>(time),
                          verified ? MLX5_CQE_L3_OK | MLX5_CQE_L4_OK : MLX5_CQE_L3_OK);
    sent.push_back(time);
    if (time % 3 != 0) continue;
    while (queues_->ReceiveReady()) {
      ASSERT_EQ(Poll() != 0 ? 1u : Receive(1), 1u);
    }
    queues_->Refill();
  }
  EXPECT_EQ(Times(), sent);
}

TEST_F(TappedTest, WhatIsSentInAnswerStandsBehindTheFrame) {
  flows_.SetOthers({.take = &Answer, .context = this});
  device_.CompleteFrame(Datagram(kOther), 1);
  device_.CompleteFrame(Datagram(kOther), 2);
  EXPECT_EQ(Poll(), 0u);
  const auto kept = Kept();
  ASSERT_EQ(kept.size(), 4u);
  for (const size_t at : {0u, 2u}) {
    EXPECT_EQ(kept[at].kind, FrameKind::kReceived);
    EXPECT_THAT(kept[at].bytes, ElementsAreArray(Datagram(kOther)));
    EXPECT_EQ(kept[at + 1].kind, FrameKind::kSent);
  }
}

// Of one length, of one beyond what is kept, and of several; often enough to go over the ring's end
// with each of their frames.
TEST_F(TappedTest, ABurstIsKeptAsTheDeviceGetsIt) {
  const nic::TxTemplate flow = Flow();
  uint32_t block = 0;
  for (int round = 0; round < 40; ++round) {
    for (const auto& lengths : {std::vector<uint32_t>{18, 18, 18}, {80, 80}, {5, 40, 60}, {9}}) {
      std::vector<std::vector<uint8_t>> bytes;
      for (const uint32_t length : lengths) {
        bytes.emplace_back(length, static_cast<uint8_t>(0x30 + bytes.size() + lengths.size()));
      }
      std::vector<nic::TxPayload> payloads;
      for (const auto& payload : bytes) {
        payloads.push_back({payload.data(), static_cast<uint32_t>(payload.size())});
      }
      ASSERT_EQ(queues_->PostBurst(flow, payloads).frames, lengths.size());
      queues_->Flush();
      const auto kept = Sent();
      ASSERT_EQ(kept.size(), lengths.size());
      for (size_t i = 0; i < lengths.size(); ++i) {
        SCOPED_TRACE(std::to_string(lengths[i]) + " in round " + std::to_string(round));
        ExpectDatagram(kept[i], bytes[i]);
        Complete(block);
        block += (30 + 42 + lengths[i] + 63) / 64;
      }
    }
  }
}

// Those that are posted on the tap's front and those that the queue posts, with a signal and at the
// ring's end, in one order, and each as the device gets it.
TEST_F(TappedTest, WhoPostsOnTheTapsFrontKeepsTheFrameByHimself) {
  Open(stats::kLeastSnapBytes, /*signal_every=*/4);
  const nic::SentTap& tap = queues_->sent_tap();
  const auto keep = [&tap](const auto& halves) {
    tap.frames->WriteWqe(halves);
    tap.frames->Publish(1);
  };
  uint32_t block = 0, alone = 0;
  for (uint32_t i = 0; i < 120; ++i) {
    const std::vector<uint8_t> payload(i % 2 == 0 ? 56 : 57, static_cast<uint8_t>('a' + i % 26));
    nic::TxFrame frame = Frame64();
    frame.payload = payload.data();
    frame.payload_length = static_cast<uint32_t>(payload.size());
    nic::TxPrepared prepared;
    ASSERT_TRUE(queues_->PrepareFrame(frame, &prepared));
    ASSERT_TRUE(queues_->MayKeep(prepared));
    if (!tap.front->Ready()) {
      ASSERT_EQ(queues_->PostPrepared(prepared, 0), nic::TxStatus::kPosted);
    } else if (prepared.direct_blocks == 3) {
      nic::PostReady<3>(*tap.front, prepared, nic::Unedited(), keep);
      ++alone;
    } else {
      nic::PostReady<2>(*tap.front, prepared, nic::Unedited(), keep);
      ++alone;
    }
    const auto kept = Sent();
    ASSERT_EQ(kept.size(), 1u) << i;
    ASSERT_EQ(kept[0].frame_bytes, 42 + payload.size());
    ASSERT_EQ(kept[0].end, block + prepared.blocks());
    std::vector<uint8_t> bytes(frame.header, frame.header + frame.header_length);
    bytes.insert(bytes.end(), payload.begin(), payload.end());
    bytes.resize(std::min<size_t>(bytes.size(), stats::kLeastSnapBytes));
    ASSERT_THAT(kept[0].bytes, ElementsAreArray(bytes)) << i;
    Complete(block);
    block += prepared.blocks();
  }
  EXPECT_GE(alone, 30u);
  EXPECT_EQ(queues_->counters().tx_frames, 120u);
}

TEST_F(TappedTest, OfWhatMoreThanTheLeastIsKeptTheQueueSeesEveryPost) {
  const nic::TxFrame frame = Frame64();
  nic::TxPrepared prepared;
  ASSERT_TRUE(queues_->PrepareFrame(frame, &prepared));
  EXPECT_TRUE(queues_->MayKeep(prepared));
  EXPECT_FALSE(queues_->FrontFor(prepared)->Ready());
  Open(stats::kLeastSnapBytes + 1);
  EXPECT_FALSE(queues_->MayKeep(prepared));
  EXPECT_FALSE(queues_->FrontFor(prepared)->Ready());
}

// By whichever way, with headers that are usual and others, and over the ring's end.
class TappedLongTest : public TappedTest, public ::testing::WithParamInterface<uint32_t> {
 protected:
  TappedLongTest() {
    for (size_t i = 0; i < headers_.size(); ++i) headers_[i] = static_cast<uint8_t>(i);
    for (size_t i = 0; i < payload_.size(); ++i) payload_[i] = static_cast<uint8_t>(0x80 + i % 97);
    flow_header_ = headers_;
  }
  // Of one in memory that the device reads itself; it is registered.
  nic::TxStatus PostGathered(uint32_t header_length, uint32_t payload_length) {
    return queues_->Post({.header = headers_.data(),
                          .payload = payload_.data(),
                          .header_length = header_length,
                          .payload_length = payload_length,
                          .key = 5,
                          .flags = 0});
  }
  nic::TxStatus PostStored(uint32_t header_length, uint32_t payload_length) {
    nic::TxTemplate flow;
    queues_->Prepare({.bytes = flow_header_.data(), .length = header_length, .flags = 0,
                      .lengths = {{{.at = 16, .constant = 16}, {.at = 16, .constant = 16}}}},
                     &flow);
    const nic::TxStatus status =
        queues_->PostStored(flow, payload_.data(), payload_length, nic::kTxSignal);
    base::StoreBe16(&headers_[16], static_cast<uint16_t>(16 + payload_length));
    return status;
  }
  // The last one.
  void ExpectKept(uint32_t header_length, uint32_t payload_length) {
    const auto kept = Sent();
    ASSERT_EQ(kept.size(), 1u);
    std::vector<uint8_t> bytes(headers_.begin(), headers_.begin() + header_length);
    bytes.insert(bytes.end(), payload_.begin(), payload_.begin() + payload_length);
    EXPECT_EQ(kept[0].frame_bytes, bytes.size());
    bytes.resize(std::min<size_t>(bytes.size(), GetParam()));
    ASSERT_THAT(kept[0].bytes, ElementsAreArray(bytes));
    const uint32_t segments = (30 + header_length + 15) / 16 + 1;
    const uint32_t end = block_ + (segments + 3) / 4;
    EXPECT_EQ(kept[0].end, end);
    Complete(block_);
    block_ = end;
  }

  std::array<uint8_t, 128> headers_;
  std::array<uint8_t, 128> flow_header_;
  uint32_t block_ = 0;
};
INSTANTIATE_TEST_SUITE_P(Snap, TappedLongTest, ::testing::Values(96, 300));

TEST_P(TappedLongTest, AGatheredFrameIsKeptWithItsPayload) {
  Open(GetParam());
  for (const uint32_t payload_length : {1'000u, 250u, 1'400u}) {
    for (const uint32_t header_length : {14u, 33u, 34u, 35u, 42u, 46u, 54u, 58u, 66u, 67u, 98u}) {
      SCOPED_TRACE(header_length);
      ASSERT_EQ(PostGathered(header_length, payload_length), nic::TxStatus::kPosted);
      ExpectKept(header_length, payload_length);
    }
  }
  EXPECT_EQ(queues_->counters().tx_gathered, 33u);
}

TEST_P(TappedLongTest, AFrameInOnDeviceMemoryIsKeptWithItsPayload) {
  alignas(64) std::array<uint8_t, 4096> memory{};
  Open(GetParam(), /*signal_every=*/4, {.bytes = memory.data(), .bytes_log2 = 12, .key = 9});
  for (uint32_t i = 0; i < 60; ++i) {
    const uint32_t header_length = std::array{42, 46, 42, 54, 34}[i % 5];
    const uint32_t payload_length = 200 + 7 * i;
    SCOPED_TRACE(header_length);
    ASSERT_EQ(PostStored(header_length, payload_length), nic::TxStatus::kPosted);
    ExpectKept(header_length, payload_length);
  }
  EXPECT_EQ(queues_->counters().tx_device_memory, 60u);
}

// Whatever comes behind whatever: frames of one block to four, with what is asked of each.
class TappedWaysTest : public TappedLongTest {
 protected:
  static constexpr uint32_t kMostInline = kMaxInlineFrameBytes - 42;
  static constexpr uint16_t kLengthAt = 16;

  uint32_t Pick(uint32_t below) { return static_cast<uint32_t>(random_() % below); }
  nic::TxFrame Frame(uint32_t header_length, uint32_t payload_length, uint16_t flags) const {
    return {.header = headers_.data(), .payload = payload_.data(), .header_length = header_length,
            .payload_length = payload_length, .key = 5, .flags = flags};
  }
  void PostCopied(uint32_t payload_length, uint16_t flags) {
    ASSERT_EQ(queues_->PostCopied(flow_, payload_.data(), payload_length, flags),
              nic::TxStatus::kPosted);
    base::StoreBe16(&headers_[kLengthAt], static_cast<uint16_t>(payload_length));
    ExpectFrame(42, payload_length, flags);
  }
  void PostPrepared(uint32_t payload_length, uint16_t flags) {
    nic::TxPrepared prepared;
    ASSERT_TRUE(queues_->PrepareFrame(Frame(42, payload_length, 0), &prepared));
    ASSERT_EQ(queues_->PostPrepared(prepared, flags), nic::TxStatus::kPosted);
    ExpectFrame(42, payload_length, flags);
  }
  void PostAny(uint32_t header_length, uint32_t payload_length, uint16_t flags) {
    const nic::TxFrame frame = Frame(header_length, payload_length, flags);
    ASSERT_EQ(queues_->Post(frame), nic::TxStatus::kPosted);
    ExpectFrame(header_length, payload_length, flags);
  }
  nic::TxStatus PostSegments(uint32_t header_length, std::span<const nic::TxGather> payload) {
    return queues_->PostSegments({.header = headers_.data(), .header_length = header_length,
                                  .segment_bytes = 500, .payload = payload, .flags = 0});
  }
  void PostCut(uint32_t header_length, uint32_t first_length) {
    // The address sanitizer sees who looks beyond a short one.
    const std::vector<uint8_t> first(payload_.begin(), payload_.begin() + first_length);
    const nic::TxGather pieces[] = {{first.data(), first_length, 5}, {payload_.data(), 700, 5}};
    ASSERT_EQ(PostSegments(header_length, pieces), nic::TxStatus::kPosted);
    ExpectFrame(header_length, first_length, 0);
  }
  void PostOne() {
    const auto flags = static_cast<uint16_t>(
        std::array<uint32_t, 5>{0, 0, nic::kTxMore, nic::kTxSignal, nic::kTxWarm}[Pick(5)]);
    switch (Pick(5)) {
      case 0: return PostCopied(1 + Pick(2) * Pick(kMostInline), flags);
      case 1: return PostPrepared(1 + Pick(kMostInline), flags);
      case 2: return PostAny(42, 1 + Pick(kMostInline), flags);
      case 3: return PostAny(14 + Pick(115), 300 + Pick(1'000), flags);
      default: return PostCut(54 + Pick(45), 1 + Pick(1'000));
    }
  }
  // The last one. What is warm reaches no wire.
  void ExpectFrame(uint32_t header_length, uint32_t payload_length, uint16_t flags) {
    queues_->Flush();
    const auto kept = Sent();
    const uint32_t block = block_;
    block_ += WqebbsOfSegments(SegmentsOf(device_.wqe(block)));
    ASSERT_EQ(kept.size(), (flags & nic::kTxWarm) == 0 ? 1u : 0u);
    for (const stats::TappedFrame& frame : kept) {
      std::vector<uint8_t> bytes(headers_.begin(), headers_.begin() + header_length);
      bytes.insert(bytes.end(), payload_.begin(), payload_.begin() + payload_length);
      ASSERT_EQ(frame.frame_bytes, bytes.size());
      ASSERT_EQ(frame.end, static_cast<uint16_t>(block_));
      bytes.resize(std::min<size_t>(bytes.size(), GetParam()));
      ASSERT_THAT(frame.bytes, ElementsAreArray(bytes));
    }
    Complete(block);
  }

  std::mt19937_64 random_{GetParam()};
  nic::TxTemplate flow_;
};
INSTANTIATE_TEST_SUITE_P(Snap, TappedWaysTest, ::testing::Values(96, 300));

TEST_P(TappedWaysTest, EachFrameIsKeptAsItIsSent) {
  Open(GetParam(), /*signal_every=*/4);
  queues_->Prepare({.bytes = flow_header_.data(), .length = 42, .flags = 0,
                    .lengths = {{{.at = kLengthAt}, {.at = kLengthAt}}}},
                   &flow_);
  for (int i = 0; i < 5'000; ++i) {
    SCOPED_TRACE(i);
    ASSERT_NO_FATAL_FAILURE(PostOne());
  }
  EXPECT_GT(queues_->counters().tx_warm, 500u);
  EXPECT_GT(queues_->counters().tx_segmented, 500u);
  EXPECT_GT(queues_->counters().tx_gathered, 500u);
}

TEST_P(TappedWaysTest, WhatIsRefusedIsNotKept) {
  Open(GetParam());
  EXPECT_EQ(PostSegments(54, {}), nic::TxStatus::kTooLong);
  EXPECT_EQ(queues_->Post(Frame(42, 2'000, 0)), nic::TxStatus::kTooLong);
  EXPECT_TRUE(Sent().empty());
}

class TappedStreamTest : public TappedTest, public ::testing::WithParamInterface<uint32_t> {
 protected:
  enum class Way { kRung, kPlaced, kGathered };

  bool Post(const StreamFrame& stream, Way way) {
    switch (way) {
      case Way::kRung: return queues_->PostStreamOtherwise(stream.segment());
      case Way::kPlaced: return queues_->PlaceStream(stream.segment());
      case Way::kGathered: return queues_->PostGathered(stream.segment(), 1, 0).has_value();
    }
    return false;
  }
  // Sends one, and has the device complete it if it is signalled.
  void Send(const StreamFrame& stream, Way way) {
    if (!Post(stream, way)) {
      ASSERT_EQ(way, Way::kGathered) << "more is due than its post";
      ASSERT_TRUE(Post(stream, way = Way::kRung));
    }
    gathered_ += way == Way::kGathered;
    queues_->Flush();
    Complete(block_);
    block_ += way == Way::kRung ? (stream.segment().wqe_bytes() + 63) / 64 : 2;
  }

  uint32_t block_ = 0;
  uint32_t gathered_ = 0;
};
INSTANTIATE_TEST_SUITE_P(Snap, TappedStreamTest, ::testing::Values(96, 256));

// Of each length, by each way, signalled or not, and over the ring's end.
TEST_P(TappedStreamTest, AStreamsSegmentIsKeptAsTheDeviceGetsIt) {
  Open(GetParam());
  ASSERT_TRUE(queues_->TakesStreams());
  ASSERT_FALSE(queues_->StreamFront()->Ready()) << "it would be posted unseen";
  using Segment = nic::StreamSegment;
  for (uint32_t i = 0; i < 8 * Segment::kMostPayloadBytes; ++i) {
    const Way way = static_cast<Way>(i % 5 < 3 ? i % 5 : 0);
    const bool longest = i / 4 % 2 == 0;
    const uint32_t header_bytes = longest ? Segment::kLongestHeader : Segment::kShortestHeader;
    const uint32_t room = way == Way::kPlaced ? sizeof(nic::HalfLine) : Segment::kMostPayloadBytes;
    const StreamFrame stream(header_bytes, 1 + i % room);
    Send(stream, way);
    const auto kept = reader_->Take(10);
    ASSERT_TRUE(kept.ok()) << kept.status();
    ASSERT_GE(kept->size(), 1u) << i;
    const stats::TappedFrame& frame = kept->front();
    std::vector<uint8_t> bytes = stream.bytes();
    ASSERT_EQ(frame.kind, FrameKind::kSent);
    ASSERT_EQ(frame.frame_bytes, bytes.size());
    bytes.resize(std::min<size_t>(bytes.size(), GetParam()));
    ASSERT_THAT(frame.bytes, ElementsAreArray(bytes)) << i;
    ASSERT_EQ(frame.end, static_cast<uint16_t>(block_));
    if (kept->size() > 1) {
      ASSERT_EQ(kept->back().end, frame.end) << "its time";
    }
  }
  EXPECT_GE(gathered_, Segment::kMostPayloadBytes / 2);
}

// What is refused was not sent.
TEST_F(TappedTest, AStreamsSegmentWithoutRoomIsNotKept) {
  const StreamFrame stream(nic::StreamSegment::kLongestHeader, 20);
  while (queues_->PostStreamOtherwise(stream.segment())) {
  }
  EXPECT_FALSE(queues_->PlaceStream(stream.segment()));
  EXPECT_FALSE(queues_->PostGathered(stream.segment(), 1, 0).has_value());
  EXPECT_EQ(Kept().size(), queues_->posted_frames());
}

}  // namespace
}  // namespace xtreme::mlx5::testing
