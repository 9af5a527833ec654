// SPDX-License-Identifier: Apache-2.0
//
// The addresses of the link and of IPv4, as values.
//
// A MAC address is its six bytes in the order of the wire; an IPv4 address and a port are numbers
// in host order, so that ranges compare; only Parse and Emit of a header meet network order. Text
// is in address_text.h.
#ifndef XTREME_STACK_WIRE_ADDRESS_H_
#define XTREME_STACK_WIRE_ADDRESS_H_

#include <array>
#include <compare>
#include <cstdint>
#include <cstring>

#include "stack/base/byte_order.h"

namespace xtreme::wire {

class MacAddress {
 public:
  static constexpr size_t kBytes = 6;
  using Bytes = std::array<uint8_t, kBytes>;

  constexpr MacAddress() = default;
  constexpr explicit MacAddress(const Bytes& bytes) : bytes_(bytes) {}
  static constexpr MacAddress Broadcast() {
    return MacAddress({0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF});
  }
  // Reads the kBytes bytes at `from`.
  static MacAddress Load(const uint8_t* from) {
    MacAddress mac;
    std::memcpy(mac.bytes_.data(), from, kBytes);
    return mac;
  }
  void Store(uint8_t* to) const { std::memcpy(to, bytes_.data(), kBytes); }

  constexpr const Bytes& bytes() const { return bytes_; }
  constexpr bool IsZero() const { return *this == MacAddress(); }
  constexpr bool IsBroadcast() const { return *this == Broadcast(); }
  // The group bit; the broadcast address is a group too. IEEE 802-2014, 8.2.2.
  constexpr bool IsGroup() const { return (bytes_[0] & 0x01) != 0; }

  friend constexpr auto operator<=>(const MacAddress&, const MacAddress&) = default;

 private:
  Bytes bytes_{};
};

class Ipv4Address {
 public:
  static constexpr size_t kBytes = 4;

  constexpr Ipv4Address() = default;
  // `value` is in host order: 127.0.0.1 is 0x7F000001.
  constexpr explicit Ipv4Address(uint32_t value) : value_(value) {}
  constexpr Ipv4Address(uint8_t a, uint8_t b, uint8_t c, uint8_t d)
      : value_(uint32_t{a} << 24 | uint32_t{b} << 16 | uint32_t{c} << 8 | d) {}
  static constexpr Ipv4Address Any() { return Ipv4Address(); }
  static constexpr Ipv4Address LimitedBroadcast() { return Ipv4Address(0xFFFFFFFF); }
  // Reads the kBytes bytes of network order at `from`.
  static Ipv4Address Load(const uint8_t* from) { return Ipv4Address(base::LoadBe32(from)); }
  void Store(uint8_t* to) const { base::StoreBe32(to, value_); }

  // In host order.
  constexpr uint32_t value() const { return value_; }
  constexpr bool IsAny() const { return value_ == 0; }
  constexpr bool IsLimitedBroadcast() const { return value_ == 0xFFFFFFFF; }
  // 224.0.0.0/4, RFC 1112 section 4.
  constexpr bool IsMulticast() const { return value_ >> 28 == 0xE; }
  // 127.0.0.0/8, RFC 1122 section 3.2.1.3 (g).
  constexpr bool IsLoopback() const { return value_ >> 24 == 127; }
  // Whether it can be the source of a datagram from another host: no group, no broadcast, no
  // loopback, no class E. RFC 1122 section 3.2.1.3. The unspecified address counts as none too.
  constexpr bool IsUnicastHost() const { return !IsAny() && !IsLoopback() && value_ >> 29 != 0x7; }

  friend constexpr auto operator<=>(Ipv4Address, Ipv4Address) = default;

 private:
  uint32_t value_ = 0;
};

// An address and a port in host order.
struct Endpoint {
  Ipv4Address address;
  uint16_t port = 0;

  friend constexpr auto operator<=>(const Endpoint&, const Endpoint&) = default;
};

// A network: the leading `length` bits, 0 to 32, of `address`.
struct Ipv4Prefix {
  Ipv4Address address;
  uint8_t length = 0;

  // In host order.
  constexpr uint32_t mask() const { return length == 0 ? 0 : ~uint32_t{0} << (32 - length); }
  constexpr bool Contains(Ipv4Address other) const {
    return ((address.value() ^ other.value()) & mask()) == 0;
  }
  // The network's all-ones address. A /31 or /32 has none (RFC 3021): the limited broadcast.
  constexpr Ipv4Address DirectedBroadcast() const {
    if (length > 30) return Ipv4Address::LimitedBroadcast();
    return Ipv4Address(address.value() | ~mask());
  }

  friend constexpr bool operator==(const Ipv4Prefix&, const Ipv4Prefix&) = default;
};

// The MAC address a multicast group is sent to: 01-00-5E and the group's low 23 bits, so 32 groups
// share each. RFC 1112 section 6.4.
constexpr MacAddress MulticastMac(Ipv4Address group) {
  const uint32_t value = group.value();
  return MacAddress({0x01, 0x00, 0x5E, static_cast<uint8_t>(value >> 16 & 0x7F),
                     static_cast<uint8_t>(value >> 8), static_cast<uint8_t>(value)});
}

}  // namespace xtreme::wire

#endif  // XTREME_STACK_WIRE_ADDRESS_H_
