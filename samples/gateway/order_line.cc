// SPDX-License-Identifier: Apache-2.0

#include "samples/gateway/order_line.h"

#include <string.h>
#include <time.h>

#include "fmt/format.h"

namespace gateway {
namespace {

using State = trading::soup::ClientSession::State;

constexpr uint64_t kOrdersToShow = 3;  // In words.
constexpr int64_t kWarmNs = 1'000'000;

uint64_t TimeOfDayNs() {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<uint64_t>(now.tv_sec % 86'400) * 1'000'000'000 + now.tv_nsec;
}

}  // namespace

OrderLine::OrderLine(const Options& options, xtreme::Ring* ring)
    : options_(options),
      ring_(ring),
      session_(options.user, options.password),
      orders_(trading::OrderSession::PrefixAt(TimeOfDayNs()), options.terms) {}

std::string OrderLine::Connect() {
  auto socket = ring_->ConnectTcp(options_.server, {.preset = XTREME_TCP_FAIL_FAST});
  if (!socket) return socket.error().message;
  socket_ = *std::move(socket);
  return "";
}

bool OrderLine::On(const xtreme::Completion& completion) {
  if (completion.kind() == xtreme::kTimer) {
    OnTimer(completion.cookie);
    return true;
  }
  if (completion.socket.value == 0 || completion.socket.value != socket_.handle().value) {
    return false;
  }
  switch (completion.kind()) {
    case xtreme::kEstablished:
      Send(session_.Connect(ring_->now_ns()));
      KeepAlive();
      break;
    case xtreme::kPacket:
      OnBytes(completion.bytes());
      if (!completion.has(XTREME_CHAINED)) break;
      for (xtreme_buffer* link = xtreme_buffer_next(completion.buffer); link != nullptr;
           link = xtreme_buffer_next(link)) {
        OnBytes({xtreme_buffer_data(link), xtreme_buffer_length(link)});
      }
      break;
    case xtreme::kTxWire: OnWire(completion); break;
    // The exchange is done with this connection: so are we.
    case xtreme::kPeerClosed: xtreme_socket_close(socket_.handle(), 0); break;
    case xtreme::kTerminated: OnTerminated(completion); break;
    default: break;
  }
  return true;
}

void OrderLine::Fire(char side, uint32_t price, int64_t tick_ns) {
  if (!up()) {
    ++counters_.down;
    return;
  }
  const bool patched = order_.Patch(0, orders_.Next(side, price)).ok();
  if (!patched || order_.Fire({.cookie = orders_.orders(), .want_wire = true}) < 0) {
    ++counters_.refused_sends;
    return;
  }
  if (const auto armed = order_.Rearm(); !armed) news_ += armed.error().message + "\n";
  const int64_t now_ns = ring_->now_ns();
  session_.OnSent(now_ns);
  ticks_ns_.push_back(tick_ns);
  const uint64_t number = orders_.OnSent(now_ns);
  if (number < kOrdersToShow) {
    news_ += fmt::format("trigger: order {}: {} {} at {:.4f}\n", number,
                         side == 'B' ? "buy" : "sell", options_.terms.shares, price / 1e4);
  }
}

void OrderLine::OnBytes(std::span<const uint8_t> bytes) {
  const bool was_up = up();
  session_.On(bytes, ring_->now_ns(), [this](uint64_t, std::span<const uint8_t> payload) {
    OnMessage(payload);
  });
  if (up() && !was_up) OnLoggedIn();
  if (session_.state() == State::kBroken) xtreme_abort(socket_.handle());
  const bool over = session_.state() == State::kEnded || session_.state() == State::kRejected;
  if (over && !ended_) {
    ended_ = true;
    news_ += session_.state() == State::kEnded ? "the exchange has ended the session\n"
                                               : "the exchange has rejected the login\n";
    xtreme_socket_close(socket_.handle(), 0);
  }
}

void OrderLine::OnLoggedIn() {
  ++counters_.connections;
  auto order = xtreme::Prepared::Make(socket_, orders_.Next('B', 0));
  if (order) order_ = *std::move(order);
  if (!order) news_ += order.error().message + "\n";
  news_ += fmt::format("logged in; next message {}, {} orders not answered\n",
                       session_.next_sequence(), orders_.unanswered());
  orders_.Recover(ring_->now_ns() - options_.resend_ns,
                  [this](std::span<const uint8_t> packet) { Send(packet); });
}

void OrderLine::OnMessage(std::span<const uint8_t> payload) {
  trading::ouch::Message message;
  if (trading::ouch::Parse(payload, &message) != trading::ouch::Refusal::kNone) return;
  const uint64_t number = orders_.On(message);
  if (number >= kOrdersToShow) return;
  if (message.type == trading::ouch::Type::kExecuted) {
    news_ += fmt::format("fill: order {}: {} at {:.4f}, match {}\n", number, message.shares,
                         message.price / 1e4, message.match);
  }
  if (message.type == trading::ouch::Type::kCanceled) {
    news_ += fmt::format("order {}: {} not filled\n", number, message.shares);
  }
}

void OrderLine::OnWire(const xtreme::Completion& wire) {
  const int64_t tick_ns = wire.cookie < ticks_ns_.size() ? ticks_ns_[wire.cookie] : 0;
  if (tick_ns == 0 || wire.hw_time_ns <= tick_ns) return;
  tick_to_trade_.Record(static_cast<uint64_t>(wire.hw_time_ns - tick_ns));
}

void OrderLine::OnTimer(uint64_t which) {
  if (which == kKeepAlive) return KeepAlive();
  if (ended_) return;
  if (const std::string wrong = Connect(); !wrong.empty()) {
    news_ += wrong + "\n";
    SetTimer(kReconnect, ring_->now_ns() + options_.reconnect_ns);
  }
}

void OrderLine::KeepAlive() {
  if (ended_ || session_.state() == State::kDisconnected) return;
  const int64_t now_ns = ring_->now_ns();
  const auto action = session_.Next(now_ns);
  if (action == trading::soup::Silence::Action::kGiveUp) {
    xtreme_abort(socket_.handle());
    return;
  }
  if (up() && action == trading::soup::Silence::Action::kHeartbeat) {
    ++counters_.heartbeats;
    Send(trading::soup::Emit(trading::soup::Type::kClientHeartbeat));
  } else if (up()) {
    order_.Fire({.warm = true});
  }
  SetTimer(kKeepAlive, now_ns + kWarmNs);
}

void OrderLine::OnTerminated(const xtreme::Completion& end) {
  order_ = {};
  socket_.Release();
  session_.Disconnect();
  if (ended_) return;
  news_ += fmt::format("disconnected: {}; {} orders not answered\n",
                       end.status == 0 ? "the exchange closed" : strerror(end.status),
                       orders_.unanswered());
  SetTimer(kReconnect, ring_->now_ns() + options_.reconnect_ns);
}

// What is not an order may wait for the window.
template <typename Bytes>
void OrderLine::Send(const Bytes& bytes) {
  if (socket_.Send(bytes) >= 0) session_.OnSent(ring_->now_ns());
}

void OrderLine::SetTimer(Timer which, int64_t deadline_ns) {
  const auto timer = ring_->StartTimer(deadline_ns, which);
  if (!timer) news_ += timer.error().message + "\n";
}

}  // namespace gateway
