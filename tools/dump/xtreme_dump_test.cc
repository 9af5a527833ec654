// SPDX-License-Identifier: Apache-2.0
//
// xtreme_dump as somebody runs it: beside a program whose ring stands on a software ConnectX, and
// after that program was killed.

#include <netinet/in.h>
#include <pcap/pcap.h>

#include <algorithm>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/samples/echo_beside.h"
#include "tests/samples/program.h"

namespace xtreme::dump {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using samples::Program;

// In its WQE, and gathered.
const std::vector<std::string> kDatagrams = {"a", std::string(600, 'b'), std::string(1'400, 'c')};

class XtremeDumpTest : public samples::EchoBesideTest {
 protected:
  XtremeDumpTest() : EchoBesideTest(kDatagrams) {}

  // Keeping `frames`.
  void StartEcho(const std::string& frames) {
    EchoBesideTest::StartEcho({"XTREME_DUMP_FRAMES=" + frames, "XTREME_DUMP_SNAP_BYTES=1536"});
  }
  std::string Run(const std::vector<std::string>& arguments, int expected_code = 0) {
    return RunTool("tools/dump/xtreme_dump", arguments, expected_code);
  }
  // Payloads of the UDP frames in the file, in order.
  static std::vector<std::string> Payloads(const std::string& path) {
    std::vector<std::string> payloads;
    char error[PCAP_ERRBUF_SIZE];
    pcap_t* const file = pcap_open_offline(path.c_str(), error);
    EXPECT_NE(file, nullptr) << error;
    if (file == nullptr) return payloads;
    pcap_pkthdr* header = nullptr;
    const uint8_t* bytes = nullptr;
    while (pcap_next_ex(file, &header, &bytes) == 1) {
      if (header->caplen < 42 || bytes[23] != IPPROTO_UDP) continue;
      const size_t length = size_t{bytes[38]} << 8 | bytes[39];  // Of UDP, header included.
      EXPECT_EQ(header->caplen, std::max<size_t>(34 + length, header->caplen));
      payloads.emplace_back(reinterpret_cast<const char*>(bytes) + 42, length - 8);
    }
    pcap_close(file);
    return payloads;
  }
  // Each came, and went back.
  static std::vector<std::string> Twice() {
    std::vector<std::string> twice;
    for (const std::string& datagram : kDatagrams) {
      twice.push_back(datagram);
      twice.push_back(datagram);
    }
    return twice;
  }
};

TEST_F(XtremeDumpTest, ShowsBothDirectionsOfARunningProgram) {
  StartEcho("1024");
  const std::string text = Run({"--once"});
  EXPECT_THAT(text, HasSubstr(" feed1 in 10.9.0.1:5000 > 10.9.0.2:7 udp 642 bytes"));
  EXPECT_THAT(text, HasSubstr(" feed1 out 10.9.0.2:7 > 10.9.0.1:5000 udp 642 bytes"));
}

TEST_F(XtremeDumpTest, WritesWholeFramesForWireshark) {
  StartEcho("1024");
  const std::string path = directory_ + "/frames.pcapng";
  Run({"--once", "--write=" + path});
  EXPECT_EQ(Payloads(path), Twice());
}

TEST_F(XtremeDumpTest, GoesOnUntilTheProgramEnds) {
  StartEcho("1024");
  const std::string path = directory_ + "/live.pcapng";
  Program tool({"tools/dump/xtreme_dump", "--directory=" + directory_, "--write=" + path});
  echo_.reset();  // Killed.
  EXPECT_EQ(tool.Wait(), 0);
  EXPECT_EQ(Payloads(path), Twice());
}

TEST_F(XtremeDumpTest, ShowsTheLastFramesOfAKilledProgram) {
  StartEcho("1024");
  echo_.reset();
  const std::string path = directory_ + "/dead.pcapng";
  Run({"--write=" + path});
  EXPECT_EQ(Payloads(path), Twice());
}

TEST_F(XtremeDumpTest, ShowsOneSocketsFrames) {
  StartEcho("1024");
  EXPECT_THAT(Run({"--once", "--socket=:7"}), HasSubstr(" > 10.9.0.2:7 udp"));
  EXPECT_THAT(Run({"--once", "--socket=:8"}), Not(HasSubstr("udp")));
  EXPECT_THAT(Run({"--once", "--socket=0x99"}, 1), Not(HasSubstr("udp")));
}

TEST_F(XtremeDumpTest, EndsAfterSoManyFrames) {
  StartEcho("1024");
  const std::string text = Run({"--count=2"});
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2) << text;
}

TEST_F(XtremeDumpTest, ARingThatWasNotAskedKeepsNothing) {
  StartEcho("0");
  EXPECT_EQ(Run({"--once"}, 1), "");
}

}  // namespace
}  // namespace xtreme::dump
