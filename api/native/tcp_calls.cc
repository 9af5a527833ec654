// SPDX-License-Identifier: Apache-2.0
//
// xtreme.h: what streams alone can do.

#include <array>
#include <cstdint>
#include <memory>

#include "api/native/address.h"
#include "api/native/calls.h"
#include "api/native/sized.h"
#include "fmt/format.h"
#include "stack/base/time.h"
#include "xtreme/engine/tcp.h"
#include "xtreme/engine/tcp_options.h"

namespace xtreme::api {
namespace {

using engine::TcpSettings;

// A field of the options that is one of a few, and its name.
struct Choice {
  const char* name;
  uint8_t value;
  uint8_t most;
};

// 0, or the failure noted.
int CheckOptions(const char* action, const xtreme_tcp_options& c) {
  const std::array choices = {
      Choice{"preset", c.preset, XTREME_TCP_BULK},
      Choice{"congestion", c.congestion, XTREME_TCP_NO_CONGESTION_CONTROL},
      Choice{"nodelay", c.nodelay, XTREME_OFF},
      Choice{"quick_ack", c.quick_ack, XTREME_OFF},
      Choice{"manual_credit", c.manual_credit, XTREME_OFF},
      Choice{"timestamps", c.timestamps, XTREME_OFF},
      Choice{"sack", c.sack, XTREME_OFF},
  };
  for (const Choice& choice : choices) {
    if (choice.value <= choice.most) continue;
    return Fail(EINVAL, fmt::format("{}: {} {} asked, 0 to {} possible", action, choice.name,
                                    choice.value, choice.most));
  }
  const std::array times = {
      std::pair("keepalive_idle_ns", c.keepalive_idle_ns),
      std::pair("keepalive_interval_ns", c.keepalive_interval_ns),
      std::pair("user_timeout_ns", c.user_timeout_ns),
      std::pair("min_rto_ns", c.min_rto_ns),
      std::pair("delayed_ack_ns", c.delayed_ack_ns),
      std::pair("connect_timeout_ns", c.connect_timeout_ns),
      std::pair("linger_ns", c.linger_ns),
  };
  for (const auto& [name, value] : times) {
    if (value >= XTREME_NEVER_NS) continue;
    return Fail(EINVAL, fmt::format("{}: {} {} asked, at least {} possible", action, name, value,
                                    XTREME_NEVER_NS));
  }
  return 0;
}

void Choose(uint8_t choice, bool* setting) {
  if (choice != XTREME_PRESET) *setting = choice == XTREME_ON;
}

template <typename T>
void Choose(T value, T* setting) {
  if (value != 0) *setting = value;
}

void Choose(int64_t value_ns, base::Nanoseconds* setting) {
  if (value_ns == XTREME_NEVER_NS) *setting = base::kNever;
  else if (value_ns != 0) *setting = base::Nanoseconds(value_ns);
}

// Puts every field that is not 0 into `settings`.
void Apply(const xtreme_tcp_options& c, TcpSettings* settings) {
  Choose(c.nodelay, &settings->nodelay);
  Choose(c.quick_ack, &settings->quick_ack);
  Choose(c.manual_credit, &settings->manual_credit);
  Choose(c.timestamps, &settings->timestamps);
  Choose(c.sack, &settings->sack);
  if (c.congestion != XTREME_TCP_PRESET) {
    settings->congestion = static_cast<engine::TcpCongestion>(c.congestion - XTREME_TCP_CUBIC);
  }
  Choose(c.ttl, &settings->ttl);
  Choose(c.tos, &settings->tos);
  Choose(c.keepalive_probes, &settings->keepalive_probes);
  Choose(c.retransmissions, &settings->retransmissions);
  Choose(c.mss, &settings->mss);
  Choose(c.receive_window, &settings->receive_window_bytes);
  Choose(c.send_queue, &settings->send_queue_bytes);
  Choose(c.keepalive_idle_ns, &settings->keepalive_idle);
  Choose(c.keepalive_interval_ns, &settings->keepalive_interval);
  Choose(c.user_timeout_ns, &settings->user_timeout);
  Choose(c.min_rto_ns, &settings->min_rto);
  Choose(c.delayed_ack_ns, &settings->delayed_ack);
  Choose(c.connect_timeout_ns, &settings->connect_timeout);
  Choose(c.linger_ns, &settings->close_timeout);
}

TcpSettings PresetOf(const xtreme_tcp_options& c) {
  return TcpSettings::Of(static_cast<engine::TcpPreset>(c.preset));
}

// The caller's options, checked; 0, or the failure noted.
int TakeOptions(const char* action, const xtreme_tcp_options* from, xtreme_tcp_options* options) {
  const int taken = TakeSized(action, from, kFirstTcpOptions, options);
  if (taken != 0) return taken;
  const int unknown = CheckReserved(action, options->reserved, options->reserved_too);
  return unknown != 0 ? unknown : CheckOptions(action, *options);
}

xtreme_tcp_info ToC(const engine::TcpReport& report) {
  xtreme_tcp_info info = {};
  info.size = sizeof info;
  info.local = FromEndpoint(report.local);
  info.peer = FromEndpoint(report.peer);
  info.state = static_cast<uint8_t>(report.state);
  info.in_recovery = report.in_recovery;
  info.srtt_ns = report.srtt.count();
  info.rttvar_ns = report.rttvar.count();
  info.rto_ns = report.rto.count();
  info.oldest_ns = report.oldest_unacknowledged.count();
  info.mss = report.mss;
  info.congestion_window = report.congestion_window;
  info.slow_start_threshold = report.slow_start_threshold;
  info.send_window = report.send_window;
  info.receive_window = report.receive_window;
  info.in_flight = report.in_flight;
  info.unsent = report.unsent;
  info.owed_credit = report.owed_credit;
  info.retransmits = report.retransmits;
  return info;
}

static_assert(static_cast<int>(engine::TcpPreset::kFailFast) == XTREME_TCP_FAIL_FAST);
static_assert(static_cast<int>(engine::TcpPreset::kBulk) == XTREME_TCP_BULK);
static_assert(static_cast<int>(engine::TcpCongestion::kNone) ==
              XTREME_TCP_NO_CONGESTION_CONTROL - XTREME_TCP_CUBIC);
static_assert(static_cast<int>(engine::TcpState::kListen) == XTREME_TCP_LISTEN);
static_assert(static_cast<int>(engine::TcpState::kTimeWait) == XTREME_TCP_TIME_WAIT);

}  // namespace
}  // namespace xtreme::api

using xtreme::api::Reach;
using xtreme::api::ToEndpoint;
using xtreme::api::ToResult;

int xtreme_tcp_listen(xtreme_ring ring, const xtreme_tcp_options* options, xtreme_socket* socket) {
  xtreme::engine::Ring* found;
  if (const int failed = Reach(ring.value, &found)) return failed;
  xtreme_tcp_options wanted;
  const int taken = xtreme::api::TakeOptions("listen", options, &wanted);
  if (taken != 0) return taken;
  const auto local = ToEndpoint(wanted.local);
  if (!local) return xtreme::api::NotIpv4("listen");
  xtreme::engine::TcpListenerOptions asked;
  asked.local = *local;
  asked.user_data = wanted.user_data;
  if (wanted.backlog != 0) asked.backlog = wanted.backlog;
  asked.settings = xtreme::api::PresetOf(wanted);
  xtreme::api::Apply(wanted, &asked.settings);
  return ToResult(found->tcp().OpenListener(asked, &socket->value));
}

int xtreme_tcp_connect(xtreme_ring ring, const xtreme_address* peer,
                       const xtreme_tcp_options* options, xtreme_socket* socket) {
  xtreme::engine::Ring* found;
  if (const int failed = Reach(ring.value, &found)) return failed;
  xtreme_tcp_options wanted = {};
  const int taken =
      options == nullptr ? 0 : xtreme::api::TakeOptions("connect", options, &wanted);
  if (taken != 0) return taken;
  if (peer == nullptr) return xtreme::api::Fail(EINVAL, "connect: no address");
  const auto to = ToEndpoint(*peer), local = ToEndpoint(wanted.local);
  if (!to || !local) return xtreme::api::NotIpv4("connect");
  xtreme::engine::TcpConnectOptions asked;
  asked.peer = *to;
  asked.local = *local;
  asked.user_data = wanted.user_data;
  asked.settings = xtreme::api::PresetOf(wanted);
  xtreme::api::Apply(wanted, &asked.settings);
  return ToResult(found->tcp().Connect(asked, &socket->value));
}

int xtreme_tcp_set_options(xtreme_socket socket, const xtreme_tcp_options* options) {
  xtreme::engine::Ring* ring;
  if (const int failed = Reach(socket.value, &ring)) return failed;
  xtreme_tcp_options wanted;
  const int taken = xtreme::api::TakeOptions("set options", options, &wanted);
  if (taken != 0) return taken;
  xtreme::engine::TcpSettings settings;
  if (!ring->tcp().GetSettings(socket.value, &settings)) return xtreme::api::NoSuch("stream");
  if (wanted.preset != XTREME_TCP_DEFAULT) settings = xtreme::api::PresetOf(wanted);
  xtreme::api::Apply(wanted, &settings);
  return ToResult(ring->tcp().SetSettings(socket.value, settings));
}

int xtreme_credit(xtreme_socket socket, uint32_t bytes) {
  xtreme::engine::Ring* ring;
  if (const int failed = Reach(socket.value, &ring)) return failed;
  return ToResult(ring->tcp().Credit(socket.value, bytes));
}

int xtreme_shutdown(xtreme_socket socket) {
  xtreme::engine::Ring* ring;
  if (const int failed = Reach(socket.value, &ring)) return failed;
  return ToResult(ring->tcp().Shutdown(socket.value));
}

int xtreme_abort(xtreme_socket socket) {
  xtreme::engine::Ring* ring;
  if (const int failed = Reach(socket.value, &ring)) return failed;
  return ToResult(ring->tcp().Abort(socket.value));
}

int xtreme_tcp_get_info(xtreme_socket socket, xtreme_tcp_info* info) {
  xtreme::engine::Ring* ring;
  if (const int failed = Reach(socket.value, &ring)) return failed;
  const int wrong = xtreme::api::CheckSize("tcp info", info->size, xtreme::api::kFirstTcpInfo);
  if (wrong != 0) return wrong;
  xtreme::engine::TcpReport report;
  if (!ring->tcp().Report(socket.value, &report)) return xtreme::api::NoSuch("stream");
  xtreme::api::GiveSized(xtreme::api::ToC(report), info, info->size);
  return 0;
}

int xtreme_socket_move(xtreme_socket socket, xtreme_ring to, uint64_t cookie) {
  xtreme::engine::Ring* ring;
  if (const int failed = Reach(socket.value, &ring)) return failed;
  std::shared_ptr<xtreme::engine::TcpDoor> door;
  if (!xtreme::api::Process::The().FindDoor(to.value, &door)) {
    return xtreme::api::NoSuch("ring");
  }
  return ToResult(ring->tcp().Move(socket.value, door, cookie));
}
