// SPDX-License-Identifier: Apache-2.0
#include "stack/wire/udp.h"

#include <gtest/gtest.h>

#include "stack/wire/golden.h"

namespace xtreme::wire {
namespace {

constexpr Ipv4Address kSource(192, 0, 2, 1);
constexpr Ipv4Address kDestination(192, 0, 2, 2);
constexpr UdpRepr kRepr{.source_port = 4242, .destination_port = 26477};
const Bytes kPayload = Hex("616263");
// c000 + 0201 + c000 + 0202 + 0011 + 000b + 1092 + 676d + 000b + 6162 + 6300 = 0x2c08b,
// folded to 0xc08d and complemented.
const Bytes kDatagram = Hex("1092 676d 000b 3f72 616263");

UdpError ErrorOf(const Bytes& datagram) { return UdpView::Parse(Exact(datagram).span()).error(); }

TEST(Udp, ReprWritesTheHeaderAndNothingElse) {
  Bytes header = Poisoned(10);
  EXPECT_EQ(kRepr.Emit(header, kSource, kDestination, kPayload), 8u);
  EXPECT_EQ(header, Bytes(kDatagram.begin(), kDatagram.begin() + 8) + Poisoned(2));
}

TEST(Udp, ReprWritesNothingWhereThereIsNoRoom) {
  Bytes header = Poisoned(7);
  EXPECT_EQ(kRepr.Emit(header, kSource, kDestination, kPayload), 0u);
  EXPECT_EQ(header, Poisoned(7));
  header = Poisoned(8);
  EXPECT_EQ(kRepr.Emit(header, kSource, kDestination, Bytes(kUdpMaxPayloadBytes + 1)), 0u);
  EXPECT_EQ(header, Poisoned(8));
}

TEST(Udp, ViewReadsEveryFieldAndCutsWhatIsPastTheLength) {
  const Bytes datagram = kDatagram + Poisoned(5);
  const auto view = UdpView::Parse(datagram);
  ASSERT_TRUE(view.ok());
  EXPECT_EQ(view->source_port(), 4242);
  EXPECT_EQ(view->destination_port(), 26477);
  EXPECT_EQ(view->length_bytes(), 11);
  EXPECT_EQ(view->checksum(), 0x3F72);
  EXPECT_EQ(Bytes(view->payload().begin(), view->payload().end()), kPayload);
}

TEST(Udp, TheChecksumCoversEveryByteAndThePseudoHeader) {
  EXPECT_TRUE(UdpView::Parse(kDatagram)->HasValidChecksum(kSource, kDestination));
  EXPECT_FALSE(UdpView::Parse(kDatagram)->HasValidChecksum(kSource, kSource));
  for (size_t i = 0; i < kDatagram.size(); ++i) {
    if (i == 4 || i == 5) continue;  // the length decides what is summed
    const Bytes flipped = With(kDatagram, i, {static_cast<uint8_t>(kDatagram[i] ^ 0x10)});
    EXPECT_FALSE(UdpView::Parse(flipped)->HasValidChecksum(kSource, kDestination)) << i;
  }
}

TEST(Udp, AnAbsentChecksumIsValid) {
  EXPECT_TRUE(UdpView::Parse(With(kDatagram, 6, {0, 0}))->HasValidChecksum(kSource, kDestination));
}

TEST(Udp, AComputedZeroGoesOutAsAllOnes) {
  // The two payload bytes are chosen so that the sum is all ones.
  Bytes payload = {0, 0};
  Bytes header(8);
  ASSERT_EQ(kRepr.Emit(header, kSource, kDestination, payload), 8u);
  base::StoreBe16(payload.data(), base::LoadBe16(&header[6]));
  ASSERT_EQ(kRepr.Emit(header, kSource, kDestination, payload), 8u);
  EXPECT_EQ(base::LoadBe16(&header[6]), 0xFFFF);
  const Bytes datagram = header + payload;
  EXPECT_TRUE(UdpView::Parse(datagram)->HasValidChecksum(kSource, kDestination));
}

TEST(Udp, EveryTruncationIsRefused) {
  for (size_t size = 0; size < 8; ++size) {
    EXPECT_EQ(UdpView::Parse(Exact(kDatagram, size).span()).error(), UdpError::kTruncated);
  }
  for (size_t size = 8; size < kDatagram.size(); ++size) {
    EXPECT_EQ(UdpView::Parse(Exact(kDatagram, size).span()).error(), UdpError::kLength);
  }
}

TEST(Udp, MalformedLengthsAreRefusedForTheirReason) {
  EXPECT_EQ(ErrorOf(With(kDatagram, 4, Hex("0007"))), UdpError::kLength);
  EXPECT_EQ(ErrorOf(With(kDatagram, 4, Hex("0000"))), UdpError::kLength);
  EXPECT_EQ(ErrorOf(With(kDatagram, 4, Hex("000c"))), UdpError::kLength);
  EXPECT_EQ(ErrorOf(With(kDatagram, 4, Hex("0008"))), UdpError::kNone);
}

}  // namespace
}  // namespace xtreme::wire
