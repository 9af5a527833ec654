// SPDX-License-Identifier: Apache-2.0

#include "xtreme/stats/publisher.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "xtreme/stats/reader.h"

namespace xtreme::stats {
namespace {

absl::Status Refused(const std::string& action, const std::string& path, int error) {
  return absl::UnavailableError(
      absl::StrCat("publish counters: ", action, " ", path, ": ", strerror(error)));
}

template <size_t kSize>
void CopyText(std::string_view text, std::array<char, kSize>* to) {
  to->fill(0);
  std::copy_n(text.begin(), std::min(text.size(), kSize), to->begin());
}

mode_t ModeOf(Access access) {
  switch (access) {
    case Access::kUser: break;
    case Access::kGroup: return 0640;
    case Access::kAll: return 0644;
  }
  return 0600;
}

SegmentHeader ShapeOf(const Publisher::Options& options) {
  SegmentHeader header = {};
  header.magic = kMagic;
  header.version = kVersion;
  header.pid = static_cast<uint32_t>(getpid());
  header.ring = options.ring;
  header.ring_counters = static_cast<uint32_t>(options.ring_counters.size());
  header.socket_counters = static_cast<uint32_t>(options.socket_counters.size());
  header.socket_slots = options.socket_slots;
  CopyText(options.interface, &header.interface);
  return header;
}

void WriteNames(std::span<const Publisher::Name> names, uint8_t* to) {
  auto* at = reinterpret_cast<CounterName*>(to);
  for (const Publisher::Name& name : names) {
    CopyText(name.scope, &at->scope);
    CopyText(name.name, &at->name);
    CopyText(name.meaning, &at->meaning);
    ++at;
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<Publisher>> Publisher::Create(const Options& options) {
  if (options.ring_counters.size() > kMaxCounters ||
      options.socket_counters.size() > kMaxCounters || options.socket_slots > kMaxSocketSlots) {
    return absl::InvalidArgumentError(absl::StrCat(
        "publish counters: ", options.ring_counters.size(), " and ",
        options.socket_counters.size(), " counters for ", options.socket_slots,
        " sockets asked, ", kMaxCounters, " for ", kMaxSocketSlots, " possible"));
  }
  RemoveStale(options.directory);
  const SegmentHeader shape = ShapeOf(options);
  const size_t bytes = Places(shape).file_bytes;
  // Without a name until it is whole and locked: nobody finds half a segment, or one that looks
  // like a dead process'.
  const int fd = open(options.directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (fd < 0) return Refused("make a file in", options.directory, errno);
  absl::Cleanup close_fd = [fd] { close(fd); };
  // Reserved, for a page that cannot be had when it is touched is a SIGBUS.
  if (const int error = posix_fallocate(fd, 0, static_cast<off_t>(bytes)); error != 0) {
    return Refused(absl::StrCat("reserve ", bytes, " bytes in"), options.directory, error);
  }
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
  if (memory == MAP_FAILED) return Refused("map a file in", options.directory, errno);
  absl::Cleanup unmap = [=] { munmap(memory, bytes); };
  auto* at = static_cast<uint8_t*>(memory);
  memcpy(at, &shape, sizeof shape);
  WriteNames(options.ring_counters, at + Places(shape).ring_names);
  WriteNames(options.socket_counters, at + Places(shape).socket_names);
  const std::string path =
      absl::StrCat(options.directory, "/", std::string(kFilePrefix), shape.pid, ".", shape.ring);
  // The mode as it was asked for, whatever the umask.
  const bool named = flock(fd, LOCK_EX | LOCK_NB) == 0 &&
                     fchmod(fd, ModeOf(options.access)) == 0 &&
                     linkat(AT_FDCWD, absl::StrCat("/proc/self/fd/", fd).c_str(), AT_FDCWD,
                            path.c_str(), AT_SYMLINK_FOLLOW) == 0;
  if (!named) return Refused("name", path, errno);
  std::move(close_fd).Cancel();
  std::move(unmap).Cancel();
  return std::unique_ptr<Publisher>(new Publisher(path, fd, at, shape));
}

Publisher::Publisher(std::string path, int fd, uint8_t* memory, const SegmentHeader& shape)
    : path_(std::move(path)), fd_(fd), memory_(memory), shape_(shape), places_(shape) {}

Publisher::~Publisher() {
  unlink(path_.c_str());
  munmap(memory_, places_.file_bytes);
  close(fd_);
}

// Release: no value is seen before the odd sequence (x86-64 stores stay in order anyway, Intel SDM
// volume 3, 9.2.2; this keeps the compiler to it).
void Publisher::Store(size_t place, uint64_t value) {
  std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(memory_ + place))
      .store(value, std::memory_order_release);
}

void Publisher::Begin() {
  next_ = 0;
  sockets_ = 0;
  left_out_ = 0;
  std::atomic_ref<uint64_t> sequence(header().sequence);
  sequence.store(sequence.load(std::memory_order_relaxed) | 1, std::memory_order_relaxed);
}

void Publisher::Put(uint64_t value) {
  if (next_ == shape_.ring_counters) return;
  Store(places_.ring_values + next_++ * sizeof(uint64_t), value);
}

bool Publisher::BeginSocket(const SocketHeader& socket) {
  if (sockets_ == shape_.socket_slots) {
    ++left_out_;
    return false;
  }
  next_of_socket_ = 0;
  const size_t at = places_.sockets + sockets_++ * places_.socket_bytes;
  std::array<uint64_t, sizeof(SocketHeader) / sizeof(uint64_t)> words;
  memcpy(words.data(), &socket, sizeof socket);
  for (size_t i = 0; i < words.size(); ++i) Store(at + i * sizeof(uint64_t), words[i]);
  return true;
}

void Publisher::PutOfSocket(uint64_t value) {
  if (next_of_socket_ == shape_.socket_counters) return;
  const size_t values =
      places_.sockets + (sockets_ - 1) * places_.socket_bytes + sizeof(SocketHeader);
  Store(values + next_of_socket_++ * sizeof(uint64_t), value);
}

void Publisher::End(int64_t now_ns, bool closed) {
  SegmentHeader& to = header();
  std::atomic_ref(to.published_ns).store(now_ns, std::memory_order_release);
  std::atomic_ref(to.sockets).store(sockets_, std::memory_order_release);
  std::atomic_ref(to.sockets_left_out).store(left_out_, std::memory_order_release);
  std::atomic_ref(to.closed).store(closed ? 1 : 0, std::memory_order_release);
  std::atomic_ref<uint64_t> sequence(to.sequence);
  sequence.store(sequence.load(std::memory_order_relaxed) + 1, std::memory_order_release);
}

}  // namespace xtreme::stats
