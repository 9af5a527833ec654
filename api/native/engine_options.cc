// SPDX-License-Identifier: Apache-2.0

#include "api/native/engine_options.h"

namespace xtreme::api {

engine::RingOptions EngineOptions(const xtreme_ring_options& c) {
  engine::RingOptions options;
  options.interface_name = c.interface_name;
  options.user_data = c.user_data;
  options.backup_interface = c.backup_interface == nullptr ? "" : c.backup_interface;
  options.backup_stays = c.backup_stays != 0;
  options.rx_burst_us = c.rx_burst_us;
  options.rx_frame_bytes = c.rx_frame_bytes;
  options.rx_buffers = c.rx_buffers;
  options.rx_queue_frames = c.rx_queue_frames;
  options.link_bits_per_second = c.link_bits_per_second;
  options.reassembly_datagrams = c.reassembly_datagrams;
  options.fragments = static_cast<engine::Fragments>(c.fragments);
  options.hugepages = static_cast<engine::Hugepages>(c.hugepages);
  options.memory = {.allocate = c.memory_allocate,
                    .release = c.memory_release,
                    .context = c.memory_context};
  options.tx_queue_frames = c.tx_queue_frames;
  options.signal_every = c.signal_every;
  options.neighbour_queue = c.neighbour_queue;
  options.blueflame = c.blueflame != 0;
  options.device_memory = c.device_memory;
  options.completions = c.completions;
  options.poll_batch = c.poll_batch;
  options.max_sockets = c.max_sockets;
  options.max_groups = c.max_groups;
  options.spin_us = c.spin_us;
  options.max_connections = c.max_connections;
  options.tcp_ports_log2 = c.tcp_ports_log2;
  options.tcp_time_wait_ms = c.tcp_time_wait_ms;
  options.wait = static_cast<engine::WaitPolicy>(c.wait);
  options.hw_time = static_cast<engine::HwTime>(c.hw_time);
  options.control_cpus = c.control_cpus == nullptr ? "" : c.control_cpus;
  options.counters_directory = c.counters_directory == nullptr ? "/dev/shm" : c.counters_directory;
  options.counters_access = static_cast<stats::Access>(c.counters_access);
  options.histograms = c.histograms != 0;
  options.dump_frames = c.dump_frames;
  if (c.dump_snap_bytes != 0) options.dump_snap_bytes = c.dump_snap_bytes;
  return options;
}

}  // namespace xtreme::api
