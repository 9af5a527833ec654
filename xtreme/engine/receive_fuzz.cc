// SPDX-License-Identifier: Apache-2.0
//
// Any frame through a whole ring: it is delivered once or counted once, what is delivered lies
// inside the frame, and no buffer is lost. The first two bytes of the input say what is repaired,
// which random bytes never hit, and what the NIC says of it.

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include "stack/base/byte_order.h"
#include "stack/ip/reassembly.h"
#include "stack/wire/checksum.h"
#include "stack/wire/ipv4.h"
#include "xtreme/engine/control_thread.h"
#include "xtreme/engine/engine.h"
#include "xtreme/engine/ring.h"
#include "xtreme/engine/ring_core.h"
#include "xtreme/engine/testing/memory_kernel.h"
#include "xtreme/engine/testing/memory_nic.h"
#include "xtreme/engine/udp.h"

namespace xtreme::engine::testing {
namespace {

constexpr uint32_t kBuffers = 128;
constexpr wire::Ipv4Address kOwn{10, 0, 0, 1};
constexpr wire::Ipv4Address kGroup{239, 1, 2, 3};

void Require(bool holds) {
  if (!holds) std::abort();
}

// A ring with a socket for any address and a group, and another for one address.
class RingUnderTest {
 public:
  explicit RingUnderTest(Fragments fragments) {
    Engine::Options made;
    made.kernel = std::make_unique<MemoryKernel>(MemoryKernel::Link{});
    made.open_nic = [this](const std::string&) -> absl::StatusOr<std::unique_ptr<nic::Nic>> {
      auto nic = std::make_unique<MemoryNic>(MemoryNic::Options{});
      nic_ = nic.get();
      return nic;
    };
    made.ticks = {.read = [](void* now) -> uint64_t { return *static_cast<uint64_t*>(now); },
                  .context = &now_};
    made.clock_period = base::Seconds(3600);
    engine_ = *Engine::Create(std::move(made));
    RingOptions options;
    options.interface_name = MemoryKernel::kInterface;
    options.rx_buffers = kBuffers;
    options.rx_queue_frames = 64;
    options.hugepages = Hugepages::kNever;
    options.fragments = fragments;
    ring_ = *Ring::Open(engine_.get(), options);
    Require(ring_->Start().ok());
    Handle any = 0;
    Handle one = 0;
    Require(ring_->udp().Open({.local = {{}, 7000}, .broadcast = true}, &any).ok());
    Require(ring_->udp().Open({.local = {kOwn, 7001}}, &one).ok());
    Require(ring_->udp().Join(any, {kGroup, 0}, std::nullopt, 0, 1).ok());
    engine_->control().RunAndWait([] {});
    Poll({});
  }

  void Try(std::span<const uint8_t> frame, uint16_t flags) {
    const uint64_t before = Accounted();
    Require(nic_->queue(0)->Inject(frame, 0, 0, flags));
    now_ += 1'000;
    const uint32_t delivered = Poll(frame);
    Require(delivered + Accounted() - before == 1);
    const packet::BufferPool& pool = *ring_->core().device.pool;
    const ip::Reassembler* reassembler = ring_->udp().reassembler();
    const size_t held = reassembler == nullptr ? 0 : reassembler->held_buffers();
    Require(pool.free_count() + nic_->queue(0)->posted() + held == kBuffers);
  }

 private:
  // Datagrams handed out, in `frame` but for what was reassembled; all are released.
  uint32_t Poll(std::span<const uint8_t> frame) {
    uint32_t packets = 0;
    Completion completion;
    while (ring_->Poll(&completion, 1, sizeof(completion)) == 1) {
      if (completion.kind != Kind::kPacket) continue;
      ++packets;
      if (completion.count == 1 && (completion.flags & kChained) == 0) {
        Require(completion.length <= frame.size());
      }
      packet::BufferPool::ReleaseChain(completion.buffer);
    }
    return packets;
  }

  // Frames that were dropped by name, or are a part of something that is reassembled.
  uint64_t Accounted() {
    uint64_t sum = 0;
    ring_->VisitCounters([&sum](std::string_view scope, std::string_view name, std::string_view,
                                uint64_t value) {
      if (scope == "drop") sum += value;
      if (scope == "tcp" && name.starts_with("icmp_")) sum += value;  // What was said of it.
      if (scope == "reassembly" && name == "fragments") sum += value;
      // Whole with this one, which then is a datagram that is delivered or dropped.
      if (scope == "reassembly" && name == "reassembled") sum -= value;
    });
    return sum;
  }

  uint64_t now_ = 1'000'000'000;
  MemoryNic* nic_ = nullptr;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Ring> ring_;
};

void Repair(std::vector<uint8_t>& frame, uint8_t what) {
  if (frame.size() < 42) return;
  constexpr wire::Ipv4Address kDestinations[] = {kOwn, kGroup, {255, 255, 255, 255}, {9, 9, 9, 9}};
  if (what & 1) base::StoreBe16(&frame[12], 0x0800);
  if (what & 2) frame[14] = 0x45;
  if (what & 4) base::StoreBe16(&frame[16], static_cast<uint16_t>(frame.size() - 14));
  if (what & 8) base::StoreBe16(&frame[20], 0);
  if (what & 16) frame[23] = wire::kIpProtocolUdp;
  if (what & 32) base::StoreBe16(&frame[38], static_cast<uint16_t>(frame.size() - 34));
  if (what & 64) {
    base::StoreBe32(&frame[30], kDestinations[frame[33] % 4].value());
    base::StoreBe16(&frame[36], static_cast<uint16_t>(7000 + frame[37] % 3));
  }
  if (what & 128) {
    base::StoreBe16(&frame[24], 0);
    base::StoreBe16(&frame[24], wire::Checksum(std::span(frame).subspan(14, 20)));
  }
}

}  // namespace
}  // namespace xtreme::engine::testing

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t length) {
  using xtreme::engine::Fragments;
  using xtreme::engine::testing::RingUnderTest;
  static RingUnderTest kernels(Fragments::kKernel);
  static RingUnderTest own(Fragments::kOwn);
  constexpr size_t kMostBytes = 1'514;
  if (length < 2 || length > kMostBytes) return 0;
  std::vector<uint8_t> frame(bytes + 2, bytes + length);
  xtreme::engine::testing::Repair(frame, bytes[0]);
  const uint16_t flags = bytes[1] & xtreme::engine::testing::MemoryQueuePair::kVerified;
  kernels.Try(frame, flags);
  own.Try(frame, flags);
  return 0;
}
