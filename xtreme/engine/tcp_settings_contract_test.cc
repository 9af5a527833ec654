// SPDX-License-Identifier: Apache-2.0
//
// Settings that change while there is a connection: what is under way goes by them.

#include <gtest/gtest.h>

#include <cerrno>
#include <cstdint>
#include <vector>

#include "stack/base/time.h"
#include "xtreme/engine/testing/tcp_pair.h"

namespace xtreme::engine::testing {
namespace {

using TcpSettingsContractTest = TcpPairTest;

TEST_F(TcpSettingsContractTest, WhatWaitsForMoreLeavesWithTheCallThatWaitsNoMore) {
  TcpSettings settings;
  settings.cork = true;
  OpenConnection(settings);
  ASSERT_EQ(a->Send(client, "order"), SendResult::kQueued);
  const uint32_t visible = a->queue().visible();
  settings.cork = false;
  ASSERT_TRUE(a->tcp().SetSettings(client, settings).ok());
  EXPECT_EQ(a->queue().visible(), visible + 1);  // Without a poll.
}

TEST_F(TcpSettingsContractTest, ThoseOfOpeningAreNotLookedAtAfterIt) {
  OpenConnection();
  TcpSettings before, now;
  ASSERT_TRUE(a->tcp().GetSettings(client, &before));
  TcpSettings settings = before;
  settings.receive_window_bytes = kLeastReceiveWindow - 1;
  EXPECT_TRUE(a->tcp().SetSettings(client, settings).ok());
  ASSERT_TRUE(a->tcp().GetSettings(client, &now));
  EXPECT_EQ(now.receive_window_bytes, before.receive_window_bytes);
  settings.keepalive_probes = 0;
  EXPECT_EQ(a->tcp().SetSettings(client, settings).error, EINVAL);
}

// Before and after the end of the stream was sent behind it.
class ShorterTimeoutTest : public TcpPairTest, public ::testing::WithParamInterface<bool> {};

TEST_P(ShorterTimeoutTest, IsThatOfWhatWasSentBefore) {
  const bool ends = GetParam();
  TcpSettings settings;
  settings.min_rto = base::Seconds(2);
  OpenConnection(settings);
  a->lose = [](const std::vector<uint8_t>&) { return true; };
  ASSERT_EQ(a->Send(client, "order"), SendResult::kSent);
  if (ends) {
    ASSERT_TRUE(a->tcp().Shutdown(client).ok());
  }
  Run();
  a->lose = nullptr;
  settings.min_rto = base::Milliseconds(1);
  ASSERT_TRUE(a->tcp().SetSettings(client, settings).ok());
  Run(20'000'000);
  EXPECT_EQ(b->Bytes(server), "order");
  EXPECT_EQ(b->Of(Kind::kPeerClosed).size(), ends ? 1u : 0u);
}

INSTANTIATE_TEST_SUITE_P(Ends, ShorterTimeoutTest, ::testing::Bool());

}  // namespace
}  // namespace xtreme::engine::testing
