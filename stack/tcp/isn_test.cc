// SPDX-License-Identifier: Apache-2.0
#include "stack/tcp/isn.h"

#include <gtest/gtest.h>

#include <set>

namespace xtreme::tcp {
namespace {

using base::Microseconds;
using base::Seconds;

constexpr wire::Endpoint kLocal{wire::Ipv4Address(192, 0, 2, 1), 4242};
constexpr wire::Endpoint kRemote{wire::Ipv4Address(198, 51, 100, 7), 443};
const FlowKey kKey = FlowKey::Of(kLocal, kRemote, 100);

TEST(FlowKey, IsTheSameFromEndpointsAndFromASegment) {
  const wire::TcpFlow flow{.destination = kLocal.address,
                           .source = kRemote.address,
                           .destination_port = kLocal.port,
                           .source_port = kRemote.port,
                           .vlan_id = 100};
  EXPECT_EQ(FlowKey::Of(flow), kKey);
  EXPECT_EQ(kKey.local(), kLocal);
  EXPECT_EQ(kKey.remote(), kRemote);
  EXPECT_EQ(kKey.vlan_id(), 100);
  EXPECT_EQ(sizeof(FlowKey), 16u);
}

TEST(FlowKey, EveryPartTellsApart) {
  const wire::Endpoint other_address{wire::Ipv4Address(192, 0, 2, 2), 4242};
  const wire::Endpoint other_port{kLocal.address, 4243};
  for (const FlowKey& key :
       {FlowKey::Of(kRemote, kLocal, 100), FlowKey::Of(kLocal, kRemote, 0),
        FlowKey::Of(other_address, kRemote, 100), FlowKey::Of(other_port, kRemote, 100)}) {
    EXPECT_FALSE(key == kKey);
    EXPECT_NE(key.Hash(), kKey.Hash());
  }
}

TEST(InitialSequence, GrowsByOneEveryFourMicrosecondsInOnePlace) {
  const InitialSequence numbers({1, 2});
  const Seq first = numbers.For(kKey, Seconds(100)).iss;
  EXPECT_EQ(numbers.For(kKey, Seconds(100) + Microseconds(4)).iss, first + 1);
  EXPECT_EQ(numbers.For(kKey, Seconds(101)).iss, first + 250'000);
  EXPECT_EQ(numbers.For(kKey, Seconds(100)).timestamp_offset,
            numbers.For(kKey, Seconds(200)).timestamp_offset);
}

TEST(InitialSequence, OfTwoAttemptsAtOnceTheSecondIsLater) {
  InitialSequence numbers({1, 2});
  const Seq first = numbers.Next(kKey, Seconds(100)).iss;
  EXPECT_EQ(first, numbers.For(kKey, Seconds(100)).iss);
  EXPECT_EQ(numbers.Next(kKey, Seconds(100)).iss, first + 1);
  EXPECT_EQ(numbers.Next(kKey, Seconds(100) + Microseconds(8)).iss, first + 2);
  EXPECT_EQ(numbers.Next(kKey, Seconds(101)).iss, first + 250'000);
}

TEST(InitialSequence, OtherPlacesAndOtherKeysAreUnrelated) {
  const InitialSequence numbers({1, 2});
  std::set<uint32_t> iss, offsets;
  for (uint16_t port = 1; port <= 1000; ++port) {
    const FlowKey key = FlowKey::Of(kLocal, {kRemote.address, port}, 100);
    iss.insert(numbers.For(key, Seconds(1)).iss.value());
    offsets.insert(numbers.For(key, Seconds(1)).timestamp_offset);
  }
  EXPECT_GT(iss.size(), 998u);
  EXPECT_GT(offsets.size(), 998u);
  EXPECT_NE(InitialSequence({1, 3}).For(kKey, Seconds(1)).iss, numbers.For(kKey, Seconds(1)).iss);
}

}  // namespace
}  // namespace xtreme::tcp
