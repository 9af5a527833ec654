// SPDX-License-Identifier: Apache-2.0
//
// TCP segments that are put together in registers are the WQEs that Post() would write, whatever
// is due with them.

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <numeric>
#include <optional>
#include <vector>

#include "gtest/gtest.h"
#include "xtreme/mlx5/queue_pair_testing.h"
#include "xtreme/mlx5/stream_frame_testing.h"
#include "xtreme/nic/stream_post.h"

namespace xtreme::mlx5::testing {
namespace {

using Segment = nic::StreamSegment;

class StreamPostTest : public QueuePairTest {};

// At the ring's end, over it, signalled, and behind others that wait for a doorbell.
TEST_F(StreamPostTest, AStreamsSegmentIsTheSameWqeAsAPostedOneWhateverItsLength) {
  PlainDevice other;
  const SendQueue::Options options{.signal_every = 8};
  QueuePair posted(other.memory(), options, ReceiveQueue::Options{}, {}, pool_.get(), nullptr);
  queues_ = std::make_unique<QueuePair>(device_.memory(), options, ReceiveQueue::Options{},
                                        nic::Capabilities{}, pool_.get(), nullptr);
  nic::TxFront& front = *queues_->StreamFront();
  const auto complete = [&](uint32_t at) {
    if (!HasCompletion(device_.wqe(at))) return;
    std::array<nic::TxCompletion, 4> done;
    device_.CompleteSend(static_cast<uint16_t>(at));
    other.CompleteSend(static_cast<uint16_t>(at));
    ASSERT_EQ(posted.PollSend(done), 1u);
    ASSERT_EQ(queues_->PollSend(done), 1u);
  };
  uint32_t block = 0, ready = 0, others = 0;
  for (uint32_t i = 0; i < 8 * Segment::kMostPayloadBytes; ++i) {
    const bool longest = i / Segment::kMostPayloadBytes % 2 == 0;
    const StreamFrame stream(longest ? Segment::kLongestHeader : Segment::kShortestHeader,
                             i % Segment::kMostPayloadBytes + 1);
    const uint32_t bytes = stream.segment().wqe_bytes();
    const bool waits = i % 5 == 0;
    if (waits) {
      ASSERT_EQ(posted.Post(stream.frame(nic::kTxMore)), nic::TxStatus::kPosted);
      ASSERT_EQ(queues_->Post(stream.frame(nic::kTxMore)), nic::TxStatus::kPosted);
      ASSERT_FALSE(front.Ready()) << "BlueFlame would leave it behind";
      block += (bytes + 63) / 64;
      ++others;
    }
    ASSERT_EQ(posted.Post(stream.frame()), nic::TxStatus::kPosted);
    ready += front.Ready();
    if (front.Ready()) {
      nic::PostStream(front, stream.segment());
    } else {
      ASSERT_TRUE(queues_->PostStreamOtherwise(stream.segment()));
    }
    for (uint32_t at = 0; at < bytes; at += 64) {
      const size_t used = std::min<size_t>(64, bytes - at);
      ASSERT_EQ(std::memcmp(device_.wqe(block + at / 64), other.wqe(block + at / 64), used), 0)
          << "byte " << at << " of " << i;
    }
    ASSERT_EQ(device_.send_record(), other.send_record());
    const size_t half = i % 2 == 0 ? 0x800 : 0x900;
    ASSERT_EQ(std::memcmp(device_.uar(half), other.uar(half), waits ? 8 : bytes), 0) << i;
    ASSERT_EQ(queues_->posted_frames(), posted.posted_frames());
    if (waits) complete(block - (bytes + 63) / 64);
    complete(block);
    block += (bytes + 63) / 64;
  }
  EXPECT_GE(ready, 4 * Segment::kMostPayloadBytes) << "one in four or less is signalled";
  EXPECT_EQ(queues_->counters().tx_frames, posted.counters().tx_frames);
  EXPECT_EQ(queues_->counters().tx_bytes, posted.counters().tx_bytes);
  EXPECT_EQ(queues_->counters().tx_blueflame, posted.counters().tx_blueflame);
  EXPECT_EQ(queues_->counters().tx_doorbells, others);
}

// Nor does a queue whose user only sends run full.
TEST_F(StreamPostTest, ASignalledSegmentTakesACompletionAndTheNextIsReady) {
  alignas(64) std::array<uint8_t, 512> bytes{};
  const Segment segment{.headers = bytes.data(), .header_bytes = Segment::kLongestHeader,
                        .tcp = {}, .payload = bytes.data(), .payload_length = 20};
  nic::TxFront& front = *queues_->StreamFront();
  constexpr uint32_t kBeforeEnd = kFrames + 4;
  for (uint32_t i = 0; i < kBeforeEnd; i += 2) {
    ASSERT_TRUE(front.Ready()) << i;
    nic::PostStream(front, segment);
    ASSERT_FALSE(front.Ready()) << "the second one is signalled";
    ASSERT_TRUE(queues_->PostStreamOtherwise(segment));
    ASSERT_TRUE(HasCompletion(device_.wqe(2 * i + 2))) << i;
    device_.CompleteSend(static_cast<uint16_t>(2 * i + 2));
  }
  std::array<nic::TxCompletion, kFrames> done;
  EXPECT_EQ(queues_->PollSend(done), 1u) << "of the last one; those before were taken";
  EXPECT_EQ(done[0].frames, kBeforeEnd);
  EXPECT_TRUE(queues_->SendIdle());
}

TEST_F(StreamPostTest, AlsoBehindOneThatFillsTheQueue) {
  const StreamFrame stream(Segment::kLongestHeader, 20);
  nic::TxFront& front = *queues_->StreamFront();
  for (uint32_t i = 0; i < kFrames; ++i) {
    if (i + 1 == kFrames) device_.CompleteSend(2);
    if (front.Ready()) {
      nic::PostStream(front, stream.segment());
    } else {
      ASSERT_TRUE(queues_->PostStreamOtherwise(stream.segment()));
    }
  }
  EXPECT_TRUE(front.Ready()) << "two have left";
}

// As it does behind one that was posted otherwise.
TEST_F(StreamPostTest, ASegmentTakesTheRoomThatACompletionGivesBack) {
  const StreamFrame stream(Segment::kLongestHeader, 20);
  for (uint32_t i = 0; i < kFrames; ++i) ASSERT_EQ(Post(64), nic::TxStatus::kPosted);
  device_.CompleteSend(2);
  EXPECT_TRUE(queues_->PostStreamOtherwise(stream.segment()));
}

TEST_F(StreamPostTest, AQueueThatIsFullTakesNoSegment) {
  alignas(64) std::array<uint8_t, 512> bytes{};
  const Segment segment{.headers = bytes.data(),
                                   .header_bytes = Segment::kLongestHeader,
                                   .tcp = {}, .payload = bytes.data(), .payload_length = 20};
  for (uint32_t i = 0; i < kFrames; ++i) ASSERT_EQ(Post(64), nic::TxStatus::kPosted);
  EXPECT_FALSE(queues_->PostStreamOtherwise(segment));
  EXPECT_EQ(queues_->posted_frames(), kFrames);
  device_.CompleteSend(2);
  EXPECT_EQ(Sent(), std::vector<uint32_t>{2});
  EXPECT_TRUE(queues_->PostStreamOtherwise(segment));
  device_.CompleteSend(6, MLX5_CQE_REQ_ERR);
  EXPECT_EQ(Sent(), std::vector<uint32_t>{4});
  EXPECT_FALSE(queues_->PostStreamOtherwise(segment)) << "nor does one in error";
}

TEST_F(StreamPostTest, NorOneWithoutPayload) {
  const StreamFrame stream(Segment::kLongestHeader, 0);
  for (uint32_t i = 0; i < kFrames; ++i) ASSERT_EQ(Post(64), nic::TxStatus::kPosted);
  EXPECT_FALSE(queues_->PlaceStream(stream.segment()));
  EXPECT_EQ(queues_->posted_frames(), kFrames);
}

// Whose checksums are to be the NIC's, or whose place is on the device.
TEST_F(StreamPostTest, AQueueThatCannotLeavesThemToPost) {
  const StreamFrame bare(Segment::kLongestHeader, 0), stream(Segment::kLongestHeader, 1'000);
  const StreamFrame shorter(Segment::kLongestHeader, 20);
  queues_ = std::make_unique<QueuePair>(device_.memory(), SendQueue::Options{.checksums = false},
                                        ReceiveQueue::Options{}, nic::Capabilities{}, pool_.get(),
                                        nullptr);
  EXPECT_FALSE(queues_->PlaceStream(bare.segment()));
  EXPECT_FALSE(queues_->PostStreamOtherwise(shorter.segment()));
  EXPECT_FALSE(queues_->PostGathered(stream.segment(), 1, nic::kTxSignal).has_value());
  alignas(64) std::array<uint8_t, 4096> on_device;
  OpenWithDeviceMemory(on_device.data(), /*signal_every=*/2);
  EXPECT_FALSE(queues_->PostGathered(stream.segment(), 1, nic::kTxSignal).has_value());
  EXPECT_TRUE(queues_->PlaceStream(bare.segment()));
}

TEST_F(StreamPostTest, AnAcknowledgementThatIsPlacedIsTheSameWqeAndRungForWithOthers) {
  PlainDevice other;
  const SendQueue::Options options{.signal_every = 8};
  QueuePair posted(other.memory(), options, ReceiveQueue::Options{}, {}, pool_.get(), nullptr);
  queues_ = std::make_unique<QueuePair>(device_.memory(), options, ReceiveQueue::Options{},
                                        nic::Capabilities{}, pool_.get(), nullptr);
  constexpr uint32_t kBytes = Segment::kLongestHeader;
  std::array<uint8_t, 128> header{};
  std::iota(header.begin(), header.begin() + kBytes, 1);
  base::StoreBe16(&header[16], kBytes - 14);
  nic::HalfLine tcp;
  std::memcpy(&tcp, &header[Segment::kTcpAt], sizeof(tcp));
  const nic::TxFrame frame{.header = header.data(), .payload = nullptr,
                           .header_length = kBytes, .payload_length = 0, .key = 0,
                           .flags = nic::kTxIpChecksum | nic::kTxL4Checksum | nic::kTxMore};
  for (uint32_t i = 0; i < 3; ++i) {
    ASSERT_EQ(posted.Post(frame), nic::TxStatus::kPosted);
    ASSERT_TRUE(queues_->PlaceStream({.headers = header.data(), .header_bytes = kBytes, .tcp = tcp,
                                      .payload = header.data(), .payload_length = 0}));
    ASSERT_EQ(std::memcmp(device_.wqe(2 * i), other.wqe(2 * i), Segment::kAfterTcp), 0);
    EXPECT_EQ(device_.send_record(), 0u) << "nothing is rung for";
  }
  EXPECT_FALSE(queues_->StreamFront()->Ready()) << "BlueFlame would leave them behind";
  queues_->Flush();
  posted.Flush();
  EXPECT_EQ(device_.send_record(), 6u);
  EXPECT_EQ(device_.send_record(), other.send_record());
  EXPECT_EQ(std::memcmp(device_.uar(0x800), other.uar(0x800), 8), 0);
  EXPECT_EQ(queues_->counters().tx_frames, 3u);
  EXPECT_EQ(queues_->counters().tx_bytes, posted.counters().tx_bytes);
  EXPECT_EQ(queues_->counters().tx_doorbells, 1u);
  EXPECT_EQ(queues_->counters().tx_blueflame, 0u);
}

TEST_F(StreamPostTest, APlacedSegmentHasTheSignalThatIsDue) {
  PlainDevice other;
  const SendQueue::Options options{.signal_every = 3};
  QueuePair posted(other.memory(), options, ReceiveQueue::Options{}, {}, pool_.get(), nullptr);
  QueuePair placed(device_.memory(), options, ReceiveQueue::Options{}, {}, pool_.get(), nullptr);
  const StreamFrame stream(Segment::kLongestHeader, 0);
  uint32_t signals = 0;
  for (uint32_t i = 0; i < kFrames; ++i) {
    ASSERT_TRUE(placed.PlaceStream(stream.segment()));
    ASSERT_EQ(posted.Post(stream.frame(nic::kTxMore)), nic::TxStatus::kPosted);
    EXPECT_EQ(std::memcmp(device_.wqe(2 * i), other.wqe(2 * i), Segment::kAfterTcp), 0) << i;
    signals += HasCompletion(device_.wqe(2 * i));
  }
  EXPECT_EQ(signals, kFrames / 3);
  placed.Flush();
  posted.Flush();
  EXPECT_EQ(device_.send_record(), other.send_record());
  EXPECT_EQ(placed.counters().tx_bytes, posted.counters().tx_bytes);
  EXPECT_EQ(placed.counters().tx_blueflame, 0u);
}

// Nor does who asks for no completion have to poll.
TEST_F(StreamPostTest, PlacedSegmentsTakeTheirCompletionsThemselves) {
  const SendQueue::Options options{.signal_every = 3};
  QueuePair placed(device_.memory(), options, ReceiveQueue::Options{}, {}, pool_.get(), nullptr);
  const StreamFrame stream(Segment::kLongestHeader, 0);
  for (uint32_t i = 0; i < 4 * kFrames; ++i) {
    ASSERT_TRUE(placed.PlaceStream(stream.segment())) << i;
    placed.Flush();
    const auto index = static_cast<uint16_t>(2 * i);
    if (HasCompletion(device_.wqe(index))) device_.CompleteSend(index);
  }
}

// As SYNs have their options, and whatever else fits.
TEST_F(StreamPostTest, APlacedSegmentHasWhatStandsBehindItsHeader) {
  const SendQueue::Options options{.signal_every = 8};
  for (const uint32_t header : {Segment::kShortestHeader, Segment::kLongestHeader}) {
    const uint32_t most = Segment::kPayloadPlaced + Segment::kShortestHeader - header;
    for (uint32_t length = 1; length <= most; ++length) {
      SCOPED_TRACE(::testing::Message() << length << " bytes behind " << header);
      PlainDevice device, other;
      QueuePair placed(device.memory(), options, ReceiveQueue::Options{}, {}, pool_.get(), nullptr);
      QueuePair posted(other.memory(), options, ReceiveQueue::Options{}, {}, pool_.get(), nullptr);
      const StreamFrame stream(header, length);
      for (uint32_t i = 0; i < 2; ++i) {
        ASSERT_TRUE(placed.PlaceStream(stream.segment()));
        ASSERT_EQ(posted.Post(stream.frame(nic::kTxMore)), nic::TxStatus::kPosted);
        const uint32_t rest = stream.segment().wqe_bytes() - 64;
        EXPECT_EQ(std::memcmp(device.wqe(2 * i), other.wqe(2 * i), 64), 0);
        EXPECT_EQ(std::memcmp(device.wqe(2 * i + 1), other.wqe(2 * i + 1), rest), 0);
      }
      EXPECT_EQ(placed.counters().tx_bytes, posted.counters().tx_bytes);
    }
  }
}

// What is due is seen to by Post(), which whoever is refused calls.
TEST_F(StreamPostTest, AGatheredSegmentIsTheSameWqeAsAPostedOne) {
  PlainDevice other;
  constexpr uint32_t kKey = 0x5511;
  const SendQueue::Options options{.signal_every = 4};
  QueuePair posted(other.memory(), options, ReceiveQueue::Options{}, {}, pool_.get(), nullptr);
  queues_ = std::make_unique<QueuePair>(device_.memory(), options, ReceiveQueue::Options{},
                                        nic::Capabilities{}, pool_.get(), nullptr);
  uint32_t gathered = 0;
  std::vector<uint32_t> asked;
  for (uint32_t i = 0; i < 4 * kFrames; ++i) {
    const bool longest = i % 2 == 0;
    const StreamFrame stream(longest ? Segment::kLongestHeader : Segment::kShortestHeader,
                             400 + 17 * i);
    const uint32_t flags = i % 3 == 0 ? nic::kTxSignal : i % 3 == 1 ? nic::kTxMore : 0;
    ASSERT_EQ(posted.Post(stream.frame(flags, kKey)), nic::TxStatus::kPosted);
    const auto number = queues_->PostGathered(stream.segment(), kKey, flags);
    if (number.has_value()) {
      EXPECT_EQ(*number, i + 1);
      ++gathered;
    } else {
      ASSERT_EQ(queues_->Post(stream.frame(flags, kKey)), nic::TxStatus::kPosted);
    }
    const uint32_t block = 2 * i;
    const auto same = [&](uint32_t from, uint32_t to) {
      for (uint32_t at = from; at < to; ++at) {
        const uint32_t in = block + at / 64;
        const auto address = at >= 104 && at < 112;  // Each frame's payload is its own.
        if (!address && device_.wqe(in)[at % 64] != other.wqe(in)[at % 64]) return at;
      }
      return to;
    };
    const uint32_t header_end = Segment::kFrameAt + stream.segment().header_bytes;
    ASSERT_EQ(same(0, header_end), header_end) << i;
    ASSERT_EQ(same(96, 112), 112u) << "the data segment of " << i;
    EXPECT_EQ(base::LoadBe64(device_.wqe(block + 1) + 40),
              reinterpret_cast<uintptr_t>(stream.segment().payload));
    ASSERT_EQ(device_.send_record(), other.send_record()) << i;
    ASSERT_EQ(std::memcmp(device_.uar(0x800), other.uar(0x800), 8), 0) << i;
    ASSERT_EQ(std::memcmp(device_.uar(0x900), other.uar(0x900), 8), 0) << i;
    ASSERT_EQ(queues_->SendIdle(), posted.SendIdle()) << i;
    if (!HasCompletion(device_.wqe(block))) continue;
    device_.CompleteSend(static_cast<uint16_t>(block));
    other.CompleteSend(static_cast<uint16_t>(block));
    asked = Sent();
    ASSERT_EQ(asked, std::vector<uint32_t>{i + 1});
    std::array<nic::TxCompletion, 4> done;
    ASSERT_EQ(posted.PollSend(done), 1u);
  }
  EXPECT_GE(gathered, 2 * kFrames);
  EXPECT_EQ(queues_->counters().tx_frames, posted.counters().tx_frames);
  EXPECT_EQ(queues_->counters().tx_bytes, posted.counters().tx_bytes);
  EXPECT_EQ(queues_->counters().tx_gathered, posted.counters().tx_gathered);
  EXPECT_EQ(queues_->counters().tx_blueflame, posted.counters().tx_blueflame);
  EXPECT_EQ(queues_->counters().tx_doorbells, posted.counters().tx_doorbells);
}

TEST_F(StreamPostTest, AGatheredSegmentMayBeAsLongAsAFrame) {
  const StreamFrame longest(Segment::kLongestHeader, 1'452), other(Segment::kShortestHeader, 1'464);
  EXPECT_TRUE(queues_->PostGathered(longest.segment(), 1, 0).has_value());
  ASSERT_EQ(Post(64), nic::TxStatus::kPosted) << "with the signal that is due";
  EXPECT_TRUE(queues_->PostGathered(other.segment(), 1, nic::kTxSignal).has_value());
}

TEST_F(StreamPostTest, ACompletionThatAGatheredSegmentAskedForIsLeftToWhoAsked) {
  const StreamFrame stream(Segment::kLongestHeader, 1'000);
  ASSERT_TRUE(queues_->PostGathered(stream.segment(), 1, nic::kTxSignal).has_value());
  for (int i = 0; i < 2; ++i) ASSERT_EQ(Post(64), nic::TxStatus::kPosted);
  device_.CompleteSend(0);
  device_.CompleteSend(4);
  ASSERT_EQ(Post(64), nic::TxStatus::kPosted);
  EXPECT_EQ(Sent(), (std::vector<uint32_t>{1, 3}));
}

TEST_F(StreamPostTest, AQueueThatIsFullOrBrokenGathersNothingNorWhatIsTooLong) {
  const StreamFrame stream(Segment::kLongestHeader, 1'000);
  const auto post = [&] { return queues_->PostGathered(stream.segment(), 1, nic::kTxSignal); };
  EXPECT_FALSE(queues_->PostGathered(StreamFrame(Segment::kLongestHeader, 1'453).segment(), 1, 0))
      << "above the port's MTU";
  EXPECT_FALSE(queues_->PostGathered(StreamFrame(Segment::kShortestHeader, 1'465).segment(), 1, 0));
  for (uint32_t i = 0; i < kFrames; ++i) ASSERT_EQ(Post(64), nic::TxStatus::kPosted);
  EXPECT_FALSE(post().has_value());
  EXPECT_EQ(queues_->posted_frames(), kFrames);
  device_.CompleteSend(2);
  EXPECT_EQ(Sent(), std::vector<uint32_t>{2});
  EXPECT_EQ(post(), std::optional<uint32_t>(kFrames + 1));
  device_.CompleteSend(6, MLX5_CQE_REQ_ERR);
  EXPECT_EQ(Sent(), std::vector<uint32_t>{4});
  EXPECT_FALSE(post().has_value());
}

TEST_F(StreamPostTest, AFailedSegmentIsCountedFromTheLastSignalOn) {
  for (const bool gathered : {false, true}) {
    const StreamFrame stream(Segment::kLongestHeader, gathered ? 1'000 : 20);
    PlainDevice device;
    QueuePair queues(device.memory(), {.signal_every = gathered ? kFrames : 4}, {}, {},
                     pool_.get(), nullptr);
    nic::TxFront& front = *queues.StreamFront();
    const auto post = [&](uint32_t flags) {
      if (gathered) return queues.PostGathered(stream.segment(), 1, flags).has_value();
      if (!front.Ready()) return queues.PostStreamOtherwise(stream.segment());
      nic::PostStream(front, stream.segment());
      return true;
    };
    for (uint32_t i = 0; i < 7; ++i) ASSERT_TRUE(post(i == 3 ? nic::kTxSignal : 0)) << i;
    std::array<nic::TxCompletion, 4> sent;
    device.CompleteSend(6);
    ASSERT_EQ(queues.PollSend(sent), 1u);
    EXPECT_EQ(sent[0].frames, 4u);
    device.CompleteSend(10, MLX5_CQE_REQ_ERR, MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR);
    ASSERT_EQ(queues.PollSend(sent), 1u);
    EXPECT_EQ(sent[0].frames, 6u) << "the second one behind it, gathered: " << gathered;
  }
}


}  // namespace
}  // namespace xtreme::mlx5::testing
