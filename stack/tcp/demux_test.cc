// SPDX-License-Identifier: Apache-2.0
#include "stack/tcp/demux.h"

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <set>
#include <vector>

namespace xtreme::tcp {
namespace {

struct Connection {
  FlowKey key;
  const FlowKey& flow_key() const { return key; }
};

FlowKey Key(uint32_t i) {
  return FlowKey::Of({wire::Ipv4Address(192, 0, 2, 1), static_cast<uint16_t>(i % 60'000 + 1)},
                     {wire::Ipv4Address(198, 51, 100, static_cast<uint8_t>(i / 60'000)), 443}, 0);
}

std::vector<Connection> Connections(uint32_t count) {
  std::vector<Connection> connections(count);
  for (uint32_t i = 0; i < count; ++i) connections[i].key = Key(i);
  return connections;
}

TEST(Demux, FindsWhatIsAttachedAndNothingElse) {
  auto connections = Connections(100);
  Demux<Connection> demux(100, 1);
  for (Connection& connection : connections) EXPECT_TRUE(demux.Attach(connection));
  for (Connection& connection : connections) EXPECT_EQ(demux.Find(connection.key), &connection);
  EXPECT_EQ(demux.Find(Key(100)), nullptr);
  EXPECT_TRUE(demux.Detach(connections[7]));
  EXPECT_FALSE(demux.Detach(connections[7]));
  EXPECT_EQ(demux.Find(Key(7)), nullptr);
  const Connection stranger = connections[8];
  EXPECT_FALSE(demux.Detach(stranger)) << "an equal key is not the same connection";
  EXPECT_EQ(demux.size(), 99u);
}

TEST(Demux, VlansKeepEqualAddressesApart) {
  Connection a{FlowKey::Of({wire::Ipv4Address(192, 0, 2, 1), 1}, {wire::Ipv4Address(1), 2}, 5)};
  Connection b{FlowKey::Of({wire::Ipv4Address(192, 0, 2, 1), 1}, {wire::Ipv4Address(1), 2}, 6)};
  Demux<Connection> demux(2, 1);
  demux.Attach(a);
  EXPECT_EQ(demux.Find(b.key), nullptr);
  demux.Attach(b);
  EXPECT_EQ(demux.Find(a.key), &a);
  EXPECT_EQ(demux.Find(b.key), &b);
}

TEST(Demux, AFullOneRefusesUntilRoomIsMade) {
  auto connections = Connections(200);
  Demux<Connection> demux(4, 1);
  const size_t capacity = demux.capacity();
  ASSERT_GE(capacity, 4u);
  ASSERT_LT(capacity, 100u);
  for (size_t i = 0; i < capacity; ++i) EXPECT_TRUE(demux.Attach(connections[i]));
  EXPECT_FALSE(demux.Attach(connections[capacity]));
  demux.Reserve(200);
  EXPECT_GE(demux.capacity(), 200u);
  for (size_t i = capacity; i < 200; ++i) EXPECT_TRUE(demux.Attach(connections[i]));
  for (Connection& connection : connections) EXPECT_EQ(demux.Find(connection.key), &connection);
}

// Of a full table, of which many stand past their bucket.
TEST(Demux, TheFirstMatchIsTheConnectionOrNoneAndMostlyFound) {
  auto connections = Connections(20'000);
  Demux<Connection> demux(connections.size(), 1);
  for (Connection& connection : connections) ASSERT_TRUE(demux.Attach(connection));
  size_t found = 0;
  for (Connection& connection : connections) {
    Connection* const first = demux.FindFirst(connection.key);
    ASSERT_TRUE(first == &connection || first == nullptr);
    found += first != nullptr;
  }
  EXPECT_GT(found, connections.size() * 9 / 10);
  // So many that some meet the bits of hash of a connection.
  for (uint32_t i = 20'000; i < 1'000'000; ++i) ASSERT_EQ(demux.FindFirst(Key(i)), nullptr);
}

TEST(Demux, VisitsEachOnce) {
  auto connections = Connections(50);
  Demux<Connection> demux(50, 1);
  for (Connection& connection : connections) demux.Attach(connection);
  std::set<Connection*> visited;
  demux.ForEach([&](Connection& c) { EXPECT_TRUE(visited.insert(&c).second); });
  EXPECT_EQ(visited.size(), 50u);
}

// A bucket has six places and the tables here are as full as they get, so connections stand past
// their bucket all the time.
TEST(Demux, AnyOrderOfAttachingAndDetachingIsFollowed) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    auto connections = Connections(120);
    Demux<Connection> demux(1, seed);
    demux.Reserve(60);
    std::set<size_t> attached;
    for (int step = 0; step < 3000; ++step) {
      const size_t i = random() % connections.size();
      if (attached.contains(i)) {
        ASSERT_TRUE(demux.Detach(connections[i]));
        attached.erase(i);
      } else if (demux.Attach(connections[i])) {
        attached.insert(i);
      }
      const size_t asked = random() % connections.size();
      ASSERT_EQ(demux.Find(connections[asked].key),
                attached.contains(asked) ? &connections[asked] : nullptr);
      ASSERT_EQ(demux.size(), attached.size());
    }
    for (const size_t i : attached) ASSERT_TRUE(demux.Detach(connections[i]));
    for (const Connection& connection : connections) {
      ASSERT_EQ(demux.Find(connection.key), nullptr);
    }
  }
}

TEST(Demux, AHundredThousandCostFewBytesEach) {
  auto connections = Connections(100'000);
  Demux<Connection> demux(100'000, 7);
  for (Connection& connection : connections) ASSERT_TRUE(demux.Attach(connection));
  for (Connection& connection : connections) ASSERT_EQ(demux.Find(connection.key), &connection);
  EXPECT_LE(demux.memory_bytes() / 100'000, 24u);
}

}  // namespace
}  // namespace xtreme::tcp
