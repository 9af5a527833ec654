// SPDX-License-Identifier: Apache-2.0

#include "benchmarks/tick_scenario.h"

#include <array>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "benchmarks/frames.h"
#include "benchmarks/null_device.h"
#include "benchmarks/tcp_rig.h"
#include "xtreme/engine/prepared_sends.h"
#include "xtreme/engine/ring_core.h"
#include "xtreme/engine/udp.h"
#include "xtreme/engine/udp_send.h"
#include "xtreme/engine/udp_socket.h"

namespace xtreme::benchmarks {
namespace {

using engine::Completion;
using engine::Kind;

class TickScenario : public Scenario {
 public:
  TickScenario(std::unique_ptr<TcpPair> pair, uint32_t operations)
      : operations_(operations), pair_(std::move(pair)), ticks_(operations) {}
  uint32_t operations() const override { return operations_; }
  std::span<const uint8_t> doorbells() const override {
    return pair_->client().device().doorbells();
  }

  // The feed's socket at the client, the publisher's at the server, and an order a connection.
  absl::Status Open() {
    const wire::Endpoint feed = HostA().endpoint;
    engine::Handle at_client = 0, at_server = 0;
    engine::Udp& publisher = pair_->server().ring().udp();
    engine::Outcome made = pair_->client().ring().udp().Open({.local = feed}, &at_client);
    if (made.ok()) made = publisher.Open({.local = HostB().endpoint}, &at_server);
    if (made.ok()) made = publisher.Connect(at_server, feed, 0);
    for (uint32_t i = 0; made.ok() && i < operations_; ++i) {
      engine::Handle handle = 0;
      made = pair_->client().tcp().PrepareSend(pair_->connection(i), payload_, &handle);
      if (made.ok()) orders_.push_back(pair_->client().ring().prepared().Find(handle));
    }
    if (!made.ok()) return absl::InternalError(made.text);
    pair_->client().Finish();
    pair_->server().Finish();
    pair_->Settle();
    publisher_ = publisher.Find(at_server);
    // Once, by which the flow is known and what does not work is found.
    Prepare();
    Run();
    return fired_ == operations_ ? absl::OkStatus()
                                 : absl::InternalError("a tick was not answered by an order");
  }

  void Prepare() override {
    for (const Completion& tick : ticks_) {
      if (tick.kind == Kind::kPacket) packet::BufferPool::ReleaseByOwner(tick.buffer);
    }
    pair_->Settle();
    engine::Ring& client = pair_->client().ring();
    for (engine::PreparedSend* order : orders_) client.prepared().Rearm(order->handle);
    engine::Ring& server = pair_->server().ring();
    for (uint32_t i = 0; i < operations_; ++i) {
      engine::Send(server.core(), server.udp(), *publisher_,
                   {.data = payload_.data(), .length = payload_.size()}, {});
    }
    pair_->server().device().CarryTo(&pair_->client().device());
    fired_ = 0;
  }

  void Run() override {
    engine::Ring& ring = pair_->client().ring();
    for (uint32_t i = 0; i < operations_; ++i) {
      if (ring.Poll(&ticks_[i], 1, sizeof(Completion)) == 0) continue;
      if (ticks_[i].kind != Kind::kPacket) continue;
      fired_ += engine::Fire(*orders_[i], {}) == engine::SendResult::kSent;
    }
  }

 private:
  const uint32_t operations_;
  const std::unique_ptr<TcpPair> pair_;
  const std::array<uint8_t, kMessageBytes> payload_{};
  engine::UdpSocket* publisher_ = nullptr;
  std::vector<engine::PreparedSend*> orders_;
  std::vector<Completion> ticks_;
  uint32_t fired_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Scenario>> TickToOrder(uint32_t operations) {
  engine::TcpSettings settings;
  settings.quick_ack = true;
  auto pair = TcpPair::Make({.connections = operations, .settings = settings});
  if (!pair.ok()) return pair.status();
  auto scenario = std::make_unique<TickScenario>(*std::move(pair), operations);
  if (absl::Status opened = scenario->Open(); !opened.ok()) return opened;
  return scenario;
}

}  // namespace xtreme::benchmarks
