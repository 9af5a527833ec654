// SPDX-License-Identifier: Apache-2.0
//
// ICMP error messages: destination unreachable, time exceeded, parameter problem. RFC 792, RFC
// 1191.
//
//   0 type (1)   1 code (1)   2 checksum (2)   4 unused (2)   6 next-hop MTU, of "fragmentation
//   needed" (2) 8 the offending datagram: its IPv4 header and at least eight bytes more
//
// The view is of errors only: what is no error, an echo for one, is refused as such. The addresses
// and ports are those of the datagram that *we* sent.
#ifndef XTREME_STACK_WIRE_ICMP_H_
#define XTREME_STACK_WIRE_ICMP_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "stack/base/byte_order.h"
#include "stack/wire/ipv4.h"
#include "stack/wire/parsed.h"

namespace xtreme::wire {

inline constexpr size_t kIcmpErrorHeaderBytes = 8;
inline constexpr size_t kIcmpQuotedPayloadBytes = 8;  // at least; RFC 792
// RFC 1812 section 4.3.2.3: as much as fits a datagram of 576 bytes.
inline constexpr size_t kIcmpMaxQuoteBytes = 576 - kIpv4MinHeaderBytes - kIcmpErrorHeaderBytes;

// IANA, "ICMP Type Numbers": those that report an error of a datagram. Source quench (4) is not
// listened to, RFC 6633; redirects (5) are the kernel's.
enum class IcmpType : uint8_t {
  kDestinationUnreachable = 3,
  kTimeExceeded = 11,
  kParameterProblem = 12,
};

// Codes of kDestinationUnreachable. RFC 792, RFC 1122 section 3.2.2.1, RFC 1812 section 5.2.7.1.
inline constexpr uint8_t kIcmpNetUnreachable = 0;
inline constexpr uint8_t kIcmpHostUnreachable = 1;
inline constexpr uint8_t kIcmpProtocolUnreachable = 2;
inline constexpr uint8_t kIcmpPortUnreachable = 3;
inline constexpr uint8_t kIcmpFragmentationNeeded = 4;
inline constexpr uint8_t kIcmpSourceRouteFailed = 5;
inline constexpr uint8_t kIcmpNetUnknown = 6;
inline constexpr uint8_t kIcmpHostUnknown = 7;
inline constexpr uint8_t kIcmpSourceHostIsolated = 8;
inline constexpr uint8_t kIcmpNetProhibited = 9;
inline constexpr uint8_t kIcmpHostProhibited = 10;
inline constexpr uint8_t kIcmpNetUnreachableForTos = 11;
inline constexpr uint8_t kIcmpHostUnreachableForTos = 12;
inline constexpr uint8_t kIcmpFiltered = 13;
inline constexpr uint8_t kIcmpPrecedenceViolation = 14;
inline constexpr uint8_t kIcmpPrecedenceCutoff = 15;

enum class IcmpError : uint8_t {
  kNone,
  kTruncated,       // shorter than the message's header
  kChecksum,        // of the message
  kNotAnError,      // a type that reports no error
  kQuoteTruncated,  // the offending header, or the eight bytes after it, are not all there
  kQuoteMalformed,  // the offending header is none
  kQuoteFragment,   // a later fragment: no ports in it, nobody can be told
};

class IcmpErrorView {
 public:
  // Of nothing: a place for a parsed one.
  IcmpErrorView() = default;

  // `message` is the IP payload.
  static Parsed<IcmpErrorView, IcmpError> Parse(std::span<const uint8_t> message,
                                                ChecksumCheck check);

  IcmpType type() const { return static_cast<IcmpType>(message_[0]); }
  uint8_t code() const { return message_[1]; }
  // Of "fragmentation needed"; 0 from a router older than RFC 1191.
  uint16_t next_hop_mtu() const { return base::LoadBe16(&message_[6]); }
  // The offending datagram's header; its payload may be cut.
  const Ipv4View& offending() const { return offending_; }
  // The offending datagram's ports, where its protocol has some at that place (UDP, TCP).
  uint16_t offending_source_port() const { return base::LoadBe16(&offending_.payload()[0]); }
  uint16_t offending_destination_port() const { return base::LoadBe16(&offending_.payload()[2]); }
  // Of an offending TCP segment: what shows that it was one of ours, RFC 5927 section 4.1.
  uint32_t offending_sequence() const { return base::LoadBe32(&offending_.payload()[4]); }

 private:
  IcmpErrorView(std::span<const uint8_t> message, const Ipv4View& offending)
      : message_(message), offending_(offending) {}

  std::span<const uint8_t> message_;
  Ipv4View offending_;
};

struct IcmpErrorRepr {
  IcmpType type = IcmpType::kDestinationUnreachable;
  uint8_t code = kIcmpPortUnreachable;
  uint16_t next_hop_mtu = 0;

  // Writes the message about `offending`, a datagram from its IPv4 header on, of which it quotes as
  // much as RFC 1812 allows and `to` has room for. Returns the bytes written; 0, and nothing
  // written, when there is no room for the header, the offending header and eight bytes.
  size_t Emit(std::span<uint8_t> to, std::span<const uint8_t> offending) const;
};

}  // namespace xtreme::wire

#endif  // XTREME_STACK_WIRE_ICMP_H_
