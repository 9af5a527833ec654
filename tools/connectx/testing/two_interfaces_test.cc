// SPDX-License-Identifier: Apache-2.0
//
// A bed with two interfaces, as for the two lines of a feed: a ring on each.

#include <gtest/gtest.h>

#include <string>

#include "api/xtreme.hpp"
#include "tools/connectx/testing/test_bed.h"

namespace xtreme::connectx {
namespace {

constexpr int64_t kPatienceNs = 10'000'000'000;

// Joins a group on `interface`, hears from it and sends to it.
void HearAndAnswer(TestBed& bed, size_t port, const std::string& interface,
                   const std::string& local, const std::string& group) {
  auto ring = Ring::Open(RingOptions::Dev(interface));
  ASSERT_TRUE(ring.ok()) << ring.error().message;
  auto socket = ring->OpenUdp({.local = group});
  auto sender = ring->OpenUdp({.local = local});
  ASSERT_TRUE(socket.ok() && sender.ok());
  ASSERT_TRUE(socket->Join(*ParseAddress(group)).ok());
  ASSERT_TRUE(ring->Start().ok());
  for (int operations = 3; operations > 0;) {
    for (const Completion& each : ring->Wait(kPatienceNs)) {
      ASSERT_EQ(each.kind(), kOpDone);
      ASSERT_EQ(each.status, 0) << each.text;
      --operations;
    }
  }
  ASSERT_TRUE(bed.Send(port, TestBed::Datagram{"10.9.0.9:1", group, "question"}));
  std::string heard;
  while (heard.empty()) {
    for (const Completion& each : ring->Wait(kPatienceNs)) {
      if (each.kind() == kPacket) heard.assign(each.bytes().begin(), each.bytes().end());
    }
  }
  EXPECT_EQ(heard, "question");
  const uint8_t answer[] = {'y', 'e', 's'};
  EXPECT_EQ(sender->SendTo(*ParseAddress(group), answer), XTREME_SENT) << interface;
  EXPECT_EQ(bed.ExpectDatagram(port), (TestBed::Datagram{local, group, "yes"}));
}

TEST(TwoInterfaces, EachHasItsGroups) {
  TestBed bed;
  HearAndAnswer(bed, 0, "eth2", "10.0.0.1:7000", "239.1.1.1:26477");
  HearAndAnswer(bed, 1, "eth3", "10.1.0.1:7000", "239.1.1.2:26477");
}

}  // namespace
}  // namespace xtreme::connectx
