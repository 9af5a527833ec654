// SPDX-License-Identifier: Apache-2.0
#include "stack/wire/address.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>

#include "stack/wire/golden.h"

namespace xtreme::wire {
namespace {

TEST(Ipv4Address, IsANumberInHostOrderAndBytesInNetworkOrder) {
  constexpr Ipv4Address kAddress(192, 0, 2, 1);
  EXPECT_EQ(kAddress.value(), 0xC0000201u);
  Bytes bytes = Poisoned(6);
  kAddress.Store(&bytes[1]);
  EXPECT_EQ(bytes, Hex("a5 c0000201 a5"));
  EXPECT_EQ(Ipv4Address::Load(&bytes[1]), kAddress);
}

TEST(Ipv4Address, KindsHaveExactEdges) {
  struct Row {
    Ipv4Address address;
    bool multicast, loopback, unicast_host;
  };
  for (const Row& row : {
           Row{Ipv4Address(0, 0, 0, 0), false, false, false},
           Row{Ipv4Address(126, 255, 255, 255), false, false, true},
           Row{Ipv4Address(127, 0, 0, 0), false, true, false},
           Row{Ipv4Address(127, 255, 255, 255), false, true, false},
           Row{Ipv4Address(128, 0, 0, 0), false, false, true},
           Row{Ipv4Address(223, 255, 255, 255), false, false, true},
           Row{Ipv4Address(224, 0, 0, 0), true, false, false},
           Row{Ipv4Address(239, 255, 255, 255), true, false, false},
           Row{Ipv4Address(240, 0, 0, 0), false, false, false},
           Row{Ipv4Address(255, 255, 255, 255), false, false, false},
       }) {
    SCOPED_TRACE(row.address.value());
    EXPECT_EQ(row.address.IsMulticast(), row.multicast);
    EXPECT_EQ(row.address.IsLoopback(), row.loopback);
    EXPECT_EQ(row.address.IsUnicastHost(), row.unicast_host);
  }
}

TEST(Ipv4Prefix, ContainsItsNetworkAndNothingElse) {
  const Ipv4Prefix prefix{Ipv4Address(10, 1, 0, 9), 23};
  EXPECT_TRUE(prefix.Contains(Ipv4Address(10, 1, 0, 0)));
  EXPECT_TRUE(prefix.Contains(Ipv4Address(10, 1, 1, 255)));
  EXPECT_FALSE(prefix.Contains(Ipv4Address(10, 1, 2, 0)));
  EXPECT_FALSE(prefix.Contains(Ipv4Address(10, 0, 255, 255)));
  const Ipv4Prefix everything{Ipv4Address(10, 0, 0, 1), 0};
  EXPECT_TRUE(everything.Contains(Ipv4Address(255, 255, 255, 255)));
}

TEST(Ipv4Prefix, PointToPointNetworksHaveNoBroadcastOfTheirOwn) {
  EXPECT_EQ((Ipv4Prefix{Ipv4Address(10, 1, 0, 9), 23}.DirectedBroadcast()),
            Ipv4Address(10, 1, 1, 255));
  EXPECT_EQ((Ipv4Prefix{Ipv4Address(10, 1, 0, 9), 30}.DirectedBroadcast()),
            Ipv4Address(10, 1, 0, 11));
  EXPECT_TRUE((Ipv4Prefix{Ipv4Address(10, 1, 0, 9), 31}.DirectedBroadcast().IsLimitedBroadcast()));
  EXPECT_TRUE((Ipv4Prefix{Ipv4Address(10, 1, 0, 9), 32}.DirectedBroadcast().IsLimitedBroadcast()));
}

TEST(MacAddress, GroupsAreToldFromHosts) {
  EXPECT_TRUE(MacAddress::Broadcast().IsGroup());
  EXPECT_TRUE(MacAddress::Broadcast().IsBroadcast());
  EXPECT_TRUE(MacAddress({0x01, 0, 0x5E, 0, 0, 1}).IsGroup());
  EXPECT_FALSE(MacAddress({0x02, 0, 0, 0, 0, 1}).IsGroup());
  EXPECT_TRUE(MacAddress().IsZero());
}

TEST(MacAddress, LoadsAndStoresSixBytes) {
  Bytes bytes = Poisoned(8);
  MacAddress({1, 2, 3, 4, 5, 6}).Store(&bytes[1]);
  EXPECT_EQ(bytes, Hex("a5 010203040506 a5"));
  EXPECT_EQ(MacAddress::Load(&bytes[1]), MacAddress({1, 2, 3, 4, 5, 6}));
}

TEST(MulticastMac, KeepsTheLow23BitsOfTheGroup) {
  EXPECT_EQ(MulticastMac(Ipv4Address(224, 0, 0, 251)),
            MacAddress({0x01, 0x00, 0x5E, 0x00, 0x00, 0xFB}));
  EXPECT_EQ(MulticastMac(Ipv4Address(239, 255, 255, 255)),
            MacAddress({0x01, 0x00, 0x5E, 0x7F, 0xFF, 0xFF}));
  EXPECT_EQ(MulticastMac(Ipv4Address(233, 54, 12, 111)),
            MulticastMac(Ipv4Address(225, 182, 12, 111)));
}

}  // namespace
}  // namespace xtreme::wire
