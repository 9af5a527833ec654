// SPDX-License-Identifier: Apache-2.0

#include "xtreme/stats/frame_reader.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <map>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "stack/base/byte_order.h"
#include "xtreme/stats/shared_file.h"

namespace xtreme::stats {
namespace {

// A writer is at its clocks for nanoseconds.
constexpr int kTries = 100;
constexpr size_t kSlotsARead = 512;

absl::Status Malformed(const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("read frames: ", what));
}

std::string Text(const std::array<char, 32>& field) {
  return ShownText({field.data(), field.size()});
}

bool ReadAt(int fd, uint64_t place, void* to, size_t bytes) {
  return pread(fd, to, bytes, static_cast<off_t>(place)) == static_cast<ssize_t>(bytes);
}

bool AreScales(const FrameClocks& clocks) {
  constexpr uint32_t kBits = 64;
  return clocks.device.unused_bits < kBits && clocks.host.unused_bits < kBits &&
         clocks.device_before.unused_bits < kBits;
}

// Of frame `number`; null: none.
const TickScale* DeviceClockOf(const FrameClocks& clocks, uint64_t number) {
  if (number >= clocks.device_from) return &clocks.device;
  return number >= clocks.before_from ? &clocks.device_before : nullptr;
}

TappedFrame ParseSent(std::span<const uint8_t> slot) {
  constexpr uint32_t kLengths = 0x3F, kLengthsOfBlock = 4;
  const uint32_t queue = base::LoadBe32(slot.data() + offsetof(SentSlot, queue));
  const uint32_t blocks = ((queue & kLengths) + kLengthsOfBlock - 1) / kLengthsOfBlock;
  const uint32_t first = base::LoadBe32(slot.data()) >> 8;
  const auto whole = base::LoadNative<uint32_t>(slot.data() + offsetof(SentSlot, whole_bytes));
  const uint32_t bytes = base::LoadBe16(slot.data() + offsetof(SentSlot, inline_bytes));
  return {.kind = FrameKind::kSent,
          .end = static_cast<uint16_t>(first + blocks),
          .queue = queue >> 8,
          .frame_bytes = whole != 0 ? whole : bytes};
}

// What stands before the bytes of a slot; nothing: it is of no kind.
std::optional<TappedFrame> ParseHead(const FrameSlot& head, std::span<const uint8_t> slot) {
  const FrameKind kind = KindOf(head.kind);
  switch (kind) {
    case FrameKind::kReceived:
    case FrameKind::kReceivedUntimed:
    case FrameKind::kNote:
      return TappedFrame{.kind = kind, .frame_bytes = head.frame_bytes};
    case FrameKind::kSendTime:
      return TappedFrame{.kind = kind,
                         .end = static_cast<uint16_t>(head.kind >> 8),
                         .queue = head.frame_bytes};
    case FrameKind::kSent:
    case FrameKind::kSentSegments:
      return ParseSent(slot);
  }
  return std::nullopt;
}

}  // namespace

absl::Status CheckFramesHeader(const FramesHeader& header, uint64_t bytes) {
  if (header.magic != kFramesMagic) return Malformed("this is not a frame tap");
  if (header.version != kFramesVersion) {
    return Malformed(absl::StrCat("layout ", header.version, ", ", kFramesVersion, " is known"));
  }
  const bool shaped = std::has_single_bit(header.slots) && header.slots >= kLeastSlots &&
                      header.slots <= kMostSlots && header.snap_bytes >= kLeastSnapBytes &&
                      header.snap_bytes <= kMostSnapBytes &&
                      header.slot_bytes == SlotBytes(header.snap_bytes);
  if (!shaped) {
    return Malformed(absl::StrCat(header.slots, " slots of ", header.slot_bytes, " bytes for ",
                                  header.snap_bytes));
  }
  const uint64_t wanted = sizeof header + uint64_t{header.slots} * header.slot_bytes;
  if (wanted != bytes) return Malformed(absl::StrCat(bytes, " bytes, its header says ", wanted));
  if (!AreScales(header.clocks)) return Malformed("a clock without bits");
  return absl::OkStatus();
}

absl::Status ReadWhole(const std::function<bool(FramesHeader*)>& read, FramesHeader* header) {
  for (int tries = 0; tries < kTries; ++tries) {
    FramesHeader again;
    if (!read(header) || !read(&again)) return Malformed("the file shrank");
    if ((header->sequence & 1) == 0 && again.sequence == header->sequence) return absl::OkStatus();
  }
  return absl::UnavailableError("read frames: their clocks are being written");
}

std::optional<TappedFrame> ParseSlot(const FramesHeader& header, uint64_t number,
                                     std::span<const uint8_t> slot) {
  FrameSlot head;
  if (slot.size() < kSentFrameAt + header.snap_bytes) return std::nullopt;
  memcpy(&head, slot.data(), sizeof head);
  std::optional<TappedFrame> frame = ParseHead(head, slot);
  if (!frame) return std::nullopt;
  const FrameKind kind = frame->kind;
  frame->number = number;
  const bool by_device = kind == FrameKind::kReceived || kind == FrameKind::kSendTime;
  const TickScale* const clock =
      by_device ? DeviceClockOf(header.clocks, number) : &header.clocks.host;
  const bool tells = clock != nullptr && clock->ns_per_tick_q32 > 0;
  if (tells && kind != FrameKind::kReceivedUntimed) {
    frame->time_ns = clock->ToNanoseconds(head.ticks);
  }
  const size_t at = kind == FrameKind::kSent ? kSentFrameAt : sizeof head;
  const auto bytes = slot.subspan(at, std::min(frame->frame_bytes, header.snap_bytes));
  frame->bytes.assign(bytes.begin(), bytes.end());
  return frame;
}

size_t ApplySendTimes(std::vector<TappedFrame>* frames, size_t first) {
  // The last of each queue and end, up to where we are.
  std::map<std::pair<uint32_t, uint16_t>, TappedFrame*> sent;
  for (TappedFrame& frame : *frames) {
    const std::pair whose(frame.queue, frame.end);
    if (frame.kind == FrameKind::kSent) sent[whose] = &frame;
    if (frame.kind != FrameKind::kSendTime || !frame.time_ns) continue;
    const auto found = sent.find(whose);
    if (found == sent.end()) continue;
    found->second->time_ns = frame.time_ns;
    found->second->timed_by_device = true;
  }
  const auto is_time = [](const TappedFrame& frame) {
    return frame.kind == FrameKind::kSendTime;
  };
  const auto end = frames->begin() + static_cast<ptrdiff_t>(std::min(first, frames->size()));
  const auto times = static_cast<size_t>(std::count_if(frames->begin(), end, is_time));
  std::erase_if(*frames, is_time);
  return std::min(first, frames->size() + times) - times;
}

absl::StatusOr<std::unique_ptr<FrameReader>> FrameReader::Open(const std::string& path) {
  // Somebody may have put a pipe there: opening it must not wait.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) {
    const std::string text = absl::StrCat("read frames: ", path, ": ", strerror(errno));
    return errno == ENOENT ? absl::NotFoundError(text) : absl::PermissionDeniedError(text);
  }
  absl::Cleanup close_fd = [fd] { close(fd); };
  struct stat status;
  FramesHeader header;
  if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode) ||
      !ReadAt(fd, 0, &header, sizeof header)) {
    return Malformed(absl::StrCat(path, ": not a file of a header or more"));
  }
  const auto bytes = static_cast<uint64_t>(status.st_size);
  if (absl::Status right = CheckFramesHeader(header, bytes); !right.ok()) {
    return absl::Status(right.code(), absl::StrCat(path, ": ", right.message()));
  }
  std::move(close_fd).Cancel();
  return std::unique_ptr<FrameReader>(new FrameReader(fd, header));
}

FrameReader::FrameReader(int fd, const FramesHeader& header)
    : fd_(fd),
      shape_(header),
      interface_(Text(header.interface)),
      program_(Text(header.program)),
      next_(OldestAt(header.produced)) {}

FrameReader::~FrameReader() { close(fd_); }

uint64_t FrameReader::OldestAt(uint64_t produced) const {
  const uint64_t whole = shape_.slots - kSlotsAtWork;
  return produced > whole ? produced - whole : 0;
}

absl::StatusOr<FramesHeader> FrameReader::ReadHeader() {
  FramesHeader header;
  const absl::Status read = ReadWhole(
      [this](FramesHeader* to) { return ReadAt(fd_, 0, to, sizeof *to); }, &header);
  if (absl::IsInvalidArgument(read)) return read;
  if (read.ok()) {
    if (!AreScales(header.clocks)) return Malformed("a clock without bits");
    clocks_ = header.clocks;
  }
  header.clocks = clocks_;
  return header;
}

absl::StatusOr<std::vector<TappedFrame>> FrameReader::Take(size_t most) {
  const auto header = ReadHeader();
  if (!header.ok()) return header.status();
  const uint64_t produced = std::min(header->produced, end_);
  const uint64_t oldest = std::min(OldestAt(header->produced), end_);
  if (next_ < oldest) {
    missed_ += oldest - next_;
    next_ = oldest;
  }
  const uint64_t waiting = produced > next_ ? produced - next_ : 0;
  const uint64_t place = next_ & (shape_.slots - 1);
  // As far as the end of the file.
  const size_t count = std::min({most, kSlotsARead, size_t{waiting}, size_t{shape_.slots - place}});
  std::vector<uint8_t> slots(count * shape_.slot_bytes);
  std::vector<TappedFrame> frames;
  if (count == 0) return frames;
  if (!ReadAt(fd_, sizeof(FramesHeader) + place * shape_.slot_bytes, slots.data(), slots.size())) {
    return Malformed("the file shrank");
  }
  // What was overwritten meanwhile is not what it was.
  const auto after = ReadHeader();
  if (!after.ok()) return after.status();
  const uint64_t still_whole = OldestAt(after->produced);
  FramesHeader whole = shape_;
  whole.clocks = header->clocks;
  for (size_t i = 0; i < count; ++i, ++next_) {
    const std::span slot(slots.data() + i * shape_.slot_bytes, shape_.slot_bytes);
    auto frame = next_ < still_whole ? std::nullopt : ParseSlot(whole, next_, slot);
    if (frame) {
      frames.push_back(*std::move(frame));
    } else {
      ++missed_;
    }
  }
  return frames;
}

absl::Status FrameReader::SkipToNewest() {
  const auto header = ReadHeader();
  if (!header.ok()) return header.status();
  next_ = header->produced;
  return absl::OkStatus();
}

absl::Status FrameReader::StopAtNewest() {
  const auto header = ReadHeader();
  if (!header.ok()) return header.status();
  end_ = header->produced;
  return absl::OkStatus();
}

bool FrameReader::alive() const {
  if (flock(fd_, LOCK_SH | LOCK_NB) != 0) return true;
  flock(fd_, LOCK_UN);
  return false;
}

std::vector<std::string> ListFrameTaps(const std::string& directory) {
  std::vector<std::string> paths;
  const std::unique_ptr<DIR, int (*)(DIR*)> listed(opendir(directory.c_str()), closedir);
  if (listed == nullptr) return paths;
  while (const dirent* entry = readdir(listed.get())) {
    if (!std::string_view(entry->d_name).starts_with(kFramesPrefix)) continue;
    paths.push_back(absl::StrCat(directory, "/", entry->d_name));
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

int RemoveStaleFrames(const std::string& directory) {
  int removed = 0;
  for (const std::string& path : ListFrameTaps(directory)) {
    removed += RemoveIfLeftBehind(path, kFramesMagic);
  }
  return removed;
}

}  // namespace xtreme::stats
