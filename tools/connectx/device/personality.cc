// SPDX-License-Identifier: Apache-2.0

#include "tools/connectx/device/personality.h"

#include <array>

namespace xtreme::connectx {
namespace {

// No on-device memory yet, and the L2 header has to be inline.
Device::Options ConnectX4Lx() {
  Device::Options options;
  options.model = {.pci_device_id = 0x1015,
                   .hca_type = "MT4117",
                   .board_id = "MT_2420110034",
                   .firmware = {14, 32, 1010}};
  options.hca_core_clock_khz = 156'250;
  options.eth_min_inline = Device::MinInline::kL2;
  options.limits.device_memory_bytes = 0;
  options.features.vlan_insertion = false;
  return options;
}

Device::Options ConnectX5() {
  Device::Options options;
  options.hca_core_clock_khz = 78'125;
  options.eth_min_inline = Device::MinInline::kNone;
  return options;
}

Device::Options ConnectX6Dx() {
  Device::Options options;
  options.model = {.pci_device_id = 0x101d,
                   .hca_type = "MT4125",
                   .board_id = "MT_0000000359",
                   .firmware = {22, 39, 1002}};
  options.eth_min_inline = Device::MinInline::kNone;
  options.features.real_time_clock = true;
  return options;
}

Device::Options ConnectX7() {
  Device::Options options;
  options.model = {.pci_device_id = 0x1021,
                   .hca_type = "MT4129",
                   .board_id = "MT_0000000838",
                   .firmware = {28, 39, 1002}};
  options.eth_min_inline = Device::MinInline::kNone;
  options.features.real_time_clock = true;
  return options;
}

// A virtual function of a ConnectX-6 Dx in a virtual machine: no write combining, hence no
// BlueFlame; no on-device memory and no rates of its own; and little of everything.
Device::Options VirtualFunction() {
  Device::Options options;
  options.model = {.pci_device_id = 0x101e,
                   .hca_type = "MT4126",
                   .board_id = "MT_0000000359",
                   .firmware = {22, 39, 1002}};
  options.eth_min_inline = Device::MinInline::kNone;
  options.limits = {.qps = 256,
                    .cqs = 512,
                    .flow_rules = 1024,
                    .uars = 64,
                    .memory_regions = 1024,
                    .device_memory_bytes = 0};
  options.features.blueflame = false;
  options.features.packet_pacing = false;
  return options;
}

struct Card {
  std::string_view name;
  Device::Options (*options)();
};

constexpr std::array kCards = {Card{"cx4lx", &ConnectX4Lx}, Card{"cx5", &ConnectX5},
                               Card{"cx6dx", &ConnectX6Dx}, Card{"cx7", &ConnectX7},
                               Card{"vf", &VirtualFunction}};

struct Capability {
  std::string_view name;
  void (*take)(Device::Options& options);
};

constexpr std::array kCapabilities = {
    Capability{"timestamps", [](Device::Options& o) { o.features.timestamps = false; }},
    Capability{"blueflame", [](Device::Options& o) { o.features.blueflame = false; }},
    Capability{"checksums", [](Device::Options& o) { o.features.checksum_offload = false; }},
    Capability{"tso", [](Device::Options& o) { o.limits.tso_bytes = 0; }},
    Capability{"device_memory", [](Device::Options& o) { o.limits.device_memory_bytes = 0; }},
    Capability{"vlan_insertion", [](Device::Options& o) { o.features.vlan_insertion = false; }},
    Capability{"vlan_stripping", [](Device::Options& o) { o.features.vlan_stripping = false; }},
    Capability{"receive_scaling", [](Device::Options& o) { o.features.receive_scaling = false; }},
    Capability{"packet_pacing", [](Device::Options& o) { o.features.packet_pacing = false; }},
    Capability{"pacing_bursts", [](Device::Options& o) { o.features.pacing_bursts = false; }},
    Capability{"real_time_clock", [](Device::Options& o) { o.features.real_time_clock = false; }},
    Capability{"free_running_clock",
               [](Device::Options& o) { o.features.free_running_clock = false; }},
    Capability{"devx", [](Device::Options& o) { o.features.devx = false; }},
    Capability{"cq_moderation", [](Device::Options& o) { o.features.cq_moderation = false; }},
    Capability{"clock_info", [](Device::Options& o) { o.features.clock_info = false; }},
    Capability{"dont_trap", [](Device::Options& o) { o.features.dont_trap = false; }},
    Capability{"net_raw", [](Device::Options& o) { o.features.net_raw = false; }},
};

// The names of a table's rows.
template <const auto& table>
std::span<const std::string_view> Names() {
  static constexpr auto kNames = [] {
    std::array<std::string_view, table.size()> names;
    for (size_t i = 0; i < table.size(); ++i) names[i] = table[i].name;
    return names;
  }();
  return kNames;
}

}  // namespace

std::span<const std::string_view> PersonalityNames() {
  return Names<kCards>();
}

std::optional<Device::Options> PersonalityNamed(std::string_view name) {
  for (const Card& card : kCards) {
    if (card.name == name) return card.options();
  }
  return std::nullopt;
}

std::span<const std::string_view> CapabilityNames() { return Names<kCapabilities>(); }

bool TakeCapability(std::string_view name, Device::Options* options) {
  for (const Capability& capability : kCapabilities) {
    if (capability.name != name) continue;
    capability.take(*options);
    return true;
  }
  return false;
}

}  // namespace xtreme::connectx
