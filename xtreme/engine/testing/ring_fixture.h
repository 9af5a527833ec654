// SPDX-License-Identifier: Apache-2.0
//
// A ring over a NIC and a kernel in memory, under virtual time, and frames to give it.
//
// The control thread is real; Settle() waits for it, so that a test sees what it started done.

#ifndef XTREME_XTREME_ENGINE_TESTING_RING_FIXTURE_H_
#define XTREME_XTREME_ENGINE_TESTING_RING_FIXTURE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "gtest/gtest.h"
#include "stack/wire/address.h"
#include "xtreme/engine/engine.h"
#include "xtreme/engine/ring.h"
#include "xtreme/engine/send_flow.h"
#include "xtreme/engine/testing/memory_kernel.h"
#include "xtreme/engine/testing/memory_nic.h"
#include "xtreme/engine/udp.h"

namespace xtreme::engine::testing {

// A UDP frame as it comes from the wire; what is not set is that of an ordinary one.
struct FrameFields {
  wire::Endpoint source{wire::Ipv4Address(10, 0, 0, 2), 5000};
  wire::Endpoint destination{wire::Ipv4Address(10, 0, 0, 1), 7000};
  std::string payload = "x";
  uint16_t fragment_field = 0;
};
std::vector<uint8_t> MakeFrame(const FrameFields& fields);

class RingTest : public ::testing::Test {
 protected:
  static constexpr wire::Ipv4Address kOwn{10, 0, 0, 1};
  static constexpr wire::Endpoint kPeer{wire::Ipv4Address(10, 0, 0, 2), 5000};
  static constexpr wire::Endpoint kStranger{wire::Ipv4Address(10, 0, 0, 77), 5000};
  static constexpr wire::Ipv4Address kGroup{239, 1, 2, 3};

  RingTest();
  ~RingTest() override;

  // Options of the ring; change them before Open().
  RingOptions options;
  MemoryNic::Options nic_options;
  MemoryKernel::Link link;
  base::Nanoseconds clock_period = base::Seconds(3600);
  base::Nanoseconds counters_period = base::Seconds(3600);

  // Opens engine and ring; Start()s it unless told not to.
  void Open(bool start = true);
  // Opens a socket, waits for its OP_DONE, expects success.
  Handle OpenSocket(UdpOptions udp);
  Handle OpenSocket(uint16_t port) { return OpenSocket({.local = {{}, port}}); }
  void Join(Handle socket, wire::Ipv4Address group);
  void Connect(Handle socket, wire::Endpoint peer);
  SendResult Send(Handle socket, std::string_view payload, SendOptions options = {});

  // Waits for the control thread; then polls until nothing more comes.
  std::vector<Completion> Settle();
  // Polls until nothing more comes. The ring keeps what is not released.
  std::vector<Completion> PollAll(uint32_t max = 64);
  // One poll.
  std::vector<Completion> PollOnce(uint32_t max = 64);
  static void Release(const std::vector<Completion>& completions);
  static std::string Text(const Completion& packet) {
    return std::string(reinterpret_cast<const char*>(packet.data), packet.length);
  }
  static std::vector<Kind> Kinds(const std::vector<Completion>& completions);

  MemoryQueuePair& queue() { return *nic->queue(0); }
  bool Inject(const FrameFields& fields) { return queue().Inject(MakeFrame(fields)); }
  uint64_t Counter(std::string_view scope, std::string_view name);

  std::atomic<uint64_t> now{1'000'000'000};
  std::atomic<uint64_t> look_ns{0};  // What each look at the clock takes.
  MemoryNic* nic = nullptr;
  int nic_opened = 0;  // How often.
  MemoryKernel* kernel = nullptr;
  std::unique_ptr<Engine> engine;
  std::unique_ptr<Ring> ring;
};

}  // namespace xtreme::engine::testing

#endif  // XTREME_XTREME_ENGINE_TESTING_RING_FIXTURE_H_
