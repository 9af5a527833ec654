// SPDX-License-Identifier: Apache-2.0
//
// What routers say of a connection's segments. RFC 9293 section 3.9.2.2: soft errors are remembered
// as the cause should it time out, hard ones end it while it opens. Once it is synchronised they
// are soft too, for anybody may forge them (RFC 5927 section 5.2).

#include "stack/tcp/path_error.h"

#include <algorithm>
#include <array>
#include <cerrno>

#include "stack/tcp/pcb.h"
#include "stack/wire/ipv4.h"
#include "stack/wire/tcp.h"

namespace xtreme::tcp {

base::CounterName DescribeReason(PathVerdict verdict) {
  static constexpr auto kNames = std::to_array<base::CounterName>({
      {"icmp_believed", "ICMP errors about a segment that is outstanding"},
      {"icmp_no_connection", "ICMP errors about no connection of the ring"},
      {"icmp_not_outstanding", "ICMP errors about bytes that are not outstanding"},
      {"icmp_mtu_known", "ICMP errors with an MTU that the segments keep to already"},
      {"icmp_mtu_too_small", "ICMP errors with an MTU below that of any link"},
  });
  static_assert(kNames.size() == static_cast<size_t>(PathVerdict::kCount));
  return kNames[static_cast<size_t>(verdict)];
}

PathVerdict Pcb::OnPathError(const PathError& error, base::Nanoseconds now) {
  const Seq sequence(error.sequence);
  if (sequence < queue_.una() || sequence >= queue_.nxt()) return PathVerdict::kNotOutstanding;
  if (error.error == EMSGSIZE) return OnPathMtu(error, now);
  soft_error_ = static_cast<int16_t>(error.error);
  soft_error_at_ = queue_.una();
  const bool opening = state_ == State::kSynSent || state_ == State::kSynReceived;
  if (error.hard && opening) Terminate(error.error);
  return PathVerdict::kBelieved;
}

// Of IP and TCP, in every segment.
uint32_t Pcb::HeaderBytes() const {
  return wire::kIpv4MinHeaderBytes + wire::kTcpMinHeaderBytes +
         (Has(kTimestamps) ? wire::kTcpTimestampsBytes : 0);
}

PathVerdict Pcb::OnPathMtu(const PathError& error, base::Nanoseconds now) {
  constexpr uint32_t kLeastMtu = 68;  // RFC 791: what every link carries
  const uint32_t mtu = error.mtu;
  if (mtu != 0 && mtu < kLeastMtu) return PathVerdict::kMtuTooSmall;
  const uint32_t headers = HeaderBytes();
  // A router that does not say: half of what it quotes, near enough to the next of RFC 1191 section
  // 7.1's plateaus. Not half of smss_: it tells of each segment that was as long.
  const uint32_t quoted = error.length > headers ? error.length - headers : 0;
  const uint32_t sent = quoted != 0 && quoted <= agreed_smss_ ? quoted : smss_;
  const uint32_t fits = mtu == 0 ? sent / 2 : mtu > headers ? mtu - headers : 0;
  const uint32_t payload = std::max<uint32_t>(fits, kLeastMss);
  if (payload >= smss_) return PathVerdict::kMtuKnown;
  smss_ = static_cast<uint16_t>(payload);
  congestion_.SetSmss(smss_, /*nothing_sent=*/false);
  path_mtu_deadline_ = base::DeadlineAfter(now, options_->path_mtu_timeout);
  idle_deadline_ = base::Earlier(idle_deadline_, path_mtu_deadline_);
  // What was too long did not arrive: it goes again, cut. RFC 1191 section 6; no sign of
  // congestion, so it is repaired as after a time-out, but with the window as it was.
  for (Segment* s = queue_.first(); s != queue_.first_unsent(); s = s->next) {
    if (s->length > smss_ && !s->Has(Segment::kSacked)) queue_.MarkLost(*s);
  }
  if (queue_.flight().lost != 0 && !InRecovery()) {
    Set(kTimeoutRecovery);
    recover_ = queue_.nxt();
    new_reno_.OnTimeout(queue_.nxt());
  }
  Output(now);
  return PathVerdict::kBelieved;
}

// The path may have changed: the next segments are as long as the handshake allows. Where it has
// not, a router says so again.
void Pcb::ForgetPathMtu() {
  path_mtu_deadline_ = base::kNever;
  smss_ = LinkSmss();
  congestion_.SetSmss(smss_, /*nothing_sent=*/false);
}

// What was agreed with the peer, as far as the link takes it.
uint16_t Pcb::LinkSmss() const {
  const uint32_t mtu = context_->link_mtu;
  if (mtu == 0) return agreed_smss_;
  const uint32_t fits = std::max<uint32_t>(mtu, kLeastMss + HeaderBytes()) - HeaderBytes();
  return static_cast<uint16_t>(std::min<uint32_t>(agreed_smss_, fits));
}

// What a router said holds on.
void Pcb::OnLinkMtu() {
  const uint16_t link = LinkSmss();
  const uint16_t smss = path_mtu_deadline_ == base::kNever ? link : std::min(smss_, link);
  if (smss == smss_) return;
  smss_ = smss;
  congestion_.SetSmss(smss_, /*nothing_sent=*/false);
}

// Why nothing came back for too long.
int Pcb::TimeoutStatus() const {
  return soft_error_ != 0 && soft_error_at_ == queue_.una() ? soft_error_ : ETIMEDOUT;
}

}  // namespace xtreme::tcp
