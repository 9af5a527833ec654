// SPDX-License-Identifier: Apache-2.0

#include "samples/receiver/allocations.h"

#include <cstddef>
#include <cstdlib>
#include <new>

namespace {

// Operator new has nowhere else to count.
thread_local uint64_t thread_allocations = 0;

void* Allocate(size_t size, size_t alignment) {
  ++thread_allocations;
  const size_t least = size == 0 ? 1 : size;
  const size_t whole = (least + alignment - 1) / alignment * alignment;
  void* const memory = alignment <= alignof(std::max_align_t)
                           ? std::malloc(least)
                           : std::aligned_alloc(alignment, whole);
  // Without exceptions there is nobody to tell.
  if (memory == nullptr) std::abort();
  return memory;
}

}  // namespace

namespace receiver {

uint64_t ThreadAllocations() { return thread_allocations; }

}  // namespace receiver

// The array and nothrow forms of the standard library end in these.
void* operator new(size_t size) { return Allocate(size, 1); }
void* operator new(size_t size, std::align_val_t alignment) {
  return Allocate(size, static_cast<size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }
