// SPDX-License-Identifier: Apache-2.0
//
// Where tapped frames go: a line each, or pcapng for Wireshark.
//
// Invariant: a note goes with the frame that follows it, as its comment; what is noted last, and
// what is more than a comment holds, goes with a frame of no bytes.
// Units: nanoseconds. Threads: one.

#ifndef XTREME_TOOLS_DUMP_OUTPUT_H_
#define XTREME_TOOLS_DUMP_OUTPUT_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "xtreme/stats/frame_reader.h"

namespace xtreme::dump {

class Output {
 public:
  virtual ~Output() = default;
  // One ring; `number` of its frames. What the times are is said where the format has a place.
  virtual uint32_t AddRing(const stats::FrameReader& ring) = 0;
  // `time_ns` since 1970; of a frame that has no time of its own, one near it, which is said.
  virtual void Add(uint32_t ring, const stats::TappedFrame& frame, int64_t time_ns) = 0;
  // Says something before the next frame.
  virtual void Note(std::string_view text) = 0;
  // Writes what is held. False: nobody takes it any more.
  virtual bool Flush() = 0;
  // What it is written to.
  virtual int descriptor() const = 0;
};

// Lines to the standard output.
std::unique_ptr<Output> MakeTextOutput();
// A pcapng file; "-" is the standard output. Error: Internal, with what the system said.
absl::StatusOr<std::unique_ptr<Output>> MakePcapngOutput(const std::string& path);

}  // namespace xtreme::dump

#endif  // XTREME_TOOLS_DUMP_OUTPUT_H_
