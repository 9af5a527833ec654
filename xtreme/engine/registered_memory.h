// SPDX-License-Identifier: Apache-2.0
//
// RegisteredMemory: memory of the application that a ring sends from without a copy. Each region is
// one buffer, which whoever sends from it holds; when nobody does any more, the NIC lets go of it.
//
// Invariant: a region is told as released when neither a reference nor a posted frame nor the NIC
// is left of it. It is registered with every port that the ring may go to, each of which knows it
// by a key.
// Units: bytes. Threads: the ring's owner; the NIC is asked on the control thread.

#ifndef XTREME_XTREME_ENGINE_REGISTERED_MEMORY_H_
#define XTREME_XTREME_ENGINE_REGISTERED_MEMORY_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "stack/packet/buffer_pool.h"
#include "xtreme/engine/outcome.h"
#include "xtreme/engine/send_flow.h"

namespace xtreme::nic {
class Nic;
}

namespace xtreme::engine {

struct ControlSide;
struct RingCore;
struct RingRemains;

struct MemoryRequest {
  void* start = nullptr;
  size_t bytes = 0;
  // Called once, when the region is released: on the owner's thread, or on any once the ring is
  // closed. May be null.
  void (*released)(void* context, void* start) = nullptr;
  void* context = nullptr;
  uint64_t cookie = 0;
};

class RegisteredMemory {
 public:
  static constexpr uint32_t kMaxRegions = 64;
  static constexpr size_t kMaxBytes = size_t{1} << 31;

  explicit RegisteredMemory(RingCore* core) : core_(core) {}
  RegisteredMemory(const RegisteredMemory&) = delete;
  RegisteredMemory& operator=(const RegisteredMemory&) = delete;

  // As Ring::RegisterMemory.
  Outcome Register(const MemoryRequest& request, packet::Buffer** buffer);

  // The number of the region that the payload lies in, from 1 on; 0: in none that the NIC knows.
  uint32_t NumberOf(const Payload& payload) const;
  // What the ring's port knows region `number` by.
  uint32_t Key(uint32_t number) const;
  // The same of the region that is `pool`'s buffer.
  uint32_t KeyOf(const packet::BufferPool* pool) const;

  // Looks at what other threads released of a region.
  void DrainReturns(uint64_t serial);
  // The calling thread owns the ring from here on.
  void Adopt();
  // The ring closes: every region stays until its queues are gone.
  void Bury(RingRemains* remains);

 private:
  using Keys = std::array<uint32_t, 2>;  // By port.

  struct Region {
    packet::BufferPool::Handle pool;  // Of one buffer; null: this place is free.
    uint64_t serial = 0;              // One for each registration.
    bool known = false;               // To the NIC, by `keys`.
    Keys keys{};
  };

  // On the control thread; null: a port without.
  static absl::StatusOr<Keys> RegisterWith(const std::vector<nic::Nic*>& nics, ControlSide& side,
                                           uint64_t serial, std::span<uint8_t> bytes);

  static void OnReturned(void* self, uint64_t serial);
  Region* Find(uint64_t serial);
  void StartRegistering(const Region& region, const MemoryRequest& request);

  RingCore* const core_;
  std::vector<Region> regions_;
  uint64_t serial_ = 0;  // Of the newest.
};

}  // namespace xtreme::engine

#endif  // XTREME_XTREME_ENGINE_REGISTERED_MEMORY_H_
