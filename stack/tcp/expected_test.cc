// SPDX-License-Identifier: Apache-2.0

#include "stack/tcp/expected.h"

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "stack/packet/buffer_pool.h"

namespace xtreme::tcp {
namespace {

constexpr uint32_t kOurs = 1000;    // SND.UNA at first
constexpr uint32_t kTheirs = 5000;  // RCV.NXT at first
constexpr uint32_t kBytes = 100;    // of each segment, both ways
constexpr uint32_t kStamp = 70;     // TSval of the peer at first
constexpr base::Nanoseconds kRoundTrip = base::Microseconds(40);

// An established connection and what it emits.
class Connected : private Sink {
 public:
  explicit Connected(uint16_t peer_mss = 1460) : segments_(64), store_({}) {
    using packet::BufferPool;
    pool_ = *BufferPool::Create(
        {.buffers = 64, .buffer_bytes = 2048, .hugepages = BufferPool::Hugepages::kNever});
    context_ = {.sink = this,
                .segments = &segments_,
                .reassembly = &store_,
                .buffers = pool_.get(),
                .counters = {}};
    options_.quick_acks = 0;
    options_.receive_window = 50'000;
    pcb_ = std::make_unique<Pcb>(context_, options_);
    pcb_->Establish({.iss = Seq(kOurs - 1),
                     .irs = Seq(kTheirs - 1),
                     .peer_window = 50'000,
                     .peer_mss = peer_mss,
                     .peer_window_scale = 0,
                     .sack = true,
                     .peer_timestamp = kStamp},
                    now);
  }
  ~Connected() override {
    pcb_->Abort(now);
    pcb_.reset();
    EXPECT_EQ(pool_->free_count(), pool_->capacity()) << "a buffer leaked";
  }

  Pcb& pcb() { return *pcb_; }

  void Send(uint16_t flags = 0, bool more = false) {
    const std::vector<uint8_t> bytes(kBytes);
    pcb_->Send(bytes, {.more = more, .flags = flags, .cookie = 1}, now);
  }
  // Takes the connection there by the long way or the short one, as it likes.
  void Arrive(const wire::TcpSegment& segment) {
    packet::Buffer* payload = nullptr;
    if (segment.payload_bytes != 0) {
      payload = pool_->Acquire();
      payload->length = segment.payload_bytes;
    }
    pcb_->Arrive(segment, payload, 0, now);
  }
  // From here on each segment is acknowledged at once: by the options that it has, or others.
  void AcknowledgeAtOnce(bool others) {
    other_options_ = options_;
    (others ? other_options_ : options_).quick_ack = true;
    others ? pcb_->UseOptions(other_options_) : pcb_->OnOptionsChanged(now);
  }
  // At the next deadline.
  void Expire() {
    now = pcb_->NextDeadline();
    pcb_->OnTimer(now);
  }

  base::Nanoseconds now = base::Seconds(1);
  std::vector<Outgoing> emitted;
  bool refuse = false;

 private:
  Taken Transmit(Pcb&, const Outgoing& outgoing) override {
    if (refuse) return Taken::kRefused;
    emitted.push_back(outgoing);
    emitted.back().segment = nullptr;
    return Taken::kCopied;
  }
  bool Deliver(Pcb&, packet::Buffer* chain, uint32_t, uint64_t) override {
    packet::BufferPool::ReleaseChain(chain);
    return true;
  }
  void OnEvents(Pcb& pcb) override { pcb.TakeEvents(); }
  void OnDone(Pcb&, uint64_t, bool) override {}

  PcbOptions options_;
  PcbOptions other_options_;
  SegmentPool segments_;
  ReassemblyStore store_;
  packet::BufferPool::Handle pool_;
  Context context_;
  std::unique_ptr<Pcb> pcb_;
};

// The next in order; acknowledges the first segment sent, if any was.
wire::TcpSegment Next(uint32_t acknowledgement = kOurs, uint16_t bytes = kBytes) {
  wire::TcpSegment segment;
  segment.sequence = kTheirs;
  segment.acknowledgement = acknowledgement;
  segment.window = 50'000;
  segment.payload_bytes = bytes;
  segment.flags = wire::kTcpAck | wire::kTcpPsh;
  segment.options.timestamps = wire::TcpTimestamps{.value = kStamp, .echo = 0};
  return segment;
}

struct Row {
  std::string name;
  std::function<void(Connected&)> before;  // null: nothing
  std::function<void(wire::TcpSegment&)> change;
};

wire::TcpSegment Changed(const Row& row) {
  wire::TcpSegment segment = Next();
  if (row.change) row.change(segment);
  return segment;
}

TEST(ExpectedTest, AcknowledgementAloneStaysInAWindowThatWasTakenBack) {
  for (const uint16_t window : {2 * kBytes, 2 * kBytes - 1}) {
    Connected connected;
    connected.Send();
    connected.Send();
    wire::TcpSegment segment = Next();
    segment.window = window;
    connected.Arrive(segment);
    bool placed = false;
    connected.pcb().AckAlone(connected.now, [&](const Outgoing& says) {
      EXPECT_EQ(says.sequence, Seq(kOurs + 2 * kBytes));
      return placed = true;
    });
    EXPECT_EQ(placed, window == 2 * kBytes);
  }
}

TEST(ExpectedTest, PayloadNextInOrderIsExpected) {
  Connected connected;
  EXPECT_TRUE(connected.pcb().IsExpected(Next(), /*quietly=*/true));
}

TEST(ExpectedTest, AcknowledgementOfWhatIsOutstandingIsExpectedWithPayloadOrWithout) {
  Connected connected;
  connected.Send();
  connected.Send();
  for (const uint32_t acked : {kBytes, 2 * kBytes, kBytes / 2}) {
    EXPECT_TRUE(connected.pcb().IsExpected(Next(kOurs + acked), true)) << acked;
    EXPECT_TRUE(connected.pcb().IsExpected(Next(kOurs + acked, 0), true)) << acked;
  }
}

TEST(ExpectedTest, ANewWindowIsExpected) {
  Connected connected;
  connected.Send();
  wire::TcpSegment update = Next(kOurs, 0);
  ++update.window;
  EXPECT_TRUE(connected.pcb().IsExpected(update, true));
}

TEST(ExpectedTest, SegmentThatSaysAnythingElseIsNotExpected) {
  const auto flag = [](uint8_t bit) { return [bit](wire::TcpSegment& s) { s.flags |= bit; }; };
  const Row rows[] = {
      {"FIN", nullptr, flag(wire::kTcpFin)},
      {"SYN", nullptr, flag(wire::kTcpSyn)},
      {"RST", nullptr, flag(wire::kTcpRst)},
      {"URG", nullptr, flag(wire::kTcpUrg)},
      {"without ACK", nullptr, [](wire::TcpSegment& s) { s.flags = wire::kTcpPsh; }},
      {"a byte seen before", nullptr, [](wire::TcpSegment& s) { --s.sequence; }},
      {"a byte left out", nullptr, [](wire::TcpSegment& s) { ++s.sequence; }},
      {"beyond the window", nullptr, [](wire::TcpSegment& s) { s.payload_bytes = 60'000; }},
      {"SACK", nullptr, [](wire::TcpSegment& s) { s.options.sack_count = 1; }},
      {"no timestamp", nullptr, [](wire::TcpSegment& s) { s.options.timestamps.reset(); }},
      {"an old timestamp", nullptr,
       [](wire::TcpSegment& s) { s.options.timestamps->value = kStamp - 1; }},
      {"old acknowledgement", nullptr, [](wire::TcpSegment& s) { --s.acknowledgement; }},
      {"of what was not sent", nullptr, [](wire::TcpSegment& s) { ++s.acknowledgement; }},
  };
  for (const Row& row : rows) {
    Connected connected;
    EXPECT_FALSE(connected.pcb().IsExpected(Changed(row), false)) << row.name;
  }
}

void ExpectNotExpected(std::span<const Row> rows) {
  for (const Row& row : rows) {
    Connected connected;
    row.before(connected);
    ASSERT_NE(connected.pcb().state(), State::kClosed) << row.name;
    EXPECT_FALSE(connected.pcb().IsExpected(Changed(row), false)) << row.name;
  }
}

TEST(ExpectedTest, WhileAnythingIsUnusualNothingIsExpected) {
  const Row rows[] = {
      {"we closed", [](Connected& c) { c.pcb().Shutdown(c.now); }, nullptr},
      {"bytes wait behind a hole",
       [](Connected& c) {
         wire::TcpSegment later = Next();
         later.sequence += kBytes;
         c.Arrive(later);
       },
       nullptr},
      {"FIN waits behind a hole",
       [](Connected& c) {
         wire::TcpSegment fin = Next(kOurs, 0);
         fin.sequence += kBytes;
         fin.flags |= wire::kTcpFin;
         c.Arrive(fin);
       },
       nullptr},
  };
  ExpectNotExpected(rows);
}

TEST(ExpectedTest, WhileALossIsSuspectedNothingIsExpected) {
  const Row rows[] = {
      {"the peer has something behind a loss",
       [](Connected& c) {
         c.Send();
         c.Send();
         c.now += kRoundTrip;  // Not lost yet: within the reordering window.
         wire::TcpSegment sack = Next(kOurs, 0);
         sack.options.SetSack(
             std::vector<wire::SackBlock>{{kOurs + kBytes, kOurs + 2 * kBytes}});
         c.Arrive(sack);
       },
       nullptr},
      {"a time-out, and the device is full",
       [](Connected& c) {
         c.Send();
         c.Expire();  // the probe
         c.refuse = true;
         c.Expire();
       },
       [](wire::TcpSegment& s) { s.acknowledgement += kBytes; }},
      {"nothing new, and something is outstanding", [](Connected& c) { c.Send(); },
       [](wire::TcpSegment& s) { s.payload_bytes = 0; }},
      {"sent again",
       [](Connected& c) {
         c.Send();
         c.Expire();
       },
       [](wire::TcpSegment& s) { s.acknowledgement += kBytes; }},
      {"a probe of new data",
       [](Connected& c) {
         c.Send();
         c.now += kRoundTrip;
         c.Arrive(Next(kOurs + kBytes, 0));
         c.Send();
         c.Send();
         c.Send(0, /*more=*/true);  // waits, so that the probe has something new
         c.Expire();
       },
       [](wire::TcpSegment& s) { s.acknowledgement += 2 * kBytes; }},
  };
  ExpectNotExpected(rows);
}

TEST(ExpectedTest, WhatSomebodyIsToldOfIsNotExpectedQuietly) {
  const Row rows[] = {
      {"TX_DONE is due", [](Connected& c) { c.Send(Segment::kWantDone); },
       [](wire::TcpSegment& s) { s.acknowledgement += kBytes; }},
      {"TX_SPACE may be due",
       [](Connected& c) {
         const std::vector<uint8_t> large(60'000);
         EXPECT_TRUE(IsRefused(c.pcb().Send(large, {.now_or_fail = true}, c.now)));
       },
       nullptr},
  };
  for (const Row& row : rows) {
    Connected connected;
    row.before(connected);
    EXPECT_TRUE(connected.pcb().IsExpected(Changed(row), false)) << row.name;
    EXPECT_FALSE(connected.pcb().IsExpected(Changed(row), true)) << row.name;
  }
}

// In slow start it would: there what was outstanding counts twice.
TEST(ExpectedTest, AWindowThatOneSegmentDoesNotFillDoesNotGrow) {
  constexpr uint32_t kSmss = 150;
  constexpr uint32_t kTimestampsBytes = 12;
  Connected connected(kSmss + kTimestampsBytes);
  Pcb& pcb = connected.pcb();
  const auto acknowledge = [&] {
    wire::TcpSegment all = Next(pcb.queue().nxt().value(), 0);
    all.options.timestamps->echo = connected.emitted.back().timestamps.value;
    connected.now += kRoundTrip;
    connected.Arrive(all);
  };
  const auto send = [&](uint32_t bytes) {
    pcb.Send(std::vector<uint8_t>(bytes), {}, connected.now);
    acknowledge();
  };
  for (size_t lost : {1u, 2u}) {
    connected.Send();
    while (pcb.Report(connected.now).retransmits < 2 * lost) connected.Expire();  // One is a probe.
    acknowledge();
  }
  connected.Send();
  acknowledge();
  const uint32_t window = pcb.Report(connected.now).congestion_window;
  constexpr uint32_t kLess = 120;
  ASSERT_LT(window, 2 * kLess + kSmss);
  ASSERT_GE(window, kLess + kSmss);
  for (int i = 0; i < 20; ++i) send(kLess);
  EXPECT_EQ(pcb.Report(connected.now).congestion_window, window);
}

// Segments come at the time of the poll that finds them, which may send before it looks.
TEST(ExpectedTest, ARoundTripThatEndsBeforeItBeginsIsNone) {
  for (const uint32_t segments : {1u, 2u}) {
    SCOPED_TRACE(segments);
    Connected connected;
    connected.Send();
    connected.now += kRoundTrip;
    connected.Arrive(Next(kOurs + kBytes, 0));
    const ConnectionReport before = connected.pcb().Report(connected.now);
    for (uint32_t i = 0; i < segments; ++i) connected.Send();
    connected.now -= base::Microseconds(1);
    connected.Arrive(Next(kOurs + (1 + segments) * kBytes, 0));
    const ConnectionReport after = connected.pcb().Report(connected.now);
    EXPECT_EQ(after.in_flight, 0u);
    EXPECT_EQ(after.srtt, before.srtt);
    EXPECT_EQ(after.rto, before.rto);
  }
}

TEST(ExpectedTest, OptionsThatChangeHoldForTheNextSegment) {
  for (const bool others : {false, true}) {
    Connected connected;
    connected.Arrive(Next());
    EXPECT_EQ(connected.emitted.size(), 0u) << "it is delayed";
    connected.AcknowledgeAtOnce(others);
    const size_t before = connected.emitted.size();
    wire::TcpSegment next = Next();
    next.sequence += kBytes;
    connected.Arrive(next);
    EXPECT_EQ(connected.emitted.size(), before + 1) << others;
  }
}

TEST(ExpectedTest, AnAcknowledgementThatTimeMakesDueLeavesOnceAndClosesNoShortWay) {
  Connected connected;
  connected.Arrive(Next());
  connected.Expire();
  ASSERT_EQ(connected.emitted.size(), 1u);
  EXPECT_EQ(connected.emitted[0].flags, wire::kTcpAck);
  EXPECT_EQ(connected.emitted[0].acknowledgement, Seq(kTheirs + kBytes));
  EXPECT_EQ(connected.pcb().NextDeadline(), base::kNever);
  wire::TcpSegment next = Next();
  next.sequence += kBytes;
  EXPECT_TRUE(connected.pcb().IsExpected(next, /*quietly=*/true));
}

TEST(ExpectedTest, AnAcknowledgementThatTimeMakesDueWaitsForRoom) {
  Connected connected;
  connected.Arrive(Next());
  connected.refuse = true;
  connected.Expire();
  EXPECT_EQ(connected.pcb().NextDeadline(), base::kNever) << "for room, not for time";
  connected.refuse = false;
  connected.pcb().OnRoom(connected.now);
  ASSERT_EQ(connected.emitted.size(), 1u);
  EXPECT_EQ(connected.emitted[0].acknowledgement, Seq(kTheirs + kBytes));
}

// URG changes nothing (RFC 6093), and keeps a segment from the short way.
void ArriveNextInOrder(Connected& connected, uint16_t bytes, bool the_long_way) {
  const Pcb& pcb = connected.pcb();
  wire::TcpSegment segment = Next(pcb.queue().nxt().value(), bytes);
  segment.sequence = pcb.receive_next().value();
  segment.window = 40'000;
  ++segment.options.timestamps->value;
  if (the_long_way) segment.flags |= wire::kTcpUrg;
  EXPECT_EQ(pcb.IsExpected(segment, false), !the_long_way);
  connected.Arrive(segment);
}

void ExpectTheSame(Connected& one, Connected& other) {
  Pcb& a = one.pcb();
  Pcb& b = other.pcb();
  const ConnectionReport x = a.Report(one.now);
  const ConnectionReport y = b.Report(other.now);
  EXPECT_EQ(x.srtt, y.srtt);
  EXPECT_EQ(x.rto, y.rto);
  EXPECT_EQ(x.congestion_window, y.congestion_window);
  EXPECT_EQ(x.send_window, y.send_window);
  EXPECT_EQ(x.in_flight, y.in_flight);
  EXPECT_EQ(x.unsent, y.unsent);
  EXPECT_EQ(x.owed_credit, y.owed_credit);
  EXPECT_EQ(a.receive_next(), b.receive_next());
  EXPECT_EQ(a.receive_edge(), b.receive_edge());
  EXPECT_EQ(a.recent_timestamp(), b.recent_timestamp());
  EXPECT_EQ(a.NextDeadline(), b.NextDeadline());
  EXPECT_EQ(one.emitted.size(), other.emitted.size());
}

// What was before it is lost: what fills the hole begins before it.
wire::TcpSegment BeyondAHole() {
  wire::TcpSegment segment = Next(kOurs, 0);
  segment.sequence += kBytes;
  return segment;
}

TEST(ExpectedTest, TheLongWayWouldHaveDoneTheSame) {
  const std::function<void(Connected&)> starts[] = {
      [](Connected&) {},
      [](Connected& c) { c.Send(); },
      [](Connected& c) { c.Send(Segment::kWantDone); },
      [](Connected& c) { c.Send(), c.now += kRoundTrip, c.Arrive(Next(kOurs + kBytes)), c.Send(); },
      [](Connected& c) { c.Send(), c.Send(); },
      [](Connected& c) { c.Arrive(Next()), c.Send(), c.Send(Segment::kWantDone); },
      [](Connected& c) { c.Send(0, /*more=*/true); },
      [](Connected& c) { c.Arrive(Next(kOurs, 1460)); },
      [](Connected& c) { c.Arrive(BeyondAHole()); },
      [](Connected& c) { c.Arrive(BeyondAHole()), c.Send(); },
      [](Connected& c) { c.Arrive(BeyondAHole()), c.Send(), c.Send(); },
  };
  for (size_t i = 0; i < std::size(starts); ++i) {
    for (const uint16_t bytes : {0, 1, 1000, 1460}) {
      SCOPED_TRACE(testing::Message() << "start " << i << ", bytes " << bytes);
      Connected short_way;
      Connected long_way;
      starts[i](short_way);
      starts[i](long_way);
      short_way.now += base::Microseconds(30);
      long_way.now += base::Microseconds(30);
      ArriveNextInOrder(short_way, bytes, false);
      ArriveNextInOrder(long_way, bytes, true);
      ExpectTheSame(short_way, long_way);
    }
  }
}

}  // namespace
}  // namespace xtreme::tcp
