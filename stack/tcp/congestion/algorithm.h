// SPDX-License-Identifier: Apache-2.0
//
// CongestionAlgorithm: the names of what stands behind the seam of congestion_control.h.
#ifndef XTREME_STACK_TCP_CONGESTION_ALGORITHM_H_
#define XTREME_STACK_TCP_CONGESTION_ALGORITHM_H_

#include <cstdint>

namespace xtreme::tcp {

enum class CongestionAlgorithm : uint8_t { kNewReno, kCubic, kNone };

}  // namespace xtreme::tcp

#endif  // XTREME_STACK_TCP_CONGESTION_ALGORITHM_H_
