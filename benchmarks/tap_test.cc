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
constexpr double kMostOtherwise = 100;  // Kept behind the call that posts it: not yet kMost.
constexpr uint32_t kLongBytes = 1'024;

// One queue pair, with a tap or without, seen as the engine sees it.
class Rig {
 public:
  explicit Rig(stats::FrameTap* tap)
      : pool_(*packet::BufferPool::Create({.buffers = 2'048})), device_(kDevice) {
    const mlx5::SendQueue::Options send{.signal_every = 32, .max_frame_bytes = 2 * kLongBytes};
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
  void Send() {
    for (uint32_t i = 0; i < kPackets; ++i) {
      queue_->PostCopied(flow_, payload_.data(), kPayloadBytes, 0);
    }
  }
  // By what takes any frame.
  void SendAny(uint32_t payload_length, uint32_t flags) {
    for (uint32_t i = 0; i < kPackets; ++i) {
      queue_->Post({.header = long_payload_.data(),
                    .payload = long_payload_.data(),
                    .header_length = kUdpHeadersBytes,
                    .payload_length = payload_length,
                    .key = 5,
                    .flags = static_cast<uint16_t>(flags)});
    }
  }

 private:
  const packet::BufferPool::Handle pool_;
  NullDevice device_;
  std::unique_ptr<nic::QueuePair> queue_;
  nic::TxTemplate flow_;
  alignas(64) std::array<uint8_t, 64> payload_{};
  alignas(64) std::array<uint8_t, kLongBytes> long_payload_{};
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

TEST_F(TapTest, OneThatIsLongOrAskedForCostsSomeMoreThanThat) {
  const auto more = [this](uint32_t bytes, uint32_t flags) {
    const double kept = InstructionsAPacket([&] { tapped_->SendAny(bytes, flags); });
    const double plain = InstructionsAPacket([&] { plain_->SendAny(bytes, flags); });
    tapped_->Complete();
    plain_->Complete();
    std::printf("%u bytes, flags %u: %.1f instructions more\n", bytes, flags, kept - plain);
    return kept - plain;
  };
  EXPECT_LE(more(kPayloadBytes, 0), kMost) << "neither";
  EXPECT_LE(more(kLongBytes, 0), kMostOtherwise);
  EXPECT_LE(more(kPayloadBytes, nic::kTxSignal), kMostOtherwise);
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
