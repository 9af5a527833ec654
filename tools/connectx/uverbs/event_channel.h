// SPDX-License-Identifier: Apache-2.0
//
// A queue of events behind a real descriptor that a program reads, polls and closes as it likes: a
// completion channel (8-byte records) or a context's asynchronous events (16-byte records).
//
// Invariant: an event is read by the program or taken back by Discard, never both, so "reported"
// counts that ibv_destroy_cq waits for are exact.
// The program owns its end; ours keeps the queue alive after it was closed.
// Thread: any; Send comes from the device's thread, Discard from the thread that destroys.
// Spec: <rdma/ib_user_verbs.h> ib_uverbs_comp_event_desc, ib_uverbs_async_event_desc.

#ifndef XTREME_TOOLS_CONNECTX_UVERBS_EVENT_CHANNEL_H_
#define XTREME_TOOLS_CONNECTX_UVERBS_EVENT_CHANNEL_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>

namespace xtreme::connectx {

class EventChannel {
 public:
  // `record_bytes` is the length of one event. Null when the system has no descriptors left.
  static std::shared_ptr<EventChannel> Create(size_t record_bytes);
  ~EventChannel();
  EventChannel(const EventChannel&) = delete;
  EventChannel& operator=(const EventChannel&) = delete;

  // The program's descriptor. It is the program's to close.
  int program_fd() const { return program_fd_; }

  // Queues one event, whose first eight bytes name the object it is about. False: the program left
  // so many unread that the queue is full, and this one is lost.
  bool Send(std::span<const std::byte> record);

  // As the kernel closes a channel of a device that was pulled: the program's descriptor is ready
  // for ever, and gives nothing but what is queued already.
  void HangUp();

  // Takes back the unread events about `element` and returns how many.
  uint32_t Discard(uint64_t element);

 private:
  EventChannel(size_t record_bytes, int device_fd, int program_fd, int shadow_fd)
      : record_bytes_(record_bytes),
        device_fd_(device_fd),
        program_fd_(program_fd),
        shadow_fd_(shadow_fd) {}

  const size_t record_bytes_;
  const int device_fd_;
  const int program_fd_;
  const int shadow_fd_;  // A duplicate of the program's end, to take events back through.
  std::mutex mutex_;     // Keeps Send out while Discard puts the others back in order.
};

}  // namespace xtreme::connectx

#endif  // XTREME_TOOLS_CONNECTX_UVERBS_EVENT_CHANNEL_H_
