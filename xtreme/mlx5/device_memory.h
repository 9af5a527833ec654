// SPDX-License-Identifier: Apache-2.0
//
// DeviceMemoryRing: on-device memory as a ring that payloads are written to and sent from.
//
// Invariant: tail <= head <= tail + size (free-running counts of bytes); what lies between belongs
// to frames that are not known to have completed. A payload lies in one piece, on whole cache
// lines: the rest of a lap that is too short for it is passed over.
// Units: bytes, free-running counts of frames. Written by us, read by the device. Thread: the
// ring's owner. Allocates only when it is made.

#ifndef XTREME_XTREME_MLX5_DEVICE_MEMORY_H_
#define XTREME_XTREME_MLX5_DEVICE_MEMORY_H_

#include <cstdint>
#include <memory>
#include <optional>

#include "xtreme/mlx5/queue_memory.h"

namespace xtreme::mlx5 {

class DeviceMemoryRing {
 public:
  // `frames`: of the send queue, a power of two.
  DeviceMemoryRing(const DeviceMemory& memory, uint32_t frames);

  bool present() const { return size_ != 0; }
  uint32_t key() const { return memory_.key; }

  // Copies a payload for the frame that is posted as number `frame`, and flushes it towards the
  // device. Its address under key(); nothing when there is no room. `completed`: how many frames
  // have, whose room is free again.
  std::optional<uint32_t> Write(const uint8_t* payload, uint32_t length, uint32_t frame,
                                uint32_t completed);

 private:
  // What one frame holds: up to `end`.
  struct Piece {
    uint32_t frame;
    uint32_t end;
  };

  // Where `bytes` would lie in one piece: the count of their first byte.
  uint32_t PlaceFor(uint32_t bytes) const;
  bool HasRoom(uint32_t bytes) const { return PlaceFor(bytes) + bytes - tail_ <= size_; }
  void Reclaim(uint32_t completed);

  const DeviceMemory memory_;
  const uint32_t size_;
  const uint32_t piece_mask_;
  uint32_t head_ = 0;
  uint32_t tail_ = 0;
  uint32_t newest_ = 0;  // Free-running counts of pieces.
  uint32_t oldest_ = 0;
  std::unique_ptr<Piece[]> pieces_;
};

}  // namespace xtreme::mlx5

#endif  // XTREME_XTREME_MLX5_DEVICE_MEMORY_H_
