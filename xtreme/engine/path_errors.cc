// SPDX-License-Identifier: Apache-2.0
//
// ICMP errors, from the control thread or from a frame of the ring, to the connections that they
// are about.

#include "xtreme/engine/path_errors.h"

#include <span>

#include "stack/tcp/flow_key.h"
#include "stack/tcp/stack.h"
#include "stack/wire/ipv4.h"
#include "stack/wire/tcp_frame.h"
#include "xtreme/engine/ring_core.h"
#include "xtreme/engine/tcp.h"

namespace xtreme::engine {

void Tcp::OnPathErrors(const PathErrors& batch, uint64_t lost) {
  if (stack_ == nullptr) return;
  for (const auto& counter : host::IcmpRefusals::Table()) {
    icmp_refusals_.get()->*counter.member += batch.refusals.*counter.member;
  }
  icmp_refusals_->lost += lost;
  for (const ip::SocketError& error : batch.errors) {
    stack_->OnPathError(
        tcp::FlowKey::Of(error.source, error.destination, core_->device.vlan_id),
        {.sequence = error.sequence,
         .error = error.error,
         .hard = error.hard,
         .mtu = error.mtu_bytes,
         .length = error.length},
        core_->clock.ToTime(core_->poll_ticks()));
  }
  EndCall(/*ring=*/false);
}

// ICMP that one of the ring's rules took from the kernel. False: it is something else.
bool Tcp::ReceiveIcmp(const packet::Buffer& buffer, const wire::TcpFrame& frame) {
  const auto datagram = std::span(buffer.data, buffer.length).subspan(frame.ip_offset);
  const auto ip = wire::Ipv4View::Parse(datagram, wire::ChecksumCheck::kTrusted);
  if (!ip.ok() || ip->protocol() != wire::kIpProtocolIcmp) return false;
  PathErrors batch;
  const auto error = host::ParseIcmpError(datagram, frame.flow.vlan_id, &batch.refusals);
  if (error) batch.errors.push_back(*error);
  OnPathErrors(batch, 0);
  return true;
}

}  // namespace xtreme::engine
