// SPDX-License-Identifier: Apache-2.0
#include "stack/ip/reassembly.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <random>
#include <vector>

#include "stack/packet/buffer_pool.h"
#include "stack/wire/golden.h"
#include "stack/wire/udp.h"

namespace xtreme::ip {
namespace {

using base::Milliseconds;
using base::Seconds;
using packet::Buffer;
using packet::BufferPool;
using wire::Bytes;
using Result = Reassembler::Result;

constexpr wire::Ipv4Address kSource(192, 0, 2, 9);
constexpr wire::Ipv4Address kDestination(192, 0, 2, 1);
constexpr size_t kPoolBuffers = 64;

// A datagram of `payload_bytes` with its UDP header and checksum.
Bytes Datagram(size_t payload_bytes) {
  Bytes payload(payload_bytes);
  for (size_t i = 0; i < payload_bytes; ++i) payload[i] = static_cast<uint8_t>(i * 7 + i / 256);
  Bytes datagram(wire::kUdpHeaderBytes);
  wire::UdpRepr{.source_port = 4242, .destination_port = 26477}.Emit(datagram, kSource,
                                                                     kDestination, payload);
  datagram.insert(datagram.end(), payload.begin(), payload.end());
  return datagram;
}

class ReassemblyTest : public ::testing::Test {
 protected:
  ReassemblyTest() { UsePool(kPoolBuffers); }
  ~ReassemblyTest() override {
    if (whole_.head != nullptr) BufferPool::ReleaseChain(whole_.head);
    reassembler_.reset();
    EXPECT_EQ(pool_->free_count(), pool_->capacity()) << "a buffer was leaked";
  }

  void UsePool(uint32_t buffers) {
    auto pool = BufferPool::Create({.buffers = buffers,
                                    .buffer_bytes = 2048,
                                    .hugepages = BufferPool::Hugepages::kNever});
    EXPECT_TRUE(pool.ok());
    pool_ = std::move(*pool);
  }
  void Use(const Reassembler::Options& options) { reassembler_.emplace(options); }

  // Receives bytes `begin` to `end` of `datagram`, as a frame with Ethernet header and padding.
  Result Receive(const Bytes& datagram, size_t begin, size_t end, uint16_t id = 1,
                 std::optional<bool> more = std::nullopt) {
    const wire::Ipv4Repr repr{.source = kSource,
                              .destination = kDestination,
                              .id = id,
                              .more_fragments = more.value_or(end < datagram.size()),
                              .fragment_offset_bytes = static_cast<uint16_t>(begin),
                              .payload_bytes = static_cast<uint16_t>(end - begin)};
    Buffer* frame = pool_->Acquire();
    frame->length = static_cast<uint32_t>(14 + 20 + (end - begin) + 6);
    const std::span<uint8_t> ip_bytes = frame->bytes().subspan(14);
    repr.Emit(ip_bytes);
    std::copy(datagram.begin() + begin, datagram.begin() + end, ip_bytes.begin() + 20);
    const auto ip = wire::Ipv4View::Parse(ip_bytes, wire::ChecksumCheck::kVerify);
    EXPECT_TRUE(ip.ok());
    return reassembler_->Add(frame, *ip, 7, now_, &whole_);
  }

  // The bytes of the whole datagram.
  Bytes Whole() const {
    Bytes bytes;
    for (const Buffer* link = whole_.head; link != nullptr; link = link->next) {
      bytes.insert(bytes.end(), link->data, link->data + link->length);
    }
    return bytes;
  }
  uint32_t Held() const { return pool_->capacity() - pool_->free_count(); }
  const ReassemblyCounters& counters() const { return reassembler_->counters(); }

  base::Nanoseconds now_ = Seconds(10);
  BufferPool::Handle pool_;
  std::optional<Reassembler> reassembler_{Reassembler::Options{}};
  ReassembledDatagram whole_;
  const Bytes datagram_ = Datagram(3000);
};

TEST_F(ReassemblyTest, FragmentsInOrderMakeTheDatagram) {
  EXPECT_EQ(Receive(datagram_, 0, 1480), Result::kHeld);
  EXPECT_EQ(Receive(datagram_, 1480, 2960), Result::kHeld);
  EXPECT_EQ(Receive(datagram_, 2960, 3008), Result::kWhole);
  EXPECT_EQ(Whole(), datagram_);
  EXPECT_EQ(whole_.bytes, 3008u);
  EXPECT_EQ(whole_.source, kSource);
  EXPECT_EQ(whole_.destination, kDestination);
  EXPECT_EQ(whole_.protocol, wire::kIpProtocolUdp);
  EXPECT_EQ(whole_.vlan_id, 7);
  EXPECT_EQ(reassembler_->held_buffers(), 0u);
  EXPECT_EQ(reassembler_->NextDeadline(), base::kNever);
}

TEST_F(ReassemblyTest, EveryOrderMakesTheDatagram) {
  std::vector<std::pair<size_t, size_t>> pieces = {{0, 8}, {8, 1000}, {1000, 2000}, {2000, 3008}};
  do {
    for (size_t i = 0; i < pieces.size(); ++i) {
      ASSERT_EQ(Receive(datagram_, pieces[i].first, pieces[i].second),
                i + 1 < pieces.size() ? Result::kHeld : Result::kWhole);
    }
    ASSERT_EQ(Whole(), datagram_);
    BufferPool::ReleaseChain(std::exchange(whole_.head, nullptr));
  } while (std::next_permutation(pieces.begin(), pieces.end()));
}

TEST_F(ReassemblyTest, DatagramsAreToldApartByIdentification) {
  const Bytes other = Datagram(1600);
  EXPECT_EQ(Receive(datagram_, 0, 1480, 1), Result::kHeld);
  EXPECT_EQ(Receive(other, 0, 1480, 2), Result::kHeld);
  EXPECT_EQ(Receive(other, 1480, 1608, 2), Result::kWhole);
  EXPECT_EQ(Whole(), other);
  EXPECT_EQ(reassembler_->held_datagrams(), 1u);
}

TEST_F(ReassemblyTest, AnExactDuplicateIsDroppedAlone) {
  EXPECT_EQ(Receive(datagram_, 0, 1480), Result::kHeld);
  EXPECT_EQ(Receive(datagram_, 0, 1480), Result::kDropped);
  EXPECT_EQ(Receive(datagram_, 1480, 3008), Result::kWhole);
  EXPECT_EQ(Whole(), datagram_);
  EXPECT_EQ(counters().duplicates, 1u);
}

TEST_F(ReassemblyTest, AnOverlapDropsTheDatagram) {
  struct Row {
    const char* name;
    size_t begin, end;
    std::optional<bool> more;
  };
  for (const Row& row : {
           Row{"over the end of one", 1400, 1488, {}},
           Row{"over the beginning of one", 2000, 2608, {}},
           Row{"inside one", 8, 16, {}},
           Row{"around one", 1480, 2968, true},
           Row{"same place, shorter", 0, 8, {}},
           Row{"the same, but the last", 0, 1480, false},
           Row{"a last one before others", 1480, 1488, false},
       }) {
    SCOPED_TRACE(row.name);
    const uint64_t before = counters().overlaps;
    ASSERT_EQ(Receive(datagram_, 0, 1480), Result::kHeld);
    ASSERT_EQ(Receive(datagram_, 2600, 2960, 1, true), Result::kHeld);
    EXPECT_EQ(Receive(datagram_, row.begin, row.end, 1, row.more), Result::kDropped);
    EXPECT_EQ(counters().overlaps, before + 1);
    EXPECT_EQ(Held(), 0u);
  }
}

TEST_F(ReassemblyTest, NothingLiesBeyondTheLastFragment) {
  ASSERT_EQ(Receive(datagram_, 1480, 2000, 1, false), Result::kHeld);
  EXPECT_EQ(Receive(datagram_, 2000, 2008, 1, true), Result::kDropped);
  ASSERT_EQ(Receive(datagram_, 1480, 2000, 2, false), Result::kHeld);
  EXPECT_EQ(Receive(datagram_, 2000, 2008, 2, false), Result::kDropped) << "a second end";
  EXPECT_EQ(counters().overlaps, 2u);
}

TEST_F(ReassemblyTest, LengthsNoFragmentHasAreMalformed) {
  EXPECT_EQ(Receive(datagram_, 0, 1479), Result::kDropped);
  EXPECT_EQ(Receive(datagram_, 8, 8), Result::kDropped);
  EXPECT_EQ(counters().malformed, 2u);
  EXPECT_EQ(reassembler_->held_datagrams(), 0u);
}

TEST_F(ReassemblyTest, AnIncompleteDatagramIsDroppedInTime) {
  ASSERT_EQ(Receive(datagram_, 0, 1480), Result::kHeld);
  EXPECT_EQ(reassembler_->NextDeadline(), now_ + Seconds(1));
  now_ += Milliseconds(500);
  ASSERT_EQ(Receive(datagram_, 1480, 2960), Result::kHeld) << "which prolongs nothing";
  now_ += Milliseconds(499);
  reassembler_->Expire(now_);
  EXPECT_EQ(Held(), 2u);
  now_ += Milliseconds(1);
  reassembler_->Expire(now_);
  EXPECT_EQ(Held(), 0u);
  EXPECT_EQ(counters().timed_out, 1u);
}

TEST_F(ReassemblyTest, ALateFragmentBeginsAnew) {
  ASSERT_EQ(Receive(datagram_, 0, 1480), Result::kHeld);
  now_ += Seconds(1);
  EXPECT_EQ(Receive(datagram_, 1480, 3008), Result::kHeld);
  EXPECT_EQ(counters().timed_out, 1u);
}

TEST_F(ReassemblyTest, TheOldestDatagramMakesRoomForANewOne) {
  Use({.datagrams = 2});
  for (uint16_t id = 1; id <= 3; ++id) ASSERT_EQ(Receive(datagram_, 0, 1480, id), Result::kHeld);
  EXPECT_EQ(counters().evicted, 1u);
  EXPECT_EQ(Receive(datagram_, 1480, 3008, 2), Result::kWhole) << "the second stayed";
}

TEST_F(ReassemblyTest, HeldBuffersAndBytesAreBounded) {
  Use({.buffers = 3});
  for (uint16_t id = 1; id <= 5; ++id) Receive(datagram_, 0, 1480, id);
  EXPECT_EQ(reassembler_->held_buffers(), 3u);
  EXPECT_EQ(counters().evicted, 2u);
  Use({.bytes = 3000});
  for (uint16_t id = 1; id <= 5; ++id) Receive(datagram_, 0, 1480, id);
  EXPECT_EQ(reassembler_->held_bytes(), 2960u);
}

TEST_F(ReassemblyTest, ADatagramThatAloneExceedsTheLimitsIsDropped) {
  Use({.buffers = 2});
  EXPECT_EQ(Receive(datagram_, 0, 8), Result::kHeld);
  EXPECT_EQ(Receive(datagram_, 8, 16), Result::kHeld);
  EXPECT_EQ(Receive(datagram_, 16, 24), Result::kDropped);
  EXPECT_EQ(counters().too_large, 1u);
  EXPECT_EQ(Held(), 0u);
}

TEST_F(ReassemblyTest, ADatagramOfTinyFragmentsHoldsAndWalksFew) {
  constexpr size_t kFragments = 8189;  // As many as the total length of 16 bits allows.
  constexpr size_t kMost = Reassembler::Options{}.datagram_buffers;
  UsePool(kFragments + 1);
  Use({.buffers = kFragments + 1});
  const Bytes tiny = Datagram(8 * kFragments - 8);
  size_t most = 0;
  for (size_t i = 0; i < kFragments; ++i) {
    Receive(tiny, 8 * i, 8 * i + 8, 1, true);
    most = std::max<size_t>(most, reassembler_->held_buffers());
  }
  EXPECT_EQ(most, kMost);
  EXPECT_EQ(counters().too_large, kFragments / (kMost + 1));
  const size_t last = 8 * (kFragments - 1);
  const uint32_t held = Held();
  for (int i = 0; i < 1000; ++i) {
    EXPECT_EQ(Receive(tiny, last, last + 8, 1, true), Result::kDropped);
  }
  EXPECT_EQ(counters().duplicates, 1000u);
  EXPECT_EQ(Held(), held);
}

TEST_F(ReassemblyTest, ADatagramOfTheMostFragmentsIsWholeInEitherOrder) {
  constexpr size_t kMost = Reassembler::Options{}.datagram_buffers;
  UsePool(kMost + 1);
  const Bytes many = Datagram(8 * kMost - 8);
  for (const bool ascending : {true, false}) {
    SCOPED_TRACE(ascending ? "ascending" : "descending");
    const uint64_t duplicates = counters().duplicates;
    for (size_t i = 0; i < kMost; ++i) {
      const size_t at = 8 * (ascending ? i : kMost - 1 - i);
      const bool last = i + 1 == kMost;
      ASSERT_EQ(Receive(many, at, at + 8), last ? Result::kWhole : Result::kHeld);
      if (!last) {
        ASSERT_EQ(Receive(many, at, at + 8), Result::kDropped) << "a repeat";
      }
    }
    EXPECT_EQ(Whole(), many);
    EXPECT_EQ(counters().duplicates, duplicates + kMost - 1);
    BufferPool::ReleaseChain(std::exchange(whole_.head, nullptr));
  }
}

TEST_F(ReassemblyTest, AnOverlapWithTheLastHeldDropsTheDatagram) {
  struct Row {
    const char* name;
    size_t begin, end;
    bool more;
  };
  for (const Row& row : {
           Row{"same place, longer", 1480, 2000, true},
           Row{"same place, but the last", 1480, 1600, false},
           Row{"inside it", 1592, 1600, true},
           Row{"over its end", 1592, 2000, true},
       }) {
    SCOPED_TRACE(row.name);
    const uint64_t before = counters().overlaps;
    ASSERT_EQ(Receive(datagram_, 0, 1480), Result::kHeld);
    ASSERT_EQ(Receive(datagram_, 1480, 1600), Result::kHeld);
    EXPECT_EQ(Receive(datagram_, row.begin, row.end, 1, row.more), Result::kDropped);
    EXPECT_EQ(counters().overlaps, before + 1);
    EXPECT_EQ(Held(), 0u);
  }
}

TEST_F(ReassemblyTest, TheDatagramIsOpenedAtItsPayload) {
  Receive(datagram_, 0, 1480);
  ASSERT_EQ(Receive(datagram_, 1480, 3008), Result::kWhole);
  wire::UdpFlow flow;
  ASSERT_EQ(OpenReassembledUdp(whole_, &flow), wire::FrameVerdict::kUdp);
  EXPECT_EQ(flow, (wire::UdpFlow{.destination = kDestination,
                                 .source = kSource,
                                 .destination_port = 26477,
                                 .source_port = 4242,
                                 .vlan_id = 7}));
  EXPECT_EQ(whole_.bytes, 3000u);
  EXPECT_EQ(Whole(), Bytes(datagram_.begin() + 8, datagram_.end()));
}

TEST_F(ReassemblyTest, WhatIsPastTheUdpLengthIsReleased) {
  Bytes slack = Datagram(100);
  slack.resize(3008, wire::kPoison);
  Receive(slack, 0, 96);
  Receive(slack, 96, 1480);
  ASSERT_EQ(Receive(slack, 1480, 3008), Result::kWhole);
  wire::UdpFlow flow;
  ASSERT_EQ(OpenReassembledUdp(whole_, &flow), wire::FrameVerdict::kUdp);
  EXPECT_EQ(Whole().size(), 100u);
  EXPECT_EQ(Held(), 2u);
}

TEST_F(ReassemblyTest, MalformedDatagramsAreRefusedForTheirReason) {
  struct Row {
    const char* name;
    Bytes datagram;
    wire::FrameVerdict verdict;
  };
  for (const Row& row : {
           Row{"length 7", wire::With(datagram_, 4, {0, 7}), wire::FrameVerdict::kUdpLength},
           Row{"length 3009", wire::With(datagram_, 4, {0x0B, 0xC1}),
               wire::FrameVerdict::kUdpLength},
           Row{"a flipped bit", wire::With(datagram_, 2000, {0xFF}),
               wire::FrameVerdict::kUdpChecksum},
           Row{"no checksum", wire::With(datagram_, 6, {0, 0}), wire::FrameVerdict::kUdp},
       }) {
    SCOPED_TRACE(row.name);
    Receive(row.datagram, 0, 1480);
    ASSERT_EQ(Receive(row.datagram, 1480, 3008), Result::kWhole);
    wire::UdpFlow flow;
    EXPECT_EQ(OpenReassembledUdp(whole_, &flow), row.verdict);
    BufferPool::ReleaseChain(std::exchange(whole_.head, nullptr));
  }
  ASSERT_EQ(Receive(Bytes(4), 0, 4), Result::kWhole);
  wire::UdpFlow flow;
  EXPECT_EQ(OpenReassembledUdp(whole_, &flow), wire::FrameVerdict::kTruncated);
}

TEST_F(ReassemblyTest, WhatIsHeldAtTheEndIsReleased) {
  Receive(datagram_, 0, 1480, 1);
  Receive(datagram_, 0, 1480, 2);
  EXPECT_EQ(Held(), 2u);
}

}  // namespace
}  // namespace xtreme::ip
