// SPDX-License-Identifier: Apache-2.0
//
// What operators may look at, and what it takes to be asked for it.

#include <unistd.h>

#include <cstdlib>
#include <future>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "xtreme/engine/control_thread.h"
#include "xtreme/engine/ring_core.h"
#include "xtreme/engine/testing/ring_fixture.h"
#include "xtreme/stats/frame_reader.h"
#include "xtreme/stats/frame_tap.h"

namespace xtreme::engine::testing {
namespace {

class RingObserveTest : public RingTest {
 protected:
  ~RingObserveTest() override {
    if (!options.counters_directory.empty()) rmdir(options.counters_directory.c_str());
  }
  void KeepFrames() {
    std::string pattern = "/dev/shm/xtreme_observe_test.XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    options.counters_directory = pattern;
    options.dump_frames = 1'024;
  }
  // What is kept, as other programs read it.
  std::vector<stats::TappedFrame> Frames() {
    const auto paths = stats::ListFrameTaps(options.counters_directory);
    if (paths.size() != 1) return {};
    const auto reader = stats::FrameReader::Open(paths[0]);
    if (!reader.ok()) return {};
    auto frames = (*reader)->Take(100);
    EXPECT_TRUE(frames.ok()) << frames.status();
    return frames.ok() ? *std::move(frames) : std::vector<stats::TappedFrame>{};
  }
  // The texts noted among the frames.
  std::vector<std::string> Notes() {
    std::vector<std::string> notes;
    for (const stats::TappedFrame& frame : Frames()) notes.emplace_back(frame.text());
    return notes;
  }
  // A frame that the device timed, as the driver keeps it.
  void Keep(uint64_t hw_clock) {
    const std::vector<uint8_t> frame(stats::kLeastSnapBytes);
    stats::FrameTap& tap = *ring->core().device.tap;
    tap.Write(stats::FrameKind::kReceived, frame.data(), 60, hw_clock);
    tap.Publish(1);
  }
};

TEST_F(RingObserveTest, GapsBetweenPollsAreCounted) {
  options.histograms = true;
  Open();
  PollOnce();
  const uint64_t long_before = Counter("poll_gap_ns", "below_4096");
  const uint64_t short_before = Counter("poll_gap_ns", "below_128");
  now += 3'000;
  PollOnce();
  now += 100;
  PollOnce();
  EXPECT_EQ(Counter("poll_gap_ns", "below_4096") - long_before, 1u);
  EXPECT_EQ(Counter("poll_gap_ns", "below_128") - short_before, 1u);
  EXPECT_GE(Counter("poll_gap_ns", "max"), 3'000u);
}

TEST_F(RingObserveTest, ASleepIsNoGap) {
  options.histograms = true;
  Open();
  Settle();
  const uint64_t before = Counter("poll_gap_ns", "sum");
  EXPECT_TRUE(ring->Arm());
  now += 1'000'000'000;
  PollOnce();
  EXPECT_EQ(Counter("poll_gap_ns", "sum"), before);
}

TEST_F(RingObserveTest, AgeOfAPacketIsCountedFromItsHardwareTime) {
  options.histograms = true;
  Open();
  OpenSocket(7000);
  ring->OnClock({.host = {.multiplier = 1, .in_sync = true}, .ptp = {}}, {});
  const uint64_t sent = now;
  now += 700;
  ASSERT_TRUE(queue().Inject(MakeFrame({}), 0, sent));
  Release(PollOnce());
  EXPECT_EQ(Counter("wire_to_poll_ns", "below_1024"), 1u);
  EXPECT_EQ(Counter("wire_to_poll_ns", "sum"), 700u);
}

TEST_F(RingObserveTest, TimesAreOnThePtpClockAndAgesOnTheHosts) {
  options.histograms = true;
  options.hw_time = HwTime::kPtp;
  Open();
  OpenSocket(7000);
  const nic::ClockConversion host{.multiplier = 1, .error_bound_ns = 9, .in_sync = true};
  const nic::ClockConversion ptp{.base_ns = 37'000'000'000, .multiplier = 1, .error_bound_ns = 4,
                                 .in_sync = true};
  const auto arrive = [&] {
    const uint64_t sent = now;
    now += 700;
    EXPECT_TRUE(queue().Inject(MakeFrame({}), 0, sent));
    auto packets = PollOnce();
    EXPECT_EQ(packets.size(), 1u);
    Release(packets);
    return std::pair(packets.at(0), static_cast<int64_t>(sent));
  };
  ring->OnClock({.host = host, .ptp = ptp}, {});
  for (int known = 0; known < 3; ++known) {
    const auto [packet, sent] = arrive();
    EXPECT_EQ(packet.hw_time_ns, sent + ptp.base_ns);
    EXPECT_EQ(packet.flags, kClockSynced | kPtpTime) << known;
  }
  EXPECT_EQ(ring->ClockError(), base::Nanoseconds(4));
  EXPECT_EQ(Counter("wire_to_poll_ns", "sum"), 2'100u);

  // A clock that nobody steers is the one that was asked for all the same.
  nic::ClockConversion lost = ptp;
  lost.in_sync = false;
  ring->OnClock({.host = host, .ptp = lost}, {});
  EXPECT_EQ(PollOnce().at(0).event, RingEvent::kClockLost);
  EXPECT_EQ(arrive().first.flags, kPtpTime);
  EXPECT_EQ(ring->ClockError(), base::kNever);
  EXPECT_EQ(Counter("wire_to_poll_ns", "sum"), 2'800u);

  // As of a port that the ring went over to, which has none.
  ring->OnClock({.host = host, .ptp = {}}, {});
  EXPECT_EQ(PollOnce().at(0).event, RingEvent::kClockSynced);
  const auto [packet, sent] = arrive();
  EXPECT_EQ(packet.hw_time_ns, sent);
  EXPECT_EQ(packet.flags, kClockSynced);
}

TEST_F(RingObserveTest, RingSaysThatThereIsNoPtpClock) {
  options.hw_time = HwTime::kPtp;
  Open();
  EXPECT_NE(ring->description().find("times on CLOCK_MONOTONIC: no PTP clock is published"),
            std::string::npos)
      << ring->description();
}

TEST_F(RingObserveTest, NobodyAskedNothingIsCounted) {
  Open();
  bool there = false;
  ring->VisitCounters([&there](std::string_view scope, std::string_view, std::string_view,
                               uint64_t) { there |= scope == "poll_gap_ns"; });
  EXPECT_FALSE(there);
}

TEST_F(RingObserveTest, LossesAreNotedByNameAmongTheFrames) {
  KeepFrames();
  Open();
  const Handle socket = OpenSocket({.local = {{}, 7000}, .max_held = 1});
  ASSERT_NE(socket, 0u);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(Inject({}));
  const auto held = PollAll();
  const auto notes = Notes();
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_EQ(notes[0].find("2 drop held_limit: "), 0u) << notes[0];
  Release(held);
  ring.reset();
  engine->control().RunAndWait([] {});
}

TEST_F(RingObserveTest, AFrameThatWasTooLongIsNotedToo) {
  KeepFrames();
  Open();
  queue().InjectTooLong();
  PollAll();
  ring->Publish();
  const auto notes = Notes();
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_EQ(notes[0].find("1 queue rx_too_long: "), 0u) << notes[0];
  ring.reset();
  engine->control().RunAndWait([] {});
}

// The control thread writes what the old queue still has.
TEST_F(RingObserveTest, WhatIsLostDuringAResetIsNotedBehindIt) {
  KeepFrames();
  Open();
  std::promise<void> gate;
  engine->control().StartNow(MakeOperation([&gate] { gate.get_future().wait(); }));
  ASSERT_TRUE(ring->Reset(77).ok());
  ring->OnPortCounters({.out_of_buffer = 3});
  PollAll();
  EXPECT_TRUE(Notes().empty());
  gate.set_value();
  Settle();
  const auto notes = Notes();
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_EQ(notes[0].find("3 port "), 0u) << notes[0];
  ring.reset();
  engine->control().RunAndWait([] {});
}

// xtreme_dump puts frames of several rings, and notes, in one order of time.
TEST_F(RingObserveTest, FramesAreKeptOnTheHostsClockWhateverTimesAreToldOn) {
  KeepFrames();
  options.hw_time = HwTime::kPtp;
  Open();
  nic::ClockConversion host{.base_ns = 1'000, .multiplier = 1, .in_sync = true};
  nic::ClockConversion ptp{.base_ns = 37'000'000'000, .multiplier = 2, .in_sync = true};
  Keep(500);
  ring->OnClock({.host = host, .ptp = ptp}, {});
  ASSERT_TRUE(ring->TimesAreOnPtp());
  ASSERT_EQ(Frames().size(), 1u);
  EXPECT_EQ(Frames()[0].time_ns, 1'500);
  ptp.in_sync = false;  // Nobody steers it.
  ring->OnClock({.host = host, .ptp = ptp}, {});
  EXPECT_EQ(Frames()[0].time_ns, 1'500);
  ptp.in_sync = true;
  host.in_sync = false;
  ring->OnClock({.host = host, .ptp = ptp}, {});
  EXPECT_EQ(Frames()[0].time_ns, std::nullopt) << "the other clock is no substitute";
  ring.reset();
  engine->control().RunAndWait([] {});
}

TEST_F(RingObserveTest, WhatCannotBeKeptIsSaid) {
  options.dump_frames = 1'024;
  options.counters_directory = "/dev/shm/xtreme_absent";
  Open();
  EXPECT_NE(ring->description().find("tap frames: make a file in /dev/shm/xtreme_absent: No such"),
            std::string::npos)
      << ring->description();
  options.counters_directory.clear();
}

}  // namespace
}  // namespace xtreme::engine::testing
