// SPDX-License-Identifier: Apache-2.0

#include "xtreme/engine/ring_options.h"

#include <bit>

#include "absl/strings/str_cat.h"
#include "xtreme/stats/frame_layout.h"
#include "xtreme/host/cpus.h"

namespace xtreme::engine {
namespace {

struct Range {
  const char* name;
  uint64_t value;
  uint64_t least;
  uint64_t most;
  bool power_of_two = false;
};

absl::Status Check(const Range& range) {
  if (range.value < range.least || range.value > range.most) {
    return absl::InvalidArgumentError(absl::StrCat("ring option ", range.name, ": ", range.value,
                                                   " asked, ", range.least, " to ", range.most,
                                                   " allowed"));
  }
  if (range.power_of_two && !std::has_single_bit(range.value)) {
    return absl::InvalidArgumentError(absl::StrCat("ring option ", range.name, ": ", range.value,
                                                   " asked, a power of two allowed"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status RingOptions::Validate() const {
  if (interface_name.empty()) {
    return absl::InvalidArgumentError("ring option interface_name: none given");
  }
  const Range ranges[] = {
      {"rx_burst_us", rx_burst_us, 0, 1'000'000},
      {"rx_frame_bytes", rx_frame_bytes, 64, 9'018},
      {"rx_buffers", rx_buffers == 0 ? 64 : rx_buffers, 64, 1 << 24},
      {"rx_queue_frames", rx_queue_frames, kLeastQueueFrames, 32'768, true},
      {"reassembly_datagrams", reassembly_datagrams, 1, 4'096},
      {"fragments", static_cast<uint64_t>(fragments), 0, 1},
      {"hugepages", static_cast<uint64_t>(hugepages), 0, 2},
      {"tx_queue_frames", tx_queue_frames, kLeastQueueFrames, 32'768, true},
      {"signal_every", signal_every, 1, 32'768},
      {"device_memory", device_memory == 0 ? 4'096 : device_memory, 4'096, 1 << 20, true},
      {"neighbour_queue", neighbour_queue, 0, 1'024},
      {"completions", completions, 64, 65'536, true},
      {"poll_batch", poll_batch, 1, 256},
      {"max_sockets", max_sockets, 1, 1'000'000},
      {"max_groups", max_groups, 0, 65'536},
      {"spin_us", spin_us, 0, 1'000'000},
      {"max_connections", max_connections, 0, 1'000'000},
      {"tcp_ports_log2", tcp_ports_log2, 0, 12},
      {"tcp_time_wait_ms", tcp_time_wait_ms, 0, 600'000},
      {"wait", static_cast<uint64_t>(wait), 0, 2},
      {"hw_time", static_cast<uint64_t>(hw_time), 0, 1},
      {"dump_frames", dump_frames == 0 ? 1 : dump_frames, 1, stats::kMostSlots, true},
      {"dump_snap_bytes", dump_snap_bytes, stats::kLeastSnapBytes, stats::kMostSnapBytes},
      {"counters_access", static_cast<uint64_t>(counters_access), 0, 2},
  };
  for (const Range& range : ranges) {
    if (absl::Status status = Check(range); !status.ok()) return status;
  }
  if (!control_cpus.empty()) {
    if (const auto cpus = host::CpuSet::Parse(control_cpus); !cpus.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("ring option control_cpus: ", cpus.status().message()));
    }
  }
  return absl::OkStatus();
}

}  // namespace xtreme::engine
