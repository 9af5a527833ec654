// SPDX-License-Identifier: Apache-2.0
//
// What the kernel boundary asks of a software ConnectX: one structure a verb, with the addresses
// and numbers that libmlx5 put into its commands.
//
// Invariant: memory named in a request stays mapped until the call that destroys the object
// returns;
// from then on the device does not touch it.
// Units: bytes, WQEBBs of 64 bytes, entries. Numbers are in host byte order, MAC addresses in wire
// order; the memory behind ring and doorbell-record pointers is big endian, as the card has it.
// Spec: infiniband/mlx5dv.h and rdma/mlx5-abi.h for the fields' origin.

#ifndef XTREME_TOOLS_CONNECTX_DEVICE_REQUESTS_H_
#define XTREME_TOOLS_CONNECTX_DEVICE_REQUESTS_H_

#include <infiniband/verbs.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "tools/connectx/wire/wire.h"

namespace xtreme::connectx {

// One open of the device (an ibv_context): a card's transport domain.
using ContextId = uint32_t;

// What of its own context's sends a queue receives, where the card loops them back: nothing, unless
// it was asked for when the queue was made (a TIR's self_lb_block).
struct SelfLoopback {
  bool unicast = false;
  bool multicast = false;

  bool any() const { return unicast || multicast; }
};

// Where a device reports. Both calls come from the thread that pumps (or, for an event that is due
// at once, from the control call) with the device's lock held: an implementation must not block and
// must not call the device.
class EventSink {
 public:
  virtual ~EventSink() = default;
  // A completion event: the CQ was armed and has a CQE. `user_handle` is the CQ's.
  virtual void OnCompletion(uint64_t user_handle) = 0;
  // IBV_EVENT_QP_FATAL and IBV_EVENT_WQ_FATAL with the queue's `user_handle`, IBV_EVENT_CQ_ERR with
  // the CQ's; to who subscribed, IBV_EVENT_PORT_ACTIVE and IBV_EVENT_PORT_ERR with the port's
  // number, and IBV_EVENT_DEVICE_FATAL.
  virtual void OnAsync(ibv_event_type type, uint64_t user_handle) = 0;
};

struct MemoryRequest {
  uint32_t pd = 0;
  uint8_t* start = nullptr;  // Where the program has it mapped.
  uint64_t length = 0;       // May be 0: a key that covers nothing.
  uint64_t iova = 0;         // The address WQEs use: `start`'s, or 0 for a zero-based region.
  bool local_write = false;  // IBV_ACCESS_LOCAL_WRITE: receives may be scattered here.
};

struct MemoryKeys {
  uint32_t lkey = 0;
  uint32_t rkey = 0;
};

// Pages in the NIC (ibv_alloc_dm). `offset` is in Device::device_memory_fd(): where the boundary
// maps whole pages of 4,096 bytes for the program.
struct DeviceMemory {
  uint8_t* start = nullptr;  // The device's own mapping of it.
  uint64_t offset = 0;
  uint64_t bytes = 0;  // As asked for.
};

enum class UarType : uint8_t { kBlueFlame, kNonCached };

struct Uar {
  uint32_t page_id = 0;     // What libmlx5 hands back as uar page id and bfreg index.
  uint8_t* page = nullptr;  // The device's own mapping of it.
  // In Device::uar_fd(): where the boundary maps 4,096 bytes for the program.
  uint64_t offset = 0;
};

struct CqRequest {
  uint8_t* ring = nullptr;
  uint32_t entries = 0;                 // Of the ring: a power of two.
  uint32_t cqe_size = 64;               // 64 or 128.
  uint32_t* doorbell_record = nullptr;  // Two words: consumer index, arm.
  uint32_t uar = 0;                     // Page whose +0x20 arms this CQ.
  EventSink* completions = nullptr;     // nullptr: no completion channel, never fires.
  EventSink* async = nullptr;           // May be nullptr.
  uint64_t user_handle = 0;
  bool timed = false;      // Asks for times: the counter's, unless `real_time`.
  bool real_time = false;  // CQEs carry the PHC's time, seconds and nanoseconds, instead of cycles.
  bool ignore_overrun = false;  // CQEs are written over unread ones, and nobody is told.
};

// How fast a send queue may send: bytes of frames, headers included.
struct Rate {
  uint32_t kbps = 0;                  // 0: not paced.
  uint32_t burst_bytes = 0;           // May leave at once after a pause.
  uint16_t typical_packet_bytes = 0;  // What a card chooses its grain by; told apart, not used.

  friend bool operator==(const Rate&, const Rate&) = default;
};
inline constexpr uint32_t kMaxRateKbps = 100'000'000;

// IBV_RX_HASH_*: what a hash can be of.
inline constexpr uint64_t kRxHashFields = 0xff;

struct SendQueueRequest {
  uint8_t* ring = nullptr;
  uint32_t wqebbs = 0;  // A power of two; 0: no send queue.
  uint32_t cq = 0;
};

struct ReceiveQueueRequest {
  uint8_t* ring = nullptr;
  uint32_t wqes = 0;            // A power of two; 0: no receive queue.
  uint32_t wqe_shift_log2 = 4;  // log2 of a WQE's bytes: 4 is one data segment.
  uint32_t cq = 0;
  bool strip_vlan = false;  // The customer tag goes from the frame into the CQE.
};

// A RAW_PACKET QP.
struct QpRequest {
  ContextId context = 0;
  uint32_t pd = 0;
  SendQueueRequest send;
  ReceiveQueueRequest receive;
  uint32_t* doorbell_record = nullptr;  // Two words: receive, send.
  uint32_t uidx = 0;                    // 24 bits; comes back in every CQE (CQE version 1).
  uint32_t uar = 0;                     // Page whose doorbells start this QP's send queue.
  SelfLoopback self_loopback;
  EventSink* async = nullptr;           // May be nullptr.
  uint64_t user_handle = 0;
};

struct QpAttributes {
  ibv_qp_state state = IBV_QPS_RESET;
  uint32_t send_wqebbs = 0;
  uint32_t receive_wqes = 0;
  uint32_t receive_sges = 0;
  Rate rate;
};

// A receive queue of its own (ibv_create_wq), for indirection tables.
struct WqRequest {
  ContextId context = 0;
  uint32_t pd = 0;
  ReceiveQueueRequest receive;
  uint32_t* doorbell_record = nullptr;  // The first word is the receive record.
  uint32_t uidx = 0;
  EventSink* async = nullptr;
  uint64_t user_handle = 0;
};

struct WqAttributes {
  ibv_wq_state state = IBV_WQS_RESET;
  bool strip_vlan = false;
};

// A QP that only spreads what it is given over an indirection table by a Toeplitz hash.
struct RssQpRequest {
  ContextId context = 0;
  uint32_t indirection_table = 0;
  std::array<uint8_t, 40> key{};
  uint64_t fields = 0;  // IBV_RX_HASH_SRC_IPV4 and so on; 0: every frame goes to the table's first.
  SelfLoopback self_loopback;
};

// Values or masks of a flow rule; numbers in host byte order. A VLAN mask other than 0 means
// "tagged";
// an IP mask other than 0 means "IPv4", an IPv6 mask other than 0 "IPv6".
struct FlowFields {
  MacAddress destination_mac{};
  MacAddress source_mac{};
  uint16_t ether_type = 0;  // Of the payload, behind VLAN tags.
  uint16_t vlan_tci = 0;
  uint32_t source_ip = 0;
  uint32_t destination_ip = 0;
  Ipv6Address source_ipv6{};
  Ipv6Address destination_ipv6{};
  uint8_t ip_protocol = 0;
  uint16_t source_port = 0;
  uint16_t destination_port = 0;

  friend bool operator==(const FlowFields&, const FlowFields&) = default;
};

struct FlowRequest {
  ibv_flow_attr_type type = IBV_FLOW_ATTR_NORMAL;
  FlowFields value;
  FlowFields mask;
  // The first specification is of Ethernet: it alone says whether the rule is a multicast one.
  bool ethernet_first = false;
  uint16_t priority = 0;  // 0 to 15; lower goes first.
  bool dont_trap = false;
  bool drop = false;                // What matches reaches nobody.
  std::optional<uint32_t> tag;      // 24 bits.
  std::optional<uint32_t> counter;  // Of Device::CreateFlowCounter: counts what matches.
  uint32_t qp = 0;                  // A RAW_PACKET QP or an RSS QP.
};

// What rules with a counter matched; bytes are those of frames without FCS.
struct FlowCount {
  uint64_t packets = 0;
  uint64_t bytes = 0;
};

}  // namespace xtreme::connectx

#endif  // XTREME_TOOLS_CONNECTX_DEVICE_REQUESTS_H_
