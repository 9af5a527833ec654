// SPDX-License-Identifier: Apache-2.0

#include "tools/check/device_facts.h"

#include <infiniband/mlx5dv.h>
#include <net/if.h>
#include <sys/timex.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "xtreme/mlx5/device.h"

namespace xtreme::check {
namespace {

// One for each of 32 rings, and one to see that there are more.
constexpr uint32_t kRegistersTried = 33;

// QUERY_HCA_CAP, of the receive side's flow tables. PRM, "Flow Table Capabilities"; the places of
// its fields as the kernel's include/linux/mlx5/mlx5_ifc.h has them.
constexpr uint16_t kQueryHcaCap = 0x100;
constexpr uint16_t kFlowTableNow = 0x7 << 1 | 1;
constexpr size_t kCapabilityBytes = 4'096;
// log_max_flow, bits 0xB8 to 0xBF of flow_table_properties_nic_receive, which begins 0x200 bits
// into the capabilities; those follow the output's head of 16 bytes.
constexpr size_t kLogMaxFlowAt = 16 + 0x200 / 8 + 0xB8 / 8;

void CountRegisters(ibv_context* context, DeviceFacts* facts) {
  std::vector<mlx5dv_devx_uar*> taken;
  for (; taken.size() < kRegistersTried;) {
    mlx5dv_devx_uar* const uar = mlx5dv_devx_alloc_uar(context, MLX5DV_UAR_ALLOC_TYPE_BF);
    if (uar == nullptr) break;
    taken.push_back(uar);
  }
  facts->doorbell_registers = static_cast<uint32_t>(taken.size());
  facts->blueflame = !taken.empty();
  for (mlx5dv_devx_uar* uar : taken) mlx5dv_devx_free_uar(uar);
}

// A device whose firmware is set to real time and nothing else refuses the queue with EOPNOTSUPP;
// the kernel one of a program without CAP_NET_RAW, whatever its user namespace calls so.
void TryQueue(ibv_context* context, DeviceFacts* facts) {
  const bool timed = facts->timestamp_mask != 0;
  ibv_cq_init_attr_ex wanted{
      .cqe = 1, .wc_flags = timed ? uint32_t{IBV_WC_EX_WITH_COMPLETION_TIMESTAMP} : 0u};
  ibv_pd* const pd = ibv_alloc_pd(context);
  ibv_cq_ex* const cq = pd == nullptr ? nullptr : ibv_create_cq_ex(context, &wanted);
  if (cq != nullptr) {
    ibv_qp_init_attr queues{.send_cq = ibv_cq_ex_to_cq(cq),
                            .recv_cq = ibv_cq_ex_to_cq(cq),
                            .cap = {.max_send_wr = 1, .max_recv_wr = 1,
                                    .max_send_sge = 1, .max_recv_sge = 1},
                            .qp_type = IBV_QPT_RAW_PACKET};
    errno = 0;
    ibv_qp* const qp = ibv_create_qp(pd, &queues);
    const bool timeless = qp == nullptr && errno == EOPNOTSUPP;
    if (timed && (qp != nullptr || timeless)) facts->free_running_times = !timeless;
    if (qp != nullptr || errno == EPERM) facts->raw_queues = qp != nullptr;
    if (qp != nullptr) ibv_destroy_qp(qp);
    ibv_destroy_cq(ibv_cq_ex_to_cq(cq));
  }
  if (pd != nullptr) ibv_dealloc_pd(pd);
}

std::optional<uint32_t> QueryFlowRules(ibv_context* context) {
  std::array<uint8_t, 16> in{};
  in[0] = kQueryHcaCap >> 8;
  in[7] = kFlowTableNow;
  std::vector<uint8_t> out(16 + kCapabilityBytes);
  if (mlx5dv_devx_general_cmd(context, in.data(), in.size(), out.data(), out.size()) != 0) {
    return std::nullopt;
  }
  const uint32_t log2 = out[kLogMaxFlowAt] & 0x1F;
  if (log2 == 0) return std::nullopt;
  return uint32_t{1} << log2;
}

void Query(const mlx5::Device& device, DeviceFacts* facts) {
  ibv_context* const context = device.context.get();
  facts->uverbs = context->device->dev_name;
  facts->software = device.sysfs_path.find("/xtreme-connectx-") != std::string::npos;
  facts->device_memory_bytes = device.limits.device_memory_bytes;
  facts->checksums = device.limits.checksums;
  facts->timestamp_mask = device.limits.timestamp_mask;
  facts->clock_khz = device.limits.clock_khz;
  facts->link_bits_per_second = device.limits.link_bits_per_second;
  ibv_device_attr attributes{};
  if (ibv_query_device(context, &attributes) == 0) facts->firmware = attributes.fw_ver;
  ibv_port_attr port{};
  facts->port_active = ibv_query_port(context, device.port, &port) == 0 &&
                       port.state == IBV_PORT_ACTIVE;
  mlx5dv_clock_info clock{};
  facts->clock_published = mlx5dv_get_clock_info(context, &clock) == 0 && clock.mult != 0;
  TryQueue(context, facts);
  CountRegisters(context, facts);
  facts->flow_table_rules = QueryFlowRules(context);
}

}  // namespace

DeviceFacts ProbeDevice(const std::string& interface) {
  DeviceFacts facts;
  timex clock{};
  if (const int state = adjtimex(&clock); state >= 0) {
    facts.host_clock_synchronised = state != TIME_ERROR && (clock.status & STA_UNSYNC) == 0;
  }
  const unsigned index = if_nametoindex(interface.c_str());
  if (index == 0) {
    facts.problem = "there is no interface " + interface;
    return facts;
  }
  facts.has_interface = true;
  const auto port = mlx5::FindDevice(interface, static_cast<int>(index));
  if (!port.ok()) {
    facts.problem = std::string(port.status().message());
    return facts;
  }
  facts.name = port->device;
  facts.port = port->port;
  const auto device = mlx5::OpenDevice(*port);
  if (!device.ok()) {
    facts.problem = std::string(device.status().message());
    return facts;
  }
  Query(*device, &facts);
  return facts;
}

}  // namespace xtreme::check
