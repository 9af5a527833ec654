// SPDX-License-Identifier: Apache-2.0

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "samples/feed/arbiter.h"
#include "samples/feed/book.h"
#include "samples/feed/handler.h"
#include "samples/feed/histogram.h"
#include "samples/feed/itch50.h"
#include "samples/feed/mold_udp64.h"

namespace feed {
namespace {

using Bytes = std::vector<uint8_t>;

const mold::Session kSession = mold::MakeSession("20261121A");

Bytes Datagram(uint64_t sequence, const std::vector<Bytes>& messages,
               const mold::Session& session = kSession) {
  mold::Builder builder(session);
  builder.Begin(sequence);
  for (const Bytes& message : messages) EXPECT_TRUE(builder.Add(message));
  const auto finished = builder.Finish();
  return {finished.begin(), finished.end()};
}

// --- MoldUDP64 ----------------------------------------------------------------------------------

TEST(MoldUdp64Test, GoldenBytesOfADatagramWithTwoMessages) {
  const Bytes expected = {'2', '0', '2', '6', '1', '1', '2', '1', 'A', ' ',  // Session.
                          0, 0, 0, 0, 0, 0, 1, 2,                            // Sequence 258.
                          0, 2,                                              // Count.
                          0, 1, 'x', 0, 2, 'y', 'z'};
  EXPECT_EQ(Datagram(258, {{'x'}, {'y', 'z'}}), expected);
  const mold::Packet packet = mold::Parse(expected);
  ASSERT_TRUE(packet.ok());
  std::vector<std::pair<uint64_t, std::string>> messages;
  packet.ForEach([&](uint64_t sequence, std::span<const uint8_t> message) {
    messages.emplace_back(sequence, std::string(message.begin(), message.end()));
  });
  EXPECT_EQ(messages, (std::vector<std::pair<uint64_t, std::string>>{{258, "x"}, {259, "yz"}}));
}

TEST(MoldUdp64Test, EveryTruncationIsRefusedForItsReason) {
  const Bytes whole = Datagram(1, {{'x'}, {'y', 'z'}});
  for (size_t length = 0; length < whole.size(); ++length) {
    const Bytes part(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(length));
    EXPECT_EQ(mold::Parse(part).refusal, length < mold::kHeaderBytes
                                             ? mold::Refusal::kShortHeader
                                             : mold::Refusal::kShortMessages)
        << length;
  }
}

TEST(MoldUdp64Test, BytesBehindTheLastMessageAreRefused) {
  Bytes datagram = Datagram(1, {{'x'}});
  datagram.push_back(0);
  EXPECT_EQ(mold::Parse(datagram).refusal, mold::Refusal::kTrailingBytes);
}

TEST(MoldUdp64Test, HeartbeatAndEndOfSessionHaveNoMessages) {
  mold::Builder builder(kSession);
  builder.Begin(77);
  EXPECT_TRUE(mold::Parse(builder.Finish()).header.heartbeat());
  const mold::Packet end = mold::Parse(builder.FinishSession());
  ASSERT_TRUE(end.ok());
  EXPECT_TRUE(end.header.end_of_session());
  EXPECT_EQ(end.header.messages(), 0);
  EXPECT_EQ(end.header.sequence, 77u);
}

TEST(MoldUdp64Test, BuilderRefusesWhatDoesNotFitAndStaysAsItWas) {
  mold::Builder builder(kSession, 30);
  EXPECT_TRUE(builder.Add(Bytes(8)));
  EXPECT_FALSE(builder.Add(Bytes(1)));
  EXPECT_EQ(builder.count(), 1);
  EXPECT_EQ(builder.Finish().size(), 30u);
}

TEST(MoldUdp64Test, RequestIsWrittenAndRead) {
  const auto bytes = mold::Emit(mold::Request{kSession, 0x0102030405060708, 300});
  const Bytes tail(bytes.begin() + 10, bytes.end());
  EXPECT_EQ(tail, (Bytes{1, 2, 3, 4, 5, 6, 7, 8, 1, 44}));
  mold::Request request;
  ASSERT_TRUE(mold::Parse(std::span<const uint8_t>(bytes), &request));
  EXPECT_EQ(request.sequence, 0x0102030405060708u);
  EXPECT_EQ(request.count, 300);
  EXPECT_EQ(request.session, kSession);
  EXPECT_FALSE(mold::Parse(std::span<const uint8_t>(bytes).first(19), &request));
}

// --- ITCH 5.0 -----------------------------------------------------------------------------------

Bytes Emit(const itch::Message& message) {
  std::array<uint8_t, itch::kMostBytes> bytes;
  const size_t length = itch::Emit(message, bytes);
  return {bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(length)};
}

itch::Message Parsed(const Bytes& bytes) {
  itch::Message message;
  EXPECT_EQ(itch::Parse(bytes, &message), itch::Refusal::kNone);
  return message;
}

itch::Message AddOrder(uint64_t order, char side, uint64_t shares, uint32_t price) {
  itch::Message message;
  message.type = itch::Type::kAddOrder;
  message.locate = 7;
  message.order = order;
  message.side = side;
  message.shares = shares;
  message.price = price;
  message.stock = itch::MakeStock("XTRM");
  return message;
}

TEST(Itch50Test, GoldenBytesOfAnAddOrder) {
  itch::Message message = AddOrder(0x1122, 'B', 300, 1'234'500);
  message.tracking = 2;
  message.time_ns = 0x010203040506;
  const Bytes expected = {'A', 0, 7, 0, 2, 1, 2, 3, 4, 5, 6, 0, 0, 0, 0, 0, 0, 0x11, 0x22, 'B',
                          0,   0, 1, 44,   'X', 'T', 'R', 'M', ' ', ' ', ' ', ' ',
                          0,   0x12, 0xd6, 0x44};
  EXPECT_EQ(Emit(message), expected);
  const itch::Message read = Parsed(expected);
  EXPECT_EQ(read.order, 0x1122u);
  EXPECT_EQ(read.side, 'B');
  EXPECT_EQ(read.shares, 300u);
  EXPECT_EQ(read.price, 1'234'500u);
  EXPECT_EQ(read.time_ns, 0x010203040506u);
  EXPECT_EQ(itch::ToString(read.stock), "XTRM");
}

TEST(Itch50Test, EveryTypeIsRefusedAtAnyOtherLengthThanItsOwn) {
  for (char type : std::string("SRHAFECXDUPQ")) {
    const size_t length = itch::LengthOf(type);
    ASSERT_GT(length, 0u) << type;
    for (size_t other = 1; other < 64; ++other) {
      Bytes bytes(other);
      bytes[0] = static_cast<uint8_t>(type);
      itch::Message message;
      EXPECT_EQ(itch::Parse(bytes, &message), other == length ? itch::Refusal::kNone
                                                              : itch::Refusal::kWrongLength)
          << type << other;
    }
  }
}

TEST(Itch50Test, EmptyAndUnknownAreRefusedForTheirReason) {
  itch::Message message;
  EXPECT_EQ(itch::Parse({}, &message), itch::Refusal::kEmpty);
  EXPECT_EQ(itch::Parse(Bytes{'z'}, &message), itch::Refusal::kUnknownType);
}

TEST(Itch50Test, WhatIsWrittenIsRead) {
  itch::Message replace;
  replace.type = itch::Type::kReplace;
  replace.order = 5;
  replace.new_order = 6;
  replace.shares = 70;
  replace.price = 80;
  const itch::Message read = Parsed(Emit(replace));
  EXPECT_EQ(read.order, 5u);
  EXPECT_EQ(read.new_order, 6u);
  EXPECT_EQ(read.shares, 70u);
  EXPECT_EQ(read.price, 80u);
  itch::Message executed;
  executed.type = itch::Type::kExecuted;
  executed.order = 9;
  executed.shares = 4;
  executed.match = 3;
  EXPECT_EQ(Parsed(Emit(executed)).match, 3u);
}

// --- Books --------------------------------------------------------------------------------------

itch::Message About(itch::Type type, uint64_t order, uint64_t shares) {
  itch::Message message;
  message.type = type;
  message.order = order;
  message.shares = shares;
  return message;
}

TEST(BooksTest, TopFollowsAddsExecutionsCancelsAndDeletes) {
  Books books({"XTRM"});
  books.Apply(AddOrder(1, 'B', 100, 1000));
  books.Apply(AddOrder(2, 'B', 50, 1010));
  books.Apply(AddOrder(3, 'B', 25, 1010));
  books.Apply(AddOrder(4, 'S', 10, 1020));
  EXPECT_EQ(books.Top("XTRM"), (TopOfBook{{1010, 75}, {1020, 10}}));
  books.Apply(About(itch::Type::kExecuted, 2, 50));
  books.Apply(About(itch::Type::kCancel, 3, 5));
  EXPECT_EQ(books.Top("XTRM"), (TopOfBook{{1010, 20}, {1020, 10}}));
  books.Apply(About(itch::Type::kDelete, 3, 0));
  books.Apply(About(itch::Type::kDelete, 4, 0));
  EXPECT_EQ(books.Top("XTRM"), (TopOfBook{{1000, 100}, {0, 0}}));
  EXPECT_EQ(books.open_orders(), 1u);
}

TEST(BooksTest, ReplaceMovesTheOrderUnderItsNewNumber) {
  Books books({});
  books.Apply(AddOrder(1, 'S', 100, 1000));
  itch::Message replace = About(itch::Type::kReplace, 1, 40);
  replace.new_order = 2;
  replace.price = 990;
  books.Apply(replace);
  EXPECT_EQ(books.Top("XTRM"), (TopOfBook{{0, 0}, {990, 40}}));
  books.Apply(About(itch::Type::kDelete, 1, 0));
  EXPECT_EQ(books.unknown_orders(), 1u);
  books.Apply(About(itch::Type::kDelete, 2, 0));
  EXPECT_EQ(books.Top("XTRM"), TopOfBook{});
}

TEST(BooksTest, StocksNotAskedForAreNotKept) {
  Books books({"OTHR"});
  books.Apply(AddOrder(1, 'B', 100, 1000));
  EXPECT_EQ(books.open_orders(), 0u);
}

// --- Arbiter ------------------------------------------------------------------------------------

// Keeps its datagram alive and counts how many do.
class Reference {
 public:
  Reference() = default;
  explicit Reference(std::shared_ptr<Bytes> datagram) : datagram_(std::move(datagram)) {}
  std::span<const uint8_t> bytes() const { return *datagram_; }

 private:
  std::shared_ptr<Bytes> datagram_;
};

// Feeds datagrams and collects what is delivered.
class Collector {
 public:
  explicit Collector(Arbiter<Reference>::Options options = {}) : arbiter(options) {}

  void On(size_t line, Bytes bytes, int64_t now_ns = 0) {
    auto datagram = std::make_shared<Bytes>(std::move(bytes));
    const mold::Packet packet = mold::Parse(*datagram);
    ASSERT_TRUE(packet.ok());
    const Verdict verdict = arbiter.On(line, packet, now_ns);
    if (verdict == Verdict::kNext) Deliver(packet);
    if (verdict == Verdict::kAhead) arbiter.Hold(line, packet, Reference(datagram));
    while (auto held = arbiter.TakeHeld()) Deliver(held->packet);
  }

  void Deliver(const mold::Packet& packet) {
    const uint64_t skip = arbiter.AlreadyDelivered(packet.header);
    packet.ForEach([&](uint64_t sequence, std::span<const uint8_t> message) {
      if (sequence >= packet.header.sequence + skip) {
        delivered.emplace_back(sequence, message.empty() ? 0 : message[0]);
      }
    });
    arbiter.Delivered(packet.header);
  }

  // Whether messages 1 .. `count` came out once, in order, each with its own content.
  bool HasAll(uint64_t count) const {
    if (delivered.size() != count) return false;
    for (uint64_t i = 0; i < count; ++i) {
      if (delivered[i] != std::pair(i + 1, static_cast<uint8_t>(i + 1))) return false;
    }
    return true;
  }

  Arbiter<Reference> arbiter;
  std::vector<std::pair<uint64_t, uint8_t>> delivered;
};

// `count` messages from `sequence` on, each one byte: its number.
Bytes Numbered(uint64_t sequence, int count = 1) {
  std::vector<Bytes> messages;
  for (int i = 0; i < count; ++i) messages.push_back({static_cast<uint8_t>(sequence + i)});
  return Datagram(sequence, messages);
}

TEST(ArbiterTest, TheFirstLineWinsAndTheSecondIsOld) {
  Collector feed;
  feed.On(0, Numbered(1, 2));
  feed.On(1, Numbered(1, 2));
  EXPECT_TRUE(feed.HasAll(2));
  EXPECT_EQ(feed.arbiter.line(0).wins, 1u);
  EXPECT_EQ(feed.arbiter.line(1).wins, 0u);
  EXPECT_EQ(feed.arbiter.counters().old, 1u);
}

TEST(ArbiterTest, TheOtherLineFillsAGapAndTheHeldFollow) {
  Collector feed;
  feed.On(0, Numbered(1));
  feed.On(0, Numbered(3));
  feed.On(0, Numbered(4));
  EXPECT_EQ(feed.arbiter.FirstGap().first, 2u);
  EXPECT_EQ(feed.arbiter.FirstGap().end, 3u);
  EXPECT_EQ(feed.delivered.size(), 1u);
  feed.On(1, Numbered(1));
  feed.On(1, Numbered(2));
  EXPECT_TRUE(feed.HasAll(4));
  EXPECT_FALSE(feed.arbiter.FirstGap().open());
  EXPECT_EQ(feed.arbiter.line(1).recovered, 1u);
  EXPECT_EQ(feed.arbiter.line(0).lost, 1u);
}

TEST(ArbiterTest, PartlyOldPacketDeliversOnlyWhatIsNew) {
  Collector feed;
  feed.On(0, Numbered(1, 3));
  feed.On(1, Numbered(2, 4));
  EXPECT_TRUE(feed.HasAll(5));
}

TEST(ArbiterTest, AHeartbeatShowsALossAtTheEnd) {
  Collector feed;
  feed.On(0, Numbered(1));
  feed.On(0, Datagram(4, {}));
  EXPECT_EQ(feed.arbiter.FirstGap().first, 2u);
  EXPECT_EQ(feed.arbiter.FirstGap().end, 4u);
}

TEST(ArbiterTest, ARetransmissionFillsWhatBothLinesLost) {
  Collector feed;
  feed.On(0, Numbered(1));
  feed.On(0, Numbered(4));
  feed.On(1, Numbered(1));
  feed.On(1, Numbered(4));
  feed.On(Arbiter<Reference>::retransmission(), Numbered(2, 2));
  EXPECT_TRUE(feed.HasAll(4));
}

TEST(ArbiterTest, HoldsByReferenceUpToItsLimitAndByCopyAbove) {
  Collector feed({.hold_by_reference = 2});
  for (uint64_t i = 2; i <= 5; ++i) feed.On(0, Numbered(i));
  EXPECT_EQ(feed.arbiter.held(), 4u);
  EXPECT_EQ(feed.arbiter.counters().held_by_copy, 2u);
  EXPECT_EQ(feed.arbiter.counters().copied_bytes, 6u);
  feed.On(1, Numbered(1));
  EXPECT_TRUE(feed.HasAll(5));
}

TEST(ArbiterTest, AFullHoldKeepsTheNearestAndCounts) {
  Collector feed({.hold_at_most = 2});
  feed.On(0, Numbered(5));
  feed.On(0, Numbered(4));
  feed.On(1, Numbered(2));
  EXPECT_EQ(feed.arbiter.counters().hold_overflow, 1u);
  feed.On(1, Numbered(1));
  EXPECT_EQ(feed.delivered.size(), 2u);
  feed.On(1, Numbered(3));
  EXPECT_EQ(feed.delivered.size(), 4u);
  feed.On(1, Numbered(5));
  EXPECT_TRUE(feed.HasAll(5));
}

TEST(ArbiterTest, AnotherSessionStartsAtItsFirstMessage) {
  Collector feed;
  feed.On(0, Numbered(1));
  feed.On(0, Numbered(3));
  feed.delivered.clear();
  feed.On(0, Datagram(1, {{1}}, mold::MakeSession("NEXT")), 2'000'000'000);
  EXPECT_TRUE(feed.HasAll(1));
  EXPECT_EQ(feed.arbiter.sessions(), 2u);
  EXPECT_EQ(feed.arbiter.held(), 0u);
}

Bytes EndOfSession(uint64_t next) {
  mold::Builder builder(kSession);
  builder.Begin(next);
  const auto end = builder.FinishSession();
  return {end.begin(), end.end()};
}

TEST(ArbiterTest, AStrangersDatagramDoesNotEndTheSession) {
  Collector feed;
  feed.On(0, Numbered(1));
  feed.On(1, Datagram(1, {{9}}, mold::MakeSession("OTHER")), 1);
  feed.On(0, Numbered(2), 2);
  EXPECT_TRUE(feed.HasAll(2));
  EXPECT_EQ(feed.arbiter.sessions(), 1u);
  EXPECT_EQ(feed.arbiter.counters().strangers, 1u);
}

TEST(ArbiterTest, TheSlowerLineMayStillEndTheSessionBefore) {
  Collector feed;
  feed.On(0, Numbered(1));
  feed.On(0, EndOfSession(2));
  feed.delivered.clear();
  feed.On(0, Datagram(1, {{1}}, mold::MakeSession("NEXT")));
  feed.On(1, EndOfSession(2));
  EXPECT_FALSE(feed.arbiter.ended());
  feed.On(0, Datagram(2, {{2}}, mold::MakeSession("NEXT")));
  EXPECT_TRUE(feed.HasAll(2));
  EXPECT_EQ(feed.arbiter.sessions(), 2u);
}

TEST(ArbiterTest, ALineThatIsSilentForTooLongIsStale) {
  Collector feed({.stale_after_ns = 100});
  feed.On(0, Numbered(1), 1000);
  feed.On(1, Numbered(1), 1050);
  EXPECT_FALSE(feed.arbiter.Stale(0, 1100));
  EXPECT_TRUE(feed.arbiter.Stale(0, 1101));
  EXPECT_FALSE(feed.arbiter.Stale(1, 1101));
}

TEST(ArbiterTest, WhatIsGivenUpIsSkippedNotDelivered) {
  Collector feed;
  feed.On(0, Numbered(3));
  EXPECT_EQ(feed.arbiter.SkipTo(3), 2u);
  while (auto held = feed.arbiter.TakeHeld()) feed.Deliver(held->packet);
  EXPECT_EQ(feed.delivered.size(), 1u);
  EXPECT_EQ(feed.arbiter.counters().messages, 1u);
}

// Messages 1 to 200 on two lines, some lost, some twice, out of order.
std::vector<std::pair<size_t, Bytes>> HostileLines(unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::pair<size_t, Bytes>> wire;
  for (size_t i = 0; i < 400; ++i) {
    if (random() % 10 == 0) continue;
    wire.emplace_back(i % 2, Numbered(i / 2 + 1));
    if (random() % 20 == 0) wire.push_back(wire.back());
  }
  for (size_t i = 0; i + 8 < wire.size(); ++i) std::swap(wire[i], wire[i + random() % 8]);
  return wire;
}

// Two lines with loss, repetition and reordering, and a request for whatever is missing at the end.
TEST(ArbiterTest, EverySeedDeliversAllMessagesOnceAndInOrder) {
  for (unsigned seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(seed);
    Collector feed({.hold_by_reference = 3, .hold_at_most = 20});
    for (auto& [line, bytes] : HostileLines(seed)) feed.On(line, bytes);
    feed.On(0, Datagram(201, {}));
    for (auto gap = feed.arbiter.FirstGap(); gap.open(); gap = feed.arbiter.FirstGap()) {
      feed.On(Arbiter<Reference>::retransmission(), Numbered(gap.first));
    }
    ASSERT_TRUE(feed.HasAll(200));
    ASSERT_EQ(feed.arbiter.counters().messages, 200u);
  }
}

// --- Histogram ----------------------------------------------------------------------------------

TEST(HistogramTest, QuantilesAreWithinABucketOfTheSortedValues) {
  std::mt19937_64 random(7);
  Histogram histogram;
  std::vector<uint64_t> values;
  for (int i = 0; i < 10'000; ++i) {
    values.push_back(random() >> (random() % 60));
    histogram.Record(values.back());
  }
  std::sort(values.begin(), values.end());
  for (double fraction : {0.01, 0.5, 0.9, 0.99, 0.999, 1.0}) {
    const auto rank = std::max<size_t>(1, static_cast<size_t>(fraction * 10'000 + 0.5));
    const auto exact = static_cast<double>(values[rank - 1]);
    const auto got = static_cast<double>(histogram.Quantile(fraction));
    EXPECT_GE(got, exact) << fraction;
    EXPECT_LE(got, exact * 1.016 + 1) << fraction;
  }
  EXPECT_EQ(histogram.most(), values.back());
  EXPECT_EQ(histogram.least(), values.front());
}

TEST(HistogramTest, EmptyIsZeroAndMergeAddsUp) {
  Histogram one, other;
  EXPECT_EQ(one.Quantile(0.5), 0u);
  EXPECT_EQ(one.least(), 0u);
  one.Record(10);
  other.Record(20);
  other.Record(30);
  one.Merge(other);
  EXPECT_EQ(one.count(), 3u);
  EXPECT_EQ(one.mean(), 20u);
  EXPECT_EQ(one.Quantile(0.5), 20u);
  EXPECT_EQ(one.most(), 30u);
}

// --- The handler --------------------------------------------------------------------------------

TEST(HandlerTest, AnotherSessionBeginsWithEmptyBooks) {
  Handler<Reference> handler({});
  const auto add = [](uint64_t order, uint32_t price) {
    itch::Message message;
    message.type = itch::Type::kAddOrder;
    message.order = order;
    message.side = 'B';
    message.shares = 100;
    message.price = price;
    message.stock = itch::MakeStock("XTRA");
    std::array<uint8_t, itch::kMostBytes> bytes;
    const size_t length = itch::Emit(message, bytes);
    return Bytes(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(length));
  };
  const auto take = [&](const Bytes& bytes, int64_t now_ns) {
    handler.OnDatagram(0, bytes, {.now_ns = now_ns}, [] { return Reference(); });
  };
  take(Datagram(1, {add(7, 1'000)}), 0);
  take(Datagram(3, {add(8, 1'100)}), 0);  // Message 2 is missing, 3 held.
  take(Datagram(1, {add(7, 900)}, mold::MakeSession("NEXT")), 2'000'000'000);
  EXPECT_EQ(handler.books().Top("XTRA").bid, (Quote{900, 100}));
  EXPECT_EQ(handler.books().open_orders(), 1u);
  EXPECT_EQ(handler.counters().missing, 2u);
}

// With nobody to ask (no tries) as well as where nobody answers.
TEST(HandlerTest, AGapIsGivenUpAsAWhole) {
  constexpr uint64_t kAfter = 100;  // More is missing than one request asks for.
  for (const int tries : {0, 2}) {
    SCOPED_TRACE(tries);
    const Requester::Options requester{.tries = tries};
    Handler<Reference> handler({.arbiter = {}, .requester = requester, .symbols = {}});
    for (const uint64_t sequence : {uint64_t{1}, kAfter}) {
      const auto datagram = std::make_shared<Bytes>(Datagram(sequence, {Bytes(3)}));
      handler.OnDatagram(0, *datagram, {}, [&datagram] { return Reference(datagram); });
    }
    int asked = 0;
    int64_t now_ns = 0;
    for (; handler.counters().missing == 0 && now_ns < 1'000'000'000; now_ns += 1'000'000) {
      const auto request = handler.NextRequest({.now_ns = now_ns});
      if (!request) continue;
      ++asked;
      EXPECT_EQ(request->count, requester.most_messages);
    }
    EXPECT_EQ(asked, tries);
    EXPECT_EQ(now_ns, requester.wait_ns + tries * requester.retry_ns + 1'000'000);
    EXPECT_EQ(handler.counters().missing, kAfter - 2);
    EXPECT_EQ(handler.arbiter().next(), kAfter + 1);
    EXPECT_FALSE(handler.NextRequest({.now_ns = now_ns}));
  }
}

}  // namespace
}  // namespace feed
