// SPDX-License-Identifier: Apache-2.0
//
// The first cause of a queue's end, from its error CQEs.
//
// Invariant: a flush is no cause. It is noted while nothing better is known, and gives way to the
// syndrome of the WQE that failed, which may stand in the other completion queue.

#ifndef XTREME_XTREME_MLX5_QUEUE_ERROR_H_
#define XTREME_XTREME_MLX5_QUEUE_ERROR_H_

#include <optional>

#include "xtreme/mlx5/cqe.h"
#include "xtreme/nic/queue_pair.h"

namespace xtreme::mlx5 {

// Puts `cause` into `error` unless it has one that came earlier.
void NoteError(const CqeError& cause, bool receive, std::optional<nic::QueueError>* error);

}  // namespace xtreme::mlx5

#endif  // XTREME_XTREME_MLX5_QUEUE_ERROR_H_
