// SPDX-License-Identifier: Apache-2.0
//
// Several processes with rings on one shared wire, for some seconds of faults by a seed: datagrams
// and streams both ways, links that go down, rings that are reset and move, a process that is
// killed. No byte is ever wrong, no datagram lost that nobody counted, no stream left open, no
// buffer lost; and each process ends by itself.
//
// Options: --seed=N the first, --seeds=N how many, --seconds=S of noise each, --report tells what
// became of the streams, and when each phase was reached.

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <new>
#include <string>

#include "tests/soak/board.h"
#include "tests/soak/member.h"
#include "tests/soak/network.h"

namespace xtreme::soak {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::seconds;

uint64_t first_seed = 1;
uint64_t seeds = 3;
uint64_t seconds_of_noise = 2;
bool report = false;

constexpr seconds kPatience{120};  // For a phase: twice that of a stream.

class Soak {
 public:
  explicit Soak(uint64_t seed);
  ~Soak();

  // Empty, or the first thing that was wrong.
  std::string Run();

 private:
  void Start(int member);
  [[noreturn]] void BeMember(int member);
  void MakeNoise();
  void Enter(Phase phase);
  void Note(const char* reached);
  // Looks after the members for a moment; false: something is wrong.
  bool Tend();
  void Bury(pid_t child, int status);
  void KillVictim();
  void AwaitEnds();
  void CheckAccounts();
  // Datagrams that did not come there, and what was counted as lost.
  template <typename Of>
  uint64_t SumTo(int member, bool quiet, Of of);
  uint64_t MissingAt(int member, bool quiet);
  std::string WhatCameTwice(int member, bool quiet);
  uint64_t LostOnTheWayTo(int member, bool quiet);
  uint64_t NotWantedTwice(bool quiet);
  std::string WhatIsUnaccounted();
  bool living() const;
  void Check(const absl::Status& status) {
    if (!status.ok()) board_->Fail(std::string(status.message()));
  }
  std::string DescribeFlows(int from, int to);
  std::string StatusOfAll();

  const uint64_t seed_;
  const std::string segment_;
  Dice dice_;
  Board* const board_;
  Network network_;
  std::array<pid_t, kMembers> children_ = {};  // 0: it has ended.
  bool ending_ = false;
  bool told_at_backup_ = false;
  Clock::time_point begin_ = Clock::now();
  std::string times_;  // When each phase was reached.
};

Board* MakeBoard() {
  void* const page = mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) abort();
  return new (page) Board{};
}

Soak::Soak(uint64_t seed)
    : seed_(seed),
      segment_("/dev/shm/xtreme-soak." + std::to_string(getpid()) + "." + std::to_string(seed)),
      dice_(seed),
      board_(MakeBoard()) {}

Soak::~Soak() {
  for (const pid_t child : children_) {
    if (child == 0) continue;
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
  }
  std::filesystem::remove_all(segment_);
  munmap(board_, sizeof(Board));
}

bool Soak::living() const {
  for (const pid_t child : children_) {
    if (child != 0) return true;
  }
  return false;
}

std::string Soak::Run() {
  Check(network_.Make());
  if (board_->failed) return board_->failure.data();
  for (int member = 0; member < kMembers; ++member) Start(member);
  Enter(Phase::kNoise);
  MakeNoise();
  Enter(Phase::kCalm);
  Enter(Phase::kQuiet);
  Enter(Phase::kDrain);
  if (!board_->failed) CheckAccounts();
  AwaitEnds();
  Note("end");
  if (report) printf("seed %lu%s%s\n", seed_, times_.c_str(), StatusOfAll().c_str());
  if (!board_->failed) return "";
  return board_->failure.data() + StatusOfAll();
}

void Soak::Start(int member) {
  MemberPage& page = board_->member(member);
  page.reached = Phase::kComing;
  ++page.incarnation;
  fflush(stdout);
  const pid_t child = fork();
  if (child == 0) BeMember(member);
  children_[static_cast<size_t>(member)] = child;
}

// One that failed gives nothing back in order: it is gone at once.
void Soak::BeMember(int member) {
  {
    const net::Namespace::Inside inside(network_.of(member));
    const uint64_t incarnation = board_->member(member).incarnation;
    Dice dice(seed_ * kMembers + static_cast<uint64_t>(member) + (incarnation << 32));
    Member process(board_, member, dice.Next());
    if (!process.Run(segment_)) _exit(1);
  }
  exit(0);
}

void Soak::Bury(pid_t child, int status) {
  for (int member = 0; member < kMembers; ++member) {
    pid_t& of_member = children_[static_cast<size_t>(member)];
    if (of_member != child) continue;
    of_member = 0;
    const std::string name = "member " + std::to_string(member);
    if (WIFSIGNALED(status)) {
      board_->Fail(name + " was ended by signal " + std::to_string(WTERMSIG(status)));
    } else if (status != 0 || !ending_) {
      board_->Fail(name + " ended with status " + std::to_string(WEXITSTATUS(status)));
    }
  }
}

bool Soak::Tend() {
  int status = 0;
  for (pid_t child = waitpid(-1, &status, WNOHANG); child > 0;) {
    Bury(child, status);
    child = waitpid(-1, &status, WNOHANG);
  }
  const bool at_backup = board_->member(kRoamer).at_backup;
  if (at_backup != told_at_backup_) {
    Check(network_.TellOfRoamer(at_backup));
    told_at_backup_ = at_backup;
  }
  poll(nullptr, 0, 1);
  return !board_->failed;
}

void Soak::Enter(Phase phase) {
  board_->phase = phase;
  const auto end = Clock::now() + kPatience;
  const auto reached = [&] {
    for (const MemberPage& page : board_->members) {
      if (page.reached < phase) return false;
    }
    return true;
  };
  while (Tend() && !reached()) {
    if (Clock::now() > end) board_->Fail(std::string("the phase does not end: ") + NameOf(phase));
  }
  Note(NameOf(phase));
}

void Soak::Note(const char* reached) {
  const auto passed = std::chrono::duration_cast<milliseconds>(Clock::now() - begin_);
  times_ += std::string(" ") + reached + " " + std::to_string(passed.count()) + " ms";
}

void Soak::MakeNoise() {
  const auto end = Clock::now() + seconds(seconds_of_noise);
  auto next = Clock::now();
  // A ring that is opened while its MTU is small takes no longer frames: the victim's stays.
  while (Clock::now() < end && Tend()) {
    if (Clock::now() < next) continue;
    next = Clock::now() + milliseconds(dice_.Between(100, 400));
    if (dice_.OneIn(3)) {
      KillVictim();
    } else {
      const int member = static_cast<int>(dice_.Below(kVictim));
      Check(network_.SetMtu(member, dice_.OneIn(2) ? kMtu : dice_.Between(576, kMtu)));
    }
  }
  for (int member = 0; member < kMembers; ++member) Check(network_.SetMtu(member, kMtu));
}

void Soak::KillVictim() {
  const pid_t child = children_[kVictim];
  kill(child, SIGKILL);
  int status = 0;
  waitpid(child, &status, 0);
  children_[kVictim] = 0;
  if (!WIFSIGNALED(status)) return Bury(child, status);
  Start(kVictim);
}

void Soak::AwaitEnds() {
  ending_ = true;
  board_->phase = Phase::kEnd;
  const auto end = Clock::now() + kPatience;
  while (living() && Clock::now() < end) Tend();
  if (living()) board_->Fail("not all members ended");
}

// Of one that was killed nobody knows what it had sent and received: only in the quiet it counts.
template <typename Of>
uint64_t Soak::SumTo(int member, bool quiet, Of of) {
  uint64_t sum = 0;
  for (int from = 0; from < kRings; ++from) {
    for (int to = 0; to < kRings; ++to) {
      const bool killed =
          EndpointAt(from).member == kVictim || EndpointAt(to).member == kVictim;
      if (EndpointAt(to).member != member || (killed && !quiet)) continue;
      for (int way = 0; way < kWays; ++way) sum += of(board_->flow(quiet, from, to, way));
    }
  }
  return sum;
}

uint64_t Soak::MissingAt(int member, bool quiet) {
  return SumTo(member, quiet, [](const Flow& flow) { return flow.Missing(); });
}

// A frame that is repeated on its way out comes twice to each that it is for. The quiet has none.
std::string Soak::WhatCameTwice(int member, bool quiet) {
  const uint64_t twice =
      SumTo(member, quiet, [](const Flow& flow) { return flow.repeated.load(); });
  uint64_t repeated = quiet ? 0 : board_->member(member).tally.repeated_of_received.load();
  for (const MemberPage& page : board_->members) {
    if (!quiet) repeated += page.tally.repeated_of_sent;
  }
  if (twice <= repeated) return "";
  return std::to_string(twice) + " datagrams to member " + std::to_string(member) +
         " came twice" + (quiet ? " in the quiet" : "") + ", and the wire repeated " +
         std::to_string(repeated) + " frames";
}

// The roamer's ports both get what is sent to a group. What was lost on the way to one of them was
// counted, so of each that was heard one copy found no rule, or is in another count. But what the
// victim had counted when it was killed is not known.
uint64_t Soak::NotWantedTwice(bool quiet) {
  uint64_t heard = 0;
  for (int from = 0; from < kRings; ++from) {
    if (EndpointAt(from).member == kVictim) continue;
    const Flow& flow = board_->flow(quiet, from, /*to=*/0, kMulticast);
    heard += flow.received + flow.short_received;
  }
  return heard;
}

// By whoever sent it, and by the member. While rules go from queue to queue and from port to port
// a frame finds none, which the member's ports count. In the quiet rules stay, unless a move that
// began in the noise ends then; but some may not have heard yet that the roamer is at home, and
// send to where it was. By that address no other frame comes to that port. Ports do not say whose a
// frame was: the counts of the noise have TCP's too, and what was on its way to others, so that
// they only bound what is missing.
uint64_t Soak::LostOnTheWayTo(int member, bool quiet) {
  const Tally none = {};
  const auto rise = [&](int at, std::atomic<uint64_t> Tally::*count) {
    const MemberPage& page = board_->member(at);
    return page.tally.*count - (quiet ? page.tally_in_noise : none).*count;
  };
  uint64_t lost = rise(member, &Tally::of_received);
  for (int at = 0; at < kMembers; ++at) lost += rise(at, &Tally::of_sent);
  const bool rules_stay = quiet && rise(member, &Tally::moves) == 0;
  if (rules_stay) return lost + rise(member, &Tally::misdirected);
  lost += rise(member, &Tally::unwanted);
  return lost - (member == kRoamer ? std::min(lost, NotWantedTwice(quiet)) : 0);
}

std::string Soak::WhatIsUnaccounted() {
  for (int member = 0; member < kMembers; ++member) {
    for (const bool quiet : {true, false}) {
      const uint64_t missing = MissingAt(member, quiet);
      const uint64_t lost = LostOnTheWayTo(member, quiet);
      if (missing <= lost) continue;
      return std::to_string(missing) + " datagrams to member " + std::to_string(member) +
             " are missing " + (quiet ? "of the quiet, " : "of the noise, ") +
             std::to_string(lost) + " were counted as lost";
    }
  }
  return "";
}

void Soak::CheckAccounts() {
  const auto end = Clock::now() + kPatience / 2;
  while (!WhatIsUnaccounted().empty() && Clock::now() < end && Tend()) continue;
  if (const std::string missing = WhatIsUnaccounted(); !missing.empty()) board_->Fail(missing);
  for (int member = 0; member < kMembers; ++member) {
    for (const bool quiet : {true, false}) {
      if (const std::string twice = WhatCameTwice(member, quiet); !twice.empty()) {
        board_->Fail(twice);
      }
    }
  }
}

// Of the quiet.
std::string Soak::DescribeFlows(int from, int to) {
  std::string text;
  for (int way = 0; way < kWays; ++way) {
    const Flow& flow = board_->flow(true, from, to, way);
    if (flow.Missing() == 0) continue;
    text += "\n  " + std::to_string(from) + " to " + std::to_string(to) + " way " +
            std::to_string(way) + ": " + std::to_string(flow.Missing()) + " of " +
            std::to_string(flow.sent);
  }
  return text;
}

std::string Describe(const Tally& tally) {
  return " " + std::to_string(tally.of_sent) + " sent " + std::to_string(tally.of_received) +
         " received " + std::to_string(tally.unwanted) + " unwanted " +
         std::to_string(tally.misdirected) + " misdirected " + std::to_string(tally.moves) +
         " moves";
}

std::string Soak::StatusOfAll() {
  std::string text;
  for (int member = 0; member < kMembers; ++member) {
    const MemberPage& page = board_->member(member);
    text += "\n  member " + std::to_string(member) + " reached " + NameOf(page.reached) + ": " +
            page.status.data() + "; missing " + std::to_string(MissingAt(member, false)) + " and " +
            std::to_string(MissingAt(member, true)) + " of the quiet, of " +
            std::to_string(LostOnTheWayTo(member, false)) + " and " +
            std::to_string(LostOnTheWayTo(member, true)) + " that were counted:" +
            Describe(page.tally_in_noise) + ", at last" + Describe(page.tally);
  }
  for (int from = 0; from < kRings; ++from) {
    for (int to = 0; to < kRings; ++to) text += DescribeFlows(from, to);
  }
  return text;
}

TEST(SoakTest, NothingIsWrongLostOrLeft) {
  for (uint64_t seed = first_seed; seed < first_seed + seeds; ++seed) {
    const std::string wrong = Soak(seed).Run();
    EXPECT_EQ(wrong, "") << "--seed=" << seed << " --seconds=" << seconds_of_noise;
  }
}

bool TakeOption(const std::string& argument, const std::string& name, uint64_t* value) {
  if (argument.compare(0, name.size(), name) != 0) return false;
  *value = strtoull(argument.c_str() + name.size(), nullptr, 10);
  return true;
}

int Run(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    if (std::string(argv[i]) == "--report") {
      report = true;
      continue;
    }
    const bool known = TakeOption(argv[i], "--seed=", &first_seed) ||
                       TakeOption(argv[i], "--seeds=", &seeds) ||
                       TakeOption(argv[i], "--seconds=", &seconds_of_noise);
    if (known) continue;
    fprintf(stderr, "unknown option: %s\n", argv[i]);
    return 2;
  }
  return RUN_ALL_TESTS();
}

}  // namespace
}  // namespace xtreme::soak

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  return xtreme::soak::Run(argc, argv);
}
