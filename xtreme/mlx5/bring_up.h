// SPDX-License-Identifier: Apache-2.0
//
// Bring-up of a queue pair: from what was asked to rings that the data path writes.
//
// The steps are in the order the device wants them; each holds what it made before the next one
// starts, so a step that fails leaks nothing and says what was asked and offered.
// Slow work; any thread. Spec: mlx5dv_init_obj(3), ibv_alloc_parent_domain(3), PRM "QP State".

#ifndef XTREME_XTREME_MLX5_BRING_UP_H_
#define XTREME_XTREME_MLX5_BRING_UP_H_

#include <infiniband/mlx5dv.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "stack/packet/buffer_pool.h"
#include "xtreme/mlx5/device.h"
#include "xtreme/mlx5/queue_pair.h"
#include "xtreme/mlx5/verbs_handle.h"
#include "xtreme/nic/nic.h"

namespace xtreme::mlx5 {

// The verbs objects of a queue pair; destroyed from the last to the first.
class QueuePairVerbs final : public QueuePairObjects {
 public:
  QueuePairVerbs() = default;
  // Acknowledges events first: the kernel's CQs wait for it.
  ~QueuePairVerbs() override;

  int event_fd() const override { return channel == nullptr ? -1 : channel->fd; }
  Event TakeEvent() override;
  ibv_qp* verbs_qp() const override { return qp.get(); }
  std::array<ibv_cq*, 2> verbs_cqs() const override { return {receive_cq.get(), send_cq.get()}; }
  bool stopped() const override { return stopped_.load(std::memory_order_relaxed); }

  // An event said so of a queue with this context, and is not acknowledged: so it still stands.
  static void OnStopped(void* verbs) {
    static_cast<QueuePairVerbs*>(verbs)->stopped_.store(true, std::memory_order_relaxed);
  }

  VerbsHandle<ibv_mr> region;           // The pool's memory.
  VerbsHandle<ibv_td> thread_domain;    // A doorbell register of our own; may be null.
  VerbsHandle<ibv_pd> parent_domain;    // The device's domain with that register; may be null.
  VerbsHandle<ibv_dm> device_memory;    // Both may be null.
  VerbsHandle<ibv_mr> device_region;
  VerbsHandle<ibv_comp_channel> channel;  // May be null.
  VerbsHandle<ibv_cq> receive_cq;
  VerbsHandle<ibv_cq> send_cq;
  VerbsHandle<ibv_qp> qp;

 private:
  void AcknowledgeAll();

  uint32_t receive_events_ = 0;  // Taken and not acknowledged.
  uint32_t send_events_ = 0;
  std::atomic<bool> stopped_{false};
};

class BringUp {
 public:
  // `device` and `pool` outlive the queue pair; `mtu` is the port's.
  BringUp(const Device& device, const nic::QueuePairOptions& options, uint32_t mtu,
          packet::BufferPool* pool);

  // InvalidArgument: options out of range, or buffers too small for the MTU. Otherwise the errno of
  // the step that failed, named in the message.
  absl::StatusOr<std::unique_ptr<QueuePair>> Run();

 private:
  absl::Status CheckOptions();
  absl::Status FitToDevice();
  absl::Status RegisterPool();
  absl::Status OwnDoorbellRegister();
  absl::Status OpenChannel();
  absl::Status CreateCompletionQueue(std::string_view what, uint32_t cqes,
                                     VerbsHandle<ibv_cq>* cq);
  absl::Status CreateCompletionQueues();
  absl::Status CreateQueues();
  absl::Status CreateQueuesWithoutTimes();
  absl::Status LocateRings();
  absl::Status TakeDeviceMemory();
  bool AllocateDeviceMemory();
  absl::Status RegisterDeviceMemory(uint32_t bytes);
  absl::Status BringToSend();
  std::unique_ptr<QueuePair> Compose();

  uint32_t max_frame_bytes() const;
  void Lack(std::string sentence) { capabilities_.lacking.push_back(std::move(sentence)); }

  const Device& device_;
  nic::QueuePairOptions options_;
  const uint32_t mtu_;
  packet::BufferPool* const pool_;
  bool timed_;  // CQEs are asked to carry times.
  nic::Capabilities capabilities_;
  QueuePairMemory memory_;
  std::unique_ptr<QueuePairVerbs> verbs_;
};

}  // namespace xtreme::mlx5

#endif  // XTREME_XTREME_MLX5_BRING_UP_H_
