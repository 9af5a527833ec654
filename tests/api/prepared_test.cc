// SPDX-License-Identifier: Apache-2.0
//
// xtreme.h and xtreme.hpp: prepared sends and resets, through the driver and libmlx5.

#include <cerrno>
#include <string>
#include <thread>
#include <vector>

#include "api/xtreme.hpp"
#include "tests/api/api_fixture.h"

namespace xtreme::api_test {
namespace {

class PreparedTest : public ApiTest {
 protected:
  void SetUp() override {
    ApiTest::SetUp();
    ring_ = OpenRing();
    socket_ = OpenSocket(ring_, ":9000");
    Connect(ring_, socket_, "10.1.0.2:5000");
  }
  xtreme_prepared Prepare(std::string_view bytes) {
    xtreme_prepared prepared = {};
    EXPECT_EQ(xtreme_prepare(socket_, bytes.data(), bytes.size(), &prepared), 0)
        << xtreme_error();
    return prepared;
  }
  using Strings = std::vector<std::string>;

  xtreme_ring ring_ = {};
  xtreme_socket socket_ = {};
};

TEST_F(PreparedTest, IsFiredOncePatchedArmedAndDiscarded) {
  const xtreme_prepared order = Prepare("buy 100 at 17");
  EXPECT_EQ(xtreme_patch(order, 11, "18", 2), 0);
  EXPECT_EQ(xtreme_fire(order, nullptr), XTREME_SENT);
  EXPECT_EQ(xtreme_fire(order, nullptr), XTREME_REFUSED_STATE);
  EXPECT_EQ(xtreme_rearm(order), 0);
  EXPECT_EQ(xtreme_cancel(order), 0);
  EXPECT_EQ(xtreme_fire(order, nullptr), XTREME_REFUSED_STATE);
  EXPECT_EQ(xtreme_rearm(order), 0);
  const xtreme_send_options wire = {XTREME_WANT_WIRE, 0, 9};
  EXPECT_EQ(xtreme_fire(order, &wire), XTREME_SENT);
  EXPECT_EQ(Sent(), (Strings{"buy 100 at 18", "buy 100 at 18"}));
  const xtreme_completion left = Await(ring_, XTREME_TX_WIRE);
  EXPECT_EQ(left.cookie, 9u);
  EXPECT_NE(left.hw_clock, 0u);
  EXPECT_EQ(left.flags & XTREME_PORT_TIME, 0) << "the time of a completion";
  EXPECT_EQ(xtreme_patch(order, 12, "19", 2), -EINVAL);
  EXPECT_EQ(xtreme_discard(order), 0);
  EXPECT_EQ(xtreme_discard(order), -EBADF);
  EXPECT_EQ(xtreme_patch(order, 0, "x", 1), -EBADF);
  EXPECT_EQ(xtreme_fire(order, nullptr), XTREME_REFUSED_STATE);
  EXPECT_EQ(Counter(ring_, "ring", "refused_state"), 3u);
}

TEST_F(PreparedTest, NoBytesMayBeAtNull) {
  xtreme_prepared empty = {};
  ASSERT_EQ(xtreme_prepare(socket_, nullptr, 0, &empty), 0) << xtreme_error();
  EXPECT_EQ(xtreme_patch(empty, 0, nullptr, 0), 0);
  EXPECT_EQ(xtreme_fire(empty, nullptr), XTREME_SENT);
  EXPECT_EQ(xtreme_send(socket_, nullptr, 0, nullptr), XTREME_SENT);
  const xtreme_address peer = Address("10.1.0.2:9001");
  EXPECT_EQ(xtreme_send_to(socket_, &peer, nullptr, 0, nullptr), XTREME_SENT);
  const xtreme_bytes datagrams[] = {{"one", 3, 0}, {nullptr, 0, 0}};
  int last = 0;
  EXPECT_EQ(xtreme_send_many(socket_, datagrams, 2, 0, &last), 2);
  EXPECT_EQ(Sent(), (Strings{"", "", "", "one", ""}));
}

TEST_F(PreparedTest, AnotherThreadFiresByItsLane) {
  const xtreme_prepared order = Prepare("from elsewhere");
  xtreme_lane lane;
  ASSERT_EQ(xtreme_lane_open(ring_, &lane), 0);
  const xtreme_send_options done = {XTREME_WANT_DONE, 0, 4};
  std::thread([&] {
    EXPECT_EQ(xtreme_lane_fire(lane, order, &done), 0);
    EXPECT_EQ(xtreme_lane_fire(lane, order, nullptr), 0);
  }).join();
  EXPECT_EQ(Await(ring_, XTREME_ERROR).status, ECANCELED) << "an order leaves once";
  EXPECT_EQ(Await(ring_, XTREME_TX_DONE).cookie, 4u);
  EXPECT_EQ(Sent(), Strings{"from elsewhere"});
  EXPECT_EQ(xtreme_lane_close(lane), 0);
}

// A lane has its own use for some of them: behind such a fire nothing of it would be looked at.
TEST_F(PreparedTest, FlagsThatAreNoneDoNotStopALane) {
  const xtreme_prepared order = Prepare("order");
  xtreme_lane lane;
  ASSERT_EQ(xtreme_lane_open(ring_, &lane), 0);
  // Once round.
  for (const uint64_t posts : {4'096, 2}) {
    for (uint64_t i = 0; i < posts; ++i) ASSERT_EQ(xtreme_lane_post(lane, i), 0);
    for (uint64_t i = 0; i < posts; ++i) ASSERT_EQ(Await(ring_, XTREME_POSTED).value, i);
  }
  ASSERT_EQ(xtreme_lane_post(lane, 1), 0);
  const xtreme_send_options none = {1u << 15, 0, 0};
  ASSERT_EQ(xtreme_lane_fire(lane, order, &none), 0);
  ASSERT_EQ(xtreme_lane_post(lane, 2), 0);
  EXPECT_EQ(Await(ring_, XTREME_POSTED).value, 1u);
  EXPECT_EQ(Await(ring_, XTREME_POSTED).value, 2u);
  EXPECT_EQ(Sent(), Strings{"order"});
  EXPECT_EQ(xtreme_lane_close(lane), 0);
}

// An order that nobody asked for would leave: places and generations of two rings are alike.
TEST_F(PreparedTest, ALaneFiresForItsOwnRingOnly) {
  const xtreme_prepared order = Prepare("the ring's own");
  const xtreme_ring other = OpenRing("xt1");
  const xtreme_socket socket = OpenSocket(other, "10.2.0.1:9001");
  Connect(other, socket, "10.2.0.2:5000");
  xtreme_prepared others = {};
  ASSERT_EQ(xtreme_prepare(socket, "x", 1, &others), 0);
  xtreme_lane lane;
  ASSERT_EQ(xtreme_lane_open(ring_, &lane), 0);
  EXPECT_EQ(xtreme_lane_fire(lane, others, nullptr), -EBADF);
  EXPECT_STREQ(xtreme_error(), "fire: the prepared send is not the lane's ring's");
  EXPECT_EQ(xtreme_lane_fire(lane, {}, nullptr), -EBADF);
  xtreme_completion none;
  EXPECT_EQ(xtreme_ring_wait(ring_, &none, 1, sizeof none, 1'000'000), 0) << int{none.kind};
  EXPECT_EQ(Sent(), Strings{});
  EXPECT_EQ(xtreme_fire(order, nullptr), XTREME_SENT) << "it is armed";
  EXPECT_EQ(xtreme_lane_close(lane), 0);
}

TEST_F(PreparedTest, OfOneThatIsGoneALaneIsToldAllTheSame) {
  const xtreme_prepared order = Prepare("gone");
  xtreme_lane lane;
  ASSERT_EQ(xtreme_lane_open(ring_, &lane), 0);
  const xtreme_send_options done = {XTREME_WANT_DONE, 0, 4};
  ASSERT_EQ(xtreme_lane_fire(lane, order, &done), 0);
  ASSERT_EQ(xtreme_discard(order), 0);
  EXPECT_EQ(Await(ring_, XTREME_ERROR).status, EBADF);
  EXPECT_EQ(Counter(ring_, "ring", "refused_state"), 1u);
  const xtreme_completion end = Await(ring_, XTREME_TX_DONE);
  EXPECT_EQ(end.status, ECANCELED);
  EXPECT_EQ(end.cookie, 4u);
  EXPECT_EQ(xtreme_lane_close(lane), 0);
}

TEST_F(PreparedTest, TheCppFaceDiscardsWhatGoesOutOfScope) {
  const std::string text = "by the C++ face";
  const std::span bytes(reinterpret_cast<const uint8_t*>(text.data()), text.size());
  auto opened = Ring::Open(RingOptions::Dev("xt1").Set("rx_buffers", "1024"));
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  auto socket = opened->OpenUdp({.local = ":9000"});
  ASSERT_TRUE(socket.ok());
  EXPECT_EQ(Prepared::Make(*socket, bytes).error().code, ENOTCONN);
  ASSERT_TRUE(socket->Connect(*ParseAddress("10.2.0.2:5000")).ok());
  xtreme_prepared handle;
  {
    auto order = Prepared::Make(*socket, bytes);
    ASSERT_TRUE(order.ok()) << order.error().message;
    handle = order->handle();
    EXPECT_TRUE(order->Patch(0, bytes.first(2)).ok());
    EXPECT_TRUE(order->Cancel().ok());
    EXPECT_EQ(order->Fire(), XTREME_REFUSED_STATE);
    EXPECT_TRUE(order->Rearm().ok());
    Prepared moved = *std::move(order);
    EXPECT_EQ(xtreme_cancel(handle), 0);
  }
  EXPECT_EQ(xtreme_cancel(handle), -EBADF);
}

TEST_F(PreparedTest, AResetRingSendsReceivesAndFiresAgain) {
  const xtreme_prepared order = Prepare("order");
  const connectx::LiveObjects before = connectx_->live_objects();
  for (uint64_t lap = 1; lap <= 3; ++lap) {
    ASSERT_EQ(xtreme_ring_reset(ring_, lap), 0) << xtreme_error();
    const xtreme_completion done = Await(ring_, XTREME_OP_DONE);
    EXPECT_EQ(done.cookie, lap);
    EXPECT_EQ(done.status, 0) << (done.text == nullptr ? "" : done.text);
    connectx::LiveObjects after = connectx_->live_objects();
    // libmlx5 keeps doorbell pages for the next thread domain.
    after.uars = before.uars;
    EXPECT_EQ(after, before) << "a reset leaves nothing behind";
    EXPECT_EQ(xtreme_send(socket_, "sent", 4, nullptr), XTREME_SENT);
    EXPECT_EQ(xtreme_rearm(order), 0);
    EXPECT_EQ(xtreme_fire(order, nullptr), XTREME_SENT);
    EXPECT_EQ(Sent(), (Strings{"sent", "order"}));
    Inject(9000, "received");
    const xtreme_completion packet = Await(ring_, XTREME_PACKET);
    EXPECT_EQ(Text(packet), "received");
    xtreme_release(&packet, 1, sizeof packet);
  }
}

}  // namespace
}  // namespace xtreme::api_test
