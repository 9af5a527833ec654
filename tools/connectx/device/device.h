// SPDX-License-Identifier: Apache-2.0
//
// A ConnectX in software, from the kernel boundary down: one NIC with one port on one wire. Control
// calls make and destroy its objects; Service() is the silicon: it consumes doorbells, executes
// send queues, takes frames from the wire, steers them, writes CQEs and fires completion events.
//
// Invariant: without a doorbell nothing is sent, and after a destroying call has returned the
// device does not touch that object's memory.
// Units and byte order: requests.h. Results of control calls are 0 or an errno, as a verb's.
// Thread: every call from any thread. Service() excludes control calls and gives way to them.
// Spec: docs/connectx.md; layouts in layout.h and infiniband/mlx5dv.h.

#ifndef XTREME_TOOLS_CONNECTX_DEVICE_DEVICE_H_
#define XTREME_TOOLS_CONNECTX_DEVICE_DEVICE_H_

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/connectx/device/clock.h"
#include "tools/connectx/device/requests.h"
#include "tools/connectx/wire/wire.h"

namespace xtreme::connectx {

struct DeviceState;

class Device {
 public:
  enum class MinInline : uint8_t { kNone, kL2 };

  // What sysfs, lspci and the firmware say it is. The defaults are a ConnectX-5's.
  struct Model {
    uint16_t pci_device_id = 0x1017;
    std::string hca_type = "MT4119";
    std::string board_id = "MT_0000000012";
    std::array<uint16_t, 3> firmware = {16, 35, 4030};
  };

  struct Limits {
    uint32_t qps = 4096;
    uint32_t cqs = 8192;
    uint32_t wqebbs = 32768;  // Of one send queue; also WQEs of one receive queue.
    uint32_t cqes = 1 << 22;  // Of one CQ.
    uint32_t flow_rules = 65536;
    uint32_t uars = 1024;
    uint32_t memory_regions = 65536;
    uint64_t device_memory_bytes = 131'072;  // 0: a device without.
    uint32_t tso_bytes = 262'144;  // Payload of one TSO WQE (max_tso); 0: a device without.
    uint32_t indirection_entries = 2048;
    uint32_t rates = 127;  // Different ones at a time.
    uint32_t least_rate_kbps = 1;
  };

  struct Features {
    bool timestamps = true;  // Else CQEs carry 0.
    // Else AllocUar(kBlueFlame) is EOPNOTSUPP, as without write combining.
    bool blueflame = true;
    bool checksum_offload = true;  // Else checksum flags are refused, and CQEs carry no verdict.
    bool vlan_insertion = true;    // A send may ask for a tag that is not in its bytes.
    bool vlan_stripping = true;    // Receive queues may ask for tags to go into CQEs.
    bool receive_scaling = true;   // Receive queues of their own, and RSS over them.
    bool packet_pacing = true;
    bool pacing_bursts = true;     // A rate may say its burst and its typical packet.
    bool real_time_clock = false;  // CQs may ask for the PHC's time.
    // CQs may ask for the counter's. Else every CQE carries the PHC's, as of a card whose firmware
    // is set to real time and nothing else.
    bool free_running_clock = true;
    bool devx = true;              // A program may ask for it; of its commands there is one.
    bool cq_moderation = true;     // Events may wait for a count or a time.
    bool clock_info = true;        // Programs may map the kernel's page of the PHC.
    // A rule may leave the kernel its copy (the card's nic_rx_multi_path_tirs).
    bool dont_trap = true;
    // The programs' and not the card's: else the boundary refuses raw queue pairs and rules with
    // EPERM, as the kernel does whoever has no CAP_NET_RAW.
    bool net_raw = true;
  };

  struct Options {
    std::string name = "mlx5_0";
    MacAddress mac{};
    Model model;
    // 576 to 9978; the Ethernet header comes on top. A wire that has one of its own goes before it.
    uint32_t mtu = 1500;
    uint32_t hca_core_clock_khz = 1'000'000;
    int64_t phc_offset_ns = 0;  // What the PHC is ahead of the clock, as if somebody had set it.
    MinInline eth_min_inline = MinInline::kL2;
    Limits limits;
    Features features;
    bool strict = true;  // Collect Violations().
    // The program and the pump take turns on one thread: BlueFlame bytes are then compared whole,
    // and indices at every look.
    bool step = false;
  };

  struct NamedCounter {
    const char* name;  // The name in the card's sysfs `counters` or `hw_counters`.
    uint64_t value;
  };

  struct PortState {
    bool up;
    uint32_t mtu;
    MacAddress mac;
  };

  // `wire` and `clock` outlive the device. Error: InvalidArgument (which option), Internal (memfd).
  static absl::StatusOr<std::unique_ptr<Device>> Create(const Options& options, Wire* wire,
                                                        const Clock* clock);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  // The data plane: one pass over doorbells, send queues with work left, the wire and what is due.
  // False: there was nothing to do, and there will be nothing before NextDeadline() unless a
  // doorbell is rung or wire()->fd() is readable.
  bool Service();

  // When Service() must run though nothing rings: pacing, CQ moderation, the wire's own delays, a
  // queue in error that may get WQEs to flush. Nanoseconds of the clock; kNoDeadline if never.
  int64_t NextDeadline() const;

  // Contexts and protection domains are numbers only. FreePd: EBUSY while regions or queues use it.
  // While one is open alone, nothing that it sends is looped back, but for queues that ask for it.
  ContextId OpenContext();
  void CloseContext();
  int AllocPd(uint32_t* pd);
  int FreePd(uint32_t pd);

  // EINVAL (no memory, wraps, unknown PD), ENOMEM (limit). Deregister: EINVAL (unknown key).
  int RegisterMemory(const MemoryRequest& request, MemoryKeys* keys);
  int DeregisterMemory(uint32_t lkey);

  // On-device memory, whole pages of device_memory_fd(). Its start is registered like any memory's.
  // EOPNOTSUPP (the device has none), EINVAL (no bytes, alignment above a page), ENOMEM (no room).
  // Free: EINVAL.
  int AllocDeviceMemory(uint64_t bytes, uint32_t alignment_log2, DeviceMemory* memory);
  int FreeDeviceMemory(uint64_t offset);
  int device_memory_fd() const;

  // Pages of uar_fd(), zeroed. ENOMEM (limit), EOPNOTSUPP (no BlueFlame). FreeUar: EBUSY while
  // queues use it, EINVAL.
  int AllocUar(UarType type, Uar* uar);
  int FreeUar(uint32_t page_id);
  int uar_fd() const;
  // Size of the memory behind uar_fd() and where the device has it mapped: what a watcher protects.
  std::span<uint8_t> uar_memory() const;

  // EINVAL (shape, unknown UAR), ENOMEM (limit). The arm word of the record is set to all ones, so
  // that the first arm, which is all zeros, is seen. DestroyCq: EBUSY while queues use it;
  // `events` (may be nullptr) is the number of completion events it fired.
  int CreateCq(const CqRequest& request, uint32_t* cqn);
  int DestroyCq(uint32_t cqn, uint32_t* events);
  // An armed CQ fires after `count` CQEs or `period_us` after the first, whichever is first. 0, 0:
  // at once. EINVAL, EOPNOTSUPP.
  int ModerateCq(uint32_t cqn, uint16_t count, uint16_t period_us);

  // EINVAL (shape, unknown PD, CQ or UAR), ENOMEM (limit), EOPNOTSUPP (a CQ that asks for times of
  // a clock that the device does not have). The QP starts in RESET; it receives from INIT on, what
  // its record shows, and sends from RTS on. DestroyQp: EBUSY while flow rules point at it.
  int CreateQp(const QpRequest& request, uint32_t* qpn);
  // EINVAL when the transition is not one of RESET-INIT-RTR-RTS, INIT or RTS to itself, any to
  // RESET, or any but RESET to ERR. A queue that leaves RTS has no rate any more.
  // A rate (`kbps` 0: not paced) comes with RTS. EINVAL (another state, outside the card's range),
  // ENOSPC (too many different rates), EOPNOTSUPP: neither state nor rate changed.
  int ModifyQp(uint32_t qpn, ibv_qp_state state, const std::optional<Rate>& rate = std::nullopt);
  // The state is that of its queues: SQE when only the send queue is in error. EINVAL: unknown, or
  // only the receive queue is, which is no state of a QP.
  int QueryQp(uint32_t qpn, QpAttributes* attributes) const;
  // The state that it was brought to, whatever became of its queues. EINVAL.
  int QpState(uint32_t qpn, ibv_qp_state* state) const;
  int DestroyQp(uint32_t qpn);

  // An entry of the card's rate table of one's own: 0 or as ModifyQp. Free: EINVAL.
  int AllocRate(const Rate& rate, bool dedicated, uint16_t* index);
  int FreeRate(uint16_t index);

  // Receive side scaling. EINVAL, ENOMEM, EOPNOTSUPP as CreateQp; destroying EBUSY while in use.
  int CreateWq(const WqRequest& request, uint32_t* rqn);
  int ModifyWq(uint32_t rqn, ibv_wq_state state);
  int QueryWq(uint32_t rqn, WqAttributes* attributes) const;
  int StripVlan(uint32_t rqn, bool strip);
  int DestroyWq(uint32_t rqn);
  // `rqns`: a power of two of them.
  int CreateIndirectionTable(std::span<const uint32_t> rqns, uint32_t* table);
  int DestroyIndirectionTable(uint32_t table);
  // Destroyed by DestroyQp.
  int CreateRssQp(const RssQpRequest& request, uint32_t* qpn);

  // When it returns 0 the rule is in force, on the wire too. EEXIST (an equal match has another
  // tag, or one of the two drops), EINVAL (unknown QP or counter, tag above 24 bits, ports without
  // TCP or UDP), ENOSPC (priority, or the table is full), EOPNOTSUPP (a partial mask that no wire
  // has), EIO (the wire refused).
  int CreateFlow(const FlowRequest& request, uint32_t* flow);
  int DestroyFlow(uint32_t flow);

  // What rules count by; several may by one. ENOMEM (as many as rules), EBUSY (rules do), EINVAL.
  int CreateFlowCounter(uint32_t* counter);
  int DestroyFlowCounter(uint32_t counter);
  int ReadFlowCounter(uint32_t counter, FlowCount* count) const;

  // The free-running hardware clock in cycles of hca_core_clock; what a time in nanoseconds is in
  // it.
  uint64_t HardwareClock() const;
  uint64_t CyclesAt(int64_t time_ns) const;

  // The PTP hardware clock: the device's time until somebody steps it or makes it run faster, as a
  // PTP daemon does. Each adjustment counts in clock_adjustments().
  void AdjustPhc(int64_t step_ns, int32_t parts_per_billion);
  int64_t PhcAt(int64_t time_ns) const;
  int32_t phc_parts_per_billion() const;
  uint32_t clock_adjustments() const;

  // Who hears of the port and of the device's end. Nobody is told what was before.
  void Subscribe(EventSink* sink);
  void Unsubscribe(EventSink* sink);

  // What an administrator does to the port (`ip link set`). Down, nothing passes in either
  // direction. The port is up when this and the wire are.
  void SetPortUp(bool up);
  // Programs are told that `port` went up or down, one that this device has not: as by a card whose
  // ports are of one device, which tells of all of them to whoever uses one.
  void TellOfOtherPort(uint8_t port, bool up);
  // Pulls the card, for good: the data path stands still, subscribers get IBV_EVENT_DEVICE_FATAL.
  // Control calls still release what there is; the boundary refuses programs' calls with EIO.
  void Remove();
  bool removed() const;

  PortState Port() const;
  // Port-wide, as a card's: out_of_buffer does not say whose.
  std::vector<NamedCounter> Counters() const;
  // What the program did that hardware punishes or that breaks the manual, oldest first: the rule's
  // name, the object and what was seen. The first 256 are kept.
  std::vector<std::string> Violations() const;

  // Around fork(): no call is under way in between, so that the child's copy answers control calls.
  void BeforeFork();
  void AfterFork();

  const Options& options() const;
  Wire* wire() const;

 private:
  explicit Device(std::unique_ptr<DeviceState> state);

  const std::unique_ptr<DeviceState> state_;
};

}  // namespace xtreme::connectx

#endif  // XTREME_TOOLS_CONNECTX_DEVICE_DEVICE_H_
