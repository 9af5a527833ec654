// SPDX-License-Identifier: Apache-2.0
//
// WQEs and CQEs byte by byte, over memory poisoned with 0xA5.

#include "xtreme/mlx5/send_wqe.h"

#include <array>
#include <cstring>
#include <numeric>
#include <span>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "xtreme/mlx5/cqe.h"
#include "xtreme/nic/doorbell.h"

namespace xtreme::mlx5 {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::ElementsAreArray;

class SendWqeTest : public testing::Test {
 protected:
  SendWqeTest() {
    wqe_.fill(0xa5);
    std::iota(header_.begin(), header_.end(), uint8_t{0x01});
  }
  std::span<const uint8_t> Bytes(size_t from, size_t count) const {
    return std::span(wqe_).subspan(from, count);
  }

  alignas(64) std::array<uint8_t, kMaxWqeBytes + 64> wqe_;
  std::array<uint8_t, kMaxHeaderBytes> header_;
};

TEST_F(SendWqeTest, ControlSegmentOfASignalledSend) {
  WriteControl(wqe_.data(), 0xabcd, MLX5_OPCODE_SEND, 0x123456, 6, Completion::kAlways);
  EXPECT_THAT(Bytes(0, 16), ElementsAre(0x00, 0xab, 0xcd, 0x0a, 0x12, 0x34, 0x56, 0x06,  //
                                        0, 0, 0, 0x08, 0, 0, 0, 0));
  EXPECT_THAT(Bytes(16, 16), Each(0xa5));
}

TEST_F(SendWqeTest, WarmSendIsANop) {
  WriteControl(wqe_.data(), 1, MLX5_OPCODE_NOP, 0x42, 6, Completion::kOnError);
  EXPECT_THAT(Bytes(0, 16),
              ElementsAre(0, 0, 1, 0, 0, 0, 0x42, 6, 0, 0, 0, 0, 0, 0, 0, 0));
}

TEST_F(SendWqeTest, EthernetSegmentHasChecksumFlagsAndInlineSize) {
  WriteEthernet(wqe_.data(), nic::kTxIpChecksum | nic::kTxL4Checksum | nic::kTxSignal, 0x01e2);
  EXPECT_THAT(Bytes(16, 14), ElementsAre(0, 0, 0, 0, 0xc0, 0, 0, 0, 0, 0, 0, 0, 0x01, 0xe2));
  WriteEthernet(wqe_.data(), nic::kTxIpChecksum, 18);
  EXPECT_EQ(wqe_[20], 0x40);
  WriteEthernet(wqe_.data(), nic::kTxL4Checksum, 18);
  EXPECT_EQ(wqe_[20], 0x80);
}

TEST_F(SendWqeTest, FrameLikeATemplateEqualsTheFrameWrittenFieldByField) {
  constexpr uint32_t kQpn = 0x777;
  nic::TxTemplate flow;
  PrepareTemplate({.bytes = header_.data(),
                   .length = 42,
                   .flags = nic::kTxIpChecksum,
                   .lengths = {{{.at = 16, .constant = 28}, {.at = 38, .constant = 8}}}},
                  kQpn, /*most_direct_blocks=*/3, /*stored_key=*/0xdeadbeef, &flow);
  ASSERT_EQ(flow.max_payload_bytes, kMaxInlineFrameBytes - 42);
  std::vector<uint8_t> payload(flow.max_payload_bytes);
  std::iota(payload.begin(), payload.end(), uint8_t{0x80});
  for (uint32_t length = 0; length <= payload.size(); ++length) {
    alignas(64) std::array<uint8_t, 256> expected;
    expected.fill(0xa5);
    std::array<uint8_t, 64> header = header_;
    base::StoreBe16(&header[16], static_cast<uint16_t>(28 + length));
    base::StoreBe16(&header[38], static_cast<uint16_t>(8 + length));
    WriteControl(expected.data(), 0xfffe, MLX5_OPCODE_SEND, kQpn, SegmentsWithInline(42 + length),
                 Completion::kOnError);
    WriteEthernet(expected.data(), nic::kTxIpChecksum, 42 + length);
    WriteInlineFrame(expected.data(), header.data(), 42, payload.data(), length);
    const std::span<const uint8_t> whole = std::span(expected).first(72 + length);
    const nic::TxPrepared& frame = FrameOf(flow, payload.data(), length);
    EXPECT_EQ(frame.frame_bytes(), 42 + length);
    EXPECT_EQ(frame.blocks(), WqebbsWithInline(42 + length));
    EXPECT_EQ(frame.direct_blocks, frame.blocks() <= 3 ? frame.blocks() : 0);
    std::copy(frame.image.begin(), frame.image.end(), wqe_.begin());
    nic::TxFront front;
    front.SetFirstBlock(0xfffe);
    Store32(wqe_.data(), Load32(wqe_.data()) | nic::IndexBits(front));
    ASSERT_THAT(Bytes(0, whole.size()), ElementsAreArray(whole)) << length;
    wqe_.fill(0xa5);
    FrameWriter(flow).Write(wqe_.data(), 0xfffe, payload.data());
    ASSERT_THAT(Bytes(0, whole.size()), ElementsAreArray(whole)) << length;
  }
}

TEST_F(SendWqeTest, FrameOfAFlowWithAStoredPayloadEqualsTheGatheredOne) {
  constexpr uint32_t kQpn = 0x777;
  nic::TxTemplate flow;
  PrepareTemplate({.bytes = header_.data(),
                   .length = 42,
                   .flags = nic::kTxIpChecksum,
                   .lengths = {{{.at = 16, .constant = 28}, {.at = 38, .constant = 8}}}},
                  kQpn, /*most_direct_blocks=*/3, /*stored_key=*/0xdeadbeef, &flow);
  for (const uint32_t length : {983u, 1472u, 983u}) {
    std::array<uint8_t, 64> header = header_;
    base::StoreBe16(&header[16], static_cast<uint16_t>(28 + length));
    base::StoreBe16(&header[38], static_cast<uint16_t>(8 + length));
    wqe_.fill(0);
    WriteControl(wqe_.data(), 0, MLX5_OPCODE_SEND, kQpn, SegmentsWithInline(42) + 1,
                 Completion::kOnError);
    WriteEthernet(wqe_.data(), nic::kTxIpChecksum, 42);
    WriteGatheredFrame(wqe_.data(),
                       {.header = header.data(), .payload = nullptr, .header_length = 42,
                        .payload_length = length, .key = 0xdeadbeef, .flags = 0},
                       {.address = 0, .key = 0xdeadbeef}, SegmentsWithInline(42));
    SetStoredLength(flow, length);
    EXPECT_EQ(flow.stored.frame_bytes(), 42 + length);
    EXPECT_EQ(flow.stored.blocks(), 2u);
    EXPECT_EQ(flow.stored.direct_blocks, 2u);
    const std::span<const uint8_t> stored = std::span(flow.stored.image).first(96);
    EXPECT_THAT(Bytes(0, 72), ElementsAreArray(stored.first(72)));
    EXPECT_THAT(Bytes(80, 16), ElementsAreArray(stored.last(16)));
  }
}

TEST_F(SendWqeTest, InlineFrameOfAnyLengthIsHeaderThenPayload) {
  std::vector<uint8_t> payload(kMaxInlineFrameBytes - 42);
  std::iota(payload.begin(), payload.end(), uint8_t{0x80});
  for (uint32_t length = 0; length <= payload.size(); ++length) {
    wqe_.fill(0xa5);
    // Exactly as long as it says: a byte too far is the address sanitizer's.
    const std::vector<uint8_t> exact(payload.begin(), payload.begin() + length);
    WriteInlineFrame(wqe_.data(), header_.data(), 42, exact.data(), length);
    ASSERT_THAT(Bytes(30, 42), ElementsAreArray(std::span(header_).first(42)));
    ASSERT_THAT(Bytes(72, length), ElementsAreArray(exact)) << length;
    // Nothing behind the frame and the 64 bytes of header.
    const size_t end = std::max<size_t>(30 + 64, 72 + length);
    ASSERT_THAT(Bytes(end, wqe_.size() - end), Each(0xa5)) << length;
  }
}

TEST_F(SendWqeTest, GatheredFrameHasHeadersInlineAndOneDataSegment) {
  const auto* payload = reinterpret_cast<const uint8_t*>(uintptr_t{0x1122334455667788});
  const nic::TxFrame frame{.header = header_.data(), .payload = payload, .header_length = 42,
                           .payload_length = 1400, .key = 0xdeadbeef, .flags = 0};
  WriteGatheredFrame(wqe_.data(), frame, {reinterpret_cast<uintptr_t>(frame.payload), frame.key},
                     SegmentsWithInline(42));
  EXPECT_THAT(Bytes(30, 42), ElementsAreArray(std::span(header_).first(42)));
  EXPECT_THAT(Bytes(80, 16), ElementsAre(0, 0, 0x05, 0x78, 0xde, 0xad, 0xbe, 0xef,  //
                                         0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88));
}

TEST_F(SendWqeTest, SegmentsAreAHeaderWithTheirSizeAndThePiecesOfTheirPayload) {
  std::array<uint8_t, kMaxTcpHeaderBytes> header;
  std::iota(header.begin(), header.end(), uint8_t{0x01});
  const nic::TxGather pieces[] = {
      {reinterpret_cast<const uint8_t*>(uintptr_t{0x1122334455667788}), 3000, 0xdeadbeef},
      {reinterpret_cast<const uint8_t*>(uintptr_t{0x99aabbccddeeff00}), 0x50, 0xcafe0001}};
  const uint32_t segments = WriteSegments(
      wqe_.data(), {.header = header.data(), .header_length = 66, .segment_bytes = 1448,
                    .payload = pieces, .flags = 0});
  ASSERT_EQ(segments, 8u);
  WriteControl(wqe_.data(), 0x0102, MLX5_OPCODE_TSO, 0x123456, segments, Completion::kOnError);
  EXPECT_THAT(Bytes(0, 16), ElementsAre(0x00, 0x01, 0x02, 0x0e, 0x12, 0x34, 0x56, 0x08,  //
                                        0, 0, 0, 0, 0, 0, 0, 0));
  EXPECT_THAT(Bytes(16, 14), ElementsAre(0, 0, 0, 0, 0xc0, 0, 0x05, 0xa8,  // mss 1448
                                         0, 0, 0, 0, 0x00, 0x42));
  EXPECT_THAT(Bytes(30, 66), ElementsAreArray(std::span(header).first(66)));
  EXPECT_THAT(Bytes(96, 32), ElementsAre(0, 0, 0x0b, 0xb8, 0xde, 0xad, 0xbe, 0xef,  //
                                         0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88,
                                         0, 0, 0, 0x50, 0xca, 0xfe, 0x00, 0x01,  //
                                         0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff, 0x00));
  EXPECT_THAT(Bytes(128, 64), Each(0xa5));
}

TEST(SendWqeSize, SegmentsAndBlocksFollowTheInlineBytes) {
  struct Row {
    uint32_t inline_bytes, segments, wqebbs;
  };
  for (const Row& row : {Row{18, 3, 1}, Row{34, 4, 1}, Row{35, 5, 2}, Row{64, 6, 2},
                         Row{98, 8, 2}, Row{99, 9, 3}, Row{162, 12, 3}, Row{226, 16, 4}}) {
    EXPECT_EQ(SegmentsWithInline(row.inline_bytes), row.segments) << row.inline_bytes;
    EXPECT_EQ(WqebbsWithInline(row.inline_bytes), row.wqebbs) << row.inline_bytes;
    EXPECT_EQ(WqebbsOfSegments(row.segments), row.wqebbs) << row.inline_bytes;
  }
}

// A received frame, as the device writes it.
mlx5_cqe64 ReceivedCqe() {
  std::array<uint8_t, 64> bytes;
  bytes.fill(0xa5);
  bytes[28] = 0x07;                                                         // L2, L3, L4 ok.
  const std::array<uint8_t, 4> byte_cnt = {0x00, 0x00, 0x05, 0xee};
  const std::array<uint8_t, 16> tail = {0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08,  // Time.
                                        0xff, 0x12, 0x34, 0x56,                          // Tag.
                                        0xab, 0xcd, 0x00, 0x20};                         // Index.
  std::copy(byte_cnt.begin(), byte_cnt.end(), bytes.begin() + 44);
  std::copy(tail.begin(), tail.end(), bytes.begin() + 48);
  mlx5_cqe64 cqe;
  std::memcpy(&cqe, bytes.data(), sizeof(cqe));
  return cqe;
}

TEST(Cqe, ReceivedFrameIsReadFieldByField) {
  mlx5_cqe64 cqe = ReceivedCqe();
  EXPECT_EQ(FrameBytes(cqe), 1518u);
  EXPECT_EQ(HardwareClock(cqe), 0x0102030405060708u);
  EXPECT_EQ(FlowTag(cqe), 0x123456u);
  EXPECT_EQ(WqeCounter(cqe), 0xabcd);
  EXPECT_EQ(ChecksumFlags(cqe), nic::kRxIpChecksumOk | nic::kRxL4ChecksumOk);
  cqe.hds_ip_ext = MLX5_CQE_L2_OK | MLX5_CQE_L3_OK;
  EXPECT_EQ(ChecksumFlags(cqe), nic::kRxIpChecksumOk);
  cqe.hds_ip_ext = MLX5_CQE_L2_OK | MLX5_CQE_L4_OK;
  EXPECT_EQ(ChecksumFlags(cqe), nic::kRxL4ChecksumOk);
}

TEST(Cqe, OwnerBitAloneTellsWrittenFromUnwrittenOverThreeLaps) {
  constexpr uint32_t kLog2 = 2;
  uint8_t op_own[4] = {kUnwrittenOpOwn, kUnwrittenOpOwn, kUnwrittenOpOwn, kUnwrittenOpOwn};
  for (uint32_t index = 0; index < 12; ++index) {
    uint8_t& slot = op_own[index & 3];
    EXPECT_FALSE(IsWritten(slot ^ OwnerBit(index, kLog2))) << index;
    slot = static_cast<uint8_t>(MLX5_CQE_RESP_SEND << 4 | (index >> kLog2 & 1));
    EXPECT_TRUE(IsReceivedFrame(slot ^ OwnerBit(index, kLog2))) << index;
  }
}

TEST(Cqe, OnlyUncompressedReceiveCompletionsAreFrames) {
  EXPECT_TRUE(IsReceivedFrame(MLX5_CQE_RESP_SEND << 4));
  EXPECT_TRUE(IsReceivedFrame(MLX5_CQE_RESP_SEND << 4 | 2)) << "solicited";
  EXPECT_FALSE(IsReceivedFrame(MLX5_CQE_RESP_SEND << 4 | 3 << 2)) << "compressed";
  EXPECT_FALSE(IsReceivedFrame(MLX5_CQE_RESP_ERR << 4));
  EXPECT_FALSE(IsReceivedFrame(MLX5_CQE_REQ << 4));
  EXPECT_FALSE(IsReceivedFrame(MLX5_CQE_RESP_SEND << 4 | 1)) << "not written";
}

TEST(Cqe, ErrorHasItsSyndromeInWords) {
  std::array<uint8_t, 64> bytes{};
  bytes[54] = 0x68;
  bytes[55] = MLX5_CQE_SYNDROME_LOCAL_PROT_ERR;
  mlx5_cqe64 cqe;
  std::memcpy(&cqe, bytes.data(), sizeof(cqe));
  const CqeError error = ParseError(cqe);
  EXPECT_EQ(error.syndrome, 0x04);
  EXPECT_EQ(error.vendor_syndrome, 0x68);
  EXPECT_FALSE(error.flushed);
  EXPECT_EQ(DescribeSyndrome(error.syndrome),
            "local protection error: memory that its key does not cover");
}

}  // namespace
}  // namespace xtreme::mlx5
