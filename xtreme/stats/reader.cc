// SPDX-License-Identifier: Apache-2.0

#include "xtreme/stats/reader.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "xtreme/stats/shared_file.h"

namespace xtreme::stats {
namespace {

// A writer is at it for microseconds.
constexpr int kTries = 100;

absl::Status Malformed(const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("read counters: ", what));
}

template <size_t kSize>
std::string Text(const std::array<char, kSize>& field) {
  return ShownText({field.data(), field.size()});
}

template <typename T>
T Take(std::span<const uint8_t> bytes, size_t place) {
  T value;
  memcpy(&value, bytes.data() + place, sizeof value);
  return value;
}

absl::Status CheckShape(const SegmentHeader& header, size_t bytes) {
  if (header.magic != kMagic) return Malformed("this is not a segment of counters");
  if (header.version != kVersion) {
    return Malformed(absl::StrCat("layout ", header.version, ", ", kVersion, " is known"));
  }
  if (header.ring_counters > kMaxCounters || header.socket_counters > kMaxCounters ||
      header.socket_slots > kMaxSocketSlots || header.group_slots > kMaxGroupSlots) {
    return Malformed(absl::StrCat(header.ring_counters, " and ", header.socket_counters,
                                  " counters for ", header.socket_slots, " sockets and ",
                                  header.group_slots, " groups, at most ", kMaxCounters, " for ",
                                  kMaxSocketSlots, " and ", kMaxGroupSlots));
  }
  if (header.sockets > header.socket_slots) {
    return Malformed(absl::StrCat(header.sockets, " sockets in ", header.socket_slots, " slots"));
  }
  if (header.groups > header.group_slots) {
    return Malformed(absl::StrCat(header.groups, " groups in ", header.group_slots, " slots"));
  }
  const size_t wanted = Places(header).file_bytes;
  if (wanted == bytes) return absl::OkStatus();
  return Malformed(absl::StrCat(bytes, " bytes, its header says ", wanted));
}

std::vector<Counter> TakeNames(std::span<const uint8_t> bytes, size_t place, uint32_t count) {
  std::vector<Counter> names(count);
  for (Counter& counter : names) {
    const auto name = Take<CounterName>(bytes, place);
    counter = {Text(name.scope), Text(name.name), Text(name.meaning), 0};
    place += sizeof name;
  }
  return names;
}

SocketCounters TakeSocket(std::span<const uint8_t> bytes, size_t place, uint32_t values) {
  const auto header = Take<SocketHeader>(bytes, place);
  SocketCounters socket{.handle = header.handle,
                        .local_ip = header.local_ip,
                        .remote_ip = header.remote_ip,
                        .local_port = header.local_port,
                        .remote_port = header.remote_port,
                        .protocol = header.protocol,
                        .state = Text(header.state),
                        .values = std::vector<uint64_t>(values)};
  place += sizeof header;
  for (uint64_t& value : socket.values) {
    value = Take<uint64_t>(bytes, place);
    place += sizeof value;
  }
  return socket;
}

// All of an open file, which may change under us.
absl::StatusOr<std::vector<uint8_t>> ReadAll(int fd, const std::string& path) {
  struct stat status;
  if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) {
    return Malformed(absl::StrCat(path, ": not a file"));
  }
  const auto size = static_cast<uint64_t>(status.st_size);
  if (size < sizeof(SegmentHeader) || size > kMaxFileBytes) {
    return Malformed(absl::StrCat(path, ": ", size, " bytes"));
  }
  std::vector<uint8_t> bytes(size);
  if (pread(fd, bytes.data(), size, 0) != static_cast<ssize_t>(size)) {
    return Malformed(absl::StrCat(path, ": it shrank"));
  }
  return bytes;
}

uint64_t SequenceOf(int fd) {
  uint64_t sequence = 1;
  if (pread(fd, &sequence, sizeof sequence, offsetof(SegmentHeader, sequence)) < 0) return 1;
  return sequence;
}

int OpenForReading(const std::string& path) {
  // Somebody may have put a pipe there: opening it must not wait.
  return open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
}

// The writer holds an exclusive lock as long as it lives; readers share theirs.
bool IsLocked(int fd) {
  if (flock(fd, LOCK_SH | LOCK_NB) != 0) return true;
  flock(fd, LOCK_UN);
  return false;
}

}  // namespace

absl::StatusOr<Segment> ParseSegment(std::span<const uint8_t> bytes) {
  if (bytes.size() < sizeof(SegmentHeader)) return Malformed("shorter than a header");
  const auto header = Take<SegmentHeader>(bytes, 0);
  if (absl::Status shape = CheckShape(header, bytes.size()); !shape.ok()) return shape;
  const Places places(header);
  Segment segment{.pid = header.pid,
                  .ring = header.ring,
                  .interface = Text(header.interface),
                  .program = Text(header.program),
                  .description = Text(header.description),
                  .published_ns = header.published_ns,
                  .closed = header.closed != 0,
                  .torn = (header.sequence & 1) != 0,
                  .sockets_left_out = header.sockets_left_out};
  segment.counters = TakeNames(bytes, places.ring_names, header.ring_counters);
  segment.socket_names = TakeNames(bytes, places.socket_names, header.socket_counters);
  for (size_t i = 0; i < segment.counters.size(); ++i) {
    segment.counters[i].value = Take<uint64_t>(bytes, places.ring_values + i * sizeof(uint64_t));
  }
  for (uint32_t i = 0; i < header.sockets; ++i) {
    segment.sockets.push_back(
        TakeSocket(bytes, places.sockets + i * places.socket_bytes, header.socket_counters));
  }
  segment.groups_left_out = header.groups_left_out;
  for (uint32_t i = 0; i < header.groups; ++i) {
    const auto entry = Take<GroupEntry>(bytes, places.groups + i * sizeof(GroupEntry));
    segment.groups.push_back({entry.socket, entry.group_ip, entry.port, entry.vlan_id});
  }
  return segment;
}

absl::StatusOr<Segment> ReadSegment(const std::string& path) {
  const int fd = OpenForReading(path);
  if (fd < 0) {
    const std::string text = absl::StrCat("read counters: ", path, ": ", strerror(errno));
    return errno == ENOENT ? absl::NotFoundError(text) : absl::PermissionDeniedError(text);
  }
  absl::Cleanup close_fd = [fd] { close(fd); };
  for (int tries = 1;; ++tries) {
    const uint64_t before = SequenceOf(fd);
    auto bytes = ReadAll(fd, path);
    if (!bytes.ok()) return bytes.status();
    const bool whole = (before & 1) == 0 && SequenceOf(fd) == before;
    if (!whole && tries < kTries) continue;
    auto segment = ParseSegment(*bytes);
    if (!segment.ok()) return segment;
    segment->torn = !whole;
    segment->alive = IsLocked(fd);
    return segment;
  }
}

bool IsNamed(std::string_view wanted, std::string_view shown) {
  constexpr size_t kMost = sizeof(SegmentHeader::program);
  static_assert(kMost == sizeof(SegmentHeader::interface));
  return wanted.empty() || ShownText(wanted.substr(0, kMost)) == shown;
}

std::vector<std::string> ListSegments(const std::string& directory) {
  std::vector<std::string> paths;
  const std::unique_ptr<DIR, int (*)(DIR*)> listed(opendir(directory.c_str()), closedir);
  if (listed == nullptr) return paths;
  while (const dirent* entry = readdir(listed.get())) {
    if (!std::string_view(entry->d_name).starts_with(kFilePrefix)) continue;
    paths.push_back(absl::StrCat(directory, "/", entry->d_name));
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

int RemoveStale(const std::string& directory) {
  int removed = 0;
  for (const std::string& path : ListSegments(directory)) {
    removed += RemoveIfLeftBehind(path, kMagic);
  }
  return removed;
}

}  // namespace xtreme::stats
