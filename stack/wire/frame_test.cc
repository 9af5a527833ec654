// SPDX-License-Identifier: Apache-2.0
#include "stack/wire/frame.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "stack/wire/checksum.h"
#include "stack/wire/golden.h"

namespace xtreme::wire {
namespace {

const Bytes kMacs = Hex("01005e360c6f 02000000000e");
const Bytes kIp = Hex("4500001f 00004000 1011 b327 c0000201 e9360c6f");
const Bytes kUdp = Hex("1092 676d 000b 0bcf 616263");
const Bytes kFrame = kMacs + Hex("0800") + kIp + kUdp;
const Bytes kTaggedFrame = kMacs + Hex("8100 6064 0800") + kIp + kUdp;
constexpr UdpFlow kFlow{.destination = Ipv4Address(233, 54, 12, 111),
                        .source = Ipv4Address(192, 0, 2, 1),
                        .destination_port = 26477,
                        .source_port = 4242};

// Parses by both ways, which must agree.
FrameVerdict Parse(const Bytes& bytes, uint8_t verified, UdpFrame* udp) {
  const Exact exact(bytes);
  const auto frame = exact.span();
  UdpFrame in_full;
  const FrameVerdict verdict = ParseUdpFrame(frame.data(), frame.size(), verified, udp);
  EXPECT_EQ(ParseUdpFrameInFull(frame.data(), frame.size(), verified, &in_full), verdict);
  EXPECT_EQ(in_full, *udp);
  return verdict;
}

FrameVerdict VerdictOf(const Bytes& bytes, uint8_t verified = kNoChecksumVerified) {
  UdpFrame udp;
  return Parse(bytes, verified, &udp);
}

// `frame`, untagged, with a right IPv4 header checksum again.
Bytes Resummed(Bytes frame) {
  base::StoreBe16(&frame[24], 0);
  base::StoreBe16(&frame[24], Checksum(std::span(frame).subspan(14, 20)));
  return frame;
}

TEST(ParseUdpFrame, FindsTheDatagramInAPlainFrame) {
  for (uint8_t verified :
       {kNoChecksumVerified, kIpChecksumVerified, kUdpChecksumVerified, kAllChecksumsVerified}) {
    SCOPED_TRACE(verified);
    UdpFrame udp;
    ASSERT_EQ(Parse(kFrame, verified, &udp), FrameVerdict::kUdp);
    EXPECT_EQ(udp, (UdpFrame{.flow = kFlow,
                             .payload_bytes = 3,
                             .payload_offset = 42,
                             .ip_offset = 14,
                             .vlan_tci = UdpFrame::kNoVlan}));
  }
}

TEST(ParseUdpFrame, FindsTheDatagramBehindATag) {
  UdpFrame udp;
  ASSERT_EQ(Parse(kTaggedFrame, kAllChecksumsVerified, &udp), FrameVerdict::kUdp);
  UdpFlow flow = kFlow;
  flow.vlan_id = 100;
  EXPECT_EQ(udp, (UdpFrame{.flow = flow,
                           .payload_bytes = 3,
                           .payload_offset = 46,
                           .ip_offset = 18,
                           .vlan_tci = 0x6064}));
  EXPECT_TRUE(udp.tagged());
  EXPECT_EQ(udp.vlan(), (VlanTag{.id = 100, .priority = 3}));
}

TEST(ParseUdpFrame, APriorityAloneIsNoVlan) {
  UdpFrame udp;
  ASSERT_EQ(Parse(With(kTaggedFrame, 14, Hex("a000")), kAllChecksumsVerified, &udp),
            FrameVerdict::kUdp);
  EXPECT_TRUE(udp.tagged());
  EXPECT_EQ(udp.flow, kFlow);
}

TEST(ParseUdpFrame, ATagTheNicStrippedReadsAsOneInTheFrame) {
  UdpFrame in_frame, stripped;
  ASSERT_EQ(Parse(kTaggedFrame, kAllChecksumsVerified, &in_frame), FrameVerdict::kUdp);
  ASSERT_EQ(Parse(kFrame, kAllChecksumsVerified, &stripped), FrameVerdict::kUdp);
  stripped.SetTag(0x6064);
  EXPECT_EQ(stripped.flow, in_frame.flow);
  EXPECT_EQ(stripped.vlan_tci, in_frame.vlan_tci);
}

TEST(ParseUdpFrame, FindsTheDatagramBehindOptions) {
  const Bytes options = kMacs + Hex("0800 46000023 00004000 1011 0000 c0000201 e9360c6f 94040000");
  UdpFrame udp;
  ASSERT_EQ(Parse(options + kUdp, kIpChecksumVerified, &udp), FrameVerdict::kUdp);
  EXPECT_EQ(udp.payload_offset, 46);
  EXPECT_EQ(udp.payload_bytes, 3);
  EXPECT_EQ(udp.flow, kFlow);
}

TEST(ParseUdpFrame, PaddingIsNotPayload) {
  UdpFrame udp;
  ASSERT_EQ(Parse(kFrame + Poisoned(15), kNoChecksumVerified, &udp), FrameVerdict::kUdp);
  EXPECT_EQ(udp.payload_bytes, 3);
  // Inside the packet and past the UDP length.
  const Bytes slack = Resummed(With(kFrame + Poisoned(2), 16, Hex("0021")));
  ASSERT_EQ(Parse(slack, kNoChecksumVerified, &udp), FrameVerdict::kUdp);
  EXPECT_EQ(udp.payload_bytes, 3);
}

TEST(ParseUdpFrame, AnEmptyDatagramIsOne) {
  Bytes empty = With(With(kFrame, 16, Hex("001c")), 38, Hex("0008 0000"));
  empty.resize(42);
  UdpFrame udp;
  ASSERT_EQ(Parse(Resummed(empty), kNoChecksumVerified, &udp), FrameVerdict::kUdp);
  EXPECT_EQ(udp.payload_bytes, 0);
  EXPECT_EQ(Parse(empty, kAllChecksumsVerified, &udp), FrameVerdict::kUdp);
}

TEST(ParseUdpFrame, EveryTruncationIsRefused) {
  for (const Bytes& whole : {kFrame, kTaggedFrame}) {
    const size_t ip_end = whole.size() - kUdp.size();
    for (uint8_t verified : {kNoChecksumVerified, kAllChecksumsVerified}) {
      for (size_t size = 0; size < whole.size(); ++size) {
        SCOPED_TRACE(size);
        const Bytes cut(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(size));
        EXPECT_EQ(VerdictOf(cut, verified),
                  size < ip_end ? FrameVerdict::kTruncated : FrameVerdict::kIpTotalLength);
      }
    }
  }
}

TEST(ParseUdpFrame, MalformedFramesAreRefusedForTheirReason) {
  struct Row {
    const char* name;
    Bytes frame;
    FrameVerdict verdict;
  };
  for (const Row& row : {
           Row{"IPv6", With(kFrame, 12, Hex("86dd")), FrameVerdict::kNotIpv4},
           Row{"ARP", With(kFrame, 12, Hex("0806")), FrameVerdict::kNotIpv4},
           Row{"LLC", With(kFrame, 12, Hex("0026")), FrameVerdict::kNoEtherType},
           Row{"QinQ", With(kFrame, 12, Hex("88a8")), FrameVerdict::kStackedVlan},
           Row{"two tags", With(kTaggedFrame, 16, Hex("8100")), FrameVerdict::kStackedVlan},
           Row{"version 6", With(kFrame, 14, Hex("65")), FrameVerdict::kIpVersion},
           Row{"IHL 4", With(kFrame, 14, Hex("44")), FrameVerdict::kIpHeaderLength},
           Row{"total 19", With(kFrame, 16, Hex("0013")), FrameVerdict::kIpTotalLength},
           Row{"total 32", With(kFrame, 16, Hex("0020")), FrameVerdict::kIpTotalLength},
           Row{"total 27", Resummed(With(kFrame, 16, Hex("001b"))), FrameVerdict::kUdpLength},
           Row{"IP checksum", With(kFrame, 24, Hex("b328")), FrameVerdict::kIpChecksum},
           Row{"beyond 64 KiB", Resummed(With(kFrame, 20, Hex("1fff"))),
               FrameVerdict::kFragmentEnd},
           Row{"first fragment", Resummed(With(kFrame, 20, Hex("2000"))), FrameVerdict::kFragment},
           Row{"last fragment", Resummed(With(kFrame, 20, Hex("0001"))), FrameVerdict::kFragment},
           Row{"TCP", Resummed(With(kFrame, 23, Hex("06"))), FrameVerdict::kNotUdp},
           Row{"UDP length 7", With(kFrame, 38, Hex("0007")), FrameVerdict::kUdpLength},
           Row{"UDP length 0", With(kFrame, 38, Hex("0000")), FrameVerdict::kUdpLength},
           Row{"UDP length 12", With(kFrame, 38, Hex("000c")), FrameVerdict::kUdpLength},
           Row{"UDP checksum", With(kFrame, 44, Hex("64")), FrameVerdict::kUdpChecksum},
       }) {
    EXPECT_EQ(VerdictOf(row.frame), row.verdict) << row.name;
    const bool only_a_checksum =
        row.verdict == FrameVerdict::kIpChecksum || row.verdict == FrameVerdict::kUdpChecksum;
    EXPECT_EQ(VerdictOf(row.frame, kAllChecksumsVerified),
              only_a_checksum ? FrameVerdict::kUdp : row.verdict)
        << row.name << ", verified";
  }
}

TEST(ParseUdpFrame, TheReservedFragmentBitDoesNotMatter) {
  EXPECT_EQ(VerdictOf(Resummed(With(kFrame, 20, Hex("8000")))), FrameVerdict::kUdp);
}

TEST(ParseUdpFrame, FragmentsAndOtherProtocolsSayWhereTheirHeaderIs) {
  UdpFrame udp;
  EXPECT_EQ(Parse(With(kTaggedFrame, 24, Hex("2000")), kAllChecksumsVerified, &udp),
            FrameVerdict::kFragment);
  EXPECT_EQ(udp.ip_offset, 18);
  EXPECT_EQ(udp.vlan_tci, 0x6064);
  EXPECT_EQ(Parse(With(kFrame, 23, Hex("01")), kAllChecksumsVerified, &udp), FrameVerdict::kNotUdp);
  EXPECT_EQ(udp.ip_offset, 14);
}

TEST(FrameVerdict, EachHasANameOfItsOwn) {
  std::set<std::string> names;
  base::VisitCounters(FrameCounters(),
                      [&](std::string_view name, std::string_view meaning, const uint64_t&) {
                        EXPECT_FALSE(meaning.empty());
                        names.emplace(name);
                      });
  EXPECT_EQ(names.size(), static_cast<size_t>(FrameVerdict::kCount));
  EXPECT_EQ(DescribeReason(FrameVerdict::kFragment).name, "fragment");
}

}  // namespace
}  // namespace xtreme::wire
