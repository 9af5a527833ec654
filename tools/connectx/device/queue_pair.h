// SPDX-License-Identifier: Apache-2.0
//
// Objects that own queues: a RAW_PACKET QP (send and receive queue, or a spread), and a receive
// queue of its own for indirection tables.
//
// Invariant: a queue that fails goes into error alone, as a card's do, which are objects of their
// own: the other one of its QP goes on. Its owner tells the program where no error CQE could.
// Units: none. Thread: the device's lock. Spec: ibv_modify_qp(3); InfiniBand Architecture, "Local
// Work Queue Catastrophic Error"; the kernel's qp.c says what state such a QP is in.

#ifndef XTREME_TOOLS_CONNECTX_DEVICE_QUEUE_PAIR_H_
#define XTREME_TOOLS_CONNECTX_DEVICE_QUEUE_PAIR_H_

#include <infiniband/verbs.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "tools/connectx/device/completion_queue.h"
#include "tools/connectx/device/environment.h"
#include "tools/connectx/device/receive_queue.h"
#include "tools/connectx/device/receive_target.h"
#include "tools/connectx/device/requests.h"
#include "tools/connectx/device/send_queue.h"

namespace xtreme::connectx {

class WorkQueue final : public QueueOwner {
 public:
  WorkQueue(const WqRequest& request, uint32_t rqn, CompletionQueue* cq, Environment* environment);
  ~WorkQueue() override;

  // EINVAL: not RESET to RDY, or any to RESET or ERR.
  int Modify(ibv_wq_state state);
  WqAttributes Query() const;
  void OnQueueError(bool completed) override;

  ReceiveQueue* receive() { return &receive_; }
  uint32_t pd() const { return request_.pd; }
  uint32_t users = 0;  // Indirection tables.

 private:
  const WqRequest request_;
  CompletionQueue* const cq_;
  ReceiveQueue receive_;
  ibv_wq_state state_ = IBV_WQS_RESET;
};

struct IndirectionTable {
  std::vector<WorkQueue*> queues;
  uint32_t users = 0;  // RSS QPs.

  explicit IndirectionTable(std::vector<WorkQueue*> entries);
  ~IndirectionTable();
};

class QueuePair final : public QueueOwner {
 public:
  // `send_cq` and `receive_cq` are nullptr for queues the request does not have.
  QueuePair(const QpRequest& request, uint32_t qpn, CompletionQueue* send_cq,
            CompletionQueue* receive_cq, Environment* environment);
  QueuePair(const RssQpRequest& request, uint32_t qpn, IndirectionTable* table);
  ~QueuePair() override;

  // EINVAL: no such transition.
  int Modify(ibv_qp_state state);
  // `index`: of the rate table, to be given back when the QP goes or leaves RTS.
  void SetRate(const Rate& rate, uint16_t index);
  uint16_t rate_index() const { return rate_index_; }
  // As it was brought to.
  ibv_qp_state state() const { return state_; }
  // What has become of it: SQE when only the send queue is in error, none when only the receive
  // queue is, for which there is no state.
  std::optional<QpAttributes> Query() const;
  void OnQueueError(bool completed) override;

  // Nullptr for a QP that has none.
  SendQueue* send() { return send_.get(); }
  ReceiveTarget* target() { return target_.get(); }
  bool takes_own() const { return target_ != nullptr && target_->self_loopback().any(); }
  uint32_t uar() const { return request_.uar; }
  uint32_t pd() const { return request_.pd; }

 private:
  void Apply(ibv_qp_state state);
  std::optional<ibv_qp_state> StateOfQueues() const;

  const QpRequest request_;
  CompletionQueue* const send_cq_ = nullptr;
  CompletionQueue* const receive_cq_ = nullptr;
  IndirectionTable* const table_ = nullptr;
  std::unique_ptr<SendQueue> send_;
  std::unique_ptr<ReceiveQueue> receive_;
  std::unique_ptr<ReceiveTarget> target_;
  ibv_qp_state state_ = IBV_QPS_RESET;
  Rate rate_;
  uint16_t rate_index_ = 0;
};

}  // namespace xtreme::connectx

#endif  // XTREME_TOOLS_CONNECTX_DEVICE_QUEUE_PAIR_H_
