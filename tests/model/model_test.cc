// SPDX-License-Identifier: Apache-2.0
//
// Random calls of the C API, and a model of what it promises (docs/completions.md). A sequence that
// breaks a promise is made as short as it can be, and told call by call.
//
// Each is played in a process of its own, so that one that crashes can be made shorter too.
// Options: --seed=N the first, --seeds=N how many, --calls=N of each, --shorten=0 only says which
// seeds break a promise, --trace=1 tells all that is called and comes.

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "tests/model/player.h"
#include "tests/model/world.h"

namespace xtreme::model {
namespace {

using Calls = std::vector<Call>;

uint64_t first_seed = 1;
uint64_t seeds = 16;
uint64_t calls_of_each = 1'200;
uint64_t shorten = 1;
uint64_t trace_all = 0;
constexpr unsigned kPatienceSeconds = 120;

// Empty, or which promise was broken.
std::string Play(uint64_t seed, const Calls& calls, bool trace) {
  World world(seed);
  Player player(&world, seed, trace);
  size_t at = 0;
  while (at < calls.size() && player.Play(calls[at])) ++at;
  const std::string when = at < calls.size() ? "call " + std::to_string(at) : "the end";
  if (at == calls.size()) player.Finish();
  return player.model().failed() ? when + ": " + player.model().failure() : "";
}

std::string PlayInChild(uint64_t seed, const Calls& calls, bool trace = false) {
  int ends[2];
  if (pipe(ends) != 0) abort();
  fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    close(ends[0]);
    alarm(kPatienceSeconds);
    const std::string failure = Play(seed, calls, trace);
    const bool told = write(ends[1], failure.data(), failure.size()) ==
                      static_cast<ssize_t>(failure.size());
    _exit(failure.empty() && told ? 0 : 1);
  }
  close(ends[1]);
  std::string failure(4'096, 0);
  failure.resize(static_cast<size_t>(std::max<ssize_t>(
      read(ends[0], failure.data(), failure.size()), 0)));
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFSIGNALED(status)) return "signal " + std::to_string(WTERMSIG(status));
  return status == 0 || !failure.empty() ? failure : "the process failed";
}

// What two failures have in common that are the same: the words.
std::string WordsOf(const std::string& failure) {
  std::string words;
  for (const char c : failure.substr(failure.find(": ") + 1)) {
    if (isdigit(static_cast<unsigned char>(c)) == 0) words += c;
  }
  return words.substr(0, 40);
}

// Takes out what is not needed, ever smaller pieces.
Calls Reduce(uint64_t seed, Calls calls, const std::string& failure) {
  for (size_t piece = calls.size() / 2; piece > 0; piece /= 2) {
    for (size_t at = 0; at < calls.size();) {
      Calls fewer = calls;
      const auto from = fewer.begin() + static_cast<ptrdiff_t>(at);
      fewer.erase(from, from + static_cast<ptrdiff_t>(std::min(piece, calls.size() - at)));
      const std::string other = PlayInChild(seed, fewer);
      if (!other.empty() && WordsOf(other) == WordsOf(failure)) calls = std::move(fewer);
      else at += piece;
    }
  }
  return calls;
}

TEST(ModelTest, RandomCallsKeepWhatIsPromised) {
  for (uint64_t seed = first_seed; seed < first_seed + seeds; ++seed) {
    const Calls calls = MakeCalls(seed, calls_of_each);
    const std::string failure = PlayInChild(seed, calls, trace_all != 0);
    if (failure.empty()) continue;
    ADD_FAILURE() << "--seed=" << seed << " --calls=" << calls_of_each << ": " << failure;
    if (shorten == 0) continue;
    const Calls fewer = Reduce(seed, calls, failure);
    ADD_FAILURE() << fewer.size() << " of its calls do: " << PlayInChild(seed, fewer, true);
    return;
  }
}

bool TakeOption(const std::string& argument, const std::string& name, uint64_t* value) {
  if (argument.compare(0, name.size(), name) != 0) return false;
  *value = strtoull(argument.c_str() + name.size(), nullptr, 10);
  return true;
}

int Run(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const bool known = TakeOption(argv[i], "--seed=", &first_seed) ||
                       TakeOption(argv[i], "--seeds=", &seeds) ||
                       TakeOption(argv[i], "--calls=", &calls_of_each) ||
                       TakeOption(argv[i], "--shorten=", &shorten) ||
                       TakeOption(argv[i], "--trace=", &trace_all);
    if (known) continue;
    fprintf(stderr, "unknown option: %s\n", argv[i]);
    return 2;
  }
  return RUN_ALL_TESTS();
}

}  // namespace
}  // namespace xtreme::model

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  return xtreme::model::Run(argc, argv);
}
