// SPDX-License-Identifier: Apache-2.0
//
// xtreme.hpp: ownership and results over the C calls.

#include <net/if.h>

#include <cerrno>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "api/xtreme.hpp"
#include "tests/api/api_fixture.h"

namespace xtreme::api_test {
namespace {

class CppTest : public ApiTest {
 protected:
  static Ring Open() {
    RingOptions options = RingOptions::Dev("xt0").Set("rx_buffers", "1024");
    options.fields().counters_directory = "";
    auto ring = Ring::Open(options);
    EXPECT_TRUE(ring.ok()) << ring.error().message;
    Ring opened = *std::move(ring);
    EXPECT_TRUE(opened.Start().ok());
    return opened;
  }
  // Polls until there is a completion of `kind`, which `take` is given.
  template <typename Take>
  void AwaitOf(Ring* ring, Kind kind, Take take) {
    const int64_t end_ns = ring->now_ns() + kLongNs;
    while (ring->now_ns() < end_ns) {
      connectx_->Step();
      for (Completion& completion : ring->Wait(1'000'000)) {
        if (completion.kind() != kind) continue;
        take(completion);
        return;
      }
    }
    ADD_FAILURE() << "no completion of kind " << int{kind};
  }
  UdpSocket Listen(Ring* ring, const char* local) {
    auto socket = ring->OpenUdp({.local = local, .user_data = 3});
    EXPECT_TRUE(socket.ok()) << socket.error().message;
    AwaitOf(ring, kOpDone, [](Completion& done) { EXPECT_EQ(done.status, 0); });
    return *std::move(socket);
  }
};

TEST_F(CppTest, AFailureIsAResultWithItsErrnoAndSentence) {
  auto ring = Ring::Open(RingOptions::Dev("xt9"));
  ASSERT_FALSE(ring.ok());
  EXPECT_EQ(ring.error().code, ENODEV);
  EXPECT_NE(ring.error().message.find("xt9"), std::string::npos);
  auto wrong = Ring::Open(RingOptions::Dev("xt0").Set("rx_bufers", "1").Set("wait", "busy"));
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error().code, EINVAL);
  EXPECT_NE(wrong.error().message.find("rx_bufers"), std::string::npos);
  EXPECT_EQ(Ring::Open(RingOptions::Profile("fast", "xt0")).error().code, EINVAL);
  EXPECT_EQ(ParseAddress("there").error().code, EINVAL);
  EXPECT_EQ(ToString(*ParseAddress("10.1.0.2:5")), "10.1.0.2:5");
}

TEST_F(CppTest, ASettingOrAFieldMayNameAnotherInterface) {
  const auto interface_of = [](const RingOptions& options) {
    const std::string text = options.Print();
    return text.substr(0, text.find('\n'));
  };
  RingOptions options = RingOptions::Dev("xt0");
  EXPECT_EQ(interface_of(options), "interface = xt0");
  RingOptions moved = std::move(options);
  EXPECT_EQ(interface_of(moved), "interface = xt0");
  char variable[] = "XTREME_INTERFACE=xt9";
  char* environment[] = {variable, nullptr};
  moved.FromEnvironment(environment);
  EXPECT_EQ(interface_of(moved), "interface = xt9");
  EXPECT_NE(Ring::Open(moved).error().message.find("xt9"), std::string::npos);
  moved.fields().interface_name = "xt8";
  EXPECT_NE(Ring::Open(moved).error().message.find("xt8"), std::string::npos);
}

TEST_F(CppTest, ATextThatWasSetIsTheOptionsOwn) {
  std::string name = "xt1";
  RingOptions options = RingOptions::Dev("xt0").Set("backup_interface", name.c_str());
  name = "xt9";
  const RingOptions copy = options;
  options = RingOptions::Dev("xt0");
  EXPECT_NE(copy.Print().find("backup_interface = xt1\n"), std::string::npos) << copy.Print();
}

TEST_F(CppTest, APollIntoNoRoomIsNotOpened) {
  EXPECT_EQ(Ring::Open(RingOptions::Dev("xt0"), 0).error().code, EINVAL);
  Ring ring = Open();
  const Ring* const rings[] = {&ring};
  EXPECT_EQ(RingGroup::Open(rings, -1).error().code, EINVAL);
}

TEST_F(CppTest, ABurstThatNoNumberHoldsIsOutOfRange) {
  const auto ring = Ring::Open(RingOptions::Dev("xt0").RxBurstMs(4'294'968));
  ASSERT_FALSE(ring);
  EXPECT_NE(ring.error().message.find("rx_burst_us"), std::string::npos);
}

TEST_F(CppTest, AKeptChainIsThePacketsAlone) {
  uint8_t first[64] = {};
  Completion packet = {};
  packet.flags = XTREME_CHAINED;
  packet.data = first;
  packet.length = 100;
  EXPECT_TRUE(packet.bytes().empty()) << "no buffer: it was kept";
}

TEST_F(CppTest, OneSourceIsJoinedAndLeft) {
  Ring ring = Open();
  UdpSocket socket = Listen(&ring, ":9000");
  const xtreme_address group = *ParseAddress("239.1.2.3"), source = *ParseAddress("10.1.0.2");
  ASSERT_TRUE(socket.JoinSource(group, source, 1));
  EXPECT_EQ(socket.Leave(group).error().code, EADDRNOTAVAIL);
  EXPECT_TRUE(socket.LeaveSource(group, source, 2));
}

TEST_F(CppTest, WhatIsNotKeptIsReleasedWithTheNextPoll) {
  Ring ring = Open();
  UdpSocket socket = Listen(&ring, ":9000");
  Inject(9000, "gone");
  AwaitOf(&ring, kPacket, [](Completion& packet) {
    EXPECT_EQ(std::string(packet.bytes().begin(), packet.bytes().end()), "gone");
    EXPECT_EQ(ToString(packet.source()), "10.1.0.2:5000");
    EXPECT_EQ(packet.user_data, 3u);
  });
  Inject(9000, "kept");
  Packet kept;
  AwaitOf(&ring, kPacket, [&kept](Completion& packet) { kept = packet.Keep(); });
  // More than the pool has: what is not released would be missed.
  for (int i = 0; i < 1'500; ++i) {
    Inject(9000, "more");
    AwaitOf(&ring, kPacket, [](Completion&) {});
  }
  EXPECT_EQ(std::string(kept.bytes().begin(), kept.bytes().end()), "kept");
  Packet moved = std::move(kept);
  EXPECT_FALSE(kept);
  EXPECT_TRUE(moved);
}

TEST_F(CppTest, AGroupIsPolledAsARingIs) {
  Ring ring = Open();
  UdpSocket socket = Listen(&ring, ":9000");
  const Ring* const rings[] = {&ring};
  auto group = RingGroup::Open(rings);
  ASSERT_TRUE(group) << group.error().message;
  EXPECT_TRUE(group->SetOrder(XTREME_GROUP_HARDWARE_TIME));
  EXPECT_FALSE(group->SetOrder(static_cast<xtreme_group_order>(7)));
  EXPECT_GE(group->fd(), 0);
  Inject(9000, "by the group");
  connectx_->Step();
  Batch got = group->Poll();
  ASSERT_EQ(got.size(), 1u);
  const auto bytes = got.begin()->bytes();
  EXPECT_EQ(std::string(bytes.begin(), bytes.end()), "by the group");
}

#ifndef NDEBUG
TEST_F(CppTest, ABatchThatOutlivesItsPollIsCaughtInACheckedBuild) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  Ring ring = Open();
  const auto batch = ring.Poll();
  EXPECT_EQ(batch.begin(), batch.end());
  ring.Poll();
  EXPECT_DEATH(batch.begin(), "a batch was used after the next poll");
}
#endif

TEST_F(CppTest, AMovedRingKeepsItsHandleAndClosesItOnce) {
  xtreme_ring handle;
  {
    Ring first = Open();
    handle = first.handle();
    Ring second = std::move(first);
    EXPECT_EQ(second.handle().value, handle.value);
    EXPECT_GE(second.fd(), 0);
    EXPECT_FALSE(second.Describe().empty());
    EXPECT_FALSE(second.Counters().empty());
  }
  EXPECT_EQ(xtreme_ring_fd(handle), -EBADF);
}

// The first that is taken away: the one that the ring is on, or its backup.
class CppBackupTest : public CppTest, public ::testing::WithParamInterface<const char*> {
 protected:
  // Takes it away: whether the ring says that this was its end.
  bool Ends(Ring* ring, const std::string& interface) {
    const uint32_t ifindex = if_nametoindex(interface.c_str());
    EXPECT_TRUE(space_->RemoveInterface(interface).ok());
    const int64_t end_ns = ring->now_ns() + kLongNs;
    while (ring->now_ns() < end_ns) {
      connectx_->Step();
      for (const Completion& each : ring->Wait(1'000'000)) {
        const bool gone = each.kind() == kRing && each.event == XTREME_REMOVED;
        if (gone && each.interface_index == ifindex) return each.is_end_of_ring();
        EXPECT_FALSE(each.is_end_of_ring());
      }
    }
    ADD_FAILURE() << interface << " is not told to be gone";
    return false;
  }
};

TEST_P(CppBackupTest, ARingEndsWithTheLastOfItsInterfaces) {
  RingOptions options = RingOptions::Dev("xt0").Set("backup_interface", "xt1");
  options.fields().counters_directory = "";
  auto ring = Ring::Open(options);
  ASSERT_TRUE(ring.ok()) << ring.error().message;
  ASSERT_TRUE(ring->Start().ok());
  const std::string first = GetParam();
  EXPECT_FALSE(Ends(&*ring, first));
  EXPECT_TRUE(Ends(&*ring, first == "xt0" ? "xt1" : "xt0"));
}

INSTANTIATE_TEST_SUITE_P(First, CppBackupTest, ::testing::Values("xt0", "xt1"),
                         [](const auto& test) { return std::string(test.param); });

TEST_F(CppTest, OfARingThatIsGoneNothingIsTold) {
  Ring ring = Open();
  ASSERT_EQ(xtreme_ring_close(ring.handle()), 0);
  EXPECT_EQ(ring.Describe(), "");
  EXPECT_TRUE(ring.Counters().empty());
}

TEST_F(CppTest, ASocketIsClosedByItsDestructor) {
  Ring ring = Open();
  uint64_t handle = 0;
  {
    UdpSocket socket = Listen(&ring, ":9000");
    handle = socket.handle().value;
    EXPECT_EQ(socket.Local()->port, 9000);
    EXPECT_EQ(socket.Connect(*ParseAddress("10.1.0.2:0")).error().code, EINVAL);
    EXPECT_EQ(socket.Leave(*ParseAddress("239.1.2.3")).error().code, EADDRNOTAVAIL);
  }
  AwaitOf(&ring, kTerminated, [handle](Completion& last) { EXPECT_EQ(last.socket.value, handle); });
}

TEST_F(CppTest, ACloseThatIsRefusedLeavesTheSocketToItsDestructor) {
  Ring ring = Open();
  uint64_t handle = 0;
  {
    UdpSocket socket = Listen(&ring, ":9000");
    handle = socket.handle().value;
    socket.Close(XTREME_DETACH << 1);  // No flag.
    EXPECT_TRUE(socket.is_open());
  }
  AwaitOf(&ring, kTerminated, [handle](Completion& last) { EXPECT_EQ(last.socket.value, handle); });
}

TEST_F(CppTest, ASendAndATimerAreWhatTheCCallsAre) {
  Ring ring = Open();
  UdpSocket socket = Listen(&ring, ":9000");
  const uint8_t bytes[] = {'h', 'i'};
  EXPECT_EQ(socket.Send(bytes), XTREME_REFUSED_STATE);
  EXPECT_EQ(socket.SendTo(*ParseAddress("10.1.0.2:5000"), bytes, {.cookie = 4, .want_done = true}),
            XTREME_SENT);
  EXPECT_EQ(Sent(), std::vector<std::string>{"hi"});
  AwaitOf(&ring, kTxDone, [](Completion& done) { EXPECT_EQ(done.cookie, 4u); });
  auto timer = ring.StartTimer(ring.now_ns() + 1'000, 6);
  ASSERT_TRUE(timer.ok());
  AwaitOf(&ring, kTimer, [](Completion& fired) { EXPECT_EQ(fired.cookie, 6u); });
  EXPECT_FALSE(ring.Watch(-1, 1).ok());
}

TEST_F(CppTest, ABufferIsBuiltInSentAndGivenBack) {
  Ring ring = Open();
  UdpSocket socket = Listen(&ring, ":9000");
  const xtreme_address peer = *ParseAddress("10.1.0.2:5000");
  // More than the pool has: what is not given back, or sent, would be missed.
  for (int i = 0; i < 1'500; ++i) {
    auto buffer = ring.AcquireBuffer();
    ASSERT_TRUE(buffer) << buffer.error().message;
    ASSERT_GE(buffer->bytes().size(), 1'472u);
    if (i % 100 != 0) continue;
    buffer->bytes()[0] = 'x';
    Buffer moved = *std::move(buffer);
    EXPECT_FALSE(*buffer);
    Buffer shared = moved.Share();
    for (Buffer* const each : {&moved, &shared}) {
      EXPECT_EQ(socket.SendBufferTo(peer, each, each->bytes().first(1), {.want_done = true}),
                XTREME_SENT);
      EXPECT_FALSE(*each) << "its reference is the ring's";
      AwaitOf(&ring, kTxDone, [](Completion&) {});
    }
  }
  EXPECT_EQ(Sent(), std::vector<std::string>(30, "x"));
  Buffer refused = *ring.AcquireBuffer();
  EXPECT_EQ(socket.SendBuffer(&refused, refused.bytes().first(1)), XTREME_REFUSED_STATE);
  EXPECT_TRUE(refused) << "it was not sent";
}

TEST_F(CppTest, MemoryIsTheProgramsAgainWhenNothingOfItIsLeft) {
  Ring ring = Open();
  UdpSocket socket = Listen(&ring, ":9000");
  std::vector<uint8_t> memory(1'000, 'm');
  bool released = false;
  auto registered = ring.RegisterMemory(
      memory, [](void* context, void*) { *static_cast<bool*>(context) = true; }, &released, 7);
  ASSERT_TRUE(registered) << registered.error().message;
  AwaitOf(&ring, kOpDone, [](Completion& done) { EXPECT_EQ(done.cookie, 7u); });
  Buffer part = registered->Share();
  EXPECT_EQ(socket.SendBufferTo(*ParseAddress("10.1.0.2:5000"), &part, part.bytes().last(3),
                                {.want_done = true}),
            XTREME_SENT);
  EXPECT_EQ(Sent(), std::vector<std::string>{"mmm"});
  AwaitOf(&ring, kTxDone, [](Completion&) {});
  EXPECT_FALSE(released);
  registered->Release();
  const int64_t end_ns = ring.now_ns() + kLongNs;
  while (!released && ring.now_ns() < end_ns) {
    connectx_->Step();
    ring.Poll();
  }
  EXPECT_TRUE(released);
  EXPECT_EQ(ring.RegisterMemory({}).error().code, EINVAL);
}

TEST_F(CppTest, ALaneIsAnotherThreadsWayIn) {
  xtreme_lane handle = {};
  {
    Ring ring = Open();
    UdpSocket socket = Listen(&ring, ":9000");
    ASSERT_TRUE(socket.Connect(*ParseAddress("10.1.0.2:5000")));
    AwaitOf(&ring, kOpDone, [](Completion& done) { EXPECT_EQ(done.status, 0); });
    const uint8_t order[] = {'g', 'o'};
    auto prepared = Prepared::Make(socket, order);
    ASSERT_TRUE(prepared) << prepared.error().message;
    auto lane = Lane::Open(ring);
    ASSERT_TRUE(lane) << lane.error().message;
    Lane moved = *std::move(lane);
    handle = moved.handle();
    std::thread([&] {
      EXPECT_EQ(moved.Fire(prepared->handle(), {.cookie = 3, .want_done = true}), 0);
      EXPECT_EQ(moved.Post(5), 0);
    }).join();
    AwaitOf(&ring, kPosted, [](Completion& posted) { EXPECT_EQ(posted.value, 5u); });
    EXPECT_EQ(Sent(), std::vector<std::string>{"go"});
  }
  EXPECT_EQ(xtreme_lane_post(handle, 1), -EBADF);
}

TEST(TcpOptionsTest, EverySettingReachesTheCStructure) {
  const TcpOptions options{.timestamps = false,
                           .sack = true,
                           .ttl = 3,
                           .tos = 0x10,
                           .keepalive_probes = 4,
                           .retransmissions = 5,
                           .mss = 1'000,
                           .delayed_ack_ns = 6};
  const xtreme_tcp_options c = options.ToC();
  EXPECT_EQ(c.timestamps, XTREME_OFF);
  EXPECT_EQ(c.sack, XTREME_ON);
  EXPECT_EQ(c.ttl, 3);
  EXPECT_EQ(c.tos, 0x10);
  EXPECT_EQ(c.keepalive_probes, 4);
  EXPECT_EQ(c.retransmissions, 5);
  EXPECT_EQ(c.mss, 1'000);
  EXPECT_EQ(c.delayed_ack_ns, 6);
}

}  // namespace
}  // namespace xtreme::api_test
