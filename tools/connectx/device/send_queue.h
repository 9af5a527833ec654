// SPDX-License-Identifier: Apache-2.0
//
// The device's side of a send queue: executes WQEs from the ring up to what the doorbell record
// said when a doorbell rang, puts frames together, finishes their checksums and completes them.
//
// Invariant: nothing runs without a doorbell, and a WQE is read from the ring, never from
// BlueFlame. Units: WQEBBs of 64 bytes; indices are 16 bits and run free. Byte order: big endian in
// memory. Thread: the device's lock. Spec: struct mlx5_wqe_ctrl_seg and following.

#ifndef XTREME_TOOLS_CONNECTX_DEVICE_SEND_QUEUE_H_
#define XTREME_TOOLS_CONNECTX_DEVICE_SEND_QUEUE_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "tools/connectx/device/completion_queue.h"
#include "tools/connectx/device/environment.h"
#include "tools/connectx/device/layout.h"
#include "tools/connectx/device/requests.h"

namespace xtreme::connectx {

// Where frames leave a send queue. The bytes are the queue's own until Send returns.
class Egress {
 public:
  virtual ~Egress() = default;
  virtual void Send(std::span<const uint8_t> frame, ContextId from) = 0;
};

class SendQueue {
 public:
  // `cq`, `owner` and `environment` outlive the queue.
  SendQueue(const QpRequest& request, uint32_t qpn, CompletionQueue* cq, QueueOwner* owner,
            Environment* environment);
  SendQueue(const SendQueue&) = delete;
  SendQueue& operator=(const SendQueue&) = delete;

  // To kReset: indices start anew. To kError: what is posted is flushed by the next Run.
  void SetState(QueueState state);
  QueueState state() const { return state_; }
  void SetRate(const Rate& rate);

  // A doorbell rang on the queue's page: everything up to the record may run.
  void Ring();
  // Strict: the eight bytes rung, and what lies in BlueFlame, against record and ring. `slot` is
  // the register it was rung at. To be called before Ring().
  void CheckDoorbell(uint64_t rung, const uint8_t* slot);

  // Executes at most `budget` WQEs. True when it executed any.
  bool Run(Egress& egress, int budget);
  bool has_work() const { return consumer_ != target_; }
  // With work left: when pacing lets it go on; 0 when at once.
  int64_t not_before_ns() const { return pace_.next_ns - pace_.burst_ns; }

  uint32_t qpn() const { return qpn_; }

 private:
  struct Wqe {
    uint32_t opcode;
    uint32_t segments;
    uint16_t index;
    uint16_t wqebbs;
    CompletionMode completion;
  };
  // The Ethernet segment.
  struct Ethernet {
    uint8_t checksums = 0;
    uint32_t mss = 0;
    uint32_t header_bytes = 0;  // Inline.
    uint32_t vlan_tag = 0;      // To insert: TPID in the upper half, TCI in the lower; 0: none.
  };
  struct Fault {
    uint8_t syndrome = 0;  // 0: none.
    Rule rule = Rule::kOpcode;
  };
  struct Pace {
    Rate rate;
    int64_t burst_ns = 0;      // How far ahead of its rate the queue may be.
    int64_t next_ns = 0;       // When what was sent so far would have left at the rate.
    uint64_t remainder = 0;    // Of the division that made it.
    bool waiting = false;      // Work was held back until not_before_ns().
  };

  const uint8_t* Segment(uint32_t segment) const;
  // What BlueFlame may hold of a WQE.
  struct WqeStart {
    size_t length() const { return std::min<size_t>(segments * kSegmentBytes, bytes.size()); }
    uint32_t wqebbs() const { return std::max(1u, (segments + 3) / kSegmentsPerWqebb); }

    std::array<uint8_t, kBlueFlameBytes> bytes = {};
    uint32_t segments = 0;
  };
  WqeStart StartOf(uint16_t index) const;
  bool MayLieInBlueFlame(const uint8_t* slot, uint16_t index) const;
  void CopyFromRing(uint32_t offset_bytes, size_t bytes, uint8_t* to) const;

  // send_queue.cc: order, pace and completion.
  void ExecuteNext(Egress& egress);
  Fault Check(const Wqe& wqe, uint32_t index, uint32_t qpn) const;
  bool MustWait() const;
  void Delay(size_t frame_bytes);
  void Complete(const Wqe& wqe);
  void CompleteInError(const Wqe& wqe, const Fault& fault);
  // Into error, and the rest is flushed. `completed` as for QueueOwner.
  void Fail(bool completed);
  void Report(Rule rule, std::string_view seen) const;
  Fault Refuse(Rule rule, uint8_t syndrome, const Wqe& wqe, std::string_view seen) const;

  // send_frames.cc: from a WQE to frames.
  Fault Send(const Wqe& wqe, Egress& egress);
  Fault ReadEthernet(const Wqe& wqe, Ethernet* eth) const;
  Fault CheckInline(const Wqe& wqe, const Ethernet& eth) const;
  Fault Collect(const Wqe& wqe, const Ethernet& eth);
  Fault CollectInline(const Wqe& wqe, uint32_t* segment);
  Fault CollectMemory(const Wqe& wqe, uint32_t segment);
  Fault SendWhole(const Wqe& wqe, const Ethernet& eth, Egress& egress);
  Fault SendSegments(const Wqe& wqe, const Ethernet& eth, Egress& egress);
  std::span<const uint8_t> Assemble(const Wqe& wqe, const Ethernet& eth);
  Fault Emit(const Wqe& wqe, const Ethernet& eth, std::span<const uint8_t> frame, Egress& egress);
  Fault CheckLength(const Wqe& wqe, std::span<const uint8_t> frame) const;

  const uint32_t qpn_;
  const ContextId context_;
  const uint32_t pd_;
  const uint32_t uidx_;
  const uint8_t* const ring_;
  const uint32_t wqebbs_;
  uint32_t* const record_;
  CompletionQueue* const cq_;
  QueueOwner* const owner_;
  Environment* const environment_;

  QueueState state_ = QueueState::kReset;
  uint16_t consumer_ = 0;
  uint16_t target_ = 0;  // The record at the last doorbell.
  uint32_t segments_sent_ = 0;  // Of a TSO WQE at `consumer_` that its pace interrupted.
  Pace pace_;
};

}  // namespace xtreme::connectx

#endif  // XTREME_TOOLS_CONNECTX_DEVICE_SEND_QUEUE_H_
