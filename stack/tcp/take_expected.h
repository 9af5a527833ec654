// SPDX-License-Identifier: Apache-2.0
//
// Stack::TakeExpected, inlined into who receives: from a parsed frame to a connection that has
// taken its segment, if that is the one it expects; and what is done when its payload is released.
//
// The invariant: as Stack::Input, but that the payload is the caller's and no event is caused.
// Units: bytes, nanoseconds. One thread.
#ifndef XTREME_STACK_TCP_TAKE_EXPECTED_H_
#define XTREME_STACK_TCP_TAKE_EXPECTED_H_

#include "stack/tcp/connection.h"
#include "stack/tcp/expected.h"
#include "stack/tcp/stack.h"
#include "stack/tcp/stack_tables.h"
#include "stack/wire/tcp_frame.h"

namespace xtreme::tcp {

[[gnu::always_inline]] inline Connection* Stack::FindExpecting(const wire::TcpFrame& frame) const {
  Connection* const connection = tables_->demux.Find(FlowKey::Of(frame.flow));
  const bool expected =
      connection != nullptr && connection->IsExpected(frame.segment, /*quietly=*/true);
  return expected ? connection : nullptr;
}

[[gnu::always_inline]] inline void Stack::TakeExpected(Connection& connection,
                                                       const wire::TcpSegment& segment,
                                                       base::Nanoseconds now) {
  now_ = now;
  ++counters_.segments;
  ++context_.counters.segments_in;
  connection.TakeExpected(segment, now);
  if (segment.payload_bytes != 0) connection.TakeExpectedPayload(segment.payload_bytes, now);
  connection.AfterExpected(now);
  if (!connection.IsWatched()) [[unlikely]] Watch(connection);
}

inline bool Stack::CreditQuietly(Connection& connection, uint32_t bytes) {
  return connection.Pcb::CreditQuietly(bytes);
}

}  // namespace xtreme::tcp

#endif  // XTREME_STACK_TCP_TAKE_EXPECTED_H_
