// SPDX-License-Identifier: Apache-2.0
//
// Xtreme itself on a test bed, as a user's test has it.

#include <unistd.h>

#include <cstdint>
#include <string>

#include "api/xtreme.hpp"
#include "gtest/gtest.h"
#include "tools/connectx/testing/test_bed.h"

namespace xtreme::connectx {
namespace {

constexpr int64_t kPatienceNs = 10'000'000'000;

TEST(RingOnTestBedTest, DatagramIsReceivedAndAnswered) {
  TestBed bed;
  bed.AddPeer(0, "10.0.0.9");
  // As programs do, in which what the rule says stands too.
  auto ring = Ring::Open(RingOptions::Dev("eth2").FromEnvironment(environ));
  ASSERT_TRUE(ring.ok()) << ring.error().message;
  auto socket = ring->OpenUdp({.local = "10.0.0.1:7000"});
  ASSERT_TRUE(socket.ok()) << socket.error().message;
  const auto started = ring->Start();
  ASSERT_TRUE(started.ok()) << started.error().message;
  bool open = false;
  while (!open) {
    for (const Completion& each : ring->Wait(kPatienceNs)) open |= each.kind() == kOpDone;
  }

  ASSERT_TRUE(bed.Send(0, {"10.0.0.9:5", "10.0.0.1:7000", "ask"}));
  std::string asked;
  while (asked.empty()) {
    for (Completion& completion : ring->Wait(kPatienceNs)) {
      if (completion.kind() != kPacket) continue;
      asked.assign(completion.bytes().begin(), completion.bytes().end());
      EXPECT_GE(socket->SendTo(completion.source(), completion.bytes()), 0);
    }
  }
  EXPECT_EQ(asked, "ask");
  EXPECT_EQ(bed.ExpectDatagram(0), (TestBed::Datagram{"10.0.0.1:7000", "10.0.0.9:5", "ask"}));
  EXPECT_TRUE(bed.Violations().empty());
}

}  // namespace
}  // namespace xtreme::connectx
