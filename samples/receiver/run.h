// SPDX-License-Identifier: Apache-2.0
//
// Run: a feed handler's run around feed::Handler, whoever receives the datagrams: the clocks, the
// line every second, when it is over, and the figures at the end.
//
// A program makes it, receives until Over(), sends what NextRequest() says, and returns Finish().
// Units: nanoseconds. Threads: one; SIGINT and SIGTERM end the run.

#ifndef XTREME_SAMPLES_RECEIVER_RUN_H_
#define XTREME_SAMPLES_RECEIVER_RUN_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "samples/feed/handler.h"
#include "samples/receiver/allocations.h"
#include "samples/receiver/figures.h"
#include "samples/receiver/options.h"
#include "samples/receiver/process.h"

namespace receiver {

template <typename Reference>
class Run {
 public:
  // `hold_by_reference`: datagrams whose bytes may be kept where they are.
  Run(std::string program, const Options& options, size_t hold_by_reference)
      : program_(std::move(program)),
        options_(options),
        handler_(HandlerOptions(options_, hold_by_reference)) {
    CatchSignals();
    start_ns_ = second_ns_ = MonotonicNs();
  }

  // The line number of answers to requests.
  static constexpr size_t retransmission() { return feed::Handler<Reference>::retransmission(); }

  // Everything is joined. From here on time and costs are counted.
  void Ready() {
    start_ns_ = second_ns_ = MonotonicNs();
    start_allocations_ = ThreadAllocations();
    Print("ready\n");
  }

  // A datagram of `line` that the device received `device_ns` ago (not above 0: unknown). `copied`:
  // bytes copied on the way here.
  template <typename Keep>
  void OnDatagram(size_t line, std::span<const uint8_t> bytes, int64_t device_ns, size_t copied,
                  Keep&& keep) {
    ++datagrams_;
    costs_.received_copied_bytes += copied;
    if (options_.datagrams != 0) return;
    const uint64_t before = ThreadAllocations();
    handler_.OnDatagram(line, bytes, Now(device_ns), std::forward<Keep>(keep));
    costs_.handling_allocations += ThreadAllocations() - before;
  }

  // The request to send now; with nobody to ask, what is lost is given up here. To be called after
  // each batch and at least every millisecond while something is missing.
  std::optional<feed::mold::Request> NextRequest() {
    const uint64_t before = ThreadAllocations();
    const auto request = handler_.NextRequest(Now(0));
    costs_.handling_allocations += ThreadAllocations() - before;
    return request;
  }
  bool missing_now() const { return handler_.arbiter().FirstGap().open(); }

  // Whether the run is over. Prints the line of the second when it is time.
  bool Over() {
    const int64_t now_ns = MonotonicNs();
    if (!options_.quiet && now_ns - second_ns_ >= kSecondNs) PrintSecond(now_ns);
    const double seconds = static_cast<double>(now_ns - start_ns_) / kSecondNs;
    if (!ended_.empty()) return true;
    if (Complete()) ended_ = "done";
    else if (Stopped()) ended_ = "interrupted";
    else if (seconds > options_.timeout_s) ended_ = "time-out";
    return !ended_.empty();
  }
  // Ends the run.
  void Fail(const std::string& why) { ended_ = why; }

  // Prints and writes the figures; the program's exit code, 0 when the run was complete.
  int Finish(std::vector<NamedCount> counts) {
    Outcome outcome;
    outcome.program = program_;
    outcome.ended = ended_;
    outcome.seconds = static_cast<double>(MonotonicNs() - start_ns_) / kSecondNs;
    outcome.figures = TakeFigures();
    outcome.counts = std::move(counts);
    for (const std::string& symbol : options_.symbols) {
      outcome.books.push_back(BookLine(symbol, handler_.books().Top(symbol)));
    }
    return Report(options_, outcome);
  }

 private:
  // The other line may still have to say what it lost last.
  static constexpr int64_t kGraceNs = 500'000'000;

  static typename feed::Handler<Reference>::Options HandlerOptions(const Options& options,
                                                                   size_t hold_by_reference) {
    typename feed::Handler<Reference>::Options made;
    made.arbiter.hold_by_reference = hold_by_reference;
    if (options.request_to.empty()) made.requester.tries = 0;
    made.symbols.assign(options.symbols.begin(), options.symbols.end());
    return made;
  }

  static typename feed::Handler<Reference>::Times Now(int64_t device_ns) {
    // A device whose clock nobody has set says nothing.
    const bool known = device_ns > 0 && device_ns < kSecondNs * 60;
    return {.now_ns = MonotonicNs(),
            .midnight_ns = static_cast<uint64_t>(RealNs() % (86'400 * kSecondNs)),
            .device_ns = known ? static_cast<uint64_t>(device_ns) : 0};
  }

  bool Complete() {
    if (options_.datagrams != 0) return datagrams_ >= options_.datagrams;
    if (!handler_.Done()) return false;
    const feed::Arbiter<Reference>& arbiter = handler_.arbiter();
    if (done_ns_ == 0) done_ns_ = MonotonicNs();
    const bool both = arbiter.line(0).next == arbiter.next() &&
                      arbiter.line(1).next == arbiter.next();
    return both || MonotonicNs() - done_ns_ > kGraceNs;
  }

  Figures TakeFigures() const {
    Figures figures = Collect(handler_);
    figures.datagrams = datagrams_;
    figures.costs = costs_;
    figures.costs.receiving_allocations =
        ThreadAllocations() - start_allocations_ - costs_.handling_allocations - own_allocations_;
    return figures;
  }

  void PrintSecond(int64_t now_ns) {
    const uint64_t before = ThreadAllocations();
    const Figures figures = TakeFigures();
    Print(ProgressLine(static_cast<double>(now_ns - start_ns_) / kSecondNs, last_, figures));
    last_ = figures;
    second_ns_ += kSecondNs;
    own_allocations_ += ThreadAllocations() - before;
  }

  const std::string program_;
  const Options options_;
  feed::Handler<Reference> handler_;
  uint64_t datagrams_ = 0;
  Costs costs_;
  int64_t start_ns_ = 0;
  int64_t second_ns_ = 0;  // When the current second began.
  int64_t done_ns_ = 0;
  uint64_t start_allocations_ = 0;
  uint64_t own_allocations_ = 0;  // For the lines it printed.
  Figures last_;
  std::string ended_;
};

}  // namespace receiver

#endif  // XTREME_SAMPLES_RECEIVER_RUN_H_
