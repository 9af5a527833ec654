// SPDX-License-Identifier: Apache-2.0
//
// Start: the first packet as fast as the millionth. What the owner will touch is moved to the
// device's NUMA node, merged into hugepages, touched and locked; afterwards its page faults are
// counted.

#include <sys/mman.h>
#include <unistd.h>

#ifdef XTREME_DEBUG
#include <cstdio>
#endif
#include <memory>
#include <optional>
#include <span>

#include "absl/strings/str_cat.h"
#include "xtreme/engine/control_side.h"
#include "xtreme/engine/control_thread.h"
#include "xtreme/engine/engine.h"
#include "xtreme/engine/ring.h"
#include "xtreme/engine/ring_core.h"
#include "xtreme/engine/ring_port.h"
#include "xtreme/engine/tcp.h"
#include "xtreme/engine/timer_table.h"
#include "xtreme/engine/udp.h"
#include "xtreme/host/cpus.h"
#include "xtreme/host/residency.h"
#include "xtreme/host/thread_faults.h"

namespace xtreme::engine {
namespace {

// Of the owner's stack: what a deep application callback below a poll may take.
constexpr size_t kStackBytes = 128 << 10;

template <typename T>
std::span<std::byte> BytesOf(T* objects, size_t count = 1) {
  return std::as_writable_bytes(std::span(objects, count));
}

}  // namespace

absl::Status Ring::Start() {
  core_->CheckOwner();
  if (core_->device.started) {
    return absl::FailedPreconditionError("start ring: it was started already");
  }
  // What was started before (rules, joins) is in place when packets are let in.
  engine_->control().RunAndWait([] {});
  MakeResident();
  core_->device.started = true;
  core_->ChangeWorld();  // Flows resolved before could not send.
  core_->device.queue->Refill();
  udp_->Warm();
  tcp_->OnStart();
  AnnounceMove();
  Flush();
  WatchOwner();
  Publish();
  // One that was down before nobody tells of any more.
  for (RingPort& port : core_->ports->all) TellLink(port, port.link.Look());
  return absl::OkStatus();
}

void Ring::MakeResident() {
  RingCore& core = *core_;
  packet::BufferPool& pool = *core.device.pool;
  residency_ = std::make_unique<host::Residency>(host::Residency::Options{
      .node = host::NumaNodeOf(core.options.interface_name),
      .merge = core.options.hugepages != Hugepages::kNever,
      .lock = &::mlock});
  residency_->KeepUntilUnmapped("pool", BytesOf(pool.region(), pool.region_bytes()));
  residency_->Keep("buffers", BytesOf(pool.at(0), pool.capacity()));
  residency_->Keep("ring", BytesOf(this));
  residency_->Keep("core", BytesOf(core_.get()));
  residency_->Keep("completions", core.fifo.memory());
  residency_->Keep("sends", core.sends.memory());
  residency_->Keep("frames", BytesOf(frames_.get(), core.options.poll_batch));
  residency_->Keep("timers", timers_->memory());
  residency_->Keep("sockets", udp_->memory());
  for (const std::span<std::byte> piece : tcp_->memory()) residency_->Keep("TCP", piece);
  residency_->KeepUntilUnmapped("stack", host::TouchStack(kStackBytes));
  absl::StrAppend(&description_, "; ", residency_->ToString());
}

// What the control thread is told of the owner's thread.
void Ring::WatchOwner() {
  const std::optional<int> cpu = host::CpuSet::OfThisThread().Single();
  bool shared = false;
  engine_->control().RunAndWait([this, cpu, &shared, tid = ::gettid()] {
    shared = cpu.has_value() && !engine_->control().KeepOff(*cpu);
    CountFaults(tid);
  });
  if (shared) absl::StrAppend(&description_, "; the control thread shares CPU ", *cpu);
}

// Control thread.
void Ring::CountFaults(int tid) {
  ControlThread& control = engine_->control();
  ControlSide& side = *core_->host.control_side;
  const auto faults = std::make_shared<host::ThreadFaults>(tid);
  const auto sample = [faults, mailbox = mailbox_, seen = faults->Read().value_or(0)]() mutable {
    const uint64_t now = faults->Read().value_or(seen);
    if (now == seen) return;
    const uint64_t rise = now - std::exchange(seen, now);
    mailbox->Push(MakeNotice([rise](Ring& ring) { ring.OnPageFaults(rise); }));
  };
  if (side.fault_count != 0) control.StopPeriodic(side.fault_count);
  side.fault_count = control.StartPeriodic(engine_->clock_period(), sample);
}

void Ring::OnPageFaults(uint64_t rise) {
  core_->tally.counters.page_faults += rise;
#ifdef XTREME_DEBUG
  fprintf(stderr, "xtreme: ring on %s: %llu page faults of its owner after Start()\n",
          core_->options.interface_name.c_str(), static_cast<unsigned long long>(rise));
#endif
}

}  // namespace xtreme::engine
