// SPDX-License-Identifier: Apache-2.0

#include "benchmarks/tcp_scenarios.h"

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "benchmarks/null_device.h"
#include "benchmarks/tcp_rig.h"
#include "xtreme/engine/prepared_sends.h"
#include "xtreme/engine/ring_core.h"
#include "xtreme/mlx5/queue_pair.h"

namespace xtreme::benchmarks {
namespace {

using engine::Completion;
using engine::Kind;

class PairScenario : public Scenario {
 public:
  PairScenario(std::unique_ptr<TcpPair> pair, uint32_t operations)
      : operations_(operations), pair_(std::move(pair)) {}
  uint32_t operations() const override { return operations_; }
  std::span<const uint8_t> doorbells() const override {
    return pair_->client().device().doorbells();
  }

 protected:
  const uint32_t operations_;
  const std::unique_ptr<TcpPair> pair_;
};

class PingPongScenario : public PairScenario {
 public:
  using PairScenario::PairScenario;

  void Run() override {
    TcpRig& client = pair_->client();
    TcpRig& server = pair_->server();
    for (uint32_t i = 0; i < operations_; ++i) {
      client.Send(pair_->connection(next_), kMessageBytes);
      if (++next_ == pair_->connections()) next_ = 0;
      pair_->CarryToServer();
      server.Poll(TcpRig::kBatch, [&server](const Completion& completion) {
        if (completion.kind == Kind::kPacket) server.Send(completion.socket, kMessageBytes);
      });
      pair_->CarryToClient();
      client.Poll(TcpRig::kBatch);
    }
  }

  // Over every connection, until none is young any more and acknowledges at once.
  void Warm() {
    constexpr uint32_t kYoung = 20;
    for (uint32_t done = 0; done < kYoung * pair_->connections(); done += operations_) Run();
  }

 private:
  uint32_t next_ = 0;
};

class BulkScenario : public PairScenario {
 public:
  BulkScenario(std::unique_ptr<TcpPair> pair, uint32_t operations, uint32_t burst)
      : PairScenario(std::move(pair), operations), burst_(burst) {}

  void Run() override {
    TcpRig& client = pair_->client();
    TcpRig& server = pair_->server();
    for (uint32_t done = 0; done < operations_; done += burst_) {
      for (uint32_t i = 1; i < burst_; ++i) {
        client.Send(pair_->connection(0), kFullSegmentBytes, engine::kNoDoorbell);
      }
      client.Send(pair_->connection(0), kFullSegmentBytes);
      pair_->CarryToServer();
      server.Poll(TcpRig::kBatch);
      pair_->CarryToClient();
      client.Poll(TcpRig::kBatch);
    }
  }

 private:
  const uint32_t burst_;
};

class RunsScenario : public PairScenario {
 public:
  using PairScenario::PairScenario;

  void Run() override {
    TcpRig& client = pair_->client();
    TcpRig& server = pair_->server();
    for (uint32_t done = 0; done < operations_; done += kLongSendBytes / kFullSegmentBytes) {
      client.Send(pair_->connection(0), kLongSendBytes);
      pair_->CarryToServer();
      server.Poll(TcpRig::kBatch);
      pair_->CarryToClient();
      client.Poll(TcpRig::kBatch);
    }
  }
};

class SendRunsScenario : public PairScenario {
 public:
  using PairScenario::PairScenario;

  void Prepare() override { pair_->Settle(); }
  void Run() override {
    for (uint32_t i = 0; i < pair_->connections(); ++i) {
      pair_->client().SendRegistered(pair_->connection(i));
    }
  }
};

class SendScenario : public PairScenario {
 public:
  using PairScenario::PairScenario;

  void Prepare() override { pair_->Settle(); }
  void Run() override {
    for (uint32_t i = 0; i < operations_; ++i) {
      pair_->client().Send(pair_->connection(i), kMessageBytes);
    }
  }
};

class FireScenario : public PairScenario {
 public:
  FireScenario(std::unique_ptr<TcpPair> pair, std::vector<engine::PreparedSend*> prepared)
      : PairScenario(std::move(pair), static_cast<uint32_t>(prepared.size())),
        prepared_(std::move(prepared)) {}

  void Prepare() override {
    pair_->Settle();
    engine::PreparedSends& sends = pair_->client().ring().prepared();
    for (engine::PreparedSend* prepared : prepared_) sends.Rearm(prepared->handle);
  }
  void Run() override {
    for (engine::PreparedSend* prepared : prepared_) engine::Fire(*prepared, {});
  }

 private:
  const std::vector<engine::PreparedSend*> prepared_;
};

class ReceiveScenario : public PairScenario {
 public:
  using PairScenario::PairScenario;

  void Prepare() override {
    pair_->Settle();
    for (uint32_t i = 0; i < operations_; ++i) {
      pair_->client().Send(pair_->connection(0), kMessageBytes);
    }
    // Not by the pair's wire, which would take what is measured for paused, and resume it.
    pair_->client().device().CarryTo(&pair_->server().device());
  }
  void Run() override {
    for (uint32_t i = 0; i < operations_; ++i) pair_->server().Poll(1);
  }
};

class OpenCloseScenario : public PairScenario {
 public:
  using PairScenario::PairScenario;

  void Run() override {
    for (uint32_t i = 0; i < operations_; ++i) {
      TcpRig& client = pair_->client();
      client.Connect(TcpPair::kFirstPort, {});
      pair_->CarryToServer();
      PollServer();  // SYN
      pair_->CarryToClient();
      PollClient();  // its answer: closed at once
      pair_->CarryToServer();
      PollServer();  // the connection, and its end
      pair_->CarryToClient();
      PollClient();
      pair_->CarryToServer();
      PollServer();
    }
  }
  // Connections that ended at both ends.
  uint32_t ended() const { return std::min(client_ended_, server_ended_); }

 private:
  void PollClient() {
    pair_->client().Poll(TcpRig::kBatch, [this](const Completion& completion) {
      if (completion.kind == Kind::kEstablished) pair_->client().tcp().Close(completion.socket);
      client_ended_ += completion.kind == Kind::kTerminated;
    });
  }
  void PollServer() {
    pair_->server().Poll(TcpRig::kBatch, [this](const Completion& completion) {
      if (completion.kind == Kind::kPeerClosed) pair_->server().tcp().Close(completion.socket);
      server_ended_ += completion.kind == Kind::kTerminated;
    });
  }

  uint32_t client_ended_ = 0;
  uint32_t server_ended_ = 0;
};

// The same carrying of the same frames between two bare queue pairs.
class DevicesScenario : public Scenario {
 public:
  explicit DevicesScenario(uint32_t operations)
      : operations_(operations),
        ends_{std::make_unique<End>(operations), std::make_unique<End>(operations)} {}
  uint32_t operations() const override { return operations_; }

  void Prepare() override {
    for (const std::unique_ptr<End>& end : ends_) end->Prepare(operations_);
  }
  void Run() override {
    for (uint32_t i = 0; i < operations_; ++i) {
      CarryOne(ends_[0]->device, ends_[1]->device);
      CarryOne(ends_[1]->device, ends_[0]->device);
    }
  }

 private:
  static constexpr uint32_t kHeadersBytes = 66;

  struct End {
    explicit End(uint32_t operations) : device({}) {
      packet::BufferPool::Options options;
      options.buffers = 4 * operations + 2048;
      pool = *packet::BufferPool::Create(options);
      queues = MakeQueuePair(device, {}, /*signal_every=*/128, pool.get());
    }
    void Prepare(uint32_t frames) {
      std::array<nic::RxFrame, 32> received;
      while (const uint32_t count = queues->PollReceive(received)) {
        for (uint32_t i = 0; i < count; ++i) {
          packet::BufferPool::ReleaseByOwner(received[i].buffer);
        }
      }
      queues->Refill();
      std::array<nic::TxCompletion, 16> sent;
      while (queues->PollSend(sent) != 0) {
      }
      const nic::TxFrame frame{.header = bytes.data(),
                               .payload = bytes.data(),
                               .header_length = kHeadersBytes,
                               .payload_length = kMessageBytes,
                               .key = 0,
                               .flags = nic::kTxIpChecksum | nic::kTxL4Checksum};
      for (uint32_t i = 0; i < frames; ++i) queues->Post(frame);
    }

    NullDevice device;
    packet::BufferPool::Handle pool;
    std::unique_ptr<mlx5::PlainQueuePair> queues;
    alignas(64) std::array<uint8_t, 128> bytes{};
  };

  static void CarryOne(NullDevice& from, NullDevice& to) {
    auto carry = [&from, &to] { from.CarryTo(&to, 1); };
    AsDevice(carry);
  }

  const uint32_t operations_;
  const std::array<std::unique_ptr<End>, 2> ends_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Scenario>> TcpPingPong(uint32_t operations, uint32_t connections,
                                                      bool still_clock, std::string* memory) {
  auto pair = TcpPair::Make({.connections = connections, .still_clock = still_clock});
  if (!pair.ok()) return pair.status();
  if (memory != nullptr) *memory = (*pair)->server().ring().core().device.pool->description();
  auto scenario = std::make_unique<PingPongScenario>(*std::move(pair), operations);
  scenario->Warm();
  return scenario;
}

absl::StatusOr<std::unique_ptr<Scenario>> TcpPingPongKept(uint32_t operations,
                                                          bool still_clock) {
  auto pair = TcpPair::Make({.still_clock = still_clock, .tapped = true});
  if (!pair.ok()) return pair.status();
  auto scenario = std::make_unique<PingPongScenario>(*std::move(pair), operations);
  scenario->Warm();
  return scenario;
}

absl::StatusOr<std::unique_ptr<Scenario>> TcpDevices(uint32_t operations) {
  return std::make_unique<DevicesScenario>(operations);
}

absl::StatusOr<std::unique_ptr<Scenario>> TcpBulk(uint32_t operations, uint32_t burst, bool kept) {
  engine::TcpSettings settings;
  settings.timestamps = false;  // A segment then carries 1,460 bytes.
  auto pair = TcpPair::Make({.connections = 1, .settings = settings, .tapped = kept});
  if (!pair.ok()) return pair.status();
  return std::make_unique<BulkScenario>(*std::move(pair), operations, burst);
}

absl::StatusOr<std::unique_ptr<Scenario>> TcpBulkRuns(uint32_t operations) {
  engine::TcpSettings settings;
  settings.timestamps = false;
  auto pair = TcpPair::Make({.connections = 1, .settings = settings});
  if (!pair.ok()) return pair.status();
  return std::make_unique<RunsScenario>(*std::move(pair), operations);
}

absl::StatusOr<std::unique_ptr<Scenario>> TcpSendRuns(uint32_t operations) {
  engine::TcpSettings settings;
  settings.timestamps = false;
  settings.congestion = engine::TcpCongestion::kNone;  // A run takes half of a window at most.
  const uint32_t connections = std::max(1u, operations * kFullSegmentBytes / kRunBytes);
  auto pair = TcpPair::Make({.connections = connections, .settings = settings});
  if (!pair.ok()) return pair.status();
  if (absl::Status made = (*pair)->client().RegisterMemory(); !made.ok()) return made;
  const uint32_t segments = connections * (kRunBytes / kFullSegmentBytes);
  return std::make_unique<SendRunsScenario>(*std::move(pair), segments);
}

absl::StatusOr<std::unique_ptr<Scenario>> TcpSendSmall(uint32_t operations) {
  engine::TcpSettings settings;
  settings.quick_ack = true;
  auto pair = TcpPair::Make({.connections = operations, .settings = settings});
  if (!pair.ok()) return pair.status();
  return std::make_unique<SendScenario>(*std::move(pair), operations);
}

absl::StatusOr<std::unique_ptr<Scenario>> TcpFire(uint32_t operations) {
  engine::TcpSettings settings;
  settings.quick_ack = true;
  auto pair = TcpPair::Make({.connections = operations, .settings = settings});
  if (!pair.ok()) return pair.status();
  engine::Ring& ring = (*pair)->client().ring();
  const std::array<uint8_t, kMessageBytes> payload{};
  std::vector<engine::PreparedSend*> all;
  for (uint32_t i = 0; i < operations; ++i) {
    engine::Handle handle = 0;
    const engine::Outcome made = ring.tcp().PrepareSend((*pair)->connection(i), payload, &handle);
    if (!made.ok()) return absl::InternalError(made.text);
    all.push_back(ring.prepared().Find(handle));
  }
  return std::make_unique<FireScenario>(*std::move(pair), std::move(all));
}

absl::StatusOr<std::unique_ptr<Scenario>> TcpReceiveOne(uint32_t operations) {
  auto pair = TcpPair::Make({});
  if (!pair.ok()) return pair.status();
  return std::make_unique<ReceiveScenario>(*std::move(pair), operations);
}

absl::StatusOr<std::unique_ptr<Scenario>> TcpOpenClose(uint32_t operations) {
  auto pair = TcpPair::Make({});
  if (!pair.ok()) return pair.status();
  auto scenario = std::make_unique<OpenCloseScenario>(*std::move(pair), operations);
  scenario->Run();
  if (scenario->ended() != operations) return absl::InternalError("a connection did not end");
  return scenario;
}

}  // namespace xtreme::benchmarks
