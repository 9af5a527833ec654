// SPDX-License-Identifier: Apache-2.0
//
// A directory of its own that is gone when its object is.
//
// Threads: one.

#ifndef XTREME_BENCHMARKS_SCRATCH_DIRECTORY_H_
#define XTREME_BENCHMARKS_SCRATCH_DIRECTORY_H_

#include <stdlib.h>

#include <filesystem>
#include <string>
#include <system_error>

namespace xtreme::benchmarks {

// Where files cost no I/O.
inline constexpr const char* kInMemory = "/dev/shm";

class ScratchDirectory {
 public:
  // In `parent`. Empty path(): none could be made.
  explicit ScratchDirectory(
      const std::filesystem::path& parent = std::filesystem::temp_directory_path())
      : path_(parent / "xtreme-XXXXXX") {
    if (mkdtemp(path_.data()) == nullptr) path_.clear();
  }
  ~ScratchDirectory() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  ScratchDirectory(const ScratchDirectory&) = delete;
  ScratchDirectory& operator=(const ScratchDirectory&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace xtreme::benchmarks

#endif  // XTREME_BENCHMARKS_SCRATCH_DIRECTORY_H_
