// SPDX-License-Identifier: Apache-2.0
//
// Receive side scaling: receive queues of their own, indirection tables of them, and the QP that
// spreads frames over a table.
//
// Spec: ibv_create_wq(3), ibv_create_rwq_ind_table(3), rx_hash_conf of ibv_create_qp_ex(3).

#include <infiniband/verbs.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5-abi.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "tools/connectx/uverbs/context.h"
#include "tools/connectx/uverbs/pinned_memory.h"

namespace xtreme::connectx {
namespace {

constexpr uint64_t kIpv4Fields = MLX5_RX_HASH_SRC_IPV4 | MLX5_RX_HASH_DST_IPV4;
constexpr uint64_t kIpv6Fields = MLX5_RX_HASH_SRC_IPV6 | MLX5_RX_HASH_DST_IPV6;
constexpr uint64_t kTcpFields = MLX5_RX_HASH_SRC_PORT_TCP | MLX5_RX_HASH_DST_PORT_TCP;
constexpr uint64_t kUdpFields = MLX5_RX_HASH_SRC_PORT_UDP | MLX5_RX_HASH_DST_PORT_UDP;
static_assert(kRxHashFields == (kIpv4Fields | kIpv6Fields | kTcpFields | kUdpFields));

// What one hash may be of: one IP version and one protocol.
int CheckHash(const mlx5_ib_create_qp_rss& request, size_t queues) {
  const uint64_t fields = request.rx_hash_fields_mask;
  constexpr uint32_t kKnownFlags =
      MLX5_QP_FLAG_TIR_ALLOW_SELF_LB_UC | MLX5_QP_FLAG_TIR_ALLOW_SELF_LB_MC;
  if ((request.flags & ~kKnownFlags) != 0) return EOPNOTSUPP;
  if (request.comp_mask != 0) return EOPNOTSUPP;
  if ((fields & ~kRxHashFields) != 0) return EOPNOTSUPP;
  if (request.rx_hash_function != MLX5_RX_HASH_FUNC_TOEPLITZ) return EOPNOTSUPP;
  if (request.rx_key_len != RssQpRequest{}.key.size()) return EINVAL;
  if (fields == 0) return queues == 1 ? 0 : EINVAL;
  const bool both_ips = (fields & kIpv4Fields) != 0 && (fields & kIpv6Fields) != 0;
  const bool both_ports = (fields & kTcpFields) != 0 && (fields & kUdpFields) != 0;
  return both_ips || both_ports ? EINVAL : 0;
}

int PinRing(Context& context, const mlx5_ib_create_wq& driver, PinnedQueue* pinned) {
  constexpr uint32_t kMostShift = 31;
  if (driver.rq_wqe_shift > kMostShift) return EINVAL;
  const int error = pinned->receive.Pin(context.pinned_pages, driver.buf_addr,
                                        uint64_t{driver.rq_wqe_count} << driver.rq_wqe_shift);
  if (error != 0) return error;
  return context.record_pages->Pin(context.pinned_pages, driver.db_addr, &pinned->record);
}

}  // namespace

int CreateWq(Context& context, const VerbsCall& call) {
  if (!context.device->options().features.receive_scaling) return EOPNOTSUPP;
  const auto user_handle = call.Get<uint64_t>(UVERBS_ATTR_CREATE_WQ_USER_HANDLE);
  const auto max_wr = call.GetPrefix<uint32_t>(UVERBS_ATTR_CREATE_WQ_MAX_WR);
  const auto max_sge = call.GetPrefix<uint32_t>(UVERBS_ATTR_CREATE_WQ_MAX_SGE);
  const auto flags = call.GetPrefix<uint32_t>(UVERBS_ATTR_CREATE_WQ_FLAGS);
  const PdObject* pd = context.pds.Find(call.Handle(UVERBS_ATTR_CREATE_WQ_PD_HANDLE));
  const CqObject* cq = context.cqs.Find(call.Handle(UVERBS_ATTR_CREATE_WQ_CQ_HANDLE));
  const auto driver = call.GetPrefix<mlx5_ib_create_wq>(UVERBS_ATTR_UHW_IN);
  if (!user_handle || pd == nullptr || cq == nullptr || driver.db_addr == 0) return EINVAL;
  if (call.GetPrefix<uint64_t>(UVERBS_ATTR_CREATE_WQ_TYPE) != IB_UVERBS_WQT_RQ) return EINVAL;
  // Striding queues and signatures were not offered.
  if (driver.comp_mask != 0 || driver.flags != 0) return EOPNOTSUPP;
  const bool may_strip = context.device->options().features.vlan_stripping;
  const uint32_t offered = may_strip ? uint32_t{IB_UVERBS_WQ_FLAGS_CVLAN_STRIPPING} : 0u;
  if ((flags & ~offered) != 0) return EOPNOTSUPP;
  WqObject wq{.user_handle = *user_handle,
              .events = std::make_unique<AsyncEvents>(context.async_events),
              .pinned = std::make_shared<PinnedQueue>()};
  if (const int refused = PinRing(context, driver, wq.pinned.get()); refused != 0) return refused;
  const int error = context.device->CreateWq(
      {.context = context.id,
       .pd = pd->pdn,
       .receive = {.ring = reinterpret_cast<uint8_t*>(driver.buf_addr),
                   .wqes = driver.rq_wqe_count,
                   .wqe_shift_log2 = driver.rq_wqe_shift,
                   .cq = cq->cqn,
                   .strip_vlan = (flags & IB_UVERBS_WQ_FLAGS_CVLAN_STRIPPING) != 0},
       .doorbell_record = reinterpret_cast<uint32_t*>(driver.db_addr),
       .uidx = driver.user_index,
       .async = wq.events.get(),
       .user_handle = *user_handle},
      &wq.rqn);
  if (error != 0) return error;
  call.Answer(UVERBS_ATTR_CREATE_WQ_RESP_MAX_WR, max_wr);
  call.Answer(UVERBS_ATTR_CREATE_WQ_RESP_MAX_SGE, max_sge);
  call.Answer(UVERBS_ATTR_CREATE_WQ_RESP_WQ_NUM, wq.rqn);
  call.Answer(UVERBS_ATTR_UHW_OUT,
              mlx5_ib_create_wq_resp{.response_length = sizeof(mlx5_ib_create_wq_resp)});
  call.AnswerHandle(UVERBS_ATTR_CREATE_WQ_HANDLE, context.wqs.Add(std::move(wq)));
  return 0;
}

int ModifyWq(Context& context, const VerbsCall& call) {
  constexpr uint32_t kKnown = IBV_WQ_ATTR_STATE | IBV_WQ_ATTR_CURR_STATE | IBV_WQ_ATTR_FLAGS;
  ib_uverbs_ex_modify_wq request;
  if (!call.Read(UVERBS_ATTR_CORE_IN, &request)) return EINVAL;
  if (request.attr_mask == 0 || (request.attr_mask & ~kKnown) != 0) return EINVAL;
  const WqObject* wq = context.wqs.Find(request.wq_handle);
  if (wq == nullptr) return EINVAL;
  WqAttributes now;
  if (const int error = context.device->QueryWq(wq->rqn, &now); error != 0) return error;
  const bool wrong_current = (request.attr_mask & IBV_WQ_ATTR_CURR_STATE) != 0 &&
                             request.curr_wq_state != static_cast<uint32_t>(now.state);
  if (wrong_current) return EINVAL;
  const bool sets_flags = (request.attr_mask & IBV_WQ_ATTR_FLAGS) != 0;
  if (sets_flags) {
    if ((request.flags_mask & ~IB_UVERBS_WQ_FLAGS_CVLAN_STRIPPING) != 0) return EOPNOTSUPP;
    if (!context.device->options().features.vlan_stripping) return EOPNOTSUPP;
  }
  // One command of the device's: what it refuses changes nothing.
  if ((request.attr_mask & IBV_WQ_ATTR_STATE) != 0) {
    const auto state = static_cast<ibv_wq_state>(request.wq_state);
    if (const int error = context.device->ModifyWq(wq->rqn, state); error != 0) return error;
  }
  if (sets_flags && request.flags_mask != 0) {
    context.device->StripVlan(wq->rqn,
                              (request.flags & IB_UVERBS_WQ_FLAGS_CVLAN_STRIPPING) != 0);
  }
  return 0;
}

int DestroyWq(Context& context, const VerbsCall& call) {
  const auto handle = call.Handle(UVERBS_ATTR_DESTROY_WQ_HANDLE);
  WqObject* wq = context.wqs.Find(handle);
  if (wq == nullptr) return ENOENT;
  if (const int error = context.device->DestroyWq(wq->rqn); error != 0) return error;
  call.Answer(UVERBS_ATTR_DESTROY_WQ_RESP, wq->events->Settle(wq->user_handle));
  context.wqs.Remove(*handle);
  return 0;
}

int CreateIndirectionTable(Context& context, const VerbsCall& call) {
  ib_uverbs_ex_create_rwq_ind_table request;
  if (!call.Read(UVERBS_ATTR_CORE_IN, &request) || request.comp_mask != 0) return EINVAL;
  const Device::Limits& limits = context.device->options().limits;
  if (request.log_ind_tbl_size >= 32) return EINVAL;
  const size_t size = size_t{1} << request.log_ind_tbl_size;
  const auto handles = call.Input(UVERBS_ATTR_CORE_IN).subspan(sizeof(request));
  if (size > limits.indirection_entries || handles.size() < size * sizeof(uint32_t)) return EINVAL;
  std::vector<uint32_t> rqns;
  for (size_t i = 0; i < size; ++i) {
    uint32_t handle;
    std::memcpy(&handle, handles.data() + i * sizeof(handle), sizeof(handle));
    const WqObject* wq = context.wqs.Find(handle);
    if (wq == nullptr) return EINVAL;
    rqns.push_back(wq->rqn);
  }
  IndirectionObject table{.size = size};
  if (const int error = context.device->CreateIndirectionTable(rqns, &table.number); error != 0) {
    return error;
  }
  const uint32_t number = table.number;
  call.Answer(UVERBS_ATTR_CORE_OUT,
              ib_uverbs_ex_create_rwq_ind_table_resp{
                  .response_length = sizeof(ib_uverbs_ex_create_rwq_ind_table_resp),
                  .ind_tbl_handle = context.indirection_tables.Add(table),
                  .ind_tbl_num = number});
  return 0;
}

int DestroyIndirectionTable(Context& context, const VerbsCall& call) {
  const auto handle = call.Handle(UVERBS_ATTR_DESTROY_RWQ_IND_TBL_HANDLE);
  const IndirectionObject* table = context.indirection_tables.Find(handle);
  if (table == nullptr) return ENOENT;
  if (const int error = context.device->DestroyIndirectionTable(table->number); error != 0) {
    return error;
  }
  context.indirection_tables.Remove(*handle);
  return 0;
}

int CreateSpreadingQp(Context& context, const VerbsCall& call, uint64_t user_handle) {
  const IndirectionObject* table =
      context.indirection_tables.Find(call.Handle(UVERBS_ATTR_CREATE_QP_IND_TABLE_HANDLE));
  // It may send nothing: senders have QPs of their own.
  if (table == nullptr || call.Has(UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE)) return EINVAL;
  if (call.GetPrefix<uint32_t>(UVERBS_ATTR_CREATE_QP_FLAGS) != 0) return EOPNOTSUPP;
  const auto driver = call.GetPrefix<mlx5_ib_create_qp_rss>(UVERBS_ATTR_UHW_IN);
  if (const int error = CheckHash(driver, table->size); error != 0) return error;
  RssQpRequest request{.context = context.id,
                       .indirection_table = table->number,
                       .fields = driver.rx_hash_fields_mask,
                       .self_loopback = SelfLoopbackOf(driver.flags)};
  std::copy_n(driver.rx_hash_key, request.key.size(), request.key.begin());
  QpObject qp{.user_handle = user_handle,
              .spreads = true,
              .events = std::make_unique<AsyncEvents>(context.async_events)};
  if (const int error = context.device->CreateRssQp(request, &qp.qpn); error != 0) return error;
  call.Answer(UVERBS_ATTR_CREATE_QP_RESP_CAP, qp.cap);
  call.Answer(UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, qp.qpn);
  call.Answer(UVERBS_ATTR_UHW_OUT,
              mlx5_ib_create_qp_resp{.comp_mask = MLX5_IB_CREATE_QP_RESP_MASK_TIRN,
                                     .tirn = qp.qpn});
  call.AnswerHandle(UVERBS_ATTR_CREATE_QP_HANDLE, context.qps.Add(std::move(qp)));
  return 0;
}

}  // namespace xtreme::connectx
