// SPDX-License-Identifier: Apache-2.0
//
// Xtreme itself on a test bed, as a user's test has it.

#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "api/xtreme.hpp"
#include "gtest/gtest.h"
#include "tools/connectx/testing/test_bed.h"
#include "tools/connectx/wire/capture_file.h"

namespace xtreme::connectx {
namespace {

constexpr int64_t kPatienceNs = 10'000'000'000;

class RingOnTestBedTest : public testing::Test {
 protected:
  void MakeBed(std::map<std::string, std::string> settings = {}) {
    auto options = TestBed::Options::FromRule();
    options.settings = std::move(settings);
    bed_.emplace(options);
    bed_->AddPeer(0, "10.0.0.9");
  }

  // A ring of that MTU hears a datagram of the host and sends it back.
  void Echo(const std::string& text, int mtu) {
    // As programs do, in which what the rule says stands too.
    auto ring = Ring::Open(RingOptions::Dev("eth2").FromEnvironment(environ));
    ASSERT_TRUE(ring.ok()) << ring.error().message;
    ASSERT_NE(ring->Describe().find("MTU " + std::to_string(mtu)), std::string::npos)
        << ring->Describe();
    auto socket = ring->OpenUdp({.local = "10.0.0.1:7000"});
    ASSERT_TRUE(socket.ok()) << socket.error().message;
    const auto started = ring->Start();
    ASSERT_TRUE(started.ok()) << started.error().message;
    bool open = false;
    while (!open) {
      for (const Completion& each : ring->Wait(kPatienceNs)) open |= each.kind() == kOpDone;
    }

    ASSERT_TRUE(bed_->Send(0, {"10.0.0.9:5", "10.0.0.1:7000", text}));
    std::string asked;
    while (asked.empty()) {
      for (Completion& completion : ring->Wait(kPatienceNs)) {
        if (completion.kind() != kPacket) continue;
        asked.assign(completion.bytes().begin(), completion.bytes().end());
        EXPECT_GE(socket->SendTo(completion.source(), completion.bytes()), 0);
      }
    }
    EXPECT_EQ(asked, text);
    EXPECT_EQ(bed_->ExpectDatagram(0), (TestBed::Datagram{"10.0.0.1:7000", "10.0.0.9:5", text}));
    EXPECT_TRUE(bed_->Violations().empty());
  }

  std::optional<TestBed> bed_;
};

TEST_F(RingOnTestBedTest, DatagramIsReceivedAndAnswered) {
  MakeBed();
  Echo("ask", 1500);
}

// Whole: a fragment is no datagram to ExpectDatagram.
TEST_F(RingOnTestBedTest, InterfaceHasTheMtuOfTheSettings) {
  MakeBed({{"MTU", "9000"}});
  Echo(std::string(9000 - 28, 'j'), 9000);
}

// As of one shard while another runs.
TEST_F(RingOnTestBedTest, CaptureThatSomebodyWritesHasOneBesideIt) {
  const std::string stem = std::string(std::getenv("TEST_TMPDIR")) + "/shards";
  const auto other = CaptureFile::Create(stem + ".pcapng");
  ASSERT_TRUE(other.ok()) << other.status();
  MakeBed({{"CAPTURE", stem + ".pcapng"}});
  Echo("ask", 1500);
  bed_.reset();
  EXPECT_TRUE(std::filesystem::exists(stem + "." + std::to_string(::getpid()) + ".pcapng"));
}

}  // namespace
}  // namespace xtreme::connectx
