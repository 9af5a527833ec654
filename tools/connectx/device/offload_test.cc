// SPDX-License-Identifier: Apache-2.0
//
// What a send queue does to frames besides sending them: segmentation, tags, pace.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "tools/connectx/device/test_program.h"

namespace xtreme::connectx {
namespace {

constexpr uint8_t kNop = 0x00;
constexpr uint8_t kTso = 0x0e;
constexpr uint8_t kL3Checksum = 1 << 6;
constexpr uint8_t kL4Checksum = 1 << 7;
constexpr uint8_t kChecksums = kL3Checksum | kL4Checksum;
constexpr uint8_t kFin = 0x01;
constexpr uint8_t kPsh = 0x08;
constexpr uint8_t kAck = 0x10;
constexpr uint8_t kCwr = 0x80;

uint16_t Be16At(const Bytes& frame, size_t at) {
  return static_cast<uint16_t>(frame[at] << 8 | frame[at + 1]);
}
uint32_t Be32At(const Bytes& frame, size_t at) {
  return uint32_t{Be16At(frame, at)} << 16 | Be16At(frame, at + 2);
}

class OffloadTest : public testing::Test {
 protected:
  void SetUp() override { Make(TestProgram::DefaultOptions()); }

  void Make(const Device::Options& options) {
    program = std::make_unique<TestProgram>(options);
    std::iota(program->memory.begin(), program->memory.end(), uint8_t{0});
    cq = program->MakeCq();
    qp = program->MakeQp(cq.get(), cq.get(), {.wqebbs = 64});
  }

  // The headers of a TCP segment, with an id and a sequence number that run over.
  Bytes Header(const FrameSpec& spec) {
    FrameSpec whole = spec;
    whole.protocol = 6;
    whole.payload = "";
    whole.checksums = false;
    Bytes header = MakeFrame(whole);
    header[IpOffset(whole) + 4] = 0xff;
    header[IpOffset(whole) + 5] = 0xff;
    const size_t tcp = L4Offset(whole);
    std::fill_n(header.begin() + tcp + 4, 3, 0xff);
    header[tcp + 7] = 0x00;
    return header;
  }

  // The payload is the program's memory from its start.
  void SendSegmented(const Bytes& header, uint32_t payload_bytes, uint16_t mss) {
    Wqe wqe(kTso);
    wqe.Eth(header, kChecksums, mss);
    if (payload_bytes != 0) wqe.Data(program->keys.lkey, program->Address(0), payload_bytes);
    qp->PostAndRing(wqe);
    program->Step();
  }

  // At 1 Gbit/s, where a frame of 1,054 bytes takes 8,432 ns.
  void SendFirstOfSegments(uint32_t payload_bytes) {
    ASSERT_EQ(program->device->ModifyQp(qp->qpn, IBV_QPS_RTS, Rate{.kbps = 1'000'000}), 0);
    SendSegmented(Header({.tcp_flags = kAck}), payload_bytes, 1000);
    ASSERT_EQ(program->wire.sent.size(), 1u);
  }

  // Whether the device has nothing left to do at some time.
  bool ComesToRestAfter(int64_t ns) {
    program->clock.Advance(ns);
    for (int i = 0; i < 100; ++i) {
      if (!program->device->Service()) return true;
    }
    return false;
  }

  uint16_t IpSum(const Bytes& frame) const {
    return InternetChecksum(std::span(frame).subspan(14, 20));
  }
  uint16_t TcpSum(const Bytes& frame, size_t tcp, size_t tcp_bytes) const {
    uint32_t sum = 6 + static_cast<uint32_t>(tcp_bytes);
    for (size_t at = tcp - 8; at < tcp; at += 2) sum += Be16At(frame, at);
    return InternetChecksum(std::span(frame).subspan(tcp, tcp_bytes), sum);
  }

  std::unique_ptr<TestProgram> program;
  std::unique_ptr<TestCq> cq;
  std::unique_ptr<TestQp> qp;
};

TEST_F(OffloadTest, SegmentsCarryTheirOwnLengthsIdsAndSequenceNumbers) {
  SendSegmented(Header({.tcp_flags = kAck}), 2500, 1000);
  const uint32_t payload[] = {1000, 1000, 500};
  ASSERT_EQ(program->wire.sent.size(), 3u);
  for (uint32_t i = 0; i < 3; ++i) {
    const Bytes& frame = program->wire.sent[i];
    ASSERT_EQ(frame.size(), 54 + payload[i]) << i;
    EXPECT_EQ(Be16At(frame, 16), 40 + payload[i]) << i;
    EXPECT_EQ(Be16At(frame, 18), static_cast<uint16_t>(0xffff + i)) << i;
    EXPECT_EQ(Be32At(frame, 38), 0xffffff00 + 1000 * i) << i;
    EXPECT_EQ(IpSum(frame), 0) << i;
    EXPECT_EQ(TcpSum(frame, 34, 20 + payload[i]), 0) << i;
    EXPECT_TRUE(std::equal(frame.begin() + 54, frame.end(),
                           program->memory.begin() + 1000 * static_cast<ptrdiff_t>(i)))
        << i;
  }
}

TEST_F(OffloadTest, FlagsOfTheEndsStandInTheEndsOnly) {
  SendSegmented(Header({.tcp_flags = kAck | kPsh | kFin | kCwr}), 300, 100);
  ASSERT_EQ(program->wire.sent.size(), 3u);
  const uint8_t flags[] = {kAck | kCwr, kAck, kAck | kPsh | kFin};
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(program->wire.sent[i][47], flags[i]) << i;
}

TEST_F(OffloadTest, OneCompletionForAllSegments) {
  SendSegmented(Header({.tcp_flags = kAck}), 5000, 1460);
  EXPECT_EQ(program->wire.sent.size(), 4u);
  const auto cqe = cq->Poll();
  ASSERT_TRUE(cqe.has_value());
  EXPECT_EQ(cqe->opcode(), 0);
  EXPECT_EQ(cqe->tag_or_qpn() >> 24, kTso);
  EXPECT_FALSE(cq->Poll().has_value());
}

TEST_F(OffloadTest, PayloadThatFitsIsOneSegmentWithAllFlags) {
  for (uint32_t bytes : {0u, 1u, 100u}) {
    program->wire.sent.clear();
    SendSegmented(Header({.tcp_flags = kAck | kPsh | kFin | kCwr}), bytes, 100);
    ASSERT_EQ(program->wire.sent.size(), 1u) << bytes;
    const Bytes& frame = program->wire.sent[0];
    EXPECT_EQ(frame.size(), std::max(60u, 54 + bytes));
    EXPECT_EQ(frame[47], kAck | kPsh | kFin | kCwr);
    EXPECT_EQ(TcpSum(frame, 34, 20 + bytes), 0);
  }
}

TEST_F(OffloadTest, TagsOptionsAndIpv6StandInEachSegment) {
  FrameSpec spec{.vlan_tags = {0x81000064}, .option_bytes = 8, .tcp_flags = kAck};
  SendSegmented(Header(spec), 200, 100);
  ASSERT_EQ(program->wire.sent.size(), 2u);
  EXPECT_EQ(Be16At(program->wire.sent[1], 18 + 2), 28 + 20 + 100);
  EXPECT_EQ(Be32At(program->wire.sent[1], L4Offset(spec) + 4), 0xffffff00 + 100);
  program->wire.sent.clear();
  FrameSpec six{.protocol = 6, .tcp_flags = kAck, .payload = ""};
  const Bytes header = MakeIpv6Frame(six);
  SendSegmented(header, 200, 100);
  ASSERT_EQ(program->wire.sent.size(), 2u);
  EXPECT_EQ(Be16At(program->wire.sent[1], 14 + 4), 20 + 100);
  EXPECT_EQ(Be32At(program->wire.sent[1], 54 + 4), Be32At(header, 54 + 4) + 100);
}

TEST_F(OffloadTest, PayloadOfManyPiecesIsOneStreamOfBytes) {
  Wqe wqe(kTso);
  wqe.Eth(Header({.tcp_flags = kAck}), kChecksums, 64);
  wqe.Data(program->keys.lkey, program->Address(0), 50);
  wqe.Inline(std::span(program->memory).subspan(50, 30));
  wqe.Data(program->keys.lkey, program->Address(80), 120);
  qp->PostAndRing(wqe);
  program->Step();
  Bytes joined;
  for (const Bytes& frame : program->wire.sent) {
    joined.insert(joined.end(), frame.begin() + 54, frame.end());
  }
  joined.resize(200);  // The last one is padded.
  EXPECT_EQ(joined, Bytes(program->memory.begin(), program->memory.begin() + 200));
}

TEST_F(OffloadTest, HeaderThatIsNoTcpSegmentBreaksTheQueue) {
  struct Row {
    const char* name;
    Bytes header;
    const char* rule;
  };
  Bytes udp = MakeFrame({.payload = ""});
  Bytes cut = Header({.tcp_flags = kAck});
  cut.resize(50);
  Bytes longer = Header({.tcp_flags = kAck});
  longer.push_back(0);
  const Row rows[] = {{"UDP", udp, "segmentation"},
                      {"cut off", cut, "segmentation"},
                      {"payload inline", longer, "segmentation"}};
  for (const Row& row : rows) {
    Make(TestProgram::DefaultOptions());
    SendSegmented(row.header, 200, 100);
    EXPECT_EQ(program->Violations(), row.rule) << row.name;
    EXPECT_EQ(cq->Poll()->syndrome(), 2) << row.name;
    EXPECT_TRUE(program->wire.sent.empty()) << row.name;
  }
}

TEST_F(OffloadTest, SegmentsAboveTheMtuAndWholesAboveTheLimitAreLengthErrors) {
  SendSegmented(Header({.tcp_flags = kAck}), 3000, 1461);
  EXPECT_EQ(cq->Poll()->syndrome(), 1);
  Device::Options options = TestProgram::DefaultOptions();
  options.limits.tso_bytes = 4096;
  Make(options);
  SendSegmented(Header({.tcp_flags = kAck}), 4096, 1000);
  EXPECT_EQ(program->wire.sent.size(), 5u) << "the limit is the payload's";
  EXPECT_TRUE(cq->Poll().has_value());
  SendSegmented(Header({.tcp_flags = kAck}), 4097, 1000);
  EXPECT_EQ(cq->Poll()->syndrome(), 1);
  EXPECT_EQ(program->Violations(), "frame_length");
}

TEST_F(OffloadTest, DeviceWithoutSegmentationRefusesTheOpcode) {
  Device::Options options = TestProgram::DefaultOptions();
  options.limits.tso_bytes = 0;
  Make(options);
  SendSegmented(Header({.tcp_flags = kAck}), 200, 100);
  EXPECT_EQ(program->Violations(), "opcode");
}

TEST_F(OffloadTest, PaceHoldsSegmentsApart) {
  // A frame of 1,054 bytes takes 8,432 ns.
  ASSERT_EQ(program->device->ModifyQp(qp->qpn, IBV_QPS_RTS, Rate{.kbps = 1'000'000}), 0);
  SendSegmented(Header({.tcp_flags = kAck}), 3000, 1000);
  EXPECT_EQ(program->wire.sent.size(), 1u);
  EXPECT_FALSE(cq->Poll().has_value());
  for (size_t sent = 2; sent <= 3; ++sent) {
    program->clock.Advance(8'431);
    program->Step();
    EXPECT_EQ(program->wire.sent.size(), sent - 1);
    program->clock.Advance(1);
    program->Step();
    EXPECT_EQ(program->wire.sent.size(), sent);
  }
  EXPECT_TRUE(cq->Poll().has_value());
  EXPECT_EQ(Be32At(program->wire.sent[2], 38), 0xffffff00 + 2000);
}

TEST_F(OffloadTest, SegmentsWhoseMemoryIsGoneBetweenThemAreAProtectionError) {
  SendFirstOfSegments(3000);
  ASSERT_EQ(program->device->DeregisterMemory(program->keys.lkey), 0);
  ASSERT_TRUE(ComesToRestAfter(8'432));
  EXPECT_EQ(program->wire.sent.size(), 1u);
  EXPECT_EQ(cq->Poll()->syndrome(), 4);
  EXPECT_EQ(program->Violations(), "memory_key");
}

TEST_F(OffloadTest, SegmentsThatAreTakenAwayBetweenThemAreFound) {
  for (const uint32_t payload : {500u, 1000u, 1001u}) {
    Make(TestProgram::DefaultOptions());
    SendFirstOfSegments(4000);
    // Behind control segment, Ethernet segment and header, padded.
    const uint32_t bytes = __builtin_bswap32(payload);
    std::memcpy(qp->send_ring() + 16 + 80, &bytes, sizeof(bytes));
    ASSERT_TRUE(ComesToRestAfter(8'432)) << payload;
    EXPECT_EQ(program->wire.sent.size(), payload > 1000 ? 2u : 1u) << payload;
    EXPECT_EQ(program->Violations(), payload > 1000 ? "" : "segmentation") << payload;
    EXPECT_TRUE(cq->Poll().has_value()) << payload;
  }
}

TEST_F(OffloadTest, WqeWrittenOverOneWhoseSegmentsAreOnTheirWayIsExecutedOnce) {
  SendFirstOfSegments(4000);
  qp->send_ring()[3] = kNop;
  ASSERT_TRUE(ComesToRestAfter(8'432));
  EXPECT_EQ(program->wire.sent.size(), 1u);
  EXPECT_TRUE(cq->Poll().has_value());
  EXPECT_FALSE(cq->Poll().has_value());
}

TEST_F(OffloadTest, TagIsInsertedBehindTheAddresses) {
  const Bytes frame = MakeFrame({.checksums = false});
  std::copy(frame.begin(), frame.end(), program->memory.begin());
  for (uint16_t tpid : {0x8100, 0x88a8}) {
    program->wire.sent.clear();
    qp->PostAndRing(Wqe().EthWithTag(tpid, 0x6064, kChecksums)
                        .Data(program->keys.lkey, program->Address(0),
                              static_cast<uint32_t>(frame.size())));
    program->Step();
    ASSERT_EQ(program->wire.sent.size(), 1u);
    FrameSpec tagged{.vlan_tags = {uint32_t{tpid} << 16 | 0x6064}};
    EXPECT_EQ(program->wire.sent[0], MakeFrame(tagged));
  }
  EXPECT_EQ(program->Violations(), "");
}

TEST_F(OffloadTest, DeviceWithoutTagInsertionRefusesIt) {
  Device::Options options = TestProgram::DefaultOptions();
  options.features.vlan_insertion = false;
  Make(options);
  qp->PostAndRing(Wqe().EthWithTag(0x8100, 5).Data(program->keys.lkey, program->Address(0), 100));
  program->Step();
  EXPECT_EQ(program->Violations(), "feature");
}

class PaceTest : public OffloadTest {
 protected:
  static constexpr uint32_t kFrameBytes = 1250;  // 10 us at 1 Gbit/s.

  void PostFrames(int count) {
    for (int i = 0; i < count; ++i) {
      qp->Post(Wqe(0x0a, 0).Eth({}).Data(program->keys.lkey, program->Address(0), kFrameBytes));
    }
    qp->Ring();
    program->Step();
  }
  size_t SentAfter(int64_t ns) {
    program->clock.Advance(ns);
    program->Step();
    return program->wire.sent.size();
  }
};

TEST_F(PaceTest, BurstLeavesAtOnceAndTheRestAtTheRate) {
  ASSERT_EQ(program->device->ModifyQp(qp->qpn, IBV_QPS_RTS,
                                      Rate{.kbps = 1'000'000, .burst_bytes = 3 * kFrameBytes}),
            0);
  PostFrames(10);
  EXPECT_EQ(program->wire.sent.size(), 4u) << "one and a burst of three";
  EXPECT_EQ(SentAfter(9'999), 4u);
  EXPECT_EQ(SentAfter(1), 5u);
}

TEST_F(PaceTest, RateIsKeptToTheNanosecondWhereItDoesNotDivide) {
  // 1,250 bytes at 3 Mbit/s take 3,333,333 1/3 ns.
  ASSERT_EQ(program->device->ModifyQp(qp->qpn, IBV_QPS_RTS, Rate{.kbps = 3'000}), 0);
  PostFrames(4);
  const int64_t start_ns = program->clock.Now();
  for (int i = 1; i < 4; ++i) SentAfter(program->device->NextDeadline() - program->clock.Now());
  EXPECT_EQ(program->wire.sent.size(), 4u);
  EXPECT_EQ(program->clock.Now() - start_ns, 10'000'000);
}

TEST_F(PaceTest, LatePumpCatchesUpWithWhatWaitedAndNotWithIdleTime) {
  ASSERT_EQ(program->device->ModifyQp(qp->qpn, IBV_QPS_RTS, Rate{.kbps = 1'000'000}), 0);
  PostFrames(20);
  EXPECT_EQ(SentAfter(50'000), 6u) << "five of them late";
  SentAfter(1'000'000);
  EXPECT_EQ(program->wire.sent.size(), 20u);
  SentAfter(1'000'000);
  PostFrames(5);
  EXPECT_EQ(program->wire.sent.size(), 21u) << "what was not wanted is not made up for";
}

TEST_F(PaceTest, RatesOutsideTheRangeAndTooManyAreRefused) {
  Device::Options options = TestProgram::DefaultOptions();
  options.limits.rates = 2;
  options.limits.least_rate_kbps = 50;
  Make(options);
  Device& device = *program->device;
  EXPECT_EQ(device.ModifyQp(qp->qpn, IBV_QPS_RTS, Rate{.kbps = 49}), EINVAL);
  EXPECT_EQ(device.ModifyQp(qp->qpn, IBV_QPS_RTS, Rate{.kbps = 100'000'001}), EINVAL);
  uint16_t first;
  uint16_t second;
  uint16_t dedicated;
  ASSERT_EQ(device.AllocRate({.kbps = 100}, false, &first), 0);
  ASSERT_EQ(device.AllocRate({.kbps = 100}, false, &second), 0);
  EXPECT_EQ(first, second);
  ASSERT_EQ(device.AllocRate({.kbps = 100}, true, &dedicated), 0);
  EXPECT_NE(first, dedicated);
  EXPECT_EQ(device.ModifyQp(qp->qpn, IBV_QPS_RTS, Rate{.kbps = 200}), ENOSPC);
  EXPECT_EQ(device.ModifyQp(qp->qpn, IBV_QPS_RTS, Rate{.kbps = 100}), 0)
      << "shares the entry there is";
  EXPECT_EQ(device.FreeRate(dedicated), 0);
  EXPECT_EQ(device.FreeRate(dedicated), EINVAL);
  EXPECT_EQ(device.ModifyQp(qp->qpn, IBV_QPS_RTS, Rate{.kbps = 200}), 0);
}

TEST_F(PaceTest, RateEndsWithTheQueuesReadinessAndNeedsIt) {
  Device& device = *program->device;
  ASSERT_EQ(device.ModifyQp(qp->qpn, IBV_QPS_RTS, Rate{.kbps = 100}), 0);
  qp->Reset();
  QpAttributes attributes;
  ASSERT_EQ(device.QueryQp(qp->qpn, &attributes), 0);
  EXPECT_EQ(attributes.rate, Rate{});
  EXPECT_EQ(device.ModifyQp(qp->qpn, IBV_QPS_RTS, Rate{.kbps = 100}), EINVAL);
}

TEST_F(PaceTest, DeviceWithoutPacingSaysSo) {
  Device::Options options = TestProgram::DefaultOptions();
  options.features.packet_pacing = false;
  Make(options);
  EXPECT_EQ(program->device->ModifyQp(qp->qpn, IBV_QPS_RTS, Rate{.kbps = 100}), EOPNOTSUPP);
}

TEST_F(PaceTest, DeviceWithoutBurstsRefusesRatesThatSayOne) {
  Device::Options options = TestProgram::DefaultOptions();
  options.features.pacing_bursts = false;
  Make(options);
  Device& device = *program->device;
  EXPECT_EQ(device.ModifyQp(qp->qpn, IBV_QPS_RTS, Rate{.kbps = 100}), 0);
  EXPECT_EQ(device.ModifyQp(qp->qpn, IBV_QPS_RTS, Rate{.kbps = 100, .burst_bytes = 1}), EINVAL);
  EXPECT_EQ(device.ModifyQp(qp->qpn, IBV_QPS_RTS, Rate{.kbps = 100, .typical_packet_bytes = 1}),
            EINVAL);
  uint16_t index = 0;
  EXPECT_EQ(device.AllocRate({.kbps = 100, .burst_bytes = 1}, /*dedicated=*/false, &index), EINVAL);
}

}  // namespace
}  // namespace xtreme::connectx
