// SPDX-License-Identifier: Apache-2.0
#include "stack/wire/icmp.h"

#include <gtest/gtest.h>

#include "stack/wire/golden.h"

namespace xtreme::wire {
namespace {

// What we sent: UDP from 192.0.2.1:4242 to 198.51.100.7:26477.
const Bytes kOffending =
    Hex("45000020 12340000 4011 0000 c0000201 c6336407 1092676d 000c0000") + Hex("01020304");

// A message about `offending` with a right checksum.
Bytes Message(const Bytes& header, const Bytes& offending) {
  Bytes message = With(header, 2, {0, 0}) + offending;
  base::StoreBe16(&message[2], Checksum(message));
  return message;
}
const Bytes kPortUnreachable = Message(Hex("0303 0000 00000000"), kOffending);

IcmpError ErrorOf(const Bytes& message, ChecksumCheck check = ChecksumCheck::kVerify) {
  return IcmpErrorView::Parse(Exact(message).span(), check).error();
}

TEST(Icmp, ViewReadsTheErrorAndTheOffendingHeader) {
  const auto view = IcmpErrorView::Parse(kPortUnreachable, ChecksumCheck::kVerify);
  ASSERT_TRUE(view.ok());
  EXPECT_EQ(view->type(), IcmpType::kDestinationUnreachable);
  EXPECT_EQ(view->code(), kIcmpPortUnreachable);
  EXPECT_EQ(view->offending().source(), Ipv4Address(192, 0, 2, 1));
  EXPECT_EQ(view->offending().destination(), Ipv4Address(198, 51, 100, 7));
  EXPECT_EQ(view->offending().protocol(), kIpProtocolUdp);
  EXPECT_EQ(view->offending_source_port(), 4242);
  EXPECT_EQ(view->offending_destination_port(), 26477);
}

TEST(Icmp, FragmentationNeededTellsTheNextHopsMtu) {
  const Bytes message = Message(Hex("0304 0000 0000 05ac"), kOffending);
  const auto view = IcmpErrorView::Parse(message, ChecksumCheck::kVerify);
  ASSERT_TRUE(view.ok());
  EXPECT_EQ(view->code(), kIcmpFragmentationNeeded);
  EXPECT_EQ(view->next_hop_mtu(), 1452);
}

TEST(Icmp, PortsAreFoundBehindOptions) {
  const Bytes with_options =
      Hex("46000024 12340000 4011 0000 c0000201 c6336407 94040000 1092676d 000c0000");
  const Bytes message = Message(Hex("0b00 0000 00000000"), with_options);
  const auto view = IcmpErrorView::Parse(message, ChecksumCheck::kVerify);
  ASSERT_TRUE(view.ok());
  EXPECT_EQ(view->type(), IcmpType::kTimeExceeded);
  EXPECT_EQ(view->offending_source_port(), 4242);
}

TEST(Icmp, EveryTruncationIsRefused) {
  for (size_t size = 0; size < 8; ++size) {
    EXPECT_EQ(
        IcmpErrorView::Parse(Exact(kPortUnreachable, size).span(), ChecksumCheck::kTrusted).error(),
        IcmpError::kTruncated);
  }
  for (size_t size = 8; size < 8 + 20 + 8; ++size) {
    EXPECT_EQ(
        IcmpErrorView::Parse(Exact(kPortUnreachable, size).span(), ChecksumCheck::kTrusted).error(),
        IcmpError::kQuoteTruncated);
  }
  EXPECT_EQ(
      IcmpErrorView::Parse(Exact(kPortUnreachable, 36).span(), ChecksumCheck::kTrusted).error(),
      IcmpError::kNone);
}

TEST(Icmp, MalformedMessagesAreRefusedForTheirReason) {
  EXPECT_EQ(ErrorOf(With(kPortUnreachable, 30, {0xFF})), IcmpError::kChecksum);
  EXPECT_EQ(ErrorOf(With(kPortUnreachable, 30, {0xFF}), ChecksumCheck::kTrusted), IcmpError::kNone);
  for (const char* type : {"00", "04", "05", "08", "0a", "0d", "ff"}) {
    EXPECT_EQ(ErrorOf(Message(Hex(type) + Hex("00 0000 00000000"), kOffending)),
              IcmpError::kNotAnError)
        << type;
  }
  const Bytes header = Hex("0303 0000 00000000");
  EXPECT_EQ(ErrorOf(Message(header, With(kOffending, 0, Hex("65")))), IcmpError::kQuoteMalformed);
  EXPECT_EQ(ErrorOf(Message(header, With(kOffending, 0, Hex("44")))), IcmpError::kQuoteMalformed);
  EXPECT_EQ(ErrorOf(Message(header, With(kOffending, 2, Hex("0010")))), IcmpError::kQuoteMalformed);
  EXPECT_EQ(ErrorOf(Message(header, With(kOffending, 6, Hex("0001")))), IcmpError::kQuoteFragment);
  EXPECT_EQ(ErrorOf(Message(header, With(kOffending, 6, Hex("2000")))), IcmpError::kNone)
      << "the first fragment has the ports";
}

TEST(Icmp, ReprWritesTheMessageAndNothingElse) {
  const IcmpErrorRepr repr{.type = IcmpType::kDestinationUnreachable, .code = kIcmpPortUnreachable};
  Bytes message = Poisoned(600);
  const size_t size = repr.Emit(message, kOffending);
  EXPECT_EQ(size, kPortUnreachable.size());
  EXPECT_EQ(message, kPortUnreachable + Poisoned(600 - size));
}

TEST(Icmp, ReprQuotesNoMoreThanFitsADatagramOf576Bytes) {
  Bytes offending = With(kOffending, 2, Hex("05dc"));
  offending.resize(1500, 0x77);
  Bytes message = Poisoned(1500);
  const IcmpErrorRepr repr{.code = kIcmpFragmentationNeeded, .next_hop_mtu = 1400};
  EXPECT_EQ(repr.Emit(message, offending), 556u);
  EXPECT_EQ(message[556], kPoison);
  message.resize(556);
  const auto view = IcmpErrorView::Parse(message, ChecksumCheck::kVerify);
  ASSERT_TRUE(view.ok());
  EXPECT_EQ(view->next_hop_mtu(), 1400);
}

TEST(Icmp, ReprWritesNothingWhereThereIsNoRoomOrNothingToQuote) {
  const IcmpErrorRepr repr;
  Bytes message = Poisoned(35);
  EXPECT_EQ(repr.Emit(message, kOffending), 0u);
  EXPECT_EQ(message, Poisoned(35));
  message = Poisoned(100);
  EXPECT_EQ(repr.Emit(message, std::span(kOffending).first(27)), 0u);
  EXPECT_EQ(repr.Emit(message, With(kOffending, 0, Hex("60"))), 0u);
  EXPECT_EQ(message, Poisoned(100));
}

}  // namespace
}  // namespace xtreme::wire
