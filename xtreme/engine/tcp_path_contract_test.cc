// SPDX-License-Identifier: Apache-2.0
//
// What ICMP errors, from the kernel and from frames, and the kernel's routes do to connections of a
// ring, by name.

#include <gtest/gtest.h>

#include <cerrno>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "stack/base/byte_order.h"
#include "stack/wire/icmp.h"
#include "stack/wire/ipv4.h"
#include "xtreme/engine/control_thread.h"
#include "xtreme/engine/path_errors.h"
#include "xtreme/engine/testing/tcp_pair.h"
#include "xtreme/host/fib.h"

namespace xtreme::engine::testing {
namespace {

constexpr size_t kIpAt = 14;
constexpr size_t kTcpAt = kIpAt + 20;

// `error` about a frame that `from` sent.
ip::SocketError About(const std::vector<uint8_t>& frame, int error, uint16_t mtu = 0,
                      bool hard = false) {
  return {.error = error,
          .hard = hard,
          .mtu_bytes = mtu,
          .protocol = wire::kIpProtocolTcp,
          .source = {wire::Ipv4Address::Load(&frame[kIpAt + 12]), base::LoadBe16(&frame[kTcpAt])},
          .destination = {wire::Ipv4Address::Load(&frame[kIpAt + 16]),
                          base::LoadBe16(&frame[kTcpAt + 2])},
          .sequence = base::LoadBe32(&frame[kTcpAt + 4])};
}

class TcpPathContractTest : public TcpPairTest {
 protected:
  static constexpr size_t kTooLong = 1000;

  // From a to b only segments below kTooLong come through; the last of the others is kept.
  void NarrowThePath() {
    a->lose = [this](const std::vector<uint8_t>& frame) {
      const bool too_long = TcpPayloadOf(frame) >= kTooLong;
      if (too_long) lost_ = frame;
      return too_long;
    };
  }
  // Opens the connection, sends `bytes` over it, and does not get them through.
  void LoseOnANarrowPath(const std::string& bytes) {
    OpenConnection();
    NarrowThePath();
    EXPECT_EQ(a->Send(client, bytes), SendResult::kSent);
    Run(1'000'000);
    ASSERT_FALSE(lost_.empty());
  }
  void Complain(const ip::SocketError& error) {
    auto batch = std::make_shared<PathErrors>();
    batch->errors = {error};
    a->kernel->Complain(std::move(batch));
  }

  // A frame with what a router says that has to cut `frame` for a link of `mtu`; 0: it names none.
  void InjectTooLong(const std::vector<uint8_t>& frame, uint16_t mtu) {
    std::vector<uint8_t> message(kTcpAt + 8 + 28);
    std::copy_n(frame.begin() + 6, 6, message.begin());  // Back to its sender.
    base::StoreBe16(&message[12], 0x0800);
    const wire::IcmpErrorRepr icmp{wire::IcmpType::kDestinationUnreachable,
                                   wire::kIcmpFragmentationNeeded, mtu};
    const auto quoted = std::span(frame).subspan(kIpAt, 28);
    ASSERT_EQ(icmp.Emit(std::span(message).subspan(kTcpAt), quoted), 36u);
    const wire::Ipv4Repr ip{.source = wire::Ipv4Address(10, 0, 0, 254),
                            .destination = kA,
                            .protocol = wire::kIpProtocolIcmp,
                            .payload_bytes = 36};
    ip.Emit(std::span(message).subspan(kIpAt));
    a->queue().Inject(message);
  }

  static wire::MacAddress MacOf(int number) {
    return wire::MacAddress({2, 0, 0, 0, 0, static_cast<uint8_t>(number)});
  }
  // To a's knowledge.
  void MovePeer(int number) {
    a->kernel->tables().neighbours[0].mac = MacOf(number);
    a->kernel->Publish();
    a->Settle();
  }
  wire::MacAddress LastGoesTo() {
    return wire::MacAddress::Load(a->queue().sent().back().bytes.data());
  }

  void SetMtu(uint32_t mtu) {
    a->kernel->tables().interfaces[0].mtu = mtu;
    a->kernel->Publish();
    a->Settle();
  }

  std::vector<uint8_t> lost_;
};

TEST_F(TcpPathContractTest, SegmentsAreAsLongAsTheMtuOfTheInterfaceIsNow) {
  OpenConnection();
  size_t longest = 0;
  a->lose = [&longest](const std::vector<uint8_t>& frame) {
    longest = std::max(longest, TcpPayloadOf(frame));
    return false;
  };
  std::string bytes;
  for (const uint32_t mtu : {900u, 1500u}) {
    SetMtu(mtu);
    longest = 0;
    EXPECT_EQ(a->Send(client, std::string(2'896, 'x')), SendResult::kSent);
    Run(2'000'000);
    EXPECT_EQ(longest, mtu - 20 - 32);
    bytes += std::string(2'896, 'x');
    EXPECT_EQ(b->Bytes(server), bytes);
  }
}

TEST_F(TcpPathContractTest, WhatLeftInLongerSegmentsThanTheInterfaceTakesNowIsCutWhenItGoesAgain) {
  const std::string bytes(1400, 'x');
  ASSERT_NO_FATAL_FAILURE(LoseOnANarrowPath(bytes));
  SetMtu(900);
  Run(1'000'000'000, 1'000'000);
  EXPECT_EQ(b->Bytes(server), bytes);
}

TEST_F(TcpPathContractTest, WhatWasTooLongForTheNextHopArrivesInShorterSegments) {
  const std::string bytes(1400, 'x');
  ASSERT_NO_FATAL_FAILURE(LoseOnANarrowPath(bytes));
  EXPECT_EQ(b->Bytes(server), "");
  Complain(About(lost_, EMSGSIZE, 900));
  EXPECT_EQ(a->tcp().PathMtu(client, {kB, 1}, kA), 1500u);
  Run(2'000'000);  // Sooner than any timer.
  EXPECT_EQ(a->tcp().PathMtu(client, {kB, 1}, kA), 900u);
  EXPECT_EQ(b->Bytes(server), bytes);
  TcpReport report;
  ASSERT_TRUE(a->tcp().Report(client, &report));
  EXPECT_EQ(report.mss, 900u - 20 - 32);
  EXPECT_EQ(a->Counter("tcp", "icmp_believed"), 1u);
}

TEST_F(TcpPathContractTest, ARouterOnAWireWithoutAKernelIsBelievedToo) {
  OpenConnection();
  NarrowThePath();
  const std::string bytes(1400, 'x');
  a->Send(client, bytes);
  Run(1'000'000);
  ASSERT_FALSE(lost_.empty());
  InjectTooLong(lost_, 900);
  Run(2'000'000);
  EXPECT_EQ(b->Bytes(server), bytes);
  EXPECT_EQ(a->Counter("tcp", "icmp_believed"), 1u);
}

TEST_F(TcpPathContractTest, ARouterThatNamesNoMtuHalvesSegmentsOnceHoweverManyItDrops) {
  OpenConnection();
  std::vector<std::vector<uint8_t>> dropped;
  a->lose = [&](const std::vector<uint8_t>& frame) {
    const bool too_long = TcpPayloadOf(frame) >= kTooLong;
    if (too_long) dropped.push_back(frame);
    return too_long;
  };
  const std::string bytes(3 * 1'448, 'x');
  a->Send(client, bytes);
  Run(1'000'000);
  ASSERT_GE(dropped.size(), 3u);
  for (const std::vector<uint8_t>& frame : dropped) InjectTooLong(frame, 0);
  Run(2'000'000);
  TcpReport report;
  ASSERT_TRUE(a->tcp().Report(client, &report));
  EXPECT_EQ(report.mss, 724u);
  EXPECT_EQ(b->Bytes(server), bytes);
}

TEST_F(TcpPathContractTest, WhatIsNotOutstandingIsNotBelieved) {
  OpenConnection();
  NarrowThePath();
  a->Send(client, std::string(1400, 'x'));
  Run(1'000'000);
  ASSERT_FALSE(lost_.empty());
  ip::SocketError error = About(lost_, EMSGSIZE, 900);
  error.sequence -= 1;
  Complain(error);
  error = About(lost_, EMSGSIZE, 900);
  error.destination.port += 1;
  Complain(error);
  Run(2'000'000);
  EXPECT_EQ(b->Bytes(server), "");
  EXPECT_EQ(a->Counter("tcp", "icmp_not_outstanding"), 1u);
  EXPECT_EQ(a->Counter("tcp", "icmp_no_connection"), 1u);
}

TEST_F(TcpPathContractTest, AHardErrorEndsAConnectAndASoftOneExplainsItsTimeOut) {
  for (const bool hard : {true, false}) {
    a.reset();
    b.reset();
    Open();
    a->lose = [this](const std::vector<uint8_t>& frame) { return lost_ = frame, true; };
    client = a->Connect({kB, kPort}, {.connect_timeout = base::Milliseconds(500)});
    Run(1'000'000);
    Complain(About(lost_, EHOSTUNREACH, 0, hard));
    Run(1'000'000);
    EXPECT_EQ(a->Of(Kind::kTerminated).size(), hard ? 1u : 0u);
    Run(600'000'000, 5'000'000);
    ASSERT_EQ(a->Of(Kind::kTerminated).size(), 1u);
    EXPECT_EQ(a->Of(Kind::kTerminated)[0].status, EHOSTUNREACH);
  }
}

TEST_F(TcpPathContractTest, AConnectGoesByTheRoutesThatThereAreWhenItIsCalled) {
  OpenConnection();
  const auto error_of = [this](wire::Ipv4Address to) {
    Handle handle = 0;
    return a->tcp().Connect({.peer = {to, kPort}}, &handle).error;
  };
  EXPECT_EQ(error_of(kB), 0) << "as the one before";
  const auto routes = std::exchange(a->kernel->tables().fib, std::make_shared<host::Fib>());
  EXPECT_EQ(error_of(kB), 0) << "The ring has not heard of it.";
  a->kernel->Publish();
  a->Settle();
  EXPECT_EQ(error_of(kB), ENETUNREACH);
  a->kernel->tables().fib = routes;
  a->kernel->Publish();
  a->Settle();
  EXPECT_EQ(error_of(kA), ENETUNREACH) << "It leads nowhere but here.";
  EXPECT_EQ(error_of(kB), 0);
}

// As when the peer moved to another port, and what it had sent by the one before is looked at late.
TEST_F(TcpPathContractTest, AnAcceptedConnectionGoesWhereItsPeerIsKnownToBe) {
  constexpr wire::MacAddress kElsewhere{{2, 0, 0, 0, 0, 9}};
  const auto goes_to = [this](Handle socket) {
    EXPECT_EQ(b->Send(socket, "x"), SendResult::kSent);
    return wire::MacAddress::Load(b->queue().sent().back().bytes.data());
  };
  OpenConnection();
  a->Connect({kB, kPort});
  Carry(*a, *b);
  b->Poll();
  Carry(*b, *a);
  a->Poll();  // It acknowledges SYN.
  ASSERT_TRUE(b->Of(Kind::kAccepted).empty());
  for (host::Neighbour& neighbour : b->kernel->tables().neighbours) {
    if (neighbour.address == kA) neighbour.mac = kElsewhere;
  }
  b->kernel->Publish();
  b->Settle();
  goes_to(server);
  b->Poll();
  ASSERT_EQ(goes_to(server), kElsewhere) << "what there was has followed";
  Carry(*a, *b);
  b->Poll();
  ASSERT_EQ(b->Of(Kind::kAccepted).size(), 1u);
  EXPECT_EQ(goes_to(b->Of(Kind::kAccepted)[0].socket), kElsewhere);
}

// No poll of its own, nor a frame of the peer's, comes before: only the news of the neighbour.
TEST_F(TcpPathContractTest, WhatIsSentFirstAfterThePeerMovedGoesWhereItIs) {
  OpenConnection();
  a->lose = [](const std::vector<uint8_t>&) { return true; };
  int moves = 0;
  const auto goes_to_where_it_moved = [&](const std::function<void()>& send) {
    MovePeer(++moves + 10);
    const size_t before = a->queue().sent().size();
    send();
    ASSERT_GT(a->queue().sent().size(), before) << "move " << moves;
    for (size_t i = before; i < a->queue().sent().size(); ++i) {
      EXPECT_EQ(wire::MacAddress::Load(a->queue().sent()[i].bytes.data()), MacOf(moves + 10))
          << "move " << moves << ", frame " << i - before;
    }
  };
  const auto sends = [this](size_t bytes) {
    return [=, this] { EXPECT_EQ(a->Send(client, std::string(bytes, 'x')), SendResult::kSent); };
  };
  goes_to_where_it_moved(sends(1));
  goes_to_where_it_moved(sends(1'000));
  goes_to_where_it_moved(sends(5'000));
  goes_to_where_it_moved([this] { Run(3'000'000'000, 10'000'000); });  // It goes again.
  goes_to_where_it_moved([this] { EXPECT_TRUE(a->tcp().Abort(client).ok()); });
}

TEST_F(TcpPathContractTest, FinThatIsSentFirstAfterThePeerMovedGoesWhereItIs) {
  OpenConnection();
  MovePeer(9);
  EXPECT_TRUE(a->tcp().Shutdown(client).ok());
  EXPECT_EQ(LastGoesTo(), MacOf(9));
}

TEST_F(TcpPathContractTest, CloseThatComesFirstAfterThePeerMovedGoesWhereItIs) {
  OpenConnection();
  MovePeer(9);
  EXPECT_TRUE(a->tcp().Close(client).ok());
  EXPECT_EQ(LastGoesTo(), MacOf(9));
}

// It has lost nothing and has nothing to say but what it said, which the peer did not hear.
TEST_F(TcpPathContractTest, APeerThatMovedAndSendsAgainIsAnsweredWhereItIs) {
  constexpr wire::MacAddress kElsewhere{{2, 0, 0, 0, 0, 9}};
  OpenConnection();
  a->Send(client, "x");
  const std::vector<uint8_t> again = a->queue().sent().back().bytes;
  Run(100'000'000);
  for (host::Neighbour& neighbour : b->kernel->tables().neighbours) {
    if (neighbour.address == kA) neighbour.mac = kElsewhere;
  }
  b->kernel->Publish();
  b->Settle();
  const auto answered_to = [&] {
    const size_t before = b->queue().sent().size();
    b->nic->Deliver(again, now);
    b->Poll();
    EXPECT_EQ(b->queue().sent().size(), before + 1);
    return wire::MacAddress::Load(b->queue().sent().back().bytes.data());
  };
  answered_to();
  EXPECT_EQ(answered_to(), kElsewhere);
}

TEST_F(TcpPathContractTest, AFloodThatARingDoesNotTakeIsCountedAndGone) {
  OpenConnection();
  auto batch = std::make_shared<PathErrors>();
  batch->errors.resize(10);
  batch->refusals.checksum = 3;
  for (uint32_t i = 0; i < PathErrors::kMostWaiting + 5; ++i) a->kernel->Complain(batch);
  Run(1'000'000);
  a->kernel->Complain(batch);
  Run(1'000'000);
  EXPECT_EQ(a->Counter("tcp", "icmp_no_connection"), (PathErrors::kMostWaiting + 1) * 10u);
  EXPECT_EQ(a->Counter("tcp", "icmp_lost"), 50u);
  EXPECT_EQ(a->Counter("tcp", "icmp_checksum"), (PathErrors::kMostWaiting + 1) * 3u);
}

}  // namespace
}  // namespace xtreme::engine::testing
