// SPDX-License-Identifier: Apache-2.0
#include "stack/wire/ipv4.h"

#include <gtest/gtest.h>

#include "stack/wire/golden.h"

namespace xtreme::wire {
namespace {

const Ipv4Repr kRepr{.source = Ipv4Address(192, 168, 0, 1),
                     .destination = Ipv4Address(192, 168, 0, 199),
                     .protocol = kIpProtocolUdp,
                     .ttl = 64,
                     .dont_fragment = true,
                     .payload_bytes = 95};
const Bytes kHeader = Hex("45000073 00004000 4011b861 c0a80001 c0a800c7");

// kHeader with other bytes and a right checksum.
Bytes Altered(size_t offset, const Bytes& replacement, size_t header_bytes = 20) {
  Bytes header = With(With(kHeader + Bytes(95), offset, replacement), 10, {0, 0});
  base::StoreBe16(&header[10], Checksum(std::span(header).first(header_bytes)));
  return header;
}

Ipv4Error ErrorOf(const Bytes& packet, ChecksumCheck check = ChecksumCheck::kVerify) {
  return Ipv4View::Parse(Exact(packet).span(), check).error();
}

TEST(Ipv4, ReprWritesTheHeaderAndNothingElse) {
  Bytes packet = Poisoned(24);
  EXPECT_EQ(kRepr.Emit(packet), 20u);
  EXPECT_EQ(packet, kHeader + Poisoned(4));
}

TEST(Ipv4, ReprWritesNothingWhereThereIsNoRoom) {
  Bytes packet = Poisoned(19);
  EXPECT_EQ(kRepr.Emit(packet), 0u);
  EXPECT_EQ(packet, Poisoned(19));
}

TEST(Ipv4, ViewReadsEveryFieldAndCutsPadding) {
  const Bytes packet = kHeader + Bytes(95, 0x11) + Poisoned(7);
  const auto view = Ipv4View::Parse(packet, ChecksumCheck::kVerify);
  ASSERT_TRUE(view.ok());
  EXPECT_EQ(view->header_bytes(), 20u);
  EXPECT_EQ(view->tos(), 0);
  EXPECT_EQ(view->total_bytes(), 115);
  EXPECT_EQ(view->id(), 0);
  EXPECT_TRUE(view->dont_fragment());
  EXPECT_FALSE(view->more_fragments());
  EXPECT_FALSE(view->IsFragment());
  EXPECT_EQ(view->ttl(), 64);
  EXPECT_EQ(view->protocol(), kIpProtocolUdp);
  EXPECT_EQ(view->checksum(), 0xB861);
  EXPECT_EQ(view->source(), kRepr.source);
  EXPECT_EQ(view->destination(), kRepr.destination);
  EXPECT_TRUE(view->options().empty());
  EXPECT_EQ(Bytes(view->payload().begin(), view->payload().end()), Bytes(95, 0x11));
}

TEST(Ipv4, ThePayloadBeginsAfterTheOptions) {
  // Router alert (RFC 2113), then four bytes of payload.
  Bytes packet = Hex("4600001c 00000000 4011 0000 c0a80001 e0000001 94040000 01020304");
  base::StoreBe16(&packet[10], Checksum(std::span(packet).first(24)));
  const auto view = Ipv4View::Parse(packet, ChecksumCheck::kVerify);
  ASSERT_TRUE(view.ok());
  EXPECT_EQ(Bytes(view->options().begin(), view->options().end()), Hex("94040000"));
  EXPECT_EQ(Bytes(view->payload().begin(), view->payload().end()), Hex("01020304"));
}

TEST(Ipv4, FragmentsSayWhereTheyBelong) {
  Ipv4Repr repr = kRepr;
  repr.dont_fragment = false;
  repr.more_fragments = true;
  repr.fragment_offset_bytes = 1480;
  repr.id = 0xBEEF;
  Bytes packet(115);
  ASSERT_EQ(repr.Emit(packet), 20u);
  EXPECT_EQ(Bytes(packet.begin() + 4, packet.begin() + 8), Hex("beef 20b9"));
  const auto view = Ipv4View::Parse(packet, ChecksumCheck::kVerify);
  ASSERT_TRUE(view.ok());
  EXPECT_TRUE(view->IsFragment());
  EXPECT_TRUE(view->more_fragments());
  EXPECT_EQ(view->fragment_offset_bytes(), 1480u);
  EXPECT_EQ(view->id(), 0xBEEF);
}

TEST(Ipv4, EveryTruncationIsRefused) {
  const Bytes packet = kHeader + Bytes(95);
  for (size_t size = 0; size < 20; ++size) {
    EXPECT_EQ(Ipv4View::Parse(Exact(packet, size).span(), ChecksumCheck::kVerify).error(),
              Ipv4Error::kTruncated);
  }
  for (size_t size = 20; size < packet.size(); ++size) {
    EXPECT_EQ(Ipv4View::Parse(Exact(packet, size).span(), ChecksumCheck::kVerify).error(),
              Ipv4Error::kTotalLength);
  }
  EXPECT_EQ(ErrorOf(packet), Ipv4Error::kNone);
}

TEST(Ipv4, OptionsThatAreNotThereAreTruncated) {
  EXPECT_EQ(ErrorOf(With(kHeader, 0, Hex("4f"))), Ipv4Error::kTruncated);
}

TEST(Ipv4, MalformedHeadersAreRefusedForTheirReason) {
  EXPECT_EQ(ErrorOf(Altered(0, Hex("65"))), Ipv4Error::kVersion);
  EXPECT_EQ(ErrorOf(Altered(0, Hex("44"))), Ipv4Error::kHeaderLength);
  EXPECT_EQ(ErrorOf(Altered(0, Hex("40"))), Ipv4Error::kHeaderLength);
  EXPECT_EQ(ErrorOf(Altered(2, Hex("0013"))), Ipv4Error::kTotalLength);
  EXPECT_EQ(ErrorOf(Altered(2, Hex("0014"))), Ipv4Error::kNone);
  EXPECT_EQ(ErrorOf(Altered(2, Hex("0074"))), Ipv4Error::kTotalLength);
  EXPECT_EQ(ErrorOf(With(kHeader + Bytes(95), 8, Hex("3f"))), Ipv4Error::kChecksum);
  // The last unit of a datagram begins at 65,528: 87 bytes there would end at 65,635.
  EXPECT_EQ(ErrorOf(Altered(6, Hex("1fff"))), Ipv4Error::kFragmentEnd);
  // 65,535 - 20 - 95 is no multiple of 8: 65,416 is the last offset that fits, 65,424 does not.
  EXPECT_EQ(ErrorOf(Altered(6, Hex("1ff1"))), Ipv4Error::kNone);
  EXPECT_EQ(ErrorOf(Altered(6, Hex("1ff2"))), Ipv4Error::kFragmentEnd);
}

TEST(Ipv4, AChecksumThatTheNicVerifiedIsNotSummedAgain) {
  EXPECT_EQ(ErrorOf(With(kHeader + Bytes(95), 10, Hex("dead")), ChecksumCheck::kTrusted),
            Ipv4Error::kNone);
}

TEST(Ipv4, AQuotedHeaderMayLackItsPayload) {
  const auto quoted = Ipv4View::ParseQuoted(kHeader);
  ASSERT_TRUE(quoted.ok());
  EXPECT_EQ(quoted->total_bytes(), 115);
  EXPECT_TRUE(quoted->payload().empty());
  EXPECT_EQ(Ipv4View::ParseQuoted(std::span(kHeader).first(19)).error(), Ipv4Error::kTruncated);
  EXPECT_EQ(Ipv4View::ParseQuoted(With(kHeader, 0, Hex("46"))).error(), Ipv4Error::kTruncated);
  EXPECT_EQ(Ipv4View::ParseQuoted(With(kHeader, 0, Hex("60"))).error(), Ipv4Error::kVersion);
}

}  // namespace
}  // namespace xtreme::wire
