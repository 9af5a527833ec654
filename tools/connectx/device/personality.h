// SPDX-License-Identifier: Apache-2.0
//
// Cards by name: what each says it is, what it needs of a program and what it can do, as far as
// this device models it.
//
// Thread: none, pure functions.
// Spec: ibv_devinfo -v of the cards; Linux drivers/net/ethernet/mellanox/mlx5 for PCI ids.

#ifndef XTREME_TOOLS_CONNECTX_DEVICE_PERSONALITY_H_
#define XTREME_TOOLS_CONNECTX_DEVICE_PERSONALITY_H_

#include <optional>
#include <span>
#include <string_view>

#include "tools/connectx/device/device.h"

namespace xtreme::connectx {

// "cx4lx", "cx5", "cx6dx", "cx7", "vf".
std::span<const std::string_view> PersonalityNames();

// The options of that card; name and MAC address are the caller's to set. Empty: no such card.
std::optional<Device::Options> PersonalityNamed(std::string_view name);

// What a device may lack: "timestamps", "blueflame", "checksums", "tso", "device_memory",
// "vlan_insertion", "vlan_stripping", "receive_scaling", "packet_pacing", "pacing_bursts",
// "real_time_clock", "free_running_clock", "devx", "cq_moderation", "clock_info", "dont_trap", and,
// of the programs that use it, "net_raw".
std::span<const std::string_view> CapabilityNames();

// Takes the capability away. False: there is none of that name.
bool TakeCapability(std::string_view name, Device::Options* options);

}  // namespace xtreme::connectx

#endif  // XTREME_TOOLS_CONNECTX_DEVICE_PERSONALITY_H_
