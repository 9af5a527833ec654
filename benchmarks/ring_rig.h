// SPDX-License-Identifier: Apache-2.0
//
// RingRig: a started ring over a null device, or another, and a kernel in memory, with one
// connected socket.
//
// Invariant: whatever a null device lets arrive is a datagram from the peer to that socket.
// Threads: the owner's, and the engine's control thread.

#ifndef XTREME_BENCHMARKS_RING_RIG_H_
#define XTREME_BENCHMARKS_RING_RIG_H_

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "benchmarks/frame_sizes.h"
#include "benchmarks/scratch_directory.h"
#include "stack/packet/buffer_pool.h"
#include "xtreme/engine/completion.h"
#include "xtreme/engine/prepared_sends.h"
#include "xtreme/engine/ring.h"
#include "xtreme/engine/ring_core.h"
#include "xtreme/engine/send_flow.h"
#include "xtreme/engine/udp.h"
#include "xtreme/engine/udp_send.h"
#include "xtreme/engine/udp_socket.h"
#include "xtreme/nic/queue_pair.h"

namespace xtreme::engine {
class Engine;
}
namespace xtreme::nic {
class Nic;
}

namespace xtreme::benchmarks {

class NullDevice;
class NullNic;
struct Host;

class RingRig {
 public:
  static constexpr uint32_t kBatch = 32;

  // Defaults of a ring, but pages of ordinary size and queues that fit the scenarios.
  static engine::RingOptions DefaultOptions();
  // The same with a frame tap.
  static engine::RingOptions TappedOptions();

  // HostA, over a null device. `connect`: its socket is for HostB only, and can send. A tap is in a
  // directory of the rig's own.
  static absl::StatusOr<std::unique_ptr<RingRig>> Make(const engine::RingOptions& options,
                                                       bool connect = true);
  // `us`, whose peer is `peer`, on the RDMA device of that name.
  static absl::StatusOr<std::unique_ptr<RingRig>> MakeOnDevice(
      const engine::RingOptions& options, const std::string& rdma_device, const Host& us,
      const Host& peer);
  ~RingRig();

  // The null device.
  NullDevice& device() { return *device_; }
  engine::Ring& ring() { return *ring_; }
  engine::Handle handle() const { return handle_; }

  // What Ring::Start() took.
  double start_ms() const { return start_ms_; }

  // Opens another socket on `port`; its OP_DONE comes by a poll.
  absl::StatusOr<engine::Handle> OpenSocket(uint16_t port);
  // Waits for the control thread.
  void Finish();
  // The same, and polls until nothing more comes; the first status that is not 0.
  absl::Status Settle();

  // --- What an application does ---

  void Send(uint32_t flags = 0) {
    engine::Send(ring_->core(), ring_->udp(), *socket_,
                 {.data = payload_.data(), .length = kPayloadBytes}, {.flags = flags});
  }
  // One too long for a WQE.
  void SendLong() {
    engine::Send(ring_->core(), ring_->udp(), *socket_,
                 {.data = long_payload_.data(), .length = kLongPayloadBytes}, {});
  }
  // One built ahead, which is armed anew by Rearm().
  void Fire(engine::PreparedSend& prepared) {
    engine::Fire(prepared, {});
  }
  // Builds a send ahead.
  absl::StatusOr<engine::PreparedSend*> Prepare();
  void Rearm(engine::PreparedSend& prepared) { ring_->prepared().Rearm(prepared.handle); }
  // `count` datagrams, at most kBatch, on one doorbell.
  void SendBurst(uint32_t count) {
    engine::SendResult last;
    ring_->udp().SendBurst(socket_, std::span(burst_).first(count), 0, &last);
  }
  // Polls once for at most `max` completions, packets or not, and releases the packets.
  uint32_t Drop(uint32_t max);
  // The same where all are packets: how many.
  [[gnu::always_inline]] uint32_t Receive(uint32_t max) {
    const uint32_t count =
        ring_->Poll(completions_.data(), max, sizeof(engine::Completion));
    for (uint32_t i = 0; i < count; ++i) {
      packet::BufferPool::ReleaseByOwner(completions_[i].buffer);
    }
    return count;
  }

 private:
  using OpenNic =
      std::function<absl::StatusOr<std::unique_ptr<nic::Nic>>(const std::string& interface)>;

  RingRig(const Host& us, const Host& peer);
  absl::Status Open(const engine::RingOptions& options, bool connect, const OpenNic& open_nic);

  const std::unique_ptr<const Host> us_, peer_;
  std::optional<ScratchDirectory> taps_;
  NullNic* nic_ = nullptr;  // The engine's.
  NullDevice* device_ = nullptr;
  std::unique_ptr<engine::Engine> engine_;
  std::unique_ptr<engine::Ring> ring_;
  engine::Handle handle_ = 0;
  engine::UdpSocket* socket_ = nullptr;
  double start_ms_ = 0;
  alignas(64) std::array<uint8_t, 64> payload_{};
  alignas(64) std::array<uint8_t, kLongPayloadBytes> long_payload_{};
  std::array<nic::TxPayload, kBatch> burst_{};
  std::array<engine::Completion, kBatch> completions_{};
};

}  // namespace xtreme::benchmarks

#endif  // XTREME_BENCHMARKS_RING_RIG_H_
