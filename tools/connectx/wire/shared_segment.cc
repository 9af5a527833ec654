// SPDX-License-Identifier: Apache-2.0

#include "tools/connectx/wire/shared_segment.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"

namespace xtreme::connectx {
namespace {

constexpr uint64_t kMagic = 0x6572697778636478;
constexpr uint32_t kVersion = 1;
constexpr char kFileName[] = "segment";

constexpr uint32_t kMinRingBytes = 16 << 10;  // More than one frame of the greatest length.
constexpr uint32_t kMaxRingBytes = 16 << 20;
constexpr uint32_t kMaxPorts = 64;

// Bytes of the file that are locked: who opens or leaves, then one a port.
constexpr off_t kEntryLock = 0;
constexpr off_t kFirstPortLock = 1;

constexpr int kEntryTries = 5000;
constexpr timespec kEntryPause{.tv_sec = 0, .tv_nsec = 1'000'000};

struct SegmentHeader {
  uint64_t magic;
  uint32_t version;
  uint32_t ports;
  uint32_t ring_bytes;
};

// Where things are in the file.
constexpr size_t kPortsAt = 4096;
constexpr size_t kStationsAt = kPortsAt + kMaxPorts * sizeof(SharedPort);
constexpr size_t kIndicesAt = kStationsAt + sizeof(MacTable);
static_assert(kStationsAt % 64 == 0 && kIndicesAt % 64 == 0);

size_t RingsAt(const SharedSegment::Shape& shape) {
  constexpr size_t kPage = 4096;
  const size_t end = kIndicesAt + sizeof(SharedRingIndices) * shape.ports * shape.ports;
  return (end + kPage - 1) / kPage * kPage;
}

// The rings that one port sends into stand together.
size_t RowBytes(const SharedSegment::Shape& shape) {
  return size_t{shape.ports} * shape.ring_bytes;
}

size_t FileBytes(const SharedSegment::Shape& shape) {
  return RingsAt(shape) + RowBytes(shape) * shape.ports;
}

std::string WakeName(size_t port) { return absl::StrCat("wake", port); }

// errno as a status.
absl::Status Failure(const std::string& directory, const char* action) {
  const int error = errno;
  const std::string message = absl::StrCat(action, " in ", directory, ": ", std::strerror(error));
  if (error == EACCES || error == EPERM || error == ELOOP) {
    return absl::PermissionDeniedError(message);
  }
  if (error == ENOSPC || error == EMFILE || error == ENFILE || error == ENOMEM) {
    return absl::ResourceExhaustedError(message);
  }
  return absl::InternalError(message);
}

struct flock RangeLock(short type, off_t first, off_t length) {
  return {.l_type = type, .l_whence = SEEK_SET, .l_start = first, .l_len = length, .l_pid = 0};
}

bool TryLock(int file, off_t byte) {
  struct flock lock = RangeLock(F_WRLCK, byte, 1);
  return fcntl(file, F_OFD_SETLK, &lock) == 0;
}

bool LockSoon(int file, off_t byte) {
  for (int tries = 0; tries < kEntryTries; ++tries) {
    if (TryLock(file, byte)) return true;
    nanosleep(&kEntryPause, nullptr);
  }
  return false;
}

void Unlock(int file, off_t byte) {
  struct flock lock = RangeLock(F_UNLCK, byte, 1);
  (void)fcntl(file, F_OFD_SETLK, &lock);
}

bool LockedByOthers(int file, off_t first, off_t length) {
  struct flock lock = RangeLock(F_WRLCK, first, length);
  return fcntl(file, F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

// The segments' files of this process. A child made by fork shares them, and with them the locks
// that say that this process lives, so it closes them before it does anything else.
class LockedFiles {
 public:
  // Never destroyed: a child may be made while the process ends.
  static LockedFiles& OfThisProcess() {
    static LockedFiles& files = *new LockedFiles;
    return files;
  }

  // As openat().
  int Open(int directory) {
    const std::lock_guard lock(mutex_);
    const int file = openat(directory, kFileName, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (file >= 0) files_.push_back(file);
    return file;
  }

  void Close(int file) {
    const std::lock_guard lock(mutex_);
    std::erase(files_, file);
    close(file);
  }

 private:
  LockedFiles() {
    pthread_atfork([] { OfThisProcess().mutex_.lock(); },
                   [] { OfThisProcess().mutex_.unlock(); },  //
                   [] { OfThisProcess().CloseAll(); });
  }

  void CloseAll() {
    for (const int file : files_) close(file);
    files_.clear();
    mutex_.unlock();
  }

  std::mutex mutex_;
  std::vector<int> files_;
};

absl::StatusOr<int> OpenDirectory(const std::string& path) {
  // Who leaves last removes it: in between, it is made again.
  constexpr int kTries = 100;
  int fd = -1;
  for (int i = 0; fd < 0 && i < kTries; ++i) {
    if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) return Failure(path, "make a segment");
    fd = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && errno != ENOENT) break;
  }
  if (fd < 0) return Failure(path, "open a segment");
  struct stat status;
  const bool ours = fstat(fd, &status) == 0 && status.st_uid == geteuid() &&
                    (status.st_mode & (S_IWGRP | S_IWOTH)) == 0;
  if (ours) return fd;
  close(fd);
  return absl::PermissionDeniedError(
      absl::StrCat("open a segment in ", path, ": the directory is another user's, or writable ",
                   "by others"));
}

}  // namespace

bool SharedSegment::Shape::Valid() const {
  return ports >= 2 && ports <= kMaxPorts && std::has_single_bit(ring_bytes) &&
         ring_bytes >= kMinRingBytes && ring_bytes <= kMaxRingBytes;
}

SharedSegment::SharedSegment(std::string directory, int directory_fd, int file)
    : owner_(getpid()),
      directory_(std::move(directory)),
      directory_fd_(directory_fd),
      file_(file) {}

absl::StatusOr<std::unique_ptr<SharedSegment>> SharedSegment::Open(const std::string& directory,
                                                                   const Shape& shape) {
  for (int tries = 0; tries < kEntryTries; ++tries) {
    absl::StatusOr<int> directory_fd = OpenDirectory(directory);
    if (!directory_fd.ok()) return directory_fd.status();
    const int file = LockedFiles::OfThisProcess().Open(*directory_fd);
    if (file < 0) {
      const absl::Status status = Failure(directory, "open the segment's file");
      const bool removed = errno == ENOENT;
      close(*directory_fd);
      if (!removed) return status;
      continue;
    }
    std::unique_ptr<SharedSegment> segment(new SharedSegment(directory, *directory_fd, file));
    const absl::StatusOr<bool> entered = segment->Enter(shape);
    if (!entered.ok()) return entered.status();
    if (*entered) return segment;
    nanosleep(&kEntryPause, nullptr);
  }
  return absl::UnavailableError(
      absl::StrCat("open the segment in ", directory, ": somebody else is opening it"));
}

absl::StatusOr<bool> SharedSegment::Enter(const Shape& shape) {
  if (!TryLock(file_, kEntryLock)) return false;
  struct stat status;
  if (fstat(file_, &status) != 0 || status.st_nlink == 0) return false;
  const bool anew = !LockedByOthers(file_, kFirstPortLock, kMaxPorts);
  absl::Status done = anew ? Create(shape) : ReadShape();
  if (done.ok()) done = OpenWakes(anew);
  if (done.ok()) done = Map();
  if (done.ok()) done = Claim();
  if (!done.ok()) return done;
  Unlock(file_, kEntryLock);
  return true;
}

absl::Status SharedSegment::Create(const Shape& shape) {
  shape_ = shape;
  const SegmentHeader header{.magic = kMagic,
                             .version = kVersion,
                             .ports = shape.ports,
                             .ring_bytes = shape.ring_bytes};
  // To nothing first: what a dead member left must not look like state.
  const bool made = ftruncate(file_, 0) == 0 &&
                    ftruncate(file_, static_cast<off_t>(FileBytes(shape))) == 0 &&
                    pwrite(file_, &header, sizeof(header), 0) == sizeof(header);
  if (!made) return Failure(directory_, "make a segment");
  // What is written without asking must not fail for want of memory later (SIGBUS).
  if (fallocate(file_, 0, 0, static_cast<off_t>(RingsAt(shape))) == 0) return absl::OkStatus();
  return Failure(directory_, "find room for a segment");
}

absl::Status SharedSegment::ReadShape() {
  SegmentHeader header;
  struct stat status;
  const bool read = pread(file_, &header, sizeof(header), 0) == sizeof(header) &&
                    fstat(file_, &status) == 0 && S_ISREG(status.st_mode);
  if (!read || header.magic != kMagic || header.version != kVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat("join ", directory_, ": no segment of version ", kVersion));
  }
  shape_ = {.ports = header.ports, .ring_bytes = header.ring_bytes};
  if (shape_.Valid() && FileBytes(shape_) == static_cast<size_t>(status.st_size)) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrCat("join ", directory_, ": ", header.ports,
                                                    " ports, rings of ", header.ring_bytes,
                                                    " bytes in ", status.st_size, " bytes"));
}

absl::Status SharedSegment::OpenWakes(bool create) {
  for (size_t port = 0; port < shape_.ports; ++port) {
    const std::string name = WakeName(port);
    if (create && mkfifoat(directory_fd_, name.c_str(), 0600) != 0 && errno != EEXIST) {
      return Failure(directory_, "make a FIFO");
    }
    // For both directions, so that there is always a reader and no write ends in SIGPIPE.
    const int fd =
        openat(directory_fd_, name.c_str(), O_RDWR | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) return Failure(directory_, "open a FIFO");
    wake_fds_.push_back(fd);
    struct stat status;
    if (fstat(fd, &status) != 0 || !S_ISFIFO(status.st_mode)) {
      return absl::FailedPreconditionError(
          absl::StrCat("join ", directory_, ": ", name, " is not a FIFO"));
    }
  }
  return absl::OkStatus();
}

absl::Status SharedSegment::Map() {
  void* memory =
      mmap(nullptr, FileBytes(shape_), PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
  if (memory == MAP_FAILED) return Failure(directory_, "map a segment");
  memory_ = static_cast<uint8_t*>(memory);
  // A mapping keeps the file open, and its locks: no child may have it.
  if (madvise(memory_, FileBytes(shape_), MADV_DONTFORK) == 0) return absl::OkStatus();
  return Failure(directory_, "keep a segment from children");
}

absl::Status SharedSegment::Claim() {
  for (uint32_t port = 0; port < shape_.ports && !claimed_; ++port) {
    claimed_ = TryLock(file_, kFirstPortLock + port);
    own_port_ = static_cast<uint8_t>(port);
  }
  if (!claimed_) {
    return absl::ResourceExhaustedError(
        absl::StrCat("join ", directory_, ": all ", shape_.ports, " ports are taken"));
  }
  const size_t row = RingsAt(shape_) + own_port_ * RowBytes(shape_);
  const bool room = fallocate(file_, 0, static_cast<off_t>(row),
                              static_cast<off_t>(RowBytes(shape_))) == 0;
  return room ? absl::OkStatus() : Failure(directory_, "find room for a port's rings");
}

SharedSegment::~SharedSegment() {
  // A child has a copy of this object, but of the segment nothing.
  if (owner_ != getpid()) return;
  if (claimed_) Detach();
  // Nobody may come in, or leave, while we look whether we are the last: of two that leave at a
  // time the other one is. Who stands still in there is not waited for: the next one cleans up.
  if (claimed_ && LockSoon(file_, kEntryLock) && NobodyElseLives()) {
    for (size_t port = 0; port < shape_.ports; ++port) {
      unlinkat(directory_fd_, WakeName(port).c_str(), 0);
    }
    unlinkat(directory_fd_, kFileName, 0);
    rmdir(directory_.c_str());
  }
  if (memory_ != nullptr) munmap(memory_, FileBytes(shape_));
  for (const int fd : wake_fds_) close(fd);
  // By name, for who has the file open without the fork that LockedFiles hears of (clone).
  Unlock(file_, kFirstPortLock + own_port_);
  Unlock(file_, kEntryLock);
  LockedFiles::OfThisProcess().Close(file_);
  close(directory_fd_);
}

bool SharedSegment::NobodyElseLives() const {
  struct stat status;
  // Without a port this object came only to look, and may not judge what it did not understand.
  return claimed_ && fstat(file_, &status) == 0 && status.st_nlink != 0 &&
         !LockedByOthers(file_, kFirstPortLock, kMaxPorts);
}

SharedPort& SharedSegment::port(size_t index) const {
  return reinterpret_cast<SharedPort*>(memory_ + kPortsAt)[index];
}

MacTable& SharedSegment::stations() const {
  return *reinterpret_cast<MacTable*>(memory_ + kStationsAt);
}

SharedRingIndices* SharedSegment::indices(size_t from, size_t to) const {
  return reinterpret_cast<SharedRingIndices*>(memory_ + kIndicesAt) + from * shape_.ports + to;
}

std::span<uint8_t> SharedSegment::ring(size_t from, size_t to) const {
  return {memory_ + RingsAt(shape_) + from * RowBytes(shape_) + to * shape_.ring_bytes,
          shape_.ring_bytes};
}

void SharedSegment::Attach() {
  SharedPort& own = port(own_port_);
  own.armed.store(0, std::memory_order_relaxed);
  const uint32_t generation = (own.state.load(std::memory_order_relaxed) >> 1) + 1;
  own.state.store(generation << 1 | 1, std::memory_order_release);
}

void SharedSegment::Detach() {
  if (memory_ != nullptr) port(own_port_).state.fetch_and(~1u, std::memory_order_release);
}

bool SharedSegment::Lives(size_t index) const {
  return index == own_port_ || LockedByOthers(file_, kFirstPortLock + static_cast<off_t>(index), 1);
}

void SharedSegment::Wake(size_t index) const {
  // Raw: a preloaded socket library under test may have its own write. A full FIFO wakes as well.
  (void)::syscall(SYS_write, wake_fds_[index], "", 1);
}

void SharedSegment::DrainWakes() const {
  std::array<char, 256> wakes;
  (void)::syscall(SYS_read, wake_fd(), wakes.data(), wakes.size());
}

}  // namespace xtreme::connectx
