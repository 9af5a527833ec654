// SPDX-License-Identifier: Apache-2.0
//
// Settings of listeners and connections, and what they can be asked.

#include <algorithm>

#include "stack/tcp/connection.h"
#include "stack/tcp/rtt.h"
#include "stack/tcp/stack.h"
#include "stack/tcp/stack_tables.h"
#include "stack/wire/ipv4.h"
#include "stack/wire/tcp.h"
#include "xtreme/engine/prepared_sends.h"
#include "xtreme/engine/ring_core.h"
#include "xtreme/engine/tcp.h"
#include "xtreme/engine/tcp_options_of.h"
#include "xtreme/engine/tcp_ports.h"
#include "xtreme/engine/tcp_socket.h"
#include "xtreme/host/icmp_errors.h"
#include "xtreme/host/snapshot.h"

namespace xtreme::engine {
namespace {

constexpr uint32_t kMaxQueueBytes = 1u << 30;  // The largest window: RFC 7323 section 2.3.

tcp::CongestionAlgorithm AlgorithmOf(TcpCongestion congestion) {
  using Algorithm = tcp::CongestionAlgorithm;
  switch (congestion) {
    case TcpCongestion::kCubic: return Algorithm::kCubic;
    case TcpCongestion::kNewReno: return Algorithm::kNewReno;
    case TcpCongestion::kNone: break;
  }
  return Algorithm::kNone;
}

// The stack's states, between which LISTEN stands.
TcpState StateOf(tcp::State state) {
  if (state == tcp::State::kClosed) return TcpState::kClosed;
  return static_cast<TcpState>(static_cast<int>(state) + 1);
}
static_assert(static_cast<int>(TcpState::kSynSent) == static_cast<int>(tcp::State::kSynSent) + 1);
// No time-out is longer.
static_assert(kMostMinRto == tcp::RttEstimator::Options().max_rto);
static_assert(static_cast<int>(TcpState::kTimeWait) == static_cast<int>(tcp::State::kTimeWait) + 1);

}  // namespace

TcpSettings TcpSettings::Of(TcpPreset preset) {
  TcpSettings settings;
  switch (preset) {
    case TcpPreset::kDefault:
      break;
    case TcpPreset::kFailFast:
      settings.quick_ack = true;
      settings.keepalive_idle = settings.keepalive_interval = base::Seconds(1);
      settings.keepalive_probes = 3;
      settings.user_timeout = settings.connect_timeout = settings.close_timeout =
          base::Seconds(3);
      settings.min_rto = base::Milliseconds(50);
      break;
    case TcpPreset::kBulk:
      settings.nodelay = false;
      settings.receive_window_bytes = settings.send_queue_bytes = 4 * 1024 * 1024;
      break;
  }
  return settings;
}

const char* WrongIn(const TcpSettings& settings) {
  const base::Nanoseconds none{0};
  if (settings.keepalive_probes == 0) return "keepalive_probes";
  if (settings.retransmissions == 0) return "retransmissions";
  if (settings.keepalive_idle <= none) return "keepalive_idle";
  if (settings.keepalive_interval <= none) return "keepalive_interval";
  if (settings.user_timeout <= none) return "user_timeout";
  if (settings.min_rto < base::Microseconds(100) || settings.min_rto > kMostMinRto) {
    return "min_rto";
  }
  if (settings.delayed_ack < none || settings.delayed_ack > base::Milliseconds(500)) {
    return "delayed_ack";
  }
  if (settings.connect_timeout <= none) return "connect_timeout";
  if (settings.close_timeout < none) return "close_timeout";
  if (settings.send_queue_bytes == 0 || settings.send_queue_bytes > kMaxQueueBytes) {
    return "send_queue_bytes";
  }
  if (settings.receive_window_bytes < kLeastReceiveWindow ||
      settings.receive_window_bytes > kMaxQueueBytes) {
    return "receive_window_bytes";
  }
  if (settings.window_clamp_bytes == 0) return "window_clamp_bytes";
  return nullptr;
}

uint16_t MssOf(const TcpSettings& settings, uint32_t mtu) {
  constexpr uint32_t kHeaders = wire::kIpv4MinHeaderBytes + wire::kTcpMinHeaderBytes;
  const uint32_t fits = mtu - kHeaders;
  return static_cast<uint16_t>(settings.mss == 0 ? fits : std::min<uint32_t>(settings.mss, fits));
}

void FillOptions(const TcpSettings& settings, uint16_t mss, tcp::PcbOptions* options) {
  options->mss = mss;
  options->receive_window = std::min(settings.receive_window_bytes, settings.window_clamp_bytes);
  options->scaled_window = settings.receive_window_bytes;
  options->timestamps = settings.timestamps;
  options->sack = settings.sack;
  options->congestion = AlgorithmOf(settings.congestion);
  options->nagle = !settings.nodelay;
  options->cork = settings.cork;
  options->quick_ack = settings.quick_ack;
  options->keepalive_probes = settings.keepalive_probes;
  options->retransmissions = settings.retransmissions;
  options->keepalive_idle = settings.keepalive_idle;
  options->keepalive_interval = settings.keepalive_interval;
  options->user_timeout = settings.user_timeout;
  options->rto.min_rto = settings.min_rto;
  options->delayed_ack = settings.delayed_ack;
  options->connect_timeout = settings.connect_timeout;
  options->close_timeout = settings.close_timeout;
  options->fin_wait_timeout = settings.fin_wait_timeout;
  options->send_queue = settings.send_queue_bytes;
  options->unsent_low_water = settings.unsent_low_water_bytes;
  options->deferrals = settings.deferrals;
}

Outcome Tcp::SetUserData(Handle handle, uint64_t user_data) {
  core_->CheckOwner();
  TcpSocket* socket = Find(handle);
  if (socket == nullptr) return {EBADF, "set user data: no such socket"};
  socket->user_data = user_data;
  return {};
}

Outcome Tcp::SetSettings(Handle handle, const TcpSettings& settings) {
  core_->CheckOwner();
  TcpSocket* socket = Find(handle);
  if (socket == nullptr) return {EBADF, "set settings: no such socket"};
  const TcpProfileUse before = socket->profile;
  TcpSettings standing = settings;
  // Those of its opening stay.
  standing.timestamps = before->settings.timestamps;
  standing.sack = before->settings.sack;
  standing.congestion = before->settings.congestion;
  standing.mss = before->settings.mss;
  standing.receive_window_bytes = before->settings.receive_window_bytes;
  // What was handed out before opens the window as was said then.
  standing.manual_credit = before->settings.manual_credit;
  if (const char* wrong = WrongIn(standing); wrong != nullptr) {
    return {EINVAL, std::string("set settings: ") + wrong + " is out of range"};
  }
  socket->profile = sockets_->profiles.Hold(standing, before->options.mss);
  const TcpProfile& now = *socket->profile;
  socket->ahead = {};  // The window may be another.
  const bool marked =
      now.settings.ttl != before->settings.ttl || now.settings.tos != before->settings.tos;
  if (marked) MarkPath(*socket);
  const base::Nanoseconds time = core_->clock.Now();
  if (socket->listener != nullptr) stack_->UseOptions(*socket->listener, now.options, time);
  if (socket->connection != nullptr) stack_->UseOptions(*socket->connection, now.options, time);
  if (marked && socket->prepares) {
    core_->prepared->Outdate(handle);
    core_->prepared->BuildOf(handle);
  }
  if (stack_ != nullptr) EndCall(/*ring=*/true);  // What waited only by what they said leaves.
  return {};
}

bool Tcp::GetSettings(Handle handle, TcpSettings* settings) const {
  const TcpSocket* socket = Find(handle);
  if (socket == nullptr) return false;
  *settings = socket->profile->settings;
  return true;
}

bool Tcp::Report(Handle handle, TcpReport* report) const {
  core_->CheckOwner();
  const TcpSocket* socket = Find(handle);
  if (socket == nullptr) return false;
  *report = TcpReport();
  report->local = socket->local;
  report->peer = socket->peer;
  if (socket->connection == nullptr) {
    report->state = socket->state == TcpSocket::State::kListening ? TcpState::kListen
                    : socket->state == TcpSocket::State::kOpening ? TcpState::kSynSent
                                                                  : TcpState::kClosed;
    return true;
  }
  const tcp::ConnectionReport now = socket->connection->Report(core_->clock.Now());
  report->state = StateOf(now.state);
  report->in_recovery = now.in_recovery;
  report->srtt = now.srtt;
  report->rttvar = now.rttvar;
  report->rto = now.rto;
  report->oldest_unacknowledged = now.oldest_unacknowledged;
  report->mss = now.smss;
  report->congestion_window = now.congestion_window;
  report->slow_start_threshold = now.slow_start_threshold;
  report->send_window = now.send_window;
  report->receive_window = now.receive_window;
  report->in_flight = now.in_flight;
  report->unsent = now.unsent;
  report->owed_credit = now.owed_credit;
  report->retransmits = now.retransmits;
  return true;
}

uint32_t Tcp::PathMtu(Handle handle, const wire::Endpoint& peer, wire::Ipv4Address local) const {
  core_->CheckOwner();
  const TcpSocket* socket = Find(handle);
  if (socket != nullptr && socket->connection != nullptr) {
    const uint32_t said = socket->connection->Report(core_->clock.Now()).path_mtu;
    if (said != 0) return said;
  }
  const host::RouteResult route = RouteOf(peer, local);
  return route.reachable() ? std::min(route.mtu, core_->device.mtu) : core_->device.mtu;
}

bool Tcp::VisitSocketCounters(Handle handle, const CounterVisitor& visit) const {
  const TcpSocket* socket = Find(handle);
  if (socket == nullptr) return false;
  base::VisitCounters(socket->counters, visit);
  return true;
}

void Tcp::VisitCounters(const CounterVisitor& visit) const {
  if (stack_ == nullptr) return;
  base::VisitCounters(stack_->counters(), visit);
  base::VisitCounters(stack_->pcb_counters(), visit);
  base::VisitCounters(stack_->reassembly_counters(), visit);
  base::VisitCounters(stack_->tables().syns.counters(), visit);
  base::VisitCounters(stack_->tables().time_wait.counters(), visit);
  base::VisitCounters(stack_->path_verdicts(), visit);
  base::VisitCounters(*icmp_refusals_, visit);
}

size_t Tcp::memory_bytes() const {
  if (stack_ == nullptr) return sizeof(*this);
  return sizeof(*this) + sizeof(TcpPorts) + stack_->memory_bytes() +
         sockets_->capacity() * sizeof(TcpSocket);
}

std::vector<std::span<std::byte>> Tcp::memory() {
  if (stack_ == nullptr) return {};
  std::vector<std::span<std::byte>> all = stack_->memory();
  all.push_back(sockets_->memory());
  all.push_back(std::as_writable_bytes(std::span(this, 1)));
  return all;
}

TcpSocket* Tcp::Find(Handle handle) const {
  TcpSocket* socket = sockets_ == nullptr ? nullptr : sockets_->Find(handle);
  return socket == nullptr || socket->closed ? nullptr : socket;
}

uint32_t Tcp::sockets() const { return sockets_ == nullptr ? 0 : sockets_->size(); }

}  // namespace xtreme::engine
