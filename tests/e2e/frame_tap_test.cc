// SPDX-License-Identifier: Apache-2.0
//
// Two rings that keep their frames: what one keeps of what it sent is what the other keeps of what
// it received, frame by frame, whichever way they are sent and taken.

#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "stack/base/byte_order.h"
#include "tests/e2e/two_rings.h"
#include "xtreme/engine/prepared_sends.h"
#include "xtreme/engine/ring_core.h"
#include "xtreme/engine/tcp.h"
#include "xtreme/stats/frame_reader.h"
#include "xtreme/stats/frame_tap.h"

namespace xtreme::engine::testing {
namespace {

constexpr uint16_t kPort = 7000;

std::string MakeDirectory() {
  std::string pattern = "/dev/shm/xtreme_frame_tap_test.XXXXXX";
  EXPECT_NE(mkdtemp(pattern.data()), nullptr);
  return pattern;
}

struct Way {
  uint16_t snap_bytes;
  uint32_t device_memory;
};

class FrameTapTest : public TwoRingsTest, public ::testing::WithParamInterface<Way> {
 protected:
  FrameTapTest() : FrameTapTest(MakeDirectory()) {}
  // What the device cuts is kept uncut.
  explicit FrameTapTest(const std::string& directory)
      : TwoRingsTest({.without = "tso",
                      .device_memory = GetParam().device_memory,
                      .frames_in = directory,
                      .snap_bytes = GetParam().snap_bytes}),
        directory_(directory) {}
  ~FrameTapTest() override { rmdir(directory_.c_str()); }

  void SetUp() override {
    for (RingEnd* end : {a.get(), b.get()}) {
      auto reader = stats::FrameReader::Open(end->ring->core().device.tap->path());
      ASSERT_TRUE(reader.ok()) << reader.status();
      readers_.push_back(*std::move(reader));
    }
  }
  void TearDown() override {
    readers_.clear();
    TwoRingsTest::TearDown();
  }

  // The wire and both rings, until there is nothing more to do.
  std::vector<Completion> Run(int rounds = 100) {
    std::vector<Completion> all;
    for (int i = 0; i < rounds; ++i) {
      now += 1'000'000;
      rig->Step();
      for (RingEnd* end : {a.get(), b.get()}) {
        const auto some = end->Poll();
        Release(some);
        all.insert(all.end(), some.begin(), some.end());
        end->engine->control().RunAndWait([] {});
      }
    }
    return all;
  }

  // What ring 0 or 1 kept of what it sent, or received, since the last call; without checksums,
  // which the device makes.
  void TakeKept(size_t ring, std::vector<stats::TappedFrame>* sent,
                std::vector<stats::TappedFrame>* received) {
    for (;;) {
      auto frames = readers_[ring]->Take(500);
      ASSERT_TRUE(frames.ok()) << frames.status();
      if (frames->empty()) break;
      for (stats::TappedFrame& frame : *frames) {
        using stats::FrameKind;
        if (frame.kind != FrameKind::kSent && frame.kind != FrameKind::kReceived) continue;
        const bool tcp = frame.bytes[23] == 6;
        base::StoreBe16(&frame.bytes[24], 0);
        base::StoreBe16(&frame.bytes[tcp ? 50 : 40], 0);
        (frame.kind == FrameKind::kSent ? sent : received)->push_back(std::move(frame));
      }
    }
    EXPECT_EQ(readers_[ring]->missed(), 0u);
  }
  // The wire pads what is short.
  static void ExpectTheSame(stats::TappedFrame sent, stats::TappedFrame received) {
    constexpr size_t kLeastFrameBytes = 60;
    EXPECT_EQ(received.frame_bytes, std::max<size_t>(sent.frame_bytes, kLeastFrameBytes));
    ASSERT_EQ(sent.bytes.size(), std::min<size_t>(sent.frame_bytes, GetParam().snap_bytes));
    sent.bytes.resize(std::max(sent.bytes.size(), kLeastFrameBytes));
    EXPECT_EQ(sent.bytes, received.bytes);
  }
  // How many frames went from a to b, and from b to a, since the last call.
  std::pair<size_t, size_t> ExpectTheSame() {
    std::array<std::vector<stats::TappedFrame>, 2> sent, received;
    for (size_t ring = 0; ring < 2; ++ring) TakeKept(ring, &sent[ring], &received[ring]);
    for (size_t ring = 0; ring < 2; ++ring) {
      EXPECT_EQ(sent[ring].size(), received[1 - ring].size()) << "of ring " << ring;
      for (size_t i = 0; i < std::min(sent[ring].size(), received[1 - ring].size()); ++i) {
        SCOPED_TRACE(std::to_string(i) + " of ring " + std::to_string(ring));
        ExpectTheSame(sent[ring][i], received[1 - ring][i]);
      }
    }
    return {sent[0].size(), sent[1].size()};
  }

  static std::string Text(size_t length) {
    std::string text(length, 0);
    for (size_t i = 0; i < length; ++i) text[i] = static_cast<char>('A' + (i + length) % 50);
    return text;
  }

  const std::string directory_;
  std::vector<std::unique_ptr<stats::FrameReader>> readers_;
};

INSTANTIATE_TEST_SUITE_P(Ways, FrameTapTest,
                         ::testing::Values(Way{96, 0}, Way{96, 32'768}, Way{1'600, 0},
                                           Way{1'600, 32'768}),
                         [](const auto& with) {
                           return std::to_string(with.param.snap_bytes) +
                                  (with.param.device_memory == 0 ? "" : "FromDeviceMemory");
                         });

TEST_P(FrameTapTest, DatagramsAreKeptAtBothEnds) {
  const Handle from = a->OpenSocket({.local = {{}, kPort}});
  b->OpenSocket({.local = {{}, kPort}});
  Udp& udp = a->ring->udp();
  ASSERT_TRUE(udp.Connect(from, {kB, kPort}, 1).ok());
  a->Settle();
  size_t count = 0;
  for (const size_t length : {1, 18, 60, 100, 180, 184, 185, 500, 1'472}) {
    const std::string text = Text(length);
    const Payload payload{.data = reinterpret_cast<const uint8_t*>(text.data()),
                          .length = text.size()};
    for (const uint32_t flags : {0u, uint32_t{kNoDoorbell}, uint32_t{kSendWantWire}}) {
      EXPECT_EQ(udp.Send(udp.Find(from), payload, {.flags = flags}), SendResult::kSent);
      EXPECT_EQ(a->SendTo(from, {kB, kPort}, text, {.flags = flags}), SendResult::kSent);
      count += 2;
    }
    Run(4);
  }
  std::vector<std::string> texts;
  for (size_t i = 0; i < 50; ++i) texts.push_back(Text(1 + i * 3));
  std::vector<nic::TxPayload> burst;
  for (const std::string& text : texts) {
    burst.push_back({reinterpret_cast<const uint8_t*>(text.data()),
                     static_cast<uint32_t>(text.size())});
  }
  for (int i = 0; i < 12; ++i) {
    SendResult last{};
    EXPECT_EQ(udp.SendBurst(udp.Find(from), burst, 0, &last), burst.size());
    count += burst.size();
    Run(4);
  }
  PreparedSends& sends = a->ring->prepared();
  for (const size_t of : {6, 20, 49}) {
    const std::span payload(burst[of].data, burst[of].length);
    Handle prepared = 0;
    ASSERT_TRUE(udp.PrepareSend(from, payload, &prepared).ok());
    for (int i = 0; i < 40; ++i) {
      EXPECT_EQ(Fire(*sends.Find(prepared), {}), SendResult::kSent);
      EXPECT_TRUE(sends.Rearm(prepared).ok());
      ++count;
    }
    Run(4);
  }
  EXPECT_EQ(ExpectTheSame(), std::pair(count, size_t{0}));
}

TEST_P(FrameTapTest, SegmentsAreKeptAtBothEnds) {
  Handle listener = 0;
  ASSERT_TRUE(b->ring->tcp().OpenListener({.local = {{}, kPort}}, &listener).ok());
  b->Settle();
  Handle client = 0;
  ASSERT_TRUE(a->ring->tcp().Connect({.peer = {kB, kPort}}, &client).ok());
  Handle child = 0;
  for (const Completion& each : Run()) {
    if (each.kind == Kind::kAccepted) child = each.socket;
  }
  ASSERT_NE(child, 0u);
  EXPECT_EQ(ExpectTheSame().second, 1u) << "the SYN's answer";
  const auto send = [&](RingEnd& end, Handle socket, const std::string& text, uint32_t flags) {
    Tcp& tcp = end.ring->tcp();
    EXPECT_EQ(tcp.Send(tcp.Find(socket),
                       {.data = reinterpret_cast<const uint8_t*>(text.data()),
                        .length = text.size()},
                       {.flags = flags}),
              SendResult::kSent)
        << text.size();
  };
  // Often enough that each is signalled, too, and goes over the ring's end.
  constexpr size_t kSends = 200, kFires = 40;
  const std::vector<size_t> lengths = {1, 18, 100, 159, 160, 161, 500, 1'448, 3'000};
  const std::vector<uint32_t> flags = {0, kNoDoorbell, kSendWantWire};
  for (size_t i = 0; i < kSends; ++i) {
    const size_t length = lengths[i % lengths.size()];
    send(*a, client, Text(length), flags[i / 2 % flags.size()]);
    if (i % 2 == 0) send(*b, child, Text(length + 1), flags[i % flags.size()]);
    Run(1);
  }
  PreparedSends& sends = a->ring->prepared();
  for (const size_t length : {18, 64, 150}) {
    const std::string text = Text(length);
    Handle order = 0;
    const std::span bytes(reinterpret_cast<const uint8_t*>(text.data()), text.size());
    ASSERT_TRUE(a->ring->tcp().PrepareSend(client, bytes, &order).ok());
    for (size_t i = 0; i < kFires; ++i) {
      EXPECT_EQ(Fire(*sends.Find(order), {}), SendResult::kSent);
      EXPECT_TRUE(sends.Rearm(order).ok());
      Run(1);
    }
  }
  ASSERT_TRUE(a->ring->tcp().Close(client).ok());
  Run();
  ASSERT_TRUE(b->ring->tcp().Close(child).ok());
  Run();
  const auto [forth, back] = ExpectTheSame();
  EXPECT_GE(forth, kSends + 3 * kFires);
  EXPECT_GE(back, kSends / 2);
}

}  // namespace
}  // namespace xtreme::engine::testing
