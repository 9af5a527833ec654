// SPDX-License-Identifier: Apache-2.0
// Any bytes as an ARP packet: what is sighted could be a host.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "xtreme/host/neighbour_probe.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t length) {
  const auto sighting = xtreme::host::ParseSighting(1, std::span(bytes, length));
  if (sighting && (sighting->mac.IsGroup() || !sighting->address.IsUnicastHost())) std::abort();
  return 0;
}
