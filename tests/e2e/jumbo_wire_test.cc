// SPDX-License-Identifier: Apache-2.0
//
// Frames of 9,000 bytes on a network interface, both ways against a kernel, and datagrams that need
// more than one.

#include <string>

#include "tests/e2e/wire_rig.h"

namespace xtreme::e2e {
namespace {

constexpr uint32_t kMtu = 9'000;
constexpr size_t kMostInAFrame = kMtu - 28;  // Behind headers of IPv4 and UDP.

std::string Payload(size_t bytes) {
  std::string payload(bytes, 0);
  for (size_t i = 0; i < bytes; ++i) payload[i] = static_cast<char>(i * 131 >> 3);
  return payload;
}

class JumboWireTest : public WireTest {
 protected:
  JumboWireTest() : WireTest(kMtu) {}
};

TEST_F(JumboWireTest, AFrameOf9000BytesIsReceivedWholeAndTheNextByteComesByTheKernel) {
  WireDevice device(kOurMac, kMtu);
  WireRing ring;
  ring.OpenSocket("10.0.0.1:7000");
  ring.Start();
  const auto peer = OpenPeer();
  for (const size_t bytes : {kMostInAFrame, kMostInAFrame - 1, size_t{4'000}}) {
    peer->SendTo("10.0.0.1", 7000, Payload(bytes));
    uint16_t flags = 0;
    EXPECT_EQ(ring.Receive(kPatienceMs, &flags), Payload(bytes)) << bytes;
    EXPECT_EQ(flags & (XTREME_CHAINED | XTREME_SLOW_PATH), 0) << bytes;
  }
  peer->SendTo("10.0.0.1", 7000, Payload(kMostInAFrame + 1));
  uint16_t flags = 0;
  EXPECT_EQ(ring.Receive(kPatienceMs, &flags), Payload(kMostInAFrame + 1));
  EXPECT_NE(flags & XTREME_SLOW_PATH, 0);
}

TEST_F(JumboWireTest, AFrameOf9000BytesIsSentWholeAndTheNextByteInTwo) {
  WireDevice device(kOurMac, kMtu);
  WireRing ring;
  const xtreme_socket socket = ring.OpenSocket("10.0.0.1:7000");
  ring.Start();
  const auto peer = OpenPeer(8000);
  const auto fragments = [&] {
    xtreme_counter counters[256];
    const int count = xtreme_ring_counters(ring.ring(), counters, 256);
    for (int i = 0; i < count; ++i) {
      if (std::string_view(counters[i].name) == "fragments_sent") return counters[i].value;
    }
    return ~uint64_t{0};
  };
  for (const size_t bytes : {kMostInAFrame - 1, kMostInAFrame}) {
    ASSERT_EQ(ring.SendTo(socket, "10.0.0.2:8000", Payload(bytes)), XTREME_SENT) << bytes;
    EXPECT_EQ(peer->Receive(), Payload(bytes)) << bytes;
  }
  EXPECT_EQ(fragments(), 0u);
  ASSERT_EQ(ring.SendTo(socket, "10.0.0.2:8000", Payload(kMostInAFrame + 1)), XTREME_SENT);
  EXPECT_EQ(peer->Receive(), Payload(kMostInAFrame + 1));
  EXPECT_EQ(fragments(), 2u);
}

}  // namespace
}  // namespace xtreme::e2e
