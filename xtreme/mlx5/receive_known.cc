// SPDX-License-Identifier: Apache-2.0

#include "xtreme/mlx5/receive_known.h"

namespace xtreme::mlx5 {

uint32_t QueuePair::PollKnown(const completion::KnownFlows& flows, completion::Completion* out,
                              uint32_t most) {
  return PollFlows<Unwatched>(flows, out, most);
}

// Behind a ring's end there may be others, which the next poll takes.
[[gnu::noinline]] uint32_t QueuePair::PassStop(uint32_t taken) {
  if (receive_.AtEnd()) [[unlikely]] BeginAnew();
  return taken | kRefill;
}

uint32_t QueuePair::PollLinks(const completion::LinkFlows& flows, completion::LinkCompletion* out,
                              uint32_t most) {
  bool declined = false;  // There are no others to leave it to.
  return PollInto<completion::LinkFlows, Unwatched>(flows, out, most, &declined);
}

packet::Buffer* QueuePair::TakeKnown(const completion::KnownFlows& flows,
                                     const udp::Endpoint* endpoint, size_t most) {
  return TakeOne<Unwatched>(flows, endpoint, most);
}

}  // namespace xtreme::mlx5
