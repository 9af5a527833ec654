// SPDX-License-Identifier: Apache-2.0

#include "benchmarks/tcp_rig.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "benchmarks/frames.h"
#include "benchmarks/null_device.h"
#include "benchmarks/null_nic.h"
#include "benchmarks/ring_rig.h"
#include "xtreme/engine/control_thread.h"
#include "xtreme/engine/engine.h"
#include "xtreme/engine/registered_memory.h"
#include "xtreme/engine/testing/memory_kernel.h"

namespace xtreme::benchmarks {
namespace {

using engine::testing::MemoryKernel;

// The clock and the port's counters are sampled seldom enough to stay out of what is measured.
constexpr base::Nanoseconds kSeldom = base::Seconds(3600);
// Polls in a row without a completion after which nothing more will come: timers are thought of
// once in so many.
constexpr int kIdlePolls = 64;
constexpr uint32_t kPortsLog2 = 12;  // A block for connects; as many go to each port of the peer.
constexpr uint32_t kAtOnce = 128;    // Connections opened side by side.
constexpr uint64_t kStillTick = 10;  // Nanoseconds that each look at a still clock takes.
// What opening leaves to timers: the last acknowledgements, and what they were to repair.
constexpr base::Nanoseconds kOpeningTimers = base::Seconds(2);
constexpr base::Nanoseconds kTimerStep = base::Milliseconds(1);

absl::Status ToStatus(const engine::Outcome& outcome) {
  return outcome.ok() ? absl::OkStatus() : absl::InternalError(outcome.text);
}

// The control threads look at it too, as rings open, and may be late: then it goes back.
uint64_t ReadStillClock(void* context) {
  auto* const now = static_cast<std::atomic<uint64_t>*>(context);
  const uint64_t ticks = now->load(std::memory_order_relaxed) + kStillTick;
  now->store(ticks, std::memory_order_relaxed);
  return ticks;
}

}  // namespace

absl::StatusOr<std::unique_ptr<TcpRig>> TcpRig::Make(const Host& us, const Host& peer,
                                                     const engine::RingOptions& options,
                                                     std::atomic<uint64_t>* still_clock) {
  std::unique_ptr<TcpRig> rig(new TcpRig(us, peer));
  if (absl::Status opened = rig->Open(options, still_clock); !opened.ok()) return opened;
  return rig;
}

absl::Status TcpRig::Open(const engine::RingOptions& options,
                          std::atomic<uint64_t>* still_clock) {
  engine::Engine::Options made;
  made.kernel = std::make_unique<MemoryKernel>(MemoryKernel::Link{
      us_->endpoint.address, us_->mac, peer_->endpoint.address, peer_->mac});
  made.clock_period = kSeldom;
  made.counters_period = kSeldom;
  if (still_clock != nullptr) made.ticks = {.read = ReadStillClock, .context = still_clock};
  made.send_patience = {};  // Nobody runs the device while a ring closes.
  made.open_nic = [this](const std::string&) -> absl::StatusOr<std::unique_ptr<nic::Nic>> {
    auto nic = std::make_unique<NullNic>(us_->mac, /*device_memory=*/false);
    nic_ = nic.get();
    return nic;
  };
  auto engine = engine::Engine::Create(std::move(made));
  if (!engine.ok()) return engine.status();
  engine_ = *std::move(engine);
  engine::RingOptions with_directory = options;
  if (options.dump_frames != 0) {
    taps_.emplace(kInMemory);
    with_directory.counters_directory = taps_->path();
  }
  auto ring = engine::Ring::Open(engine_.get(), with_directory);
  if (!ring.ok()) return ring.status();
  ring_ = *std::move(ring);
  device_ = &nic_->device();
  if (absl::Status started = ring_->Start(); !started.ok()) return started;
  device_->CompleteSends();
  return absl::OkStatus();
}

TcpRig::TcpRig(const Host& us, const Host& peer)
    : us_(std::make_unique<Host>(us)), peer_(std::make_unique<Host>(peer)) {}

TcpRig::~TcpRig() = default;

void TcpRig::Finish() {
  engine_->control().RunAndWait([] {});
}

// Of what was started.
absl::Status TcpRig::AwaitDone(std::string_view action) {
  Finish();
  int status = -1;
  while (Poll(kBatch, [&](const engine::Completion& completion) {
           if (completion.kind == engine::Kind::kOpDone) status = completion.status;
         }) != 0) {
  }
  return status == 0 ? absl::OkStatus()
                     : absl::InternalError(absl::StrCat(std::string(action), ": status ", status));
}

absl::Status TcpRig::RegisterMemory() {
  memory_.resize(kRunBytes);
  const engine::Outcome started =
      ring_->RegisterMemory({.start = memory_.data(), .bytes = memory_.size()}, &region_);
  if (!started.ok()) return ToStatus(started);
  return AwaitDone("register memory");
}

absl::Status TcpRig::Listen(uint16_t port, const engine::TcpSettings& settings) {
  engine::Handle handle = 0;
  const engine::Outcome opened =
      tcp().OpenListener({.local = {us_->endpoint.address, port},
                          .backlog = 2 * kAtOnce,
                          .settings = settings},
                         &handle);
  if (!opened.ok()) return ToStatus(opened);
  return AwaitDone("listen");
}

engine::Handle TcpRig::Connect(uint16_t port, const engine::TcpSettings& settings) {
  engine::Handle handle = 0;
  const engine::Outcome started = tcp().Connect(
      {.peer = {peer_->endpoint.address, port}, .settings = settings}, &handle);
  return started.ok() ? handle : 0;
}

absl::StatusOr<std::unique_ptr<TcpPair>> TcpPair::Make(const Options& options) {
  auto pair = std::make_unique<TcpPair>();
  if (absl::Status opened = pair->Open(options); !opened.ok()) return opened;
  return pair;
}

absl::Status TcpPair::Open(const Options& options) {
  engine::RingOptions ring =
      options.tapped ? RingRig::TappedOptions() : RingRig::DefaultOptions();
  const uint32_t listeners = options.connections / (1u << kPortsLog2) + 1;
  max_connections_ = std::max(256u, options.connections + listeners);
  ring.max_connections = max_connections_;
  // What was sent and is not acknowledged holds a buffer; a quarter of the pool is not for that.
  ring.rx_buffers += options.connections + options.connections / 2;
  ring.tcp_ports_log2 = kPortsLog2;
  ring.hugepages = engine::Hugepages::kTry;
  std::atomic<uint64_t>* const clock = options.still_clock ? &still_ticks_ : nullptr;
  auto client = TcpRig::Make(HostA(), HostB(), ring, clock);
  if (!client.ok()) return client.status();
  auto server = TcpRig::Make(HostB(), HostA(), ring, clock);
  if (!server.ok()) return server.status();
  client_ = *std::move(client);
  server_ = *std::move(server);
  for (uint32_t i = 0; i < listeners; ++i) {
    const auto port = static_cast<uint16_t>(kFirstPort + i);
    if (absl::Status heard = server_->Listen(port, options.settings); !heard.ok()) return heard;
  }
  handles_.reserve(options.connections);
  while (connections() < options.connections) {
    const uint32_t some = std::min(kAtOnce, options.connections - connections());
    if (absl::Status opened = OpenSome(some, options.settings); !opened.ok()) return opened;
  }
  if (options.still_clock) PassTimers();
  return absl::OkStatus();
}

void TcpPair::PassTimers() {
  const uint64_t end = still_ticks_.load() + static_cast<uint64_t>(kOpeningTimers.count());
  while (still_ticks_.load() < end) {
    still_ticks_.fetch_add(static_cast<uint64_t>(kTimerStep.count()), std::memory_order_relaxed);
    Settle();
  }
}

absl::Status TcpPair::OpenSome(uint32_t connections, const engine::TcpSettings& settings) {
  for (uint32_t i = 0; i < connections; ++i) {
    const uint32_t port = kFirstPort + this->connections() / (1u << kPortsLog2);
    const engine::Handle handle = client_->Connect(static_cast<uint16_t>(port), settings);
    if (handle == 0) return absl::InternalError("connect was refused");
    handles_.push_back(handle);
  }
  if (this->connections() == connections) client_->Finish();  // The ports are leased.
  Settle();
  engine::TcpReport report;
  const bool open = client_->tcp().Report(handles_.back(), &report) &&
                    report.state == engine::TcpState::kEstablished &&
                    server_->tcp().sockets() > this->connections();  // The listeners too.
  return open ? absl::OkStatus() : absl::InternalError("connections did not open");
}

void TcpPair::Carry(TcpRig& from, TcpRig& to) {
  auto carry = [&from, &to] { from.device().CarryTo(&to.device()); };
  AsDevice(carry);
}

void TcpPair::Settle() {
  for (int idle = 0; idle < kIdlePolls; ++idle) {
    const uint32_t client = client_->Poll(TcpRig::kBatch);
    const uint32_t to_server = client_->device().CarryTo(&server_->device());
    const uint32_t server = server_->Poll(TcpRig::kBatch);
    const uint32_t to_client = server_->device().CarryTo(&client_->device());
    if (client + to_server + server + to_client != 0) idle = 0;
  }
}

}  // namespace xtreme::benchmarks
