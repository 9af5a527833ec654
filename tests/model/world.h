// SPDX-License-Identifier: Apache-2.0
//
// World: the library's C API on an engine of the test's: four rings on the two ports of a software
// ConnectX, a cable with faults between them, a kernel in memory and virtual time.
//
// Rings 0 and 1 are on xt0, 10.0.0.1; rings 2 and 3 on xt1, 10.0.1.1. What one side sends to the
// other leaves its device and arrives at the other's.
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
  void Plug(bool plugged);

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

  std::vector<std::shared_ptr<void>> kept_;
  std::atomic<uint64_t> now_{1'000'000'000};
  std::array<std::unique_ptr<connectx::ImpairedWire>, 2> wires_;
  std::unique_ptr<connectx::SoftwareConnectX> devices_;
  engine::testing::MemoryKernel* kernel_ = nullptr;
  std::shared_ptr<engine::Engine> engine_;
  std::array<xtreme_ring, kRings> rings_{};
};

}  // namespace xtreme::model

#endif  // XTREME_TESTS_MODEL_WORLD_H_
