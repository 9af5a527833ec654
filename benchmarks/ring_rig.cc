// SPDX-License-Identifier: Apache-2.0

#include "benchmarks/ring_rig.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "benchmarks/frames.h"
#include "benchmarks/null_nic.h"
#include "xtreme/engine/control_thread.h"
#include "xtreme/engine/engine.h"
#include "xtreme/engine/testing/memory_kernel.h"
#include "xtreme/host/tsc_clock.h"
#include "xtreme/mlx5/nic.h"

namespace xtreme::benchmarks {
namespace {

using engine::testing::MemoryKernel;

// The clock and the port's counters are sampled seldom enough to stay out of what is measured.
constexpr base::Nanoseconds kSeldom = base::Seconds(3600);
// Polls in a row without a completion after which nothing more will come.
constexpr int kIdlePolls = 64;

absl::Status ToStatus(const engine::Outcome& outcome) {
  return outcome.ok() ? absl::OkStatus() : absl::InternalError(outcome.text);
}

}  // namespace

engine::RingOptions RingRig::DefaultOptions() {
  engine::RingOptions options;
  options.interface_name = MemoryKernel::kInterface;
  options.rx_buffers = 4096;
  options.hugepages = engine::Hugepages::kNever;
  return options;
}

engine::RingOptions RingRig::TappedOptions() {
  engine::RingOptions options = DefaultOptions();
  options.dump_frames = 4096;
  return options;
}

absl::StatusOr<std::unique_ptr<RingRig>> RingRig::Make(const engine::RingOptions& options,
                                                       bool connect) {
  std::unique_ptr<RingRig> rig(new RingRig(HostA(), HostB()));
  const auto open_nic =
      [&rig](const std::string&) -> absl::StatusOr<std::unique_ptr<nic::Nic>> {
    auto nic = std::make_unique<NullNic>(UdpFrame(HostB(), HostA()));
    rig->nic_ = nic.get();
    return nic;
  };
  if (absl::Status opened = rig->Open(options, connect, open_nic); !opened.ok()) return opened;
  return rig;
}

absl::StatusOr<std::unique_ptr<RingRig>> RingRig::MakeOnDevice(const engine::RingOptions& options,
                                                               const std::string& rdma_device,
                                                               const Host& us, const Host& peer) {
  std::unique_ptr<RingRig> rig(new RingRig(us, peer));
  const auto open_nic = [&](const std::string&) -> absl::StatusOr<std::unique_ptr<nic::Nic>> {
    auto nic = mlx5::Nic::Open({.port = {.device = rdma_device, .port = 1}, .mac = us.mac});
    if (!nic.ok()) return nic.status();
    return std::unique_ptr<nic::Nic>(*std::move(nic));
  };
  absl::Status opened = rig->Open(options, /*connect=*/true, open_nic);
  if (!opened.ok()) return opened;
  return rig;
}

absl::Status RingRig::Open(const engine::RingOptions& options, bool connect,
                           const OpenNic& open_nic) {
  engine::Engine::Options engine_options;
  engine_options.kernel = std::make_unique<MemoryKernel>(
      MemoryKernel::Link{us_->endpoint.address, us_->mac, peer_->endpoint.address, peer_->mac});
  engine_options.clock_period = kSeldom;
  engine_options.counters_period = kSeldom;
  engine_options.open_nic = open_nic;
  auto made = engine::Engine::Create(std::move(engine_options));
  if (!made.ok()) return made.status();
  engine_ = *std::move(made);
  engine::RingOptions with_directory = options;
  if (options.dump_frames != 0) {
    taps_.emplace(kInMemory);
    with_directory.counters_directory = taps_->path();
  }
  auto ring = engine::Ring::Open(engine_.get(), with_directory);
  if (!ring.ok()) return ring.status();
  ring_ = *std::move(ring);
  if (options.dump_frames != 0 && ring_->core().device.tap == nullptr) {
    return absl::UnavailableError(ring_->description());
  }
  if (nic_ != nullptr) device_ = &nic_->device();
  auto handle = OpenSocket(us_->endpoint.port);
  if (!handle.ok()) return handle.status();
  handle_ = *handle;
  socket_ = ring_->udp().Find(handle_);
  if (connect) {
    const engine::Outcome connected = ring_->udp().Connect(handle_, peer_->endpoint, 0);
    if (!connected.ok()) return ToStatus(connected);
  }
  if (absl::Status settled = Settle(); !settled.ok()) return settled;
  const uint64_t begin = host::MonotonicNs();
  if (absl::Status started = ring_->Start(); !started.ok()) return started;
  start_ms_ = static_cast<double>(host::MonotonicNs() - begin) / 1e6;
  if (device_ != nullptr) device_->CompleteSends();
  return Settle();
}

RingRig::RingRig(const Host& us, const Host& peer)
    : us_(std::make_unique<Host>(us)), peer_(std::make_unique<Host>(peer)) {
  burst_.fill({payload_.data(), kPayloadBytes});
}

RingRig::~RingRig() = default;

absl::StatusOr<engine::Handle> RingRig::OpenSocket(uint16_t port) {
  engine::Handle handle = 0;
  const engine::Outcome opened =
      ring_->udp().Open({.local = {us_->endpoint.address, port}}, &handle);
  if (!opened.ok()) return ToStatus(opened);
  return handle;
}

absl::StatusOr<engine::PreparedSend*> RingRig::Prepare() {
  engine::Handle handle = 0;
  const engine::Outcome prepared = ring_->udp().PrepareSend(
      handle_, std::span(payload_).first(kPayloadBytes), &handle);
  if (!prepared.ok()) return ToStatus(prepared);
  return ring_->prepared().Find(handle);
}

uint32_t RingRig::Drop(uint32_t max) {
  const uint32_t count = ring_->Poll(completions_.data(), max, sizeof(engine::Completion));
  for (uint32_t i = 0; i < count; ++i) {
    if (completions_[i].kind == engine::Kind::kPacket) {
      packet::BufferPool::ReleaseByOwner(completions_[i].buffer);
    }
  }
  return count;
}

void RingRig::Finish() {
  engine_->control().RunAndWait([] {});
}

absl::Status RingRig::Settle() {
  Finish();
  absl::Status status;
  for (int idle = 0; idle < kIdlePolls; ++idle) {
    const uint32_t count =
        ring_->Poll(completions_.data(), kBatch, sizeof(engine::Completion));
    if (count != 0) idle = 0;
    for (uint32_t i = 0; i < count; ++i) {
      const engine::Completion& completion = completions_[i];
      if (completion.kind == engine::Kind::kPacket) {
        packet::BufferPool::ReleaseByOwner(completion.buffer);
      }
      if (completion.kind == engine::Kind::kOpDone && completion.status != 0 && status.ok()) {
        const char* text = completion.text == nullptr ? "" : completion.text;
        status = absl::InternalError(absl::StrCat("errno ", completion.status, ": ", text));
      }
    }
  }
  return status;
}

}  // namespace xtreme::benchmarks
