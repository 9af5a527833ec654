// SPDX-License-Identifier: Apache-2.0

#include "tools/connectx/testing/test_bed.h"

#include <infiniband/verbs.h>

#include <cstdlib>
#include <string>

#include "gtest/gtest.h"
#include "tools/connectx/verbs_endpoint.h"

namespace xtreme::connectx {
namespace {

constexpr uint16_t kPort = 7000;
const TestBed::Datagram kDatagram{"10.0.0.1:9", "10.0.0.2:7000", "to be or not"};

// Two devices, under the virtual clock: see the rule of this test.
class TestBedTest : public testing::Test {
 protected:
  TestBedTest() : flow_(endpoint_.Listen(kPort, 1)) {}
  ~TestBedTest() override {
    EXPECT_EQ(ibv_destroy_flow(flow_), 0);
    EXPECT_TRUE(bed_.Violations().empty());
  }

  // kDatagram, to the address that Listen takes.
  TestBed::Frame Frame() { return TestBed::Encode(kDatagram, bed_.peer_mac(), kMacB); }
  bool Received() { return Endpoint::Poll(endpoint_.receive_cq()).status == IBV_WC_SUCCESS; }

  TestBed bed_;
  Endpoint endpoint_{"mlx5_1"};
  ibv_flow* const flow_;
};

TEST_F(TestBedTest, FrameArrivesWhenItIsPumpedAndNotBefore) {
  endpoint_.PostReceive(0);
  EXPECT_TRUE(bed_.Send(1, Frame()));
  EXPECT_FALSE(Received());
  EXPECT_TRUE(bed_.Pump());
  EXPECT_TRUE(Received());
  EXPECT_FALSE(bed_.Pump()) << "then nothing more";
}

TEST_F(TestBedTest, WhatTheDeviceSendsIsSeen) {
  EXPECT_EQ(endpoint_.Send(0, Frame(), 0), 0);
  EXPECT_EQ(bed_.Expect(1), std::nullopt);
  bed_.Pump();
  EXPECT_EQ(bed_.ExpectDatagram(1), kDatagram);
  EXPECT_EQ(bed_.Expect(1), std::nullopt);
}

TEST_F(TestBedTest, DroppedFramesAreAsManyAsAsked) {
  for (int slot = 0; slot < 4; ++slot) endpoint_.PostReceive(slot);
  bed_.Drop(1, TestBed::Way::kToDevice, 2);
  for (int i = 0; i < 3; ++i) bed_.Send(1, Frame());
  bed_.Pump();
  EXPECT_TRUE(Received());
  EXPECT_FALSE(Received());
  bed_.Drop(1, TestBed::Way::kFromDevice, 1);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(endpoint_.Send(i, Frame(), 0), 0);
  bed_.Pump();
  EXPECT_NE(bed_.Expect(1), std::nullopt);
  EXPECT_EQ(bed_.Expect(1), std::nullopt);
}

TEST_F(TestBedTest, PulledCableCarriesNothing) {
  endpoint_.PostReceive(0);
  bed_.SetConnected(1, false);
  bed_.Send(1, Frame());
  bed_.Pump();
  EXPECT_FALSE(Received());
  bed_.SetConnected(1, true);
  bed_.Send(1, Frame());
  bed_.Pump();
  EXPECT_TRUE(Received());
}

TEST_F(TestBedTest, OverrunSendsOneFrameMoreThanThereAreBuffers) {
  for (int slot = 0; slot < 5; ++slot) endpoint_.PostReceive(slot);
  EXPECT_EQ(bed_.Overrun(1, Frame()), 6);
  EXPECT_EQ(bed_.Counter(1, "out_of_buffer"), 1u);
}

TEST_F(TestBedTest, FrameThatNoWireTakesIsWrongUseAndNoEndlessOverrun) {
  for (const size_t bytes : {size_t{13}, size_t{10'001}}) {
    const TestBed::Frame frame(bytes);
    const std::string said = std::to_string(bytes) + " bytes: 14 to 10000 fit on the wire";
    EXPECT_DEATH(bed_.Send(1, frame), said);
    EXPECT_DEATH(bed_.Overrun(1, frame), said);
  }
}

TEST(DatagramTest, TextThatIsNoAddressAndPortIsWrongUse) {
  for (const char* text : {"", "10.0.0.1", "10.0.0.1:", "10.0.0:7", "10.0.0.1:65536", "10.0.0.1:7a",
                           "10.0.0.1: 7", "10.0.0.1:-7", "localhost:7"}) {
    const std::string said = "\"" + std::string(text) + "\" is not ADDRESS:PORT";
    EXPECT_DEATH(TestBed::Encode({text, "10.0.0.1:7", "x"}, {2}, {4}), said);
    EXPECT_DEATH(TestBed::Encode({"10.0.0.1:7", text, "x"}, {2}, {4}), said);
  }
}

TEST(DatagramTest, PayloadThatNoDatagramTakesIsWrongUse) {
  TestBed::Datagram datagram{"10.0.0.1:0", "10.0.0.2:65535", std::string(65'507, 'x')};
  EXPECT_EQ(TestBed::Decode(TestBed::Encode(datagram, {2}, {4})), datagram);
  datagram.payload += 'x';
  EXPECT_DEATH(TestBed::Encode(datagram, {2}, {4}), "65508 bytes: 65507 at most");
}

TEST(OptionsTest, SettingsOfTheLauncherAreWrongUse) {
  for (const char* name : {"INTERFACE", "SHARED", "DEVICES", "COUNTERS", "REPORT"}) {
    TestBed::Options options = TestBed::Options::FromRule();
    options.settings[name] = "1";
    EXPECT_DEATH(TestBed{options}, "the setting " + std::string(name) + " is the launcher's");
  }
}

TEST(OptionsTest, WithoutARuleThereIsNoBedOfOne) {
  EXPECT_DEATH(
      {
        unsetenv("XTREME_TEST_BED_DEVICES");
        TestBed bed;
      },
      "XTREME_TEST_BED_DEVICES");
}

TEST(DatagramTest, IsReadAsItWasWritten) {
  TestBed::Frame frame = TestBed::Encode(kDatagram, {2}, {4});
  EXPECT_EQ(TestBed::Decode(frame), kDatagram);
  frame[14 + 28] ^= 1;
  EXPECT_EQ(TestBed::Decode(frame), std::nullopt) << "its checksum is wrong";
  for (size_t length = 0; length < 42; ++length) {
    EXPECT_EQ(TestBed::Decode(std::span(frame).first(length)), std::nullopt) << length;
  }
}

}  // namespace
}  // namespace xtreme::connectx
