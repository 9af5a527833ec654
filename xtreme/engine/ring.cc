// SPDX-License-Identifier: Apache-2.0
//
// The life of a ring: bring-up, start, end.

#include "xtreme/engine/ring.h"

#include <cerrno>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "stack/ip/reassembly.h"
#include "stack/udp/demux.h"
#include "xtreme/engine/control_side.h"
#include "xtreme/engine/control_thread.h"
#include "xtreme/engine/engine.h"
#include "xtreme/engine/loopback_directory.h"
#include "xtreme/engine/loopback_queue.h"
#include "xtreme/engine/neighbours.h"
#include "xtreme/engine/paced_queues.h"
#include "xtreme/engine/poll_times.h"
#include "xtreme/engine/port_stock.h"
#include "xtreme/engine/prepared_sends.h"
#include "xtreme/engine/registered_memory.h"
#include "xtreme/engine/ring_core.h"
#include "xtreme/engine/ring_queues.h"
#include "xtreme/engine/ring_lane.h"
#include "xtreme/engine/ring_port.h"
#include "xtreme/engine/ring_remains.h"
#include "xtreme/engine/timer_table.h"
#include "xtreme/engine/send_flow.h"
#include "xtreme/engine/socket_table.h"
#include "xtreme/engine/tcp.h"
#include "xtreme/engine/udp.h"
#include "xtreme/host/cpus.h"
#include "xtreme/host/residency.h"
#include "xtreme/host/snapshot.h"
#include "xtreme/stats/frame_tap.h"
#include "xtreme/stats/publisher.h"

namespace xtreme::engine {
namespace {

packet::BufferPool::Hugepages PoolHugepages(Hugepages asked) {
  switch (asked) {
    case Hugepages::kNever: return packet::BufferPool::Hugepages::kNever;
    case Hugepages::kTry: break;
    case Hugepages::kRequire: return packet::BufferPool::Hugepages::kRequire;
  }
  return packet::BufferPool::Hugepages::kTry;
}

// The pool that absorbs the burst asked for; says its arithmetic.
absl::StatusOr<packet::BufferPool::Handle> MakePool(const RingOptions& options,
                                                    const nic::Capabilities& device,
                                                    std::string* arithmetic) {
  // A frame with its Ethernet header, tag and FCS, rounded to cache lines.
  const uint32_t frame_bytes = (device.mtu + 14 + 4 + 4 + 63) & ~63u;
  const uint64_t rate = options.link_bits_per_second != 0 ? options.link_bits_per_second
                                                          : device.link_bits_per_second;
  const packet::PoolSize size =
      packet::SizePoolForBurst(options.rx_burst_us, rate, options.rx_frame_bytes,
                               options.rx_queue_frames + options.tx_queue_frames);
  *arithmetic = options.rx_buffers != 0 ? absl::StrCat(options.rx_buffers, " buffers asked")
                                        : size.arithmetic;
  return packet::BufferPool::Create(
      {.buffers = options.rx_buffers != 0 ? options.rx_buffers : size.buffers,
       .buffer_bytes = frame_bytes,
       .hugepages = PoolHugepages(options.hugepages),
       .source = options.memory});
}

// Moves the control thread, on which this runs, if the options say where.
absl::Status UseControlCpus(Engine* engine, const RingOptions& options) {
  if (options.control_cpus.empty()) return absl::OkStatus();
  const auto cpus = host::CpuSet::Parse(options.control_cpus);
  if (!cpus.ok()) return cpus.status();
  if (engine->control().UseCpus(*cpus)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("run the control thread on CPUs ",
                                                 options.control_cpus, ": errno ", errno));
}

// A ring whose frames cannot be shown is a ring all the same.
std::shared_ptr<stats::FrameTap> OpenTap(const RingOptions& options, std::string* description) {
  if (options.dump_frames == 0) return nullptr;
  auto tap = stats::FrameTap::Create({.directory = options.counters_directory,
                                      .ring = options.number,
                                      .interface = options.interface_name,
                                      .program = program_invocation_short_name,
                                      .frames = options.dump_frames,
                                      .snap_bytes = options.dump_snap_bytes});
  *description = tap.ok() ? absl::StrCat("; frames in ", (*tap)->path())
                          : absl::StrCat("; ", tap.status().message());
  return tap.ok() ? *std::move(tap) : nullptr;
}

// The backup may be taken for the ring's own port: buffers, keys of bindings and rules stay.
absl::StatusOr<Engine::Port> OpenBackup(Engine* engine, const RingOptions& options,
                                        const Engine::Port& home) {
  auto backup = engine->OpenPort(options.backup_interface);
  if (!backup.ok()) {
    // NotFound is of an interface that has no card, as most have none: a backup was asked for.
    const auto code = absl::IsNotFound(backup.status()) ? absl::StatusCode::kFailedPrecondition
                                                        : backup.status().code();
    return absl::Status(code, absl::StrCat("backup ", options.backup_interface, " of ",
                                           options.interface_name, ": ",
                                           backup.status().message()));
  }
  const auto unfit = [&options](const char* why) {
    return absl::InvalidArgumentError(absl::StrCat("open ring: backup ", options.backup_interface,
                                                   " of ", options.interface_name, " ", why));
  };
  if (backup->nic == home.nic) return unfit("is on the same port");
  if (backup->vlan_id != home.vlan_id) return unfit("is on another VLAN");
  if (backup->nic->capabilities().mtu > home.nic->capabilities().mtu) {
    return unfit("has a larger MTU");
  }
  return backup;
}

void AddPort(const Engine::Port& port, Engine* engine, const std::shared_ptr<Mailbox>& mailbox,
             RingCore* core) {
  const host::Interface* interface = core->host.routes->FindInterface(port.ifindex);
  core->ports->all.push_back({.nic = port.nic,
                              .ifindex = port.ifindex,
                              .clock = port.clock,
                              .link = LinkState(interface != nullptr && interface->running)});
  engine->Subscribe(port.nic, port.ifindex, mailbox);
}

// The part of bring-up that the control thread does.
absl::Status BringUp(Engine* engine, RingCore* core, const std::shared_ptr<Mailbox>& mailbox,
                     std::string* description) {
  const RingOptions& options = core->options;
  if (absl::Status moved = UseControlCpus(engine, options); !moved.ok()) return moved;
  auto port = engine->OpenPort(options.interface_name);
  if (!port.ok()) return port.status();
  std::optional<Engine::Port> backup;
  if (!options.backup_interface.empty()) {
    auto opened = OpenBackup(engine, options, *port);
    if (!opened.ok()) return opened.status();
    backup = *opened;
  }
  std::string arithmetic;
  auto pool = MakePool(options, port->nic->capabilities(), &arithmetic);
  if (!pool.ok()) return pool.status();
  std::string tapped;
  core->device.tap = OpenTap(options, &tapped);
  auto queue = MakeQueues(options, port->nic, pool->get(), core->device.tap.get(),
                          &mailbox->waiter());
  if (!queue.ok()) return queue.status();
  RingDevice& device = core->device;
  *description = absl::StrCat((*queue)->capabilities().ToString(), "; pool ",
                              (*pool)->description(), ", ", arithmetic, tapped);
  if (options.hw_time == HwTime::kPtp && !port->clock.ptp.has_value()) {
    absl::StrAppend(description, "; times on CLOCK_MONOTONIC: no PTP clock is published");
  }
  device.nic = port->nic;
  device.pool = *std::move(pool);
  device.short_copies_leave = device.pool->LevelOf(device.pool->capacity() / 4);
  device.mtu = port->nic->capabilities().mtu;
  AdoptQueues(*std::move(queue), &device);
  device.ifindex = device.home_ifindex = port->ifindex;
  device.vlan_id = port->vlan_id;
  core->SetDeviceClock(port->clock);
  core->host.mailbox = mailbox;
  core->host.control = &engine->control();
  core->host.control_side = std::make_shared<ControlSide>(&engine->kernel(), port->nic,
                                                          device.queue.get(), port->ifindex,
                                                          mailbox.get());
  core->host.loopback = std::make_shared<LoopbackQueue>(mailbox);
  core->host.control_side->loopback = core->host.loopback;
  core->host.control_side->directory = &engine->loopback();
  core->host.control_side->watches = &engine->watches();
  engine->loopback().Enter(port->ifindex, mailbox, core->host.loopback);
  core->host.routes = engine->kernel().Routes();
  core->host.routes_version = 1;
  core->ports = std::make_shared<RingPorts>();
  AddPort(*port, engine, mailbox, core);
  if (backup.has_value()) AddPort(*backup, engine, mailbox, core);
  return absl::OkStatus();
}

const host::Interface* InterfaceOf(const RingCore& core) {
  return core.host.routes->FindInterface(core.device.ifindex);
}

}  // namespace

bool Ring::OwnedByThisThread() const { return core_->owner == packet::ThreadToken(); }

absl::StatusOr<std::unique_ptr<Ring>> Ring::Open(Engine* engine, const RingOptions& options) {
  if (absl::Status valid = options.Validate(); !valid.ok()) return valid;
  auto waiter = Waiter::Create();
  if (!waiter.ok()) return waiter.status();
  auto mailbox = std::make_shared<Mailbox>(*std::move(waiter));
  auto core = std::make_unique<RingCore>(options, engine->NewClock());
  absl::Status up;
  std::string description;
  engine->control().RunAndWait(
      [&] { up = BringUp(engine, core.get(), mailbox, &description); });
  if (!up.ok()) return up;
  core->device.pool->Adopt();
  std::unique_ptr<Ring> ring(new Ring(engine, std::move(core), std::move(mailbox)));
  ring->description_ = std::move(description);
  ring->OpenPollTimes();
  ring->OpenPublisher();
  ring->SetTapClocks();
  return ring;
}

Ring::Ring(Engine* engine, std::unique_ptr<RingCore> core, std::shared_ptr<Mailbox> mailbox)
    : core_(std::move(core)),
      registered_(std::make_unique<RegisteredMemory>(core_.get())),
      prepared_(std::make_unique<PreparedSends>(core_.get())),
      paced_(std::make_unique<PacedQueues>(core_.get())),
      udp_(std::make_unique<Udp>(core_.get())),
      tcp_(std::make_unique<Tcp>(core_.get(), &udp_->neighbours(), &udp_->ledger())),
      mailbox_(std::move(mailbox)),
      frames_(std::make_unique<nic::RxFrame[]>(core_->options.poll_batch)),
      timers_(std::make_unique<TimerTable>(core_->options.number, kMaxTimers)),
      few_(core_->device.pool->LevelOf(core_->device.pool->capacity() / 4)),
      low_water_(core_->device.pool->LevelOf(core_->device.pool->capacity() / 8)),
      engine_(engine) {
  if (tcp_->stack() != nullptr) core_->tcp = tcp_.get();
  core_->registered = registered_.get();
  core_->prepared = prepared_.get();
  core_->paced = paced_.get();
  if (const host::Interface* interface = InterfaceOf(*core_)) mtu_seen_ = interface->mtu;
  // Ports in stock from the first socket on: this once their leases are waited for.
  udp_->StockPorts();
  engine_->control().RunAndWait([] {});
  TakeNotices();
}

void Ring::AdoptForATurn() {
  core_->owner = packet::ThreadToken();
  core_->device.pool->Adopt();
  registered_->Adopt();
}

void Ring::Adopt() {
  AdoptForATurn();
  if (core_->device.started) WatchOwner();
}

Outcome Ring::RegisterMemory(const MemoryRequest& request, packet::Buffer** buffer) {
  core_->CheckOwner();
  return registered_->Register(request, buffer);
}

packet::Buffer* Ring::AcquireBuffer() {
  core_->CheckOwner();
  packet::BufferPool& pool = *core_->device.pool;
  // What other threads gave back is free before the next poll takes it back.
  if (pool.free_count() == 0 && pool.HasReturns()) pool.DrainReturns();
  return pool.Acquire();
}

uint32_t Ring::buffer_bytes() const { return core_->device.pool->payload_bytes(); }

base::Nanoseconds Ring::Now() const { return core_->clock.Now(); }

base::Nanoseconds Ring::ClockError() const {
  const nic::ClockConversion& device = core_->clock.device();
  if (!device.in_sync) return base::kNever;
  return base::Nanoseconds(static_cast<int64_t>(device.error_bound_ns));
}

bool Ring::TimesAreOnPtp() const { return (core_->clock.flags() & completion::kPtpTime) != 0; }

Ring::~Ring() {
  core_->CheckOwner();
  PublishAs(/*closed=*/true);
  residency_.reset();  // While what it locked is there.
  mailbox_->Close();
  for (const auto& lane : lanes_) lane->Close();
  core_->fifo.Clear([](Completion* completion) {
    if (completion->kind == Kind::kPacket) packet::BufferPool::ReleaseChain(completion->buffer);
  });
  for (; frames_at_ != frames_end_; ++frames_at_) {
    packet::BufferPool::Release(frames_[frames_at_].buffer);
  }
  for (const nic::RxFrame& frame : left_behind_) packet::BufferPool::Release(frame.buffer);
  Bury();
}

// The pool goes with this thread: one buffer that is held keeps its memory until the queue is gone.
// The control thread gets to the rest after all that this ring started before.
void Ring::Bury() {
  auto remains = std::make_shared<RingRemains>();
  registered_->Bury(remains.get());
  tcp_->Bury(remains.get());
  remains->guard = core_->device.pool->Hold();
  remains->ports = udp_->ports().TakeAll();
  core_->sends.ForEach([&](const SendRecord& record) {
    if (record.buffer != nullptr) remains->sending.push_back(record.buffer);
  });
  tcp_.reset();
  udp_.reset();
  if (core_->device.queue->fd() >= 0) mailbox_->waiter().Remove(core_->device.queue->fd());
  paced_->Bury(remains.get());
  remains->queues.push_back({std::move(core_->device.taken != nullptr ? core_->device.taken
                                                                      : core_->device.queue),
                             core_->sends.completed()});
  remains->side = core_->host.control_side;
  remains->mailbox = mailbox_;
  remains->publisher = std::move(publisher_);
  remains->tap = std::move(core_->device.tap);
  notices_.Clear();
  core_->device.pool.reset();
  ControlThread* control = &engine_->control();
  control->Start(MakeOperation([remains, control, patience = engine_->send_patience()] {
    remains->Bury(*control, patience);
  }));
}

void Ring::VisitCounters(const CounterVisitor& visit) {
  core_->CheckOwner();
  SampleLowWater();
  const auto in = [&visit](std::string_view scope) {
    return [&visit, scope](std::string_view name, std::string_view meaning,
                           const uint64_t& value) { visit(scope, name, meaning, value); };
  };
  base::VisitCounters(core_->tally.counters, in("ring"));
  base::VisitCounters(core_->tally.refusals, in("ring"));
  nic::QueueCounters queues = core_->tally.queues_before;
  base::AddCounters(core_->device.queue->counters(), queues);
  paced_->AddCounters(queues);
  base::VisitCounters(queues, in("queue"));
  visit("queue", "device_memory_bytes", "on-device memory that the send queue has",
        core_->device.queue->capabilities().device_memory_bytes);
  visit("queue", "paced_queues", "send queues with a rate, beside the ring's own",
        paced_->size());
  visit("queue", "rx_posted", "receive buffers posted now",
        core_->device.started ? core_->device.queue->posted() : 0);
  visit("queue", "rx_low_water", "least number of posted receive buffers seen",
        core_->device.started ? core_->tally.queue_low_water : 0);
  const packet::BufferPool& pool = *core_->device.pool;
  visit("pool", "buffers", "buffers there are", pool.capacity());
  visit("pool", "free", "buffers free now", pool.free_count());
  visit("pool", "low_water", "least number of free buffers seen", pool.counters().low_water);
  visit("pool", "exhausted", "times no buffer was free", pool.counters().exhausted);
  visit("pool", "foreign_returns", "buffers released by other threads",
        pool.counters().foreign_returns);
  base::VisitCounters(core_->tally.port, in("port"));
  base::VisitCounters(core_->tally.drops, in("drop"));
  base::VisitCounters(udp_->ledger().verdicts, in("drop"));
  base::VisitCounters(udp_->demux().misaddressed(), in("drop"));
  base::VisitCounters(udp_->neighbours().counters(), in("neighbour"));
  tcp_->VisitCounters(in("tcp"));
  if (const ip::Reassembler* reassembler = udp_->reassembler()) {
    base::VisitCounters(reassembler->counters(), in("reassembly"));
  }
  VisitPollTimes(visit);
}

bool Ring::VisitSocketCounters(Handle handle, const CounterVisitor& visit) const {
  core_->CheckOwner();
  const auto tcp = [&visit](std::string_view name, std::string_view meaning,
                            const uint64_t& value) { visit("tcp", name, meaning, value); };
  if (IsTcp(handle)) return tcp_->VisitSocketCounters(handle, tcp);
  const UdpSocket* socket = udp_->Find(handle);
  if (socket == nullptr) return false;
  prepared_->Settle();
  const auto udp = [&visit](std::string_view name, std::string_view meaning,
                            const uint64_t& value) { visit("udp", name, meaning, value); };
  base::VisitCounters(socket->counters(), udp);
  base::VisitCounters(socket->group_counters(), udp);
  base::VisitCounters(SendFlows::CountersOf(socket->flows.get()), udp);
  base::VisitCounters(socket->sends, udp);
  base::VisitCounters(HeldBuffers::CountersOf(socket->held()), udp);
  return true;
}

}  // namespace xtreme::engine
