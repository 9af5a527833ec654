// SPDX-License-Identifier: Apache-2.0
//
// The control calls of a Device that make, change and destroy queues.

#include <bit>
#include <cerrno>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "tools/connectx/device/device.h"
#include "tools/connectx/device/device_state.h"
#include "tools/connectx/device/layout.h"

namespace xtreme::connectx {
namespace {

constexpr uint32_t kMaxUidx = 0xffffff;

// Also true for a queue that is not asked for.
bool IsShape(const SendQueueRequest& request, const Device::Limits& limits) {
  if (request.wqebbs == 0) return true;
  return request.ring != nullptr && std::has_single_bit(request.wqebbs) &&
         request.wqebbs <= limits.wqebbs;
}

bool IsShape(const ReceiveQueueRequest& request, const Device::Limits& limits) {
  if (request.wqes == 0) return true;
  const uint32_t shift = request.wqe_shift_log2;
  return request.ring != nullptr && std::has_single_bit(request.wqes) &&
         request.wqes <= limits.wqebbs && shift >= 4 && (1u << shift) <= kMaxReceiveWqeBytes;
}

}  // namespace

int Device::CreateQp(const QpRequest& request, uint32_t* qpn) {
  ControlLock lock(state_.get());
  UarPage* page = state_->uars->Find(request.uar);
  ProtectionDomain* pd = state_->pds.Find(request.pd);
  const bool sends = request.send.wqebbs != 0;
  const bool receives = request.receive.wqes != 0;
  CompletionQueue* send_cq = sends ? state_->cqs.Find(request.send.cq) : nullptr;
  CompletionQueue* receive_cq = receives ? state_->cqs.Find(request.receive.cq) : nullptr;
  if (pd == nullptr || (sends && (send_cq == nullptr || page == nullptr)) ||
      (receives && receive_cq == nullptr) || !(sends || receives)) {
    return EINVAL;
  }
  if (request.doorbell_record == nullptr || request.uidx > kMaxUidx ||
      !IsShape(request.send, options().limits) || !IsShape(request.receive, options().limits)) {
    return EINVAL;
  }
  if (sends && !send_cq->has_clock()) return EOPNOTSUPP;
  if (receives && !receive_cq->has_clock()) return EOPNOTSUPP;
  if (state_->qps.full()) return ENOMEM;
  *qpn = state_->qps.Reserve();
  QueuePair* qp = state_->qps.Put(
      *qpn, std::make_unique<QueuePair>(request, *qpn, send_cq, receive_cq, &state_->environment));
  ++pd->queues;
  if (sends) page->send_queues.push_back(qp->send());
  state_->pump.queues_that_take_own += qp->takes_own() ? 1 : 0;
  return 0;
}

namespace {

int CheckRate(const Device::Features& features, const Rate& rate) {
  if (!features.packet_pacing) return EOPNOTSUPP;
  const bool shaped = rate.burst_bytes != 0 || rate.typical_packet_bytes != 0;
  return shaped && !features.pacing_bursts ? EINVAL : 0;
}

// Before a command that stops or ends the send queue: a card has sent what was rung for when it
// comes to the command, the thread that stands for it may not have. A card that was pulled sends
// nothing, and what its queues name may be unmapped by now.
void FinishSends(DeviceState& state, QueuePair& qp) {
  if (qp.send() == nullptr || state.removed.load(std::memory_order_relaxed)) return;
  state.pump.TakeRung(state.uars->Find(qp.uar()));
  if (state.environment.options.step) return;
  while (state.pump.Finish(qp.send())) state.BeginPass();
}

}  // namespace

int Device::ModifyQp(uint32_t qpn, ibv_qp_state state, const std::optional<Rate>& rate) {
  if (rate.has_value()) {
    if (const int error = CheckRate(options().features, *rate); error != 0) return error;
  }
  ControlLock lock(state_.get());
  QueuePair* qp = state_->qps.Find(qpn);
  if (qp == nullptr) return EINVAL;
  if (rate.has_value() && (qp->send() == nullptr || state != IBV_QPS_RTS)) return EINVAL;
  uint16_t index = 0;
  if (rate.has_value() && rate->kbps != 0) {
    const int error = state_->rates.Acquire(*rate, /*dedicated=*/false, &index);
    if (error != 0) return error;
  }
  if (qp->state() == IBV_QPS_RTS && state != IBV_QPS_RTS) FinishSends(*state_, *qp);
  const int error = qp->Modify(state);
  if (error != 0) state_->rates.Release(index);
  const bool rated = error == 0 && rate.has_value();
  if (rated || (qp->state() != IBV_QPS_RTS && qp->rate_index() != 0)) {
    state_->rates.Release(qp->rate_index());
    qp->SetRate(rate.value_or(Rate{}), index);
  }
  return error;
}

int Device::AllocRate(const Rate& rate, bool dedicated, uint16_t* index) {
  if (const int error = CheckRate(options().features, rate); error != 0) return error;
  ControlLock lock(state_.get());
  return state_->rates.Acquire(rate, dedicated, index);
}

int Device::FreeRate(uint16_t index) {
  ControlLock lock(state_.get());
  return index == 0 ? EINVAL : state_->rates.Release(index);
}

int Device::QueryQp(uint32_t qpn, QpAttributes* attributes) const {
  ControlLock lock(state_.get());
  const QueuePair* qp = state_->qps.Find(qpn);
  const auto queried = qp == nullptr ? std::nullopt : qp->Query();
  if (!queried.has_value()) return EINVAL;
  *attributes = *queried;
  return 0;
}

int Device::QpState(uint32_t qpn, ibv_qp_state* state) const {
  ControlLock lock(state_.get());
  const QueuePair* qp = state_->qps.Find(qpn);
  if (qp == nullptr) return EINVAL;
  *state = qp->state();
  return 0;
}

int Device::DestroyQp(uint32_t qpn) {
  ControlLock lock(state_.get());
  QueuePair* qp = state_->qps.Find(qpn);
  if (qp == nullptr) return EINVAL;
  if (qp->target() != nullptr && qp->target()->rules != 0) return EBUSY;
  FinishSends(*state_, *qp);
  if (qp->send() != nullptr) std::erase(state_->uars->Find(qp->uar())->send_queues, qp->send());
  // An RSS QP has no PD of its own here.
  if (ProtectionDomain* pd = state_->pds.Find(qp->pd()); pd != nullptr) --pd->queues;
  state_->rates.Release(qp->rate_index());
  state_->pump.queues_that_take_own -= qp->takes_own() ? 1 : 0;
  state_->qps.Remove(qpn);
  return 0;
}

int Device::CreateWq(const WqRequest& request, uint32_t* rqn) {
  ControlLock lock(state_.get());
  ProtectionDomain* pd = state_->pds.Find(request.pd);
  CompletionQueue* cq = state_->cqs.Find(request.receive.cq);
  if (pd == nullptr || cq == nullptr || request.doorbell_record == nullptr ||
      request.uidx > kMaxUidx || request.receive.wqes == 0 ||
      !IsShape(request.receive, options().limits)) {
    return EINVAL;
  }
  if (!cq->has_clock()) return EOPNOTSUPP;
  if (state_->wqs.full()) return ENOMEM;
  *rqn = state_->wqs.Reserve();
  state_->wqs.Put(*rqn, std::make_unique<WorkQueue>(request, *rqn, cq, &state_->environment));
  ++pd->queues;
  return 0;
}

int Device::ModifyWq(uint32_t rqn, ibv_wq_state state) {
  ControlLock lock(state_.get());
  WorkQueue* wq = state_->wqs.Find(rqn);
  return wq == nullptr ? EINVAL : wq->Modify(state);
}

int Device::QueryWq(uint32_t rqn, WqAttributes* attributes) const {
  ControlLock lock(state_.get());
  const WorkQueue* wq = state_->wqs.Find(rqn);
  if (wq == nullptr) return EINVAL;
  *attributes = wq->Query();
  return 0;
}

int Device::StripVlan(uint32_t rqn, bool strip) {
  ControlLock lock(state_.get());
  WorkQueue* wq = state_->wqs.Find(rqn);
  if (wq == nullptr) return EINVAL;
  wq->receive()->StripVlan(strip);
  return 0;
}

int Device::DestroyWq(uint32_t rqn) {
  ControlLock lock(state_.get());
  WorkQueue* wq = state_->wqs.Find(rqn);
  if (wq == nullptr) return EINVAL;
  if (wq->users != 0) return EBUSY;
  --state_->pds.Find(wq->pd())->queues;
  state_->wqs.Remove(rqn);
  return 0;
}

int Device::CreateIndirectionTable(std::span<const uint32_t> rqns, uint32_t* table) {
  ControlLock lock(state_.get());
  if (!std::has_single_bit(rqns.size())) return EINVAL;
  std::vector<WorkQueue*> queues;
  for (uint32_t rqn : rqns) {
    WorkQueue* wq = state_->wqs.Find(rqn);
    if (wq == nullptr) return EINVAL;
    queues.push_back(wq);
  }
  if (state_->tables.full()) return ENOMEM;
  *table = state_->tables.Reserve();
  state_->tables.Put(*table, std::make_unique<IndirectionTable>(std::move(queues)));
  return 0;
}

int Device::DestroyIndirectionTable(uint32_t table) {
  ControlLock lock(state_.get());
  const IndirectionTable* found = state_->tables.Find(table);
  if (found == nullptr) return EINVAL;
  if (found->users != 0) return EBUSY;
  state_->tables.Remove(table);
  return 0;
}

int Device::CreateRssQp(const RssQpRequest& request, uint32_t* qpn) {
  ControlLock lock(state_.get());
  IndirectionTable* table = state_->tables.Find(request.indirection_table);
  if (table == nullptr) return EINVAL;
  if (state_->qps.full()) return ENOMEM;
  *qpn = state_->qps.Reserve();
  const QueuePair* qp = state_->qps.Put(*qpn, std::make_unique<QueuePair>(request, *qpn, table));
  state_->pump.queues_that_take_own += qp->takes_own() ? 1 : 0;
  return 0;
}

}  // namespace xtreme::connectx
