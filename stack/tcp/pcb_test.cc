// SPDX-License-Identifier: Apache-2.0

#include "stack/tcp/pcb.h"

#include <cerrno>
#include <cstring>
#include <deque>
#include <memory>
#include <numeric>
#include <vector>

#include "gtest/gtest.h"
#include "stack/packet/buffer_pool.h"
#include "stack/wire/tcp.h"

namespace xtreme::tcp {
namespace {

struct Flying {
  wire::TcpSegment segment;
  std::vector<uint8_t> payload;
};

// One end: a connection, its memory, and what it emitted and delivered.
class End : public Sink {
 public:
  explicit End(const PcbOptions& options = {}) : options_(options), segments_(4096), store_({}) {
    using packet::BufferPool;
    auto pool = BufferPool::Create(
        {.buffers = 4096, .buffer_bytes = 2048, .hugepages = BufferPool::Hugepages::kNever});
    pool_ = *std::move(pool);
    context_.sink = this;
    context_.segments = &segments_;
    context_.reassembly = &store_;
    context_.buffers = pool_.get();
    pcb_ = std::make_unique<Pcb>(context_, options_);
  }
  ~End() override {
    if (pcb_->state() != State::kClosed) pcb_->Abort(base::Nanoseconds(0));
    pcb_.reset();
    EXPECT_EQ(pool_->free_count(), pool_->capacity()) << "a buffer leaked";
    EXPECT_EQ(segments_.free_count(), segments_.capacity()) << "a segment leaked";
  }

  Taken Transmit(Pcb&, const Outgoing& outgoing) override {
    if (refuse) return Taken::kRefused;
    Flying flying;
    flying.segment.sequence = outgoing.sequence.value();
    flying.segment.acknowledgement = outgoing.acknowledgement.value();
    flying.segment.window = outgoing.window;
    flying.segment.flags = outgoing.flags;
    if (outgoing.options != nullptr) flying.segment.options = *outgoing.options;
    if (outgoing.has_timestamps) flying.segment.options.timestamps = outgoing.timestamps;
    if (outgoing.segment != nullptr) {
      flying.payload.assign(outgoing.segment->bytes,
                            outgoing.segment->bytes + outgoing.segment->length);
      flying.segment.payload_bytes = static_cast<uint16_t>(outgoing.segment->length);
    }
    emitted.push_back(std::move(flying));
    return Taken::kCopied;
  }
  bool Deliver(Pcb&, packet::Buffer* chain, uint32_t, uint64_t) override {
    for (packet::Buffer* link = chain; link != nullptr; link = link->next) {
      received.insert(received.end(), link->data, link->data + link->length);
    }
    packet::BufferPool::ReleaseChain(chain);
    return true;
  }
  void OnEvents(Pcb& pcb) override { events |= pcb.TakeEvents(); }
  void OnDone(Pcb&, uint64_t cookie, bool cancelled) override {
    done.emplace_back(cookie, cancelled);
  }

  void Arrive(const Flying& flying, base::Nanoseconds now) {
    packet::Buffer* buffer = nullptr;
    if (!flying.payload.empty()) {
      buffer = pool_->Acquire();
      std::memcpy(buffer->data, flying.payload.data(), flying.payload.size());
      buffer->length = static_cast<uint32_t>(flying.payload.size());
    }
    pcb_->Arrive(flying.segment, buffer, 0, now);
  }

  Pcb& pcb() { return *pcb_; }
  packet::BufferPool& pool() { return *pool_; }
  const PcbCounters& counters() const { return context_.counters; }

  std::deque<Flying> emitted;
  std::vector<uint8_t> received;
  std::vector<std::pair<uint64_t, bool>> done;
  uint8_t events = 0;
  bool refuse = false;

 private:
  PcbOptions options_;
  SegmentPool segments_;
  ReassemblyStore store_;
  packet::BufferPool::Handle pool_;
  Context context_;
  std::unique_ptr<Pcb> pcb_;
};

// Two ends and a network that takes `delay_` and loses every `lose_`th segment (0: none).
class PcbTest : public testing::Test {
 protected:
  void Make(const PcbOptions& a = {}, const PcbOptions& b = {}) {
    a_ = std::make_unique<End>(a);
    b_ = std::make_unique<End>(b);
  }

  // Both open at once: the only way that needs no listener.
  void Open() {
    a_->pcb().Connect(Seq(0xFFFFFF00), now_);
    b_->pcb().Connect(Seq(5000), now_);
    RunUntil([&] { return BothAre(State::kEstablished); });
    ASSERT_TRUE(BothAre(State::kEstablished));
  }

  bool BothAre(State state) {
    return a_->pcb().state() == state && b_->pcb().state() == state;
  }

  // Moves what was emitted, or else the clock to the next deadline, until `done`.
  template <typename Done>
  void RunUntil(Done&& done) {
    for (int steps = 0; steps < 200'000 && !done(); ++steps) {
      if (Move(*a_, *b_) || Move(*b_, *a_)) continue;
      const base::Nanoseconds next =
          base::Earlier(a_->pcb().NextDeadline(), b_->pcb().NextDeadline());
      if (next == base::kNever) return;
      now_ = base::Later(now_, next);
      if (a_->pcb().NextDeadline() <= now_) a_->pcb().OnTimer(now_);
      if (b_->pcb().NextDeadline() <= now_) b_->pcb().OnTimer(now_);
    }
  }

  bool Move(End& from, End& to) {
    if (from.emitted.empty()) return false;
    const Flying flying = std::move(from.emitted.front());
    from.emitted.pop_front();
    now_ += delay_;
    if (lose_ == 0 || ++moved_ % lose_ != 0) to.Arrive(flying, now_);
    return true;
  }

  // Sends `bytes` from a to b with credit at once, and closes both; b has them all.
  void Transfer(size_t bytes) {
    std::vector<uint8_t> all(bytes);
    std::iota(all.begin(), all.end(), uint8_t{0});
    size_t sent = 0;
    RunUntil([&] {
      const size_t part = std::min<size_t>(4000, bytes - sent);
      if (part != 0 && a_->pcb().SendRoom() >= part &&
          !IsRefused(a_->pcb().Send(std::span(all).subspan(sent, part), {}, now_))) {
        sent += part;
      }
      b_->pcb().Credit(UINT32_MAX, now_);
      return b_->received.size() == bytes;
    });
    EXPECT_EQ(b_->received, all);
  }

  base::Nanoseconds now_ = base::Seconds(1);
  base::Nanoseconds delay_ = base::Microseconds(20);
  uint64_t lose_ = 0;
  uint64_t moved_ = 0;
  std::unique_ptr<End> a_;
  std::unique_ptr<End> b_;
};

TEST_F(PcbTest, SimultaneousOpenEndsEstablishedOnBothSides) {
  Make();
  Open();
  EXPECT_TRUE(a_->events & Pcb::kEstablished);
  EXPECT_TRUE(b_->events & Pcb::kEstablished);
}

TEST_F(PcbTest, BytesArriveInOrderAndWhole) {
  Make();
  Open();
  const uint64_t of_syn = a_->counters().retransmits;  // again, with the acknowledgement
  Transfer(1'000'000);
  EXPECT_EQ(a_->counters().retransmits, of_syn);
}

TEST_F(PcbTest, BytesArriveInOrderAndWholeUnderLoss) {
  for (const uint64_t lose : {5, 10, 33, 100}) {
    for (const bool sack : {true, false}) {
      SCOPED_TRACE(testing::Message() << "one in " << lose << (sack ? ", SACK" : ", no SACK"));
      Make({.sack = sack}, {.sack = sack});
      Open();
      lose_ = lose;
      Transfer(300'000);
      EXPECT_GT(a_->counters().retransmits, 0u);
    }
  }
}

TEST_F(PcbTest, OrderlyCloseEndsWithoutError) {
  Make();
  Open();
  a_->pcb().Close(now_);
  RunUntil([&] { return (b_->events & Pcb::kPeerClosed) != 0; });
  b_->pcb().Close(now_);
  RunUntil([&] { return BothAre(State::kClosed); });
  EXPECT_TRUE(BothAre(State::kClosed));
  EXPECT_EQ(a_->pcb().status(), 0);
  EXPECT_EQ(b_->pcb().status(), 0);
  EXPECT_TRUE(a_->pcb().ended_in_time_wait());
  EXPECT_FALSE(b_->pcb().ended_in_time_wait());
}

TEST_F(PcbTest, SynAndFinLeaveWhenThereIsRoomAndAgainWhenTheyAreLost) {
  Make();
  a_->refuse = true;
  a_->pcb().Connect(Seq(7), now_);
  EXPECT_TRUE(a_->emitted.empty());
  EXPECT_EQ(a_->pcb().NextDeadline(), base::kNever) << "it waits for room, not for an answer";
  a_->refuse = false;
  a_->pcb().OnRoom(now_);
  ASSERT_EQ(a_->emitted.size(), 1u);
  EXPECT_EQ(a_->emitted[0].segment.flags, wire::kTcpSyn);
  b_->pcb().Connect(Seq(5000), now_);
  RunUntil([&] { return BothAre(State::kEstablished); });
  a_->emitted.clear();
  const uint64_t of_syn = a_->counters().retransmits;
  a_->refuse = true;
  a_->pcb().Shutdown(now_);
  EXPECT_EQ(a_->pcb().state(), State::kFinWait1);
  EXPECT_TRUE(a_->emitted.empty());
  a_->refuse = false;
  a_->pcb().OnRoom(now_);
  ASSERT_EQ(a_->emitted.size(), 1u);
  EXPECT_EQ(a_->emitted[0].segment.flags, wire::kTcpFin | wire::kTcpAck);
  a_->emitted.clear();  // lost
  RunUntil([&] { return (b_->events & Pcb::kPeerClosed) != 0; });
  EXPECT_EQ(a_->counters().retransmits, of_syn + 1);
  // The other's, at once, and lost: the timer knows of it too.
  b_->emitted.clear();
  b_->pcb().Shutdown(now_);
  ASSERT_EQ(b_->emitted.size(), 1u);
  b_->emitted.clear();
  const base::Nanoseconds before = now_;
  RunUntil([&] { return BothAre(State::kClosed); });
  EXPECT_TRUE(BothAre(State::kClosed));
  EXPECT_GT(now_, before + base::Milliseconds(1));
  EXPECT_EQ(b_->pcb().status(), 0);
}

TEST_F(PcbTest, ShutdownIsInOrderThoughSendsHoldAllSegments) {
  Make();
  Open();
  const std::vector<uint8_t> byte(1);
  while (!IsRefused(a_->pcb().Send(byte, {}, now_))) {
  }
  a_->pcb().Shutdown(now_);
  EXPECT_EQ(a_->pcb().state(), State::kFinWait1);
  EXPECT_TRUE(a_->emitted.back().segment.Has(wire::kTcpFin));
}

TEST_F(PcbTest, AbortIsAResetForThePeer) {
  Make();
  Open();
  a_->pcb().Abort(now_);
  RunUntil([&] { return b_->pcb().state() == State::kClosed; });
  EXPECT_EQ(a_->pcb().status(), ECONNABORTED);
  EXPECT_EQ(b_->pcb().status(), ECONNRESET);
}

TEST_F(PcbTest, PeerThatNeverAnswersIsATimeOut) {
  Make();
  a_->pcb().Connect(Seq(1), now_);
  while (a_->pcb().state() != State::kClosed) {
    now_ = a_->pcb().NextDeadline();
    ASSERT_NE(now_, base::kNever);
    a_->pcb().OnTimer(now_);
  }
  EXPECT_EQ(a_->pcb().status(), ETIMEDOUT);
  EXPECT_EQ(now_, base::Seconds(61));
}

TEST_F(PcbTest, WindowClosesWithoutCreditAndOpensWithIt) {
  Make({}, {.receive_window = 10'000});
  Open();
  const std::vector<uint8_t> bytes(30'000);
  ASSERT_FALSE(IsRefused(a_->pcb().Send(bytes, {}, now_)));
  RunUntil([&] { return a_->counters().window_probes == 3; });
  EXPECT_EQ(b_->received.size(), 10'000u);
  b_->pcb().Credit(10'000, now_);
  RunUntil([&] { return b_->received.size() == 20'000; });
  b_->pcb().Credit(10'000, now_);
  RunUntil([&] { return b_->received.size() == bytes.size(); });
  EXPECT_EQ(b_->received.size(), bytes.size());
}

TEST_F(PcbTest, WindowClosesToSegmentsShorterThanItsScale) {
  PcbOptions b;
  b.receive_window = 4 << 20;  // told in units of 128
  b.quick_ack = true;
  Make({}, b);
  Open();
  const std::vector<uint8_t> bytes(100);
  for (int i = 0; i < 45'000; ++i) {
    a_->pcb().Send(bytes, {}, now_);
    while (Move(*a_, *b_) || Move(*b_, *a_)) {
    }
  }
  EXPECT_GT(b_->received.size(), b.receive_window - 2 * 128);
  EXPECT_LT(b_->received.size(), b.receive_window + 128);
}

TEST_F(PcbTest, SendsThatMustNotWaitAreRefusedWithTheReason) {
  Make({}, {.receive_window = 10'000});
  const std::vector<uint8_t> order(100);
  EXPECT_EQ(a_->pcb().Send(order, {.now_or_fail = true}, now_), SendResult::kState);
  Open();
  EXPECT_EQ(a_->pcb().Send(order, {.now_or_fail = true}, now_), SendResult::kSent);
  const std::vector<uint8_t> large(10'000);
  EXPECT_EQ(a_->pcb().Send(large, {.now_or_fail = true}, now_), SendResult::kWindow);
  a_->refuse = true;
  EXPECT_EQ(a_->pcb().Send(order, {}, now_), SendResult::kQueued);
  EXPECT_EQ(a_->pcb().Send(order, {.now_or_fail = true}, now_), SendResult::kDevice);
}

TEST_F(PcbTest, SpaceThatWasTakenBeforeItIsToldIsRaisedAgain) {
  Make();
  Open();
  const std::vector<uint8_t> order(100);
  a_->refuse = true;
  EXPECT_EQ(a_->pcb().Send(order, {}, now_), SendResult::kQueued);
  EXPECT_EQ(a_->pcb().Send(order, {.now_or_fail = true}, now_), SendResult::kDevice);
  a_->refuse = false;
  a_->pcb().OnRoom(now_);
  EXPECT_TRUE(a_->events & Pcb::kSendSpace);
  EXPECT_TRUE(a_->pcb().KeepsSpace());
  a_->refuse = true;
  EXPECT_EQ(a_->pcb().Send(order, {}, now_), SendResult::kQueued);
  a_->events = 0;
  EXPECT_FALSE(a_->pcb().KeepsSpace());
  EXPECT_FALSE(a_->pcb().KeepsSpace()) << "it is to come";
  a_->refuse = false;
  a_->pcb().OnRoom(now_);
  EXPECT_TRUE(a_->events & Pcb::kSendSpace);
  EXPECT_TRUE(a_->pcb().KeepsSpace());
}

TEST_F(PcbTest, SpaceForWhatIsNotCopiedWaitsForNoBuffers) {
  Make({.send_queue = 10'000});
  Open();
  const std::vector<uint8_t> memory(10'000);
  const SegmentQueue::Payload payload{.bytes = memory.data(), .length = 10'000, .memory_key = 1};
  EXPECT_FALSE(IsRefused(a_->pcb().Send(payload, {}, now_)));
  std::vector<packet::Buffer*> all;
  while (packet::Buffer* const each = a_->pool().Acquire()) all.push_back(each);
  EXPECT_EQ(a_->pcb().Send(payload, {}, now_), SendResult::kWindow);
  RunUntil([&] { return a_->pcb().SendRoom() == 10'000; });
  EXPECT_TRUE(a_->events & Pcb::kSendSpace);
  EXPECT_FALSE(IsRefused(a_->pcb().Send(payload, {}, now_)));
  // But what is copied does.
  a_->events = 0;
  EXPECT_EQ(a_->pcb().Send(std::span(memory), {}, now_), SendResult::kWindow);
  RunUntil([&] { return a_->pcb().SendRoom() == 10'000; });
  EXPECT_FALSE(a_->events & Pcb::kSendSpace);
  for (packet::Buffer* const each : all) packet::BufferPool::Release(each);
  a_->pcb().OnRoom(now_);
  EXPECT_TRUE(a_->events & Pcb::kSendSpace);
}

TEST_F(PcbTest, AmpleRoomIsToldOfWhenAThirdOfTheQueueIsFreeAndNotBefore) {
  Make({.send_queue = 30'000}, {.receive_window = 4'000});
  Open();
  const std::vector<uint8_t> bytes(25'000);
  EXPECT_FALSE(IsRefused(a_->pcb().Send(bytes, {}, now_)));
  a_->pcb().AwaitAmpleRoom();
  RunUntil([&] { return a_->pcb().SendRoom() == 9'000; });
  EXPECT_FALSE(a_->events & Pcb::kSendSpace);
  RunUntil([&] {
    b_->pcb().Credit(UINT32_MAX, now_);
    return (a_->events & Pcb::kSendSpace) != 0;
  });
  EXPECT_GT(a_->pcb().SendRoom(), 10'000u);
}

TEST_F(PcbTest, ALowWaterOfUnsentBytesBoundsWhatIsCopiedAndWhatIsAmple) {
  Make({.send_queue = 30'000, .unsent_low_water = 10'000}, {.receive_window = 1'448});
  Open();
  EXPECT_EQ(a_->pcb().CopyRoom(/*now_or_fail=*/false, now_), 10'000u);
  const auto send = [&](size_t length) {
    const std::vector<uint8_t> bytes(length);
    ASSERT_FALSE(IsRefused(a_->pcb().Send(bytes, {}, now_)));
  };
  send(1'448 + 4'999);
  ASSERT_EQ(a_->pcb().queue().unsent_bytes(), 4'999u);
  EXPECT_TRUE(a_->pcb().HasAmpleRoom());
  send(1);
  EXPECT_FALSE(a_->pcb().HasAmpleRoom()) << "half of it waits";
  EXPECT_EQ(a_->pcb().CopyRoom(/*now_or_fail=*/false, now_), 5'000u);
  send(4'999);
  EXPECT_EQ(a_->pcb().CopyRoom(/*now_or_fail=*/false, now_), a_->pcb().smss()) << "a segment more";
  send(1);
  EXPECT_EQ(a_->pcb().CopyRoom(/*now_or_fail=*/false, now_), 0u);
}

TEST_F(PcbTest, AmpleRoomIsLeftByWhatLeavesAThirdOfTheQueueWhetherItIsSentOrNot) {
  Make({.send_queue = 30'000}, {.receive_window = 4'000});
  Open();
  EXPECT_TRUE(a_->pcb().LeavesAmpleRoom(14'999)) << "less than half";
  EXPECT_TRUE(a_->pcb().LeavesAmpleRoom(19'999)) << "10,001 are left";
  EXPECT_FALSE(a_->pcb().LeavesAmpleRoom(20'000));
  EXPECT_FALSE(a_->pcb().LeavesAmpleRoom(UINT32_MAX));
  const std::vector<uint8_t> sent(1'000);
  EXPECT_EQ(a_->pcb().Send(sent, {}, now_), SendResult::kSent);
  EXPECT_TRUE(a_->pcb().LeavesAmpleRoom(18'999));
  EXPECT_FALSE(a_->pcb().LeavesAmpleRoom(19'000));
  const std::vector<uint8_t> waits(16'000);
  EXPECT_FALSE(IsRefused(a_->pcb().Send(waits, {}, now_)));
  EXPECT_GT(a_->pcb().queue().unsent_bytes(), 0u);
  EXPECT_TRUE(a_->pcb().LeavesAmpleRoom(2'999)) << "what waits is in use too";
  EXPECT_FALSE(a_->pcb().LeavesAmpleRoom(3'000));
}

TEST_F(PcbTest, DoneComesOnceWhenAcknowledgedAndCancelledWhenAborted) {
  Make();
  Open();
  const std::vector<uint8_t> order(100);
  a_->pcb().Send(order, {.flags = Segment::kWantDone, .cookie = 7}, now_);
  RunUntil([&] { return !a_->done.empty(); });
  a_->pcb().Send(order, {.flags = Segment::kWantDone, .cookie = 8}, now_);
  a_->pcb().Abort(now_);
  const std::vector<std::pair<uint64_t, bool>> expected = {{7, false}, {8, true}};
  EXPECT_EQ(a_->done, expected);
}

}  // namespace
}  // namespace xtreme::tcp
