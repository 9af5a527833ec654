// SPDX-License-Identifier: Apache-2.0
//
// DeviceFacts: what the verbs say of the device behind an interface; a plain value, so that a test
// writes it down.
//
// Units: in the names. Threads: any.

#ifndef XTREME_TOOLS_CHECK_DEVICE_FACTS_H_
#define XTREME_TOOLS_CHECK_DEVICE_FACTS_H_

#include <cstdint>
#include <optional>
#include <string>

namespace xtreme::check {

struct DeviceFacts {
  std::string problem;  // Why there is no device; empty: there is one.
  bool has_interface = false;  // There is an interface of that name.
  std::string name;
  uint8_t port = 1;
  std::string uverbs;   // "uverbs0"
  std::string firmware;
  bool software = false;  // A software ConnectX.
  bool port_active = false;
  uint64_t link_bits_per_second = 0;
  uint64_t device_memory_bytes = 0;
  bool checksums = false;
  uint64_t timestamp_mask = 0;  // 0: no timestamps.
  uint64_t clock_khz = 0;
  // Whether this program may make raw queues; nullopt: none could be made for another reason.
  std::optional<bool> raw_queues;
  // Whether queues get free-running times, which rings ask for; nullopt: no queue could be made.
  std::optional<bool> free_running_times;
  bool clock_published = false;  // The kernel shows how the device's clock runs.
  std::optional<bool> host_clock_synchronised;
  uint32_t doorbell_registers = 0;  // Tried for, up to 33, and given back.
  bool blueflame = false;           // The first of them has one.
  std::optional<uint32_t> flow_table_rules;  // As the device tells it.
};

// Asks the device of `interface`. Makes nothing that outlives the call.
DeviceFacts ProbeDevice(const std::string& interface);

}  // namespace xtreme::check

#endif  // XTREME_TOOLS_CHECK_DEVICE_FACTS_H_
