// SPDX-License-Identifier: Apache-2.0
//
// xtreme.h: buffers, timers, lanes, watched fds and counters.

#include <functional>

#include "api/native/calls.h"
#include "fmt/format.h"
#include "stack/packet/buffer_pool.h"
#include "xtreme/engine/handle.h"
#include "xtreme/engine/registered_memory.h"
#include "xtreme/engine/ring_lane.h"

namespace xtreme::api {
namespace {

packet::Buffer* ToPacket(const xtreme_buffer* buffer) {
  return reinterpret_cast<packet::Buffer*>(const_cast<xtreme_buffer*>(buffer));
}
xtreme_buffer* ToC(packet::Buffer* buffer) { return reinterpret_cast<xtreme_buffer*>(buffer); }

// Fills an array of counters, and counts how many there are when it is too short.
class CounterSink {
 public:
  CounterSink(xtreme_counter* counters, int max) : counters_(counters), max_(max) {}

  void operator()(std::string_view scope, std::string_view name, std::string_view meaning,
                  uint64_t value) {
    // The strings are literals, so that data() ends with a zero.
    if (count_ < max_) counters_[count_] = {scope.data(), name.data(), meaning.data(), value};
    ++count_;
  }
  int count() const { return count_; }

 private:
  xtreme_counter* const counters_;
  const int max_;
  int count_ = 0;
};

}  // namespace
}  // namespace xtreme::api

using xtreme::api::Fail;
using xtreme::api::FindRing;
using xtreme::api::ToPacket;
using xtreme::packet::BufferPool;

void xtreme_buffer_ref(xtreme_buffer* buffer) { BufferPool::AddReference(ToPacket(buffer)); }

int xtreme_buffer_release(xtreme_buffer* buffer) { return BufferPool::Release(ToPacket(buffer)); }

xtreme_buffer* xtreme_buffer_next(const xtreme_buffer* buffer) {
  return xtreme::api::ToC(ToPacket(buffer)->next);
}

uint8_t* xtreme_buffer_data(const xtreme_buffer* buffer) { return ToPacket(buffer)->data; }

uint32_t xtreme_buffer_length(const xtreme_buffer* buffer) { return ToPacket(buffer)->length; }

size_t xtreme_copy_out(const xtreme_completion* completion, void* to, size_t size) {
  if (completion->buffer == nullptr) return 0;
  return xtreme::packet::CopyOut(
      {ToPacket(completion->buffer), completion->data, completion->length}, to, size);
}

void xtreme_release(const xtreme_completion* completions, int count, size_t completion_size) {
  const auto* at = reinterpret_cast<const uint8_t*>(completions);
  for (int i = 0; i < count; ++i, at += completion_size) {
    const auto* completion = reinterpret_cast<const xtreme_completion*>(at);
    xtreme_buffer* buffer = completion->buffer;
    if (buffer == nullptr) continue;
    if ((completion->flags & XTREME_CHAINED) == 0) [[likely]] {
      BufferPool::Release(ToPacket(buffer));
    } else {
      BufferPool::ReleaseChain(ToPacket(buffer));
    }
  }
}

int xtreme_buffer_acquire(xtreme_ring ring, xtreme_buffer** buffer, uint8_t** data,
                          uint32_t* capacity) {
  xtreme::engine::Ring* found;
  if (const int failed = xtreme::api::Reach(ring.value, &found)) return failed;
  xtreme::packet::Buffer* acquired = found->AcquireBuffer();
  if (acquired == nullptr) return Fail(ENOBUFS, "acquire buffer: none of the pool is free");
  *buffer = xtreme::api::ToC(acquired);
  *data = acquired->data;
  *capacity = found->buffer_bytes();
  return 0;
}

int xtreme_buffer_register(xtreme_ring ring, const xtreme_memory* memory, xtreme_buffer** buffer) {
  xtreme::engine::Ring* found;
  if (const int failed = xtreme::api::Reach(ring.value, &found)) return failed;
  xtreme::packet::Buffer* registered = nullptr;
  const xtreme::engine::Outcome outcome = found->RegisterMemory({.start = memory->start,
                                                                 .bytes = memory->length,
                                                                 .released = memory->released,
                                                                 .context = memory->context,
                                                                 .cookie = memory->cookie},
                                                                &registered);
  if (!outcome.ok()) return Fail(outcome.error, outcome.text);
  *buffer = xtreme::api::ToC(registered);
  return 0;
}

// --- Timers, lanes, watched fds ----------------------------------------------------------------

int xtreme_timer_start(xtreme_ring ring, int64_t deadline_ns, uint64_t cookie,
                       xtreme_timer* timer) {
  xtreme::engine::Ring* found;
  if (const int failed = xtreme::api::Reach(ring.value, &found)) return failed;
  timer->value = found->StartTimer(xtreme::base::Nanoseconds(deadline_ns), cookie);
  if (timer->value != 0) return 0;
  return Fail(ENOBUFS, fmt::format("start timer: {} are armed", xtreme::engine::Ring::kMaxTimers));
}

int xtreme_timer_cancel(xtreme_ring ring, xtreme_timer timer) {
  xtreme::engine::Ring* found;
  if (const int failed = xtreme::api::Reach(ring.value, &found)) return failed;
  // Of another ring's its place and generation may be those of a timer here.
  if (xtreme::api::NumberOf(timer.value) != xtreme::api::NumberOf(ring.value)) {
    return Fail(EBADF, "cancel timer: it is not this ring's");
  }
  const xtreme::engine::Outcome outcome = found->CancelTimer(timer.value);
  return outcome.ok() ? 0 : Fail(outcome.error, outcome.text);
}

int xtreme_lane_open(xtreme_ring ring, xtreme_lane* lane) {
  xtreme::engine::Ring* found;
  if (const int failed = xtreme::api::Reach(ring.value, &found)) return failed;
  const auto opened = xtreme::api::Process::The().OpenLane(found);
  lane->value = opened.value_or(0);
  if (!opened.ok()) return Fail(ENOBUFS, std::string(opened.status().message()));
  return *opened != 0 ? 0 : Fail(EMFILE, "open lane: 65535 lanes are open");
}

int xtreme_lane_close(xtreme_lane lane) {
  return xtreme::api::Process::The().CloseLane(lane.value) ? 0 : xtreme::api::NoSuch("lane");
}

int xtreme_lane_post(xtreme_lane lane, uint64_t value) {
  xtreme::engine::RingLane* found = xtreme::api::Process::The().FindLane(lane.value);
  if (found == nullptr) return xtreme::api::NoSuch("lane");
  const int error = found->Post(value);
  return error == 0 ? 0 : Fail(error, error == EPIPE ? "post: the ring is closed"
                                                     : "post: the lane is full");
}

int xtreme_ring_watch(xtreme_ring ring, int fd, uint32_t events) {
  xtreme::engine::Ring* found;
  if (const int failed = xtreme::api::Reach(ring.value, &found)) return failed;
  if (fd < 0) return Fail(EBADF, fmt::format("watch: fd {}", fd));
  found->Watch(fd, events);
  return 0;
}

// --- Counters ----------------------------------------------------------------------------------

int xtreme_ring_counters(xtreme_ring ring, xtreme_counter* counters, int max) {
  xtreme::engine::Ring* found;
  if (const int failed = xtreme::api::Reach(ring.value, &found)) return failed;
  xtreme::api::CounterSink sink(counters, max);
  found->VisitCounters(std::ref(sink));
  return sink.count();
}

int xtreme_socket_counters(xtreme_socket socket, xtreme_counter* counters, int max) {
  xtreme::engine::Ring* found;
  if (const int failed = xtreme::api::Reach(socket.value, &found)) return failed;
  xtreme::api::CounterSink sink(counters, max);
  if (!found->VisitSocketCounters(socket.value, std::ref(sink))) {
    return xtreme::api::NoSuch("socket");
  }
  return sink.count();
}
