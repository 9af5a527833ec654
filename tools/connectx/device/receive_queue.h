// SPDX-License-Identifier: Apache-2.0
//
// The device's side of a receive queue: scatters one frame into the next posted WQE and completes
// it.
//
// Invariant: WQEs are taken only up to the doorbell record, and only while the queue is ready;
// without one the frame is dropped and the port counts out_of_buffer, as on a card. Units: WQEs;
// indices are 16 bits and run free. Byte order: WQEs and CQEs are big endian. Thread: the device's
// lock. Spec: struct mlx5_wqe_data_seg, struct mlx5_cqe64.

#ifndef XTREME_TOOLS_CONNECTX_DEVICE_RECEIVE_QUEUE_H_
#define XTREME_TOOLS_CONNECTX_DEVICE_RECEIVE_QUEUE_H_

#include <cstdint>

#include "tools/connectx/device/completion_queue.h"
#include "tools/connectx/device/environment.h"
#include "tools/connectx/device/frame.h"
#include "tools/connectx/device/requests.h"

namespace xtreme::connectx {

// A frame on its way to queues.
struct Arrival {
  Frame frame;
  ChecksumVerdict verdict{};
  bool verified = false;  // The verdict was computed.
  int64_t time_ns = 0;    // When it came.
  uint32_t flow_tag = 0;
  uint32_t rx_hash = 0;  // 0: none was computed.
};

class ReceiveQueue {
 public:
  struct Identity {
    uint32_t number;  // QPN or RQN.
    uint32_t pd;
    uint32_t uidx;
  };

  // `record` is the receive word. `cq`, `owner` and `environment` outlive the queue.
  ReceiveQueue(const ReceiveQueueRequest& request, uint32_t* record, const Identity& identity,
               CompletionQueue* cq, QueueOwner* owner, Environment* environment);
  ~ReceiveQueue();
  ReceiveQueue(const ReceiveQueue&) = delete;
  ReceiveQueue& operator=(const ReceiveQueue&) = delete;

  // To kReset: indices start anew. To kError: the pump flushes posted WQEs by FlushPosted.
  void SetState(QueueState state);
  QueueState state() const { return state_; }

  // From the next frame on.
  void StripVlan(bool strip) { strip_vlan_ = strip; }
  bool strips_vlan() const { return strip_vlan_; }

  void Deliver(const Arrival& arrival);

  // In error: completes newly posted WQEs with a flush error. True when there was one.
  bool FlushPosted();

 private:
  struct Fault {
    uint8_t syndrome = 0;
    Rule rule = Rule::kMemoryKey;
  };

  bool TakePosted();
  bool Strips(const Frame& frame) const;
  // `frame` without `gap`, a piece of it that may be empty.
  Fault Scatter(std::span<const uint8_t> frame, std::span<const uint8_t> gap);
  void Complete(const Arrival& arrival, bool stripped);
  // False: the CQ has no room for it.
  bool CompleteInError(uint8_t syndrome, uint8_t vendor_syndrome);
  // Into error; `completed` as for QueueOwner.
  void Fail(bool completed);

  const Identity identity_;
  uint8_t* const ring_;
  const uint32_t wqes_;
  const uint32_t wqe_shift_log2_;
  uint32_t* const record_;
  CompletionQueue* const cq_;
  QueueOwner* const owner_;
  Environment* const environment_;

  QueueState state_ = QueueState::kReset;
  uint16_t producer_ = 0;  // As last read from the record.
  uint16_t consumer_ = 0;
  bool strip_vlan_;
};

}  // namespace xtreme::connectx

#endif  // XTREME_TOOLS_CONNECTX_DEVICE_RECEIVE_QUEUE_H_
