// SPDX-License-Identifier: Apache-2.0
//
// Stack::TakeIfExpected, inlined into who receives: from a frame to a connection that has taken its
// segment, if that is the one it expects; and what is done when its payload is released.
//
// The invariant: as Stack::Input, but that the payload is the caller's and no event is caused.
// Units: bytes, nanoseconds. One thread.
#ifndef XTREME_STACK_TCP_TAKE_EXPECTED_H_
#define XTREME_STACK_TCP_TAKE_EXPECTED_H_

#include "stack/tcp/connection.h"
#include "stack/tcp/expected.h"
#include "stack/tcp/stack.h"
#include "stack/tcp/stack_tables.h"
#include "stack/wire/tcp_plain.h"

namespace xtreme::tcp {

[[gnu::always_inline]] inline Connection* Stack::FindPlain(const wire::PlainTcpView& frame) const {
  const FlowKey key = FlowKey::OfUntagged(frame.addresses(), frame.ports());
  Connection* const recent = tables_->recent[key.Place(StackTables::kRecent)];
  const bool found = recent != nullptr && recent->flow_key() == key;
  return found ? recent : FindAnew(key);
}

[[gnu::always_inline]] inline bool Stack::TakeIfExpected(Connection& connection,
                                                         const auto& segment,
                                                         uint32_t payload_bytes, auto&& time) {
  const Pcb::Expected what = connection.Judge(segment, payload_bytes, /*quietly=*/true);
  if (what == Pcb::Expected::kNot) [[unlikely]] return false;
  const base::Nanoseconds now = time();
  now_ = now;
  ++counters_.segments;
  ++context_.counters.segments_in;
  bool sooner = connection.TakeExpected(segment, what, /*quietly=*/true, now);
  if (payload_bytes != 0) {
    const auto acknowledge = [&] { return AcknowledgeAtOnce(connection, now); };
    sooner |= connection.TakeExpectedPayload(payload_bytes, now, acknowledge);
  }
  sooner |= connection.AfterExpected(now);
  if (sooner && !connection.IsWatched()) [[unlikely]] Watch(connection);
  return true;
}

[[gnu::always_inline]] inline base::Nanoseconds Stack::Deadline() {
  if (tables_->syns.size() != 0) [[unlikely]] return NextDeadline();
  return base::Earlier(tables_->wheel.NextDeadline(), tables_->time_wait.NextDeadline());
}

inline bool Stack::CreditQuietly(Connection& connection, uint32_t bytes) {
  return connection.Pcb::CreditQuietly(bytes);
}

}  // namespace xtreme::tcp

#endif  // XTREME_STACK_TCP_TAKE_EXPECTED_H_
