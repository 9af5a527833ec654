// SPDX-License-Identifier: Apache-2.0

#include "xtreme/stats/frame_tap.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "absl/strings/str_cat.h"
#include "xtreme/stats/frame_reader.h"
#include "xtreme/stats/shared_file.h"

namespace xtreme::stats {
namespace {

absl::Status CheckOptions(const FrameTap::Options& options) {
  const bool right = std::has_single_bit(options.frames) && options.frames <= kMostSlots &&
                     options.snap_bytes >= kLeastSnapBytes &&
                     options.snap_bytes <= kMostSnapBytes;
  if (right) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "tap frames: ", options.frames, " of ", options.snap_bytes,
      " bytes asked, a power of two up to ", kMostSlots, " of ", kLeastSnapBytes, " to ",
      kMostSnapBytes, " possible"));
}

void CopyText(std::string_view text, std::array<char, 32>* to) {
  std::copy_n(text.begin(), std::min(text.size(), to->size()), to->begin());
}

}  // namespace

absl::StatusOr<std::unique_ptr<FrameTap>> FrameTap::Create(const Options& options) {
  if (absl::Status right = CheckOptions(options); !right.ok()) return right;
  RemoveStaleFrames(options.directory);
  FramesHeader shape = {};
  shape.magic = kFramesMagic;
  shape.version = kFramesVersion;
  shape.pid = static_cast<uint32_t>(getpid());
  shape.ring = options.ring;
  shape.slots = std::max(options.frames, kLeastSlots);
  shape.snap_bytes = options.snap_bytes;
  shape.slot_bytes = SlotBytes(options.snap_bytes);
  CopyText(options.interface, &shape.interface);
  CopyText(options.program, &shape.program);
  const size_t bytes = sizeof shape + size_t{shape.slots} * shape.slot_bytes;
  const std::string name = absl::StrCat(std::string(kFramesPrefix), shape.pid, ".", shape.ring);
  const auto file =
      MakeSharedFile("tap frames", options.directory, name, bytes, 0600,
                     [&](uint8_t* at) { memcpy(at, &shape, sizeof shape); });
  if (!file.ok()) return file.status();
  return std::unique_ptr<FrameTap>(new FrameTap(file->path, file->memory, shape));
}

FrameTap::FrameTap(std::string path, uint8_t* memory, const FramesHeader& shape)
    : next_slot_(memory + sizeof shape),
      slot_bytes_(shape.slot_bytes),
      end_(next_slot_ + size_t{shape.slots} * shape.slot_bytes),
      slots_(next_slot_),
      header_(reinterpret_cast<FramesHeader*>(memory)),
      snap_bytes_(shape.snap_bytes),
      path_(std::move(path)),
      file_bytes_(static_cast<size_t>(end_ - memory)) {}

FrameTap::~FrameTap() {
  RemoveSharedFile({path_, reinterpret_cast<uint8_t*>(header_), file_bytes_});
}

void FrameTap::CopyRest(uint8_t* slot, const uint8_t* frame, uint32_t length) {
  const uint32_t kept = std::min(length, snap_bytes_);
  if (kept <= kLeastSnapBytes) return;
  memcpy(slot + sizeof(FrameSlot) + kLeastSnapBytes, frame + kLeastSnapBytes,
         kept - kLeastSnapBytes);
}

void FrameTap::WriteParts(const uint8_t* wqe, const uint8_t* header, uint32_t header_length,
                          const uint8_t* payload, uint32_t payload_length, uint64_t ticks) {
  uint8_t* const slot = TakeSlot(slot_bytes_);
  memcpy(slot, wqe, kSentFrameAt);
  memcpy(slot + offsetof(SentSlot, ticks), &ticks, sizeof ticks);
  const uint32_t whole_bytes = header_length + payload_length;
  memcpy(slot + offsetof(SentSlot, whole_bytes), &whole_bytes, sizeof whole_bytes);
  uint8_t* const to = slot + kSentFrameAt;
  const uint32_t header_kept = std::min(header_length, snap_bytes_);
  memcpy(to, header, header_kept);
  if (payload_length == 0) return;
  memcpy(to + header_kept, payload, std::min(payload_length, snap_bytes_ - header_kept));
}

void FrameTap::Note(std::string_view text) {
  const auto length = static_cast<uint32_t>(std::min<size_t>(text.size(), snap_bytes_));
  uint8_t* const slot = TakeSlot(slot_bytes_);
  WriteHead(slot, FirstWord(FrameKind::kNote), length, Now());
  memcpy(slot + sizeof(FrameSlot), text.data(), length);
  Publish(1);
}

// Stores in order: x86-64 keeps them so (Intel SDM volume 3, 9.2.2), release the compiler.
void FrameTap::SetClocks(const TickScale& device, const TickScale& host, bool other_device) {
  std::atomic_ref<uint64_t> sequence(header_->sequence);
  sequence.store(sequence.load(std::memory_order_relaxed) | 1, std::memory_order_relaxed);
  std::atomic_signal_fence(std::memory_order_release);
  FrameClocks& clocks = header_->clocks;
  if (other_device) {
    clocks.device_before = clocks.device;
    clocks.before_from = std::exchange(clocks.device_from, header_->produced);
  }
  clocks.device = device;
  clocks.host = host;
  sequence.store(sequence.load(std::memory_order_relaxed) + 1, std::memory_order_release);
}

}  // namespace xtreme::stats
