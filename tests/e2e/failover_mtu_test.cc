// SPDX-License-Identifier: Apache-2.0
//
// A connection of a ring whose backup takes shorter packets than its own port: what was cut for the
// one is cut anew for the other, and longer again at home.

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "tests/e2e/failover_bed.h"
#include "xtreme/engine/tcp.h"

namespace xtreme::engine::testing {
namespace {

class FailoverMtuTest : public FailoverTest {
 protected:
  static constexpr size_t kLeastHeaders = 14 + 20 + 20;

  void Run() {
    for (int i = 0; i < 200; ++i) {
      now += 10'000'000;
      card->Step(10'000'000);
      us->engine->control().RunAndWait([] {});
      us->Poll();
      for (const Completion& completion : peer->Poll()) {
        if (completion.kind != Kind::kPacket) continue;
        at_peer_.append(reinterpret_cast<const char*>(completion.data), completion.length);
        packet::BufferPool::ReleaseChain(completion.buffer);
      }
    }
  }
  void Send(std::string_view bytes) {
    Tcp& tcp = us->ring->tcp();
    const SendResult sent = tcp.Send(tcp.Find(client_),
                                     {.data = reinterpret_cast<const uint8_t*>(bytes.data()),
                                      .length = bytes.size()},
                                     {});
    ASSERT_GE(static_cast<int>(sent), 0);
  }
  // The longest frame since the last call.
  size_t Longest() {
    size_t longest = 0;
    for (const auto& frame : Overhear()) longest = std::max(longest, frame.size());
    return longest;
  }

  Handle client_ = 0;
  std::string at_peer_;
};

TEST_F(FailoverMtuTest, AConnectionGoesOnInSegmentsAsLongAsTheBackupTakes) {
  constexpr uint32_t kHomeMtu = 1'500;
  backup_mtu_ = 1'400;
  Open();
  Handle listener = 0;
  ASSERT_TRUE(peer->ring->tcp().OpenListener({.local = {{}, 8'000}}, &listener).ok());
  peer->Settle();
  ASSERT_TRUE(us->ring->tcp().Connect({.peer = {kPeer, 8'000}}, &client_).ok());
  Run();
  const std::string some(5'000, 's');
  Send(some);
  Run();
  EXPECT_EQ(at_peer_, some);
  EXPECT_EQ(Longest(), 14 + kHomeMtu);

  // Some of it is cut, and did not get through, when the ring moves.
  ends[0]->SetPlugged(false);
  Send(some);
  Plug(0, false);
  TellPeer(kBackupMac);
  Run();
  EXPECT_EQ(at_peer_, some + some);
  const size_t at_backup = Longest();
  EXPECT_LE(at_backup, 14 + backup_mtu_);
  EXPECT_GT(at_backup, backup_mtu_ - kLeastHeaders);

  Plug(0, true);
  TellPeer(kOwnMac);
  Send(some);
  Run();
  EXPECT_EQ(at_peer_, some + some + some);
  EXPECT_EQ(Longest(), 14 + kHomeMtu);
}

}  // namespace
}  // namespace xtreme::engine::testing
