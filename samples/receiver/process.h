// SPDX-License-Identifier: Apache-2.0
//
// What a run needs of its process: clocks, signals, standard output, its report at the end.

#ifndef XTREME_SAMPLES_RECEIVER_PROCESS_H_
#define XTREME_SAMPLES_RECEIVER_PROCESS_H_

#include <cstdint>
#include <string>

#include "samples/feed/book.h"
#include "samples/receiver/figures.h"
#include "samples/receiver/options.h"

namespace receiver {

inline constexpr int64_t kSecondNs = 1'000'000'000;

int64_t MonotonicNs();
int64_t RealNs();

// From here on SIGINT and SIGTERM make Stopped() true instead of ending the process.
void CatchSignals();
bool Stopped();

// Writes to standard output at once, in one piece.
void Print(const std::string& text);
// Says on standard error why the program cannot go on; the exit code for it.
int Refuse(const std::string& program, const std::string& why);

// "XTRA 99.90 x 300, 100.10 x 200": bid and ask.
std::string BookLine(const std::string& symbol, const feed::TopOfBook& top);
// Prints the summary, writes the JSON when it was asked for; the program's exit code.
int Report(const Options& options, const Outcome& outcome);

}  // namespace receiver

#endif  // XTREME_SAMPLES_RECEIVER_PROCESS_H_
