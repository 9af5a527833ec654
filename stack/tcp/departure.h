// SPDX-License-Identifier: Apache-2.0
//
// Departure: a connection on its way from one stack to another: all that a Pcb is, in memory of its
// own.
//
// The invariant: from Stack::Depart to Stack::Admit nothing of it is lost and nothing leaves it:
// unacknowledged and unsent bytes, what was received after holes, windows, congestion and round
// trips; its timers are times, and what became due meanwhile is due then. Its buffers stay those of
// the pool they were in, by references of its own, until another stack has copied them: a device
// gathers payload only from its own ring's pool. Both stacks read the same clock.
// Threads: one at a time; it is made on the old stack's and ends on any.
#ifndef XTREME_STACK_TCP_DEPARTURE_H_
#define XTREME_STACK_TCP_DEPARTURE_H_

#include <cstdint>

#include "stack/tcp/context.h"
#include "stack/tcp/flow_key.h"
#include "stack/tcp/pcb.h"
#include "stack/tcp/pcb_options.h"
#include "stack/tcp/reassembler.h"
#include "stack/tcp/segment_queue.h"
#include "stack/wire/tcp_template.h"

namespace xtreme::tcp {

class Departure {
 public:
  // Takes what `from` held after holes; of the rest it has a copy. `from` may depart, and is left
  // after it. The thread of `from`.
  Departure(Pcb& from, const FlowKey& key, const wire::TcpTemplate& headers);
  // Gives its references back.
  ~Departure();
  Departure(const Departure&) = delete;
  Departure& operator=(const Departure&) = delete;

  const FlowKey& flow_key() const { return key_; }
  const wire::TcpTemplate& headers() const { return headers_; }
  const PcbOptions& options() const { return options_; }
  const Pcb& pcb() const { return pcb_; }

  // Sends that asked to be told when they are done, and have not been.
  uint32_t promised() const;
  // Calls `visit(cookie)` for each.
  template <typename Visit>
  void ForEachPromised(Visit&& visit) const {
    for (const Segment* s = pcb_.queue().first(); s != nullptr; s = s->next) {
      if (s->Has(Segment::kWantDone)) visit(s->cookie);
    }
  }

 private:
  friend class Stack;

  FlowKey key_;
  wire::TcpTemplate headers_;
  PcbOptions options_;
  SegmentPool segments_;
  ReassemblyStore reassembly_;
  Context context_;
  Pcb pcb_;
};

}  // namespace xtreme::tcp

#endif  // XTREME_STACK_TCP_DEPARTURE_H_
