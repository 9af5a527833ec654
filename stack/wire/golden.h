// SPDX-License-Identifier: Apache-2.0
//
// For tests of headers: bytes written as text, buffers whose untouched bytes show.
#ifndef XTREME_STACK_WIRE_GOLDEN_H_
#define XTREME_STACK_WIRE_GOLDEN_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace xtreme::wire {

using Bytes = std::vector<uint8_t>;

inline constexpr uint8_t kPoison = 0xA5;

// A buffer of `size` bytes in which what was not written is kPoison.
inline Bytes Poisoned(size_t size) { return Bytes(size, kPoison); }

// The bytes of "45 00 001c ...": hexadecimal digits, spaces ignored.
inline Bytes Hex(std::string_view text) {
  Bytes bytes;
  int high = -1;
  for (char c : text) {
    if (c == ' ') continue;
    const int digit = c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10;
    if (high < 0) {
      high = digit;
      continue;
    }
    bytes.push_back(static_cast<uint8_t>(high << 4 | digit));
    high = -1;
  }
  return bytes;
}

inline Bytes operator+(Bytes a, const Bytes& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// `bytes` with the ones from `offset` on replaced.
inline Bytes With(Bytes bytes, size_t offset, const Bytes& replacement) {
  for (size_t i = 0; i < replacement.size(); ++i) bytes.at(offset + i) = replacement[i];
  return bytes;
}

// The first `size` of `bytes` in a block of exactly that size: the address sanitizer sees the first
// byte read beyond.
class Exact {
 public:
  Exact(const Bytes& bytes, size_t size) : block_(bytes.data(), bytes.data() + size) {}
  explicit Exact(const Bytes& bytes) : Exact(bytes, bytes.size()) {}

  std::span<const uint8_t> span() const { return block_; }

 private:
  Bytes block_;
};

}  // namespace xtreme::wire

#endif  // XTREME_STACK_WIRE_GOLDEN_H_
