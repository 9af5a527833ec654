// SPDX-License-Identifier: Apache-2.0

#include "tools/connectx/device/violation.h"

#include "absl/strings/str_cat.h"

namespace xtreme::connectx {

std::string_view RuleName(Rule rule) {
  switch (rule) {
    case Rule::kWqeIndex:
      return "wqe_index";
    case Rule::kWqeQpn:
      return "wqe_qpn";
    case Rule::kWqeSize:
      return "wqe_size";
    case Rule::kOpcode:
      return "opcode";
    case Rule::kInlineHeader:
      return "inline_header";
    case Rule::kFrameLength:
      return "frame_length";
    case Rule::kMemoryKey:
      return "memory_key";
    case Rule::kSegmentation:
      return "segmentation";
    case Rule::kFeature:
      return "feature";
    case Rule::kSendOverrun:
      return "send_overrun";
    case Rule::kReceiveOverrun:
      return "receive_overrun";
    case Rule::kReceiveLength:
      return "receive_length";
    case Rule::kCqOverrun:
      return "cq_overrun";
    case Rule::kCqConsumer:
      return "cq_consumer";
    case Rule::kCqArm:
      return "cq_arm";
    case Rule::kDoorbellRecord:
      return "doorbell_record";
    case Rule::kDoorbellBytes:
      return "doorbell_bytes";
    case Rule::kQueueState:
      return "queue_state";
    case Rule::kFreedQueue:
      return "freed_queue";
    case Rule::kFlowTag:
      return "flow_tag";
  }
  return "unknown";
}

uint8_t VendorSyndrome(Rule rule) {
  constexpr uint8_t kMalformedWqe = 0x68;
  constexpr uint8_t kNoTranslation = 0x52;
  switch (rule) {
    case Rule::kWqeIndex:
    case Rule::kWqeQpn:
    case Rule::kWqeSize:
    case Rule::kOpcode:
    case Rule::kInlineHeader:
    case Rule::kSegmentation:
    case Rule::kFeature:
      return kMalformedWqe;
    case Rule::kMemoryKey:
      return kNoTranslation;
    default:
      return static_cast<uint8_t>(rule);
  }
}

void ViolationLog::Report(Rule rule, std::string_view object, std::string_view seen) {
  if (!enabled_) return;
  std::string line =
      absl::StrCat(std::string(RuleName(rule)), ": ", std::string(object), ": ", std::string(seen));
  std::lock_guard lock(mutex_);
  if (kept_.size() < kKept) kept_.push_back(std::move(line));
}

std::vector<std::string> ViolationLog::Snapshot() const {
  std::lock_guard lock(mutex_);
  return kept_;
}

}  // namespace xtreme::connectx
