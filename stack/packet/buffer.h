// SPDX-License-Identifier: Apache-2.0
//
// Buffer: one slot of a BufferPool, what the NIC wrote or will read, counted by reference.
//
// Invariant: a buffer is free exactly when no thread holds a reference. The count is split: `owner`
// references are counted plainly by the pool's owner thread, `foreign` ones atomically by everybody
// else; either part may hold what the other released, only their sum means something. A buffer is
// one cache line of bookkeeping; its bytes stand elsewhere, in the pool's registered memory.
// Units: bytes. Threads: fields are the holder's, except the counts (see BufferPool).
// After: J. Choi et al., "Biased Reference Counting", PACT 2018 (the idea, not the layout).

#ifndef XTREME_STACK_PACKET_BUFFER_H_
#define XTREME_STACK_PACKET_BUFFER_H_

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace xtreme::packet {

class BufferPool;

// A value that differs between running threads, cheap to get: one TLS address, at an offset that is
// known when the program or library is loaded.
inline uintptr_t ThreadToken() {
  [[gnu::tls_model("initial-exec")]] static thread_local char token;
  return reinterpret_cast<uintptr_t>(&token);
}

// One link of a chain. Every link has a count of its own: holding the head does not hold the rest.
// It begins with what a program on VMA's API knows as a link, to the byte (api/vma asserts it), so
// that none is written beside it.
struct alignas(64) Buffer {
  Buffer* next = nullptr;   // The next link, in byte order; null at the end.
  uint8_t* data = nullptr;  // First valid byte.
  uint32_t length = 0;      // Valid bytes at `data`.
  uint32_t index = 0;       // This buffer's place in its pool; constant.
  BufferPool* pool = nullptr;

  // Owner thread only.
  uint32_t owner_references = 0;

  // Any thread: count in units of kForeignOne, signed, with the flags below.
  std::atomic<int32_t> foreign{0};
  // Link in the pool's return stack; the pusher's, then the owner's.
  Buffer* return_next = nullptr;
  uint8_t* start = nullptr;  // `data` of an empty buffer: behind the headroom; constant.
  // What is told when it becomes free (BufferPool::Lend); 0: nothing. Owner thread only.
  uint64_t loan = 0;

  std::span<uint8_t> bytes() { return {data, length}; }
  std::span<const uint8_t> bytes() const { return {data, length}; }
};
static_assert(sizeof(Buffer) == 64);

// `foreign` flags. Merged: the owner has no part in the count any more, foreign zero is the end.
// Queued: the buffer stands in the return stack, so that the owner adds the two parts up. Lent: it
// has a `loan`, which the short way of a release need not ask for because this is not zero.
inline constexpr int32_t kForeignMerged = 1;
inline constexpr int32_t kForeignQueued = 2;
inline constexpr int32_t kForeignLent = 4;
inline constexpr int32_t kForeignOne = 8;

// The signed number of references in a `foreign` word.
inline int32_t ForeignCount(int32_t word) { return word >> 3; }

// Bytes in a chain, `head` included; 0 for null.
inline uint64_t ChainLength(const Buffer* head) {
  uint64_t total = 0;
  for (const Buffer* link = head; link != nullptr; link = link->next) total += link->length;
  return total;
}

// A packet's bytes: `length` of them over the links of a chain, from `data` in its first one on.
struct ChainBytes {
  const Buffer* head;
  const uint8_t* data;
  uint32_t length;

  // Of the first link from `data` on.
  uint32_t InFirstLink() const {
    return std::min(static_cast<uint32_t>(head->data + head->length - data), length);
  }
};

// Copies up to `size` of them; how many.
inline size_t CopyOut(const ChainBytes& bytes, void* to, size_t size) {
  auto* next = static_cast<uint8_t*>(to);
  size_t left = std::min<size_t>(size, bytes.length);
  const uint8_t* from = bytes.data;
  size_t there = left == 0 ? 0 : bytes.InFirstLink();
  for (const Buffer* link = bytes.head; left > 0;) {
    const size_t copied = std::min(left, there);
    std::memcpy(next, from, copied);
    next += copied;
    left -= copied;
    link = link->next;
    if (link == nullptr) break;
    from = link->data;
    there = link->length;
  }
  return static_cast<size_t>(next - static_cast<uint8_t*>(to));
}

}  // namespace xtreme::packet

#endif  // XTREME_STACK_PACKET_BUFFER_H_
