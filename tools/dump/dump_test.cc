// SPDX-License-Identifier: Apache-2.0
//
// Frames of a tap as they are chosen, written and counted.

#include <fcntl.h>
#include <netinet/in.h>
#include <pcap/pcap.h>
#include <spawn.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/samples/program.h"
#include "tools/dump/frame_filter.h"
#include "tools/dump/output.h"
#include "xtreme/stats/frame_tap.h"

namespace xtreme::dump {
namespace {

using stats::FrameKind;
using stats::TappedFrame;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

// A UDP frame from 10.0.0.2:9 to 10.0.0.1:7000.
TappedFrame UdpFrame(FrameKind kind = FrameKind::kReceived) {
  std::vector<uint8_t> bytes(60);
  bytes[12] = 8;
  bytes[14] = 0x45;
  bytes[23] = IPPROTO_UDP;
  const uint8_t addresses[] = {10, 0, 0, 2, 10, 0, 0, 1, 0, 9, 0x1B, 0x58};
  std::copy(std::begin(addresses), std::end(addresses), bytes.begin() + 26);
  return {.kind = kind, .frame_bytes = 1'000, .bytes = bytes};
}

TEST(FrameFilter, ASocketsFramesAreThoseToItAndFromIt) {
  const auto local = LocalEnd::Parse("10.0.0.1:7000");
  ASSERT_TRUE(local.has_value());
  EXPECT_TRUE(local->Has(UdpFrame()));
  EXPECT_FALSE(local->Has(UdpFrame(FrameKind::kSent))) << "sent by the other end";
  EXPECT_TRUE(LocalEnd::Parse("10.0.0.2:9")->Has(UdpFrame(FrameKind::kSent)));
  EXPECT_TRUE(LocalEnd::Parse(":7000")->Has(UdpFrame()));
  EXPECT_TRUE(LocalEnd::Parse("*:7000")->Has(UdpFrame()));
  EXPECT_FALSE(LocalEnd::Parse(":7001")->Has(UdpFrame()));
  EXPECT_FALSE(LocalEnd::Parse("10.0.0.3:7000")->Has(UdpFrame()));
}

// The same frame, of a connection.
TappedFrame TcpFrame(FrameKind kind = FrameKind::kReceived) {
  TappedFrame frame = UdpFrame(kind);
  frame.bytes[23] = IPPROTO_TCP;
  return frame;
}

stats::SocketCounters Socket(uint8_t protocol, uint16_t peer_port) {
  return {.local_ip = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 10, 0, 0, 1},
          .remote_ip = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 10, 0, 0, 2},
          .local_port = 7000,
          .remote_port = peer_port,
          .protocol = protocol};
}

TEST(FrameFilter, AConnectionsFramesAreNotThoseOfOthersOfItsListener) {
  EXPECT_TRUE(LocalEnd::Of(Socket(IPPROTO_TCP, 9)).Has(TcpFrame()));
  EXPECT_FALSE(LocalEnd::Of(Socket(IPPROTO_TCP, 8)).Has(TcpFrame())) << "of another client";
  EXPECT_TRUE(LocalEnd::Of(Socket(IPPROTO_TCP, 0)).Has(TcpFrame())) << "the listener";
  EXPECT_FALSE(LocalEnd::Of(Socket(IPPROTO_TCP, 9)).Has(UdpFrame())) << "another protocol";
  EXPECT_TRUE(LocalEnd::Of(Socket(IPPROTO_UDP, 8)).Has(UdpFrame()));
  TappedFrame sent = TcpFrame(FrameKind::kSent);
  std::swap_ranges(sent.bytes.begin() + 26, sent.bytes.begin() + 30, sent.bytes.begin() + 30);
  std::swap_ranges(sent.bytes.begin() + 34, sent.bytes.begin() + 36, sent.bytes.begin() + 36);
  EXPECT_TRUE(LocalEnd::Of(Socket(IPPROTO_TCP, 9)).Has(sent));
  EXPECT_FALSE(LocalEnd::Of(Socket(IPPROTO_TCP, 8)).Has(sent));
}

TEST(FrameFilter, WhatIsNoEndIsRefused) {
  for (const char* text : {"", "7000", "10.0.0.1", "10.0.0.1:", ":0", ":70000", "x:7", ":7x"}) {
    EXPECT_FALSE(LocalEnd::Parse(text).has_value()) << text;
  }
}

TEST(FrameFilter, ATagIsLookedBehind) {
  TappedFrame frame = UdpFrame();
  const uint8_t tag[] = {0x81, 0, 0, 5};
  frame.bytes.insert(frame.bytes.begin() + 12, std::begin(tag), std::end(tag));
  EXPECT_TRUE(LocalEnd::Parse(":7000")->Has(frame));
}

TEST(FrameFilter, ALaterFragmentHasNoPorts) {
  TappedFrame frame = UdpFrame();
  frame.bytes[21] = 1;
  EXPECT_FALSE(LocalEnd::Parse(":7000")->Has(frame));
  EXPECT_EQ(Describe(frame), "10.0.0.2:0 > 10.0.0.1:0 udp 1000 bytes");
}

TEST(FrameFilter, EveryTruncationIsNoFrameOrHasNoPorts) {
  const TappedFrame whole = UdpFrame();
  for (size_t length = 0; length < 38; ++length) {
    const auto ends = ParseEnds(std::span(whole.bytes).first(length));
    EXPECT_TRUE(!ends || ends->destination_port == 0) << length;
  }
}

class PcapngTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = "/dev/shm/xtreme_dump_test.XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
    auto tap = stats::FrameTap::Create(
        {.directory = directory_, .ring = 4, .interface = "eth2", .program = "handler"});
    ASSERT_TRUE(tap.ok()) << tap.status();
    tap_ = *std::move(tap);
    auto reader = stats::FrameReader::Open(tap_->path());
    ASSERT_TRUE(reader.ok()) << reader.status();
    reader_ = *std::move(reader);
  }
  void TearDown() override {
    tap_.reset();
    unlink(Path().c_str());
    EXPECT_EQ(rmdir(directory_.c_str()), 0);
  }
  std::string Path() const { return directory_ + "/frames.pcapng"; }
  std::unique_ptr<Output> Open() {
    auto output = MakePcapngOutput(Path());
    EXPECT_TRUE(output.ok()) << output.status();
    EXPECT_EQ((*output)->AddRing(*reader_), 0u);
    return *std::move(output);
  }
  std::string Bytes() const {
    std::ifstream file(Path(), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  std::string directory_;
  std::unique_ptr<stats::FrameTap> tap_;
  std::unique_ptr<stats::FrameReader> reader_;
};

TEST_F(PcapngTest, ACutFrameKeepsItsLengthAndTime) {
  Open()->Add(0, UdpFrame(), 1'700'000'000'123'456'789);
  char error[PCAP_ERRBUF_SIZE];
  pcap_t* const file = pcap_open_offline_with_tstamp_precision(
      Path().c_str(), PCAP_TSTAMP_PRECISION_NANO, error);
  ASSERT_NE(file, nullptr) << error;
  pcap_pkthdr* header = nullptr;
  const uint8_t* bytes = nullptr;
  ASSERT_EQ(pcap_next_ex(file, &header, &bytes), 1);
  EXPECT_EQ(header->len, 1'000u);
  EXPECT_EQ(header->caplen, 60u);
  EXPECT_EQ(header->ts.tv_sec, 1'700'000'000);
  EXPECT_EQ(header->ts.tv_usec, 123'456'789);
  EXPECT_EQ(pcap_next_ex(file, &header, &bytes), PCAP_ERROR_BREAK);
  pcap_close(file);
}

TEST_F(PcapngTest, SaysWhoseFramesAndWhichTimes) {
  Open()->Add(0, UdpFrame(), 0);
  EXPECT_THAT(Bytes(), HasSubstr("ring 4; received frames have the device's time"));
  EXPECT_THAT(Bytes(), HasSubstr("xtreme_dump"));
}

TEST_F(PcapngTest, ASentFrameWithTheDevicesTimeSaysSo) {
  const std::string comment = "sent then by the device";
  TappedFrame frame = UdpFrame(FrameKind::kSent);
  Open()->Add(0, frame, 0);
  EXPECT_EQ(Bytes().find(comment), std::string::npos) << "the time of posting";
  frame.time_ns = 0;
  frame.timed_by_device = true;
  Open()->Add(0, frame, 0);
  EXPECT_THAT(Bytes(), HasSubstr(comment));
}

TEST_F(PcapngTest, ANoteIsTheCommentOfTheNextFrameAndOfNoOther) {
  {
    const auto output = Open();
    output->Note("2 drop held_limit");
    output->Add(0, UdpFrame(), 0);
    output->Add(0, UdpFrame(), 0);
  }
  const std::string bytes = Bytes();
  const size_t first = bytes.find("2 drop held_limit");
  ASSERT_NE(first, bytes.npos);
  EXPECT_EQ(bytes.find("2 drop held_limit", first + 1), bytes.npos);
}

TEST_F(PcapngTest, ALastNoteIsNotLost) {
  Open()->Note("1 port discards");
  EXPECT_THAT(Bytes(), HasSubstr("1 port discards"));
}

// The comments of all frames together.
TEST_F(PcapngTest, NotesThatAreMoreThanACommentHoldsAreAllThere) {
  constexpr int kNotes = 3'000;
  {
    const auto output = Open();
    for (int i = 0; i < kNotes; ++i) output->Note("one of many notes on frames that were lost");
    output->Add(0, UdpFrame(), 0);
  }
  const std::string bytes = Bytes();
  int notes = 0;
  for (size_t at = 0; (at = bytes.find("one of many", at)) != bytes.npos; ++at) ++notes;
  EXPECT_EQ(notes, kNotes);
  char error[PCAP_ERRBUF_SIZE];
  pcap_t* const file = pcap_open_offline(Path().c_str(), error);
  ASSERT_NE(file, nullptr) << error;
  // An option that says it is shorter than it is would be followed by what is none.
  for (size_t at = 0; at + 8 <= bytes.size();) {
    const auto word = [&bytes](size_t place) {
      uint32_t value;
      memcpy(&value, bytes.data() + place, sizeof value);
      return value;
    };
    const uint32_t length = word(at + 4);
    ASSERT_EQ(word(at + length - 4), length);
    if (word(at) == 6) {
      size_t option = at + 28 + (word(at + 20) + 3) / 4 * 4;
      while ((word(option) & 0xFFFF) != 0) option += 4 + ((word(option) >> 16) + 3) / 4 * 4;
      EXPECT_EQ(option + 8, at + length) << "the end of options is the end of the block";
    }
    at += length;
  }
  pcap_close(file);
}

// What xtreme_dump misses, in slots that it does not understand: those are told like overwritten
// ones, and stand still.
class MissedTest : public PcapngTest {
 protected:
  static void Write(stats::FrameTap* tap, int count, FrameKind kind = FrameKind::kReceived) {
    const std::vector<uint8_t> frame(stats::kLeastSnapBytes);
    for (int i = 0; i < count; ++i) tap->Write(kind, frame.data(), 60, 0);
    tap->Publish(static_cast<uint32_t>(count));
  }
  static void WriteSent(stats::FrameTap* tap) {
    const std::vector<uint8_t> frame(60);
    std::array<uint8_t, stats::kSentFrameAt> wqe{};
    wqe[3] = static_cast<uint8_t>(FrameKind::kSent);
    tap->WriteParts(wqe.data(), frame.data(), 60, nullptr, 0, /*ticks=*/0);
    tap->Publish(1);
  }
  // All that the tool tells of the directory, run with `more`.
  std::string Tell(const std::string& more = "2>&1", int code = 0) const {
    samples::Program tool({"/bin/sh", "-c", "exec tools/dump/xtreme_dump --directory=" +
                                                directory_ + " --once " + more});
    EXPECT_EQ(tool.Wait(), code) << tool.output();
    return tool.output();
  }
  // The tool's process, whose standard output is `fd`, which is closed here.
  pid_t StartOn(int fd, std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), {"xtreme_dump", "--directory=" + directory_});
    std::vector<char*> words;
    for (std::string& argument : arguments) words.push_back(argument.data());
    words.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, fd, STDOUT_FILENO);
    pid_t pid = -1;
    EXPECT_EQ(posix_spawn(&pid, "tools/dump/xtreme_dump", &actions, nullptr, words.data(), environ),
              0);
    posix_spawn_file_actions_destroy(&actions);
    close(fd);
    return pid;
  }
  static constexpr FrameKind kUnknown{99};
};

TEST_F(MissedTest, FramesAreNotedOnceEachAndThoseOfAllRingsAddedUp) {
  Write(tap_.get(), 2, kUnknown);
  Write(tap_.get(), 600);  // More than the tool takes at once.
  Write(tap_.get(), 1, kUnknown);
  const auto other = stats::FrameTap::Create({.directory = directory_, .ring = 5});
  ASSERT_TRUE(other.ok()) << other.status();
  Write(other->get(), 1);
  Write(other->get(), 4, kUnknown);
  const std::string told = Tell();
  std::vector<std::string> counts;
  for (size_t at = 0, end; (end = told.find('\n', at)) != told.npos; at = end + 1) {
    const std::string line = told.substr(at, end - at);
    if (line.starts_with("-- ") || line.starts_with("xtreme_dump")) counts.push_back(line);
  }
  EXPECT_THAT(counts, UnorderedElementsAre("-- 2 frames were overwritten before they were read",
                                           "-- 1 frames were overwritten before they were read",
                                           "-- 4 frames were overwritten before they were read",
                                           "xtreme_dump: 601 frames, 7 missed"));
}

// A turn that brings nothing but missed ones is not the end.
TEST_F(MissedTest, WhatFollowsManyMissedFramesIsShown) {
  Write(tap_.get(), 1'200, kUnknown);
  Write(tap_.get(), 3);
  EXPECT_THAT(Tell(), HasSubstr("xtreme_dump: 3 frames, 1200 missed"));
}

TEST_F(MissedTest, OnceEndsThoughFramesGoOnComing) {
  const uint32_t kKept = stats::FrameTap::Options{}.frames;
  Write(tap_.get(), 1);
  std::atomic<bool> over = false;
  // One every other turn of the tool or so, and not so many that it finds all overwritten.
  std::thread writer([&] {
    using Clock = std::chrono::steady_clock;
    for (auto next = Clock::now(); !over; next = Clock::now() + std::chrono::nanoseconds(500)) {
      while (Clock::now() < next) continue;
      Write(tap_.get(), 1);
    }
  });
  const std::string told = Tell("--count=50000 2>&1 > /dev/null");
  over = true;
  writer.join();
  uint64_t frames = 0, missed = 0;
  ASSERT_EQ(std::sscanf(told.c_str(), "xtreme_dump: %lu frames, %lu missed", &frames, &missed), 2)
      << told;
  EXPECT_LE(frames, kKept) << "which is all that can have been there";
}

// A device's clock may be lost: its frames then came before the next one that has a time, and those
// behind the last one not when somebody looks.
TEST_F(MissedTest, FramesWithoutATimeHaveThatOfTheirNeighboursAndSaySo) {
  tap_->SetClocks({}, {.base_ns = 5'000'000'000, .ns_per_tick_q32 = int64_t{1} << 32});
  Write(tap_.get(), 1);
  WriteSent(tap_.get());
  Write(tap_.get(), 1, FrameKind::kReceivedUntimed);
  std::istringstream told(Tell());
  std::vector<std::string> lines(3);
  for (std::string& line : lines) std::getline(told, line);
  constexpr size_t kTime = 18;  // "03:04:16.130428163"
  for (const size_t untimed : {0, 2}) {
    EXPECT_EQ(lines[untimed].substr(0, kTime), lines[1].substr(0, kTime));
    EXPECT_THAT(lines[untimed], HasSubstr(", without a time of its own"));
  }
  EXPECT_THAT(lines[1], ::testing::Not(HasSubstr("without a time")));
}

using OutputTest = MissedTest;

// What ssh gives a remote command is a socket: it cannot be opened by a name.
TEST_F(OutputTest, TheStandardOutputMayBeASocket) {
  Write(tap_.get(), 3);
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  const pid_t pid = StartOn(ends[1], {"--once", "--write=-"});
  std::array<uint8_t, 4> magic = {};
  EXPECT_EQ(recv(ends[0], magic.data(), magic.size(), MSG_WAITALL), 4);
  EXPECT_THAT(magic, ElementsAre(0x0A, 0x0D, 0x0D, 0x0A));
  close(ends[0]);
  int status = -1;
  ASSERT_EQ(waitpid(pid, &status, 0), pid);
}

TEST_F(OutputTest, TheStandardOutputIsAppendedTo) {
  Write(tap_.get(), 3);
  { std::ofstream(Path()) << "before"; }
  Tell("--write=- >> " + Path());
  EXPECT_EQ(Bytes().substr(0, 10), "before\x0A\x0D\x0D\x0A");
}

TEST_F(OutputTest, WhatCannotBeWrittenIsAFailure) {
  Write(tap_.get(), 3);
  EXPECT_THAT(Tell("2>&1 > /dev/full", 1), HasSubstr("cannot be written"));
  EXPECT_THAT(Tell("--write=- 2>&1 > /dev/full", 1), HasSubstr("cannot be written"));
  EXPECT_THAT(Tell("--write=/dev/full 2>&1", 1), HasSubstr("cannot be written"));
}

TEST_F(OutputTest, AReaderThatTakesNothingDoesNotKeepItFromEnding) {
  Write(tap_.get(), 1'000);
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const pid_t pid = StartOn(ends[1], {"--write=-"});
  // More than the pipe holds is on its way.
  for (int filled = 0; filled < 16'384;) ASSERT_EQ(ioctl(ends[0], FIONREAD, &filled), 0);
  kill(pid, SIGINT);
  int status = 0;
  EXPECT_EQ(waitpid(pid, &status, 0), pid);
  close(ends[0]);
}

TEST_F(OutputTest, WhatCameBeforeItIsInterruptedIsShown) {
  Write(tap_.get(), 1);
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const pid_t pid = StartOn(ends[1], {});
  std::string shown;
  char part[4096];
  // A stopped one looks at nothing meanwhile.
  for (ssize_t got; (got = read(ends[0], part, sizeof part)) > 0;) {
    const bool first = shown.empty();
    shown.append(part, static_cast<size_t>(got));
    if (!first) continue;
    int status = 0;
    kill(pid, SIGSTOP);
    ASSERT_EQ(waitpid(pid, &status, WUNTRACED), pid);
    Write(tap_.get(), 600);  // More than it takes at once.
    kill(pid, SIGINT);
    kill(pid, SIGCONT);
  }
  close(ends[0]);
  EXPECT_EQ(std::count(shown.begin(), shown.end(), '\n'), 601);
  int status = -1;
  ASSERT_EQ(waitpid(pid, &status, 0), pid);
  EXPECT_EQ(status, 0);
}

// No frame follows by whose writing it would see that.
TEST_F(OutputTest, AReaderThatLeavesEndsIt) {
  Write(tap_.get(), 3);
  const std::string fifo = directory_ + "/fifo";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  const std::string tool = "timeout 10 tools/dump/xtreme_dump --directory=" + directory_;
  const std::string reader = "head -c1 > /dev/null";
  for (const std::string& line :
       {tool + " | " + reader + "; exit ${PIPESTATUS[0]}",
        tool + " --write=- | " + reader + "; exit ${PIPESTATUS[0]}",
        reader + " < " + fifo + " & " + tool + " --write=" + fifo + "; exit $?"}) {
    samples::Program shell({"/bin/bash", "-c", line + " 2>&1"});
    EXPECT_EQ(shell.Wait(), 128 + SIGPIPE) << line << shell.output();
  }
  samples::Program shell({"/bin/bash", "-c", "trap '' PIPE; " + tool + " 2>" + Path() + " | " +
                                                 reader + "; exit ${PIPESTATUS[0]}"});
  EXPECT_EQ(shell.Wait(), 1);
  EXPECT_THAT(Bytes(), HasSubstr("nobody reads"));
  unlink(fifo.c_str());
}

TEST_F(OutputTest, WrongArgumentsAreToldByTheExitCode) {
  for (const char* wrong : {"--count=0", "--frames", "--pid=-1"}) {
    samples::Program tool({"tools/dump/xtreme_dump", wrong});
    EXPECT_EQ(tool.Wait(), 2) << wrong;
  }
  samples::Program help({"tools/dump/xtreme_dump", "--help"});
  EXPECT_EQ(help.Wait(), 0);
}

TEST_F(OutputTest, AFileThatIsNoTapIsNamed) {
  const std::string other = directory_ + "/xtreme-frames.1.1";
  { std::ofstream(other) << std::string(4'096, 'x'); }
  EXPECT_THAT(Tell(), HasSubstr(other + ": read frames: this is not a frame tap"));
  unlink(other.c_str());
}

TEST_F(MissedTest, ProgramsAreChosenByTheNamesThatTheyHave) {
  const std::string name = "b\u00f6rse_of_a_name_that_is_longer_than_a_tap_has_room_for";
  const auto other =
      stats::FrameTap::Create({.directory = directory_, .ring = 5, .program = name});
  ASSERT_TRUE(other.ok()) << other.status();
  Write(other->get(), 3);
  EXPECT_THAT(Tell("--program=" + name + " 2>&1"), HasSubstr("xtreme_dump: 3 frames, 0 missed"));
  EXPECT_THAT(Tell("--program=b\u00f6rse 2>&1", 1), HasSubstr("no such ring"));
}

TEST_F(MissedTest, WhereNoneIsMissedNoneIsNoted) {
  Write(tap_.get(), 3);
  const std::string told = Tell();
  EXPECT_EQ(told.find("overwritten"), told.npos) << told;
  EXPECT_THAT(told, HasSubstr("xtreme_dump: 3 frames, 0 missed\n"));
}

}  // namespace
}  // namespace xtreme::dump
