// SPDX-License-Identifier: Apache-2.0

#include "xtreme/completion/link_flows.h"

#include <gtest/gtest.h>

#include <sys/socket.h>

#include <cstdint>
#include <cstring>

#include "xtreme/completion/frames_testing.h"
#include "xtreme/completion/link_flows_write.h"

namespace xtreme::completion {
namespace {

constexpr uint32_t kFrameBytes = 60;
constexpr uint32_t kPayloadBytes = 10;
constexpr uint64_t kGoodFor = 100;
constexpr int64_t kSecond = 1'000'000'000;

class LinkFlowsTest : public ::testing::Test {
 protected:
  LinkFlowsTest() {
    flows_.SetScale(ClockScale::Of(1000, 5, int64_t{2} << 32, 0));
    flows_.Follow(0);
    Clear(&form_, Kind::kPacket);
    form_.socket = 0x123456789;
  }
  // As the program is asked.
  static bool Admit(void* context, const Completion& form, LinkCompletion* link) {
    auto* const test = static_cast<LinkFlowsTest*>(context);
    EXPECT_EQ(form.socket, test->form_.socket);
    *link = test->link_;
    return test->admits_;
  }
  static void TellTime(void* context) {
    auto* const test = static_cast<LinkFlowsTest*>(context);
    ++test->asked_;
    test->flows_.SetTime(test->time_);
  }
  bool Write(uint64_t hw_clock = 1010, uint32_t length = kFrameBytes) {
    std::memset(static_cast<void*>(&written_), 0xa5, sizeof(written_));
    return flows_.Write(&buffer_, frame_.data(), length, hw_clock, &written_);
  }

  alignas(64) testing::FrameBytes frame_ = testing::DatagramFrame(kPayloadBytes);
  uint64_t changes_ = 1;
  packet::Buffer buffer_;
  udp::Endpoint endpoint_{{}};
  Completion form_;
  LinkCompletion link_{.links = 1,
                       .events = uint64_t{1} << 32,
                       .user_data = 42,
                       .family = AF_INET,
                       .port = 0x1234,
                       .address = {10, 0, 0, 2},
                       .listen_fd = -1};
  LinkCompletion written_;
  bool admits_ = true;
  int asked_ = 0;
  LinkFlows::Time time_{
      .ticks = 0, .good_for_ticks = kGoodFor, .second = 7, .into_second = 100};
  LinkFlows flows_{{.admit = &Admit, .tell_time = &TellTime, .context = this}, &changes_};
};

TEST_F(LinkFlowsTest, EveryByteOfTheCompletionIsWritten) {
  EXPECT_FALSE(flows_.any());
  flows_.Learn(frame_.data(), form_, &endpoint_);
  EXPECT_TRUE(flows_.any());
  ASSERT_TRUE(Write());
  LinkCompletion expected = link_;
  expected.length = kPayloadBytes;
  expected.first = &buffer_;
  expected.seconds = 7;
  expected.nanoseconds = 100 + 5 + 2 * 10;
  EXPECT_EQ(std::memcmp(&written_, &expected, sizeof(expected)), 0);
  EXPECT_EQ(buffer_.data, frame_.data() + 42);
  EXPECT_EQ(buffer_.length, kPayloadBytes);
  EXPECT_EQ(endpoint_.counters().datagrams, 1u);
  EXPECT_EQ(endpoint_.counters().bytes, kPayloadBytes);
}

TEST_F(LinkFlowsTest, WhatIsNotAdmittedIsLeft) {
  admits_ = false;
  flows_.Learn(frame_.data(), form_, &endpoint_);
  EXPECT_FALSE(flows_.any());
  EXPECT_FALSE(Write());
}

TEST_F(LinkFlowsTest, OtherFlowsAndFramesWhoseLengthsDoNotAgreeAreLeft) {
  flows_.Learn(frame_.data(), form_, &endpoint_);
  EXPECT_FALSE(Write(1010, 42 + kPayloadBytes - 1));
  frame_[37] ^= 1;
  EXPECT_FALSE(Write());
  EXPECT_EQ(endpoint_.counters().datagrams, 0u);
}

TEST_F(LinkFlowsTest, DatagramOfAnotherSecondIsLeftUntilThatIsTold) {
  flows_.Learn(frame_.data(), form_, &endpoint_);
  constexpr uint64_t kLast = 1000 + (kSecond - 1 - 105) / 2;
  EXPECT_TRUE(Write(kLast));
  EXPECT_EQ(written_.nanoseconds, kSecond - 1);
  EXPECT_FALSE(Write(kLast + 1));
  EXPECT_FALSE(Write(1000 - 53)) << "a nanosecond before the second";
  EXPECT_EQ(endpoint_.counters().datagrams, 1u);
  flows_.SetTime({.good_for_ticks = kGoodFor, .second = 7, .into_second = 99});
  EXPECT_FALSE(Write(kLast + 1)) << "its last nanosecond is over";
  flows_.SetTime({.good_for_ticks = kGoodFor, .second = 8, .into_second = 99 - kSecond});
  ASSERT_TRUE(Write(kLast + 1));
  EXPECT_EQ(written_.seconds, 8);
  EXPECT_EQ(written_.nanoseconds, 0);
}

TEST_F(LinkFlowsTest, SecondIsToldAlsoWhereNothingElseOfTheTimeHasChanged) {
  flows_.Learn(frame_.data(), form_, &endpoint_);
  flows_.SetTime({.good_for_ticks = kGoodFor, .second = 8, .into_second = 100});
  ASSERT_TRUE(Write());
  EXPECT_EQ(written_.seconds, 8);
  EXPECT_EQ(written_.nanoseconds, 125);
  flows_.SetTime({.good_for_ticks = kGoodFor, .second = 8, .into_second = 50});
  ASSERT_TRUE(Write());
  EXPECT_EQ(written_.nanoseconds, 75);
}

TEST_F(LinkFlowsTest, TimeIsAskedForWhenItIsOldAndOnlyThen) {
  EXPECT_EQ(asked_, 1) << "by the first";
  flows_.Follow(kGoodFor - 1);
  EXPECT_EQ(asked_, 1);
  flows_.Follow(kGoodFor);
  EXPECT_EQ(asked_, 2);
  time_.ticks = kGoodFor;
  flows_.Follow(kGoodFor + 1);
  EXPECT_EQ(asked_, 3);
  flows_.Follow(kGoodFor + 2);
  EXPECT_EQ(asked_, 3);
}

TEST_F(LinkFlowsTest, ClockThatIsSetAnewCounts) {
  flows_.Learn(frame_.data(), form_, &endpoint_);
  flows_.SetScale(ClockScale::Of(1000, 50, int64_t{1} << 32, 0));
  ASSERT_TRUE(Write());
  EXPECT_EQ(written_.nanoseconds, 100 + 50 + 10);
}

TEST_F(LinkFlowsTest, WithoutAClockThereIsNoTime) {
  flows_.SetScale({});
  flows_.Learn(frame_.data(), form_, &endpoint_);
  flows_.SetTime({.good_for_ticks = kGoodFor, .second = 8, .into_second = 100});
  ASSERT_TRUE(Write());
  EXPECT_EQ(written_.seconds, 0);
  EXPECT_EQ(written_.nanoseconds, 0);
}

TEST_F(LinkFlowsTest, WhatIsLearnedBehindAChangeStays) {
  ++changes_;
  flows_.Learn(frame_.data(), form_, &endpoint_);
  flows_.Follow(1);
  EXPECT_TRUE(Write());
}

TEST_F(LinkFlowsTest, AnEmptyPlaceMatchesNoFrame) {
  for (uint64_t addresses = 0; addresses < 4096; ++addresses) {
    frame_ = testing::EmptyFrame(addresses);
    EXPECT_FALSE(Write()) << addresses;
  }
}

TEST_F(LinkFlowsTest, AreForgottenWhenTheDemultiplexerChanges) {
  flows_.Learn(frame_.data(), form_, &endpoint_);
  flows_.Follow(1);
  EXPECT_TRUE(Write());
  ++changes_;
  flows_.Follow(1);
  EXPECT_FALSE(flows_.any());
  EXPECT_FALSE(Write());
}

}  // namespace
}  // namespace xtreme::completion
