// SPDX-License-Identifier: Apache-2.0

#include "xtreme/stats/shared_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"

namespace xtreme::stats {
namespace {

// `path`, or the first of those beside it that is free. Nothing: errno says why.
std::optional<std::string> GiveName(int fd, const std::string& path) {
  constexpr int kMostOfOneName = 100;
  const std::string file = absl::StrCat("/proc/self/fd/", fd);
  for (int number = 1; number <= kMostOfOneName; ++number) {
    const std::string tried = number == 1 ? path : absl::StrCat(path, ".", number);
    if (linkat(AT_FDCWD, file.c_str(), AT_FDCWD, tried.c_str(), AT_SYMLINK_FOLLOW) == 0) {
      return tried;
    }
    if (errno != EEXIST) return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace

absl::StatusOr<SharedFile> MakeSharedFile(const std::string& purpose, const std::string& directory,
                                          const std::string& name, size_t bytes, mode_t mode,
                                          const std::function<void(uint8_t*)>& fill) {
  const auto refused = [&](const std::string& action, const std::string& path, int error) {
    return absl::UnavailableError(
        absl::StrCat(purpose, ": ", action, " ", path, ": ", strerror(error)));
  };
  // Without a name until it is whole and locked: nobody finds half a file, or one that looks like
  // a dead process'.
  const int fd = open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (fd < 0) return refused("make a file in", directory, errno);
  absl::Cleanup close_fd = [fd] { close(fd); };
  // Reserved, for a page that cannot be had when it is touched is a SIGBUS.
  if (const int error = posix_fallocate(fd, 0, static_cast<off_t>(bytes)); error != 0) {
    return refused(absl::StrCat("reserve ", bytes, " bytes in"), directory, error);
  }
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
  if (memory == MAP_FAILED) return refused("map a file in", directory, errno);
  absl::Cleanup unmap = [=] { munmap(memory, bytes); };
  if (madvise(memory, bytes, MADV_DONTFORK) != 0) return refused("map a file in", directory, errno);
  fill(static_cast<uint8_t*>(memory));
  const std::string path = absl::StrCat(directory, "/", name);
  // The mode as it was asked for, whatever the umask.
  if (flock(fd, LOCK_EX | LOCK_NB) != 0 || fchmod(fd, mode) != 0) {
    return refused("name", path, errno);
  }
  const std::optional<std::string> given = GiveName(fd, path);
  if (!given) return refused("name", path, errno);
  std::move(unmap).Cancel();
  return SharedFile{*given, static_cast<uint8_t*>(memory), bytes};
}

void RemoveSharedFile(const SharedFile& file) {
  unlink(file.path.c_str());
  munmap(file.memory, file.bytes);
}

std::string ShownText(std::string_view field) {
  std::string text(field.substr(0, field.find('\0')));
  for (char& c : text) {
    if (c < ' ' || c > '~') c = '?';
  }
  return text;
}

bool RemoveIfLeftBehind(const std::string& path, const std::array<char, 8>& magic) {
  // Somebody may have put a pipe there: opening it must not wait.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) return false;
  absl::Cleanup close_fd = [fd] { close(fd); };
  // Only what is ours: the name alone may be somebody else's.
  std::array<char, 8> begin = {};
  if (pread(fd, begin.data(), begin.size(), 0) != static_cast<ssize_t>(begin.size())) return false;
  return begin == magic && flock(fd, LOCK_SH | LOCK_NB) == 0 && unlink(path.c_str()) == 0;
}

}  // namespace xtreme::stats
