// SPDX-License-Identifier: Apache-2.0

#include "xtreme/stats/frame_tap.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "stack/base/byte_order.h"
#include "xtreme/stats/frame_reader.h"
#include "xtreme/stats/parent_testing.h"

namespace xtreme::stats {
namespace {

using Bytes = std::vector<uint8_t>;

// A frame as it stands whole in its WQE of two blocks, which end before `end`.
struct Wqe {
  Wqe(const Bytes& frame, uint32_t length, uint16_t end = 2, uint32_t queue = 7) {
    constexpr uint32_t kBlocks = 2, kLengths = 4 * kBlocks - 1;
    base::StoreBe32(bytes.data(), uint32_t{static_cast<uint16_t>(end - kBlocks)} << 8 | 0x0A);
    base::StoreBe32(&bytes[4], queue << 8 | kLengths);
    base::StoreBe16(&bytes[28], static_cast<uint16_t>(length));
    std::copy_n(frame.begin(), std::min(frame.size(), bytes.size() - kSentFrameAt),
                bytes.begin() + kSentFrameAt);
  }
  std::array<uint8_t, SlotBytes(kLeastSnapBytes)> bytes{};
};

class FrameTapTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = "/dev/shm/xtreme_frames_test.XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
  }
  void TearDown() override {
    for (const std::string& path : ListFrameTaps(directory_)) unlink(path.c_str());
    EXPECT_EQ(rmdir(directory_.c_str()), 0);
  }

  std::unique_ptr<FrameTap> Open(uint32_t frames = kLeastSlots,
                                 uint32_t snap_bytes = kLeastSnapBytes) {
    auto tap = FrameTap::Create({.directory = directory_,
                                 .ring = 3,
                                 .interface = "eth2",
                                 .program = "handler",
                                 .frames = frames,
                                 .snap_bytes = snap_bytes});
    EXPECT_TRUE(tap.ok()) << tap.status();
    return tap.ok() ? *std::move(tap) : nullptr;
  }
  static std::unique_ptr<FrameReader> Read(const std::string& path) {
    auto reader = FrameReader::Open(path);
    EXPECT_TRUE(reader.ok()) << reader.status();
    return reader.ok() ? *std::move(reader) : nullptr;
  }
  // A frame of that length; its first eight bytes are `number`.
  static Bytes MakeFrame(uint64_t number, size_t length) {
    Bytes frame(std::max<size_t>(length, kLeastSnapBytes), 0xA5);
    memcpy(frame.data(), &number, sizeof number);
    return frame;
  }
  static void Write(FrameTap* tap, uint64_t number, uint32_t length = 64) {
    tap->Write(FrameKind::kReceived, MakeFrame(number, length).data(), length, number);
    tap->Publish(1);
  }
  // The same of one that was sent.
  static void WriteSent(FrameTap* tap, const Bytes& frame, uint32_t length, uint64_t ticks,
                        uint16_t end = 2, uint32_t queue = 7) {
    tap->WriteParts(Wqe(frame, length, end, queue).bytes.data(), frame.data(), length, nullptr, 0,
                    ticks);
  }
  static std::vector<TappedFrame> TakeAll(FrameReader* reader) {
    std::vector<TappedFrame> all;
    for (;;) {
      auto frames = reader->Take(100);
      EXPECT_TRUE(frames.ok()) << frames.status();
      if (!frames.ok() || frames->empty()) return all;
      for (TappedFrame& frame : *frames) all.push_back(std::move(frame));
    }
  }

  std::string directory_;
};

TEST_F(FrameTapTest, WhatWasWrittenIsReadInOrderWithItsTimes) {
  const auto tap = Open();
  tap->SetClocks({.base_ticks = 1'000, .base_ns = 5, .ns_per_tick_q32 = int64_t{2} << 32},
                 {.base_ticks = 0, .base_ns = 7, .ns_per_tick_q32 = int64_t{1} << 32});
  const Bytes first = MakeFrame(1, 64);
  tap->Write(FrameKind::kReceived, first.data(), 64, 1'010);
  tap->WriteParts(Wqe(first, 42).bytes.data(), first.data(), 42, first.data(), 2, 30);
  tap->Publish(2);
  const auto reader = Read(tap->path());
  const auto frames = TakeAll(reader.get());
  ASSERT_EQ(frames.size(), 2u);
  EXPECT_EQ(frames[0].kind, FrameKind::kReceived);
  EXPECT_EQ(frames[0].bytes, Bytes(first.begin(), first.begin() + 64));
  EXPECT_EQ(frames[0].time_ns, 25);
  EXPECT_EQ(frames[1].kind, FrameKind::kSent);
  EXPECT_EQ(frames[1].frame_bytes, 44u);
  EXPECT_EQ(frames[1].bytes[42], first[0]);
  EXPECT_EQ(frames[1].time_ns, 37);
  EXPECT_EQ(reader->interface(), "eth2");
  EXPECT_EQ(reader->program(), "handler");
  EXPECT_EQ(reader->missed(), 0u);
  EXPECT_TRUE(reader->alive());
}

TEST_F(FrameTapTest, TicksOfFewerBitsWrap) {
  const TickScale scale{.base_ticks = 0xFFFF'FFF0, .base_ns = 100,
                        .ns_per_tick_q32 = int64_t{1} << 32, .unused_bits = 32};
  EXPECT_EQ(scale.ToNanoseconds(0x10), 132);
  EXPECT_EQ(scale.ToNanoseconds(0xFFFF'FFE0), 84);
}

TEST_F(FrameTapTest, WithoutAClockNoTimeIsMadeUp) {
  const auto tap = Open();
  Write(tap.get(), 1);
  EXPECT_EQ(TakeAll(Read(tap->path()).get())[0].time_ns, std::nullopt);
}

TEST_F(FrameTapTest, OfAFrameAsMuchAsAskedIsKept) {
  for (const uint32_t snap_bytes : {kLeastSnapBytes, 200u, 1'500u}) {
    const auto tap = Open(kLeastSlots, snap_bytes);
    const Bytes frame = MakeFrame(9, 1'000);
    tap->Write(FrameKind::kReceived, frame.data(), 1'000, 0);
    tap->WriteParts(Wqe(frame, 42).bytes.data(), frame.data(), 42, frame.data() + 42, 958, 0);
    tap->Publish(2);
    const auto frames = TakeAll(Read(tap->path()).get());
    ASSERT_EQ(frames.size(), 2u);
    const Bytes kept(frame.begin(), frame.begin() + std::min(snap_bytes, 1'000u));
    EXPECT_EQ(frames[0].bytes, kept) << snap_bytes;
    EXPECT_EQ(frames[1].bytes, kept) << snap_bytes;
    EXPECT_EQ(frames[0].frame_bytes, 1'000u);
  }
}

TEST_F(FrameTapTest, AHeaderLongerThanWhatIsKeptIsCut) {
  const auto tap = Open();
  const Bytes frame = MakeFrame(9, 1'000);
  tap->WriteParts(Wqe(frame, 98).bytes.data(), frame.data(), 98, frame.data() + 98, 900, 0);
  Write(tap.get(), 3);
  const auto frames = TakeAll(Read(tap->path()).get());
  ASSERT_EQ(frames.size(), 1u) << "two were written, one was published";
  EXPECT_EQ(frames[0].bytes, Bytes(frame.begin(), frame.begin() + kLeastSnapBytes));
  EXPECT_EQ(frames[0].frame_bytes, 998u);
}

TEST_F(FrameTapTest, ANoteStandsBetweenTheFramesWhereItWasMade) {
  const auto tap = Open();
  Write(tap.get(), 1);
  tap->Note("3 dropped");
  Write(tap.get(), 2);
  const auto frames = TakeAll(Read(tap->path()).get());
  ASSERT_EQ(frames.size(), 3u);
  EXPECT_EQ(frames[1].kind, FrameKind::kNote);
  EXPECT_EQ(frames[1].text(), "3 dropped");
}

TEST_F(FrameTapTest, ASentFrameGetsTheTimeOfTheDeviceThatCameAfterIt) {
  const auto tap = Open();
  tap->SetClocks({.base_ticks = 0, .base_ns = 1'000, .ns_per_tick_q32 = int64_t{1} << 32},
                 {.base_ticks = 0, .base_ns = 0, .ns_per_tick_q32 = int64_t{1} << 32});
  const Bytes frame = MakeFrame(1, 64);
  for (const uint16_t end : {1, 2, 3}) WriteSent(tap.get(), frame, 64, end, end);
  tap->WriteSendTime(7, 2, 50);
  tap->WriteSendTime(7, 9, 60);  // Of none that is here.
  WriteSent(tap.get(), frame, 64, 9, 3);  // A lap later.
  tap->WriteSendTime(7, 3, 70);
  tap->Publish(7);
  auto frames = TakeAll(Read(tap->path()).get());
  ASSERT_EQ(frames.size(), 7u);
  EXPECT_EQ(ApplySendTimes(&frames, 6), 4u) << "of the first six two are times";
  ASSERT_EQ(frames.size(), 4u);
  EXPECT_EQ(frames[0].time_ns, 1) << "when it was posted";
  EXPECT_FALSE(frames[0].timed_by_device);
  EXPECT_EQ(frames[1].time_ns, 1'050);
  EXPECT_TRUE(frames[1].timed_by_device);
  EXPECT_EQ(frames[2].time_ns, 3) << "another frame of that number was meant";
  EXPECT_EQ(frames[3].time_ns, 1'070);
  EXPECT_EQ(ApplySendTimes(&frames, 9), 4u);
}

TEST_F(FrameTapTest, AFrameHasTheTimeOfTheDeviceThatItCameBy) {
  const auto tap = Open();
  const auto clock = [](int64_t base_ns) {
    return TickScale{.base_ns = base_ns, .ns_per_tick_q32 = int64_t{1} << 32};
  };
  std::vector<std::optional<int64_t>> times;
  for (const int64_t device : {1'000, 2'000, 3'000}) {
    tap->SetClocks(clock(device - 500), clock(0), /*other_device=*/device != 1'000);
    Write(tap.get(), 1);
    tap->SetClocks(clock(device), clock(0));  // The same as it runs.
    Write(tap.get(), 2);
    const auto frames = TakeAll(Read(tap->path()).get());
    times.clear();
    for (const TappedFrame& frame : frames) times.push_back(frame.time_ns);
    if (device == 2'000) {
      EXPECT_EQ(times, (std::vector<std::optional<int64_t>>{1'001, 1'002, 2'001, 2'002}));
    }
  }
  EXPECT_EQ(times, (std::vector<std::optional<int64_t>>{std::nullopt, std::nullopt, 2'001, 2'002,
                                                        3'001, 3'002}));
}

TEST_F(FrameTapTest, EachQueueOfARingNamesItsFramesByItself) {
  const auto tap = Open();
  const TickScale clock{.base_ticks = 0, .base_ns = 0, .ns_per_tick_q32 = int64_t{1} << 32};
  tap->SetClocks(clock, clock);
  constexpr uint32_t kFirst = 0xAB'CDEF, kSecond = 0xAB'CDEE;
  const Bytes frame = MakeFrame(1, 64);
  WriteSent(tap.get(), frame, 64, 10, 1, kFirst);
  WriteSent(tap.get(), frame, 64, 11, 1, kSecond);
  tap->WriteSendTime(kFirst, 1, 20);
  tap->WriteSendTime(kSecond, 1, 30);
  tap->Publish(4);
  auto frames = TakeAll(Read(tap->path()).get());
  ApplySendTimes(&frames, 4);
  ASSERT_EQ(frames.size(), 2u);
  EXPECT_EQ(frames[0].queue, kFirst);
  EXPECT_EQ(frames[0].time_ns, 20);
  EXPECT_EQ(frames[1].queue, kSecond);
  EXPECT_EQ(frames[1].time_ns, 30);
}

// From memory, from registers and of a run.
TEST_F(FrameTapTest, OfAFrameThatStandsInItsWqeThatIsKept) {
  const auto tap = Open();
  tap->SetClocks({}, {.base_ticks = FrameTap::Now(), .ns_per_tick_q32 = int64_t{1} << 32});
  typedef uint64_t Half __attribute__((vector_size(32)));
  const auto reader = Read(tap->path());
  for (const uint32_t length : {20u, 64u, 96u, 98u, 200u}) {
    const Bytes frame = MakeFrame(length, length);
    const Wqe wqe(frame, length, /*end=*/1, 0xAB'CDEF);
    tap->WriteWqe(wqe.bytes.data());
    Half halves[4];
    memcpy(halves, wqe.bytes.data(), sizeof halves);
    tap->WriteWqe(halves);
    tap->Publish(2);
    FrameTap::Run run(tap.get());
    run.WriteWqe(wqe.bytes.data(), FrameTap::Now());
    run.Publish(1);
    const auto frames = TakeAll(reader.get());
    ASSERT_EQ(frames.size(), 3u);
    int64_t before = 0;
    for (const TappedFrame& kept : frames) {
      EXPECT_EQ(kept.kind, FrameKind::kSent);
      EXPECT_EQ(kept.frame_bytes, length);
      EXPECT_EQ(kept.bytes, Bytes(frame.begin(), frame.begin() + std::min(length, 96u)));
      EXPECT_EQ(kept.end, 1) << "over the end of the numbers";
      EXPECT_EQ(kept.queue, 0xAB'CDEFu);
      EXPECT_GT(kept.time_ns, before);
      before = *kept.time_ns;
    }
  }
}

TEST_F(FrameTapTest, WhatIsNotPublishedIsNotRead) {
  const auto tap = Open();
  Write(tap.get(), 1);
  tap->WriteWqe(Wqe(MakeFrame(2, 64), 64).bytes.data());
  EXPECT_EQ(TakeAll(Read(tap->path()).get()).size(), 1u);
}

// Wherever it stood, at the end of the slots too.
TEST_F(FrameTapTest, OfWhatWasTakenBackNothingIsLeft) {
  const auto tap = Open();
  const auto reader = Read(tap->path());
  for (uint64_t number = 1; number <= 3 * kLeastSlots; ++number) {
    const Bytes taken_back = MakeFrame(0, 64);
    tap->Write(FrameKind::kReceived, taken_back.data(), 64, 0);
    tap->TakeBack();
    Write(tap.get(), number);
    const auto frames = TakeAll(reader.get());
    ASSERT_EQ(frames.size(), 1u);
    ASSERT_EQ(frames[0].bytes[0], static_cast<uint8_t>(number));
  }
  EXPECT_EQ(reader->missed(), 0u);
}

TEST_F(FrameTapTest, AReaderThatIsLappedCountsWhatItMissed) {
  const auto tap = Open();
  Write(tap.get(), 0);
  const auto reader = Read(tap->path());
  ASSERT_EQ(TakeAll(reader.get()).size(), 1u);
  constexpr uint64_t kWritten = 10'000;
  for (uint64_t i = 1; i <= kWritten; ++i) Write(tap.get(), i);
  const auto frames = TakeAll(reader.get());
  EXPECT_EQ(frames.size() + reader->missed(), kWritten);
  EXPECT_EQ(frames.size(), kLeastSlots - kSlotsAtWork);
  EXPECT_EQ(frames.back().number, kWritten);
}

TEST_F(FrameTapTest, AFrameOfNoKnownKindIsCountedAsMissed) {
  const auto tap = Open();
  const auto reader = Read(tap->path());
  tap->Write(FrameKind{99}, MakeFrame(1, 64).data(), 64, 0);
  tap->Publish(1);
  Write(tap.get(), 2);
  EXPECT_EQ(TakeAll(reader.get()).size(), 1u);
  EXPECT_EQ(reader->missed(), 1u);
}

TEST_F(FrameTapTest, FromNowOnMeansNothingOlder) {
  const auto tap = Open();
  Write(tap.get(), 1);
  const auto reader = Read(tap->path());
  ASSERT_TRUE(reader->SkipToNewest().ok());
  Write(tap.get(), 2);
  EXPECT_EQ(TakeAll(reader.get()).size(), 1u);
  EXPECT_EQ(reader->missed(), 0u);
}

TEST_F(FrameTapTest, WhatWasThereEndsThoughMoreComes) {
  const auto tap = Open();
  for (uint64_t i = 0; i < 150; ++i) Write(tap.get(), i);
  const auto reader = Read(tap->path());
  const auto lapped = Read(tap->path());
  ASSERT_TRUE(reader->StopAtNewest().ok());
  ASSERT_TRUE(lapped->StopAtNewest().ok());
  Write(tap.get(), 150);
  const auto frames = TakeAll(reader.get());
  ASSERT_EQ(frames.size(), 150u);
  EXPECT_EQ(frames.back().number, 149u);
  for (uint64_t i = 0; i < 2 * kLeastSlots; ++i) Write(tap.get(), i);
  EXPECT_TRUE(TakeAll(lapped.get()).empty());
  EXPECT_EQ(lapped->missed(), 150u) << "of those that it is to read";
}

// Slots are long, and little is written of each: it laps while a reader copies some.
TEST_F(FrameTapTest, NoFrameIsTornUnderAWriterThatLaps) {
  const auto tap = Open(kLeastSlots, kMostSnapBytes);
  const auto reader = Read(tap->path());
  std::atomic<bool> over{false};
  uint64_t written = 0;
  std::thread writer([&] {
    for (; !over; tap->Publish(256)) {
      for (int i = 0; i < 256; ++i, ++written) {
        // The same number in every word.
        std::array<uint64_t, kLeastSnapBytes / 8> words;
        words.fill(written);
        tap->Write(FrameKind::kReceivedUntimed, reinterpret_cast<const uint8_t*>(words.data()), 96,
                   written);
      }
    }
  });
  uint64_t seen = 0;
  bool torn = false;
  const auto take = [&] {
    const auto frames = reader->Take(512);
    EXPECT_TRUE(frames.ok()) << frames.status();
    for (const TappedFrame& frame : *frames) {
      for (size_t at = 0; at < frame.bytes.size(); at += 8) {
        torn |= memcmp(frame.bytes.data() + at, &frame.number, 8) != 0;
      }
    }
    seen += frames->size();
  };
  while (reader->missed() < 5'000'000 && !torn) take();
  over = true;
  writer.join();
  // What is left is at most what the tap has.
  for (int i = 0; i < 3; ++i) take();
  EXPECT_FALSE(torn);
  EXPECT_EQ(seen + reader->missed(), written);
}

TEST_F(FrameTapTest, OnlyItsUserReadsIt) {
  const auto tap = Open();
  struct stat status = {};
  ASSERT_EQ(stat(tap->path().c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
}

TEST_F(FrameTapTest, FramesOfAKilledProcessAreReadUntilTheNextTap) {
  const pid_t child = fork();
  if (child == 0) {
    const auto tap = Open();
    Write(tap.get(), 42);
    raise(SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  const auto left = ListFrameTaps(directory_);
  ASSERT_EQ(left.size(), 1u);
  const auto reader = Read(left[0]);
  EXPECT_FALSE(reader->alive());
  EXPECT_EQ(TakeAll(reader.get()).size(), 1u);
  const auto tap = Open();
  EXPECT_EQ(ListFrameTaps(directory_), std::vector<std::string>{tap->path()});
}

// What says that it lives is neither a child's nor a descriptor.
TEST_F(FrameTapTest, AProcessIsDeadThoughAChildOfItLivesAndAliveThoughItClosesAllFiles) {
  testing::ParentWriter writer([this] {
    auto tap = Open();
    Write(tap.get(), 42);
    return tap;
  });
  ASSERT_TRUE(writer.started());
  const std::string path = ListFrameTaps(directory_).at(0);
  EXPECT_TRUE(Read(path)->alive());
  writer.Kill();
  EXPECT_FALSE(Read(path)->alive());
  EXPECT_EQ(RemoveStaleFrames(directory_), 1);
}

TEST_F(FrameTapTest, AClosedTapLeavesNothing) {
  Open();
  EXPECT_TRUE(ListFrameTaps(directory_).empty());
}

TEST_F(FrameTapTest, AHostileHeaderIsRefusedForWhatIsWrong) {
  struct Row {
    size_t place;
    uint32_t value;
    const char* message;
  };
  const Row rows[] = {
      {0, 0, "read frames: this is not a frame tap"},
      {offsetof(FramesHeader, version), 5, "read frames: layout 5, 6 is known"},
      {offsetof(FramesHeader, slots), 3, "read frames: 3 slots of 128 bytes for 96"},
      {offsetof(FramesHeader, snap_bytes), 113,
       "read frames: 1024 slots of 128 bytes for 113"},
      {offsetof(FramesHeader, slots), 2'048,
       "read frames: 131392 bytes, its header says 262464"},
      {offsetof(FramesHeader, clocks.host.unused_bits), 64,
       "read frames: a clock without bits"},
  };
  for (const Row& row : rows) {
    const auto tap = Open();
    const int fd = open(tap->path().c_str(), O_RDWR | O_CLOEXEC);
    ASSERT_EQ(pwrite(fd, &row.value, sizeof row.value, static_cast<off_t>(row.place)), 4);
    close(fd);
    const auto refused = FrameReader::Open(tap->path());
    ASSERT_FALSE(refused.ok()) << row.message;
    EXPECT_EQ(std::string(refused.status().message()), tap->path() + ": " + row.message);
  }
}

// A header of what `sequence` is at each look; its clocks say at which look they were read.
absl::Status ReadAsWritten(const std::vector<uint64_t>& sequence, size_t* looks,
                           FramesHeader* header) {
  *looks = 0;
  return ReadWhole(
      [&](FramesHeader* to) {
        to->sequence = sequence[*looks % sequence.size()];
        to->clocks.device.base_ns = static_cast<int64_t>((*looks)++);
        return true;
      },
      header);
}

TEST(ReadWhole, ClocksThatWereWrittenMeanwhileAreReadAgain) {
  struct Row {
    const char* name;
    std::vector<uint64_t> sequence;
    size_t looks;
  };
  const Row rows[] = {
      {"nobody writes", {2, 2}, 2},
      {"it is being written", {1, 1, 2, 2}, 4},
      {"for long", {1, 1, 1, 1, 1, 1, 2, 2}, 8},
      {"writing begins", {2, 3, 4, 4}, 4},
      {"writing ends", {1, 2, 2, 2}, 4},
      {"it was written", {2, 4, 4, 4}, 4},
  };
  for (const Row& row : rows) {
    FramesHeader header = {};
    size_t looks = 0;
    EXPECT_TRUE(ReadAsWritten(row.sequence, &looks, &header).ok()) << row.name;
    EXPECT_EQ(looks, row.looks) << row.name;
    EXPECT_EQ(header.clocks.device.base_ns, static_cast<int64_t>(row.looks) - 2) << row.name;
  }
}

TEST(ReadWhole, ClocksThatAreWrittenAllTheTimeAreNotBelieved) {
  for (const std::vector<uint64_t>& sequence : {std::vector<uint64_t>{7}, {2, 4}, {2, 3}}) {
    FramesHeader header = {};
    size_t looks = 0;
    EXPECT_EQ(ReadAsWritten(sequence, &looks, &header).code(), absl::StatusCode::kUnavailable)
        << sequence[0];
  }
}

TEST_F(FrameTapTest, OfClocksThatAreBeingWrittenTheLastWholeOnesTellTime) {
  const auto tap = Open();
  const auto clock = [](int64_t base_ns) {
    return TickScale{.base_ns = base_ns, .ns_per_tick_q32 = int64_t{1} << 32};
  };
  // By the device's clock, and by the host's.
  const auto write_both = [&](uint64_t ticks) {
    Write(tap.get(), ticks);
    WriteSent(tap.get(), MakeFrame(ticks, 64), 64, ticks);
    tap->Publish(1);
  };
  using Times = std::vector<std::optional<int64_t>>;
  const auto take_times = [](FrameReader* reader) {
    Times times;
    for (const TappedFrame& frame : TakeAll(reader)) times.push_back(frame.time_ns);
    return times;
  };
  tap->SetClocks(clock(1'000), clock(5'000));
  const auto reader = Read(tap->path());
  write_both(1);
  EXPECT_EQ(take_times(reader.get()), Times({1'001, 5'001}));
  // As somebody who writes them has them, or who was killed at it.
  struct {
    uint64_t sequence;
    TickScale device;
    TickScale host;
  } const half{3, clock(2'000), clock(6'000)};
  static_assert(sizeof half == offsetof(FramesHeader, clocks.device_before) -
                                   offsetof(FramesHeader, sequence));
  const int fd = open(tap->path().c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_EQ(pwrite(fd, &half, sizeof half, offsetof(FramesHeader, sequence)),
            ssize_t{sizeof half});
  close(fd);
  write_both(2);
  EXPECT_EQ(take_times(reader.get()), Times({1'002, 5'002}));
  const auto late = Read(tap->path());
  const std::optional<int64_t> unknown;
  EXPECT_EQ(take_times(late.get()), Times({unknown, unknown, unknown, unknown}));
  tap->SetClocks(clock(3'000), clock(7'000));
  write_both(3);
  EXPECT_EQ(take_times(reader.get()), Times({3'003, 7'003}));
  EXPECT_EQ(take_times(late.get()), Times({3'003, 7'003}));
}

TEST_F(FrameTapTest, AFileThatShrinksIsAnError) {
  const auto tap = Open();
  Write(tap.get(), 1);
  const auto reader = Read(tap->path());
  ASSERT_EQ(truncate(tap->path().c_str(), sizeof(FramesHeader)), 0);
  EXPECT_FALSE(reader->Take(1).ok());
  ASSERT_EQ(truncate(tap->path().c_str(), sizeof(FramesHeader) + 1'024 * 128), 0);
}

TEST_F(FrameTapTest, WhatIsNotPossibleIsRefused) {
  for (const auto& [frames, snap_bytes] : {std::pair(1'000u, 96u), {1'024u, 95u},
                                           {1'024u, 10'000u}, {1u << 21, 96u}}) {
    const auto refused = FrameTap::Create(
        {.directory = directory_, .frames = frames, .snap_bytes = snap_bytes});
    EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument) << frames;
  }
}

}  // namespace
}  // namespace xtreme::stats
