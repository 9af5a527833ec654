// SPDX-License-Identifier: Apache-2.0
//
// What the program did wrong, in words: the rule, the object, what was seen. Error CQEs punish as
// the card does; this says why.
//
// Invariant: the first kKept are kept: what went wrong first explains the rest.
// Thread: any.

#ifndef XTREME_TOOLS_CONNECTX_DEVICE_VIOLATION_H_
#define XTREME_TOOLS_CONNECTX_DEVICE_VIOLATION_H_

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace xtreme::connectx {

enum class Rule : uint8_t {
  kWqeIndex = 1,    // The index in a WQE is that of the WQEBB it stands in.
  kWqeQpn,          // The QPN in a WQE is that of its queue.
  kWqeSize,         // ds covers the WQE's segments, and the record covers the WQE.
  kOpcode,          // The queue can do what the opcode asks.
  kInlineHeader,    // The L2 header is inline where the device needs it.
  kFrameLength,     // A frame has an Ethernet header and fits the MTU.
  kMemoryKey,       // A key is the program's, of its PD, and covers the range.
  kSegmentation,    // TSO: the inline header is that of a TCP segment, whole.
  kFeature,         // The device said it can do what is asked.
  kSendOverrun,     // The record is at most a ring ahead of the device.
  kReceiveOverrun,  // The same for receives.
  kReceiveLength,   // A received frame fits its scatter list.
  kCqOverrun,       // A CQ has room for every CQE.
  kCqConsumer,      // A consumer index is not ahead of what was produced.
  kCqArm,           // An arm carries the last event's sequence number, and what the record says.
  kDoorbellRecord,  // The record is written before the doorbell.
  kDoorbellBytes,   // A doorbell, or BlueFlame, carries the bytes of the WQE in the ring.
  kQueueState,      // Doorbells are for queues that are ready to send.
  kFreedQueue,      // And for queues that were not destroyed.
  kFlowTag,         // Equal matches have one tag.
};

// "wqe_index" and so on.
std::string_view RuleName(Rule rule);

// The vendor_err_synd of an error CQE: firmware does not publish them. What cards in the field were
// seen to answer where that is known, else the rule's number.
uint8_t VendorSyndrome(Rule rule);
inline constexpr uint8_t kFlushVendorSyndrome = 0xf9;

class ViolationLog {
 public:
  static constexpr size_t kKept = 256;

  // Not enabled: forgets everything, and Report costs nothing.
  explicit ViolationLog(bool enabled) : enabled_(enabled) {}

  // `object`: "QP 0x41". `seen`: what, against what.
  void Report(Rule rule, std::string_view object, std::string_view seen);

  bool enabled() const { return enabled_; }
  std::vector<std::string> Snapshot() const;

 private:
  const bool enabled_;
  mutable std::mutex mutex_;
  std::vector<std::string> kept_;
};

}  // namespace xtreme::connectx

#endif  // XTREME_TOOLS_CONNECTX_DEVICE_VIOLATION_H_
