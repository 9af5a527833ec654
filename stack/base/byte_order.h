// SPDX-License-Identifier: Apache-2.0
//
// Numbers of the network: big endian and without alignment.
//
// `BigEndian<T>` is a byte array that reads and writes as a T in host order, so a header can be a
// plain struct of them that lies over received bytes (size = sum of members, alignment 1). Loads
// and stores are the same without a type, for code that works at offsets. Each compiles to one
// MOVBE, or to a move and a byte swap.
#ifndef XTREME_STACK_BASE_BYTE_ORDER_H_
#define XTREME_STACK_BASE_BYTE_ORDER_H_

#include <array>
#include <bit>
#include <concepts>
#include <cstdint>
#include <cstring>

namespace xtreme::base {

constexpr uint8_t ByteSwap(uint8_t value) { return value; }
constexpr uint16_t ByteSwap(uint16_t value) { return __builtin_bswap16(value); }
constexpr uint32_t ByteSwap(uint32_t value) { return __builtin_bswap32(value); }
constexpr uint64_t ByteSwap(uint64_t value) { return __builtin_bswap64(value); }

// Between host order and network order; its own inverse.
template <std::unsigned_integral T>
constexpr T HostToBigEndian(T value) {
  return std::endian::native == std::endian::little ? ByteSwap(value) : value;
}

// Reads the sizeof(T) bytes at `from` in host order as they lie. Any alignment.
template <std::unsigned_integral T>
inline T LoadNative(const void* from) {
  T value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

template <std::unsigned_integral T>
inline void StoreNative(void* to, T value) {
  std::memcpy(to, &value, sizeof(value));
}

// Read sizeof(T) bytes of network order at `from`. Any alignment.
inline uint16_t LoadBe16(const void* from) { return HostToBigEndian(LoadNative<uint16_t>(from)); }
inline uint32_t LoadBe32(const void* from) { return HostToBigEndian(LoadNative<uint32_t>(from)); }
inline uint64_t LoadBe64(const void* from) { return HostToBigEndian(LoadNative<uint64_t>(from)); }

// Write sizeof(T) bytes of network order at `to`. Any alignment.
inline void StoreBe16(void* to, uint16_t value) { StoreNative(to, HostToBigEndian(value)); }
inline void StoreBe32(void* to, uint32_t value) { StoreNative(to, HostToBigEndian(value)); }
inline void StoreBe64(void* to, uint64_t value) { StoreNative(to, HostToBigEndian(value)); }

template <std::unsigned_integral T>
class BigEndian {
 public:
  // Leaves the bytes as they are: a struct over received bytes is never initialised.
  BigEndian() = default;
  // `host` is in host order.
  constexpr explicit BigEndian(T host)
      : bytes_(std::bit_cast<std::array<uint8_t, sizeof(T)>>(HostToBigEndian(host))) {}

  constexpr BigEndian& operator=(T host) { return *this = BigEndian(host); }

  // In host order.
  constexpr T value() const { return HostToBigEndian(std::bit_cast<T>(bytes_)); }

  friend constexpr bool operator==(const BigEndian&, const BigEndian&) = default;

 private:
  std::array<uint8_t, sizeof(T)> bytes_;
};

using Be16 = BigEndian<uint16_t>;
using Be32 = BigEndian<uint32_t>;
using Be64 = BigEndian<uint64_t>;

static_assert(sizeof(Be16) == 2 && alignof(Be16) == 1);
static_assert(sizeof(Be32) == 4 && alignof(Be32) == 1);
static_assert(sizeof(Be64) == 8 && alignof(Be64) == 1);

}  // namespace xtreme::base

#endif  // XTREME_STACK_BASE_BYTE_ORDER_H_
