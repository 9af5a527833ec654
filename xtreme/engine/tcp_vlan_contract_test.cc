// SPDX-License-Identifier: Apache-2.0
//
// TCP on a VLAN interface, on queues that take headers from registers: those have no tag, so what
// has one leaves otherwise, and is tagged whatever its length.

#include <gtest/gtest.h>

#include <string>

#include "stack/wire/ethernet.h"
#include "xtreme/engine/testing/tcp_pair.h"

namespace xtreme::engine::testing {
namespace {

constexpr uint16_t kVlan = 5;

class TcpVlanContractTest : public TcpPairTest {
 protected:
  TcpVlanContractTest() {
    vlan_id = kVlan;
    options.interface_name = "xt0.5";
  }
  // From the first segment on.
  void OpenDirect(bool timestamps) {
    Open();
    a->queue().TakeDirectPosts();
    b->queue().TakeDirectPosts();
    TcpSettings settings;
    settings.timestamps = timestamps;
    OpenConnection(settings, settings);
  }
  static void ExpectTagged(TcpEnd& end) {
    for (const SentFrame& frame : end.queue().sent()) {
      const auto ethernet = wire::EthernetView::Parse(frame.bytes);
      ASSERT_TRUE(ethernet.ok());
      ASSERT_TRUE(ethernet->vlan().has_value());
      EXPECT_EQ(ethernet->vlan()->id, kVlan);
    }
    EXPECT_EQ(end.queue().direct_posts(), 0u);
  }
};

TEST_F(TcpVlanContractTest, WhateverIsSentIsTaggedAndSoIsWhatAcknowledgesIt) {
  for (const bool timestamps : {true, false}) {
    SCOPED_TRACE(timestamps);
    a = nullptr;
    b = nullptr;
    OpenDirect(timestamps);
    std::string all;
    for (int i = 0; i < 20; ++i) {  // Of the first segments each is acknowledged at once.
      for (const size_t length : {5u, 1'000u, 2'896u}) {
        const std::string text(length, static_cast<char>('a' + i));
        ASSERT_EQ(a->Send(client, text), SendResult::kSent);
        all += text;
        Run();
      }
    }
    EXPECT_EQ(b->Bytes(server), all);
    ExpectTagged(*a);
    ExpectTagged(*b);
  }
}

}  // namespace
}  // namespace xtreme::engine::testing
