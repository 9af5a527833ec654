// SPDX-License-Identifier: Apache-2.0
#include "stack/wire/ethernet.h"

#include <gtest/gtest.h>

#include "stack/wire/golden.h"

namespace xtreme::wire {
namespace {

constexpr MacAddress kDestination({0x02, 0, 0, 0, 0, 0x0D});
constexpr MacAddress kSource({0x02, 0, 0, 0, 0, 0x0E});
const Bytes kPlain = Hex("02000000000d 02000000000e 0800");
const Bytes kTagged = Hex("02000000000d 02000000000e 8100 b064 0800");

EthernetError ErrorOf(const Bytes& bytes) {
  return EthernetView::Parse(Exact(bytes).span()).error();
}

TEST(Ethernet, ViewReadsThePlainHeader) {
  const Bytes frame = kPlain + Hex("4500");
  const auto view = EthernetView::Parse(frame);
  ASSERT_TRUE(view.ok());
  EXPECT_EQ(view->destination(), kDestination);
  EXPECT_EQ(view->source(), kSource);
  EXPECT_EQ(view->ether_type(), kEtherTypeIpv4);
  EXPECT_EQ(view->vlan(), std::nullopt);
  EXPECT_EQ(view->header_bytes(), 14u);
  EXPECT_EQ(Bytes(view->payload().begin(), view->payload().end()), Hex("4500"));
}

TEST(Ethernet, ViewReadsTheTag) {
  const Bytes frame = kTagged + Hex("4500");
  const auto view = EthernetView::Parse(frame);
  ASSERT_TRUE(view.ok());
  EXPECT_EQ(view->ether_type(), kEtherTypeIpv4);
  EXPECT_EQ(view->vlan(), (VlanTag{.id = 100, .priority = 5, .drop_eligible = true}));
  EXPECT_EQ(view->header_bytes(), 18u);
  EXPECT_EQ(view->payload().size(), 2u);
}

TEST(Ethernet, ReprWritesTheHeaderAndNothingElse) {
  EthernetRepr repr{.destination = kDestination, .source = kSource};
  Bytes frame = Poisoned(20);
  EXPECT_EQ(repr.Emit(frame), 14u);
  EXPECT_EQ(frame, kPlain + Poisoned(6));
  repr.vlan = VlanTag{.id = 100, .priority = 5, .drop_eligible = true};
  frame = Poisoned(20);
  EXPECT_EQ(repr.Emit(frame), 18u);
  EXPECT_EQ(frame, kTagged + Poisoned(2));
}

TEST(Ethernet, ReprWritesNothingWhereThereIsNoRoom) {
  const EthernetRepr repr{.vlan = VlanTag{.id = 1}};
  Bytes frame = Poisoned(17);
  EXPECT_EQ(repr.Emit(frame), 0u);
  EXPECT_EQ(frame, Poisoned(17));
}

TEST(Ethernet, EveryTruncationIsRefused) {
  for (size_t size = 0; size < kPlain.size(); ++size) {
    EXPECT_EQ(EthernetView::Parse(Exact(kPlain, size).span()).error(), EthernetError::kTruncated);
  }
  for (size_t size = 0; size < kTagged.size(); ++size) {
    EXPECT_EQ(EthernetView::Parse(Exact(kTagged, size).span()).error(), EthernetError::kTruncated);
  }
}

TEST(Ethernet, MalformedHeadersAreRefusedForTheirReason) {
  EXPECT_EQ(ErrorOf(With(kPlain, 12, Hex("05ff"))), EthernetError::kNoEtherType);
  EXPECT_EQ(ErrorOf(With(kPlain, 12, Hex("0600"))), EthernetError::kNone);
  EXPECT_EQ(ErrorOf(With(kPlain, 12, Hex("88a8"))), EthernetError::kStackedVlan);
  EXPECT_EQ(ErrorOf(With(kTagged, 16, Hex("8100"))), EthernetError::kStackedVlan);
  EXPECT_EQ(ErrorOf(With(kTagged, 16, Hex("88a8"))), EthernetError::kStackedVlan);
  EXPECT_EQ(ErrorOf(With(kTagged, 16, Hex("0026"))), EthernetError::kNoEtherType);
}

TEST(VlanTag, EveryControlWordSurvivesARoundTrip) {
  for (uint32_t tci = 0; tci <= 0xFFFF; ++tci) {
    ASSERT_EQ(VlanTag::FromTci(static_cast<uint16_t>(tci)).tci(), tci);
  }
}

}  // namespace
}  // namespace xtreme::wire
