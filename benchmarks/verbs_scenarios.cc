// SPDX-License-Identifier: Apache-2.0

#include "benchmarks/verbs_scenarios.h"

#include <infiniband/verbs.h>

#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "benchmarks/frames.h"
#include "tools/connectx/connectx.h"
#include "tools/connectx/verbs_endpoint.h"
#include "tools/connectx/wire/link.h"

namespace xtreme::benchmarks {
namespace {

using connectx::Endpoint;
using connectx::SoftwareConnectX;

constexpr int kQueueDepth = 1024;
constexpr uint32_t kSignalEvery = 128;
constexpr uint32_t kBatch = 16;
constexpr uint16_t kPort = 26477;

// Two stepped devices on a cable.
struct Rig {
  std::array<std::unique_ptr<connectx::LinkEnd>, 2> ends;
  std::unique_ptr<SoftwareConnectX> connectx;
};

absl::StatusOr<Rig> MakeRig() {
  Rig rig;
  auto link = connectx::MakeLink();
  if (!link.ok()) return link.status();
  rig.ends = *std::move(link);
  auto made = SoftwareConnectX::Create(
      {.mode = SoftwareConnectX::Mode::kStep,
       .ports = {{.device = {.name = "mlx5_0", .mac = connectx::kMacA}, .wire = rig.ends[0].get()},
                 {.device = {.name = "mlx5_1", .mac = connectx::kMacB},
                  .wire = rig.ends[1].get()}}});
  if (!made.ok()) return made.status();
  rig.connectx = *std::move(made);
  return rig;
}

class VerbsScenario : public Scenario {
 public:
  VerbsScenario(Rig rig, uint32_t operations)
      : operations_(operations),
        rig_(std::move(rig)),
        frame_(connectx::UdpFrame(kPort, std::string(kPayloadBytes, 'x'))) {}

  uint32_t operations() const override { return operations_; }

 protected:
  // Lets the devices finish what was posted, and takes the send completions.
  void Settle() {
    while (rig_.connectx->Step()) {
    }
    std::array<ibv_wc, kBatch> completions;
    while (ibv_poll_cq(sender_.send_cq(), kBatch, completions.data()) > 0) {
    }
  }

  // One request, ready to post.
  struct Request {
    ibv_sge element{};
    ibv_send_wr request{};
  };
  std::vector<Request> MakeRequests(uint32_t count) {
    std::vector<Request> requests(count);
    for (uint32_t i = 0; i < count; ++i) {
      requests[i].element = {.addr = reinterpret_cast<uint64_t>(frame_.data()),
                             .length = kFrameBytes,
                             .lkey = 0};
      ibv_send_wr& request = requests[i].request;
      request.next = i + 1 < count ? &requests[i + 1].request : nullptr;
      request.sg_list = &requests[i].element;
      request.num_sge = 1;
      request.opcode = IBV_WR_SEND;
    }
    return requests;
  }
  void SetSignal(Request& request) {
    const bool signal = ++posted_ % kSignalEvery == 0;
    request.request.send_flags =
        IBV_SEND_INLINE | IBV_SEND_IP_CSUM | (signal ? unsigned{IBV_SEND_SIGNALED} : 0u);
  }

  const uint32_t operations_;
  Rig rig_;
  std::vector<uint8_t> frame_;
  uint32_t posted_ = 0;
  Endpoint sender_{"mlx5_0", {.queue_depth = kQueueDepth}};
};

class TransmitScenario : public VerbsScenario {
 public:
  TransmitScenario(Rig rig, uint32_t operations, uint32_t burst)
      : VerbsScenario(std::move(rig), operations), requests_(MakeRequests(burst)) {}

  void Prepare() override { Settle(); }

  void Run() override {
    const auto burst = static_cast<uint32_t>(requests_.size());
    for (uint32_t i = 0; i < operations_; i += burst) {
      for (Request& request : requests_) SetSignal(request);
      ibv_send_wr* bad = nullptr;
      ibv_post_send(sender_.qp(), &requests_[0].request, &bad);
    }
  }

 private:
  std::vector<Request> requests_;
};

class GatherScenario : public VerbsScenario {
 public:
  GatherScenario(Rig rig, uint32_t operations)
      : VerbsScenario(std::move(rig), operations),
        long_frame_(connectx::UdpFrame(kPort, std::string(kLongPayloadBytes, 'x'))),
        region_(ibv_reg_mr(sender_.pd(), long_frame_.data(), long_frame_.size(), 0)) {
    element_ = {.addr = reinterpret_cast<uint64_t>(long_frame_.data()),
                .length = kLongFrameBytes,
                .lkey = region_->lkey};
    request_.sg_list = &element_;
    request_.num_sge = 1;
    request_.opcode = IBV_WR_SEND;
  }
  ~GatherScenario() override {
    Settle();
    ibv_dereg_mr(region_);
  }

  void Prepare() override { Settle(); }

  void Run() override {
    ibv_send_wr* bad = nullptr;
    for (uint32_t i = 0; i < operations_; ++i) {
      const bool signal = ++posted_ % kSignalEvery == 0;
      request_.send_flags = IBV_SEND_IP_CSUM | (signal ? unsigned{IBV_SEND_SIGNALED} : 0u);
      ibv_post_send(sender_.qp(), &request_, &bad);
    }
  }

 private:
  std::vector<uint8_t> long_frame_;
  ibv_mr* const region_;
  ibv_sge element_{};
  ibv_send_wr request_{};
};

class ReceiveScenario : public VerbsScenario {
 public:
  ReceiveScenario(Rig rig, uint32_t operations)
      : VerbsScenario(std::move(rig), operations), requests_(MakeRequests(1)) {
    rule_ = receiver_.Listen(kPort, 1);
    for (int slot = 0; slot < kQueueDepth; ++slot) receiver_.PostReceive(slot);
  }
  ~ReceiveScenario() override { ibv_destroy_flow(rule_); }

  void Prepare() override {
    for (; taken_ > 0; --taken_) receiver_.PostReceive(static_cast<int>(taken_ % kQueueDepth));
    ibv_send_wr* bad = nullptr;
    for (uint32_t i = 0; i < operations_; ++i) {
      SetSignal(requests_[0]);
      ibv_post_send(sender_.qp(), &requests_[0].request, &bad);
    }
    Settle();
  }

  void Run() override {
    std::array<ibv_wc, kBatch> completions;
    for (uint32_t i = 0; i < operations_; i += kBatch) {
      taken_ += ibv_poll_cq(receiver_.receive_cq(), kBatch, completions.data());
    }
  }

 private:
  Endpoint receiver_{"mlx5_1", {.queue_depth = kQueueDepth}};
  std::vector<Request> requests_;
  ibv_flow* rule_ = nullptr;
  uint32_t taken_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Scenario>> VerbsTransmit(uint32_t operations, uint32_t burst) {
  auto rig = MakeRig();
  if (!rig.ok()) return rig.status();
  return std::make_unique<TransmitScenario>(*std::move(rig), operations, burst);
}

absl::StatusOr<std::unique_ptr<Scenario>> VerbsGather(uint32_t operations) {
  auto rig = MakeRig();
  if (!rig.ok()) return rig.status();
  return std::make_unique<GatherScenario>(*std::move(rig), operations);
}

absl::StatusOr<std::unique_ptr<Scenario>> VerbsReceive(uint32_t operations) {
  auto rig = MakeRig();
  if (!rig.ok()) return rig.status();
  return std::make_unique<ReceiveScenario>(*std::move(rig), operations);
}

}  // namespace xtreme::benchmarks
