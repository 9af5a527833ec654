// SPDX-License-Identifier: Apache-2.0
//
// The device's side of a completion queue: writes CQEs with their owner bits, knows from the
// doorbell record how far the program has read, and fires an event once for each arm.
//
// Invariant: a CQE is complete before its op_own byte makes it the program's, and none is written
// over one that the program has not consumed, unless it asked for that.
// Units: CQ slots; the producer index runs free. Byte order: CQEs and records are big endian.
// Thread: the device's lock. Spec: struct mlx5_cqe64.

#ifndef XTREME_TOOLS_CONNECTX_DEVICE_COMPLETION_QUEUE_H_
#define XTREME_TOOLS_CONNECTX_DEVICE_COMPLETION_QUEUE_H_

#include <cstdint>

#include "tools/connectx/device/environment.h"
#include "tools/connectx/device/layout.h"
#include "tools/connectx/device/requests.h"

namespace xtreme::connectx {

class CompletionQueue {
 public:
  // Writes all ones over the arm word of the record.
  CompletionQueue(const CqRequest& request, uint32_t cqn, Environment* environment);
  CompletionQueue(const CompletionQueue&) = delete;
  CompletionQueue& operator=(const CompletionQueue&) = delete;

  // Writes `cqe` as the next one; op_own is made here. False: the CQ is in error, or this CQE has
  // no room, which puts it in error: whose completion was lost goes into error too.
  bool Push(const mlx5_cqe64& cqe, uint8_t opcode, bool solicited);

  // What a CQE of this CQ carries for `time_ns`: cycles, or the PHC's time; 0 without the feature.
  uint64_t TimestampAt(int64_t time_ns) const;

  // The arm slot of this CQ's UAR page was written: looks whether it was for this CQ, in the
  // record.
  void OnArmDoorbell();
  // What was rung for this CQ: a card arms by it, not by the record.
  void CheckArm(uint32_t rung) const;

  void SetModeration(uint16_t count, uint16_t period_us);
  // Fires what moderation held back until now. When it may next have to.
  void FireIfDue();
  int64_t deadline_ns() const { return due_ns_; }

  // Whether the device has the clock whose times the program asked for.
  bool has_clock() const;

  uint32_t number() const { return cqn_; }
  uint32_t uar() const { return uar_; }
  uint32_t events() const { return event_.fired; }
  uint32_t users = 0;  // Queues that complete here.

 private:
  // What the program asked of the next event.
  struct Event {
    bool armed = false;
    bool solicited_only = false;
    uint8_t sequence = 0;   // Of the next arm, two bits.
    uint32_t consumer = 0;  // That the arm carried.
    uint32_t seen_word = kCqArmUnwritten;
    uint32_t fired = 0;
  };
  struct Moderation {
    uint16_t count = 0;
    uint16_t period_us = 0;
  };

  bool HasRoom();
  void Break(Rule rule, const char* seen);
  void ConsiderEvent();
  void Fire();

  const uint32_t cqn_;
  const uint32_t uar_;
  const uint32_t mask_;
  const uint32_t cqe_bytes_;
  uint8_t* const ring_;  // Where the 64 bytes of the first CQE are.
  uint32_t* const record_;
  EventSink* const completions_;
  EventSink* const async_;
  const uint64_t user_handle_;
  const bool real_time_;
  const bool wants_counter_;
  const bool ignore_overrun_;
  Environment* const environment_;

  uint64_t producer_ = 0;
  uint64_t consumer_ = 0;            // As last read from the record.
  uint64_t solicited_producer_ = 0;  // Behind the last solicited CQE.
  bool broken_ = false;
  Event event_;
  Moderation moderation_;
  int64_t due_ns_ = kNoDeadline;
};

}  // namespace xtreme::connectx

#endif  // XTREME_TOOLS_CONNECTX_DEVICE_COMPLETION_QUEUE_H_
