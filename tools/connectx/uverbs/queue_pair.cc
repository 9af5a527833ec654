// SPDX-License-Identifier: Apache-2.0
//
// RAW_PACKET queue pairs.

#include <infiniband/verbs.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5-abi.h>

#include <cerrno>
#include <cstddef>
#include <optional>
#include <utility>

#include "tools/connectx/uverbs/context.h"
#include "tools/connectx/uverbs/pinned_memory.h"

namespace xtreme::connectx {
namespace {

// The device's request for the QP that `call` describes; an errno when it describes none of ours.
int BuildRequest(Context& context, const VerbsCall& call, QpRequest* request) {
  if (call.Has(UVERBS_ATTR_CREATE_QP_SRQ_HANDLE)) return EOPNOTSUPP;
  const bool may_strip = context.device->options().features.vlan_stripping;
  // A context's own multicast is never looped back to it: blocking it changes nothing.
  const uint32_t offered = IB_UVERBS_QP_CREATE_SQ_SIG_ALL |
                           IB_UVERBS_QP_CREATE_BLOCK_MULTICAST_LOOPBACK |
                           (may_strip ? uint32_t{IB_UVERBS_QP_CREATE_CVLAN_STRIPPING} : 0u);
  const auto create_flags = call.GetPrefix<uint32_t>(UVERBS_ATTR_CREATE_QP_FLAGS);
  if ((create_flags & ~offered) != 0) return EOPNOTSUPP;

  const PdObject* pd = context.pds.Find(call.Handle(UVERBS_ATTR_CREATE_QP_PD_HANDLE));
  const CqObject* send_cq = context.cqs.Find(call.Handle(UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE));
  const CqObject* recv_cq = context.cqs.Find(call.Handle(UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE));
  const auto driver = call.GetPrefix<mlx5_ib_create_qp>(UVERBS_ATTR_UHW_IN);
  if (pd == nullptr || send_cq == nullptr || recv_cq == nullptr || driver.db_addr == 0) {
    return EINVAL;
  }
  if ((driver.flags & MLX5_QP_FLAG_SIGNATURE) != 0) return EOPNOTSUPP;
  // Those for small messages of RDMA are hints, as to the kernel; others ask for what was not
  // offered.
  constexpr uint32_t kKnownFlags =
      MLX5_QP_FLAG_UAR_PAGE_INDEX | MLX5_QP_FLAG_SCATTER_CQE | MLX5_QP_FLAG_ALLOW_SCATTER_CQE |
      MLX5_QP_FLAG_TIR_ALLOW_SELF_LB_UC | MLX5_QP_FLAG_TIR_ALLOW_SELF_LB_MC;
  if ((driver.flags & ~kKnownFlags) != 0) return EINVAL;
  // Without it `bfreg_index` would count registers of a table that this device does not have.
  if ((driver.flags & MLX5_QP_FLAG_UAR_PAGE_INDEX) == 0) return EINVAL;
  *request = {
      .context = context.id,
      .pd = pd->pdn,
      .send = {.ring = reinterpret_cast<uint8_t*>(driver.sq_buf_addr),
               .wqebbs = driver.sq_wqe_count,
               .cq = send_cq->cqn},
      .receive = {.ring = reinterpret_cast<uint8_t*>(driver.buf_addr),
                  .wqes = driver.rq_wqe_count,
                  .wqe_shift_log2 = driver.rq_wqe_shift,
                  .cq = recv_cq->cqn,
                  .strip_vlan = (create_flags & IB_UVERBS_QP_CREATE_CVLAN_STRIPPING) != 0},
      .doorbell_record = reinterpret_cast<uint32_t*>(driver.db_addr),
      .uidx = driver.uidx,
      .uar = driver.bfreg_index,
      .self_loopback = SelfLoopbackOf(driver.flags),
  };
  return 0;
}

int PinRings(Context& context, const QpRequest& request, PinnedQueue* pinned) {
  const auto address = [](const void* ring) { return reinterpret_cast<uint64_t>(ring); };
  const ReceiveQueueRequest& receive = request.receive;
  constexpr uint32_t kMostShift = 31;
  if (receive.wqe_shift_log2 > kMostShift) return EINVAL;
  if (receive.wqes != 0) {
    const int error = pinned->receive.Pin(context.pinned_pages, address(receive.ring),
                                          uint64_t{receive.wqes} << receive.wqe_shift_log2);
    if (error != 0) return error;
  }
  if (request.send.wqebbs != 0) {
    constexpr uint64_t kWqebbBytes = 64;
    const int error = pinned->send.Pin(context.pinned_pages, address(request.send.ring),
                                       request.send.wqebbs * kWqebbBytes);
    if (error != 0) return error;
  }
  return context.record_pages->Pin(context.pinned_pages, address(request.doorbell_record),
                                  &pinned->record);
}

// Whether the attributes of a modify command are those that a RAW_PACKET QP takes on its way
// (the kernel's ib_modify_qp_is_ok).
bool TakesAttributes(ibv_qp_state from, ibv_qp_state to, uint32_t attributes) {
  const uint32_t required = from == IBV_QPS_RESET && to == IBV_QPS_INIT ? IBV_QP_PORT : 0;
  const uint32_t optional = to == IBV_QPS_RTS ? IBV_QP_RATE_LIMIT : 0;
  return (attributes & required) == required &&
         (attributes & ~(IBV_QP_STATE | required | optional)) == 0;
}

// Applies the state of a modify command, as far as a RAW_PACKET QP has any, and a rate with it.
int ModifyState(Context& context, const ib_uverbs_modify_qp& request,
                const std::optional<Rate>& rate) {
  QpObject* qp = context.qps.Find(request.qp_handle);
  if (qp == nullptr) return EINVAL;
  if (qp->spreads) return EOPNOTSUPP;
  if ((request.attr_mask & IBV_QP_PORT) != 0 && request.port_num != 1) return EINVAL;
  ibv_qp_state now;
  if (const int error = context.device->QpState(qp->qpn, &now); error != 0) return error;
  const bool moves = (request.attr_mask & IBV_QP_STATE) != 0;
  const auto to = moves ? static_cast<ibv_qp_state>(request.qp_state) : now;
  if (!TakesAttributes(now, to, request.attr_mask)) return EINVAL;
  return context.device->ModifyQp(qp->qpn, to, rate);
}

}  // namespace

SelfLoopback SelfLoopbackOf(uint32_t qp_flags) {
  return {.unicast = (qp_flags & MLX5_QP_FLAG_TIR_ALLOW_SELF_LB_UC) != 0,
          .multicast = (qp_flags & MLX5_QP_FLAG_TIR_ALLOW_SELF_LB_MC) != 0};
}

int CreateQp(Context& context, const VerbsCall& call) {
  const auto cap = call.Get<ib_uverbs_qp_cap>(UVERBS_ATTR_CREATE_QP_CAP);
  const auto user_handle = call.Get<uint64_t>(UVERBS_ATTR_CREATE_QP_USER_HANDLE);
  if (!cap || !user_handle) return EINVAL;
  if (call.Get<uint64_t>(UVERBS_ATTR_CREATE_QP_TYPE) != IB_UVERBS_QPT_RAW_PACKET) return EOPNOTSUPP;
  if (!context.device->options().features.net_raw) return EPERM;
  if (call.Has(UVERBS_ATTR_CREATE_QP_IND_TABLE_HANDLE)) {
    return CreateSpreadingQp(context, call, *user_handle);
  }
  QpRequest request;
  if (const int error = BuildRequest(context, call, &request); error != 0) return error;
  const auto create_flags = call.GetPrefix<uint32_t>(UVERBS_ATTR_CREATE_QP_FLAGS);
  QpObject qp{.user_handle = *user_handle,
              .cap = *cap,
              .signals_all = (create_flags & IB_UVERBS_QP_CREATE_SQ_SIG_ALL) != 0,
              .events = std::make_unique<AsyncEvents>(context.async_events),
              .pinned = std::make_shared<PinnedQueue>()};
  request.async = qp.events.get();
  request.user_handle = *user_handle;
  if (const int error = PinRings(context, request, qp.pinned.get()); error != 0) return error;
  if (const int error = context.device->CreateQp(request, &qp.qpn); error != 0) return error;
  call.Answer(UVERBS_ATTR_CREATE_QP_RESP_CAP, *cap);
  call.Answer(UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, qp.qpn);
  // One number serves as QP, RQ, SQ, TIR and TIS: this device has no separate spaces for them.
  call.Answer(UVERBS_ATTR_UHW_OUT,
              mlx5_ib_create_qp_resp{
                  .bfreg_index = request.uar,
                  .comp_mask = MLX5_IB_CREATE_QP_RESP_MASK_TIRN |
                               MLX5_IB_CREATE_QP_RESP_MASK_TISN |
                               MLX5_IB_CREATE_QP_RESP_MASK_RQN | MLX5_IB_CREATE_QP_RESP_MASK_SQN,
                  .tirn = qp.qpn,
                  .tisn = qp.qpn,
                  .rqn = qp.qpn,
                  .sqn = qp.qpn});
  call.AnswerHandle(UVERBS_ATTR_CREATE_QP_HANDLE, context.qps.Add(std::move(qp)));
  return 0;
}

int ModifyQp(Context& context, const VerbsCall& call) {
  ib_uverbs_modify_qp request;
  if (!call.Read(UVERBS_ATTR_CORE_IN, &request)) return EINVAL;
  return ModifyState(context, request, std::nullopt);
}

int ModifyQpExtended(Context& context, const VerbsCall& call) {
  ib_uverbs_ex_modify_qp request;
  if (!call.Read(UVERBS_ATTR_CORE_IN, &request)) return EINVAL;
  const auto driver = call.GetPrefix<mlx5_ib_modify_qp>(UVERBS_ATTR_UHW_IN);
  std::optional<Rate> rate;
  if ((request.base.attr_mask & IBV_QP_RATE_LIMIT) != 0) {
    rate = {.kbps = request.rate_limit,
            .burst_bytes = driver.burst_info.max_burst_sz,
            .typical_packet_bytes = driver.burst_info.typical_pkt_sz};
  }
  if (const int error = ModifyState(context, request.base, rate); error != 0) return error;
  call.Answer(UVERBS_ATTR_CORE_OUT,
              ib_uverbs_ex_modify_qp_resp{.response_length = sizeof(ib_uverbs_ex_modify_qp_resp)});
  call.Answer(UVERBS_ATTR_UHW_OUT,
              mlx5_ib_modify_qp_resp{.response_length = sizeof(mlx5_ib_modify_qp_resp)});
  return 0;
}

int QueryQp(Context& context, const VerbsCall& call) {
  ib_uverbs_query_qp request;
  if (!call.Read(UVERBS_ATTR_CORE_IN, &request)) return EINVAL;
  const QpObject* qp = context.qps.Find(request.qp_handle);
  if (qp == nullptr) return EINVAL;
  if (qp->spreads) return EOPNOTSUPP;
  QpAttributes attributes;
  if (const int error = context.device->QueryQp(qp->qpn, &attributes); error != 0) return error;
  call.Answer(UVERBS_ATTR_CORE_OUT,
              ib_uverbs_query_qp_resp{
                  .max_send_wr = qp->cap.max_send_wr,
                  .max_recv_wr = qp->cap.max_recv_wr,
                  .max_send_sge = qp->cap.max_send_sge,
                  .max_recv_sge = qp->cap.max_recv_sge,
                  .max_inline_data = qp->cap.max_inline_data,
                  .qp_state = static_cast<uint8_t>(attributes.state),
                  .cur_qp_state = static_cast<uint8_t>(attributes.state),
                  .port_num = 1,
                  .sq_sig_all = qp->signals_all});
  return 0;
}

int DestroyQp(Context& context, const VerbsCall& call) {
  const auto handle = call.Handle(UVERBS_ATTR_DESTROY_QP_HANDLE);
  QpObject* qp = context.qps.Find(handle);
  if (qp == nullptr) return ENOENT;
  if (const int error = context.device->DestroyQp(qp->qpn); error != 0) return error;
  call.Answer(UVERBS_ATTR_DESTROY_QP_RESP,
              ib_uverbs_destroy_qp_resp{.events_reported = qp->events->Settle(qp->user_handle)});
  context.qps.Remove(*handle);
  return 0;
}

}  // namespace xtreme::connectx
