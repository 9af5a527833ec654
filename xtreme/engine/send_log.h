// SPDX-License-Identifier: Apache-2.0
//
// SendLog: what must happen when posted frames have left the NIC.
//
// Only frames of which something is wanted (a TX_WIRE, a TX_DONE, a buffer's release) have a
// record; the others cost nothing here. Invariant: records stand in the order of their frames'
// numbers, so a send completion ("everything up to frame N") settles a prefix.
// Threads: the ring's owner. Never allocates after construction.

#ifndef XTREME_XTREME_ENGINE_SEND_LOG_H_
#define XTREME_XTREME_ENGINE_SEND_LOG_H_

#include <cerrno>
#include <cstdint>
#include <memory>
#include <span>

#include "stack/base/ring_index.h"
#include "stack/packet/buffer.h"
#include "xtreme/engine/handle.h"

namespace xtreme::tcp {
class Connection;
struct Segment;
}  // namespace xtreme::tcp

namespace xtreme::engine {

enum Want : uint8_t {
  kWantNothing = 0,
  kWantWire = 1 << 0,
  kWantDone = 1 << 1,
  // TCP is told that its segment is referred to no more; with kWantWire if the time counts. Alone
  // it waits for the completion of what is posted behind it, up to the doorbell.
  kWantSegment = 1 << 2,
  // What its buffer refers to is the program's own memory, which is given back then; nothing is
  // told. Alone it waits in the same way.
  kWantRelease = 1 << 3,
};

struct SendRecord {
  uint32_t frame = 0;      // Its number: settled when this many frames have completed.
  uint8_t wants = 0;       // Want: what is still to be told.
  bool asked = false;      // Something was wanted when it was added.
  Handle socket = 0;
  uint64_t cookie = 0;
  packet::Buffer* buffer = nullptr;  // One reference, released when settled.
  uint64_t hw_clock = 0;   // Of the completion that settled it.
  int error = 0;           // ECANCELED when it may not have left.
  tcp::Connection* connection = nullptr;  // Under kWantSegment, with the segment.
  tcp::Segment* segment = nullptr;
};

class SendLog {
 public:
  // `frames`: the depth of the send queue, a power of two.
  explicit SendLog(uint32_t frames)
      : indices_(base::RingSize::Covering(frames)),
        records_(std::make_unique<SendRecord[]>(indices_.size().entries())) {}

  std::span<std::byte> memory() {
    return std::as_writable_bytes(std::span(records_.get(), indices_.size().entries()));
  }
  bool full() const { return indices_.full(); }
  uint32_t room() const { return indices_.free(); }
  bool empty() const { return indices_.empty(); }
  // Frames completed, free-running.
  uint32_t completed() const { return completed_; }
  // Records that want a completion and are not settled.
  uint32_t wanted() const { return wanted_; }

  void Add(const SendRecord& record) {
    SendRecord& added = records_[indices_.producer_slot()];
    added = record;
    added.asked = record.wants != kWantNothing;
    indices_.Produce(1);
    if (added.asked) ++wanted_;
  }

  // The same of a segment of which only this is to be told to TCP; what else a record has, nobody
  // reads then.
  void AddSegment(uint32_t frame, tcp::Connection* connection, tcp::Segment* segment) {
    SendRecord& added = records_[indices_.producer_slot()];
    added.frame = frame;
    added.wants = kWantSegment;
    added.asked = true;
    added.buffer = nullptr;
    added.error = 0;
    added.connection = connection;
    added.segment = segment;
    indices_.Produce(1);
    ++wanted_;
  }

  // The one that was added last, before anything settles.
  SendRecord& newest() { return records_[indices_.size().Slot(indices_.producer() - 1)]; }

  // Everything up to `frames` has left the NIC at `hw_clock`.
  void Complete(uint32_t frames, uint64_t hw_clock) {
    completed_ = frames;
    for (; settled_ != indices_.producer(); ++settled_) {
      SendRecord& record = records_[indices_.size().Slot(settled_)];
      if (static_cast<int32_t>(frames - record.frame) < 0) return;
      record.hw_clock = hw_clock;
    }
  }

  // The clock is another: what is settled has no time.
  void ForgetTimes() {
    for (uint32_t i = indices_.consumer(); i != settled_; ++i) {
      records_[indices_.size().Slot(i)].hw_clock = 0;
    }
  }

  // The queue has stopped: whatever is not settled may not have left.
  void Abandon() {
    for (; settled_ != indices_.producer(); ++settled_) {
      records_[indices_.size().Slot(settled_)].error = ECANCELED;
    }
  }

  // Frames are counted from 0 again: the queue is another one. Everything is settled.
  void Restart() { completed_ = 0; }

  // The oldest settled record; null when there is none.
  SendRecord* Settled() {
    if (indices_.consumer() == settled_) return nullptr;
    return &records_[indices_.consumer_slot()];
  }
  template <typename Visit>
  void ForEach(Visit&& visit) const {
    for (uint32_t i = indices_.consumer(); i != indices_.producer(); ++i) {
      visit(records_[indices_.size().Slot(i)]);
    }
  }
  void Pop() {
    if (records_[indices_.consumer_slot()].asked) --wanted_;
    indices_.Consume(1);
  }

 private:
  base::RingIndices indices_;
  std::unique_ptr<SendRecord[]> records_;
  uint32_t settled_ = 0;    // Records before it are settled.
  uint32_t completed_ = 0;
  uint32_t wanted_ = 0;
};

}  // namespace xtreme::engine

#endif  // XTREME_XTREME_ENGINE_SEND_LOG_H_
