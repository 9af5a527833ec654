// SPDX-License-Identifier: Apache-2.0
//
// Two rings with NICs and kernels in memory, and the wire between them in the test's hands: what it
// loses, when it carries, and when a send completes. Virtual time.
//
// Threads: the test's; the control threads are waited for by Settle().

#ifndef XTREME_XTREME_ENGINE_TESTING_TCP_PAIR_H_
#define XTREME_XTREME_ENGINE_TESTING_TCP_PAIR_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "gtest/gtest.h"
#include "xtreme/engine/engine.h"
#include "xtreme/engine/ring.h"
#include "xtreme/engine/tcp.h"
#include "xtreme/engine/testing/memory_kernel.h"
#include "xtreme/engine/testing/memory_nic.h"

namespace xtreme::engine::testing {

// One end.
class TcpEnd {
 public:
  TcpEnd(const MemoryKernel::Link& link, const RingOptions& options,
         const MemoryNic::Options& nic_options, std::atomic<uint64_t>* now);
  // Another ring of the same process on the same NIC.
  TcpEnd(TcpEnd& beside, const RingOptions& options);
  ~TcpEnd();

  Tcp& tcp() { return ring->tcp(); }
  MemoryQueuePair& queue() { return *nic->queue(first_queue + resets); }

  // Polls often enough for timers, `max` completions a time; they stand in `got`.
  void Poll(uint32_t max = 64);
  // Waits for what was started, and polls.
  void Settle();

  Handle Listen(uint16_t port, const TcpSettings& settings = {});
  Handle Connect(const wire::Endpoint& peer, const TcpSettings& settings = {});
  SendResult Send(Handle socket, std::string_view bytes, SendOptions options = {});

  // What came since Clear(), of one kind.
  std::vector<Completion> Of(Kind kind) const;
  std::vector<Kind> Kinds() const;
  // The bytes of a socket's PACKETs.
  std::string Bytes(Handle socket) const;
  // Releases what was received, and forgets all.
  void Clear();
  uint64_t Counter(std::string_view scope, std::string_view name);

  std::vector<Completion> got;
  // The wire's: whether a frame is lost; null: none is.
  std::function<bool(const std::vector<uint8_t>& frame)> lose;
  bool complete_sends = true;
  uint32_t first_queue = 0;  // Of the ring, on its NIC.
  uint32_t resets = 0;  // Of the ring: each gave it another queue.
  uint32_t carried = 0;  // Frames that left, of those that were posted.

  MemoryKernel* kernel = nullptr;
  MemoryNic* nic = nullptr;
  std::shared_ptr<Engine> engine;
  std::unique_ptr<Ring> ring;
};

class TcpPairTest : public ::testing::Test {
 protected:
  static constexpr wire::Ipv4Address kA{10, 0, 0, 1};
  static constexpr wire::Ipv4Address kB{10, 0, 0, 2};
  static constexpr uint16_t kPort = 7000;

  TcpPairTest();

  void Open();
  // A listener at b, a connect from a, both ends established; `got` is clear.
  void OpenConnection(const TcpSettings& client_settings = {},
                      const TcpSettings& server_settings = {});

  // One way: what `from` rang for reaches `to`, or is lost; sends complete.
  void Carry(TcpEnd& from, TcpEnd& to);
  // Time, wire and polls, in steps of `step_ns`.
  void Run(uint64_t for_ns = 10'000'000, uint64_t step_ns = 100'000);

  RingOptions options;
  MemoryNic::Options nic_options;
  uint16_t vlan_id = 0;  // Of both ends' interfaces; 0: untagged.
  std::atomic<uint64_t> now{1'000'000'000};
  std::unique_ptr<TcpEnd> a;
  std::unique_ptr<TcpEnd> b;
  Handle listener = 0;
  Handle client = 0;
  Handle server = 0;
};

// Of a frame without tag and IP options.
uint8_t TcpFlagsOf(const std::vector<uint8_t>& frame);
size_t TcpPayloadOf(const std::vector<uint8_t>& frame);

}  // namespace xtreme::engine::testing

#endif  // XTREME_XTREME_ENGINE_TESTING_TCP_PAIR_H_
