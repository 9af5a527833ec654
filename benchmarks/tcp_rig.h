// SPDX-License-Identifier: Apache-2.0
//
// TcpRig: one end of TCP connections: a started ring over a null device and a kernel in memory; and
// TcpPair, two of them with a wire between their devices, connections open.
//
// Invariant: a wire carries headers, so a stack sees true segments and no byte of payload moves.
// Threads: the owner's, and the engines' control threads.

#ifndef XTREME_BENCHMARKS_TCP_RIG_H_
#define XTREME_BENCHMARKS_TCP_RIG_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "benchmarks/scenario.h"
#include "benchmarks/scratch_directory.h"
#include "stack/packet/buffer_pool.h"
#include "xtreme/engine/completion.h"
#include "xtreme/engine/ring.h"
#include "xtreme/engine/send_flow.h"
#include "xtreme/engine/tcp.h"

namespace xtreme::engine {
class Engine;
struct RingOptions;
}  // namespace xtreme::engine

namespace xtreme::benchmarks {

class NullDevice;
class NullNic;
struct Host;

inline constexpr uint32_t kMessageBytes = 64;
inline constexpr uint32_t kFullSegmentBytes = 1460;  // Ethernet's MTU, no TCP options.
inline constexpr uint32_t kLongSendBytes = 16 * kFullSegmentBytes;
inline constexpr uint32_t kRunBytes = 44 * kFullSegmentBytes;  // What an IP packet might hold.

class TcpRig {
 public:
  static constexpr uint32_t kBatch = 32;

  // `still_clock`: the ring's time, a little later after each look; null: the TSC's.
  static absl::StatusOr<std::unique_ptr<TcpRig>> Make(const Host& us, const Host& peer,
                                                      const engine::RingOptions& options,
                                                      std::atomic<uint64_t>* still_clock);
  ~TcpRig();

  NullDevice& device() { return *device_; }
  engine::Ring& ring() { return *ring_; }
  engine::Tcp& tcp() { return ring_->tcp(); }

  // Listens on `port`, and the rule stands.
  absl::Status Listen(uint16_t port, const engine::TcpSettings& settings);
  // Starts connecting to that port of the peer; 0: it was refused.
  engine::Handle Connect(uint16_t port, const engine::TcpSettings& settings);
  // Waits for the control thread.
  void Finish();
  // kRunBytes of memory, known to the device.
  absl::Status RegisterMemory();

  // --- What an application does ---

  // `length` bytes, at most kLongSendBytes.
  engine::SendResult Send(engine::Handle connection, uint32_t length, uint32_t flags = 0) {
    return tcp().Send(tcp().Find(connection), {.data = payload_.data(), .length = length},
                      {.flags = flags});
  }
  // kRunBytes of it, from where they stand; after RegisterMemory().
  engine::SendResult SendRegistered(engine::Handle connection) {
    packet::BufferPool::AddReferenceByOwner(region_);
    return tcp().Send(tcp().Find(connection),
                      {.data = region_->data, .length = kRunBytes, .buffer = region_}, {});
  }
  // Polls once for at most `max` completions; releases what came in packets, and calls
  // `on(const Completion&)` for each completion. How many.
  template <typename On>
  [[gnu::always_inline]] uint32_t Poll(uint32_t max, On&& on) {
    const uint32_t count = ring_->Poll(completions_.data(), max, sizeof(engine::Completion));
    for (uint32_t i = 0; i < count; ++i) {
      const engine::Completion& completion = completions_[i];
      on(completion);
      if (completion.kind == engine::Kind::kPacket) {
        packet::BufferPool::ReleaseChain(completion.buffer);
      }
    }
    return count;
  }
  [[gnu::always_inline]] uint32_t Poll(uint32_t max) {
    return Poll(max, [](const engine::Completion&) {});
  }

 private:
  TcpRig(const Host& us, const Host& peer);
  absl::Status Open(const engine::RingOptions& options, std::atomic<uint64_t>* still_clock);
  absl::Status AwaitDone(std::string_view action);

  const std::unique_ptr<const Host> us_, peer_;
  std::optional<ScratchDirectory> taps_;
  NullNic* nic_ = nullptr;  // The engine's.
  NullDevice* device_ = nullptr;
  std::unique_ptr<engine::Engine> engine_;
  std::unique_ptr<engine::Ring> ring_;
  std::vector<uint8_t> memory_;
  packet::Buffer* region_ = nullptr;  // `memory_`, once it is registered.
  alignas(64) std::array<uint8_t, kLongSendBytes> payload_{};
  std::array<engine::Completion, kBatch> completions_{};
};

// HostA connects, HostB listens.
class TcpPair {
 public:
  struct Options {
    uint32_t connections = 1;
    engine::TcpSettings settings;
    // Time stands nearly still, so that nothing happens by a timer; else it is the TSC's.
    bool still_clock = false;
    // Rings keep their frames.
    bool tapped = false;
  };

  static constexpr uint16_t kFirstPort = 7'000;

  static absl::StatusOr<std::unique_ptr<TcpPair>> Make(const Options& options);

  TcpRig& client() { return *client_; }
  TcpRig& server() { return *server_; }
  uint32_t connections() const { return static_cast<uint32_t>(handles_.size()); }
  // What the tables of each ring are sized for.
  uint32_t max_connections() const { return max_connections_; }
  engine::Handle connection(uint32_t i) const { return handles_[i]; }

  // The wires, not measured.
  void CarryToServer() { Carry(*client_, *server_); }
  void CarryToClient() { Carry(*server_, *client_); }
  // What is on its way arrives, and what that causes, to the end.
  void Settle();

 private:
  static void Carry(TcpRig& from, TcpRig& to);
  absl::Status Open(const Options& options);
  absl::Status OpenSome(uint32_t connections, const engine::TcpSettings& settings);
  // Of a still clock: lets time pass until what connections left to timers as they opened is over.
  void PassTimers();

  std::atomic<uint64_t> still_ticks_{1'000'000'000};
  std::unique_ptr<TcpRig> client_;
  std::unique_ptr<TcpRig> server_;
  uint32_t max_connections_ = 0;
  std::vector<engine::Handle> handles_;
};

}  // namespace xtreme::benchmarks

#endif  // XTREME_BENCHMARKS_TCP_RIG_H_
