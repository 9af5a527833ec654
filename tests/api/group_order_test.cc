// SPDX-License-Identifier: Apache-2.0
//
// xtreme.h: a group of rings by hardware time: the two lines of a feed that come by two ports of
// one NIC, or by two NICs whose counters run at rates of their own and whose PTP clocks agree.
//
// The devices' time stands still but for the test, so that it knows each frame's to the tick.

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/api/api_fixture.h"
#include "tools/connectx/device/device.h"

namespace xtreme::api_test {
namespace {

using connectx::Device;

struct Lines {
  const char* name;
  // Of the devices behind the two.
  std::array<uint32_t, 2> clock_khz;
};

constexpr Lines kLines[] = {{"TwoPorts", {1'000'000, 1'000'000}}, {"TwoNics", {156'250, 78'125}}};
constexpr int64_t kTickNs = 13;  // Of the slowest of these, and what a conversion rounds.
constexpr int64_t kTaiNs = 1'750'000'000'000'000'000;

class GroupOrderTest : public ApiTest, public ::testing::WithParamInterface<Lines> {
 protected:
  Device::Options DeviceOf(int at) const override {
    Device::Options device;
    device.hca_core_clock_khz = GetParam().clock_khz[static_cast<size_t>(at)];
    device.phc_offset_ns = kTaiNs;
    return device;
  }

  void SetUp() override {
    ApiTest::SetUp();
    for (int at = 0; at < 2; ++at) {
      const std::string interface = "xt" + std::to_string(at);
      const std::string local = std::string(kOwn[at]) + ":7000";
      xtreme_ring_options options = Options(interface.c_str());
      options.hw_time = XTREME_HW_TIME_PTP;
      options.poll_batch = kBatch;
      OpenSocket(OpenRing(options), local.c_str());
    }
    ASSERT_EQ(xtreme_group_open(rings_.data(), 2, &group_), 0) << xtreme_error();
    ASSERT_EQ(xtreme_group_set_order(group_, XTREME_GROUP_HARDWARE_TIME), 0) << xtreme_error();
    start_ns_ = connectx_->clock().Now();
  }
  void TearDown() override {
    xtreme_group_close(group_);
    ApiTest::TearDown();
  }

  // A frame that port `at` gets so many microseconds after the start.
  void Arrive(int at, int64_t us, std::string_view payload) {
    Inject(7000, payload, at, start_ns_ + us * 1'000);
  }

  struct Packet {
    std::string payload;
    int64_t at_us;  // Of its hardware time, since the start.
  };
  std::vector<Packet> Poll(int max = 64) {
    std::vector<xtreme_completion> got(static_cast<size_t>(max));
    const int count = xtreme_group_poll(group_, got.data(), max, sizeof got[0]);
    EXPECT_GE(count, 0) << xtreme_error();
    got.resize(static_cast<size_t>(std::max(count, 0)));
    std::vector<Packet> packets;
    for (const xtreme_completion& one : got) {
      EXPECT_EQ(one.kind, XTREME_PACKET);
      EXPECT_NE(one.flags & XTREME_PTP_TIME, 0);
      const int64_t since_ns = one.hw_time_ns - kTaiNs - start_ns_;
      packets.push_back({Text(one), (since_ns + 500) / 1'000});
      EXPECT_NEAR(since_ns, packets.back().at_us * 1'000, kTickNs) << packets.back().payload;
    }
    xtreme_release(got.data(), count, sizeof got[0]);
    return packets;
  }
  std::string PollText(int max = 64) {
    std::string all;
    for (const Packet& packet : Poll(max)) all += packet.payload;
    return all;
  }

  static constexpr uint32_t kBatch = 8;
  xtreme_group group_ = {};
  int64_t start_ns_ = 0;
};

TEST_P(GroupOrderTest, FramesOfBothLinesComeByTheTimeTheyArrived) {
  for (const int64_t us : {1, 4, 5, 9}) Arrive(0, us, std::to_string(us));
  for (const int64_t us : {2, 3, 6, 7, 8}) Arrive(1, us, std::to_string(us));
  const std::vector<Packet> got = Poll();
  ASSERT_EQ(got.size(), 9u);
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i].payload, std::to_string(i + 1));
    EXPECT_EQ(got[i].at_us, static_cast<int64_t>(i + 1));
  }
  EXPECT_EQ(PollText(), "");
}

TEST_P(GroupOrderTest, ALineWithNothingHoldsTheOtherUpInNoPoll) {
  for (const int at : {1, 0, 1}) {
    Arrive(at, 1, "a");
    Arrive(at, 2, "b");
    EXPECT_EQ(PollText(), "ab") << at;
  }
}

TEST_P(GroupOrderTest, WhatComesAfterAPollIsOfTheNextOneThoughItsTimeIsEarlier) {
  Arrive(0, 5, "5");
  Arrive(0, 6, "6");
  EXPECT_EQ(PollText(), "56");
  Arrive(0, 8, "8");
  Arrive(1, 2, "2");
  Arrive(1, 9, "9");
  EXPECT_EQ(PollText(), "289");
  EXPECT_EQ(PollText(), "");
}

// Each poll by time, each line in its order, each frame once.
TEST_P(GroupOrderTest, PollsThatAreTooSmallLeaveTheRestToTheNextOnes) {
  std::mt19937 random(7);
  std::array<int, 2> sent = {};
  int64_t us = 0;
  for (; us < 60; ++us) {
    const int at = static_cast<int>(random() % 2);
    Arrive(at, us, std::string(1, static_cast<char>('a' + at)) + std::to_string(sent[at]++));
  }
  std::map<char, int> next;
  int taken = 0;
  for (std::vector<Packet> got; !(got = Poll(6)).empty();) {
    EXPECT_TRUE(std::is_sorted(got.begin(), got.end(), [](const Packet& a, const Packet& b) {
      return a.at_us < b.at_us;
    }));
    for (const Packet& packet : got) {
      EXPECT_EQ(packet.payload.substr(1), std::to_string(next[packet.payload[0]]++));
      ++taken;
    }
  }
  EXPECT_EQ(taken, us);
}

TEST_P(GroupOrderTest, OfALineAPollTakesItsRingsBatchHoweverMuchRoomItHas) {
  for (int64_t us = 1; us <= kBatch + 2; ++us) Arrive(0, us, std::to_string(us % 10));
  Arrive(1, 2, "x");
  Arrive(1, kBatch + 1, "y");
  EXPECT_EQ(PollText(), "12x345678y");
  EXPECT_EQ(PollText(), "90");
}

INSTANTIATE_TEST_SUITE_P(Lines, GroupOrderTest, ::testing::ValuesIn(kLines),
                         [](const auto& line) { return std::string(line.param.name); });

}  // namespace
}  // namespace xtreme::api_test
