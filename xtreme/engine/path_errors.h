// SPDX-License-Identifier: Apache-2.0
//
// PathErrors: ICMP errors about TCP segments on their way from the control thread to the rings of
// the interface on which they came in.
//
// Invariant: at most kMostWaiting batches wait for a ring; what is beyond that is counted and gone,
// so that a flood of them costs a ring that does not poll nothing.
// Threads: filled and handed on by the control thread; read by the rings' owners.

#ifndef XTREME_XTREME_ENGINE_PATH_ERRORS_H_
#define XTREME_XTREME_ENGINE_PATH_ERRORS_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "stack/ip/icmp_error.h"
#include "xtreme/host/icmp_errors.h"

namespace xtreme::engine {

class Mailbox;

struct PathErrors {
  std::vector<ip::SocketError> errors;
  host::IcmpRefusals refusals;  // Of the messages that came with them.
};

// The way to one ring.
class PathErrorsWay {
 public:
  static constexpr uint32_t kMostWaiting = 16;

  void HandOn(const std::shared_ptr<const PathErrors>& batch, Mailbox& mailbox);

 private:
  std::shared_ptr<std::atomic<uint32_t>> waiting_ = std::make_shared<std::atomic<uint32_t>>(0);
  uint64_t lost_ = 0;  // Of those the ring was not told of yet.
};

}  // namespace xtreme::engine

#endif  // XTREME_XTREME_ENGINE_PATH_ERRORS_H_
