// SPDX-License-Identifier: Apache-2.0

#include "xtreme/mlx5/queue_pair.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <numeric>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "xtreme/mlx5/queue_pair_testing.h"
#include "xtreme/nic/doorbell.h"

namespace xtreme::mlx5::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST_F(QueuePairTest, BlueFlameAlternatesBetweenTheHalvesOfItsRegister) {
  ASSERT_EQ(Post(64), nic::TxStatus::kPosted);
  EXPECT_EQ(std::memcmp(device_.uar(0x800), device_.wqe(0), 128), 0);
  EXPECT_EQ(device_.send_record(), 2u);
  ASSERT_EQ(Post(64), nic::TxStatus::kPosted);
  EXPECT_EQ(std::memcmp(device_.uar(0x900), device_.wqe(2), 128), 0);
  EXPECT_EQ(device_.send_record(), 4u);
  ASSERT_EQ(Post(226), nic::TxStatus::kPosted);
  EXPECT_EQ(std::memcmp(device_.uar(0x800), device_.wqe(4), 256), 0);
}

TEST_F(QueuePairTest, FramesWithMoreAreInvisibleUntilFlush) {
  for (int i = 0; i < 3; ++i) ASSERT_EQ(Post(64, nic::kTxMore), nic::TxStatus::kPosted);
  EXPECT_EQ(device_.send_record(), 0u);
  queues_->Flush();
  EXPECT_EQ(device_.send_record(), 6u);
  EXPECT_EQ(std::memcmp(device_.uar(0x800), device_.wqe(4), 8), 0) << "rings for the last one";
  EXPECT_EQ(std::memcmp(device_.uar(0x808), std::array<uint8_t, 8>{}.data(), 8), 0);
  EXPECT_EQ(queues_->counters().tx_doorbells, 1u);
}

TEST_F(QueuePairTest, EveryNthFrameIsSignalledAndTheAskedForOnes) {
  const auto signalled = [&](uint32_t wqebb) { return device_.wqe(wqebb)[11] == 8; };
  for (uint16_t flags : {0, 0, 4, 0, 0}) ASSERT_EQ(Post(64, flags), nic::TxStatus::kPosted);
  EXPECT_FALSE(signalled(0));
  EXPECT_TRUE(signalled(2));
  EXPECT_TRUE(signalled(4)) << "asked for";
  EXPECT_FALSE(signalled(6)) << "counted from the last signal";
  EXPECT_TRUE(signalled(8));
}

TEST_F(QueuePairTest, CompletionTellsTheFramesUpToIt) {
  for (int i = 0; i < 6; ++i) ASSERT_EQ(Post(64), nic::TxStatus::kPosted);
  EXPECT_FALSE(queues_->SendIdle());
  device_.CompleteSend(2);
  EXPECT_THAT(Sent(), ElementsAre(2));
  device_.CompleteSend(6);
  device_.CompleteSend(10);
  EXPECT_THAT(Sent(), ElementsAre(4, 6));
  EXPECT_TRUE(queues_->SendIdle());
  ASSERT_EQ(Post(64), nic::TxStatus::kPosted);
  EXPECT_TRUE(queues_->SendIdle()) << "an unsignalled frame has no completion to wait for";
}

TEST_F(QueuePairTest, TheLastThatWaitsForTheDoorbellMayBeAskedForAfterItWasPosted) {
  EXPECT_FALSE(queues_->SignalLast()) << "nothing waits";
  uint32_t frames = 0;
  uint32_t begin = 0;
  // At every place of the ring, over its end too; signalled by itself, or not.
  for (uint32_t lap = 0; lap < 60; ++lap) {
    const uint32_t bytes = 50 + 50 * (lap % 4);
    const uint32_t count = 2 + lap % 2;
    for (uint32_t i = 0; i < count; ++i) {
      ASSERT_EQ(Post(bytes, nic::kTxMore), nic::TxStatus::kPosted);
    }
    ASSERT_TRUE(queues_->SignalLast());
    ASSERT_TRUE(queues_->SignalLast()) << "once more is nothing";
    queues_->Flush();
    EXPECT_FALSE(queues_->SignalLast()) << "it is the device's";
    for (uint32_t i = 0; i < count; ++i) {
      const uint32_t at = begin + i * WqebbsWithInline(bytes);
      const bool asked = device_.wqe(at)[11] == 8;
      if (asked) device_.CompleteSend(static_cast<uint16_t>(at));
      EXPECT_TRUE(asked || i + 1 != count) << lap;
    }
    begin += count * WqebbsWithInline(bytes);
    frames += count;
    const std::vector<uint32_t> told = Sent();
    ASSERT_FALSE(told.empty());
    EXPECT_EQ(told.back(), frames);
    EXPECT_TRUE(queues_->SendIdle());
  }
}

TEST_F(QueuePairTest, FullQueueOverwritesNothingAndFreesWithCompletions) {
  for (uint32_t i = 0; i < kFrames; ++i) ASSERT_EQ(Post(226), nic::TxStatus::kPosted);
  const std::vector<uint8_t> first(device_.wqe(0), device_.wqe(0) + 64);
  EXPECT_EQ(Post(226), nic::TxStatus::kFull);
  EXPECT_EQ(std::memcmp(device_.wqe(0), first.data(), 64), 0);
  device_.CompleteSend(4);
  EXPECT_THAT(Sent(), ElementsAre(2));
  EXPECT_EQ(Post(226), nic::TxStatus::kPosted);
  EXPECT_EQ(Post(226), nic::TxStatus::kPosted);
  EXPECT_EQ(Post(226), nic::TxStatus::kFull);
  EXPECT_EQ(queues_->counters().tx_full, 2u);
}

TEST_F(QueuePairTest, AQueueThatOnlySendsDoesNotRunFull) {
  for (uint32_t i = 0; i < 3 * kFrames; ++i) {
    ASSERT_EQ(Post(64), nic::TxStatus::kPosted) << i;
    if (i % 2 == 1) device_.CompleteSend(static_cast<uint16_t>(2 * i));
  }
  EXPECT_EQ(queues_->counters().tx_full, 0u);
  EXPECT_THAT(Sent(), ElementsAre(3 * kFrames)) << "all of them by the last";
  EXPECT_TRUE(queues_->SendIdle());
  for (uint32_t i = 0; i < 2; ++i) ASSERT_EQ(Post(64), nic::TxStatus::kPosted);
  device_.CompleteSend(static_cast<uint16_t>(2 * (3 * kFrames + 1)));
  ASSERT_EQ(Post(64), nic::TxStatus::kPosted);
  EXPECT_FALSE(queues_->SendIdle()) << "what was taken ahead is still to be told";
  EXPECT_THAT(Sent(), ElementsAre(3 * kFrames + 2));
  EXPECT_TRUE(queues_->SendIdle());
}

TEST_F(QueuePairTest, CompletionsThatWereAskedForAreLeftToWhoAsked) {
  for (uint16_t flags : {4, 0, 0}) ASSERT_EQ(Post(64, flags), nic::TxStatus::kPosted);
  device_.CompleteSend(0);
  device_.CompleteSend(4);
  ASSERT_EQ(Post(64), nic::TxStatus::kPosted);
  EXPECT_THAT(Sent(), ElementsAre(1, 3));
}

TEST_F(QueuePairTest, AlsoWhereTheDeviceMemoryWantsTheRoom) {
  alignas(64) std::array<uint8_t, 4096> memory{};
  OpenWithDeviceMemory(memory.data(), 8);
  const nic::TxTemplate flow = Flow();
  const auto post = [&](uint32_t flags) {
    return queues_->PostStored(flow, payload_.data(), 1000, flags);
  };
  for (uint32_t i = 0; i < 4; ++i) {
    ASSERT_EQ(post(i == 0 ? nic::kTxSignal : 0), nic::TxStatus::kPosted);
  }
  device_.CompleteSend(0);
  EXPECT_EQ(post(0), nic::TxStatus::kTooLong);
  EXPECT_THAT(Sent(), ElementsAre(1));
  EXPECT_EQ(post(0), nic::TxStatus::kPosted);
}

TEST_F(QueuePairTest, AndIfTheyWereAskedForAfterwards) {
  for (int i = 0; i < 2; ++i) ASSERT_EQ(Post(64, nic::kTxMore), nic::TxStatus::kPosted);
  ASSERT_TRUE(queues_->SignalLast()) << "which is signalled already";
  queues_->Flush();
  device_.CompleteSend(2);
  ASSERT_EQ(Post(64), nic::TxStatus::kPosted);
  std::array<nic::TxCompletion, 4> sent;
  ASSERT_EQ(queues_->PollSend(sent), 1u);
  EXPECT_EQ(sent[0].frames, 2u);
  EXPECT_NE(sent[0].hw_clock, 0u) << "with its time";
}

TEST_F(QueuePairTest, AlsoBehindOthersThatNobodyAskedFor) {
  ASSERT_EQ(Post(64, nic::kTxMore), nic::TxStatus::kPosted);
  ASSERT_TRUE(queues_->SignalLast());
  queues_->Flush();
  for (int i = 0; i < 2; ++i) ASSERT_EQ(Post(64), nic::TxStatus::kPosted);
  device_.CompleteSend(0);
  device_.CompleteSend(4);
  ASSERT_EQ(Post(64), nic::TxStatus::kPosted);
  EXPECT_THAT(Sent(), ElementsAre(1, 3));
}

TEST_F(QueuePairTest, WqeAcrossTheRingsEndGoesOnAtItsStart) {
  uint32_t wqebb = 0;
  // Three blocks each: the ring of 32 ends inside one.
  for (uint32_t i = 0; i < 11; ++i) {
    ASSERT_EQ(Post(150), nic::TxStatus::kPosted);
    if (i % 2 == 1) {
      device_.CompleteSend(static_cast<uint16_t>(wqebb));
      Sent();
    }
    wqebb += 3;
  }
  EXPECT_EQ(wqebb, 33u);
  EXPECT_EQ(device_.send_record(), 33u);
  // Block 30 and 31 at the end, the third at the start: the frame's last 16 bytes are payload.
  EXPECT_EQ(device_.wqe(30)[2], 30) << "carries its own index";
  EXPECT_EQ(device_.wqe(31)[63], 0x77);
  EXPECT_EQ(device_.wqe(0)[30 + 150 - 128 - 1], 0x77);
  ASSERT_EQ(Post(64), nic::TxStatus::kPosted);
  EXPECT_EQ(device_.wqe(33)[2], 33);
}

TEST_F(QueuePairTest, CopiedFramesAreSignalledWrappedAndRefusedAsOthersAre) {
  const nic::TxTemplate flow = Flow();
  uint32_t wqebb = 0;
  // Three blocks each: the ring of 32 ends inside one.
  for (uint32_t i = 0; i < 11; ++i) {
    ASSERT_EQ(queues_->PostCopied(flow, payload_.data(), 108, 0), nic::TxStatus::kPosted);
    EXPECT_EQ(device_.wqe(wqebb)[2], wqebb);
    EXPECT_EQ(device_.wqe(wqebb)[11], i % 2 == 1 ? MLX5_WQE_CTRL_CQ_UPDATE : 0);
    EXPECT_EQ(device_.wqe(wqebb + 2)[30 + 150 - 128 - 1], 0x77);
    if (i % 2 == 1) {
      device_.CompleteSend(static_cast<uint16_t>(wqebb));
      EXPECT_THAT(Sent(), ElementsAre(i + 1));
    }
    wqebb += 3;
  }
  EXPECT_EQ(device_.send_record(), 33u);
  for (uint32_t i = 1; i < kFrames; ++i) {
    ASSERT_EQ(queues_->PostCopied(flow, payload_.data(), 184, 0), nic::TxStatus::kPosted);
  }
  EXPECT_EQ(queues_->PostCopied(flow, payload_.data(), 1, 0), nic::TxStatus::kFull);
}

TEST_F(QueuePairTest, ABurstEndsBeforeWhatDoesNotFitAndIsRungForOnce) {
  const nic::TxTemplate flow = Flow();
  std::vector<nic::TxPayload> payloads(kFrames + 1, {payload_.data(), 22});
  payloads[3].length = flow.max_payload_bytes + 1;
  const nic::TxBurst first = queues_->PostBurst(flow, payloads);
  EXPECT_EQ(first.frames, 3u);
  EXPECT_EQ(first.payload_bytes, 66u);
  EXPECT_EQ(device_.send_record(), 0u);
  queues_->Flush();
  EXPECT_EQ(device_.send_record(), 6u);
  EXPECT_EQ(device_.wqe(2)[11], MLX5_WQE_CTRL_CQ_UPDATE) << "every other one is signalled";
  payloads[3].length = 22;
  EXPECT_EQ(queues_->PostBurst(flow, payloads).frames, kFrames - 3);
  queues_->Flush();
  EXPECT_EQ(queues_->counters().tx_doorbells, 2u);
  EXPECT_EQ(queues_->counters().tx_bytes, kFrames * 64u);
}

TEST_F(QueuePairTest, BurstsGoOnOverSignalsAndTheRingsEnd) {
  const nic::TxTemplate flow = Flow();
  uint32_t sent = 0;
  for (uint32_t burst = 0; burst < 20; ++burst) {
    std::vector<nic::TxPayload> payloads(5, {payload_.data(), 22});
    payloads[burst % 5].length = 21;
    const nic::TxBurst posted = queues_->PostBurst(flow, payloads);
    ASSERT_EQ(posted.frames, 5u) << burst;
    ASSERT_EQ(posted.payload_bytes, 109u);
    for (uint32_t i = 0; i < 5; ++i, ++sent) {
      const uint8_t* const wqe = device_.wqe(2 * sent);
      ASSERT_EQ(base::LoadBe16(wqe + 1), static_cast<uint16_t>(2 * sent));
      ASSERT_EQ(base::LoadBe16(wqe + 28), i == burst % 5 ? 63 : 64);
      ASSERT_EQ(wqe[11], sent % 2 == 1 ? MLX5_WQE_CTRL_CQ_UPDATE : 0) << sent;
      if (sent % 2 == 1) device_.CompleteSend(static_cast<uint16_t>(2 * sent));
    }
    queues_->Flush();
    Sent();
  }
  EXPECT_EQ(queues_->counters().tx_bytes, 20 * (109u + 5 * 42u));
  EXPECT_EQ(queues_->counters().tx_frames, 100u);
}

TEST_F(QueuePairTest, ReceivesInOrderAndPublishesOnceABatch) {
  EXPECT_EQ(queues_->Refill(), kFrames);
  EXPECT_EQ(device_.receive_record(), kFrames);
  EXPECT_FALSE(queues_->ReceiveReady());
  for (uint32_t i = 0; i < 5; ++i) device_.CompleteReceive(100 + i);
  EXPECT_TRUE(queues_->ReceiveReady());
  std::array<nic::RxFrame, 3> out;
  ASSERT_EQ(queues_->PollReceive(out), 3u);
  EXPECT_EQ(out[0].buffer->length, 100u);
  EXPECT_EQ(out[2].buffer->length, 102u);
  EXPECT_EQ(device_.receive_cq_record(0), 3u);
  for (const auto& frame : out) packet::BufferPool::ReleaseByOwner(frame.buffer);
  EXPECT_EQ(Receive(), 2u);
  EXPECT_FALSE(queues_->ReceiveReady());
  EXPECT_EQ(queues_->posted(), 3u);
  EXPECT_EQ(queues_->counters().rx_bytes, 510u);
}

TEST_F(QueuePairTest, RefillWritesAddressesAndKeepsKeyAndLength) {
  queues_->Refill();
  const uint8_t* wqe = device_.receive_wqe(0);
  EXPECT_EQ(base::LoadBe32(wqe), 1522u);
  EXPECT_EQ(base::LoadBe32(wqe + 4), 0x5500u);
  EXPECT_EQ(base::LoadBe64(wqe + 8), reinterpret_cast<uintptr_t>(pool_->region()));
}

// The record names its index in 16 bits.
TEST_F(QueuePairTest, LapsOfTheReceiveQueueLoseNothingThoughItsIndicesBeginAnew) {
  constexpr uint32_t kTurns = 40'000;
  queues_->Refill();
  for (uint32_t i = 0; i < kTurns; ++i) {
    device_.CompleteReceive(60);
    device_.CompleteReceive(60);
    ASSERT_EQ(Receive(), 2u) << i;
    ASSERT_EQ(device_.receive_cq_record(0), 2 * i + 2);
    ASSERT_EQ(queues_->Refill(), 2u) << i;
    ASSERT_EQ(device_.receive_record(), (kFrames + 2 * i + 2) % (1u << 16));
  }
  EXPECT_EQ(queues_->counters().rx_frames, 2 * kTurns);
}

TEST_F(QueuePairTest, EmptyPoolShortensTheRefillAndCountsIt) {
  std::vector<packet::Buffer*> held;
  while (packet::Buffer* buffer = pool_->Acquire()) held.push_back(buffer);
  EXPECT_EQ(queues_->Refill(), 0u);
  EXPECT_EQ(queues_->counters().rx_refill_short, 1u);
  packet::BufferPool::ReleaseByOwner(held.back());
  held.pop_back();
  EXPECT_EQ(queues_->Refill(), 1u);
  EXPECT_EQ(device_.receive_record(), 1u);
  for (packet::Buffer* buffer : held) packet::BufferPool::ReleaseByOwner(buffer);
}

TEST_F(QueuePairTest, FlushedReceivesReturnTheirBuffersAndTheCauseIsKept) {
  queues_->Refill();
  const uint32_t free = pool_->free_count();
  device_.CompleteReceive(60);
  device_.CompleteReceive(0, MLX5_CQE_RESP_ERR, MLX5_CQE_SYNDROME_LOCAL_PROT_ERR);
  for (int i = 0; i < 6; ++i) {
    device_.CompleteReceive(0, MLX5_CQE_RESP_ERR, MLX5_CQE_SYNDROME_WR_FLUSH_ERR);
  }
  EXPECT_EQ(Receive(), 1u) << "what came before the error is delivered";
  EXPECT_FALSE(queues_->error().has_value()) << "and the error keeps its place behind it";
  EXPECT_TRUE(queues_->ReceiveReady());
  EXPECT_EQ(Receive(), 0u);
  EXPECT_EQ(pool_->free_count(), free + kFrames);
  EXPECT_EQ(queues_->counters().rx_errors, 7u);
  ASSERT_TRUE(queues_->error().has_value());
  EXPECT_TRUE(queues_->error()->receive);
  EXPECT_THAT(queues_->error()->text, HasSubstr("receive queue: local protection error"));
  EXPECT_EQ(queues_->Refill(), 0u);
}

// As the control thread does with the queue of a ring that is reset.
TEST_F(QueuePairTest, FlushedReceivesThatAnotherThreadTakesWaitForThePoolsOwner) {
  queues_->Refill();
  const uint32_t free = pool_->free_count();
  for (uint32_t i = 0; i < kFrames; ++i) {
    device_.CompleteReceive(0, MLX5_CQE_RESP_ERR, MLX5_CQE_SYNDROME_WR_FLUSH_ERR);
  }
  std::thread([this] {
    std::array<nic::RxFrame, 4> none;
    EXPECT_EQ(queues_->PollReceive(none), 0u);
  }).join();
  EXPECT_EQ(pool_->free_count(), free);
  EXPECT_EQ(pool_->DrainReturns(), kFrames);
}

TEST_F(QueuePairTest, EverySyndromeOfEitherQueueBecomesItsErrorInWords) {
  constexpr uint8_t kSyndromes[] = {
      MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR,        MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR,
      MLX5_CQE_SYNDROME_LOCAL_PROT_ERR,          MLX5_CQE_SYNDROME_WR_FLUSH_ERR,
      MLX5_CQE_SYNDROME_MW_BIND_ERR,             MLX5_CQE_SYNDROME_BAD_RESP_ERR,
      MLX5_CQE_SYNDROME_LOCAL_ACCESS_ERR,        MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR,
      MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR,       MLX5_CQE_SYNDROME_REMOTE_OP_ERR,
      MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR, MLX5_CQE_SYNDROME_RNR_RETRY_EXC_ERR,
      MLX5_CQE_SYNDROME_REMOTE_ABORTED_ERR};
  std::set<std::string> texts;
  for (const bool receive : {false, true}) {
    for (const uint8_t syndrome : kSyndromes) {
      PlainDevice device;
      QueuePair queues(device.memory(), {.signal_every = 2}, {}, {}, pool_.get(), nullptr);
      if (receive && syndrome == MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR) continue;  // Ends nothing.
      queues.Refill();
      queues.Post({.header = header_.data(), .payload = payload_.data(), .header_length = 42,
                   .payload_length = 22, .key = 0, .flags = 0});
      if (receive) device.CompleteReceive(0, MLX5_CQE_RESP_ERR, syndrome);
      if (!receive) device.CompleteSend(0, MLX5_CQE_REQ_ERR, syndrome);
      std::array<nic::RxFrame, 4> frames;
      std::array<nic::TxCompletion, 4> sent;
      EXPECT_EQ(queues.PollReceive(frames), 0u);
      EXPECT_EQ(queues.PollSend(sent), receive ? 0u : 1u);
      ASSERT_TRUE(queues.error().has_value()) << int{syndrome};
      EXPECT_EQ(queues.error()->syndrome, syndrome);
      EXPECT_EQ(queues.error()->receive, receive);
      EXPECT_TRUE(texts.insert(queues.error()->text).second) << "words of its own";
    }
  }
}

TEST_F(QueuePairTest, FrameLongerThanItsBufferIsDroppedAndCounted) {
  queues_->Refill();
  const uint32_t free = pool_->free_count();
  device_.CompleteReceive(60);
  device_.CompleteReceive(1523);
  device_.CompleteReceive(0xffffffff);
  device_.CompleteReceive(1522);
  EXPECT_EQ(Receive(), 1u);
  EXPECT_EQ(Receive(), 0u) << "the two that cannot be";
  EXPECT_EQ(Receive(), 1u);
  EXPECT_EQ(queues_->counters().rx_malformed, 2u);
  EXPECT_EQ(queues_->counters().rx_frames, 2u);
  EXPECT_EQ(pool_->free_count(), free + 4);
  EXPECT_FALSE(queues_->error().has_value());
}

// The kernel's driver and DPDK recover nothing from it either: the card's queue is ready as before.
TEST_F(QueuePairTest, FrameThatTheDeviceFoundTooLongCostsItsBufferAlone) {
  queues_->Refill();
  const uint32_t free = pool_->free_count();
  device_.CompleteReceive(60);
  device_.CompleteReceive(0, MLX5_CQE_RESP_ERR, MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR);
  device_.CompleteReceive(60);
  EXPECT_EQ(Receive(), 1u);
  EXPECT_EQ(Receive(), 0u) << "the one that is too long";
  EXPECT_EQ(Receive(), 1u);
  EXPECT_FALSE(queues_->error().has_value());
  EXPECT_EQ(queues_->counters().rx_too_long, 1u);
  EXPECT_EQ(queues_->counters().rx_errors, 0u);
  EXPECT_EQ(queues_->counters().rx_frames, 2u);
  EXPECT_EQ(pool_->free_count(), free + 3);
  for (uint32_t i = 3; i < kFrames; ++i) device_.CompleteReceive(60);
  EXPECT_EQ(Receive() + Receive(), kFrames - 3);
  EXPECT_EQ(queues_->Refill(), kFrames) << "and others are posted";
}

TEST_F(QueuePairTest, CompletionOfNoPostedBufferEndsTheReceiveQueue) {
  device_.CompleteReceive(60);
  EXPECT_TRUE(queues_->ReceiveReady());
  EXPECT_EQ(Receive(), 0u);
  EXPECT_EQ(queues_->counters().rx_malformed, 1u);
  ASSERT_TRUE(queues_->error().has_value());
  EXPECT_THAT(queues_->error()->text, HasSubstr("no buffer is posted"));
  EXPECT_FALSE(queues_->ReceiveReady()) << "nothing is left to poll for";
  EXPECT_EQ(queues_->Refill(), 0u);
}

TEST_F(QueuePairTest, SendCompletionOfNoPostedFrameIsPassedOverAndCounted) {
  device_.CompleteSend(0);
  EXPECT_THAT(Sent(), IsEmpty());
  for (int i = 0; i < 4; ++i) ASSERT_EQ(Post(64), nic::TxStatus::kPosted);
  device_.CompleteSend(2);
  device_.CompleteSend(2);
  device_.CompleteSend(17);
  device_.CompleteSend(6);
  EXPECT_THAT(Sent(), ElementsAre(2, 4));
  EXPECT_EQ(queues_->counters().tx_malformed, 3u);
}

TEST_F(QueuePairTest, PreparedFrameIsTheSameWqeAsAPostedOneWhateverItsLength) {
  for (const uint32_t bytes : {60u, 64u, 98u, 99u, 162u, 226u}) {
    PlainDevice other;
    QueuePair posted(other.memory(), {.signal_every = 2}, {}, {}, pool_.get(), nullptr);
    queues_ = nullptr;
    device_ = PlainDevice();
    queues_ = std::make_unique<QueuePair>(device_.memory(), SendQueue::Options{.signal_every = 2},
                                          ReceiveQueue::Options{}, nic::Capabilities{},
                                          pool_.get(), nullptr);
    const nic::TxFrame frame{.header = header_.data(), .payload = payload_.data(),
                             .header_length = 42, .payload_length = bytes - 42, .key = 0,
                             .flags = nic::kTxIpChecksum};
    nic::TxPrepared prepared;
    ASSERT_TRUE(queues_->PrepareFrame(frame, &prepared));
    const uint32_t blocks = WqebbsWithInline(bytes);
    // To the end of the ring and over it.
    for (uint32_t i = 0; i < 40; ++i) {
      ASSERT_EQ(posted.Post(frame), nic::TxStatus::kPosted);
      ASSERT_EQ(queues_->PostPrepared(prepared, 0), nic::TxStatus::kPosted);
      for (uint32_t block = i * blocks; block < (i + 1) * blocks; ++block) {
        const size_t used = std::min<size_t>(64, 30 + bytes - (block - i * blocks) * 64);
        ASSERT_EQ(std::memcmp(device_.wqe(block), other.wqe(block), used), 0) << bytes << " " << i;
      }
      ASSERT_EQ(device_.send_record(), other.send_record());
      ASSERT_EQ(std::memcmp(device_.uar(0x800), other.uar(0x800), 30 + bytes), 0);
      if (i % 2 == 0) continue;
      device_.CompleteSend(static_cast<uint16_t>(i * blocks));
      other.CompleteSend(static_cast<uint16_t>(i * blocks));
      std::array<nic::TxCompletion, 4> done;
      ASSERT_EQ(posted.PollSend(done), 1u);
      ASSERT_EQ(queues_->PollSend(done), 1u);
    }
    EXPECT_EQ(queues_->counters().tx_frames, posted.counters().tx_frames);
    EXPECT_EQ(queues_->counters().tx_bytes, posted.counters().tx_bytes);
    EXPECT_EQ(queues_->counters().tx_blueflame, posted.counters().tx_blueflame);
  }
}

TEST_F(QueuePairTest, PreparedFrameWaitsForOthersAndIsSignalledRefusedAndWarmedAsTheyAre) {
  nic::TxPrepared prepared;
  const nic::TxFrame frame = Frame64();
  ASSERT_TRUE(queues_->PrepareFrame(frame, &prepared));
  ASSERT_EQ(Post(64, nic::kTxMore), nic::TxStatus::kPosted);
  ASSERT_EQ(queues_->PostPrepared(prepared, 0), nic::TxStatus::kPosted);
  EXPECT_EQ(queues_->counters().tx_doorbells, 1u) << "BlueFlame would leave the first one behind";
  EXPECT_EQ(device_.send_record(), 4u);
  ASSERT_EQ(queues_->PostPrepared(prepared, nic::kTxSignal), nic::TxStatus::kPosted);
  EXPECT_EQ(device_.wqe(4)[11], MLX5_WQE_CTRL_CQ_UPDATE);
  ASSERT_EQ(queues_->PostPrepared(prepared, nic::kTxWarm), nic::TxStatus::kPosted);
  EXPECT_EQ(device_.wqe(6)[3], MLX5_OPCODE_NOP);
  prepared.payload()[21] = 0x99;
  for (uint32_t i = 4; i < kFrames; ++i) {
    ASSERT_EQ(queues_->PostPrepared(prepared, 0), nic::TxStatus::kPosted);
  }
  EXPECT_EQ(device_.wqe(8)[30 + 63 - 64 + 64], 0x99) << "as it was patched";
  EXPECT_EQ(queues_->PostPrepared(prepared, 0), nic::TxStatus::kFull);
  nic::TxFrame longer = frame;
  longer.payload_length = 185;
  EXPECT_FALSE(queues_->PrepareFrame(longer, &prepared));
}

TEST_F(QueuePairTest, LongFramesOfAFlowAreStoredWhileThereIsRoom) {
  const nic::TxTemplate without = Flow();
  EXPECT_EQ(queues_->PostStored(without, payload_.data(), 1000, 0), nic::TxStatus::kTooLong);
  alignas(64) std::array<uint8_t, 4096> memory{};
  OpenWithDeviceMemory(memory.data(), 2);
  const nic::TxTemplate flow = Flow();
  for (uint32_t i = 0; i < 4; ++i) {
    const uint32_t length = 1000 + i / 2;
    ASSERT_EQ(queues_->PostStored(flow, payload_.data(), length, 0), nic::TxStatus::kPosted);
    const uint8_t* const wqe = device_.wqe(2 * i);
    EXPECT_EQ(wqe[2], 2 * i);
    EXPECT_EQ(wqe[11], i % 2 == 1 ? MLX5_WQE_CTRL_CQ_UPDATE : 0);
    EXPECT_EQ(base::LoadBe16(wqe + 30 + 16), 28 + length);
    EXPECT_EQ(base::LoadBe16(wqe + 30 + 38), 8 + length);
    EXPECT_EQ(base::LoadBe32(wqe + 80), length);
    EXPECT_EQ(base::LoadBe32(wqe + 84), 0x7700u);
    EXPECT_EQ(base::LoadBe64(wqe + 88), 1024u * i);
    EXPECT_EQ(memory[1024 * i + length - 1], 0x77);
  }
  EXPECT_EQ(device_.send_record(), 8u);
  EXPECT_EQ(queues_->counters().tx_bytes, 4 * 42u + 4002u);
  EXPECT_EQ(queues_->counters().tx_device_memory_bytes, 4002u);
  EXPECT_EQ(queues_->PostStored(flow, payload_.data(), 1000, 0), nic::TxStatus::kTooLong);
  device_.CompleteSend(2);
  for (uint32_t i = 0; i < 2; ++i) {
    ASSERT_EQ(queues_->PostStored(flow, payload_.data(), 1000, 0), nic::TxStatus::kPosted)
        << "nobody polled, and the completion of two gave room back";
    EXPECT_EQ(base::LoadBe64(device_.wqe(8 + 2 * i) + 88), 1024u * i);
  }
  EXPECT_EQ(queues_->PostStored(flow, payload_.data(), 1000, 0), nic::TxStatus::kTooLong);
  device_.CompleteSend(6);
  ASSERT_EQ(queues_->PostStored(Flow(54), payload_.data(), 1000, 0), nic::TxStatus::kPosted);
  EXPECT_EQ(base::LoadBe64(device_.wqe(12) + 96 + 8), 2048u) << "behind a longer header";
}

TEST_F(QueuePairTest, AStoredFrameTakesTheRoomThatACompletionGivesBack) {
  alignas(64) std::array<uint8_t, 4096> memory{};
  OpenWithDeviceMemory(memory.data(), 2);
  const nic::TxTemplate flow = Flow();
  const auto post = [&] { return queues_->PostStored(flow, payload_.data(), 250, 0); };
  for (uint32_t i = 0; i < kFrames; ++i) ASSERT_EQ(post(), nic::TxStatus::kPosted);
  device_.CompleteSend(2);
  EXPECT_EQ(post(), nic::TxStatus::kPosted);
  EXPECT_EQ(post(), nic::TxStatus::kPosted);
  EXPECT_EQ(post(), nic::TxStatus::kFull);
}

TEST_F(QueuePairTest, AFrameIsSignalledWhenHalfOfTheDeviceMemoryWasWrittenSinceTheLast) {
  alignas(64) std::array<uint8_t, 4096> memory{};
  OpenWithDeviceMemory(memory.data(), 16);
  const nic::TxTemplate flow = Flow();
  const auto is_signalled = [&](uint32_t frame) {
    return device_.wqe(2 * frame)[11] == MLX5_WQE_CTRL_CQ_UPDATE;
  };
  for (uint32_t i = 0; i < 4; ++i) {
    ASSERT_EQ(queues_->PostStored(flow, payload_.data(), 1000, 0), nic::TxStatus::kPosted);
    EXPECT_EQ(is_signalled(i), i == 2) << i;
  }
  EXPECT_EQ(queues_->PostStored(flow, payload_.data(), 1000, 0), nic::TxStatus::kTooLong);
  device_.CompleteSend(4);
  for (uint32_t i = 4; i < 7; ++i) {
    ASSERT_EQ(Post(1042), nic::TxStatus::kPosted) << "as it is of frames by themselves";
    EXPECT_EQ(is_signalled(i), i == 5) << i;
  }
  EXPECT_EQ(Post(1042), nic::TxStatus::kTooLong);
}

TEST_F(QueuePairTest, LongFrameIsSentFromDeviceMemoryWhileThereIsRoomElseGathered) {
  alignas(64) std::array<uint8_t, 4096> memory{};
  OpenWithDeviceMemory(memory.data(), 2);
  const auto segment = [&](uint32_t wqebb) { return device_.wqe(wqebb) + 80; };
  for (uint32_t i = 0; i < 4; ++i) {
    ASSERT_EQ(Post(1042), nic::TxStatus::kPosted) << "without a key it is copied";
    EXPECT_EQ(base::LoadBe32(segment(2 * i)), 1000u);
    EXPECT_EQ(base::LoadBe32(segment(2 * i) + 4), 0x7700u);
    EXPECT_EQ(base::LoadBe64(segment(2 * i) + 8), 1024u * i);
    EXPECT_EQ(memory[1024 * i + 999], 0x77);
  }
  EXPECT_EQ(queues_->counters().tx_blueflame, 4u);
  EXPECT_EQ(Post(1042), nic::TxStatus::kTooLong);
  ASSERT_EQ(Post(1042, 0, /*key=*/0x5500), nic::TxStatus::kPosted);
  EXPECT_EQ(base::LoadBe32(segment(8) + 4), 0x5500u);
  EXPECT_EQ(queues_->counters().tx_device_memory, 4u);
  EXPECT_EQ(queues_->counters().tx_device_memory_bytes, 4000u);
  EXPECT_EQ(queues_->counters().tx_device_memory_full, 1u);
  EXPECT_EQ(queues_->counters().tx_gathered, 1u);
  device_.CompleteSend(2);
  EXPECT_THAT(Sent(), ElementsAre(2));
  ASSERT_EQ(Post(1042), nic::TxStatus::kPosted) << "the completion gave room back";
  EXPECT_EQ(base::LoadBe64(segment(10) + 8), 0u);
}

TEST_F(QueuePairTest, SyndromeOfTheFailedSendReplacesAFlushSeenFirst) {
  queues_->Refill();
  device_.CompleteReceive(0, MLX5_CQE_RESP_ERR, MLX5_CQE_SYNDROME_WR_FLUSH_ERR);
  EXPECT_EQ(Receive(), 0u);
  EXPECT_EQ(queues_->error()->syndrome, MLX5_CQE_SYNDROME_WR_FLUSH_ERR);
  ASSERT_EQ(Post(64), nic::TxStatus::kPosted);
  ASSERT_EQ(Post(64), nic::TxStatus::kPosted);
  device_.CompleteSend(0, MLX5_CQE_REQ_ERR, MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR);
  EXPECT_THAT(Sent(), ElementsAre(1));
  EXPECT_EQ(queues_->error()->syndrome, MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR);
  EXPECT_FALSE(queues_->SendIdle());
  device_.CompleteSend(2, MLX5_CQE_REQ_ERR, MLX5_CQE_SYNDROME_WR_FLUSH_ERR);
  EXPECT_THAT(Sent(), ElementsAre(2));
  EXPECT_TRUE(queues_->SendIdle());
  EXPECT_EQ(Post(64), nic::TxStatus::kBroken);
}

TEST_F(QueuePairTest, OnlyWhatAnErrorCompletesIsLost) {
  ASSERT_EQ(Post(64), nic::TxStatus::kPosted);
  ASSERT_EQ(Post(64), nic::TxStatus::kPosted);
  ASSERT_EQ(Post(64), nic::TxStatus::kPosted);
  device_.CompleteSend(2);
  device_.CompleteSend(4, MLX5_CQE_REQ_ERR, MLX5_CQE_SYNDROME_WR_FLUSH_ERR);
  std::array<nic::TxCompletion, 4> sent;
  ASSERT_EQ(queues_->PollSend(sent), 2u);
  EXPECT_FALSE(sent[0].lost);
  EXPECT_TRUE(sent[1].lost);
}

// One that nobody asked about has a completion only if it fails.
TEST_F(QueuePairTest, NothingIsPostedBehindAnErrorThatASignalUncovers) {
  const nic::TxFrame frame = Frame64();
  for (const bool built_ahead : {false, true}) {
    PlainDevice device;
    QueuePair queues(device.memory(), {.signal_every = 2}, {}, {}, pool_.get(), nullptr);
    nic::TxPrepared prepared;
    ASSERT_TRUE(queues.PrepareFrame(frame, &prepared));
    const auto post = [&] {
      return built_ahead ? queues.PostPrepared(prepared, 0) : queues.Post(frame);
    };
    ASSERT_EQ(post(), nic::TxStatus::kPosted);
    device.CompleteSend(0, MLX5_CQE_REQ_ERR, MLX5_CQE_SYNDROME_LOCAL_PROT_ERR);
    ASSERT_EQ(post(), nic::TxStatus::kPosted);
    device.CompleteSend(2, MLX5_CQE_REQ_ERR, MLX5_CQE_SYNDROME_WR_FLUSH_ERR);
    EXPECT_EQ(post(), nic::TxStatus::kBroken);
    EXPECT_FALSE(queues.SendIdle());
    std::array<nic::TxCompletion, 4> sent;
    EXPECT_EQ(queues.PollSend(sent), 2u);
    EXPECT_EQ(sent[1].frames, 2u);
    EXPECT_TRUE(queues.SendIdle());
    EXPECT_EQ(queues.error()->syndrome, MLX5_CQE_SYNDROME_LOCAL_PROT_ERR);
    EXPECT_EQ(queues.counters().tx_frames, 2u);
  }
}

TEST_F(QueuePairTest, AFailedSendIsCountedFromTheLastSignalOn) {
  const nic::TxFrame frame = Frame64();
  for (const bool built_ahead : {false, true}) {
    PlainDevice device;
    QueuePair queues(device.memory(), {.signal_every = 4}, {}, {}, pool_.get(), nullptr);
    nic::TxPrepared prepared;
    ASSERT_TRUE(queues.PrepareFrame(frame, &prepared));
    for (int i = 0; i < 7; ++i) {
      ASSERT_EQ(built_ahead ? queues.PostPrepared(prepared, 0) : queues.Post(frame),
                nic::TxStatus::kPosted);
    }
    std::array<nic::TxCompletion, 4> sent;
    device.CompleteSend(6);
    ASSERT_EQ(queues.PollSend(sent), 1u);
    EXPECT_EQ(sent[0].frames, 4u);
    device.CompleteSend(10, MLX5_CQE_REQ_ERR, MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR);
    ASSERT_EQ(queues.PollSend(sent), 1u);
    EXPECT_EQ(sent[0].frames, 6u) << "the second one behind it";
    EXPECT_EQ(queues.PostPrepared(prepared, 0), nic::TxStatus::kBroken);
  }
}

TEST_F(QueuePairTest, AlsoFromOneThatABurstSignalledOrThatWasAskedForAfterItWasPosted) {
  const nic::TxTemplate flow = Flow();
  const std::vector<nic::TxPayload> payloads(4, {payload_.data(), 22});
  for (const bool burst : {false, true}) {
    PlainDevice device;
    QueuePair queues(device.memory(), {.signal_every = burst ? 4 : kFrames}, {}, {}, pool_.get(),
                     nullptr);
    ASSERT_EQ(queues.PostBurst(flow, payloads).frames, 4u);
    if (!burst) {
      ASSERT_TRUE(queues.SignalLast());
    }
    queues.Flush();
    ASSERT_EQ(queues.PostBurst(flow, std::span(payloads).first(3)).frames, 3u);
    queues.Flush();
    std::array<nic::TxCompletion, 4> sent;
    device.CompleteSend(6);
    ASSERT_EQ(queues.PollSend(sent), 1u);
    EXPECT_EQ(sent[0].frames, 4u);
    device.CompleteSend(10, MLX5_CQE_REQ_ERR, MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR);
    ASSERT_EQ(queues.PollSend(sent), 1u);
    EXPECT_EQ(sent[0].frames, 6u) << "burst: " << burst;
  }
}

TEST_F(QueuePairTest, ArmNamesTheConsumerAndTheQueue) {
  queues_->Refill();
  device_.CompleteReceive(60);
  Receive();
  queues_->Arm(/*for_send=*/false);
  EXPECT_EQ(device_.receive_cq_record(1), 1u);
  EXPECT_EQ(base::LoadBe64(device_.uar(0x20)), uint64_t{1} << 32 | 2);
}

}  // namespace
}  // namespace xtreme::mlx5::testing
