// SPDX-License-Identifier: Apache-2.0
//
// What showing frames costs the ring that does: instructions a packet more than the same queue
// pair without a tap, counted one by one, at most kMost each way.

#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include "benchmarks/frame_sizes.h"
#include "benchmarks/frames.h"
#include "benchmarks/null_device.h"
#include "benchmarks/scenario.h"
#include "benchmarks/stepper.h"
#include "benchmarks/tcp_scenarios.h"
#include "gtest/gtest.h"
#include "stack/packet/buffer_pool.h"
#include "xtreme/mlx5/tapped_queue_pair.h"
#include "xtreme/stats/frame_reader.h"
#include "xtreme/stats/frame_tap.h"

namespace xtreme::benchmarks {
namespace {

constexpr NullDevice::Options kDevice;
constexpr uint32_t kPackets = 16;
constexpr double kMost = 30;
#ifdef __clang__
constexpr double kMostLong = 34;  // Some stand on the stack meanwhile; figures are those of GCC.
#else
constexpr double kMostLong = kMost;
#endif
constexpr uint32_t kLongBytes = 1'024;
constexpr uint32_t kThreeBlocks = 80;  // Of payload, that make a WQE of so many.
constexpr uint32_t kFourBlocks = 170;
constexpr uint32_t kSegments = 2;
constexpr uint32_t kKey = 5;

// One queue pair, with a tap or without, seen as the engine sees it.
class Rig {
 public:
  explicit Rig(stats::FrameTap* tap)
      : pool_(*packet::BufferPool::Create({.buffers = 2'048})), device_(kDevice) {
    const mlx5::SendQueue::Options send{.signal_every = 32, .max_frame_bytes = 2 * kLongBytes,
                                        .max_segmented_bytes = 65'536};
    if (tap == nullptr) {
      queue_ = std::make_unique<mlx5::PlainQueuePair>(device_.memory(), send,
                                                      mlx5::ReceiveQueue::Options{},
                                                      NullCapabilities(kDevice), pool_.get(),
                                                      nullptr);
    } else {
      queue_ = std::make_unique<mlx5::TappedQueuePair>(tap, device_.memory(), send,
                                                       mlx5::ReceiveQueue::Options{},
                                                       NullCapabilities(kDevice), pool_.get(),
                                                       nullptr);
    }
    WriteFrames(pool_.get(), UdpFrame(HostB(), HostA()));
    queue_->Refill();
    const wire::FrameTemplate headers = Headers(HostA(), HostB());
    queue_->Prepare({.bytes = headers.data(),
                     .length = kUdpHeadersBytes,
                     .flags = nic::kTxIpChecksum | nic::kTxL4Checksum,
                     .lengths = {{{.at = 16, .constant = 28}, {.at = 38, .constant = 8}}}},
                    &flow_);
  }

  void Arrive() { device_.CompleteReceives(kPackets, kFrameBytes); }
  void Receive() {
    std::array<nic::RxFrame, kPackets> frames;
    const uint32_t count = queue_->PollReceive(frames);
    for (uint32_t i = 0; i < count; ++i) packet::BufferPool::ReleaseByOwner(frames[i].buffer);
    queue_->Refill();
  }
  // The device sends what was posted, and the ring polls for it.
  void Complete() {
    device_.CompleteSends();
    std::array<nic::TxCompletion, kPackets> done;
    while (queue_->PollSend(done) != 0) {
    }
  }
  // `post`(rig, i) for each of kPackets.
  template <typename Post>
  void Send(Post post) {
    for (uint32_t i = 0; i < kPackets; ++i) post(*this, i);
  }
  void Send() {
    Send([](Rig& rig, uint32_t) { rig.PostCopied(kPayloadBytes, 0); });
  }
  void PostCopied(uint32_t payload_length, uint32_t flags) {
    queue_->PostCopied(flow_, bytes_.data(), payload_length, flags);
  }
  void PostStored(uint32_t flags) { queue_->PostStored(flow_, bytes_.data(), kLongBytes, flags); }
  void PostPrepared(const nic::TxPrepared& prepared, uint32_t flags) {
    queue_->PostPrepared(prepared, flags);
  }
  void Post(uint32_t header_length, uint32_t payload_length, uint32_t flags) {
    queue_->Post(Frame(header_length, payload_length, flags));
  }
  // To be cut into kSegments.
  void PostSegments(uint32_t header_length, uint32_t flags) {
    const nic::TxGather payload = {.data = bytes_.data(), .length = kLongBytes, .key = kKey};
    queue_->PostSegments({.header = bytes_.data(),
                          .header_length = header_length,
                          .segment_bytes = kLongBytes / kSegments,
                          .payload = {&payload, 1},
                          .flags = static_cast<uint16_t>(flags)});
  }
  nic::TxPrepared Prepared(uint32_t payload_length) const {
    nic::TxPrepared prepared;
    queue_->PrepareFrame(Frame(kUdpHeadersBytes, payload_length, 0), &prepared);
    return prepared;
  }

 private:
  nic::TxFrame Frame(uint32_t header_length, uint32_t payload_length, uint32_t flags) const {
    return {.header = bytes_.data(),
            .payload = bytes_.data(),
            .header_length = header_length,
            .payload_length = payload_length,
            .key = kKey,
            .flags = static_cast<uint16_t>(flags)};
  }

  const packet::BufferPool::Handle pool_;
  NullDevice device_;
  std::unique_ptr<nic::QueuePair> queue_;
  nic::TxTemplate flow_;
  alignas(64) std::array<uint8_t, kLongBytes> bytes_{};  // Of headers and payloads.
};

template <typename Work>
class Lambda : public Scenario {
 public:
  explicit Lambda(Work work) : work_(work) {}
  uint32_t operations() const override { return kPackets; }
  void Run() override { work_(); }

 private:
  Work work_;
};

template <typename Work>
double InstructionsAPacket(Work work) {
  Lambda scenario(work);
  return static_cast<double>(Stepper().Step(scenario).instructions) / kPackets;
}

class TapTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = "/dev/shm/xtreme_tap_test.XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
    auto tap = stats::FrameTap::Create({.directory = directory_, .frames = 4'096});
    ASSERT_TRUE(tap.ok()) << tap.status();
    tap_ = *std::move(tap);
    tapped_ = std::make_unique<Rig>(tap_.get());
    plain_ = std::make_unique<Rig>(nullptr);
  }
  void TearDown() override {
    tapped_.reset();
    tap_.reset();
    EXPECT_EQ(rmdir(directory_.c_str()), 0);
  }

  std::string directory_;
  std::unique_ptr<stats::FrameTap> tap_;
  std::unique_ptr<Rig> tapped_;
  std::unique_ptr<Rig> plain_;
};

TEST_F(TapTest, AReceivedPacketCostsAFewInstructionsMore) {
  tapped_->Arrive();
  plain_->Arrive();
  const double more = InstructionsAPacket([this] { tapped_->Receive(); }) -
                      InstructionsAPacket([this] { plain_->Receive(); });
  std::printf("received: %.1f instructions more\n", more);
  EXPECT_GT(more, 5);
  EXPECT_LE(more, kMost);
}

TEST_F(TapTest, ASentPacketCostsAFewInstructionsMore) {
  const double more = InstructionsAPacket([this] { tapped_->Send(); }) -
                      InstructionsAPacket([this] { plain_->Send(); });
  std::printf("sent: %.1f instructions more\n", more);
  EXPECT_GT(more, 5);
  EXPECT_LE(more, kMost);
}

TEST_F(TapTest, SoDoesEveryOtherWayToSend) {
  const auto more = [this](const char* way, auto post, double most = kMost) {
    const double kept = InstructionsAPacket([&] { tapped_->Send(post); });
    const double plain = InstructionsAPacket([&] { plain_->Send(post); });
    tapped_->Complete();
    plain_->Complete();
    std::printf("%s: %.1f instructions more than %.1f\n", way, kept - plain, plain);
    EXPECT_LE(kept - plain, most) << way;
  };
  constexpr uint32_t kAsked = nic::kTxSignal;
  constexpr uint32_t kMore = nic::kTxMore;
  more("copied", [](Rig& rig, uint32_t) { rig.PostCopied(kPayloadBytes, 0); });
  more("copied, of two lengths", [](Rig& rig, uint32_t i) { rig.PostCopied(20 + i % 2, 0); });
  more("copied, three blocks", [](Rig& rig, uint32_t) { rig.PostCopied(kThreeBlocks, 0); });
  more("copied, four blocks", [](Rig& rig, uint32_t) { rig.PostCopied(kFourBlocks, 0); });
  more("copied, more to come", [](Rig& rig, uint32_t) { rig.PostCopied(kPayloadBytes, kMore); });
  more("copied, asked for", [](Rig& rig, uint32_t) { rig.PostCopied(kPayloadBytes, kAsked); });
  more("stored", [](Rig& rig, uint32_t) { rig.PostStored(0); });
  more("stored, asked for", [](Rig& rig, uint32_t) { rig.PostStored(kAsked); });
  const nic::TxPrepared prepared = plain_->Prepared(kPayloadBytes);
  const nic::TxPrepared longer = plain_->Prepared(kThreeBlocks);
  more("prepared", [&](Rig& rig, uint32_t) { rig.PostPrepared(prepared, 0); });
  more("prepared, three blocks", [&](Rig& rig, uint32_t) { rig.PostPrepared(longer, 0); });
  more("prepared, asked for", [&](Rig& rig, uint32_t) { rig.PostPrepared(prepared, kAsked); });
  constexpr uint32_t kTcpWithTag = 70;  // And timestamps.
  more("any", [](Rig& rig, uint32_t) { rig.Post(kUdpHeadersBytes, kPayloadBytes, 0); });
  constexpr uint32_t kUdp = kUdpHeadersBytes;
  more("any, asked for", [](Rig& rig, uint32_t) { rig.Post(kUdp, kPayloadBytes, kAsked); });
  more("long", [](Rig& rig, uint32_t) { rig.Post(kUdp, kLongBytes, 0); }, kMostLong);
  const auto post_asked = [](Rig& rig, uint32_t) { rig.Post(kUdp, kLongBytes, kAsked); };
  more("long, asked for", post_asked, kMostLong);
  const auto post_tagged = [](Rig& rig, uint32_t) { rig.Post(kTcpWithTag, kLongBytes, 0); };
  more("long, tagged", post_tagged, kMostLong);
  // Of the frames that one post sends at least.
  constexpr double kCut = kMost * kSegments;
  more("cut", [](Rig& rig, uint32_t) { rig.PostSegments(54, 0); }, kCut);
  more("cut, asked for", [](Rig& rig, uint32_t) { rig.PostSegments(66, kAsked); }, kCut);
  more("cut, tagged", [](Rig& rig, uint32_t) { rig.PostSegments(kTcpWithTag, 0); }, kCut);
}

// A ring that keeps its frames sends over TCP by a function of its own, chosen with its queue: by
// the other's, which hands every segment to the queue, it would cost near three times as much.
TEST(TapRingTest, SoDoesARoundTripOverTcp) {
  constexpr double kFrames = 4;  // Two with a byte, and two acknowledgements.
  // Steps are slow: by the TSC timers would be due beside most round trips.
  constexpr bool kStillClock = true;
  const auto plain = TcpPingPong(kPackets, /*connections=*/1, kStillClock);
  const auto kept = TcpPingPongKept(kPackets, kStillClock);
  ASSERT_TRUE(plain.ok() && kept.ok()) << plain.status() << kept.status();
  const auto instructions = [](Scenario& scenario) {
    scenario.Prepare();
    return static_cast<double>(Stepper().Step(scenario).instructions) / kPackets;
  };
  const double more = instructions(**kept) - instructions(**plain);
  std::printf("over TCP: %.1f instructions more\n", more);
  EXPECT_GT(more, 5 * kFrames);
  EXPECT_LE(more, kMost * kFrames);
}

TEST_F(TapTest, WhatIsSentIsKeptAsTheDeviceGetsIt) {
  for (int i = 0; i < 20; ++i) tapped_->Send();
  const auto reader = stats::FrameReader::Open(tap_->path());
  ASSERT_TRUE(reader.ok()) << reader.status();
  const auto frames = (*reader)->Take(1'000);
  ASSERT_EQ(frames->size(), 20 * kPackets);
  for (const stats::TappedFrame& frame : *frames) {
    ASSERT_EQ(frame.bytes, frames->front().bytes) << frame.number;
  }
  const std::vector<uint8_t>& bytes = frames->front().bytes;
  ASSERT_EQ(bytes.size(), kUdpHeadersBytes + kPayloadBytes);
  EXPECT_EQ(bytes[16] << 8 | bytes[17], static_cast<int>(bytes.size()) - 14) << "IP's length";
  EXPECT_EQ(bytes[38] << 8 | bytes[39], static_cast<int>(kPayloadBytes) + 8) << "UDP's length";
}

TEST_F(TapTest, TheDevicesTimeOfACompletionFollowsTheFrameThatItNames) {
  // One in 32 is signalled.
  for (int i = 0; i < 4; ++i) tapped_->Send();
  tapped_->Complete();
  const auto reader = stats::FrameReader::Open(tap_->path());
  ASSERT_TRUE(reader.ok()) << reader.status();
  auto frames = (*reader)->Take(1'000);
  ASSERT_EQ(frames->size(), 4 * kPackets + 2);
  stats::ApplySendTimes(&*frames, frames->size());
  ASSERT_EQ(frames->size(), 4 * kPackets);
  for (const stats::TappedFrame& frame : *frames) {
    constexpr uint32_t kBlocks = 2;
    EXPECT_EQ(frame.end, kBlocks * (frame.number + 1)) << "in the order of the send queue";
  }
}

}  // namespace
}  // namespace xtreme::benchmarks
