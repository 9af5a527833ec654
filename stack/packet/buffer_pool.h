// SPDX-License-Identifier: Apache-2.0
//
// BufferPool: a fixed number of equal buffers in one region that a NIC can register.
//
// Invariant: after Create() the pool never allocates; every buffer is free, or held by somebody.
// One thread owns a pool (its ring's thread) and takes and returns without a locked instruction;
// any thread may add and drop references. A buffer is emptied when it is taken: what stands in a
// free one means nothing. A pool outlives its ring: Retire() gives up ownership,
// and the last release, on whatever thread, frees the memory.
// Units: bytes and buffers. Threads: said per function.

#ifndef XTREME_STACK_PACKET_BUFFER_POOL_H_
#define XTREME_STACK_PACKET_BUFFER_POOL_H_

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "stack/packet/buffer.h"

namespace xtreme::packet {

// Called on any thread, also after the pool is gone.
class ReturnBell {
 public:
  virtual ~ReturnBell() = default;
  virtual void Ring() = 0;
};

class BufferPool {
 public:
  enum class Hugepages {
    kTry,      // Use them when the system has enough free ones, else ordinary pages.
    kRequire,  // Fail when it has not.
    kNever,
  };

  // Where the memory comes from instead of the kernel. Both or neither; called once each.
  struct Source {
    // At least `bytes` bytes, aligned as one likes; null: there are none. By who creates the pool.
    void* (*allocate)(void* context, size_t bytes) = nullptr;
    // What `allocate` gave, when no buffer is held any more; by any thread.
    void (*release)(void* context, void* memory) = nullptr;
    void* context = nullptr;
  };

  struct Options {
    uint32_t buffers = 4096;       // 1 .. 2^24.
    uint32_t buffer_bytes = 2048;  // Multiple of 64, 128 .. 65,536: headroom and frame.
    uint32_t headroom = 0;         // Bytes before `data` in an acquired buffer.
    Hugepages hugepages = Hugepages::kTry;  // Not of a source's memory.
    Source source;

    absl::Status Validate() const;
  };

  struct Retirer {
    void operator()(BufferPool* pool) const { pool->Retire(); }
  };
  // Owns the pool until it goes out of scope; then Retire().
  using Handle = std::unique_ptr<BufferPool, Retirer>;

  // Counts by name; owner thread writes, anybody may read a value that is a moment old.
  struct Counters {
    uint64_t exhausted = 0;        // Acquire found nothing free.
    uint64_t foreign_returns = 0;  // Buffers that came back through the return stack.
    uint32_t low_water = 0;        // Least number of free buffers seen.
  };

  // Maps and touches the memory. The calling thread becomes the owner.
  // InvalidArgument: options out of range, or a source gave memory that cannot be written to its
  // end. ResourceExhausted: no memory, or no hugepages where they were required (the message says
  // how many were asked and how many are free).
  static absl::StatusOr<Handle> Create(const Options& options);

  // A pool of one buffer, which is `bytes` bytes of the caller's at `memory`; these are not touched
  // here, and stay until `released(context, memory)`, as a source's. `released` may be null.
  static Handle CreateOver(void* memory, uint32_t bytes,
                           void (*released)(void* context, void* memory), void* context);

  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;

  // --- Owner thread -----------------------------------------------------------------------------

  // Makes the calling thread the owner. The caller orders this after the old owner's last use.
  void Adopt() { owner_.store(ThreadToken(), std::memory_order_relaxed); }

  // So many free buffers, as a place: who asks often whether there are fewer compares places.
  using Level = Buffer* const*;
  Level LevelOf(uint32_t buffers) const { return free_.get() + buffers; }
  bool IsBelow(Level level) const { return free_end_ < level; }

  // A free buffer with one reference, empty, `data` behind the headroom, no next; null when there
  // is none (counted).
  Buffer* Acquire() {
    if (free_end_ == free_.get()) [[unlikely]] return AcquireExhausted();
    return AcquireLast();
  }

  // The same, so that as many as `level` are left free; null, and not counted, when they are not.
  Buffer* AcquireAbove(Level level) {
    if (free_end_ <= level) [[unlikely]] return nullptr;
    return AcquireLast();
  }

  // The same, up to `most` of them, each handed to `take`, for a device: `data` and `length` are
  // whatever they were, until what it wrote is known. Returns how many.
  template <typename Take>
  uint32_t AcquireEach(uint32_t most, Take&& take) {
    const uint32_t count = most < free_count() ? most : free_count();
    Buffer* const* next = free_end_;
    Buffer* const* const last = free_end_ -= count;
    while (next != last) {
      Buffer* const buffer = *--next;
      buffer->next = nullptr;
      buffer->owner_references = 1;
      take(buffer);
    }
    if (free_end_ < free_low_) free_low_ = free_end_;
    if (count != most) [[unlikely]] AcquireExhausted();
    return count;
  }

  // The same of kCount, or of none: false.
  template <uint32_t kCount, typename Take>
  [[gnu::always_inline]] bool AcquireAll(Take&& take) {
    if (free_end_ - free_.get() < static_cast<ptrdiff_t>(kCount)) [[unlikely]] return false;
    Buffer* const* const first = free_end_ - 1;
    free_end_ -= kCount;
    if (free_end_ < free_low_) free_low_ = free_end_;
    const auto take_one = [&](Buffer* buffer) __attribute__((always_inline)) {
      buffer->next = nullptr;
      buffer->owner_references = 1;
      take(buffer);
    };
    [&]<size_t... kIndex>(std::index_sequence<kIndex...>) __attribute__((always_inline)) {
      (take_one(*(first - kIndex)), ...);
    }(std::make_index_sequence<kCount>());
    return true;
  }

  // One reference more. The caller holds one already.
  static void AddReferenceByOwner(Buffer* buffer) {
    if (buffer->owner_references == 0) [[unlikely]] return AddReferenceByForeign(buffer);
    ++buffer->owner_references;
  }

  // One reference less, of this link only. Returns whether it was the last.
  static bool ReleaseByOwner(Buffer* buffer) {
    return ReleaseOnlyReference(buffer) || ReleaseByOwnerSlow(buffer);
  }
  // The same, and it calls nothing. False: it is not the only reference to a buffer that is not
  // lent; nothing was done.
  static bool ReleaseOnlyReference(Buffer* buffer) {
    if (LoadCounts(*buffer) != kOnlyOwners) [[unlikely]] return false;
    buffer->pool->Free(buffer);
    return true;
  }

  // When `buffer`, whose only reference is the caller's, becomes free, `loan` (not 0) is told,
  // once, to who asked by OnReturn; on the owner's thread, as it releases it or drains returns.
  static void Lend(Buffer* buffer, uint64_t loan) {
    buffer->loan = loan;
    buffer->foreign.store(kForeignLent, std::memory_order_relaxed);
  }
  // Releases a lent buffer by who would be told, and is not. False: the caller's is not its only
  // reference, or it is not lent; nothing was done.
  static bool TakeBack(Buffer* buffer) {
    const int32_t foreign = buffer->foreign.load(std::memory_order_acquire);
    if (buffer->owner_references != 1 || foreign != kForeignLent) return false;
    buffer->foreign.store(0, std::memory_order_relaxed);
    buffer->loan = 0;
    buffer->pool->Free(buffer);
    return true;
  }
  // `returned(context, loan)` may call nothing of the pool. Null: nobody is told any more.
  void OnReturn(void (*returned)(void* context, uint64_t loan), void* context) {
    returned_ = returned != nullptr ? returned : TellNobody;
    return_context_ = context;
  }
  // Rung by another thread that returned a lent buffer, so that the owner drains returns. Before
  // the first buffer is lent, once.
  void SetBell(std::shared_ptr<ReturnBell> bell) { bell_ = std::move(bell); }

  // Whether other threads have returned anything: one load, no system call, no locked instruction.
  bool HasReturns() const { return returns_.load(std::memory_order_relaxed) != nullptr; }

  // Takes back what other threads returned; the number of buffers that became free.
  uint32_t DrainReturns();

  // A reference of some buffer, which the caller needs to hold none of: a free one, else one that
  // somebody holds. While all are on their way back from other threads it waits for one.
  Buffer* Hold();

  // --- Any thread -------------------------------------------------------------------------------

  static void AddReferenceByForeign(Buffer* buffer) {
    buffer->foreign.fetch_add(kForeignOne, std::memory_order_relaxed);
  }
  // Returns whether it was certainly the last reference; false also when only the owner can know.
  static bool ReleaseByForeign(Buffer* buffer);

  // The same for callers that do not know which thread they are on.
  static void AddReference(Buffer* buffer) {
    buffer->pool->OwnedByThisThread() ? AddReferenceByOwner(buffer) : AddReferenceByForeign(buffer);
  }
  static bool Release(Buffer* buffer) {
    return buffer->pool->OwnedByThisThread() ? ReleaseByOwner(buffer) : ReleaseByForeign(buffer);
  }
  // Releases every link of a chain.
  static void ReleaseChain(Buffer* head);

  bool OwnedByThisThread() const {
    return owner_.load(std::memory_order_relaxed) == ThreadToken();
  }

  // --- Accessors --------------------------------------------------------------------------------

  uint32_t capacity() const { return options_.buffers; }
  // Whatever who made the pool wants to find by a buffer of it; null until it is set.
  void SetContext(void* context) { context_ = context; }
  void* context() const { return context_; }
  uint32_t free_count() const { return static_cast<uint32_t>(free_end_ - free_.get()); }
  uint32_t buffer_bytes() const { return options_.buffer_bytes; }
  // Most bytes that fit behind the headroom.
  uint32_t payload_bytes() const { return options_.buffer_bytes - options_.headroom; }
  Buffer* at(uint32_t index) { return &buffers_[index]; }
  // The first byte of a buffer's slot, headroom included.
  uint8_t* slot(const Buffer* buffer) const {
    return memory_ + static_cast<size_t>(buffer->index) * options_.buffer_bytes;
  }
  // The region to register with a NIC: page aligned, `region_bytes` long.
  uint8_t* region() const { return memory_; }
  size_t region_bytes() const { return memory_bytes_; }
  bool hugepages() const { return hugepages_; }
  // One line: number and size of buffers, kind of pages and, if not huge, why not.
  const std::string& description() const { return description_; }
  Counters counters() const {
    Counters counters = counters_;
    counters.low_water = static_cast<uint32_t>(free_low_ - free_.get());
    return counters;
  }

 private:
  // One is free.
  Buffer* AcquireLast() {
    Buffer* const buffer = *--free_end_;
    if (free_end_ < free_low_) free_low_ = free_end_;
    buffer->data = buffer->start;
    buffer->length = 0;
    buffer->next = nullptr;
    buffer->owner_references = 1;
    return buffer;
  }

  explicit BufferPool(const Options& options) : options_(options) {}
  ~BufferPool();

  void MakeBuffers();
  absl::Status MapMemory();
  absl::Status MapPages(std::string* kind);
  absl::Status TakeFromSource();
  void Retire();
  // Gives up the owner's part of one buffer; true if nobody holds it.
  bool MergeAtRetirement(Buffer* buffer);
  // Counts off what a retired pool waits for; the last one deletes it.
  void DropOutstanding(uint32_t count);

  // Both parts of the count in one load, which most releases need not look at any closer: as they
  // are where the owner's reference is the only one.
  static constexpr auto kOnlyOwners = std::bit_cast<uint64_t>(std::array<uint32_t, 2>{1, 0});
  static uint64_t LoadCounts(const Buffer& buffer) {
    typedef uint64_t __attribute__((may_alias)) Counts;
    static_assert(offsetof(Buffer, foreign) == offsetof(Buffer, owner_references) + 4);
    static_assert(offsetof(Buffer, owner_references) % sizeof(Counts) == 0);
    return __atomic_load_n(reinterpret_cast<const Counts*>(&buffer.owner_references),
                           __ATOMIC_ACQUIRE);
  }

  Buffer* AcquireExhausted();
  static bool ReleaseByOwnerSlow(Buffer* buffer);
  static void ReleaseLinks(Buffer* head);
  bool SettleReturn(Buffer* buffer);
  // One reference more of a buffer that is not free, unless the last of it has gone.
  static bool AddReferenceIfHeld(Buffer* buffer);
  // Returns false when the stack is closed (the pool retired).
  bool PushReturn(Buffer* buffer);

  void Free(Buffer* buffer) {
    buffer->owner_references = 0;
#if XTREME_DEBUG
    Poison(buffer);
#endif
    *free_end_++ = buffer;
  }
  // The same for one that is lent, or may be.
  void EndLoan(Buffer* buffer);
  void EndPart(Buffer* buffer);
  static void TellNobody(void* /*context*/, uint64_t /*loan*/) {}
  void Poison(Buffer* buffer);

  // Constant after Create().
  const Options options_;
  uint8_t* memory_ = nullptr;
  size_t memory_bytes_ = 0;
  void* sourced_ = nullptr;  // What the source gave; `memory_` is its first page boundary.
  bool is_callers_ = false;  // `memory_`: nothing is written there.
  bool hugepages_ = false;
  std::string description_;
  std::unique_ptr<Buffer[]> buffers_;

  // Owner thread.
  std::unique_ptr<Buffer*[]> free_;   // A stack.
  Buffer** free_end_ = nullptr;       // Behind the one that is taken next.
  Buffer** free_low_ = nullptr;       // The lowest that it stood.
  void* context_ = nullptr;           // Set once, read by whoever has a buffer.
  Counters counters_;                 // But low_water, which free_low_ says.
  void (*returned_)(void* context, uint64_t loan) = TellNobody;
  void* return_context_ = nullptr;
  std::shared_ptr<ReturnBell> bell_;  // Read by any thread once a buffer is lent.

  // Any thread.
  std::atomic<uintptr_t> owner_{0};
  alignas(64) std::atomic<Buffer*> returns_{nullptr};
  std::atomic<uint32_t> outstanding_{0};  // Once retired: buffers in use and releases under way.
};

// Arithmetic of a pool's size, kept so that it can be said.
struct PoolSize {
  uint32_t buffers = 0;
  std::string arithmetic;  // "10 ms at 25.0 Gb/s = 31,250,000 B / 512 B a frame = ..."
};

// Buffers needed to absorb a burst of `burst_us` microseconds at `bits_per_second` in frames of
// `frame_bytes`, plus `posted` that stand in queues, rounded up to a multiple of 64.
PoolSize SizePoolForBurst(uint64_t burst_us, uint64_t bits_per_second, uint32_t frame_bytes,
                          uint32_t posted);

}  // namespace xtreme::packet

#endif  // XTREME_STACK_PACKET_BUFFER_POOL_H_
