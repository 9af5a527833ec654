// SPDX-License-Identifier: Apache-2.0
//
// The receive window is what is not released or credited: how much the peer may send, by name.

#include <gtest/gtest.h>

#include <cerrno>
#include <latch>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "stack/packet/buffer_pool.h"
#include "xtreme/engine/control_thread.h"
#include "xtreme/engine/testing/tcp_pair.h"

namespace xtreme::engine::testing {
namespace {

class TcpCreditContractTest : public TcpPairTest {};

TEST_F(TcpCreditContractTest, TheWindowIsTheBytesThatAreNotReleasedOrCredited) {
  TcpSettings tiny;
  tiny.receive_window_bytes = 7'240;
  OpenConnection({}, tiny);
  const std::string bytes(20'000, 'x');
  EXPECT_EQ(a->Send(client, bytes), SendResult::kQueued);
  Run();
  EXPECT_EQ(b->Bytes(server).size(), 7'240u);
  TcpReport report;
  ASSERT_TRUE(b->tcp().Report(server, &report));
  EXPECT_EQ(report.owed_credit, 7'240u);
  EXPECT_EQ(report.receive_window, 0u);
  b->Clear();  // Releases all of it: as much comes again.
  Run();
  EXPECT_EQ(b->Bytes(server).size(), 7'240u);
}

TEST_F(TcpCreditContractTest, EarlyAndPartialCreditOpenTheWindowOnceForEachByte) {
  TcpSettings tiny;
  tiny.receive_window_bytes = 7'240;
  OpenConnection({}, tiny);
  a->Send(client, std::string(40'000, 'x'));
  Run();
  ASSERT_EQ(b->Bytes(server).size(), 7'240u);
  EXPECT_EQ(b->tcp().Credit(server, 7'241).error, EINVAL);
  ASSERT_TRUE(b->tcp().Credit(server, 3'000).ok());
  ASSERT_TRUE(b->tcp().Credit(server, 2'792).ok());
  Run();
  EXPECT_EQ(b->Bytes(server).size(), 7'240u + 5'792u);
  // What was credited early, released: nothing comes of it.
  size_t released = 0;
  while (released < 5'792) {
    released += b->got.front().length;
    packet::BufferPool::ReleaseChain(b->got.front().buffer);
    b->got.erase(b->got.begin());
  }
  Run();
  EXPECT_EQ(b->Bytes(server).size(), 7'240u);
  b->Clear();
  Run();
  EXPECT_EQ(b->Bytes(server).size(), 7'240u);
  TcpReport report;
  ASSERT_TRUE(b->tcp().Report(server, &report));
  EXPECT_EQ(report.owed_credit, 7'240u);
}

TEST_F(TcpCreditContractTest, UnderManualCreditReleasingOpensNothing) {
  TcpSettings manual;
  manual.receive_window_bytes = 7'240;
  manual.manual_credit = true;
  OpenConnection({}, manual);
  a->Send(client, std::string(20'000, 'x'));
  Run();
  ASSERT_EQ(b->Bytes(server).size(), 7'240u);
  b->Clear();
  Run();
  EXPECT_TRUE(b->got.empty());
  ASSERT_TRUE(b->tcp().Credit(server, 7'240).ok());
  Run();
  EXPECT_EQ(b->Bytes(server).size(), 7'240u);
}

// Else what was handed out before a change would be credited twice, or never.
TEST_F(TcpCreditContractTest, WhatOpensTheWindowOfAConnectionIsSaidAsItOpens) {
  for (const bool manual : {true, false}) {
    SCOPED_TRACE(manual);
    a.reset();
    b.reset();
    TcpSettings settings;
    settings.receive_window_bytes = 7'240;
    settings.manual_credit = manual;
    OpenConnection({}, settings);
    const auto owed = [this] {
      TcpReport report;
      EXPECT_TRUE(b->tcp().Report(server, &report));
      return report.owed_credit;
    };
    a->Send(client, std::string(4'000, 'x'));
    Run();
    ASSERT_EQ(b->Bytes(server).size(), 4'000u);
    settings.manual_credit = !manual;
    ASSERT_TRUE(b->tcp().SetSettings(server, settings).ok());
    TcpSettings standing;
    ASSERT_TRUE(b->tcp().GetSettings(server, &standing));
    EXPECT_EQ(standing.manual_credit, manual);
    ASSERT_TRUE(b->tcp().Credit(server, 4'000).ok());
    EXPECT_EQ(owed(), 0u);
    const std::vector<Completion> first = std::exchange(b->got, {});
    a->Send(client, std::string(4'000, 'y'));
    Run();
    ASSERT_EQ(b->Bytes(server).size(), 4'000u);
    for (const Completion& packet : first) packet::BufferPool::ReleaseChain(packet.buffer);
    Run();
    EXPECT_EQ(owed(), 4'000u) << "these were credited already";
    b->Clear();
    Run();
    EXPECT_EQ(owed(), manual ? 4'000u : 0u);
  }
}

TEST_F(TcpCreditContractTest, AReleaseOnAnotherThreadCreditsWithTheNextPoll) {
  TcpSettings tiny;
  tiny.receive_window_bytes = 7'240;
  OpenConnection({}, tiny);
  a->Send(client, std::string(20'000, 'x'));
  Run();
  ASSERT_EQ(b->Bytes(server).size(), 7'240u);
  std::thread([this] { b->Clear(); }).join();
  Run();
  EXPECT_EQ(b->Bytes(server).size(), 7'240u);
}

// Also while a reset is under way: the knock that told of it comes once.
TEST_F(TcpCreditContractTest, AReleaseOnAnotherThreadDuringAResetCreditsWithTheNextPoll) {
  OpenConnection();
  a->Send(client, std::string(1'000, 'x'));
  Run();
  ASSERT_EQ(b->Bytes(server).size(), 1'000u);
  std::latch go_on{1};
  b->engine->control().Start(MakeOperation([&go_on] { go_on.wait(); }));
  ASSERT_TRUE(b->ring->Reset(1).ok());
  std::thread([this] { b->Clear(); }).join();
  b->Poll();
  TcpReport report;
  ASSERT_TRUE(b->tcp().Report(server, &report));
  EXPECT_EQ(report.owed_credit, 0u);
  go_on.count_down();
  b->Settle();
  EXPECT_EQ(b->Of(Kind::kOpDone).size(), 1u);
}

}  // namespace
}  // namespace xtreme::engine::testing
