// SPDX-License-Identifier: Apache-2.0

#include "tools/connectx/wire/link.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <thread>

#include "tools/connectx/wire/frame_list.h"

namespace xtreme::connectx {
namespace {

class LinkTest : public testing::Test {
 protected:
  void Connect(uint32_t slots) {
    auto link = MakeLink({.slots = slots});
    ASSERT_TRUE(link.ok()) << link.status();
    a_ = std::move((*link)[0]);
    b_ = std::move((*link)[1]);
  }

  static bool Readable(const Wire& wire) {
    pollfd p{.fd = wire.fd(), .events = POLLIN, .revents = 0};
    return poll(&p, 1, 0) == 1;
  }

  std::unique_ptr<LinkEnd> a_;
  std::unique_ptr<LinkEnd> b_;
  FrameList received_;
};

TEST_F(LinkTest, DeliversBytesAndTimeInOrderBothWays) {
  Connect(8);
  EXPECT_TRUE(a_->Transmit(NumberedFrame(1), 100));
  EXPECT_TRUE(a_->Transmit(NumberedFrame(2, kMaxFrameBytes), 101));
  EXPECT_TRUE(b_->Transmit(NumberedFrame(3), 102));
  EXPECT_EQ(b_->Receive(received_, 10, 200), 2);
  EXPECT_EQ(a_->Receive(received_, 10, 200), 1);
  ASSERT_EQ(received_.entries.size(), 3u);
  EXPECT_EQ(received_.entries[0].bytes, NumberedFrame(1));
  EXPECT_EQ(received_.entries[0].time_ns, 100);
  EXPECT_EQ(received_.entries[1].bytes, NumberedFrame(2, kMaxFrameBytes));
  EXPECT_EQ(received_.entries[2].bytes, NumberedFrame(3));
  EXPECT_EQ(a_->Receive(received_, 10, 200) + b_->Receive(received_, 10, 200), 0);
}

TEST_F(LinkTest, SinkReadsTheSlotInPlace) {
  Connect(1);
  struct Sink : FrameSink {
    void OnFrame(std::span<const uint8_t> frame, int64_t) override { at.push_back(frame.data()); }
    std::vector<const uint8_t*> at;
  } sink;
  for (int i = 0; i < 2; ++i) {
    a_->Transmit(NumberedFrame(i), 0);
    b_->Receive(sink, 1, 0);
  }
  ASSERT_EQ(sink.at.size(), 2u);
  EXPECT_EQ(sink.at[0], sink.at[1]) << "one slot, so the same place twice";
}

TEST_F(LinkTest, FullLinkDropsAndCountsThenTakesAgain) {
  Connect(4);
  for (uint32_t i = 0; i < 4; ++i) EXPECT_TRUE(a_->Transmit(NumberedFrame(i), 0));
  EXPECT_FALSE(a_->Transmit(NumberedFrame(4), 0));
  EXPECT_EQ(CountOf(*a_, "tx_dropped_full"), 1u);
  EXPECT_EQ(b_->Receive(received_, 1, 0), 1);
  EXPECT_TRUE(a_->Transmit(NumberedFrame(5), 0));
  EXPECT_EQ(b_->Receive(received_, 10, 0), 4);
  EXPECT_EQ(NumberOf(received_.entries.back().bytes), 5u);
  EXPECT_EQ(CountOf(*b_, "rx_frames"), 5u);
  EXPECT_EQ(CountOf(*a_, "tx_frames"), 5u);
}

TEST_F(LinkTest, TooLongAndTooShortFramesAreCounted) {
  Connect(4);
  EXPECT_FALSE(a_->Transmit(NumberedFrame(0, kMaxFrameBytes + 1), 0));
  EXPECT_FALSE(a_->Transmit(std::vector<uint8_t>(13), 0));
  EXPECT_EQ(CountOf(*a_, "tx_dropped_length"), 2u);
  EXPECT_EQ(b_->Receive(received_, 10, 0), 0);
}

TEST_F(LinkTest, UnpluggedCableLosesWhatIsInItAndCounts) {
  Connect(4);
  EXPECT_TRUE(a_->up());
  a_->Transmit(NumberedFrame(0), 0);
  b_->SetPlugged(false);
  EXPECT_FALSE(a_->up());
  EXPECT_FALSE(b_->up());
  EXPECT_FALSE(a_->Transmit(NumberedFrame(1), 0));
  EXPECT_EQ(CountOf(*a_, "tx_dropped_down"), 1u);
  EXPECT_EQ(b_->Receive(received_, 10, 0), 0);
  EXPECT_EQ(CountOf(*b_, "rx_dropped_down"), 1u);
  b_->SetPlugged(true);
  EXPECT_TRUE(a_->Transmit(NumberedFrame(2), 0));
  EXPECT_EQ(b_->Receive(received_, 10, 0), 1);
}

TEST_F(LinkTest, DestroyedEndIsAnUnpluggedOne) {
  Connect(4);
  b_.reset();
  EXPECT_FALSE(a_->up());
  EXPECT_FALSE(a_->Transmit(NumberedFrame(0), 0));
}

TEST_F(LinkTest, ArmedDescriptorIsReadableFromTheFrameUntilReceive) {
  Connect(4);
  a_->Transmit(NumberedFrame(0), 0);
  EXPECT_FALSE(Readable(*b_)) << "not armed: the sender pays for no wake-up";
  EXPECT_FALSE(b_->Arm()) << "a frame waits";
  b_->Receive(received_, 10, 0);
  EXPECT_TRUE(b_->Arm());
  EXPECT_FALSE(Readable(*b_));
  a_->Transmit(NumberedFrame(1), 0);
  EXPECT_TRUE(Readable(*b_));
  EXPECT_EQ(b_->Receive(received_, 10, 0), 1);
  EXPECT_FALSE(Readable(*b_));
}

TEST_F(LinkTest, TwoThreadsThatSleepLoseNothingAndKeepOrder) {
  constexpr uint32_t kFrames = 20000;
  Connect(64);
  std::thread sender([this] {
    for (uint32_t i = 0; i < kFrames;) {
      if (a_->Transmit(NumberedFrame(i, 64 + i % 512), i)) {
        ++i;
      } else {
        std::this_thread::yield();
      }
    }
  });
  struct Sink : FrameSink {
    void OnFrame(std::span<const uint8_t> frame, int64_t time_ns) override {
      in_order &= NumberOf(frame) == next && time_ns == next && frame.size() == 64 + next % 512;
      ++next;
    }
    uint32_t next = 0;
    bool in_order = true;
  } sink;
  while (sink.next < kFrames) {
    if (b_->Receive(sink, 32, 0) > 0 || !b_->Arm()) continue;
    pollfd p{.fd = b_->fd(), .events = POLLIN, .revents = 0};
    ASSERT_EQ(poll(&p, 1, 10000), 1) << "slept on a frame, after " << sink.next;
  }
  sender.join();
  EXPECT_TRUE(sink.in_order);
}

TEST(HubTest, FloodsToAllOthersAndNeverBack) {
  auto hub = MakeHub(3, {.slots = 4});
  ASSERT_TRUE(hub.ok()) << hub.status();
  FrameList received[3];
  (*hub)[0]->Transmit(NumberedFrame(10), 0);
  (*hub)[1]->Transmit(NumberedFrame(11), 0);
  for (int i = 0; i < 3; ++i) (*hub)[i]->Receive(received[i], 10, 0);
  ASSERT_EQ(received[0].entries.size(), 1u);
  EXPECT_EQ(NumberOf(received[0].entries[0].bytes), 11u);
  ASSERT_EQ(received[1].entries.size(), 1u);
  EXPECT_EQ(NumberOf(received[1].entries[0].bytes), 10u);
  EXPECT_EQ(received[2].entries.size(), 2u);
}

TEST(HubTest, OneFullEndDoesNotStopTheOthers) {
  auto hub = MakeHub(3, {.slots = 1});
  ASSERT_TRUE(hub.ok()) << hub.status();
  FrameList received;
  (*hub)[0]->Transmit(NumberedFrame(0), 0);
  (*hub)[1]->Receive(received, 10, 0);
  EXPECT_TRUE((*hub)[0]->Transmit(NumberedFrame(1), 0));
  EXPECT_EQ(CountOf(*(*hub)[0], "tx_dropped_full"), 1u);
  EXPECT_EQ((*hub)[1]->Receive(received, 10, 0), 1);
}

TEST(HubTest, RefusesBadSizesByName) {
  EXPECT_EQ(MakeHub(1).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(MakeLink({.slots = 3}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(MakeLink({.slots = 0}).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace xtreme::connectx
