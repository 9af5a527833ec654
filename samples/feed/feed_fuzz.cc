// SPDX-License-Identifier: Apache-2.0
//
// Any bytes as a datagram: parsing stays inside them, and what it accepts adds up.

#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "samples/feed/book.h"
#include "samples/feed/itch50.h"
#include "samples/feed/mold_udp64.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  const feed::mold::Packet packet = feed::mold::Parse({bytes, size});
  if (!packet.ok()) return 0;
  feed::Books books({});
  size_t seen = feed::mold::kHeaderBytes;
  packet.ForEach([&](uint64_t, std::span<const uint8_t> message) {
    seen += 2 + message.size();
    feed::itch::Message decoded;
    if (feed::itch::Parse(message, &decoded) == feed::itch::Refusal::kNone) books.Apply(decoded);
  });
  if (seen != size) abort();
  return 0;
}
