// SPDX-License-Identifier: Apache-2.0
#include "stack/wire/checksum.h"

#include <bit>
#include <cstring>

namespace xtreme::wire {
namespace {

// The sum of the bytes as little memory words, below 2^17. A last odd byte is the first of a word
// whose second is 0.
uint64_t SumNative(const uint8_t* at, size_t bytes) {
  unsigned __int128 wide = 0;  // the upper half gathers the carries: one ADD and one ADC a word
  for (; bytes >= 32; bytes -= 32, at += 32) {
    wide += base::LoadNative<uint64_t>(at);
    wide += base::LoadNative<uint64_t>(at + 8);
    wide += base::LoadNative<uint64_t>(at + 16);
    wide += base::LoadNative<uint64_t>(at + 24);
  }
  for (; bytes >= 8; bytes -= 8, at += 8) wide += base::LoadNative<uint64_t>(at);
  if (bytes > 0) {
    uint64_t tail = 0;
    std::memcpy(&tail, at, bytes);
    wide += tail;
  }
  // 2^64 and 2^32 are 1 modulo 2^16 - 1: folding halves keeps the ones' complement sum.
  uint64_t sum = (static_cast<uint64_t>(wide) & 0xFFFFFFFF) + (static_cast<uint64_t>(wide) >> 32) +
                 static_cast<uint64_t>(wide >> 64);
  sum = (sum & 0xFFFF) + (sum >> 16 & 0xFFFF) + (sum >> 32);
  return (sum & 0xFFFF) + (sum >> 16);
}

}  // namespace

void ChecksumSum::Add(std::span<const uint8_t> bytes) {
  uint64_t piece = SumNative(bytes.data(), bytes.size());
  // A piece that starts at an odd byte has its bytes in the other halves of the words.
  if (odd_) piece = ((piece & 0xFF) << 8) + (piece >> 8 & 0xFF) + ((piece >> 16) << 8);
  sum_ += piece;
  odd_ ^= bytes.size() % 2 != 0;
}

}  // namespace xtreme::wire
