// SPDX-License-Identifier: Apache-2.0
//
// Bytes that tell where they belong: of a stream or datagram with a key, at an offset.
//
// Threads: plain functions.

#ifndef XTREME_TESTS_MODEL_PATTERN_H_
#define XTREME_TESTS_MODEL_PATTERN_H_

#include <cstddef>
#include <cstdint>

namespace xtreme::model {

// SplitMix64's finalizer.
constexpr uint64_t Mix(uint64_t value) {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
  return value ^ (value >> 31);
}

constexpr uint8_t PatternAt(uint64_t key, uint64_t offset) {
  const uint64_t word = Mix(key * 0x9e3779b97f4a7c15u + offset / 8);
  return static_cast<uint8_t>(word >> (8 * (offset % 8)));
}

inline void WritePattern(uint64_t key, uint64_t offset, uint8_t* to, size_t length) {
  for (size_t i = 0; i < length; ++i) to[i] = PatternAt(key, offset + i);
}

// Where `bytes` differ; `length`: nowhere.
inline size_t FindDifference(uint64_t key, uint64_t offset, const uint8_t* bytes, size_t length) {
  for (size_t i = 0; i < length; ++i) {
    if (bytes[i] != PatternAt(key, offset + i)) return i;
  }
  return length;
}

}  // namespace xtreme::model

#endif  // XTREME_TESTS_MODEL_PATTERN_H_
