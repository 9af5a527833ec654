// SPDX-License-Identifier: Apache-2.0
//
// SharedFile: memory in a file that appears whole, under its name and locked, or not at all.
//
// Invariant: its bytes are reserved and mapped; nothing faults later. Threads: any.

#ifndef XTREME_XTREME_STATS_SHARED_FILE_H_
#define XTREME_XTREME_STATS_SHARED_FILE_H_

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace xtreme::stats {

// The mapping alone keeps the file open, and with it the exclusive flock() that says that the
// writer lives: of a descriptor a child would have a copy, and a program that closes all that it
// did not open would close it. A child does not have the memory.
struct SharedFile {
  std::string path;
  uint8_t* memory = nullptr;
  size_t bytes = 0;
};

// Makes `directory`/`name` of `bytes` zeros, has `fill` write into them, and gives it its name, or
// that with ".2" and so on behind it where another has it: a process of another PID namespace, or a
// dead one of another user, may have the same number. `purpose` begins messages. Unavailable: the
// system refuses; the message says what and why.
absl::StatusOr<SharedFile> MakeSharedFile(const std::string& purpose, const std::string& directory,
                                          const std::string& name, size_t bytes, mode_t mode,
                                          const std::function<void(uint8_t*)>& fill);

// Ends it: the name goes, then the memory.
void RemoveSharedFile(const SharedFile& file);

// What a reader says of a field that anybody may have written: up to the first 0, and for terminals
// a ? for each byte that is not printable.
std::string ShownText(std::string_view field);

// Removes a file that begins with `magic`, of whatever layout, whose writer is gone, if the caller
// may read and remove it: the lock is older than any layout. False: it did not.
bool RemoveIfLeftBehind(const std::string& path, const std::array<char, 8>& magic);

}  // namespace xtreme::stats

#endif  // XTREME_XTREME_STATS_SHARED_FILE_H_
