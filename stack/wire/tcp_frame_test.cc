// SPDX-License-Identifier: Apache-2.0
#include "stack/wire/tcp_frame.h"

#include <gtest/gtest.h>

#include "stack/wire/checksum.h"
#include "stack/wire/golden.h"
#include "stack/wire/tcp_plain.h"

namespace xtreme::wire {
namespace {

const Bytes kMacs = Hex("02000000000e 02000000000f");
const Bytes kIp = Hex("4500002b 00004000 4006 b6c9 c0000201 c0000202");
const Bytes kTcp = Hex("1092 676d 01020304 0a0b0c0d 5018 2000 b545 0000");
const Bytes kPayload = Hex("616263");
const Bytes kFrame = kMacs + Hex("0800") + kIp + kTcp + kPayload;
const Bytes kTaggedFrame = kMacs + Hex("8100 6064 0800") + kIp + kTcp + kPayload;
const Bytes kTimestamped =
    kMacs + Hex("0800 45000037 00004000 4006 b6bd c0000201 c0000202") +
    Hex("1092 676d 01020304 0a0b0c0d 8018 2000 16a7 0000 0101080a 01020304 a0b0c0d0") + kPayload;
constexpr TcpFlow kFlow{.destination = Ipv4Address(192, 0, 2, 2),
                        .source = Ipv4Address(192, 0, 2, 1),
                        .destination_port = 26477,
                        .source_port = 4242};

TcpSegment Expected() {
  TcpSegment segment;
  segment.sequence = 0x01020304;
  segment.acknowledgement = 0x0A0B0C0D;
  segment.window = 0x2000;
  segment.payload_bytes = 3;
  segment.flags = kTcpPsh | kTcpAck;
  return segment;
}

// That a frame of which so much is known already is read as it is parsed.
void ExpectReadAsParsed(std::span<const uint8_t> frame, const TcpFrame& before) {
  constexpr size_t kForm = 28;  // What IsTcp() reads.
  if (frame.size() < kForm || !PlainTcpView(frame.data()).IsTcp()) return;
  TcpFrame read = before, parsed;
  const FrameVerdict verdict =
      ParseTcpFrameInFull(frame.data(), frame.size(), kAllChecksumsVerified, &parsed);
  EXPECT_EQ(ReadTcpFrame(frame.data(), frame.size(), &read), verdict == FrameVerdict::kTcp);
  EXPECT_TRUE(verdict != FrameVerdict::kTcp || read == parsed);
}

// Parses by both ways, which must agree whatever was in the result before.
FrameVerdict Parse(const Bytes& bytes, uint8_t verified, TcpFrame* tcp) {
  const Exact exact(bytes);
  const auto frame = exact.span();
  tcp->segment.options.mss = 99;
  tcp->segment.options.timestamps = TcpTimestamps{9, 9};
  tcp->segment.options_error = TcpOptionsError::kLength;
  tcp->vlan_tci = tcp->flow.vlan_id = 9;
  TcpFrame in_full = *tcp;
  ExpectReadAsParsed(frame, *tcp);
  const FrameVerdict verdict = ParseTcpFrame(frame.data(), frame.size(), verified, tcp);
  EXPECT_EQ(ParseTcpFrameInFull(frame.data(), frame.size(), verified, &in_full), verdict);
  EXPECT_TRUE(in_full == *tcp);
  return verdict;
}

FrameVerdict VerdictOf(const Bytes& bytes, uint8_t verified = kNoChecksumVerified) {
  TcpFrame tcp;
  return Parse(bytes, verified, &tcp);
}

// `frame`, untagged, with a right IPv4 header checksum again.
Bytes Resummed(Bytes frame) {
  base::StoreBe16(&frame[24], 0);
  base::StoreBe16(&frame[24], Checksum(std::span(frame).subspan(14, 20)));
  return frame;
}

TEST(ParseTcpFrame, FindsTheSegmentInAPlainFrame) {
  for (uint8_t verified :
       {kNoChecksumVerified, kIpChecksumVerified, kTcpChecksumVerified, kAllChecksumsVerified}) {
    SCOPED_TRACE(verified);
    TcpFrame tcp;
    ASSERT_EQ(Parse(kFrame, verified, &tcp), FrameVerdict::kTcp);
    EXPECT_EQ(tcp.flow, kFlow);
    EXPECT_EQ(tcp.segment, Expected());
    EXPECT_EQ(tcp.payload_offset, 54);
    EXPECT_EQ(tcp.ip_offset, 14);
    EXPECT_FALSE(tcp.tagged());
  }
}

TEST(ParseTcpFrame, ReadsTimestamps) {
  for (uint8_t verified : {kNoChecksumVerified, kAllChecksumsVerified}) {
    TcpFrame tcp;
    ASSERT_EQ(Parse(kTimestamped, verified, &tcp), FrameVerdict::kTcp);
    TcpSegment expected = Expected();
    expected.options.timestamps = TcpTimestamps{0x01020304, 0xA0B0C0D0};
    EXPECT_EQ(tcp.segment, expected);
    EXPECT_EQ(tcp.payload_offset, 66);
  }
}

TEST(ParseTcpFrame, ReadsOtherOptionsOfTheSameLength) {
  TcpFrame tcp;
  ASSERT_EQ(Parse(With(kTimestamped, 54, Hex("01 01 05 0a")), kAllChecksumsVerified, &tcp),
            FrameVerdict::kTcp);
  TcpSegment expected = Expected();
  expected.options.SetSack(std::array{SackBlock{0x01020304, 0xA0B0C0D0}});
  EXPECT_EQ(tcp.segment, expected);
}

TEST(ParseTcpFrame, ReadsSackBehindTimestamps) {
  TcpSegment expected = Expected();
  expected.payload_bytes = 0;
  expected.flags = kTcpAck;
  expected.options.timestamps = TcpTimestamps{0x01020304, 0xA0B0C0D0};
  expected.options.SetSack(std::array{SackBlock{1, 2}});
  const Bytes frame = kMacs + Hex("0800 45000040 00004000 4006 0000 c0000201 c0000202") +
                      Hex("1092 676d 01020304 0a0b0c0d b010 2000 0000 0000") +
                      Hex("0101080a 01020304 a0b0c0d0 0101050a 00000001 00000002");
  TcpFrame tcp;
  ASSERT_EQ(Parse(frame, kAllChecksumsVerified, &tcp), FrameVerdict::kTcp);
  EXPECT_EQ(tcp.segment, expected);
}

TEST(ParseTcpFrame, FindsTheSegmentBehindATagAndATagStrippedReadsTheSame) {
  TcpFrame in_frame, stripped;
  ASSERT_EQ(Parse(kTaggedFrame, kAllChecksumsVerified, &in_frame), FrameVerdict::kTcp);
  EXPECT_EQ(in_frame.flow.vlan_id, 100);
  EXPECT_EQ(in_frame.payload_offset, 58);
  EXPECT_EQ(in_frame.segment, Expected());
  ASSERT_EQ(Parse(kFrame, kAllChecksumsVerified, &stripped), FrameVerdict::kTcp);
  stripped.SetTag(0x6064);
  EXPECT_EQ(stripped.flow, in_frame.flow);
  EXPECT_EQ(stripped.vlan_tci, in_frame.vlan_tci);
}

TEST(ParseTcpFrame, FindsTheSegmentBehindIpOptions) {
  const Bytes options = kMacs + Hex("0800 4600002f 00004000 4006 0000 c0000201 c0000202 94040000");
  TcpFrame tcp;
  ASSERT_EQ(Parse(options + kTcp + kPayload, kIpChecksumVerified, &tcp), FrameVerdict::kTcp);
  EXPECT_EQ(tcp.payload_offset, 58);
  EXPECT_EQ(tcp.segment, Expected());
  // Where a plain frame has its data offset, it is as good as one.
  ASSERT_EQ(Parse(With(options + kTcp + kPayload, 46, Hex("50")), kAllChecksumsVerified, &tcp),
            FrameVerdict::kTcp);
  EXPECT_EQ(tcp.payload_offset, 58);
  EXPECT_EQ(tcp.segment.acknowledgement, 0x500B0C0Du);
}

TEST(ParseTcpFrame, PaddingIsNotPayload) {
  TcpFrame tcp;
  ASSERT_EQ(Parse(kFrame + Poisoned(3), kAllChecksumsVerified, &tcp), FrameVerdict::kTcp);
  EXPECT_EQ(tcp.segment.payload_bytes, 3);
}

TEST(ParseTcpFrame, MalformedOptionsAreNamedAndTheSegmentStands) {
  TcpFrame tcp;
  ASSERT_EQ(Parse(With(kTimestamped, 54, Hex("0209")), kAllChecksumsVerified, &tcp),
            FrameVerdict::kTcp);
  EXPECT_EQ(tcp.segment.options_error, TcpOptionsError::kMssLength);
  EXPECT_EQ(tcp.segment.options, TcpOptions());
}

// Those of timestamps, of which the header has a part.
TEST(ParseTcpFrame, OptionsThatEndTooSoonAreMalformed) {
  for (const uint8_t words : {6, 7}) {
    TcpFrame tcp;
    const Bytes frame = With(kTimestamped, 46, {static_cast<uint8_t>(words << 4)});
    ASSERT_EQ(Parse(frame, kAllChecksumsVerified, &tcp), FrameVerdict::kTcp);
    EXPECT_EQ(tcp.segment.options, TcpOptions());
    EXPECT_NE(tcp.segment.options_error, TcpOptionsError::kNone);
    EXPECT_EQ(tcp.segment.payload_bytes, 3 + 4 * (8 - words));
  }
}

TEST(ParseTcpFrame, EveryTruncationIsRefused) {
  for (uint8_t verified : {kNoChecksumVerified, kAllChecksumsVerified}) {
    for (size_t size = 0; size < kTimestamped.size(); ++size) {
      const Bytes cut(kTimestamped.begin(), kTimestamped.begin() + static_cast<ptrdiff_t>(size));
      EXPECT_EQ(VerdictOf(cut, verified),
                size < 34 ? FrameVerdict::kTruncated : FrameVerdict::kIpTotalLength)
          << size;
    }
  }
}

TEST(ParseTcpFrame, MalformedFramesAreRefusedForTheirReason) {
  struct Row {
    const char* name;
    Bytes frame;
    FrameVerdict verdict;
  };
  for (const Row& row : {
           Row{"no TCP header", Resummed(With(kFrame, 16, Hex("0027"))),
               FrameVerdict::kTcpTruncated},
           Row{"data offset 4", With(kFrame, 46, Hex("40")), FrameVerdict::kTcpDataOffset},
           Row{"data offset 0", With(kFrame, 46, Hex("00")), FrameVerdict::kTcpDataOffset},
           Row{"data offset 8 in 23 bytes", With(kFrame, 46, Hex("80")),
               FrameVerdict::kTcpDataOffset},
           Row{"TCP checksum", With(kFrame, 56, Hex("64")), FrameVerdict::kTcpChecksum},
           Row{"IP checksum", With(kFrame, 24, Hex("b6c8")), FrameVerdict::kIpChecksum},
           Row{"UDP", Resummed(With(kFrame, 23, Hex("11"))), FrameVerdict::kNotTcp},
           Row{"first fragment", Resummed(With(kFrame, 20, Hex("2000"))), FrameVerdict::kFragment},
           Row{"last fragment", Resummed(With(kFrame, 20, Hex("0001"))), FrameVerdict::kFragment},
           Row{"IPv6", With(kFrame, 12, Hex("86dd")), FrameVerdict::kNotIpv4},
       }) {
    EXPECT_EQ(VerdictOf(row.frame), row.verdict) << row.name;
    const bool only_a_checksum =
        row.verdict == FrameVerdict::kIpChecksum || row.verdict == FrameVerdict::kTcpChecksum;
    EXPECT_EQ(VerdictOf(row.frame, kAllChecksumsVerified),
              only_a_checksum ? FrameVerdict::kTcp : row.verdict)
        << row.name << ", verified";
  }
}

TEST(LooksLikeTcp, GuessesFromTypeAndProtocol) {
  EXPECT_TRUE(LooksLikeTcp(kFrame.data(), kFrame.size()));
  EXPECT_FALSE(LooksLikeTcp(With(kFrame, 23, {17}).data(), kFrame.size()));
  EXPECT_FALSE(LooksLikeTcp(With(kFrame, 12, Hex("86dd")).data(), kFrame.size()));
  EXPECT_FALSE(LooksLikeTcp(kTaggedFrame.data(), kTaggedFrame.size()));
  EXPECT_FALSE(LooksLikeTcp(kFrame.data(), 23));
}

TEST(TcpSegment, SynAndFinTakeASequenceNumberEach) {
  TcpSegment segment;
  segment.payload_bytes = 10;
  EXPECT_EQ(segment.SequenceLength(), 10u);
  segment.flags = kTcpSyn | kTcpFin | kTcpAck;
  EXPECT_EQ(segment.SequenceLength(), 12u);
}

}  // namespace
}  // namespace xtreme::wire
