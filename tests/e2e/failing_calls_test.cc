// SPDX-License-Identifier: Apache-2.0
//
// A ring is given new queues, at its port or at another, by a kernel that refuses one call of those
// it makes, each in turn: the ring says whether it is whole, and comes back with all that it had
// once nothing is refused any more.

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tests/e2e/failover_bed.h"
#include "xtreme/engine/prepared_sends.h"
#include "xtreme/engine/ring_port.h"
#include "xtreme/engine/tcp.h"

namespace xtreme::engine::testing {
namespace {

constexpr uint64_t kResetCookie = 99;
constexpr uint16_t kPlainPort = 7'001, kPacedPort = 7'002, kPeerPort = 6'000, kTcpPort = 8'000;

class FailingCallsTest : public FailoverTest {
 protected:
  // A ring with one of everything that queues and rules are made for.
  void OpenAll(uint32_t device_memory, bool paces) {
    device_memory_ = device_memory;
    Open();
    ours_ = OpenSender(kPlainPort);
    paced_ = OpenSender(kPacedPort);
    const nic::RateLimit rate{.bytes_per_second = paces ? 100'000'000u : 0, .burst_bytes = 4'000};
    ASSERT_TRUE(us->ring->udp().SetRate(paced_, rate, 1).ok());
    us->Settle();
    Listen(7'000);
    theirs_ = peer->OpenSocket({.local = {kPeer, kPeerPort}});
    Handle listener = 0;
    ASSERT_TRUE(us->ring->tcp().OpenListener({.local = {{}, kTcpPort}}, &listener).ok());
    us->Settle();
    ASSERT_TRUE(peer->ring->tcp().Connect({.peer = {kOwn, kTcpPort}}, &client_).ok());
    peer->engine->control().RunAndWait([] {});
    Run();
    ASSERT_NE(child_, 0u);
    ASSERT_TRUE(us->ring->udp().PrepareSend(ours_, Bytes(order_text_), &order_).ok());
  }
  Handle OpenSender(uint16_t port) {
    const Handle socket = us->OpenSocket({.local = {kOwn, port}});
    EXPECT_TRUE(us->ring->udp().Connect(socket, {kPeer, kPeerPort}, 0).ok());
    us->Settle();
    return socket;
  }
  static std::span<const uint8_t> Bytes(std::string_view text) {
    return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
  }
  static Payload Of(std::string_view text) {
    return {.data = Bytes(text).data(), .length = text.size()};
  }

  // What either tells until nothing more comes.
  void Run() {
    for (int i = 0; i < 100; ++i) {
      now += 10'000'000;
      card->Step(10'000'000);
      us->engine->control().RunAndWait([] {});
      for (const Completion& completion : us->Poll()) Note(completion, &here_);
      for (const Completion& completion : peer->Poll()) Note(completion, &there_);
    }
  }
  void Note(const Completion& completion, std::vector<std::string>* received) {
    const bool moved = completion.kind == Kind::kRing && completion.event == RingEvent::kMoved;
    const bool reset = completion.kind == Kind::kOpDone && completion.cookie == kResetCookie;
    if (moved || reset) {
      ++told_;
      status_ = completion.status;
      EXPECT_EQ(status_ == 0, completion.text == nullptr);
    }
    if (completion.kind == Kind::kAccepted) child_ = completion.socket;
    EXPECT_NE(completion.kind, Kind::kTerminated) << completion.status;
    if (completion.kind != Kind::kPacket) return;
    received->emplace_back(reinterpret_cast<const char*>(completion.data), completion.length);
    packet::BufferPool::ReleaseChain(completion.buffer);
  }

  void ExpectAllWorks() {
    Udp& udp = us->ring->udp();
    Tcp& tcp = us->ring->tcp();
    Tcp& tcp_there = peer->ring->tcp();
    const std::string longer(1'000, 'l');
    const std::string stream(3'000, 's');
    EXPECT_EQ(udp.Send(udp.Find(ours_), Of("plain"), {}), SendResult::kSent);
    EXPECT_EQ(udp.Send(udp.Find(ours_), Of(longer), {}), SendResult::kSent);
    EXPECT_EQ(udp.Send(udp.Find(paced_), Of("paced"), {}), SendResult::kSent);
    EXPECT_TRUE(us->ring->prepared().Rearm(order_).ok());
    EXPECT_EQ(Fire(*us->ring->prepared().Find(order_), {}), SendResult::kSent);
    EXPECT_GE(static_cast<int>(tcp.Send(tcp.Find(child_), Of(stream), {})), 0);
    EXPECT_EQ(peer->SendTo(theirs_, {kOwn, kPlainPort}, "unicast"), SendResult::kSent);
    EXPECT_EQ(peer->SendTo(theirs_, {kGroup, 7'000}, "group"), SendResult::kSent);
    EXPECT_GE(static_cast<int>(tcp_there.Send(tcp_there.Find(client_), Of("upstream"), {})), 0);
    here_.clear();
    there_.clear();
    Run();
    std::sort(here_.begin(), here_.end());
    EXPECT_EQ(here_, (std::vector<std::string>{"group", "unicast", "upstream"}));
    EXPECT_EQ(TakeStream(), stream);
    std::sort(there_.begin(), there_.end());
    EXPECT_EQ(there_, (std::vector<std::string>{longer, order_text_, "paced", "plain"}));
  }
  // Its segments, off what came there.
  std::string TakeStream() {
    std::string stream;
    std::erase_if(there_, [&stream](const std::string& payload) {
      const bool of_it = payload.find_first_not_of('s') == std::string::npos;
      if (of_it) stream += payload;
      return of_it;
    });
    return stream;
  }

  void Reset() {
    told_ = 0;
    ASSERT_TRUE(us->ring->Reset(kResetCookie).ok());
    Run();
    EXPECT_EQ(told_, 1);
  }
  void Move(bool away) {
    told_ = 0;
    ends[0]->SetPlugged(!away);
    Run();
    now += kLeftRulesStay.count();
    Run();  // What stayed for a while at the port that was left is ended.
    EXPECT_EQ(told_, 1);
    TellPeer(away ? kBackupMac : kOwnMac);
  }

  // How many calls `act` makes.
  template <typename Act>
  uint64_t CallsOf(Act act) {
    const uint64_t before = card->calls();
    act();
    return card->calls() - before;
  }
  // `act` with one call of it refused.
  template <typename Act>
  void Refuse(uint64_t call, Act act) {
    SCOPED_TRACE(::testing::Message() << "call " << call);
    card->FailAfter(call, EIO, /*spares_ends=*/true);
    act();
    card->FailAfter(1'000'000, 0);  // It may have made fewer.
    if (status_ != 0) {
      Reset();
      EXPECT_EQ(status_, 0);
    }
    ExpectAllWorks();
  }
  // Nothing that was made on the way is left, but doorbell pages, which libmlx5 keeps.
  void ExpectAsMany(connectx::LiveObjects before) {
    connectx::LiveObjects now = card->live_objects();
    before.uars = now.uars;
    EXPECT_EQ(now, before);
    EXPECT_EQ(Counter("pool", "free") + us->ring->core().device.queue->posted(),
              Counter("pool", "buffers"));
  }

  const std::string order_text_ = std::string(50, 'o');
  Handle ours_ = 0, paced_ = 0, theirs_ = 0, client_ = 0, child_ = 0, order_ = 0;
  int told_ = 0;
  int status_ = 0;
  std::vector<std::string> here_, there_;
};

TEST_F(FailingCallsTest, AResetWithWhateverCallRefused) {
  OpenAll(/*device_memory=*/8'192, /*paces=*/true);
  const auto reset = [this] { Reset(); };
  const uint64_t calls = CallsOf(reset);
  ASSERT_EQ(status_, 0);
  ExpectAllWorks();
  const connectx::LiveObjects before = card->live_objects();
  for (uint64_t i = 0; i < calls && !HasFailure(); ++i) Refuse(i, reset);
  ExpectAsMany(before);
}

// The first call is refused, as where there is no room for two; and then another one.
TEST_F(FailingCallsTest, AResetThatEndsTheOldQueuesFirstWithWhateverCallRefused) {
  OpenAll(/*device_memory=*/8'192, /*paces=*/false);
  const auto in_turn = [this] {
    card->FailNext("REG_MR", ENOMEM);
    Reset();
  };
  const uint64_t calls = CallsOf(in_turn);
  ASSERT_EQ(status_, 0);
  ExpectAllWorks();
  const connectx::LiveObjects before = card->live_objects();
  for (uint64_t i = 1; i < calls && !HasFailure(); ++i) Refuse(i, in_turn);
  ExpectAsMany(before);
}

TEST_F(FailingCallsTest, AMoveWithWhateverCallRefused) {
  OpenAll(/*device_memory=*/0, /*paces=*/true);
  const auto away = [this] { Move(true); };
  const auto home = [this] { Move(false); };
  away();
  home();
  const uint64_t calls_away = CallsOf(away);
  const uint64_t calls = std::max(calls_away, CallsOf(home));
  ExpectAllWorks();
  const connectx::LiveObjects before = card->live_objects();
  for (uint64_t i = 0; i < calls && !HasFailure(); ++i) {
    Refuse(i, away);
    Refuse(i, home);
  }
  ExpectAsMany(before);
}

}  // namespace
}  // namespace xtreme::engine::testing
