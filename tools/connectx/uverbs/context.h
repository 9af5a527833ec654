// SPDX-License-Identifier: Apache-2.0
//
// One open of a device (one ibv_context): everything that was made through its descriptor.
//
// Invariant: an object in a table exists in the device and the other way round; what is left when
// the context goes is destroyed in the order the device wants, whatever the program forgot.
// Commands are functions of a context and a call; each answers 0 or an errno and leaves nothing
// behind when it fails.
// Thread: none of its own; the boundary's lock covers it. Event sinks are called by the device.

#ifndef XTREME_TOOLS_CONNECTX_UVERBS_CONTEXT_H_
#define XTREME_TOOLS_CONNECTX_UVERBS_CONTEXT_H_

#include <rdma/ib_user_ioctl_verbs.h>
#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "tools/connectx/device/device.h"
#include "tools/connectx/uverbs/event_channel.h"
#include "tools/connectx/uverbs/event_sinks.h"
#include "tools/connectx/uverbs/handle_table.h"
#include "tools/connectx/uverbs/identity.h"
#include "tools/connectx/uverbs/ioctl.h"

namespace xtreme::connectx {

// Interrupt vectors that CQs may be spread over.
inline constexpr uint32_t kCompletionVectors = 1;

// MLX5_QP_FLAG_TIR_ALLOW_SELF_LB_UC and _MC.
SelfLoopback SelfLoopbackOf(uint32_t qp_flags);

// Of a CQ's events, in microseconds.
inline constexpr uint16_t kMaxModerationPeriod = 0xfff;

class PinnedMemory;
struct PinnedQueue;
class RecordPages;

struct PdObject {
  uint32_t pdn = 0;
};

struct MrObject {
  uint32_t lkey = 0;
  std::shared_ptr<PinnedMemory> pinned;
  uint32_t device_memory = 0;  // Handle of the on-device memory it lies in; 0: the program's own.
};

struct DmObject {
  DeviceMemory memory;
  uint32_t regions = 0;  // That lie in it.
};

// What the program maps it by, and how much.
inline uint16_t PageIndex(const DmObject& object) {
  return static_cast<uint16_t>(object.memory.offset >> 12);
}
inline uint64_t MappedBytes(const DmObject& object) {
  return (object.memory.bytes + 4095) & ~uint64_t{4095};
}

struct UarObject {
  Uar uar;
};

struct CqObject {
  uint32_t cqn = 0;
  uint64_t user_handle = 0;
  std::unique_ptr<CqEvents> events;
  std::shared_ptr<PinnedQueue> pinned;
};

struct WqObject {
  uint32_t rqn = 0;
  uint64_t user_handle = 0;
  std::unique_ptr<AsyncEvents> events;
  std::shared_ptr<PinnedQueue> pinned;
};

struct IndirectionObject {
  uint32_t number = 0;
  size_t size = 0;
};

struct RateObject {
  uint16_t index = 0;
};

struct QpObject {
  uint32_t qpn = 0;
  uint64_t user_handle = 0;
  ib_uverbs_qp_cap cap{};
  bool signals_all = false;
  bool spreads = false;  // Over an indirection table: it has no queues of its own.
  std::unique_ptr<AsyncEvents> events;
  std::shared_ptr<PinnedQueue> pinned;
};

struct FlowObject {
  uint32_t flow = 0;
  uint32_t counters = 0;  // Handle of what it counts by; 0: it does not.
};

// What rules count by, and where the program wants to read what of it (ibv_attach_counters_point_
// flow): for as long as rules count by it.
struct CountersObject {
  struct Point {
    bool bytes;  // Else packets.
    uint32_t index;
  };
  uint32_t number = 0;
  std::vector<Point> points;
  uint32_t flows = 0;
};

struct LiveObjects {
  size_t contexts = 0;
  size_t pds = 0;
  size_t memory_regions = 0;
  size_t device_memories = 0;
  size_t uars = 0;
  size_t channels = 0;
  size_t cqs = 0;
  size_t wqs = 0;
  size_t indirection_tables = 0;
  size_t qps = 0;
  size_t flows = 0;
  size_t flow_counters = 0;
  size_t rates = 0;

  friend bool operator==(const LiveObjects&, const LiveObjects&) = default;
};

struct Context {
  // All of it outlives the context. `pinned_pages`: of the process's own memory, by all its
  // contexts.
  Context(Device* device, const DeviceIdentity* identity, uint64_t* pinned_pages);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  void CountObjects(LiveObjects& live) const;

  Device* const device;
  const DeviceIdentity* const identity;
  uint64_t* const pinned_pages;
  const ContextId id;
  const std::unique_ptr<RecordPages> record_pages;
  bool devx = false;  // It asked for commands to the firmware when it was opened.

  std::shared_ptr<EventChannel> async_events;
  std::unique_ptr<PortEvents> port_events;
  std::map<int, std::shared_ptr<EventChannel>> completion_channels;  // By the program's descriptor.
  HandleTable<PdObject> pds;
  HandleTable<MrObject> memory_regions;
  HandleTable<DmObject> device_memories;
  HandleTable<UarObject> uars;
  HandleTable<CqObject> cqs;
  HandleTable<WqObject> wqs;
  HandleTable<IndirectionObject> indirection_tables;
  HandleTable<QpObject> qps;
  HandleTable<FlowObject> flows;
  HandleTable<CountersObject> flow_counters;
  HandleTable<RateObject> rates;
};

// context.cc: the device and its port.
int GetContext(Context& context, const VerbsCall& call);
int QueryDevice(Context& context, const VerbsCall& call);
int QueryDeviceExtended(Context& context, const VerbsCall& call);
int QueryPort(Context& context, const VerbsCall& call);
int QueryGidEntry(Context& context, const VerbsCall& call);
int QueryGidTable(Context& context, const VerbsCall& call);
int AllocAsyncEvents(Context& context, const VerbsCall& call);

// memory.cc
int AllocPd(Context& context, const VerbsCall& call);
int DestroyPd(Context& context, const VerbsCall& call);
int RegisterMemory(Context& context, const VerbsCall& call);
int DestroyMemoryRegion(Context& context, const VerbsCall& call);

// device_memory.cc
int AllocDeviceMemory(Context& context, const VerbsCall& call);
int FreeDeviceMemory(Context& context, const VerbsCall& call);
int RegisterDeviceMemory(Context& context, const VerbsCall& call);

// uar.cc
int AllocUar(Context& context, const VerbsCall& call);
int DestroyUar(Context& context, const VerbsCall& call);

// completion.cc
int CreateCompletionChannel(Context& context, const VerbsCall& call);
int CreateCq(Context& context, const VerbsCall& call);
int ModifyCq(Context& context, const VerbsCall& call);
int DestroyCq(Context& context, const VerbsCall& call);

// queue_pair.cc
int CreateQp(Context& context, const VerbsCall& call);
int ModifyQp(Context& context, const VerbsCall& call);
int ModifyQpExtended(Context& context, const VerbsCall& call);
int QueryQp(Context& context, const VerbsCall& call);
int DestroyQp(Context& context, const VerbsCall& call);

// work_queue.cc
int CreateWq(Context& context, const VerbsCall& call);
int ModifyWq(Context& context, const VerbsCall& call);
int DestroyWq(Context& context, const VerbsCall& call);
int CreateIndirectionTable(Context& context, const VerbsCall& call);
int DestroyIndirectionTable(Context& context, const VerbsCall& call);
// The part of CreateQp that makes a QP over an indirection table.
int CreateSpreadingQp(Context& context, const VerbsCall& call, uint64_t user_handle);

// devx.cc
int RunGeneralCommand(Context& context, const VerbsCall& call);

// pacing.cc
int AllocRate(Context& context, const VerbsCall& call);
int FreeRate(Context& context, const VerbsCall& call);

// flow.cc
int CreateFlow(Context& context, const VerbsCall& call);
int DestroyFlow(Context& context, const VerbsCall& call);

// flow_counters.cc
int CreateCounters(Context& context, const VerbsCall& call);
int ReadCounters(Context& context, const VerbsCall& call);
int DestroyCounters(Context& context, const VerbsCall& call);
// The part of CreateFlow that binds counters: what libmlx5 says of them. EINVAL: bound before and
// said again, or neither.
int BindCounters(const VerbsCall& call, CountersObject* counters);

}  // namespace xtreme::connectx

#endif  // XTREME_TOOLS_CONNECTX_UVERBS_CONTEXT_H_
