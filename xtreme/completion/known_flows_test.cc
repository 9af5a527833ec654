// SPDX-License-Identifier: Apache-2.0

#include "xtreme/completion/known_flows.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <utility>

#include "xtreme/completion/frames_testing.h"
#include "xtreme/completion/known_flows_write.h"

namespace xtreme::completion {
namespace {

constexpr uint32_t kFrameBytes = 60;
constexpr uint32_t kPayloadBytes = 10;

class KnownFlowsTest : public ::testing::Test {
 protected:
  KnownFlowsTest() {
    flows_.Watch(&changes_);
    flows_.SetTicks(77);
    flows_.SetScale(ClockScale::Of(1000, 5, int64_t{2} << 32, 0));
    Clear(&form_, Kind::kPacket);
    form_.socket = 0x123456789;
    form_.user_data = 42;
    form_.flags = kMulticast | kClockSynced;
    form_.source_ip.fill(1);
    form_.destination_ip.fill(2);
    form_.source_port = 4000;
    form_.destination_port = 5000;
    form_.interface_index = 3;
  }

  bool Write(uint32_t length = kFrameBytes) {
    std::memset(static_cast<void*>(&written_), 0xa5, sizeof(written_));
    return flows_.Write(&buffer_, frame_.data(), length, 1010, &written_);
  }

  alignas(64) testing::FrameBytes frame_ = testing::DatagramFrame(kPayloadBytes);
  uint64_t changes_ = 1;
  packet::Buffer buffer_;
  udp::Endpoint endpoint_{{}};
  Completion form_, written_;
  KnownFlows flows_;
};

TEST_F(KnownFlowsTest, EveryFieldOfTheCompletionIsWritten) {
  flows_.Learn(frame_.data(), form_, &endpoint_);
  ASSERT_TRUE(Write());
  Completion expected = form_;
  expected.buffer = &buffer_;
  expected.data = frame_.data() + 42;
  expected.length = kPayloadBytes;
  expected.count = 1;
  expected.hw_time_ns = 5 + 2 * 10;
  expected.hw_clock = 1010;
  expected.poll_tsc = 77;
  EXPECT_EQ(std::memcmp(&written_, &expected, sizeof(expected)), 0);
  EXPECT_EQ(buffer_.data, frame_.data() + 42);
  EXPECT_EQ(buffer_.length, kPayloadBytes);
  EXPECT_EQ(endpoint_.counters().datagrams, 1u);
  EXPECT_EQ(endpoint_.counters().bytes, kPayloadBytes);
}

TEST_F(KnownFlowsTest, WhatDiffersFromDatagramToDatagramDoesNotMakeItAnother) {
  flows_.Learn(frame_.data(), form_, &endpoint_);
  frame_[15] = 0x10;                 // Type of service.
  base::StoreBe16(&frame_[18], 99);  // Identification.
  frame_[20] = 0;
  frame_[22] = 1;                    // Time to live.
  base::StoreBe16(&frame_[24], 7);   // Checksums.
  base::StoreBe16(&frame_[40], 7);
  EXPECT_TRUE(Write());
}

TEST_F(KnownFlowsTest, AnythingElseIsLeftAlone) {
  flows_.Learn(frame_.data(), form_, &endpoint_);
  const testing::FrameBytes good = frame_;
  // EtherType, version, header length, fragment bits and offset, protocol, addresses, ports.
  for (const auto& [at, bits] : {std::pair{12, 1}, {13, 1}, {14, 0x10}, {14, 1}, {20, 0x20},
                                 {20, 1}, {21, 1}, {23, 1}, {26, 1}, {29, 1}, {30, 1}, {33, 1},
                                 {34, 1}, {35, 1}, {36, 1}, {37, 1}}) {
    frame_ = good;
    frame_[at] = static_cast<uint8_t>(frame_[at] ^ bits);
    EXPECT_FALSE(Write()) << at;
  }
  frame_ = good;
  EXPECT_TRUE(Write());
  EXPECT_EQ(endpoint_.counters().datagrams, 1u);
}

TEST_F(KnownFlowsTest, LengthsThatDoNotAgreeAreLeftAlone) {
  flows_.Learn(frame_.data(), form_, &endpoint_);
  EXPECT_FALSE(Write(42 + kPayloadBytes - 1)) << "The frame ends before the datagram.";
  EXPECT_TRUE(Write(42 + kPayloadBytes));
  base::StoreBe16(&frame_[16], 28 + kPayloadBytes + 1);
  EXPECT_FALSE(Write()) << "IP holds more than UDP.";
  for (const uint16_t udp_bytes : {0, 7}) {
    base::StoreBe16(&frame_[38], udp_bytes);
    base::StoreBe16(&frame_[16], static_cast<uint16_t>(20 + udp_bytes));
    EXPECT_FALSE(Write()) << "Shorter than its header: " << udp_bytes;
  }
  base::StoreBe16(&frame_[38], 8);
  base::StoreBe16(&frame_[16], 28);
  EXPECT_TRUE(Write()) << "Empty.";
}

TEST_F(KnownFlowsTest, AreForgottenWhenTheDemultiplexerChanges) {
  flows_.Learn(frame_.data(), form_, &endpoint_);
  flows_.Follow();
  EXPECT_TRUE(Write());
  ++changes_;
  flows_.Follow();
  EXPECT_FALSE(Write());
}

TEST_F(KnownFlowsTest, AnEmptyPlaceMatchesNoFrame) {
  for (uint64_t addresses = 0; addresses < 4096; ++addresses) {
    frame_ = testing::EmptyFrame(addresses);
    EXPECT_FALSE(Write()) << addresses;
  }
}

}  // namespace
}  // namespace xtreme::completion
