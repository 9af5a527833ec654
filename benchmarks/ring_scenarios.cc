// SPDX-License-Identifier: Apache-2.0

#include "benchmarks/ring_scenarios.h"

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "benchmarks/null_device.h"
#include "benchmarks/ring_rig.h"

namespace xtreme::benchmarks {
namespace {

constexpr uint16_t kFirstPort = 10'000;
constexpr uint32_t kGroupBase = 0xef010000;  // 239.1.0.0
constexpr base::Nanoseconds kFarAhead = base::Seconds(3600);

class RingScenario : public Scenario {
 public:
  RingScenario(std::unique_ptr<RingRig> rig, uint32_t operations)
      : operations_(operations), rig_(std::move(rig)) {}
  uint32_t operations() const override { return operations_; }
  std::span<const uint8_t> doorbells() const override { return rig_->device().doorbells(); }

 protected:
  const uint32_t operations_;
  const std::unique_ptr<RingRig> rig_;
};

class TransmitScenario : public RingScenario {
 public:
  using RingScenario::RingScenario;

  void Prepare() override { rig_->device().CompleteSends(); }

  void Run() override {
    for (uint32_t i = 0; i < operations_; ++i) rig_->Send();
  }
};

class LongTransmitScenario : public RingScenario {
 public:
  using RingScenario::RingScenario;

  void Prepare() override { rig_->device().CompleteSends(); }

  void Run() override {
    for (uint32_t i = 0; i < operations_; ++i) rig_->SendLong();
  }
};

class FireScenario : public RingScenario {
 public:
  FireScenario(std::unique_ptr<RingRig> rig, std::vector<engine::PreparedSend*> prepared)
      : RingScenario(std::move(rig), static_cast<uint32_t>(prepared.size())),
        prepared_(std::move(prepared)) {}

  void Prepare() override {
    rig_->device().CompleteSends();
    for (engine::PreparedSend* prepared : prepared_) rig_->Rearm(*prepared);
  }

  void Run() override {
    for (engine::PreparedSend* prepared : prepared_) rig_->Fire(*prepared);
  }

 private:
  const std::vector<engine::PreparedSend*> prepared_;
};

class BurstTransmitScenario : public RingScenario {
 public:
  BurstTransmitScenario(std::unique_ptr<RingRig> rig, uint32_t operations, uint32_t burst)
      : RingScenario(std::move(rig), operations), burst_(burst) {}

  void Prepare() override { rig_->device().CompleteSends(); }

  void Run() override {
    for (uint32_t i = 0; i < operations_; i += burst_) rig_->SendBurst(burst_);
  }

 private:
  const uint32_t burst_;
};

class ReceiveScenario : public RingScenario {
 public:
  ReceiveScenario(std::unique_ptr<RingRig> rig, uint32_t operations, uint32_t batch)
      : RingScenario(std::move(rig), operations), batch_(batch) {}

  void Prepare() override { rig_->device().CompleteReceives(operations_, kFrameBytes); }

  void Run() override {
    for (uint32_t done = 0; done < operations_; done += batch_) rig_->Receive(batch_);
  }

 private:
  const uint32_t batch_;
};

class BurstScenario : public RingScenario {
 public:
  BurstScenario(std::unique_ptr<RingRig> rig, uint32_t burst, uint32_t max)
      : RingScenario(std::move(rig), 1), burst_(burst), max_(max) {}

  void Prepare() override {
    while (rig_->Drop(RingRig::kBatch) != 0) {
    }
    rig_->device().CompleteReceives(burst_, kFrameBytes);
  }
  void Run() override { rig_->Receive(max_); }

 private:
  const uint32_t burst_;
  const uint32_t max_;
};

class JoinScenario : public RingScenario {
 public:
  using RingScenario::RingScenario;

  void Run() override {
    for (uint32_t i = 0; i < operations_; ++i) {
      const wire::Ipv4Address group(kGroupBase + next_++ % kGroups);
      rig_->ring().udp().Join(rig_->handle(), {group, 0}, std::nullopt, 0, next_);
      auto settle = [this] { rig_->Finish(); };
      AsDevice(settle);
      while (rig_->Drop(RingRig::kBatch) == 0) {
      }
    }
  }
  void Prepare() override {
    for (; left_ < next_; ++left_) {
      rig_->ring().udp().Leave(rig_->handle(),
                               {wire::Ipv4Address(kGroupBase + left_ % kGroups), 0}, std::nullopt,
                               left_);
    }
    rig_->Settle().IgnoreError();
  }

 private:
  static constexpr uint32_t kGroups = 256;
  uint32_t next_ = 0;
  uint32_t left_ = 0;
};

class IdleScenario : public RingScenario {
 public:
  using RingScenario::RingScenario;
  void Run() override {
    engine::Ring& ring = rig_->ring();
    engine::Completion completion;
    for (uint32_t i = 0; i < operations_; ++i) ring.Poll(&completion, 1, sizeof(completion));
  }
};

// The application's part of IdleScenario: a loop that readies a call.
class LoopScenario : public Scenario {
 public:
  explicit LoopScenario(uint32_t operations) : operations_(operations) {}
  uint32_t operations() const override { return operations_; }
  void Run() override {
    engine::Completion completion;
    for (uint32_t i = 0; i < operations_; ++i) {
      const void* ring = this;
      void* out = &completion;
      uint64_t max = 1, stride = sizeof(completion);
      // For the call itself.
      asm volatile("nop" : "+D"(ring), "+S"(out), "+d"(max), "+c"(stride)::"memory");
    }
  }

 private:
  const uint32_t operations_;
};

class EchoScenario : public Scenario {
 public:
  EchoScenario(std::unique_ptr<RingRig> client, std::unique_ptr<RingRig> server,
               uint32_t operations)
      : operations_(operations), client_(std::move(client)), server_(std::move(server)) {}

  uint32_t operations() const override { return operations_; }

  void Run() override {
    for (uint32_t i = 0; i < operations_; ++i) {
      client_->Send();
      Carry(*client_, *server_);
      if (server_->Receive(1) != 0) server_->Send();
      Carry(*server_, *client_);
      client_->Receive(1);
    }
  }

 protected:
  static void Carry(RingRig& from, RingRig& to) {
    auto carry = [&from, &to] {
      to.device().CompleteReceives(from.device().CompleteSends(), kFrameBytes);
    };
    AsDevice(carry);
  }

  const uint32_t operations_;
  const std::unique_ptr<RingRig> client_;
  const std::unique_ptr<RingRig> server_;
};

// The same carrying over rings that were filled before, one frame at a time.
class EchoDevicesScenario : public EchoScenario {
 public:
  using EchoScenario::EchoScenario;

  void Prepare() override {
    for (RingRig* rig : {client_.get(), server_.get()}) {
      while (rig->Receive(RingRig::kBatch) != 0) {
      }
      rig->device().CompleteSends();
    }
  }

  void Run() override {
    for (uint32_t i = 0; i < operations_; ++i) {
      Arrive(*server_);
      Arrive(*client_);
    }
  }

 private:
  static void Arrive(RingRig& to) {
    auto arrive = [&to] {
      to.device().CompleteSends();
      to.device().CompleteReceives(1, kFrameBytes);
    };
    AsDevice(arrive);
  }
};

absl::Status OpenMany(RingRig& rig, uint32_t sockets, uint32_t groups) {
  engine::Handle handle = 0;
  for (uint32_t i = 1; i < sockets; ++i) {
    auto opened = rig.OpenSocket(static_cast<uint16_t>(kFirstPort + i));
    if (!opened.ok()) return opened.status();
    handle = *opened;
    if (i % RingRig::kBatch == 0) {
      if (absl::Status settled = rig.Settle(); !settled.ok()) return settled;
    }
  }
  for (uint32_t i = 0; i < groups; ++i) {
    const engine::Outcome joined = rig.ring().udp().Join(
        handle, {wire::Ipv4Address(kGroupBase + i), 0}, std::nullopt, 0, i);
    if (!joined.ok()) return absl::InternalError(joined.text);
  }
  return rig.Settle();
}

// What the ring's socket is for: its peer, or anybody.
constexpr bool kConnected = true;
constexpr bool kBound = false;

engine::RingOptions OptionsOf(Frames frames) {
  return frames == Frames::kKept ? RingRig::TappedOptions() : RingRig::DefaultOptions();
}

template <typename Made, typename... More>
absl::StatusOr<std::unique_ptr<Scenario>> OverRing(bool connect, Frames frames, More... more) {
  auto rig = RingRig::Make(OptionsOf(frames), connect);
  if (!rig.ok()) return rig.status();
  return std::make_unique<Made>(*std::move(rig), more...);
}

template <typename Made>
absl::StatusOr<std::unique_ptr<Scenario>> OverTwoRings(uint32_t operations) {
  auto client = RingRig::Make(RingRig::DefaultOptions());
  if (!client.ok()) return client.status();
  auto server = RingRig::Make(RingRig::DefaultOptions());
  if (!server.ok()) return server.status();
  return std::make_unique<Made>(*std::move(client), *std::move(server), operations);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Scenario>> RingTransmit(uint32_t operations, uint32_t burst,
                                                       Frames frames) {
  if (burst == 1) return OverRing<TransmitScenario>(kConnected, frames, operations);
  return OverRing<BurstTransmitScenario>(kConnected, frames, operations, burst);
}

absl::StatusOr<std::unique_ptr<Scenario>> RingTransmitLong(uint32_t operations, Frames frames) {
  auto rig = RingRig::Make(OptionsOf(frames));
  if (!rig.ok()) return rig.status();
  return std::make_unique<LongTransmitScenario>(*std::move(rig), operations);
}

absl::StatusOr<std::unique_ptr<Scenario>> RingFire(uint32_t operations, Frames frames) {
  auto rig = RingRig::Make(OptionsOf(frames));
  if (!rig.ok()) return rig.status();
  std::vector<engine::PreparedSend*> all;
  for (uint32_t i = 0; i < operations; ++i) {
    auto prepared = (*rig)->Prepare();
    if (!prepared.ok()) return prepared.status();
    all.push_back(*prepared);
  }
  return std::make_unique<FireScenario>(*std::move(rig), std::move(all));
}

absl::StatusOr<std::unique_ptr<Scenario>> RingReceive(uint32_t operations, uint32_t batch,
                                                      Frames frames) {
  return OverRing<ReceiveScenario>(kBound, frames, operations, batch);
}

absl::StatusOr<std::unique_ptr<Scenario>> RingBurst(uint32_t burst, uint32_t max) {
  return OverRing<BurstScenario>(kBound, Frames::kNotKept, burst, max);
}

absl::StatusOr<std::unique_ptr<Scenario>> RingJoin(uint32_t operations) {
  return OverRing<JoinScenario>(kBound, Frames::kNotKept, operations);
}

absl::StatusOr<std::unique_ptr<Scenario>> RingIdle(uint32_t operations, uint32_t sockets,
                                                   uint32_t groups, uint32_t timers) {
  auto rig = RingRig::Make(RingRig::DefaultOptions());
  if (!rig.ok()) return rig.status();
  if (sockets > 1 || groups > 0) {
    if (absl::Status opened = OpenMany(**rig, sockets, groups); !opened.ok()) return opened;
  }
  engine::Ring& ring = (*rig)->ring();
  for (uint32_t i = 0; i < timers; ++i) ring.StartTimer(ring.Now() + kFarAhead, i);
  return std::make_unique<IdleScenario>(*std::move(rig), operations);
}

absl::StatusOr<std::unique_ptr<Scenario>> IdleLoop(uint32_t operations) {
  return std::make_unique<LoopScenario>(operations);
}

absl::StatusOr<std::unique_ptr<Scenario>> RingEcho(uint32_t operations) {
  return OverTwoRings<EchoScenario>(operations);
}

absl::StatusOr<std::unique_ptr<Scenario>> RingEchoDevices(uint32_t operations) {
  return OverTwoRings<EchoDevicesScenario>(operations);
}

}  // namespace xtreme::benchmarks
