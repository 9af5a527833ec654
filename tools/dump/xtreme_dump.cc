// SPDX-License-Identifier: Apache-2.0
//
// xtreme_dump: the frames that a running program's rings receive and send, or that a killed
// program's did last.

#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "fmt/format.h"
#include "tools/arguments.h"
#include "tools/dump/frame_filter.h"
#include "tools/dump/output.h"
#include "tools/stats/pause.h"
#include "tools/stats/rings.h"
#include "tools/stats/selection_options.h"
#include "xtreme/stats/frame_reader.h"

namespace xtreme::dump {
namespace {

using stats::FrameKind;
using stats::FrameReader;
using stats::TappedFrame;

constexpr char kAbout[] =
    "Shows the frames of programs that bypass the kernel, and tcpdump with it. A ring keeps its "
    "last frames if it was opened with the setting dump_frames (XTREME_DUMP_FRAMES=4096). First "
    "come the frames that are there, then those that follow, until the program ends.";

constexpr char kExamples[] =
    "Live:   xtreme_dump --write=- | wireshark -k -i -\n"
    "After:  xtreme_dump --once --write=crash.pcapng\n"
    "What was dropped stands as a comment at the frame that follows; a socket's own frames are "
    "chosen with --socket.\n";

constexpr std::chrono::milliseconds kPause{10};
constexpr size_t kFramesATurn = 512;

struct Command {
  stats::Selection selection;
  std::string write;
  bool once = false;
  bool from_now = false;
  uint64_t count = 0;
};

volatile std::sig_atomic_t interrupted = 0;

// A reader that takes nothing keeps us in a write for ever: it has so long for each.
constexpr unsigned kPatienceSeconds = 1;

// What came so far is shown before the end; who interrupts again does not want that.
void Interrupt(int signal) {
  interrupted = 1;
  alarm(kPatienceSeconds);
  std::signal(signal, SIG_DFL);
}

int64_t Now(clockid_t clock) {
  timespec now;
  clock_gettime(clock, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

// A ring, and whose of its frames are wanted; nothing: all.
struct Chosen {
  std::unique_ptr<FrameReader> reader;
  std::optional<LocalEnd> socket;
};

// One ring's frames on their way to the output.
struct Source {
  std::unique_ptr<FrameReader> reader;
  uint32_t number = 0;      // In the output.
  uint64_t missed = 0;      // As noted.
  bool ended = false;
  std::optional<LocalEnd> socket;  // Whose frames; nothing: all.
  // For a turn: the device's times of those that were sent may follow.
  std::vector<TappedFrame> held;
  std::optional<int64_t> last_ns;  // Of the last frame that had a time.
};

// For each frame its time, or that of the first behind it that has one: it was there before that.
std::vector<std::optional<int64_t>> LatestTimes(const std::vector<TappedFrame>& frames) {
  std::vector<std::optional<int64_t>> latest(frames.size());
  std::optional<int64_t> behind;
  for (size_t i = frames.size(); i-- > 0; latest[i] = behind) {
    if (frames[i].time_ns) behind = frames[i].time_ns;
  }
  return latest;
}

class Dump {
 public:
  Dump(const Command& command, Output* output) : command_(command), output_(output) {}

  bool Add(Chosen chosen) {
    if (command_.from_now && !chosen.reader->SkipToNewest().ok()) return false;
    if (command_.once && !chosen.reader->StopAtNewest().ok()) return false;
    const uint32_t number = output_->AddRing(*chosen.reader);
    sources_.push_back(
        {.reader = std::move(chosen.reader), .number = number, .socket = chosen.socket});
    return true;
  }

  // Until there is nothing more to come, or to what had come when it was interrupted. False: it
  // cannot be written.
  bool Run() {
    bool stopped = command_.once;
    while (!Enough()) {
      if (interrupted != 0 && !std::exchange(stopped, true)) StopAtNewest();
      size_t taken = 0;
      size_t open = 0;
      for (Source& source : sources_) {
        // Asked before the frames are: what was written last is not left behind.
        const bool alive = source.reader->alive();
        taken += Take(&source);
        open += alive && !source.ended;
      }
      if (!output_->Flush()) return false;
      if (interrupted != 0) alarm(kPatienceSeconds);
      if (taken != 0) continue;
      if (stopped || open == 0) return true;
      if (!stats::Pause(output_->descriptor(), kPause)) return false;
    }
    return true;
  }

  void Report() const {
    uint64_t missed = 0;
    for (const Source& source : sources_) missed += source.reader->missed();
    std::fprintf(stderr, "xtreme_dump: %lu frames, %lu missed\n", written_, missed);
  }

 private:
  bool Enough() const { return command_.count != 0 && written_ >= command_.count; }

  // A file that shrank has nothing more to take either.
  void StopAtNewest() {
    for (Source& source : sources_) (void)source.reader->StopAtNewest();
  }

  // Shows what came a turn before, with the times that came since. How many frames that concerned,
  // missed ones included.
  size_t Take(Source* source) {
    auto frames = source->reader->Take(kFramesATurn);
    if (!frames.ok()) source->ended = true;
    const size_t taken = frames.ok() ? frames->size() : 0;
    std::vector<TappedFrame>& held = source->held;
    const size_t before = held.size();
    if (taken != 0) {
      std::move(frames->begin(), frames->end(), std::back_inserter(held));
    }
    const size_t shown = stats::ApplySendTimes(&held, before);
    const auto latest = LatestTimes(held);
    for (size_t i = 0; i < shown; ++i) {
      Show(*source, held[i], latest[i]);
      if (held[i].time_ns) source->last_ns = held[i].time_ns;
    }
    held.erase(held.begin(), held.begin() + static_cast<ptrdiff_t>(shown));
    return taken + shown + NoteMissed(source);
  }

  size_t NoteMissed(Source* source) {
    const uint64_t missed = source->reader->missed();
    const uint64_t more = missed - std::exchange(source->missed, missed);
    if (more != 0) {
      output_->Note(fmt::format("{} frames were overwritten before they were read", more));
    }
    return more;
  }

  // `latest`: what it is not later than, if that is known. Without it, of a program that may go on,
  // it has just come; else it is as old as the last one that is known.
  void Show(const Source& source, const TappedFrame& frame, std::optional<int64_t> latest) {
    if (frame.kind == FrameKind::kNote) return output_->Note(frame.text());
    if (Enough() || (source.socket && !source.socket->Has(frame))) return;
    if (!latest && (command_.once || !source.reader->alive())) latest = source.last_ns;
    const int64_t monotonic_ns = latest.value_or(Now(CLOCK_MONOTONIC));
    output_->Add(source.number, frame, monotonic_ns + to_realtime_ns_);
    ++written_;
  }

  const Command& command_;
  Output* const output_;
  const int64_t to_realtime_ns_ = Now(CLOCK_REALTIME) - Now(CLOCK_MONOTONIC);
  std::vector<Source> sources_;
  uint64_t written_ = 0;
};

// The socket with the handle asked for, of that ring: other programs have others of that handle.
std::optional<LocalEnd> FindHandle(stats::Selection selection, const FrameReader& ring) {
  selection.pid = ring.pid();
  selection.ring = ring.ring();
  selection.program = ring.program();
  std::vector<std::string> problems;
  for (const stats::Segment& found : stats::Collect(selection, &problems)) {
    return LocalEnd::Of(found.sockets.front());
  }
  return std::nullopt;
}

bool IsSelected(const stats::Selection& selection, const FrameReader& ring) {
  return (!selection.pid || *selection.pid == ring.pid()) &&
         (!selection.ring || *selection.ring == ring.ring()) &&
         stats::IsNamed(selection.program, ring.program()) &&
         stats::IsNamed(selection.interface, ring.interface());
}

int Fail(const std::string& text) {
  std::fprintf(stderr, "xtreme_dump: %s\n", text.c_str());
  return 1;
}

int Run(const Command& command) {
  const std::string why = stats::WhyUnreadable(command.selection.directory);
  if (!why.empty()) return Fail(why);
  const bool of_socket = !command.selection.socket.empty();
  const std::optional<LocalEnd> end = LocalEnd::Parse(command.selection.socket);
  std::vector<Chosen> chosen;
  bool kept = false;
  for (const std::string& path : stats::ListFrameTaps(command.selection.directory)) {
    auto reader = FrameReader::Open(path);
    if (!reader.ok()) {
      Fail(std::string(reader.status().message()));
    } else if (IsSelected(command.selection, **reader)) {
      kept = true;
      auto socket = of_socket && !end ? FindHandle(command.selection, **reader) : end;
      if (of_socket && !socket) continue;
      chosen.push_back({*std::move(reader), socket});
    }
  }
  if (!kept) {
    return Fail("no such ring keeps frames in " + command.selection.directory +
                "; the setting dump_frames asks for it");
  }
  if (chosen.empty()) return Fail("no socket " + command.selection.socket);
  auto output = command.write.empty() ? absl::StatusOr<std::unique_ptr<Output>>(MakeTextOutput())
                                      : MakePcapngOutput(command.write);
  if (!output.ok()) return Fail(std::string(output.status().message()));
  Dump dump(command, output->get());
  for (Chosen& each : chosen) dump.Add(std::move(each));
  const bool written = dump.Run();
  dump.Report();
  return written ? 0 : Fail("the frames cannot be written: the disk is full, or nobody reads");
}

int Main(int argc, char** argv) {
  Command command;
  CLI::App app{kAbout, "xtreme_dump"};
  app.footer(kExamples);
  stats::AddOptions(app, command.selection,
                    "frames of one socket: ADDRESS:PORT, :PORT, or its handle as xtreme_stats "
                    "shows it");
  app.add_option("-w,--write", command.write, "pcapng to this file; -: to the standard output");
  app.add_flag("-1,--once", command.once, "only what is there, then end");
  app.add_flag("--from-now", command.from_now, "only what comes from here on");
  app.add_option("-c,--count", command.count, "end after so many frames")
      ->check(CLI::Range(uint64_t{1}, uint64_t{1} << 62));
  if (const auto code = tools::ParseArguments(app, argc, argv)) return *code;
  std::signal(SIGINT, &Interrupt);
  std::signal(SIGTERM, &Interrupt);
  return Run(command);
}

}  // namespace
}  // namespace xtreme::dump

int main(int argc, char** argv) { return xtreme::dump::Main(argc, argv); }
