// SPDX-License-Identifier: Apache-2.0
//
// The same seeded sequences of socket calls by the kernel and by rings: every result, errno, event
// and byte the same.
//
//   differential_test [--runs=N] [--seed=N]
//
// Sequences on several descriptors are a tenth as many, and those of two threads, one of which
// waits, a fortieth. One on several descriptors that differs is made again with ever fewer calls,
// and what is left of it is told; one of two threads is made again as it is.
// Not among the calls, for they are known to differ: fragmented datagrams beside whole ones (their
// order), Nagle's algorithm (Linux has a variant).

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <iterator>
#include <set>
#include <sstream>
#include <string>
#include <string_view>

#include "gtest/gtest.h"
#include "tests/faces/differential.h"
#include "tests/faces/program.h"

namespace xtreme::faces {
namespace {

uint32_t g_runs = 1'000;
uint32_t g_seed = 1;

class DifferentialTest : public FacesTest {
 protected:
  // What `subject` writes, which is given the peer's socket and both addresses, and `arguments`;
  // ends with "done".
  std::string TranscriptOf(bool on_xtreme, const std::string& subject_name,
                           const std::string& arguments = "") {
    // TEST_TMPDIR is too long for the name of a socket.
    const std::string socket = "/tmp/xtreme-differential-" + std::to_string(getpid());
    const auto peer = StartOnKernel(PathOf("tests/faces/differential_peer ") + socket + " " +
                                    kTheirs + " " + kOurs);
    EXPECT_TRUE(peer->Says("ready")) << peer->Output();
    // What a debug build says of its rings is not the program's.
    const std::string command = PathOf("tests/faces/" + subject_name) + " " + socket + " " + kOurs +
                                " " + kTheirs + " " + arguments + " 2>> " + log();
    const auto subject =
        on_xtreme ? StartOnXtreme(command, "XTREME_LOG_LEVEL=debug XTREME_LOG_FILE=" + log())
                  : StartBeside(command);
    EXPECT_EQ(subject->Wait(), 0) << subject->Output() << Log();
    unlink(socket.c_str());
    return subject->Output();
  }
  void SetUp() override {
    FacesTest::SetUp();
    unlink(log().c_str());  // Of the test before.
  }
  std::string log() const { return Temporary("log"); }
  std::string Log() const {
    std::ifstream in(log());
    return std::string(std::istreambuf_iterator<char>(in), {});
  }
  static std::string Temporary(const std::string& name) {
    return std::string(std::getenv("TEST_TMPDIR")) + "/" + name;
  }
};

// With several descriptors a sequence.
class SequencesTest : public DifferentialTest {
 protected:
  std::string SequencesOf(bool on_xtreme, uint32_t seed, uint32_t count,
                          const std::string& calls = "") {
    const uint32_t first_port = next_port_;
    next_port_ += kPortsOfASequence * count;
    return TranscriptOf(on_xtreme, "sequences_subject",
                        std::to_string(seed) + " " + std::to_string(count) + " " +
                            std::to_string(first_port) + " " + calls);
  }
  static std::string PartOf(const std::string& all, uint32_t seed) {
    const size_t from = all.find("-- seed " + std::to_string(seed) + "\n");
    return from == std::string::npos ? "" : all.substr(from, all.find("\n--", from) - from);
  }
  // Where they part, if only `calls` are made; empty: they do not.
  std::string DifferenceOf(uint32_t seed, const std::set<uint32_t>& calls);
  // Fails, and tells what of the sequence differs still if all is left out that can be.
  // `seen`: how it differed among others.
  void Reduce(uint32_t seed, const std::string& seen);

 private:
  uint32_t next_port_ = 0;
};

// Empty: they are the same. Else the sequence up to where they part.
std::string FirstDifference(const std::string& kernel, const std::string& rings) {
  std::istringstream left(kernel);
  std::istringstream right(rings);
  std::string sequence;
  std::string a;
  std::string b;
  while (std::getline(left, a)) {
    if (!std::getline(right, b)) b = "(nothing)";
    if (a.starts_with("--")) sequence.clear();
    if (a != b) return sequence + "kernel: " + a + "\nrings:  " + b + "\n";
    sequence += a + "\n";
  }
  return "";
}

// Of each part that begins with "--", the first.
std::string Differences(const std::string& kernel, const std::string& rings) {
  const auto part = [](const std::string& all, size_t from) {
    return all.substr(from, all.find("\n--", from + 1) - from);
  };
  std::string found;
  for (size_t at = 0; at != std::string::npos; at = kernel.find("\n--", at + 1)) {
    const std::string ours = part(kernel, at);
    const std::string title = ours.substr(0, ours.find('\n', 1) + 1);
    const size_t theirs = rings.find(title);
    found += FirstDifference(ours, theirs == std::string::npos ? "" : part(rings, theirs));
  }
  return found;
}

std::string SequencesTest::DifferenceOf(uint32_t seed, const std::set<uint32_t>& calls) {
  std::string list;
  for (const uint32_t each : calls) list += std::to_string(each) + ",";
  const std::string kernel = SequencesOf(false, seed, 1, list);
  if (!kernel.ends_with("done\n")) return "";
  return FirstDifference(kernel, SequencesOf(true, seed, 1, list));
}

void SequencesTest::Reduce(uint32_t seed, const std::string& seen) {
  std::set<uint32_t> calls;
  for (uint32_t i = 0; i < kCallsOfASequence; ++i) calls.insert(i);
  std::string shown = DifferenceOf(seed, calls);
  if (shown.empty()) {
    ADD_FAILURE() << "seed " << seed << ": differs after others only, or not each time:\n"
                  << seen;
    return;
  }
  for (uint32_t step = kCallsOfASequence / 2; step > 0; step /= 2) {
    for (uint32_t first = 0; first < kCallsOfASequence; first += step) {
      std::set<uint32_t> fewer = calls;
      fewer.erase(fewer.lower_bound(first), fewer.lower_bound(first + step));
      if (fewer.empty() || fewer.size() == calls.size()) continue;
      const std::string still = DifferenceOf(seed, fewer);
      if (still.empty()) continue;
      calls = fewer;
      shown = still;
    }
  }
  ADD_FAILURE() << "seed " << seed << ":\n" << shown;
}

std::string Without(std::string all, std::string_view what) {
  for (size_t at; (at = all.find(what)) != std::string::npos;) all.erase(at, what.size());
  return all;
}

TEST_F(DifferentialTest, RingsAnswerEachCallAsTheKernelDoes) {
  constexpr uint32_t kAtOnce = 250;
  for (uint32_t done = 0; done < g_runs; done += kAtOnce) {
    const uint32_t runs = std::min(kAtOnce, g_runs - done);
    const std::string which = std::to_string(g_seed + done) + " " + std::to_string(runs);
    const std::string kernel = TranscriptOf(false, "differential_subject", which);
    ASSERT_TRUE(kernel.ends_with("done\n")) << kernel;
    EXPECT_EQ(FirstDifference(kernel, TranscriptOf(true, "differential_subject", which)), "");
    const std::string told = Without(Log(), "left to the kernel: shutdown() of a listener");
    EXPECT_NE(told.find("offloaded on ours, connects to"), std::string::npos) << told;
    EXPECT_EQ(told.find("left to the kernel"), std::string::npos) << told;
  }
}

TEST_F(DifferentialTest, RingsLetWaitCopyCloseAndFailAsTheKernelDoes) {
  const std::string kernel = TranscriptOf(false, "waiting_subject");
  ASSERT_TRUE(kernel.ends_with("done\n")) << kernel;
  EXPECT_EQ(Differences(kernel, TranscriptOf(true, "waiting_subject")), "");
  const std::string told = Log();
  EXPECT_NE(told.find("offloaded on ours, connects to"), std::string::npos) << told;
  EXPECT_EQ(told.find("left to the kernel"), std::string::npos) << told;
}

TEST_F(DifferentialTest, RingsSayBesideWhatComesWhatTheKernelSays) {
  const std::string kernel = TranscriptOf(false, "messages_subject");
  ASSERT_TRUE(kernel.ends_with("done\n")) << kernel;
  EXPECT_EQ(Differences(kernel, TranscriptOf(true, "messages_subject")), "");
  const std::string told = Log();
  EXPECT_NE(told.find("offloaded on ours, connects to"), std::string::npos) << told;
  EXPECT_EQ(told.find("left to the kernel"), std::string::npos) << told;
}

TEST_F(DifferentialTest, RingsHeedWhatServersSetOfStreamsAsTheKernelDoes) {
  const std::string kernel = TranscriptOf(false, "stream_options_subject");
  ASSERT_TRUE(kernel.ends_with("done\n")) << kernel;
  EXPECT_EQ(Differences(kernel, TranscriptOf(true, "stream_options_subject")), "") << kernel;
  const std::string told = Log();
  EXPECT_NE(told.find("offloaded on ours, connects to"), std::string::npos) << told;
  EXPECT_EQ(told.find("left to the kernel"), std::string::npos) << told;
}

TEST_F(DifferentialTest, RingsAnswerEveryCallInEveryStateAsTheKernelDoes) {
  // Nobody has it, and nobody is asked for it: SYNs get no answer.
  constexpr const char* kSilent = "10.9.0.99";
  ASSERT_TRUE(here().AddNeighbour("ours", kSilent, {2, 0, 0, 0, 0, 99}).ok());
  // IP_MTU is the route's.
  ASSERT_TRUE(here().AddRoute(std::string(kTheirs) + "/32", "ours", "", 1400).ok());
  const std::string kernel = TranscriptOf(false, "calls_subject", kSilent);
  ASSERT_TRUE(kernel.ends_with("done\n")) << kernel;
  EXPECT_EQ(Differences(kernel, TranscriptOf(true, "calls_subject", kSilent)), "");
}

TEST_F(DifferentialTest, RingsHeedEveryOptionAsTheKernelDoes) {
  constexpr const char* kOursToo = "10.8.0.1";
  ASSERT_TRUE(net::ConnectByVeth(here(), "ours2", there(), "theirs2").ok());
  ASSERT_TRUE(here().AddAddress("ours2", std::string(kOursToo) + "/24").ok());
  ASSERT_TRUE(there().AddAddress("theirs2", "10.8.0.2/24").ok());
  ASSERT_TRUE(here().AddRoute("239.2.0.0/16", "ours2").ok());
  const std::string kernel = TranscriptOf(false, "options_subject", kOursToo);
  ASSERT_TRUE(kernel.ends_with("done\n")) << kernel;
  EXPECT_EQ(Differences(kernel, TranscriptOf(true, "options_subject", kOursToo)), "") << kernel;
  const std::string told = Log();
  EXPECT_EQ(told.find("left to the kernel: join: "), std::string::npos) << told;
}

TEST_F(SequencesTest, RingsDoAllOfSeveralDescriptorsAsTheKernelDoes) {
  constexpr uint32_t kAtOnce = 100;
  constexpr int kMostReduced = 10;
  // Each takes as long as ten of the others.
  const uint32_t all = (g_runs + 9) / 10;
  int differ = 0;
  for (uint32_t done = 0; done < all; done += kAtOnce) {
    const uint32_t runs = std::min(kAtOnce, all - done);
    const std::string kernel = SequencesOf(false, g_seed + done, runs);
    ASSERT_TRUE(kernel.ends_with("done\n")) << kernel;
    const std::string rings = SequencesOf(true, g_seed + done, runs);
    for (uint32_t i = 0; i < runs; ++i) {
      const uint32_t seed = g_seed + done + i;
      const std::string seen = FirstDifference(PartOf(kernel, seed), PartOf(rings, seed));
      if (seen.empty()) continue;
      Reduce(seed, seen);
      if (++differ == kMostReduced) return;
    }
  }
}

TEST_F(SequencesTest, RingsLetOneThreadWaitWhileAnotherCallsAsTheKernelDoes) {
  constexpr const char* kSilent = "10.9.0.99";
  ASSERT_TRUE(here().AddNeighbour("ours", kSilent, {2, 0, 0, 0, 0, 99}).ok());
  uint32_t port = 0;
  const auto crossings = [&](bool on_xtreme, uint32_t seed, uint32_t count) {
    const std::string which = std::to_string(seed) + " " + std::to_string(count) + " ";
    const std::string all = TranscriptOf(on_xtreme, "crossing_subject",
                                         kSilent + (" " + which) + std::to_string(port));
    port += count;
    return all;
  };
  const uint32_t all = (g_runs + 39) / 40;
  const std::string kernel = crossings(false, g_seed, all);
  ASSERT_TRUE(kernel.ends_with("done\n")) << kernel;
  const std::string rings = crossings(true, g_seed, all);
  for (uint32_t seed = g_seed; seed < g_seed + all; ++seed) {
    if (FirstDifference(PartOf(kernel, seed), PartOf(rings, seed)).empty()) continue;
    // Whoever waits is to wait when the other begins: on a busy machine it may come too late.
    EXPECT_EQ(FirstDifference(crossings(false, seed, 1), crossings(true, seed, 1)), "")
        << PartOf(kernel, seed) << PartOf(rings, seed);
  }
}

bool TakeNumber(std::string_view argument, std::string_view name, uint32_t* number) {
  if (!argument.starts_with(name)) return false;
  argument.remove_prefix(name.size());
  const auto [end, error] =
      std::from_chars(argument.data(), argument.data() + argument.size(), *number);
  return error == std::errc() && end == argument.data() + argument.size();
}

}  // namespace
}  // namespace xtreme::faces

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  using xtreme::faces::TakeNumber;
  for (int i = 1; i < argc; ++i) {
    if (TakeNumber(argv[i], "--runs=", &xtreme::faces::g_runs)) continue;
    if (TakeNumber(argv[i], "--seed=", &xtreme::faces::g_seed)) continue;
    std::fprintf(stderr, "usage: differential_test [--runs=N] [--seed=N]\n");
    return 2;
  }
  return RUN_ALL_TESTS();
}
