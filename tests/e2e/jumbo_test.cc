// SPDX-License-Identifier: Apache-2.0
//
// Frames of 9,000 bytes from ring to ring, and the datagram that needs two of them.

#include <gtest/gtest.h>

#include <string>

#include "tests/e2e/two_rings.h"
#include "xtreme/engine/ring_core.h"

namespace xtreme::engine::testing {
namespace {

constexpr uint32_t kMtu = 9'000;
constexpr size_t kMostInAFrame = kMtu - 28;  // Behind headers of IPv4 and UDP.

std::string Payload(size_t bytes) {
  std::string payload(bytes, 0);
  for (size_t i = 0; i < bytes; ++i) payload[i] = static_cast<char>(i * 131 >> 3);
  return payload;
}

class JumboTest : public TwoRingsTest {
 protected:
  JumboTest() : TwoRingsTest({.mtu = kMtu, .fragments = Fragments::kOwn}) {}

  // Sends so much from a to b; the number of links it came in, 0 when it is not the same.
  uint32_t LinksOf(size_t bytes) {
    EXPECT_EQ(a->SendTo(client, {kB, 7000}, Payload(bytes)), SendResult::kSent) << bytes;
    rig->Step();
    const auto got = b->Poll();
    if (got.size() != 1) return 0;
    std::string whole;
    for (packet::Buffer* link = got[0].buffer; link != nullptr; link = link->next) {
      whole.append(link->bytes().begin(), link->bytes().end());
    }
    const uint32_t links = whole == Payload(bytes) ? got[0].count : 0;
    Release(got);
    return links;
  }

  static uint32_t FreeOrPosted(RingEnd& end) {
    const RingDevice& device = end.ring->core().device;
    return device.pool->free_count() + device.queue->posted();
  }

  Handle client = a->OpenSocket({.local = {kA, 6000}});
  Handle server = b->OpenSocket({.local = {kB, 7000}});
};

TEST_F(JumboTest, AFrameOf9000BytesArrivesWholeInOneBuffer) {
  EXPECT_EQ(LinksOf(kMostInAFrame), 1u);
  EXPECT_EQ(LinksOf(kMostInAFrame - 1), 1u);
  EXPECT_EQ(a->ring->core().tally.counters.fragments_sent, 0u);
}

TEST_F(JumboTest, TheDatagramJustAboveArrivesWholeInTwo) {
  EXPECT_EQ(LinksOf(kMostInAFrame + 1), 2u);
  EXPECT_EQ(a->ring->core().tally.counters.fragments_sent, 2u);
}

TEST_F(JumboTest, TheLongestDatagramArrivesWhole) {
  EXPECT_EQ(LinksOf(65'507), 8u);
}

TEST_F(JumboTest, ManyOfThemLeaveNoBufferBehind) {
  const uint32_t before_a = FreeOrPosted(*a);
  const uint32_t before_b = FreeOrPosted(*b);
  for (int i = 0; i < 3'000; ++i) {
    ASSERT_NE(LinksOf(kMostInAFrame + static_cast<size_t>(i % 2)), 0u) << i;
    a->Poll();
  }
  a->SendTo(client, {kB, 7000}, "the last", {.flags = kSendWantDone});
  rig->Step();
  a->Poll();
  Release(b->Poll());
  b->Poll();
  EXPECT_EQ(FreeOrPosted(*a), before_a);
  EXPECT_EQ(FreeOrPosted(*b), before_b);
}

}  // namespace
}  // namespace xtreme::engine::testing
