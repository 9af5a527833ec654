// SPDX-License-Identifier: Apache-2.0
#include "stack/wire/tcp.h"

#include <gtest/gtest.h>

#include "stack/wire/golden.h"

namespace xtreme::wire {
namespace {

constexpr Ipv4Address kSource(192, 0, 2, 1);
constexpr Ipv4Address kDestination(192, 0, 2, 2);
const Bytes kPayload = Hex("616263");
const Bytes kPlain = Hex("1092 676d 01020304 0a0b0c0d 5018 2000 b545 0000");
const Bytes kTimestamped =
    Hex("1092 676d 01020304 0a0b0c0d 8018 2000 16a7 0000 0101080a 01020304 a0b0c0d0");

TcpRepr Repr() {
  return {.source_port = 4242,
          .destination_port = 26477,
          .sequence = 0x01020304,
          .acknowledgement = 0x0A0B0C0D,
          .flags = kTcpPsh | kTcpAck,
          .window = 0x2000};
}

TcpRepr ReprWithTimestamps() {
  TcpRepr repr = Repr();
  repr.options.timestamps = TcpTimestamps{0x01020304, 0xA0B0C0D0};
  return repr;
}

TcpError ErrorOf(const Bytes& segment) { return TcpView::Parse(Exact(segment).span()).error(); }

TEST(Tcp, ReprWritesTheHeaderAndNothingElse) {
  Bytes header = Poisoned(22);
  EXPECT_EQ(Repr().Emit(header, kSource, kDestination, kPayload), 20u);
  EXPECT_EQ(header, kPlain + Poisoned(2));
  header = Poisoned(34);
  EXPECT_EQ(ReprWithTimestamps().Emit(header, kSource, kDestination, kPayload), 32u);
  EXPECT_EQ(header, kTimestamped + Poisoned(2));
}

TEST(Tcp, ReprWritesNothingWhereThereIsNoRoom) {
  Bytes header = Poisoned(31);
  EXPECT_EQ(ReprWithTimestamps().Emit(header, kSource, kDestination, kPayload), 0u);
  EXPECT_EQ(Repr().Emit(header, kSource, kDestination, Bytes(65535 - 20 - 19)), 0u);
  EXPECT_EQ(header, Poisoned(31));
  EXPECT_EQ(Repr().Emit(header, kSource, kDestination, Bytes(65535 - 20 - 20)), 20u);
}

TEST(Tcp, ViewReadsEveryField) {
  const Bytes segment = With(kTimestamped, 18, Hex("0102")) + kPayload;
  const auto view = TcpView::Parse(segment);
  ASSERT_TRUE(view.ok());
  EXPECT_EQ(view->source_port(), 4242);
  EXPECT_EQ(view->destination_port(), 26477);
  EXPECT_EQ(view->sequence(), 0x01020304u);
  EXPECT_EQ(view->acknowledgement(), 0x0A0B0C0Du);
  EXPECT_EQ(view->header_bytes(), 32u);
  EXPECT_EQ(view->flags(), kTcpPsh | kTcpAck);
  EXPECT_EQ(view->window(), 0x2000);
  EXPECT_EQ(view->checksum(), 0x16A7);
  EXPECT_EQ(view->urgent_pointer(), 0x0102);
  EXPECT_EQ(Bytes(view->options().begin(), view->options().end()),
            Hex("0101080a 01020304 a0b0c0d0"));
  EXPECT_EQ(Bytes(view->payload().begin(), view->payload().end()), kPayload);
}

TEST(Tcp, TheFlagsAreTheBitsOfTheRfc) {
  EXPECT_EQ(kTcpCwr | kTcpEce | kTcpUrg | kTcpAck | kTcpPsh | kTcpRst | kTcpSyn | kTcpFin, 0xFF);
  EXPECT_EQ(TcpView::Parse(With(kPlain, 13, {0x12}))->flags(), kTcpSyn | kTcpAck);
}

TEST(Tcp, TheChecksumCoversEveryByteAndThePseudoHeader) {
  const Bytes segment = kTimestamped + kPayload;
  EXPECT_TRUE(TcpView::Parse(segment)->HasValidChecksum(kSource, kDestination));
  EXPECT_FALSE(TcpView::Parse(segment)->HasValidChecksum(kSource, kSource));
  for (size_t i = 0; i < segment.size(); ++i) {
    const Bytes flipped = With(segment, i, {static_cast<uint8_t>(segment[i] ^ 0x01)});
    EXPECT_FALSE(TcpView::Parse(flipped)->HasValidChecksum(kSource, kDestination)) << i;
  }
}

TEST(Tcp, EveryTruncationIsRefused) {
  for (size_t size = 0; size < 20; ++size) {
    EXPECT_EQ(TcpView::Parse(Exact(kTimestamped, size).span()).error(), TcpError::kTruncated);
  }
  for (size_t size = 20; size < 32; ++size) {
    EXPECT_EQ(TcpView::Parse(Exact(kTimestamped, size).span()).error(), TcpError::kDataOffset);
  }
}

TEST(Tcp, DataOffsetsOutsideTheSegmentAreRefused) {
  for (const uint8_t offset : {0, 1, 4, 6, 15}) {
    EXPECT_EQ(ErrorOf(With(kPlain, 12, {static_cast<uint8_t>(offset << 4)})), TcpError::kDataOffset)
        << int{offset};
  }
  EXPECT_EQ(ErrorOf(kPlain), TcpError::kNone);
}

TEST(Tcp, TheLongestHeaderIsRead) {
  TcpRepr repr = ReprWithTimestamps();
  repr.options.SetSack(std::array{SackBlock{1, 2}, SackBlock{3, 4}, SackBlock{5, 6}});
  Bytes header(60);
  ASSERT_EQ(repr.Emit(header, kSource, kDestination, {}), 60u);
  const auto view = TcpView::Parse(header);
  ASSERT_TRUE(view.ok());
  TcpOptions options;
  EXPECT_EQ(options.Parse(view->options()), TcpOptionsError::kNone);
  EXPECT_EQ(options, repr.options);
}

}  // namespace
}  // namespace xtreme::wire
