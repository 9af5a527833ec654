// SPDX-License-Identifier: Apache-2.0

#include "xtreme/mlx5/queue_error.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace xtreme::mlx5 {

void NoteError(const CqeError& cause, bool receive, std::optional<nic::QueueError>* error) {
  const bool only_flushed =
      error->has_value() && (*error)->syndrome == MLX5_CQE_SYNDROME_WR_FLUSH_ERR;
  if (error->has_value() && (!only_flushed || cause.flushed)) return;
  *error = nic::QueueError{
      .receive = receive,
      .syndrome = cause.syndrome,
      .vendor_syndrome = cause.vendor_syndrome,
      .text = absl::StrFormat("%s queue: %s (syndrome 0x%02x, vendor 0x%02x)",
                              receive ? "receive" : "send", DescribeSyndrome(cause.syndrome),
                              cause.syndrome, cause.vendor_syndrome)};
}

}  // namespace xtreme::mlx5
