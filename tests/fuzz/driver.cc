// SPDX-License-Identifier: Apache-2.0
//
// Runs a fuzz target (LLVMFuzzerTestOneInput) with any compiler: seeds first, then mutations, each
// a pure function of (--seed, index). When the target dies, the line to replay that one input and
// its bytes are printed. Exit code 0: every input was survived. Built by --config=fuzzer,
// clang's libFuzzer makes the inputs instead (guided.h).
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "tests/fuzz/guided.h"
#include "tests/fuzz/input.h"

extern "C" {
int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t length);

// Of the sanitizers' run time, where there is one: a report ends the process without a signal.
__attribute__((weak)) void __sanitizer_set_death_callback(void (*callback)());
}

namespace xtreme::fuzz {
namespace {

// What the death report reads; the only state that a signal handler can reach.
struct Current {
  const char* program = "";
  uint64_t seed = 0;
  uint64_t index = 0;
  const Bytes* input = nullptr;
};
Current current;

// Not async-signal-safe (stdio), and good enough: the process is dying of a fault in the target.
void ReportDeath() {
  if (current.input == nullptr) return;
  std::fprintf(stderr,
               "\nfuzz: died at input %" PRIu64
               ", %zu bytes; replay with\n"
               "  %s --seed=%" PRIu64 " --first=%" PRIu64 " --iterations=1\nbytes:",
               current.index, current.input->size(), current.program, current.seed, current.index);
  for (const uint8_t byte : *current.input) std::fprintf(stderr, " %02x", byte);
  std::fprintf(stderr, "\n");
  current.input = nullptr;
}

void OnSignal(int number) {
  ReportDeath();
  ::signal(number, SIG_DFL);
  ::raise(number);
}

void InstallDeathReport() {
  if (__sanitizer_set_death_callback != nullptr) __sanitizer_set_death_callback(ReportDeath);
  for (const int number : {SIGABRT, SIGILL, SIGFPE}) ::signal(number, OnSignal);
  // The sanitizers report these two themselves, with a stack, and then call back.
  if (__sanitizer_set_death_callback != nullptr) return;
  for (const int number : {SIGSEGV, SIGBUS}) ::signal(number, OnSignal);
}

struct Options {
  uint64_t seed = 1;
  uint64_t first = 0;
  uint64_t iterations = 20'000;
  double seconds = 0;  // 0: as many as --iterations says.
  size_t max_bytes = 2048;
  std::vector<std::string> seeds;
};

std::vector<Bytes> ReadFiles(const std::vector<std::string>& paths) {
  std::vector<Bytes> files;
  for (const std::string& path : paths) {
    std::ifstream file(path, std::ios::binary);
    files.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return files;
}

void Run(const Options& options) {
  const Inputs inputs(ReadFiles(options.seeds), options.seed, options.max_bytes);
  if (RunGuided != nullptr) {
    RunGuided(inputs, {current.program, options.seed, options.max_bytes, options.iterations,
                       options.seconds});
  }
  const auto start = std::chrono::steady_clock::now();
  const std::chrono::duration<double> limit(options.seconds);
  const auto goes_on = [&](uint64_t done) {
    if (options.seconds == 0) return done < options.iterations;
    return done % 64 != 0 || std::chrono::steady_clock::now() - start < limit;
  };
  uint64_t done = 0;
  for (; goes_on(done); ++done) {
    Bytes input = inputs.At(options.first + done);
    input.reserve(1);  // The address of no bytes is not null: targets copy from it.
    current.index = options.first + done;
    current.input = &input;
    LLVMFuzzerTestOneInput(input.data(), input.size());
    current.input = nullptr;
  }
  std::printf("fuzz: %" PRIu64 " inputs survived, seed %" PRIu64 "\n", done, options.seed);
}

}  // namespace
}  // namespace xtreme::fuzz

int main(int argc, char** argv) {
  xtreme::fuzz::Options options;
  CLI::App app("Feeds seeded and mutated inputs to a fuzz target.");
  app.add_option("--seed", options.seed, "chooses the inputs");
  app.add_option("--first", options.first, "number of the first input");
  app.add_option("--iterations", options.iterations, "how many inputs");
  app.add_option("--seconds", options.seconds, "run for a time instead of --iterations");
  app.add_option("--max_bytes", options.max_bytes, "longest input");
  app.add_option("seeds", options.seeds, "files to start from")->check(CLI::ExistingFile);
  CLI11_PARSE(app, argc, argv);
  xtreme::fuzz::current.program = argv[0];
  xtreme::fuzz::current.seed = options.seed;
  if (xtreme::fuzz::RunGuided == nullptr) xtreme::fuzz::InstallDeathReport();
  xtreme::fuzz::Run(options);
  return 0;
}
