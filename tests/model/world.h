// SPDX-License-Identifier: Apache-2.0
//
// World: the library's C API on an engine of the test's: four rings on the two ports of a software
// ConnectX, a hub with faults between them, a kernel in memory and virtual time.
//
// Rings 0 and 1 are on xt0, 10.0.0.1; rings 2 and 3 on xt1, 10.0.1.1. What one side sends to the
// other leaves its device and arrives at the other's. A third port, xt2 with 10.0.0.3, is in the
// network of xt0, to be its rings' backup.
// Threads: the test's; the control thread is waited for by Settle().

#ifndef XTREME_TESTS_MODEL_WORLD_H_
#define XTREME_TESTS_MODEL_WORLD_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "api/xtreme.h"

namespace xtreme::connectx {
class ImpairedWire;
class SoftwareConnectX;
struct Impairment;
}  // namespace xtreme::connectx
namespace xtreme::engine {
class Engine;
namespace testing {
class MemoryKernel;
}
}  // namespace xtreme::engine

namespace xtreme::model {

class World {
 public:
  static constexpr int kRings = 4;

  // Where a ring is.
  static constexpr int SideOf(int ring) { return ring / 2; }
  static xtreme_address AddressOf(int side, uint16_t port);

  // `seed`: of the wire's faults.
  explicit World(uint64_t seed);
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  // Both directions.
  void Impair(const connectx::Impairment& impairment);
  // Pulls the cable of a port (0 to 2), or plugs it in.
  void Plug(int port, bool plugged);
  // What a side's kernel has of the way to the other.
  void SetMtu(int side, uint32_t mtu);
  void SetRoute(int side, bool there);
  void SetNeighbour(int side, bool known);
  // Side 1 hears by which port (0 or 2) side 0's address is reached.
  void Announce(int port);
  static uint32_t IfindexOf(int port) { return 7 + static_cast<uint32_t>(port); }

  // Empty, or what went wrong.
  std::string OpenRing(int index, const xtreme_ring_options& options);
  int CloseRing(int index);
  xtreme_ring ring(int index) const { return rings_[static_cast<size_t>(index)]; }
  static xtreme_ring_options Options();

  // The devices and the wire work for so long.
  void Advance(int64_t ns);
  void Settle();
  int64_t now_ns() const { return static_cast<int64_t>(now_.load()); }
  // Frames that the wire lost, and devices dropped for want of buffers.
  uint64_t Lost() const;
  uint64_t Counter(int ring, std::string_view scope, std::string_view name) const;

  // What is to outlive every ring.
  void Keep(std::shared_ptr<void> what) { kept_.push_back(std::move(what)); }

  // What hardware punishes, and what is left on the devices; empty: nothing.
  std::string Remains() const;

 private:
  void FillTables();
  void FillRoutes();

  std::vector<std::shared_ptr<void>> kept_;
  std::atomic<uint64_t> now_{1'000'000'000};
  std::array<std::unique_ptr<connectx::ImpairedWire>, 3> wires_;
  std::array<bool, 3> route_there_{true, true, true};
  std::array<bool, 3> neighbour_known_{true, true, true};
  int side_0_at_ = 0;
  std::unique_ptr<connectx::SoftwareConnectX> devices_;
  engine::testing::MemoryKernel* kernel_ = nullptr;
  std::shared_ptr<engine::Engine> engine_;
  std::array<xtreme_ring, kRings> rings_{};
};

}  // namespace xtreme::model

#endif  // XTREME_TESTS_MODEL_WORLD_H_
