// SPDX-License-Identifier: Apache-2.0
//
// xtreme.h: every result of a send, and what is told of it afterwards.

#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "tests/api/api_fixture.h"

namespace xtreme::api_test {
namespace {

class SendsTest : public ApiTest {
 protected:
  int Send(xtreme_socket socket, std::string_view bytes, uint32_t flags = 0, uint64_t cookie = 0) {
    const xtreme_send_options options = {flags, 0, cookie};
    return xtreme_send(socket, bytes.data(), bytes.size(), &options);
  }
  int SendTo(xtreme_socket socket, const char* peer, std::string_view bytes, uint32_t flags = 0) {
    const xtreme_send_options options = {flags, 0, 0};
    const xtreme_address to = Address(peer);
    return xtreme_send_to(socket, &to, bytes.data(), bytes.size(), &options);
  }
};

TEST_F(SendsTest, ASendToAKnownNeighbourIsSent) {
  const xtreme_ring ring = OpenRing();
  const xtreme_socket socket = OpenSocket(ring, ":9000");
  EXPECT_EQ(SendTo(socket, "10.1.0.2:5000", "to"), XTREME_SENT);
  Connect(ring, socket, "10.1.0.2:5000");
  EXPECT_EQ(xtreme_would_send(socket, 100), XTREME_SENT);
  EXPECT_EQ(xtreme_send(socket, "plain", 5, nullptr), XTREME_SENT);
  EXPECT_EQ(Send(socket, "warm", XTREME_WARM), XTREME_SENT);
  EXPECT_EQ(Sent(), (std::vector<std::string>{"to", "plain"}));
}

// A device knows the memory of its own ring only: a frame that referred to another's would stop the
// queue.
TEST_F(SendsTest, ABufferOfAnotherRingIsCopiedAndItsReferenceTaken) {
  const xtreme_ring ring = OpenRing("xt0"), other = OpenRing("xt1");
  const xtreme_socket socket = OpenSocket(ring, "10.1.0.1:9000");
  OpenSocket(other, "10.2.0.1:9000");
  Connect(ring, socket, "10.1.0.2:5000");
  const std::string text(1'000, 'q');
  Inject(9000, text, 1);
  const xtreme_completion packet = Await(other, XTREME_PACKET);
  const auto send = [&](const xtreme_address* peer, size_t length) {
    return xtreme_send_buffer(socket, peer, packet.buffer, packet.data, length, nullptr);
  };
  EXPECT_EQ(send(nullptr, 70'000), XTREME_REFUSED_SIZE);
  EXPECT_EQ(Text(packet), text) << "refused, it is the caller's";
  xtreme_buffer_ref(packet.buffer);
  EXPECT_EQ(send(nullptr, packet.length), XTREME_SENT);
  const xtreme_address peer = Address("10.1.0.2:5001");
  const uint64_t free = Counter(other, "pool", "free");
  EXPECT_EQ(send(&peer, packet.length), XTREME_SENT);
  EXPECT_EQ(Counter(other, "pool", "free"), free + 1);
  EXPECT_EQ(Sent(), (std::vector<std::string>{text, text}));
  EXPECT_EQ(xtreme_send(socket, "works", 5, nullptr), XTREME_SENT);
  EXPECT_EQ(Sent(), std::vector<std::string>{"works"});
}

TEST_F(SendsTest, WhatACallToldHasTheTimeOfAPollToo) {
  const xtreme_ring ring = OpenRing();
  const xtreme_socket socket = OpenSocket(ring, ":9000");
  const xtreme_address peer = Address("10.1.0.2:5000");
  ASSERT_EQ(xtreme_udp_connect(socket, &peer, 5), 0);
  EXPECT_NE(Await(ring, XTREME_OP_DONE).poll_tsc, 0u);
}

TEST_F(SendsTest, WithoutADoorbellNothingLeavesUntilTheFlush) {
  const xtreme_ring ring = OpenRing();
  const xtreme_socket socket = OpenSocket(ring, ":9000");
  EXPECT_EQ(SendTo(socket, "10.1.0.2:5000", "held", XTREME_NO_DOORBELL), XTREME_SENT);
  EXPECT_TRUE(Sent().empty());
  EXPECT_EQ(xtreme_ring_flush(ring), 0);
  EXPECT_EQ(Sent(), std::vector<std::string>{"held"});
}

TEST_F(SendsTest, ASendThatIsWatchedTellsWhenItLeftAndThatItIsDone) {
  const xtreme_ring ring = OpenRing();
  const xtreme_socket socket = OpenSocket(ring, ":9000");
  Connect(ring, socket, "10.1.0.2:5000");
  ASSERT_EQ(Send(socket, "x", XTREME_WANT_WIRE | XTREME_WANT_DONE, 31), XTREME_SENT);
  const xtreme_completion wire = Await(ring, XTREME_TX_WIRE);
  EXPECT_EQ(wire.cookie, 31u);
  EXPECT_NE(wire.hw_clock, 0u);
  const xtreme_completion done = Await(ring, XTREME_TX_DONE);
  EXPECT_EQ(done.cookie, 31u);
  EXPECT_EQ(done.socket.value, socket.value);
}

TEST_F(SendsTest, AnUnknownNeighbourQueuesAndIsRefusedWhenItMustBeNow) {
  xtreme_ring_options options = Options("xt0");
  options.neighbour_queue = 1;
  const xtreme_ring ring = OpenRing(options);
  const xtreme_socket socket = OpenSocket(ring, ":9000");
  EXPECT_EQ(SendTo(socket, "10.1.0.77:5000", "now", XTREME_NOW_OR_FAIL), XTREME_REFUSED_NEIGHBOUR);
  EXPECT_EQ(SendTo(socket, "10.1.0.77:5000", "queued"), XTREME_QUEUED);
  EXPECT_EQ(SendTo(socket, "10.1.0.77:5000", "one more"), XTREME_REFUSED_NEIGHBOUR);
  EXPECT_EQ(Counter(ring, "ring", "refused_neighbour"), 2u);
}

TEST_F(SendsTest, NoRouteAndNoPermissionToBroadcastAreRefused) {
  const xtreme_ring ring = OpenRing();
  const xtreme_socket socket = OpenSocket(ring, ":9000");
  EXPECT_EQ(SendTo(socket, "10.77.0.1:5000", "x"), XTREME_REFUSED_ROUTE);
  EXPECT_EQ(SendTo(socket, "10.1.0.255:5000", "x"), XTREME_REFUSED_ROUTE);
  EXPECT_EQ(Counter(ring, "ring", "refused_route"), 2u);
  xtreme_udp_options allowed = UdpOptions(":9001");
  allowed.broadcast = 1;
  EXPECT_EQ(SendTo(OpenSocket(ring, allowed), "10.1.0.255:5000", "all"), XTREME_SENT);
  EXPECT_EQ(Sent(), std::vector<std::string>{"all"});
}

TEST_F(SendsTest, ManyDatagramsLeaveInOrderOnOneDoorbell) {
  const xtreme_ring ring = OpenRing();
  const xtreme_socket socket = OpenSocket(ring, ":9000");
  const std::string large(1'400, 'l');
  const std::vector<xtreme_bytes> datagrams = {
      {"one", 3, 0}, {"two", 3, 0}, {large.data(), 1'400, 0}, {"four", 4, 0}};
  int last = 0;
  EXPECT_EQ(xtreme_send_many(socket, datagrams.data(), 4, 0, &last), 0);
  EXPECT_EQ(last, XTREME_REFUSED_STATE);  // Not connected.
  Connect(ring, socket, "10.1.0.2:5000");
  EXPECT_EQ(xtreme_send_many(socket, datagrams.data(), 4, 0, &last), 4);
  EXPECT_EQ(last, XTREME_SENT);
  EXPECT_EQ(Sent(), (std::vector<std::string>{"one", "two", large, "four"}));
  EXPECT_EQ(xtreme_send_many(socket, datagrams.data(), 2, XTREME_NO_DOORBELL, &last), 2);
  EXPECT_TRUE(Sent().empty());
  EXPECT_EQ(xtreme_ring_flush(ring), 0);
  EXPECT_EQ(Sent(), (std::vector<std::string>{"one", "two"}));
  EXPECT_EQ(xtreme_send_many(socket, datagrams.data(), 0, 0, &last), 0);
  EXPECT_EQ(last, XTREME_SENT);
  EXPECT_EQ(xtreme_send_many(socket, datagrams.data(), 1, XTREME_WANT_DONE, &last), -EINVAL);
}

TEST_F(SendsTest, ManyDatagramsStopAtTheFirstThatIsRefused) {
  xtreme_ring_options options = Options("xt0");
  options.tx_queue_frames = 64;
  const xtreme_ring ring = OpenRing(options);
  const xtreme_socket socket = OpenSocket(ring, ":9000");
  Connect(ring, socket, "10.1.0.2:5000");
  const std::vector<xtreme_bytes> datagrams(500, xtreme_bytes{"x", 1, 0});
  int last = 0;
  const int sent = xtreme_send_many(socket, datagrams.data(), 500, 0, &last);
  EXPECT_GE(sent, 60);
  EXPECT_LT(sent, 500);
  EXPECT_EQ(last, XTREME_REFUSED_SQ_FULL);
  EXPECT_EQ(Sent().size(), static_cast<size_t>(sent));
}

TEST_F(SendsTest, WhatIsLongerThanADatagramIsRefused) {
  const xtreme_ring ring = OpenRing();
  const xtreme_socket socket = OpenSocket(ring, ":9000");
  const std::string most(65'507, 'm');
  EXPECT_EQ(SendTo(socket, "10.1.0.2:5000", most + "x"), XTREME_REFUSED_SIZE);
  EXPECT_EQ(SendTo(socket, "10.1.0.2:5000", most), XTREME_SENT);
  Connect(ring, socket, "10.1.0.2:5000");
  EXPECT_EQ(xtreme_would_send(socket, 65'508), XTREME_REFUSED_SIZE);
}

TEST_F(SendsTest, AFullSendQueueIsRefused) {
  xtreme_ring_options options = Options("xt0");
  options.tx_queue_frames = 64;
  options.signal_every = 256;  // Of such a queue it is sooner, or there would be no room again.
  const xtreme_ring ring = OpenRing(options);
  const xtreme_socket socket = OpenSocket(ring, ":9000");
  Connect(ring, socket, "10.1.0.2:5000");
  int sent = 0;
  while (sent < 10'000 && Send(socket, "x") == XTREME_SENT) ++sent;
  EXPECT_GE(sent, 64);
  EXPECT_EQ(Send(socket, "x"), XTREME_REFUSED_SQ_FULL);
  EXPECT_EQ(xtreme_would_send(socket, 1), XTREME_REFUSED_SQ_FULL);
  Sent();
  EXPECT_EQ(Send(socket, "x"), XTREME_SENT);
}

TEST_F(SendsTest, WithoutABufferWhatIsNotInlineIsRefused) {
  const xtreme_ring ring = OpenRing();
  const xtreme_socket socket = OpenSocket(ring, ":9000");
  Connect(ring, socket, "10.1.0.2:5000");
  std::vector<xtreme_buffer*> held;
  xtreme_buffer* buffer;
  uint8_t* data;
  uint32_t capacity;
  while (xtreme_buffer_acquire(ring, &buffer, &data, &capacity) == 0) held.push_back(buffer);
  const std::string large(1'400, 'l');
  EXPECT_EQ(Send(socket, large), XTREME_REFUSED_BUFFERS);
  EXPECT_EQ(xtreme_would_send(socket, large.size()), XTREME_REFUSED_BUFFERS);
  for (xtreme_buffer* each : held) xtreme_buffer_release(each);
  EXPECT_EQ(Send(socket, large), XTREME_SENT);
}

TEST_F(SendsTest, TheWrongStateIsRefused) {
  const xtreme_ring ring = OpenRing("xt0", /*start=*/false);
  const xtreme_socket socket = OpenSocket(ring, ":9000");
  EXPECT_EQ(Send(socket, "not connected"), XTREME_REFUSED_STATE);
  EXPECT_EQ(SendTo(socket, "10.1.0.2:5000", "not started"), XTREME_REFUSED_STATE);
  ASSERT_EQ(xtreme_ring_start(ring), 0);
  EXPECT_EQ(SendTo(socket, "10.1.0.2:5000", "started"), XTREME_SENT);
  ASSERT_EQ(xtreme_socket_close(socket, XTREME_DETACH), 0);
  EXPECT_EQ(Send(socket, "closed"), XTREME_REFUSED_STATE);
  EXPECT_EQ(SendTo(socket, "10.1.0.2:5000", "closed"), XTREME_REFUSED_STATE);
  EXPECT_EQ(xtreme_would_send(socket, 1), XTREME_REFUSED_STATE);
  EXPECT_EQ(xtreme_send_buffer(socket, nullptr, nullptr, "x", 1, nullptr), XTREME_REFUSED_STATE);
  EXPECT_EQ(Counter(ring, "ring", "refused_state"), 5u) << "who only asks is not refused";
}

TEST_F(SendsTest, ABufferIsTakenOverWhenSentAndNotWhenRefused) {
  const xtreme_ring ring = OpenRing();
  const xtreme_socket socket = OpenSocket(ring, ":9000");
  xtreme_buffer* buffer;
  uint8_t* data;
  uint32_t capacity;
  const uint64_t free = Counter(ring, "pool", "free");
  ASSERT_EQ(xtreme_buffer_acquire(ring, &buffer, &data, &capacity), 0);
  ASSERT_GE(capacity, 1'472u);
  memcpy(data, "in place", 8);
  const xtreme_address nowhere = Address("10.77.0.1:5000");
  const xtreme_address peer = Address("10.1.0.2:5000");
  EXPECT_EQ(xtreme_send_buffer(socket, &nowhere, buffer, data, 8, nullptr), XTREME_REFUSED_ROUTE);
  EXPECT_EQ(Counter(ring, "pool", "free"), free - 1);
  const xtreme_send_options watched = {XTREME_WANT_DONE, 0, 1};
  EXPECT_EQ(xtreme_send_buffer(socket, &peer, buffer, data, 8, &watched), XTREME_SENT);
  EXPECT_EQ(Sent(), std::vector<std::string>{"in place"});
  Await(ring, XTREME_TX_DONE);
  EXPECT_EQ(Counter(ring, "pool", "free"), free);
}

}  // namespace
}  // namespace xtreme::api_test
