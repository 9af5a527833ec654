// SPDX-License-Identifier: Apache-2.0
//
// Where a flow rule points: the receive queue of a QP, or a spread of queues by a Toeplitz hash.
//
// Invariant: the same flow always goes to the same queue, and where its source and its destination
// are hashed the other direction goes there too.
// Units: none; the key is 40 bytes as the program gave them. Thread: the device's lock.
// Spec: "Receive Side Scaling" hash of NDIS; IBV_RX_HASH_*. The kernel's mlx5_ib always sets
// rx_hash_symmetric (create_rss_raw_qp_tir), which is Linux's "Symmetric-OR-XOR"
// (Documentation/networking/scaling.rst).

#ifndef XTREME_TOOLS_CONNECTX_DEVICE_RECEIVE_TARGET_H_
#define XTREME_TOOLS_CONNECTX_DEVICE_RECEIVE_TARGET_H_

#include <array>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "tools/connectx/device/frame.h"
#include "tools/connectx/device/receive_queue.h"

namespace xtreme::connectx {

// The hash of `input`, which is at most 36 bytes.
uint32_t ToeplitzHash(const std::array<uint8_t, 40>& key, std::span<const uint8_t> input);

class ReceiveTarget {
 public:
  struct Choice {
    ReceiveQueue* queue;
    uint32_t rx_hash;  // 0: none was computed.
  };

  ReceiveTarget(uint32_t qpn, ContextId context, ReceiveQueue* queue,
                SelfLoopback self_loopback = {})
      : qpn_(qpn), context_(context), self_loopback_(self_loopback), queues_{queue} {}
  // `queues`: a power of two of them. `fields`: IBV_RX_HASH_*.
  ReceiveTarget(uint32_t qpn, ContextId context, std::vector<ReceiveQueue*> queues,
                const std::array<uint8_t, 40>& key, uint64_t fields,
                SelfLoopback self_loopback = {})
      : qpn_(qpn),
        context_(context),
        self_loopback_(self_loopback),
        queues_(std::move(queues)),
        key_(key),
        fields_(fields) {}

  Choice Choose(const Frame& frame) const {
    if (fields_ == 0) return {queues_[0], 0};
    return Spread(frame);
  }

  uint32_t qpn() const { return qpn_; }
  ContextId context() const { return context_; }
  const SelfLoopback& self_loopback() const { return self_loopback_; }
  uint32_t rules = 0;  // That point here.

 private:
  Choice Spread(const Frame& frame) const;

  const uint32_t qpn_;
  const ContextId context_;
  const SelfLoopback self_loopback_;
  const std::vector<ReceiveQueue*> queues_;
  const std::array<uint8_t, 40> key_{};
  const uint64_t fields_ = 0;
};

}  // namespace xtreme::connectx

#endif  // XTREME_TOOLS_CONNECTX_DEVICE_RECEIVE_TARGET_H_
