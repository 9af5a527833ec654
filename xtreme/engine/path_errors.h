// SPDX-License-Identifier: Apache-2.0
//
// PathErrors: ICMP errors about TCP segments on their way from the control thread to the rings of
// the interface on which they came in.
//
// Threads: filled and handed on (bounded_way.h) by the control thread; read by the rings' owners.

#ifndef XTREME_XTREME_ENGINE_PATH_ERRORS_H_
#define XTREME_XTREME_ENGINE_PATH_ERRORS_H_

#include <cstdint>
#include <vector>

#include "stack/ip/icmp_error.h"
#include "xtreme/host/icmp_errors.h"

namespace xtreme::engine {

struct PathErrors {
  static constexpr uint32_t kMostWaiting = 16;  // Batches, for a ring.

  std::vector<ip::SocketError> errors;
  host::IcmpRefusals refusals;  // Of the messages that came with them.
};

}  // namespace xtreme::engine

#endif  // XTREME_XTREME_ENGINE_PATH_ERRORS_H_
