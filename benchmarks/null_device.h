// SPDX-License-Identifier: Apache-2.0
//
// NullDevice: a ConnectX that completes everything at once and moves no payload, on plain memory:
// what is measured over it is ours alone.
//
// It takes posted sends off the ring as far as the doorbell record says, writes a CQE for each that
// asks for one, and fills posted receive buffers with a CQE only: the frame that they all hold was
// written beforehand (WriteFrames); or, for protocols that look, carries headers to another device.
// Invariant: CQEs are those of a card, byte for byte, as far as a driver reads them.
// Units: frames, bytes, WQEBBs. Byte order: big endian in the rings.
// Thread: one, the ring's owner between its own calls or any other.

#ifndef XTREME_BENCHMARKS_NULL_DEVICE_H_
#define XTREME_BENCHMARKS_NULL_DEVICE_H_

#include <cstdint>
#include <memory>
#include <span>

#include "stack/packet/buffer_pool.h"
#include "xtreme/mlx5/queue_pair.h"
#include "xtreme/nic/nic.h"

namespace xtreme::mlx5 {
class TappedQueuePair;
}
namespace xtreme::stats {
class FrameTap;
}

namespace xtreme::benchmarks {

class NullDevice {
 public:
  struct Options {
    uint32_t send_frames_log2 = 10;
    uint32_t receive_frames_log2 = 10;
    bool device_memory = true;
    bool cuts_segments = true;
  };

  explicit NullDevice(const Options& options);
  ~NullDevice();
  NullDevice(const NullDevice&) = delete;
  NullDevice& operator=(const NullDevice&) = delete;

  // Where the queues of a driver shall lie; the device outlives them.
  mlx5::QueuePairMemory memory() const;

  // The register for doorbells and BlueFlame, both halves.
  std::span<const uint8_t> doorbells() const;
  // How far the doorbell record is, modulo 2^16. Any thread.
  uint16_t posted_wqebbs() const;
  // Everything posted has left. Returns the frames.
  uint32_t CompleteSends();
  // Up to `frames` frames of `bytes` arrive, as many as buffers are posted; returns how many.
  uint32_t CompleteReceives(uint32_t frames, uint32_t bytes);
  // Up to `most` posted frames have left, and their headers arrive in `to`'s posted buffers, where
  // there are some; of the payload only the length does. Returns how many left.
  uint32_t CarryTo(NullDevice* to, uint32_t most = ~uint32_t{0});

 private:
  struct Rings;

  void WriteSendCqe(uint16_t wqebb);
  uint32_t WriteHeaders(uint16_t wqebb, uint8_t* frame) const;
  // That the next frame comes to; null: none is posted.
  uint8_t* NextBuffer() const;
  // What the WQE sends arrives in `to`'s buffers; cut, if it says so.
  void Arrive(uint16_t wqebb, NullDevice* to) const;
  void ArriveCut(uint16_t wqebb, NullDevice* to) const;
  // The WQE at `sent_` is done with.
  void FinishSend();
  uint32_t posted_receives() const;
  void WriteReceiveCqe(uint32_t bytes);

  const Options options_;
  std::unique_ptr<Rings> rings_;
  uint16_t sent_ = 0;              // WQEBBs taken off the send ring, modulo 2^16.
  uint32_t send_cqes_ = 0;         // Written so far.
  uint32_t received_ = 0;          // Receive WQEs filled so far.
  uint64_t clock_ = 1'000'000;
};

// Writes `frame` into every buffer of `pool`, behind its headroom.
void WriteFrames(packet::BufferPool* pool, std::span<const uint8_t> frame);

// What the device offers: a card with BlueFlame, checksums and timestamps.
nic::Capabilities NullCapabilities(const NullDevice::Options& options);

// A driver's queue pair on the device.
std::unique_ptr<mlx5::PlainQueuePair> MakeQueuePair(const NullDevice& device,
                                               const NullDevice::Options& options,
                                               uint32_t signal_every, packet::BufferPool* pool);
// One whose frames go to `tap`.
std::unique_ptr<mlx5::TappedQueuePair> MakeTappedQueuePair(stats::FrameTap* tap,
                                                           const NullDevice& device,
                                                           const NullDevice::Options& options,
                                                           uint32_t signal_every,
                                                           packet::BufferPool* pool);

}  // namespace xtreme::benchmarks

#endif  // XTREME_BENCHMARKS_NULL_DEVICE_H_
