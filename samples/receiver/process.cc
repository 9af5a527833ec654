// SPDX-License-Identifier: Apache-2.0

#include "samples/receiver/process.h"

#include <signal.h>
#include <time.h>

#include <cstdio>
#include <cstdlib>

#include "fmt/format.h"

namespace receiver {
namespace {

// A signal's action has nowhere else to leave word.
volatile sig_atomic_t stopped = 0;

int64_t Read(clockid_t clock) {
  timespec now;
  clock_gettime(clock, &now);
  return now.tv_sec * kSecondNs + now.tv_nsec;
}

std::string QuoteText(const feed::Quote& quote) {
  if (quote.price == 0) return "nobody";
  return fmt::format("{:.4f} x {}", quote.price / 1e4, quote.shares);
}

}  // namespace

int64_t MonotonicNs() { return Read(CLOCK_MONOTONIC); }
int64_t RealNs() { return Read(CLOCK_REALTIME); }

void CatchSignals() {
  struct sigaction action = {};
  action.sa_handler = [](int) { stopped = 1; };
  // Not restarted: a wait has to end.
  for (int signal_number : {SIGINT, SIGTERM}) sigaction(signal_number, &action, nullptr);
}

bool Stopped() { return stopped != 0; }

void Print(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

int Refuse(const std::string& program, const std::string& why) {
  fmt::print(stderr, "{}: {}\n", program, why);
  return EXIT_FAILURE;
}

std::string BookLine(const std::string& symbol, const feed::TopOfBook& top) {
  return fmt::format("{} {}, {}", symbol, QuoteText(top.bid), QuoteText(top.ask));
}

int Report(const Options& options, const Outcome& outcome) {
  Print(Summary(outcome));
  if (!options.json.empty()) {
    if (const std::string wrong = WriteJson(options.json, outcome); !wrong.empty()) {
      return Refuse(outcome.program, wrong);
    }
  }
  return outcome.ended == "done" ? EXIT_SUCCESS : EXIT_FAILURE;
}

}  // namespace receiver
