// SPDX-License-Identifier: Apache-2.0
//
// ARP for IPv4 over Ethernet. RFC 826.
//
//   0 hardware type (2)   2 protocol type (2)   4 hardware length (1)   5 protocol length (1)
//   6 operation (2)       8 sender MAC (6)     14 sender IPv4 (4)
//   18 target MAC (6)    24 target IPv4 (4)
#ifndef XTREME_STACK_WIRE_ARP_H_
#define XTREME_STACK_WIRE_ARP_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "stack/base/byte_order.h"
#include "stack/wire/address.h"
#include "stack/wire/ethernet.h"
#include "stack/wire/parsed.h"

namespace xtreme::wire {

inline constexpr size_t kArpBytes = 28;
inline constexpr uint16_t kArpHardwareEthernet = 1;  // IANA, "ARP Parameters"

enum class ArpOperation : uint16_t { kRequest = 1, kReply = 2 };

enum class ArpError : uint8_t {
  kNone,
  kTruncated,
  kHardwareType,   // not Ethernet
  kProtocolType,   // not IPv4
  kAddressLength,  // not 6 and 4
  kOperation,      // neither request nor reply
};

class ArpView {
 public:
  // Of nothing: a place for a parsed one.
  ArpView() = default;

  // `packet` is what follows the Ethernet header; padding after it is ignored.
  static Parsed<ArpView, ArpError> Parse(std::span<const uint8_t> packet) {
    if (packet.size() < kArpBytes) return ArpError::kTruncated;
    if (base::LoadBe16(&packet[0]) != kArpHardwareEthernet) return ArpError::kHardwareType;
    if (base::LoadBe16(&packet[2]) != kEtherTypeIpv4) return ArpError::kProtocolType;
    if (packet[4] != MacAddress::kBytes || packet[5] != Ipv4Address::kBytes) {
      return ArpError::kAddressLength;
    }
    const uint16_t operation = base::LoadBe16(&packet[6]);
    if (operation != 1 && operation != 2) return ArpError::kOperation;
    return ArpView(packet.first<kArpBytes>());
  }

  ArpOperation operation() const { return static_cast<ArpOperation>(base::LoadBe16(&packet_[6])); }
  MacAddress sender_mac() const { return MacAddress::Load(&packet_[8]); }
  Ipv4Address sender() const { return Ipv4Address::Load(&packet_[14]); }
  MacAddress target_mac() const { return MacAddress::Load(&packet_[18]); }
  Ipv4Address target() const { return Ipv4Address::Load(&packet_[24]); }

 private:
  explicit ArpView(std::span<const uint8_t> packet) : packet_(packet) {}

  std::span<const uint8_t> packet_;
};

struct ArpRepr {
  ArpOperation operation = ArpOperation::kRequest;
  MacAddress sender_mac;
  Ipv4Address sender;
  MacAddress target_mac;  // zero in a request
  Ipv4Address target;

  // Writes kArpBytes bytes and returns how many; 0, and nothing written, when `to` is shorter.
  size_t Emit(std::span<uint8_t> to) const {
    if (to.size() < kArpBytes) return 0;
    base::StoreBe16(&to[0], kArpHardwareEthernet);
    base::StoreBe16(&to[2], kEtherTypeIpv4);
    to[4] = MacAddress::kBytes;
    to[5] = Ipv4Address::kBytes;
    base::StoreBe16(&to[6], static_cast<uint16_t>(operation));
    sender_mac.Store(&to[8]);
    sender.Store(&to[14]);
    target_mac.Store(&to[18]);
    target.Store(&to[24]);
    return kArpBytes;
  }

  friend constexpr bool operator==(const ArpRepr&, const ArpRepr&) = default;
};

}  // namespace xtreme::wire

#endif  // XTREME_STACK_WIRE_ARP_H_
