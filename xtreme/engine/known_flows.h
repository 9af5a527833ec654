// SPDX-License-Identifier: Apache-2.0
//
// KnownFlows: the flows that received last, each with its socket and with the part of a completion
// that is the same for all its datagrams.
//
// Invariant: an entry stands only while the demultiplexer would give the same single socket and
// count nothing; whoever looks forgets all of them when Demux::changes() has moved on. A flow not
// found here is not unknown: ask the demultiplexer. Untagged frames only.
// Byte order: keys as in the frame. Threads: the ring's owner. Never allocates after construction.

#ifndef XTREME_XTREME_ENGINE_KNOWN_FLOWS_H_
#define XTREME_XTREME_ENGINE_KNOWN_FLOWS_H_

#include <array>
#include <cstdint>

#include "xtreme/engine/completion.h"

namespace xtreme::engine {

struct UdpSocket;

// One cache line.
struct alignas(64) KnownFlow {
  uint64_t addresses = 0;       // Source and destination.
  uint32_t ports = 0;           // The same.
  uint16_t flags = 0;           // CompletionFlag.
  UdpSocket* socket = nullptr;  // Null: no entry.
  // Of the completion.
  uint16_t source_port = 0;
  uint16_t destination_port = 0;
  uint32_t interface_index = 0;
  IpBytes source_ip{};
  IpBytes destination_ip{};
};
static_assert(sizeof(KnownFlow) == 64);

class KnownFlows {
 public:
  static constexpr uint32_t kEntriesLog2 = 6;

  // Where the flow stands, if it stands here: compare before use.
  KnownFlow& PlaceOf(uint64_t addresses, uint32_t ports) {
    constexpr uint64_t kOddConstant = 0x9E3779B97F4A7C15;  // 2^64 divided by the golden ratio.
    return entries_[((addresses ^ ports) * kOddConstant) >> (64 - kEntriesLog2)];
  }
  // Null: not known.
  const KnownFlow* Find(uint64_t addresses, uint32_t ports) {
    const KnownFlow& flow = PlaceOf(addresses, ports);
    const bool known =
        flow.addresses == addresses && flow.ports == ports && flow.socket != nullptr;
    return known ? &flow : nullptr;
  }

  // Forgets everything if it was learnt before `changes`.
  void Follow(uint64_t changes) {
    if (changes == changes_) [[likely]] return;
    entries_.fill({});
    changes_ = changes;
  }

 private:
  std::array<KnownFlow, 1u << kEntriesLog2> entries_{};
  uint64_t changes_ = 0;
};

}  // namespace xtreme::engine

#endif  // XTREME_XTREME_ENGINE_KNOWN_FLOWS_H_
