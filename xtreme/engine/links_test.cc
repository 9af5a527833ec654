// SPDX-License-Identifier: Apache-2.0
//
// Polls for packets in VMA's form: which packets come that way, and when there is more to be done.

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <vector>

#include "stack/packet/buffer_pool.h"
#include "stack/udp/demux.h"
#include "xtreme/completion/link_flows.h"
#include "xtreme/engine/control_thread.h"
#include "xtreme/engine/ring_core.h"
#include "xtreme/engine/testing/ring_fixture.h"

namespace xtreme::engine::testing {
namespace {

class LinksTest : public RingTest {
 protected:
  void OpenWithLinks() {
    Open();
    flows_ = std::make_unique<completion::LinkFlows>(
        completion::LinkFlows::Taker{
            .admit =
                [](void* test, const Completion& form, completion::LinkCompletion* link) {
                  *link = {.links = 1, .user_data = form.socket};
                  return static_cast<LinksTest*>(test)->admits_;
                },
            .tell_time =
                [](void* test) {
                  static_cast<LinksTest*>(test)->flows_->SetTime({.good_for_ticks = ~uint64_t{0}});
                },
            .context = this},
        ring->udp().demux().changes_counter());
    ring->core().SetLinks(flows_.get());
  }
  Ring::Linked Poll(uint32_t most = 8) {
    const Ring::Linked linked = ring->PollLinks(out_.data(), most);
    for (uint32_t i = 0; i < linked.count; ++i) {
      packet::BufferPool::ReleaseByOwner(out_[i].first);
    }
    return linked;
  }
  // The first packet of a flow teaches it.
  void Learn(const FrameFields& fields = {}) {
    ASSERT_TRUE(Inject(fields));
    const Ring::Linked linked = Poll();
    EXPECT_EQ(linked.count, 0u);
    EXPECT_TRUE(linked.rest);
    const auto got = PollAll();
    EXPECT_EQ(got.size(), 1u);
    Release(got);
  }

  bool admits_ = true;
  std::unique_ptr<completion::LinkFlows> flows_;
  std::array<completion::LinkCompletion, 8> out_;
};

TEST_F(LinksTest, AFlowThatIsKnownIsWrittenAsLinksAndNothingIsLeft) {
  OpenWithLinks();
  const Handle socket = OpenSocket({.local = {kOwn, 7000}});
  Learn();
  ASSERT_TRUE(queue().Inject(MakeFrame({.payload = "hello"}), 0, 4'000));
  ASSERT_TRUE(queue().Inject(MakeFrame({.payload = "you"}), 0, 4'100));
  const Ring::Linked linked = ring->PollLinks(out_.data(), 8);
  ASSERT_EQ(linked.count, 2u);
  EXPECT_FALSE(linked.rest);
  EXPECT_EQ(out_[0].user_data, socket);
  EXPECT_EQ(out_[0].length, 5u);
  EXPECT_EQ(out_[0].nanoseconds, 4'000);
  EXPECT_EQ(out_[1].length, 3u);
  EXPECT_EQ(out_[1].nanoseconds, 4'100);
  const packet::Buffer& first = *out_[0].first;
  EXPECT_EQ(std::string(first.data, first.data + first.length), "hello");
  EXPECT_EQ(first.next, nullptr);
  for (const int i : {0, 1}) EXPECT_TRUE(packet::BufferPool::ReleaseByOwner(out_[i].first));
  EXPECT_EQ(Counter("ring", "packets"), 3u);
  EXPECT_TRUE(PollAll().empty());
}

TEST_F(LinksTest, WhatIsOfNoFlowOrNotAdmittedIsThePollsInItsPlace) {
  OpenWithLinks();
  OpenSocket({.local = {kOwn, 7000}});
  const Handle other = OpenSocket({.local = {kOwn, 7001}});
  Learn();
  const FrameFields elsewhere{.destination = {kOwn, 7001}};
  admits_ = false;
  for (const FrameFields& fields : {FrameFields{}, elsewhere, FrameFields{}, elsewhere}) {
    ASSERT_TRUE(Inject(fields));
  }
  Ring::Linked linked = Poll();
  EXPECT_EQ(linked.count, 1u);
  EXPECT_TRUE(linked.rest);
  auto got = PollAll();
  ASSERT_EQ(got.size(), 3u);
  EXPECT_EQ(got[0].socket, other);
  Release(got);
  ASSERT_TRUE(Inject(elsewhere));
  linked = Poll();
  EXPECT_EQ(linked.count, 0u);
  EXPECT_TRUE(linked.rest);
  got = PollAll();
  ASSERT_EQ(got.size(), 1u);
  Release(got);
}

TEST_F(LinksTest, FullBatchIsAllThatOnePollTakes) {
  options.poll_batch = 4;
  OpenWithLinks();
  OpenSocket({.local = {kOwn, 7000}});
  Learn();
  for (int i = 0; i < 6; ++i) ASSERT_TRUE(Inject({}));
  Ring::Linked linked = Poll();
  EXPECT_EQ(linked.count, 4u);
  EXPECT_FALSE(linked.rest) << "the next poll's";
  linked = Poll(1);
  EXPECT_EQ(linked.count, 1u);
  EXPECT_FALSE(linked.rest);
  linked = Poll();
  EXPECT_EQ(linked.count, 1u);
}

TEST_F(LinksTest, WhateverElseWaitsIsThePolls) {
  OpenWithLinks();
  OpenSocket({.local = {kOwn, 7000}});
  Learn();
  EXPECT_FALSE(Poll().rest) << "nothing is there";
  ring->StartTimer(base::Nanoseconds(now + 1'000), 7);
  EXPECT_TRUE(Poll().rest) << "a timer";
  ASSERT_TRUE(Inject({}));
  Ring::Linked linked = Poll();
  EXPECT_EQ(linked.count, 1u) << "it is not due";
  now += 2'000;
  ASSERT_TRUE(Inject({}));
  linked = Poll();
  EXPECT_EQ(linked.count, 0u) << "it is due";
  EXPECT_TRUE(linked.rest);
  const auto got = PollAll();
  ASSERT_EQ(got.size(), 2u);
  EXPECT_EQ(got[1].kind, Kind::kTimer);
  Release(got);
}

TEST_F(LinksTest, AFlowGoesToWhoeverItsSocketIsNow) {
  OpenWithLinks();
  const Handle first = OpenSocket({.local = {kOwn, 7000}});
  Learn();
  ASSERT_TRUE(ring->udp().Close(first, /*detach=*/true).ok());
  const Handle second = OpenSocket({.local = {kOwn, 7000}});
  Learn();
  ASSERT_TRUE(Inject({}));
  EXPECT_EQ(Poll().count, 1u);
  EXPECT_EQ(out_[0].user_data, second);
}

}  // namespace
}  // namespace xtreme::engine::testing
