// SPDX-License-Identifier: Apache-2.0
//
// What who posts on a queue's front by himself relies on: the same frames leave as by a call, and
// where more is due, or what he found is over, one comparison says so.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <memory>

#include "xtreme/mlx5/queue_pair.h"
#include "xtreme/mlx5/queue_pair_testing.h"
#include "xtreme/mlx5/send_wqe.h"
#include "xtreme/nic/doorbell.h"

namespace xtreme::mlx5::testing {
namespace {

class TxFrontTest : public QueuePairTest {};

TEST_F(TxFrontTest, AFrameOfMoreThanTwoBlocksCountsTwiceTowardsTheSignal) {
  queues_ = std::make_unique<QueuePair>(device_.memory(), SendQueue::Options{.signal_every = 4},
                                        ReceiveQueue::Options{}, nic::Capabilities{},
                                        pool_.get(), nullptr);
  const auto signalled = [&](uint32_t wqebb) { return device_.wqe(wqebb)[11] == 8; };
  for (const uint32_t bytes : {64u, 99u, 98u, 99u, 64u}) {
    ASSERT_EQ(Post(bytes), nic::TxStatus::kPosted);
  }
  EXPECT_FALSE(signalled(0));
  EXPECT_FALSE(signalled(2));
  EXPECT_TRUE(signalled(5)) << "behind three";
  EXPECT_FALSE(signalled(7));
  EXPECT_FALSE(signalled(10)) << "behind two";
  EXPECT_EQ(queues_->posted_frames(), 5u);
}

TEST_F(TxFrontTest, AFrameThatIsReadyGoesOutAsOneThatIsPosted) {
  PlainDevice other;
  const SendQueue::Options options{.signal_every = 4};
  QueuePair posted(other.memory(), options, ReceiveQueue::Options{}, {}, pool_.get(), nullptr);
  queues_ = std::make_unique<QueuePair>(device_.memory(), options, ReceiveQueue::Options{},
                                        nic::Capabilities{}, pool_.get(), nullptr);
  const nic::TxFrame frame = Frame64();
  nic::TxPrepared prepared;
  ASSERT_TRUE(queues_->PrepareFrame(frame, &prepared));
  nic::TxFront& front = *queues_->FrontFor(prepared);
  uint32_t ready = 0;
  for (uint32_t i = 0; i < 40; ++i) {
    ASSERT_EQ(posted.Post(frame), nic::TxStatus::kPosted);
    if (front.Ready()) {
      nic::PostReady(front, prepared);
      ++ready;
    } else {
      ASSERT_EQ(queues_->PostPrepared(prepared, 0), nic::TxStatus::kPosted);
    }
    ASSERT_EQ(std::memcmp(device_.wqe(2 * i), other.wqe(2 * i), 128), 0) << i;
    ASSERT_EQ(device_.send_record(), other.send_record()) << i;
    ASSERT_EQ(std::memcmp(device_.uar(0x800), other.uar(0x800), 512), 0) << "either half, " << i;
    ASSERT_EQ(queues_->posted_frames(), posted.posted_frames());
    if (i % 4 != 3) continue;
    device_.CompleteSend(static_cast<uint16_t>(2 * i));
    other.CompleteSend(static_cast<uint16_t>(2 * i));
    std::array<nic::TxCompletion, 4> done;
    ASSERT_EQ(posted.PollSend(done), 1u);
    ASSERT_EQ(queues_->PollSend(done), 1u);
  }
  EXPECT_GE(ready, 10u) << "one in four is signalled, and some stand at the ring's end";
  EXPECT_EQ(queues_->counters().tx_frames, 40u);
  EXPECT_EQ(queues_->counters().tx_bytes, 40u * 64);
  EXPECT_EQ(queues_->counters().tx_blueflame, posted.counters().tx_blueflame);
}

TEST_F(TxFrontTest, WhoComparesByTheEpochFindsItOverByAChangeAndWhereMoreIsDue) {
  queues_ = std::make_unique<QueuePair>(device_.memory(), SendQueue::Options{.signal_every = 4},
                                        ReceiveQueue::Options{}, nic::Capabilities{},
                                        pool_.get(), nullptr);
  nic::TxPrepared prepared;
  ASSERT_TRUE(queues_->PrepareFrame(Frame64(), &prepared));
  nic::TxFront& front = *queues_->FrontFor(prepared);
  constexpr uint32_t kLast = nic::TxFront::EpochOf(nic::TxFront::kVersions - 1);
  for (const uint32_t epoch : {nic::TxFront::EpochOf(7), kLast, nic::TxFront::EpochOf(0)}) {
    queues_->SetEpoch(epoch);
    EXPECT_TRUE(front.ReadyIn(epoch));
    EXPECT_FALSE(front.ReadyIn(epoch + 1));
    EXPECT_EQ(queues_->posted_frames(), 0u);
  }
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(front.ReadyIn(0)) << i;
    nic::PostReady(front, prepared);
  }
  for (uint32_t found_in = 0; found_in < nic::TxFront::kEpochs; ++found_in) {
    EXPECT_EQ(front.ReadyIn(found_in), found_in == 1) << "nobody found anything in that";
  }
  EXPECT_FALSE(front.Ready()) << "the fourth one is signalled";
  queues_->SetEpoch(nic::TxFront::EpochOf(1));
  EXPECT_FALSE(front.Ready()) << "as before";
  EXPECT_EQ(queues_->posted_frames(), 3u);
  ASSERT_EQ(queues_->PostPrepared(prepared, 0), nic::TxStatus::kPosted);
  EXPECT_TRUE(HasCompletion(device_.wqe(6)));
}

TEST_F(TxFrontTest, NothingIsReadyBehindADoorbellThatIsOwedNorWhereASignalIsDue) {
  queues_ = std::make_unique<QueuePair>(device_.memory(), SendQueue::Options{.signal_every = 4},
                                        ReceiveQueue::Options{}, nic::Capabilities{},
                                        pool_.get(), nullptr);
  const nic::TxFrame frame = Frame64();
  nic::TxPrepared prepared;
  ASSERT_TRUE(queues_->PrepareFrame(frame, &prepared));
  nic::TxFront& front = *queues_->FrontFor(prepared);
  EXPECT_TRUE(front.Ready());
  ASSERT_EQ(Post(64, nic::kTxMore), nic::TxStatus::kPosted);
  EXPECT_FALSE(front.Ready()) << "BlueFlame would leave the first one behind";
  queues_->Flush();
  EXPECT_TRUE(front.Ready());
  nic::PostReady(front, prepared);
  EXPECT_TRUE(front.Ready());
  nic::PostReady(front, prepared);
  EXPECT_FALSE(front.Ready()) << "the fourth one is signalled";
  ASSERT_EQ(Post(64, nic::kTxMore), nic::TxStatus::kPosted);
  EXPECT_TRUE(HasCompletion(device_.wqe(6)));
  EXPECT_FALSE(front.Ready()) << "a doorbell is owed again";
  for (int i = 0; i < 3; ++i) ASSERT_EQ(Post(64, nic::kTxMore), nic::TxStatus::kPosted);
  EXPECT_FALSE(front.Ready()) << "and a signal is due with the next one";
  queues_->SetEpoch(nic::TxFront::EpochOf(9));
  EXPECT_FALSE(front.Ready()) << "whatever the epoch";
  EXPECT_FALSE(front.ReadyIn(nic::TxFront::EpochOf(9)));
  queues_->Flush();
  EXPECT_FALSE(front.Ready()) << "it is due still";
  EXPECT_EQ(queues_->posted_frames(), 7u);
  EXPECT_FALSE(queues_->FrontFor<3>(prepared)->Ready()) << "not three blocks";
  prepared.direct_blocks = 0;
  EXPECT_FALSE(queues_->FrontFor(prepared)->Ready()) << "not direct";
}

}  // namespace
}  // namespace xtreme::mlx5::testing
