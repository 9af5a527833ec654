// SPDX-License-Identifier: Apache-2.0

#include "stack/packet/buffer_pool.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace xtreme::packet {
namespace {

constexpr size_t kPageBytes = 4096;
constexpr size_t kHugepageBytes = 2u << 20;
constexpr uint8_t kPoison = 0xdb;

// Head of the return stack of a retired pool.
Buffer* const kClosed = reinterpret_cast<Buffer*>(uintptr_t{1});

size_t RoundUp(size_t value, size_t unit) { return (value + unit - 1) / unit * unit; }

uint8_t* Map(size_t bytes, int flags) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<uint8_t*>(memory);
}

// Begins at a hugepage's boundary, and the kernel is asked to make whole ones of it (THP): before
// it is touched, because the device pins its pages.
uint8_t* MapToBeMerged(size_t bytes) {
  uint8_t* const whole = Map(bytes + kHugepageBytes, 0);
  if (whole == nullptr) return nullptr;
  const auto start = reinterpret_cast<uintptr_t>(whole);
  const size_t before = RoundUp(start, kHugepageBytes) - start;
  if (before > 0) munmap(whole, before);
  if (before < kHugepageBytes) munmap(whole + before + bytes, kHugepageBytes - before);
  madvise(whole + before, bytes, MADV_HUGEPAGE);
  return whole + before;
}

void Populate(uint8_t* memory, size_t bytes) {
  for (size_t at = 0; at < bytes; at += kPageBytes) {
    *static_cast<volatile uint8_t*>(memory + at) = 0;
  }
}

// How many bytes from `memory` on can be written; they are 0 then. The kernel writes them: where it
// cannot, it says so, instead of a signal.
size_t WriteZeroes(uint8_t* memory, size_t bytes) {
  const int zero = open("/dev/zero", O_RDONLY | O_CLOEXEC);
  size_t written = 0;
  while (written < bytes) {
    const ssize_t count = read(zero, memory + written, bytes - written);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    written += static_cast<size_t>(count);
  }
  if (zero >= 0) close(zero);
  return written;
}

}  // namespace

absl::Status BufferPool::Options::Validate() const {
  if (buffers < 1 || buffers > (1u << 24)) {
    return absl::InvalidArgumentError(
        absl::StrCat("buffer pool: ", buffers, " buffers asked, 1 to 16777216 possible"));
  }
  if (buffer_bytes < 128 || buffer_bytes > 65536 || buffer_bytes % 64 != 0) {
    return absl::InvalidArgumentError(absl::StrCat("buffer pool: buffers of ", buffer_bytes,
                                                   " bytes asked, multiples of 64 from 128 to "
                                                   "65536 possible"));
  }
  if (headroom >= buffer_bytes) {
    return absl::InvalidArgumentError(absl::StrCat("buffer pool: headroom of ", headroom,
                                                   " bytes asked in buffers of ", buffer_bytes));
  }
  if ((source.allocate == nullptr) != (source.release == nullptr)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "buffer pool: a source that only ", source.release == nullptr ? "allocates" : "releases",
        " asked, both or neither possible"));
  }
  return absl::OkStatus();
}

absl::StatusOr<BufferPool::Handle> BufferPool::Create(const Options& options) {
  absl::Status valid = options.Validate();
  if (!valid.ok()) return valid;
  Handle pool(new BufferPool(options));
  absl::Status mapped = pool->MapMemory();
  if (!mapped.ok()) return mapped;
  pool->MakeBuffers();
  return pool;
}

BufferPool::Handle BufferPool::CreateOver(void* memory, uint32_t bytes,
                                          void (*released)(void* context, void* memory),
                                          void* context) {
  Options options{.buffers = 1, .buffer_bytes = bytes};
  options.source = {.release = released, .context = context};
  Handle pool(new BufferPool(options));
  pool->memory_ = static_cast<uint8_t*>(memory);
  pool->memory_bytes_ = bytes;
  pool->sourced_ = memory;
  pool->is_callers_ = true;
  pool->description_ = absl::StrFormat("%d B of the program's", bytes);
  pool->MakeBuffers();
  return pool;
}

// All of them free. The calling thread becomes the owner.
void BufferPool::MakeBuffers() {
  buffers_ = std::make_unique<Buffer[]>(options_.buffers);
  free_ = std::make_unique<Buffer*[]>(options_.buffers);
  free_end_ = free_.get();
  Adopt();
  // Lowest index on top of the stack: the first buffers out are neighbours.
  for (uint32_t i = options_.buffers; i-- > 0;) {
    Buffer* buffer = &buffers_[i];
    buffer->index = i;
    buffer->pool = this;
    buffer->data = buffer->start = slot(buffer) + options_.headroom;
    Free(buffer);
  }
  free_low_ = free_end_;
}

absl::Status BufferPool::MapMemory() {
  std::string kind = "memory of the program's";
  const bool sourced = options_.source.allocate != nullptr;
  if (absl::Status got = sourced ? TakeFromSource() : MapPages(&kind); !got.ok()) return got;
  description_ = absl::StrFormat("%d buffers of %d B = %.1f MB in %s", options_.buffers,
                                 options_.buffer_bytes, memory_bytes_ / 1e6, kind);
  return absl::OkStatus();
}

absl::Status BufferPool::MapPages(std::string* kind) {
  const size_t wanted = static_cast<size_t>(options_.buffers) * options_.buffer_bytes;
  std::string why_not = "not asked for";
  if (options_.hugepages != Hugepages::kNever) {
    memory_bytes_ = RoundUp(wanted, kHugepageBytes);
    memory_ = Map(memory_bytes_, MAP_HUGETLB | MAP_POPULATE);
    why_not = absl::StrFormat("%d hugepages of 2 MB asked, %s", memory_bytes_ / kHugepageBytes,
                              strerror(errno));
  }
  hugepages_ = memory_ != nullptr;
  if (!hugepages_ && options_.hugepages == Hugepages::kRequire) {
    memory_bytes_ = 0;
    return absl::ResourceExhaustedError(absl::StrCat("map buffer pool: ", why_not));
  }
  if (!hugepages_) {
    const bool merged = options_.hugepages == Hugepages::kTry && wanted >= kHugepageBytes;
    memory_bytes_ = RoundUp(wanted, kPageBytes);
    memory_ = merged ? MapToBeMerged(memory_bytes_) : Map(memory_bytes_, 0);
    if (memory_ != nullptr) Populate(memory_, memory_bytes_);
    if (merged) why_not += "; the kernel is asked to merge them";
  }
  if (memory_ == nullptr) {
    const int error = errno;
    const size_t asked = std::exchange(memory_bytes_, 0);
    return absl::ResourceExhaustedError(
        absl::StrCat("map buffer pool: ", asked, " bytes asked, ", strerror(error)));
  }
  *kind = hugepages_ ? "hugepages" : absl::StrCat("4 KB pages (", why_not, ")");
  return absl::OkStatus();
}

// A page more than is needed: the pool begins at a page boundary whatever the alignment.
absl::Status BufferPool::TakeFromSource() {
  const size_t needed = RoundUp(static_cast<size_t>(options_.buffers) * options_.buffer_bytes,
                                kPageBytes);
  const size_t asked = needed + kPageBytes;
  sourced_ = options_.source.allocate(options_.source.context, asked);
  if (sourced_ == nullptr) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "take memory for the buffer pool: ", asked, " bytes asked of the program, it has none"));
  }
  const auto start = reinterpret_cast<uintptr_t>(sourced_);
  const size_t before = RoundUp(start, kPageBytes) - start;
  memory_ = static_cast<uint8_t*>(sourced_) + before;
  memory_bytes_ = needed;
  const size_t there = WriteZeroes(memory_, memory_bytes_);
  if (there == memory_bytes_) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "take memory for the buffer pool: ", asked, " bytes asked of the program, of what it gave ",
      there == 0 ? 0 : before + there, " can be written"));
}

BufferPool::~BufferPool() {
  if (sourced_ != nullptr) {
    const Source& source = options_.source;
    if (source.release != nullptr) source.release(source.context, sourced_);
  } else if (memory_ != nullptr) {
    munmap(memory_, memory_bytes_);
  }
}

Buffer* BufferPool::AcquireExhausted() {
  ++counters_.exhausted;
  return nullptr;
}

[[gnu::always_inline]] inline void BufferPool::EndLoan(Buffer* buffer) {
  const uint64_t loan = std::exchange(buffer->loan, 0);
  buffer->foreign.store(0, std::memory_order_relaxed);
  Free(buffer);
  returned_(return_context_, loan);
}

void BufferPool::EndPart(Buffer* buffer) {
  if (buffer->loan != 0) return EndLoan(buffer);
  buffer->foreign.store(0, std::memory_order_relaxed);
  Free(buffer);
}

// The owner's part ends, or foreign threads have a part, or the reference that is dropped is
// counted in the foreign part (it was acquired elsewhere and handed to the owner).
bool BufferPool::ReleaseByOwnerSlow(Buffer* buffer) {
  const bool lent = buffer->foreign.load(std::memory_order_acquire) == kForeignLent;
  if (buffer->owner_references == 1 && lent) [[likely]] {
    buffer->pool->EndLoan(buffer);
    return true;
  }
  if (buffer->owner_references == 0) return ReleaseByForeign(buffer);
  if (--buffer->owner_references > 0) return false;
  int32_t word = buffer->foreign.load(std::memory_order_acquire);
  for (;;) {
    if ((word & ~kForeignLent) == 0) break;     // Nobody else: ours to free.
    if (word & kForeignQueued) return false;    // DrainReturns() will add the parts up.
    if (buffer->foreign.compare_exchange_weak(word, word | kForeignMerged,
                                              std::memory_order_acq_rel)) {
      return false;  // From now on the foreign part is the whole count.
    }
  }
  buffer->pool->EndPart(buffer);
  return true;
}

bool BufferPool::ReleaseByForeign(Buffer* buffer) {
  BufferPool* pool = buffer->pool;
  int32_t old_word = buffer->foreign.load(std::memory_order_relaxed);
  int32_t word;
  do {
    word = old_word - kForeignOne;
    // Below zero: we dropped a reference that the owner counts. Tell it, once.
    if (!(old_word & kForeignMerged) && ForeignCount(word) < 0) word |= kForeignQueued;
  } while (!buffer->foreign.compare_exchange_weak(old_word, word, std::memory_order_acq_rel,
                                                  std::memory_order_relaxed));
  const bool last = (word & kForeignMerged) && ForeignCount(word) == 0;
  const bool queue = (word & kForeignQueued) && !(old_word & kForeignQueued);
  if (!last && !queue) return false;
  // Until the push the pool counts on us, retired or not (MergeAtRetirement); after it, do not
  // look.
  const std::shared_ptr<ReturnBell> bell = (word & kForeignLent) != 0 ? pool->bell_ : nullptr;
  if (!pool->PushReturn(buffer)) {
    pool->DropOutstanding(1);
  } else if (bell != nullptr) {
    bell->Ring();
  }
  return last;
}

bool BufferPool::PushReturn(Buffer* buffer) {
  Buffer* head = returns_.load(std::memory_order_relaxed);
  do {
    if (head == kClosed) return false;
    buffer->return_next = head;
  } while (!returns_.compare_exchange_weak(head, buffer, std::memory_order_release,
                                           std::memory_order_relaxed));
  return true;
}

// Adds the two parts of a returned buffer up; true when it became free.
bool BufferPool::SettleReturn(Buffer* buffer) {
  // Takes the whole foreign part, so that a later foreign release is below zero again and queues.
  const int32_t left = buffer->loan != 0 ? kForeignLent : 0;
  const int32_t word = buffer->foreign.exchange(left, std::memory_order_acq_rel);
  if (word & kForeignMerged) {  // Zero, or it would not stand here.
    EndPart(buffer);
    return true;
  }
  buffer->owner_references += ForeignCount(word);
  if (buffer->owner_references > 0) return false;
  EndPart(buffer);
  return true;
}

uint32_t BufferPool::DrainReturns() {
  uint32_t freed = 0;
  Buffer* buffer = returns_.exchange(nullptr, std::memory_order_acquire);
  while (buffer != nullptr) {
    Buffer* next = buffer->return_next;
    freed += SettleReturn(buffer);
    ++counters_.foreign_returns;
    buffer = next;
  }
  return freed;
}

// Merged and zero: whoever dropped the last one returns it, or has.
bool BufferPool::AddReferenceIfHeld(Buffer* buffer) {
  if (buffer->owner_references != 0) {
    ++buffer->owner_references;
    return true;
  }
  int32_t word = buffer->foreign.load(std::memory_order_relaxed);
  do {
    if ((word & kForeignMerged) && ForeignCount(word) == 0) return false;
  } while (!buffer->foreign.compare_exchange_weak(word, word + kForeignOne,
                                                  std::memory_order_relaxed));
  return true;
}

Buffer* BufferPool::Hold() {
  for (;;) {
    DrainReturns();
    if (free_count() != 0) return AcquireLast();
    for (uint32_t i = 0; i < options_.buffers; ++i) {
      if (AddReferenceIfHeld(&buffers_[i])) return &buffers_[i];
    }
  }
}

// What was received mostly is one link, by the owner, of its only holder: decided before anything
// is saved.
void BufferPool::ReleaseChain(Buffer* head) {
  if (head == nullptr) return;
  const bool one = head->next == nullptr && head->pool->OwnedByThisThread() &&
                   head->owner_references == 1;
  if (!one) [[unlikely]] return ReleaseLinks(head);
  const int32_t foreign = head->foreign.load(std::memory_order_acquire);
  if (foreign == 0) return head->pool->Free(head);
  if (foreign == kForeignLent) [[likely]] return head->pool->EndLoan(head);
  ReleaseByOwnerSlow(head);
}

[[gnu::noinline]] void BufferPool::ReleaseLinks(Buffer* head) {
  while (head != nullptr) {
    Buffer* const next = head->next;
    Release(head);
    head = next;
  }
}

bool BufferPool::MergeAtRetirement(Buffer* buffer) {
  int32_t old_word = buffer->foreign.load(std::memory_order_acquire);
  if (buffer->owner_references == 0 && old_word == 0) return true;
  const auto ours = static_cast<int32_t>(buffer->owner_references) * kForeignOne;
  int32_t word;
  do {
    // Merged and zero: its last holder found the stack closed and has counted it off itself.
    if ((old_word & kForeignMerged) && ForeignCount(old_word) == 0) return false;
    word = ((old_word + ours) | kForeignMerged) & ~kForeignQueued;
  } while (!buffer->foreign.compare_exchange_weak(old_word, word, std::memory_order_acq_rel));
  buffer->owner_references = 0;
  // Queued: its releaser is about to find the stack closed and will count itself off.
  if (old_word & kForeignQueued) outstanding_.fetch_add(1);
  return ForeignCount(word) == 0;
}

void BufferPool::DropOutstanding(uint32_t count) {
  if (outstanding_.fetch_sub(count) == count) delete this;
}

// Ends ownership. Every buffer counts as outstanding before the return stack closes, so whoever
// takes the last one off, here or on another thread later, deletes the pool.
void BufferPool::Retire() {
  outstanding_.store(options_.buffers + 1, std::memory_order_relaxed);
  Buffer* returned = returns_.exchange(kClosed, std::memory_order_acq_rel);
  while (returned != nullptr) {
    Buffer* next = returned->return_next;
    SettleReturn(returned);
    returned = next;
  }
  owner_.store(0, std::memory_order_relaxed);
  uint32_t free = 0;
  for (uint32_t i = 0; buffers_ != nullptr && i < options_.buffers; ++i) {
    free += MergeAtRetirement(&buffers_[i]);
  }
  if (buffers_ == nullptr) free = options_.buffers;
  DropOutstanding(free + 1);
}

void BufferPool::Poison(Buffer* buffer) {
  if (is_callers_) return;
  memset(slot(buffer), kPoison, options_.buffer_bytes);
}

PoolSize SizePoolForBurst(uint64_t burst_us, uint64_t bits_per_second, uint32_t frame_bytes,
                          uint32_t posted) {
  const uint64_t bytes = burst_us * (bits_per_second / 8) / 1'000'000;
  const uint64_t frames = (bytes + frame_bytes - 1) / frame_bytes;
  const uint64_t buffers = RoundUp(frames + posted, 64);
  PoolSize size;
  size.buffers = static_cast<uint32_t>(std::min<uint64_t>(buffers, 1u << 24));
  size.arithmetic = absl::StrFormat(
      "%d us at %.1f Gb/s = %d B, / %d B a frame = %d buffers, + %d posted, rounded up = %d",
      burst_us, bits_per_second / 1e9, bytes, frame_bytes, frames, posted, size.buffers);
  return size;
}

}  // namespace xtreme::packet
