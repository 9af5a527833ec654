// SPDX-License-Identifier: Apache-2.0
#include "stack/ip/icmp_error.h"

#include <array>
#include <cerrno>

#include "stack/wire/ipv4.h"

namespace xtreme::ip {
namespace {

struct Meaning {
  int error;
  bool hard;
};

// By code of "destination unreachable". What sockets see on this system is the precedent; RFC 1122
// section 4.2.3.9 says which are soft.
constexpr auto kUnreachable = std::to_array<Meaning>({
    {ENETUNREACH, false},   // net unreachable
    {EHOSTUNREACH, false},  // host unreachable
    {ENOPROTOOPT, true},    // protocol unreachable
    {ECONNREFUSED, true},   // port unreachable
    {EMSGSIZE, false},      // fragmentation needed
    {EOPNOTSUPP, false},    // source route failed
    {ENETUNREACH, true},    // destination network unknown
    {EHOSTDOWN, true},      // destination host unknown
    {ENONET, true},         // source host isolated
    {ENETUNREACH, true},    // network administratively prohibited
    {EHOSTUNREACH, true},   // host administratively prohibited
    {ENETUNREACH, false},   // network unreachable for this type of service
    {EHOSTUNREACH, false},  // host unreachable for this type of service
    {EHOSTUNREACH, true},   // communication administratively prohibited
    {EHOSTUNREACH, true},   // host precedence violation
    {EHOSTUNREACH, true},   // precedence cutoff in effect
});
static_assert(kUnreachable.size() == wire::kIcmpPrecedenceCutoff + 1);

std::optional<Meaning> MeaningOf(const wire::IcmpErrorView& icmp) {
  switch (icmp.type()) {
    case wire::IcmpType::kDestinationUnreachable:
      if (icmp.code() >= kUnreachable.size()) return std::nullopt;
      return kUnreachable[icmp.code()];
    case wire::IcmpType::kTimeExceeded:
      return Meaning{EHOSTUNREACH, false};
    case wire::IcmpType::kParameterProblem:
      return Meaning{EPROTO, true};
  }
  return std::nullopt;
}

}  // namespace

std::optional<SocketError> InterpretIcmpError(const wire::IcmpErrorView& icmp, uint16_t vlan_id) {
  const wire::Ipv4View& offending = icmp.offending();
  const uint8_t protocol = offending.protocol();
  if (protocol != wire::kIpProtocolUdp && protocol != wire::kIpProtocolTcp) return std::nullopt;
  const std::optional<Meaning> meaning = MeaningOf(icmp);
  if (!meaning) return std::nullopt;
  SocketError error{
      .error = meaning->error,
      .hard = meaning->hard,
      .mtu_bytes = meaning->error == EMSGSIZE ? icmp.next_hop_mtu() : uint16_t{0},
      .protocol = protocol,
      .length = offending.total_bytes(),
      .source = {offending.source(), icmp.offending_source_port()},
      .destination = {offending.destination(), icmp.offending_destination_port()},
      .sequence = protocol == wire::kIpProtocolTcp ? icmp.offending_sequence() : 0,
  };
  error.flow = {.destination = error.source.address,
                .source = error.destination.address,
                .destination_port = error.source.port,
                .source_port = error.destination.port,
                .vlan_id = vlan_id};
  return error;
}

}  // namespace xtreme::ip
