// SPDX-License-Identifier: Apache-2.0
//
// The seam to devices: what a NIC must offer so that the engine can run on it.
//
// A Nic is one port of one device. It makes queue pairs (a send and a receive queue with their
// completion queues, for one ring), steers frames to them and tells the time. Everything here is
// bring-up or slow work, done by the thread that opens a ring or by the control thread; the data
// path is in queue_pair.h. A Nic outlives its queue pairs, rules and registrations.
// Units: bytes, nanoseconds, host byte order. Threads: any, one at a time, unless said.

#ifndef XTREME_NIC_NIC_H_
#define XTREME_NIC_NIC_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "stack/packet/buffer_pool.h"
#include "stack/wire/address.h"
#include "xtreme/nic/queue_pair.h"

namespace xtreme::stats {
class FrameTap;
}

namespace xtreme::nic {

// What a frame's time is the time of.
enum class TimeSource : uint8_t {
  kNone,
  kCompletion,  // Of its completion: for a send later than the wire by what the device took.
  kPort,        // Of the frame at the port.
};

// What a queue pair got, and why it did not get more.
struct Capabilities {
  bool blueflame = false;            // WQEs are written to the device, not only rung for.
  uint32_t blueflame_bytes = 0;      // The largest WQE that goes that way.
  uint32_t max_inline_bytes = 0;     // The longest frame that needs no gather.
  bool transmit_checksum = false;    // IPv4 header and UDP/TCP, computed by the NIC.
  bool receive_checksum = false;     // Verdicts in every CQE.
  bool receive_timestamp = false;
  bool transmit_timestamp = false;
  TimeSource receive_time = TimeSource::kNone;
  TimeSource transmit_time = TimeSource::kNone;
  uint32_t min_inline_header_bytes = 0;
  uint32_t send_queue_frames = 0;    // Most frames posted and not completed.
  uint32_t receive_queue_frames = 0;
  uint32_t device_memory_bytes = 0;  // Of the NIC, that frames too long for a WQE are sent from.
  uint32_t max_segmented_bytes = 0;  // Payload of one send that the NIC cuts into segments; 0: no.
  bool rate_limit = false;           // A queue pair's sends can be paced: Nic::SetRate().
  uint32_t mtu = 0;                  // Of the port: the longest IP packet.
  uint64_t link_bits_per_second = 0;
  std::string device;                // "mlx5_0 port 1"
  std::vector<std::string> lacking;  // One sentence for each thing asked for and not got.

  // All of it in one line for the log.
  std::string ToString() const;
};

// Which frames a rule takes, as the card matches them: an unset field matches anything. No
// fragment, the first included, matches a rule with ports.
struct FlowMatch {
  wire::MacAddress destination_mac;  // Always matched.
  std::optional<uint16_t> vlan_id;
  std::optional<wire::Ipv4Address> source_ip;
  std::optional<wire::Ipv4Address> destination_ip;
  std::optional<uint8_t> protocol;
  std::optional<uint16_t> source_port;
  std::optional<uint16_t> destination_port;
  // Of the destination port: the bits that are matched, so that one rule takes an aligned block.
  uint16_t destination_port_mask = 0xFFFF;

  bool operator==(const FlowMatch&) const = default;
};

struct FlowRule {
  FlowMatch match;
  uint16_t priority = 0;      // Lower wins.
  uint32_t tag = 0;           // 1 .. 2^24-1, a hint in every frame's RxFrame; 0: none.
  bool share_with_kernel = false;  // The kernel gets a copy (DONT_TRAP).
};

// Steers matching frames to a queue pair until it is destroyed. Removing a rule is slow work.
class Rule {
 public:
  virtual ~Rule() = default;
};

// Memory the NIC may read and write, until destroyed (after every queue pair that uses it).
class Registration {
 public:
  virtual ~Registration() = default;
  virtual uint32_t key() const = 0;
};

struct QueuePairOptions {
  uint32_t send_queue_frames = 1024;     // Frames of one inline header and a gather; power of two.
  uint32_t receive_queue_frames = 1024;  // Power of two.
  uint32_t signal_every = 128;           // TxStep::units for one CQE; at most 1/4 of the queue.
  bool blueflame = true;
  // On-device memory to send from; rounded down to a power of two. 0: none.
  uint32_t device_memory_bytes = 0;
  bool interrupts = false;               // With a completion channel: fd() can be waited for.
  bool timestamps = true;
  stats::FrameTap* tap = nullptr;        // Gets a copy of every frame, if the device offers that;
                                         // outlives the queue pair.
};

// How fast a queue pair may send, as the device enforces it: never more than `burst_bytes` above
// the rate.
struct RateLimit {
  uint64_t bytes_per_second = 0;      // Of frames, without preamble and gap; 0: no limit.
  uint32_t burst_bytes = 0;           // 0: the device's own.
  uint32_t typical_packet_bytes = 0;  // Helps the device to keep the burst; 0: not said.

  bool operator==(const RateLimit&) const = default;
};

// When a queue pair interrupts: once so many completions wait, or the first has waited so long.
// Both 0: at once.
struct Moderation {
  uint16_t completions = 0;
  uint16_t microseconds = 0;

  bool operator==(const Moderation&) const = default;
};

// Events of the port or device, in the order the device told them.
enum class PortEvent : uint8_t { kLinkUp, kLinkDown, kDeviceRemoved, kQueueError };

// Port-wide losses, as the device counts them: shared by everybody on the port.
struct PortCounters {
  uint64_t out_of_buffer = 0;  // Frames for one of our queues, or another's, with nothing posted.
  uint64_t discards = 0;       // Frames the port dropped before any queue.
};

class Nic {
 public:
  virtual ~Nic() = default;

  virtual const Capabilities& capabilities() const = 0;
  virtual wire::MacAddress mac() const = 0;

  // Makes memory usable as payload. InvalidArgument: an empty or unmapped range. ResourceExhausted:
  // the device or RLIMIT_MEMLOCK refuses (the message has both numbers).
  virtual absl::StatusOr<std::unique_ptr<Registration>> Register(void* start, size_t bytes) = 0;

  // A queue pair that receives into buffers of `pool` (which it registers, and which outlives it),
  // ready to send and with an empty receive queue. The message of an error names the step, what was
  // asked and what the device offers; nothing is leaked.
  virtual absl::StatusOr<std::unique_ptr<QueuePair>> CreateQueuePair(
      const QueuePairOptions& options, packet::BufferPool* pool) = 0;

  // Paces the queue pair's sends from here on. InvalidArgument: beyond what the device can do (the
  // message has its range). ResourceExhausted: its table of rates is full. Unimplemented: it has
  // none.
  virtual absl::Status SetRate(QueuePair* queue_pair, const RateLimit& rate) = 0;

  // From here on for both its completion queues. InvalidArgument: beyond what the device can do
  // (the message has its range), or only one of the two is 0. Unimplemented: it cannot.
  virtual absl::Status SetModeration(QueuePair*, const Moderation&) {
    return absl::UnimplementedError("moderate interrupts: the device cannot");
  }

  // Steers frames to `queue_pair`. AlreadyExists: an equal match with another tag stands (EEXIST),
  // possibly another process's. ResourceExhausted: the device's table is full. Unimplemented: the
  // device refuses a feature of the rule (the message says which).
  virtual absl::StatusOr<std::unique_ptr<Rule>> AddRule(const FlowRule& rule,
                                                        QueuePair* queue_pair) = 0;

  // The device's clock now, against the host's: to be called about once a second by the control
  // thread; the result is handed to rings. `host_now_ns` is the caller's clock, read around the
  // device's.
  virtual DeviceClock SampleClock(const std::function<int64_t()>& host_now_ns) = 0;

  // NotFound: the system does not show the port's counters.
  virtual absl::StatusOr<PortCounters> ReadPortCounters() = 0;

  // Readable when PollEvent has something; never blocks.
  virtual int event_fd() const = 0;
  virtual std::optional<PortEvent> PollEvent() = 0;
};

}  // namespace xtreme::nic

#endif  // XTREME_NIC_NIC_H_
