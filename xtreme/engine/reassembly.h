// SPDX-License-Identifier: Apache-2.0
//
// Reassembly: the reassembler of a ring that takes whole addresses, and its timer.

#ifndef XTREME_XTREME_ENGINE_REASSEMBLY_H_
#define XTREME_XTREME_ENGINE_REASSEMBLY_H_

#include "stack/ip/reassembly.h"
#include "xtreme/engine/ring_timer.h"

namespace xtreme::engine {

struct Reassembly {
  explicit Reassembly(const ip::Reassembler::Options& options)
      : reassembler(options), timer(RingTimer::Use::kReassembly) {}
  ip::Reassembler reassembler;
  RingTimer timer;
};

}  // namespace xtreme::engine

#endif  // XTREME_XTREME_ENGINE_REASSEMBLY_H_
