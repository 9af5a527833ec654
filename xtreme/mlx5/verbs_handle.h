// SPDX-License-Identifier: Apache-2.0
//
// Owners of verbs objects: each destroys its object when it goes.
//
// Invariant: an object is held by exactly one handle from the moment it was made, so a step of
// bring-up that fails later leaks nothing. Destroy in reverse: what uses an object goes first, or
// the kernel answers EBUSY and the object stays until the device is closed.

#ifndef XTREME_XTREME_MLX5_VERBS_HANDLE_H_
#define XTREME_XTREME_MLX5_VERBS_HANDLE_H_

#include <infiniband/verbs.h>

#include <memory>

namespace xtreme::mlx5 {

struct VerbsDeleter {
  void operator()(ibv_context* context) const { ibv_close_device(context); }
  void operator()(ibv_pd* pd) const { ibv_dealloc_pd(pd); }
  void operator()(ibv_td* td) const { ibv_dealloc_td(td); }
  void operator()(ibv_mr* mr) const { ibv_dereg_mr(mr); }
  void operator()(ibv_dm* dm) const { ibv_free_dm(dm); }
  void operator()(ibv_comp_channel* channel) const { ibv_destroy_comp_channel(channel); }
  void operator()(ibv_cq* cq) const { ibv_destroy_cq(cq); }
  void operator()(ibv_qp* qp) const { ibv_destroy_qp(qp); }
  void operator()(ibv_flow* flow) const { ibv_destroy_flow(flow); }
};

template <typename Object>
using VerbsHandle = std::unique_ptr<Object, VerbsDeleter>;

}  // namespace xtreme::mlx5

#endif  // XTREME_XTREME_MLX5_VERBS_HANDLE_H_
