// SPDX-License-Identifier: Apache-2.0
//
// A pcapng file: frames of several interfaces with their direction, their time to the nanosecond
// and a comment, for Wireshark, tcpdump and libpcap. (libpcap itself writes only the older format,
// which has none of the three.)
//
// Invariant: the file is a whole number of blocks after each Flush. What cannot be written is
// counted, and never holds anybody up.
// Units: nanoseconds since 1970; blocks are in this machine's byte order, as the format allows.
// Thread: any; a lock inside.
// Spec: draft-ietf-opsawg-pcapng, sections 4.1 to 4.3.

#ifndef XTREME_TOOLS_CONNECTX_WIRE_CAPTURE_FILE_H_
#define XTREME_TOOLS_CONNECTX_WIRE_CAPTURE_FILE_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace xtreme::connectx {

class CaptureFile {
 public:
  enum class Direction : uint32_t { kIn = 1, kOut = 2 };  // Of the interface: epb_flags, bits 0-1.

  // Makes the file, or empties it. Errors: Unavailable (somebody else is writing it), Internal,
  // with what the system said. `application` is who the file says wrote it.
  static absl::StatusOr<std::shared_ptr<CaptureFile>> Create(
      const std::string& path, std::string_view application = kApplication);
  // The same, to an open file, pipe or socket (the standard output), which stays open and is not
  // emptied.
  static absl::StatusOr<std::shared_ptr<CaptureFile>> CreateOn(int open,
                                                               std::string_view application);
  // One without a file: frames are forgotten until Begin makes it, with the errors of Create.
  static std::shared_ptr<CaptureFile> Later(std::string_view application = kApplication);
  absl::Status Begin(const std::string& path);
  // The same; while somebody else writes that file, one with this process' id in its name:
  // "lab.4711.pcapng".
  absl::Status BeginOrBeside(const std::string& path);
  // Writes what is held.
  ~CaptureFile();
  CaptureFile(const CaptureFile&) = delete;
  CaptureFile& operator=(const CaptureFile&) = delete;

  // Returns the number of the new Ethernet interface.
  uint32_t AddInterface(std::string_view name, std::string_view description);
  // `comment` may be empty. `wire_bytes`: how long the frame was before it was cut; 0: as it is.
  void Add(uint32_t interface, Direction direction, std::span<const uint8_t> frame,
           int64_t time_ns, std::string_view comment, uint32_t wire_bytes = 0);
  void Flush();

  // Frames that the file system did not take.
  uint64_t dropped() const;
  // What it is written to; -1 before Begin.
  int descriptor() const;

 private:
  static constexpr std::string_view kApplication = "software ConnectX";

  explicit CaptureFile(std::string_view application);
  void FlushLocked();
  void KeepDescription(size_t begin);

  mutable std::mutex mutex_;  // Guards what follows.
  int file_ = -1;
  std::vector<uint8_t> held_;
  // The section and the interfaces of `held_`, without which nobody reads what comes later.
  std::vector<uint8_t> held_descriptions_;
  uint64_t held_frames_ = 0;
  uint64_t dropped_ = 0;
  uint32_t interfaces_ = 0;
};

}  // namespace xtreme::connectx

#endif  // XTREME_TOOLS_CONNECTX_WIRE_CAPTURE_FILE_H_
