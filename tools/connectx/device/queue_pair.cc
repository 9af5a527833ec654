// SPDX-License-Identifier: Apache-2.0

#include "tools/connectx/device/queue_pair.h"

#include <cerrno>
#include <utility>

#include "tools/connectx/device/layout.h"

namespace xtreme::connectx {
namespace {

bool IsTransition(ibv_qp_state from, ibv_qp_state to) {
  switch (to) {
    case IBV_QPS_RESET:
      return true;
    case IBV_QPS_ERR:
      return from != IBV_QPS_RESET;
    case IBV_QPS_INIT:
      return from == IBV_QPS_RESET || from == IBV_QPS_INIT;
    case IBV_QPS_RTR:
      return from == IBV_QPS_INIT;
    case IBV_QPS_RTS:
      return from == IBV_QPS_RTR || from == IBV_QPS_RTS;
    default:
      return false;
  }
}

}  // namespace

WorkQueue::WorkQueue(const WqRequest& request, uint32_t rqn, CompletionQueue* cq,
                     Environment* environment)
    : request_(request),
      cq_(cq),
      receive_(request.receive, &request.doorbell_record[MLX5_RCV_DBR],
               {.number = rqn, .pd = request.pd, .uidx = request.uidx}, cq, this, environment) {
  ++cq_->users;
}

WorkQueue::~WorkQueue() { --cq_->users; }

int WorkQueue::Modify(ibv_wq_state state) {
  if (state > IBV_WQS_ERR || (state == IBV_WQS_RDY && state_ == IBV_WQS_ERR)) return EINVAL;
  if (state == IBV_WQS_RESET) receive_.SetState(QueueState::kReset);
  if (state == IBV_WQS_RDY) receive_.SetState(QueueState::kReady);
  if (state == IBV_WQS_ERR) receive_.SetState(QueueState::kError);
  state_ = state;
  return 0;
}

WqAttributes WorkQueue::Query() const {
  return {.state = state_, .strip_vlan = receive_.strips_vlan()};
}

void WorkQueue::OnQueueError(bool completed) {
  state_ = IBV_WQS_ERR;
  if (!completed && request_.async != nullptr) {
    request_.async->OnAsync(IBV_EVENT_WQ_FATAL, request_.user_handle);
  }
}

IndirectionTable::IndirectionTable(std::vector<WorkQueue*> entries) : queues(std::move(entries)) {
  for (WorkQueue* queue : queues) ++queue->users;
}

IndirectionTable::~IndirectionTable() {
  for (WorkQueue* queue : queues) --queue->users;
}

QueuePair::QueuePair(const QpRequest& request, uint32_t qpn, CompletionQueue* send_cq,
                     CompletionQueue* receive_cq, Environment* environment)
    : request_(request), send_cq_(send_cq), receive_cq_(receive_cq) {
  if (send_cq != nullptr) {
    ++send_cq->users;
    send_ = std::make_unique<SendQueue>(request, qpn, send_cq, this, environment);
  }
  if (receive_cq != nullptr) {
    ++receive_cq->users;
    const ReceiveQueue::Identity identity{.number = qpn, .pd = request.pd, .uidx = request.uidx};
    receive_ =
        std::make_unique<ReceiveQueue>(request.receive, &request.doorbell_record[MLX5_RCV_DBR],
                                       identity, receive_cq, this, environment);
    target_ = std::make_unique<ReceiveTarget>(qpn, request.context, receive_.get(),
                                              request.self_loopback);
  }
}

QueuePair::QueuePair(const RssQpRequest& request, uint32_t qpn, IndirectionTable* table)
    : table_(table) {
  ++table->users;
  std::vector<ReceiveQueue*> queues;
  for (WorkQueue* queue : table->queues) queues.push_back(queue->receive());
  target_ = std::make_unique<ReceiveTarget>(qpn, request.context, std::move(queues), request.key,
                                            request.fields, request.self_loopback);
}

QueuePair::~QueuePair() {
  if (send_cq_ != nullptr) --send_cq_->users;
  if (receive_cq_ != nullptr) --receive_cq_->users;
  if (table_ != nullptr) --table_->users;
}

int QueuePair::Modify(ibv_qp_state state) {
  if (!IsTransition(state_, state)) return EINVAL;
  if (state != state_) Apply(state);
  return 0;
}

void QueuePair::Apply(ibv_qp_state state) {
  state_ = state;
  const bool both = state == IBV_QPS_RESET || state == IBV_QPS_ERR;
  const QueueState queue_state = state == IBV_QPS_RESET ? QueueState::kReset
                                 : state == IBV_QPS_ERR ? QueueState::kError
                                                        : QueueState::kReady;
  if (send_ != nullptr && (both || state == IBV_QPS_RTS)) send_->SetState(queue_state);
  // A raw receive queue is ready from INIT on (the kernel's RST2INIT).
  if (receive_ != nullptr && (both || state == IBV_QPS_INIT)) receive_->SetState(queue_state);
}

void QueuePair::SetRate(const Rate& rate, uint16_t index) {
  rate_ = rate;
  rate_index_ = index;
  if (send_ != nullptr) send_->SetRate(rate);
}

std::optional<ibv_qp_state> QueuePair::StateOfQueues() const {
  const bool send_failed = send_ != nullptr && send_->state() == QueueState::kError;
  const bool receive_failed = receive_ != nullptr && receive_->state() == QueueState::kError;
  if (receive_failed) {
    if (send_ != nullptr && !send_failed) return std::nullopt;
    return IBV_QPS_ERR;
  }
  return send_failed && receive_ != nullptr ? IBV_QPS_SQE : state_;
}

std::optional<QpAttributes> QueuePair::Query() const {
  const std::optional<ibv_qp_state> state = StateOfQueues();
  if (!state.has_value()) return std::nullopt;
  return QpAttributes{.state = *state,
                      .send_wqebbs = request_.send.wqebbs,
                      .receive_wqes = request_.receive.wqes,
                      .receive_sges = (1u << request_.receive.wqe_shift_log2) / kSegmentBytes,
                      .rate = rate_};
}

void QueuePair::OnQueueError(bool completed) {
  if (completed || request_.async == nullptr) return;
  request_.async->OnAsync(IBV_EVENT_QP_FATAL, request_.user_handle);
}

}  // namespace xtreme::connectx
