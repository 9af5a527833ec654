// SPDX-License-Identifier: Apache-2.0
//
// One segment that may leave now and that the caller posts himself: whether it may, what its header
// says, and what that it left changes. The short way of a send: no device is called, no timer is
// moved that need not be, and what is not plain is refused here and taken by SendCopy.
//
// The invariant: a connection stands as if Pcb::Send had sent the segment. Inlined into who sends,
// so that the header goes from registers into the frame.
// Units: bytes, nanoseconds. One thread. RFC 9293 section 3.8, RFC 6298 section 5.
#ifndef XTREME_STACK_TCP_FIRE_H_
#define XTREME_STACK_TCP_FIRE_H_

#include <algorithm>
#include <cassert>
#include <cstdint>

#include "stack/tcp/connection.h"
#include "stack/tcp/every_segment.h"
#include "stack/tcp/stack.h"
#include "stack/tcp/stack_tables.h"

namespace xtreme::tcp {

[[gnu::always_inline]] inline bool Pcb::MayLeave(uint32_t bytes, bool now_or_fail) const {
  if (!IsPlain(kPlainOut)) return false;
  // Nothing is lost or sacked: what is outstanding is in the network.
  const uint32_t outstanding = queue_.flight().outstanding;
  if (bytes > smss_) return false;
  const uint32_t used = outstanding + bytes;  // Of windows that are far below 2^32.
  const bool fits = used <= snd_wnd_ && used <= congestion_.cwnd() && used <= options_->send_queue;
  if (!fits || !queue_.HasSpareSegment()) return false;
  return outstanding == 0 || now_or_fail || !options_->nagle || bytes >= smss_;
}

[[gnu::always_inline]] inline void Pcb::FillFired(Seq acknowledgement, uint16_t window,
                                                  base::Nanoseconds now, Outgoing* outgoing) const {
  outgoing->sequence = queue_.end();  // SND.NXT: nothing is unsent.
  outgoing->acknowledgement = acknowledgement;
  outgoing->window = window;
  outgoing->flags = wire::kTcpAck | wire::kTcpPsh;
  outgoing->has_timestamps = Has(kTimestamps);
  if (outgoing->has_timestamps) {
    outgoing->timestamps = {options_->timestamp_clock.At(now), ts_recent_};
  }
}

[[gnu::always_inline]] inline bool Pcb::MayFire(uint32_t bytes, bool now_or_fail,
                                                base::Nanoseconds now, Outgoing* outgoing) const {
  if (!MayLeave(bytes, now_or_fail)) return false;
  FillFired(now, outgoing);
  return true;
}

[[gnu::always_inline]] inline void Pcb::FillFired(base::Nanoseconds now,
                                                  Outgoing* outgoing) const {
  FillFired(rcv_nxt_, WindowToOffer(/*is_syn=*/false), now, outgoing);
}

[[gnu::always_inline]] inline bool Pcb::MayFireAhead(uint32_t bytes, base::Nanoseconds now,
                                                     WindowAhead* ahead, Outgoing* outgoing) const {
  if (!MayLeave(bytes, /*now_or_fail=*/true)) return false;
  if (!Holds(*ahead)) [[unlikely]]
    *ahead = LookAhead();
#if XTREME_DEBUG
  assert(ahead->words == LookAhead().words && "what was known ahead did not hold");
#endif
  FillFired(Seq(ahead->acknowledgement()), ahead->window(), now, outgoing);
  return true;
}

[[gnu::always_inline]] inline Segment& Pcb::Fired(const Outgoing& outgoing,
                                                  const SegmentQueue::Payload& payload,
                                                  bool posts_reference, base::Nanoseconds now) {
  const bool first_in_flight = queue_.all_acknowledged();
  Segment& segment = queue_.AppendSent(payload, posts_reference, now);
  OnOffered(outgoing);
  if (!first_in_flight) {
    ArmBehind(now);
    return segment;
  }
  OnSendAfterSilence(now);
  rto_base_ = now;
  Rearm(/*one=*/true, now);
  return segment;
}

[[gnu::always_inline]] inline bool Stack::MayFire(const Connection& connection, uint32_t bytes,
                                                  const Send& send, base::Nanoseconds now,
                                                  Outgoing* outgoing) const {
  // Each promise has its place, as in SendCopy; and a header of the other kind is made anew there.
  const bool promise = !send.want_done || HasRoomForDone();
  return promise && connection.Pcb::MayFire(bytes, send.now_or_fail, now, outgoing) &&
         outgoing->has_timestamps == connection.headers_.timestamps();
}

[[gnu::always_inline]] inline const wire::TcpTemplate& Stack::Headers(Connection& connection,
                                                                      const Outgoing& outgoing,
                                                                      uint32_t payload_bytes) {
  wire::TcpTemplate& headers = connection.headers_;
  headers.SetSegment({.sequence = outgoing.sequence.value(),
                      .acknowledgement = outgoing.acknowledgement.value(),
                      .window = outgoing.window,
                      .flags = outgoing.flags},
                     payload_bytes);
  if (outgoing.has_timestamps) headers.SetTimestamps(outgoing.timestamps);
  return headers;
}

[[gnu::always_inline]] inline Segment& Stack::Fired(Connection& connection,
                                                    const Outgoing& outgoing,
                                                    const SegmentQueue::Payload& payload,
                                                    const Send& send, bool posts_reference,
                                                    base::Nanoseconds now) {
  now_ = now;
  SegmentQueue::Payload kept = payload;
  kept.flags = static_cast<uint16_t>(Segment::kPush | (send.want_wire ? Segment::kWantWire : 0) |
                                     (send.want_done ? Segment::kWantDone : 0));
  kept.cookie = send.cookie;
  tables_->dones_promised += send.want_done;
  Segment& segment = connection.Pcb::Fired(outgoing, kept, posts_reference, now);
  if (!connection.IsWatched()) [[unlikely]]
    Watch(connection);
  return segment;
}

}  // namespace xtreme::tcp

#endif  // XTREME_STACK_TCP_FIRE_H_
