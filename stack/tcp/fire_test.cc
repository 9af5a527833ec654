// SPDX-License-Identifier: Apache-2.0

#include "stack/tcp/fire.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "stack/packet/buffer_pool.h"

namespace xtreme::tcp {
namespace {

constexpr uint32_t kBytes = 100;
constexpr uint32_t kWindow = 20'000;  // the peer's: more than the congestion window at first

// A connection that just came to be, and what it emits.
class Sender : private Sink {
 public:
  explicit Sender(uint32_t segments = 64, const PcbOptions& options = {})
      : options_(options), segments_(segments), store_({}) {
    using packet::BufferPool;
    pool_ = *BufferPool::Create(
        {.buffers = 64, .buffer_bytes = 2048, .hugepages = BufferPool::Hugepages::kNever});
    context_ = {.sink = this,
                .segments = &segments_,
                .reassembly = &store_,
                .buffers = pool_.get(),
                .counters = {}};
    pcb_ = std::make_unique<Pcb>(context_, options_);
    pcb_->Establish({.iss = Seq(999),
                     .irs = Seq(4999),
                     .peer_window = kWindow,
                     .peer_mss = 1460,
                     .peer_window_scale = 0,
                     .sack = true,
                     .peer_timestamp = 70},
                    now);
  }
  ~Sender() override {
    pcb_->Abort(now);
    pcb_.reset();
    EXPECT_EQ(pool_->free_count(), pool_->capacity()) << "a buffer leaked";
    EXPECT_EQ(segments_.free_count(), segments_.capacity()) << "a segment leaked";
  }

  Pcb& pcb() { return *pcb_; }
  const PcbCounters& counters() const { return context_.counters; }

  SendResult Send(uint32_t bytes = kBytes, const Pcb::SendOptions& options = {}) {
    return pcb_->Send(std::vector<uint8_t>(bytes), options, now);
  }
  // Whether it might, and did.
  bool Fire(uint32_t bytes = kBytes, bool now_or_fail = true) {
    Outgoing outgoing;
    if (!pcb_->MayFire(bytes, now_or_fail, now, &outgoing)) return false;
    packet::Buffer* const kept = pool_->Acquire();
    kept->length = bytes;
    pcb_->Fired(outgoing,
                {.bytes = kept->data, .length = bytes, .buffer = kept, .flags = Segment::kPush},
                /*posts_reference=*/false, now);
    emitted.push_back(outgoing);
    return true;
  }
  // An acknowledgement of everything, or of the first `bytes`; the window stays.
  void Acknowledge(uint32_t bytes = 0, const std::vector<wire::SackBlock>& blocks = {}) {
    wire::TcpSegment segment;
    segment.sequence = pcb_->receive_next().value();
    segment.acknowledgement =
        (bytes == 0 ? pcb_->send_next() : pcb_->queue().una() + bytes).value();
    segment.window = kWindow;
    segment.flags = wire::kTcpAck;
    segment.options.timestamps = wire::TcpTimestamps{.value = 70, .echo = 0};
    if (!blocks.empty()) segment.acknowledgement = pcb_->queue().una().value();
    segment.options.SetSack(blocks);
    pcb_->Arrive(segment, nullptr, 0, now);
  }
  // Payload from the peer, `ahead` of what is next.
  void Receive(uint32_t ahead) {
    wire::TcpSegment segment;
    segment.sequence = pcb_->receive_next().value() + ahead;
    segment.acknowledgement = pcb_->send_next().value();
    segment.window = kWindow;
    segment.payload_bytes = kBytes;
    segment.flags = wire::kTcpAck;
    segment.options.timestamps = wire::TcpTimestamps{.value = 70, .echo = 0};
    packet::Buffer* const payload = pool_->Acquire();
    payload->length = kBytes;
    pcb_->Arrive(segment, payload, 0, now);
  }

  base::Nanoseconds now = base::Seconds(1);
  std::vector<Outgoing> emitted;
  bool refuse = false;

 private:
  Taken Transmit(Pcb&, const Outgoing& outgoing) override {
    if (refuse) return Taken::kRefused;
    emitted.push_back(outgoing);
    return Taken::kCopied;
  }
  bool Deliver(Pcb&, packet::Buffer* chain, uint32_t, uint64_t) override {
    packet::BufferPool::ReleaseChain(chain);
    return true;
  }
  void OnEvents(Pcb& pcb) override { pcb.TakeEvents(); }
  void OnDone(Pcb&, uint64_t, bool) override {}

  PcbOptions options_;
  SegmentPool segments_;
  ReassemblyStore store_;
  packet::BufferPool::Handle pool_;
  Context context_;
  std::unique_ptr<Pcb> pcb_;
};

TEST(FireTest, WhatCouldNotLeaveAtOnceMayNotFire) {
  struct Row {
    std::string name;
    std::function<void(Sender&)> before;
    uint32_t bytes = kBytes;
  };
  const Row rows[] = {
      {"we closed", [](Sender& s) { s.pcb().Shutdown(s.now); }},
      {"something waits", [](Sender& s) { s.Send(kBytes, {.more = true}); }},
      {"the device was full",
       [](Sender& s) {
         s.refuse = true;
         s.Send();
       }},
      {"longer than a segment", [](Sender&) {}, 1461},
      {"beyond the congestion window",
       [](Sender& s) {
         for (int i = 0; i < 10; ++i) EXPECT_TRUE(s.Fire(1400));
       },
       1400},
      {"somebody waits to send",
       [](Sender& s) { s.Send(2 * kWindow, {.now_or_fail = true}); }},
      {"a hole is to be told of", [](Sender& s) { s.Receive(1); }},
      {"a loss is being repaired",
       [](Sender& s) {
         for (int i = 0; i < 5; ++i) s.Fire();
         s.now += base::Milliseconds(1);
         const uint32_t una = s.pcb().queue().una().value();
         s.Acknowledge(0, {{una + 2 * kBytes, una + 5 * kBytes}});
       }},
  };
  for (const Row& row : rows) {
    Sender sender;
    row.before(sender);
    Outgoing outgoing;
    EXPECT_FALSE(sender.pcb().MayFire(row.bytes, true, sender.now, &outgoing)) << row.name;
  }
}

TEST(FireTest, NoMoreIsOutstandingThanTheSendQueueAndThePeersWindowTake) {
  PcbOptions options;
  options.send_queue = 2 * kBytes - 1;
  Sender sender(64, options);
  EXPECT_TRUE(sender.Fire());
  EXPECT_FALSE(sender.Fire());
}

TEST(FireTest, NoSegmentIsLeftMayNotFire) {
  Sender sender(/*segments=*/2);
  EXPECT_TRUE(sender.Fire());
  EXPECT_TRUE(sender.Fire());
  EXPECT_FALSE(sender.Fire());
}

TEST(FireTest, NagleKeepsWhatIsShortWhileSomethingIsOutstandingUnlessItMayNotWait) {
  PcbOptions options;
  options.nagle = true;
  Sender sender(64, options);
  EXPECT_TRUE(sender.Fire(kBytes, /*now_or_fail=*/false));
  EXPECT_FALSE(sender.Fire(kBytes, false));
  EXPECT_TRUE(sender.Fire(sender.pcb().smss(), false));
  EXPECT_TRUE(sender.Fire(kBytes, true));
}

// The twin sends, in the same situations, and is asked the same afterwards.
void ExpectTheSame(Sender& fired, Sender& sent) {
  const ConnectionReport x = fired.pcb().Report(fired.now);
  const ConnectionReport y = sent.pcb().Report(sent.now);
  EXPECT_EQ(x.in_flight, y.in_flight);
  EXPECT_EQ(x.congestion_window, y.congestion_window);
  EXPECT_EQ(x.oldest_unacknowledged, y.oldest_unacknowledged);
  EXPECT_EQ(x.rto, y.rto);
  EXPECT_EQ(fired.pcb().receive_edge(), sent.pcb().receive_edge());
  EXPECT_EQ(fired.pcb().queue().flight(), sent.pcb().queue().flight());
  EXPECT_EQ(fired.counters().segments_out, sent.counters().segments_out);
  EXPECT_EQ(fired.pcb().NextDeadline(), sent.pcb().NextDeadline());
  ASSERT_EQ(fired.emitted.size(), sent.emitted.size());
  const Outgoing& a = fired.emitted.back();
  const Outgoing& b = sent.emitted.back();
  EXPECT_EQ(a.sequence, b.sequence);
  EXPECT_EQ(a.acknowledgement, b.acknowledgement);
  EXPECT_EQ(a.window, b.window);
  EXPECT_EQ(a.flags, b.flags);
  EXPECT_EQ(a.timestamps, b.timestamps);
}

TEST(FireTest, AFiredSegmentLeavesTheConnectionAsASendDoes) {
  const std::function<void(Sender&)> starts[] = {
      [](Sender&) {},
      [](Sender& s) { s.Receive(0); },
      [](Sender& s) { s.Send(), s.now += base::Microseconds(40), s.Acknowledge(); },
      [](Sender& s) { s.Send(), s.now += base::Microseconds(40), s.Send(); },
      [](Sender& s) { s.Send(), s.Acknowledge(), s.now += base::Seconds(30); },
      [](Sender& s) {
        s.Send(), s.now += base::Microseconds(40), s.Acknowledge();
        s.Send(), s.now += base::Microseconds(10);
      },
  };
  for (size_t i = 0; i < std::size(starts); ++i) {
    SCOPED_TRACE(i);
    Sender fired;
    Sender sent;
    starts[i](fired);
    starts[i](sent);
    ASSERT_TRUE(fired.Fire());
    ASSERT_EQ(sent.Send(), SendResult::kSent);
    ExpectTheSame(fired, sent);
    fired.now = sent.now = sent.pcb().NextDeadline();
    fired.pcb().OnTimer(fired.now);
    sent.pcb().OnTimer(sent.now);
    ExpectTheSame(fired, sent);
  }
}

// The stack's timer may be set for as soon as one can be due, which is before it is worked out.
TEST(FireTest, ATimerThatComesTooSoonFindsNothingDue) {
  Sender sender;
  sender.Send();
  sender.now += base::Microseconds(40);
  sender.Acknowledge();
  ASSERT_TRUE(sender.Fire());
  const base::Nanoseconds due = sender.pcb().NextDeadline();
  const base::Nanoseconds soonest = sender.pcb().SoonestDeadline();
  ASSERT_LT(soonest, due);
  ASSERT_GT(soonest, sender.now);
  const size_t before = sender.emitted.size();
  sender.now = soonest;
  sender.pcb().OnTimer(sender.now);
  EXPECT_EQ(sender.emitted.size(), before);
  EXPECT_EQ(sender.pcb().NextDeadline(), due);
  sender.now = due;
  sender.pcb().OnTimer(sender.now);
  EXPECT_EQ(sender.emitted.size(), before + 1) << "the probe, or the segment again";
}

// With another minimum, a user's time-out and a peer that delays less, each the least in turn.
TEST(FireTest, NoTimerIsDueBeforeTheSoonest) {
  const std::function<void(PcbOptions&)> changes[] = {
      [](PcbOptions&) {},
      [](PcbOptions& o) { o.rto.min_rto = base::Microseconds(300); },
      [](PcbOptions& o) { o.user_timeout = base::Milliseconds(3); },
      [](PcbOptions& o) { o.peer_delayed_ack = base::Microseconds(10); },
      [](PcbOptions& o) { o.peer_delayed_ack = base::Seconds(5); },
  };
  for (size_t i = 0; i < std::size(changes); ++i) {
    PcbOptions options;
    changes[i](options);
    for (const bool measured : {false, true}) {
      SCOPED_TRACE(testing::Message() << "change " << i << ", measured " << measured);
      Sender sender(64, options);
      if (measured) {
        sender.Send();
        sender.now += base::Microseconds(1);
        sender.Acknowledge();
      }
      ASSERT_TRUE(sender.Fire());
      EXPECT_LE(sender.pcb().SoonestDeadline(), sender.pcb().NextDeadline());
      EXPECT_GT(sender.pcb().SoonestDeadline(), sender.now);
    }
  }
}

}  // namespace
}  // namespace xtreme::tcp
