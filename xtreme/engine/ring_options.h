// SPDX-License-Identifier: Apache-2.0
//
// RingOptions: what a ring is made of, field for field as the C API's xtreme_ring_options,
// whose profiles and names stand in api/native/settings.cc.
//
// Units: in the names. Threads: a plain value.

#ifndef XTREME_XTREME_ENGINE_RING_OPTIONS_H_
#define XTREME_XTREME_ENGINE_RING_OPTIONS_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "stack/packet/buffer_pool.h"
#include "xtreme/stats/layout.h"

namespace xtreme::engine {

enum class Fragments : uint8_t {
  kKernel = 0,  // Unicast fragments are reassembled by the kernel and come as SLOW_PATH.
  kOwn = 1,     // The ring takes whole addresses and reassembles.
};
enum class Hugepages : uint8_t { kNever = 0, kTry = 1, kRequire = 2 };
// What times of the device are told on: kPtp where the device has such a clock.
enum class HwTime : uint8_t { kMonotonic = 0, kPtp = 1 };
enum class WaitPolicy : uint8_t { kBusy = 0, kSleep = 1, kHybrid = 2 };

struct RingOptions {
  static constexpr uint32_t kLeastQueueFrames = 64;  // Of either queue.

  // Who and where.
  std::string interface_name;
  uint64_t user_data = 0;
  uint16_t number = 0;  // In every handle of the ring: its place in the caller's table of rings.

  // The interface that the ring goes over to when its own goes down, with its sockets and
  // memberships: of another port, in the same networks and on the same VLAN. Empty: none.
  std::string backup_interface;
  bool backup_stays = false;  // It stays there until that one goes down, else it comes back.

  // Receive: the burst that must be absorbed sizes the pool, unless rx_buffers says how many.
  uint32_t rx_burst_us = 500;           // 0 .. 1,000,000.
  uint32_t rx_frame_bytes = 512;        // 64 .. 9,018.
  uint32_t rx_buffers = 0;              // 0, or 64 .. 2^24.
  uint32_t rx_queue_frames = 1024;      // Power of two, 64 .. 32,768.
  uint64_t link_bits_per_second = 0;    // 0: what the port says.
  uint32_t reassembly_datagrams = 64;   // 1 .. 4,096.
  Fragments fragments = Fragments::kKernel;
  Hugepages hugepages = Hugepages::kTry;
  packet::BufferPool::Source memory;    // Of the pool; none: the kernel's pages.

  // Send.
  uint32_t tx_queue_frames = 512;       // Power of two, 64 .. 32,768.
  uint32_t signal_every = 128;          // 1 .. 32,768; at most a quarter of the queue is taken.
  uint32_t neighbour_queue = 16;        // 0 .. 1,024.
  bool blueflame = true;
  uint32_t device_memory = 0;           // Bytes; 0, or a power of two up to 2^20.

  // The loop.
  uint32_t completions = 1024;          // Power of two, 64 .. 65,536.
  uint32_t poll_batch = 32;             // 1 .. 256.
  uint32_t max_sockets = 1024;          // 1 .. 1,000,000.
  uint32_t max_groups = 1024;           // 0 .. 65,536.
  uint32_t spin_us = 50;                // Hybrid wait; 0 .. 1,000,000.

  // TCP: what is not asked for costs nothing.
  uint32_t max_connections = 256;       // 0 .. 1,000,000, listeners too; 0: no TCP.
  uint32_t tcp_ports_log2 = 6;          // 0 .. 12: local ports of connects, leased with the first.
  uint32_t tcp_time_wait_ms = 60'000;   // 0 .. 600,000: RFC 9293 section 3.6, 2 MSL.

  WaitPolicy wait = WaitPolicy::kBusy;
  HwTime hw_time = HwTime::kMonotonic;

  // Where the process's control thread runs, "0-3,8"; empty: wherever the process may. It keeps off
  // the CPUs that owners are bound to when they start their rings, as long as one is left. The last
  // ring opened that names CPUs decides.
  std::string control_cpus;

  // Where the counters are published (xtreme/stats/layout.h); empty: nowhere.
  std::string counters_directory;
  stats::Access counters_access = stats::Access::kUser;
  bool histograms = false;       // Times between polls, and from the wire to a poll, are counted.
  // The last frames received and sent are kept beside the counters (xtreme/stats/frame_layout.h).
  uint32_t dump_frames = 0;      // 0: none. Power of two, up to 2^20.
  uint16_t dump_snap_bytes = 96; // Of each; 96 .. 9,120.

  // InvalidArgument: the field, what was asked and what is allowed.
  absl::Status Validate() const;
};

}  // namespace xtreme::engine

#endif  // XTREME_XTREME_ENGINE_RING_OPTIONS_H_
