// SPDX-License-Identifier: Apache-2.0

#include "xtreme/mlx5/cqe.h"

#include <cstring>

namespace xtreme::mlx5 {

CqeError ParseError(const mlx5_cqe64& cqe) {
  mlx5_err_cqe error;
  std::memcpy(&error, &cqe, sizeof(error));
  return {.syndrome = error.syndrome,
          .vendor_syndrome = error.vendor_err_synd,
          .flushed = error.syndrome == MLX5_CQE_SYNDROME_WR_FLUSH_ERR};
}

std::string_view DescribeSyndrome(uint8_t syndrome) {
  switch (syndrome) {
    case MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR:
      return "local length error: a frame longer than its buffer or than the port allows";
    case MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR:
      return "local queue operation error: the device could not understand a WQE";
    case MLX5_CQE_SYNDROME_LOCAL_PROT_ERR:
      return "local protection error: memory that its key does not cover";
    case MLX5_CQE_SYNDROME_WR_FLUSH_ERR:
      return "flushed: the queue was in error already";
    case MLX5_CQE_SYNDROME_MW_BIND_ERR:
      return "memory window bind error";
    case MLX5_CQE_SYNDROME_BAD_RESP_ERR:
      return "bad response";
    case MLX5_CQE_SYNDROME_LOCAL_ACCESS_ERR:
      return "local access error";
    case MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR:
      return "remote invalid request";
    case MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR:
      return "remote access error";
    case MLX5_CQE_SYNDROME_REMOTE_OP_ERR:
      return "remote operation error";
    case MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR:
      return "transport retries exceeded";
    case MLX5_CQE_SYNDROME_RNR_RETRY_EXC_ERR:
      return "receiver-not-ready retries exceeded";
    case MLX5_CQE_SYNDROME_REMOTE_ABORTED_ERR:
      return "aborted by the peer";
    default:
      return "an error this driver has no words for";
  }
}

}  // namespace xtreme::mlx5
