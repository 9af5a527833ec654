// SPDX-License-Identifier: Apache-2.0
#include "stack/wire/arp.h"

#include <gtest/gtest.h>

#include "stack/wire/golden.h"

namespace xtreme::wire {
namespace {

const ArpRepr kReply{.operation = ArpOperation::kReply,
                     .sender_mac = MacAddress({0x02, 0, 0, 0, 0, 0x0A}),
                     .sender = Ipv4Address(192, 0, 2, 1),
                     .target_mac = MacAddress({0x02, 0, 0, 0, 0, 0x0B}),
                     .target = Ipv4Address(192, 0, 2, 2)};
const Bytes kReplyBytes = Hex("0001 0800 06 04 0002 02000000000a c0000201 02000000000b c0000202");

ArpError ErrorOf(const Bytes& bytes) { return ArpView::Parse(Exact(bytes).span()).error(); }

TEST(Arp, ReprWritesThePacketAndNothingElse) {
  Bytes packet = Poisoned(30);
  EXPECT_EQ(kReply.Emit(packet), 28u);
  EXPECT_EQ(packet, kReplyBytes + Poisoned(2));
}

TEST(Arp, ReprWritesNothingWhereThereIsNoRoom) {
  Bytes packet = Poisoned(27);
  EXPECT_EQ(kReply.Emit(packet), 0u);
  EXPECT_EQ(packet, Poisoned(27));
}

TEST(Arp, ViewReadsEveryFieldAndIgnoresPadding) {
  const Bytes padded = kReplyBytes + Poisoned(18);
  const auto view = ArpView::Parse(padded);
  ASSERT_TRUE(view.ok());
  EXPECT_EQ((ArpRepr{view->operation(), view->sender_mac(), view->sender(), view->target_mac(),
                     view->target()}),
            kReply);
}

TEST(Arp, EveryTruncationIsRefused) {
  for (size_t size = 0; size < kReplyBytes.size(); ++size) {
    EXPECT_EQ(ArpView::Parse(Exact(kReplyBytes, size).span()).error(), ArpError::kTruncated);
  }
}

TEST(Arp, MalformedPacketsAreRefusedForTheirReason) {
  EXPECT_EQ(ErrorOf(With(kReplyBytes, 0, Hex("0006"))), ArpError::kHardwareType);
  EXPECT_EQ(ErrorOf(With(kReplyBytes, 2, Hex("86dd"))), ArpError::kProtocolType);
  EXPECT_EQ(ErrorOf(With(kReplyBytes, 4, Hex("08"))), ArpError::kAddressLength);
  EXPECT_EQ(ErrorOf(With(kReplyBytes, 5, Hex("10"))), ArpError::kAddressLength);
  EXPECT_EQ(ErrorOf(With(kReplyBytes, 6, Hex("0000"))), ArpError::kOperation);
  EXPECT_EQ(ErrorOf(With(kReplyBytes, 6, Hex("0003"))), ArpError::kOperation);
  EXPECT_EQ(ErrorOf(With(kReplyBytes, 6, Hex("0001"))), ArpError::kNone);
}

}  // namespace
}  // namespace xtreme::wire
