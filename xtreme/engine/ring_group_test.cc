// SPDX-License-Identifier: Apache-2.0
//
// Groups of rings: a fair share for each, and the two lines of a feed merged by hardware time.

#include "xtreme/engine/ring_group.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "xtreme/engine/control_thread.h"
#include "xtreme/engine/testing/ring_fixture.h"

namespace xtreme::engine::testing {
namespace {

class RingGroupTest : public RingTest {
 protected:
  // A second ring, and on both a socket for the same group: the lines of a feed.
  void OpenLines() {
    Open();
    options.number = 6;
    auto opened = Ring::Open(engine.get(), options);
    ASSERT_TRUE(opened.ok()) << opened.status();
    second = *std::move(opened);
    ASSERT_TRUE(second->Start().ok());
    for (Ring* line : {ring.get(), second.get()}) {
      line->OnClock({.host = {.multiplier = 1, .in_sync = true}, .ptp = {}}, {});
    }
    lines.push_back(OpenSocket(7000));
    Handle other = 0;
    ASSERT_TRUE(second->udp().Open({.local = {{}, 7001}}, &other).ok());
    lines.push_back(other);
    Ring* const rings[] = {ring.get(), second.get()};
    auto made = RingGroup::Create(rings);
    ASSERT_TRUE(made.ok()) << made.status();
    group = *std::move(made);
    engine->control().RunAndWait([] {});
    Poll(64);
  }
  ~RingGroupTest() override {
    group.reset();
    second.reset();
  }

  void Arrive(size_t line, const std::string& payload, uint64_t hw_clock) {
    const auto port = static_cast<uint16_t>(7000 + line);
    ASSERT_TRUE(nic->queue(line)->Inject(
        MakeFrame({.destination = {kOwn, port}, .payload = payload}), 0, hw_clock));
  }
  std::vector<Completion> Poll(uint32_t max) {
    std::vector<Completion> got(max);
    got.resize(group->Poll(got.data(), max, sizeof(Completion)));
    return got;
  }
  static std::string Payloads(const std::vector<Completion>& completions) {
    std::string all;
    for (const Completion& completion : completions) {
      all += completion.kind == Kind::kPacket ? Text(completion) : "-";
    }
    Release(completions);
    return all;
  }

  std::unique_ptr<Ring> second;
  std::vector<Handle> lines;
  std::unique_ptr<RingGroup> group;
};

TEST_F(RingGroupTest, TwoLinesAreMergedByHardwareTime) {
  OpenLines();
  group->SetOrder(RingGroup::Order::kHardwareTime);
  for (const uint64_t time : {10u, 30u, 50u, 70u}) Arrive(0, std::string(1, 'A' + time / 10), time);
  for (const uint64_t time : {20u, 40u, 60u}) Arrive(1, std::string(1, 'A' + time / 10), time);
  EXPECT_EQ(Payloads(Poll(64)), "BCDEFGH");
}

TEST_F(RingGroupTest, ARingIsArmedAlsoBehindOneThatHasSomething) {
  OpenLines();
  for (const char* payload : {"a", "b", "c"}) Arrive(0, payload, 1);
  EXPECT_EQ(Payloads(Poll(1)), "a");
  EXPECT_FALSE(group->Arm());
  EXPECT_TRUE(nic->queue(1)->armed());
  EXPECT_EQ(Payloads(Poll(64)), "bc");
}

TEST_F(RingGroupTest, WithoutThatOrderTheyComeRingByRing) {
  OpenLines();
  Arrive(0, "a", 30);
  Arrive(1, "b", 20);
  Arrive(0, "c", 40);
  const std::string got = Payloads(Poll(64));
  EXPECT_TRUE(got == "acb" || got == "bac") << got;
}

TEST_F(RingGroupTest, WhatHasNoTimeStaysBehindWhatCameBeforeItOnItsRing) {
  OpenLines();
  group->SetOrder(RingGroup::Order::kHardwareTime);
  Arrive(0, "a", 10);
  Arrive(0, "untimed", 0);
  Arrive(1, "b", 5);
  Arrive(0, "c", 30);
  Arrive(1, "d", 20);
  EXPECT_EQ(Payloads(Poll(64)), "bauntimeddc");
}

TEST_F(RingGroupTest, EachRingsOwnOrderStandsEvenAgainstItsClock) {
  OpenLines();
  group->SetOrder(RingGroup::Order::kHardwareTime);
  Arrive(0, "1", 50);
  Arrive(0, "2", 40);
  Arrive(1, "x", 45);
  EXPECT_EQ(Payloads(Poll(64)), "x12");
}

TEST_F(RingGroupTest, ABusyRingLeavesAQuietOneItsShare) {
  OpenLines();
  group->SetOrder(RingGroup::Order::kHardwareTime);
  for (int i = 0; i < 40; ++i) Arrive(0, "b", 10 + i);
  Arrive(1, "q", 100);
  const auto got = Poll(8);
  ASSERT_EQ(got.size(), 8u);
  EXPECT_NE(Payloads(got).find('q'), std::string::npos);
}

TEST_F(RingGroupTest, NarrowAndWideElementsAreMergedInPlace) {
  OpenLines();
  group->SetOrder(RingGroup::Order::kHardwareTime);
  for (const size_t stride : {size_t{64}, size_t{192}}) {
    Arrive(0, "2", 20);
    Arrive(1, "1", 10);
    std::vector<uint8_t> elements(8 * stride, 0xA5);
    ASSERT_EQ(group->Poll(elements.data(), 8, stride), 2u);
    for (size_t i = 0; i < 2; ++i) {
      const auto& packet = *reinterpret_cast<const Completion*>(&elements[i * stride]);
      EXPECT_EQ(Text(packet), std::to_string(i + 1)) << stride;
      packet::BufferPool::ReleaseChain(packet.buffer);
    }
  }
}

}  // namespace
}  // namespace xtreme::engine::testing
