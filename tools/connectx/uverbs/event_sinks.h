// SPDX-License-Identifier: Apache-2.0
//
// Where the device reports events of one object: each becomes a record in a channel, and is
// counted, because the call that destroys the object must say how many the program was told of.
//
// Thread: On... from the device with its lock held; the rest after the device has let go of the
// object.
// Spec: <rdma/ib_user_verbs.h> ib_uverbs_destroy_cq_resp.

#ifndef XTREME_TOOLS_CONNECTX_UVERBS_EVENT_SINKS_H_
#define XTREME_TOOLS_CONNECTX_UVERBS_EVENT_SINKS_H_

#include <rdma/ib_user_verbs.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "tools/connectx/device/requests.h"
#include "tools/connectx/uverbs/event_channel.h"

namespace xtreme::connectx {

// Asynchronous events of a QP or a CQ.
class AsyncEvents : public EventSink {
 public:
  // `channel` may be null: the program asked for no events.
  explicit AsyncEvents(std::shared_ptr<EventChannel> channel) : channel_(std::move(channel)) {}

  void OnCompletion(uint64_t) override {}
  void OnAsync(ibv_event_type type, uint64_t user_handle) override {
    if (channel_ == nullptr) return;
    const ib_uverbs_async_event_desc record{.element = user_handle,
                                            .event_type = static_cast<uint32_t>(type)};
    if (channel_->Send(std::as_bytes(std::span(&record, 1)))) ++sent_;
  }

  // Takes back what the program has not read and returns how many it has.
  uint32_t Settle(uint64_t user_handle) {
    return channel_ == nullptr ? 0 : sent_ - channel_->Discard(user_handle);
  }

 protected:
  void HangUp() {
    if (channel_ != nullptr) channel_->HangUp();
  }

 private:
  const std::shared_ptr<EventChannel> channel_;
  std::atomic<uint32_t> sent_{0};
};

// Asynchronous events of a port and of the device, whose end is the last of them and closes the
// completion channels.
class PortEvents final : public AsyncEvents {
 public:
  using AsyncEvents::AsyncEvents;

  void Add(const std::shared_ptr<EventChannel>& completions) {
    const std::lock_guard lock(mutex_);
    std::erase_if(channels_, [](const auto& channel) { return channel.expired(); });
    channels_.push_back(completions);
  }

  void OnAsync(ibv_event_type type, uint64_t user_handle) override {
    AsyncEvents::OnAsync(type, user_handle);
    if (type != IBV_EVENT_DEVICE_FATAL) return;
    HangUp();
    const std::lock_guard lock(mutex_);
    for (const auto& channel : channels_) {
      if (const auto open = channel.lock()) open->HangUp();
    }
  }

 private:
  std::mutex mutex_;
  std::vector<std::weak_ptr<EventChannel>> channels_;
};

// Those of a CQ, and its completion events.
class CqEvents final : public AsyncEvents {
 public:
  // `completions` may be null: the CQ has no channel.
  CqEvents(std::shared_ptr<EventChannel> completions, std::shared_ptr<EventChannel> async)
      : AsyncEvents(std::move(async)), completions_(std::move(completions)) {}

  bool has_channel() const { return completions_ != nullptr; }

  void OnCompletion(uint64_t user_handle) override {
    if (completions_ == nullptr) return;
    const ib_uverbs_comp_event_desc record{.cq_handle = user_handle};
    if (completions_->Send(std::as_bytes(std::span(&record, 1)))) ++sent_;
  }

  uint32_t SettleCompletions(uint64_t user_handle) {
    return completions_ == nullptr ? 0 : sent_ - completions_->Discard(user_handle);
  }

 private:
  const std::shared_ptr<EventChannel> completions_;
  std::atomic<uint32_t> sent_{0};
};

}  // namespace xtreme::connectx

#endif  // XTREME_TOOLS_CONNECTX_UVERBS_EVENT_SINKS_H_
