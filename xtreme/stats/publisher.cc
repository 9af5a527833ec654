// SPDX-License-Identifier: Apache-2.0

#include "xtreme/stats/publisher.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "xtreme/stats/reader.h"

namespace xtreme::stats {
namespace {

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
  header.group_slots = options.group_slots;
  CopyText(options.interface, &header.interface);
  CopyText(options.program, &header.program);
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
      options.socket_counters.size() > kMaxCounters || options.socket_slots > kMaxSocketSlots ||
      options.group_slots > kMaxGroupSlots) {
    return absl::InvalidArgumentError(absl::StrCat(
        "publish counters: ", options.ring_counters.size(), " and ",
        options.socket_counters.size(), " counters for ", options.socket_slots, " sockets and ",
        options.group_slots, " groups asked, ", kMaxCounters, " for ", kMaxSocketSlots, " and ",
        kMaxGroupSlots, " possible"));
  }
  RemoveStale(options.directory);
  const SegmentHeader shape = ShapeOf(options);
  const size_t bytes = Places(shape).file_bytes;
  const std::string name =
      absl::StrCat(std::string(kFilePrefix), shape.pid, ".", shape.ring);
  const auto file = MakeSharedFile(
      "publish counters", options.directory, name, bytes, ModeOf(options.access),
      [&](uint8_t* at) {
        memcpy(at, &shape, sizeof shape);
        WriteNames(options.ring_counters, at + Places(shape).ring_names);
        WriteNames(options.socket_counters, at + Places(shape).socket_names);
      });
  if (!file.ok()) return file.status();
  return std::unique_ptr<Publisher>(new Publisher(*file, shape));
}

Publisher::Publisher(const SharedFile& file, const SegmentHeader& shape)
    : file_(file), memory_(file.memory), shape_(shape), places_(shape) {}

Publisher::~Publisher() { RemoveSharedFile(file_); }

// Release: no value is seen before the odd sequence (x86-64 stores stay in order anyway, Intel SDM
// volume 3, 9.2.2; this keeps the compiler to it).
void Publisher::Store(size_t place, uint64_t value) {
  std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(memory_ + place))
      .store(value, std::memory_order_release);
}

void Publisher::StoreWords(size_t place, const void* words, size_t bytes) {
  for (size_t at = 0; at < bytes; at += sizeof(uint64_t)) {
    uint64_t word;
    memcpy(&word, static_cast<const uint8_t*>(words) + at, sizeof word);
    Store(place + at, word);
  }
}

void Publisher::Begin() {
  next_ = 0;
  sockets_ = left_out_ = 0;
  groups_ = groups_left_out_ = 0;
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
  StoreWords(at, &socket, sizeof socket);
  for (uint32_t i = 0; i < shape_.socket_counters; ++i) {
    Store(at + sizeof socket + i * sizeof(uint64_t), 0);
  }
  return true;
}

void Publisher::PutOfSocket(uint64_t value) {
  if (next_of_socket_ == shape_.socket_counters) return;
  const size_t values =
      places_.sockets + (sockets_ - 1) * places_.socket_bytes + sizeof(SocketHeader);
  Store(values + next_of_socket_++ * sizeof(uint64_t), value);
}

void Publisher::PutGroup(const GroupEntry& group) {
  if (groups_ == shape_.group_slots) {
    ++groups_left_out_;
    return;
  }
  StoreWords(places_.groups + groups_++ * sizeof group, &group, sizeof group);
}

void Publisher::Describe(std::string_view text) {
  decltype(SegmentHeader::description) words;
  CopyText(text, &words);
  StoreWords(offsetof(SegmentHeader, description), words.data(), words.size());
}

void Publisher::End(int64_t now_ns, bool closed) {
  SegmentHeader& to = header();
  std::atomic_ref(to.published_ns).store(now_ns, std::memory_order_release);
  std::atomic_ref(to.sockets).store(sockets_, std::memory_order_release);
  std::atomic_ref(to.sockets_left_out).store(left_out_, std::memory_order_release);
  std::atomic_ref(to.groups).store(groups_, std::memory_order_release);
  std::atomic_ref(to.groups_left_out).store(groups_left_out_, std::memory_order_release);
  std::atomic_ref(to.closed).store(closed ? 1 : 0, std::memory_order_release);
  std::atomic_ref<uint64_t> sequence(to.sequence);
  sequence.store(sequence.load(std::memory_order_relaxed) + 1, std::memory_order_release);
}

}  // namespace xtreme::stats
