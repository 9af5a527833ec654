// SPDX-License-Identifier: Apache-2.0
//
// Captures read back: by libpcap, and block by block for what libpcap does not show.

#include "tools/connectx/wire/captured_wire.h"

#include <gtest/gtest.h>
#include <pcap/pcap.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tools/connectx/wire/frame_list.h"
#include "tools/connectx/wire/link.h"

namespace xtreme::connectx {
namespace {

constexpr int64_t kTimeNs = 1'700'000'000'123'456'789;

struct Packet {
  std::vector<uint8_t> bytes;
  int64_t time_ns;
};

// What an EPB says beside the frame.
struct Remark {
  uint32_t interface;
  uint32_t direction;
  std::string comment;
};

class CapturedWireTest : public testing::Test {
 protected:
  CapturedWireTest()
      : path_(std::string(std::getenv("TEST_TMPDIR")) + "/" +
              testing::UnitTest::GetInstance()->current_test_info()->name() + ".pcapng") {
    auto link = MakeLink();
    far_ = std::move((*link)[1]);
    near_ = std::move((*link)[0]);
  }

  DecoratedWire Capture(ImpairedWire::Options faults = {}) {
    auto file = CaptureFile::Create(path_);
    EXPECT_TRUE(file.ok()) << file.status();
    return Decorate(std::move(near_), {.faults = faults, .capture = *file, .name = "mlx5_0"});
  }

  std::vector<Packet> ReadByLibpcap() {
    char error[PCAP_ERRBUF_SIZE] = "";
    pcap_t* pcap = pcap_open_offline_with_tstamp_precision(path_.c_str(),
                                                           PCAP_TSTAMP_PRECISION_NANO, error);
    EXPECT_NE(pcap, nullptr) << error;
    if (pcap == nullptr) return {};
    EXPECT_EQ(pcap_datalink(pcap), DLT_EN10MB);
    std::vector<Packet> packets;
    pcap_pkthdr* header;
    const u_char* bytes;
    int code;
    while ((code = pcap_next_ex(pcap, &header, &bytes)) == 1) {
      EXPECT_EQ(header->caplen, header->len);
      packets.push_back({{bytes, bytes + header->caplen},
                         header->ts.tv_sec * int64_t{1'000'000'000} + header->ts.tv_usec});
    }
    EXPECT_EQ(code, PCAP_ERROR_BREAK) << pcap_geterr(pcap);
    pcap_close(pcap);
    return packets;
  }

  // The flags and comments of all enhanced packet blocks; blocks must fill the file.
  std::vector<Remark> ReadRemarks() {
    std::ifstream in(path_, std::ios::binary);
    const std::string file(std::istreambuf_iterator<char>(in), {});
    std::vector<Remark> remarks;
    const auto word = [&](size_t at) {
      uint32_t value = 0;
      std::memcpy(&value, file.data() + at, sizeof(value));
      return value;
    };
    size_t at = 0;
    while (at + 12 <= file.size()) {
      const uint32_t length = word(at + 4);
      EXPECT_EQ(word(at + length - 4), length) << "the length stands at both ends";
      if (word(at) == 6) remarks.push_back(ParseRemark(file.substr(at, length)));
      at += length;
    }
    EXPECT_EQ(at, file.size());
    return remarks;
  }

  static Remark ParseRemark(const std::string& block) {
    Remark remark{};
    uint32_t captured = 0;
    std::memcpy(&remark.interface, &block[8], 4);
    std::memcpy(&captured, &block[20], 4);
    for (size_t at = 28 + (captured + 3) / 4 * 4; at + 8 <= block.size();) {
      uint16_t code = 0;
      uint16_t length = 0;
      std::memcpy(&code, &block[at], 2);
      std::memcpy(&length, &block[at + 2], 2);
      if (code == 2) std::memcpy(&remark.direction, &block[at + 4], 4);
      if (code == 1) remark.comment = block.substr(at + 4, length);
      at += 4 + (length + 3) / 4 * 4;
    }
    return remark;
  }

  const std::string path_;
  std::unique_ptr<Wire> near_;
  std::unique_ptr<LinkEnd> far_;
  FrameList received_;
};

TEST_F(CapturedWireTest, LibpcapReadsEveryFrameWithItsNanosecond) {
  std::vector<std::vector<uint8_t>> sent;
  {
    auto captured = Capture();
    for (uint32_t i = 0; i < 300; ++i) {
      sent.push_back(NumberedFrame(i, 18 + i * 5));
      ASSERT_TRUE(captured.wire->Transmit(sent.back(), kTimeNs + i));
    }
  }
  const auto packets = ReadByLibpcap();
  ASSERT_EQ(packets.size(), sent.size());
  for (size_t i = 0; i < sent.size(); ++i) {
    EXPECT_EQ(packets[i].bytes, sent[i]);
    EXPECT_EQ(packets[i].time_ns, kTimeNs + static_cast<int64_t>(i));
  }
}

TEST_F(CapturedWireTest, DirectionIsWhatTheDeviceDid) {
  {
    auto captured = Capture();
    captured.wire->Transmit(NumberedFrame(1), kTimeNs);
    far_->Transmit(NumberedFrame(2), kTimeNs);
    EXPECT_EQ(captured.wire->Receive(received_, 8, kTimeNs), 1);
  }
  const auto remarks = ReadRemarks();
  ASSERT_EQ(remarks.size(), 2u);
  EXPECT_EQ(remarks[0].direction, 2u);
  EXPECT_EQ(remarks[1].direction, 1u);
  EXPECT_EQ(remarks[0].comment, "");
}

TEST_F(CapturedWireTest, LostFramesAreThereOnceAndSaySo) {
  {
    auto captured = Capture();
    captured.faults->DropFrame(WireDirection::kTransmit, 1);
    captured.faults->DropFrame(WireDirection::kReceive, 0);
    for (uint32_t i = 0; i < 3; ++i) captured.wire->Transmit(NumberedFrame(i), kTimeNs);
    far_->Transmit(NumberedFrame(3), kTimeNs);
    EXPECT_EQ(captured.wire->Receive(received_, 8, kTimeNs), 0);
  }
  const auto remarks = ReadRemarks();
  ASSERT_EQ(remarks.size(), 4u);
  EXPECT_EQ(remarks[0].comment, "");
  EXPECT_EQ(remarks[1].comment, "lost: fault injection");
  EXPECT_EQ(remarks[2].comment, "");
  EXPECT_EQ(remarks[3].comment, "lost: fault injection");
  EXPECT_EQ(remarks[3].direction, 1u);
}

TEST_F(CapturedWireTest, RefusedFrameSaysSo) {
  far_->SetPlugged(false);
  { EXPECT_FALSE(Capture().wire->Transmit(NumberedFrame(1), kTimeNs)); }
  const auto remarks = ReadRemarks();
  ASSERT_EQ(remarks.size(), 1u);
  EXPECT_EQ(remarks[0].comment, "dropped: the wire refused it");
}

TEST_F(CapturedWireTest, FileIsWholeWheneverTheDeviceGoesToSleep) {
  auto captured = Capture();
  captured.wire->Transmit(NumberedFrame(1), kTimeNs);
  EXPECT_TRUE(captured.wire->Arm());
  EXPECT_EQ(ReadByLibpcap().size(), 1u);
}

TEST_F(CapturedWireTest, TwoWiresAreTwoInterfacesOfOneFile) {
  {
    auto file = *CaptureFile::Create(path_);
    auto a = Decorate(std::move(near_), {.capture = file, .name = "a"});
    auto b = Decorate(std::move(far_), {.capture = file, .name = "b"});
    file.reset();
    a.wire->Transmit(NumberedFrame(1), kTimeNs);
    EXPECT_EQ(b.wire->Receive(received_, 8, kTimeNs), 1);
  }
  const auto remarks = ReadRemarks();
  ASSERT_EQ(remarks.size(), 2u);
  EXPECT_EQ(remarks[0].interface, 0u);
  EXPECT_EQ(remarks[1].interface, 1u);
  EXPECT_EQ(ReadByLibpcap().size(), 2u);
}

TEST_F(CapturedWireTest, FullDiskIsCountedAndTheFramesGoOn) {
  auto file = CaptureFile::Create("/dev/full");
  ASSERT_TRUE(file.ok()) << file.status();
  auto captured = Decorate(std::move(near_), {.capture = *file, .name = "mlx5_0"});
  EXPECT_TRUE(captured.wire->Transmit(NumberedFrame(1), kTimeNs));
  (*file)->Flush();
  EXPECT_EQ(CountOf(*captured.wire, "capture_dropped"), 1u);
  EXPECT_EQ(far_->Receive(received_, 8, kTimeNs), 1);
}

TEST_F(CapturedWireTest, FileThatTookNothingAtFirstIsReadableWhenThereIsRoomAgain) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  signal(SIGXFSZ, SIG_IGN);
  auto captured = Capture();
  const rlimit none{.rlim_cur = 0, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &none), 0);
  captured.wire->Transmit(NumberedFrame(1), kTimeNs);
  EXPECT_TRUE(captured.wire->Arm());
  EXPECT_EQ(CountOf(*captured.wire, "capture_dropped"), 1u);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  captured.wire->Transmit(NumberedFrame(2), kTimeNs);
  EXPECT_TRUE(captured.wire->Arm());
  const auto packets = ReadByLibpcap();
  ASSERT_EQ(packets.size(), 1u);
  EXPECT_EQ(packets[0].bytes, NumberedFrame(2));
  EXPECT_EQ(ReadRemarks().size(), 1u);
}

TEST_F(CapturedWireTest, FileThatCannotBeMadeIsAnErrorThatNamesIt) {
  const auto file = CaptureFile::Create("/no/such/directory/x.pcapng");
  EXPECT_NE(file.status().message().find("/no/such/directory/x.pcapng"), std::string::npos);
}

TEST_F(CapturedWireTest, FileThatSomebodyWritesIsNotWrittenByAnother) {
  auto captured = Capture();
  captured.wire->Transmit(NumberedFrame(1), kTimeNs);
  EXPECT_TRUE(captured.wire->Arm());
  const auto other = CaptureFile::Create(path_);
  EXPECT_EQ(other.status().code(), absl::StatusCode::kUnavailable) << other.status();
  EXPECT_EQ(ReadByLibpcap().size(), 1u);
  captured = {};
  EXPECT_TRUE(CaptureFile::Create(path_).ok());
}

TEST_F(CapturedWireTest, FileThatSomebodyWritesHasOneBesideItForWhoTakesThat) {
  const auto first = CaptureFile::Create(path_);
  ASSERT_TRUE(first.ok()) << first.status();
  const auto second = CaptureFile::Later();
  EXPECT_TRUE(second->BeginOrBeside(path_).ok());
  const std::string stem = path_.substr(0, path_.rfind('.'));
  EXPECT_TRUE(std::ifstream(stem + "." + std::to_string(getpid()) + ".pcapng").is_open());
}

TEST_F(CapturedWireTest, PulledCableLosesBothDirectionsAndIsDown) {
  auto wire = Decorate(std::move(near_), {});
  wire.faults->SetConnected(false);
  EXPECT_FALSE(wire.wire->up());
  wire.wire->Transmit(NumberedFrame(1), kTimeNs);
  far_->Transmit(NumberedFrame(2), kTimeNs);
  EXPECT_EQ(wire.wire->Receive(received_, 8, kTimeNs), 0);
  EXPECT_EQ(far_->Receive(received_, 8, kTimeNs), 0);
  EXPECT_EQ(CountOf(*wire.wire, "impaired_tx_unplugged"), 1u);
  EXPECT_EQ(CountOf(*wire.wire, "impaired_rx_unplugged"), 1u);
  wire.faults->SetConnected(true);
  EXPECT_TRUE(wire.wire->up());
  wire.wire->Transmit(NumberedFrame(3), kTimeNs);
  EXPECT_EQ(far_->Receive(received_, 8, kTimeNs), 1);
}

}  // namespace
}  // namespace xtreme::connectx
