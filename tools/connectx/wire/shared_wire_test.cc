// SPDX-License-Identifier: Apache-2.0

#include "tools/connectx/wire/shared_wire.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tools/connectx/wire/frame_list.h"

namespace xtreme::connectx {
namespace {

constexpr MacAddress kA{2, 0, 0, 0, 0, 0xa};
constexpr MacAddress kB{2, 0, 0, 0, 0, 0xb};
constexpr MacAddress kC{2, 0, 0, 0, 0, 0xc};
constexpr MacAddress kGroup{1, 0, 0x5e, 1, 2, 3};
constexpr MacAddress kBroadcast{0xff, 0xff, 0xff, 0xff, 0xff, 0xff};

std::vector<uint8_t> Frame(const MacAddress& from, const MacAddress& to, uint32_t number = 0) {
  std::vector<uint8_t> frame = NumberedFrame(number);
  std::copy(to.begin(), to.end(), frame.begin());
  std::copy(from.begin(), from.end(), frame.begin() + 6);
  return frame;
}

class SharedWireTest : public testing::Test {
 protected:
  SharedWireTest()
      : segment_(std::string(std::getenv("TEST_TMPDIR")) + "/" +
                 testing::UnitTest::GetInstance()->current_test_info()->name()) {}

  absl::StatusOr<std::unique_ptr<SharedWire>> TryOpen() {
    return SharedWire::Open({.segment = segment_, .ports = 4, .ring_bytes = 16 << 10});
  }

  std::unique_ptr<SharedWire> Open() {
    auto wire = TryOpen();
    EXPECT_TRUE(wire.ok()) << wire.status();
    return wire.ok() ? *std::move(wire) : nullptr;
  }

  // How many frames wait; takes them.
  int Drain(Wire& wire) {
    int total = 0;
    while (const int n = wire.Receive(received_, 64, 1'000)) total += n;
    return total;
  }

  static bool Readable(const Wire& wire) {
    pollfd source{.fd = wire.fd(), .events = POLLIN, .revents = 0};
    return ::poll(&source, 1, 0) == 1;
  }

  const std::string segment_;
  FrameList received_;
};

TEST_F(SharedWireTest, UnknownStationIsFloodedAndAKnownOneIsNot) {
  auto a = Open();
  auto b = Open();
  auto c = Open();
  EXPECT_TRUE(a->Transmit(Frame(kA, kB), 0));
  EXPECT_EQ(Drain(*b), 1);
  EXPECT_EQ(Drain(*c), 1);
  EXPECT_EQ(Drain(*a), 0);
  EXPECT_TRUE(b->Transmit(Frame(kB, kA), 0));
  EXPECT_EQ(Drain(*a), 1);
  EXPECT_EQ(Drain(*c), 0) << "A is known since it sent";
  EXPECT_TRUE(a->Transmit(Frame(kA, kB), 0));
  EXPECT_EQ(Drain(*b), 1);
  EXPECT_EQ(Drain(*c), 0) << "B is known since it answered";
  EXPECT_EQ(CountOf(*a, "tx_flooded"), 1u);
}

TEST_F(SharedWireTest, GroupsAndBroadcastsGoToAllButTheSender) {
  auto a = Open();
  auto b = Open();
  auto c = Open();
  EXPECT_TRUE(b->Transmit(Frame(kGroup, kA), 0));
  Drain(*a);
  Drain(*c);
  for (const MacAddress& to : {kGroup, kBroadcast}) {
    EXPECT_TRUE(a->Transmit(Frame(kA, to), 0));
    EXPECT_EQ(Drain(*b), 1);
    EXPECT_EQ(Drain(*c), 1);
    EXPECT_EQ(Drain(*a), 0);
  }
}

TEST_F(SharedWireTest, StationThatMovesIsFoundWhereItSendsFrom) {
  auto a = Open();
  auto b = Open();
  auto c = Open();
  b->Transmit(Frame(kC, kA), 0);
  c->Transmit(Frame(kC, kA), 0);
  Drain(*a);
  Drain(*b);
  Drain(*c);
  a->Transmit(Frame(kA, kC), 0);
  EXPECT_EQ(Drain(*b), 0);
  EXPECT_EQ(Drain(*c), 1);
}

TEST_F(SharedWireTest, FrameForAStationOnTheSameSideGoesNowhere) {
  auto a = Open();
  auto b = Open();
  a->Transmit(Frame(kB, kBroadcast), 0);
  Drain(*b);
  EXPECT_TRUE(a->Transmit(Frame(kA, kB), 0));
  EXPECT_EQ(Drain(*b), 0);
  EXPECT_EQ(CountOf(*a, "tx_filtered"), 1u);
}

TEST_F(SharedWireTest, WhoTakesAFreePortHasNotItsPredecessorsAddresses) {
  auto a = Open();
  auto b = Open();
  auto c = Open();
  b->Transmit(Frame(kB, kA), 0);
  EXPECT_EQ(Drain(*c), 1);
  const int port = b->port();
  b.reset();
  auto d = Open();
  ASSERT_EQ(d->port(), port);
  EXPECT_TRUE(a->Transmit(Frame(kA, kB), 0));
  EXPECT_EQ(Drain(*d), 1);
  EXPECT_EQ(Drain(*c), 1) << "B left: it is unknown again, and flooded";
}

TEST_F(SharedWireTest, FrameArrivesAtTheTimeItWasSentAndNeverInTheFuture) {
  auto a = Open();
  auto b = Open();
  a->Transmit(Frame(kA, kB), 900);
  a->Transmit(Frame(kA, kB), 2'000);
  EXPECT_EQ(Drain(*b), 2);
  EXPECT_EQ(received_.entries[0].time_ns, 900);
  EXPECT_EQ(received_.entries[1].time_ns, 1'000);
}

TEST_F(SharedWireTest, FullPortDropsAndCounts) {
  auto a = Open();
  auto b = Open();
  uint32_t sent = 0;
  while (a->Transmit(Frame(kA, kB, sent), 0)) ++sent;
  EXPECT_EQ(CountOf(*a, "tx_dropped_full"), 1u);
  EXPECT_EQ(Drain(*b), static_cast<int>(sent));
  for (uint32_t i = 0; i < sent; ++i) EXPECT_EQ(NumberOf(received_.entries[i].bytes), i);
  EXPECT_TRUE(a->Transmit(Frame(kA, kB), 0));
}

TEST_F(SharedWireTest, FramesOfImpossibleLengthAreDroppedAndCounted) {
  auto a = Open();
  EXPECT_FALSE(a->Transmit(std::vector<uint8_t>(13), 0));
  EXPECT_FALSE(a->Transmit(std::vector<uint8_t>(kMaxFrameBytes + 1), 0));
  EXPECT_EQ(CountOf(*a, "tx_dropped_length"), 2u);
}

TEST_F(SharedWireTest, OnlyAnArmedReceiverIsWoken) {
  auto a = Open();
  auto b = Open();
  a->Transmit(Frame(kA, kB), 0);
  EXPECT_FALSE(Readable(*b));
  EXPECT_FALSE(b->Arm()) << "a frame waits";
  EXPECT_EQ(Drain(*b), 1);
  EXPECT_TRUE(b->Arm());
  EXPECT_FALSE(Readable(*b));
  a->Transmit(Frame(kA, kB), 0);
  EXPECT_TRUE(Readable(*b));
  EXPECT_EQ(Drain(*b), 1);
  EXPECT_FALSE(Readable(*b));
  EXPECT_TRUE(b->Arm());
  a->Transmit(Frame(kA, kB), 0);
  EXPECT_TRUE(Readable(*b)) << "again after a sleep";
}

TEST_F(SharedWireTest, LastOneToLeaveRemovesTheSegment) {
  auto a = Open();
  auto b = Open();
  a.reset();
  EXPECT_TRUE(std::filesystem::exists(segment_));
  b.reset();
  EXPECT_FALSE(std::filesystem::exists(segment_));
}

TEST_F(SharedWireTest, TheLastTwoToLeaveAtATimeRemoveTheSegment) {
  for (int lap = 0; lap < 200; ++lap) {
    auto a = Open();
    auto b = Open();
    std::atomic<bool> there{false};
    std::thread other([&] {
      there = true;
      a.reset();
    });
    while (!there) continue;
    b.reset();
    other.join();
    ASSERT_FALSE(std::filesystem::exists(segment_)) << "lap " << lap;
  }
}

TEST_F(SharedWireTest, NoPortIsLeftOnAFullSwitch) {
  std::vector<std::unique_ptr<SharedWire>> wires;
  for (int port = 0; port < 4; ++port) wires.push_back(Open());
  EXPECT_EQ(TryOpen().status().code(), absl::StatusCode::kResourceExhausted);
  wires.pop_back();
  EXPECT_NE(Open(), nullptr);
}

TEST_F(SharedWireTest, DirectoryThatOthersMayWriteIsRefused) {
  std::filesystem::create_directory(segment_);
  ::chmod(segment_.c_str(), 0777);
  EXPECT_EQ(TryOpen().status().code(), absl::StatusCode::kPermissionDenied);
}

TEST_F(SharedWireTest, LivingSegmentWhoseHeaderIsNonsenseIsRefusedAndLeftAlone) {
  auto a = Open();
  std::fstream file(segment_ + "/segment", std::ios::in | std::ios::out | std::ios::binary);
  file << "nonsense, twenty or more bytes of it";
  file.close();
  EXPECT_EQ(TryOpen().status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(std::filesystem::exists(segment_ + "/segment"));
}

TEST_F(SharedWireTest, WhatNobodyLivesInIsMadeAnew) {
  std::filesystem::create_directory(segment_);
  ::chmod(segment_.c_str(), 0700);
  std::ofstream(segment_ + "/segment") << std::string(5'000'000, 'x');
  auto a = Open();
  auto b = Open();
  EXPECT_TRUE(a->Transmit(Frame(kA, kB), 0));
  EXPECT_EQ(Drain(*b), 1);
}

TEST_F(SharedWireTest, OptionsOutOfRangeAreErrors) {
  for (const char* none : {"", ".", ".."}) {
    EXPECT_TRUE(absl::IsInvalidArgument(SharedWire::Open({.segment = none}).status())) << none;
  }
  using Options = SharedWire::Options;
  for (const Options& options : {Options{}, Options{.segment = "x", .ports = 1},
                                 Options{.segment = "x", .ports = 65},
                                 Options{.segment = "x", .ring_bytes = 100'000},
                                 Options{.segment = "x", .ring_bytes = 8 << 10}}) {
    EXPECT_EQ(options.Validate().code(), absl::StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace xtreme::connectx
