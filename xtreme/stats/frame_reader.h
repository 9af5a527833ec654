// SPDX-License-Identifier: Apache-2.0
//
// FrameReader: reads the frame tap (frame_layout.h) of another process, living or dead.
//
// Invariant: what somebody else wrote is checked before it is believed; the file is read, not
// mapped, so it may shrink. Frames come in the order they were written; those that were overwritten
// before they were read are counted as missed, never given out torn.
// Units: nanoseconds of CLOCK_MONOTONIC. Threads: one at a time.

#ifndef XTREME_XTREME_STATS_FRAME_READER_H_
#define XTREME_XTREME_STATS_FRAME_READER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "xtreme/stats/frame_layout.h"

namespace xtreme::stats {

inline constexpr std::string_view kFramesPrefix = "xtreme-frames.";

struct TappedFrame {
  FrameKind kind = FrameKind::kNote;
  uint64_t number = 0;             // Of the tap, from 0.
  uint16_t end = 0;                // Of a sent frame, and of a send time: which it is (SentSlot)
  uint32_t queue = 0;              // of that send queue.
  bool timed_by_device = false;    // Else a sent frame's time is that of posting.
  std::optional<int64_t> time_ns;  // Nothing: neither clock tells.
  uint32_t frame_bytes = 0;        // On the wire.
  std::vector<uint8_t> bytes;      // Up to snap_bytes of them; of a note its text.

  std::string_view text() const {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
};

// Whether `header` describes a file of `bytes` bytes. InvalidArgument: what of it is wrong.
absl::Status CheckFramesHeader(const FramesHeader& header, uint64_t bytes);
// Has `read` fill `header` until its clocks were not written meanwhile. Unavailable: they were each
// time, as those of a writer that was killed at it are for ever, and are not to be believed; the
// rest is. InvalidArgument: `read` said false.
absl::Status ReadWhole(const std::function<bool(FramesHeader*)>& read, FramesHeader* header);
// Gives sent frames among `frames`, as they came from one tap, the times of the device that came
// after them, and takes those out; also what is about none of them. How many of the first `first`
// are left.
size_t ApplySendTimes(std::vector<TappedFrame>* frames, size_t first);
// The frame in a slot of `header`; nothing for one that is malformed.
std::optional<TappedFrame> ParseSlot(const FramesHeader& header, uint64_t number,
                                     std::span<const uint8_t> slot);

class FrameReader {
 public:
  // Starts with the oldest frame that is there. NotFound, PermissionDenied: the file.
  // InvalidArgument: it is not a frame tap.
  static absl::StatusOr<std::unique_ptr<FrameReader>> Open(const std::string& path);
  ~FrameReader();
  FrameReader(const FrameReader&) = delete;
  FrameReader& operator=(const FrameReader&) = delete;

  // The next frames, at most `most`; none: there is none now. InvalidArgument: the file shrank.
  absl::StatusOr<std::vector<TappedFrame>> Take(size_t most);
  // Passes over what is there: only what comes from here on.
  absl::Status SkipToNewest();
  // Ends with what is there: nothing that comes from here on.
  absl::Status StopAtNewest();

  // Overwritten before they were read, or not understood.
  uint64_t missed() const { return missed_; }
  // Whether the writer is there.
  bool alive() const;

  uint32_t pid() const { return shape_.pid; }
  uint32_t ring() const { return shape_.ring; }
  const std::string& interface() const { return interface_; }
  const std::string& program() const { return program_; }
  uint32_t snap_bytes() const { return shape_.snap_bytes; }

 private:
  FrameReader(int fd, const FramesHeader& header);
  // The header as it is now; its clocks as they were last seen whole.
  absl::StatusOr<FramesHeader> ReadHeader();
  // The first frame that is certainly whole.
  uint64_t OldestAt(uint64_t produced) const;

  const int fd_;
  const FramesHeader shape_;
  const std::string interface_;
  const std::string program_;
  uint64_t next_;
  uint64_t end_ = UINT64_MAX;
  uint64_t missed_ = 0;
  FrameClocks clocks_;  // As last seen whole.
};

// The paths of all taps of a directory, sorted.
std::vector<std::string> ListFrameTaps(const std::string& directory);

// Removes the taps of killed processes that the caller may remove; how many.
int RemoveStaleFrames(const std::string& directory);

}  // namespace xtreme::stats

#endif  // XTREME_XTREME_STATS_FRAME_READER_H_
