// SPDX-License-Identifier: Apache-2.0
//
// What a send WQE consists of behind its headers, as a list of places in memory: bytes that stand
// in the ring (inline) and bytes of registered memory, on-device memory included.
//
// Invariant: every piece was checked against its key or the WQE's end before it was listed.
// Units: bytes. Thread: the device's lock.
// Spec: struct mlx5_wqe_data_seg, struct mlx5_wqe_inl_data_seg.

#ifndef XTREME_TOOLS_CONNECTX_DEVICE_GATHER_H_
#define XTREME_TOOLS_CONNECTX_DEVICE_GATHER_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "tools/connectx/device/layout.h"

namespace xtreme::connectx {

class GatherList {
 public:
  void Clear() { count_ = bytes_ = taken_ = piece_ = 0; }
  // At most kMaxPieces.
  void Add(const uint8_t* start, size_t bytes) {
    pieces_[count_++] = {start, bytes};
    bytes_ += bytes;
  }

  // The next `bytes` bytes, no more than remaining(), copied to `to`.
  void Take(size_t bytes, uint8_t* to) {
    while (bytes != 0) {
      const size_t now = std::min(bytes, pieces_[piece_].size() - taken_);
      CopyDma(to, pieces_[piece_].data() + taken_, now);
      to += now;
      bytes -= now;
      Advance(now);
    }
  }

  void Skip(size_t bytes) {
    while (bytes != 0) {
      const size_t now = std::min(bytes, pieces_[piece_].size() - taken_);
      bytes -= now;
      Advance(now);
    }
  }

  size_t remaining() const { return bytes_; }
  size_t count() const { return count_; }
  std::span<const uint8_t> piece(size_t index) const { return pieces_[index]; }

 private:
  // Within one piece.
  void Advance(size_t bytes) {
    bytes_ -= bytes;
    taken_ += bytes;
    if (taken_ != pieces_[piece_].size()) return;
    ++piece_;
    taken_ = 0;
  }

  // One a segment behind control and Ethernet segment, and one more where inline bytes go on at the
  // ring's start.
  static constexpr size_t kMaxPieces = kMaxSendWqeBytes / kSegmentBytes;

  std::array<std::span<const uint8_t>, kMaxPieces> pieces_;
  size_t count_ = 0;
  size_t bytes_ = 0;  // Not taken yet.
  size_t piece_ = 0;
  size_t taken_ = 0;  // Of pieces_[piece_].
};

}  // namespace xtreme::connectx

#endif  // XTREME_TOOLS_CONNECTX_DEVICE_GATHER_H_
