// SPDX-License-Identifier: Apache-2.0
//
// The Internet checksum: the ones' complement of the ones' complement sum of 16-bit words. RFC
// 1071.
//
// The sum does not depend on byte order as long as the words are read and written alike (RFC 1071
// section 2 (B)), so bytes are summed as they lie, eight at a time, and only the result is turned.
// Checksums are passed in host order, as the header field reads.
#ifndef XTREME_STACK_WIRE_CHECKSUM_H_
#define XTREME_STACK_WIRE_CHECKSUM_H_

#include <cstdint>
#include <span>

#include "stack/base/byte_order.h"
#include "stack/wire/address.h"

namespace xtreme::wire {

// A sum under way over pieces that follow each other, of any lengths, odd ones included.
class ChecksumSum {
 public:
  void Add(std::span<const uint8_t> bytes);

  // Adds a 16-bit word in host order. The bytes so far are even in number.
  constexpr void AddWord(uint16_t word) { sum_ += base::HostToBigEndian(word); }

  // The pseudo-header of UDP and TCP: addresses, protocol and length of what is checksummed. RFC
  // 768, RFC 9293 section 3.1. The bytes so far are even in number.
  constexpr void AddPseudoHeader(Ipv4Address source, Ipv4Address destination, uint8_t protocol,
                                 uint16_t length) {
    sum_ += base::HostToBigEndian(source.value());
    sum_ += base::HostToBigEndian(destination.value());
    AddWord(protocol);
    AddWord(length);
  }

  // The checksum of what was added, in host order. 0 over bytes that hold their own right checksum.
  constexpr uint16_t Checksum() const {
    return static_cast<uint16_t>(~base::HostToBigEndian(Fold(sum_)));
  }

 private:
  static constexpr uint16_t Fold(uint64_t sum) {
    sum = (sum & 0xFFFFFFFF) + (sum >> 32);
    sum = (sum & 0xFFFFFFFF) + (sum >> 32);
    sum = (sum & 0xFFFF) + (sum >> 16);
    sum = (sum & 0xFFFF) + (sum >> 16);
    return static_cast<uint16_t>(sum);
  }

  // Words as they lie in memory, carries above. Each piece adds less than 2^17, so 2^47 pieces fit.
  uint64_t sum_ = 0;
  bool odd_ = false;  // an odd number of bytes was added
};

// The checksum of `bytes`, in host order.
inline uint16_t Checksum(std::span<const uint8_t> bytes) {
  ChecksumSum sum;
  sum.Add(bytes);
  return sum.Checksum();
}

// The checksum of a header after one 16-bit word of it went from `before` to `after`; all in host
// order. Equation 3 of RFC 1624, which, unlike RFC 1141's, does not turn 0x0000 into 0xFFFF
// wrongly.
constexpr uint16_t UpdateChecksum(uint16_t checksum, uint16_t before, uint16_t after) {
  uint32_t sum = static_cast<uint16_t>(~checksum);
  sum += static_cast<uint16_t>(~before);
  sum += after;
  sum = (sum & 0xFFFF) + (sum >> 16);
  sum = (sum & 0xFFFF) + (sum >> 16);
  return static_cast<uint16_t>(~sum);
}

}  // namespace xtreme::wire

#endif  // XTREME_STACK_WIRE_CHECKSUM_H_
