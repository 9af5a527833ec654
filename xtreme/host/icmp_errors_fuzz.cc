// SPDX-License-Identifier: Apache-2.0
// Any bytes as an ICMP datagram, with its checksums mended or not: each is an error about a TCP
// segment, or counted once as none.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

#include "stack/base/byte_order.h"
#include "stack/wire/checksum.h"
#include "stack/wire/ipv4.h"
#include "xtreme/host/icmp_errors.h"

namespace xtreme::host {
namespace {

// An ICMP message of `bytes` behind a header that is right.
std::vector<uint8_t> Mended(std::span<const uint8_t> bytes) {
  std::vector<uint8_t> datagram(wire::kIpv4MinHeaderBytes);
  const wire::Ipv4Repr header{.source = wire::Ipv4Address(10, 0, 0, 1),
                              .destination = wire::Ipv4Address(10, 0, 0, 2),
                              .protocol = wire::kIpProtocolIcmp,
                              .payload_bytes = static_cast<uint16_t>(bytes.size())};
  header.Emit(datagram);
  datagram.insert(datagram.end(), bytes.begin(), bytes.end());
  if (bytes.size() < 4) return datagram;
  const auto message = std::span(datagram).subspan(wire::kIpv4MinHeaderBytes);
  base::StoreBe16(&message[2], 0);
  base::StoreBe16(&message[2], wire::Checksum(message));
  return datagram;
}

void Try(std::span<const uint8_t> datagram) {
  IcmpRefusals refusals;
  const auto error = ParseIcmpError(datagram, 0, &refusals);
  uint64_t refused = 0;
  base::VisitCounters(refusals, [&](auto, auto, const uint64_t& count) { refused += count; });
  if (refused != (error ? 0u : 1u)) std::abort();
  if (error && (error->error == 0 || error->protocol != wire::kIpProtocolTcp)) std::abort();
}

}  // namespace
}  // namespace xtreme::host

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t length) {
  const std::span input(bytes, length);
  xtreme::host::Try(input);
  if (length < 4096) xtreme::host::Try(xtreme::host::Mended(input));
  return 0;
}
