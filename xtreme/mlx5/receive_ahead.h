// SPDX-License-Identifier: Apache-2.0
//
// ReceiveQueue::LookAhead(), inlined where it is called: a look at the frames that come next,
// before anybody takes them.

#ifndef XTREME_XTREME_MLX5_RECEIVE_AHEAD_H_
#define XTREME_XTREME_MLX5_RECEIVE_AHEAD_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "xtreme/mlx5/cqe.h"
#include "xtreme/mlx5/receive_queue.h"

namespace xtreme::mlx5 {

// No further than to the ring's end, as PollKnown(); frames are those of Poll().
template <typename See>
[[gnu::always_inline]] inline uint32_t ReceiveQueue::LookAhead(const uint8_t* op_own,
                                                               uint8_t phase, uint32_t begin,
                                                               uint32_t most, See&& see) const {
  const uint32_t end = std::min({most, posted(), size() - slot()});
  const uint32_t received = ReceivedOpOwn(phase);
  const uint32_t buffer_bytes = buffer_bytes_;
  const Posted* posted = next_ + begin;
  const uint8_t* const first = op_own;
  op_own += size_t{begin} * kCqeBytes;
  const uint8_t* const behind = first + size_t{end} * kCqeBytes;
  while (op_own < behind) {
    const mlx5_cqe64& cqe = *CqeOfOpOwn(op_own);
    if (!IsReceivedFrame(LoadOpOwn(cqe), received)) break;
    const uint32_t length = FrameBytes(cqe);
    if (length > buffer_bytes) [[unlikely]] break;
    see(posted->data, length, HardwareClock(cqe));
    ++posted;
    op_own += kCqeBytes;
  }
  return static_cast<uint32_t>(op_own - first) / kCqeBytes;
}

}  // namespace xtreme::mlx5

#endif  // XTREME_XTREME_MLX5_RECEIVE_AHEAD_H_
