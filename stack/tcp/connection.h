// SPDX-License-Identifier: Apache-2.0
//
// Connection: a Pcb in its place: between whom, the headers it sends by, its timer, and what the
// user of the stack has not been told yet.
//
// The invariant: while it is attached to the demultiplexer its key does not change; a Stack made it
// and only that Stack's calls touch it, for these keep its timer right. The user may read whatever
// a Pcb tells, and owns `user` alone. One thread.
#ifndef XTREME_STACK_TCP_CONNECTION_H_
#define XTREME_STACK_TCP_CONNECTION_H_

#include <cstdint>

#include "stack/base/intrusive_list.h"
#include "stack/base/timer_wheel.h"
#include "stack/tcp/flow_key.h"
#include "stack/tcp/pcb.h"
#include "stack/wire/tcp_template.h"

namespace xtreme::tcp {

struct Listener;

class Connection : public Pcb, private base::Timer {
 public:
  Connection(Context& context, const PcbOptions& options, const FlowKey& key)
      : Pcb(context, options), key_(key) {}

  const FlowKey& flow_key() const { return key_; }
  // The listener that accepted it; null for one that connected, or when that was closed.
  const Listener* listener() const { return listener_; }
  const wire::TcpTemplate& headers() const { return headers_; }

  // The user's word; a child has its listener's at first.
  uint64_t user = 0;

 private:
  friend class Stack;
  friend struct StackTables;

  // Beside the bits of Pcb::Event, in `news_`.
  static constexpr uint8_t kAccepted = 1 << 5;

  // Its timer still fires in time, after one of the short ways.
  [[gnu::always_inline]] bool IsWatched() const {
    return armed() && deadline <= SoonestDeadline();
  }

  wire::TcpTemplate headers_;
  FlowKey key_;  // From here to news_ lies what may be read behind the headers.
  Listener* listener_ = nullptr;  // Of a child, until it was told as accepted.
  base::ListHook news_hook_;
  base::ListHook blocked_hook_;
  base::ListHook starved_hook_;
  uint8_t news_ = 0;  // what TakeEvent has not told yet
  bool attached_ = false;
  bool closed_ = false;    // it tells only what was done, and its end
  bool departed_ = false;  // another stack's goes on: it tells what it knows, and that
};

}  // namespace xtreme::tcp

#endif  // XTREME_STACK_TCP_CONNECTION_H_
